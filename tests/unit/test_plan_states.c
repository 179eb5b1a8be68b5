/* What the planner finds in the store: cached, resume, run with its reason, files. */
#include "engine/plan.h"

#include "engine_fakes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[ESPL_PATH_MAX];
static char weights[ESPL_PATH_MAX + 32];
static struct espl_store store;
static struct espl_job *job;
static struct espl_plan *plan;

/* A chain whose import and tokens have results, and an export. */
static void load(const struct espl_override *overrides, size_t count)
{
    char text[8192];
    (void)snprintf(text, sizeof text,
                   "version: 1\nname: chain\nseed: 42\nstages:\n"
                   "  - {id: dense, use: import, with: {checkpoint: %s}}\n"
                   "  - {id: calib, use: tokens, with: {samples: 8}}\n"
                   "  - {id: prune, use: wanda-prune, in: {model: dense, tokens: calib}}\n"
                   "  - {id: eval, use: evaluate, in: {model: prune, tokens: calib}}\n"
                   "  - {id: out, use: export, in: prune, with: {folder: o}}\n",
                   weights);
    job = fakes_job(text, overrides, count);
}

static void unload(void)
{
    espl_plan_free(plan);
    espl_job_free(job);
    plan = NULL;
    job = NULL;
}

static int set_up(void **state)
{
    (void)state;
    char root[ESPL_PATH_MAX + 32];
    fakes_reset();
    fakes_make_folder(folder);
    (void)snprintf(weights, sizeof weights, "%s/weights.bin", folder);
    (void)snprintf(root, sizeof root, "%s/results", folder);
    fakes_write(weights, "weights!\n");
    return espl_store_open(root, &store, NULL) == ESPL_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    unload();
    fakes_remove_folder(folder);
    return 0;
}

static void expect_state(const char *id, enum espl_plan_state state, const char *why)
{
    const struct espl_plan_stage *stage = fakes_find(plan, id);
    assert_string_equal(stage->why, why);
    assert_string_equal(espl_plan_state_name(stage->state), espl_plan_state_name(state));
}

static void expect_cached(const char *id)
{
    char why[16];
    (void)snprintf(why, sizeof why, "key %.8s", fakes_find(plan, id)->key);
    expect_state(id, ESPL_PLAN_CACHED, why);
}

/* Plans the job, stores a result for every stage, and forgets the plan. */
static void store_all(void)
{
    static const char *const ids[] = {"dense", "calib", "prune", "eval", "out"};
    load(NULL, 0);
    plan = fakes_plan(job, &store, NULL);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        fakes_store_result(&store, plan, ids[i], "{\"layers\":5}");
    }
    unload();
}

static void test_states__everything_is_cached(void **state)
{
    (void)state;
    store_all();
    load(NULL, 0);
    plan = fakes_plan(job, &store, NULL);
    expect_cached("dense");
    expect_cached("calib");
    expect_cached("prune");
    expect_cached("eval");
    expect_cached("out");
    assert_true(fakes_find(plan, "dense")->has_result);
    assert_int_equal(plan->disk_bytes_needed, 0);
    /* Descriptions of stored results count, not predictions (fake_import predicts 2 layers). */
    assert_string_equal(fakes_find(plan, "prune")->estimate.note, "5 layers");
}

static void test_states__never_run(void **state)
{
    (void)state;
    load(NULL, 0);
    plan = fakes_plan(job, &store, NULL);
    expect_state("dense", ESPL_PLAN_RUN, "never run");
    expect_state("eval", ESPL_PLAN_RUN, "never run");
}

static void test_states__a_changed_parameter_and_what_follows(void **state)
{
    (void)state;
    const struct espl_override override = {.path = "prune.sparsity", .value = "0.6"};
    store_all();
    load(&override, 1);
    plan = fakes_plan(job, &store, NULL);
    expect_cached("dense");
    expect_state("prune", ESPL_PLAN_RUN, "sparsity 0.5 -> 0.6 (--set)");
    expect_state("eval", ESPL_PLAN_RUN, "input 'prune' will change");
    expect_state("out", ESPL_PLAN_RUN, "input 'prune' will change");
}

