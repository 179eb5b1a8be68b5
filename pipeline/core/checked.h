/* Checked size arithmetic. Every size that comes from a file goes through here before it is used.
 */
#ifndef ESPL_CORE_CHECKED_H
#define ESPL_CORE_CHECKED_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** *out = a * b; returns false and leaves *out alone on overflow. */
static inline bool espl_mul_size(size_t a, size_t b, size_t *out)
{
    if (b != 0 && a > SIZE_MAX / b) {
        return false;
    }
    *out = a * b;
    return true;
}

/** *out = a + b; returns false and leaves *out alone on overflow. */
static inline bool espl_add_size(size_t a, size_t b, size_t *out)
{
    if (a > SIZE_MAX - b) {
        return false;
    }
    *out = a + b;
    return true;
}

/** *out = value as int; returns false when it does not fit (BLAS and HDF5 take int counts). */
static inline bool espl_size_to_int(size_t value, int *out)
{
    if (value > (size_t)INT_MAX) {
        return false;
    }
    *out = (int)value;
    return true;
}

/** ceil(a / b) for b > 0, without overflow. */
static inline size_t espl_ceil_div(size_t a, size_t b)
{
    return a / b + (a % b != 0 ? 1u : 0u);
}

#endif
