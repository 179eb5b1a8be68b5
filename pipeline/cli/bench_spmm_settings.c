/* The command line of `espalier bench spmm`. */
#include "cli/bench_spmm.h"

#include "cli/options.h"
#include "kernels/bench/spmm_cpu.h"
#include "stages/deploy_bench/deploy_measure.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SIDE = 131071, REPEATS = 11, LAUNCHES = 24, GROUP = 128, OUTLIERS = 128 };

/* Weight shapes of LLaMA2-7B and 13B, OPT-13B, Qwen2-7B and LLaMA3-8B, each once. */
static const struct espl_bench_size corpus[] = {
    {4096, 4096},  {11008, 4096}, {4096, 11008}, {5120, 5120},  {13824, 5120},
    {5120, 13824}, {20480, 5120}, {5120, 20480}, {3584, 3584},  {512, 3584},
    {18944, 3584}, {3584, 18944}, {1024, 4096},  {14336, 4096}, {4096, 14336},
};
static const double usual_sparsities[] = {0.4, 0.5, 0.6, 0.7};
static const size_t usual_tokens[] = {1, 2, 4, 8, 16, 32};
static const char *const usual_forms[] = {"dense", "1x1", "1x2"};
static const struct espl_spmm_peer *const known_peers[] = {
    &espl_spmm_peer_cublaslt_int8, &espl_spmm_peer_cublas_fp16, &espl_spmm_peer_cusparse_csr};

static enum espl_status read_forms(const struct espl_cli *cli, struct espl_spmm_settings *settings,
                                   struct espl_error *err)
{
    const char **given = NULL;
    size_t count = 0;
    const enum espl_status status =
        espl_bench_texts_of(cli, "form", ESPL_SPMM_MAX_FORMS, &given, &count, err);
    if (status == ESPL_OK) {
        const char *const *names = count > 0 ? given : usual_forms;
        settings->options.form_count =
            count > 0 ? count : sizeof usual_forms / sizeof usual_forms[0];
        memcpy(settings->options.forms, names, settings->options.form_count * sizeof names[0]);
    }
    free(given);
    return status;
}

/* The parser knows the names. */
static enum espl_cuda_instruction instruction_of(const struct espl_cli *cli)
{
    const char *name = espl_args_value(cli->args, "instruction", "automatic");
    return strcmp(name, "int4") == 0   ? ESPL_CUDA_INSTRUCTION_INT4
           : strcmp(name, "int8") == 0 ? ESPL_CUDA_INSTRUCTION_INT8
                                       : ESPL_CUDA_INSTRUCTION_AUTOMATIC;
}

static enum espl_cuda_pipeline pipeline_of(const struct espl_cli *cli)
{
    const char *name = espl_args_value(cli->args, "pipeline", "automatic");
    return strcmp(name, "producer") == 0 ? ESPL_CUDA_PIPELINE_PRODUCER
           : strcmp(name, "own") == 0    ? ESPL_CUDA_PIPELINE_OWN
                                         : ESPL_CUDA_PIPELINE_AUTOMATIC;
}

/* The parser knows the names: anything but a baseline is "none". */
static enum espl_status read_baselines(const struct espl_cli *cli,
                                       struct espl_spmm_settings *settings, struct espl_error *err)
{
    const size_t known_count = sizeof known_peers / sizeof known_peers[0];
    const char **given = NULL;
    size_t count = 0;
    const enum espl_status status =
        espl_bench_texts_of(cli, "baseline", known_count + 1, &given, &count, err);
    settings->sgemm = count == 0;
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        settings->sgemm = settings->sgemm || strcmp(given[i], ESPL_SPMM_SGEMM) == 0;
    }
    for (size_t k = 0; status == ESPL_OK && k < known_count; k++) {
        bool wanted = count == 0;
        for (size_t i = 0; i < count; i++) {
            wanted = wanted || strcmp(given[i], known_peers[k]->name) == 0;
        }
        if (wanted) {
            settings->options.peers[settings->options.peer_count++] = known_peers[k];
        }
    }
    free(given);
    return status;
}

static enum espl_status load_library(struct espl_spmm_settings *settings, const char *path,
                                     struct espl_error *err)
{
    const struct espl_spmm_peer *(*get)(void) = NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        espl_fail(err, ESPL_E_USAGE, "cannot load the baseline library '%s': %s", path, dlerror());
        return espl_hint(err, "give a path with a '/', to a shared object of this machine");
    }
    settings->libraries[settings->library_count++] = library;
    void *symbol = dlsym(library, "espl_spmm_peer_get");
    if (symbol == NULL) {
        espl_fail(err, ESPL_E_USAGE, "'%s' is no baseline library: it has no espl_spmm_peer_get()",
                  path);
        return espl_hint(err, "kernels/bench/spmm_peer.h says what it exports");
    }
    memcpy(&get, &symbol, sizeof symbol); /* C has no cast from object to function pointers */
    const struct espl_spmm_peer *peer = get();
    if (peer == NULL || peer->version != ESPL_SPMM_PEER_VERSION) {
        return espl_fail(err, ESPL_E_VERSION, "'%s' is a baseline of version %u, expected %d", path,
                         peer != NULL ? peer->version : 0, (int)ESPL_SPMM_PEER_VERSION);
    }
    settings->options.peers[settings->options.peer_count++] = peer;
    return ESPL_OK;
}

