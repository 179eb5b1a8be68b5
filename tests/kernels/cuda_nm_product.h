/* A product of the N:M kernels on the CUDA device, its operands, and what the reference backend
 * makes of them. */
#ifndef ESPL_TEST_CUDA_NM_PRODUCT_H
#define ESPL_TEST_CUDA_NM_PRODUCT_H

#include "core/rng.h"
#include "espalier/cuda_nm.h"
#include "kernels/nm_fixture.h"

#include <stdbool.h>

enum {
    NM_PRODUCT_POISON = 0x5A, /* bytes of outputs before a launch */
    NM_PRODUCT_CHOICES = 64   /* at most, of a matrix */
};

/* One product: operands on the host and on the device. */
struct nm_product {
    struct espl_nm_matrix packed;
    struct espl_cuda_nm_matrix *matrix;
    size_t tokens;
    int8_t *x;     /* (tokens, cols) */
    float *floats; /* row scales, bias, token scales */
    void *device_x, *device_y, *device_floats;
    size_t y_bytes;
    uint8_t *y;        /* from the device */
    uint8_t *expected; /* with its poison */
    struct espl_cuda_nm_operands operands;
};

/** Random weights and operands. Free with nm_product_free(). */
void nm_product_make(struct espl_rng *rng, const struct espl_nm_layout *layout, size_t tokens,
                     enum nm_fixture_fill fill, struct nm_product *p);
void nm_product_free(struct nm_product *p);
/** p->x to the device once more, in rows that are longer than the matrix; behind its columns stands
 *  noise. */
void nm_product_upload(struct espl_rng *rng, struct nm_product *p);
/** What is expected, and the epilogue that makes it. all_terms: scales of tokens and bias, too. */
void nm_product_expect(struct nm_product *p, enum espl_nm_output output,
                       enum espl_nm_activation what, bool all_terms);
/** Fails unless y, with what lies between its rows, is what was expected. */
void nm_product_compare(const struct nm_product *p, const uint8_t *y, const char *what);
/** Runs a choice, NULL = the rule's, and compares. */
void nm_product_run(struct nm_product *p, const struct espl_cuda_nm_choice *wanted, bool overlap);
/** Runs the rule's and every other choice; small: every seventh and the last, which is that of a
 *  large kernel where there is one. */
void nm_product_run_all(struct nm_product *p);
bool nm_product_has(const struct nm_product *p, const struct espl_cuda_nm_choice *wanted);

#endif
