#include "report/report.h"

#include "engine/run_record.h"
#include "report/figure_text.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"
#include "xml_check.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static char folder[ESPL_PATH_MAX];
static struct espl_store store;
static struct espl_buf out;

#define HOSTILE "<script>alert(1)</script>&\\\"' | \\u0007"

/* One run with everything: dense and compressed, layers, an expectation, a warning. %s: run id,
 * job name, status, perplexity, pattern. */
static const char run_text[] =
    "{\"schema\":\"espalier.run/1\",\"run_id\":\"%s\",\"job\":\"%s\",\"job_file\":\"jobs/a.yaml\","
    "\"job_sha256\":\"00\",\"seed\":42,\"device\":\"cpu\",\"started_utc\":\"2026-05-12T10:04:11Z\","
    "\"ended_utc\":\"2026-05-12T10:04:50Z\",\"seconds\":39.5,\"status\":\"%s\",\"exit_code\":0,"
    "\"host\":\"ws-07\",\"pid\":1,\"start_ticks\":1,\"command_line\":\"espalier run\","
    "\"environment\":{\"tool_version\":\"0.1.0\",\"threads\":2},\"stages\":["
    "{\"id\":\"dense\",\"use\":\"import\",\"key\":\"aaaaaaaa11\",\"state\":\"cached\",\"why\":\"\","
    "\"seconds\":0,\"peak_rss_bytes\":0,\"output_bytes\":1048576,\"resumed_units\":0,\"inputs\":[],"
    "\"params\":{\"arch\":\"auto\"},\"error\":null,\"metrics\":{},\"volatile_metrics\":{},"
    "\"layer_metrics\":[],\"warnings\":[],\"artifact\":\"\"},"
    "{\"id\":\"prune\",\"use\":\"wanda-prune\",\"key\":\"bbbbbbbb22\",\"state\":\"done\","
    "\"why\":\"no result yet\",\"seconds\":20,\"peak_rss_bytes\":104857600,\"output_bytes\":2048,"
    "\"resumed_units\":0,\"inputs\":[{\"port\":\"model\",\"stage\":\"dense\","
    "\"key\":\"aaaaaaaa11\"}],\"params\":{\"pattern\":\"%s\",\"targets\":[\"*\"]},\"error\":null,"
    "\"metrics\":{\"sparsity\":0.5},\"volatile_metrics\":{},\"layer_metrics\":["
    "{\"series\":\"sparsity\",\"layer\":0,\"module\":\"layers.0.mlp.up_proj\",\"value\":0.5},"
    "{\"series\":\"sparsity\",\"layer\":1,\"module\":\"layers.1.mlp.up_proj\",\"value\":0.25},"
    "{\"series\":\"output_error\",\"layer\":0,\"module\":\"\",\"value\":0.125}],"
    "\"warnings\":[\"3 texts <skipped>\"],\"artifact\":\"\"},"
    "{\"id\":\"eval\",\"use\":\"evaluate\",\"key\":\"cccccccc33\",\"state\":\"done\",\"why\":\"\","
    "\"seconds\":10,\"peak_rss_bytes\":52428800,\"output_bytes\":4096,\"resumed_units\":0,"
    "\"inputs\":[{\"port\":\"model\",\"stage\":\"prune\",\"key\":\"bbbbbbbb22\"},"
    "{\"port\":\"base\",\"stage\":\"dense\",\"key\":\"aaaaaaaa11\"}],\"params\":{},\"error\":null,"
    "\"metrics\":{\"perplexity\":%s,\"perplexity_base\":18.9921,\"perplexity_ratio\":1.25,"
    "\"tokens\":39858},\"volatile_metrics\":{\"seconds\":9.5},\"layer_metrics\":[],"
    "\"warnings\":[],\"artifact\":\"\"}],"
    "\"expectations\":[{\"stage\":\"eval\",\"metric\":\"perplexity_ratio\",\"min\":null,"
    "\"max\":1.3,\"value\":1.25,\"ok\":true,\"line\":9,\"column\":7}]}";

