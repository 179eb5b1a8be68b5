#include "stages/import/import_checkpoint.h"

#include "model/element.h"
#include "stages/import/import_match.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_LIMIT = 16 << 20, NOTES_LIMIT = 16384, LISTED_NAMES = 8, FOLDER_LIMIT = 100000 };

/* "looked relative to the current folder; 'datasets' holds: a, b": of the nearest folder above that
 * there is. */
static enum espl_status fail_missing(const char *path, struct espl_error *err)
{
    char parent[ESPL_PATH_MAX];
    struct espl_buf list;
    char **names = NULL;
    size_t count = 0;

    (void)espl_fail(err, ESPL_E_NOTFOUND, "cannot find checkpoint '%s'", path);
    (void)snprintf(parent, sizeof parent, "%s", path);
    do {
        char *slash = strrchr(parent, '/');
        if (slash == NULL) {
            (void)snprintf(parent, sizeof parent, ".");
        } else {
            slash[slash == parent ? 1 : 0] = '\0';
        }
    } while (!espl_fs_is_dir(parent) && strcmp(parent, ".") != 0 && strcmp(parent, "/") != 0);

    const char *where = path[0] == '/' ? "" : "looked relative to the current folder; ";
    espl_buf_init(&list, 256);
    if (espl_fs_list(parent, FOLDER_LIMIT, &names, &count, NULL) == ESPL_OK) {
        size_t shown = 0;
        for (; shown < count && shown < LISTED_NAMES; shown++) {
            if (!espl_buf_printf(&list, "%s%s", shown > 0 ? ", " : "", names[shown])) {
                break; /* enough names */
            }
        }
        (void)espl_hint(err, "%s'%s' %s%s%s", where, parent,
                        count == 0 ? "is empty" : "holds: ", espl_buf_text(&list),
                        shown < count ? ", ..." : "");
        espl_fs_free_names(names, count);
    } else {
        (void)espl_hint(err, "%sthere is no folder '%s' either", where, parent);
    }
    espl_buf_free(&list);
    return ESPL_E_NOTFOUND;
}

/* A file instead of a folder: pickles are refused by name, all else gets the general advice. */
static enum espl_status fail_file(const char *path, struct espl_error *err)
{
    struct espl_safetensors *files = NULL;
    const enum espl_status status = espl_safetensors_open(path, &files, err);
    espl_safetensors_close(files);
    if (status == ESPL_E_UNSUPPORTED) {
        return status;
    }
    (void)espl_fail(err, ESPL_E_KIND, "checkpoint '%s' is a file, expected a folder", path);
    return espl_hint(err, "name the folder that holds config.json and the *.safetensors files");
}

/* arch: what the job says; it must not contradict what config.json says when that is known. */
static enum espl_status apply_arch(struct espl_import_checkpoint *checkpoint, json_t *hf,
                                   const char *arch, struct espl_error *err)
{
    const char *type = json_string_value(json_object_get(hf, "model_type"));
    const struct espl_arch *known = espl_arch_of_config(hf);
    const char *key = type != NULL ? "model_type" : "architecture";
    if (type == NULL) {
        type = json_string_value(json_object_get(hf, "architecture"));
    }
    if (arch == NULL || (known != NULL && strcmp(known->name, arch) == 0)) {
        return ESPL_OK;
    }
    if (known != NULL) {
        (void)espl_fail(err, ESPL_E_KIND, "arch is '%s', but config.json says %s '%s'", arch, key,
                        type);
        (void)espl_blame(err, "param:arch");
        return espl_hint(err, "leave arch out, or name the right checkpoint");
    }
    (void)espl_buf_printf(&checkpoint->notes,
                          "read as %s, as arch says; config.json says %s%s%s%s\n", arch,
                          type != NULL ? key : "nothing", type != NULL ? " '" : "",
                          type != NULL ? type : "", type != NULL ? "'" : "");
    if (json_object_set_new(hf, "model_type", json_string(arch)) != 0) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for config.json");
    }
    return ESPL_OK;
}

static enum espl_status read_config(struct espl_import_checkpoint *checkpoint, const char *path,
                                    const char *arch, struct espl_error *err)
{
    char *text = NULL;
    size_t len = 0;
    json_t *hf = NULL;
    json_error_t json_err;

    enum espl_status status = espl_fs_join(checkpoint->config_path, path, "config.json", err);
    if (status != ESPL_OK) {
        return status;
    }
    if (!espl_fs_exists(checkpoint->config_path)) {
        (void)espl_fail(err, ESPL_E_NOTFOUND, "no config.json in checkpoint '%s'", path);
        return espl_hint(err, "a checkpoint is a folder with config.json and *.safetensors files, "
                              "as HF transformers saves it");
    }
    status = espl_fs_read_file(checkpoint->config_path, CONFIG_LIMIT, &text, &len, err);
    if (status != ESPL_OK) {
        return status;
    }
    hf = json_loadb(text, len, JSON_REJECT_DUPLICATES, &json_err);
    if (hf == NULL) {
        status = espl_fail(err, ESPL_E_CORRUPT, "'%s' is not valid JSON: %s (line %d, column %d)",
                           checkpoint->config_path, json_err.text, json_err.line, json_err.column);
    }
    if (status == ESPL_OK && json_is_object(hf)) {
        status = apply_arch(checkpoint, hf, arch, err);
    }
    if (status == ESPL_OK) {
        status = espl_model_config_from_hf(hf, &checkpoint->config, err);
        if (status != ESPL_OK) {
            (void)espl_context(err, "while reading '%s'", checkpoint->config_path);
        }
    }
    json_decref(hf);
    free(text);
    return status;
}

