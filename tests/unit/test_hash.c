#include "core/hash.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"

#include <string.h>
#include <sys/stat.h>

/* FIPS 180-4 examples as published by NIST. */
static const struct {
    const char *text;
    const char *hex;
} vectors[] = {
    {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnop"
     "q"
     "rsmnopqrstnopqrstu",
     "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
};

static void test_sha256_bytes__nist_vectors(void **state)
{
    char hex[ESPL_SHA256_HEX];
    struct espl_error err;
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        const size_t len = strlen(vectors[i].text);
        assert_int_equal(espl_sha256_bytes(vectors[i].text, len, hex, &err), ESPL_OK);
        assert_string_equal(hex, vectors[i].hex);
    }
}

static void test_sha256_update__million_a_in_odd_pieces(void **state)
{
    char piece[997];
    char hex[ESPL_SHA256_HEX];
    (void)state;
    memset(piece, 'a', sizeof piece);
    struct espl_sha256 *hash = espl_sha256_create();
    assert_non_null(hash);
    for (size_t left = 1000000; left > 0;) {
        const size_t size = left < sizeof piece ? left : sizeof piece;
        espl_sha256_update(hash, piece, size);
        left -= size;
    }
    espl_sha256_finish(hash, hex);
    espl_sha256_destroy(hash);
    espl_sha256_destroy(NULL);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* Expected value: SHA-256 of the fields "ab", "", "c", each after its length as 8 little-endian
 * bytes, computed with another implementation. */
static void test_sha256_update_field__length_prefix(void **state)
{
    char hex[ESPL_SHA256_HEX];
    (void)state;
    struct espl_sha256 *hash = espl_sha256_create();
    assert_non_null(hash);
    espl_sha256_update_field(hash, "ab", 2);
    espl_sha256_update_field(hash, NULL, 0);
    espl_sha256_update_field(hash, "c", 1);
    espl_sha256_finish(hash, hex);
    espl_sha256_destroy(hash);
    assert_string_equal(hex, "fc8c9cb2fcf043eccbb4a1d9db773cf56aac8ccc96cd90987a38a862db532f0b");
}

static void test_sha256_file__larger_than_a_piece(void **state)
{
    char dir[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    char hex[ESPL_SHA256_HEX];
    char expected[ESPL_SHA256_HEX];
    struct espl_error err;
    (void)state;
    enum { SIZE = (1 << 20) * 2 + 17 };
    char *data = malloc(SIZE);
    assert_non_null(data);
    for (size_t i = 0; i < SIZE; i++) {
        data[i] = (char)((i * 131 + (i >> 8)) & 0x7f);
    }
    temp_folder_make(dir);
    assert_int_equal(espl_fs_join(path, dir, "data", &err), ESPL_OK);
    assert_int_equal(espl_fs_write_file(path, data, SIZE, &err), ESPL_OK);
    assert_int_equal(espl_sha256_bytes(data, SIZE, expected, &err), ESPL_OK);
    assert_int_equal(espl_sha256_file(path, hex, &err), ESPL_OK);
    assert_string_equal(hex, expected);
    free(data);
    temp_folder_remove(dir);
}

static void test_sha256_is_hex__wants_64_lower_case_digits(void **state)
{
    (void)state;
    char text[ESPL_SHA256_HEX + 1] = "";
    assert_false(espl_sha256_is_hex(text));
    assert_int_equal(espl_sha256_bytes("", 0, text, NULL), ESPL_OK);
    assert_true(espl_sha256_is_hex(text));
    text[63] = 'A';
    assert_false(espl_sha256_is_hex(text));
    text[63] = 'g';
    assert_false(espl_sha256_is_hex(text));
    text[63] = '\0';
    assert_false(espl_sha256_is_hex(text));
    memset(text, 'f', 65);
    assert_false(espl_sha256_is_hex(text));
}

static void test_sha256_file__errors(void **state)
{
    char dir[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    char hex[ESPL_SHA256_HEX];
    struct espl_error err;
    (void)state;
    temp_folder_make(dir);
    assert_int_equal(espl_fs_join(path, dir, "absent", &err), ESPL_OK);
    assert_int_equal(espl_sha256_file(path, hex, &err), ESPL_E_NOTFOUND);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(espl_sha256_file(dir, hex, &err), ESPL_E_KIND);
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody writes: reading it would hang */
    assert_int_equal(espl_sha256_file(path, hex, &err), ESPL_E_KIND);
    assert_non_null(strstr(err.message, "not a regular file"));
    temp_folder_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256_bytes__nist_vectors),
        cmocka_unit_test(test_sha256_update__million_a_in_odd_pieces),
        cmocka_unit_test(test_sha256_update_field__length_prefix),
        cmocka_unit_test(test_sha256_file__larger_than_a_piece),
        cmocka_unit_test(test_sha256_is_hex__wants_64_lower_case_digits),
        cmocka_unit_test(test_sha256_file__errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
