/* The meter that measures nothing: energy is absent then, never zero. */
#include "eval/energy/meter_internal.h"

static enum espl_status find(struct espl_energy_meter *meter,
                             const struct espl_energy_options *options, struct espl_error *err)
{
    (void)options;
    (void)err;
    espl_energy_add_note(meter, "energy is not measured");
    return ESPL_OK;
}

static enum espl_rail_state read_rail(struct espl_energy_chip *chip, size_t rail, double *value,
                                      int *sys_errno)
{
    (void)chip;
    (void)rail;
    (void)value;
    (void)sys_errno;
    return ESPL_RAIL_ABSENT; /* never called: there are no rails */
}

static void close_chip(struct espl_energy_chip *chip)
{
    (void)chip; /* no state */
}

static void choose_totals(struct espl_energy_meter *meter)
{
    (void)meter; /* nothing to add up */
}

const struct espl_energy_driver espl_energy_none = {
    .name = "none",
    .find = find,
    .read = read_rail,
    .close_chip = close_chip,
    .choose_totals = choose_totals,
};
