/* Random operands of the kernels of image models, and outputs that are poisoned before and behind
 * which must stay poison. */
#ifndef ESPL_TESTS_CUDA_VISION_FIXTURE_H
#define ESPL_TESTS_CUDA_VISION_FIXTURE_H

#include "core/rng.h"
#include "espalier/kernels.h"

enum { VISION_POISON = 0x5A };

/** count normal numbers of this deviation. */
float *vision_draw(struct espl_rng *rng, size_t count, double deviation);
/** Halves of small random numbers, and the same as floats. Magnitudes from 2^-8 on: no subnormals.
 */
uint16_t *vision_draw_halves(struct espl_rng *rng, size_t count, float **floats);
/** Some other order of count rows. */
int32_t *vision_draw_order(struct espl_rng *rng, size_t count);

/** Device memory with a copy of host; NULL for NULL. */
void *vision_operand(const void *host, size_t bytes);
/** Device memory for an output. */
void *vision_output(size_t bytes);
/** Fetches an output, frees it and looks at what lies behind it. */
void *vision_take_output(void *device, size_t bytes);

struct espl_backend *vision_open_ref(void);
/** Every value is expected to tolerance * (1 + its magnitude). */
void vision_assert_close(const float *found, const float *expected, size_t count, double tolerance);
void vision_assert_halves_close(const uint16_t *found, const float *expected, size_t count,
                                double tolerance);

#endif
