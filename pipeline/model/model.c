/* Opening a model: the chain of artifacts down to the dense one, and what each of them holds. */
#include "model/model.h"

#include "artifact/kinds.h"
#include "core/fs.h"
#include "model/element.h"
#include "model/model_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char kind_dense[] = "model.dense/1";
static const char kind_masked[] = "model.masked/1";
static const char kind_updated[] = "model.updated/1";
static const char kind_quant[] = "model.quant/1";
static const char kind_iebme[] = "model.iebme/1";
static const char kind_nm[] = "model.nm/1";

static bool is_kind(const struct espl_artifact *artifact, const char *kind)
{
    return strcmp(espl_artifact_kind(artifact), kind) == 0;
}

static bool is_encoded(const struct espl_artifact *artifact)
{
    return is_kind(artifact, kind_iebme) || is_kind(artifact, kind_nm);
}

/* Holds integer codes, packed or encoded. */
static bool is_coded(const struct espl_artifact *artifact)
{
    return is_kind(artifact, kind_quant) || is_encoded(artifact);
}

/* Needs no other artifact. */
static bool stands_alone(const struct espl_artifact *artifact)
{
    return is_kind(artifact, kind_dense) || is_encoded(artifact);
}

/* ---- descriptions ---- */

json_t *espl_model_description(const struct espl_model_config *config)
{
    json_t *out = json_object();
    (void)json_object_set_new(out, "architecture", json_string(config->architecture));
    (void)json_object_set_new(out, "config", espl_model_config_to_json(config));
    return out;
}

enum espl_status espl_model_config_from_description(const json_t *description,
                                                    struct espl_model_config *config,
                                                    struct espl_error *err)
{
    const json_t *member = json_object_get(description, "config");
    if (!json_is_object(member)) {
        return espl_fail(err, ESPL_E_KIND, "the description holds no model configuration");
    }
    return espl_model_config_from_json(member, config, err);
}

static enum espl_status parse_description(const struct espl_artifact *artifact, json_t **out,
                                          struct espl_error *err)
{
    *out = json_loads(espl_artifact_description(artifact), JSON_REJECT_DUPLICATES, NULL);
    if (*out == NULL) {
        return espl_fail(err, ESPL_E_CORRUPT, "the description of '%s' is not JSON",
                         espl_artifact_path(artifact));
    }
    return ESPL_OK;
}

/* ---- the model under a mask ---- */

/* What an artifact does with its base model, for messages. */
static const char *relation(const struct espl_artifact *artifact)
{
    return is_kind(artifact, kind_masked) ? "masks" : "builds on";
}

/* dir/name when there is such a file. */
static bool try_path(const char *dir, const char *name, char out[ESPL_PATH_MAX])
{
    return espl_fs_join(out, dir, name, NULL) == ESPL_OK && espl_fs_exists(out);
}

/* Beside the artifact itself, so that two files copied together to another machine still work. */
static bool find_beside(const char *artifact_path, const char *name, char out[ESPL_PATH_MAX])
{
    char *real = realpath(artifact_path, NULL);
    bool found = false;
    if (real != NULL) {
        char *slash = strrchr(real, '/');
        if (slash != NULL) {
            *slash = '\0';
            found = try_path(real[0] != '\0' ? real : "/", name, out);
        }
        free(real);
    }
    return found;
}

/* The caller's store first; then the one that the artifact lies in, which may be another one when a
 * file was named by its path. What is found is compared with the hash of the base in any case. */
static enum espl_status find_base(const struct espl_artifact *artifact,
                                  const struct espl_store *store, char out[ESPL_PATH_MAX],
                                  struct espl_error *err)
{
    struct espl_store own;
    const struct espl_store *stores[] = {
        store, espl_store_of_file(espl_artifact_path(artifact), &own) ? &own : NULL};
    const char *key = espl_artifact_attribute(artifact, "parent_key");
    const char *port = espl_artifact_attribute(artifact, "parent_port");
    const char *job = espl_artifact_attribute(artifact, "job_name");
    char name[ESPL_SHA256_HEX + 80];

