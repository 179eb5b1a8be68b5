#include "cli/roofline_device.h"

#include "cli/bench.h"
#include "core/units.h"
#include "espalier/formats.h"
#include "kernels/bench/cases.h"

#include <string.h>

/* Several times any last level of cache there is. */
static const size_t measured_bytes = (size_t)512 << 20;
enum { READ_REPEATS = 4 };
static const char usual_device[] = "orin-agx";

static enum espl_status measure_cpu(const struct espl_cli *cli, double *bandwidth,
                                    struct espl_error *err)
{
    struct espl_backend *backend = NULL;
    enum espl_status status = espl_bench_open_backend(cli, &backend, err);
    if (status == ESPL_OK) {
        status = espl_memory_read_rate(espl_backend_threads(backend), measured_bytes, READ_REPEATS,
                                       bandwidth, err);
    }
    espl_backend_close(backend);
    return status;
}

static void take_rates(struct espl_roofline_device *device, const struct espl_device_rate *known)
{
    *device = (struct espl_roofline_device){known->name, known->source, known->bandwidth,
                                            known->int8_rate};
}

enum espl_status espl_roofline_device_choose(const struct espl_cli *cli,
                                             struct espl_roofline_device *device,
                                             struct espl_error *err)
{
    const char *name = espl_args_value(cli->args, "device", usual_device);
    const char *given = espl_args_value(cli->args, "bandwidth", NULL);
    *device = (struct espl_roofline_device){.name = name};
    if (given != NULL) {
        double gigabytes = 0.0;
        if (!espl_parse_real(given, &gigabytes) || gigabytes <= 0.0) {
            espl_fail(err, ESPL_E_USAGE, "--bandwidth must be a positive number, got '%s'", given);
            return espl_hint(err, "it is in GB/s, for example --bandwidth=204.8");
        }
        if (espl_args_has(cli->args, "device")) {
            return espl_fail(err, ESPL_E_USAGE, "--device and --bandwidth exclude each other");
        }
        device->name = "given";
        device->source = "--bandwidth";
        device->bandwidth = gigabytes * 1e9;
        return ESPL_OK;
    }
    if (strcmp(name, "cpu") == 0) {
        device->source = "reading memory, measured on this machine";
        return measure_cpu(cli, &device->bandwidth, err);
    }
    const struct espl_device_rate *known = espl_device_rate_find(name);
    if (known == NULL) {
        return espl_fail(err, ESPL_E_INTERNAL, "device '%s' has no rates", name);
    }
    take_rates(device, known);
    return ESPL_OK;
}

void espl_roofline_device_usual(struct espl_roofline_device *device)
{
    take_rates(device, espl_device_rate_find(usual_device));
}

json_t *espl_roofline_device_json(const struct espl_roofline_device *device)
{
    return json_pack("{s:s, s:f, s:f, s:s}", "name", device->name, "bandwidth", device->bandwidth,
                     "rate", device->rate, "source", device->source);
}
