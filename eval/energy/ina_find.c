/* Finds the power sensors of Jetson boards. hwmon numbers change between boots and boards wire the
 * channels differently, so chips are found by the driver's name and rails by their labels. */
#include "eval/energy/ina_chip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_NAMES = 1024 };

/* "1-0040" of the I2C device behind a hwmon folder; the folder's own name when there is none. */
static void chip_place(const char *folder, char out[ESPL_SYSFS_LABEL_MAX])
{
    char path[ESPL_PATH_MAX];
    char target[ESPL_PATH_MAX];
    ssize_t len = -1;
    if (espl_fs_join(path, folder, "device", NULL) == ESPL_OK) {
        len = readlink(path, target, sizeof target - 1);
    }
    target[len > 0 ? len : 0] = '\0';
    const char *slash = strrchr(len > 0 ? target : folder, '/');
    const char *name = slash != NULL ? slash + 1 : "chip";
    (void)espl_sysfs_parse_label(name, strlen(name), out); /* "" then: only the driver is named */
}

/* A new chip with closed channels. */
static struct espl_ina_chip *add_chip(struct espl_energy_meter *meter, struct espl_error *err)
{
    struct espl_ina_chip *ina = calloc(1, sizeof *ina);
    if (ina == NULL) {
        (void)espl_fail(err, ESPL_E_NOMEM, "no memory for a power sensor");
        return NULL;
    }
    for (size_t i = 0; i < ESPL_INA_CHANNELS; i++) {
        ina->channels[i].current_fd = -1;
        ina->channels[i].voltage_fd = -1;
        ina->channels[i].power_fd = -1;
    }
    return espl_energy_add_chip(meter, ina, err) != NULL ? ina : NULL;
}

/* Name and first state of a rail, from its label. */
static void name_rail(struct espl_energy_rail *rail, const char *folder, const char *label_file,
                      const char *fallback)
{
    struct espl_error err = {0};
    if (espl_sysfs_get_label(folder, label_file, rail->name, &err) == ESPL_OK) {
        rail->state = strcmp(rail->name, "NC") == 0 ? ESPL_RAIL_NOT_CONNECTED : ESPL_RAIL_OK;
        return;
    }
    (void)snprintf(rail->name, sizeof rail->name, "%s", fallback);
    rail->state = ESPL_RAIL_UNLABELLED;
}

/* Opens a file of a rail unless something is known to be wrong with it already. */
static void open_part(struct espl_energy_rail *rail, const char *folder, const char *name, int *fd)
{
    if (rail->state == ESPL_RAIL_OK) {
        rail->state = espl_sysfs_open(folder, name, fd, &rail->sys_errno);
    }
}

/* Channel `i` (from 0) of an ina3221 under hwmon, where channels count from 1. */
static enum espl_status add_hwmon_channel(struct espl_energy_meter *meter, const char *folder,
                                          const char *chip_name, size_t i,
                                          struct espl_ina_channel *channel, struct espl_error *err)
{
    char name[32];
    char fallback[32];
    int64_t enabled = 1;
    struct espl_energy_rail *rail = espl_energy_add_rail(meter, err);
    if (rail == NULL) {
        return ESPL_E_NOMEM;
    }
    (void)snprintf(rail->place, sizeof rail->place, "ina3221 %.32s channel %zu", chip_name, i + 1);
    (void)snprintf(name, sizeof name, "in%zu_label", i + 1);
    (void)snprintf(fallback, sizeof fallback, "channel %zu", i + 1);
    name_rail(rail, folder, name, fallback);
    (void)snprintf(name, sizeof name, "in%zu_enable", i + 1);
    if (rail->state == ESPL_RAIL_OK && espl_sysfs_get_int(folder, name, &enabled) == ESPL_RAIL_OK &&
        enabled == 0) {
        rail->state = ESPL_RAIL_DISABLED;
    }
    (void)snprintf(name, sizeof name, "shunt%zu_resistor", i + 1);
    if (espl_sysfs_get_int(folder, name, &channel->shunt_uohm) != ESPL_RAIL_OK ||
        channel->shunt_uohm < 0) {
        channel->shunt_uohm = 0; /* then the step is taken from the readings */
    }
    (void)snprintf(name, sizeof name, "curr%zu_input", i + 1);
    open_part(rail, folder, name, &channel->current_fd);
    (void)snprintf(name, sizeof name, "in%zu_input", i + 1);
    open_part(rail, folder, name, &channel->voltage_fd);
    return ESPL_OK;
}

static enum espl_status add_ina3221(struct espl_energy_meter *meter, const char *folder,
                                    const char *chip_name, struct espl_error *err)
{
    struct espl_ina_chip *ina = add_chip(meter, err);
    enum espl_status status = ina != NULL ? ESPL_OK : ESPL_E_NOMEM;
    for (size_t i = 0; i < ESPL_INA_CHANNELS && status == ESPL_OK; i++) {
        status = add_hwmon_channel(meter, folder, chip_name, i, &ina->channels[i], err);
    }
    return status;
}

/* An ina238 has one channel, mostly without a label: on Thor it is the input of the system, on
 * boards we do not know it can be anything. */
