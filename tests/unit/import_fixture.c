#include "unit/import_fixture.h"

#include "stages/import/import_checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void keep_line(void *user, enum espl_log_level level, const char *line)
{
    struct fixture_log *lines = user;
    const size_t len = strlen(lines->text);
    (void)level;
    (void)snprintf(lines->text + len, sizeof lines->text - len, "%s\n", line);
}

enum espl_status fixture_import(struct fixture *f, const char *name, enum espl_import_dtype dtype,
                                enum espl_import_storage storage, struct fixture_log *lines,
                                char content[ESPL_SHA256_HEX])
{
    struct espl_import_checkpoint *checkpoint = NULL;
    struct espl_import_choice choice;
    struct espl_artifact *artifact = NULL;
    char path[ESPL_PATH_MAX];
    const struct espl_log log = {keep_line, lines, ESPL_LOG_DEBUG};
    const struct espl_import_hooks hooks = {.log = lines != NULL ? &log : NULL};

    espl_error_clear(&f->err);
    enum espl_status status = espl_import_checkpoint_open(f->folder, NULL, &checkpoint, &f->err);
    if (status == ESPL_OK) {
        status = espl_import_choose(checkpoint, dtype, storage, &choice, &f->err);
    }
    if (status == ESPL_OK) {
        fixture_join(path, f->dir, name);
        assert_int_equal(espl_artifact_create(path, "model.dense/1", &artifact, &f->err), ESPL_OK);
        status = espl_import_transfer(checkpoint, &choice, artifact, &hooks, &f->err);
        if (status == ESPL_OK) {
            assert_int_equal(espl_artifact_finish(&artifact, content, &f->err), ESPL_OK);
        } else {
            espl_artifact_abandon(artifact);
        }
    }
    espl_import_checkpoint_close(checkpoint);
    return status;
}

void fixture_import_fails(struct fixture *f, enum espl_status status, const char *message,
                          const char *hint)
{
    struct espl_import_checkpoint *checkpoint = NULL;
    espl_error_clear(&f->err);
    const enum espl_status got = espl_import_checkpoint_open(f->folder, NULL, &checkpoint, &f->err);
    espl_import_checkpoint_close(checkpoint);
    assert_int_equal(got, status);
    if (strstr(f->err.message, message) == NULL) {
        fail_msg("message '%s' does not say '%s'", f->err.message, message);
    }
    if (strstr(f->err.hint, hint) == NULL) {
        fail_msg("hint '%s' does not say '%s'", f->err.hint, hint);
    }
}

void fixture_check_import(const struct fixture *f, const char *name,
                          const struct espl_model_config *config, enum espl_dtype dtype)
{
    struct espl_error err = {0};
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    char path[ESPL_PATH_MAX];
    fixture_join(path, f->dir, name);
    assert_int_equal(espl_artifact_open(path, &artifact, &err), ESPL_OK);
    if (espl_model_open(artifact, NULL, &model, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    assert_string_equal(espl_model_get_config(model)->dtype, espl_dtype_name(dtype));
    assert_int_equal(espl_model_get_config(model)->ffn, config->ffn);
    for (size_t i = 0; i < espl_model_tensor_count(model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, i);
        const size_t count = (size_t)(spec->shape[0] * spec->shape[1]);
        float *values = malloc(count * sizeof *values);
        assert_int_equal(espl_model_dtype(model, spec), dtype);
        assert_int_equal(espl_model_read_f32(model, spec, 0, spec->shape[0], values, &err),
                         ESPL_OK);
        for (size_t j = 0; j < count; j++) {
            if (values[j] != fixture_value(i, j)) {
                fail_msg("%s[%zu] = %g", spec->name, j, (double)values[j]);
            }
        }
        free(values);
    }
    espl_model_close(model);
    espl_artifact_close(artifact);
}
