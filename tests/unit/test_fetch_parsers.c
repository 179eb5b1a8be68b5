/* What espalier-fetch reads: addresses, header lines, requests. */
#include "datasets/fetch/fetch_request.h"
#include "datasets/fetch/response.h"
#include "datasets/fetch/token.h"

#include "support/cmocka_all.h"
#include "support/temp_folder.h"

#include <string.h>

static void test_check_url__https_or_this_machine(void **state)
{
    (void)state;
    static const char *const good[] = {"https://example.org/a",          "HTTPS://example.org",
                                       "https://example.org:8443/a?b=c", "http://127.0.0.1/a",
                                       "http://localhost:80/",           "http://[::1]:99/x"};
    static const char *const bad[] = {"http://example.org/a",
                                      "http://127.0.0.1.example.org/",
                                      "http://localhost.example.org/",
                                      "ftp://127.0.0.1/",
                                      "file:///etc/passwd",
                                      "https://",
                                      "https://user:secret@example.org/",
                                      "https://example.org/a b",
                                      "https://example.org/a\r\nX: y",
                                      "https://example.org\\@other.org/",
                                      "",
                                      "example.org/a"};
    struct espl_error err;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(espl_fetch_check_url(good[i], &err), ESPL_OK);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(espl_fetch_check_url(bad[i], &err), ESPL_E_USAGE);
        assert_null(strstr(err.message, "secret"));
    }
}

static void test_shown_url__hides_what_may_be_secret(void **state)
{
    (void)state;
    char shown[512];
    assert_string_equal(espl_fetch_shown_url("https://h/a?Signature=s#f", shown), "https://h/a");
    assert_string_equal(espl_fetch_shown_url("https://u:p@h/a", shown), "https://h/a");
    assert_string_equal(espl_fetch_shown_url("https://h?x=y", shown), "https://h");
    /* What looks like a scheme further on is none. */
    assert_string_equal(espl_fetch_shown_url("h/a?token=s://x", shown), "h/a");
    assert_string_equal(espl_fetch_shown_url("u:p@h://x/a", shown), "h://x/a");
}

static void test_same_origin__scheme_host_port(void **state)
{
    (void)state;
    assert_true(espl_fetch_same_origin("https://hub.org/a", "https://HUB.org"));
    assert_false(espl_fetch_same_origin("https://hub.org/a", "http://hub.org"));
    assert_false(espl_fetch_same_origin("https://hub.org:444/a", "https://hub.org"));
    assert_false(espl_fetch_same_origin("https://hub.org.evil.org/a", "https://hub.org"));
    assert_false(espl_fetch_same_origin("https://hub.org", "https://hub.org.evil.org"));
}

static void take(struct espl_response *response, const char *line)
{
    espl_response_line(response, line, strlen(line));
}

static void test_response__ranges(void **state)
{
    (void)state;
    struct espl_response response = {.range_total = 0};
    take(&response, "HTTP/1.1 206 Partial Content\r\n");
    take(&response, "content-RANGE:  bytes 100-199/500\r\n");
    assert_true(response.has_range);
    assert_int_equal(response.range_start, 100);
    assert_int_equal(response.range_total, 500);
    take(&response, "HTTP/1.1 416 Range Not Satisfiable\r\n"); /* a status line starts anew */
    assert_false(response.has_range);
    take(&response, "Content-Range: bytes */500");
    assert_false(response.has_range);
    assert_int_equal(response.range_total, 500);
    static const char *const bad[] = {
        "Content-Range: bytes 5-4/9", "Content-Range: bytes -4/9",
        "Content-Range: bits 0-4/9",  "Content-Range: bytes 99999999999999999999-4/9",
        "Content-Range: bytes",       "Content-Range",
        "Content-Range: bytes 1-/9",  ""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        response = (struct espl_response){.range_total = 0};
        take(&response, bad[i]);
        assert_false(response.has_range);
        assert_int_equal(response.range_total, 0);
    }
}

static void test_response__encoding(void **state)
{
    (void)state;
    struct espl_response response = {.encoded = false};
    take(&response, "Content-Encoding: Identity");
    assert_false(response.encoded);
    take(&response, "content-encoding: gzip\r\n");
    assert_true(response.encoded);
    take(&response, "HTTP/1.1 200 OK");
    assert_false(response.encoded);
}

static void test_response__validators(void **state)
{
    (void)state;
    struct espl_response response = {.range_total = 0};
    take(&response, "ETag: W/\"weak\"\r\n");
    assert_string_equal(response.validator, "");
    take(&response, "Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n");
    assert_string_equal(response.validator, "Mon, 01 Jan 2024 00:00:00 GMT");
    take(&response, "ETag: \"strong\"\r\n");
    assert_string_equal(response.validator, "\"strong\"");
    take(&response, "Last-Modified: Tue, 02 Jan 2024 00:00:00 GMT\r\n");
    assert_string_equal(response.validator, "\"strong\"");
    take(&response, "ETag: \"a\rAuthorization: x\"\r\n"); /* it would come back in a request */
    assert_string_equal(response.validator, "\"strong\"");
}

