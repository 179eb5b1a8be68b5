#include "report/html.h"
#include "report/svg.h"
#include "support/cmocka_all.h"
#include "xml_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

static size_t count_of(const char *text, const char *word)
{
    size_t count = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        ++count;
    }
    return count;
}

static void assert_well_formed(void)
{
    char message[256] = "";
    if (!xml_check(espl_buf_text(&out), out.len, message)) {
        fail_msg("%s", message);
    }
}

static void assert_has(const char *word)
{
    if (strstr(espl_buf_text(&out), word) == NULL) {
        fail_msg("'%s' is not in the drawing", word);
    }
}

/* The checker of the other tests must see what is wrong. */
static void test_xml_check__finds_mistakes(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "<a>",
        "<a></b>",
        "<a b=c></a>",
        "<a b=\"c></a>",
        "<a>&nbsp;</a>",
        "<a>1 & 2</a>",
        "<a><b id=\"x\"/><b id=\"x\"/></a>",
        "<a>\x01</a>",
        "<a>\xC3</a>",
        "<a></a>tail",
        "<a b=\"<\"></a>",
    };
    char message[256];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
        if (xml_check(bad[i], strlen(bad[i]), message)) {
            fail_msg("'%s' passed", bad[i]);
        }
    }
    const char *good = "<a b=\"1 &lt; 2\"><c/>\xC3\xA9 &amp; &#39;</a>\n";
    assert_true(xml_check(good, strlen(good), message));
}

