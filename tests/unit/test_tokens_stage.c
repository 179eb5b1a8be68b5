/* The tokens stage, run without an engine: the functions of the context that it calls are fakes
 * here, the artifact is a real one. */
#include "core/fs.h"
#include "engine/stage.h"

#include "support/cmocka_all.h"
#include "support/temp_folder.h"
#include "token_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- fakes ---- */

static struct {
    struct espl_artifact *output;
    json_t *predicted;
    char files[512]; /* roles and base names, one a line */
    char log[2048];
} fake;

enum espl_status espl_plan_add_file(struct espl_plan_ctx *ctx, const char *role, const char *path,
                                    struct espl_error *err)
{
    (void)ctx;
    if (!espl_fs_exists(path)) {
        return espl_fail(err, ESPL_E_NOTFOUND, "cannot find %s file '%s'", role, path);
    }
    const char *const slash = strrchr(path, '/');
    const size_t used = strlen(fake.files);
    (void)snprintf(fake.files + used, sizeof fake.files - used, "%s %s\n", role,
                   slash != NULL ? slash + 1 : path);
    return ESPL_OK;
}

void espl_plan_set_output(struct espl_plan_ctx *ctx, const char *port, json_t *description)
{
    (void)ctx;
    assert_string_equal(port, "tokens");
    json_decref(fake.predicted);
    fake.predicted = description;
}

struct espl_artifact *espl_ctx_output(struct espl_stage_ctx *ctx, const char *port)
{
    (void)ctx;
    assert_string_equal(port, "tokens");
    return fake.output;
}

void espl_ctx_progress(struct espl_stage_ctx *ctx, uint64_t done, uint64_t total, const char *what)
{
    (void)ctx;
    assert_true(done <= total);
    assert_non_null(what);
}

static void keep_line(void *user, enum espl_log_level level, const char *line)
{
    (void)user;
    const size_t used = strlen(fake.log);
    (void)snprintf(fake.log + used, sizeof fake.log - used, "%s%s\n",
                   level == ESPL_LOG_WARN ? "warn: " : "", line);
}

static const struct espl_log fake_log = {keep_line, NULL, ESPL_LOG_INFO};

const struct espl_log *espl_ctx_log(const struct espl_stage_ctx *ctx)
{
    (void)ctx;
    return &fake_log;
}

bool espl_ctx_cancelled(const struct espl_stage_ctx *ctx)
{
    (void)ctx;
    return false;
}

enum espl_status espl_ctx_stop(const struct espl_stage_ctx *ctx, struct espl_error *err)
{
    (void)ctx;
    return espl_fail(err, ESPL_E_CANCELLED, "stopped");
}

/* ---- parameters, written through the table as the job parser does ---- */

/* The one stage, without the registry: that would link all others and the whole engine. */
extern const struct espl_stage espl_stage_tokens;

static const struct espl_stage *tokens_stage(void)
{
    return &espl_stage_tokens;
}

static void *param_field(void *params, const char *name, enum espl_param_type type)
{
    for (const struct espl_param *p = tokens_stage()->params; p->name != NULL; p++) {
        if (strcmp(p->name, name) == 0) {
            assert_int_equal(p->type, type);
            return (char *)params + p->offset;
        }
    }
    fail_msg("no parameter %s", name);
    return NULL;
}

static void set_int(void *params, const char *name, int64_t value)
{
    *(int64_t *)param_field(params, name, ESPL_PARAM_INT) = value;
}

static void set_path(void *params, const char *name, const char *value)
{
    *(const char **)param_field(params, name, ESPL_PARAM_PATH) = value;
}

static void set_texts(void *params, const char *const *paths, size_t count)
{
    *(struct espl_list *)param_field(params, "text", ESPL_PARAM_PATH) =
        (struct espl_list){count, paths};
}

static void set_documents(void *params, int value)
{
    *(int *)param_field(params, "documents", ESPL_PARAM_ENUM) = value;
}

static void *default_params(void)
{
    void *const params = calloc(1, tokens_stage()->params_size);
    assert_non_null(params);
    set_int(params, "max_rejected", 10000);
    *(bool *)param_field(params, "add_bos", ESPL_PARAM_BOOL) = true;
    return params;
}

/* ---- helpers ---- */

struct folder {
    char path[ESPL_PATH_MAX];
    char tokenizer[ESPL_PATH_MAX];
};

static int make_folder(void **state)
{
    struct folder *const folder = calloc(1, sizeof *folder);
    temp_folder_make(folder->path);
    token_fixture_path(folder->tokenizer, "tokenizers/byte-level-gpt2");
    espl_artifact_library_init();
    *state = folder;
    return folder != NULL ? 0 : 1;
}

