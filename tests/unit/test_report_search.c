/* The report's trajectory and Pareto front of a search, from a run record made by hand. */
#include "report/report.h"

#include "engine/run_record.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"
#include "xml_check.h"

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
    "{\"series\": \"kept_of_8\", \"layer\": 0, \"module\": \"blocks.0.attn.qkv\", \"value\": 3}"
    "]}]}";

static void render(const char *text, struct espl_buf *out)
{
    char folder[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    char message[256] = "";
    struct espl_store store;
    struct espl_error err = {0};
    temp_folder_make(folder);
    espl_buf_init(out, ESPL_REPORT_MAX_BYTES);
    assert_int_equal(espl_store_open(folder, &store, NULL), ESPL_OK);
    assert_int_equal(espl_run_path(&store, run_id, NULL, path, NULL), ESPL_OK);
    assert_int_equal(espl_fs_make_dirs(path, NULL), ESPL_OK);
    assert_int_equal(espl_run_path(&store, run_id, "run.json", path, NULL), ESPL_OK);
    assert_int_equal(espl_fs_write_file(path, text, strlen(text), NULL), ESPL_OK);
    if (espl_report_render(&store, run_id, NULL, out, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    if (!xml_check(espl_buf_text(out), out->len, message)) {
        fail_msg("%s", message);
    }
    temp_folder_remove(folder);
}

static void test_search__draws_both_curves_once(void **state)
{
    (void)state;
    struct espl_buf out;
    render(record, &out);
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
    render(text, &out);
    assert_null(strstr(espl_buf_text(&out), "of the search"));
    espl_buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_search__draws_both_curves_once),
        cmocka_unit_test(test_search__nothing_without_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
