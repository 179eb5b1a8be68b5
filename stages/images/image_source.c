#include "stages/images/image_source.h"

#include "core/fs.h"
#include "datasets/image_cifar.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define IDX_LIMIT     ((size_t)4 << 30) /* decompressed */
#define LIST_LIMIT    ((size_t)256 << 20)
#define FILE_LIMIT    ((uint64_t)64 << 20)
#define ARCHIVE_LIMIT ((uint64_t)256 << 30) /* all that comes out of the decompressor */
#define MOST_ENTRIES  ((uint64_t)16 << 20)
#define RANK_GREY     3u
#define RANK_COLOURED 4u

static bool ends_with(const char *path, const char *ending)
{
    const size_t len = strlen(path);
    const size_t tail = strlen(ending);
    return len > tail && strcasecmp(path + len - tail, ending) == 0;
}

enum espl_image_form espl_image_form_of(const char *path)
{
    static const char *const endings[] = {".tar", ".tar.xz", ".tar.gz", ".tar.bz2", ".tar.zst",
                                          ".tgz", ".txz",    ".tbz2",   ".zip"};
    if (espl_fs_is_dir(path)) {
        return ESPL_IMAGE_FOLDER;
    }
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        if (ends_with(path, endings[i])) {
            return ESPL_IMAGE_ARCHIVE;
        }
    }
    return ends_with(path, ".bin") ? ESPL_IMAGE_CIFAR : ESPL_IMAGE_IDX;
}

bool espl_image_form_is_table(enum espl_image_form form)
{
    return form == ESPL_IMAGE_IDX || form == ESPL_IMAGE_CIFAR;
}

const char *espl_image_form_name(enum espl_image_form form)
{
    static const char *const names[] = {"folder", "archive", "idx", "cifar"};
    return names[form];
}

enum espl_status espl_image_source_check(const struct espl_image_params *params,
                                         struct espl_error *err)
{
    const enum espl_image_form form = espl_image_form_of(params->source);
    if (espl_image_form_is_table(form) && params->subset != NULL) {
        (void)espl_fail(err, ESPL_E_JOB, "'subset' is for folders and archives, '%s' is neither",
                        params->source);
        return espl_blame(err, "param:subset");
    }
    if (espl_image_form_is_table(form) && params->list != NULL) {
        (void)espl_fail(err, ESPL_E_JOB, "'list' is for folders and archives, '%s' is neither",
                        params->source);
        return espl_blame(err, "param:list");
    }
    if (form != ESPL_IMAGE_IDX && params->labels != NULL) {
        (void)espl_fail(err, ESPL_E_JOB, "'labels' are for idx files; %s",
                        form == ESPL_IMAGE_CIFAR ? "a file of CIFAR-10 has its own"
                                                 : "the classes of a folder or archive are its "
                                                   "folders");
        return espl_blame(err, "param:labels");
    }
    return ESPL_OK;
}

static enum espl_status keep_listed(const char *path, struct espl_image_source *source,
                                    struct espl_error *err)
{
    char *text = NULL;
    size_t len = 0;
    enum espl_status status = espl_fs_read_file(path, LIST_LIMIT, &text, &len, err);
    if (status == ESPL_OK && strlen(text) != len) {
        status = espl_fail(err, ESPL_E_CORRUPT, "'%s' is no text: it holds zero bytes", path);
    }
    if (status == ESPL_OK) {
        const bool marked = strncmp(text, "\xef\xbb\xbf", 3) == 0; /* some editors begin so */
        status = espl_image_list_keep(source->list, text + (marked ? 3 : 0), err);
        if (status != ESPL_OK) {
            (void)espl_context(err, "while reading '%s'", path);
        }
    }
    free(text);
    return status == ESPL_OK ? status : espl_blame(err, "param:list");
}

static enum espl_status open_list(const struct espl_image_params *params,
                                  struct espl_image_source *source, struct espl_error *err)
{
    const struct espl_archive_limits limits = {MOST_ENTRIES, FILE_LIMIT, ARCHIVE_LIMIT};
    const enum espl_status status = espl_image_list_open(params->source, params->subset, &limits,
                                                         params->memory, &source->list, err);
    if (status != ESPL_OK) {
        return espl_blame(err, status == ESPL_E_JOB ? "param:subset" : "param:source");
    }
    source->listed = params->list != NULL;
    if (source->listed) {
        const enum espl_status kept = keep_listed(params->list, source, err);
        if (kept != ESPL_OK) {
            return kept;
        }
    }
    source->count = espl_image_list_count(source->list);
    source->classes = espl_image_list_classes(source->list);
    return ESPL_OK;
}

