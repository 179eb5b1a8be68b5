/* Which files of a folder are the checkpoint: model.safetensors, or those of an index that agrees
 * with them. */
#include "core/fs.h"
#include "model/safetensors_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { INDEX_LIMIT = 100000000, LISTED_NAMES = 8, FOLDER_LIMIT = 100000 };

const char *espl_safetensors_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

bool espl_safetensors_has_ending(const char *name, const char *ending)
{
    const size_t len = strlen(name);
    const size_t tail = strlen(ending);
    return len >= tail && strcmp(name + len - tail, ending) == 0;
}

bool espl_safetensors_is_pickle(const char *name)
{
    static const char *const endings[] = {".bin", ".pt", ".pth", ".ckpt", ".pkl"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        if (espl_safetensors_has_ending(name, endings[i])) {
            return true;
        }
    }
    return false;
}

enum espl_status espl_safetensors_refuse_pickle(const char *name, struct espl_error *err)
{
    (void)espl_fail(err, ESPL_E_UNSUPPORTED,
                    "'%s' is a pickle checkpoint: loading one runs code that is in the file", name);
    return espl_hint(err, "convert it where you trust it: model.save_pretrained(folder, "
                          "safe_serialization=True) of HF transformers writes safetensors");
}

enum espl_status espl_safetensors_set_files(struct espl_safetensors *set, const char *folder,
                                            char *const *names, size_t count,
                                            struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    if (count > ESPL_SAFETENSORS_MAX_FILES) {
        return espl_fail(err, ESPL_E_CORRUPT, "%zu files in one checkpoint, more than %d", count,
                         (int)ESPL_SAFETENSORS_MAX_FILES);
    }
    set->files = calloc(count, sizeof *set->files);
    if (set->files == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu files", count);
    }
    for (size_t i = 0; i < count; i++) {
        enum espl_status status = ESPL_OK;
        if (folder != NULL) {
            status = espl_fs_join(path, folder, names[i], err);
            if (status != ESPL_OK) {
                return status;
            }
        }
        set->files[i].fd = -1;
        set->files[i].path = strdup(folder != NULL ? path : names[i]);
        set->file_count = i + 1;
        if (set->files[i].path == NULL) {
            return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu files", count);
        }
    }
    return ESPL_OK;
}

/* ---- folder with an index ---- */

/* A download cache keeps links to the files: copied without them, they lead nowhere. */
static bool is_dangling_link(const char *folder, const char *name)
{
    char path[ESPL_PATH_MAX];
    struct stat info;
    return espl_fs_join(path, folder, name, NULL) == ESPL_OK && lstat(path, &info) == 0 &&
           S_ISLNK(info.st_mode) && !espl_fs_exists(path);
}

static enum espl_status refuse_dangling_link(const char *folder, const char *name,
                                             struct espl_error *err)
{
    (void)espl_fail(err, ESPL_E_NOTFOUND, "'%s' in '%s' is a link to a file that is not there",
                    name, folder);
    return espl_hint(err, "copy the files themselves: cp -L, rsync -L");
}

/* Every file that the index names must be there; else which one is not, and why that may be. */
static enum espl_status check_shards(const struct espl_safetensors *set, const char *folder,
                                     bool single_file_there, struct espl_error *err)
{
    const char *first = NULL;
    size_t gone = 0;
    bool names_single = false;
    for (size_t i = 0; i < set->file_count; i++) {
        const char *name = espl_safetensors_base_name(set->files[i].path);
        names_single = names_single || strcmp(name, ESPL_SAFETENSORS_FILE) == 0;
        if (!espl_fs_exists(set->files[i].path)) {
            first = first == NULL ? name : first;
            gone++;
        }
    }
    if (gone > 0 && is_dangling_link(folder, first)) {
        return refuse_dangling_link(folder, first, err);
    }
    if (gone > 0) {
        (void)espl_fail(err, ESPL_E_NOTFOUND,
                        "%zu of the %zu files that " ESPL_SAFETENSORS_INDEX
                        " names are missing, the first is '%s'",
                        gone, set->file_count, first);
        return single_file_there
                   ? espl_hint(err, "the index looks stale: " ESPL_SAFETENSORS_FILE
                                    " is there; remove the index to use it")
                   : espl_hint(err, "a shard was not downloaded, or the index belongs to another "
                                    "version of the checkpoint");
    }
    if (single_file_there && !names_single) {
        (void)espl_fail(err, ESPL_E_CORRUPT,
                        "there is both a " ESPL_SAFETENSORS_FILE
                        " and an index of other files: which one is meant?");
        return espl_hint(err, "remove " ESPL_SAFETENSORS_INDEX " or " ESPL_SAFETENSORS_FILE);
    }
    return ESPL_OK;
}

/* The index and the files must agree on where each tensor is. */
static enum espl_status check_index(struct espl_safetensors *set, const json_t *weight_map,
                                    struct espl_error *err)
{
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)weight_map, name, value)
    {
        const struct espl_safetensor *tensor = espl_safetensors_find(set, name);
        const char *said = json_string_value(value);
        if (tensor == NULL) {
            (void)espl_fail(err, ESPL_E_CORRUPT,
                            "the index puts tensor '%.160s' into '%s', which does not hold it",
                            name, said);
            return espl_hint(err, "the index looks stale: it belongs to other files");
        }
        const char *found = espl_safetensors_base_name(set->files[tensor->file].path);
        if (strcmp(found, said) != 0) {
            (void)espl_fail(err, ESPL_E_CORRUPT,
                            "the index puts tensor '%s' into '%s', but it is in '%s'", name, said,
                            found);
            return espl_hint(err, "the index looks stale: it belongs to other files");
        }
    }
    size_t unlisted = 0;
    const char *first = NULL;
    for (size_t i = 0; i < set->count; i++) {
        if (json_object_get(weight_map, set->tensors[i].name) == NULL) {
            first = first == NULL ? set->tensors[i].name : first;
            unlisted++;
        }
    }
    if (unlisted > 0) {
        (void)espl_buf_printf(&set->notes, "%zu tensors are not in the index, the first is '%s'\n",
                              unlisted, first);
    }
    return ESPL_OK;
}

