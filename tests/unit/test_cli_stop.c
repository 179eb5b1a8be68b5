/* What a signal that stops a verb leaves and says. */
#include "artifact/artifact.h"
#include "cli/cli.h"
#include "support/test_folder.h"

#include <signal.h>

/* The exit code of a verb that writes for long, stopped by `signal_number` (0 = by none). */
static int write_model(const char *name, int signal_number, bool *there)
{
    const volatile int stop_signal = signal_number;
    const volatile int stop_count = signal_number != 0;
    char path[ESPL_PATH_MAX];
    assert_int_equal(espl_fs_join(path, test_folder, name, NULL), ESPL_OK);
    char *words[] = {"espalier",   "synth",   "--encoded", "--layers=1",
                     "--vocab=64", "--quiet", path,        NULL};
    const int code = espl_cli_main(7, words, &stop_signal, &stop_count);
    *there = espl_fs_exists(path);
    return code;
}

static void test_stop__the_exit_code_names_the_signal(void **state)
{
    (void)state;
    bool there = false;
    assert_int_equal(write_model("a.h5", SIGINT, &there), 130);
    assert_false(there);
    assert_int_equal(write_model("b.h5", SIGTERM, &there), 143);
    assert_false(there);
    assert_int_equal(write_model("c.h5", 0, &there), 0);
    assert_true(there);
}

static void test_stop__leaves_no_half_file(void **state)
{
    (void)state;
    char **names = NULL;
    size_t count = 0;
    assert_int_equal(espl_fs_list(test_folder, 10, &names, &count, NULL), ESPL_OK);
    assert_int_equal(count, 1); /* the one that nobody stopped */
    espl_fs_free_names(names, count);
}

int main(void)
{
    espl_artifact_library_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stop__the_exit_code_names_the_signal),
        cmocka_unit_test(test_stop__leaves_no_half_file),
    };
    return cmocka_run_group_tests(tests, test_folder_set_up, test_folder_tear_down);
}