static enum espl_status read_labels(const char *path, struct espl_image_source *source,
                                    struct espl_error *err)
{
    enum espl_status status =
        espl_idx_read(path, IDX_LIMIT, &source->label_bytes, &source->labels, err);
    if (status != ESPL_OK) {
        return espl_blame(err, "param:labels");
    }
    if (source->labels.rank != 1) {
        (void)espl_fail(err, ESPL_E_KIND, "'%s' has %u dimensions, expected 1 (labels)", path,
                        source->labels.rank);
        return espl_blame(err, "param:labels");
    }
    if (source->labels.shape[0] != source->count) {
        (void)espl_fail(err, ESPL_E_CORRUPT,
                        "'%s' holds %" PRIu64 " labels, but '%s' %" PRIu64 " pictures", path,
                        source->labels.shape[0], source->path, source->count);
        return espl_blame(err, "param:labels");
    }
    for (uint64_t i = 0; i < source->count; i++) {
        const uint64_t above = (uint64_t)source->labels.values[i] + 1;
        source->classes = above > source->classes ? above : source->classes;
    }
    return ESPL_OK;
}

static enum espl_status open_idx(const struct espl_image_params *params,
                                 struct espl_image_source *source, struct espl_error *err)
{
    struct espl_idx *pictures = &source->pictures;
    const enum espl_status status =
        espl_idx_read(params->source, IDX_LIMIT, &source->picture_bytes, pictures, err);
    if (status != ESPL_OK) {
        (void)espl_hint(err,
                        "a source is a folder, an archive (*.tar.xz, *.zip ...) or an idx file");
        return espl_blame(err, "param:source");
    }
    const bool coloured = pictures->rank == RANK_COLOURED;
    if ((pictures->rank != RANK_GREY && !coloured) ||
        (coloured && pictures->shape[3] != 1 && pictures->shape[3] != 3)) {
        (void)espl_fail(err, ESPL_E_KIND,
                        "'%s' has %u dimensions, expected pictures (count, height, width, and 1 or "
                        "3 channels)",
                        params->source, pictures->rank);
        return espl_blame(err, "param:source");
    }
    if (pictures->shape[0] == 0 || pictures->shape[1] == 0 || pictures->shape[2] == 0) {
        (void)espl_fail(err, ESPL_E_CORRUPT,
                        "'%s' holds %" PRIu64 " pictures of %" PRIu64 " x %" PRIu64 " pixels",
                        params->source, pictures->shape[0], pictures->shape[1], pictures->shape[2]);
        return espl_blame(err, "param:source");
    }
    source->count = pictures->shape[0];
    return params->labels != NULL ? read_labels(params->labels, source, err) : ESPL_OK;
}

/* The same struct as idx files have, as if there had been two of them. */
static enum espl_status open_cifar(const char *path, struct espl_image_source *source,
                                   struct espl_error *err)
{
    uint8_t *pixels = NULL;
    uint8_t *labels = NULL;
    size_t count = 0;
    const enum espl_status status = espl_cifar_read(path, IDX_LIMIT, &pixels, &labels, &count, err);
    if (status != ESPL_OK) {
        (void)espl_hint(err, "*.bin is read as a binary file of CIFAR-10");
        return espl_blame(err, "param:source");
    }
    source->picture_bytes = (char *)pixels;
    source->label_bytes = (char *)labels;
    source->pictures = (struct espl_idx){
        .rank = RANK_COLOURED,
        .shape = {count, ESPL_CIFAR_SIDE, ESPL_CIFAR_SIDE, ESPL_CIFAR_CHANNELS},
        .values = pixels,
    };
    source->labels = (struct espl_idx){.rank = 1, .shape = {count}, .values = labels};
    source->count = count;
    source->classes = ESPL_CIFAR_CLASSES;
    return ESPL_OK;
}

static enum espl_status open_form(const struct espl_image_params *params,
                                  struct espl_image_source *source, struct espl_error *err)
{
    switch (source->form) {
    case ESPL_IMAGE_IDX:
        return open_idx(params, source, err);
    case ESPL_IMAGE_CIFAR:
        return open_cifar(params->source, source, err);
    default:
        return open_list(params, source, err);
    }
}