static void write_run(const char *run_id, const char *file, const char *text)
{
    char path[ESPL_PATH_MAX];
    assert_int_equal(espl_run_path(&store, run_id, NULL, path, NULL), ESPL_OK);
    assert_int_equal(espl_fs_make_dirs(path, NULL), ESPL_OK);
    assert_int_equal(espl_run_path(&store, run_id, file, path, NULL), ESPL_OK);
    assert_int_equal(espl_fs_write_file(path, text, strlen(text), NULL), ESPL_OK);
}

static void make_run(const char *run_id, const char *job, const char *perplexity,
                     const char *pattern)
{
    char text[sizeof run_text + 1024];
    (void)snprintf(text, sizeof text, run_text, run_id, job, "ok", pattern, perplexity);
    write_run(run_id, "run.json", text);
    write_run(run_id, "job.yaml", "version: 1\nname: a # <b> & \xFF\n");
}

static int set_up(void **state)
{
    (void)state;
    temp_folder_make(folder);
    assert_int_equal(espl_store_open(folder, &store, NULL), ESPL_OK);
    espl_buf_init(&out, ESPL_REPORT_MAX_BYTES);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    espl_buf_free(&out);
    temp_folder_remove(folder);
    return 0;
}

static size_t count_of(const char *word)
{
    size_t count = 0;
    for (const char *at = strstr(espl_buf_text(&out), word); at != NULL;
         at = strstr(at + 1, word)) {
        ++count;
    }
    return count;
}

static void assert_has(const char *word)
{
    if (count_of(word) == 0) {
        fail_msg("'%s' is not in the report", word);
    }
}

static void assert_well_formed(void)
{
    char message[256] = "";
    if (!xml_check(espl_buf_text(&out), out.len, message)) {
        fail_msg("%s", message);
    }
}

