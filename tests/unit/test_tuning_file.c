/* Files of stored choices: what they hold, what is refused, and that other devices' choices stay.
 */
#include "stages/deploy_bench/tuning_file.h"

#include "support/test_folder.h"

#include <math.h>
#include <string.h>

/* Equal but for rounding; cmocka compares floats only. */
static void expect_close(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-12 * fabs(expected))) {
        fail_msg("%.17g, expected %.17g", found, expected);
    }
}

static const char device[] = "GPU A, cc 9.0";

#define CHOICE                                                                            \
    "{\"form\": \"1x1\", \"rows\": 64, \"cols\": 128, \"tokens\": 8, \"sparsity\": 0.5, " \
    "\"warps\": 16, \"splits\": 2, \"window\": 4, \"stages\": 3, \"parts\": 66, "         \
    "\"seconds\": 1.5e-6}"
#define FILE_OF(choices)                                                                      \
    "{\"schema\": \"espalier.spmm-tuning/1\", \"devices\": [{\"device\": \"GPU A, cc 9.0\", " \
    "\"choices\": [" choices "]}]}"

static enum espl_status parse(const char *text, struct espl_spmm_tuning *tuning,
                              struct espl_error *err)
{
    *tuning = (struct espl_spmm_tuning){.items = NULL};
    return espl_tuning_parse(text, strlen(text), device, tuning, err);
}

static void test_parse__takes_this_device(void **state)
{
    (void)state;
    struct espl_spmm_tuning tuning;
    struct espl_error err;
    assert_int_equal(parse("{\"schema\": \"espalier.spmm-tuning/1\", \"devices\": ["
                           "{\"device\": \"GPU B\", \"choices\": [" CHOICE "]},"
                           "{\"device\": \"GPU A, cc 9.0\", \"choices\": [" CHOICE "]}]}",
                           &tuning, &err),
                     ESPL_OK);
    assert_int_equal(tuning.count, 1);
    const struct espl_spmm_stored *one = espl_spmm_tuning_find(&tuning, "1x1", 64, 128, 8, 0.5);
    assert_non_null(one);
    assert_int_equal(one->choice.warps, 16);
    assert_int_equal(one->choice.splits, 2);
    assert_int_equal(one->choice.window, 4);
    assert_int_equal(one->choice.stages, 3);
    assert_int_equal(one->choice.parts, 66);
    expect_close(one->seconds, 1.5e-6);
    espl_spmm_tuning_free(&tuning);
    /* none for this device is no mistake */
    assert_int_equal(
        parse("{\"schema\": \"espalier.spmm-tuning/1\", \"devices\": []}", &tuning, &err), ESPL_OK);
    assert_int_equal(tuning.count, 0);
}

struct bad {
    const char *text;
    enum espl_status status;
    const char *message; /* a part of it */
};

static const struct bad bad_files[] = {
    {"", ESPL_E_CORRUPT, "it is no JSON"},
    {"[]", ESPL_E_CORRUPT, "'schema' must be"},
    {"{\"schema\": \"espalier.spmm-tuning/1\"", ESPL_E_CORRUPT, "it is no JSON"},
    {"{\"schema\": \"espalier.spmm-tuning/2\", \"devices\": []}", ESPL_E_VERSION,
     "schema 'espalier.spmm-tuning/2'"},
    {"{\"schema\": \"espalier.latency/1\", \"devices\": []}", ESPL_E_CORRUPT, "'schema' must be"},
    {"{\"schema\": \"espalier.spmm-tuning/1\", \"schema\": \"x\", \"devices\": []}", ESPL_E_CORRUPT,
     "duplicate object key"},
    {"{\"schema\": \"espalier.spmm-tuning/1\", \"devices\": {}}", ESPL_E_CORRUPT,
     "'devices' must be a list"},
    {"{\"schema\": \"espalier.spmm-tuning/1\", \"devices\": [{\"choices\": []}]}", ESPL_E_CORRUPT,
     "devices[0]: 'device' must be a text"},
    {"{\"schema\": \"espalier.spmm-tuning/1\", \"devices\": [{\"device\": \"x\"}]}", ESPL_E_CORRUPT,
     "devices[0]: 'choices' must be a list"},
    {"{\"schema\": \"espalier.spmm-tuning/1\", \"devices\": [{\"device\": \"GPU A, cc 9.0\", "
     "\"choices\": []}, {\"device\": \"GPU A, cc 9.0\", \"choices\": []}]}",
     ESPL_E_CORRUPT, "was there already"},
    {FILE_OF("7"), ESPL_E_CORRUPT, "devices[0].choices[0]: 'form' must be"},
    {FILE_OF(CHOICE "," CHOICE), ESPL_E_CORRUPT,
     "devices[0].choices[1]: this product has a choice already"},
};

