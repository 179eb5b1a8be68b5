/* The context of a running stage, without a process: ports, figures, units, progress messages. */
#include "exec_fakes.h"

#include "engine/exec_message.h"
#include "engine/stage_ctx.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char key[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

static struct espl_stage_ctx *make_ctx(const struct exec_fixture *fixture, int message_fd)
{
    struct espl_stage_ctx *ctx = NULL;
    const struct espl_ctx_config config = {
        .store = &fixture->store,
        .stage = &exec_fake_work,
        .stage_id = "prune",
        .key = key,
        .device = "cpu",
        .seed = 42,
        .message_fd = message_fd,
        .stopped = &fixture->stop_signal,
    };
    assert_int_equal(espl_stage_ctx_create(&config, &ctx, NULL), ESPL_OK);
    return ctx;
}

static void test_ctx__ports(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_stage_ctx *ctx = NULL;
    struct espl_artifact *artifact = NULL;
    char path[ESPL_PATH_MAX];
    (void)espl_fs_join(path, fixture->folder, "out.h5", NULL);
    assert_int_equal(espl_artifact_create(path, "unit/1", &artifact, NULL), ESPL_OK);
    const struct espl_ctx_port outputs[] = {{"sum", artifact}};
    const struct espl_ctx_config config = {
        .store = &fixture->store,
        .stage = &exec_fake_work,
        .stage_id = "prune",
        .key = key,
        .device = "cpu",
        .outputs = outputs,
        .output_count = 1,
        .message_fd = -1,
    };
    assert_int_equal(espl_stage_ctx_create(&config, &ctx, NULL), ESPL_OK);
    assert_ptr_equal(espl_ctx_output(ctx, "sum"), artifact);
    assert_null(espl_ctx_output(ctx, "other"));
    assert_null(espl_ctx_input(ctx, "a"));
    assert_string_equal(espl_ctx_stage_id(ctx), "prune");
    assert_string_equal(espl_ctx_device(ctx), "cpu");
    assert_ptr_equal(espl_ctx_store(ctx), &fixture->store);
    espl_stage_ctx_destroy(ctx);
    espl_artifact_abandon(artifact);
}

static void test_ctx__random_streams_depend_on_stage_and_index(void **state)
{
    struct espl_stage_ctx *ctx = make_ctx(*state, -1);
    struct espl_rng first = espl_ctx_rng(ctx, 0);
    struct espl_rng again = espl_rng_stream(42, "prune", 0);
    struct espl_rng second = espl_ctx_rng(ctx, 1);
    const uint64_t value = espl_rng_u64(&first);
    assert_true(value == espl_rng_u64(&again));
    assert_true(value != espl_rng_u64(&second));
    espl_stage_ctx_destroy(ctx);
}

static void test_ctx__figures(void **state)
{
    struct espl_stage_ctx *ctx = make_ctx(*state, -1);
    struct espl_error err;
    assert_int_equal(espl_ctx_metric(ctx, "perplexity", 12.5, false, &err), ESPL_OK);
    assert_int_equal(espl_ctx_metric(ctx, "seconds", 3.0, true, &err), ESPL_OK);
    assert_int_equal(espl_ctx_metric(ctx, "Perplexity", 1.0, false, &err), ESPL_E_INTERNAL);
    assert_int_equal(espl_ctx_metric(ctx, "", 1.0, false, &err), ESPL_E_INTERNAL);
    assert_int_equal(espl_ctx_metric(ctx, "bad", (double)INFINITY, false, &err), ESPL_E_NUMERIC);
    assert_int_equal(espl_ctx_layer_metric(ctx, "error", 3, "q_proj", (double)NAN, &err),
                     ESPL_E_NUMERIC);
    assert_string_equal(err.message, "error of layer 3, 'q_proj', is nan");
    assert_int_equal(json_object_size(espl_stage_ctx_metrics(ctx, false)), 1);
    assert_int_equal(json_object_size(espl_stage_ctx_metrics(ctx, true)), 1);
    espl_stage_ctx_destroy(ctx);
}

