#include "stages/iebme_encode/random_model.h"

#include "core/checked.h"
#include "core/codes.h"
#include "core/fs.h"
#include "core/rng.h"
#include "model/model.h"
#include "model/quantised.h"
#include "stages/quant_common/channel_order.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OUTLIER_CODE_MAX = 127, PIECE_BYTES = 8 << 20 };

static const double weight_scale = 0.02; /* standard deviation of the weights, as synth has it */

struct random_model {
    const struct espl_random_model_options *options;
    struct espl_model_config config;
    struct espl_tensor_spec *specs;
    size_t spec_count;
    struct espl_quant_scheme scheme;
    struct espl_quant_linear linears[ESPL_ROLE_COUNT]; /* of every block; out 0 = no such linear */
    int32_t *orders[ESPL_QUANT_SITES];
    size_t order_counts[ESPL_QUANT_SITES];
    struct espl_synth_weights *weights;
    struct espl_artifact *artifact;
    uint64_t bytes_done, bytes_total;
};

static bool is_coded(const struct espl_tensor_spec *spec)
{
    return spec->layer >= 0 && spec->rank == 2 && !spec->is_bias &&
           espl_role_is_block_linear(spec->role);
}

/* ---- sizes ---- */

static enum espl_status add_width(struct random_model *model, size_t columns,
                                  struct espl_error *err)
{
    struct espl_quant_scheme *scheme = &model->scheme;
    const size_t outliers = espl_outliers_auto(columns);
    const size_t group = espl_group_auto(columns - outliers);
    if (espl_quant_scheme_width(scheme, columns) != NULL) {
        return ESPL_OK;
    }
    if (group == 0 || scheme->width_count == ESPL_QUANT_MAX_WIDTHS) {
        espl_fail(err, ESPL_E_USAGE,
                  "no group of 128, 64 or 32 columns fits %zu columns of which %zu are outliers",
                  columns, outliers);
        return espl_hint(err, "give --hidden and --ffn in multiples of 128");
    }
    scheme->widths[scheme->width_count++] = (struct espl_quant_width){columns, outliers, group};
    return ESPL_OK;
}

static enum espl_status make_sizes(struct random_model *model, struct espl_error *err)
{
    const struct espl_random_model_options *options = model->options;
    if (espl_synth_is_image_shape(options->checkpoint.shape)) {
        espl_fail(err, ESPL_E_USAGE, "shape '%s' is an image model", options->checkpoint.shape);
        return espl_hint(err, "encoded models are language models: opt-13b, llama-2-7b, ...");
    }
    model->scheme = (struct espl_quant_scheme){.weight_bits = options->bits,
                                               .activation_bits = 4,
                                               .kv_bits = 4,
                                               .rows_per_scale = 1,
                                               .weight_clip = 1.0,
                                               .activation_clip = 1.0,
                                               .kv_clip = 1.0,
                                               .full_scale = true,
                                               .reordered = true};
    enum espl_status status = espl_synth_config(&options->checkpoint, &model->config, err);
    if (status == ESPL_OK) {
        status = espl_arch_tensors(&model->config, &model->specs, &model->spec_count, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < model->spec_count; i++) {
        if (is_coded(&model->specs[i])) {
            status = add_width(model, (size_t)model->specs[i].shape[1], err);
        }
    }
    return status;
}

/* ---- numbers ---- */

/* Codes of one random word: 16 bits decide whether a code is 0, 16 which one it is. */
static void fill_codes(struct espl_rng *rng, const struct espl_random_model_options *options,
                       size_t count, int8_t *codes)
{
    const uint32_t zero_below = (uint32_t)lround(options->sparsity * 65536.0);
    const uint32_t most = (1u << (options->bits - 1u)) - 1u;
    for (size_t i = 0; i < count; i += 2) {
        uint64_t word = espl_rng_u64(rng);
        for (size_t j = i; j < count && j < i + 2; j++) {
            const uint32_t size = 1u + (((uint32_t)(word >> 16) & 0x7fffu) * most >> 15);
            const bool negative = (word >> 31 & 1u) != 0;
            const int code = negative ? -(int)size : (int)size;
            codes[j] = (int8_t)((word & 0xffffu) < zero_below ? 0 : code);
            word >>= 32;
        }
    }
}

static float *constant(size_t count, float value)
{
    float *values = malloc(count * sizeof *values);
    for (size_t i = 0; values != NULL && i < count; i++) {
        values[i] = value;
    }
    return values;
}

/* Scales that give weights of the usual size, zeros included. */
static enum espl_status fill_sides(struct espl_rng *rng,
                                   const struct espl_random_model_options *options,
                                   struct espl_quant_linear *linear, struct espl_error *err)
{
    const double most = (double)((1u << (options->bits - 1u)) - 1u);
    const double square = (most + 1.0) * (2.0 * most + 1.0) / 6.0; /* mean over 1 .. most */
    const double kept = fmax(1.0 - options->sparsity, 1.0 / 65536.0);
    const size_t outliers = linear->out * linear->outliers;
    linear->scales =
        constant(linear->out * linear->groups, (float)(weight_scale / sqrt(square * kept)));
    if (outliers > 0) {
        linear->outlier_codes = malloc(outliers);
        linear->outlier_scales =
            constant(linear->out, (float)(weight_scale * sqrt(3.0) / OUTLIER_CODE_MAX));
    }
    if (linear->scales == NULL ||
        (outliers > 0 && (linear->outlier_codes == NULL || linear->outlier_scales == NULL))) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a linear layer of %zu x %zu",
                         linear->out, linear->in);
    }
    for (size_t i = 0; i < outliers; i++) {
        const int code = (int)espl_rng_below(rng, 2 * OUTLIER_CODE_MAX + 1) - OUTLIER_CODE_MAX;
        linear->outlier_codes[i] = (int8_t)code;
    }
    return ESPL_OK;
}

