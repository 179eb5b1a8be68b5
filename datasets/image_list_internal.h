/* What a list of pictures holds; for the files that make one. */
#ifndef ESPL_DATASETS_IMAGE_LIST_INTERNAL_H
#define ESPL_DATASETS_IMAGE_LIST_INTERNAL_H

#include "core/buf.h"
#include "core/fs.h"
#include "datasets/image_list.h"

struct espl_image_entry {
    char *name;           /* inside the source */
    const uint8_t *bytes; /* of an archive's picture; NULL for a folder */
    size_t len;
    int32_t class_index;
};

struct espl_image_list {
    char folder[ESPL_PATH_MAX]; /* "" for an archive */
    const char *subset;         /* "" for all; without '/' at its end */
    struct espl_archive_limits limits;
    struct espl_arena *arena; /* names and an archive's pictures */
    struct espl_image_entry *entries;
    size_t count, capacity;
    char **classes; /* sorted */
    size_t class_count;
    size_t link_count;   /* pictures of an archive that are links: not read */
    size_t empty_count;  /* folders where classes are that hold no picture */
    char empty[256];     /* the first of them; "" = none */
    char elsewhere[256]; /* a picture of an archive that is not below the subset; "" = none */
};

/** Order of entries, by name; for qsort() and bsearch(). */
int espl_image_list_compare(const void *a, const void *b);
/** First folder below the subset, in the list's arena; NULL for a picture that lies there itself.
 */
char *espl_image_list_class_of(const struct espl_image_list *list, const char *name);

#endif
