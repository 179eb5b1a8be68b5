/* What people see of plans and runs: bar, log lines, tables; all with clocks of the test. */
#include "cli/plan_table.h"
#include "cli/print.h"
#include "cli/progress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char key[] = "5d02f9be445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/* 12 May 2026, 12:04:11 UTC */
static const double start = 1778587451.0;

struct screen {
    struct espl_cli cli;
    struct espl_progress progress;
    char *text;
    size_t len;
};

static const struct espl_stage stage_kinds[] = {{.name = "import"}, {.name = "nm-supernet"}};
static const struct espl_job_input supernet_inputs[] = {
    {.port = "model", .stage_id = "dense", .output_port = ""},
    {.port = "table", .file = "a \"b\".h5"}};
static const struct espl_job_stage job_stages[] = {
    {.id = "dense", .stage = &stage_kinds[0]},
    {.id = "supernet",
     .stage = &stage_kinds[1],
     .inputs = (struct espl_job_input *)(uintptr_t)supernet_inputs,
     .input_count = 2},
};
static const struct espl_job job = {.name = "job", .seed = 42, .device = "cpu", .file = "job.yaml"};
static size_t supernet_sources[] = {0, SIZE_MAX};

static void make_plan(struct espl_plan *plan, struct espl_plan_stage stages[2])
{
    memset(stages, 0, 2 * sizeof stages[0]);
    memset(plan, 0, sizeof *plan);
    stages[0].job_stage = &job_stages[0];
    stages[0].state = ESPL_PLAN_CACHED;
    (void)snprintf(stages[0].why, sizeof stages[0].why, "key 3fa1c9e2");
    stages[1].job_stage = &job_stages[1];
    stages[1].state = ESPL_PLAN_RESUME;
    stages[1].input_stage = supernet_sources;
    stages[1].seconds = 41 * 60.0;
    stages[1].estimate.output_bytes = 2202009;
    (void)snprintf(stages[1].why, sizeof stages[1].why, "138 of 224 units are kept");
    plan->job = &job;
    plan->stages = stages;
    plan->stage_count = 2;
    plan->host_bytes_needed = 31ull << 30;
    plan->host_bytes_free = 62ull << 30;
    plan->disk_bytes_needed = 9ull << 30;
    plan->disk_bytes_free = 212ull << 30;
    plan->resources_ok = true;
}

static void screen_open(struct screen *screen, enum espl_progress_style style)
{
    struct espl_plan plan;
    struct espl_plan_stage stages[2];
    memset(screen, 0, sizeof *screen);
    make_plan(&plan, stages);
    screen->cli.err_stream = open_memstream(&screen->text, &screen->len);
    assert_non_null(screen->cli.err_stream);
    screen->cli.out = screen->cli.err_stream;
    screen->cli.progress = style;
    espl_progress_init(&screen->progress, &screen->cli, &plan);
    screen->progress.lines.stage_count = 10;
}

static void screen_expect(struct screen *screen, const char *expected)
{
    assert_int_equal(fclose(screen->cli.err_stream), 0);
    assert_string_equal(screen->text, expected);
    free(screen->text);
}

static void send(struct screen *screen, struct espl_event event, double time)
{
    event.time = start + time;
    if (event.type != ESPL_EVENT_RUN_START && event.type != ESPL_EVENT_RUN_END) {
        event.stage_index = 5;
        event.stage_id = "supernet";
    }
    espl_progress_event(&screen->progress, &event);
}

static void send_progress(struct screen *screen, uint64_t done, double time)
{
    send(screen,
         (struct espl_event){
             .type = ESPL_EVENT_PROGRESS, .done = done, .total = 224, .what = "layer"},
         time);
}