static enum espl_status encode(struct espl_rng *rng,
                               const struct espl_random_model_options *options,
                               struct espl_quant_linear *linear, struct espl_error *err)
{
    const struct espl_iebme_layout layout = {linear->out, linear->normal, options->bits,
                                             options->areas, ESPL_IEBME_SCOPE_NONE};
    struct espl_iebme_plan plan;
    size_t count = 0;
    int8_t *codes = espl_mul_size(linear->out, linear->normal, &count) ? malloc(count) : NULL;
    struct espl_iebme_matrix *matrix = calloc(1, sizeof *matrix);
    enum espl_status status =
        codes == NULL || matrix == NULL
            ? espl_fail(err, ESPL_E_NOMEM, "no memory for %zu x %zu codes", linear->out, linear->in)
            : ESPL_OK;
    if (status == ESPL_OK) {
        fill_codes(rng, options, count, codes);
        status = espl_iebme_plan(codes, &layout, NULL, &plan, err);
    }
    if (status == ESPL_OK) {
        status = espl_iebme_encode(codes, NULL, &plan, matrix, err);
    }
    free(codes);
    if (status != ESPL_OK) {
        free(matrix);
        return status;
    }
    linear->encoded = matrix;
    return ESPL_OK;
}

static enum espl_status make_order(struct random_model *model, const struct espl_tensor_spec *spec,
                                   struct espl_error *err)
{
    const enum espl_quant_site site = espl_quant_site_of(spec->role);
    const size_t count = (size_t)spec->shape[1];
    if (model->orders[site] != NULL) {
        return ESPL_OK;
    }
    struct espl_rng rng =
        espl_rng_stream(model->options->checkpoint.seed, espl_quant_order_name(site), 0);
    int32_t *order = malloc(count * sizeof *order);
    if (order == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for an order of %zu columns", count);
    }
    espl_reorder_identity(count, order);
    for (size_t i = count - 1; i > 0; i--) {
        const size_t j = (size_t)espl_rng_below(&rng, i + 1);
        const int32_t kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    model->orders[site] = order;
    model->order_counts[site] = count;
    return ESPL_OK;
}

/* The linears of block 0, which stand for those of all. */
static enum espl_status make_block(struct random_model *model, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < model->spec_count; i++) {
        const struct espl_tensor_spec *spec = &model->specs[i];
        if (!is_coded(spec) || spec->layer != 0) {
            continue;
        }
        struct espl_quant_linear *linear = &model->linears[spec->role];
        struct espl_rng rng = espl_rng_stream(model->options->checkpoint.seed, spec->name, 1);
        *linear = espl_quant_linear_sizes(
            &model->scheme, espl_quant_scheme_width(&model->scheme, (size_t)spec->shape[1]),
            (size_t)spec->shape[0]);
        status = fill_sides(&rng, model->options, linear, err);
        if (status == ESPL_OK) {
            status = encode(&rng, model->options, linear, err);
        }
        if (status == ESPL_OK) {
            status = make_order(model, spec, err);
        }
    }
    return status;
}

