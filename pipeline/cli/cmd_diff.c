/* espalier diff: two artifacts, or two runs. Exit code 0 = the same, 1 = different. */
#include "artifact/artifact.h"
#include "cli/command.h"
#include "cli/diff_print.h"
#include "cli/diff_tensors.h"
#include "cli/print.h"
#include "cli/target.h"

#include <string.h>

static const struct espl_option diff_options[] = {
    {.name = "all", .letter = 'a', .help = "every dataset that differs, not the first twenty"},
    {0},
};

/* "Different" is an answer, not an error: it has an exit code and no message. */
static enum espl_status verdict(bool same, struct espl_error *err)
{
    if (same) {
        return ESPL_OK;
    }
    espl_error_clear(err);
    err->code = ESPL_E_DIFFERENT;
    return err->code;
}

struct section {
    const char *json_name;
    bool numbers;
    bool counts; /* does a difference here make the two different? */
    struct espl_diff_section diff;
};

static void free_sections(struct section *sections, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        json_decref(sections[i].diff.entries);
    }
}

static bool sections_equal(const struct section *sections, size_t count)
{
    bool equal = true;
    for (size_t i = 0; i < count; ++i) {
        equal = equal && (!sections[i].counts || json_array_size(sections[i].diff.entries) == 0);
    }
    return equal;
}

static enum espl_status print_sections(const struct espl_cli *cli, const struct section *sections,
                                       size_t count, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; i < count && status == ESPL_OK; ++i) {
        if (json_array_size(sections[i].diff.entries) + sections[i].diff.same == 0) {
            continue;
        }
        status = espl_diff_print(cli, &sections[i].diff, sections[i].numbers, err);
        fputs(json_array_size(sections[i].diff.entries) > 0 ? "\n" : "", cli->out);
    }
    return status;
}

static void add_sections(json_t *root, const struct section *sections, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        (void)json_object_set_new(root, sections[i].json_name, espl_diff_json(&sections[i].diff));
    }
}

/* ---- artifacts ---- */

struct artifact_pair {
    struct espl_artifact *a, *b;
    struct espl_tensor_pairs tensors;
    struct section sections[4];
};

static void compare_texts(struct espl_diff_section *section, const char *name, const char *a,
                          const char *b)
{
    json_t *json_a = json_string(a);
    json_t *json_b = json_string(b);
    espl_diff_values(section, name, json_a, json_b);
    json_decref(json_a);
    json_decref(json_b);
}

static enum espl_status compare_provenance(struct artifact_pair *pair, const char *name,
                                           const char *member, struct espl_diff_section *section,
                                           struct espl_error *err)
{
    json_t *a = NULL;
    json_t *b = NULL;
    enum espl_status status = espl_target_provenance(pair->a, name, &a, err);
    if (status == ESPL_OK) {
        status = espl_target_provenance(pair->b, name, &b, err);
    }
    if (status == ESPL_OK) {
        espl_diff_objects(section, "", member != NULL ? json_object_get(a, member) : a,
                          member != NULL ? json_object_get(b, member) : b);
    }
    json_decref(a);
    json_decref(b);
    return status;
}

static enum espl_status compare_artifacts(struct artifact_pair *pair, struct espl_error *err)
{
    struct espl_diff_section *facts = &pair->sections[0].diff;
    compare_texts(facts, "kind", espl_artifact_kind(pair->a), espl_artifact_kind(pair->b));
    compare_texts(facts, "content", espl_artifact_content_sha256(pair->a),
                  espl_artifact_content_sha256(pair->b));
    static const char *const attributes[] = {"stage", "cache_version", "key", "seed",
                                             "tool_version"};
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; ++i) {
        compare_texts(facts, attributes[i], espl_artifact_attribute(pair->a, attributes[i]),
                      espl_artifact_attribute(pair->b, attributes[i]));
    }
    enum espl_status status =
        compare_provenance(pair, "params", NULL, &pair->sections[1].diff, err);
    if (status == ESPL_OK) {
        json_t *a = json_loads(espl_artifact_description(pair->a), 0, NULL);
        json_t *b = json_loads(espl_artifact_description(pair->b), 0, NULL);
        espl_diff_objects(&pair->sections[2].diff, "", a, b);
        json_decref(a);
        json_decref(b);
        status = compare_provenance(pair, "metrics", "metrics", &pair->sections[3].diff, err);
    }
    return status == ESPL_OK ? espl_tensor_pairs_load(pair->a, pair->b, &pair->tensors, err)
                             : status;
}

