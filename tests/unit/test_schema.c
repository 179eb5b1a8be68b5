#include "engine/schema.h"

#include "engine_fakes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PRUNE_ROWS = 9 };

static struct espl_arena *arena;
static struct espl_diagnostics diags;
static struct fake_prune_params params;
static struct espl_param_value values[PRUNE_ROWS];

static int set_up(void **state)
{
    (void)state;
    arena = espl_arena_create((size_t)1 << 24);
    params = (struct fake_prune_params){0};
    return arena != NULL && espl_diagnostics_init(&diags, NULL) == ESPL_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    espl_diagnostics_free(&diags);
    espl_arena_destroy(arena);
    return 0;
}

static void read_params(const char *yaml)
{
    const struct espl_node *root = NULL;
    const struct espl_srcpos stage_at = {"job.yaml", 1, 1, 1};
    struct espl_error err = {0};
    assert_int_equal(espl_diagnostics_set_source(&diags, "job.yaml", yaml, strlen(yaml), &err),
                     ESPL_OK);
    assert_int_equal(espl_yaml_parse("job.yaml", yaml, strlen(yaml), arena, &diags, &root, &err),
                     ESPL_OK);
    espl_schema_read(fake_prune.params, root, "stage 'prune' (wanda-prune)",
                     "espalier stages wanda-prune", &params, values, arena, &diags, &stage_at);
}

static void expect_errors(const char *yaml, const char *expected)
{
    struct espl_buf text;
    espl_buf_init(&text, 1 << 20);
    diags.count = 0;
    read_params(yaml);
    espl_diagnostics_sort(&diags);
    espl_diagnostics_render(&diags, false, &text);
    assert_string_equal(espl_buf_text(&text), expected);
    espl_buf_free(&text);
}

static const char *text_of(const char *name)
{
    return values[espl_schema_find(fake_prune.params, name) - fake_prune.params].text;
}

/* The canonical text that a value of a parameter gets. */
static const char *canonical(const char *name, const char *value)
{
    char yaml[512];
    (void)snprintf(yaml, sizeof yaml, "%s: %s\n", name, value);
    diags.count = 0;
    read_params(yaml);
    if (diags.count > 0) {
        fail_msg("%s: %s", yaml, diags.items[0].error.message);
    }
    return text_of(name);
}

static void test_read__defaults(void **state)
{
    (void)state;
    read_params("{}");
    assert_int_equal(diags.count, 0);
    assert_true(params.sparsity == 0.5);
    assert_int_equal(params.pattern.n, 0);
    assert_int_equal(params.targets.count, 1);
    assert_string_equal(((const char *const *)params.targets.items)[0], "*");
    assert_int_equal(params.group_size, 128);
    assert_int_equal(params.budget, 5000000000u);
    assert_true(params.patience == 0.045);
    assert_null(params.note);
    assert_false(params.fast);
    assert_int_equal(params.widths.count, 0);
    assert_string_equal(text_of("targets"), "[\"*\"]");
    assert_string_equal(text_of("budget"), "5000000000B");
    assert_string_equal(text_of("patience"), "0.045s");
    assert_string_equal(text_of("note"), "");
    assert_string_equal(text_of("widths"), "[]");
    for (size_t i = 0; i < PRUNE_ROWS; i++) {
        assert_int_equal(values[i].origin, ESPL_ORIGIN_DEFAULT);
        assert_int_equal(values[i].at.line, 1);
    }
}

