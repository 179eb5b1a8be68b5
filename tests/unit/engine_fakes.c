#include "engine_fakes.h"

#include "support/temp_folder.h"

#include "artifact/kinds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fake_settings fake_settings;

void fakes_reset(void)
{
    fake_settings = (struct fake_settings){0};
}

static enum espl_status fake_run(struct espl_stage_ctx *ctx, const void *params,
                                 struct espl_error *err)
{
    (void)ctx;
    (void)params;
    return espl_fail(err, ESPL_E_INTERNAL, "fake stages do not run");
}

/* ---- import ---- */

static const char *const arch_choices[] = {"auto", "llama", "opt", NULL};
static const char *const dtype_choices[] = {"keep", "f16", "f32", NULL};
static const char *const storage_choices[] = {"auto", "copy", "reference", NULL};

static const struct espl_param import_table[] = {
    {.name = "checkpoint",
     .help = "folder with the checkpoint",
     .type = ESPL_PARAM_PATH,
     .flags = ESPL_PARAM_INPUT_PATH,
     .offset = offsetof(struct fake_import_params, checkpoint)},
    {.name = "arch",
     .help = "architecture",
     .type = ESPL_PARAM_ENUM,
     .default_text = "auto",
     .choices = arch_choices,
     .offset = offsetof(struct fake_import_params, arch)},
    {.name = "dtype",
     .help = "element type of stored weights",
     .type = ESPL_PARAM_ENUM,
     .default_text = "keep",
     .choices = dtype_choices,
     .offset = offsetof(struct fake_import_params, dtype)},
    {.name = "storage",
     .help = "where weights are stored",
     .type = ESPL_PARAM_ENUM,
     .flags = ESPL_PARAM_NO_HASH,
     .default_text = "auto",
     .choices = storage_choices,
     .offset = offsetof(struct fake_import_params, storage)},
    {0},
};

static enum espl_status import_plan(struct espl_plan_ctx *ctx, const void *params,
                                    struct espl_estimate *est, struct espl_error *err)
{
    const struct fake_import_params *import = params;
    (void)est;
    const enum espl_status status = espl_plan_add_file(ctx, "weights", import->checkpoint, err);
    if (status != ESPL_OK) {
        (void)espl_fail(err, status, "cannot find checkpoint '%s'", import->checkpoint);
        return espl_blame(err, "param:checkpoint");
    }
    espl_plan_set_output(ctx, "model", json_pack("{s:i}", "layers", 2));
    return ESPL_OK;
}

static const struct espl_port no_ports[] = {{0}};
static const struct espl_port dense_output[] = {
    {.name = "model", .kind = "model.dense/1", .help = "the model"}, {0}};

const struct espl_stage fake_import = {.name = "import",
                                       .summary = "reads a checkpoint",
                                       .cache_version = 1,
                                       .params = import_table,
                                       .params_size = sizeof(struct fake_import_params),
                                       .inputs = no_ports,
                                       .outputs = dense_output,
                                       .plan = import_plan,
                                       .run = fake_run};

/* ---- tokens ---- */

struct fake_tokens_params {
    int64_t samples;
    int64_t sequence_length;
};

static const struct espl_param tokens_table[] = {
    {.name = "samples",
     .help = "windows to draw",
     .unit = "windows",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .min = 0,
     .max = 1e16,
     .offset = offsetof(struct fake_tokens_params, samples)},
    {.name = "sequence_length",
     .help = "tokens of a window",
     .unit = "tokens",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .offset = offsetof(struct fake_tokens_params, sequence_length)},
    {0},
};

static const struct espl_port tokens_output[] = {
    {.name = "tokens", .kind = "tokens/1", .help = "the tokens"}, {0}};

const struct espl_stage fake_tokens = {.name = "tokens",
                                       .summary = "reads a text",
                                       .cache_version = 3,
                                       .params = tokens_table,
                                       .params_size = sizeof(struct fake_tokens_params),
                                       .inputs = no_ports,
                                       .outputs = tokens_output,
                                       .run = fake_run};

/* ---- prune ---- */

