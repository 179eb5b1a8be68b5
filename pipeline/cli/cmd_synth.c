/* espalier synth: a checkpoint of random weights in any supported shape, for memory, speed and
 * scale tests. */
#include "cli/command.h"
#include "cli/print.h"
#include "core/units.h"
#include "model/arch.h"
#include "model/synth.h"
#include "stages/iebme_encode/random_model.h"

#include <inttypes.h>
#include <string.h>

static const struct espl_option synth_options[] = {
    {.name = "shape",
     .argument = "NAME",
     .help = "a published shape (--list), or an architecture for a small one; default llama"},
    {.name = "list", .help = "list the shapes"},
    {.name = "size",
     .argument = "BYTES",
     .help = "as many layers as fit in about this: 4GB, 512MiB"},
    {.name = "sparse",
     .help = "leave the weights out: files of the right size that read as zeros and take no room"},
    {.name = "dtype",
     .argument = "f16|bf16|f32",
     .complete = ESPL_COMPLETE_CHOICE,
     .help = "type of the weights, default bf16"},
    {.name = "encoded",
     .help = "one file with an encoded W4A4 model (model.iebme/1) instead of a checkpoint folder"},
    {.name = "sparsity",
     .argument = "SHARE",
     .help = "encoded: share of codes that are 0, default 0.5"},
    {.name = "bits",
     .argument = "2|4",
     .complete = ESPL_COMPLETE_CHOICE,
     .help = "encoded: bits of a code, default 4"},
    {.name = "areas",
     .argument = "AREAS",
     .help =
         "encoded: areas that share a mask bit: 1x1, 2x2, dense, auto, ...; default auto-matrix"},
    {.name = "shard-size", .argument = "BYTES", .help = "start a new file above this: 2GB"},
    {.name = "seed", .argument = "N", .help = "seed of the weights, default 0"},
    {.name = "layers", .argument = "N", .help = "blocks, instead of the shape's"},
    {.name = "hidden", .argument = "N", .help = "width, instead of the shape's"},
    {.name = "heads", .argument = "N", .help = "attention heads"},
    {.name = "kv-heads", .argument = "N", .help = "key and value heads"},
    {.name = "head-dim", .argument = "N", .help = "width of a head"},
    {.name = "ffn", .argument = "N", .help = "width inside the MLP"},
    {.name = "vocab", .argument = "N", .help = "vocabulary"},
    {.name = "positions", .argument = "N", .help = "longest sequence"},
    {0},
};

static enum espl_status read_count(const struct espl_cli *cli, const char *name, uint64_t *out,
                                   struct espl_error *err)
{
    const char *text = espl_args_value(cli->args, name, NULL);
    int64_t value = 0;
    if (text == NULL) {
        return ESPL_OK;
    }
    const int64_t least = strcmp(name, "seed") == 0 ? 0 : 1;
    if (!espl_parse_int(text, &value) || value < least) {
        espl_fail(err, ESPL_E_USAGE, "--%s must be a whole number from %" PRId64 ", got '%s'", name,
                  least, text);
        return espl_hint(err, "write a plain number, for example --%s=128", name);
    }
    *out = (uint64_t)value;
    return ESPL_OK;
}

static enum espl_status read_size(const struct espl_cli *cli, const char *name, uint64_t *out,
                                  struct espl_error *err)
{
    const char *text = espl_args_value(cli->args, name, NULL);
    if (text != NULL && !espl_parse_size(text, out)) {
        espl_fail(err, ESPL_E_USAGE, "--%s must be a size with a unit, got '%s'", name, text);
        return espl_hint(err, "for example --%s=4GB", name);
    }
    return ESPL_OK;
}

