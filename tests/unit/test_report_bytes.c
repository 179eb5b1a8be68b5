/* The report's sections on bytes and on quality against size, from a run record made by hand. */
#include "report/report.h"

#include "engine/run_record.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"
#include "xml_check.h"

#include <jansson.h>
#include <string.h>

static char folder[ESPL_PATH_MAX];
static struct espl_store store;
static struct espl_buf out;

static const char run_id[] = "20260512-100411-a-0001";
static const struct espl_report_device device = {"bench", "a ruler", 1e9};

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

/* {"id", "use", "inputs" from `model`, "metrics"}; metrics and layers are JSON texts. */
static json_t *stage(const char *id, const char *use, const char *model, const char *metrics,
                     const char *layers)
{
    json_t *inputs = json_array();
    if (model != NULL) {
        assert_int_equal(json_array_append_new(inputs, json_pack("{s:s, s:s, s:s}", "port", "model",
                                                                 "stage", model, "key", "aa")),
                         0);
    }
    json_t *item =
        json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o}", "id", id, "use", use, "key", "aa", "state",
                  "done", "inputs", inputs, "metrics", json_loads(metrics, 0, NULL),
                  "layer_metrics", json_loads(layers, 0, NULL));
    assert_non_null(item);
    return item;
}

/* Takes the stages. */
static void render(json_t *stages, const struct espl_report_device *bandwidth)
{
    char path[ESPL_PATH_MAX];
    char message[256] = "";
    struct espl_error err = {0};
    json_t *record = json_pack("{s:s, s:s, s:s, s:s, s:o, s:[], s:{}}", "schema", "espalier.run/1",
                               "run_id", run_id, "job", "sizes", "status", "ok", "stages", stages,
                               "expectations", "environment");
    char *text = json_dumps(record, JSON_COMPACT);
    assert_non_null(text);
    assert_int_equal(espl_run_path(&store, run_id, NULL, path, NULL), ESPL_OK);
    assert_int_equal(espl_fs_make_dirs(path, NULL), ESPL_OK);
    assert_int_equal(espl_run_path(&store, run_id, "run.json", path, NULL), ESPL_OK);
    assert_int_equal(espl_fs_write_file(path, text, strlen(text), NULL), ESPL_OK);
    if (espl_report_render(&store, run_id, bandwidth, &out, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    if (!xml_check(espl_buf_text(&out), out.len, message)) {
        fail_msg("%s", message);
    }
    free(text);
    json_decref(record);
}

static void assert_has(const char *word)
{
    if (strstr(espl_buf_text(&out), word) == NULL) {
        fail_msg("'%s' is not in the report", word);
    }
}

static void assert_lacks(const char *word)
{
    if (strstr(espl_buf_text(&out), word) != NULL) {
        fail_msg("'%s' is in the report", word);
    }
}

/* ---- bytes ---- */

static const char encoded_metrics[] =
    "{\"bits_per_weight\": 3.25, \"encoded_bytes\": 2500000, \"dense_bytes\": 3145728,"
    " \"payload_bytes\": 1048576, \"padding_bytes\": 1024, \"metadata_bytes\": 524288,"
    " \"scale_bytes\": 2048, \"pmr\": 2, \"pmr_effective\": 1.75}";

static const char encoded_layers[] =
    "[{\"series\": \"encoded_bytes\", \"layer\": 0, \"module\": \"layers.0.mlp.up_proj\","
    "  \"value\": 500000},"
    " {\"series\": \"pmr\", \"layer\": 0, \"module\": \"layers.0.mlp.up_proj\", \"value\": 1.5},"
    " {\"series\": \"pmr\", \"layer\": 1, \"module\": \"layers.1.mlp.up_proj\", \"value\": 2.5},"
    " {\"series\": \"payload_bytes\", \"layer\": 0, \"module\": \"layers.0.mlp.up_proj\","
    "  \"value\": 300},"
    " {\"series\": \"payload_bytes\", \"layer\": 1, \"module\": \"layers.1.mlp.up_proj\","
    "  \"value\": 100},"
    " {\"series\": \"intensity\", \"layer\": 0, \"module\": \"layers.0.mlp.up_proj\","
    "  \"value\": 3},"
    " {\"series\": \"intensity\", \"layer\": 1, \"module\": \"layers.1.mlp.up_proj\","
    "  \"value\": 1},"
    " {\"series\": \"bits_per_weight\", \"layer\": 0, \"module\": \"layers.0.mlp.up_proj\","
    "  \"value\": 3.125}]";

static void test_bytes__model_and_layers(void **state)
{
    (void)state;
    json_t *stages = json_array();
    (void)json_array_append_new(
        stages, stage("q", "atom-quantize", NULL,
                      "{\"bits_per_weight\": 4.25, \"quantised_bytes\": 4000000}", "[]"));
    (void)json_array_append_new(stages,
                                stage("e", "iebme-encode", "q", encoded_metrics, encoded_layers));
    render(stages, &device);
    assert_has("<h2 id=\"bytes\">");
    /* 4 MB and 2.5 MB at 1 GB/s; what nobody reported is a dash */
    assert_has("<th scope=\"row\" class=\"nowrap\">q</th><td class=\"number\">3.8 MiB</td>"
               "<td class=\"number\">4.00 ms</td><td class=\"number\">4.250</td>"
               "<td class=\"number\">-</td>");
    assert_has("<th scope=\"row\" class=\"nowrap\">e</th><td class=\"number\">2.4 MiB</td>"
               "<td class=\"number\">2.50 ms</td><td class=\"number\">3.250</td>"
               "<td class=\"number\">3.0 MiB</td><td class=\"number\">1.0 MiB</td>"
               "<td class=\"number\">1.0 KiB</td><td class=\"number\">512.0 KiB</td>"
               "<td class=\"number\">2.0 KiB</td><td class=\"number\">2.000</td>"
               "<td class=\"number\">1.750</td><td class=\"number\">2.000</td></tr>");
    /* the model's operations a byte: 400 over 300 / 3 + 100 / 1, not the mean of 3 and 1 */
    assert_has("<th scope=\"row\">layers.0.mlp.up_proj</th><td class=\"number\">488.3 KiB</td>"
               "<td class=\"number\">500.0 us</td><td class=\"number\">3.125</td>");
    assert_has("at 1.0 GB/s (bench: a ruler)");
    /* a table, not drawings; bits keep theirs */
    assert_lacks("encoded bytes by layer");
    assert_has("bits a weight, scales included by layer, stage e");
    assert_lacks("<h2 id=\"tradeoff\">"); /* nothing was evaluated */
}

static void test_bytes__no_times_without_a_device(void **state)
{
    (void)state;
    json_t *stages = json_array();
    (void)json_array_append_new(stages,
                                stage("e", "iebme-encode", NULL, encoded_metrics, encoded_layers));
    render(stages, NULL);
    assert_has("<th scope=\"row\" class=\"nowrap\">e</th><td class=\"number\">2.4 MiB</td>"
               "<td class=\"number\">3.250</td>");
    assert_lacks("GB/s");
}

static void test_bytes__nothing_to_say(void **state)
{
    (void)state;
    json_t *stages = json_array();
    (void)json_array_append_new(stages,
                                stage("p", "wanda-prune", NULL, "{\"sparsity\": 0.5}", "[]"));
    render(stages, &device);
    assert_lacks("<h2 id=\"bytes\">");
}

/* ---- quality against size ---- */

/* A model of `bits`, through a stage that says nothing, and its evaluation. */
static void add_model(json_t *stages, const char *id, const char *bits, const char *perplexity)
{
    char text[64];
    char between[64];
    char evaluate[64];
    (void)snprintf(text, sizeof text, "{\"bits_per_weight\": %s}", bits);
    (void)json_array_append_new(stages, stage(id, "atom-quantize", "dense", text, "[]"));
    (void)snprintf(between, sizeof between, "copy-%s", id);
    (void)json_array_append_new(stages, stage(between, "other", id, "{}", "[]"));
    (void)snprintf(evaluate, sizeof evaluate, "eval-%s", id);
    (void)snprintf(text, sizeof text, "{\"perplexity\": %s}", perplexity);
    (void)json_array_append_new(stages, stage(evaluate, "evaluate", between, text, "[]"));
}

static void test_tradeoff__best_points_and_series(void **state)
{
    (void)state;
    json_t *stages = json_array();
    (void)json_array_append_new(stages, stage("dense", "import", NULL, "{}", "[]"));
    (void)json_array_append_new(
        stages, stage("eval-dense", "evaluate", "dense", "{\"perplexity\": 20}", "[]"));
    add_model(stages, "int4-rtn", "4.25", "26");
    add_model(stages, "int3-rtn", "3.25", "28.5");
    add_model(stages, "wanda-50", "3.25", "31.9");
    add_model(stages, "wanda-70", "2.5", "60");
    add_model(stages, "int2-rtn", "2.25", "900");
    render(stages, NULL);
    assert_has("<h2 id=\"tradeoff\">");
    assert_has(">int#-rtn</text>");
    assert_has(">wanda-#</text>");
    assert_has("<title>int3-rtn: 3.250 bits, perplexity 28.5</title>");
    /* by bits; 31.9 is beaten at the same bits; the dense model has no bits to stand at */
    const char *rows[] = {"int2-rtn", "wanda-70", "int3-rtn", "wanda-50", "int4-rtn"};
    const char *at = strstr(espl_buf_text(&out), "evaluated by");
    for (size_t i = 0; i < 5; i++) {
        char row[128];
        (void)snprintf(row, sizeof row, "<th scope=\"row\">%s</th><td>eval-%s</td>", rows[i],
                       rows[i]);
        assert_non_null(at);
        at = strstr(at, row);
        assert_non_null(at);
        const char *end = strstr(at, "</tr>");
        const char *yes = strstr(at, "\xE2\x9C\x93 yes");
        assert_int_equal(yes != NULL && yes < end, strcmp(rows[i], "wanda-50") != 0);
    }
    assert_lacks("<td>eval-dense</td>");
    /* the lowest is 26: what is above 104 is not drawn, and said not to be */
    assert_has("1 of 5 models, whose perplexity is above 104, are in the table alone.");
    assert_lacks("<title>int2-rtn");
    assert_has("<title>wanda-70: 2.500 bits");
}

static void test_tradeoff__two_models_are_no_plot(void **state)
{
    (void)state;
    json_t *stages = json_array();
    add_model(stages, "int4-rtn", "4.25", "26");
    add_model(stages, "int3-rtn", "3.25", "28.5");
    render(stages, NULL);
    assert_lacks("<h2 id=\"tradeoff\">");
}

/* A record can name anything as an input; a circle must not hang the report. */
static void test_tradeoff__circle_of_inputs(void **state)
{
    (void)state;
    json_t *stages = json_array();
    (void)json_array_append_new(stages, stage("a", "other", "b", "{}", "[]"));
    (void)json_array_append_new(stages, stage("b", "other", "a", "{}", "[]"));
    (void)json_array_append_new(stages, stage("e", "evaluate", "a", "{\"perplexity\": 20}", "[]"));
    render(stages, NULL);
    assert_lacks("<h2 id=\"tradeoff\">");
}

#define WITH_STORE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(test_bytes__model_and_layers),
        WITH_STORE(test_bytes__no_times_without_a_device),
        WITH_STORE(test_bytes__nothing_to_say),
        WITH_STORE(test_tradeoff__best_points_and_series),
        WITH_STORE(test_tradeoff__two_models_are_no_plot),
        WITH_STORE(test_tradeoff__circle_of_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