/* The lines of the design: resumed at 139 of 224, 2.1 layers a minute. */
static void test_lines__sparse_and_with_time_left(void **state)
{
    (void)state;
    struct screen screen;
    struct espl_error err;
    screen_open(&screen, ESPL_PROGRESS_LINES);
    send(&screen,
         (struct espl_event){.type = ESPL_EVENT_RUN_START,
                             .text = "20260512-120411-job-4e91",
                             .done = 5,
                             .total = 10},
         0);
    send(&screen,
         (struct espl_event){
             .type = ESPL_EVENT_STAGE_START, .key = key, .resumed_units = 139, .total = 224},
         0);
    for (uint64_t layer = 139; layer <= 224; layer++) {
        send_progress(&screen, layer, (double)(layer - 139) * 28.5);
    }
    send(&screen,
         (struct espl_event){
             .type = ESPL_EVENT_METRIC, .what = "seconds", .value = 1.0, .volatile_value = true},
         2427);
    send(&screen,
         (struct espl_event){.type = ESPL_EVENT_METRIC, .what = "kl", .value = 0.0123456789}, 2427);
    send(&screen,
         (struct espl_event){.type = ESPL_EVENT_METRIC, .what = "parameters", .value = 5770496},
         2427);
    send(&screen, (struct espl_event){.type = ESPL_EVENT_STAGE_END, .key = key, .value = 2427},
         2427);
    espl_error_clear(&err);
    (void)espl_fail(&err, ESPL_E_EXPECT, "x");
    (void)snprintf(err.at.file, sizeof err.at.file, "jobs/x.yaml");
    err.at.line = 84;
    err.at.column = 7;
    send(&screen,
         (struct espl_event){.type = ESPL_EVENT_EXPECT_FAILED,
                             .text = "perplexity_ratio 1.093 > 1.08",
                             .error = &err},
         2428);
    send(&screen, (struct espl_event){.type = ESPL_EVENT_RUN_END, .text = "expectation"}, 2428);
    screen_expect(
        &screen,
        "12:04:11 info  run 20260512-120411-job-4e91 started, 10 stages, 5 cached\n"
        "12:04:11 info  [6/10] supernet: resumed, 139 of 224 layers kept\n"
        "12:12:44 info  [6/10] supernet: 70% (157/224), about 32 min left\n"
        "12:23:39 info  [6/10] supernet: 80% (180/224), about 21 min left\n"
        "12:34:06 info  [6/10] supernet: 90% (202/224), about 10 min left\n"
        "12:44:38 info  [6/10] supernet: done in 40m27s, key 5d02f9be, kl 0.0123457, parameters "
        "5770496\n"
        "12:44:39 error [6/10] supernet: expectation failed: perplexity_ratio 1.093 > 1.08  "
        "(jobs/x.yaml:84:7)\n");
}

/* The figures in the order of the stage; none is cut in half, none comes after one that is left
 * out.
 */
static void test_lines__as_many_figures_as_fit(void **state)
{
    (void)state;
    static const char *const names[] = {
        "kl",
        "mean_nll",
        "perplexity",
        "perplexity_base",
        "perplexity_ratio",
        "top1",
        "a_name_that_has_no_room_in_the_line_any_more_because_it_is_of_80_characters____",
        "n"};
    struct screen screen;
    screen_open(&screen, ESPL_PROGRESS_LINES);
    send(&screen, (struct espl_event){.type = ESPL_EVENT_STAGE_START, .key = key}, 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        send(&screen, (struct espl_event){.type = ESPL_EVENT_METRIC, .what = names[i], .value = 7},
             0);
    }
    send(&screen, (struct espl_event){.type = ESPL_EVENT_STAGE_END, .key = key, .value = 56}, 56);
    screen_expect(&screen, "12:05:07 info  [6/10] supernet: done in 56.0 s, key 5d02f9be, kl 7, "
                           "mean_nll 7, perplexity 7, perplexity_base 7, perplexity_ratio 7, "
                           "top1 7\n");
}

static void test_lines__fast_stages_give_one_line(void **state)
{
    (void)state;
    struct screen screen;
    screen_open(&screen, ESPL_PROGRESS_LINES);
    send(&screen, (struct espl_event){.type = ESPL_EVENT_STAGE_START, .key = key, .total = 224}, 0);
    for (uint64_t layer = 0; layer <= 224; layer++) {
        send_progress(&screen, layer, (double)layer * 0.25);
    }
    send(&screen, (struct espl_event){.type = ESPL_EVENT_STAGE_END, .key = key, .value = 56}, 56);
    screen_expect(&screen, "12:05:07 info  [6/10] supernet: done in 56.0 s, key 5d02f9be\n");
}