static void test_ctx__layers_are_sorted_and_a_repeat_replaces(void **state)
{
    struct espl_stage_ctx *ctx = make_ctx(*state, -1);
    assert_int_equal(espl_ctx_layer_metric(ctx, "sparsity", 10, "b", 1.0, NULL), ESPL_OK);
    assert_int_equal(espl_ctx_layer_metric(ctx, "sparsity", 2, "b", 2.0, NULL), ESPL_OK);
    assert_int_equal(espl_ctx_layer_metric(ctx, "error", 2, "b", 3.0, NULL), ESPL_OK);
    assert_int_equal(espl_ctx_layer_metric(ctx, "sparsity", 2, "a", 4.0, NULL), ESPL_OK);
    assert_int_equal(espl_ctx_layer_metric(ctx, "sparsity", 10, "b", 5.0, NULL), ESPL_OK);
    json_t *layers = espl_stage_ctx_layers(ctx);
    static const double expected[] = {4.0, 3.0, 2.0, 5.0};
    assert_int_equal(json_array_size(layers), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *entry = json_array_get(layers, i);
        assert_true(json_number_value(json_object_get(entry, "value")) == expected[i]);
    }
    json_decref(layers);
    espl_stage_ctx_destroy(ctx);
}

static void publish_unit(struct espl_stage_ctx *ctx, uint64_t index, double value)
{
    struct espl_artifact *unit = NULL;
    struct espl_error err;
    const uint64_t shape[1] = {1};
    const struct espl_tensor_info info = espl_tensor_info_make("/value", ESPL_DTYPE_F64, 1, shape);
    assert_int_equal(espl_ctx_unit_create(ctx, index, &unit, &err), ESPL_OK);
    assert_int_equal(espl_artifact_write(unit, &info, &value, &err), ESPL_OK);
    assert_int_equal(espl_ctx_layer_metric(ctx, "sparsity", index, "q_proj", value, &err), ESPL_OK);
    assert_int_equal(espl_ctx_unit_publish(ctx, index, &unit, &err), ESPL_OK);
    assert_null(unit);
}

static void test_ctx__units_and_their_layer_metrics_come_back(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_artifact *unit = NULL;
    double value = 0.0;
    struct espl_stage_ctx *ctx = make_ctx(fixture, -1);
    assert_false(espl_ctx_unit_done(ctx, 0));
    assert_int_equal(espl_ctx_layer_metric(ctx, "sparsity", 9, "before", 0.5, NULL), ESPL_OK);
    publish_unit(ctx, 0, 0.25);
    publish_unit(ctx, 5, 0.75);
    espl_stage_ctx_destroy(ctx);
    assert_int_equal(espl_stage_count_units(&fixture->store, key), 2);
    ctx = make_ctx(fixture, -1);
    assert_true(espl_ctx_unit_done(ctx, 0));
    assert_true(espl_ctx_unit_done(ctx, 0));
    assert_false(espl_ctx_unit_done(ctx, 1));
    assert_true(espl_ctx_unit_done(ctx, 5));
    assert_int_equal(espl_stage_ctx_resumed_units(ctx), 2);
    json_t *layers = espl_stage_ctx_layers(ctx);
    assert_int_equal(json_array_size(layers), 2); /* not the one from before the unit */
    json_decref(layers);
    assert_int_equal(espl_ctx_unit_open(ctx, 5, &unit, NULL), ESPL_OK);
    assert_int_equal(espl_artifact_read_rows(unit, "/value", 0, 1, &value, sizeof value, NULL),
                     ESPL_OK);
    assert_true(value == 0.75);
    espl_artifact_close(unit);
    assert_int_equal(espl_ctx_unit_open(ctx, 1, &unit, NULL), ESPL_E_NOTFOUND);
    espl_stage_ctx_destroy(ctx);
}