static enum espl_status print_artifacts(const struct espl_cli *cli,
                                        const struct artifact_pair *pair, bool same,
                                        struct espl_error *err)
{
    char shown_a[ESPL_PATH_MAX];
    char shown_b[ESPL_PATH_MAX];
    const char *path_a = espl_fs_shown_path(espl_artifact_path(pair->a), shown_a);
    const char *path_b = espl_fs_shown_path(espl_artifact_path(pair->b), shown_b);
    if (cli->json) {
        json_t *root = json_pack("{s:s, s:s, s:s, s:s, s:b, s:o}", "schema", "espalier.diff/1",
                                 "type", "artifacts", "a", espl_artifact_path(pair->a), "b",
                                 espl_artifact_path(pair->b), "same", same, "datasets",
                                 espl_tensor_pairs_json(&pair->tensors));
        add_sections(root, pair->sections, 4);
        return espl_print_json_take(cli, root, err);
    }
    fprintf(cli->out, "a  %s\nb  %s\n\n", path_a, path_b);
    enum espl_status status = print_sections(cli, pair->sections, 4, err);
    if (status == ESPL_OK) {
        status = espl_tensor_pairs_print(cli, &pair->tensors, espl_args_has(cli->args, "all"), err);
    }
    if (status == ESPL_OK) {
        fprintf(cli->out, "\n%s\n", same ? "same content" : "different");
    }
    return status;
}

static enum espl_status diff_artifacts(const struct espl_cli *cli, const struct espl_target *a,
                                       const struct espl_target *b, struct espl_error *err)
{
    struct artifact_pair pair = {
        .sections = {{.json_name = "facts", .diff = {.title = "facts"}},
                     {.json_name = "parameters", .diff = {.title = "parameters"}},
                     {.json_name = "description", .diff = {.title = "description"}},
                     {.json_name = "metrics", .numbers = true, .diff = {.title = "metrics"}}}};
    bool same = false;
    enum espl_status status = espl_artifact_open(a->path, &pair.a, err);
    if (status == ESPL_OK) {
        status = espl_artifact_open(b->path, &pair.b, err);
    }
    if (status == ESPL_OK) {
        status = compare_artifacts(&pair, err);
    }
    if (status == ESPL_OK) {
        /* The content hash covers kind, description and datasets: other recipes may lead to it. */
        same = strcmp(espl_artifact_content_sha256(pair.a), espl_artifact_content_sha256(pair.b)) ==
                   0 &&
               strcmp(espl_artifact_kind(pair.a), espl_artifact_kind(pair.b)) == 0;
        status = print_artifacts(cli, &pair, same, err);
    }
    espl_tensor_pairs_free(&pair.tensors);
    free_sections(pair.sections, 4);
    espl_artifact_close(pair.a);
    espl_artifact_close(pair.b);
    return status == ESPL_OK ? verdict(same, err) : status;
}

/* ---- runs ---- */

/* What is compared of every stage: member of the stage entry, and its section. */
static const struct {
    const char *member;
    size_t section;
} stage_members[] = {{"params", 1}, {"metrics", 3}, {"volatile_metrics", 4}};

static void compare_stage(const char *id, const json_t *a, const json_t *b,
                          struct section *sections)
{
    char name[512];
    for (size_t i = 0; i < sizeof stage_members / sizeof stage_members[0]; ++i) {
        espl_diff_objects(&sections[stage_members[i].section].diff, id,
                          json_object_get(a, stage_members[i].member),
                          json_object_get(b, stage_members[i].member));
    }
    static const char *const facts[] = {"use", "state", "key"};
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; ++i) {
        (void)snprintf(name, sizeof name, "%s.%s", id, facts[i]);
        const json_t *fact_a = json_object_get(a, facts[i]);
        const json_t *fact_b = json_object_get(b, facts[i]);
        /* Cached or done makes no difference to the result. */
        const bool state = strcmp(facts[i], "state") == 0;
        espl_diff_values(&sections[state ? 0 : 2].diff, name, fact_a, fact_b);
    }
    /* A stage out of the cache took no time to speak of. */
    const json_t *seconds_a = json_object_get(a, "seconds");
    const json_t *seconds_b = json_object_get(b, "seconds");
    if (json_number_value(seconds_a) > 0.0 && json_number_value(seconds_b) > 0.0) {
        (void)snprintf(name, sizeof name, "%s.stage_seconds", id);
        espl_diff_values(&sections[4].diff, name, seconds_a, seconds_b);
    }
}

