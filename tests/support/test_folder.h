/* A folder for the test in hand: set_up and tear_down for cmocka, and names below it. Include it in
 * one source file of a test program only. */
#ifndef ESPL_TESTS_TEST_FOLDER_H
#define ESPL_TESTS_TEST_FOLDER_H

#include "support/cmocka_all.h"
#include "support/temp_folder.h"

static char test_folder[ESPL_PATH_MAX];

static inline int test_folder_set_up(void **state)
{
    (void)state;
    temp_folder_make(test_folder);
    return 0;
}

static inline int test_folder_tear_down(void **state)
{
    (void)state;
    temp_folder_remove(test_folder);
    return 0;
}

/** Path of a name below the folder; three may be in use at once. */
static inline const char *below(const char *name)
{
    static char paths[3][ESPL_PATH_MAX];
    static int next;
    next = (next + 1) % 3;
    assert_int_equal(espl_fs_join(paths[next], test_folder, name, NULL), ESPL_OK);
    return paths[next];
}

#endif
