#include "kernels/cpu/softmax.h"

#include "core/checked.h"

ESPL_CPU_CLONES
float espl_softmax_row(float *scores, size_t keys, size_t end)
{
    const size_t rounded = espl_ceil_div(keys, ESPL_VECTOR_FLOATS) * ESPL_VECTOR_FLOATS;
    for (size_t i = keys; i < rounded; i++) {
        scores[i] = -FLT_MAX; /* e^-87 beside the largest term's 1: adds nothing in float32 */
    }
    float highest = -FLT_MAX;
#pragma omp simd reduction(max : highest)
    for (size_t i = 0; i < rounded; i++) {
        highest = scores[i] > highest ? scores[i] : highest;
    }
    float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < rounded; i++) {
        scores[i] = espl_exp_f32(scores[i] - highest);
        sum += scores[i];
    }
    for (size_t i = keys; i < (end > rounded ? end : rounded); i++) {
        scores[i] = 0.0F;
    }
    return sum;
}

ESPL_CPU_CLONES
void espl_divide_row(float *row, size_t count, float divisor)
{
    const float factor = 1.0F / divisor;
    for (size_t i = 0; i < count; i++) {
        row[i] *= factor;
    }
}
