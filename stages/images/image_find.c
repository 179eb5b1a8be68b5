#include "stages/images/image_find.h"

#include <string.h>

enum { PICTURES_AND_LABELS = 2 };

/* The set behind `text`; count 0 = it is to be taken as a path. */
static enum espl_status find_set(const char *text, struct espl_source *set, struct espl_error *err)
{
    *set = (struct espl_source){.count = 0};
    if (espl_fs_exists(text)) {
        return ESPL_OK;
    }
    const enum espl_status status = espl_source_find(text, set, err);
    /* A name of which nothing is known may as well be a path with a mistake in it. */
    const bool known = espl_fs_is_dir(set->folder);
    if (status != ESPL_OK && !known && !espl_source_may_be_name(text)) {
        return ESPL_OK;
    }
    if (status == ESPL_E_NOTFOUND && !known) {
        (void)espl_context(err, "and no file or folder is called '%s', either", text);
    }
    return status;
}

static enum espl_status take_pictures(struct espl_image_params *params,
                                      struct espl_image_found *found, struct espl_error *err)
{
    const char *const name = params->source;
    const struct espl_source *const set = &found->pictures;
    const enum espl_status status = find_set(name, &found->pictures, err);
    if (status != ESPL_OK || set->count == 0) {
        return status;
    }
    if (set->count > PICTURES_AND_LABELS) {
        (void)espl_fail(err, ESPL_E_JOB, "'%s' has %zu files", name, set->count);
        return espl_hint(err, "name the one with the pictures, as 'source: %s/FILE'", name);
    }
    params->source = set->paths[0];
    if (set->count == PICTURES_AND_LABELS && params->labels == NULL) {
        params->labels = set->paths[1];
        found->own_labels = true;
    }
    return ESPL_OK;
}

/* *path: of one file. what: the parameter. */
static enum espl_status take_file(const char **path, const char *what, struct espl_source *set,
                                  struct espl_error *err)
{
    const char *const name = *path;
    const enum espl_status status = find_set(name, set, err);
    if (status != ESPL_OK || set->count == 0) {
        return status;
    }
    if (set->count > 1) {
        (void)espl_fail(err, ESPL_E_JOB, "'%s' has %zu files", name, set->count);
        return espl_hint(err, "name the one that is meant, as '%s: %s/FILE'", what, name);
    }
    *path = set->paths[0];
    return ESPL_OK;
}

enum espl_status espl_image_find(struct espl_image_params *params, struct espl_image_found *found,
                                 struct espl_error *err)
{
    *found = (struct espl_image_found){.own_labels = false};
    enum espl_status status = take_pictures(params, found, err);
    if (status != ESPL_OK) {
        return espl_blame(err, "param:source");
    }
    if (params->labels != NULL && !found->own_labels) {
        status = take_file(&params->labels, "labels", &found->labels, err);
    }
    if (status != ESPL_OK) {
        return espl_blame(err, "param:labels");
    }
    if (params->list != NULL) {
        status = take_file(&params->list, "list", &found->list, err);
    }
    return status == ESPL_OK ? status : espl_blame(err, "param:list");
}

void espl_image_found_blame(const struct espl_image_found *found, enum espl_status status,
                            struct espl_error *err)
{
    if (status != ESPL_OK && found->own_labels && strcmp(err->blame, "param:labels") == 0) {
        (void)espl_blame(err, "param:source");
    }
}

void espl_image_found_free(struct espl_image_found *found)
{
    espl_source_free(&found->pictures);
    espl_source_free(&found->labels);
    espl_source_free(&found->list);
}