static void test_states__several_changes(void **state)
{
    (void)state;
    const struct espl_override overrides[] = {{.path = "prune.sparsity", .value = "0.6"},
                                              {.path = "prune.note", .value = "x"},
                                              {.path = "seed", .value = "43"}};
    store_all();
    load(overrides, 3);
    plan = fakes_plan(job, &store, NULL);
    expect_state("prune", ESPL_PLAN_RUN, "note none -> x (--set), and 2 more");
}

static void test_states__a_changed_file(void **state)
{
    (void)state;
    store_all();
    fakes_write(weights, "other weights\n");
    load(NULL, 0);
    plan = fakes_plan(job, &store, NULL);
    expect_state("dense", ESPL_PLAN_RUN, "file 'weights 0' changed");
    expect_state("prune", ESPL_PLAN_RUN, "input 'dense' will change");
}

static void test_states__a_deleted_result(void **state)
{
    (void)state;
    char path[ESPL_PATH_MAX];
    store_all();
    load(NULL, 0);
    plan = fakes_plan(job, &store, NULL);
    assert_int_equal(
        espl_store_artifact_path(&store, fakes_find(plan, "prune")->key, NULL, path, NULL),
        ESPL_OK);
    assert_int_equal(espl_fs_remove_tree(path, NULL), ESPL_OK);
    unload();
    load(NULL, 0);
    plan = fakes_plan(job, &store, NULL);
    expect_state("prune", ESPL_PLAN_RUN, "its result was deleted");
    /* What was made from it is still there and still right. */
    expect_cached("eval");
    unload();
    const struct espl_override override = {.path = "prune.sparsity", .value = "0.6"};
    load(&override, 1);
    plan = fakes_plan(job, &store, NULL);
    expect_state("prune", ESPL_PLAN_RUN, "it changed since its last result, which was deleted");
}

static void test_states__forced_and_measured_again(void **state)
{
    (void)state;
    static const char *const force[] = {"prune"};
    const struct espl_plan_options options = {.force = force, .force_count = 1, .remeasure = true};
    store_all();
    load(NULL, 0);
    plan = fakes_plan(job, &store, &options);
    expect_cached("dense");
    expect_state("prune", ESPL_PLAN_RUN, "forced");
    expect_state("eval", ESPL_PLAN_RUN, "measured again (--remeasure)");
    expect_cached("out");
}

static void test_states__what_lies_outside_the_store_is_gone(void **state)
{
    (void)state;
    store_all();
    fake_settings.export_is_stale = true;
    load(NULL, 0);
    plan = fakes_plan(job, &store, NULL);
    expect_state("out", ESPL_PLAN_RUN, "the exported folder is gone");
    expect_cached("prune");
}

/* A warning when another recipe's files are in the way, none when they are its own. */
static void test_states__what_will_be_replaced_is_told(void **state)
{
    (void)state;
    const struct espl_override override = {.path = "prune.sparsity", .value = "0.25"};
    store_all();
    fake_settings.folder_is_taken = true;
    load(NULL, 0);
    plan = fakes_plan(job, &store, NULL);
    expect_cached("out");
    assert_string_equal(fakes_find(plan, "out")->warnings, "");
    unload();
    load(&override, 1);
    plan = fakes_plan(job, &store, NULL);
    assert_string_equal(fakes_find(plan, "out")->warnings,
                        "folder 'o' is taken, which this run replaces");
    unload();
    const char *const force = "out"; /* its own files are made again */
    const struct espl_plan_options options = {.force = &force, .force_count = 1};
    load(NULL, 0);
    plan = fakes_plan(job, &store, &options);
    expect_state("out", ESPL_PLAN_RUN, "forced");
    assert_string_equal(fakes_find(plan, "out")->warnings, "");
    unload();
    fake_settings.export_is_stale = true; /* another recipe's took their place */
    load(NULL, 0);
    plan = fakes_plan(job, &store, NULL);
    assert_string_equal(fakes_find(plan, "out")->warnings,
                        "folder 'o' is taken, which this run replaces");
}