static void test_read__values(void **state)
{
    (void)state;
    read_params("sparsity: 0.25\n"
                "pattern: 2:4\n"
                "targets: [\"a.*\", b]\n"
                "group_size: 0064\n"
                "budget: 48GiB\n"
                "fast: True\n"
                "patience: 1s\n"
                "note: no\n"
                "widths: 8\n");
    assert_int_equal(diags.count, 0);
    assert_true(params.sparsity == 0.25);
    assert_int_equal(params.pattern.n, 2);
    assert_int_equal(params.pattern.m, 4);
    assert_int_equal(params.targets.count, 2);
    assert_string_equal(((const char *const *)params.targets.items)[1], "b");
    assert_int_equal(params.group_size, 64);
    assert_int_equal(params.budget, (uint64_t)48 << 30);
    assert_true(params.fast);
    assert_string_equal(params.note, "no");
    assert_int_equal(params.widths.count, 1);
    assert_int_equal(((const int64_t *)params.widths.items)[0], 8);
    assert_int_equal(values[0].origin, ESPL_ORIGIN_JOB);
    assert_int_equal(values[2].at.line, 3);
    assert_int_equal(values[2].at.column, 10);
}

static void test_canonical__equal_values_have_equal_texts(void **state)
{
    (void)state;
    static const char *const same[][4] = {
        {"sparsity", "1e-1", "0.1", "0.1"},
        {"sparsity", "0.10", "1.0E-1", "0.1"},
        {"sparsity", "-0.0", "0", "0"},
        {"sparsity", "1", "1.0", "1"},
        {"pattern", "\"2:4\"", "2:4", "2:4"},
        {"pattern", "none", "'none'", "none"},
        {"targets", "x", "[x]", "[\"x\"]"},
        {"targets", "[a, \"b\"]", "['a', b]", "[\"a\",\"b\"]"},
        {"group_size", "+128", "128", "128"},
        {"budget", "1 GiB", "1024MiB", "1073741824B"},
        {"patience", "45ms", "0.045s", "0.045s"},
        {"patience", "1min", "60 s", "60s"},
        {"note", "\"a b\"", "a b", "a b"},
        {"note", "~", "null", ""},
        {"fast", "true", "TRUE", "true"},
        {"widths", "[1, 2]", "[01, +2]", "[1,2]"},
        {"widths", "[]", "~", "[]"},
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        assert_string_equal(canonical(same[i][0], same[i][1]), same[i][3]);
        assert_string_equal(canonical(same[i][0], same[i][2]), same[i][3]);
    }
    /* List items cannot run into each other. */
    assert_string_equal(canonical("targets", "['a\",\"b', c]"), "[\"a\\\",\\\"b\",\"c\"]");
}

static void test_read__unknown_parameter(void **state)
{
    (void)state;
    expect_errors("patern: 2:4\n",
                  "job.yaml:1:1: error: unknown parameter 'patern' for stage 'prune' "
                  "(wanda-prune)\n"
                  "    1 | patern: 2:4\n"
                  "      | ^^^^^^\n"
                  "help: did you mean 'pattern'?  `espalier stages wanda-prune` lists all "
                  "parameters\n");
    expect_errors("colour: red\n",
                  "job.yaml:1:1: error: unknown parameter 'colour' for stage 'prune' "
                  "(wanda-prune)\n"
                  "    1 | colour: red\n"
                  "      | ^^^^^^\n"
                  "help: `espalier stages wanda-prune` lists all parameters\n");
}

