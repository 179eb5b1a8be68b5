/* Elementwise ops: fixed runs of values, each by one thread. */
#include "core/checked.h"
#include "kernels/backend_internal.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/gelu.h"
#include "kernels/cpu/vectormath.h"

/* Values in a run: 64 KiB of float32, so that what a run reads and writes stays in cache. */
enum { RUN = 16 * 1024 };

static size_t run_length(size_t count, size_t first)
{
    return count - first < RUN ? count - first : RUN;
}

ESPL_CPU_CLONES
static void silu_mul_run(float *restrict gate, const float *restrict up, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        gate[i] = gate[i] / (1.0F + espl_exp_f32(-gate[i])) * up[i];
    }
}

ESPL_CPU_CLONES
static void relu_run(float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        x[i] = x[i] < 0.0F ? 0.0F : x[i]; /* NaN stays NaN */
    }
}

ESPL_CPU_CLONES
static void add_run(const float *restrict x, float *restrict y, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        y[i] += x[i];
    }
}

/* Shifting the half's exponent and fraction into place leaves the exponent bias wrong by 112; the
 * product with 2^112 corrects it exactly, for subnormals too. */
ESPL_CPU_CLONES
static void f16_run(const uint16_t *restrict x, float *restrict y, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t word = x[i];
        const uint32_t magnitude = (word & 0x7FFFu) << 13;
        const uint32_t sign = (word & 0x8000u) << 16;
        const uint32_t finite = espl_float_to_bits(espl_bits_to_float(magnitude) * 0x1p112F);
        const uint32_t special = magnitude | 0x7F800000u;
        y[i] = espl_bits_to_float(sign | ((word & 0x7C00u) == 0x7C00u ? special : finite));
    }
}

ESPL_CPU_CLONES
static void bf16_run(const uint16_t *restrict x, float *restrict y, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        y[i] = espl_bits_to_float((uint32_t)x[i] << 16);
    }
}

/* Are all exponents below the special one? */
ESPL_CPU_CLONES
static bool run_is_finite(const float *x, size_t count)
{
    uint32_t special = 0;
    for (size_t i = 0; i < count; i++) {
        special |= (espl_float_to_bits(x[i]) & 0x7F800000u) == 0x7F800000u ? 1u : 0u;
    }
    return special == 0;
}

enum espl_status espl_cpu_silu_mul(struct espl_backend *backend, size_t count, float *gate,
                                   const float *up, struct espl_error *err)
{
    (void)err;
#pragma omp parallel for num_threads(backend->threads) schedule(static) if (count > RUN)
    for (size_t first = 0; first < count; first += RUN) {
        silu_mul_run(gate + first, up + first, run_length(count, first));
    }
    return ESPL_OK;
}

enum espl_status espl_cpu_relu(struct espl_backend *backend, size_t count, float *x,
                               struct espl_error *err)
{
    (void)err;
#pragma omp parallel for num_threads(backend->threads) schedule(static) if (count > RUN)
    for (size_t first = 0; first < count; first += RUN) {
        relu_run(x + first, run_length(count, first));
    }
    return ESPL_OK;
}

enum espl_status espl_cpu_gelu(struct espl_backend *backend, size_t count, float *x,
                               struct espl_error *err)
{
    (void)err;
#pragma omp parallel for num_threads(backend->threads) schedule(static) if (count > RUN)
    for (size_t first = 0; first < count; first += RUN) {
        espl_gelu_run(x + first, run_length(count, first));
    }
    return ESPL_OK;
}

enum espl_status espl_cpu_add(struct espl_backend *backend, size_t count, const float *x, float *y,
                              struct espl_error *err)
{
    (void)err;
#pragma omp parallel for num_threads(backend->threads) schedule(static) if (count > RUN)
    for (size_t first = 0; first < count; first += RUN) {
        add_run(x + first, y + first, run_length(count, first));
    }
    return ESPL_OK;
}

enum espl_status espl_cpu_f16_to_f32(struct espl_backend *backend, size_t count, const uint16_t *x,
                                     float *y, struct espl_error *err)
{
    (void)err;
#pragma omp parallel for num_threads(backend->threads) schedule(static) if (count > RUN)
    for (size_t first = 0; first < count; first += RUN) {
        f16_run(x + first, y + first, run_length(count, first));
    }
    return ESPL_OK;
}

enum espl_status espl_cpu_bf16_to_f32(struct espl_backend *backend, size_t count, const uint16_t *x,
                                      float *y, struct espl_error *err)
{
    (void)err;
#pragma omp parallel for num_threads(backend->threads) schedule(static) if (count > RUN)
    for (size_t first = 0; first < count; first += RUN) {
        bf16_run(x + first, y + first, run_length(count, first));
    }
    return ESPL_OK;
}

enum espl_status espl_cpu_find_nonfinite(struct espl_backend *backend, size_t count, const float *x,
                                         size_t *index, struct espl_error *err)
{
    (void)err;
    size_t worst_run = count; /* first value of the earliest run that is not finite */
#pragma omp parallel for num_threads(backend->threads) schedule(static) \
    reduction(min                                                       \
              : worst_run) if (count > RUN)
    for (size_t first = 0; first < count; first += RUN) {
        if (!run_is_finite(x + first, run_length(count, first)) && first < worst_run) {
            worst_run = first;
        }
    }
    size_t i = worst_run;
    while (i < count && run_is_finite(x + i, 1)) {
        i++;
    }
    *index = i;
    return ESPL_OK;
}
