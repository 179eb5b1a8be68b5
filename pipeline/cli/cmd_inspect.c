/* espalier inspect: what an artifact is, where it comes from and what is in it. */
#include "artifact/artifact.h"
#include "artifact/kinds.h"
#include "cli/command.h"
#include "cli/inspect_header.h"
#include "cli/inspect_layers.h"
#include "cli/inspect_traffic.h"
#include "cli/print.h"
#include "cli/target.h"
#include "cli/tensor_values.h"
#include "core/units.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_TENSORS = 12, FIRST_VALUES = 8 };

static const struct espl_option inspect_options[] = {
    {.name = "all", .letter = 'a', .help = "every layer and dataset, not the first twelve"},
    {.name = "tensor", .argument = "PATH", .help = "one dataset: shape, type and its first values"},
    {.name = "stats", .help = "read the values: least, greatest, mean, how many are not zero"},
    {.name = "verify", .help = "read every dataset again and compare with its hash"},
    {.name = "traffic",
     .help = "models: bytes a weight, PMR, intensity and predicted time, as stored and as other "
             "formats"},
    {.name = "device",
     .argument = ESPL_ROOFLINE_DEVICES,
     .complete = ESPL_COMPLETE_CHOICE,
     .help = "traffic: whose bandwidth predicts the time (default orin-agx)"},
    {.name = "bandwidth", .argument = "GB/S", .help = "traffic: this bandwidth instead"},
    {.name = "tokens", .argument = "N", .help = "traffic: activation columns (default 1)"},
    {.name = "bits",
     .argument = "2|4|8",
     .complete = ESPL_COMPLETE_CHOICE,
     .help = "traffic: bits of a code where the weights are floats (default 4)"},
    {.name = "threads", .argument = "N", .help = "traffic: threads that measure --device=cpu"},
    {0},
};

struct inspection {
    const struct espl_cli *cli;
    struct espl_inspect_stores stores;
    struct espl_artifact *artifact;
    bool all, stats, verify;
    const char *tensor;
    bool is_model;
    struct espl_inspect_layers layers;
    bool show_traffic;
    struct espl_inspect_traffic traffic;
};

/* ---- one dataset ---- */

static enum espl_status find_tensor(const struct inspection *inspection,
                                    const struct espl_tensor_info **out, struct espl_error *err)
{
    *out = espl_artifact_find(inspection->artifact, inspection->tensor);
    if (*out == NULL) {
        espl_fail(err, ESPL_E_NOTFOUND, "the artifact has no dataset '%s'", inspection->tensor);
        return espl_hint(err, "`espalier inspect --all` lists the %zu it has",
                         espl_artifact_tensor_count(inspection->artifact));
    }
    return ESPL_OK;
}

/* "first     1 2 3 ..."; words of 64 bits are masks and packed orders, so unsigned ones are
 * hexadecimal. */
static enum espl_status print_first(const struct inspection *inspection,
                                    const struct espl_tensor_info *info, struct espl_error *err)
{
    double values[FIRST_VALUES];
    uint64_t words[FIRST_VALUES];
    size_t count = 0;
    FILE *out = inspection->cli->out;
    const bool has_words = espl_tensor_has_words(info);
    const enum espl_status status =
        has_words
            ? espl_tensor_first_words(inspection->artifact, info, words, FIRST_VALUES, &count, err)
            : espl_tensor_first_values(inspection->artifact, info, values, FIRST_VALUES, &count,
                                       err);
    if (status != ESPL_OK) {
        return status;
    }
    fprintf(out, "first     ");
    for (size_t i = 0; i < count; ++i) {
        (void)fputs(i > 0 ? " " : "", out);
        if (!has_words) {
            fprintf(out, info->dtype <= ESPL_DTYPE_U32 ? "%.0f" : "%.6g", values[i]);
        } else if (info->dtype == ESPL_DTYPE_U64) {
            fprintf(out, "0x%016" PRIx64, words[i]);
        } else {
            fprintf(out, "%" PRId64, (int64_t)words[i]);
        }
    }
    fprintf(out, "%s\n", espl_tensor_element_count(info) > count ? " ..." : "");
    return ESPL_OK;
}