static enum espl_status read_options(const struct espl_cli *cli, struct espl_synth_options *out,
                                     struct espl_error *err)
{
    out->folder = cli->args->positional_count > 0 ? cli->args->positional[0] : NULL;
    out->shape = espl_args_value(cli->args, "shape", "llama");
    out->sparse = espl_args_has(cli->args, "sparse");
    /* The option parser has checked the choice. */
    (void)espl_dtype_parse(espl_args_value(cli->args, "dtype", "bf16"), &out->dtype);
    const struct {
        const char *name;
        uint64_t *value;
    } counts[] = {
        {"seed", &out->seed},   {"layers", &out->layers},     {"hidden", &out->hidden},
        {"heads", &out->heads}, {"kv-heads", &out->kv_heads}, {"head-dim", &out->head_dim},
        {"ffn", &out->ffn},     {"vocab", &out->vocab},       {"positions", &out->max_positions}};
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0] && status == ESPL_OK; ++i) {
        status = read_count(cli, counts[i].name, counts[i].value, err);
    }
    if (status == ESPL_OK) {
        status = read_size(cli, "size", &out->target_bytes, err);
    }
    return status == ESPL_OK ? read_size(cli, "shard-size", &out->shard_size, err) : status;
}

/* One row. Of image models "vocabulary" is the number of classes. */
static enum espl_status add_shape(struct espl_table *table,
                                  const struct espl_synth_options *options, struct espl_error *err)
{
    struct espl_model_config config;
    const enum espl_status status = espl_synth_config(options, &config, err);
    if (status != ESPL_OK) {
        return status;
    }
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", options->shape);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", config.architecture);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%" PRIu64, config.layers);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%" PRIu64, config.hidden);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%" PRIu64, config.heads);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%" PRIu64, config.vocab);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.4g M", (double)espl_arch_parameters(&config) / 1e6);
    return ESPL_OK;
}

static enum espl_status print_shapes(const struct espl_cli *cli, struct espl_error *err)
{
    static const struct espl_column columns[] = {{.title = "shape"},
                                                 {.title = "architecture"},
                                                 {.title = "layers", .right = true},
                                                 {.title = "width", .right = true},
                                                 {.title = "heads", .right = true},
                                                 {.title = "vocabulary", .right = true},
                                                 {.title = "parameters", .right = true}};
    struct espl_table *table = NULL;
    enum espl_status status = espl_table_create(columns, 7, &table, err);
    for (const struct espl_synth_shape *shape = espl_synth_shapes;
         status == ESPL_OK && shape->name != NULL; ++shape) {
        const struct espl_synth_options options = {.shape = shape->name, .dtype = ESPL_DTYPE_BF16};
        status = add_shape(table, &options, err);
    }
    for (const struct espl_synth_image_shape *shape = espl_synth_image_shapes;
         status == ESPL_OK && shape->name != NULL; ++shape) {
        const struct espl_synth_options options = {.shape = shape->name, .dtype = ESPL_DTYPE_BF16};
        status = add_shape(table, &options, err);
    }
    if (status == ESPL_OK) {
        status = espl_table_print(table, cli->out, 0, cli->colour_out, err);
    }
    espl_table_destroy(table);
    return status;
}

struct progress {
    const struct espl_cli *cli;
    unsigned tenths; /* last tenth that was told */
};

static bool show_progress(void *user, uint64_t done, uint64_t total)
{
    struct progress *progress = user;
    const unsigned tenths = total > 0 ? (unsigned)(10.0 * (double)done / (double)total) : 10;
    if (tenths > progress->tenths && tenths < 10) {
        progress->tenths = tenths;
        espl_print_talk(progress->cli, "%u0 %% written", tenths);
    }
    return progress->cli->stop_signal == NULL || *progress->cli->stop_signal == 0;
}

/* Options of the one form that the other does not have. */
static enum espl_status check_form(const struct espl_cli *cli, bool encoded, struct espl_error *err)
{
    static const char *const of_folder[] = {"sparse", "size", "shard-size"};
    static const char *const of_file[] = {"sparsity", "bits", "areas"};
    const char *const *names = encoded ? of_folder : of_file;
    for (size_t i = 0; i < 3; i++) {
        if (espl_args_has(cli->args, names[i])) {
            espl_fail(err, ESPL_E_USAGE,
                      encoded ? "--%s does not go with --encoded" : "--%s needs --encoded",
                      names[i]);
            return espl_hint(err, encoded ? "--layers makes an encoded model smaller"
                                          : "a checkpoint folder holds dense weights");
        }
    }
    return ESPL_OK;
}