static const struct espl_param prune_table[] = {
    {.name = "sparsity",
     .help = "share of weights that is removed",
     .type = ESPL_PARAM_REAL,
     .default_text = "0.5",
     .min = 0,
     .max = 1,
     .offset = offsetof(struct fake_prune_params, sparsity)},
    {.name = "pattern",
     .help = "N weights kept of every M",
     .type = ESPL_PARAM_NM,
     .flags = ESPL_PARAM_NULLABLE_NM,
     .default_text = "none",
     .offset = offsetof(struct fake_prune_params, pattern)},
    {.name = "targets",
     .help = "patterns of layers to prune",
     .type = ESPL_PARAM_STRING,
     .flags = ESPL_PARAM_LIST,
     .default_text = "[\"*\"]",
     .offset = offsetof(struct fake_prune_params, targets)},
    {.name = "group_size",
     .help = "columns that share a scale",
     .unit = "columns",
     .type = ESPL_PARAM_INT,
     .default_text = "128",
     .min = 16,
     .max = 1024,
     .offset = offsetof(struct fake_prune_params, group_size)},
    {.name = "budget",
     .help = "bytes the result may have",
     .type = ESPL_PARAM_SIZE,
     .default_text = "5GB",
     .offset = offsetof(struct fake_prune_params, budget)},
    {.name = "patience",
     .help = "longest time a layer may take",
     .type = ESPL_PARAM_DURATION,
     .default_text = "45ms",
     .min = 0.001,
     .max = 60,
     .offset = offsetof(struct fake_prune_params, patience)},
    {.name = "note",
     .help = "a remark",
     .type = ESPL_PARAM_STRING,
     .flags = ESPL_PARAM_OPTIONAL,
     .offset = offsetof(struct fake_prune_params, note)},
    {.name = "fast",
     .help = "skip the check",
     .type = ESPL_PARAM_BOOL,
     .default_text = "false",
     .offset = offsetof(struct fake_prune_params, fast)},
    {.name = "widths",
     .help = "vector widths to try",
     .type = ESPL_PARAM_INT,
     .flags = ESPL_PARAM_LIST | ESPL_PARAM_OPTIONAL,
     .min = 1,
     .max = 64,
     .offset = offsetof(struct fake_prune_params, widths)},
    {0},
};

static enum espl_status prune_plan(struct espl_plan_ctx *ctx, const void *params,
                                   struct espl_estimate *est, struct espl_error *err)
{
    (void)params;
    if (fake_settings.fail_blame != NULL) {
        (void)espl_fail(err, ESPL_E_JOB, "pattern 'layers.*' matches no layer");
        return espl_blame(err, fake_settings.fail_blame);
    }
    est->host_bytes = fake_settings.host_bytes;
    est->scratch_bytes = fake_settings.scratch_bytes;
    est->output_bytes = fake_settings.output_bytes;
    est->units = fake_settings.units;
    const json_t *layers = json_object_get(espl_plan_input(ctx, "model"), "layers");
    (void)snprintf(est->note, sizeof est->note, "%d layers", (int)json_integer_value(layers));
    espl_plan_warn(ctx, "slow on this machine");
    return ESPL_OK;
}

static const struct espl_port prune_inputs[] = {
    {.name = "model", .kind = "model.dense/1|model.masked/1", .help = "model to prune"},
    {.name = "tokens", .kind = "tokens/1", .help = "calibration windows"},
    {0},
};
static const struct espl_port masked_output[] = {
    {.name = "model", .kind = "model.masked/1", .help = "the pruned model"}, {0}};

const struct espl_stage fake_prune = {.name = "wanda-prune",
                                      .summary = "prunes weights",
                                      .cache_version = 2,
                                      .flags = ESPL_STAGE_RESUMABLE | ESPL_STAGE_SEEDED,
                                      .params = prune_table,
                                      .params_size = sizeof(struct fake_prune_params),
                                      .inputs = prune_inputs,
                                      .outputs = masked_output,
                                      .plan = prune_plan,
                                      .run = fake_run};

/* ---- evaluate, export, split ---- */

struct fake_no_params {
    int64_t unused;
};

static const struct espl_param no_table[] = {{0}};

static const struct espl_port evaluate_inputs[] = {
    {.name = "model", .kind = "model.dense/1|model.masked/1", .help = "model to measure"},
    {.name = "tokens", .kind = "tokens/1", .help = "text"},
    {.name = "base",
     .kind = "model.dense/1",
     .flags = ESPL_PORT_OPTIONAL,
     .help = "model to compare with"},
    {0},
};
static const struct espl_port metrics_output[] = {
    {.name = "metrics", .kind = "metrics/1", .help = "figures"}, {0}};

const struct espl_stage fake_evaluate = {.name = "evaluate",
                                         .summary = "measures a model",
                                         .cache_version = 1,
                                         .flags = ESPL_STAGE_MEASURES,
                                         .params = no_table,
                                         .params_size = sizeof(struct fake_no_params),
                                         .inputs = evaluate_inputs,
                                         .outputs = metrics_output,
                                         .run = fake_run};

struct fake_export_params {
    const char *folder;
};

static const struct espl_param export_table[] = {
    {.name = "folder",
     .help = "where the files go",
     .type = ESPL_PARAM_PATH,
     .offset = offsetof(struct fake_export_params, folder)},
    {0},
};

