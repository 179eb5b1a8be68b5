/* Some pictures of a list, with labels of their own. */
#include "datasets/image_list_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LABELS = 1 << 16 };

/* "PICTURE LABEL" -> the label; the picture is what is left of the line. */
static bool split_line(char *line, int32_t *label)
{
    char *space = strrchr(line, ' ');
    char *end = NULL;
    if (space == NULL || space == line || space[1] < '0' || space[1] > '9') {
        return false;
    }
    const unsigned long value = strtoul(space + 1, &end, 10);
    *space = '\0';
    *label = (int32_t)value;
    return *end == '\0' && value < MOST_LABELS;
}

/* Index of a picture by its path below the subset; count when there is none. */
static size_t find_entry(const struct espl_image_list *list, const char *below)
{
    char name[ESPL_PATH_MAX];
    struct espl_image_entry key = {.name = name};
    const int len = snprintf(name, sizeof name, "%s%s%s", list->subset,
                             list->subset[0] != '\0' ? "/" : "", below);
    const struct espl_image_entry *found =
        len >= 0 && (size_t)len < sizeof name
            ? bsearch(&key, list->entries, list->count, sizeof key, espl_image_list_compare)
            : NULL;
    return found != NULL ? (size_t)(found - list->entries) : list->count;
}

/* labels (pictures) <- the label of each named picture; -1 stays where none is. */
static enum espl_status read_labels(const struct espl_image_list *list, char *text, int32_t *labels,
                                    struct espl_error *err)
{
    size_t number = 1;
    for (char *line = text; *line != '\0'; number++) {
        char *next = line + strcspn(line, "\n");
        int32_t label = 0;
        next += *next != '\0' ? 1 : 0;
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0] == '\0') {
            line = next;
            continue;
        }
        if (!split_line(line, &label)) {
            return espl_fail(err, ESPL_E_CORRUPT, "line %zu of the list is no 'PICTURE LABEL'",
                             number);
        }
        const size_t index = find_entry(list, line);
        if (index == list->count) {
            return espl_fail(err, ESPL_E_NOTFOUND, "line %zu of the list: there is no picture '%s'",
                             number, line);
        }
        if (labels[index] >= 0) {
            return espl_fail(err, ESPL_E_CORRUPT, "line %zu of the list names '%s' again", number,
                             line);
        }
        labels[index] = label;
        line = next;
    }
    return ESPL_OK;
}

/* Drops what has no label; a class is called like the folder of its first picture. */
static enum espl_status keep_labelled(struct espl_image_list *list, const int32_t *labels,
                                      struct espl_error *err)
{
    char **classes = calloc(MOST_LABELS, sizeof *classes);
    size_t kept = 0;
    if (classes == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for classes");
    }
    free(list->classes);
    list->classes = classes;
    list->class_count = 0;
    for (size_t i = 0; i < list->count; i++) {
        const size_t label = (size_t)labels[i];
        if (labels[i] < 0) {
            continue;
        }
        if (classes[label] == NULL) {
            classes[label] = espl_image_list_class_of(list, list->entries[i].name);
        }
        list->class_count = label >= list->class_count ? label + 1 : list->class_count;
        list->entries[kept] = list->entries[i];
        list->entries[kept++].class_index = labels[i];
    }
    list->count = kept;
    return kept > 0 ? ESPL_OK : espl_fail(err, ESPL_E_CORRUPT, "the list names no picture");
}

enum espl_status espl_image_list_keep(struct espl_image_list *list, char *text,
                                      struct espl_error *err)
{
    int32_t *labels = malloc(list->count * sizeof *labels);
    if (labels == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu labels", list->count);
    }
    memset(labels, 0xff, list->count * sizeof *labels); /* all -1 */
    enum espl_status status = read_labels(list, text, labels, err);
    if (status == ESPL_OK) {
        status = keep_labelled(list, labels, err);
    }
    free(labels);
    return status;
}