    if (key[0] == '\0' || strlen(key) >= ESPL_SHA256_HEX || strchr(key, '/') != NULL ||
        strlen(port) > 64 || strchr(port, '/') != NULL) {
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' does not say which model it %s",
                         espl_artifact_path(artifact), relation(artifact));
    }
    /* The only output of a stage has no port in its file name; which of the two this was is known
     * from what is there. */
    for (int with_port = 0; with_port < (port[0] != '\0' ? 2 : 1); with_port++) {
        (void)snprintf(name, sizeof name, "%s%s%s.h5", key, with_port ? "." : "",
                       with_port ? port : "");
        if (find_beside(espl_artifact_path(artifact), name, out)) {
            return ESPL_OK;
        }
        const char *store_port = with_port ? port : NULL;
        for (size_t i = 0; i < sizeof stores / sizeof stores[0]; i++) {
            if (stores[i] != NULL && espl_store_has(stores[i], key, store_port)) {
                return espl_store_artifact_path(stores[i], key, store_port, out, err);
            }
        }
    }
    (void)espl_fail(err, ESPL_E_NOTFOUND, "the model that '%s' %s is gone (key %.12s)",
                    espl_artifact_path(artifact), relation(artifact), key);
    return job[0] != '\0' ? espl_hint(err, "run job '%s' again to make it", job)
                          : espl_hint(err, "put its file, %s.h5, beside this one", key);
}

/* Opens what chain[last] masks and appends it. */
static enum espl_status push_base(struct espl_model *model, const json_t *description,
                                  const struct espl_store *store, struct espl_error *err)
{
    const struct espl_artifact *top = model->chain[model->chain_count - 1];
    const char *expected =
        json_string_value(json_object_get(json_object_get(description, "base"), "content_sha256"));
    char path[ESPL_PATH_MAX];
    struct espl_artifact *base = NULL;

    if (expected == NULL) {
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' does not record the content of its base model",
                         espl_artifact_path(top));
    }
    if (model->chain_count == ESPL_MODEL_MAX_CHAIN) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "more than %d models masked one over the other",
                         (int)ESPL_MODEL_MAX_CHAIN - 1);
    }
    enum espl_status status = find_base(top, store, path, err);
    if (status == ESPL_OK) {
        status = espl_artifact_open(path, &base, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    model->chain[model->chain_count++] = base;
    if (strcmp(espl_artifact_content_sha256(base), expected) != 0) {
        (void)espl_fail(err, ESPL_E_CORRUPT,
                        "base model '%s' has content %.12s, but the %s were made for %.12s", path,
                        espl_artifact_content_sha256(base),
                        is_kind(top, kind_masked) ? "masks" : "weights", expected);
        return espl_hint(err, "the base was made again with other content: %s it again too",
                         is_kind(top, kind_quant) ? "quantise" : "prune");
    }
    return ESPL_OK;
}

/* ---- what is in the files ---- */

static enum espl_status check_dense_tensor(const struct espl_artifact *dense,
                                           const struct espl_tensor_spec *spec,
                                           struct espl_model_slot *slot, struct espl_error *err)
{
    const struct espl_tensor_info *info = espl_artifact_find(dense, spec->path);
    if (info == NULL) {
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' has no tensor '%s'", espl_artifact_path(dense),
                         spec->path);
    }
    bool same = info->rank == spec->rank && info->packing[0] == '\0';
    for (unsigned i = 0; same && i < spec->rank; i++) {
        same = info->shape[i] == spec->shape[i];
    }
    if (!same || !espl_element_is_weight(info->dtype)) {
        return espl_fail(err, ESPL_E_CORRUPT, "tensor '%s' of '%s' is not what the model needs",
                         spec->path, espl_artifact_path(dense));
    }
    slot->dtype = info->dtype;
    return ESPL_OK;
}

