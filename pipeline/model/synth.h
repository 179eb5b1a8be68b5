/* Random checkpoints of any supported architecture and size, for memory, speed and scale tests: a
 * folder with config.json and safetensors files as HF transformers writes them. Weights are normal
 * with standard deviation 0.02, norm gains 1, norm biases 0. Equal options give equal bytes. */
#ifndef ESPL_MODEL_SYNTH_H
#define ESPL_MODEL_SYNTH_H

#include "artifact/artifact.h"
#include "model/arch.h"
#include "model/config.h"

/** A named published shape. Sizes only; nothing of the published weights. */
struct espl_synth_shape {
    const char *name;         /* "llama-2-7b" */
    const char *architecture; /* "llama" */
    uint64_t layers, hidden, heads, kv_heads, ffn, vocab, max_positions;
    uint64_t head_dim;  /* 0 = hidden / heads */
    uint64_t embed_dim; /* 0 = hidden */
    bool post_norm;     /* OPT-350m */
    bool tied;
    double rope_theta; /* 0 for OPT */
    double norm_eps;
};

/** The table; ends with .name == NULL. */
extern const struct espl_synth_shape espl_synth_shapes[];

/** A shape of an image model. */
struct espl_synth_image_shape {
    const char *name; /* "deit-small" */
    const char *timm; /* a config.json of timm */
};

/** The table; ends with .name == NULL. */
extern const struct espl_synth_image_shape espl_synth_image_shapes[];
bool espl_synth_is_image_shape(const char *name);

/** done and total in bytes of tensor data. Returning false stops the writer with CANCELLED. */
typedef bool (*espl_synth_progress_fn)(void *user, uint64_t done, uint64_t total);

struct espl_synth_options {
    const char *folder; /* created; must not exist, or be empty */
    /** A name of espl_synth_shapes or espl_synth_image_shapes, or of an architecture ("llama",
     * "opt", "qwen2": a small default shape). The sizes below replace those of the shape where they
     * are not 0. */
    const char *shape;
    uint64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_positions;
    enum espl_dtype dtype; /* F16, BF16 or F32 */
    uint64_t seed;
    uint64_t shard_size;   /* bytes of tensor data a file, 0 = one file */
    uint64_t target_bytes; /* 0 = all layers; else as many layers (at least 1) as fit in about this
                            */
    bool sparse; /* leave the weights out: files of the right size whose data are holes (zeros) */
    espl_synth_progress_fn progress; /* may be NULL */
    void *progress_user;
};

/** espl_synth_config() for an image shape. Errors: USAGE when sizes are given: they are the
 * shape's. */
enum espl_status espl_synth_image_config(const struct espl_synth_options *options,
                                         struct espl_model_config *config, struct espl_error *err);
/** The configuration these options give, checked. Errors: USAGE naming the option, with the names
 * of the table for an unknown shape. */
enum espl_status espl_synth_config(const struct espl_synth_options *options,
                                   struct espl_model_config *config, struct espl_error *err);
/** Writes the folder; it appears whole or not at all. bytes: of tensor data written, may be NULL.
 *  Errors: USAGE, IO, NOSPACE, CANCELLED. */
enum espl_status espl_synth_write(const struct espl_synth_options *options, uint64_t *bytes,
                                  struct espl_error *err);

/** The random numbers of such a checkpoint, any rows of any tensor. */
struct espl_synth_weights;

/** dtype: F16, BF16 or F32. Errors: NOMEM. */
enum espl_status espl_synth_weights_create(enum espl_dtype dtype, uint64_t seed,
                                           struct espl_synth_weights **out, struct espl_error *err);
/** NULL is allowed. */
void espl_synth_weights_destroy(struct espl_synth_weights *weights);
/** dst (bytes, whole elements) <- elements of a tensor from row `row` on. */
void espl_synth_weights_read(const struct espl_synth_weights *weights,
                             const struct espl_tensor_spec *spec, uint64_t row, void *dst,
                             size_t bytes);

#endif