static void test_read__wrong_types(void **state)
{
    (void)state;
    expect_errors("group_size: 128 channels\n",
                  "job.yaml:1:13: error: 'group_size' must be an integer from 16 to 1024, got text "
                  "'128 channels'\n"
                  "    1 | group_size: 128 channels\n"
                  "      |             ^^^^^^^^^^^^\n"
                  "help: write a plain number, for example 128\n");
    expect_errors("group_size: \"128\"\n",
                  "job.yaml:1:13: error: 'group_size' must be an integer from 16 to 1024, got text "
                  "'128'\n"
                  "    1 | group_size: \"128\"\n"
                  "      |             ^^^^^\n"
                  "help: write a plain number without quotes, for example 128\n");
    expect_errors("group_size: 8\n", "job.yaml:1:13: error: 'group_size' must be an integer from "
                                     "16 to 1024, got 8\n"
                                     "    1 | group_size: 8\n"
                                     "      |             ^\n");
    expect_errors("sparsity: 1.5\nfast: yes\n",
                  "job.yaml:1:11: error: 'sparsity' must be a number from 0 to 1, got 1.5\n"
                  "    1 | sparsity: 1.5\n"
                  "      |           ^^^\n"
                  "\n"
                  "job.yaml:2:7: error: 'fast' must be true or false, got text 'yes'\n"
                  "    2 | fast: yes\n"
                  "      |       ^^^\n"
                  "help: write true or false\n"
                  "\n"
                  "2 errors\n");
    expect_errors("pattern: 4:2\n", "job.yaml:1:10: error: 'pattern' must be an N:M pattern or "
                                    "none, got text '4:2'\n"
                                    "    1 | pattern: 4:2\n"
                                    "      |          ^^^\n"
                                    "help: write N weights kept of every M columns, 1 <= N <= M <= "
                                    "64, for example 2:4\n");
    expect_errors("budget: 5000\n",
                  "job.yaml:1:9: error: 'budget' must be a size with its unit, got 5000\n"
                  "    1 | budget: 5000\n"
                  "      |         ^^^^\n"
                  "help: write a number and B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, for example "
                  "5GB\n");
    expect_errors("patience: 45\n",
                  "job.yaml:1:11: error: 'patience' must be a duration with its unit from 1 ms to "
                  "1m00s, got 45\n"
                  "    1 | patience: 45\n"
                  "      |           ^^\n"
                  "help: write a number and us, ms, s, min or h, for example 45ms\n");
    expect_errors("note:\ngroup_size:\n",
                  "job.yaml:2:12: error: 'group_size' must be an integer from 16 to 1024, got "
                  "nothing\n"
                  "    2 | group_size:\n"
                  "      |            ^\n"
                  "help: write a plain number, for example 128\n");
    expect_errors("sparsity: [0.5]\n",
                  "job.yaml:1:11: error: 'sparsity' must be a number from 0 to 1, got a list\n"
                  "    1 | sparsity: [0.5]\n"
                  "      |           ^^^^^\n"
                  "help: write a plain number, for example 0.5\n");
    expect_errors("sparsity: .nan\n",
                  "job.yaml:1:11: error: 'sparsity' must be a number from 0 to 1, got text '.nan'\n"
                  "    1 | sparsity: .nan\n"
                  "      |           ^^^^\n"
                  "help: write a plain number, for example 0.5\n");
}

static void test_read__lists(void **state)
{
    (void)state;
    expect_errors("widths:\n  - 4\n  - 65\n  - x\n",
                  "job.yaml:3:5: error: each item of 'widths' must be an integer from 1 to 64, got "
                  "65\n"
                  "    3 |   - 65\n"
                  "      |     ^^\n"
                  "\n"
                  "job.yaml:4:5: error: each item of 'widths' must be an integer from 1 to 64, got "
                  "text 'x'\n"
                  "    4 |   - x\n"
                  "      |     ^\n"
                  "help: write a plain number, for example 1\n"
                  "\n"
                  "2 errors\n");
    expect_errors("targets: {a: b}\n",
                  "job.yaml:1:10: error: 'targets' must be a list of texts, got a mapping\n"
                  "    1 | targets: {a: b}\n"
                  "      |          ^^^^^^\n");
}