static enum espl_status add_ina238(struct espl_energy_meter *meter, const char *folder,
                                   const char *chip_name, struct espl_error *err)
{
    struct espl_ina_chip *ina = add_chip(meter, err);
    struct espl_energy_rail *rail = ina != NULL ? espl_energy_add_rail(meter, err) : NULL;
    if (rail == NULL) {
        return ESPL_E_NOMEM;
    }
    (void)snprintf(rail->place, sizeof rail->place, "ina238 %.32s", chip_name);
    name_rail(rail, folder, "in1_label", "ina238");
    if (rail->state == ESPL_RAIL_UNLABELLED && espl_energy_board_has_vin(meter)) {
        (void)snprintf(rail->name, sizeof rail->name, "VIN");
        rail->state = ESPL_RAIL_OK;
    }
    ina->channels[0].power_unit_w = 1e-6;
    open_part(rail, folder, "power1_input", &ina->channels[0].power_fd);
    return ESPL_OK;
}

enum espl_status espl_ina_find_hwmon(struct espl_energy_meter *meter,
                                     const struct espl_energy_options *options,
                                     struct espl_error *err)
{
    char base[ESPL_PATH_MAX];
    char folder[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    enum espl_status status = espl_energy_root_path(options, "/sys/class/hwmon", base, err);
    if (status != ESPL_OK || espl_fs_list(base, MAX_NAMES, &names, &count, NULL) != ESPL_OK) {
        return status; /* no hwmon: none of its sensors */
    }
    for (size_t i = 0; i < count && status == ESPL_OK; i++) {
        char driver[ESPL_SYSFS_LABEL_MAX];
        char chip_name[ESPL_SYSFS_LABEL_MAX];
        status = espl_fs_join(folder, base, names[i], err);
        if (status != ESPL_OK || espl_sysfs_get_label(folder, "name", driver, NULL) != ESPL_OK) {
            continue;
        }
        chip_place(folder, chip_name);
        if (strcmp(driver, "ina3221") == 0) {
            status = add_ina3221(meter, folder, chip_name, err);
        } else if (strcmp(driver, "ina238") == 0) {
            status = add_ina238(meter, folder, chip_name, err);
        }
    }
    espl_fs_free_names(names, count);
    return status;
}

/* One "iio:device<N>" folder: three rails, counted from 0, whose power comes in one read. */
static enum espl_status add_iio_chip(struct espl_energy_meter *meter, const char *folder,
                                     const char *chip_name, struct espl_error *err)
{
    struct espl_ina_chip *ina = add_chip(meter, err);
    if (ina == NULL) {
        return ESPL_E_NOMEM;
    }
    for (size_t i = 0; i < ESPL_INA_CHANNELS; i++) {
        char name[32];
        char fallback[32];
        struct espl_energy_rail *rail = espl_energy_add_rail(meter, err);
        if (rail == NULL) {
            return ESPL_E_NOMEM;
        }
        (void)snprintf(rail->place, sizeof rail->place, "ina3221x %.32s channel %zu", chip_name, i);
        (void)snprintf(name, sizeof name, "rail_name_%zu", i);
        (void)snprintf(fallback, sizeof fallback, "channel %zu", i);
        name_rail(rail, folder, name, fallback);
        ina->channels[i].power_unit_w = 1e-3;
        (void)snprintf(name, sizeof name, "in_power%zu_input", i);
        open_part(rail, folder, name, &ina->channels[i].power_fd);
    }
    return ESPL_OK;
}

/* The iio folders of one I2C device. */
static enum espl_status add_iio_device(struct espl_energy_meter *meter, const char *base,
                                       const char *chip_name, struct espl_error *err)
{
    char device[ESPL_PATH_MAX];
    char folder[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    enum espl_status status = espl_fs_join(device, base, chip_name, err);
    if (status != ESPL_OK || espl_fs_list(device, MAX_NAMES, &names, &count, NULL) != ESPL_OK) {
        return status; /* "bind", "uevent": no devices */
    }
    for (size_t i = 0; i < count && status == ESPL_OK; i++) {
        if (strncmp(names[i], "iio:device", strlen("iio:device")) == 0) {
            status = espl_fs_join(folder, device, names[i], err);
            status = status == ESPL_OK ? add_iio_chip(meter, folder, chip_name, err) : status;
        }
    }
    espl_fs_free_names(names, count);
    return status;
}

enum espl_status espl_ina_find_iio(struct espl_energy_meter *meter,
                                   const struct espl_energy_options *options,
                                   struct espl_error *err)
{
    char base[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    enum espl_status status =
        espl_energy_root_path(options, "/sys/bus/i2c/drivers/ina3221x", base, err);
    if (status != ESPL_OK || espl_fs_list(base, MAX_NAMES, &names, &count, NULL) != ESPL_OK) {
        return status; /* not JetPack 4 */
    }
    for (size_t i = 0; i < count && status == ESPL_OK; i++) {
        status = add_iio_device(meter, base, names[i], err);
    }
    espl_fs_free_names(names, count);
    return status;
}
