/* Drawings of `espalier bench formats`. */
#ifndef ESPL_CLI_BENCH_FORMATS_H
#define ESPL_CLI_BENCH_FORMATS_H

#include "cli/roofline_device.h"

/** Writes into folder (made when missing), each as NAME.svg with its figures beside it in NAME.csv:
 *  pmr-precision and pmr-int4 (Fig. 4 of the UnionSparse paper), roofline (the analytic part of its
 *  Fig. 5) and bits-int4. All from closed forms for random masks. Errors: IO, NOMEM. */
enum espl_status espl_bench_formats_draw(const char *folder,
                                         const struct espl_roofline_device *device,
                                         struct espl_error *err);

#endif
