/* The forward pass of an image model on random pictures, for `espalier bench forward`. */
#ifndef ESPL_CLI_BENCH_IMAGES_H
#define ESPL_CLI_BENCH_IMAGES_H

#include "cli/command.h"
#include "eval/perplexity.h"

/** Runs `images` pictures through the model once. *result: windows and tokens count pictures and
 * their tokens; the loss members stay 0. Errors: NOMEM, CANCELLED (the user stopped). */
enum espl_status espl_bench_images(struct espl_cli *cli, struct espl_model *model,
                                   struct espl_backend *backend, uint64_t images,
                                   struct espl_perplexity *result, struct espl_error *err);

#endif
