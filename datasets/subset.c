#include "datasets/subset.h"

#include "core/buf.h"
#include "core/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CLASSES = 100000, MAX_PICTURES = 1000000, LIST_LIMIT = 1 << 30 };

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Chosen names come first, sorted; the others after them. */
static void choose(char **names, size_t count, size_t wanted, uint64_t seed, const char *stream)
{
    struct espl_rng rng = espl_rng_stream(seed, stream, 0);
    for (size_t i = 0; i < wanted; i++) {
        const size_t other = i + (size_t)espl_rng_below(&rng, count - i);
        char *const name = names[i];
        names[i] = names[other];
        names[other] = name;
    }
    qsort(names, wanted, sizeof *names, compare_names);
}

/* Lists the pictures of one class. */
static enum espl_status list_class(const char *folder, const char *split, const char *class_name,
                                   size_t label, size_t wanted, uint64_t seed, struct espl_buf *out,
                                   struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char relative[1024];
    char **names = NULL;
    size_t count = 0;
    (void)snprintf(relative, sizeof relative, "%s/%s", split, class_name);
    enum espl_status status = espl_fs_join(path, folder, relative, err);
    if (status == ESPL_OK) {
        status = espl_fs_list(path, MAX_PICTURES, &names, &count, err);
    }
    if (status == ESPL_OK && count < wanted) {
        status = espl_fail(err, ESPL_E_CORRUPT, "'%s' holds %zu pictures, the sample needs %zu",
                           path, count, wanted);
    }
    if (status == ESPL_OK) {
        char stream[1100];
        (void)snprintf(stream, sizeof stream, "subset/%s", relative);
        choose(names, count, wanted, seed, stream);
    }
    for (size_t i = 0; i < wanted && status == ESPL_OK; i++) {
        (void)espl_buf_printf(out, "%s/%s %zu\n", class_name, names[i], label);
    }
    espl_fs_free_names(names, count);
    return status == ESPL_OK ? espl_buf_check(out, "the list of pictures", err) : status;
}

/* A list becomes a blob and a file of the set. */
static enum espl_status publish_list(const struct espl_cache *cache, const char *name,
                                     const struct espl_buf *list, json_t *files,
                                     struct espl_error *err)
{
    char hash[ESPL_SHA256_HEX];
    char path[ESPL_PATH_MAX];
    enum espl_status status = espl_sha256_bytes(list->data, list->len, hash, err);
    if (status == ESPL_OK && !espl_cache_has_blob(cache, hash, NULL)) {
        status = espl_cache_partial_path(cache, hash, "-list", path, err);
        if (status == ESPL_OK) {
            status = espl_fs_write_file(path, list->data, list->len, err);
        }
        if (status == ESPL_OK) {
            status = espl_cache_publish_blob(cache, path, hash, err);
        }
    }
    if (status == ESPL_OK &&
        json_array_append_new(files, json_pack("{s:s, s:s, s:I, s:s}", "name", name, "sha256", hash,
                                               "size", (json_int_t)list->len, "check",
                                               "first-use")) != 0) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for the set");
    }
    return status;
}

static enum espl_status draw_split(const struct espl_cache *cache, const char *folder,
                                   const char *split, char *const *classes,
                                   const struct espl_subset *subset, json_t *files,
                                   struct espl_error *err)
{
    const size_t wanted =
        strcmp(split, "train") == 0 ? subset->train_per_class : subset->val_per_class;
    struct espl_buf list;
    char name[64];
    enum espl_status status = ESPL_OK;
    if (wanted == 0) {
        return ESPL_OK;
    }
    espl_buf_init(&list, LIST_LIMIT);
    for (size_t i = 0; i < subset->classes && status == ESPL_OK; i++) {
        status = list_class(folder, split, classes[i], i, wanted, subset->seed, &list, err);
    }
    (void)snprintf(name, sizeof name, "%s.txt", split);
    if (status == ESPL_OK) {
        status = publish_list(cache, name, &list, files, err);
    }
    espl_buf_free(&list);
    return status;
}

enum espl_status espl_subset_publish(const struct espl_cache *cache, const char *name,
                                     const char *folder, const struct espl_subset *subset,
                                     struct espl_error *err)
{
    /* The split that is there names the classes. */
    const char *const first = subset->train_per_class > 0 ? "train" : "val";
    char path[ESPL_PATH_MAX];
    char **classes = NULL;
    size_t count = 0;
    json_t *const files = json_array();
    enum espl_status status = espl_fs_join(path, folder, first, err);
    if (status == ESPL_OK) {
        status = espl_fs_list(path, MAX_CLASSES, &classes, &count, err);
    }
    if (status == ESPL_OK && count < subset->classes) {
        status = espl_fail(err, ESPL_E_CORRUPT, "'%s' holds %zu classes, the sample needs %zu",
                           path, count, subset->classes);
    }
    if (status == ESPL_OK) {
        choose(classes, count, subset->classes, subset->seed, "subset/classes");
        status = draw_split(cache, folder, "train", classes, subset, files, err);
    }
    if (status == ESPL_OK) {
        status = draw_split(cache, folder, "val", classes, subset, files, err);
    }
    json_t *const set = json_pack("{s:s, s:s, s:s, s:O, s:[]}", "schema", "espalier.set/1", "name",
                                  name, "kind", "images", "files", files, "use");
    if (status == ESPL_OK) {
        status = set != NULL ? espl_cache_publish_set(cache, name, set, err)
                             : espl_fail(err, ESPL_E_NOMEM, "no memory for the set");
    }
    json_decref(set);
    json_decref(files);
    espl_fs_free_names(classes, count);
    return status;
}