static int remove_folder(void **state)
{
    struct folder *const folder = *state;
    temp_folder_remove(folder->path);
    json_decref(fake.predicted);
    memset(&fake, 0, sizeof fake);
    free(folder);
    return 0;
}

static const char *write_file(const struct folder *folder, const char *name, const void *bytes,
                              size_t len, char path[ESPL_PATH_MAX])
{
    struct espl_error err = {0};
    token_fixture_ok(espl_fs_join(path, folder->path, name, &err), &err);
    token_fixture_ok(espl_fs_write_file(path, bytes, len, &err), &err);
    return path;
}

static enum espl_status plan(const void *params, struct espl_error *err)
{
    struct espl_estimate est = {0};
    fake.files[0] = '\0';
    return tokens_stage()->plan(NULL, params, &est, err);
}

/* Runs the stage; *out is the finished artifact, opened for reading. */
static enum espl_status run(const struct folder *folder, const void *params,
                            struct espl_artifact **out, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    token_fixture_ok(espl_fs_join(path, folder->path, "out.h5", err), err);
    token_fixture_ok(espl_artifact_create(path, "tokens/1", &fake.output, err), err);
    fake.log[0] = '\0';
    const enum espl_status status = tokens_stage()->run(NULL, params, err);
    if (status != ESPL_OK) {
        espl_artifact_abandon(fake.output);
        return status;
    }
    token_fixture_ok(espl_artifact_finish(&fake.output, NULL, err), err);
    token_fixture_ok(espl_artifact_open(path, out, err), err);
    return ESPL_OK;
}

static int64_t described(struct espl_artifact *artifact, const char *name)
{
    json_t *const root = json_loads(espl_artifact_description(artifact), 0, NULL);
    assert_non_null(root);
    const json_t *const value = json_object_get(root, name);
    assert_true(json_is_integer(value));
    const int64_t result = json_integer_value(value);
    json_decref(root);
    return result;
}

static int32_t *read_ids(struct espl_artifact *artifact, size_t *count)
{
    void *ids = NULL;
    size_t bytes = 0;
    struct espl_error err = {0};
    token_fixture_ok(espl_artifact_read(artifact, "/tokens/ids", 1 << 24, &ids, &bytes, &err),
                     &err);
    *count = bytes / 4;
    return ids;
}

/* ---- plan ---- */

static void expect_plan_error(const void *params, enum espl_status expected, const char *part,
                              const char *blamed)
{
    struct espl_error err = {0};
    const enum espl_status status = plan(params, &err);
    if (status != expected || strstr(err.message, part) == NULL) {
        fail_msg("status %d: %s", (int)status, err.message);
    }
    assert_string_equal(err.blame, blamed);
}

static void test_plan__combinations(void **state)
{
    const struct folder *const folder = *state;
    char path[ESPL_PATH_MAX];
    const char *const text = write_file(folder, "text.txt", "abc", 3, path);
    void *const params = default_params();
    expect_plan_error(params, ESPL_E_JOB, "needs 'text' or 'ids'", "param:text");
    set_texts(params, &text, 1);
    expect_plan_error(params, ESPL_E_JOB, "'text' needs a 'tokenizer'", "param:text");
    set_path(params, "ids", "x.bin");
    expect_plan_error(params, ESPL_E_JOB, "not both", "param:ids");
    set_texts(params, NULL, 0);
    set_path(params, "tokenizer", folder->tokenizer);
    expect_plan_error(params, ESPL_E_JOB, "leave 'tokenizer' out", "param:tokenizer");
    set_path(params, "tokenizer", NULL);
    set_documents(params, 1);
    expect_plan_error(params, ESPL_E_JOB, "'documents' must be whole", "param:documents");
    set_documents(params, 0);
    expect_plan_error(params, ESPL_E_NOTFOUND, "cannot find ids file 'x.bin'", "param:ids");
    set_path(params, "ids", NULL);
    set_texts(params, &text, 1);
    set_path(params, "tokenizer", folder->tokenizer);
    set_int(params, "samples", 4);
    expect_plan_error(params, ESPL_E_JOB, "'samples' needs a 'sequence_length'", "param:samples");
    set_path(params, "tokenizer", folder->path);
    set_int(params, "samples", 0);
    expect_plan_error(params, ESPL_E_NOTFOUND, "cannot find tokenizer", "param:tokenizer");
    free(params);
}

