/* Masked matrices of a supernet, made when they are first asked for and kept as long as a byte
 * limit allows (least recently used go first). */
#ifndef ESPL_STAGES_NM_WEIGHTS_H
#define ESPL_STAGES_NM_WEIGHTS_H

#include "eval/vision.h"
#include "stages/nm_supernet/supernet_store.h"

struct espl_nm_weights;

/** vision, supernet: borrowed, must outlive the object. limit_bytes: at least one matrix of every
 * layer is always kept, whatever the limit. Errors: NOMEM; CORRUPT when the model lacks a layer. */
enum espl_status espl_nm_weights_create(const struct espl_vision *vision,
                                        const struct espl_supernet *supernet, uint64_t limit_bytes,
                                        struct espl_nm_weights **out, struct espl_error *err);
void espl_nm_weights_destroy(struct espl_nm_weights *weights);
/** *matrix: layer's weights with n of m kept, (out, in) float32, rounded to INT8 when the supernet
 * says so; NULL = the model's own (n == m, float). Valid until limit_bytes worth of other matrices
 * were asked for; those of one configuration are always valid together. Errors: NOMEM. */
enum espl_status espl_nm_weights_get(struct espl_nm_weights *weights, size_t layer, unsigned n,
                                     const float **matrix, struct espl_error *err);

#endif
