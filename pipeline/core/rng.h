/* Random numbers. espl_rng: counter-based, named streams, so that inserting a stage does not shift
 * others. espl_mt19937: the generator of CPython's `random`, for windows that match published code.
 */
#ifndef ESPL_CORE_RNG_H
#define ESPL_CORE_RNG_H

#include <stddef.h>
#include <stdint.h>

struct espl_rng {
    uint64_t key;
    uint64_t counter;
};

/** Stream of (seed, name, index): equal arguments give equal numbers on every machine. */
struct espl_rng espl_rng_stream(uint64_t seed, const char *name, uint64_t index);
uint64_t espl_rng_u64(struct espl_rng *rng);
/** Uniform in [0, bound), bound > 0, without modulo bias. */
uint64_t espl_rng_below(struct espl_rng *rng, uint64_t bound);
/** Uniform in [0, 1) with 53 bits. */
double espl_rng_unit(struct espl_rng *rng);
/** Standard normal (Box-Muller, one value per call). */
double espl_rng_normal(struct espl_rng *rng);

struct espl_mt19937 {
    uint32_t state[624];
    unsigned position;
};

/** Seeds like CPython's random.seed(seed) for 0 <= seed < 2^64 (init_by_array of 32-bit words). */
void espl_mt19937_seed(struct espl_mt19937 *mt, uint64_t seed);
uint32_t espl_mt19937_u32(struct espl_mt19937 *mt);
/** CPython's random.randint(low, high), both ends included; low <= high. */
int64_t espl_mt19937_randint(struct espl_mt19937 *mt, int64_t low, int64_t high);

#endif