static void test_check__real_mistakes_are_found(void **state)
{
    (void)state;
    struct espl_error err = {0};
    assert_int_equal(espl_schema_check_stages(fake_stages, &err), ESPL_OK);
    struct wrong {
        struct espl_param row;
        const char *message;
    };
    static const char *const choices[] = {"a", NULL};
    const struct espl_param good = {
        .name = "x", .help = "h", .type = ESPL_PARAM_INT, .default_text = "1"};
    struct wrong wrongs[9];
    for (size_t i = 0; i < 9; i++) {
        wrongs[i].row = good;
    }
    wrongs[0].row.default_text = "one";
    wrongs[0].message = "stage 'bad', parameter 'x': bad default 'one'";
    wrongs[1].row.offset = 1;
    wrongs[1].message = "stage 'bad', parameter 'x': its field lies outside the parameter struct";
    wrongs[2].row.type = ESPL_PARAM_ENUM;
    wrongs[2].message = "stage 'bad', parameter 'x': an enum needs choices";
    wrongs[3].row.name = "X";
    wrongs[3].message = "stage 'bad', parameter 'X': its name is not snake_case";
    wrongs[4].row.min = 2;
    wrongs[4].row.max = 1;
    wrongs[4].message = "stage 'bad', parameter 'x': its limits make no sense";
    wrongs[5].row.min = 2;
    wrongs[5].row.max = 3;
    wrongs[5].message = "stage 'bad', parameter 'x': bad default '1'";
    wrongs[6].row.flags = ESPL_PARAM_OPTIONAL;
    wrongs[6].message = "stage 'bad', parameter 'x': an optional parameter has no default";
    wrongs[7].row.choices = choices;
    wrongs[7].message = "stage 'bad', parameter 'x': only an enum has choices";
    wrongs[8].row.help = NULL;
    wrongs[8].message = "stage 'bad', parameter 'x': it has no help";
    for (size_t i = 0; i < 9; i++) {
        const struct espl_param table[] = {wrongs[i].row, {0}};
        struct espl_stage stage = fake_tokens;
        stage.name = "bad";
        stage.params = table;
        stage.params_size = sizeof(int64_t);
        const struct espl_stage *const stages[] = {&stage, NULL};
        assert_int_equal(espl_schema_check_stages(stages, &err), ESPL_E_INTERNAL);
        assert_string_equal(err.message, wrongs[i].message);
    }
}

static void test_check__stages_and_ports(void **state)
{
    (void)state;
    struct espl_error err = {0};
    const struct espl_stage *const twice[] = {&fake_tokens, &fake_tokens, NULL};
    assert_int_equal(espl_schema_check_stages(twice, &err), ESPL_E_INTERNAL);
    assert_string_equal(err.message, "two stages 'tokens'");
    const struct espl_port unknown_kind[] = {{.name = "x", .kind = "model.dense/1|nothing/1"}, {0}};
    struct espl_stage stage = fake_tokens;
    const struct espl_stage *const stages[] = {&stage, NULL};
    stage.inputs = unknown_kind;
    assert_int_equal(espl_schema_check_stages(stages, &err), ESPL_E_INTERNAL);
    assert_string_equal(err.message,
                        "stage 'tokens', port 'x': unknown kind 'model.dense/1|nothing/1'");
    const struct espl_port two_kinds[] = {{.name = "x", .kind = "model.dense/1|tokens/1"}, {0}};
    stage = fake_tokens;
    stage.outputs = two_kinds; /* the stage says which when it runs */
    assert_int_equal(espl_schema_check_stages(stages, &err), ESPL_OK);
    stage.outputs = unknown_kind;
    assert_int_equal(espl_schema_check_stages(stages, &err), ESPL_E_INTERNAL);
    const struct espl_param shared[] = {
        {.name = "a", .help = "h", .type = ESPL_PARAM_INT, .default_text = "1", .offset = 0},
        {.name = "b", .help = "h", .type = ESPL_PARAM_BOOL, .default_text = "true", .offset = 4},
        {0}};
    stage = fake_tokens;
    stage.params = shared;
    assert_int_equal(espl_schema_check_stages(stages, &err), ESPL_E_INTERNAL);
    assert_string_equal(err.message, "stage 'tokens': parameters 'a' and 'b' share a field");
}