/* The size of an ids file says how many there are. */
static void test_plan__counts_ready_made_ids(void **state)
{
    const struct folder *const folder = *state;
    static const unsigned char bytes[64] = {1};
    char path[ESPL_PATH_MAX];
    void *const params = default_params();
    struct espl_error err = {0};
    set_path(params, "ids", write_file(folder, "a.bin", bytes, sizeof bytes, path));
    token_fixture_ok(plan(params, &err), &err);
    assert_int_equal(json_integer_value(json_object_get(fake.predicted, "count")), 16);
    set_int(params, "sequence_length", 17);
    expect_plan_error(params, ESPL_E_CORRUPT,
                      "the text has 16 tokens, fewer than one window of sequence_length 17",
                      "param:ids");
    /* A window of all ids has no place that could be drawn. */
    set_int(params, "samples", 2);
    set_int(params, "sequence_length", 16);
    expect_plan_error(params, ESPL_E_CORRUPT,
                      "has 16 ids, too few to draw a window of sequence_length 16",
                      "param:sequence_length");
    set_int(params, "sequence_length", 15);
    token_fixture_ok(plan(params, &err), &err);
    assert_int_equal(json_integer_value(json_object_get(fake.predicted, "count")), 30);
    /* What a compressed file holds is known when it is read. */
    set_path(params, "ids", write_file(folder, "a.bin.xz", bytes, 8, path));
    token_fixture_ok(plan(params, &err), &err);
    free(params);
}

static void test_plan__names_files_and_predicts(void **state)
{
    const struct folder *const folder = *state;
    char a[ESPL_PATH_MAX];
    char b[ESPL_PATH_MAX];
    const char *const texts[] = {write_file(folder, "a.txt", "abc", 3, a),
                                 write_file(folder, "b.txt", "d", 1, b)};
    void *const params = default_params();
    set_path(params, "tokenizer", folder->tokenizer);
    set_texts(params, texts, 2);
    set_int(params, "samples", 3);
    set_int(params, "sequence_length", 5);
    struct espl_error err = {0};
    token_fixture_ok(plan(params, &err), &err);
    assert_string_equal(fake.files, "tokenizer tokenizer.json\ntext a.txt\ntext b.txt\n");
    assert_int_equal(json_integer_value(json_object_get(fake.predicted, "windows")), 3);
    assert_int_equal(json_integer_value(json_object_get(fake.predicted, "sequence_length")), 5);
    assert_int_equal(json_integer_value(json_object_get(fake.predicted, "count")), 15);
    assert_int_equal(json_integer_value(json_object_get(fake.predicted, "bos_id")), 2);
    assert_int_equal(json_integer_value(json_object_get(fake.predicted, "vocab_size")), 700);
    free(params);
}

/* ---- run ---- */

static void test_run__whole_text(void **state)
{
    const struct folder *const folder = *state;
    char a[ESPL_PATH_MAX];
    char b[ESPL_PATH_MAX];
    /* Joined with nothing between: "Hello" is one word across the files. */
    const char *const texts[] = {write_file(folder, "a.txt", "Hel", 3, a),
                                 write_file(folder, "b.txt", "lo world", 8, b)};
    char whole[ESPL_PATH_MAX];
    const char *const joined = write_file(folder, "c.txt", "Hello world", 11, whole);
    void *const params = default_params();
    set_path(params, "tokenizer", folder->tokenizer);
    set_texts(params, texts, 2);
    struct espl_error err = {0};
    struct espl_artifact *artifact = NULL;
    token_fixture_ok(run(folder, params, &artifact, &err), &err);
    size_t count = 0;
    int32_t *const ids = read_ids(artifact, &count);
    assert_int_equal(ids[0], 2); /* BOS of the template */
    assert_int_equal(described(artifact, "count"), count);
    assert_int_equal(described(artifact, "documents"), 1);
    assert_int_equal(described(artifact, "windows"), 0);
    assert_int_equal(described(artifact, "bos_id"), 2);
    assert_non_null(strstr(fake.log, "the first ids are 2 "));
    char sha[ESPL_SHA256_HEX];
    token_fixture_ok(espl_sha256_bytes("Hello world", 11, sha, &err), &err);
    assert_non_null(strstr(espl_artifact_description(artifact), sha));
    char content[ESPL_SHA256_HEX];
    (void)snprintf(content, sizeof content, "%s", espl_artifact_content_sha256(artifact));
    espl_artifact_close(artifact);
    set_texts(params, &joined, 1);
    token_fixture_ok(run(folder, params, &artifact, &err), &err);
    assert_string_equal(espl_artifact_content_sha256(artifact), content);
    espl_artifact_close(artifact);
    free(ids);
    free(params);
}

