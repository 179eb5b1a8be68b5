#include "core/rng.h"
#include "support/cmocka_all.h"

#include <math.h>
#include <stdbool.h>

/* Draws of CPython's random.Random(seed).getrandbits(32). */
static void test_mt19937_u32__equals_cpython(void **state)
{
    static const struct {
        uint64_t seed;
        uint32_t draws[4];
    } cases[] = {
        {0, {3626764237, 1654615998, 3255389356, 3823568514}},
        {1, {577090037, 2444712010, 3639700191, 3445702192}},
        {42, {2746317213, 478163327, 107420369, 3184935163}},
        {UINT32_MAX, {2728839433, 2661025012, 872737089, 924893097}},
        {UINT64_C(1) << 32, {485306839, 1508871100, 1794561286, 4014597330}},
        {(UINT64_C(1) << 40) + 7, {2635837658, 3209733218, 3500038837, 4028389051}},
        {UINT64_MAX, {93740670, 1068495656, 1452108352, 2657516307}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct espl_mt19937 mt;
        espl_mt19937_seed(&mt, cases[i].seed);
        for (size_t k = 0; k < 4; k++) {
            assert_int_equal(espl_mt19937_u32(&mt), cases[i].draws[k]);
        }
    }
}

/* The draws that window sampling of published pruning code makes: randint(0, 356316). */
static void test_mt19937_randint__golden_windows(void **state)
{
    static const struct {
        uint64_t seed;
        int64_t draws[6];
    } cases[] = {
        {0, {201979, 220500, 21225, 135746, 268055, 254766}},
        {1, {70445, 298426, 33086, 133729, 61823, 259750}},
        {42, {335243, 58369, 13112, 144194, 128393, 117026}},
    };
    struct espl_mt19937 mt;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        espl_mt19937_seed(&mt, cases[i].seed);
        for (size_t k = 0; k < 6; k++) {
            assert_int_equal(espl_mt19937_randint(&mt, 0, 356316), cases[i].draws[k]);
        }
    }
    /* Past three refills of the state. */
    espl_mt19937_seed(&mt, 0);
    for (int k = 0; k < 2049; k++) {
        (void)espl_mt19937_randint(&mt, 0, 356316);
    }
    assert_int_equal(espl_mt19937_randint(&mt, 0, 356316), 57658);
}

/* One stream of CPython's random.Random(7) through ranges of all widths. */
static void test_mt19937_randint__all_widths(void **state)
{
    static const int64_t small[] = {0, -3, 1, 5, -5, -4, 3, -4};
    static const int64_t wide[] = {470330855157, 189139603672, 920985495386, 528581004175};
    static const int64_t full[] = {1207407596419191983, -6766730261175167285, 1308126745423487424,
                                   2562501216369800041};
    struct espl_mt19937 mt;
    (void)state;
    espl_mt19937_seed(&mt, 7);
    for (size_t k = 0; k < 8; k++) {
        assert_int_equal(espl_mt19937_randint(&mt, -5, 5), small[k]);
    }
    for (size_t k = 0; k < 4; k++) {
        assert_int_equal(espl_mt19937_randint(&mt, 0, INT64_C(1) << 40), wide[k]);
    }
    assert_int_equal(espl_mt19937_randint(&mt, 3, 3), 3);
    assert_int_equal(espl_mt19937_randint(&mt, 3, 3), 3);
    assert_int_equal(espl_mt19937_randint(&mt, 0, 9), 0);
    for (size_t k = 0; k < 4; k++) {
        assert_true(espl_mt19937_randint(&mt, INT64_MIN, INT64_MAX) == full[k]);
    }
    assert_int_equal(espl_mt19937_u32(&mt), 1599435267);
    assert_true(espl_mt19937_randint(&mt, 0, INT64_MAX) == INT64_C(1158252176259998754));
    assert_true(espl_mt19937_randint(&mt, 0, INT64_MAX) == INT64_C(1099447532108017859));
    assert_int_equal(espl_mt19937_randint(&mt, 0, UINT32_MAX), 2658625969);
    assert_int_equal(espl_mt19937_randint(&mt, 0, UINT32_MAX), 2283721058);
    assert_int_equal(espl_mt19937_randint(&mt, 0, INT64_C(1) << 32), 3338172184);
    assert_int_equal(espl_mt19937_randint(&mt, 0, INT64_C(1) << 32), 3966150535);
}

