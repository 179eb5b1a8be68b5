/* exp and erfc written so that compilers vectorise the loops they are called from, and the macro
 * that has such a loop compiled for several instruction sets. Contraction is off in the whole
 * build, and files under kernels/cpu are compiled without trapping floating-point arithmetic, which
 * the selects below need to become vector instructions. */
#ifndef ESPL_KERNELS_CPU_VECTORMATH_H
#define ESPL_KERNELS_CPU_VECTORMATH_H

#include <float.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The loader picks the clone by CPU at start. Sanitizers cannot run in the resolvers that do this.
 * Elsewhere (NEON on AArch64) the baseline is already what there is. */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__clang__)
#define ESPL_CPU_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ESPL_CPU_CLONES
#endif

/* Floats of the widest vector register; rows that are padded to this have no scalar tail. */
enum { ESPL_VECTOR_FLOATS = 16 };

static inline float espl_bits_to_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t espl_float_to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/** x moved into [-87.33, 88.37], where e^x is a normal float32; NaN too goes to one of the ends.
 *
 * Done on the bit patterns: among negative floats the more negative has the larger unsigned
 * pattern, among positive ones the larger has the larger signed pattern. Integer minima stay minima
 * in the compiler's hands; float comparisons become branches that it specialises, and the code for
 * x at the end then divides by huge constants for every x, with denormal results that stall the
 * CPU. */
static inline float espl_exp_range(float x)
{
    const uint32_t lowest = 0xC2AEA8F6u; /* -87.33 */
    const int32_t highest = 0x42B0BD71;  /* 88.37 */
    const uint32_t bits = espl_float_to_bits(x);
    const uint32_t raised = bits < lowest ? bits : lowest;
    const int32_t pattern = (int32_t)raised;
    return espl_bits_to_float((uint32_t)(pattern < highest ? pattern : highest));
}

/** e^x for float32. Relative error below 2.5e-7 on [-87.33, 88.37]; arguments outside are moved to
 *  the nearer end (so never 0 and never infinite); NaN and infinities give NaN.
 *
 *  x = n ln 2 + r with |r| <= ln(2)/2 (Cody and Waite's two-part reduction), e^r = 1 + r + r^2 q(r)
 *  with q of degree 4, the weighted minimax fit of this interval (relative error 3e-9 before
 *  rounding). */
static inline float espl_exp_f32(float x)
{
    const float round_to_integer = 12582912.0F; /* 1.5 * 2^23: the sum's low bits are n */
    const float inside = espl_exp_range(x);
    const float shifted = inside * 1.44269504F + round_to_integer;
    const float n = shifted - round_to_integer;
    const float r = (inside - n * 0.693359375F) - n * -2.12194440e-4F;
    float q = 1.3814539415761828e-3F;
    q = q * r + 8.36874544620514e-3F;
    q = q * r + 4.166838899254799e-2F;
    q = q * r + 1.666652113199234e-1F;
    q = q * r + 4.999999403953552e-1F;
    const float power = (q * r) * r + r + 1.0F;
    const uint32_t exponent = espl_float_to_bits(shifted) - espl_float_to_bits(round_to_integer);
    return power * espl_bits_to_float((exponent + 127u) << 23) + (x - x); /* NaN stays NaN */
}

/** erfc(a) for a >= 0. Relative error below 3e-6 up to a = 5, absolute error below 6e-7.
 *
 *  erfc(a) = t exp(p(t) - a^2), t = 1 / (1 + a/2), with p the Chebyshev fit of degree 9 of
 *  ln(erfc(a)/t) + a^2 over a in [0, 10] (error 5e-8). */
static inline float espl_erfc_f32(float a)
{
    const float t = 1.0F / (1.0F + 0.5F * a);
    float p = 0.1449260115623474F;
    p = p * t - 0.6808130145072937F;
    p = p * t + 1.1567206382751465F;
    p = p * t - 0.6962606310844421F;
    p = p * t - 8.025211095809937e-2F;
    p = p * t + 1.2417258694767952e-3F;
    p = p * t + 3.4615106880664825e-2F;
    p = p * t + 0.3866371512413025F;
    p = p * t + 0.9986332654953003F;
    p = p * t - 1.265447974205017F;
    return t * espl_exp_f32(p - a * a);
}

#endif
