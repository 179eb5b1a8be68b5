/* Which rails add up to something with a name. A rail that feeds others must not be added to them,
 * so sums exist for known boards only; see docs/energy.md for the sources. */
#include "eval/energy/meter_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rails through which everything behind them is fed, outermost first. */
static const struct {
    const char *label, *boundary;
} inputs[] = {
    {"VIN", "system with carrier board"},
    {"VDD_IN", "module"},
    {"POM_5V_IN", "module"},
    {"5V_IN", "module"},
};

enum { SUM_RAILS = 6 };

/* Boards whose supplies stand side by side. `board`: how a name in "compatible" begins. */
static const struct {
    const char *board, *boundary;
    const char *labels[SUM_RAILS];
} sums[] = {
    {"nvidia,p3701", "module without carrier board", {"VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"}},
    {"nvidia,p3834", "module without carrier board", {"VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0"}},
    {"nvidia,p2888", "module", {"GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"}},
};

void espl_energy_read_board(struct espl_energy_meter *meter,
                            const struct espl_energy_options *options)
{
    char path[ESPL_PATH_MAX];
    char *text = NULL;
    size_t len = 0;
    if (espl_energy_root_path(options, "/proc/device-tree/compatible", path, NULL) != ESPL_OK ||
        espl_fs_read_file(path, 1 << 16, &text, &len, NULL) != ESPL_OK) {
        return; /* no device tree: no known board */
    }
    size_t used = (size_t)snprintf(meter->board, sizeof meter->board, " ");
    for (size_t at = 0; at < len; at += strlen(text + at) + 1) {
        char name[ESPL_SYSFS_LABEL_MAX];
        if (espl_sysfs_parse_label(text + at, strlen(text + at), name) &&
            used + strlen(name) + 2 < sizeof meter->board) {
            used += (size_t)snprintf(meter->board + used, sizeof meter->board - used, "%s ", name);
        }
    }
    free(text);
}

/* Is it a board with a name that begins like this? "nvidia,p3737-0000+p3701-0000" is found by
 * its second name, "nvidia,p3701-0000". */
static bool is_board(const struct espl_energy_meter *meter, const char *prefix)
{
    char wanted[ESPL_SYSFS_LABEL_MAX + 1];
    (void)snprintf(wanted, sizeof wanted, " %s", prefix);
    return strstr(meter->board, wanted) != NULL;
}

bool espl_energy_board_has_vin(const struct espl_energy_meter *meter)
{
    return is_board(meter, "nvidia,p3834");
}

/* Adds the rail with this label to a total. False, with a remark, when it cannot be read or is not
 * the only one; without a remark when there is none. */
static bool add_label(struct espl_energy_meter *meter, const char *label,
                      struct espl_energy_total *total, bool *exists)
{
    size_t found = 0;
    size_t where = 0;
    for (size_t i = 0; i < meter->rail_count; i++) {
        if (strcmp(meter->rails[i]->name, label) == 0) {
            where = i;
            found++;
        }
    }
    *exists = found > 0;
    if (found > 1) {
        espl_energy_add_note(meter, "%zu rails are called '%s': no total with it", found, label);
        return false;
    }
    if (found == 1 && meter->rails[where]->state != ESPL_RAIL_OK) {
        espl_energy_add_note(meter, "rail '%s' is %s: no total with it", label,
                             espl_rail_state_text(meter->rails[where]->state));
        return false;
    }
    if (found == 1) {
        total->rails[total->rail_count++] = where;
    }
    return found == 1;
}

static void describe(struct espl_energy_meter *meter, struct espl_energy_total *total,
                     const char *boundary)
{
    size_t used = (size_t)snprintf(total->boundary, sizeof total->boundary, "%s (", boundary);
    for (size_t i = 0; i < total->rail_count && used < sizeof total->boundary; i++) {
        used += (size_t)snprintf(total->boundary + used, sizeof total->boundary - used, "%s%s",
                                 i > 0 ? " + " : "", meter->rails[total->rails[i]]->name);
    }
    if (used < sizeof total->boundary) {
        (void)snprintf(total->boundary + used, sizeof total->boundary - used, ")");
    }
    meter->total_count++;
}

void espl_energy_jetson_totals(struct espl_energy_meter *meter)
{
    bool exists = false;
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0] && !exists; i++) {
        struct espl_energy_total *total = &meter->totals[meter->total_count];
        if (add_label(meter, inputs[i].label, total, &exists)) {
            describe(meter, total, inputs[i].boundary);
        }
    }
    for (size_t s = 0; s < sizeof sums / sizeof sums[0]; s++) {
        struct espl_energy_total *total = &meter->totals[meter->total_count];
        bool whole = is_board(meter, sums[s].board);
        for (size_t i = 0; whole && i < SUM_RAILS && sums[s].labels[i] != NULL; i++) {
            whole = add_label(meter, sums[s].labels[i], total, &exists);
            if (!exists) {
                espl_energy_add_note(meter, "the board has no rail '%s': no sum",
                                     sums[s].labels[i]);
            }
        }
        if (whole) {
            describe(meter, total, sums[s].boundary);
        } else {
            total->rail_count = 0;
        }
    }
    if (meter->total_count == 0) {
        espl_energy_add_note(meter, "no rail or sum of rails is known to be a total on this board: "
                                    "rails only");
    }
}
