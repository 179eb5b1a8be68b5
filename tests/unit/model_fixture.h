/* Small checkpoints made in the test, and folders to put them in. Shared by the model tests. */
#ifndef ESPL_TESTS_MODEL_FIXTURE_H
#define ESPL_TESTS_MODEL_FIXTURE_H

#include "core/fs.h"
#include "model/config.h"
#include "model/model.h"

/** What a test works with: a folder of its own, and a place for a checkpoint in it. */
struct fixture {
    char dir[ESPL_PATH_MAX];
    char folder[ESPL_PATH_MAX]; /* dir/checkpoint; not made yet */
    char base[ESPL_PATH_MAX];   /* path of an artifact, where a test needs one */
    struct espl_error err;
};
/** For cmocka: *state becomes a struct fixture. */
int fixture_setup(void **state);
int fixture_teardown(void **state);

/** Creates a folder of its own. */
void fixture_make_dir(char out[ESPL_PATH_MAX]);
/** dir/name */
const char *fixture_join(char out[ESPL_PATH_MAX], const char *dir, const char *name);
/** Writes a text file or fails the test. */
void fixture_write_text(const char *dir, const char *name, const char *text);
/** The tiny configurations: "llama" (odd sizes, grouped heads, head_dim 80, untied), "llama-tied",
 * "opt" (pre-norm, tied), "opt-post" (post-norm, projected, tied), "qwen2". */
struct espl_model_config fixture_config(const char *name);
/** Value of element `element` of tensor `index`: small, different everywhere, exact in f16, bf16
 * and f32. */
float fixture_value(size_t index, uint64_t element);
/** Writes a checkpoint of fixture_value()s. dtype: F16, BF16 or F32. */
void fixture_write_checkpoint(const char *folder, const struct espl_model_config *config,
                              enum espl_dtype dtype, uint64_t shard_size);
/** A finished dense artifact of the same values at dir/<key>.h5. path, content: may be NULL. */
void fixture_write_artifact(const char *dir, const char *key,
                            const struct espl_model_config *config, enum espl_dtype dtype,
                            char path[ESPL_PATH_MAX], char content[ESPL_SHA256_HEX]);
/** Bit c of row r in the fixture's mask number `seed`. */
bool fixture_mask_bit(unsigned seed, uint64_t row, uint64_t col);
/** Fills a mask of a tensor. Owned by the caller. */
uint8_t *fixture_mask(unsigned seed, const struct espl_tensor_spec *spec);
/** A finished masked model over the artifact at base_path: masks number `seed` on every block
 * linear whose layer is not skip_layer. */
void fixture_write_masked(const char *dir, const char *key, const char *base_path, unsigned seed,
                          int64_t skip_layer, char path[ESPL_PATH_MAX]);

#endif
