/* The line that `fetch` shows: share, bytes, rate, time left. */
#include "cli/fetch_progress.h"

#include "support/cmocka_all.h"

#include <string.h>

static const struct espl_cli cli = {.progress = ESPL_PROGRESS_NONE};
static const uint64_t mib = UINT64_C(1) << 20;

static void check_text(const struct espl_fetch_progress *progress, uint64_t done, uint64_t total,
                       unsigned waiting, bool bar, const char *expected)
{
    struct espl_buf text;
    espl_buf_init(&text, 1024);
    espl_fetch_progress_text(progress, done, total, waiting, bar, &text);
    assert_string_equal(espl_buf_text(&text), expected);
    espl_buf_free(&text);
}

static void test_text__without_a_rate(void **state)
{
    (void)state;
    struct espl_fetch_progress progress;
    espl_fetch_progress_init(&progress, &cli, "wikitext2");
    check_text(&progress, 5 * mib, 0, 0, true, "wikitext2  5.0 MiB");
    check_text(&progress, 5 * mib, 10 * mib, 0, false, "wikitext2   50%  5.0 MiB of 10.0 MiB");
    check_text(&progress, 5 * mib, 10 * mib, 0, true,
               "wikitext2  [##########----------]   50%  5.0 MiB of 10.0 MiB");
    check_text(&progress, 11 * mib, 10 * mib, 0, true,
               "wikitext2  [####################]  100%  11.0 MiB of 10.0 MiB");
    check_text(&progress, 0, 0, 2, false, "wikitext2  0 B  (waits for another fetch: 2 files)");
}

/* 10 MiB a second, steadily: 40 MiB are left after 2 s. What an earlier fetch had left does not
 * count. */
static void test_update__rate_and_time_left(void **state)
{
    (void)state;
    struct espl_fetch_progress progress;
    espl_fetch_progress_init(&progress, &cli, "m");
    espl_fetch_progress_update(&progress, 40 * mib, 100 * mib, 0, 7.0);
    assert_true(progress.rate == 0);
    espl_fetch_progress_update(&progress, 45 * mib, 100 * mib, 0, 7.5); /* too soon to tell */
    assert_true(progress.rate == 0);
    espl_fetch_progress_update(&progress, 50 * mib, 100 * mib, 0, 8.0);
    espl_fetch_progress_update(&progress, 60 * mib, 100 * mib, 0, 9.0);
    check_text(&progress, 60 * mib, 100 * mib, 0, false,
               "m   60%  60.0 MiB of 100.0 MiB  10.0 MiB/s  eta 4.0 s");
    /* A file that begins anew is no negative rate. */
    espl_fetch_progress_update(&progress, 20 * mib, 100 * mib, 0, 10.0);
    espl_fetch_progress_update(&progress, 30 * mib, 100 * mib, 0, 11.0);
    assert_true(progress.rate == 10.0 * (double)mib);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text__without_a_rate),
        cmocka_unit_test(test_update__rate_and_time_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