static void test_json__types(void **state)
{
    (void)state;
    read_params("{sparsity: 1, pattern: 2:4, widths: [1, 2], patience: 1s}");
    json_t *object = espl_schema_json(fake_prune.params, values);
    char *text = json_dumps(object, JSON_COMPACT);
    assert_string_equal(text,
                        "{\"sparsity\":1.0,\"pattern\":\"2:4\",\"targets\":[\"*\"],\"group_size\":"
                        "128,\"budget\":\"5000000000B\",\"patience\":\"1s\",\"note\":null,"
                        "\"fast\":false,\"widths\":[1,2]}");
    free(text);
    json_decref(object);
}

static void test_help__text(void **state)
{
    (void)state;
    struct espl_buf text;
    espl_buf_init(&text, 1 << 16);
    espl_schema_help(&fake_prune, &text);
    assert_string_equal(espl_buf_text(&text),
                        "wanda-prune: prunes weights\n"
                        "\n"
                        "inputs\n"
                        "  model       model.dense/1 or model.masked/1\n"
                        "              model to prune\n"
                        "  tokens      tokens/1\n"
                        "              calibration windows\n"
                        "\n"
                        "outputs\n"
                        "  model       model.masked/1\n"
                        "              the pruned model\n"
                        "\n"
                        "parameters\n"
                        "  sparsity    a number from 0 to 1, default 0.5\n"
                        "              share of weights that is removed\n"
                        "  pattern     an N:M pattern or none, default none\n"
                        "              N weights kept of every M\n"
                        "  targets     a list of texts, default [\"*\"]\n"
                        "              patterns of layers to prune\n"
                        "  group_size  an integer from 16 to 1024 (columns), default 128\n"
                        "              columns that share a scale\n"
                        "  budget      a size with its unit, default 5GB\n"
                        "              bytes the result may have\n"
                        "  patience    a duration with its unit from 1 ms to 1m00s, default 45ms\n"
                        "              longest time a layer may take\n"
                        "  note        a text, optional\n"
                        "              a remark\n"
                        "  fast        true or false, default false\n"
                        "              skip the check\n"
                        "  widths      a list of integers from 1 to 64, optional\n"
                        "              vector widths to try\n");
    espl_buf_free(&text);
}

static void test_job_schema__parts(void **state)
{
    (void)state;
    json_t *schema = espl_schema_job_schema(fake_stages);
    assert_string_equal(json_string_value(json_object_get(schema, "$schema")),
                        "https://json-schema.org/draft/2020-12/schema");
    const json_t *stage =
        json_object_get(json_object_get(json_object_get(schema, "properties"), "stages"), "items");
    const json_t *rules = json_object_get(stage, "allOf");
    assert_int_equal(json_array_size(rules), 6);
    const json_t *prune = json_array_get(rules, 2);
    char *condition = json_dumps(json_object_get(prune, "if"), JSON_COMPACT);
    assert_string_equal(condition, "{\"properties\":{\"use\":{\"const\":\"wanda-prune\"}},"
                                   "\"required\":[\"use\"]}");
    free(condition);
    const json_t *with =
        json_object_get(json_object_get(json_object_get(prune, "then"), "properties"), "with");
    assert_true(json_is_false(json_object_get(with, "additionalProperties")));
    char *group = json_dumps(json_object_get(json_object_get(with, "properties"), "group_size"),
                             JSON_COMPACT);
    assert_string_equal(group, "{\"type\":\"integer\",\"minimum\":16,\"maximum\":1024,"
                               "\"description\":\"columns that share a scale (columns)\","
                               "\"default\":128}");
    free(group);
    char *targets =
        json_dumps(json_object_get(json_object_get(with, "properties"), "targets"), JSON_COMPACT);
    assert_string_equal(targets, "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"items\":"
                                 "{\"type\":\"string\"}}],\"description\":\"patterns of layers to "
                                 "prune\",\"default\":[\"*\"]}");
    free(targets);
    json_decref(schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_read__defaults, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_read__values, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_canonical__equal_values_have_equal_texts, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_read__unknown_parameter, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_read__wrong_types, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_read__lists, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_check__real_mistakes_are_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_check__stages_and_ports, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_json__types, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_help__text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_job_schema__parts, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