static enum espl_status export_still_valid(const struct espl_store *store, bool rehash,
                                           struct espl_artifact *cached, const void *params,
                                           bool *valid, char stale[160], struct espl_error *err)
{
    (void)rehash;
    (void)store;
    (void)cached;
    (void)params;
    (void)err;
    *valid = !fake_settings.export_is_stale;
    if (!*valid) {
        (void)snprintf(stale, 160, "the exported folder is gone");
    }
    return ESPL_OK;
}

static void export_replaces(const void *params, char what[ESPL_STAGE_REPLACES_TEXT])
{
    const struct fake_export_params *self = params;
    if (fake_settings.folder_is_taken) {
        (void)snprintf(what, ESPL_STAGE_REPLACES_TEXT, "folder '%.200s' is taken", self->folder);
    }
}

static const struct espl_port export_inputs[] = {
    {.name = "model", .kind = "model.dense/1|model.masked/1", .help = "model to write"}, {0}};
static const struct espl_port export_output[] = {
    {.name = "manifest", .kind = "export/1", .help = "what was written"}, {0}};

const struct espl_stage fake_export = {.name = "export",
                                       .summary = "writes files",
                                       .cache_version = 1,
                                       .params = export_table,
                                       .params_size = sizeof(struct fake_export_params),
                                       .inputs = export_inputs,
                                       .outputs = export_output,
                                       .run = fake_run,
                                       .still_valid = export_still_valid,
                                       .replaces = export_replaces};

static const struct espl_port split_outputs[] = {
    {.name = "left", .kind = "model.dense/1", .help = "one half"},
    {.name = "words", .kind = "tokens/1", .help = "the other half"},
    {0},
};

const struct espl_stage fake_split = {.name = "split",
                                      .summary = "has two outputs",
                                      .cache_version = 1,
                                      .params = no_table,
                                      .params_size = sizeof(struct fake_no_params),
                                      .inputs = no_ports,
                                      .outputs = split_outputs,
                                      .run = fake_run};

const struct espl_stage *const fake_stages[] = {
    &fake_import, &fake_tokens, &fake_prune, &fake_evaluate, &fake_export, &fake_split, NULL};

/* ---- helpers ---- */

static void expect_rendered(struct espl_diagnostics *diags, const char *expected)
{
    struct espl_buf text;
    espl_buf_init(&text, 1 << 20);
    espl_diagnostics_render(diags, false, &text);
    if (strcmp(espl_buf_text(&text), expected) != 0) {
        /* cmocka cuts long texts. */
        fprintf(stderr, "---- rendered:\n%s---- expected:\n%s----\n", espl_buf_text(&text),
                expected);
        fail_msg("the errors differ");
    }
    espl_buf_free(&text);
    espl_diagnostics_free(diags);
}

struct espl_job *fakes_job(const char *text, const struct espl_override *overrides, size_t count)
{
    struct espl_diagnostics diags;
    struct espl_error err = {0};
    struct espl_job *job = NULL;
    assert_int_equal(espl_diagnostics_init(&diags, &err), ESPL_OK);
    const enum espl_status status = espl_job_parse("job.yaml", text, strlen(text), fake_stages,
                                                   overrides, count, &diags, &job, &err);
    expect_rendered(&diags, "");
    assert_int_equal(status, ESPL_OK);
    assert_non_null(job);
    return job;
}

void fakes_expect_errors(const char *text, const struct espl_override *overrides, size_t count,
                         const char *expected)
{
    struct espl_diagnostics diags;
    struct espl_error err = {0};
    struct espl_job *job = NULL;
    assert_int_equal(espl_diagnostics_init(&diags, &err), ESPL_OK);
    const enum espl_status status = espl_job_parse("job.yaml", text, strlen(text), fake_stages,
                                                   overrides, count, &diags, &job, &err);
    assert_null(job);
    assert_int_equal(status, ESPL_E_JOB);
    assert_int_equal(err.code, ESPL_E_JOB);
    expect_rendered(&diags, expected);
}

struct espl_plan *fakes_plan(const struct espl_job *job, const struct espl_store *store,
                             const struct espl_plan_options *options)
{
    return fakes_plan_errors(job, store, options, "");
}