static enum espl_status write_encoded(const struct espl_cli *cli,
                                      const struct espl_synth_options *checkpoint, uint64_t *bytes,
                                      struct espl_error *err)
{
    struct espl_random_model_options options = {
        .checkpoint = *checkpoint, .path = checkpoint->folder, .sparsity = 0.5};
    const char *sparsity = espl_args_value(cli->args, "sparsity", NULL);
    const char *areas = espl_args_value(cli->args, "areas", "auto-matrix");
    /* The option parser has checked the choice. */
    options.bits = espl_args_value(cli->args, "bits", "4")[0] == '2' ? 2 : 4;
    if (sparsity != NULL && !espl_parse_real(sparsity, &options.sparsity)) {
        espl_fail(err, ESPL_E_USAGE, "--sparsity must be a number from 0 to 1, got '%s'", sparsity);
        return espl_hint(err, "for example --sparsity=0.5");
    }
    if (!espl_iebme_areas_parse(areas, &options.areas) || options.areas == ESPL_IEBME_MIXED) {
        espl_fail(err, ESPL_E_USAGE, "unknown areas '%s'", areas);
        return espl_hint(err, "1x1, 1x2, 1x4, 2x1, 2x2, 2x4, 4x1, 4x2, 4x4, dense, auto-matrix, "
                              "auto");
    }
    return espl_random_model_write(&options, bytes, err);
}

static enum espl_status run_synth(struct espl_cli *cli, struct espl_error *err)
{
    struct progress progress = {.cli = cli};
    struct espl_synth_options options = {.progress = show_progress, .progress_user = &progress};
    uint64_t bytes = 0;
    char size[ESPL_UNIT_TEXT];
    if (espl_args_has(cli->args, "list")) {
        return print_shapes(cli, err);
    }
    enum espl_status status = read_options(cli, &options, err);
    const bool encoded = espl_args_has(cli->args, "encoded");
    if (status == ESPL_OK) {
        status = check_form(cli, encoded, err);
    }
    if (status == ESPL_OK && (options.folder == NULL || options.folder[0] == '\0')) {
        espl_fail(err, ESPL_E_USAGE, "synth needs the %s to write", encoded ? "file" : "folder");
        return espl_hint(
            err, encoded ? "for example: espalier synth --encoded --shape=llama-2-7b llama.h5"
                         : "for example: espalier synth --shape=llama-2-7b --size=4GB out/synth");
    }
    if (status == ESPL_OK) {
        status = encoded ? write_encoded(cli, &options, &bytes, err)
                         : espl_synth_write(&options, &bytes, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    espl_print_size(bytes, size);
    if (cli->json) {
        return espl_print_json_take(cli,
                                    json_pack("{s:s, s:s, s:s, s:I}", "schema", "espalier.synth/1",
                                              encoded ? "file" : "folder", options.folder, "shape",
                                              options.shape, "bytes", (json_int_t)bytes),
                                    err);
    }
    espl_print_talk(cli, options.sparse ? "%s of weights left out" : "%s of random weights", size);
    fprintf(cli->out, "%s\n", options.folder);
    return ESPL_OK;
}

const struct espl_command espl_command_synth = {
    .name = "synth",
    .summary = "write a checkpoint or an encoded model of random weights, for scale tests",
    .positional = "[PATH]",
    .complete = ESPL_COMPLETE_FILE,
    .min_positional = 0,
    .max_positional = 1,
    .options = synth_options,
    .description =
        "The folder holds config.json and safetensors files as HF transformers writes "
        "them; with --encoded it is\na file that a job names as {file: PATH}, all blocks "
        "with the same codes. Equal options give equal bytes.",
    .run = run_synth,
};