/* Parts of one tensor have one type, one that weights have. */
static enum espl_status check_tensor_type(const struct espl_import_checkpoint *checkpoint,
                                          size_t index, struct espl_error *err)
{
    const struct espl_safetensor *first = checkpoint->sources[index];
    for (size_t part = 0; part < espl_import_part_count(checkpoint, index); part++) {
        const struct espl_safetensor *tensor = espl_import_part(checkpoint, index, part);
        if (tensor->foreign[0] != '\0' || !espl_element_is_weight(tensor->dtype)) {
            (void)espl_fail(
                err, ESPL_E_UNSUPPORTED, "tensor '%s' has elements of type %s", tensor->name,
                tensor->foreign[0] != '\0' ? tensor->foreign : espl_dtype_name(tensor->dtype));
            return espl_hint(err, "weights of type f16, bf16 and f32 can be imported");
        }
        if (tensor->dtype != first->dtype) {
            return espl_fail(err, ESPL_E_UNSUPPORTED,
                             "tensor '%s' is %s, but '%s', which it is joined with, is %s",
                             tensor->name, espl_dtype_name(tensor->dtype), first->name,
                             espl_dtype_name(first->dtype));
        }
    }
    return ESPL_OK;
}

/* The model's dtype is that of its largest table. */
static enum espl_status check_types(struct espl_import_checkpoint *checkpoint,
                                    struct espl_error *err)
{
    struct espl_model_config *config = &checkpoint->config;
    for (size_t i = 0; i < checkpoint->count; i++) {
        const struct espl_safetensor *tensor = checkpoint->sources[i];
        const enum espl_status status = check_tensor_type(checkpoint, i, err);
        if (status != ESPL_OK) {
            return status;
        }
        if (checkpoint->specs[i].role != ESPL_ROLE_EMBEDDING || checkpoint->specs[i].is_bias) {
            continue;
        }
        const char *stored = espl_dtype_name(tensor->dtype);
        if (config->dtype[0] != '\0' && strcmp(config->dtype, stored) != 0) {
            (void)espl_buf_printf(&checkpoint->notes,
                                  "config.json says the weights are %s, they are %s\n",
                                  config->dtype, stored);
        }
        (void)snprintf(config->dtype, sizeof config->dtype, "%s", stored);
    }
    return ESPL_OK;
}

static enum espl_status open_files(struct espl_import_checkpoint *checkpoint, const char *path,
                                   struct espl_error *err)
{
    enum espl_status status = espl_safetensors_open(path, &checkpoint->files, err);
    if (status == ESPL_OK) {
        (void)espl_buf_puts(&checkpoint->notes, espl_safetensors_notes(checkpoint->files));
        status =
            espl_arch_tensors(&checkpoint->config, &checkpoint->specs, &checkpoint->count, err);
    }
    if (status == ESPL_OK) {
        status = espl_import_match(checkpoint, err);
    }
    if (status == ESPL_OK) {
        status = check_types(checkpoint, err);
    }
    return status;
}

enum espl_status espl_import_checkpoint_open(const char *path, const char *arch,
                                             struct espl_import_checkpoint **out,
                                             struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    if (!espl_fs_exists(path)) {
        return fail_missing(path, err);
    }
    if (!espl_fs_is_dir(path)) {
        return fail_file(path, err);
    }
    struct espl_import_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    if (checkpoint == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a checkpoint");
    }
    espl_buf_init(&checkpoint->notes, NOTES_LIMIT);
    status = read_config(checkpoint, path, arch, err);
    if (status == ESPL_OK) {
        status = open_files(checkpoint, path, err);
    }
    if (status != ESPL_OK) {
        espl_import_checkpoint_close(checkpoint);
        return status;
    }
    *out = checkpoint;
    return ESPL_OK;
}

size_t espl_import_part_count(const struct espl_import_checkpoint *checkpoint, size_t index)
{
    size_t count = 1;
    while (count < ESPL_ARCH_MAX_PARTS && espl_import_part(checkpoint, index, count) != NULL) {
        count++;
    }
    return count;
}

void espl_import_checkpoint_close(struct espl_import_checkpoint *checkpoint)
{
    if (checkpoint == NULL) {
        return;
    }
    espl_safetensors_close(checkpoint->files);
    espl_buf_free(&checkpoint->notes);
    free(checkpoint->specs);
    free(checkpoint->sources);
    free(checkpoint->parts);
    free(checkpoint);
}