static void test_html_text__escapes_and_replaces(void **state)
{
    (void)state;
    espl_html_text(&out, "<b>&\"'\x01\xFF\xC3\xA9\xED\xA0\x80");
    /* A lone byte, a control character and the three bytes of a surrogate become U+FFFD each. */
    assert_string_equal(espl_buf_text(&out),
                        "&lt;b&gt;&amp;&quot;&#39;\xEF\xBF\xBD\xEF\xBF\xBD\xC3\xA9"
                        "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

static void test_html_text_cut__counts_characters(void **state)
{
    (void)state;
    espl_html_text_cut(&out, "\xC3\xA9\xC3\xA9\xC3\xA9", 3);
    espl_buf_puts(&out, "|");
    espl_html_text_cut(&out, "\xC3\xA9<bc", 3);
    assert_string_equal(espl_buf_text(&out), "\xC3\xA9\xC3\xA9\xC3\xA9|\xC3\xA9&lt;\xE2\x80\xA6");
}

static void test_html_group_digits__groups_from_five_digits(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"1234", "1234"},
        {"12345", "12\xE2\x80\xAF"
                  "345"},
        {"-1234567", "-1\xE2\x80\xAF"
                     "234\xE2\x80\xAF"
                     "567"},
        {"12345.678", "12\xE2\x80\xAF"
                      "345.678"},
        {"31.0 GiB", "31.0 GiB"},
        {"-", "-"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        char text[64];
        espl_html_group_digits(cases[i][0], text, sizeof text);
        assert_string_equal(text, cases[i][1]);
    }
}

static void test_nice_top__next_round_number(void **state)
{
    (void)state;
    static const double cases[][2] = {{0.5, 0.5},  {0.51, 1.0},  {0.21, 0.25}, {0.2, 0.2},
                                      {3.0, 5.0},  {1e-4, 1e-4}, {7e3, 1e4},   {0.0, 0.0},
                                      {-1.0, 0.0}, {2.4, 2.5}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        const double top = espl_svg_nice_top(cases[i][0]);
        assert_true(fabs(top - cases[i][1]) <= 1e-12 * cases[i][1]);
    }
}

static void test_bars__lengths_are_in_proportion(void **state)
{
    (void)state;
    static const char *const rows[] = {"one & two", "three", "none"};
    static const char *const columns[] = {"time"};
    static const double values[] = {10.0, 5.0, NAN};
    static const char *const texts[] = {"10 s", "5 s", "cached"};
    const struct espl_svg_bars chart = {.head = {.id = "t", .title = "T", .desc = "D"},
                                        .row_count = 3,
                                        .column_count = 1,
                                        .series_count = 1,
                                        .rows = rows,
                                        .columns = columns,
                                        .values = values,
                                        .texts = texts};
    espl_svg_bars(&out, &chart);
    assert_well_formed();
    assert_int_equal(count_of(espl_buf_text(&out), "<rect"), 2);
    const char *first = strstr(espl_buf_text(&out), "<rect");
    const char *second = strstr(first + 1, "<rect");
    const double full = strtod(strstr(first, "width=\"") + 7, NULL);
    const double half = strtod(strstr(second, "width=\"") + 7, NULL);
    assert_true(full > 100.0);
    assert_true(fabs(half - full / 2.0) <= 0.1); /* printed with one decimal */
    assert_has(">one &amp; two</text>");
    assert_has(">cached</text>");
    assert_has("<title id=\"t-title\">T</title>");
    assert_has("<desc id=\"t-desc\">D</desc>");
}

/* A file of its own brings style and title, and room for the title. */
static void test_bars__can_stand_alone(void **state)
{
    (void)state;
    static const char *const rows[] = {"a"};
    static const char *const columns[] = {"time"};
    static const double values[] = {1.0};
    static const char *const texts[] = {"1"};
    struct espl_svg_bars chart = {.head = {.id = "t", .title = "Bars & more", .desc = "D"},
                                  .row_count = 1,
                                  .column_count = 1,
                                  .series_count = 1,
                                  .rows = rows,
                                  .columns = columns,
                                  .values = values,
                                  .texts = texts};
    espl_svg_bars(&out, &chart);
    assert_null(strstr(espl_buf_text(&out), "<style>"));
    const double inside = strtod(strstr(espl_buf_text(&out), " height=\"") + 9, NULL);
    espl_buf_reset(&out);
    chart.standalone = true;
    espl_svg_bars(&out, &chart);
    assert_well_formed();
    assert_has("<style>");
    assert_has(">Bars &amp; more</text>");
    const double alone = strtod(strstr(espl_buf_text(&out), " height=\"") + 9, NULL);
    assert_true(alone > inside + 10.0);
}

static void test_bars__series_have_their_own_fill(void **state)
{
    (void)state;
    static const char *const rows[] = {"a"};
    static const char *const columns[] = {"time"};
    static const double values[] = {1, 2, 3, 4, 5, 6};
    static const char *const texts[] = {"1", "2", "3", "4", "5", "6"};
    const struct espl_svg_bars chart = {.head = {.id = "t", .title = "T", .desc = "D"},
                                        .row_count = 1,
                                        .column_count = 1,
                                        .series_count = ESPL_SVG_MAX_SERIES,
                                        .rows = rows,
                                        .columns = columns,
                                        .values = values,
                                        .texts = texts};
    espl_svg_bars(&out, &chart);
    assert_well_formed();
    assert_has("class=\"bar s0\"");
    for (int i = 1; i < ESPL_SVG_MAX_SERIES; ++i) {
        char word[64];
        (void)snprintf(word, sizeof word, "fill=\"url(#t-fill%d)\"", i);
        assert_has(word);
        (void)snprintf(word, sizeof word, "<pattern id=\"t-fill%d\"", i);
        assert_has(word);
    }
}

static void draw_layers(const double *values, size_t layers, size_t series, bool shares)
{
    static const char *const panels[] = {"self_attn.q_proj"};
    static const char *const remarks[] = {"0.1 to 0.4"};
    const struct espl_svg_layers chart = {.head = {.id = "l", .title = "T", .desc = "D"},
                                          .panel_count = 1,
                                          .series_count = series,
                                          .layer_count = layers,
                                          .shares = shares,
                                          .panels = panels,
                                          .remarks = remarks,
                                          .values = values};
    espl_svg_layers(&out, &chart);
    assert_well_formed();
}

static void test_layers__a_gap_breaks_the_line(void **state)
{
    (void)state;
    static const double values[] = {0.1, 0.2, NAN, 0.4};
    draw_layers(values, 4, 1, false);
    const char *line = strstr(espl_buf_text(&out), "class=\"line s0\" d=\"");
    assert_non_null(line);
    line = strstr(line, " d=\"") + 4;
    const char *end = strchr(line, '"');
    size_t moves = 0;
    size_t lines = 0;
    for (const char *c = line; c < end; ++c) {
        moves += *c == 'M' ? 1 : 0;
        lines += *c == 'L' ? 1 : 0;
    }
    assert_int_equal(moves, 2);
    assert_int_equal(lines, 1);
    assert_int_equal(count_of(espl_buf_text(&out), "class=\"marker s0\""), 3);
    assert_has("<title>layer 3: 0.4</title>");
    assert_has(">0.5</text>"); /* top of the scale */
}

static void test_layers__shares_are_percent_up_to_100(void **state)
{
    (void)state;
    static const double values[] = {0.5, 0.5};
    draw_layers(values, 2, 1, true);
    assert_has(">100 %</text>");
    assert_has(">0 %</text>");
    assert_has("<title>layer 1: 50 %</title>");
}

static void test_layers__many_layers_have_few_markers_and_ticks(void **state)
{
    (void)state;
    static double values[500];
    for (size_t i = 0; i < 500; ++i) {
        values[i] = 1.0;
    }
    draw_layers(values, 500, 1, false);
    assert_true(count_of(espl_buf_text(&out), "class=\"marker") <= 49);
    assert_true(count_of(espl_buf_text(&out), "tick-middle") <= 18);
}

static void test_layers__series_differ_in_marker_and_class(void **state)
{
    (void)state;
    static const double values[] = {0.1, 0.2, 0.3};
    draw_layers(values, 1, 3, false);
    assert_has("class=\"marker s0\"");
    assert_has("class=\"marker s1\"");
    assert_has("class=\"marker s2\"");
}

/* dense -> prune, calib -> prune, dense -> eval, prune -> eval: one straight edge (calib to prune,
 * prune to eval) each, and a lane for dense with a joint at both of its readers. */
static void test_graph__lanes_and_joints(void **state)
{
    (void)state;
    static const size_t prune_inputs[] = {0, 1};
    static const size_t eval_inputs[] = {2, 0};
    static const struct espl_svg_node nodes[] = {
        {.label = "dense", .detail = "import", .remark = "k0"},
        {.label = "calib", .detail = "tokens", .remark = "k1"},
        {.label = "prune",
         .detail = "<wanda>",
         .remark = "k2",
         .inputs = prune_inputs,
         .input_count = 2},
        {.label = "eval",
         .detail = "evaluate",
         .remark = "k3",
         .inputs = eval_inputs,
         .input_count = 2},
    };
    const struct espl_svg_graph graph = {
        .head = {.id = "g", .title = "T", .desc = "D"}, .node_count = 4, .nodes = nodes};
    espl_svg_graph(&out, &graph);
    assert_well_formed();
    assert_int_equal(count_of(espl_buf_text(&out), "class=\"node\""), 4);
    assert_int_equal(count_of(espl_buf_text(&out), "class=\"joint\""), 2);
    assert_int_equal(count_of(espl_buf_text(&out), "class=\"arrow\""), 4);
    assert_has("&lt;wanda&gt;");
}

static void test_graph__no_nodes(void **state)
{
    (void)state;
    const struct espl_svg_graph graph = {.head = {.id = "g", .title = "T", .desc = "D"}};
    espl_svg_graph(&out, &graph);
    assert_well_formed();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_xml_check__finds_mistakes),
        cmocka_unit_test_setup_teardown(test_html_text__escapes_and_replaces, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_html_text_cut__counts_characters, set_up, tear_down),
        cmocka_unit_test(test_html_group_digits__groups_from_five_digits),
        cmocka_unit_test(test_nice_top__next_round_number),
        cmocka_unit_test_setup_teardown(test_bars__lengths_are_in_proportion, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bars__can_stand_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bars__series_have_their_own_fill, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_layers__a_gap_breaks_the_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_layers__shares_are_percent_up_to_100, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_layers__many_layers_have_few_markers_and_ticks, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_layers__series_differ_in_marker_and_class, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_graph__lanes_and_joints, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_graph__no_nodes, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
