#include "stages/export/export_write.h"

#include "core/checked.h"
#include "core/fs.h"
#include "model/checkpoint_folder.h"
#include "model/checkpoint_writer.h"
#include "model/safetensors.h"
#include "stages/export/export_manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COPY_LIMIT = 256 << 20 };

struct export
{
    struct espl_model *model;
    const struct espl_export_options *options;
    const struct espl_export_hooks *hooks;
    char folder[ESPL_PATH_MAX]; /* the temporary one */
    enum espl_dtype dtype;      /* of all tensors */
};

/* ---- weights ---- */

/* The one type of all tensors. A model whose stage has changed weights holds these in float32 and
 * the rest in the type of its base: readers go by one type for all, so that is float32 then. */
static enum espl_dtype common_dtype(const struct espl_model *model)
{
    const enum espl_dtype first = espl_model_dtype(model, espl_model_tensor(model, 0));
    for (size_t i = 1; i < espl_model_tensor_count(model); i++) {
        if (espl_model_dtype(model, espl_model_tensor(model, i)) != first) {
            return ESPL_DTYPE_F32;
        }
    }
    return first;
}

static enum espl_status read_rows(void *user, size_t index, uint64_t row, uint64_t rows, void *dst,
                                  size_t bytes, struct espl_error *err)
{
    const struct export *self = user;
    const struct espl_tensor_spec *spec = espl_model_tensor(self->model, index);
    return self->dtype == ESPL_DTYPE_F32
               ? espl_model_read_f32(self->model, spec, row, rows, dst, err)
               : espl_model_read_raw(self->model, spec, row, rows, dst, bytes, err);
}

static bool on_progress(void *user, uint64_t done, uint64_t total)
{
    const struct export *self = user;
    if (self->hooks->progress != NULL) {
        self->hooks->progress(self->hooks->user, done, total);
    }
    return self->hooks->cancelled == NULL || !self->hooks->cancelled(self->hooks->user);
}

static enum espl_status write_weights(struct export *self, struct espl_error *err)
{
    const size_t count = espl_model_tensor_count(self->model);
    struct espl_model_config config = *espl_model_get_config(self->model);
    enum espl_dtype *dtypes = calloc(count, sizeof *dtypes);
    if (dtypes == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu tensors", count);
    }
    for (size_t i = 0; i < count; i++) {
        dtypes[i] = self->dtype;
    }
    (void)snprintf(config.dtype, sizeof config.dtype, "%s", espl_dtype_name(self->dtype));
    const struct espl_checkpoint_source source = {
        .specs = espl_model_tensor(self->model, 0),
        .dtypes = dtypes,
        .count = count,
        .read = read_rows,
        .progress = on_progress,
        .user = self,
    };
    const enum espl_status status =
        espl_checkpoint_write(self->folder, &config, &source, self->options->shard_size, NULL, err);
    free(dtypes);
    return status;
}

/* ---- masks ---- */

static bool next_masked(const struct espl_model *model, size_t *index)
{
    const size_t count = espl_model_tensor_count(model);
    while (*index < count && !espl_model_has_mask(model, espl_model_tensor(model, *index))) {
        (*index)++;
    }
    return *index < count;
}

/* "model.layers.0.self_attn.q_proj.mask" beside "...q_proj.weight". */
static void describe_mask(const struct espl_tensor_spec *spec, struct espl_safetensor *tensor)
{
    const char *dot = strrchr(spec->name, '.');
    memset(tensor, 0, sizeof *tensor);
    (void)snprintf(tensor->name, sizeof tensor->name, "%.*s.mask", (int)(dot - spec->name),
                   spec->name);
    tensor->dtype = ESPL_DTYPE_U8;
    tensor->rank = 2;
    tensor->shape[0] = spec->shape[0];
    tensor->shape[1] = espl_ceil_div((size_t)spec->shape[1], 8);
}

static enum espl_status write_mask(struct export *self, const struct espl_tensor_spec *spec,
                                   uint8_t *piece, struct espl_safetensors_writer *writer,
                                   struct espl_error *err)
{
    const size_t stride = espl_ceil_div((size_t)spec->shape[1], 8);
    const uint64_t step = ESPL_CHECKPOINT_PIECE / stride;
    enum espl_status status = ESPL_OK;
    for (uint64_t row = 0; status == ESPL_OK && row < spec->shape[0]; row += step) {
        const uint64_t left = spec->shape[0] - row;
        const uint64_t rows = left < step ? left : step;
        status = espl_model_read_mask(self->model, spec, row, rows, piece, err);
        if (status == ESPL_OK) {
            status = espl_safetensors_writer_append(writer, piece, (size_t)rows * stride, err);
        }
    }
    return status;
}

static enum espl_status write_masks(struct export *self, struct espl_error *err)
{
    static const char metadata[] = "{\"format\":\"espalier-masks/1\",\"packing\":\"bitmask-lsb0\"}";
    const size_t count = espl_model_tensor_count(self->model);
    struct espl_safetensor *tensors = calloc(count, sizeof *tensors);
    uint8_t *piece = malloc(ESPL_CHECKPOINT_PIECE);
    struct espl_safetensors_writer *writer = NULL;
    char path[ESPL_PATH_MAX];
    size_t masked = 0;
    enum espl_status status = espl_fs_join(path, self->folder, ESPL_EXPORT_MASKS, err);

