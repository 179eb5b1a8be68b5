#include "core/units.h"
#include "support/cmocka_all.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void test_parse_int__whole_text_or_nothing(void **state)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {
        {"0", 0},
        {"-0", 0},
        {"+7", 7},
        {"-12", -12},
        {"007", 7},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
    };
    static const char *const bad[] = {"",
                                      "-",
                                      "+",
                                      " 1",
                                      "1 ",
                                      "1.0",
                                      "0x10",
                                      "1e3",
                                      "--1",
                                      "12a",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "99999999999999999999"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int64_t value = 99;
        assert_true(espl_parse_int(good[i].text, &value));
        assert_true(value == good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t value = 99;
        assert_false(espl_parse_int(bad[i], &value));
        assert_int_equal(value, 99);
    }
}

static void test_parse_real__yaml_core_numbers_only(void **state)
{
    static const struct {
        const char *text;
        double value;
    } good[] = {
        {"0.5", 0.5},   {"-2", -2.0},    {"+1.25", 1.25},      {".5", 0.5},     {"3.", 3.0},
        {"1e-3", 1e-3}, {"1E+2", 100.0}, {"6.02e23", 6.02e23}, {"0e9999", 0.0}, {"5e-324", 5e-324},
    };
    static const char *const bad[] = {"",      ".",     "e5",     "1e",    "1e+",  "nan",
                                      "inf",   "-inf",  "0x1p3",  " 1",    "1 ",   "1,5",
                                      "1.2.3", "1e400", "1e-400", "1_000", "0.5f", "Infinity"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        double value = 99.0;
        assert_true(espl_parse_real(good[i].text, &value));
        assert_true(value == good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        double value = 99.0;
        assert_false(espl_parse_real(bad[i], &value));
        assert_true(value == 99.0);
    }
}

static void test_parse_bool__no_yaml_1_1_words(void **state)
{
    static const char *const bad[] = {"", "yes", "no", "on", "off", "tRUE", "1", "true "};
    bool value = false;
    (void)state;
    assert_true(espl_parse_bool("true", &value) && value);
    assert_true(espl_parse_bool("FALSE", &value) && !value);
    assert_true(espl_parse_bool("True", &value) && value);
    assert_true(espl_parse_bool("False", &value) && !value);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(espl_parse_bool(bad[i], &value));
    }
}

static void test_parse_size__units(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0B", 0},
        {"48GiB", UINT64_C(48) << 30},
        {"512 MiB", UINT64_C(512) << 20},
        {"10kB", 10000},
        {"1.5GB", 1500000000},
        {"0.1GiB", 107374182},
        {"1.25KiB", 1280},
        {"2TB", UINT64_C(2000000000000)},
        {"16777215TiB", UINT64_C(16777215) << 40},
        {"18446744073709551615B", UINT64_MAX},
    };
    static const char *const bad[] = {
        "",           "5",     "GiB",  "-1GB",        "1.5B",
        "1,5GB",      "5 GB ", "5gb",  "5KB",         "1..5GB",
        "1.GB",       "1e3MB", "+1GB", "16777216TiB", "18446744073709551616B",
        "1.1234567GB"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t bytes = 99;
        assert_true(espl_parse_size(good[i].text, &bytes));
        assert_true(bytes == good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t bytes = 99;
        assert_false(espl_parse_size(bad[i], &bytes));
        assert_int_equal(bytes, 99);
    }
}

static void test_parse_duration__units(void **state)
{
    static const struct {
        const char *text;
        double seconds;
    } good[] = {
        {"45ms", 0.045}, {"60s", 60.0},     {"2min", 120.0}, {"1h", 3600.0},
        {"10us", 1e-5},  {"1.5 h", 5400.0}, {"0s", 0.0},     {"1e3ms", 1.0},
    };
    static const char *const bad[] = {"", "45", "ms", "-1s", "+1s", "1m", "1 S", "1s ", "1e999h"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        double seconds = 99.0;
        assert_true(espl_parse_duration(good[i].text, &seconds));
        assert_true(seconds == good[i].seconds);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        double seconds = 99.0;
        assert_false(espl_parse_duration(bad[i], &seconds));
    }
}

static void test_parse_nm__strict(void **state)
{
    static const char *const bad[] = {"",      "4:2",  "2:",    ":4",   "124",
                                      "2:4 ",  " 2:4", "0:4",   "2-4",  "02:4",
                                      "2:4:8", "1:65", "1:100", "-1:4", "2 :4"};
    struct espl_nm nm = {9, 9};
    (void)state;
    assert_true(espl_parse_nm("2:4", &nm) && nm.n == 2 && nm.m == 4);
    assert_true(espl_parse_nm("1:1", &nm) && nm.n == 1 && nm.m == 1);
    assert_true(espl_parse_nm("16:64", &nm) && nm.n == 16 && nm.m == 64);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(espl_parse_nm(bad[i], &nm));
    }
    assert_true(nm.n == 16 && nm.m == 64);
}

static void test_parse_grid__strict(void **state)
{
    static const char *const bad[] = {"",    "2",   "2x",    "x4",   "2:4",  "2X4",  "2x4 ", " 2x4",
                                      "0x4", "4x0", "2x4x1", "65x1", "1x65", "02x4", "-1x4"};
    struct espl_grid grid = {9, 9};
    (void)state;
    assert_true(espl_parse_grid("4x2", &grid) && grid.rows == 4 && grid.cols == 2);
    assert_true(espl_parse_grid("1x64", &grid) && grid.rows == 1 && grid.cols == 64);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(espl_parse_grid(bad[i], &grid));
    }
    assert_true(grid.rows == 1 && grid.cols == 64);
}

