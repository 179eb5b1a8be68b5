#include "eval/vision_images.h"

#include "core/checked.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char pixels_path[] = "/images/pixels";
static const char labels_path[] = "/images/labels";

enum { MOST_PIXELS = 1 << 16 }; /* a side; far above any classifier */

static enum espl_status bad_member(const char *name, struct espl_error *err)
{
    return espl_fail(err, ESPL_E_CORRUPT, "images: member '%s' is missing or of the wrong type",
                     name);
}

static enum espl_status read_size(const json_t *description, const char *name, bool required,
                                  uint64_t max, uint64_t *out, struct espl_error *err)
{
    const json_t *value = json_object_get(description, name);
    const json_int_t number = json_integer_value(value);
    *out = 0;
    if (value == NULL && !required) {
        return ESPL_OK;
    }
    if (!json_is_integer(value) || number < (required ? 1 : 0) || (uint64_t)number > max) {
        return bad_member(name, err);
    }
    *out = (uint64_t)number;
    return ESPL_OK;
}

static enum espl_status read_reals(const json_t *description, const char *name, uint64_t count,
                                   double *out, struct espl_error *err)
{
    const json_t *list = json_object_get(description, name);
    if (json_array_size(list) != count) {
        return bad_member(name, err);
    }
    for (size_t i = 0; i < count; i++) {
        out[i] = json_number_value(json_array_get(list, i));
        if (!json_is_number(json_array_get(list, i)) || !isfinite(out[i])) {
            return bad_member(name, err);
        }
    }
    return ESPL_OK;
}

enum espl_status espl_image_set_from_description(const json_t *description,
                                                 struct espl_image_set *set, struct espl_error *err)
{
    memset(set, 0, sizeof *set);
    const struct {
        const char *name;
        bool required;
        uint64_t max;
        uint64_t *out;
    } sizes[] = {
        {"count", false, INT32_MAX, &set->count},
        {"height", true, MOST_PIXELS, &set->height},
        {"width", true, MOST_PIXELS, &set->width},
        {"channels", true, ESPL_VISION_MAX_CHANNELS, &set->channels},
        {"classes", false, INT32_MAX, &set->classes},
    };
    enum espl_status status = ESPL_OK;
    set->labelled = json_integer_value(json_object_get(description, "classes")) != 0 ||
                    json_object_get(description, "classes") == NULL;
    for (size_t i = 0; status == ESPL_OK && i < sizeof sizes / sizeof sizes[0]; i++) {
        status = read_size(description, sizes[i].name, sizes[i].required, sizes[i].max,
                           sizes[i].out, err);
    }
    if (status == ESPL_OK) {
        status = read_reals(description, "mean", set->channels, set->scale.mean, err);
    }
    if (status == ESPL_OK) {
        status = read_reals(description, "std", set->channels, set->scale.std, err);
    }
    for (size_t c = 0; status == ESPL_OK && c < set->channels; c++) {
        status = set->scale.std[c] > 0.0 ? ESPL_OK : bad_member("std", err);
    }
    return status;
}

static bool is_tensor(const struct espl_tensor_info *info, enum espl_dtype dtype, unsigned rank,
                      const uint64_t *shape)
{
    return info != NULL && info->dtype == dtype && info->rank == rank && info->packing[0] == '\0' &&
           memcmp(info->shape, shape, rank * sizeof *shape) == 0;
}

enum espl_status espl_image_set_open(const struct espl_artifact *artifact,
                                     struct espl_image_set *set, struct espl_error *err)
{
    json_t *description = json_loads(espl_artifact_description(artifact), 0, NULL);
    enum espl_status status = espl_image_set_from_description(description, set, err);
    json_decref(description);
    if (status != ESPL_OK) {
        return espl_context(err, "while reading '%s'", espl_artifact_path(artifact));
    }
    const uint64_t shape[] = {set->count, set->height, set->width, set->channels};
    if (set->count == 0 ||
        !is_tensor(espl_artifact_find(artifact, pixels_path), ESPL_DTYPE_U8, 4, shape) ||
        (set->classes != 0 &&
         !is_tensor(espl_artifact_find(artifact, labels_path), ESPL_DTYPE_I32, 1, shape))) {
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' does not hold the pictures that it describes",
                         espl_artifact_path(artifact));
    }
    return ESPL_OK;
}

enum espl_status espl_image_set_check(const struct espl_image_set *set,
                                      const struct espl_model_config *config, bool labels_needed,
                                      struct espl_error *err)
{
    const struct espl_vision_config *vision = &config->vision;
    if (!espl_model_config_is_vision(config)) {
        (void)espl_fail(err, ESPL_E_KIND, "architecture '%s' does not read images",
                        config->architecture);
        return espl_hint(err, "language models take tokens; image models are vit and swin");
    }
    if (set->height != vision->image_size || set->width != vision->image_size ||
        set->channels != vision->channels) {
        (void)espl_fail(err, ESPL_E_KIND,
                        "the pictures are %" PRIu64 " x %" PRIu64 " x %" PRIu64
                        ", expected %" PRIu64 " x %" PRIu64 " x %" PRIu64,
                        set->height, set->width, set->channels, vision->image_size,
                        vision->image_size, vision->channels);
        return espl_hint(err,
                         "connect the model to the images stage, or set size: %" PRIu64
                         " and channels: %" PRIu64 " there",
                         vision->image_size, vision->channels);
    }
    if (labels_needed && !set->labelled) {
        (void)espl_fail(err, ESPL_E_KIND, "the pictures have no labels");
        return espl_hint(err, "use a folder or an archive with a folder for each class, or give "
                              "labels: to the images stage");
    }
    if (set->classes > config->vocab) {
        return espl_fail(err, ESPL_E_KIND,
                         "the pictures have %" PRIu64 " classes, but the model knows %" PRIu64,
                         set->classes, config->vocab);
    }
    return ESPL_OK;
}

size_t espl_image_set_bytes(const struct espl_image_set *set)
{
    return (size_t)(set->height * set->width * set->channels);
}

enum espl_status espl_image_set_read(struct espl_artifact *artifact,
                                     const struct espl_image_set *set, uint64_t first,
                                     uint64_t count, uint8_t *pixels, int32_t *labels,
                                     struct espl_error *err)
{
    size_t bytes = 0;
    if (!espl_mul_size((size_t)count, espl_image_set_bytes(set), &bytes)) {
        return espl_fail(err, ESPL_E_NOMEM, "too many pictures for this machine");
    }
    enum espl_status status =
        espl_artifact_read_rows(artifact, pixels_path, first, count, pixels, bytes, err);
    if (status != ESPL_OK || labels == NULL) {
        return status;
    }
    status = espl_artifact_read_rows(artifact, labels_path, first, count, labels,
                                     (size_t)count * sizeof *labels, err);
    for (uint64_t i = 0; status == ESPL_OK && i < count; i++) {
        if (labels[i] < 0 || (uint64_t)labels[i] >= set->classes) {
            status = espl_fail(err, ESPL_E_CORRUPT,
                               "picture %" PRIu64 " has label %" PRId32 " of %" PRIu64 " classes",
                               first + i, labels[i], set->classes);
        }
    }
    return status;
}
