#include "datasets/windows.h"

#include "support/cmocka_all.h"
#include "token_fixture.h"

#include <stdlib.h>
#include <string.h>

/* Documents of the given lengths; id = position in all ids, so a window shows where it is from. */
static struct espl_documents make_documents(const json_t *lengths, int32_t **ids,
                                            uint64_t **offsets)
{
    const size_t count = json_array_size(lengths);
    *offsets = calloc(count + 1, sizeof **offsets);
    assert_non_null(*offsets);
    for (size_t i = 0; i < count; i++) {
        (*offsets)[i + 1] =
            (*offsets)[i] + (uint64_t)json_integer_value(json_array_get(lengths, i));
    }
    *ids = malloc(((*offsets)[count] + 1) * sizeof **ids);
    assert_non_null(*ids);
    for (uint64_t i = 0; i < (*offsets)[count]; i++) {
        (*ids)[i] = (int32_t)i;
    }
    return (struct espl_documents){*ids, *offsets, count};
}

static void check_case(const json_t *item)
{
    const size_t tokens = (size_t)json_integer_value(json_object_get(item, "tokens"));
    const uint64_t seed = (uint64_t)json_integer_value(json_object_get(item, "seed"));
    const json_t *const places = json_object_get(item, "places");
    const size_t windows = json_array_size(places);
    int32_t *ids = NULL;
    uint64_t *offsets = NULL;
    const struct espl_documents documents =
        make_documents(json_object_get(item, "lengths"), &ids, &offsets);
    int32_t *const out = malloc(windows * tokens * sizeof *out);
    uint64_t *const starts = calloc(windows, sizeof *starts);
    assert_non_null(out);
    assert_non_null(starts);
    struct espl_error err = {0};
    token_fixture_ok(espl_windows_draw(&documents, seed, windows, tokens, 10000, out, starts, &err),
                     &err);
    for (size_t i = 0; i < windows; i++) {
        const json_t *const place = json_array_get(places, i);
        const uint64_t expected = offsets[json_integer_value(json_array_get(place, 0))] +
                                  (uint64_t)json_integer_value(json_array_get(place, 1));
        assert_int_equal(starts[i], expected);
        for (size_t t = 0; t < tokens; t++) {
            assert_int_equal(out[i * tokens + t], (int32_t)(expected + t));
        }
    }
    free(out);
    free(starts);
    free(ids);
    free(offsets);
}

static void test_draw__equals_the_published_sampler(void **state)
{
    (void)state;
    json_t *const cases = token_fixture_json("windows/wanda.json");
    assert_true(json_array_size(cases) >= 20);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        check_case(json_array_get(cases, i));
    }
    json_decref(cases);
}

/* A document of exactly the window's length is rejected, one token more is enough. */
static void test_draw__length_is_exclusive(void **state)
{
    (void)state;
    const int32_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    const uint64_t offsets[] = {0, 4, 9};
    const struct espl_documents documents = {ids, offsets, 2};
    int32_t out[40];
    uint64_t starts[10];
    struct espl_error err = {0};
    token_fixture_ok(espl_windows_draw(&documents, 3, 10, 4, 1000, out, starts, &err), &err);
    for (size_t i = 0; i < 10; i++) {
        assert_int_equal(starts[i], 4); /* randint(0, 5 - 4 - 1): only the start of the second */
    }
}

static void test_draw__rejection_is_bounded(void **state)
{
    (void)state;
    const int32_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    const uint64_t offsets[] = {0, 4, 9};
    const struct espl_documents documents = {ids, offsets, 2};
    int32_t out[8];
    struct espl_error err = {0};
    assert_int_equal(espl_windows_draw(&documents, 0, 1, 8, 50, out, NULL, &err), ESPL_E_CORRUPT);
    assert_string_equal(err.message,
                        "no document is long enough: 51 drawn in a row have at most 5 tokens, and "
                        "a window of 8 needs at least 9");
    assert_non_null(strstr(err.hint, "sequence_length"));
    const struct espl_documents one = {ids, offsets, 1};
    assert_int_equal(espl_windows_draw(&one, 0, 1, 4, 1000000000, out, NULL, &err), ESPL_E_CORRUPT);
    assert_string_equal(err.message, "the text has 4 tokens, and a window of 4 needs at least 5");
    const struct espl_documents none = {ids, offsets, 0};
    assert_int_equal(espl_windows_draw(&none, 0, 1, 4, 10, out, NULL, &err), ESPL_E_CORRUPT);
}

static enum espl_status failing_load(void *user, size_t document, const int32_t **ids, size_t *len,
                                     struct espl_error *err)
{
    (void)user;
    (void)document;
    (void)ids;
    (void)len;
    return espl_fail(err, ESPL_E_IO, "no such luck");
}

static void test_draw_from__passes_errors_on(void **state)
{
    (void)state;
    const struct espl_document_source source = {.count = 3, .load = failing_load};
    int32_t out[2];
    struct espl_error err = {0};
    assert_int_equal(espl_windows_draw_from(&source, 0, 1, 2, 10, out, NULL, &err), ESPL_E_IO);
    assert_string_equal(err.message, "no such luck");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draw__equals_the_published_sampler),
        cmocka_unit_test(test_draw__length_is_exclusive),
        cmocka_unit_test(test_draw__rejection_is_bounded),
        cmocka_unit_test(test_draw_from__passes_errors_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