enum espl_status espl_image_source_open(const struct espl_image_params *params,
                                        struct espl_image_source *source, struct espl_error *err)
{
    memset(source, 0, sizeof *source);
    source->path = params->source;
    source->form = espl_image_form_of(params->source);
    enum espl_status status = espl_image_source_check(params, err);
    if (status == ESPL_OK) {
        status = open_form(params, source, err);
    }
    if (status != ESPL_OK) {
        espl_image_source_close(source);
    }
    return status;
}

void espl_image_source_warn(const struct espl_image_source *source, uint64_t model_classes,
                            const struct espl_log *log)
{
    const char *example = "";
    if (source->list == NULL) {
        return;
    }
    const size_t links = espl_image_list_links(source->list);
    if (links > 0) {
        espl_log(log, ESPL_LOG_WARN,
                 "%zu picture%s of '%s' left out: links in archives are not read", links,
                 links == 1 ? "" : "s", source->path);
    }
    const size_t empty = espl_image_list_empty(source->list, &example);
    if (empty > 0) {
        espl_log(log, ESPL_LOG_WARN,
                 "%zu folder%s of '%s' without *.jpg, *.jpeg or *.png %s no class: '%s'%s", empty,
                 empty == 1 ? "" : "s", source->path, empty == 1 ? "is" : "are", example,
                 empty == 1 ? "" : ", ...");
    }
    if (!source->listed && source->classes > 0 && model_classes > 0 &&
        source->classes != model_classes) {
        espl_log(log, ESPL_LOG_WARN,
                 "'%s' has %" PRIu64 " class folder%s, the model %" PRIu64
                 " classes: folders are numbered from 0 in the order of their names, whatever the "
                 "model calls these",
                 source->path, source->classes, source->classes == 1 ? "" : "s", model_classes);
    }
}

void espl_image_source_close(struct espl_image_source *source)
{
    espl_image_list_close(source->list);
    free(source->picture_bytes);
    free(source->label_bytes);
    memset(source, 0, sizeof *source);
}

int32_t espl_image_source_label(const struct espl_image_source *source, uint64_t index)
{
    if (source->list != NULL) {
        return espl_image_list_class(source->list, (size_t)index);
    }
    return source->labels.values != NULL ? source->labels.values[index] : -1;
}

/* Puts the picture's name before what the decoder said. */
static enum espl_status name_picture(const struct espl_image_source *source, const char *name,
                                     struct espl_error *err)
{
    struct espl_error cause;
    if (err == NULL) {
        return ESPL_E_CORRUPT;
    }
    cause = *err;
    (void)espl_fail(err, cause.code, "picture '%s' of '%s': %s", name, source->path, cause.message);
    if (cause.hint[0] != '\0') {
        (void)espl_hint(err, "%s", cause.hint);
    }
    return cause.code;
}

static enum espl_status fit_file(const struct espl_image_source *source, uint64_t index,
                                 const struct espl_picture_fit *fit, uint8_t *out,
                                 struct espl_error *err)
{
    struct espl_image_file file = {0};
    struct espl_picture picture = {0};
    enum espl_status status = espl_image_list_read(source->list, (size_t)index, &file, err);
    if (status == ESPL_OK) {
        status = espl_picture_decode(file.bytes, file.len, &picture, err);
    }
    if (status == ESPL_OK) {
        status = espl_picture_fit(&picture, fit, out, err);
    }
    espl_picture_free(&picture);
    free(file.owned);
    return status == ESPL_OK
               ? status
               : name_picture(source, espl_image_list_name(source->list, (size_t)index), err);
}

enum espl_status espl_image_source_fit(const struct espl_image_source *source, uint64_t index,
                                       const struct espl_picture_fit *fit, uint8_t *out,
                                       struct espl_error *err)
{
    if (source->list != NULL) {
        return fit_file(source, index, fit, out, err);
    }
    const struct espl_idx *idx = &source->pictures;
    const size_t channels = idx->rank == RANK_COLOURED ? (size_t)idx->shape[3] : 1;
    const size_t bytes = (size_t)idx->shape[1] * (size_t)idx->shape[2] * channels;
    /* Only read, although the struct is also used for pictures that own their pixels. */
    const struct espl_picture picture = {
        .width = (size_t)idx->shape[2],
        .height = (size_t)idx->shape[1],
        .channels = channels,
        .pixels = (uint8_t *)source->picture_bytes +
                  ((size_t)(idx->values - (const uint8_t *)source->picture_bytes) +
                   (size_t)index * bytes),
    };
    return espl_picture_fit(&picture, fit, out, err);
}