static enum espl_status open_indexed(struct espl_safetensors *set, const char *folder,
                                     const char *index_path, bool single_file_there,
                                     struct espl_error *err)
{
    char *text = NULL;
    size_t len = 0;
    json_t *weight_map = NULL;
    char **names = NULL;
    size_t name_count = 0;

    enum espl_status status = espl_fs_read_file(index_path, INDEX_LIMIT, &text, &len, err);
    if (status == ESPL_OK) {
        status = espl_safetensors_parse_index(text, len, &weight_map, &names, &name_count, err);
    }
    if (status == ESPL_OK) {
        status = espl_safetensors_set_files(set, folder, names, name_count, err);
    }
    if (status == ESPL_OK) {
        status = check_shards(set, folder, single_file_there, err);
    }
    if (status == ESPL_OK) {
        status = espl_safetensors_load_files(set, err);
    }
    if (status == ESPL_OK) {
        status = check_index(set, weight_map, err);
    }
    if (status != ESPL_OK) {
        (void)espl_context(err, "while reading '%s'", index_path);
    }
    if (names != NULL) {
        espl_fs_free_names(names, name_count);
    }
    json_decref(weight_map);
    free(text);
    return status;
}

/* ---- folder without one ---- */

/* Neither model.safetensors nor an index: says what is there instead. */
static enum espl_status refuse_folder(const char *folder, struct espl_error *err)
{
    char **names = NULL;
    size_t count = 0;
    size_t tensors = 0;
    const char *pickle = NULL;
    const char *dangling = NULL;
    struct espl_buf list;

    enum espl_status status = espl_fs_list(folder, FOLDER_LIMIT, &names, &count, err);
    if (status != ESPL_OK) {
        return status;
    }
    espl_buf_init(&list, 300);
    for (size_t i = 0; i < count; i++) {
        if (espl_safetensors_has_ending(names[i], ".safetensors") && dangling == NULL &&
            is_dangling_link(folder, names[i])) {
            dangling = names[i];
        }
        if (espl_safetensors_is_pickle(names[i]) && pickle == NULL) {
            pickle = names[i];
        }
        if (espl_safetensors_has_ending(names[i], ".safetensors") && tensors++ < LISTED_NAMES) {
            (void)espl_buf_printf(&list, "%s%s", tensors > 1 ? ", " : "", names[i]);
        }
    }
    if (dangling != NULL) {
        status = refuse_dangling_link(folder, dangling, err);
    } else if (tensors > 0) {
        status = espl_fail(err, ESPL_E_NOTFOUND,
                           "no " ESPL_SAFETENSORS_FILE " and no " ESPL_SAFETENSORS_INDEX " in '%s'",
                           folder);
        (void)espl_hint(err, "the folder holds: %s%s; the index is needed to know the shards",
                        espl_buf_text(&list), tensors > LISTED_NAMES ? ", ..." : "");
    } else if (pickle != NULL) {
        status = espl_safetensors_refuse_pickle(pickle, err);
    } else {
        status = espl_fail(err, ESPL_E_NOTFOUND, "no .safetensors files in '%s'", folder);
    }
    espl_buf_free(&list);
    espl_fs_free_names(names, count);
    return status;
}

static bool in_set(const struct espl_safetensors *set, const char *name)
{
    for (size_t i = 0; i < set->file_count; i++) {
        if (strcmp(espl_safetensors_base_name(set->files[i].path), name) == 0) {
            return true;
        }
    }
    return false;
}

/* Further .safetensors files are none of ours (other formats of the same weights, masks). */
static enum espl_status note_extra_files(struct espl_safetensors *set, const char *folder,
                                         struct espl_error *err)
{
    char **names = NULL;
    size_t count = 0;
    const enum espl_status status = espl_fs_list(folder, FOLDER_LIMIT, &names, &count, err);
    if (status != ESPL_OK) {
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        if (espl_safetensors_has_ending(names[i], ".safetensors") && !in_set(set, names[i])) {
            (void)espl_buf_printf(&set->notes, "ignored '%s': not part of the checkpoint\n",
                                  names[i]);
        }
    }
    espl_fs_free_names(names, count);
    return ESPL_OK;
}

enum espl_status espl_safetensors_open_folder(struct espl_safetensors *set, const char *folder,
                                              struct espl_error *err)
{
    char index_path[ESPL_PATH_MAX];
    char single_path[ESPL_PATH_MAX];
    enum espl_status status = espl_fs_join(index_path, folder, ESPL_SAFETENSORS_INDEX, err);
    if (status == ESPL_OK) {
        status = espl_fs_join(single_path, folder, ESPL_SAFETENSORS_FILE, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    const bool single_file_there = espl_fs_exists(single_path);
    if (espl_fs_exists(index_path)) {
        status = open_indexed(set, folder, index_path, single_file_there, err);
    } else if (single_file_there) {
        char *const names[] = {single_path};
        status = espl_safetensors_set_files(set, NULL, names, 1, err);
        if (status == ESPL_OK) {
            status = espl_safetensors_load_files(set, err);
        }
    } else {
        status = refuse_folder(folder, err);
    }
    if (status == ESPL_OK) {
        status = note_extra_files(set, folder, err);
    }
    return status;
}