static void test_run__documents_have_their_own_bos(void **state)
{
    const struct folder *const folder = *state;
    char a[ESPL_PATH_MAX];
    const char *const lines = write_file(folder, "a.txt", "one\ntwo\n\nsix\n", 13, a);
    void *const params = default_params();
    set_path(params, "tokenizer", folder->tokenizer);
    set_texts(params, &lines, 1);
    set_documents(params, 1);
    struct espl_error err = {0};
    struct espl_artifact *artifact = NULL;
    token_fixture_ok(run(folder, params, &artifact, &err), &err);
    size_t count = 0;
    int32_t *const ids = read_ids(artifact, &count);
    size_t bos = 0;
    for (size_t i = 0; i < count; i++) {
        bos += ids[i] == 2 ? 1 : 0;
    }
    assert_int_equal(bos, 3);
    assert_int_equal(described(artifact, "documents"), 3);
    free(ids);
    espl_artifact_close(artifact);
    free(params);
}

static void test_run__bos_is_never_doubled(void **state)
{
    const struct folder *const folder = *state;
    char a[ESPL_PATH_MAX];
    const char *const text = write_file(folder, "a.txt", "</s>one", 7, a);
    void *const params = default_params();
    set_path(params, "tokenizer", folder->tokenizer);
    set_texts(params, &text, 1);
    struct espl_error err = {0};
    struct espl_artifact *artifact = NULL;
    token_fixture_ok(run(folder, params, &artifact, &err), &err);
    size_t count = 0;
    int32_t *const ids = read_ids(artifact, &count);
    assert_int_equal(ids[0], 2);
    assert_int_not_equal(ids[1], 2);
    assert_non_null(strstr(fake.log, "warn: a document begins with the written-out BOS"));
    free(ids);
    espl_artifact_close(artifact);
    free(params);
}

static void test_run__windows(void **state)
{
    const struct folder *const folder = *state;
    char text[4096];
    size_t used = 0;
    for (int i = 0; i < 40; i++) { /* JSON lines of growing length */
        used += (size_t)snprintf(text + used, sizeof text - used, "{\"text\":\"%.*s\"}\n", i,
                                 "zqxjzqxjzqxjzqxjzqxjzqxjzqxjzqxjzqxjzqxj");
    }
    char a[ESPL_PATH_MAX];
    const char *const path = write_file(folder, "a.jsonl", text, used, a);
    void *const params = default_params();
    set_path(params, "tokenizer", folder->tokenizer);
    set_texts(params, &path, 1);
    set_documents(params, 3);
    set_int(params, "samples", 6);
    set_int(params, "sequence_length", 12);
    struct espl_error err = {0};
    struct espl_artifact *artifact = NULL;
    token_fixture_ok(run(folder, params, &artifact, &err), &err);
    const struct espl_tensor_info *const info = espl_artifact_find(artifact, "/tokens/ids");
    assert_int_equal(info->rank, 2);
    assert_int_equal(info->shape[0], 6);
    assert_int_equal(info->shape[1], 12);
    assert_non_null(espl_artifact_find(artifact, "/tokens/starts"));
    assert_non_null(espl_artifact_find(artifact, "/tokens/documents"));
    assert_int_equal(described(artifact, "count"), 72);
    assert_int_equal(described(artifact, "windows"), 6);
    assert_int_equal(described(artifact, "documents"), 40);
    espl_artifact_close(artifact);
    set_int(params, "sequence_length", 2000);
    assert_int_equal(run(folder, params, &artifact, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "no document is long enough"));
    assert_string_equal(err.blame, "param:sequence_length");
    free(params);
}

static void test_run__shortfall_and_bad_text(void **state)
{
    const struct folder *const folder = *state;
    char a[ESPL_PATH_MAX];
    const char *path = write_file(folder, "a.txt", "short", 5, a);
    void *const params = default_params();
    set_path(params, "tokenizer", folder->tokenizer);
    set_texts(params, &path, 1);
    set_int(params, "sequence_length", 512);
    struct espl_error err = {0};
    struct espl_artifact *artifact = NULL;
    assert_int_equal(run(folder, params, &artifact, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "fewer than one window of sequence_length 512"));
    set_int(params, "sequence_length", 0);
    path = write_file(folder, "b.txt", "fine\nbad \xff\n", 11, a);
    assert_int_equal(run(folder, params, &artifact, &err), ESPL_E_CORRUPT);
    assert_non_null(
        strstr(err.message, "b.txt' is not valid UTF-8: byte 0xff at offset 9, line 2"));
    assert_string_equal(err.blame, "param:text");
    path = write_file(folder, "c.txt", "", 0, a);
    assert_int_equal(run(folder, params, &artifact, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "holds no document"));
    path = write_file(folder, "d.jsonl", "{\"text\":\"a\"}\n{\"no\":1}\n", 23, a);
    set_documents(params, 3);
    assert_int_equal(run(folder, params, &artifact, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "line 2 of '"));
    assert_non_null(strstr(err.message, "d.jsonl' has no \"text\""));
    free(params);
}