/* Known answers of Philox2x64-10: the first is published with the generator's sources (all zero),
 * the others were computed from the definition in another language. */
static void test_rng_u64__philox_known_answers(void **state)
{
    struct espl_rng rng = {.key = 0, .counter = 0};
    (void)state;
    assert_true(espl_rng_u64(&rng) == UINT64_C(0xca00a0459843d731));
    rng.key = UINT64_C(0xdeadbeef);
    rng.counter = 0;
    assert_true(espl_rng_u64(&rng) == UINT64_C(0x2facc8ef7612918a));
    assert_true(espl_rng_u64(&rng) == UINT64_C(0xd28fc7a1446fee20));
    assert_true(espl_rng_u64(&rng) == UINT64_C(0x1a419c05e42461bc));
}

static void test_rng_stream__separates_seed_name_and_index(void **state)
{
    const struct espl_rng streams[] = {
        espl_rng_stream(0, "prune", 0),  espl_rng_stream(1, "prune", 0),
        espl_rng_stream(0, "prune", 1),  espl_rng_stream(0, "prun", 0),
        espl_rng_stream(0, "prune2", 0), espl_rng_stream(0, "", 0),
        espl_rng_stream(1, "", 0),       espl_rng_stream(0, "", 1),
    };
    const size_t count = sizeof streams / sizeof streams[0];
    (void)state;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = i + 1; k < count; k++) {
            assert_true(streams[i].key != streams[k].key);
        }
    }
    struct espl_rng again = espl_rng_stream(0, "prune", 0);
    assert_true(again.key == streams[0].key && again.counter == 0);
}

/* 60,000 draws below 6: each count is 10,000 with a standard deviation of 91; five of them. */
static void test_rng_below__uniform_and_in_range(void **state)
{
    int counts[6] = {0};
    struct espl_rng rng = espl_rng_stream(3, "dice", 0);
    (void)state;
    for (int i = 0; i < 60000; i++) {
        const uint64_t draw = espl_rng_below(&rng, 6);
        assert_true(draw < 6);
        counts[draw]++;
    }
    for (int i = 0; i < 6; i++) {
        assert_in_range(counts[i], 10000 - 456, 10000 + 456);
    }
    assert_int_equal(espl_rng_below(&rng, 1), 0);
    /* Just over half of the range: nearly every other draw must be rejected, none may be out. */
    const uint64_t bound = (UINT64_C(1) << 63) + 1;
    const uint64_t before = rng.counter;
    for (int i = 0; i < 1000; i++) {
        assert_true(espl_rng_below(&rng, bound) < bound);
    }
    assert_in_range(rng.counter - before, 1800, 2200);
}

/* Moments of 200,000 draws against theory, at five standard errors. */
static void test_rng_unit_and_normal__moments(void **state)
{
    enum { DRAWS = 200000 };
    double sum = 0.0;
    double unit_sum = 0.0;
    double square = 0.0;
    double fourth = 0.0;
    struct espl_rng rng = espl_rng_stream(11, "noise", 5);
    (void)state;
    for (int i = 0; i < DRAWS; i++) {
        const double unit = espl_rng_unit(&rng);
        assert_true(unit >= 0.0 && unit < 1.0);
        unit_sum += unit;
        const double draw = espl_rng_normal(&rng);
        assert_true(isfinite(draw));
        sum += draw;
        square += draw * draw;
        fourth += draw * draw * draw * draw;
    }
    const double root = sqrt((double)DRAWS);
    assert_true(fabs(unit_sum / DRAWS - 0.5) < 5.0 * sqrt(1.0 / 12.0) / root);
    assert_true(fabs(sum / DRAWS) < 5.0 / root);
    assert_true(fabs(square / DRAWS - 1.0) < 5.0 * sqrt(2.0) / root);
    assert_true(fabs(fourth / DRAWS - 3.0) < 5.0 * sqrt(96.0) / root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mt19937_u32__equals_cpython),
        cmocka_unit_test(test_mt19937_randint__golden_windows),
        cmocka_unit_test(test_mt19937_randint__all_widths),
        cmocka_unit_test(test_rng_u64__philox_known_answers),
        cmocka_unit_test(test_rng_stream__separates_seed_name_and_index),
        cmocka_unit_test(test_rng_below__uniform_and_in_range),
        cmocka_unit_test(test_rng_unit_and_normal__moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