static void test_response__hub(void **state)
{
    (void)state;
    static const char hash[] = "ef7edb566e3e2b2d31b29c1fdb0c89a4cc683597484c3dc2517919c615435a11";
    char line[128];
    struct espl_response response = {.range_total = 0};
    (void)snprintf(line, sizeof line, "X-Linked-Etag: \"%s\"\r\n", hash);
    take(&response, line);
    assert_string_equal(response.linked_sha256, hash);
    take(&response, "x-linked-etag: \"ef7e\"\r\n"); /* a Git hash: nothing to check with */
    assert_string_equal(response.linked_sha256, hash);
    take(&response, "X-Linked-Size: 4721645\r\n");
    assert_int_equal(response.linked_size, 4721645);
    take(&response, "X-Linked-Size: 12x\r\n");
    assert_int_equal(response.linked_size, 4721645);
    take(&response, "X-Repo-Commit: 607bd4c8450a42878aa9ddc051a65a055450ef87\r\n");
    assert_string_equal(response.commit, "607bd4c8450a42878aa9ddc051a65a055450ef87");
    take(&response, "X-Repo-Commit: ../../etc\r\n");
    assert_string_equal(response.commit, "607bd4c8450a42878aa9ddc051a65a055450ef87");
}

static void check_request(const char *text, enum espl_status expected, const char *message)
{
    struct espl_arena *const arena = espl_arena_create((size_t)1 << 20);
    struct espl_fetch_request request = {.files = NULL};
    struct espl_error err = {.code = ESPL_OK};
    assert_int_equal(espl_fetch_request_parse(text, strlen(text), arena, &request, &err), expected);
    assert_non_null(strstr(err.message, message));
    espl_arena_destroy(arena);
}

static void test_request__each_field_is_checked(void **state)
{
    (void)state;
    check_request(
        "{\"cache\": \"/c\", \"files\": [{\"name\": \"f\", \"urls\": [\"https://x/f\"]}]}", ESPL_OK,
        "");
    check_request("[", ESPL_E_USAGE, "not JSON");
    check_request("{}", ESPL_E_USAGE, "'cache'");
    check_request("{\"cache\": \"/c\", \"files\": []}", ESPL_E_USAGE, "'files'");
    check_request("{\"cache\": \"/c\", \"parallel\": 0, \"files\": [1]}", ESPL_E_USAGE,
                  "'parallel'");
    check_request("{\"cache\": \"/c\", \"retry_seconds\": -1, \"files\": [1]}", ESPL_E_USAGE,
                  "'retry_seconds'");
    check_request(
        "{\"cache\": \"/c\", \"files\": [{\"name\": \"../f\", \"urls\": [\"https://x\"]}]}",
        ESPL_E_USAGE, "'name'");
    check_request("{\"cache\": \"/c\", \"files\": [{\"name\": \"f\", \"urls\": []}]}", ESPL_E_USAGE,
                  "'urls' of 'f'");
    check_request("{\"cache\": \"/c\", \"files\": [{\"name\": \"f\", \"urls\": [\"http://x/\"]}]}",
                  ESPL_E_USAGE, "is not https");
    check_request("{\"cache\": \"/c\", \"files\": [{\"name\": \"f\", \"urls\": [\"https://x\"], "
                  "\"size\": -1}]}",
                  ESPL_E_USAGE, "'size' of 'f'");
    check_request("{\"cache\": \"/c\", \"files\": [{\"name\": \"f\", \"urls\": [\"https://x\"], "
                  "\"sha256\": \"AB\"}]}",
                  ESPL_E_USAGE, "'sha256' of 'f'");
    check_request("{\"cache\": \"/c\", \"files\": [{\"name\": \"f\", \"urls\": [\"https://x\"], "
                  "\"members\": [{\"member\": \"m\", \"name\": \"/etc/passwd\"}]}]}",
                  ESPL_E_USAGE, "'name' of 'f'");
}

static void test_token__one_word(void **state)
{
    (void)state;
    char folder[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    char token[ESPL_TOKEN_TEXT];
    struct espl_error err;
    static const char *const bad[] = {"", " \n", "two words", "a\nb", "a\r\nX: y", "t\xc3\xa9"};
    temp_folder_make(folder);
    assert_int_equal(espl_fs_join(path, folder, "token", NULL), ESPL_OK);
    assert_int_equal(espl_fs_write_file(path, " hf_abc\r\n", 9, NULL), ESPL_OK);
    assert_int_equal(espl_fetch_read_token(path, token, &err), ESPL_OK);
    assert_string_equal(token, "hf_abc");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(espl_fs_write_file(path, bad[i], strlen(bad[i]), NULL), ESPL_OK);
        assert_int_equal(espl_fetch_read_token(path, token, &err), ESPL_E_USAGE);
        assert_null(strstr(err.message, "words"));
    }
    temp_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_url__https_or_this_machine),
        cmocka_unit_test(test_shown_url__hides_what_may_be_secret),
        cmocka_unit_test(test_same_origin__scheme_host_port),
        cmocka_unit_test(test_response__ranges),
        cmocka_unit_test(test_response__encoding),
        cmocka_unit_test(test_response__validators),
        cmocka_unit_test(test_response__hub),
        cmocka_unit_test(test_request__each_field_is_checked),
        cmocka_unit_test(test_token__one_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