static enum espl_status print_tensor(const struct inspection *inspection, struct espl_error *err)
{
    const struct espl_tensor_info *info;
    char shape[ESPL_SHAPE_TEXT];
    char size[ESPL_UNIT_TEXT];
    FILE *out = inspection->cli->out;
    enum espl_status status = find_tensor(inspection, &info, err);
    if (status != ESPL_OK) {
        return status;
    }
    espl_tensor_shape_text(info, shape);
    espl_print_size(info->bytes, size);
    fprintf(out, "dataset   %s\nshape     %s\ntype      %s%s%s%s   %s\nsha256    %s\n", info->path,
            shape, espl_dtype_name(info->dtype), info->packing[0] != '\0' ? ", packed " : "",
            info->packing, info->external ? ", in a file outside" : "", size, info->sha256);
    status = print_first(inspection, info, err);
    if (status != ESPL_OK || !inspection->stats) {
        return status;
    }
    struct espl_tensor_stats stats;
    status = espl_tensor_measure(inspection->artifact, info, &stats, err);
    if (status == ESPL_OK) {
        const double share =
            stats.count > 0 ? 100.0 * (double)stats.nonzero / (double)stats.count : 0.0;
        fprintf(out,
                "values    %" PRIu64 "   nonzero %" PRIu64 " (%.2f %%)   NaN %" PRIu64
                "   infinite %" PRIu64 "\nrange     %.6g to %.6g   mean %.6g\n",
                stats.count, stats.nonzero, share, stats.nan, stats.infinite, stats.min, stats.max,
                stats.mean);
    }
    return status;
}

static json_t *tensor_json(struct inspection *inspection, const struct espl_tensor_info *info,
                           struct espl_error *err)
{
    json_t *shape = json_array();
    for (unsigned i = 0; i < info->rank; ++i) {
        (void)json_array_append_new(shape, json_integer((json_int_t)info->logical_shape[i]));
    }
    json_t *item =
        json_pack("{s:s, s:s, s:o, s:s, s:I, s:s, s:b}", "path", info->path, "dtype",
                  espl_dtype_name(info->dtype), "shape", shape, "packing", info->packing, "bytes",
                  (json_int_t)info->bytes, "sha256", info->sha256, "external", info->external);
    if (inspection->stats && item != NULL) {
        struct espl_tensor_stats stats;
        if (espl_tensor_measure(inspection->artifact, info, &stats, err) != ESPL_OK) {
            json_decref(item);
            return NULL;
        }
        (void)json_object_set_new(
            item, "stats",
            json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "count", (json_int_t)stats.count,
                      "nonzero", (json_int_t)stats.nonzero, "nan", (json_int_t)stats.nan,
                      "infinite", (json_int_t)stats.infinite, "min",
                      espl_print_json_number(stats.min), "max", espl_print_json_number(stats.max),
                      "mean", espl_print_json_number(stats.mean)));
    }
    return item;
}

/* ---- the whole artifact ---- */

static enum espl_status print_tensors(const struct inspection *inspection, struct espl_error *err)
{
    static const struct espl_column columns[] = {{.title = "dataset"},
                                                 {.title = "shape", .right = true},
                                                 {.title = "type"},
                                                 {.title = "size", .right = true}};
    struct espl_table *table = NULL;
    const size_t count = espl_artifact_tensor_count(inspection->artifact);
    if (count == 0) {
        return ESPL_OK;
    }
    enum espl_status status = espl_table_create(columns, 4, &table, err);
    if (status != ESPL_OK) {
        return status;
    }
    const size_t shown = inspection->all || count < SHOWN_TENSORS ? count : SHOWN_TENSORS;
    for (size_t i = 0; i < shown; ++i) {
        const struct espl_tensor_info *info = espl_artifact_tensor(inspection->artifact, i);
        char shape[ESPL_SHAPE_TEXT];
        char size[ESPL_UNIT_TEXT];
        espl_tensor_shape_text(info, shape);
        espl_print_size(info->bytes, size);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", info->path);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", shape);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s%s%s", espl_dtype_name(info->dtype),
                        info->packing[0] != '\0' ? " " : "", info->packing);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", size);
    }
    if (shown < count) {
        espl_table_line(table, "... %zu more (--all)", count - shown);
    }
    status = espl_table_print(table, inspection->cli->out, 2, inspection->cli->colour_out, err);
    espl_table_destroy(table);
    return status;
}

