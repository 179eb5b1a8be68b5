/* Points over two scales: places worked out by hand, what is left out, how series are told apart.
 */
#include "report/svg.h"
#include "support/cmocka_all.h"
#include "xml_check.h"

#include <math.h>
#include <string.h>

static struct espl_buf out;

static int set_up(void **state)
{
    (void)state;
    espl_buf_init(&out, (size_t)1 << 20);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    espl_buf_free(&out);
    return 0;
}

static void draw(const struct espl_svg_xy *chart)
{
    char message[256] = "";
    espl_svg_xy(&out, chart);
    if (!xml_check(espl_buf_text(&out), out.len, message)) {
        fail_msg("%s", message);
    }
}

static void assert_has(const char *word)
{
    if (strstr(espl_buf_text(&out), word) == NULL) {
        fail_msg("'%s' is not in %s", word, espl_buf_text(&out));
    }
}

static void assert_lacks(const char *word)
{
    if (strstr(espl_buf_text(&out), word) != NULL) {
        fail_msg("'%s' is in %s", word, espl_buf_text(&out));
    }
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

static struct espl_svg_xy chart_of(const struct espl_svg_points *series, size_t count)
{
    const struct espl_svg_xy chart = {.head = {.id = "t", .title = "T & t", .desc = "D"},
                                      .x = {.label = "across"},
                                      .y = {.label = "up"},
                                      .series_count = count,
                                      .series = series};
    return chart;
}

/* The plot spans 64 to 520 across and 352 to 12 upwards. */
static void test_xy__places_on_linear_scales(void **state)
{
    (void)state;
    static const double x[] = {0.0, 5.0, 10.0};
    static const double y[] = {0.0, 25.0, 100.0};
    static const char *const tips[] = {"first", "second <", "third"};
    const struct espl_svg_points points = {
        .name = "one", .count = 3, .x = x, .y = y, .tips = tips, .line = true};
    const struct espl_svg_xy chart = chart_of(&points, 1);
    draw(&chart);
    assert_has("d=\"M64.0 352.0L292.0 267.0L520.0 12.0\"");
    assert_has("translate(292.0 267.0)");
    assert_has("second &lt;");
    assert_has(">T &amp; t<");
    /* steps of 2 and 20 */
    assert_has(">8</text>");
    assert_has(">80</text>");
    assert_lacks(">-0</text>");
    assert_lacks("<style>");
}

static void test_xy__places_on_logarithmic_scales(void **state)
{
    (void)state;
    static const double x[] = {1.0, 10.0, 100.0, 0.0, -1.0};
    static const double y[] = {0.1, 1.0, 10.0, 1.0, 1.0};
    const struct espl_svg_points points = {.name = "one", .count = 5, .x = x, .y = y, .line = true};
    struct espl_svg_xy chart = chart_of(&points, 1);
    chart.x.logarithmic = true;
    chart.y.logarithmic = true;
    draw(&chart);
    /* what has no logarithm is left out */
    assert_has("d=\"M64.0 352.0L292.0 182.0L520.0 12.0\"");
    assert_has(">0.1</text>");
    assert_has(">50</text>");
}

static void test_xy__what_is_outside_breaks_the_line(void **state)
{
    (void)state;
    static const double x[] = {0.0, 1.0, 2.0, 3.0, 4.0};
    static const double y[] = {1.0, 1.0, 99.0, 1.0, (double)NAN};
    const struct espl_svg_points points = {.name = "one", .count = 5, .x = x, .y = y, .line = true};
    struct espl_svg_xy chart = chart_of(&points, 1);
    chart.x.low = 0.0;
    chart.x.high = 4.0;
    chart.y.low = 0.0;
    chart.y.high = 2.0;
    draw(&chart);
    assert_has("d=\"M64.0 182.0L178.0 182.0M406.0 182.0\"");
    assert_int_equal(count_of("class=\"marker"), 3 + 1); /* and one in the legend */
}

static void test_xy__given_ticks(void **state)
{
    (void)state;
    static const double x[] = {2.0, 16.0};
    static const double y[] = {1.0, 2.0};
    static const double ticks[] = {2.0, 4.0, 8.0, 16.0};
    const struct espl_svg_points points = {.count = 2, .x = x, .y = y};
    struct espl_svg_xy chart = chart_of(&points, 1);
    chart.x = (struct espl_svg_axis){.label = "bits",
                                     .logarithmic = true,
                                     .low = 2,
                                     .high = 16,
                                     .ticks = ticks,
                                     .tick_count = 4};
    draw(&chart);
    assert_has("x=\"216.0\" y=\"366.0\">4</text>"); /* a third of the way */
    assert_lacks(">5</text>");
    assert_int_equal(count_of("class=\"marker"), 2); /* no name, no legend */
}

static void test_xy__seventh_series_differs_from_the_first(void **state)
{
    (void)state;
    static const double x[] = {1.0};
    static const double y[] = {1.0};
    struct espl_svg_points series[8];
    for (size_t i = 0; i < 8; ++i) {
        series[i] = (struct espl_svg_points){.name = "s", .count = 1, .x = x, .y = y};
    }
    series[1].bound = true; /* takes no style */
    const struct espl_svg_xy chart = chart_of(series, 8);
    draw(&chart);
    /* circle and square of the first colour: markers move on by one */
    assert_has("class=\"marker s0\" transform=\"translate(64.0 352.0)\" d=\"M-2.6 0a");
    assert_has("class=\"marker s0\" transform=\"translate(64.0 352.0)\" d=\"M-2.4 -2.4h");
    assert_int_equal(count_of("class=\"bound\""), 2);
}

static void test_xy__nothing_to_draw(void **state)
{
    (void)state;
    const struct espl_svg_xy chart = chart_of(NULL, 0);
    draw(&chart);
    assert_has(">across<");
}

static void test_xy__standalone_brings_its_style(void **state)
{
    (void)state;
    static const double x[] = {1.0, 2.0};
    const struct espl_svg_points points = {.name = "one", .count = 2, .x = x, .y = x};
    struct espl_svg_xy chart = chart_of(&points, 1);
    chart.standalone = true;
    draw(&chart);
    assert_has("<style>\n:root{");
    assert_has("prefers-color-scheme:dark");
    assert_has("class=\"paper\"");
    assert_lacks("table{"); /* the page's own rules */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_xy__places_on_linear_scales, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_xy__places_on_logarithmic_scales, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_xy__what_is_outside_breaks_the_line, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_xy__given_ticks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_xy__seventh_series_differs_from_the_first, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_xy__nothing_to_draw, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_xy__standalone_brings_its_style, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
