#include "stages/nm_supernet/supernet_store.h"

#include "core/checked.h"
#include "core/codes.h"
#include "stages/nm_supernet/nm_rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const espl_nm_precisions[] = {"float", "int8", NULL};

json_t *espl_supernet_describe(const struct espl_model_config *config, const char *base_sha256,
                               const struct espl_supernet_facts *facts,
                               const struct espl_nm_layers *layers)
{
    json_t *description = espl_model_description(config);
    json_t *modules = json_array();
    int failed = description == NULL || modules == NULL ? -1 : 0;
    for (size_t i = 0; failed == 0 && i < layers->count; i++) {
        failed = json_array_append_new(modules, json_string(layers->items[i].spec.module));
    }
    json_t *members =
        json_pack("{s:i, s:I, s:b, s:s, s:O}", "m", (int)facts->m, "vector",
                  (json_int_t)facts->vector, "trained", (int)facts->trained, "precision",
                  espl_nm_precisions[facts->precision], "modules", modules);
    json_decref(modules);
    failed |= json_object_set_new(description, "supernet", members);
    if (failed == 0 && base_sha256 != NULL) {
        failed = json_object_set_new(description, "base",
                                     json_pack("{s:s}", "content_sha256", base_sha256));
    }
    if (failed != 0) {
        json_decref(description);
        return NULL;
    }
    return description;
}

static enum espl_status fail_member(const char *member, struct espl_error *err)
{
    return espl_fail(err, ESPL_E_CORRUPT, "the description of the supernet has no good member '%s'",
                     member);
}

static bool read_precision(const json_t *supernet, int *precision)
{
    const char *text = json_string_value(json_object_get(supernet, "precision"));
    for (int i = 0; text != NULL && espl_nm_precisions[i] != NULL; i++) {
        if (strcmp(text, espl_nm_precisions[i]) == 0) {
            *precision = i;
            return true;
        }
    }
    return false;
}

/* Layers by the names of their modules: exactly those, in canonical order. */
static enum espl_status read_layers(const json_t *description, const json_t *modules, unsigned m,
                                    struct espl_nm_layers *layers, struct espl_error *err)
{
    const size_t count = json_array_size(modules);
    const struct espl_list nothing = {0, NULL};
    struct espl_model_config config;
    const char **names = calloc(count > 0 ? count : 1, sizeof *names);
    enum espl_status status =
        names == NULL ? espl_fail(err, ESPL_E_NOMEM, "no memory for names") : ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        names[i] = json_string_value(json_array_get(modules, i));
        status = names[i] == NULL ? fail_member("modules", err) : ESPL_OK;
    }
    if (status == ESPL_OK) {
        status = espl_model_config_from_description(description, &config, err);
    }
    if (status == ESPL_OK) {
        const struct espl_list targets = {count, names};
        status = espl_nm_layers_select(&config, m, &targets, &nothing, layers, err);
    }
    bool same = status != ESPL_OK || layers->count == count;
    for (size_t i = 0; same && status == ESPL_OK && i < count; i++) {
        same = strcmp(layers->items[i].spec.module, names[i]) == 0;
    }
    free((void *)names);
    return same ? status : fail_member("modules", err);
}

enum espl_status espl_supernet_read_description(const json_t *description,
                                                struct espl_supernet_facts *facts,
                                                struct espl_nm_layers *layers,
                                                struct espl_error *err)
{
    const json_t *supernet = json_object_get(description, "supernet");
    const json_int_t m = json_integer_value(json_object_get(supernet, "m"));
    const json_int_t vector = json_integer_value(json_object_get(supernet, "vector"));
    const json_t *base = json_object_get(description, "base");
    const char *sha256 = json_string_value(json_object_get(base, "content_sha256"));
    memset(facts, 0, sizeof *facts);
    if (layers != NULL) {
        memset(layers, 0, sizeof *layers);
    }
    if (m < 1 || m > ESPL_LATENCY_MAX_M || espl_nm_rank_bits((unsigned)m) == 0) {
        return fail_member("m", err);
    }
    if (vector < 1) {
        return fail_member("vector", err);
    }
    if (!read_precision(supernet, &facts->precision)) {
        return fail_member("precision", err);
    }
    facts->m = (unsigned)m;
    facts->vector = (size_t)vector;
    facts->trained = json_is_true(json_object_get(supernet, "trained"));
    (void)snprintf(facts->base_sha256, sizeof facts->base_sha256, "%s",
                   sha256 != NULL ? sha256 : "");
    return layers == NULL ? ESPL_OK
                          : read_layers(description, json_object_get(supernet, "modules"), facts->m,
                                        layers, err);
}

/* Path, packed and logical shape of the ranks of a layer. */
static struct espl_tensor_info ranks_info(const struct espl_supernet_facts *facts,
                                          const struct espl_nm_layer *layer)
{
    const unsigned bits = espl_nm_rank_bits(facts->m);
    const char *path = layer->spec.path;
    const char *slash = strrchr(path, '/');
    const size_t cols = (size_t)layer->spec.shape[1];
    const uint64_t shape[2] = {espl_nm_groups((size_t)layer->spec.shape[0], facts->vector),
                               espl_codes_stride(cols, bits)};
    char own[ESPL_TENSOR_PATH];
    (void)snprintf(own, sizeof own, "%.*s/rank", (int)(slash - path), path);
    struct espl_tensor_info info = espl_tensor_info_make(own, ESPL_DTYPE_U8, 2, shape);
    (void)snprintf(info.packing, sizeof info.packing, "rank%u-lsb0", bits);
    info.logical_shape[0] = shape[0];
    info.logical_shape[1] = cols;
    return info;
}

