/* Lists that name some pictures of a folder, with labels. */
#include "core/fs.h"
#include "datasets/image_list.h"
#include "support/temp_folder.h"

#include "support/cmocka_all.h"

#include <stdio.h>
#include <string.h>

static const struct espl_archive_limits limits = {100, 1000, 100000};

static void join(char out[ESPL_PATH_MAX], const char *dir, const char *name)
{
    assert_int_equal(espl_fs_join(out, dir, name, NULL), ESPL_OK);
}

static void open_five(const char *dir, const char *subset, struct espl_image_list **list)
{
    static const char *const names[] = {"val/ant/1.png", "val/ant/2.png", "val/bee/1.png",
                                        "val/cow/9.jpg", "train/ant/1.png"};
    char path[ESPL_PATH_MAX];
    char folder[ESPL_PATH_MAX];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        join(path, dir, names[i]);
        memcpy(folder, path, sizeof folder);
        *strrchr(folder, '/') = '\0';
        assert_int_equal(espl_fs_make_dirs(folder, NULL), ESPL_OK);
        assert_int_equal(espl_fs_write_file(path, "x", 1, NULL), ESPL_OK);
    }
    assert_int_equal(espl_image_list_open(dir, subset, &limits, 10000, list, NULL), ESPL_OK);
}

/* Labels are the list's, with a number left out; order is by name, not by line. */
static void test_keep(void **state)
{
    (void)state;
    char dir[ESPL_PATH_MAX];
    char text[] = "cow/9.jpg 2\r\n\nant/2.png 0\n";
    char all[] = "val/bee/1.png 7";
    struct espl_image_list *list = NULL;
    temp_folder_make(dir);
    open_five(dir, "val", &list);
    assert_int_equal(espl_image_list_count(list), 4);
    assert_int_equal(espl_image_list_keep(list, text, NULL), ESPL_OK);
    assert_int_equal(espl_image_list_count(list), 2);
    assert_string_equal(espl_image_list_name(list, 0), "val/ant/2.png");
    assert_int_equal(espl_image_list_class(list, 0), 0);
    assert_int_equal(espl_image_list_class(list, 1), 2);
    assert_int_equal(espl_image_list_classes(list), 3);
    assert_string_equal(espl_image_list_class_name(list, 0), "ant");
    assert_string_equal(espl_image_list_class_name(list, 1), "");
    assert_string_equal(espl_image_list_class_name(list, 2), "cow");
    espl_image_list_close(list);

    open_five(dir, NULL, &list);
    assert_int_equal(espl_image_list_keep(list, all, NULL), ESPL_OK);
    assert_int_equal(espl_image_list_count(list), 1);
    assert_int_equal(espl_image_list_classes(list), 8);
    espl_image_list_close(list);
    temp_folder_remove(dir);
}

static void test_keep__refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum espl_status code;
        const char *message;
    } bad[] = {
        {"", ESPL_E_CORRUPT, "the list names no picture"},
        {"ant/1.png", ESPL_E_CORRUPT, "line 1 of the list is no 'PICTURE LABEL'"},
        {"ant/1.png 0\n 1", ESPL_E_CORRUPT, "line 2 of the list is no 'PICTURE LABEL'"},
        {"ant/1.png -1", ESPL_E_CORRUPT, "line 1 of the list is no 'PICTURE LABEL'"},
        {"ant/1.png 1x", ESPL_E_CORRUPT, "line 1 of the list is no 'PICTURE LABEL'"},
        {"ant/1.png 65536", ESPL_E_CORRUPT, "line 1 of the list is no 'PICTURE LABEL'"},
        {"ant/1.png 99999999999999999999", ESPL_E_CORRUPT,
         "line 1 of the list is no 'PICTURE LABEL'"},
        {"ant/1.png 0\nant/1.png 1", ESPL_E_CORRUPT, "line 2 of the list names 'ant/1.png' again"},
        {"ant/3.png 0", ESPL_E_NOTFOUND, "line 1 of the list: there is no picture 'ant/3.png'"},
        {"../train/ant/1.png 0", ESPL_E_NOTFOUND,
         "line 1 of the list: there is no picture '../train/ant/1.png'"},
    };
    char dir[ESPL_PATH_MAX];
    temp_folder_make(dir);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct espl_image_list *list = NULL;
        struct espl_error err = {0};
        char text[64];
        (void)snprintf(text, sizeof text, "%s", bad[i].text);
        open_five(dir, "val", &list);
        assert_int_equal(espl_image_list_keep(list, text, &err), bad[i].code);
        assert_string_equal(err.message, bad[i].message);
        espl_image_list_close(list);
    }
    temp_folder_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keep),
        cmocka_unit_test(test_keep__refusals),
    };
    return cmocka_run_group_tests_name("image_keep", tests, NULL, NULL);
}