static void render(enum espl_report_format format, const char *const *ids, size_t count)
{
    struct espl_error err = {0};
    if (espl_report_render_runs(&store, ids, count, format, NULL, &out, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
}

static const char *const one[] = {"20260512-100411-a-0001"};

static void test_html__shows_the_figures(void **state)
{
    (void)state;
    make_run(one[0], "quick", "23.7401", "2:4");
    render(ESPL_REPORT_HTML, one, 1);
    assert_well_formed();
    assert_has("<h1>quick</h1>");
    assert_has("3 of 3 stages done (1 from the cache); 1 of 1 expectations held.");
    assert_has("<td class=\"number\">18.992</td><td class=\"number\">23.740</td>"
               "<td class=\"number\">1.250</td>");
    assert_has("keeps 2 of 4");
    assert_has("39\xE2\x80\xAF"
               "858");                             /* tokens, grouped */
    assert_has("<td class=\"number\">50.00</td>"); /* sparsity in percent */
    assert_has("25.00 to 50.00 %");
    assert_has("2026-05-12 10:04:11 UTC");
    assert_has("100.0 MiB");
    assert_has("3 texts &lt;skipped&gt;");
    assert_has("name: a # &lt;b&gt; &amp; \xEF\xBF\xBD");
}

static void test_html__every_drawing_is_described_and_has_its_table(void **state)
{
    (void)state;
    make_run(one[0], "quick", "23.7", "none");
    render(ESPL_REPORT_HTML, one, 1);
    /* times, two series of layers, graph */
    assert_int_equal(count_of("role=\"img\""), 4);
    assert_int_equal(count_of("<title id="), 4);
    assert_int_equal(count_of("<desc id="), 4);
    for (const char *at = strstr(espl_buf_text(&out), "</figure>"); at != NULL;
         at = strstr(at + 1, "</figure>")) {
        const char *table = strstr(at, "<table");
        const char *heading = strstr(at, "<h2");
        assert_non_null(table);
        assert_true(heading == NULL || table < heading);
    }
}

static void test_html__escapes_what_users_wrote(void **state)
{
    (void)state;
    make_run(one[0], HOSTILE, "23.7", HOSTILE);
    render(ESPL_REPORT_HTML, one, 1);
    assert_well_formed();
    assert_int_equal(count_of("<script"), 0);
    assert_has("&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;&#39;");
}

static void test_html__needs_no_network(void **state)
{
    (void)state;
    make_run(one[0], "quick", "23.7", "none");
    render(ESPL_REPORT_HTML, one, 1);
    static const char *const forbidden[] = {"src=",  "href=\"http", "@import", "https://",
                                            "<link", "<script",     "<iframe", "url(http"};
    for (size_t i = 0; i < sizeof forbidden / sizeof forbidden[0]; ++i) {
        assert_int_equal(count_of(forbidden[i]), 0);
    }
    /* What is left of http:// are the names of the two vocabularies. */
    assert_int_equal(count_of("http://"), count_of("xmlns=\"http://www.w3.org/"));
    assert_has("prefers-color-scheme:dark");
    assert_has("size:A4");
}

static void test_html__runs_side_by_side(void **state)
{
    (void)state;
    static const char *const ids[] = {"20260512-100411-a-0001", "20260512-100412-a-0002",
                                      "20260512-100413-a-0003"};
    make_run(ids[0], "quick", "23.7", "none");
    make_run(ids[1], "quick", "24.5", "2:4");
    make_run(ids[2], "quick", "29.1", "1:4");
    render(ESPL_REPORT_HTML, ids, 3);
    assert_well_formed();
    assert_has("<h1>3 runs compared</h1>");
    assert_has("<td class=\"number\">23.700</td><td class=\"number\">24.500</td>"
               "<td class=\"number\">29.100</td>");
    assert_has("<th scope=\"row\">prune.pattern</th><td class=\"wide\">none</td>"
               "<td class=\"wide\">2:4 (keeps 2 of 4)</td>"
               "<td class=\"wide\">1:4 (keeps 1 of 4)</td>");
    assert_int_equal(count_of("<th scope=\"row\">prune.targets"), 0); /* equal: not listed */
}

static void test_html__failed_run_says_so_first(void **state)
{
    (void)state;
    write_run(one[0], "run.json",
              "{\"schema\":\"espalier.run/1\",\"run_id\":\"20260512-100411-a-0001\",\"job\":\"q\","
              "\"status\":\"failed\",\"seconds\":1,\"environment\":{},\"expectations\":[],"
              "\"stages\":[{\"id\":\"x\",\"use\":\"import\",\"key\":\"\",\"state\":\"failed\","
              "\"inputs\":[],\"params\":{},\"metrics\":{},\"volatile_metrics\":{},"
              "\"layer_metrics\":[],\"warnings\":[],\"error\":{\"code\":\"not-found\","
              "\"message\":\"cannot find 'a'\",\"hint\":\"look there\","
              "\"context\":\"while importing\"}}]}");
    render(ESPL_REPORT_HTML, one, 1);
    assert_well_formed();
    assert_has("<div class=\"verdict bad\">");
    assert_has("0 of 1 stages done, 1 failed.");
    const char *text = espl_buf_text(&out);
    assert_true(strstr(text, "cannot find &#39;a&#39;") < strstr(text, "<h2 id=\"metrics\""));
    assert_has("Help: look there");
    assert_has("The run keeps no job.yaml.");
}

static void test_html__run_without_stages(void **state)
{
    (void)state;
    write_run(one[0], "run.json",
              "{\"schema\":\"espalier.run/1\",\"run_id\":\"20260512-100411-a-0001\",\"job\":\"q\","
              "\"status\":\"ok\",\"stages\":[],\"expectations\":[],\"environment\":{}}");
    render(ESPL_REPORT_HTML, one, 1);
    assert_well_formed();
    assert_has("0 of 0 stages done");
}

static void test_csv__all_figures_in_full(void **state)
{
    (void)state;
    make_run(one[0], "quick", "23.7401", "none");
    render(ESPL_REPORT_CSV, one, 1);
    assert_has("run,stage,use,kind,name,layer,module,value\n");
    assert_has("20260512-100411-a-0001,eval,evaluate,metric,perplexity,,,23.7401\n");
    assert_has("20260512-100411-a-0001,eval,evaluate,volatile,seconds,,,9.5\n");
    assert_has("20260512-100411-a-0001,prune,wanda-prune,layer,sparsity,1,layers.1.mlp.up_proj,"
               "0.25\n");
    assert_has("20260512-100411-a-0001,prune,wanda-prune,stage,seconds,,,20\n");
}

/* A stage that did not run took no time, not 0 seconds. */
static void test_csv__skipped_stage_has_no_times(void **state)
{
    (void)state;
    write_run(one[0], "run.json",
              "{\"schema\":\"espalier.run/1\",\"run_id\":\"20260512-100411-a-0001\",\"job\":\"q\","
              "\"status\":\"failed\",\"expectations\":[],\"environment\":{},\"stages\":[{\"id\":"
              "\"eval\",\"use\":\"evaluate\",\"key\":\"aa\",\"state\":\"skipped\",\"seconds\":0.0,"
              "\"peak_rss_bytes\":0,\"output_bytes\":0,\"inputs\":[],\"metrics\":{},"
              "\"volatile_metrics\":{},\"layer_metrics\":[]}]}");
    render(ESPL_REPORT_CSV, one, 1);
    assert_string_equal(espl_buf_text(&out), "run,stage,use,kind,name,layer,module,value\n");
}

static void test_json__holds_the_records(void **state)
{
    (void)state;
    make_run(one[0], "quick", "23.7401", "none");
    render(ESPL_REPORT_JSON, one, 1);
    json_t *report = json_loadb(espl_buf_text(&out), out.len, JSON_REJECT_DUPLICATES, NULL);
    json_t *record = NULL;
    assert_int_equal(espl_run_load(&store, one[0], &record, NULL), ESPL_OK);
    assert_string_equal(json_string_value(json_object_get(report, "schema")), "espalier.report/1");
    assert_true(json_equal(json_array_get(json_object_get(report, "runs"), 0), record));
    json_decref(record);
    json_decref(report);
}

static void test_markdown__tables_cannot_be_broken(void **state)
{
    (void)state;
    make_run(one[0], "a|b", "23.7401", "none");
    render(ESPL_REPORT_MARKDOWN, one, 1);
    assert_has("| a\\|b |");
    assert_has("| eval | perplexity | 23.740 |\n");
    assert_has("| prune | sparsity | 50.00 % |\n");
    assert_has("| 0 | 50.00 % |\n");
}

static void assert_fails(const char *const *ids, size_t count, enum espl_status expected)
{
    struct espl_error err = {0};
    assert_int_equal(
        espl_report_render_runs(&store, ids, count, ESPL_REPORT_HTML, NULL, &out, &err), expected);
    assert_int_equal(err.code, expected);
    assert_true(err.message[0] != '\0');
}

static void test_errors__say_what_is_wrong(void **state)
{
    (void)state;
    static const char *const seven[] = {"a", "b", "c", "d", "e", "f", "g"};
    assert_fails(one, 1, ESPL_E_NOTFOUND);
    assert_fails(one, 0, ESPL_E_USAGE);
    assert_fails(seven, 7, ESPL_E_USAGE);
    write_run(one[0], "run.json", "{\"schema\":\"espalier.run/1\",");
    assert_fails(one, 1, ESPL_E_CORRUPT);
    write_run(one[0], "run.json", "{\"schema\":\"espalier.run/2\"}");
    assert_fails(one, 1, ESPL_E_VERSION);
    write_run(one[0], "run.json",
              "{\"schema\":\"espalier.run/1\",\"run_id\":\"x\",\"job\":\"q\",\"status\":\"ok\","
              "\"stages\":[{\"id\":\"s\",\"layer_metrics\":[{\"series\":\"e\","
              "\"layer\":4000000000,\"module\":\"m\",\"value\":1}]}]}");
    assert_fails(one, 1, ESPL_E_CORRUPT);
}

static void test_limit__a_full_buffer_is_an_error(void **state)
{
    (void)state;
    struct espl_buf small;
    struct espl_error err = {0};
    make_run(one[0], "quick", "23.7", "none");
    espl_buf_init(&small, 4096);
    assert_int_equal(espl_report_render(&store, one[0], NULL, &small, &err), ESPL_E_NOMEM);
    espl_buf_free(&small);
}

static void test_figure_value__reads_well(void **state)
{
    (void)state;
    static const struct {
        const char *metric;
        double value;
        const char *text;
    } cases[] = {
        {"perplexity", 18.99214, "18.992"},
        {"perplexity", 12.0, "12.000"},
        {"perplexity", 12345.678, "12345.7"},
        {"kl", 0.2213, "0.2213"},
        {"kl", 0.5, "0.5000"},
        {"kl", 0.0, "0"},
        {"sparsity", 0.5, "50.00"},
        {"tokens", 39858.0, "39858"},
        {"documents", 12.0, "12"},
        {"gflops", 91.2344, "91.234"},
        {"peak_rss_bytes", 1048576.0, "1.0 MiB"},
        {"x", 1e-7, "1.000e-07"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        char text[ESPL_FIGURE_TEXT];
        espl_figure_value(cases[i].metric, cases[i].value, text);
        assert_string_equal(text, cases[i].text);
    }
    char text[ESPL_FIGURE_TEXT];
    espl_figure_value("kl", NAN, text);
    assert_string_equal(text, "-");
}

static void test_figure_param__lists_and_patterns(void **state)
{
    (void)state;
    char text[128];
    json_t *value = json_pack("[s, s, i, f, b]", "2:4", "a", 3, 0.5, 1);
    espl_figure_param(value, text, sizeof text);
    assert_string_equal(text, "2:4 (keeps 2 of 4), a, 3, 0.5, true");
    espl_figure_param(value, text, 8); /* too small: cut, not overrun */
    assert_string_equal(text, "2:4 (ke");
    json_decref(value);
    value = json_array();
    espl_figure_param(value, text, sizeof text);
    assert_string_equal(text, "none");
    json_decref(value);
    value = json_pack("[s, s]", "ant\nbee", "\033[2Jcow"); /* names of folders */
    espl_figure_param(value, text, sizeof text);
    assert_string_equal(text, "ant?bee, ?[2Jcow");
    espl_figure_param(json_array_get(value, 0), text, sizeof text);
    assert_string_equal(text, "ant?bee");
    json_decref(value);
}

#define WITH_STORE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(test_html__shows_the_figures),
        WITH_STORE(test_html__every_drawing_is_described_and_has_its_table),
        WITH_STORE(test_html__escapes_what_users_wrote),
        WITH_STORE(test_html__needs_no_network),
        WITH_STORE(test_html__runs_side_by_side),
        WITH_STORE(test_html__failed_run_says_so_first),
        WITH_STORE(test_html__run_without_stages),
        WITH_STORE(test_csv__all_figures_in_full),
        WITH_STORE(test_csv__skipped_stage_has_no_times),
        WITH_STORE(test_json__holds_the_records),
        WITH_STORE(test_markdown__tables_cannot_be_broken),
        WITH_STORE(test_errors__say_what_is_wrong),
        WITH_STORE(test_limit__a_full_buffer_is_an_error),
        cmocka_unit_test(test_figure_value__reads_well),
        cmocka_unit_test(test_figure_param__lists_and_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
