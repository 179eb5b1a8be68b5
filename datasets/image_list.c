#include "datasets/image_list_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_DEPTH = 16 }; /* folders in folders; a loop of links ends here */

static bool is_picture(const char *name)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".png"};
    const size_t len = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const size_t tail = strlen(endings[i]);
        if (len > tail && strcasecmp(name + len - tail, endings[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* The path below the subset, or NULL when it is elsewhere. */
static const char *below_subset(const struct espl_image_list *list, const char *name)
{
    const size_t len = strlen(list->subset);
    if (len == 0) {
        return name;
    }
    return strncmp(name, list->subset, len) == 0 && name[len] == '/' ? name + len + 1 : NULL;
}

static enum espl_status add_entry(struct espl_image_list *list, const char *name,
                                  const uint8_t *bytes, size_t len, struct espl_error *err)
{
    if (list->count == list->limits.entries) {
        return espl_fail(err, ESPL_E_CORRUPT, "more than %zu pictures", list->count);
    }
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity == 0 ? 256 : 2 * list->capacity;
        struct espl_image_entry *grown = realloc(list->entries, capacity * sizeof *grown);
        if (grown == NULL) {
            return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu pictures", capacity);
        }
        list->entries = grown;
        list->capacity = capacity;
    }
    struct espl_image_entry *entry = &list->entries[list->count];
    *entry =
        (struct espl_image_entry){.name = espl_arena_strdup(list->arena, name), .class_index = -1};
    if (bytes != NULL) {
        uint8_t *copy = espl_arena_alloc(list->arena, len);
        if (copy != NULL) {
            memcpy(copy, bytes, len);
        }
        entry->bytes = copy;
        entry->len = len;
    }
    if (entry->name == NULL || (bytes != NULL && entry->bytes == NULL)) {
        (void)espl_fail(err, ESPL_E_NOMEM, "no room for '%s' beside the pictures before it", name);
        return espl_hint(err, "unpack the archive and name its folder, or take a part of it with "
                              "subset");
    }
    list->count++;
    return ESPL_OK;
}

/* ---- archives ---- */

static bool archive_wants(void *user, const char *name)
{
    struct espl_image_list *list = user;
    if (!is_picture(name)) {
        return false;
    }
    const bool wanted = below_subset(list, name) != NULL;
    if (!wanted && list->elsewhere[0] == '\0') {
        (void)snprintf(list->elsewhere, sizeof list->elsewhere, "%s", name);
    }
    return wanted;
}

static enum espl_status archive_file(void *user, const char *name, const uint8_t *bytes, size_t len,
                                     struct espl_error *err)
{
    return add_entry(user, name, bytes, len, err);
}

static void archive_link(void *user, const char *name)
{
    struct espl_image_list *list = user;
    (void)name;
    list->link_count++;
}

/* ---- folders ---- */

static enum espl_status list_folder(struct espl_image_list *list, const char *relative, int depth,
                                    struct espl_error *err);

/* A folder that could be a class and turns out to hold no picture is remembered. */
static enum espl_status list_inner_folder(struct espl_image_list *list, const char *inside,
                                          const char *name, int depth, struct espl_error *err)
{
    const size_t before = list->count;
    const enum espl_status status = list_folder(list, inside, depth + 1, err);
    if (status == ESPL_OK && depth == 0 && list->count == before && list->empty_count++ == 0) {
        (void)snprintf(list->empty, sizeof list->empty, "%s", name);
    }
    return status;
}

static enum espl_status list_name(struct espl_image_list *list, const char *relative,
                                  const char *name, int depth, struct espl_error *err)
{
    char inside[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    const int len =
        snprintf(inside, sizeof inside, "%s%s%s", relative, relative[0] != '\0' ? "/" : "", name);
    if (len < 0 || (size_t)len >= sizeof inside) {
        return espl_fail(err, ESPL_E_IO, "path too long: '%.200s'", inside);
    }
    const enum espl_status status = espl_fs_join(path, list->folder, inside, err);
    if (status != ESPL_OK || !espl_fs_is_dir(path)) {
        return status == ESPL_OK && is_picture(name) ? add_entry(list, inside, NULL, 0, err)
                                                     : status;
    }
    return list_inner_folder(list, inside, name, depth, err);
}

static enum espl_status list_folder(struct espl_image_list *list, const char *relative, int depth,
                                    struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    if (depth > MOST_DEPTH) {
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' is more than %d folders deep", relative,
                         (int)MOST_DEPTH);
    }
    enum espl_status status = espl_fs_join(path, list->folder, relative, err);
    if (status == ESPL_OK) {
        status = espl_fs_list(path, (size_t)list->limits.entries, &names, &count, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        status = list_name(list, relative, names[i], depth, err);
    }
    espl_fs_free_names(names, count);
    return status;
}

/* ---- order and classes ---- */

int espl_image_list_compare(const void *a, const void *b)
{
    return strcmp(((const struct espl_image_entry *)a)->name,
                  ((const struct espl_image_entry *)b)->name);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

char *espl_image_list_class_of(const struct espl_image_list *list, const char *name)
{
    const char *below = below_subset(list, name);
    const char *slash = below != NULL ? strchr(below, '/') : NULL;
    return slash != NULL ? espl_arena_strndup(list->arena, below, (size_t)(slash - below)) : NULL;
}

/* *names: sorted, each once. */
static void make_unique(char **names, size_t *count)
{
    size_t kept = 0;
    qsort(names, *count, sizeof *names, compare_names);
    for (size_t i = 0; i < *count; i++) {
        if (kept == 0 || strcmp(names[kept - 1], names[i]) != 0) {
            names[kept++] = names[i];
        }
    }
    *count = kept;
}

/* Which of two would be meant is anyone's guess. */
static enum espl_status check_twice(const struct espl_image_list *list, struct espl_error *err)
{
    for (size_t i = 1; i < list->count; i++) {
        if (espl_image_list_compare(&list->entries[i - 1], &list->entries[i]) == 0) {
            return espl_fail(err, ESPL_E_CORRUPT, "the archive holds '%s' twice",
                             list->entries[i].name);
        }
    }
    return ESPL_OK;
}

static enum espl_status number_classes(struct espl_image_list *list, char **own,
                                       struct espl_error *err)
{
    size_t loose = list->count; /* one without a folder */
    for (size_t i = 0; i < list->count; i++) {
        own[i] = espl_image_list_class_of(list, list->entries[i].name);
        loose = own[i] == NULL ? i : loose;
        list->classes[list->class_count] = own[i];
        list->class_count += own[i] != NULL;
    }
    if (list->class_count > 0 && loose < list->count) {
        (void)espl_fail(err, ESPL_E_KIND,
                        "some pictures are in class folders, but '%s' is not in one",
                        list->entries[loose].name);
        return espl_hint(err, "a set with classes has a folder for each; name a folder inside with "
                              "subset, or move the picture");
    }
    make_unique(list->classes, &list->class_count);
    for (size_t i = 0; list->class_count > 0 && i < list->count; i++) {
        char **found = bsearch(&own[i], list->classes, list->class_count, sizeof *list->classes,
                               compare_names);
        list->entries[i].class_index = (int32_t)(found - list->classes);
    }
    return ESPL_OK;
}

static enum espl_status assign_classes(struct espl_image_list *list, struct espl_error *err)
{
    char **own = calloc(list->count + 1, sizeof *own); /* class of each picture */
    list->classes = calloc(list->count + 1, sizeof *list->classes);
    if (own == NULL || list->classes == NULL) {
        free(own);
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for classes");
    }
    const enum espl_status status = number_classes(list, own, err);
    free(own);
    return status;
}

/* ---- all of it ---- */

static enum espl_status fill(struct espl_image_list *list, const char *source,
                             struct espl_error *err)
{
    const struct espl_archive_visitor visitor = {list, archive_wants, archive_file, archive_link};
    enum espl_status status = ESPL_OK;
    if (list->folder[0] == '\0') {
        return espl_archive_visit(source, &list->limits, &visitor, err);
    }
    if (list->subset[0] != '\0') {
        char path[ESPL_PATH_MAX];
        status = espl_fs_join(path, list->folder, list->subset, err);
        if (status == ESPL_OK && !espl_fs_is_dir(path)) {
            status = espl_fail(err, ESPL_E_NOTFOUND, "there is no folder '%s' in '%s'",
                               list->subset, source);
        }
    }
    return status == ESPL_OK ? list_folder(list, list->subset, 0, err) : status;
}

/* Names are what is in the source, so a subset must be written as they are. */
static enum espl_status set_subset(struct espl_image_list *list, const char *subset,
                                   struct espl_error *err)
{
    size_t len = strlen(subset);
    while (len > 1 && subset[len - 1] == '/') {
        len--;
    }
    char *copy = espl_arena_strndup(list->arena, subset, len);
    if (copy == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a path");
    }
    if (!espl_archive_name_is_safe(copy)) {
        return espl_fail(err, ESPL_E_JOB, "subset '%s' is not a folder inside the source", subset);
    }
    list->subset = copy;
    return ESPL_OK;
}

enum espl_status espl_image_list_open(const char *source, const char *subset,
                                      const struct espl_archive_limits *limits, uint64_t kept_bytes,
                                      struct espl_image_list **out, struct espl_error *err)
{
    struct espl_image_list *list = calloc(1, sizeof *list);
    enum espl_status status = ESPL_OK;
    if (list == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a list of pictures");
    }
    list->limits = *limits;
    list->subset = "";
    list->arena = espl_arena_create((size_t)kept_bytes);
    if (list->arena == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for a list of pictures");
    }
    if (status == ESPL_OK && espl_fs_is_dir(source)) {
        status = espl_fs_join(list->folder, source, "", err);
    }
    if (status == ESPL_OK && subset != NULL) {
        status = set_subset(list, subset, err);
    }
    if (status == ESPL_OK) {
        status = fill(list, source, err);
    }
    if (status == ESPL_OK && list->count == 0) {
        (void)espl_fail(err, ESPL_E_NOTFOUND, "there are no pictures in '%s'%s%s%s", source,
                        subset != NULL ? " below '" : "", subset != NULL ? subset : "",
                        subset != NULL ? "'" : "");
        status = list->elsewhere[0] != '\0'
                     ? espl_hint(err,
                                 "there is '%s', for example: subset is a folder as it is "
                                 "named inside",
                                 list->elsewhere)
                     : espl_hint(err, "files named *.jpg, *.jpeg and *.png count");
    }
    if (status == ESPL_OK) {
        qsort(list->entries, list->count, sizeof *list->entries, espl_image_list_compare);
        status = check_twice(list, err);
    }
    if (status == ESPL_OK) {
        status = assign_classes(list, err);
    }
    if (status != ESPL_OK) {
        espl_image_list_close(list);
        return status;
    }
    *out = list;
    return ESPL_OK;
}

void espl_image_list_close(struct espl_image_list *list)
{
    if (list == NULL) {
        return;
    }
    espl_arena_destroy(list->arena);
    free(list->entries);
    free(list->classes);
    free(list);
}

size_t espl_image_list_count(const struct espl_image_list *list)
{
    return list->count;
}

const char *espl_image_list_name(const struct espl_image_list *list, size_t index)
{
    return list->entries[index].name;
}

int32_t espl_image_list_class(const struct espl_image_list *list, size_t index)
{
    return list->entries[index].class_index;
}

size_t espl_image_list_classes(const struct espl_image_list *list)
{
    return list->class_count;
}

const char *espl_image_list_class_name(const struct espl_image_list *list, size_t class_index)
{
    return list->classes[class_index] != NULL ? list->classes[class_index] : "";
}

size_t espl_image_list_links(const struct espl_image_list *list)
{
    return list->link_count;
}

size_t espl_image_list_empty(const struct espl_image_list *list, const char **example)
{
    const bool counts = list->class_count > 0;
    *example = counts ? list->empty : "";
    return counts ? list->empty_count : 0;
}

enum espl_status espl_image_list_read(const struct espl_image_list *list, size_t index,
                                      struct espl_image_file *file, struct espl_error *err)
{
    const struct espl_image_entry *entry = &list->entries[index];
    char path[ESPL_PATH_MAX];
    *file = (struct espl_image_file){entry->bytes, entry->len, NULL};
    if (list->folder[0] == '\0') {
        return ESPL_OK;
    }
    enum espl_status status = espl_fs_join(path, list->folder, entry->name, err);
    if (status == ESPL_OK) {
        status =
            espl_fs_read_file(path, (size_t)list->limits.file_bytes, &file->owned, &file->len, err);
    }
    file->bytes = (const uint8_t *)file->owned;
    return status;
}

enum espl_status espl_image_list_digest(const struct espl_image_list *list,
                                        char hex[ESPL_SHA256_HEX], struct espl_error *err)
{
    struct espl_sha256 *hash = espl_sha256_create();
    enum espl_status status = ESPL_OK;
    if (hash == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a hash");
    }
    for (size_t i = 0; status == ESPL_OK && i < list->count; i++) {
        struct espl_image_file file;
        status = espl_image_list_read(list, i, &file, err);
        if (status == ESPL_OK) {
            espl_sha256_update_field(hash, list->entries[i].name, strlen(list->entries[i].name));
            espl_sha256_update_field(hash, file.bytes, file.len);
        }
        free(file.owned);
    }
    espl_sha256_finish(hash, hex);
    espl_sha256_destroy(hash);
    return status;
}