static void test_ctx__unit_of_another_key_is_dropped(void **state)
{
    struct exec_fixture *fixture = *state;
    char dir[ESPL_PATH_MAX];
    char from[ESPL_PATH_MAX];
    char to[ESPL_PATH_MAX];
    struct espl_stage_ctx *ctx = make_ctx(fixture, -1);
    publish_unit(ctx, 0, 0.25);
    espl_stage_ctx_destroy(ctx);
    assert_int_equal(espl_store_units_dir(&fixture->store, key, false, dir, NULL), ESPL_OK);
    (void)espl_fs_join(from, dir, "unit-000000.h5", NULL);
    (void)espl_fs_join(to, dir, "unit-000003.h5", NULL);
    assert_int_equal(rename(from, to), 0);
    ctx = make_ctx(fixture, -1);
    assert_false(espl_ctx_unit_done(ctx, 3));
    assert_false(espl_fs_exists(to));
    espl_stage_ctx_destroy(ctx);
}

static void test_ctx__flipped_bit_in_a_unit_is_found(void **state)
{
    struct exec_fixture *fixture = *state;
    char dir[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    char *data = NULL;
    size_t len = 0;
    const double value = 0.123456789;
    struct espl_stage_ctx *ctx = make_ctx(fixture, -1);
    publish_unit(ctx, 0, value);
    espl_stage_ctx_destroy(ctx);
    assert_int_equal(espl_store_units_dir(&fixture->store, key, false, dir, NULL), ESPL_OK);
    (void)espl_fs_join(path, dir, "unit-000000.h5", NULL);
    assert_int_equal(espl_fs_read_file(path, 1 << 20, &data, &len, NULL), ESPL_OK);
    char *at = memmem(data, len, &value, sizeof value);
    assert_non_null(at);
    *at = (char)(*at ^ 1);
    assert_int_equal(espl_fs_write_file(path, data, len, NULL), ESPL_OK);
    free(data);
    ctx = make_ctx(fixture, -1);
    assert_false(espl_ctx_unit_done(ctx, 0));
    espl_stage_ctx_destroy(ctx);
}

static void test_ctx__unpublished_units_leave_nothing(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_artifact *unit = NULL;
    struct espl_artifact *stranger = NULL;
    struct espl_stage_ctx *ctx = make_ctx(fixture, -1);
    assert_int_equal(espl_ctx_unit_create(ctx, 0, &unit, NULL), ESPL_OK);
    assert_int_equal(espl_ctx_unit_publish(ctx, 0, &stranger, NULL), ESPL_E_INTERNAL);
    espl_stage_ctx_destroy(ctx);
    assert_int_equal(exec_fixture_names(fixture, "partial", ""), 0);
}

static void test_ctx__units_need_the_flag(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_artifact *unit = NULL;
    struct espl_stage_ctx *ctx = NULL;
    const struct espl_ctx_config config = {
        .store = &fixture->store,
        .stage = &exec_fake_split,
        .stage_id = "x",
        .key = key,
        .message_fd = -1,
    };
    assert_int_equal(espl_stage_ctx_create(&config, &ctx, NULL), ESPL_OK);
    assert_int_equal(espl_ctx_unit_create(ctx, 0, &unit, NULL), ESPL_E_INTERNAL);
    espl_stage_ctx_destroy(ctx);
}

static void test_ctx__stop(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_error err;
    struct espl_stage_ctx *ctx = make_ctx(fixture, -1);
    assert_false(espl_ctx_cancelled(ctx));
    fixture->stop_signal = SIGINT;
    assert_true(espl_ctx_cancelled(ctx));
    assert_int_equal(espl_ctx_stop(ctx, &err), ESPL_E_CANCELLED);
    fixture->stop_signal = 0;
    /* A blocked SIGTERM that waits is the driver's sign. */
    sigset_t term;
    sigset_t before;
    int number = 0;
    (void)sigemptyset(&term);
    (void)sigaddset(&term, SIGTERM);
    assert_int_equal(sigprocmask(SIG_BLOCK, &term, &before), 0);
    assert_int_equal(kill(getpid(), SIGTERM), 0);
    assert_true(espl_ctx_cancelled(ctx));
    assert_int_equal(sigwait(&term, &number), 0);
    assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
    assert_false(espl_ctx_cancelled(ctx));
    espl_stage_ctx_destroy(ctx);
}

/* ---- messages ---- */

static size_t count_messages(int fd, enum espl_message_type wanted, json_t **last)
{
    struct espl_message_reader reader;
    struct espl_error err;
    size_t count = 0;
    bool end = false;
    espl_message_reader_init(&reader);
    while (!end) {
        enum espl_message_type type = ESPL_MESSAGE_STATUS;
        json_t *body = NULL;
        assert_int_equal(espl_message_reader_fill(&reader, fd, &end, &err), ESPL_OK);
        for (;;) {
            assert_int_equal(espl_message_reader_next(&reader, &type, &body, &err), ESPL_OK);
            if (body == NULL) {
                break;
            }
            if (type == wanted) {
                count++;
                json_decref(*last);
                *last = json_incref(body);
            }
            json_decref(body);
        }
    }
    espl_message_reader_free(&reader);
    return count;
}

static void test_ctx__progress_is_thinned_but_its_end_is_told(void **state)
{
    struct exec_fixture *fixture = *state;
    int fds[2];
    json_t *last = NULL;
    assert_int_equal(pipe(fds), 0);
    struct espl_stage_ctx *ctx = make_ctx(fixture, fds[1]);
    for (uint64_t i = 0; i <= 20000; i++) {
        espl_ctx_progress(ctx, i, 20000, "window");
    }
    espl_stage_ctx_destroy(ctx);
    (void)close(fds[1]);
    const size_t count = count_messages(fds[0], ESPL_MESSAGE_PROGRESS, &last);
    (void)close(fds[0]);
    assert_in_range(count, 2, 200);
    assert_int_equal(json_integer_value(json_object_get(last, "done")), 20000);
    json_decref(last);
}

static void test_ctx__stop_tells_the_last_progress(void **state)
{
    struct exec_fixture *fixture = *state;
    int fds[2];
    json_t *last = NULL;
    assert_int_equal(pipe(fds), 0);
    struct espl_stage_ctx *ctx = make_ctx(fixture, fds[1]);
    espl_ctx_progress(ctx, 0, 100, "layer");
    espl_ctx_progress(ctx, 1, 100, "layer");
    espl_ctx_progress(ctx, 2, 100, "layer");
    (void)espl_ctx_stop(ctx, NULL);
    espl_stage_ctx_destroy(ctx);
    (void)close(fds[1]);
    (void)count_messages(fds[0], ESPL_MESSAGE_PROGRESS, &last);
    (void)close(fds[0]);
    assert_int_equal(json_integer_value(json_object_get(last, "done")), 2);
    json_decref(last);
}

static void test_ctx__log_takes_any_bytes(void **state)
{
    struct exec_fixture *fixture = *state;
    int fds[2];
    json_t *last = NULL;
    assert_int_equal(pipe(fds), 0);
    struct espl_stage_ctx *ctx = make_ctx(fixture, fds[1]);
    espl_log(espl_ctx_log(ctx), ESPL_LOG_INFO, "file %s", "\xff\xfe.txt");
    espl_stage_ctx_destroy(ctx);
    (void)close(fds[1]);
    assert_int_equal(count_messages(fds[0], ESPL_MESSAGE_LOG, &last), 1);
    (void)close(fds[0]);
    assert_string_equal(json_string_value(json_object_get(last, "text")), "file ??.txt");
    json_decref(last);
}

static void test_message__comes_through_byte_by_byte(void **state)
{
    (void)state;
    struct espl_message_reader reader;
    struct espl_error err;
    int fds[2];
    int slow[2];
    char bytes[4096];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(pipe(slow), 0);
    json_t *text = json_pack("{s:s}", "text", "a message of some length");
    assert_int_equal(espl_message_send_take(fds[1], ESPL_MESSAGE_LOG, text, &err), ESPL_OK);
    const ssize_t len = read(fds[0], bytes, sizeof bytes);
    assert_true(len > 8);
    espl_message_reader_init(&reader);
    for (ssize_t i = 0; i < len; i++) {
        enum espl_message_type type = ESPL_MESSAGE_STATUS;
        json_t *body = NULL;
        bool end = false;
        assert_int_equal(write(slow[1], bytes + i, 1), 1);
        assert_int_equal(espl_message_reader_fill(&reader, slow[0], &end, &err), ESPL_OK);
        assert_int_equal(espl_message_reader_next(&reader, &type, &body, &err), ESPL_OK);
        assert_true((body != NULL) == (i == len - 1));
        json_decref(body);
    }
    /* Bytes that are no message are an error, not a wait. */
    enum espl_message_type type = ESPL_MESSAGE_STATUS;
    json_t *body = NULL;
    bool end = false;
    assert_int_equal(write(slow[1], "garbage!", 8), 8);
    assert_int_equal(espl_message_reader_fill(&reader, slow[0], &end, &err), ESPL_OK);
    assert_int_equal(espl_message_reader_next(&reader, &type, &body, &err), ESPL_E_INTERNAL);
    espl_message_reader_free(&reader);
    for (int i = 0; i < 2; i++) {
        (void)close(fds[i]);
        (void)close(slow[i]);
    }
}

static void test_message__error_survives(void **state)
{
    (void)state;
    struct espl_error before;
    struct espl_error after;
    espl_error_clear(&before);
    (void)espl_fail_errno(&before, 28, "cannot write '%s'", "x");
    (void)espl_hint(&before, "free some");
    (void)espl_blame(&before, "param:path");
    (void)espl_context(&before, "while testing");
    (void)snprintf(before.at.file, sizeof before.at.file, "job.yaml");
    before.at.line = 3;
    before.at.column = 5;
    before.at.length = 2;
    json_t *object = espl_error_to_json(&before);
    espl_error_from_json(object, &after);
    json_decref(object);
    assert_int_equal(after.code, ESPL_E_NOSPACE);
    assert_int_equal(after.sys_errno, 28);
    assert_string_equal(after.message, before.message);
    assert_string_equal(after.hint, "free some");
    assert_string_equal(after.blame, "param:path");
    assert_string_equal(after.context, "while testing");
    assert_string_equal(after.at.file, "job.yaml");
    assert_int_equal(after.at.line, 3);
    assert_int_equal(after.at.column, 5);
    assert_int_equal(after.at.length, 2);
}

#define ONE(NAME) cmocka_unit_test_setup_teardown(NAME, exec_fixture_setup, exec_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(test_ctx__ports),
        ONE(test_ctx__random_streams_depend_on_stage_and_index),
        ONE(test_ctx__figures),
        ONE(test_ctx__layers_are_sorted_and_a_repeat_replaces),
        ONE(test_ctx__units_and_their_layer_metrics_come_back),
        ONE(test_ctx__unit_of_another_key_is_dropped),
        ONE(test_ctx__flipped_bit_in_a_unit_is_found),
        ONE(test_ctx__unpublished_units_leave_nothing),
        ONE(test_ctx__units_need_the_flag),
        ONE(test_ctx__stop),
        ONE(test_ctx__progress_is_thinned_but_its_end_is_told),
        ONE(test_ctx__stop_tells_the_last_progress),
        ONE(test_ctx__log_takes_any_bytes),
        cmocka_unit_test(test_message__comes_through_byte_by_byte),
        cmocka_unit_test(test_message__error_survives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
