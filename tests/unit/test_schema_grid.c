/* Parameters that are rows x columns: both ways to write one, its canonical text, its messages. */
#include "engine/schema.h"

#include "support/cmocka_all.h"

#include <string.h>

static const struct espl_param table[] = {
    {.name = "align",
     .help = "rows and columns of a group",
     .type = ESPL_PARAM_GRID,
     .default_text = "none"},
    {.name = NULL},
};

static struct espl_arena *arena;
static struct espl_diagnostics diags;
static struct espl_grid grid;
static struct espl_param_value value;

static int set_up(void **state)
{
    (void)state;
    arena = espl_arena_create((size_t)1 << 20);
    return arena != NULL && espl_diagnostics_init(&diags, NULL) == ESPL_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    espl_diagnostics_free(&diags);
    espl_arena_destroy(arena);
    return 0;
}

static void read_yaml(const char *yaml)
{
    const struct espl_node *root = NULL;
    const struct espl_srcpos stage_at = {"job.yaml", 1, 1, 1};
    struct espl_error err = {0};
    diags.count = 0;
    grid = (struct espl_grid){9, 9};
    assert_int_equal(espl_diagnostics_set_source(&diags, "job.yaml", yaml, strlen(yaml), &err),
                     ESPL_OK);
    assert_int_equal(espl_yaml_parse("job.yaml", yaml, strlen(yaml), arena, &diags, &root, &err),
                     ESPL_OK);
    espl_schema_read(table, root, "stage 'p' (prune)", NULL, &grid, &value, arena, &diags,
                     &stage_at);
}

static void test_read__forms_of_one_grid_are_one_value(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        uint32_t rows, cols;
        const char *text;
    } cases[] = {
        {"align: {rows: 2, cols: 4}\n", 2, 4, "2x4"},
        {"align: {cols: 4, rows: 2}\n", 2, 4, "2x4"},
        {"align: 2x4\n", 2, 4, "2x4"},
        {"align: {rows: 4}\n", 4, 1, "4x1"},
        {"align: {cols: 64}\n", 1, 64, "1x64"},
        {"align: none\n", 1, 1, "none"},
        {"align: {rows: 1, cols: 1}\n", 1, 1, "none"},
        {"align: 1x1\n", 1, 1, "none"},
        {"{}\n", 1, 1, "none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        read_yaml(cases[i].yaml);
        assert_int_equal(diags.count, 0);
        assert_int_equal(grid.rows, cases[i].rows);
        assert_int_equal(grid.cols, cases[i].cols);
        assert_string_equal(value.text, cases[i].text);
    }
}

static void test_read__mistakes(void **state)
{
    (void)state;
    static const char *const found[][2] = {
        {"align: {rows: 0}\n", "got a mapping"},
        {"align: {cols: 65}\n", "got a mapping"},
        {"align: {}\n", "got a mapping"},
        {"align: {row: 2}\n", "got a mapping"},
        {"align: {rows: two}\n", "got a mapping"},
        {"align: {rows: \"2\"}\n", "got a mapping"},
        {"align: [2, 4]\n", "got a list"},
        {"align: 2:4\n", "got text '2:4'"},
        {"align: 4\n", "got 4"},
        {"align:\n", "got nothing"},
    };
    for (size_t i = 0; i < sizeof found / sizeof found[0]; i++) {
        read_yaml(found[i][0]);
        assert_int_equal(diags.count, 1);
        const char *message = diags.items[0].error.message;
        if (strstr(message, "'align' must be rows and columns from 1 to 64, or none, ") == NULL ||
            strstr(message, found[i][1]) == NULL) {
            fail_msg("%s: %s", found[i][0], message);
        }
    }
    read_yaml("align: 2:4\n");
    assert_string_equal(diags.items[0].error.hint,
                        "write a mapping or RxC, for example {rows: 2, cols: 4}");
}

static void test_json__text_and_schema(void **state)
{
    (void)state;
    read_yaml("align: {rows: 2}\n");
    json_t *object = espl_schema_json(table, &value);
    assert_string_equal(json_string_value(json_object_get(object, "align")), "2x1");
    json_decref(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_read__forms_of_one_grid_are_one_value, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_read__mistakes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_json__text_and_schema, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