enum espl_status espl_supernet_write_ranks(struct espl_artifact *artifact,
                                           const struct espl_supernet_facts *facts,
                                           const struct espl_nm_layer *layer, const uint8_t *ranks,
                                           struct espl_error *err)
{
    const struct espl_tensor_info info = ranks_info(facts, layer);
    uint8_t *packed = malloc((size_t)info.bytes);
    if (packed == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the ranks of '%s'", layer->spec.module);
    }
    /* The upper half of the ranks has the bits of negative codes. */
    espl_codes_pack((const int8_t *)ranks, (size_t)info.shape[0], (size_t)info.logical_shape[1],
                    espl_nm_rank_bits(facts->m), packed);
    const enum espl_status status = espl_artifact_write(artifact, &info, packed, err);
    free(packed);
    return status;
}

/* Every window must hold each rank once: with anything else masks would keep other than N. */
static bool is_permutations(unsigned m, const uint8_t *ranks, size_t count)
{
    for (size_t window = 0; window < count; window += m) {
        unsigned seen = 0;
        for (unsigned i = 0; i < m; i++) {
            seen |= 1u << ranks[window + i];
        }
        if (seen != (1u << m) - 1u) {
            return false;
        }
    }
    return true;
}

static enum espl_status read_ranks(struct espl_artifact *artifact,
                                   const struct espl_supernet_facts *facts,
                                   const struct espl_nm_layer *layer, uint8_t **out,
                                   struct espl_error *err)
{
    const struct espl_tensor_info expected = ranks_info(facts, layer);
    const struct espl_tensor_info *info = espl_artifact_find(artifact, expected.path);
    const size_t cols = (size_t)layer->spec.shape[1];
    void *packed = NULL;
    size_t packed_bytes = 0;
    size_t count = 0;
    if (info == NULL || info->rank != 2 || info->dtype != ESPL_DTYPE_U8 ||
        info->shape[0] != expected.shape[0] || info->shape[1] != expected.shape[1] ||
        strcmp(info->packing, expected.packing) != 0 ||
        !espl_mul_size((size_t)expected.shape[0], cols, &count)) {
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' is missing or not as the supernet describes it",
                         expected.path);
    }
    enum espl_status status = espl_artifact_read(artifact, expected.path, (size_t)expected.bytes,
                                                 &packed, &packed_bytes, err);
    if (status != ESPL_OK) {
        return status;
    }
    uint8_t *ranks = malloc(count);
    if (ranks == NULL) {
        free(packed);
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the ranks of '%s'", layer->spec.module);
    }
    espl_codes_unpack(packed, (size_t)expected.shape[0], cols, espl_nm_rank_bits(facts->m),
                      (int8_t *)ranks);
    free(packed);
    for (size_t i = 0; i < count; i++) {
        ranks[i] = (uint8_t)(ranks[i] & (facts->m - 1u)); /* undo the sign */
    }
    if (!is_permutations(facts->m, ranks, count)) {
        free(ranks);
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' holds a window that is no ranking",
                         expected.path);
    }
    *out = ranks;
    return ESPL_OK;
}

enum espl_status espl_supernet_open(struct espl_artifact *artifact, const char *model_sha256,
                                    struct espl_supernet *supernet, struct espl_error *err)
{
    json_t *description = json_loads(espl_artifact_description(artifact), 0, NULL);
    memset(supernet, 0, sizeof *supernet);
    enum espl_status status =
        espl_supernet_read_description(description, &supernet->facts, &supernet->layers, err);
    json_decref(description);
    if (status != ESPL_OK) {
        return status;
    }
    if (strcmp(supernet->facts.base_sha256, model_sha256) != 0) {
        espl_fail(err, ESPL_E_KIND,
                  "the supernet was made from another model: content %.12s, this "
                  "model has %.12s",
                  supernet->facts.base_sha256, model_sha256);
        espl_hint(err, "connect the model that nm-supernet read");
        return espl_blame(err, "input:model");
    }
    supernet->ranks = calloc(supernet->layers.count, sizeof *supernet->ranks);
    if (supernet->ranks == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for %zu layers", supernet->layers.count);
    }
    for (size_t i = 0; status == ESPL_OK && i < supernet->layers.count; i++) {
        status = read_ranks(artifact, &supernet->facts, &supernet->layers.items[i],
                            &supernet->ranks[i], err);
    }
    return status;
}

void espl_supernet_free(struct espl_supernet *supernet)
{
    for (size_t i = 0; supernet->ranks != NULL && i < supernet->layers.count; i++) {
        free(supernet->ranks[i]);
    }
    free(supernet->ranks);
    espl_nm_layers_free(&supernet->layers);
    memset(supernet, 0, sizeof *supernet);
}
