/* Room for hidden states, in memory and in a mapped file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "prune_fixture.h"

#include "stages/calibration/hidden_states.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>

static size_t files_in_partial(const struct prune_fixture *fixture)
{
    char path[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    struct espl_error err;
    assert_int_equal(espl_fs_join(path, fixture->store.root, "partial", &err), ESPL_OK);
    assert_int_equal(espl_fs_list(path, 100, &names, &count, &err), ESPL_OK);
    espl_fs_free_names(names, count);
    return count;
}

static void test_create__small_in_memory_large_in_an_unlinked_file(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_error err;
    prune_fixture_open(&fixture);
    for (int mapped = 0; mapped <= 1; mapped++) {
        struct espl_hidden_states states;
        const size_t count = 5000;
        assert_int_equal(espl_hidden_states_create(&fixture.store, "0123456789ab", count,
                                                   mapped ? 19999 : 20000, &states, &err),
                         ESPL_OK);
        assert_int_equal(states.mapped, mapped);
        assert_int_equal(states.bytes, 20000);
        assert_int_equal(files_in_partial(&fixture), 0);
        for (size_t i = 0; i < count; i++) {
            assert_true(states.data[i] == 0.0f);
            states.data[i] = (float)i;
        }
        assert_true(states.data[4999] == 4999.0f);
        espl_hidden_states_destroy(&states);
        assert_null(states.data);
        espl_hidden_states_destroy(&states);
    }
    prune_fixture_close(&fixture);
}

static void test_create__sizes_that_cannot_be(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_hidden_states states;
    struct espl_error err;
    prune_fixture_open(&fixture);
    assert_int_equal(
        espl_hidden_states_create(&fixture.store, "0123456789ab", 0, 1000, &states, &err),
        ESPL_E_NOMEM);
    assert_int_equal(espl_hidden_states_create(&fixture.store, "0123456789ab", SIZE_MAX / 2, 1000,
                                               &states, &err),
                     ESPL_E_NOMEM);
    assert_null(states.data);
    assert_int_equal(files_in_partial(&fixture), 0);
    prune_fixture_close(&fixture);
}

/* A file that may not grow: an error now, not a signal at the first write. */
static void test_create__space_that_is_not_there(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_hidden_states states;
    struct espl_error err;
    struct rlimit before, small;
    prune_fixture_open(&fixture);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 1 << 20;
    assert_ptr_not_equal(signal(SIGXFSZ, SIG_IGN), SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const enum espl_status status = espl_hidden_states_create(&fixture.store, "0123456789ab",
                                                              (size_t)1 << 20, 1000, &states, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, ESPL_E_IO);
    assert_non_null(strstr(err.message, "cannot reserve 4.0 MiB for hidden states in '"));
    assert_non_null(strstr(err.hint, "fewer or shorter calibration windows"));
    assert_null(states.data);
    assert_int_equal(files_in_partial(&fixture), 0);
    prune_fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create__small_in_memory_large_in_an_unlinked_file),
        cmocka_unit_test(test_create__sizes_that_cannot_be),
        cmocka_unit_test(test_create__space_that_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