static enum espl_status load_libraries(const struct espl_cli *cli,
                                       struct espl_spmm_settings *settings, struct espl_error *err)
{
    const char **paths = NULL;
    size_t count = 0;
    enum espl_status status = espl_bench_texts_of(cli, "baseline-library",
                                                  ESPL_BENCH_MOST_LIBRARIES, &paths, &count, err);
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        status = load_library(settings, paths[i], err);
    }
    free(paths);
    return status;
}

static enum espl_status read_numbers(const struct espl_cli *cli,
                                     struct espl_spmm_settings *settings, struct espl_error *err)
{
    uint64_t repeats = 0;
    enum espl_status status =
        espl_bench_shapes_of(cli, corpus, sizeof corpus / sizeof corpus[0], MOST_SIDE,
                             settings->sizes, &settings->size_count, err);
    if (status == ESPL_OK) {
        status = espl_bench_shares_of(cli, usual_sparsities,
                                      sizeof usual_sparsities / sizeof usual_sparsities[0],
                                      settings->sparsities, &settings->sparsity_count, err);
    }
    if (status == ESPL_OK) {
        status = espl_bench_counts_of(
            cli, "tokens", usual_tokens, sizeof usual_tokens / sizeof usual_tokens[0],
            ESPL_SPMM_MAX_TOKENS, settings->tokens, &settings->token_count, err);
    }
    if (status == ESPL_OK) {
        status = espl_bench_count(cli, "repeats", REPEATS, ESPL_CUDA_MAX_REPEATS, &repeats, err);
    }
    settings->options.bits = espl_bench_bits(cli);
    settings->options.repeats = (size_t)repeats;
    settings->options.launches = LAUNCHES;
    return status;
}

/* A number of columns, or 0. */
static enum espl_status read_columns(const struct espl_cli *cli, const char *option,
                                     size_t fallback, size_t *out, struct espl_error *err)
{
    const char *text = espl_args_value(cli->args, option, NULL);
    int64_t value = 0;
    *out = fallback;
    if (text == NULL) {
        return ESPL_OK;
    }
    if (!espl_parse_int(text, &value) || value < 0 || value > MOST_SIDE) {
        return espl_fail(err, ESPL_E_USAGE, "--%s must be an integer from 0 to %d, got '%s'",
                         option, (int)MOST_SIDE, text);
    }
    *out = (size_t)value;
    return ESPL_OK;
}

/* --atom, and what its layers are made of. All shapes must have it. */
static enum espl_status read_layers(const struct espl_cli *cli, struct espl_spmm_settings *settings,
                                    struct espl_error *err)
{
    struct espl_spmm_bench_options *options = &settings->options;
    options->atom = espl_args_has(cli->args, "atom");
    if (!options->atom &&
        (espl_args_has(cli->args, "group") || espl_args_has(cli->args, "outliers"))) {
        espl_fail(err, ESPL_E_USAGE, "--group and --outliers are about the layers of --atom");
        return espl_hint(err, "give --atom, too");
    }
    enum espl_status status = read_columns(cli, "group", GROUP, &options->group, err);
    if (status == ESPL_OK) {
        status = read_columns(cli, "outliers", OUTLIERS, &options->outliers, err);
    }
    for (size_t i = 0;
         status == ESPL_OK && options->atom && settings->model == NULL && i < settings->size_count;
         i++) {
        const struct espl_bench_size *size = &settings->sizes[i];
        status =
            espl_spmm_layer_check(size->rows, size->cols, options->group, options->outliers, err);
        if (status != ESPL_OK) {
            espl_context(err, "making a layer of %zux%zu", size->rows, size->cols);
            espl_hint(err, "--group=0 is one scale a row, --outliers=0 a layer without outliers");
            status = ESPL_E_USAGE;
        }
    }
    return status;
}

/* A model says itself which shapes, sparsities and layers it has. */
static enum espl_status check_model(const struct espl_cli *cli,
                                    const struct espl_spmm_settings *settings,
                                    struct espl_error *err)
{
    static const char *const options[] = {"shape", "sparsity", "bits",
                                          "group", "outliers", "ablation"};
    for (size_t i = 0; settings->model != NULL && i < sizeof options / sizeof options[0]; i++) {
        if (espl_args_has(cli->args, options[i])) {
            espl_fail(err, ESPL_E_USAGE, "--%s is about random weights, not about a model",
                      options[i]);
            return espl_hint(err, "leave out --%s, or '%s'", options[i], settings->model);
        }
    }
    return ESPL_OK;
}