static void compare_runs(const json_t *a, const json_t *b, struct section *sections)
{
    static const char *const facts[] = {"job", "status", "seed", "device", "host", "job_sha256"};
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; ++i) {
        espl_diff_values(&sections[0].diff, facts[i], json_object_get(a, facts[i]),
                         json_object_get(b, facts[i]));
    }
    size_t index;
    const json_t *stage;
    json_array_foreach(json_object_get(a, "stages"), index, stage)
    {
        const char *id = json_string_value(json_object_get(stage, "id"));
        if (id != NULL) {
            compare_stage(id, stage, espl_run_stage(b, id), sections);
        }
    }
    json_array_foreach(json_object_get(b, "stages"), index, stage)
    {
        const char *id = json_string_value(json_object_get(stage, "id"));
        if (id != NULL && espl_run_stage(a, id) == NULL) {
            compare_stage(id, NULL, stage, sections);
        }
    }
    espl_diff_objects(&sections[5].diff, "", json_object_get(a, "environment"),
                      json_object_get(b, "environment"));
}

static enum espl_status diff_runs(const struct espl_cli *cli, const struct espl_store *store,
                                  const struct espl_target *a, const struct espl_target *b,
                                  struct espl_error *err)
{
    struct section sections[] = {
        {.json_name = "facts", .diff = {.title = "facts"}},
        {.json_name = "parameters", .counts = true, .diff = {.title = "parameters"}},
        {.json_name = "recipes", .counts = true, .diff = {.title = "recipes"}},
        {.json_name = "metrics", .numbers = true, .counts = true, .diff = {.title = "metrics"}},
        {.json_name = "times", .numbers = true, .diff = {.title = "times and rates"}},
        {.json_name = "environment", .diff = {.title = "environment"}}};
    const size_t count = sizeof sections / sizeof sections[0];
    json_t *record_a = NULL;
    json_t *record_b = NULL;
    bool same = false;
    enum espl_status status = espl_run_load(store, a->run_id, &record_a, err);
    if (status == ESPL_OK) {
        status = espl_run_load(store, b->run_id, &record_b, err);
    }
    if (status == ESPL_OK) {
        compare_runs(record_a, record_b, sections);
        same = sections_equal(sections, count);
    }
    if (status == ESPL_OK && cli->json) {
        json_t *root = json_pack("{s:s, s:s, s:s, s:s, s:b}", "schema", "espalier.diff/1", "type",
                                 "runs", "a", a->run_id, "b", b->run_id, "same", same);
        add_sections(root, sections, count);
        status = espl_print_json_take(cli, root, err);
    } else if (status == ESPL_OK) {
        fprintf(cli->out, "a  %s\nb  %s\n\n", a->run_id, b->run_id);
        status = print_sections(cli, sections, count, err);
        fputs(same ? "same parameters, recipes and metrics\n" : "different\n", cli->out);
    }
    free_sections(sections, count);
    json_decref(record_a);
    json_decref(record_b);
    return status == ESPL_OK ? verdict(same, err) : status;
}

static enum espl_status run_diff(struct espl_cli *cli, struct espl_error *err)
{
    struct espl_store store;
    struct espl_target targets[2];
    enum espl_status status = espl_store_open_readonly(cli->store_dir, &store, err);
    for (size_t i = 0; i < 2 && status == ESPL_OK; ++i) {
        status = espl_target_any(cli, &store, cli->args->positional[i], &targets[i], err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    if (targets[0].type != targets[1].type) {
        return espl_fail(err, ESPL_E_USAGE, "'%s' is %s, but '%s' is %s", cli->args->positional[0],
                         targets[0].type == ESPL_TARGET_RUN ? "a run" : "an artifact",
                         cli->args->positional[1],
                         targets[1].type == ESPL_TARGET_RUN ? "a run" : "an artifact");
    }
    return targets[0].type == ESPL_TARGET_RUN
               ? diff_runs(cli, &store, &targets[0], &targets[1], err)
               : diff_artifacts(cli, &targets[0], &targets[1], err);
}

const struct espl_command espl_command_diff = {
    .name = "diff",
    .summary = "compare two artifacts or two runs",
    .positional = "A B",
    .complete = ESPL_COMPLETE_ARTIFACT,
    .min_positional = 2,
    .max_positional = 2,
    .options = diff_options,
    .description =
        "A and B are artifacts (file, KEY, JOB:STAGE) or runs (run id, part of one, job name). "
        "Exits with 0\nwhen they are the same and 1 when not. Artifacts are the same when their "
        "content is; runs when their\nparameters, recipes and metrics are. Times, hosts and "
        "environment are shown and do not count.",
    .run = run_diff,
};
