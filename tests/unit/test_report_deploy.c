/* The report's drawings of whole passes, from a run record made by hand. */
#include "report/report.h"
#include "report/svg.h"

#include "rendered_report.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#define POINT(series, layer, module, value)                                    \
    "{\"series\": \"" series "\", \"layer\": " layer ", \"module\": \"" module \
    "\", \"value\": " value "}"

static const char points[] =
    "[" POINT("decode_tokens_per_second", "8", "encoded 64/128", "400.0") "," //
    POINT("decode_tokens_per_second", "8", "dense-fp16 64/128", "100.0") ","  //
    POINT("decode_tokens_per_second", "1", "encoded 64/128", "90.0") ","      //
    POINT("decode_speedup_over_dense-fp16", "8", "encoded 64/128", "4.0") "," //
    POINT("decode_us_products", "8", "encoded 64/128", "300.0") ","           //
    POINT("decode_us_attention", "8", "encoded 64/128", "50.0") ","           //
    POINT("decode_us_gaps", "8", "encoded 64/128", "25.0") ","                //
    POINT("decode_j_per_token_net", "8", "encoded 64/128", "0.5") ","         //
    POINT("decode_j_per_token_deviation", "8", "encoded 64/128", "0.125") "," //
    POINT("decode_device_bytes", "8", "encoded 64/128", "7.5e9") ","          //
    POINT("decode_tokens_per_second", "8", "encoded 8/8", "500.0") ","        //
    POINT("encoder_images_per_second", "32", "packed", "9000.0") ","          //
    POINT("encoder_us_products", "32", "packed", "1000.0") ","                //
    POINT("decode_tokens_per_second", "0", "encoded 64/128", "1.0") ","       //
    POINT("kept_of_8", "0", "q", "3.0") "]";

static void expect_text(const char *page, const char *text)
{
    if (strstr(page, text) == NULL) {
        fail_msg("the page has no '%s'", text);
    }
}

static void test_report__a_figure_for_each_shape_and_kind(void **state)
{
    (void)state;
    struct espl_buf out;
    report_bench_page("{}", points, &out);
    const char *page = espl_buf_text(&out);
    expect_text(page, "<h2 id=\"passes\">Whole passes on the device</h2>");
    expect_text(page, "<h3>Decoding, prompt and output 64/128, stage bench</h3>");
    expect_text(page, "<h3>Decoding, prompt and output 8/8, stage bench</h3>");
    expect_text(page, "<h3>Passes of an image model, stage bench</h3>");
    /* their points are no layers, other ones are */
    assert_null(strstr(page, "decode tokens per second, stage"));
    expect_text(page, "kept of 8, stage");
    espl_buf_free(&out);
}

static void test_report__every_figure_is_in_the_table(void **state)
{
    (void)state;
    struct espl_buf out;
    report_bench_page("{}", points, &out);
    const char *page = espl_buf_text(&out);
    /* batch 1 before batch 8; throughput, ms, p95, first token, five parts, memory, W, J, net, +-,
     * over dense-fp16 */
    const char *one = strstr(page, "<tr><th scope=\"row\" class=\"number\">1</th><td>encoded</td>");
    const char *eight = strstr(page, "<tr><th scope=\"row\" class=\"number\">8</th><td>encoded</td>"
                                     "<td class=\"number\">400</td><td class=\"number\">-</td>"
                                     "<td class=\"number\">-</td><td class=\"number\">-</td>"
                                     "<td class=\"number\">300</td><td class=\"number\">50</td>"
                                     "<td class=\"number\">-</td><td class=\"number\">-</td>"
                                     "<td class=\"number\">25</td><td class=\"number\">7.5</td>"
                                     "<td class=\"number\">-</td><td class=\"number\">-</td>"
                                     "<td class=\"number\">0.5</td><td class=\"number\">0.125</td>"
                                     "<td class=\"number\">4.000</td></tr>");
    assert_non_null(one);
    assert_non_null(eight);
    assert_true(one < eight);
    /* the other shape has figures of its own */
    expect_text(page, "<tr><th scope=\"row\" class=\"number\">8</th><td>encoded</td>"
                      "<td class=\"number\">500</td><td class=\"number\">-</td>");
    /* beside the bars: energy with its deviation, and the sum of a step's parts */
    expect_text(page, ">0.5 \xc2\xb1 0.1</text>");
    expect_text(page, ">375</text>");
    espl_buf_free(&out);
}