static void test_lines__quiet_keeps_warnings(void **state)
{
    (void)state;
    struct screen screen;
    screen_open(&screen, ESPL_PROGRESS_LINES);
    screen.cli.quiet = true;
    send(&screen, (struct espl_event){.type = ESPL_EVENT_STAGE_START, .key = key}, 0);
    send(&screen,
         (struct espl_event){.type = ESPL_EVENT_LOG, .level = ESPL_LOG_INFO, .text = "fine"}, 0);
    send(&screen, (struct espl_event){.type = ESPL_EVENT_LOG, .level = ESPL_LOG_WARN, .text = "hm"},
         0);
    send(&screen, (struct espl_event){.type = ESPL_EVENT_STAGE_END, .key = key}, 0);
    screen_expect(&screen, "12:04:11 warn  [6/10] supernet: hm\n");
}

static void expect_bar(uint64_t done, double time, size_t width, const char *expected)
{
    struct espl_buf text;
    struct espl_event_lines lines;
    espl_event_lines_init(&lines, 10);
    lines.has_base = true;
    lines.base_time = start;
    lines.base_done = 0;
    const struct espl_event event = {.type = ESPL_EVENT_PROGRESS,
                                     .time = start + time,
                                     .stage_id = "supernet",
                                     .done = done,
                                     .total = 224,
                                     .what = "layer"};
    espl_buf_init(&text, 1024);
    espl_progress_bar(&lines, &event, 8, width, &text);
    assert_string_equal(espl_buf_text(&text), expected);
    assert_true(espl_text_width(espl_buf_text(&text)) <= width);
    espl_buf_free(&text);
}

static void test_bar__fits_the_terminal(void **state)
{
    (void)state;
    expect_bar(138, 3942.857, 100,
               "  supernet  [#################-----------]   62%  layer 138/224  eta 40:57  2.1 "
               "layer/min");
    expect_bar(138, 3942.857, 60, "  supernet  [########------]   62%  layer 138/224  eta 40:57");
    expect_bar(138, 3942.857, 30, "  supernet  [######----]   62%");
    expect_bar(0, 0.0, 100, "  supernet  [----------------------------]    0%  layer 0/224");
    expect_bar(224, 10.0, 100,
               "  supernet  [############################]  100%  layer 224/224  eta 0:00  22.4 "
               "layer/s");
    expect_bar(1, 7200.0, 100,
               "  supernet  [----------------------------]    0%  layer 1/224  eta 446:00:00  0.5 "
               "layer/h");
}

static void test_bar__is_redrawn_at_most_ten_times_a_second(void **state)
{
    (void)state;
    struct screen screen;
    size_t redraws = 0;
    screen_open(&screen, ESPL_PROGRESS_BAR);
    send(&screen, (struct espl_event){.type = ESPL_EVENT_STAGE_START, .key = key}, 0);
    for (uint64_t i = 0; i < 200; i++) {
        send_progress(&screen, i, (double)i * 0.01);
    }
    send(&screen, (struct espl_event){.type = ESPL_EVENT_STAGE_END, .key = key, .value = 2.0}, 2.0);
    assert_int_equal(fclose(screen.cli.err_stream), 0);
    for (const char *at = screen.text; (at = strchr(at, '\r')) != NULL; at++) {
        redraws++;
    }
    assert_in_range(redraws, 15, 22); /* 2 s, and one to clear */
    static const char end[] = "\r\033[K  supernet  done     5d02f9be  2.0 s\n";
    assert_string_equal(screen.text + strlen(screen.text) - (sizeof end - 1), end);
    free(screen.text);
}

/* ---- tables ---- */

static void test_table__aligns_cuts_and_leaves_no_trailing_blanks(void **state)
{
    (void)state;
    static const struct espl_column columns[] = {
        {.title = "name"}, {.title = "size", .right = true}, {.title = "what", .max_width = 8}};
    char *text = NULL;
    size_t len = 0;
    FILE *stream = open_memstream(&text, &len);
    struct espl_table *table = NULL;
    assert_int_equal(espl_table_create(columns, 3, &table, NULL), ESPL_OK);
    espl_table_cell(table, ESPL_STYLE_BOLD, "%s", "caf\xc3\xa9");
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%d", 7);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", "a long text");
    espl_table_line(table, "... %d more", 3);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", "longer");
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%d", 12345);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", "");
    assert_int_equal(espl_table_print(table, stream, 2, false, NULL), ESPL_OK);
    espl_table_destroy(table);
    assert_int_equal(fclose(stream), 0);
    assert_string_equal(text, "  name     size  what\n"
                              "  caf\xc3\xa9        7  a lon...\n"
                              "  ... 3 more\n"
                              "  longer  12345\n");
    free(text);
}

