/* The report's trajectory and Pareto front of a search, from a run record made by hand. */
#include "report/report.h"

#include "rendered_report.h"

#include <jansson.h>
#include <string.h>

static const char run_id[] = "20260512-100411-a-0001";

static const char record[] =
    "{\"schema\": \"espalier.run/1\", \"run_id\": \"20260512-100411-a-0001\", \"job\": \"s\","
    " \"status\": \"ok\", \"expectations\": [], \"environment\": {}, \"stages\": [{\"id\": "
    "\"find\","
    " \"use\": \"budget-search\", \"key\": \"aa\", \"state\": \"done\", \"inputs\": [],"
    " \"metrics\": {}, \"layer_metrics\": ["
    "{\"series\": \"trajectory\", \"layer\": 0, \"module\": \"evaluations\", \"value\": 8},"
    "{\"series\": \"trajectory\", \"layer\": 0, \"module\": \"score\", \"value\": 0.8125},"
    "{\"series\": \"trajectory\", \"layer\": 1, \"module\": \"evaluations\", \"value\": 16},"
    "{\"series\": \"trajectory\", \"layer\": 1, \"module\": \"score\", \"value\": 0.84375},"
    "{\"series\": \"front\", \"layer\": 0, \"module\": \"cost\", \"value\": 0.0123},"
    "{\"series\": \"front\", \"layer\": 0, \"module\": \"score\", \"value\": 0.84375},"
    "{\"series\": \"kept_of_8\", \"layer\": 0, \"module\": \"blocks.0.attn.qkv\", \"value\": 3},"
    "{\"series\": \"kept_of_8\", \"layer\": 1, \"module\": \"blocks.1.attn.qkv\", \"value\": 5},"
    "{\"series\": \"kept_of_8\", \"layer\": 2, \"module\": \"layers.1.blocks.0.attn.qkv\","
    " \"value\": 7}"
    "]}]}";

static void test_search__draws_both_curves_once(void **state)
{
    (void)state;
    struct espl_buf out;
    report_page(run_id, record, &out);
    const char *page = espl_buf_text(&out);
    assert_non_null(strstr(page, "<h3>Trajectory of the search, stage find</h3>"));
    assert_non_null(strstr(page, "<h3>Pareto front of the search, stage find</h3>"));
    assert_non_null(strstr(page, "<td class=\"number\">16</td><td class=\"number\">0.84375</td>"));
    assert_non_null(
        strstr(page, "<td class=\"number\">0.0123</td><td class=\"number\">0.84375</td>"));
    /* Their points are no layers; the strip of N is. */
    assert_null(strstr(page, "trajectory, stage"));
    assert_non_null(strstr(page, "kept of 8, stage"));
    espl_buf_free(&out);
}

static void test_search__nothing_without_one(void **state)
{
    (void)state;
    char text[sizeof record];
    struct espl_buf out;
    (void)memcpy(text, record, sizeof record);
    for (char *at = text; (at = strstr(at, "\"trajectory\"")) != NULL; at++) {
        memcpy(at, "\"trajection\"", strlen("\"trajection\""));
    }
    for (char *at = text; (at = strstr(at, "\"front\"")) != NULL; at++) {
        memcpy(at, "\"fronx\"", strlen("\"fronx\""));
    }
    report_page(run_id, text, &out);
    assert_null(strstr(espl_buf_text(&out), "of the search"));
    espl_buf_free(&out);
}

/* Equal modules of all blocks share a panel, whatever the blocks of the architecture are called. */
static void test_strip__one_panel_a_module(void **state)
{
    (void)state;
    struct espl_buf out;
    report_page(run_id, record, &out);
    const char *page = espl_buf_text(&out);
    const char *module = strstr(page, "<th scope=\"col\" class=\"number\">attn.qkv</th>");
    assert_non_null(module);
    assert_null(strstr(page, "blocks.1"));
    assert_non_null(
        strstr(module, "<th scope=\"row\" class=\"number\">0</th><td class=\"number\">3</td>"));
    assert_non_null(
        strstr(module, "<th scope=\"row\" class=\"number\">2</th><td class=\"number\">7</td>"));
    espl_buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_search__draws_both_curves_once),
        cmocka_unit_test(test_search__nothing_without_one),
        cmocka_unit_test(test_strip__one_panel_a_module),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
