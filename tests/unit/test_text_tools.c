/* suggest, pattern, log, error: the small text tools of core. */
#include "core/error.h"
#include "core/log.h"
#include "core/pattern.h"
#include "core/suggest.h"
#include "support/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void test_edit_distance__hand_worked(void **state)
{
    static const struct {
        const char *a;
        const char *b;
        size_t distance;
    } cases[] = {
        {"", "", 0},
        {"abc", "", 3},
        {"kitten", "sitting", 3},
        {"ab", "ba", 1},
        {"patern", "patterns", 2},
        {"flaw", "lawn", 2},
        {"ca", "abc", 3}, /* restricted form: no edit inside a swap */
        {"sparsity", "sparsity", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(espl_edit_distance(cases[i].a, cases[i].b), cases[i].distance);
        assert_int_equal(espl_edit_distance(cases[i].b, cases[i].a), cases[i].distance);
    }
    char long_text[600];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    assert_int_equal(espl_edit_distance(long_text, "x"), 599);
    assert_int_equal(espl_edit_distance(long_text, long_text), 0);
}

static void test_suggest__nearest_or_nothing(void **state)
{
    static const char *const names[] = {"patterns", "group_by", "targets", "ignore", "target"};
    (void)state;
    assert_string_equal(espl_suggest("patern", names, 5), "patterns");
    assert_string_equal(espl_suggest("taregts", names, 5), "targets");
    assert_string_equal(espl_suggest("targe", names, 5), "target");
    assert_null(espl_suggest("bandwidth", names, 5));
    assert_null(espl_suggest("x", names, 5));
    assert_null(espl_suggest("patern", names, 0));
    static const char *const ties[] = {"bat", "cat"};
    assert_string_equal(espl_suggest("aat", ties, 2), "bat");
    static const char *const one[] = {"b"};
    assert_null(espl_suggest("a", one, 1)); /* nothing in common */
    static const char *const long_names[] = {"wanda-prune", "wanda-prune-again", "panda"};
    assert_string_equal(espl_suggest("wanda", long_names, 2), "wanda-prune"); /* a beginning */
    assert_string_equal(espl_suggest("wanda", long_names, 3), "panda");
    assert_null(espl_suggest("wa", long_names, 2));    /* too short to mean one */
    assert_null(espl_suggest("prune", long_names, 2)); /* an end, not a beginning */
}

static void test_pattern_match__whole_name_or_dotted_tail(void **state)
{
    static const struct {
        const char *pattern;
        const char *name;
        bool match;
    } cases[] = {
        {"*", "layers.0.mlp.up_proj", true},
        {"*", "", true},
        {"layers.*.mlp.*", "layers.12.mlp.up_proj", true},
        {"layers.*.mlp.*", "layers.12.self_attn.q_proj", false},
        {"*.q_proj", "layers.0.self_attn.q_proj", true},
        {"q_proj", "layers.0.self_attn.q_proj", true},
        {"proj", "layers.0.self_attn.q_proj", false}, /* tails start at a dot */
        {"self_attn.q_proj", "layers.0.self_attn.q_proj", true},
        {"lm_head", "lm_head", true},
        {"lm_head", "lm_head2", false},
        {"layers.?.mlp.*", "layers.3.mlp.up_proj", true},
        {"layers.?.mlp.*", "layers.13.mlp.up_proj", false},
        {"*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaac", false},
        {"*_proj", "x_proj_proj", true},
        {"", "x", false},
        {"LM_HEAD", "lm_head", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(espl_pattern_match(cases[i].pattern, cases[i].name), cases[i].match);
    }
}

struct captured {
    int lines;
    enum espl_log_level level;
    char text[4096];
};

static void capture(void *user, enum espl_log_level level, const char *line)
{
    struct captured *captured = user;
    captured->lines++;
    captured->level = level;
    (void)snprintf(captured->text, sizeof captured->text, "%s", line);
}

static void test_log__level_and_single_line(void **state)
{
    struct captured captured = {0};
    const struct espl_log log = {.write = capture, .user = &captured, .lowest = ESPL_LOG_INFO};
    char long_text[5000];
    (void)state;
    espl_log(&log, ESPL_LOG_DEBUG, "dropped");
    assert_int_equal(captured.lines, 0);
    espl_log(&log, ESPL_LOG_WARN, "a %d\nb\r", 1);
    assert_int_equal(captured.lines, 1);
    assert_int_equal(captured.level, ESPL_LOG_WARN);
    assert_string_equal(captured.text, "a 1 b ");
    espl_log(&log, ESPL_LOG_WARN, "device '%s'", "\033[31mred\a, \x7f");
    assert_string_equal(captured.text, "device '?[31mred?, ?'");
    memset(long_text, 'y', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    espl_log(&log, ESPL_LOG_ERROR, "%s", long_text);
    assert_int_equal(strlen(captured.text), 2047);
    assert_string_equal(captured.text + 2044, "...");
    espl_log(NULL, ESPL_LOG_ERROR, "nothing happens");
    const double first = espl_clock_monotonic();
    assert_true(espl_clock_monotonic() >= first);
    assert_true(espl_clock_utc() > INT64_C(1700000000));
}

static void test_fail__fills_cuts_and_maps(void **state)
{
    struct espl_error err;
    char long_text[2000];
    (void)state;
    memset(long_text, 'z', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    assert_int_equal(espl_fail(&err, ESPL_E_KIND, "%s", long_text), ESPL_E_KIND);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    assert_string_equal(err.message + sizeof err.message - 4, "...");
    (void)espl_fail(&err, ESPL_E_KIND, "cannot open '%s'", "a\nb\033[31m\x7f");
    assert_string_equal(err.message, "cannot open 'a?b?[31m?'");
    assert_int_equal(espl_fail_errno(&err, ENOSPC, "x"), ESPL_E_NOSPACE);
    assert_int_equal(espl_fail_errno(&err, EDQUOT, "x"), ESPL_E_NOSPACE);
    assert_int_equal(espl_fail_errno(&err, ENOENT, "x"), ESPL_E_NOTFOUND);
    assert_int_equal(espl_fail_errno(&err, ENOMEM, "x"), ESPL_E_NOMEM);
    assert_int_equal(espl_fail_errno(&err, EACCES, "cannot open 'f'"), ESPL_E_IO);
    assert_string_equal(err.message, "cannot open 'f': Permission denied");
    assert_int_equal(err.sys_errno, EACCES);
    assert_int_equal(espl_hint(&err, "try %d", 2), ESPL_E_IO);
    assert_int_equal(espl_blame(&err, "param:checkpoint"), ESPL_E_IO);
    assert_int_equal(espl_context(&err, "reading %s", "a"), ESPL_E_IO);
    assert_int_equal(espl_context(&err, "importing"), ESPL_E_IO);
    assert_string_equal(err.hint, "try 2");
    assert_string_equal(err.blame, "param:checkpoint");
    assert_string_equal(err.context, "reading a\nimporting");
    for (int i = 0; i < 100; i++) { /* more lines than fit */
        (void)espl_context(&err, "%s", "a line of some length to fill the field");
    }
    assert_true(strlen(err.context) < sizeof err.context);
    assert_int_equal(espl_fail(NULL, ESPL_E_KIND, "x"), ESPL_E_KIND);
    assert_string_equal(espl_status_name(ESPL_E_NOSPACE), "no-space");
    assert_int_equal(espl_status_exit_code(ESPL_E_CANCELLED), 130);
    assert_int_equal(espl_status_exit_code((enum espl_status)9999), 70);
    assert_string_equal(espl_status_name((enum espl_status)9999), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edit_distance__hand_worked),
        cmocka_unit_test(test_suggest__nearest_or_nothing),
        cmocka_unit_test(test_pattern_match__whole_name_or_dotted_tail),
        cmocka_unit_test(test_log__level_and_single_line),
        cmocka_unit_test(test_fail__fills_cuts_and_maps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