/* Bits that the device has kernels for; a model's are looked at when it is opened. */
static enum espl_status check_bits(const struct espl_spmm_settings *settings,
                                   struct espl_error *err)
{
    const enum espl_status status =
        settings->model != NULL
            ? ESPL_OK
            : espl_deploy_check_bits(settings->options.bits, settings->cpu,
                                     espl_spmm_dense_only(&settings->options), err);
    return status == ESPL_OK ? status : ESPL_E_USAGE;
}

static bool asks_for_cuda(const struct espl_spmm_settings *settings)
{
    const struct espl_spmm_bench_options *options = &settings->options;
    return options->sweep || settings->tuning_file != NULL || settings->ablation || options->atom ||
           settings->library_count > 0 || options->instruction != ESPL_CUDA_INSTRUCTION_AUTOMATIC ||
           options->pipeline != ESPL_CUDA_PIPELINE_AUTOMATIC;
}

/* Options that ask for what the CPU has not, or for two things at a time. */
static enum espl_status check(const struct espl_spmm_settings *settings, struct espl_error *err)
{
    const struct espl_spmm_bench_options *options = &settings->options;
    if (settings->cpu && asks_for_cuda(settings)) {
        espl_fail(err, ESPL_E_USAGE,
                  "--atom, --sweep, --tune, --tuning, --ablation, --instruction, --pipeline and "
                  "--baseline-library are about CUDA devices, not --backend cpu");
        return espl_hint(err, "leave out --backend");
    }
    if (settings->ablation &&
        (options->sweep || options->atom || settings->artifact_file != NULL)) {
        espl_fail(err, ESPL_E_USAGE,
                  "--ablation has no sweep, layers or artifact: it stands instead of the cases");
        return espl_hint(err, "leave out --sweep, --tune, --atom and --output");
    }
    if (settings->ablation && options->pipeline != ESPL_CUDA_PIPELINE_AUTOMATIC) {
        espl_fail(err, ESPL_E_USAGE, "--ablation measures both pipelines");
        return espl_hint(err, "leave out --pipeline");
    }
    if (settings->tune_file != NULL && options->pipeline == ESPL_CUDA_PIPELINE_PRODUCER) {
        espl_fail(err, ESPL_E_USAGE,
                  "--tune stores cuts for warps that copy their own chunks, not for a producer");
        return espl_hint(err, "leave out --pipeline, or try every cut with --sweep");
    }
    if (settings->tune_file != NULL && settings->tuning_file != NULL) {
        espl_fail(err, ESPL_E_USAGE, "--tune writes stored choices and --tuning uses them");
        return espl_hint(err, "give one of them at a time");
    }
    return ESPL_OK;
}

enum espl_status espl_spmm_settings_read(const struct espl_cli *cli,
                                         struct espl_spmm_settings *settings,
                                         struct espl_error *err)
{
    const char *backend = espl_args_value(cli->args, "backend", "cuda");
    memset(settings, 0, sizeof *settings);
    settings->model = cli->args->positional_count > 1 ? cli->args->positional[1] : NULL;
    settings->cpu = strcmp(backend, "cpu") == 0;
    settings->tune_file = espl_args_value(cli->args, "tune", NULL);
    settings->tuning_file = espl_args_value(cli->args, "tuning", NULL);
    settings->artifact_file = espl_args_value(cli->args, "output", NULL);
    settings->plot_folder = espl_args_value(cli->args, "svg", NULL);
    settings->ablation = espl_args_has(cli->args, "ablation");
    settings->options.all_modes = espl_args_has(cli->args, "all");
    settings->options.instruction = instruction_of(cli);
    settings->options.pipeline = pipeline_of(cli);
    settings->options.sweep = espl_args_has(cli->args, "sweep") || settings->tune_file != NULL;
    if (strcmp(backend, "ref") == 0) {
        return espl_fail(err, ESPL_E_USAGE, "bench spmm times the backends cuda and cpu, not ref");
    }
    enum espl_status status = check_model(cli, settings, err);
    if (status == ESPL_OK) {
        status = read_numbers(cli, settings, err);
    }
    if (status == ESPL_OK) {
        status = read_forms(cli, settings, err);
    }
    if (status == ESPL_OK) {
        status = read_baselines(cli, settings, err);
    }
    if (status == ESPL_OK) {
        status = load_libraries(cli, settings, err);
    }
    if (status == ESPL_OK) {
        status = read_layers(cli, settings, err);
    }
    if (status == ESPL_OK) {
        status = check_bits(settings, err);
    }
    return status == ESPL_OK ? check(settings, err) : status;
}

void espl_spmm_settings_free(struct espl_spmm_settings *settings)
{
    for (size_t i = 0; i < settings->library_count; i++) {
        (void)dlclose(settings->libraries[i]);
    }
}
