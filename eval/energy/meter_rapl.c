/* RAPL energy counters of the CPU, through the powercap class. They count microjoules and wrap
 * around at max_energy_range_uj. */
#include "eval/energy/meter_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_NAMES = 1024 };

struct rapl_domain {
    int fd;
    int64_t range_uj; /* counts from 0 to this; 0 = unknown */
    int64_t last_uj;
    int64_t total_uj; /* since the first reading */
    bool has_last;
};

struct rapl_chip {
    struct rapl_domain domains[ESPL_ENERGY_CHIP_RAILS];
};

/* Microjoules from one reading to the next. A fall is a wrap-around when it makes sense as one: at
 * most half the range, which no CPU uses between two readings. */
static bool counter_step(const struct rapl_domain *domain, int64_t now_uj, int64_t *step)
{
    if (now_uj >= domain->last_uj) {
        *step = now_uj - domain->last_uj;
        return true;
    }
    if (domain->range_uj < domain->last_uj) {
        return false; /* range unknown or untrue */
    }
    *step = domain->range_uj - domain->last_uj + now_uj;
    return *step <= domain->range_uj / 2;
}

static enum espl_rail_state read_rail(struct espl_energy_chip *chip, size_t rail, double *joules,
                                      int *sys_errno)
{
    struct rapl_chip *rapl = chip->state;
    struct rapl_domain *domain = &rapl->domains[rail];
    int64_t now_uj = 0;
    int64_t step = 0;
    const enum espl_rail_state state = espl_sysfs_read_int(domain->fd, &now_uj, sys_errno);
    if (state != ESPL_RAIL_OK) {
        return state;
    }
    if (now_uj < 0) {
        return ESPL_RAIL_BAD_VALUE;
    }
    if (domain->has_last && !counter_step(domain, now_uj, &step)) {
        return ESPL_RAIL_WENT_BACK;
    }
    if (step > INT64_MAX - domain->total_uj) {
        return ESPL_RAIL_BAD_VALUE;
    }
    domain->total_uj += step;
    domain->last_uj = now_uj;
    domain->has_last = true;
    *joules = (double)domain->total_uj * 1e-6;
    return ESPL_RAIL_OK;
}

static void close_chip(struct espl_energy_chip *chip)
{
    struct rapl_chip *rapl = chip->state;
    for (size_t i = 0; rapl != NULL && i < ESPL_ENERGY_CHIP_RAILS; i++) {
        if (rapl->domains[i].fd >= 0) {
            (void)close(rapl->domains[i].fd); /* only read from */
        }
    }
    free(rapl);
}

/* "intel-rapl:0" is a package (or psys), "intel-rapl:0:1" a part of it. AMD's are called so, too.
 * "intel-rapl-mmio:0" is the same package again by another way and is left out. */
static bool parse_zone(const char *name, unsigned *package, bool *part)
{
    unsigned sub = 0;
    int end_package = 0;
    int end_part = 0;
    const int fields =
        sscanf(name, "intel-rapl:%4u%n:%4u%n", package, &end_package, &sub, &end_part);
    *part = fields == 2;
    return fields >= 1 && name[fields == 2 ? end_part : end_package] == '\0';
}