    if (tensors == NULL || piece == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for masks");
        goto cleanup;
    }
    for (size_t i = 0; status == ESPL_OK && next_masked(self->model, &i); i++) {
        describe_mask(espl_model_tensor(self->model, i), &tensors[masked++]);
    }
    if (status == ESPL_OK && masked > 0) {
        status = espl_safetensors_writer_open(path, tensors, masked, metadata, &writer, err);
    }
    for (size_t i = 0; status == ESPL_OK && next_masked(self->model, &i); i++) {
        status = write_mask(self, espl_model_tensor(self->model, i), piece, writer, err);
    }
    if (status == ESPL_OK && writer != NULL) {
        status = espl_safetensors_writer_finish(&writer, err);
    }

cleanup:
    espl_safetensors_writer_abandon(writer);
    free(piece);
    free(tensors);
    return status;
}

/* ---- tokenizer files ---- */

/* Those that are a tokenizer come first. */
static const char *const tokenizer_names[ESPL_EXPORT_TOKENIZER_FILES] = {
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "tokenizer_config.json",
    "added_tokens.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
};
enum { TOKENIZERS = 3 };

/* The path itself when it is a folder, else the folder that holds it. */
static bool folder_of(const char *path, char out[ESPL_PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t len = strlen(path);
    const char *from = path;
    if (!espl_fs_is_dir(path)) {
        from = slash != NULL ? path : ".";
        len = slash == NULL || slash == path ? 1 : (size_t)(slash - path);
    }
    if (len >= ESPL_PATH_MAX) {
        return false;
    }
    memcpy(out, from, len);
    out[len] = '\0';
    return true;
}

enum espl_status espl_export_find_tokenizer(const char *path,
                                            char *files[ESPL_EXPORT_TOKENIZER_FILES], size_t *count,
                                            struct espl_error *err)
{
    char folder[ESPL_PATH_MAX];
    char file[ESPL_PATH_MAX];
    size_t found = 0;
    size_t tokenizers = 0;
    enum espl_status status = ESPL_OK;

    if (!folder_of(path, folder)) {
        return espl_fail(err, ESPL_E_IO, "path too long: '%.200s'", path);
    }
    for (size_t i = 0; status == ESPL_OK && i < ESPL_EXPORT_TOKENIZER_FILES; i++) {
        status = espl_fs_join(file, folder, tokenizer_names[i], err);
        if (status == ESPL_OK && espl_fs_exists(path) && espl_fs_exists(file)) {
            files[found] = strdup(file);
            tokenizers += i < TOKENIZERS;
            status = files[found++] == NULL
                         ? espl_fail(err, ESPL_E_NOMEM, "out of memory for a path")
                         : ESPL_OK;
        }
    }
    if (status == ESPL_OK && tokenizers == 0) {
        (void)espl_fail(err, ESPL_E_NOTFOUND, "no tokenizer files at '%s'", path);
        (void)espl_blame(err, "param:tokenizer");
        status = espl_hint(err, "name the folder that holds tokenizer.json (or tokenizer.model, or "
                                "vocab.json)");
    }
    if (status != ESPL_OK) {
        for (size_t i = 0; i < found; i++) {
            free(files[i]);
        }
        return status;
    }
    *count = found;
    return ESPL_OK;
}

static enum espl_status copy_file(const struct export *self, const char *file,
                                  struct espl_error *err)
{
    const char *slash = strrchr(file, '/');
    char path[ESPL_PATH_MAX];
    char *data = NULL;
    size_t len = 0;
    enum espl_status status =
        espl_fs_join(path, self->folder, slash != NULL ? slash + 1 : file, err);
    if (status == ESPL_OK) {
        status = espl_fs_read_file(file, COPY_LIMIT, &data, &len, err);
    }
    if (status == ESPL_OK) {
        status = espl_fs_write_file(path, data, len, err);
    }
    free(data);
    return status;
}

/* ---- all of it ---- */

static enum espl_status write_content(struct export *self, json_t *manifest, struct espl_error *err)
{
    const struct espl_model_config *config = espl_model_get_config(self->model);
    enum espl_status status = write_weights(self, err);
    if (status == ESPL_OK && self->options->masks) {
        status = write_masks(self, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < self->options->tokenizer_count; i++) {
        status = copy_file(self, self->options->tokenizer[i], err);
    }
    if (status == ESPL_OK) {
        status = espl_export_manifest_fill(self->folder, manifest, err);
    }
    if (status == ESPL_OK) {
        (void)json_object_set_new(manifest, "architecture", json_string(config->architecture));
        (void)json_object_set_new(manifest, "model_content_sha256",
                                  json_string(self->options->content_sha256));
        status = espl_checkpoint_write_json(self->folder, ESPL_EXPORT_MANIFEST,
                                            json_incref(manifest), err);
    }
    return status;
}

enum espl_status espl_export_write(struct espl_model *model,
                                   const struct espl_export_options *options,
                                   const struct espl_export_hooks *hooks, json_t **manifest,
                                   struct espl_error *err)
{
    struct export self = {
        .model = model, .options = options, .hooks = hooks, .dtype = common_dtype(model)};
    struct espl_checkpoint_folder folder = {.temporary = ""};
    json_t *made = NULL;

    enum espl_status status = espl_export_check_target(options->folder, err);
    if (status == ESPL_OK) {
        status = espl_checkpoint_folder_begin(options->folder, &folder, err);
    }
    if (status == ESPL_OK) {
        made = json_object();
        memcpy(self.folder, folder.temporary, sizeof self.folder);
        status = write_content(&self, made, err);
    }
    if (status == ESPL_OK) {
        status = espl_checkpoint_folder_publish(&folder, err);
    }
    espl_checkpoint_folder_abandon(&folder);
    if (status != ESPL_OK) {
        json_decref(made);
        return status == ESPL_E_CANCELLED
                   ? status
                   : espl_context(err, "while exporting to '%s'", options->folder);
    }
    *manifest = made;
    return ESPL_OK;
}
