/* Random weights in every form that the SpMM bench times. */
#ifndef ESPL_BENCH_SPMM_WEIGHTS_H
#define ESPL_BENCH_SPMM_WEIGHTS_H

#include "espalier/dense_device.h"
#include "espalier/iebme.h"

/** SplitMix64 [Steele, Lea, Flood 2014]: the next word of a stream. Any state starts one. */
uint64_t espl_spmm_random_word(uint64_t *state);
/** codes (rows, cols): each 0 with probability `sparsity`, otherwise one of the other codes of
 *  `bits` bits; rows of 256 have a random stream of their own, so threads do not change them. */
enum espl_status espl_spmm_weights_codes(size_t rows, size_t cols, unsigned bits, double sparsity,
                                         uint64_t seed, int8_t **codes, struct espl_error *err);
/** The device layout of 4-bit codes, slices of 512, made in pieces by all threads.
 *  espl_iebme_device_free() frees it. */
enum espl_status espl_spmm_weights_iebme(const int8_t *codes, size_t rows, size_t cols,
                                         enum espl_iebme_areas unit,
                                         struct espl_iebme_device *device, struct espl_error *err);
/** Likewise, dense. espl_dense_device_free() frees it. */
enum espl_status espl_spmm_weights_dense(const int8_t *codes, size_t rows, size_t cols,
                                         unsigned bits, struct espl_dense_device *device,
                                         struct espl_error *err);

#endif