/* A masked model whose base is gone still has a header and masks worth showing. */
static enum espl_status load_layers(struct inspection *inspection, struct espl_error *err)
{
    struct espl_error layers_err = {0};
    enum espl_status status = ESPL_E_NOTFOUND;
    for (size_t i = 0; i < inspection->stores.count && status == ESPL_E_NOTFOUND; ++i) {
        espl_inspect_layers_free(&inspection->layers);
        status = espl_inspect_layers_load(inspection->artifact, &inspection->stores.items[i],
                                          inspection->stats, &inspection->layers, &layers_err);
    }
    if (status == ESPL_E_NOTFOUND && !inspection->stats) {
        espl_print_warning(inspection->cli, "no layer table: %s", layers_err.message);
        inspection->is_model = false;
        return ESPL_OK;
    }
    if (status != ESPL_OK) {
        *err = layers_err;
    }
    return status;
}

static enum espl_status load_traffic(struct inspection *inspection, struct espl_error *err)
{
    if (!inspection->is_model) {
        espl_fail(err, ESPL_E_USAGE, "--traffic needs a model, got kind '%s'",
                  espl_artifact_kind(inspection->artifact));
        return espl_hint(err, "it counts the linears of a whole model, so not with --tensor");
    }
    return espl_inspect_traffic_load(inspection->cli, inspection->layers.model,
                                     &inspection->traffic, err);
}

static enum espl_status print_artifact(struct inspection *inspection, struct espl_error *err)
{
    const struct espl_cli *cli = inspection->cli;
    enum espl_status status =
        espl_inspect_header_print(cli, &inspection->stores, inspection->artifact, err);
    if (status != ESPL_OK) {
        return status;
    }
    json_t *description = json_loads(espl_artifact_description(inspection->artifact), 0, NULL);
    if (json_object_size(description) > 0) {
        fputs("\n", cli->out);
        espl_inspect_description_print(cli, description, !inspection->all);
    }
    json_decref(description);
    fputs("\n", cli->out);
    if (inspection->is_model) {
        status = espl_inspect_layers_print(cli, &inspection->layers, inspection->all, err);
    }
    if (status == ESPL_OK && inspection->show_traffic) {
        status = espl_inspect_traffic_print(cli, &inspection->traffic, inspection->all, err);
    }
    if (status == ESPL_OK && (!inspection->is_model || inspection->all)) {
        status = print_tensors(inspection, err);
    }
    return status;
}

static enum espl_status verify(const struct inspection *inspection, struct espl_error *err)
{
    bool ok = false;
    char bad[ESPL_TENSOR_PATH];
    char shown[ESPL_PATH_MAX];
    const enum espl_status status = espl_artifact_verify(inspection->artifact, &ok, bad, err);
    if (status != ESPL_OK || ok) {
        return status;
    }
    espl_fail(err, ESPL_E_CORRUPT, "dataset '%s' of '%s' is damaged: its hash differs", bad,
              espl_fs_shown_path(espl_artifact_path(inspection->artifact), shown));
    return espl_hint(err, "delete the file and run its job again");
}

static void add_provenance(json_t *root, struct espl_artifact *artifact)
{
    static const char *const names[] = {"params", "inputs", "environment", "hash_fields",
                                        "metrics"};
    json_t *provenance = json_object();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
        json_t *value = NULL;
        /* What is missing or unreadable is left out. */
        if (espl_target_provenance(artifact, names[i], &value, NULL) == ESPL_OK && value != NULL) {
            (void)json_object_set_new(provenance, names[i], value);
        }
    }
    (void)json_object_set_new(root, "provenance", provenance);
}

static json_t *attributes_json(const struct espl_artifact *artifact)
{
    static const char *const names[] = {"key",      "port", "stage",        "cache_version",
                                        "job_name", "seed", "tool_version", "parent_key"};
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
        const char *value = espl_artifact_attribute(artifact, names[i]);
        if (value[0] != '\0') {
            (void)json_object_set_new(object, names[i], json_string(value));
        }
    }
    return object;
}

