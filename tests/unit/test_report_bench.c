/* The report's drawings of measured products, from a run record made by hand; box plots by
 * themselves. */
#include "report/bench_figures.h"
#include "report/report.h"

#include "rendered_report.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#define POINT(series, layer, module, value)                                    \
    "{\"series\": \"" series "\", \"layer\": " layer ", \"module\": \"" module \
    "\", \"value\": " value "}"

/* Four products at 8 tokens are 1, 2, 3 and 5 times as fast as the baseline, one at 1 token 4
 * times. */
static const char points[] =
    "[" POINT("speedup_over_peer", "8", "a", "2.0") "," POINT("speedup_over_peer", "8", "b",
                                                              "1.0") "," //
    POINT("speedup_over_peer", "8", "c", "5.0") "," POINT("speedup_over_peer", "8", "d",
                                                          "3.0") "," //
    POINT("speedup_over_peer", "1", "a", "4.0") "," POINT("speedup_over_dense", "1", "a",
                                                          "1.0") "," //
    POINT("speedup_over_peer", "8", "e", "-1.0") "," POINT("speedup_over_", "8", "e",
                                                           "1.0") "," //
    POINT("roofline_intensity", "8", "1x1 64x64 50 %", "20.0") ","    //
    POINT("roofline_rate", "8", "1x1 64x64 50 %", "5e12") ","         //
    POINT("roofline_intensity", "8", "dense 64x64 50 %", "10.0") ","  //
    POINT("roofline_rate", "1", "dense 64x64 50 %", "5e12") ","       //
    POINT("kept_of_8", "0", "q", "3.0") "]";

static void expect_close(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-9 * fabs(expected))) {
        fail_msg("%.17g, expected %.17g", found, expected);
    }
}

static void test_speedups__quartiles_and_means(void **state)
{
    (void)state;
    struct espl_bench_speedups speedups;
    struct espl_error err;
    struct espl_arena *arena = espl_arena_create((size_t)1 << 20);
    json_t *json = json_loads(points, 0, NULL);
    assert_non_null(json);
    assert_int_equal(espl_bench_speedups_read(json, arena, &speedups, &err), ESPL_OK);
    assert_int_equal(speedups.group_count, 2);
    assert_int_equal(speedups.tokens[0], 1);
    assert_int_equal(speedups.tokens[1], 8);
    assert_int_equal(speedups.baseline_count, 2);
    assert_string_equal(speedups.baselines[0], "peer");
    const struct espl_svg_box *box = &speedups.boxes[2];
    assert_int_equal(box->count, 4);
    expect_close(box->low, 1.0);
    expect_close(box->q1, 1.75);
    expect_close(box->median, 2.5);
    expect_close(box->q3, 3.5);
    expect_close(box->high, 5.0);
    expect_close(speedups.means[2], pow(30.0, 0.25));
    assert_int_equal(speedups.boxes[3].count, 0); /* dense at 8 tokens */
    assert_true(isnan(speedups.means[3]));
    json_decref(json);
    espl_arena_destroy(arena);
}

static void test_roofline__pairs_what_belongs_together(void **state)
{
    (void)state;
    struct espl_bench_roofline roofline;
    struct espl_error err;
    struct espl_arena *arena = espl_arena_create((size_t)1 << 20);
    json_t *json = json_loads(points, 0, NULL);
    assert_int_equal(espl_bench_roofline_read(json, arena, &roofline, &err), ESPL_OK);
    assert_int_equal(roofline.count, 1); /* dense: other tokens */
    assert_string_equal(roofline.points[0].series, "1x1");
    assert_int_equal(roofline.points[0].tokens, 8);
    expect_close(roofline.points[0].intensity, 20.0);
    expect_close(roofline.points[0].rate, 5e12);
    json_decref(json);
    espl_arena_destroy(arena);
}

/* Plot from 64 to 520 across and 352 to 12 upwards: one group of one series, scale up to 10. */
static void test_boxes__places_by_hand(void **state)
{
    (void)state;
    static const char *const groups[] = {"8 <"};
    static const char *const series[] = {"peer & co"};
    const struct espl_svg_box box = {0.0, 2.5, 5.0, 7.5, 10.0, 9};
    const struct espl_svg_boxes chart = {.head = {.id = "t", .title = "T", .desc = "D"},
                                         .x_label = "tokens",
                                         .y_label = "up",
                                         .group_count = 1,
                                         .series_count = 1,
                                         .groups = groups,
                                         .series = series,
                                         .boxes = &box,
                                         .reference = 1.0,
                                         .standalone = true};
    struct espl_buf out;
    char message[256] = "";
    espl_buf_init(&out, (size_t)1 << 20);
    espl_svg_boxes(&out, &chart);
    const char *text = espl_buf_text(&out);
    if (!xml_check(text, out.len, message)) {
        fail_msg("%s", message);
    }
    /* whiskers in the middle, from 12 to the upper quartile at 97 and from 267 to 352 */
    assert_non_null(strstr(text, "d=\"M292.0 12.0V97.0M292.0 267.0V352.0\""));
    assert_non_null(strstr(text, "<rect x=\"278.0\" y=\"97.0\" width=\"28.0\" height=\"170.0\""));
    assert_non_null(strstr(text, "d=\"M278.0 182.0h28.0\""));
    assert_non_null(strstr(text, "d=\"M64.0 318.0H520.0\"/>")); /* the reference */
    assert_non_null(strstr(text, "8 &lt;"));
    assert_non_null(strstr(text, "peer &amp; co"));
    assert_non_null(strstr(text, "<style>"));
    espl_buf_free(&out);
}

static void test_report__draws_each_with_its_table(void **state)
{
    (void)state;
    struct espl_buf out;
    report_bench_page("{\"copy_bytes_per_second\": 1e12}", points, &out);
    const char *page = espl_buf_text(&out);
    assert_non_null(strstr(page, "<h2 id=\"products\">Products on the device</h2>"));
    const char *speedups = strstr(page, "<h3>Speed-ups by number of tokens, stage bench</h3>");
    const char *roofline = strstr(page, "<h3>Roofline with measured products, stage bench</h3>");
    assert_non_null(speedups);
    assert_non_null(roofline);
    /* figures of the first drawing stand before the second one */
    const char *table = strstr(speedups, "<td class=\"number\">4</td><td class=\"number\">1.000"
                                         "</td><td class=\"number\">1.750</td>");
    assert_non_null(table);
    assert_true(table < roofline);
    /* 5 TOPS of 20 op/B x 1 TB/s */
    assert_non_null(strstr(roofline, "<td class=\"number\">25.0</td>"));
    /* Its points are no layers; the strip of N is. */
    assert_null(strstr(page, "speedup over peer, stage"));
    assert_non_null(strstr(page, "kept of 8, stage"));
    espl_buf_free(&out);
}

static void test_report__nothing_without_a_bench(void **state)
{
    (void)state;
    struct espl_buf out;
    report_bench_page("{\"copy_bytes_per_second\": 1e12}",
                      "[" POINT("kept_of_8", "0", "q", "3.0") "]", &out);
    assert_null(strstr(espl_buf_text(&out), "Products on the device"));
    espl_buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_speedups__quartiles_and_means),
        cmocka_unit_test(test_roofline__pairs_what_belongs_together),
        cmocka_unit_test(test_boxes__places_by_hand),
        cmocka_unit_test(test_report__draws_each_with_its_table),
        cmocka_unit_test(test_report__nothing_without_a_bench),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