static void test_report__all_numbers_of_sequences(void **state)
{
    (void)state;
    struct espl_buf out;
    char text[8000] = "[";
    size_t len = 1;
    for (unsigned sequences = 64; sequences > 0; sequences--) {
        len += (size_t)snprintf(text + len, sizeof text - len,
                                POINT("decode_ms_per_token", "%u", "encoded", "2.0") "%s",
                                sequences, sequences > 1 ? "," : "]");
    }
    assert_true(len < sizeof text);
    report_bench_page("{}", text, &out);
    expect_text(espl_buf_text(&out), ">batch 64</text>");
    expect_text(espl_buf_text(&out), ">batch 1</text>");
    expect_text(espl_buf_text(&out), "<tr><th scope=\"row\" class=\"number\">64</th>");
    espl_buf_free(&out);
}

/* Records that nobody measured: numbers at the ends of doubles, negative ones, no numbers. */
static void test_report__numbers_that_cannot_be(void **state)
{
    (void)state;
    struct espl_buf out;
    report_bench_page("{}",
                      "[" POINT("decode_tokens_per_second", "8", "encoded", "1.7e308") ","  //
                      POINT("decode_tokens_per_second", "8", "dense-fp16", "-1e308") ","    //
                      POINT("decode_j_per_token_net", "8", "encoded", "1.7e308") ","        //
                      POINT("decode_j_per_token_deviation", "8", "encoded", "1.7e308") ","  //
                      POINT("decode_j_per_token_net", "8", "dense-fp16", "-5.0") ","        //
                      POINT("decode_j_per_token_deviation", "8", "dense-fp16", "1e300") "," //
                      POINT("decode_ms_per_token", "8", "encoded", "5e-324") ","            //
                      POINT("decode_ms_per_token", "8", "dense-fp16", "0") ","              //
                      POINT("decode_us_products", "8", "encoded", "1.7e308") ","            //
                      POINT("decode_us_attention", "8", "encoded", "1.7e308") ","           //
                      POINT("decode_us_products", "8", "dense-fp16", "10.0") ","            //
                      POINT("decode_us_gaps", "8", "dense-fp16", "-9.0") ","                //
                      POINT("decode_us_head", "1.5", "dense-fp16", "\"x\"") ","             //
                      POINT("pass_predicted_ms", "0", "", "1e308") ","                      //
                      POINT("pass_measured_ms", "0", "", "1e308") ","                       //
                      POINT("pass_predicted_ms", "1", "", "5e-324") ","                     //
                      POINT("pass_measured_ms", "1", "", "1e308") "]",
                      &out);
    const char *page = espl_buf_text(&out);
    static const char *const no_numbers[] = {"nan\"", "nan)", "-nan", ">nan",
                                             "inf\"", ">inf", "-inf"};
    for (size_t i = 0; i < sizeof no_numbers / sizeof no_numbers[0]; i++) {
        assert_null(strstr(page, no_numbers[i]));
    }
    assert_null(strstr(page, "Predicted against measured"));
    expect_text(page, ">1.7e+308</text>"); /* no bound that is beyond all numbers */
    expect_text(page, ">10</text>");       /* a stack of the one part that can be drawn */
    espl_buf_free(&out);
}

static void test_report__nothing_without_passes(void **state)
{
    (void)state;
    struct espl_buf out;
    report_bench_page("{}", "[" POINT("kept_of_8", "0", "q", "3.0") "]", &out);
    assert_null(strstr(espl_buf_text(&out), "Whole passes"));
    espl_buf_free(&out);
}