static enum espl_status check_mask(const struct espl_artifact *artifact,
                                   const struct espl_tensor_spec *spec, bool *has,
                                   struct espl_error *err)
{
    const struct espl_tensor_info expected = espl_model_mask_info(spec);
    const struct espl_tensor_info *info = espl_artifact_find(artifact, expected.path);
    *has = info != NULL;
    if (info != NULL &&
        (info->dtype != expected.dtype || info->rank != 2 ||
         strcmp(info->packing, expected.packing) != 0 ||
         memcmp(info->shape, expected.shape, 2 * sizeof info->shape[0]) != 0 ||
         memcmp(info->logical_shape, expected.logical_shape, 2 * sizeof info->shape[0]) != 0)) {
        return espl_fail(err, ESPL_E_CORRUPT, "mask '%s' of '%s' does not fit its weight",
                         expected.path, espl_artifact_path(artifact));
    }
    return ESPL_OK;
}

/* Looks from the top for the artifact that holds the values; masks above it apply. */
static enum espl_status read_slot(const struct espl_model *model,
                                  const struct espl_tensor_spec *spec, struct espl_model_slot *slot,
                                  struct espl_error *err)
{
    const bool linear = spec->rank == 2;
    for (size_t j = 0; j < model->chain_count; j++) {
        const struct espl_artifact *artifact = model->chain[j];
        const bool last = j + 1 == model->chain_count;
        const bool codes = is_coded(artifact) && espl_quant_is_stored(artifact, spec);
        const bool over = is_kind(artifact, kind_masked) || is_kind(artifact, kind_updated);
        bool has = false;
        if (linear && (over || codes)) {
            const enum espl_status status = check_mask(artifact, spec, &has, err);
            if (status != ESPL_OK) {
                return status;
            }
        }
        slot->masks = (uint16_t)(slot->masks | (has ? 1u << j : 0u));
        slot->owner = (uint8_t)j;
        if (codes) {
            slot->quantised = true;
            slot->dtype = ESPL_DTYPE_F32;
            return ESPL_OK;
        }
        if (last ||
            (is_kind(artifact, kind_updated) && espl_artifact_find(artifact, spec->path) != NULL)) {
            return check_dense_tensor(artifact, spec, slot, err);
        }
    }
    return ESPL_OK;
}

static enum espl_status read_slots(struct espl_model *model, struct espl_error *err)
{
    for (size_t i = 0; i < model->count; i++) {
        const enum espl_status status = read_slot(model, &model->specs[i], &model->slots[i], err);
        if (status != ESPL_OK) {
            return status;
        }
    }
    return ESPL_OK;
}

/* A linear without codes is read from the artifact below: right for one that was left in float,
 * wrong for one whose codes are lost. */
static enum espl_status check_linears(const struct espl_model *model, struct espl_error *err)
{
    json_int_t found = 0;
    for (size_t i = 0; i < model->count; i++) {
        found += model->slots[i].quantised ? 1 : 0;
    }
    if (model->linears == 0 || model->linears == found) {
        return ESPL_OK;
    }
    return espl_fail(err, ESPL_E_CORRUPT,
                     "'%s' has codes of %" JSON_INTEGER_FORMAT
                     " linears, but its description says %" JSON_INTEGER_FORMAT,
                     espl_artifact_path(model->chain[0]), found, model->linears);
}

/* May this artifact stand here in the chain? */
static enum espl_status check_kind(const struct espl_model *model,
                                   const struct espl_artifact *artifact, struct espl_error *err)
{
    if (!espl_kind_accepts(ESPL_MODEL_KINDS, espl_artifact_kind(artifact))) {
        return espl_fail(err, ESPL_E_KIND, "'%s' is of kind %s, not a language model",
                         espl_artifact_path(artifact), espl_artifact_kind(artifact));
    }
    if (is_coded(artifact) && model->chain_count > 1) {
        return espl_fail(err, ESPL_E_KIND, "'%s' is quantised; nothing can be built on it",
                         espl_artifact_path(artifact));
    }
    return ESPL_OK;
}

