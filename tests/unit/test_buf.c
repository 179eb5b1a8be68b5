#include "core/buf.h"
#include "support/cmocka_all.h"

#include <stdint.h>
#include <string.h>

static void test_buf_add__grows_and_keeps_text(void **state)
{
    struct espl_buf buf;
    (void)state;
    espl_buf_init(&buf, 100000);
    assert_string_equal(espl_buf_text(&buf), "");
    for (int i = 0; i < 5000; i++) {
        assert_true(espl_buf_printf(&buf, "%d,", i % 10));
    }
    assert_int_equal(buf.len, 10000);
    assert_memory_equal(buf.data + 9996, "8,9,", 5); /* with the NUL */
    struct espl_error err;
    assert_int_equal(espl_buf_check(&buf, "the list", &err), ESPL_OK);
    espl_buf_reset(&buf);
    assert_string_equal(espl_buf_text(&buf), "");
    assert_true(espl_buf_add(&buf, "a\0b", 3));
    assert_int_equal(buf.len, 3);
    espl_buf_free(&buf);
    assert_null(buf.data);
}

static void test_buf_add__over_the_limit_fails_and_stays_failed(void **state)
{
    struct espl_buf buf;
    struct espl_error err;
    (void)state;
    espl_buf_init(&buf, 10);
    assert_true(espl_buf_puts(&buf, "0123456789"));
    assert_false(espl_buf_puts(&buf, "x"));
    assert_string_equal(espl_buf_text(&buf), "0123456789");
    assert_false(espl_buf_puts(&buf, "")); /* failed stays failed */
    assert_int_equal(espl_buf_check(&buf, "the list", &err), ESPL_E_NOMEM);
    assert_non_null(strstr(err.message, "the list"));
    assert_non_null(strstr(err.message, "10 bytes"));
    espl_buf_reset(&buf);
    assert_true(espl_buf_printf(&buf, "%s", "0123456789"));
    assert_false(espl_buf_printf(&buf, "%d", 1));
    espl_buf_reset(&buf);
    assert_false(espl_buf_add(&buf, "", SIZE_MAX)); /* the sum would wrap */
    assert_int_equal(buf.len, 0);
    espl_buf_free(&buf);
    espl_buf_free(NULL);
}

static void test_arena__aligned_zeroed_and_limited(void **state)
{
    (void)state;
    struct espl_arena *arena = espl_arena_create(20000);
    assert_non_null(arena);
    for (size_t size = 0; size < 70; size++) {
        unsigned char *block = espl_arena_alloc(arena, size);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % _Alignof(max_align_t), 0);
        for (size_t i = 0; i < size; i++) {
            assert_int_equal(block[i], 0);
        }
        memset(block, 0xaa, size); /* must not touch a neighbour's zeros */
    }
    assert_non_null(espl_arena_alloc(arena, 9000)); /* larger than a block */
    assert_null(espl_arena_alloc(arena, 9000));     /* over the limit */
    assert_non_null(espl_arena_alloc(arena, 16));   /* smaller ones still fit */
    espl_arena_destroy(arena);
    espl_arena_destroy(NULL);
}

static void test_arena__overflow_is_refused(void **state)
{
    (void)state;
    struct espl_arena *arena = espl_arena_create(1 << 20);
    assert_non_null(arena);
    assert_null(espl_arena_array(arena, SIZE_MAX / 8 + 2, 8)); /* wraps to a small size */
    assert_null(espl_arena_alloc(arena, SIZE_MAX));
    assert_null(espl_arena_alloc(arena, SIZE_MAX - 64));
    assert_null(espl_arena_strndup(arena, "x", SIZE_MAX));
    uint32_t *numbers = espl_arena_array(arena, 7, sizeof *numbers);
    assert_non_null(numbers);
    espl_arena_destroy(arena);
}

static void test_arena__texts(void **state)
{
    (void)state;
    struct espl_arena *arena = espl_arena_create(1 << 20);
    assert_string_equal(espl_arena_strdup(arena, "layers.0"), "layers.0");
    assert_string_equal(espl_arena_strndup(arena, "layers.0", 6), "layers");
    assert_string_equal(espl_arena_strndup(arena, "", 0), "");
    assert_string_equal(espl_arena_printf(arena, "%s.%d", "layers", 12), "layers.12");
    espl_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buf_add__grows_and_keeps_text),
        cmocka_unit_test(test_buf_add__over_the_limit_fails_and_stays_failed),
        cmocka_unit_test(test_arena__aligned_zeroed_and_limited),
        cmocka_unit_test(test_arena__overflow_is_refused),
        cmocka_unit_test(test_arena__texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
