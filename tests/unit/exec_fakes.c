#include "exec_fakes.h"

#include "support/temp_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct work_params {
    int64_t value;
    int64_t steps;
    int64_t step_ms;
    bool units;
    int action;
    int64_t at;
    const char *counter;
};

static const char *const actions[] = {"none", "fail",     "crash", "exit",  "ignore",
                                      "nan",  "no-space", "print", "hoard", NULL};

static const struct espl_param work_table[] = {
    {.name = "value",
     .help = "what is added a step",
     .type = ESPL_PARAM_INT,
     .default_text = "1",
     .offset = offsetof(struct work_params, value)},
    {.name = "steps",
     .help = "steps",
     .type = ESPL_PARAM_INT,
     .default_text = "3",
     .offset = offsetof(struct work_params, steps)},
    {.name = "step_ms",
     .help = "sleep in a step",
     .type = ESPL_PARAM_INT,
     .flags = ESPL_PARAM_NO_HASH,
     .default_text = "0",
     .offset = offsetof(struct work_params, step_ms)},
    {.name = "units",
     .help = "publish a unit a step",
     .type = ESPL_PARAM_BOOL,
     .default_text = "false",
     .offset = offsetof(struct work_params, units)},
    {.name = "action",
     .help = "what goes wrong",
     .type = ESPL_PARAM_ENUM,
     .flags = ESPL_PARAM_NO_HASH,
     .default_text = "none",
     .choices = actions,
     .offset = offsetof(struct work_params, action)},
    {.name = "at",
     .help = "in which step",
     .type = ESPL_PARAM_INT,
     .flags = ESPL_PARAM_NO_HASH,
     .default_text = "0",
     .offset = offsetof(struct work_params, at)},
    {.name = "counter",
     .help = "file that counts",
     .type = ESPL_PARAM_STRING,
     .flags = ESPL_PARAM_NO_HASH | ESPL_PARAM_OPTIONAL,
     .offset = offsetof(struct work_params, counter)},
    {0},
};

/* One write a line, so that lines of several processes do not mix. */
static void count_line(const struct work_params *params, const char *fmt, const char *id,
                       uint64_t step)
{
    char line[128];
    if (params->counter == NULL) {
        return;
    }
    const int len = snprintf(line, sizeof line, "%s %s %d\n", fmt, id, (int)step);
    const int fd = open(params->counter, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, line, (size_t)len) != len) {
        _exit(99);
    }
    (void)close(fd);
}