static void test_plan__table_and_totals(void **state)
{
    (void)state;
    struct screen screen;
    struct espl_plan plan;
    struct espl_plan_stage stages[2];
    screen_open(&screen, ESPL_PROGRESS_NONE);
    make_plan(&plan, stages);
    assert_int_equal(espl_plan_print(&screen.cli, &plan, NULL), ESPL_OK);
    screen_expect(&screen,
                  "job job   seed 42   device cpu   2 stages\n"
                  "\n"
                  "  stage     use          state   why                        est. time   writes\n"
                  "  dense     import       cached  key 3fa1c9e2                       -        -\n"
                  "  supernet  nm-supernet  resume  138 of 224 units are kept    ~41 min  2.1 MiB\n"
                  "\n"
                  "needs   host 31.0 GiB of 62.0 GiB free   disk 9.0 GiB of 212.0 GiB free   ok\n"
                  "to run  1 stage, about 41 min        nothing was written\n");
    assert_int_equal(espl_plan_pending(&plan), 1);
}

static void test_plan__graphs(void **state)
{
    (void)state;
    struct screen screen;
    struct espl_plan plan;
    struct espl_plan_stage stages[2];
    make_plan(&plan, stages);
    screen_open(&screen, ESPL_PROGRESS_NONE);
    espl_plan_print_graph(&screen.cli, &plan, "ascii");
    screen_expect(&screen, "dense     cached\n"
                           "supernet  resume   <- dense (model), a \"b\".h5 (table)\n");
    screen_open(&screen, ESPL_PROGRESS_NONE);
    espl_plan_print_graph(&screen.cli, &plan, "dot");
    screen_expect(&screen, "digraph \"job\" {\n"
                           "  rankdir=LR;\n"
                           "  node [shape=box];\n"
                           "  \"dense\" [label=\"dense\\nimport\\ncached\"];\n"
                           "  \"supernet\" [label=\"supernet\\nnm-supernet\\nresume\"];\n"
                           "  \"dense\" -> \"supernet\" [label=\"model\"];\n"
                           "  \"a \\\"b\\\".h5\" -> \"supernet\" [label=\"table\"];\n"
                           "}\n");
    screen_open(&screen, ESPL_PROGRESS_NONE);
    espl_plan_print_graph(&screen.cli, &plan, "mermaid");
    screen_expect(&screen, "flowchart LR\n"
                           "  s0[\"dense<br/>import<br/>cached\"]\n"
                           "  s1[\"supernet<br/>nm-supernet<br/>resume\"]\n"
                           "  s0 -->|model| s1\n"
                           "  s1_1[/\"a #quot;b#quot;.h5\"/] -->|table| s1\n");
}

static void test_error__interrupted_has_its_own_form(void **state)
{
    (void)state;
    struct screen screen;
    struct espl_error err;
    screen_open(&screen, ESPL_PROGRESS_NONE);
    espl_error_clear(&err);
    (void)espl_fail(&err, ESPL_E_CANCELLED,
                    "'supernet' stopped after layer 139 of 224; finished layers are kept");
    (void)espl_hint(&err, "continue with: espalier run job.yaml");
    espl_print_error(&screen.cli, &err);
    screen_expect(
        &screen,
        "interrupted: 'supernet' stopped after layer 139 of 224; finished layers are kept\n"
        "continue with: espalier run job.yaml\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines__sparse_and_with_time_left),
        cmocka_unit_test(test_lines__as_many_figures_as_fit),
        cmocka_unit_test(test_lines__fast_stages_give_one_line),
        cmocka_unit_test(test_lines__quiet_keeps_warnings),
        cmocka_unit_test(test_bar__fits_the_terminal),
        cmocka_unit_test(test_bar__is_redrawn_at_most_ten_times_a_second),
        cmocka_unit_test(test_table__aligns_cuts_and_leaves_no_trailing_blanks),
        cmocka_unit_test(test_plan__table_and_totals),
        cmocka_unit_test(test_plan__graphs),
        cmocka_unit_test(test_error__interrupted_has_its_own_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
