#include "kernels/cuda_vision_fixture.h"

#include "espalier/cuda_memory.h"
#include "kernels/cuda_arrays.h"
#include "kernels/cuda_device.h"

#include <math.h>

enum { GUARD = 256 /* bytes behind an output */ };

float *vision_draw(struct espl_rng *rng, size_t count, double deviation)
{
    float *values = calloc(count, sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)(deviation * espl_rng_normal(rng));
    }
    return values;
}

uint16_t *vision_draw_halves(struct espl_rng *rng, size_t count, float **floats)
{
    uint16_t *halves = calloc(count, sizeof *halves);
    *floats = calloc(count, sizeof **floats);
    assert_true(halves != NULL && *floats != NULL);
    for (size_t i = 0; i < count; i++) {
        const unsigned exponent = 7 + (unsigned)espl_rng_below(rng, 9);
        const unsigned bits = (unsigned)espl_rng_below(rng, 1024);
        const unsigned sign = (unsigned)espl_rng_below(rng, 2);
        halves[i] = (uint16_t)(sign << 15 | exponent << 10 | bits);
        (*floats)[i] = cuda_float_of_half(halves[i]);
    }
    return halves;
}

int32_t *vision_draw_order(struct espl_rng *rng, size_t count)
{
    int32_t *order = malloc(count * sizeof *order);
    assert_non_null(order);
    for (size_t i = 0; i < count; i++) {
        const size_t other = (size_t)espl_rng_below(rng, i + 1);
        order[i] = order[other];
        order[other] = (int32_t)i;
    }
    return order;
}

void *vision_operand(const void *host, size_t bytes)
{
    return host != NULL ? cuda_array(host, bytes) : NULL;
}

void *vision_output(size_t bytes)
{
    struct espl_error err;
    void *device = NULL;
    cuda_check(espl_cuda_alloc(bytes + GUARD, &device, &err), &err);
    cuda_check(espl_cuda_fill(device, VISION_POISON, bytes + GUARD, &err), &err);
    return device;
}

void *vision_take_output(void *device, size_t bytes)
{
    uint8_t *host = cuda_fetch(device, bytes + GUARD);
    for (size_t i = bytes; i < bytes + GUARD; i++) {
        assert_int_equal(host[i], VISION_POISON);
    }
    espl_cuda_free(device);
    return host;
}

struct espl_backend *vision_open_ref(void)
{
    struct espl_error err;
    struct espl_backend *ref = NULL;
    cuda_check(espl_backend_open("ref", 1, &ref, &err), &err);
    return ref;
}

void vision_assert_close(const float *found, const float *expected, size_t count, double tolerance)
{
    for (size_t i = 0; i < count; i++) {
        const double allowed = tolerance * (1.0 + fabs((double)expected[i]));
        if (!(fabs((double)found[i] - (double)expected[i]) <= allowed)) {
            fail_msg("value %zu is %.9g, expected %.9g", i, (double)found[i], (double)expected[i]);
        }
    }
}

void vision_assert_halves_close(const uint16_t *found, const float *expected, size_t count,
                                double tolerance)
{
    float *values = calloc(count, sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = cuda_float_of_half(found[i]);
    }
    vision_assert_close(values, expected, count, tolerance);
    free(values);
}