static void test_print_real__canonical_forms(void **state)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0.0, "0"},
        {-0.0, "-0"},
        {0.5, "0.5"},
        {100.0, "100"},
        {5000.0, "5000"},
        {2048.0, "2048"},
        {-0.25, "-0.25"},
        {0.1, "0.1"},
        {1.0 / 3.0, "0.3333333333333333"},
        {123456789.0, "123456789"},
        {1234.5, "1234.5"},
        {1e-5, "0.00001"},
        {3e-5, "0.00003"},
        {1e-6, "1e-6"},
        {1.5e-7, "1.5e-7"},
        {1e16, "10000000000000000"},
        {1e17, "1e17"},
        {1e22, "1e22"},
        {5e-324, "5e-324"},
        {1.7976931348623157e308, "1.7976931348623157e308"},
        {0.045, "0.045"},
        {HUGE_VAL, "inf"},
        {-HUGE_VAL, "-inf"},
    };
    char text[ESPL_UNIT_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        espl_print_real(cases[i].value, text);
        assert_string_equal(text, cases[i].text);
    }
    espl_print_real(NAN, text);
    assert_string_equal(text, "nan");
}

/* Bit patterns spread over all exponents read back to the same bits, and no shorter precision does.
 */
static void test_print_real__round_trip(void **state)
{
    uint64_t bits = UINT64_C(0x0123456789abcdef);
    (void)state;
    for (int i = 0; i < 20000; i++) {
        double value = 0.0;
        double back = 0.0;
        char text[ESPL_UNIT_TEXT];
        bits = bits * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) {
            continue;
        }
        espl_print_real(value, text);
        assert_true(espl_parse_real(text, &back));
        assert_memory_equal(&back, &value, sizeof value);
    }
}

static void test_print_real__ignores_the_locale(void **state)
{
    /* Any locale with a decimal comma that is installed; without one the plain checks above stand.
     */
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "nl_NL.UTF-8"};
    char text[ESPL_UNIT_TEXT];
    double value = 0.0;
    bool set = false;
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !set; i++) {
        set = setlocale(LC_NUMERIC, names[i]) != NULL;
    }
    if (!set) {
        print_message("no locale with a decimal comma is installed\n");
        skip();
    }
    espl_print_real(0.5, text);
    assert_string_equal(text, "0.5");
    assert_true(espl_parse_real("0.5", &value) && value == 0.5);
    assert_false(espl_parse_real("0,5", &value));
    assert_true(setlocale(LC_NUMERIC, "C") != NULL);
}

static void test_print_size__rounds_and_steps_up(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1.0 KiB"},
        {1536, "1.5 KiB"},
        {1048575, "1.0 MiB"}, /* not 1024.0 KiB */
        {UINT64_C(31) << 30, "31.0 GiB"},
        {UINT64_C(2791728742), "2.6 GiB"},
        {UINT64_MAX, "16.0 EiB"},
    };
    char text[ESPL_UNIT_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        espl_print_size(cases[i].bytes, text);
        assert_string_equal(text, cases[i].text);
    }
}

static void test_print_duration__ranges(void **state)
{
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {
        {0.0, "0 us"},      {12e-6, "12 us"},  {0.012, "12 ms"},    {0.9994, "999 ms"},
        {0.9996, "1.0 s"},  {5.94, "5.9 s"},   {59.94, "59.9 s"},   {59.96, "1m00s"},
        {2427.0, "40m27s"}, {3599.6, "1h00m"}, {97500.0, "27h05m"}, {-1.0, "unknown"},
    };
    char text[ESPL_UNIT_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        espl_print_duration(cases[i].seconds, text);
        assert_string_equal(text, cases[i].text);
    }
    espl_print_duration(NAN, text);
    assert_string_equal(text, "unknown");
}

static void test_print_utc__known_moments(void **state)
{
    static const struct {
        int64_t seconds;
        const char *text;
    } cases[] = {
        {0, "1970-01-01T00:00:00Z"},          {1778580251, "2026-05-12T10:04:11Z"},
        {951827696, "2000-02-29T12:34:56Z"},  {-1, "1969-12-31T23:59:59Z"},
        {4102444799, "2099-12-31T23:59:59Z"},
    };
    char text[ESPL_UNIT_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        espl_print_utc(cases[i].seconds, text);
        assert_string_equal(text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_int__whole_text_or_nothing),
        cmocka_unit_test(test_parse_real__yaml_core_numbers_only),
        cmocka_unit_test(test_parse_bool__no_yaml_1_1_words),
        cmocka_unit_test(test_parse_size__units),
        cmocka_unit_test(test_parse_duration__units),
        cmocka_unit_test(test_parse_nm__strict),
        cmocka_unit_test(test_parse_grid__strict),
        cmocka_unit_test(test_print_real__canonical_forms),
        cmocka_unit_test(test_print_real__round_trip),
        cmocka_unit_test(test_print_real__ignores_the_locale),
        cmocka_unit_test(test_print_size__rounds_and_steps_up),
        cmocka_unit_test(test_print_duration__ranges),
        cmocka_unit_test(test_print_utc__known_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