static void sleep_ms(int64_t ms)
{
    struct timespec left = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

static enum espl_status act(struct espl_stage_ctx *ctx, const struct work_params *params,
                            struct espl_error *err)
{
    switch ((enum work_action)params->action) {
    case WORK_FAIL:
        (void)espl_fail(err, ESPL_E_NUMERIC, "the value %d is bad", (int)params->value);
        return espl_blame(err, "param:value");
    case WORK_CRASH:
        (void)signal(SIGSEGV, SIG_DFL); /* the test library has a handler */
        (void)raise(SIGSEGV);
        break;
    case WORK_EXIT:
        _exit(3);
    case WORK_NAN:
        return espl_ctx_metric(ctx, "broken", (double)NAN, false, err);
    case WORK_NOSPACE:
        return espl_fail_errno(err, ENOSPC, "cannot write '%s'", "somewhere");
    case WORK_PRINT:
        (void)printf("words on stdout\n");
        (void)fprintf(stderr, "words on stderr\n");
        espl_log(espl_ctx_log(ctx), ESPL_LOG_WARN, "words in the log");
        break;
    case WORK_HOARD: {
        void *const volatile memory = malloc((size_t)2 << 30); /* never touched */
        const bool got = memory != NULL;
        free(memory);
        return got ? ESPL_OK : espl_fail(err, ESPL_E_NOMEM, "out of memory for 2 GiB");
    }
    case WORK_NONE:
    case WORK_IGNORE:
        break;
    }
    return ESPL_OK;
}

static enum espl_status make_unit(struct espl_stage_ctx *ctx, const struct work_params *params,
                                  uint64_t step, struct espl_error *err)
{
    struct espl_artifact *unit = NULL;
    const uint64_t shape[1] = {1};
    const int64_t value = params->value;
    const struct espl_tensor_info info = espl_tensor_info_make("/value", ESPL_DTYPE_I64, 1, shape);
    enum espl_status status = ESPL_OK;
    if (params->units) {
        status = espl_ctx_unit_create(ctx, step, &unit, err);
    }
    count_line(params, "unit", espl_ctx_stage_id(ctx), step);
    if (status == ESPL_OK) {
        status = espl_ctx_layer_metric(ctx, "sparsity", step, "q_proj", 0.5 + (double)step, err);
    }
    if (status == ESPL_OK && params->units) {
        status = espl_artifact_write(unit, &info, &value, err);
        if (status == ESPL_OK) {
            status = espl_ctx_unit_publish(ctx, step, &unit, err);
        }
    }
    return status;
}

static enum espl_status add_unit(struct espl_stage_ctx *ctx, const struct work_params *params,
                                 uint64_t step, int64_t *sum, struct espl_error *err)
{
    struct espl_artifact *unit = NULL;
    int64_t value = params->value;
    enum espl_status status = ESPL_OK;
    if (params->units) {
        status = espl_ctx_unit_open(ctx, step, &unit, err);
        if (status == ESPL_OK) {
            status = espl_artifact_read_rows(unit, "/value", 0, 1, &value, sizeof value, err);
        }
        espl_artifact_close(unit);
    }
    *sum += value;
    return status;
}

static enum espl_status add_input(struct espl_stage_ctx *ctx, const char *port, int64_t *sum,
                                  struct espl_error *err)
{
    int64_t value = 0;
    struct espl_artifact *input = espl_ctx_input(ctx, port);
    if (input == NULL) {
        return ESPL_OK;
    }
    const enum espl_status status =
        espl_artifact_read_rows(input, "/sum", 0, 1, &value, sizeof value, err);
    *sum += value;
    return status;
}

static enum espl_status write_sum(struct espl_stage_ctx *ctx, const char *port, int64_t sum,
                                  struct espl_error *err)
{
    const uint64_t shape[1] = {1};
    const struct espl_tensor_info info = espl_tensor_info_make("/sum", ESPL_DTYPE_I64, 1, shape);
    return espl_artifact_write(espl_ctx_output(ctx, port), &info, &sum, err);
}

static enum espl_status work_run(struct espl_stage_ctx *ctx, const void *given,
                                 struct espl_error *err)
{
    const struct work_params *params = given;
    const uint64_t steps = (uint64_t)params->steps;
    int64_t sum = 0;
    bool deaf = false;
    enum espl_status status = ESPL_OK;
    count_line(params, "start", espl_ctx_stage_id(ctx), 0);
    espl_ctx_progress(ctx, 0, steps, "layer");
    for (uint64_t step = 0; step < steps && status == ESPL_OK; step++) {
        if (params->units && espl_ctx_unit_done(ctx, step)) {
            continue;
        }
        if (!deaf && espl_ctx_cancelled(ctx)) {
            return espl_ctx_stop(ctx, err);
        }
        sleep_ms(params->step_ms);
        if (params->at == (int64_t)step) {
            deaf = params->action == WORK_IGNORE;
            status = act(ctx, params, err);
        }
        if (status == ESPL_OK) {
            status = make_unit(ctx, params, step, err);
        }
        espl_ctx_progress(ctx, step + (status == ESPL_OK ? 1 : 0), steps, "layer");
    }
    for (uint64_t step = 0; step < steps && status == ESPL_OK; step++) {
        status = add_unit(ctx, params, step, &sum, err);
    }
    if (status == ESPL_OK) {
        status = add_input(ctx, "a", &sum, err);
    }
    if (status == ESPL_OK) {
        status = add_input(ctx, "b", &sum, err);
    }
    if (status == ESPL_OK) {
        status = write_sum(ctx, "sum", sum, err);
    }
    if (status == ESPL_OK) {
        status = espl_ctx_metric(ctx, "total", (double)sum, false, err);
    }
    return status == ESPL_OK ? espl_ctx_metric(ctx, "pid", (double)getpid(), true, err) : status;
}

static enum espl_status work_plan(struct espl_plan_ctx *ctx, const void *given,
                                  struct espl_estimate *est, struct espl_error *err)
{
    const struct work_params *params = given;
    (void)ctx;
    (void)err;
    est->units = (uint64_t)params->steps;
    est->flop = 100.0 * (double)params->steps;
    return ESPL_OK;
}

static const struct espl_port work_inputs[] = {
    {.name = "a", .kind = "model.dense/1", .flags = ESPL_PORT_OPTIONAL, .help = "first"},
    {.name = "b", .kind = "model.dense/1", .flags = ESPL_PORT_OPTIONAL, .help = "second"},
    {0},
};
static const struct espl_port work_outputs[] = {
    {.name = "sum", .kind = "model.dense/1", .help = "the sum"}, {0}};
static const struct espl_port split_outputs[] = {
    {.name = "left", .kind = "model.dense/1", .help = "the sum"},
    {.name = "right", .kind = "model.dense/1", .help = "the sum and one"},
    {0},
};

const struct espl_stage exec_fake_work = {
    .name = "work",
    .summary = "adds",
    .cache_version = 1,
    .flags = ESPL_STAGE_RESUMABLE,
    .params = work_table,
    .params_size = sizeof(struct work_params),
    .inputs = work_inputs,
    .outputs = work_outputs,
    .plan = work_plan,
    .run = work_run,
};

static enum espl_status split_run(struct espl_stage_ctx *ctx, const void *given,
                                  struct espl_error *err)
{
    const struct work_params *params = given;
    const enum espl_status status = write_sum(ctx, "left", params->value, err);
    return status == ESPL_OK ? write_sum(ctx, "right", params->value + 1, err) : status;
}

const struct espl_stage exec_fake_split = {
    .name = "split",
    .summary = "makes two",
    .cache_version = 1,
    .params = work_table,
    .params_size = sizeof(struct work_params),
    .inputs = work_inputs,
    .outputs = split_outputs,
    .run = split_run,
};

const struct espl_stage *const exec_fake_stages[] = {&exec_fake_work, &exec_fake_split, NULL};

/* ---- the fixture ---- */

const char exec_chain[] = "version: 1\n"
                          "name: chain\n"
                          "seed: 7\n"
                          "stages:\n"
                          "  - id: first\n"
                          "    use: work\n"
                          "    with: {value: 2, steps: 3, counter: \"%s\"}\n"
                          "  - id: second\n"
                          "    use: work\n"
                          "    in: {a: first}\n"
                          "    with: {value: 10, counter: \"%s\"}\n";

int exec_fixture_setup(void **state)
{
    struct exec_fixture *fixture = calloc(1, sizeof *fixture);
    /* Memory when there is some: these tests kill processes, not machines, and sync all the time.
     */
    const char *usual = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    char root[ESPL_PATH_MAX];
    assert_non_null(fixture);
    espl_artifact_library_init();
    temp_folder_make_below(fixture->folder, usual);
    assert_int_equal(espl_fs_join(fixture->counter, fixture->folder, "counter", NULL), ESPL_OK);
    assert_int_equal(espl_fs_join(root, fixture->folder, "results", NULL), ESPL_OK);
    assert_int_equal(espl_store_open(root, &fixture->store, NULL), ESPL_OK);
    espl_buf_init(&fixture->events, 1 << 20);
    *state = fixture;
    return 0;
}

int exec_fixture_teardown(void **state)
{
    struct exec_fixture *fixture = *state;
    assert_int_equal(espl_fs_remove_tree(fixture->folder, NULL), ESPL_OK);
    espl_buf_free(&fixture->events);
    free(fixture);
    return 0;
}

static void on_event(void *user, const struct espl_event *event)
{
    struct exec_fixture *fixture = user;
    if (event->type != ESPL_EVENT_PROGRESS && event->type != ESPL_EVENT_METRIC &&
        event->type != ESPL_EVENT_LAYER_METRIC) {
        (void)espl_buf_printf(&fixture->events, "%s%s%s%s%s\n", espl_event_name(event->type),
                              event->stage_id != NULL ? " " : "",
                              event->stage_id != NULL ? event->stage_id : "",
                              event->type == ESPL_EVENT_EXPECT_FAILED ? ": " : "",
                              event->type == ESPL_EVENT_EXPECT_FAILED ? event->text : "");
    }
    if (fixture->hook != NULL) {
        fixture->hook(fixture, event);
    }
}

enum espl_status exec_fixture_run(struct exec_fixture *fixture, const char *job_text)
{
    struct espl_buf text;
    struct espl_diagnostics diags;
    struct espl_job *job = NULL;
    struct espl_plan *plan = NULL;
    json_t *environment = json_pack("{s:s, s:i}", "tool_version", "1.2.3", "threads", 7);
    espl_buf_init(&text, 1 << 20);
    espl_buf_reset(&fixture->events);
    fixture->stop_signal = 0;
    fixture->stop_count = 0;
    for (const char *at = job_text; *at != '\0'; at++) {
        if (at[0] == '%' && at[1] == 's') {
            (void)espl_buf_puts(&text, fixture->counter);
            at++;
        } else {
            (void)espl_buf_add(&text, at, 1);
        }
    }
    assert_int_equal(espl_diagnostics_init(&diags, &fixture->err), ESPL_OK);
    enum espl_status status =
        espl_job_parse("jobs/test.yaml", espl_buf_text(&text), text.len, exec_fake_stages, NULL, 0,
                       &diags, &job, &fixture->err);
    const struct espl_plan_options plan_options = {
        .force = &fixture->force,
        .force_count = fixture->force != NULL ? 1 : 0,
        .until = fixture->until,
    };
    if (status == ESPL_OK) {
        status = espl_plan_build(job, &fixture->store, &plan_options, &diags, &plan, &fixture->err);
    }
    if (diags.count > 0) {
        print_message("%s\n", diags.items[0].error.message);
    }
    assert_int_equal(diags.count, 0);
    const struct espl_exec_options options = {
        .keep_going = fixture->keep_going,
        .on_event = on_event,
        .on_event_user = fixture,
        .stop_signal = &fixture->stop_signal,
        .stop_count = &fixture->stop_count,
        .command_line = "espalier run jobs/test.yaml",
        .environment = environment,
        .force = &fixture->force,
        .force_count = fixture->force != NULL ? 1 : 0,
        .stop_seconds = fixture->stop_seconds,
    };
    espl_error_clear(&fixture->err);
    if (status == ESPL_OK) {
        status = espl_exec_run(plan, &fixture->store, &options, &fixture->result, &fixture->err);
    }
    espl_plan_free(plan);
    espl_job_free(job);
    espl_diagnostics_free(&diags);
    espl_buf_free(&text);
    json_decref(environment);
    return status;
}

size_t exec_fixture_count(const struct exec_fixture *fixture, const char *line)
{
    char *text = NULL;
    size_t len = 0;
    size_t count = 0;
    if (espl_fs_read_file(fixture->counter, 1 << 20, &text, &len, NULL) != ESPL_OK) {
        return 0;
    }
    for (char *at = text, *end = NULL; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        *end = '\0';
        count += strcmp(at, line) == 0 ? 1 : 0;
    }
    free(text);
    return count;
}

json_t *exec_fixture_record(const struct exec_fixture *fixture)
{
    json_t *record = NULL;
    struct espl_error err;
    if (espl_run_load(&fixture->store, fixture->result.run_id, &record, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    return record;
}

char *exec_fixture_read(const struct exec_fixture *fixture, const char *name, size_t *len)
{
    char path[ESPL_PATH_MAX];
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(espl_fs_join(path, fixture->store.root, name, NULL), ESPL_OK);
    if (espl_fs_read_file(path, 1 << 24, &text, &size, NULL) != ESPL_OK) {
        fail_msg("cannot read %s", path);
    }
    if (len != NULL) {
        *len = size;
    }
    return text;
}

size_t exec_fixture_names(const struct exec_fixture *fixture, const char *dir, const char *ending)
{
    char path[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    size_t found = 0;
    assert_int_equal(espl_fs_join(path, fixture->store.root, dir, NULL), ESPL_OK);
    assert_int_equal(espl_fs_list(path, 10000, &names, &count, NULL), ESPL_OK);
    for (size_t i = 0; i < count; i++) {
        const size_t len = strlen(names[i]);
        const bool is_guard = len > 6 && strcmp(names[i] + len - 6, ".guard") == 0;
        const char *end = len >= strlen(ending) ? names[i] + len - strlen(ending) : "";
        found += !is_guard && strcmp(end, ending) == 0 ? 1 : 0;
    }
    espl_fs_free_names(names, count);
    return found;
}

double exec_number_at(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

const char *exec_text_at(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    assert_non_null(text);
    return text;
}

void exec_fixture_check_states(const struct exec_fixture *fixture, const char *expected)
{
    struct espl_buf text;
    size_t index = 0;
    json_t *stage = NULL;
    json_t *record = exec_fixture_record(fixture);
    espl_buf_init(&text, 4096);
    json_array_foreach(json_object_get(record, "stages"), index, stage)
    {
        (void)espl_buf_printf(&text, "%s %s\n", exec_text_at(stage, "id"),
                              exec_text_at(stage, "state"));
    }
    assert_string_equal(espl_buf_text(&text), expected);
    espl_buf_free(&text);
    json_decref(record);
}
