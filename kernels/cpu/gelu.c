#include "kernels/cpu/gelu.h"

#include "kernels/cpu/vectormath.h"

#include <math.h>

/* x Phi(x): 0.5 |x| erfc(|x| / sqrt 2) is what is missing to x on the right and all there is on the
 * left, so neither tail cancels. */
ESPL_CPU_CLONES
void espl_gelu_run(float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const float size = fabsf(x[i]);
        const float tail = 0.5F * size * espl_erfc_f32(size * 0.70710678F);
        x[i] = (x[i] < 0.0F ? 0.0F : x[i]) - tail;
    }
}