/* From the artifact down to one that stands alone. */
static enum espl_status open_chain(struct espl_model *model, const struct espl_store *store,
                                   struct espl_error *err)
{
    for (;;) {
        const struct espl_artifact *artifact = model->chain[model->chain_count - 1];
        const bool last = stands_alone(artifact);
        json_t *description = NULL;

        enum espl_status status = check_kind(model, artifact, err);
        if (status == ESPL_OK) {
            status = parse_description(artifact, &description, err);
        }
        if (status == ESPL_OK && model->chain_count == 1) {
            status = espl_model_config_from_description(description, &model->config, err);
        }
        if (status == ESPL_OK && is_coded(artifact)) {
            model->is_quantised = true;
            model->is_encoded = is_encoded(artifact);
            const json_t *scheme = json_object_get(description, "quantisation");
            model->linears = json_integer_value(json_object_get(scheme, "linears"));
            status = espl_quant_scheme_from_json(scheme, &model->scheme, err);
        }
        if (status == ESPL_OK && !last) {
            status = push_base(model, description, store, err);
        }
        json_decref(description);
        if (status != ESPL_OK || last) {
            return status;
        }
    }
}

enum espl_status espl_model_open(struct espl_artifact *artifact, const struct espl_store *store,
                                 struct espl_model **out, struct espl_error *err)
{
    struct espl_model *model = calloc(1, sizeof *model);
    if (model == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a model");
    }
    model->chain[0] = artifact;
    model->chain_count = 1;
    enum espl_status status = open_chain(model, store, err);
    if (status == ESPL_OK) {
        status = espl_arch_tensors(&model->config, &model->specs, &model->count, err);
    }
    if (status == ESPL_OK) {
        model->slots = calloc(model->count + 1, sizeof *model->slots);
        status = model->slots == NULL ? espl_fail(err, ESPL_E_NOMEM, "out of memory for a model")
                                      : read_slots(model, err);
    }
    if (status == ESPL_OK) {
        status = check_linears(model, err);
    }
    if (status != ESPL_OK) {
        (void)espl_context(err, "while opening the model '%s'", espl_artifact_path(artifact));
        espl_model_close(model);
        return status;
    }
    *out = model;
    return ESPL_OK;
}

void espl_model_close(struct espl_model *model)
{
    if (model == NULL) {
        return;
    }
    for (size_t i = 1; i < model->chain_count; i++) {
        espl_artifact_close(model->chain[i]);
    }
    espl_quant_linear_free(&model->cached);
    free(model->specs);
    free(model->slots);
    free(model->raw);
    free(model->mask);
    free(model);
}

/* ---- look-ups ---- */

const struct espl_model_config *espl_model_get_config(const struct espl_model *model)
{
    return &model->config;
}

size_t espl_model_tensor_count(const struct espl_model *model)
{
    return model->count;
}

const struct espl_tensor_spec *espl_model_tensor(const struct espl_model *model, size_t index)
{
    return &model->specs[index];
}

const struct espl_tensor_spec *espl_model_find(const struct espl_model *model, int64_t layer,
                                               enum espl_role role, bool is_bias)
{
    for (size_t i = 0; i < model->count; i++) {
        const struct espl_tensor_spec *spec = &model->specs[i];
        if (spec->layer == layer && spec->role == role && spec->is_bias == is_bias) {
            return spec;
        }
    }
    return NULL;
}

enum espl_dtype espl_model_dtype(const struct espl_model *model,
                                 const struct espl_tensor_spec *spec)
{
    return model->slots[spec - model->specs].dtype;
}

bool espl_model_has_mask(const struct espl_model *model, const struct espl_tensor_spec *spec)
{
    return model->slots[spec - model->specs].masks != 0;
}

const struct espl_quant_scheme *espl_model_quant_scheme(const struct espl_model *model)
{
    return model->is_quantised ? &model->scheme : NULL;
}

bool espl_model_is_encoded(const struct espl_model *model)
{
    return model->is_encoded;
}

bool espl_model_is_quantised(const struct espl_model *model, const struct espl_tensor_spec *spec)
{
    return model->slots[spec - model->specs].quantised;
}
