#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "prune_cases.h"

#include <string.h>

static const char *const all[] = {"*"};

struct espl_wanda_params prune_wanda_params(void)
{
    return (struct espl_wanda_params){
        .common = {.sparsity = 0.5, .layers = {.targets = {1, all}, .last_layer = -1}},
        .max_perplexity_ratio = 100.0};
}

struct prune_magnitude_params prune_magnitude_params(void)
{
    return (struct prune_magnitude_params){
        .common = {.sparsity = 0.5, .layers = {.targets = {1, all}, .last_layer = -1}}};
}

void prune_open_llama(struct prune_fixture *fixture, enum espl_dtype dtype, prune_edit_fn edit)
{
    const struct espl_model_config config = prune_llama_config();
    prune_open_case(fixture, &config, dtype, edit);
}

void prune_run_ok(struct prune_fixture *fixture, const struct espl_stage *stage, const void *params,
                  char key, char model, char tokens, struct prune_result *result)
{
    struct espl_error err;
    if (prune_run(fixture, stage, params, key, model, tokens, NULL, result, &err) != ESPL_OK) {
        fail_msg("%s [%s]", err.message, err.context);
    }
}

void prune_run_fails(struct prune_fixture *fixture, const struct espl_stage *stage,
                     const void *params, enum espl_status code, const char *part,
                     struct espl_error *err)
{
    const char tokens = stage == &espl_stage_wanda_prune ? 'b' : 0;
    assert_int_equal(prune_run(fixture, stage, params, 'c', 'a', tokens, NULL, NULL, err), code);
    if (strstr(err->message, part) == NULL) {
        fail_msg("'%s' does not contain '%s'", err->message, part);
    }
    char path[ESPL_PATH_MAX];
    prune_path(fixture, 'c', path);
    assert_false(espl_fs_exists(path));
}