static enum espl_status print_json(struct inspection *inspection, struct espl_error *err)
{
    struct espl_artifact *artifact = inspection->artifact;
    uint64_t bytes = 0;
    enum espl_status status = espl_fs_file_size(espl_artifact_path(artifact), &bytes, err);
    if (status != ESPL_OK) {
        return status;
    }
    json_t *tensors = json_array();
    json_t *root = json_pack(
        "{s:s, s:s, s:I, s:s, s:s, s:b, s:o, s:o*, s:o*, s:o}", "schema", "espalier.inspect/1",
        "file", espl_artifact_path(artifact), "bytes", (json_int_t)bytes, "kind",
        espl_artifact_kind(artifact), "content_sha256", espl_artifact_content_sha256(artifact),
        "verified", inspection->verify, "attributes", attributes_json(artifact), "made",
        espl_inspect_side_file(artifact), "description",
        json_loads(espl_artifact_description(artifact), 0, NULL), "datasets", tensors);
    add_provenance(root, artifact);
    for (size_t i = 0; i < espl_artifact_tensor_count(artifact); ++i) {
        const struct espl_tensor_info *info = espl_artifact_tensor(artifact, i);
        if (inspection->tensor != NULL && strcmp(inspection->tensor, info->path) != 0) {
            continue;
        }
        json_t *item = tensor_json(inspection, info, err);
        if (item == NULL || json_array_append_new(tensors, item) != 0) {
            json_decref(root);
            return err->code != ESPL_OK
                       ? err->code
                       : espl_fail(err, ESPL_E_NOMEM, "out of memory for the list of datasets");
        }
    }
    if (inspection->is_model) {
        (void)json_object_set_new(root, "layers", espl_inspect_layers_json(&inspection->layers));
    }
    if (inspection->show_traffic) {
        (void)json_object_set_new(root, "traffic", espl_inspect_traffic_json(&inspection->traffic));
    }
    return espl_print_json_take(inspection->cli, root, err);
}

static enum espl_status inspect(struct inspection *inspection, struct espl_error *err)
{
    const struct espl_cli *cli = inspection->cli;
    const struct espl_tensor_info *info;
    enum espl_status status =
        inspection->tensor != NULL ? find_tensor(inspection, &info, err) : ESPL_OK;
    if (status == ESPL_OK && inspection->verify) {
        status = verify(inspection, err);
    }
    inspection->is_model =
        inspection->tensor == NULL &&
        espl_kind_accepts(ESPL_MODEL_KINDS, espl_artifact_kind(inspection->artifact));
    if (status == ESPL_OK && inspection->is_model) {
        status = load_layers(inspection, err);
    }
    if (status == ESPL_OK && inspection->show_traffic) {
        status = load_traffic(inspection, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    if (cli->json) {
        return print_json(inspection, err);
    }
    status = inspection->tensor != NULL ? print_tensor(inspection, err)
                                        : print_artifact(inspection, err);
    if (status == ESPL_OK && inspection->verify) {
        fprintf(cli->out, "\nverified: %zu datasets read, all hashes match\n",
                espl_artifact_tensor_count(inspection->artifact));
    }
    return status;
}

static enum espl_status run_inspect(struct espl_cli *cli, struct espl_error *err)
{
    struct inspection inspection = {.cli = cli,
                                    .all = espl_args_has(cli->args, "all"),
                                    .stats = espl_args_has(cli->args, "stats"),
                                    .verify = espl_args_has(cli->args, "verify"),
                                    .show_traffic = espl_args_has(cli->args, "traffic"),
                                    .tensor = espl_args_value(cli->args, "tensor", NULL)};
    struct espl_store store;
    struct espl_target target;
    enum espl_status status = espl_store_open_readonly(cli->store_dir, &store, err);
    if (status == ESPL_OK) {
        status = espl_target_artifact(cli, &store, cli->args->positional[0], &target, err);
    }
    if (status == ESPL_OK) {
        espl_inspect_stores_find(target.path, &store, &inspection.stores);
        status = espl_artifact_open(target.path, &inspection.artifact, err);
        if (status == ESPL_E_CORRUPT && err->hint[0] == '\0') {
            espl_hint(err, "delete the file and run its job again");
        }
    }
    if (status == ESPL_OK) {
        status = inspect(&inspection, err);
    }
    espl_inspect_traffic_free(&inspection.traffic);
    espl_inspect_layers_free(&inspection.layers);
    espl_artifact_close(inspection.artifact);
    return status;
}

const struct espl_command espl_command_inspect = {
    .name = "inspect",
    .summary = "show what an artifact is, where it comes from and what is in it",
    .positional = "FILE|KEY|JOB:STAGE",
    .complete = ESPL_COMPLETE_ARTIFACT,
    .min_positional = 1,
    .max_positional = 1,
    .options = inspect_options,
    .description =
        "KEY is the first six or more digits of a recipe key. JOB is a job name or a job file; a "
        "stage with\nseveral outputs is named JOB:STAGE.PORT. Hashes are as recorded; --verify "
        "reads the data again and\nexits with 4 when something is damaged.",
    .run = run_inspect,
};