/* Of several files the one with the mistake is named, and the line counts from its beginning. */
static void test_run__mistakes_are_found_in_their_file(void **state)
{
    const struct folder *const folder = *state;
    char a[ESPL_PATH_MAX];
    char b[ESPL_PATH_MAX];
    char c[ESPL_PATH_MAX];
    static const char good[] = "{\"text\":\"a\"}\n{\"text\":\"b\"}\n";
    static const char no_text[] = "{\"text\":\"a\"}\n\n[1]\n";
    const char *const paths[] = {write_file(folder, "a.txt", good, sizeof good - 1, a),
                                 write_file(folder, "b.txt", no_text, sizeof no_text - 1, b),
                                 write_file(folder, "c.txt", good, sizeof good - 1, c)};
    void *const params = default_params();
    set_path(params, "tokenizer", folder->tokenizer);
    set_texts(params, paths, 3);
    set_documents(params, 3);
    struct espl_error err = {0};
    struct espl_artifact *artifact = NULL;
    assert_int_equal(run(folder, params, &artifact, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "line 3 of '"));
    assert_non_null(strstr(err.message, "b.txt' has no \"text\""));
    (void)write_file(folder, "c.txt", "ab\ncd\n\xc3(\n", 9, c);
    set_documents(params, 0);
    assert_int_equal(run(folder, params, &artifact, &err), ESPL_E_CORRUPT);
    assert_non_null(
        strstr(err.message, "c.txt' is not valid UTF-8: byte 0xc3 at offset 6, line 3"));
    assert_non_null(strstr(err.hint, "iconv"));
    free(params);
}

static void test_run__ready_made_ids(void **state)
{
    const struct folder *const folder = *state;
    static const unsigned char bytes[] = {1, 0, 0, 0, 0x39, 0x30, 0, 0, 7, 0, 0, 0};
    char a[ESPL_PATH_MAX];
    void *const params = default_params();
    set_path(params, "ids", write_file(folder, "a.bin", bytes, sizeof bytes, a));
    struct espl_error err = {0};
    struct espl_artifact *artifact = NULL;
    token_fixture_ok(plan(params, &err), &err);
    assert_string_equal(fake.files, "ids a.bin\n");
    token_fixture_ok(run(folder, params, &artifact, &err), &err);
    size_t count = 0;
    int32_t *const ids = read_ids(artifact, &count);
    assert_int_equal(count, 3);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 12345);
    assert_int_equal(ids[2], 7);
    assert_int_equal(described(artifact, "vocab_size"), 12346);
    assert_int_equal(described(artifact, "bos_id"), -1);
    assert_non_null(strstr(fake.log, "per token of an unknown tokenizer"));
    free(ids);
    espl_artifact_close(artifact);
    set_path(params, "ids", write_file(folder, "b.bin", bytes, 10, a));
    assert_int_equal(run(folder, params, &artifact, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "has 10 bytes, expected a multiple of 4"));
    assert_string_equal(err.blame, "param:ids");
    static const unsigned char negative[] = {1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff};
    set_path(params, "ids", write_file(folder, "c.bin", negative, sizeof negative, a));
    assert_int_equal(run(folder, params, &artifact, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "id 1 of"));
    assert_non_null(strstr(err.message, "is negative"));
    static const unsigned char wide[] = {5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                         7, 1, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0};
    set_path(params, "ids", write_file(folder, "d.bin", wide, sizeof wide, a));
    assert_int_equal(run(folder, params, &artifact, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "looks like 64-bit ids"));
    assert_string_equal(err.blame, "param:ids");
    free(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_plan__combinations, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_plan__counts_ready_made_ids, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_plan__names_files_and_predicts, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_run__whole_text, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_run__documents_have_their_own_bos, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_run__bos_is_never_doubled, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_run__windows, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_run__shortfall_and_bad_text, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_run__mistakes_are_found_in_their_file, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_run__ready_made_ids, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