/* ---- the file ---- */

static enum espl_status describe(struct random_model *model, struct espl_error *err)
{
    const struct espl_random_model_options *options = model->options;
    json_t *description = espl_model_description(&model->config);
    json_t *members =
        json_pack("{s:o*, s:{s:s, s:s}, s:{s:s, s:f, s:s}}", "quantisation",
                  espl_quant_scheme_to_json(&model->scheme), "encoding", "format", "ie-bme/1",
                  "areas", espl_iebme_areas_name(options->areas), "pruning", "method", "random",
                  "sparsity", options->sparsity, "pattern", "none");
    char *text = NULL;
    if (members != NULL && json_object_get(members, "quantisation") != NULL &&
        json_object_update(description, members) == 0) {
        text = json_dumps(description, JSON_COMPACT | JSON_SORT_KEYS);
    }
    const enum espl_status status =
        text == NULL ? espl_fail(err, ESPL_E_NOMEM, "out of memory for a model description")
                     : espl_artifact_set_description(model->artifact, text, err);
    free(text);
    json_decref(members);
    json_decref(description);
    return status;
}

static enum espl_status report(struct random_model *model, uint64_t bytes, struct espl_error *err)
{
    const struct espl_synth_options *options = &model->options->checkpoint;
    model->bytes_done += bytes;
    if (options->progress != NULL &&
        !options->progress(options->progress_user, model->bytes_done, model->bytes_total)) {
        return espl_fail(err, ESPL_E_CANCELLED, "stopped while writing '%s'", model->options->path);
    }
    return ESPL_OK;
}

static size_t row_bytes(const struct random_model *model, const struct espl_tensor_spec *spec)
{
    return (size_t)(spec->rank == 2 ? spec->shape[1] : 1) *
           espl_dtype_size(model->options->checkpoint.dtype);
}

/* The tensor of block 0 at the same place: all blocks hold the same values. */
static const struct espl_tensor_spec *drawn_as(const struct random_model *model,
                                               const struct espl_tensor_spec *spec)
{
    for (size_t i = 0; spec->layer > 0 && i < model->spec_count; i++) {
        const struct espl_tensor_spec *first = &model->specs[i];
        if (first->layer == 0 && first->role == spec->role && first->is_bias == spec->is_bias) {
            return first;
        }
    }
    return spec;
}

static enum espl_status write_float(struct random_model *model, const struct espl_tensor_spec *spec,
                                    struct espl_error *err)
{
    const struct espl_tensor_spec *drawn = drawn_as(model, spec);
    const struct espl_tensor_info info = espl_tensor_info_make(
        spec->path, model->options->checkpoint.dtype, spec->rank, spec->shape);
    const size_t width = row_bytes(model, spec);
    const uint64_t step = width >= PIECE_BYTES ? 1 : PIECE_BYTES / width;
    void *piece = malloc((size_t)step * width);
    enum espl_status status =
        piece != NULL
            ? espl_artifact_create_rows(model->artifact, &info, err)
            : espl_fail(err, ESPL_E_NOMEM, "out of memory for a piece of '%s'", spec->name);
    for (uint64_t row = 0; status == ESPL_OK && row < spec->shape[0]; row += step) {
        const uint64_t rows = spec->shape[0] - row < step ? spec->shape[0] - row : step;
        espl_synth_weights_read(model->weights, drawn, row, piece, (size_t)rows * width);
        status = espl_artifact_append_rows(model->artifact, spec->path, rows, piece, err);
        if (status == ESPL_OK) {
            status = report(model, rows * width, err);
        }
    }
    free(piece);
    return status;
}

