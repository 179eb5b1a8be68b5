#include "core/rng.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Constants of Philox2x64 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2,
 * 3", SC 2011, table 2): multiplier, and the Weyl step of the key. */
static const uint64_t philox_multiplier = UINT64_C(0xd2b74407b1ce6e93);
static const uint64_t philox_key_step = UINT64_C(0x9e3779b97f4a7c15);
enum { PHILOX_ROUNDS = 10 };

/* Finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit. */
static uint64_t mix64(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return x;
}

/* Upper 64 bits of a * b. */
static uint64_t multiply_high(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 uint128;
    return (uint64_t)(((uint128)a * b) >> 64);
}

struct espl_rng espl_rng_stream(uint64_t seed, const char *name, uint64_t index)
{
    uint64_t key = mix64(seed + philox_key_step);
    /* The length is mixed in last, so ("ab", ...) and ("a", ...) cannot fall together. */
    const size_t len = strlen(name);
    for (size_t i = 0; i < len; i++) {
        key = mix64(key ^ (unsigned char)name[i]) + philox_key_step;
    }
    key = mix64(key ^ (uint64_t)len) + philox_key_step;
    key = mix64(key ^ index);
    const struct espl_rng rng = {.key = key, .counter = 0};
    return rng;
}

uint64_t espl_rng_u64(struct espl_rng *rng)
{
    uint64_t left = rng->counter++;
    uint64_t right = 0;
    uint64_t key = rng->key;
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        const uint64_t high = multiply_high(philox_multiplier, left);
        const uint64_t low = philox_multiplier * left;
        left = high ^ key ^ right;
        right = low;
        key += philox_key_step;
    }
    return left;
}

uint64_t espl_rng_below(struct espl_rng *rng, uint64_t bound)
{
    /* 2^64 mod bound values at the bottom would be hit once too often: draw again. */
    const uint64_t skipped = (UINT64_MAX - bound + 1) % bound;
    uint64_t draw = espl_rng_u64(rng);
    while (draw < skipped) {
        draw = espl_rng_u64(rng);
    }
    return draw % bound;
}

double espl_rng_unit(struct espl_rng *rng)
{
    return (double)(espl_rng_u64(rng) >> 11) * 0x1.0p-53;
}

double espl_rng_normal(struct espl_rng *rng)
{
    const double two_pi = 6.283185307179586;
    const double radius_draw = 1.0 - espl_rng_unit(rng); /* in (0, 1]: log stays finite */
    const double angle_draw = espl_rng_unit(rng);
    return sqrt(-2.0 * log(radius_draw)) * cos(two_pi * angle_draw);
}

/* MT19937: Matsumoto and Nishimura 1998, seeding of 2002 (init_by_array). */
enum { MT_WORDS = 624, MT_MIDDLE = 397 };

static void mt_seed_word(struct espl_mt19937 *mt, uint32_t seed)
{
    mt->state[0] = seed;
    for (uint32_t i = 1; i < MT_WORDS; i++) {
        const uint32_t last = mt->state[i - 1];
        mt->state[i] = UINT32_C(1812433253) * (last ^ (last >> 30)) + i;
    }
    mt->position = MT_WORDS;
}

void espl_mt19937_seed(struct espl_mt19937 *mt, uint64_t seed)
{
    const uint32_t words[2] = {(uint32_t)(seed & UINT32_MAX), (uint32_t)(seed >> 32)};
    const size_t count = words[1] != 0 ? 2 : 1;
    mt_seed_word(mt, UINT32_C(19650218));
    uint32_t *state = mt->state;
    size_t i = 1;
    size_t j = 0;
    for (int k = 0; k < MT_WORDS; k++) {
        const uint32_t last = state[i - 1];
        state[i] =
            (state[i] ^ ((last ^ (last >> 30)) * UINT32_C(1664525))) + words[j] + (uint32_t)j;
        i++;
        j = (j + 1) % count;
        if (i == MT_WORDS) {
            state[0] = state[MT_WORDS - 1];
            i = 1;
        }
    }
    for (int k = 0; k < MT_WORDS - 1; k++) {
        const uint32_t last = state[i - 1];
        state[i] = (state[i] ^ ((last ^ (last >> 30)) * UINT32_C(1566083941))) - (uint32_t)i;
        i++;
        if (i == MT_WORDS) {
            state[0] = state[MT_WORDS - 1];
            i = 1;
        }
    }
    state[0] = UINT32_C(0x80000000);
}

static void mt_refill(struct espl_mt19937 *mt)
{
    uint32_t *state = mt->state;
    for (size_t i = 0; i < MT_WORDS; i++) {
        const uint32_t joined =
            (state[i] & UINT32_C(0x80000000)) | (state[(i + 1) % MT_WORDS] & UINT32_C(0x7fffffff));
        const uint32_t twist = (joined & 1u) != 0 ? UINT32_C(0x9908b0df) : 0;
        state[i] = state[(i + MT_MIDDLE) % MT_WORDS] ^ (joined >> 1) ^ twist;
    }
    mt->position = 0;
}

uint32_t espl_mt19937_u32(struct espl_mt19937 *mt)
{
    if (mt->position >= MT_WORDS) {
        mt_refill(mt);
    }
    uint32_t y = mt->state[mt->position++];
    y ^= y >> 11;
    y ^= (y << 7) & UINT32_C(0x9d2c5680);
    y ^= (y << 15) & UINT32_C(0xefc60000);
    y ^= y >> 18;
    return y;
}

/* random.getrandbits(bits) for 1 <= bits <= 65: words low first, the last one keeps its top bits.
 * *overflow: bit 64 of the result. */
static uint64_t mt_bits(struct espl_mt19937 *mt, unsigned bits, bool *overflow)
{
    uint64_t result = 0;
    *overflow = false;
    for (unsigned shift = 0; bits > 0; shift += 32) {
        const unsigned taken = bits < 32 ? bits : 32;
        const uint32_t word = espl_mt19937_u32(mt) >> (32 - taken);
        if (shift < 64) {
            result |= (uint64_t)word << shift;
        } else {
            *overflow = word != 0;
        }
        bits -= taken;
    }
    return result;
}

int64_t espl_mt19937_randint(struct espl_mt19937 *mt, int64_t low, int64_t high)
{
    const uint64_t last = (uint64_t)high - (uint64_t)low; /* n - 1; n itself may be 2^64 */
    unsigned bits = 0;                                    /* bit length of n */
    if (last == UINT64_MAX) {
        bits = 65;
    } else {
        for (uint64_t n = last + 1; n != 0; n >>= 1) {
            bits++;
        }
    }
    bool overflow = false;
    uint64_t draw = mt_bits(mt, bits, &overflow);
    while (overflow || draw > last) {
        draw = mt_bits(mt, bits, &overflow);
    }
    const uint64_t sum = (uint64_t)low + draw;
    /* Two's complement without relying on the conversion of large unsigned values. */
    return sum <= (uint64_t)INT64_MAX ? (int64_t)sum : -(int64_t)(UINT64_MAX - sum) - 1;
}