static enum espl_status add_zone(struct espl_energy_meter *meter, const char *base,
                                 const char *zone, bool part, struct rapl_domain *domain,
                                 struct espl_error *err)
{
    char folder[ESPL_PATH_MAX];
    char label[ESPL_SYSFS_LABEL_MAX];
    struct espl_energy_rail *rail = espl_energy_add_rail(meter, err);
    if (rail == NULL) {
        return ESPL_E_NOMEM;
    }
    const enum espl_status status = espl_fs_join(folder, base, zone, err);
    if (status != ESPL_OK) {
        return status;
    }
    (void)snprintf(rail->place, sizeof rail->place, "%.60s", zone);
    rail->series.counter = true;
    if (espl_sysfs_get_label(folder, "name", label, NULL) != ESPL_OK) {
        (void)snprintf(rail->name, sizeof rail->name, "%.40s", zone);
        rail->state = ESPL_RAIL_UNLABELLED;
        return ESPL_OK;
    }
    (void)snprintf(rail->name, sizeof rail->name, "%.30s%s%.14s", label, part ? " of " : "",
                   part ? zone + strlen("intel-rapl:") : "");
    if (espl_sysfs_get_int(folder, "max_energy_range_uj", &domain->range_uj) != ESPL_RAIL_OK) {
        domain->range_uj = 0; /* then a wrap-around is refused */
    }
    rail->state = espl_sysfs_open(folder, "energy_uj", &domain->fd, &rail->sys_errno);
    return ESPL_OK;
}

static enum espl_status find(struct espl_energy_meter *meter,
                             const struct espl_energy_options *options, struct espl_error *err)
{
    char base[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    enum espl_status status = espl_energy_root_path(options, "/sys/class/powercap", base, err);
    if (status != ESPL_OK) {
        return status;
    }
    struct rapl_chip *rapl = calloc(1, sizeof *rapl);
    if (rapl == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the RAPL counters");
    }
    for (size_t i = 0; i < ESPL_ENERGY_CHIP_RAILS; i++) {
        rapl->domains[i].fd = -1;
    }
    if (espl_energy_add_chip(meter, rapl, err) == NULL) {
        return ESPL_E_NOMEM;
    }
    (void)espl_fs_list(base, MAX_NAMES, &names, &count, NULL); /* no powercap: no names */
    for (size_t i = 0; i < count && status == ESPL_OK; i++) {
        unsigned package = 0;
        bool part = false;
        if (parse_zone(names[i], &package, &part)) {
            struct rapl_domain *next = &rapl->domains[meter->rail_count % ESPL_ENERGY_CHIP_RAILS];
            status = add_zone(meter, base, names[i], part, next, err);
        }
    }
    espl_fs_free_names(names, count);
    if (status == ESPL_OK && meter->rail_count == 0) {
        status = espl_fail(err, ESPL_E_MACHINE, "no RAPL counters are there");
    }
    return status;
}

/* Packages stand side by side; their parts are inside them (memory is beside, but not always
 * there), psys is around all. */
static void choose_totals(struct espl_energy_meter *meter)
{
    struct espl_energy_total packages = {.rail_count = 0};
    bool whole = true;
    for (size_t i = 0; i < meter->rail_count; i++) {
        const struct espl_energy_rail *rail = meter->rails[i];
        if (strncmp(rail->name, "package-", strlen("package-")) == 0) {
            whole = whole && rail->state == ESPL_RAIL_OK;
            packages.rails[packages.rail_count++] = i;
        }
        if (strcmp(rail->name, "psys") == 0 && rail->state == ESPL_RAIL_OK) {
            struct espl_energy_total *psys = &meter->totals[1];
            *psys = (struct espl_energy_total){.rails = {i}, .rail_count = 1};
            (void)snprintf(psys->boundary, sizeof psys->boundary, "platform (psys)");
        }
    }
    (void)snprintf(packages.boundary, sizeof packages.boundary, "%zu CPU package%s without memory",
                   packages.rail_count, packages.rail_count == 1 ? "" : "s");
    if (whole && packages.rail_count > 0) {
        meter->totals[meter->total_count++] = packages;
    } else {
        espl_energy_add_note(meter, "a CPU package cannot be read: no total");
    }
    if (meter->totals[1].rail_count > 0) {
        meter->totals[meter->total_count] = meter->totals[1];
        meter->total_count++;
    }
}

const struct espl_energy_driver espl_energy_rapl = {
    .name = "rapl",
    .find = find,
    .read = read_rail,
    .close_chip = close_chip,
    .choose_totals = choose_totals,
};
