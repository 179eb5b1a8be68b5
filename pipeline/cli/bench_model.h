/* Models with random weights in temporary artifacts, so that a bench needs no files. */
#ifndef ESPL_CLI_BENCH_MODEL_H
#define ESPL_CLI_BENCH_MODEL_H

#include "core/error.h"
#include "core/fs.h"
#include "model/synth.h"

struct espl_bench_shape {
    const char *name;
    struct espl_synth_options options; /* sizes; no file is written from them */
};

/** Shapes of the sample models; ends with .name == NULL. */
extern const struct espl_bench_shape espl_bench_shapes[];

struct espl_bench_model {
    char folder[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX]; /* of the model.dense/1 artifact */
};

/** Writes the artifact below $TMPDIR or /tmp. Errors: IO, NOSPACE, NOMEM. */
enum espl_status espl_bench_model_create(const struct espl_bench_shape *shape,
                                         struct espl_bench_model *model, struct espl_error *err);
void espl_bench_model_remove(const struct espl_bench_model *model);

#endif
