/* The power sensors of Jetson boards: INA3221 (three rails a chip) and, on Thor, INA238. */
#include "eval/energy/ina_chip.h"

#include <stdlib.h>
#include <unistd.h>

/* The bus voltage hardly moves and each read of it takes the chip's lock: every tenth will do. */
enum { VOLTAGE_EVERY = 10 };

/* What the sensors can measure at all, with room: a value outside is not a reading. */
static const int64_t most_millivolts = 100 * 1000;
static const int64_t most_milliamperes = 1000 * 1000;
static const double most_watts = 1e5;
/* INA3221: least step of the voltage over the shunt. */
static const double shunt_step_v = 40e-6;

static bool within(int64_t value, int64_t limit)
{
    return value >= -limit && value <= limit;
}

static enum espl_rail_state read_power_file(struct espl_ina_channel *channel, double *watts,
                                            int *sys_errno)
{
    int64_t value = 0;
    const enum espl_rail_state state = espl_sysfs_read_int(channel->power_fd, &value, sys_errno);
    if (state != ESPL_RAIL_OK) {
        return state;
    }
    const double power = (double)value * channel->power_unit_w;
    if (power > most_watts || power < -most_watts) {
        return ESPL_RAIL_BAD_VALUE;
    }
    *watts = power; /* negative power is kept: an offset cancels when idle is subtracted */
    return ESPL_RAIL_OK;
}

static enum espl_rail_state read_voltage(struct espl_ina_channel *channel, int *sys_errno)
{
    int64_t millivolts = 0;
    if (channel->age > 0 && channel->age < VOLTAGE_EVERY) {
        channel->age++;
        return ESPL_RAIL_OK;
    }
    channel->age = 0; /* until it has been read */
    const enum espl_rail_state state =
        espl_sysfs_read_int(channel->voltage_fd, &millivolts, sys_errno);
    if (state != ESPL_RAIL_OK) {
        return state;
    }
    if (!within(millivolts, most_millivolts)) {
        return ESPL_RAIL_BAD_VALUE;
    }
    channel->millivolts = millivolts;
    channel->age = 1;
    return ESPL_RAIL_OK;
}

static enum espl_rail_state read_rail(struct espl_energy_chip *chip, size_t rail, double *watts,
                                      int *sys_errno)
{
    struct espl_ina_chip *ina = chip->state;
    struct espl_ina_channel *channel = &ina->channels[rail];
    int64_t milliamperes = 0;
    if (channel->power_fd >= 0) {
        return read_power_file(channel, watts, sys_errno);
    }
    enum espl_rail_state state = espl_sysfs_read_int(channel->current_fd, &milliamperes, sys_errno);
    if (state == ESPL_RAIL_OK && !within(milliamperes, most_milliamperes)) {
        state = ESPL_RAIL_BAD_VALUE;
    }
    if (state == ESPL_RAIL_OK) {
        state = read_voltage(channel, sys_errno);
    }
    if (state == ESPL_RAIL_OK) {
        *watts = (double)milliamperes * 1e-3 * ((double)channel->millivolts * 1e-3);
    }
    return state;
}

static void close_chip(struct espl_energy_chip *chip)
{
    struct espl_ina_chip *ina = chip->state;
    for (size_t i = 0; ina != NULL && i < ESPL_INA_CHANNELS; i++) {
        const int fds[] = {ina->channels[i].current_fd, ina->channels[i].voltage_fd,
                           ina->channels[i].power_fd};
        for (size_t f = 0; f < sizeof fds / sizeof fds[0]; f++) {
            if (fds[f] >= 0) {
                (void)close(fds[f]); /* only read from */
            }
        }
    }
    free(ina);
}

static enum espl_status find(struct espl_energy_meter *meter,
                             const struct espl_energy_options *options, struct espl_error *err)
{
    espl_energy_read_board(meter, options);
    enum espl_status status = espl_ina_find_hwmon(meter, options, err);
    if (status == ESPL_OK) {
        status = espl_ina_find_iio(meter, options, err);
    }
    if (status == ESPL_OK && meter->chip_count == 0) {
        status = espl_fail(err, ESPL_E_MACHINE, "no power sensor of a Jetson board is there");
    }
    return status;
}

/* The step of a power reading: one step of the shunt voltage, as current, at the rail's voltage.
 * Known after the probe only. */
static void find_steps(struct espl_energy_meter *meter)
{
    for (size_t c = 0; c < meter->chip_count; c++) {
        struct espl_energy_chip *chip = meter->chips[c];
        const struct espl_ina_chip *ina = chip->state;
        for (size_t i = 0; i < chip->rail_count; i++) {
            const struct espl_ina_channel *channel = &ina->channels[i];
            if (chip->rails[i].state == ESPL_RAIL_OK && channel->shunt_uohm > 0) {
                const double step_a = shunt_step_v / ((double)channel->shunt_uohm * 1e-6);
                chip->rails[i].series.step_w = step_a * (double)channel->millivolts * 1e-3;
            }
        }
    }
}

static void choose_totals(struct espl_energy_meter *meter)
{
    find_steps(meter);
    espl_energy_jetson_totals(meter);
}

const struct espl_energy_driver espl_energy_ina3221 = {
    .name = "ina3221",
    .find = find,
    .read = read_rail,
    .close_chip = close_chip,
    .choose_totals = choose_totals,
};
