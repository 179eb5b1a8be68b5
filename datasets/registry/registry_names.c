/* The names that files of an entry have in its set. */
#include "datasets/registry/registry_names.h"

#include <stdlib.h>
#include <string.h>

struct name {
    const char *text;
    const struct espl_node *at;
    size_t order; /* in the file */
};

/* Sorted so that what lies in a folder "f" follows "f" at once: '/' comes before all others. */
static int compare_text(const char *a, const char *b)
{
    while (*a == *b && *a != '\0') {
        a++;
        b++;
    }
    const int left = *a == '/' ? 1 : (unsigned char)*a;
    const int right = *b == '/' ? 1 : (unsigned char)*b;
    return left < right ? -1 : left > right;
}

static int compare_names(const void *a, const void *b)
{
    const struct name *const left = a;
    const struct name *const right = b;
    const int by_text = compare_text(left->text, right->text);
    return by_text != 0 ? by_text : left->order < right->order ? -1 : 1;
}

static void add(struct name *names, size_t *count, const char *text, const struct espl_node *at)
{
    if (text != NULL) {
        names[*count] = (struct name){text, at, *count};
        (*count)++;
    }
}

/* Files and what comes out of archives; *count <- how many have a name. NULL when out of memory. */
static struct name *collect(struct espl_registry_reader *reader,
                            const struct espl_node *const *items,
                            const struct espl_registry_entry *entry, size_t *count)
{
    size_t most = 0;
    *count = 0;
    for (size_t i = 0; i < entry->file_count; i++) {
        most += 1 + entry->files[i].member_count;
    }
    struct name *const names = espl_registry_array(reader, most, sizeof *names);
    for (size_t i = 0; names != NULL && i < entry->file_count; i++) {
        const struct espl_registry_file *const file = &entry->files[i];
        add(names, count, file->name, items[i]);
        for (size_t m = 0; m < file->member_count; m++) {
            add(names, count, file->members[m].name, items[i]);
        }
    }
    return names;
}

static void check_pair(struct espl_registry_reader *reader, const struct name *before,
                       const struct name *name)
{
    const size_t len = strlen(before->text);
    if (strcmp(before->text, name->text) == 0) {
        (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &name->at->at,
                                   "the file '%s' is there twice", name->text);
    } else if (strncmp(before->text, name->text, len) == 0 && name->text[len] == '/') {
        (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &name->at->at,
                                   "'%s' cannot be a file and the folder of '%s'", before->text,
                                   name->text);
    }
}

static void check_use(struct espl_registry_reader *reader, const struct espl_node *node,
                      const struct espl_registry_entry *entry, const struct name *names,
                      size_t count)
{
    for (size_t i = 0; i < entry->use_count; i++) {
        size_t n = 0;
        while (n < count && strcmp(names[n].text, entry->use[i]) != 0) {
            n++;
        }
        if (n == count) {
            (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &node->at,
                                       "'use' names '%.80s', which is no file of the entry",
                                       entry->use[i]);
        }
    }
}

void espl_registry_check_names(struct espl_registry_reader *reader, const struct espl_node *node,
                               const struct espl_node *const *items,
                               const struct espl_registry_entry *entry)
{
    size_t count = 0;
    struct name *const names = collect(reader, items, entry, &count);
    if (names == NULL || entry->file_count == 0) {
        return;
    }
    qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i].text, "set.json") == 0) {
            (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &names[i].at->at,
                                       "no file can be named 'set.json': that describes the set");
        }
        if (i > 0) {
            check_pair(reader, &names[i - 1], &names[i]);
        }
    }
    if (!entry->weights) { /* the names of shards are in the index */
        check_use(reader, node, entry, names, count);
    }
}