/* What --until leaves out cannot keep the rest from running, nor what needs it. */
static void test_states__until_ignores_what_it_leaves_out(void **state)
{
    (void)state;
    const struct espl_plan_options options = {.until = "calib"};
    fake_settings.fail_blame = "param:sparsity"; /* of prune */
    load(NULL, 0);
    plan = fakes_plan(job, &store, &options);
    expect_state("calib", ESPL_PLAN_RUN, "never run");
    expect_state("prune", ESPL_PLAN_SKIPPED, "left out by --until");
    expect_state("eval", ESPL_PLAN_SKIPPED, "left out by --until");
    assert_false(fakes_find(plan, "prune")->key_known);
    assert_false(fakes_find(plan, "eval")->key_known); /* a key of an unknown input is none */
}

static void test_states__from_uses_stored_results(void **state)
{
    (void)state;
    const struct espl_plan_options options = {.from = "eval"};
    const struct espl_override override = {.path = "calib.samples", .value = "8"};
    char path[ESPL_PATH_MAX];
    store_all();
    load(&override, 1);
    plan = fakes_plan(job, &store, NULL);
    assert_int_equal(
        espl_store_artifact_path(&store, fakes_find(plan, "eval")->key, NULL, path, NULL), ESPL_OK);
    assert_int_equal(espl_fs_remove_tree(path, NULL), ESPL_OK);
    espl_plan_free(plan);
    plan = fakes_plan(job, &store, &options);
    expect_state("prune", ESPL_PLAN_SKIPPED, "left out by --from");
    assert_true(fakes_find(plan, "prune")->has_result);
    expect_state("eval", ESPL_PLAN_RUN, "its result was deleted");
    expect_state("out", ESPL_PLAN_SKIPPED, "left out by --from");
}

/* Publishes a resume unit of a stage the way a stage process does. */
static void store_unit(const char *key, unsigned index)
{
    char units[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX + 64];
    struct espl_artifact *unit = NULL;
    assert_int_equal(espl_store_units_dir(&store, key, true, units, NULL), ESPL_OK);
    (void)snprintf(path, sizeof path, "%s/unit-%06u.h5", units, index);
    assert_int_equal(espl_artifact_create(path, "unit/1", &unit, NULL), ESPL_OK);
    assert_int_equal(espl_artifact_finish(&unit, NULL, NULL), ESPL_OK);
}

static void test_states__resume(void **state)
{
    (void)state;
    fake_settings.units = 4;
    load(NULL, 0);
    plan = fakes_plan(job, &store, NULL);
    for (unsigned i = 0; i < 3; i++) {
        store_unit(fakes_find(plan, "prune")->key, i);
    }
    /* export cannot resume: its leavings mean nothing */
    store_unit(fakes_find(plan, "out")->key, 0);
    espl_plan_free(plan);
    plan = fakes_plan(job, &store, NULL);
    expect_state("prune", ESPL_PLAN_RESUME, "3 of 4 units are kept");
    assert_int_equal(fakes_find(plan, "prune")->units_done, 3);
    expect_state("out", ESPL_PLAN_RUN, "never run");
    /* --force starts from nothing. */
    static const char *const force[] = {"prune"};
    const struct espl_plan_options options = {.force = force, .force_count = 1};
    espl_plan_free(plan);
    plan = fakes_plan(job, &store, &options);
    expect_state("prune", ESPL_PLAN_RUN, "forced");
    assert_int_equal(fakes_find(plan, "prune")->units_done, 0);
}

