#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan_fixture.h"

#include "core/buf.h"

#include <string.h>

void plan_stages(struct planned *planned, const struct espl_stage *const *registry,
                 const struct espl_model_config *config, uint64_t windows, uint64_t tokens,
                 const char *stages)
{
    char model[ESPL_PATH_MAX], ids[ESPL_PATH_MAX];
    struct espl_buf text;
    struct espl_error err;
    const struct espl_plan_options options = {0};
    planned->job = NULL;
    planned->plan = NULL;
    prune_fixture_open(&planned->fixture);
    prune_make_model(&planned->fixture, 'a', config, ESPL_DTYPE_F32, NULL);
    prune_make_random_tokens(&planned->fixture, 'b', windows, tokens);
    prune_path(&planned->fixture, 'a', model);
    prune_path(&planned->fixture, 'b', ids);
    espl_buf_init(&text, 1 << 16);
    assert_true(espl_buf_printf(&text, "version: 1\nname: t\nstages:\n"));
    for (const char *at = stages; *at != '\0'; at++) {
        const char *path = *at == 'M' ? model : *at == 'T' ? ids : NULL;
        assert_true(path != NULL ? espl_buf_printf(&text, "{file: %s}", path)
                                 : espl_buf_add(&text, at, 1));
    }
    assert_int_equal(espl_diagnostics_init(&planned->diags, &err), ESPL_OK);
    if (espl_job_parse("job.yaml", espl_buf_text(&text), text.len, registry, NULL, 0,
                       &planned->diags, &planned->job, &err) == ESPL_OK) {
        (void)espl_plan_build(planned->job, &planned->fixture.store, &options, &planned->diags,
                              &planned->plan, &err); /* failures are in diags */
    }
    espl_buf_free(&text);
}

void plan_free(struct planned *planned)
{
    espl_plan_free(planned->plan);
    espl_job_free(planned->job);
    espl_diagnostics_free(&planned->diags);
    prune_fixture_close(&planned->fixture);
}

void plan_expect_clean(const struct planned *planned)
{
    if (planned->diags.count > 0) {
        fail_msg("%s", planned->diags.items[0].error.message);
    }
    assert_non_null(planned->plan);
}

void plan_expect_error(const struct planned *planned, size_t index, unsigned line,
                       const char *message, const char *hint)
{
    assert_true(index < planned->diags.count);
    assert_string_equal(planned->diags.items[index].error.message, message);
    assert_int_equal(planned->diags.items[index].error.at.line, line);
    if (strstr(planned->diags.items[index].error.hint, hint) == NULL) {
        fail_msg("'%s' does not contain '%s'", planned->diags.items[index].error.hint, hint);
    }
}

void plan_expect_refusal(const struct espl_stage *const *registry,
                         const struct espl_model_config *config, uint64_t windows, uint64_t tokens,
                         const char *stages, unsigned line, const char *message, const char *hint)
{
    struct planned planned;
    plan_stages(&planned, registry, config, windows, tokens, stages);
    assert_int_equal(planned.diags.count, 1);
    plan_expect_error(&planned, 0, line, message, hint);
    plan_free(&planned);
}