static enum espl_status write_coded(struct random_model *model, const struct espl_tensor_spec *spec,
                                    bool orders_written[ESPL_QUANT_SITES], struct espl_error *err)
{
    const struct espl_quant_linear *linear = &model->linears[spec->role];
    const enum espl_quant_site site = espl_quant_site_of(spec->role);
    enum espl_status status = espl_quant_linear_write(model->artifact, spec, linear, err);
    if (status == ESPL_OK && !orders_written[site]) {
        orders_written[site] = true;
        status = espl_quant_order_write(model->artifact, spec->layer, site, model->orders[site],
                                        model->order_counts[site], err);
    }
    return status == ESPL_OK ? report(model, espl_quant_linear_bytes(linear), err) : status;
}

static enum espl_status write_tensors(struct random_model *model, struct espl_error *err)
{
    bool orders_written[ESPL_QUANT_SITES] = {false};
    int64_t layer = -1;
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; i < model->spec_count; i++) {
        const struct espl_tensor_spec *spec = &model->specs[i];
        model->bytes_total += is_coded(spec) ? espl_quant_linear_bytes(&model->linears[spec->role])
                                             : spec->shape[0] * row_bytes(model, spec);
    }
    for (size_t i = 0; status == ESPL_OK && i < model->spec_count; i++) {
        const struct espl_tensor_spec *spec = &model->specs[i];
        if (spec->layer != layer) {
            layer = spec->layer;
            memset(orders_written, 0, sizeof orders_written);
        }
        status = is_coded(spec) ? write_coded(model, spec, orders_written, err)
                                : write_float(model, spec, err);
    }
    return status;
}

static enum espl_status write_file(struct random_model *model, struct espl_error *err)
{
    char temporary[ESPL_PATH_MAX];
    espl_fs_remove_abandoned(model->options->path);
    enum espl_status status = espl_fs_temporary_name(temporary, model->options->path, err);
    if (status == ESPL_OK) {
        status = espl_artifact_create(temporary, "model.iebme/1", &model->artifact, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    status = describe(model, err);
    if (status == ESPL_OK) {
        status = write_tensors(model, err);
    }
    if (status != ESPL_OK) {
        espl_artifact_abandon(model->artifact);
        return status;
    }
    status = espl_artifact_finish(&model->artifact, NULL, err);
    return status == ESPL_OK ? espl_fs_publish(temporary, model->options->path, err) : status;
}

static enum espl_status check_options(const struct espl_random_model_options *options,
                                      struct espl_error *err)
{
    if (!(options->sparsity >= 0.0 && options->sparsity <= 1.0)) {
        return espl_fail(err, ESPL_E_USAGE, "a share of zeros is from 0 to 1, not %g",
                         options->sparsity);
    }
    if (options->bits != 2 && options->bits != 4) {
        return espl_fail(err, ESPL_E_USAGE, "codes of an encoded random model have 2 or 4 bits");
    }
    if (espl_fs_exists(options->path)) {
        espl_fail(err, ESPL_E_USAGE, "'%s' is there already", options->path);
        return espl_hint(err, "name a file that does not exist, or remove it first");
    }
    return ESPL_OK;
}

enum espl_status espl_random_model_write(const struct espl_random_model_options *options,
                                         uint64_t *bytes, struct espl_error *err)
{
    struct random_model model = {.options = options};
    enum espl_status status = check_options(options, err);
    if (status == ESPL_OK) {
        status = make_sizes(&model, err);
    }
    if (status == ESPL_OK) {
        status = espl_synth_weights_create(options->checkpoint.dtype, options->checkpoint.seed,
                                           &model.weights, err);
    }
    if (status == ESPL_OK) {
        status = make_block(&model, err);
    }
    if (status == ESPL_OK) {
        status = write_file(&model, err);
    }
    if (status == ESPL_OK && bytes != NULL) {
        *bytes = model.bytes_total;
    }
    for (size_t role = 0; role < ESPL_ROLE_COUNT; role++) {
        espl_quant_linear_free(&model.linears[role]);
    }
    for (size_t site = 0; site < ESPL_QUANT_SITES; site++) {
        free(model.orders[site]);
    }
    espl_synth_weights_destroy(model.weights);
    free(model.specs);
    return status;
}