/* Replaces the stored result of 'calib' by `text`. */
static void damage_calib(const char *text, char path[ESPL_PATH_MAX])
{
    store_all();
    load(NULL, 0);
    plan = fakes_plan(job, &store, NULL);
    assert_int_equal(
        espl_store_artifact_path(&store, fakes_find(plan, "calib")->key, NULL, path, NULL),
        ESPL_OK);
    assert_int_equal(espl_fs_remove_tree(path, NULL), ESPL_OK);
    fakes_write(path, text);
    espl_plan_free(plan);
    plan = NULL;
}

static void test_states__a_damaged_result_is_made_again(void **state)
{
    static const char *const texts[] = {"\211HDF\r\n\032\nhalf a file", "no HDF5 file", ""};
    char path[ESPL_PATH_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        damage_calib(texts[i], path);
        plan = fakes_plan(job, &store, NULL);
        expect_state("calib", ESPL_PLAN_RUN, "stored result is damaged: it will be made again");
        expect_cached("prune");
        assert_false(fakes_find(plan, "calib")->has_result);
        assert_non_null(strstr(fakes_find(plan, "calib")->warnings, path));
        espl_plan_free(plan);
        espl_job_free(job);
        plan = NULL;
        job = NULL;
    }
}

/* Left out by --from, it is as if there were none. */
static void test_states__a_damaged_result_cannot_be_left_out(void **state)
{
    const struct espl_plan_options options = {
        .from = "prune", .force = (const char *[]){"prune"}, .force_count = 1};
    struct espl_diagnostics diags;
    struct espl_error err = {0};
    char path[ESPL_PATH_MAX];
    (void)state;
    damage_calib("no HDF5 file", path);
    assert_int_equal(espl_diagnostics_init(&diags, &err), ESPL_OK);
    assert_int_equal(espl_plan_build(job, &store, &options, &diags, &plan, &err), ESPL_E_USAGE);
    assert_string_equal(fakes_find(plan, "calib")->warnings +
                            strlen(fakes_find(plan, "calib")->warnings) -
                            strlen("not an HDF5 file"),
                        "not an HDF5 file");
    expect_state("prune", ESPL_PLAN_BLOCKED, "input 'calib' has no result and is left out");
    espl_diagnostics_free(&diags);
}

static void test_states__two_outputs(void **state)
{
    (void)state;
    char path[ESPL_PATH_MAX];
    job = fakes_job("version: 1\nname: t\nstages:\n  - {id: h, use: split}\n", NULL, 0);
    plan = fakes_plan(job, &store, NULL);
    fakes_store_result(&store, plan, "h", "{}");
    espl_plan_free(plan);
    plan = fakes_plan(job, &store, NULL);
    expect_cached("h");
    assert_int_equal(espl_store_artifact_path(&store, plan->stages[0].key, "words", path, NULL),
                     ESPL_OK);
    assert_int_equal(espl_fs_remove_tree(path, NULL), ESPL_OK);
    espl_plan_free(plan);
    plan = fakes_plan(job, &store, NULL);
    expect_state("h", ESPL_PLAN_RUN, "its result was deleted");
}

static void test_files__content_enters_the_key(void **state)
{
    (void)state;
    char path[ESPL_PATH_MAX];
    char copy[ESPL_PATH_MAX + 32];
    char text[4 * ESPL_PATH_MAX];
    char *data = NULL;
    size_t len = 0;
    struct espl_artifact *artifact = NULL;
    store_all();
    load(NULL, 0);
    plan = fakes_plan(job, &store, NULL);
    assert_int_equal(
        espl_store_artifact_path(&store, fakes_find(plan, "dense")->key, NULL, path, NULL),
        ESPL_OK);
    unload();
    (void)snprintf(copy, sizeof copy, "%s/elsewhere.h5", folder);
    assert_int_equal(espl_fs_read_file(path, 1 << 20, &data, &len, NULL), ESPL_OK);
    assert_int_equal(espl_fs_write_file(copy, data, len, NULL), ESPL_OK);
    free(data);
    assert_int_equal(espl_artifact_open(copy, &artifact, NULL), ESPL_OK);
    (void)snprintf(text, sizeof text,
                   "version: 1\nname: t\nstages:\n"
                   "  - {id: c, use: tokens}\n"
                   "  - {id: a, use: wanda-prune, in: {model: {file: %s}, tokens: c}}\n"
                   "  - {id: b, use: wanda-prune, in: {model: {file: %s}, tokens: c}}\n",
                   copy, path);
    job = fakes_job(text, NULL, 0);
    plan = fakes_plan(job, &store, NULL);
    assert_string_equal(fakes_find(plan, "a")->key, fakes_find(plan, "b")->key);
    char expected[96];
    (void)snprintf(expected, sizeof expected, "content %s", espl_artifact_content_sha256(artifact));
    espl_artifact_close(artifact);
    const struct espl_plan_stage *a = fakes_find(plan, "a");
    assert_string_equal(a->fields[a->field_count - 2].label, "input model");
    assert_string_equal(a->fields[a->field_count - 2].value, expected);
    assert_string_equal(a->estimate.note, "5 layers");
    assert_string_equal(a->inputs[0].kind, "model.dense/1");
}

