/* The numbers of a random checkpoint. */
#include "core/rng.h"
#include "model/element.h"
#include "model/synth.h"

#include <math.h>
#include <stdlib.h>

/* Weights are drawn from 2^16 quantiles of the normal distribution, already in the stored type: one
 * 64-bit random word gives four weights at the price of four table look-ups. */
enum { QUANTILES = 1 << 16 };

static const double weight_scale = 0.02;

struct espl_synth_weights {
    enum espl_dtype dtype;
    uint64_t seed;
    uint16_t words[QUANTILES]; /* in F16 or BF16 */
    float singles[QUANTILES];  /* or in F32 */
};

/* Quantile (i + 1/2) / 2^16 of the standard normal, by Newton steps from the one before. */
static void fill_quantiles(float *out)
{
    double x = 0.0;
    for (size_t i = QUANTILES / 2; i < QUANTILES; i++) {
        const double upper = 1.0 - ((double)i + 0.5) / QUANTILES; /* probability above x */
        for (int step = 0; step < 6; step++) {
            const double error = 0.5 * erfc(x * M_SQRT1_2) - upper;
            x += error / (exp(-0.5 * x * x) * 0.5 * M_SQRT1_2 * M_2_SQRTPI);
        }
        out[i] = (float)(weight_scale * x);
        out[QUANTILES - 1 - i] = -out[i];
    }
}

enum espl_status espl_synth_weights_create(enum espl_dtype dtype, uint64_t seed,
                                           struct espl_synth_weights **out, struct espl_error *err)
{
    struct espl_element_loss loss = {0, 0};
    struct espl_synth_weights *weights = malloc(sizeof *weights);
    if (weights == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a table of quantiles");
    }
    weights->dtype = dtype;
    weights->seed = seed;
    fill_quantiles(weights->singles);
    if (dtype != ESPL_DTYPE_F32) {
        espl_element_from_f32(dtype, weights->singles, QUANTILES, weights->words, &loss);
    }
    *out = weights;
    return ESPL_OK;
}

void espl_synth_weights_destroy(struct espl_synth_weights *weights)
{
    free(weights);
}

/* A bijective mix of 64 bits (two rounds of xor-shift and odd multiplication), applied to a counter
 * so that every group of four weights has a number of its own: any row can be made alone. */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

static void fill_words(const uint16_t *table, uint64_t key, uint64_t first, size_t count,
                       uint16_t *dst)
{
    size_t i = 0;
    for (; i < count && (first + i) % 4 != 0; i++) {
        dst[i] = table[(mix(key + (first + i) / 4) >> (16 * ((first + i) % 4))) & 0xffffu];
    }
    for (; i + 4 <= count; i += 4) {
        const uint64_t bits = mix(key + (first + i) / 4);
        dst[i] = table[bits & 0xffffu];
        dst[i + 1] = table[(bits >> 16) & 0xffffu];
        dst[i + 2] = table[(bits >> 32) & 0xffffu];
        dst[i + 3] = table[bits >> 48];
    }
    for (; i < count; i++) {
        dst[i] = table[(mix(key + (first + i) / 4) >> (16 * ((first + i) % 4))) & 0xffffu];
    }
}

static void fill_singles(const float *table, uint64_t key, uint64_t first, size_t count, float *dst)
{
    for (size_t i = 0; i < count; i++) {
        dst[i] = table[(mix(key + (first + i) / 4) >> (16 * ((first + i) % 4))) & 0xffffu];
    }
}

static bool is_norm(enum espl_role role)
{
    return role == ESPL_ROLE_FINAL_NORM || role == ESPL_ROLE_ATTENTION_NORM ||
           role == ESPL_ROLE_MLP_NORM || role == ESPL_ROLE_EMBEDDING_NORM ||
           role == ESPL_ROLE_MERGE_NORM;
}

static void fill_constant(enum espl_dtype dtype, float value, size_t count, void *dst)
{
    struct espl_element_loss loss = {0, 0};
    for (size_t i = 0; i < count; i++) {
        espl_element_from_f32(dtype, &value, 1, (char *)dst + i * espl_dtype_size(dtype), &loss);
    }
}

void espl_synth_weights_read(const struct espl_synth_weights *weights,
                             const struct espl_tensor_spec *spec, uint64_t row, void *dst,
                             size_t bytes)
{
    const size_t count = bytes / espl_dtype_size(weights->dtype);
    const uint64_t first = row * spec->shape[1];
    if (is_norm(spec->role)) {
        fill_constant(weights->dtype, spec->is_bias ? 0.0f : 1.0f, count, dst);
        return;
    }
    struct espl_rng rng = espl_rng_stream(weights->seed, spec->name, 0);
    const uint64_t key = espl_rng_u64(&rng);
    if (weights->dtype == ESPL_DTYPE_F32) {
        fill_singles(weights->singles, key, first, count, dst);
    } else {
        fill_words(weights->words, key, first, count, dst);
    }
}
