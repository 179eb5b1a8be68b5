/* Random N:M matrices for the tests of the packed format and its products. */
#ifndef ESPL_TESTS_NM_FIXTURE_H
#define ESPL_TESTS_NM_FIXTURE_H

#include "core/rng.h"
#include "espalier/nm_pack.h"

/** What random weights look like. */
enum nm_fixture_fill {
    NM_FULL_RANGE, /* -128 to 127 without 0: every kept place counts */
    NM_SPARSE,     /* a third of the kept weights are 0, some windows empty */
    NM_EXTREME     /* -128 and 127 only */
};

/** codes (rows, cols) that are layout->n of layout->m with patterns shared by exactly layout->v
 * rows (when there are enough rows and columns to tell): neighbouring groups differ. free() them.
 */
int8_t *nm_fixture_codes(struct espl_rng *rng, const struct espl_nm_layout *layout,
                         enum nm_fixture_fill fill);
/** bytes -128 to 127, or only the extremes. free() them. */
int8_t *nm_fixture_bytes(struct espl_rng *rng, size_t count, enum nm_fixture_fill fill);
/** Packs; fails the test on an error. */
void nm_fixture_encode(const int8_t *codes, const struct espl_nm_layout *layout,
                       struct espl_nm_matrix *matrix);

#endif
