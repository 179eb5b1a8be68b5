/* The pictures of a folder or of an archive, in the order of their paths, with a class for each:
 * the name of the first folder on the way to it. */
#ifndef ESPL_DATASETS_IMAGE_LIST_H
#define ESPL_DATASETS_IMAGE_LIST_H

#include "core/error.h"
#include "core/hash.h"
#include "datasets/image_archive.h"

struct espl_image_list;

/** Bytes of one picture file. */
struct espl_image_file {
    const uint8_t *bytes;
    size_t len;
    char *owned; /* NULL when the list keeps the bytes */
};

/** Lists all *.jpg, *.jpeg and *.png files (any case) of a folder, with the folders in it, or of a
 * tar or zip archive. subset: a folder inside ("test"), or NULL: pictures elsewhere do not count,
 * and classes are the folders in there. Sorted by path, bytewise; classes likewise. Pictures of an
 * archive are kept in memory as they are stored, at most kept_bytes with their names. limits: also
 * for a folder. Errors: NOTFOUND (no source; no pictures in it), KIND (some pictures in class
 * folders and some not), JOB (subset leads out of the source), CORRUPT, IO, NOMEM. */
enum espl_status espl_image_list_open(const char *source, const char *subset,
                                      const struct espl_archive_limits *limits, uint64_t kept_bytes,
                                      struct espl_image_list **out, struct espl_error *err);
/** Keeps the pictures that a list names, with its labels for classes: a line "PICTURE LABEL" each,
 * the picture as a path below the subset (or the source), the label a whole number below 65536;
 * empty lines do not count. Labels may leave numbers out. `text` ends with a NUL and is changed.
 * Errors: CORRUPT (no such line, a picture named twice, no line at all), NOTFOUND (a picture that
 * is not there), NOMEM; they name the line. */
enum espl_status espl_image_list_keep(struct espl_image_list *list, char *text,
                                      struct espl_error *err);
void espl_image_list_close(struct espl_image_list *list);

size_t espl_image_list_count(const struct espl_image_list *list);
/** Path of a picture inside the source. Borrowed. */
const char *espl_image_list_name(const struct espl_image_list *list, size_t index);
/** Class of a picture; -1 when there are no class folders. */
int32_t espl_image_list_class(const struct espl_image_list *list, size_t index);
size_t espl_image_list_classes(const struct espl_image_list *list);
const char *espl_image_list_class_name(const struct espl_image_list *list, size_t class_index);
/** How many pictures of an archive are links: they are not read, and none of the list. */
size_t espl_image_list_links(const struct espl_image_list *list);
/** How many folders stand among the classes but hold no picture (others than *.jpg, *.jpeg, *.png
 * do not count), so that they are none; always 0 for an archive and for a set without classes.
 * *example: the first of them, "" when there is none. Borrowed. */
size_t espl_image_list_empty(const struct espl_image_list *list, const char **example);
/** Brings one picture file; free(file->owned) afterwards. */
enum espl_status espl_image_list_read(const struct espl_image_list *list, size_t index,
                                      struct espl_image_file *file, struct espl_error *err);
/** SHA-256 over paths and contents of all pictures: what a folder is known by. */
enum espl_status espl_image_list_digest(const struct espl_image_list *list,
                                        char hex[ESPL_SHA256_HEX], struct espl_error *err);

#endif
