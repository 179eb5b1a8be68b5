/* What the encoder mode of deploy-bench measured, and its artifact bench.encoder/1
 * (docs/formats/bench.md). */
#ifndef ESPL_STAGES_ENCODER_RECORD_H
#define ESPL_STAGES_ENCODER_RECORD_H

#include "artifact/artifact.h"
#include "espalier/cuda_timing.h"

#include <stdbool.h>

/** How a pass multiplies. */
enum espl_encoder_runtime {
    ESPL_ENCODER_PACKED,     /* the model as it is packed, by our kernels or cuBLASLt */
    ESPL_ENCODER_DENSE_INT8, /* random bytes, N = M, our kernels */
    ESPL_ENCODER_DENSE_FP16, /* random FP16 weights, cuBLAS */
    ESPL_ENCODER_DENSE_BEST, /* random bytes, N = M, our kernels or cuBLASLt */
    ESPL_ENCODER_RUNTIMES
};
/** "packed", "dense-int8", "dense-fp16", "dense-int8-best"; ends with NULL. */
extern const char *const espl_encoder_runtimes[];

/** Parts of a pass, each timed alone. */
enum { ESPL_ENCODER_PARTS = 4, ESPL_ENCODER_MOST_BATCHES = 16 };
/** "products", "attention", "norms", "rest". */
extern const char *const espl_encoder_parts[ESPL_ENCODER_PARTS];

struct espl_encoder_pass {
    size_t batch;
    enum espl_encoder_runtime runtime;
    struct espl_cuda_time time;
    double parts[ESPL_ENCODER_PARTS]; /* seconds */
    uint64_t weight_bytes;            /* of the linears of blocks */
    uint64_t device_bytes;            /* memory that weights and buffers take */
    uint64_t by_library;              /* linears of bytes that cuBLASLt multiplies */
    double predicted;                 /* seconds; 0 = nobody did */
};

struct espl_encoder_accuracy {
    size_t images; /* 0 = not judged */
    bool labelled;
    double top1, top1_cpu; /* percent */
    double agreeing;       /* percent of the pictures with the CPU's class */
    double difference;     /* largest, of a logit, over the largest logit of its picture */
};

struct espl_encoder_record {
    char device[1024];
    struct espl_encoder_pass passes[ESPL_ENCODER_MOST_BATCHES * ESPL_ENCODER_RUNTIMES];
    size_t count;
    struct espl_encoder_accuracy accuracy;
};

/** The pass of a batch and runtime; NULL when it was not measured. */
const struct espl_encoder_pass *espl_encoder_find(const struct espl_encoder_record *record,
                                                  size_t batch, enum espl_encoder_runtime runtime);
/** Writes the artifact. Errors: NOMEM, IO. */
enum espl_status espl_encoder_record_write(const struct espl_encoder_record *record,
                                           struct espl_artifact *artifact, struct espl_error *err);

#endif