static void test_files__errors(void **state)
{
    (void)state;
    char path[ESPL_PATH_MAX];
    char link[ESPL_PATH_MAX + 32];
    char text[2 * ESPL_PATH_MAX];
    char expected[4 * ESPL_PATH_MAX];
    store_all();
    load(NULL, 0);
    plan = fakes_plan(job, &store, NULL);
    assert_int_equal(
        espl_store_artifact_path(&store, fakes_find(plan, "calib")->key, NULL, path, NULL),
        ESPL_OK);
    unload();
    (void)snprintf(link, sizeof link, "%s/t.h5", folder);
    assert_int_equal(espl_fs_refresh_link(path, link, NULL), ESPL_OK);
    (void)snprintf(text, sizeof text,
                   "version: 1\nname: t\nstages:\n"
                   "  - id: a\n"
                   "    use: export\n"
                   "    in: {file: nothing.h5}\n"
                   "    with: {folder: o}\n"
                   "  - id: b\n"
                   "    use: export\n"
                   "    in: {model: {file: %s}}\n"
                   "    with: {folder: o}\n",
                   link);
    job = fakes_job(text, NULL, 0);
    char carets[ESPL_PATH_MAX] = "";
    memset(carets, '^', strlen(link));
    carets[strlen(link)] = '\0';
    (void)snprintf(expected, sizeof expected,
                   "job.yaml:6:16: error: cannot find artifact 'nothing.h5'\n"
                   "    6 |     in: {file: nothing.h5}\n"
                   "      |                ^^^^^^^^^^\n"
                   "help: the path is relative to the current folder\n"
                   "\n"
                   "job.yaml:10:24: error: input 'model' of 'b' needs kind model.dense/1 or "
                   "model.masked/1, but '%s' holds tokens/1\n"
                   "   10 |     in: {model: {file: %s}}\n"
                   "      |                        %s\n"
                   "help: these stages make model.dense/1 or model.masked/1: import, wanda-prune, "
                   "split\n"
                   "\n"
                   "2 errors\n",
                   link, link, carets);
    plan = fakes_plan_errors(job, &store, NULL, expected);
    assert_non_null(plan);
    expect_state("a", ESPL_PLAN_BLOCKED, "input 'model': cannot find artifact 'nothing.h5'");
    expect_state("b", ESPL_PLAN_BLOCKED, "input 'model' is of kind tokens/1");
}

int main(void)
{
    espl_artifact_library_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_states__everything_is_cached, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_states__never_run, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_states__a_changed_parameter_and_what_follows, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_states__several_changes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_states__a_changed_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_states__a_deleted_result, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_states__forced_and_measured_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_states__what_lies_outside_the_store_is_gone, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_states__what_will_be_replaced_is_told, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_states__until_ignores_what_it_leaves_out, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_states__from_uses_stored_results, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_states__resume, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_states__a_damaged_result_is_made_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_states__a_damaged_result_cannot_be_left_out, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_states__two_outputs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_files__content_enters_the_key, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_files__errors, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
