/* One view of a model whatever its storage: dense artifact, dense by reference to safetensors
 * files, masks, changed weights or integer codes over another model artifact, or encoded codes.
 * Readers ask for tensors by name or role; masks are applied, codes decoded and multiplied by their
 * scales on the way.
 * Weights stay on disk; a read brings the rows that were asked for. */
#ifndef ESPL_MODEL_MODEL_H
#define ESPL_MODEL_MODEL_H

#include "artifact/artifact.h"
#include "artifact/store.h"
#include "model/arch.h"
#include "model/config.h"

struct espl_model;

/** Kinds a port that takes any language model accepts. Later kinds are added here. */
#define ESPL_MODEL_KINDS                                                        \
    "model.dense/1|model.masked/1|model.updated/1|model.quant/1|model.iebme/1|" \
    "model.nm/1"
/** The same without quantised and encoded ones: what pruning and quantisation can still change. */
#define ESPL_MODEL_FLOAT_KINDS "model.dense/1|model.masked/1|model.updated/1"

/** Opens the view. artifact: borrowed, must outlive the model. store: where the model that a mask
 * points to is looked up by key (first beside the artifact's own file); NULL allowed for dense
 * and encoded models. Errors: NOTFOUND (base model gone: hint says which job makes it), KIND,
 * CORRUPT (base content hash differs from the recorded one). */
enum espl_status espl_model_open(struct espl_artifact *artifact, const struct espl_store *store,
                                 struct espl_model **out, struct espl_error *err);
void espl_model_close(struct espl_model *model);

const struct espl_model_config *espl_model_get_config(const struct espl_model *model);
/** All tensors in canonical order, consecutive in memory. */
size_t espl_model_tensor_count(const struct espl_model *model);
const struct espl_tensor_spec *espl_model_tensor(const struct espl_model *model, size_t index);
/** By place: layer -1 for tensors outside blocks. NULL when the model has none. */
const struct espl_tensor_spec *espl_model_find(const struct espl_model *model, int64_t layer,
                                               enum espl_role role, bool is_bias);
/** Do two blocks hold the same bytes, by the hashes of their datasets? False for a model that lies
 *  over another one and for blocks that differ in a norm. */
bool espl_model_blocks_equal(const struct espl_model *model, uint64_t first, uint64_t second);
/** Stored element type of a tensor. */
enum espl_dtype espl_model_dtype(const struct espl_model *model,
                                 const struct espl_tensor_spec *spec);
/** Has this tensor a mask? */
bool espl_model_has_mask(const struct espl_model *model, const struct espl_tensor_spec *spec);
/** Mask bits of rows [row, row + rows), espl_mask_stride(cols) bytes a row. All ones without a
 * mask. */
enum espl_status espl_model_read_mask(struct espl_model *model, const struct espl_tensor_spec *spec,
                                      uint64_t row, uint64_t rows, uint8_t *mask,
                                      struct espl_error *err);
/** Rows as float32, mask applied. dst: rows x shape[1] (rank 1: row = element, shape[1] taken as
 * 1). */
enum espl_status espl_model_read_f32(struct espl_model *model, const struct espl_tensor_spec *spec,
                                     uint64_t row, uint64_t rows, float *dst,
                                     struct espl_error *err);
/** Rows in the stored type, mask applied (a removed weight reads as +0). dst_bytes must be exact.
 */
enum espl_status espl_model_read_raw(struct espl_model *model, const struct espl_tensor_spec *spec,
                                     uint64_t row, uint64_t rows, void *dst, size_t dst_bytes,
                                     struct espl_error *err);

/** Starts a masked model, or one of changed weights (which the caller then writes at their own
 *  paths): creates its description from the base (config, parent content hash, a "pruning" object
 *  given by the caller) and attributes (parent_key). The caller then writes masks with
 *  espl_model_write_mask(). pruning: borrowed. */
enum espl_status espl_model_begin_masked(struct espl_artifact *output,
                                         const struct espl_model *base, const json_t *pruning,
                                         struct espl_error *err);
/** Writes the mask of one linear to an output or unit artifact, at "<module path>/mask". */
enum espl_status espl_model_write_mask(struct espl_artifact *artifact,
                                       const struct espl_tensor_spec *weight, const uint8_t *mask,
                                       struct espl_error *err);
/** Description JSON of a dense model. New reference. */
json_t *espl_model_description(const struct espl_model_config *config);
/** Config out of a description as espl_plan_input() gives it. */
enum espl_status espl_model_config_from_description(const json_t *description,
                                                    struct espl_model_config *config,
                                                    struct espl_error *err);

#endif
