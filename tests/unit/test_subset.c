/* A sample of an image set: the right numbers, the same on every machine, told when it cannot be.
 */
#include "datasets/subset.h"

#include "support/cmocka_all.h"
#include "support/temp_folder.h"

#include <string.h>

static char folder[ESPL_PATH_MAX];
static struct espl_cache cache;

enum { CLASSES = 6, PICTURES = 9 };

static int set_up(void **state)
{
    (void)state;
    char path[ESPL_PATH_MAX];
    temp_folder_make(folder);
    for (int split = 0; split < 2; split++) {
        for (int c = 0; c < CLASSES; c++) {
            char relative[64];
            (void)snprintf(relative, sizeof relative, "set/%s/n%03d", split == 0 ? "train" : "val",
                           c);
            assert_int_equal(espl_fs_join(path, folder, relative, NULL), ESPL_OK);
            assert_int_equal(espl_fs_make_dirs(path, NULL), ESPL_OK);
            for (int p = 0; p < PICTURES; p++) {
                char file[ESPL_PATH_MAX];
                char name[32];
                (void)snprintf(name, sizeof name, "p%d.JPEG", p);
                assert_int_equal(espl_fs_join(file, path, name, NULL), ESPL_OK);
                assert_int_equal(espl_fs_write_file(file, "", 0, NULL), ESPL_OK);
            }
        }
    }
    assert_int_equal(espl_fs_join(path, folder, "cache", NULL), ESPL_OK);
    return espl_cache_locate(path, &cache, NULL) == ESPL_OK ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    temp_folder_remove(folder);
    return 0;
}

static char *read_list(const char *name)
{
    char set[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(espl_cache_find_set(&cache, "sample", set, NULL, NULL), ESPL_OK);
    assert_int_equal(espl_fs_join(path, set, name, NULL), ESPL_OK);
    assert_int_equal(espl_fs_read_file(path, 1 << 20, &text, &len, NULL), ESPL_OK);
    return text;
}

static enum espl_status draw(const struct espl_subset *subset, struct espl_error *err)
{
    char set[ESPL_PATH_MAX];
    assert_int_equal(espl_fs_join(set, folder, "set", err), ESPL_OK);
    return espl_subset_publish(&cache, "sample", set, subset, err);
}

static void test_publish__lists_are_sorted_and_complete(void **state)
{
    (void)state;
    const struct espl_subset subset = {
        .classes = 3, .train_per_class = 4, .val_per_class = 2, .seed = 300};
    struct espl_error err;
    assert_int_equal(draw(&subset, &err), ESPL_OK);
    char *const train = read_list("train.txt");
    char *const val = read_list("val.txt");
    char last[64] = "";
    size_t lines = 0;
    unsigned label = 0;
    for (const char *line = train; *line != '\0'; line = strchr(line, '\n') + 1) {
        char name[64];
        assert_int_equal(sscanf(line, "%63s %u", name, &label), 2);
        assert_true(strcmp(last, name) < 0); /* sorted, and nothing twice */
        assert_int_equal(label, lines / 4);
        (void)snprintf(last, sizeof last, "%s", name);
        lines++;
    }
    assert_int_equal(lines, 12);
    /* Both lists speak of the same classes. */
    assert_memory_equal(train, val, 4);
    free(val);
    free(train);
}

/* The recipe of subset.h, run in Python over the same names: a list must never change, or results
 * on it could not be compared. */
static void test_publish__follows_the_recipe(void **state)
{
    (void)state;
    const struct espl_subset subset = {
        .classes = 3, .train_per_class = 2, .val_per_class = 3, .seed = 7};
    struct espl_error err;
    assert_int_equal(draw(&subset, &err), ESPL_OK);
    char *const train = read_list("train.txt");
    char *const val = read_list("val.txt");
    assert_string_equal(train, "n000/p3.JPEG 0\n"
                               "n000/p6.JPEG 0\n"
                               "n002/p3.JPEG 1\n"
                               "n002/p8.JPEG 1\n"
                               "n005/p4.JPEG 2\n"
                               "n005/p7.JPEG 2\n");
    assert_string_equal(val, "n000/p0.JPEG 0\n"
                             "n000/p2.JPEG 0\n"
                             "n000/p5.JPEG 0\n"
                             "n002/p2.JPEG 1\n"
                             "n002/p4.JPEG 1\n"
                             "n002/p7.JPEG 1\n"
                             "n005/p1.JPEG 2\n"
                             "n005/p5.JPEG 2\n"
                             "n005/p6.JPEG 2\n");
    free(val);
    free(train);
}

static void test_publish__depends_on_the_seed_alone(void **state)
{
    (void)state;
    struct espl_subset subset = {.classes = 3, .train_per_class = 4, .val_per_class = 2, .seed = 1};
    struct espl_error err;
    assert_int_equal(draw(&subset, &err), ESPL_OK);
    char *const first = read_list("train.txt");
    assert_int_equal(draw(&subset, &err), ESPL_OK);
    char *const again = read_list("train.txt");
    subset.seed = 2;
    assert_int_equal(draw(&subset, &err), ESPL_OK);
    char *const other = read_list("train.txt");
    assert_string_equal(first, again);
    assert_string_not_equal(first, other);
    free(other);
    free(again);
    free(first);
}

static void test_publish__too_few_is_told(void **state)
{
    (void)state;
    struct espl_subset subset = {.classes = 7, .train_per_class = 1, .val_per_class = 1};
    struct espl_error err;
    assert_int_equal(draw(&subset, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "holds 6 classes, the sample needs 7"));
    subset.classes = 6;
    subset.val_per_class = 10;
    assert_int_equal(draw(&subset, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "holds 9 pictures, the sample needs 10"));
    subset.classes = 1;
    assert_int_equal(espl_subset_publish(&cache, "sample", "/nonexistent", &subset, &err),
                     ESPL_E_NOTFOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_publish__lists_are_sorted_and_complete, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_publish__follows_the_recipe, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_publish__depends_on_the_seed_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_publish__too_few_is_told, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