static void test_parse__refuses_bad_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_files / sizeof bad_files[0]; i++) {
        struct espl_spmm_tuning tuning;
        struct espl_error err;
        assert_int_equal(parse(bad_files[i].text, &tuning, &err), bad_files[i].status);
        if (strstr(err.message, bad_files[i].message) == NULL) {
            fail_msg("file %zu: '%s' is not in '%s'", i, bad_files[i].message, err.message);
        }
        espl_spmm_tuning_free(&tuning);
    }
}

/* One member of a choice changed, which names it. */
static const struct {
    const char *from, *to, *named;
} bad_members[] = {
    {"\"1x1\"", "\"9x9\"", "form"},
    {"\"rows\": 64", "\"rows\": 0", "rows"},
    {"\"rows\": 64", "\"rows\": 64.0", "rows"},
    {"\"rows\": 64", "\"rows\": 9999999999", "rows"},
    {"\"cols\": 128", "\"cols\": 131072", "cols"},
    {"\"tokens\": 8", "\"tokens\": 65", "tokens"},
    {"\"sparsity\": 0.5", "\"sparsity\": 1.5", "sparsity"},
    {"\"sparsity\": 0.5", "\"sparsity\": \"a\"", "sparsity"},
    {"\"warps\": 16", "\"warps\": 33", "warps"},
    {"\"splits\": 2", "\"splits\": -2", "splits"},
    {"\"window\": 4", "\"windows\": 4", "window"},
    {"\"stages\": 3", "\"stages\": true", "stages"},
    {"\"parts\": 66", "\"parts\": 65537", "parts"},
    {"\"seconds\": 1.5e-6", "\"seconds\": 0.0", "seconds"},
    {"\"seconds\": 1.5e-6", "\"seconds\": null", "seconds"},
};

static void test_parse__refuses_bad_members(void **state)
{
    (void)state;
    static const char good[] = FILE_OF(CHOICE);
    for (size_t i = 0; i < sizeof bad_members / sizeof bad_members[0]; i++) {
        char text[1024];
        char named[64];
        struct espl_spmm_tuning tuning;
        struct espl_error err;
        const char *at = strstr(good, bad_members[i].from);
        assert_non_null(at);
        (void)snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, bad_members[i].to,
                       at + strlen(bad_members[i].from));
        (void)snprintf(named, sizeof named, "devices[0].choices[0]: '%s' must be",
                       bad_members[i].named);
        assert_int_equal(parse(text, &tuning, &err), ESPL_E_CORRUPT);
        if (strstr(err.message, named) == NULL) {
            fail_msg("'%s' is not in '%s'", named, err.message);
        }
        espl_spmm_tuning_free(&tuning);
    }
}

static void test_write__keeps_other_devices(void **state)
{
    (void)state;
    const char *path = below("tuning.json");
    struct espl_spmm_tuning tuning;
    struct espl_spmm_tuning back = {.items = NULL};
    struct espl_error err;
    assert_int_equal(parse(FILE_OF(CHOICE), &tuning, &err), ESPL_OK);
    tuning.items[0].sparsity = 0.123456789;
    assert_int_equal(espl_tuning_write(path, "GPU B", &tuning, &err), ESPL_OK);
    tuning.items[0].choice.parts = 7;
    assert_int_equal(espl_tuning_write(path, device, &tuning, &err), ESPL_OK);
    tuning.items[0].choice.parts = 8;
    assert_int_equal(espl_tuning_write(path, device, &tuning, &err), ESPL_OK);
    assert_int_equal(espl_tuning_read(path, device, &back, &err), ESPL_OK);
    assert_int_equal(back.count, 1);
    assert_int_equal(back.items[0].choice.parts, 8);
    expect_close(back.items[0].sparsity, 0.123456789);
    espl_spmm_tuning_free(&back);
    assert_int_equal(espl_tuning_read(path, "GPU B", &back, &err), ESPL_OK);
    assert_int_equal(back.count, 1);
    assert_int_equal(back.items[0].choice.parts, 66);
    espl_spmm_tuning_free(&back);
    espl_spmm_tuning_free(&tuning);
}

static void test_write__leaves_a_bad_file_alone(void **state)
{
    (void)state;
    const char *path = below("bad.json");
    struct espl_spmm_tuning tuning = {.items = NULL};
    struct espl_error err;
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(espl_fs_write_file(path, "not mine", 8, &err), ESPL_OK);
    assert_int_equal(espl_tuning_write(path, device, &tuning, &err), ESPL_E_CORRUPT);
    assert_int_equal(espl_fs_read_file(path, 100, &text, &len, &err), ESPL_OK);
    assert_int_equal(len, 8);
    assert_memory_equal(text, "not mine", 8);
    free(text);
    assert_int_equal(espl_tuning_read(below("none.json"), device, &tuning, &err), ESPL_E_NOTFOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse__takes_this_device),
        cmocka_unit_test(test_parse__refuses_bad_files),
        cmocka_unit_test(test_parse__refuses_bad_members),
        cmocka_unit_test(test_write__keeps_other_devices),
        cmocka_unit_test(test_write__leaves_a_bad_file_alone),
    };
    return cmocka_run_group_tests(tests, test_folder_set_up, test_folder_tear_down);
}
