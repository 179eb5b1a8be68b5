/* Random codes and permutations for the tests of the sparse formats. */
#ifndef ESPL_TESTS_IEBME_FIXTURE_H
#define ESPL_TESTS_IEBME_FIXTURE_H

#include "core/rng.h"
#include "espalier/iebme.h"

/** codes (count), each 0 with probability `sparsity`, otherwise any other code of `bits` bits. */
void fixture_fill_codes(struct espl_rng *rng, int8_t *codes, size_t count, unsigned bits,
                        double sparsity);
int8_t *fixture_codes(struct espl_rng *rng, size_t rows, size_t cols, unsigned bits,
                      double sparsity);
/** Chunks of 16 x 512 with zeros of five kinds by turns: half of all, anywhere; half, the same in
 *  columns k and k + 32 of a block of 64; the same in rows g and g + 8; both; none. */
int8_t *fixture_patchwork(struct espl_rng *rng, size_t rows, size_t cols);
/** As many random permutations as the layout takes; NULL for scope none. */
uint64_t *fixture_orders(struct espl_rng *rng, const struct espl_iebme_layout *layout);
uint64_t fixture_order(struct espl_rng *rng);
/** Plans and encodes; fails the test on an error. */
void fixture_encode(const int8_t *codes, const struct espl_iebme_layout *layout,
                    const uint64_t *orders, struct espl_iebme_plan *plan,
                    struct espl_iebme_matrix *matrix);

#endif