struct espl_plan *fakes_plan_errors(const struct espl_job *job, const struct espl_store *store,
                                    const struct espl_plan_options *options, const char *expected)
{
    struct espl_diagnostics diags;
    struct espl_error err = {0};
    struct espl_plan *plan = NULL;
    assert_int_equal(espl_diagnostics_init(&diags, &err), ESPL_OK);
    assert_int_equal(espl_diagnostics_set_source(&diags, job->file, job->text, job->text_len, &err),
                     ESPL_OK);
    const enum espl_status status = espl_plan_build(job, store, options, &diags, &plan, &err);
    assert_int_equal(status, espl_diagnostics_status(&diags));
    expect_rendered(&diags, expected);
    if (expected[0] == '\0') {
        assert_int_equal(status, ESPL_OK);
        assert_non_null(plan);
    }
    return plan;
}

const struct espl_plan_stage *fakes_find(const struct espl_plan *plan, const char *id)
{
    for (size_t i = 0; i < plan->stage_count; i++) {
        if (strcmp(plan->stages[i].job_stage->id, id) == 0) {
            return &plan->stages[i];
        }
    }
    fail_msg("no stage '%s' in the plan", id);
    return NULL;
}

void fakes_make_folder(char folder[ESPL_PATH_MAX])
{
    temp_folder_make(folder);
}

void fakes_remove_folder(const char *folder)
{
    assert_int_equal(espl_fs_remove_tree(folder, NULL), ESPL_OK);
}

void fakes_write(const char *path, const char *text)
{
    assert_int_equal(espl_fs_write_file(path, text, strlen(text), NULL), ESPL_OK);
}

static char *fields_text(const struct espl_plan_stage *stage)
{
    json_t *fields = json_array();
    for (size_t i = 0; i < stage->field_count; i++) {
        (void)json_array_append_new(
            fields, json_pack("[s, s]", stage->fields[i].label, stage->fields[i].value));
    }
    char *text = json_dumps(fields, JSON_COMPACT);
    json_decref(fields);
    assert_non_null(text);
    return text;
}

/* Datasets that the tables of kinds require. */
static void write_required(struct espl_artifact *artifact, const char *kind)
{
    const struct espl_kind *row = espl_kind_find(kind);
    const uint64_t shape[1] = {1};
    const int32_t value = 7;
    assert_non_null(row);
    for (size_t i = 0; row->required != NULL && row->required[i] != NULL; i++) {
        const struct espl_tensor_info info =
            espl_tensor_info_make(row->required[i], ESPL_DTYPE_I32, 1, shape);
        assert_int_equal(espl_artifact_write(artifact, &info, &value, NULL), ESPL_OK);
    }
}

void fakes_store_result(const struct espl_store *store, const struct espl_plan *plan,
                        const char *id, const char *description)
{
    const struct espl_plan_stage *stage = fakes_find(plan, id);
    const struct espl_stage *kind = stage->job_stage->stage;
    char *fields = fields_text(stage);
    const bool several = kind->outputs[1].name != NULL;
    for (size_t i = 0; kind->outputs[i].name != NULL; i++) {
        const char *port = several ? kind->outputs[i].name : NULL;
        char path[ESPL_PATH_MAX];
        char target[ESPL_PATH_MAX];
        char link[ESPL_PATH_MAX + 256];
        struct espl_artifact *artifact = NULL;
        struct espl_error err = {0};
        assert_int_equal(espl_store_private_path(store, stage->key, "out", path, &err), ESPL_OK);
        assert_int_equal(espl_artifact_create(path, kind->outputs[i].kind, &artifact, &err),
                         ESPL_OK);
        write_required(artifact, kind->outputs[i].kind);
        assert_int_equal(espl_artifact_set_description(artifact, description, &err), ESPL_OK);
        assert_int_equal(espl_artifact_set_attribute(artifact, "key", stage->key, &err), ESPL_OK);
        assert_int_equal(espl_artifact_set_attribute(artifact, "port", kind->outputs[i].name, &err),
                         ESPL_OK);
        assert_int_equal(espl_artifact_set_provenance(artifact, "hash_fields", fields, &err),
                         ESPL_OK);
        assert_int_equal(espl_artifact_finish(&artifact, NULL, &err), ESPL_OK);
        assert_int_equal(espl_store_publish(store, path, stage->key, port, &err), ESPL_OK);
        (void)snprintf(target, sizeof target, "../../store/%.2s/%s%s%s.h5", stage->key, stage->key,
                       several ? "." : "", several ? port : "");
        (void)snprintf(link, sizeof link, "%s/by-name/%s", store->root, plan->job->name);
        assert_int_equal(espl_fs_make_dirs(link, &err), ESPL_OK);
        (void)snprintf(link, sizeof link, "%s/by-name/%s/%s%s%s.h5", store->root, plan->job->name,
                       id, several ? "." : "", several ? port : "");
        assert_int_equal(espl_fs_refresh_link(target, link, &err), ESPL_OK);
    }
    free(fields);
}
