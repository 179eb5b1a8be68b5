#include "engine/explain.h"

#include "engine_fakes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[ESPL_PATH_MAX];
static struct espl_store store;
static struct espl_job *job;
static struct espl_plan *plan;
static struct espl_explanation why;

static const char text[] = "version: 1\nname: t\nseed: 1\nstages:\n"
                           "  - {id: h, use: split}\n"
                           "  - {id: c, use: tokens}\n"
                           "  - id: p\n"
                           "    use: wanda-prune\n"
                           "    in: {model: h.left, tokens: c}\n"
                           "    with: {note: before, sparsity: 0.25}\n";

static int set_up(void **state)
{
    (void)state;
    char root[ESPL_PATH_MAX + 32];
    fakes_reset();
    fakes_make_folder(folder);
    (void)snprintf(root, sizeof root, "%s/results", folder);
    return espl_store_open(root, &store, NULL) == ESPL_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    espl_plan_free(plan);
    espl_job_free(job);
    fakes_remove_folder(folder);
    plan = NULL;
    job = NULL;
    return 0;
}

static void load(const char *job_text, const struct espl_override *overrides, size_t count)
{
    espl_plan_free(plan);
    espl_job_free(job);
    job = fakes_job(job_text, overrides, count);
    plan = fakes_plan(job, &store, NULL);
}

static void explain(const char *id)
{
    struct espl_error err = {0};
    const size_t index = (size_t)(fakes_find(plan, id) - plan->stages);
    assert_int_equal(espl_explain(plan, index, &store, &why, &err), ESPL_OK);
}

static void expect_difference(size_t index, const char *label, const char *before, const char *now)
{
    assert_true(index < why.difference_count);
    const struct espl_difference *difference = &why.differences[index];
    assert_string_equal(difference->label, label);
    if (before == NULL) {
        assert_null(difference->before);
    } else {
        assert_string_equal(difference->before, before);
    }
    if (now == NULL) {
        assert_null(difference->now);
    } else {
        assert_string_equal(difference->now, now);
    }
}

static void test_explain__no_previous_result(void **state)
{
    (void)state;
    load(text, NULL, 0);
    explain("p");
    assert_false(why.has_previous);
    assert_int_equal(why.difference_count, 0);
}

static void test_explain__nothing_changed(void **state)
{
    (void)state;
    load(text, NULL, 0);
    fakes_store_result(&store, plan, "p", "{}");
    explain("p");
    assert_true(why.has_previous);
    assert_string_equal(why.previous_key, fakes_find(plan, "p")->key);
    assert_int_equal(why.difference_count, 0);
    assert_int_equal(why.same_count, fakes_find(plan, "p")->field_count);
}

static void test_explain__every_kind_of_difference(void **state)
{
    (void)state;
    const struct espl_override overrides[] = {{.path = "p.sparsity", .value = "0.5"},
                                              {.path = "p.note", .value = "~"},
                                              {.path = "p.widths", .value = "[4]"},
                                              {.path = "seed", .value = "2"},
                                              {.path = "c.samples", .value = "3"}};
    char calib_before[ESPL_SHA256_HEX];
    char key_before[ESPL_SHA256_HEX];
    load(text, NULL, 0);
    fakes_store_result(&store, plan, "p", "{}");
    (void)snprintf(calib_before, sizeof calib_before, "%s", fakes_find(plan, "c")->key);
    (void)snprintf(key_before, sizeof key_before, "%s", fakes_find(plan, "p")->key);
    load(text, overrides, 5);
    explain("p");
    assert_true(why.has_previous);
    assert_string_equal(why.previous_key, key_before);
    assert_int_equal(why.difference_count, 5);
    expect_difference(0, "parameter sparsity", "0.25", "0.5");
    expect_difference(1, "parameter widths", NULL, "[4]");
    expect_difference(2, "seed", "1", "2");
    expect_difference(3, "input tokens", calib_before, fakes_find(plan, "c")->key);
    expect_difference(4, "parameter note", "before", NULL);
    /* stage, cache_version, budget, fast, group_size, patience, pattern, targets, input model */
    assert_int_equal(why.same_count, 9);
}

static void test_explain__two_outputs(void **state)
{
    (void)state;
    load(text, NULL, 0);
    fakes_store_result(&store, plan, "h", "{}");
    explain("h");
    assert_true(why.has_previous);
    assert_int_equal(why.difference_count, 0);
}

static void test_explain__a_link_to_a_deleted_result(void **state)
{
    (void)state;
    char path[ESPL_PATH_MAX];
    load(text, NULL, 0);
    fakes_store_result(&store, plan, "p", "{}");
    assert_int_equal(espl_store_artifact_path(&store, fakes_find(plan, "p")->key, NULL, path, NULL),
                     ESPL_OK);
    assert_int_equal(espl_fs_remove_tree(path, NULL), ESPL_OK);
    explain("p");
    assert_true(why.has_previous);
    assert_string_equal(why.previous_key, fakes_find(plan, "p")->key);
    assert_int_equal(why.difference_count, 0);
    assert_int_equal(why.same_count, 0);
}

static void test_explain__a_foreign_link_is_no_result(void **state)
{
    (void)state;
    char link[ESPL_PATH_MAX + 64];
    load(text, NULL, 0);
    (void)snprintf(link, sizeof link, "%s/by-name/t", store.root);
    assert_int_equal(espl_fs_make_dirs(link, NULL), ESPL_OK);
    (void)snprintf(link, sizeof link, "%s/by-name/t/p.h5", store.root);
    assert_int_equal(espl_fs_refresh_link("/somewhere/else.h5", link, NULL), ESPL_OK);
    explain("p");
    assert_false(why.has_previous);
}

static void test_explain__damaged_fields_are_an_error(void **state)
{
    (void)state;
    char path[ESPL_PATH_MAX];
    struct espl_artifact *artifact = NULL;
    struct espl_error err = {0};
    load(text, NULL, 0);
    fakes_store_result(&store, plan, "p", "{}");
    assert_int_equal(espl_store_artifact_path(&store, fakes_find(plan, "p")->key, NULL, path, NULL),
                     ESPL_OK);
    assert_int_equal(espl_fs_remove_tree(path, NULL), ESPL_OK);
    assert_int_equal(espl_artifact_create(path, "model.masked/1", &artifact, &err), ESPL_OK);
    assert_int_equal(espl_artifact_set_provenance(artifact, "hash_fields", "[[\"stage\"]]", &err),
                     ESPL_OK);
    assert_int_equal(espl_artifact_finish(&artifact, NULL, &err), ESPL_OK);
    const size_t index = (size_t)(fakes_find(plan, "p") - plan->stages);
    assert_int_equal(espl_explain(plan, index, &store, &why, &err), ESPL_E_CORRUPT);
}

int main(void)
{
    espl_artifact_library_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_explain__no_previous_result, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_explain__nothing_changed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_explain__every_kind_of_difference, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_explain__two_outputs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_explain__a_link_to_a_deleted_result, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_explain__a_foreign_link_is_no_result, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_explain__damaged_fields_are_an_error, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
