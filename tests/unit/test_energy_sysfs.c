#include "energy_fixture.h"
#include "eval/energy/sysfs_value.h"
#include "support/test_folder.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool parses(const char *text, int64_t *out)
{
    return espl_sysfs_parse_int(text, strlen(text), out);
}

static void test_parse_int__takes_numbers_only(void **state)
{
    (void)state;
    int64_t value = 77;
    static const char *const bad[] = {"",
                                      "\n",
                                      "12 mW",
                                      "0x10",
                                      "1.5",
                                      "--1",
                                      "1\n\n",
                                      " 1",
                                      "1 ",
                                      "-",
                                      "+",
                                      "nan",
                                      "1\r",
                                      "1,2",
                                      "9223372036854775808",
                                      "-9223372036854775809"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(parses(bad[i], &value));
    }
    assert_false(espl_sysfs_parse_int("1\0002\n", 4, &value));
    assert_int_equal(value, 77);
    assert_true(parses("4968\n", &value));
    assert_int_equal(value, 4968);
    assert_true(parses("-392\n", &value));
    assert_int_equal(value, -392);
    assert_true(parses("9223372036854775807", &value));
    assert_true(value == INT64_MAX);
    assert_true(parses("-9223372036854775808\n", &value));
    assert_true(value == INT64_MIN);
}

static void test_parse_int__takes_64_bytes_at_most(void **state)
{
    (void)state;
    char text[ESPL_SYSFS_TEXT_MAX + 1];
    int64_t value = 0;
    memset(text, '0', sizeof text);
    text[ESPL_SYSFS_TEXT_MAX - 1] = '5';
    text[ESPL_SYSFS_TEXT_MAX] = '5';
    assert_true(espl_sysfs_parse_int(text, ESPL_SYSFS_TEXT_MAX, &value));
    assert_int_equal(value, 5);
    assert_false(espl_sysfs_parse_int(text, ESPL_SYSFS_TEXT_MAX + 1, &value));
}

static void test_parse_label__takes_short_printable_texts(void **state)
{
    (void)state;
    char label[ESPL_SYSFS_LABEL_MAX];
    char longest[ESPL_SYSFS_LABEL_MAX + 1];
    assert_true(espl_sysfs_parse_label("VDD_IN\n", 7, label));
    assert_string_equal(label, "VDD_IN");
    assert_false(espl_sysfs_parse_label("\n", 1, label));
    assert_false(espl_sysfs_parse_label("a\033[31m", 6, label));
    assert_string_equal(label, "");
    assert_false(espl_sysfs_parse_label("\303\251", 2, label));
    memset(longest, 'x', sizeof longest);
    assert_false(espl_sysfs_parse_label(longest, ESPL_SYSFS_LABEL_MAX, label));
    assert_true(espl_sysfs_parse_label(longest, ESPL_SYSFS_LABEL_MAX - 1, label));
}

static void test_read__gives_a_state_for_each_fault(void **state)
{
    (void)state;
    int64_t value = 77;
    int fd = -1;
    int sys_errno = 0;
    energy_put(test_folder, "garbage", "%s", "mW?\n");
    energy_put(test_folder, "long", "%065d\n", 1);
    energy_put(test_folder, "empty", "%s", "");
    assert_int_equal(mkdir(below("folder"), 0755), 0);
    assert_int_equal(mkfifo(below("pipe"), 0644), 0);
    assert_int_equal(espl_sysfs_get_int(test_folder, "garbage", &value), ESPL_RAIL_BAD_VALUE);
    assert_int_equal(espl_sysfs_get_int(test_folder, "long", &value), ESPL_RAIL_BAD_VALUE);
    assert_int_equal(espl_sysfs_get_int(test_folder, "empty", &value), ESPL_RAIL_BAD_VALUE);
    assert_int_equal(espl_sysfs_get_int(test_folder, "folder", &value), ESPL_RAIL_UNREADABLE);
    assert_int_equal(espl_sysfs_get_int(test_folder, "pipe", &value), ESPL_RAIL_UNREADABLE);
    assert_int_equal(espl_sysfs_get_int(test_folder, "missing", &value), ESPL_RAIL_ABSENT);
    assert_int_equal(value, 77);
    /* A closed file: the read itself fails. */
    energy_put(test_folder, "good", "%s", "12\n");
    assert_int_equal(espl_sysfs_open(test_folder, "good", &fd, &sys_errno), ESPL_RAIL_OK);
    assert_int_equal(close(fd), 0);
    assert_int_equal(espl_sysfs_read_int(fd, &value, &sys_errno), ESPL_RAIL_UNREADABLE);
    assert_int_equal(sys_errno, EBADF);
}

static void test_state_of_errno__names_what_drivers_return(void **state)
{
    (void)state;
    assert_int_equal(espl_rail_state_of_errno(ENODATA), ESPL_RAIL_DISABLED);
    assert_int_equal(espl_rail_state_of_errno(EACCES), ESPL_RAIL_DENIED);
    assert_int_equal(espl_rail_state_of_errno(EIO), ESPL_RAIL_UNREADABLE);
    assert_int_equal(espl_rail_state_of_errno(ETIMEDOUT), ESPL_RAIL_STALLED);
    assert_int_equal(espl_rail_state_of_errno(ENODEV), ESPL_RAIL_ABSENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_int__takes_numbers_only),
        cmocka_unit_test(test_parse_int__takes_64_bytes_at_most),
        cmocka_unit_test(test_parse_label__takes_short_printable_texts),
        cmocka_unit_test_setup_teardown(test_read__gives_a_state_for_each_fault, test_folder_set_up,
                                        test_folder_tear_down),
        cmocka_unit_test(test_state_of_errno__names_what_drivers_return),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
