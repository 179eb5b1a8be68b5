/* The device whose roofline `bench formats` and `inspect` predict times for. */
#ifndef ESPL_CLI_ROOFLINE_DEVICE_H
#define ESPL_CLI_ROOFLINE_DEVICE_H

#include "cli/command.h"

#include <jansson.h>

/* Words of --device; all but `cpu` are rows of espl_device_rates. */
#define ESPL_ROOFLINE_DEVICES "cpu|orin-agx|orin-nano|thor-agx|h200"
/* Bytes of an element of the product's result: half precision. */
enum { ESPL_ROOFLINE_OUTPUT_BYTES = 2 };

struct espl_roofline_device {
    const char *name;
    const char *source; /* of the bandwidth, in words */
    double bandwidth;   /* bytes a second */
    double rate;        /* operations a second, 0 = arithmetic is not looked at */
};

/** What --device (default orin-agx) and --bandwidth (GB/s) ask for; `cpu` measures how fast this
 *  machine reads memory with --threads threads. With --bandwidth only bytes count.
 *  Errors: USAGE, NOMEM. */
enum espl_status espl_roofline_device_choose(const struct espl_cli *cli,
                                             struct espl_roofline_device *device,
                                             struct espl_error *err);
/** The default of --device, for what is written without being asked. */
void espl_roofline_device_usual(struct espl_roofline_device *device);
/** {"name", "bandwidth", "rate", "source"}. New reference, NULL when out of memory. */
json_t *espl_roofline_device_json(const struct espl_roofline_device *device);

#endif