static void test_report__predictions_beside_what_was_measured(void **state)
{
    (void)state;
    struct espl_buf out;
    report_bench_page("{}",
                      "[" POINT("pass_predicted_ms", "0", "", "1.1") "," POINT("pass_measured_ms",
                                                                               "0", "",
                                                                               "1.0") "," //
                      POINT("pass_predicted_ms", "1", "a", "1.94") ","                    //
                      POINT("pass_measured_ms", "1", "a", "2.0") ","                      //
                      POINT("pass_predicted_ms", "2", "a", "3.0") ","                     //
                      POINT("pass_measured_ms", "3", "a", "4.0") "]",
                      &out);
    const char *page = espl_buf_text(&out);
    expect_text(page, "<h3>Predicted against measured, stage bench</h3>");
    /* +10 % and -3 %; numbers 2 and 3 have no partner */
    expect_text(page, "2 configurations that the predictor was not fitted to; it misses them by "
                      "6.50 % on average and by 10.00 % at most.");
    expect_text(page, "<th scope=\"row\">1 a</th><td class=\"number\">1.94</td>"
                      "<td class=\"number\">2</td><td class=\"number\">-3.00</td>");
    assert_null(strstr(page, "pass predicted ms, stage"));
    espl_buf_free(&out);
}

/* Two bars of 100 and 50 +- 25 over a panel whose bars have 514 units: 720 less the names' 132 and
 * the figures' 74. */
static void test_bars__error_bars_by_hand(void **state)
{
    static const char *const rows[] = {"a", "b"};
    static const char *const columns[] = {"J"};
    static const char *const texts[] = {"x", "y"};
    static const double values[] = {100.0, 50.0};
    static const double deviations[] = {NAN, 25.0};
    const struct espl_svg_bars chart = {.head = {"t", "t", "d"},
                                        .row_count = 2,
                                        .column_count = 1,
                                        .series_count = 1,
                                        .rows = rows,
                                        .columns = columns,
                                        .values = values,
                                        .texts = texts,
                                        .deviations = deviations};
    struct espl_buf out;
    (void)state;
    espl_buf_init(&out, (size_t)1 << 20);
    espl_svg_bars(&out, &chart);
    const char *text = espl_buf_text(&out);
    /* from 132 + 0.25 * 514 to 132 + 0.75 * 514, in the middle of the second bar: 24 + 24 + 6.5 */
    expect_text(text, "d=\"M260.5 54.5H517.5M260.5 51.5v6M517.5 51.5v6\"");
    expect_text(text, "width=\"514.0\"");
    expect_text(text, "width=\"257.0\"");
    espl_buf_free(&out);
}

/* One bar of 1, nothing and 3: 128.5 and 385.5 of 514 units, end to end. */
static void test_bars__stacked_by_hand(void **state)
{
    static const char *const rows[] = {"a"};
    static const char *const columns[] = {"us"};
    static const char *const texts[] = {"4", "", ""};
    static const double values[] = {1.0, NAN, 3.0};
    const struct espl_svg_bars chart = {.head = {"t", "t", "d"},
                                        .row_count = 1,
                                        .column_count = 1,
                                        .series_count = 3,
                                        .rows = rows,
                                        .columns = columns,
                                        .values = values,
                                        .texts = texts,
                                        .stacked = true};
    struct espl_buf out;
    (void)state;
    espl_buf_init(&out, (size_t)1 << 20);
    espl_svg_bars(&out, &chart);
    const char *text = espl_buf_text(&out);
    expect_text(text, "x=\"132.0\" y=\"24.0\" width=\"128.5\"");
    expect_text(text, "x=\"260.5\" y=\"24.0\" width=\"385.5\"");
    expect_text(text, "<text x=\"652.0\" y=\"34.5\" class=\"value\">4</text>");
    espl_buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_report__a_figure_for_each_shape_and_kind),
        cmocka_unit_test(test_report__every_figure_is_in_the_table),
        cmocka_unit_test(test_report__all_numbers_of_sequences),
        cmocka_unit_test(test_report__numbers_that_cannot_be),
        cmocka_unit_test(test_report__nothing_without_passes),
        cmocka_unit_test(test_report__predictions_beside_what_was_measured),
        cmocka_unit_test(test_bars__error_bars_by_hand),
        cmocka_unit_test(test_bars__stacked_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
