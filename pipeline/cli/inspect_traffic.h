/* The traffic section of inspect: bytes a weight, PMR, compute intensity and predicted time of a
 * model's linears. */
#ifndef ESPL_CLI_INSPECT_TRAFFIC_H
#define ESPL_CLI_INSPECT_TRAFFIC_H

#include "cli/command.h"
#include "cli/model_traffic.h"
#include "cli/roofline_device.h"

struct espl_inspect_traffic {
    struct espl_model_traffic model;
    struct espl_roofline_device device;
    double tokens;
};

/** Counts, and reads --device, --bandwidth, --tokens and --bits. Free in any case.
 *  Errors: USAGE, and as espl_model_traffic_load(). */
enum espl_status espl_inspect_traffic_load(const struct espl_cli *cli, struct espl_model *model,
                                           struct espl_inspect_traffic *out,
                                           struct espl_error *err);
void espl_inspect_traffic_free(struct espl_inspect_traffic *traffic);
/** Two tables: layers as they are stored, and the whole model in every format. Not `all`: the first
 *  twelve layers. */
enum espl_status espl_inspect_traffic_print(const struct espl_cli *cli,
                                            const struct espl_inspect_traffic *traffic, bool all,
                                            struct espl_error *err);
/** Object for --json. New reference, NULL when out of memory. */
json_t *espl_inspect_traffic_json(const struct espl_inspect_traffic *traffic);

#endif
