/* Reads JSON from standard input, checks it, and prints one member.
 *
 *   json_get [--lines] [--keys] PATH     PATH: ".a.b.0", "." = the whole
 *
 * --lines: one JSON value a line; --keys: the sorted member names instead of the value. */
#include <jansson.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 1 << 20 };

static const json_t *walk(const json_t *value, const char *path)
{
    char name[256];
    while (value != NULL && path[0] == '.' && path[1] != '\0') {
        const size_t len = strcspn(path + 1, ".");
        (void)snprintf(name, sizeof name, "%.*s", (int)len, path + 1);
        value = json_is_array(value) ? json_array_get(value, (size_t)strtoul(name, NULL, 10))
                                     : json_object_get(value, name);
        path += 1 + len;
    }
    return value;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void print_keys(const json_t *object)
{
    const size_t count = json_object_size(object);
    const char **names = calloc(count + 1, sizeof *names);
    const char *name;
    json_t *value;
    size_t i = 0;
    json_object_foreach((json_t *)object, name, value)
    {
        if (names != NULL) {
            names[i++] = name;
        }
    }
    if (names != NULL) {
        qsort(names, i, sizeof *names, compare);
    }
    for (size_t j = 0; j < i; ++j) {
        puts(names[j]);
    }
    free(names);
}

static int print_member(json_t *root, const json_error_t *error, const char *path, bool keys)
{
    if (root == NULL) {
        fprintf(stderr, "not JSON: line %d: %s\n", error->line, error->text);
        return 1;
    }
    const json_t *value = walk(root, path);
    if (keys) {
        print_keys(value);
    } else if (json_is_string(value)) {
        puts(json_string_value(value));
    } else if (value != NULL) {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
        puts(text != NULL ? text : "");
        free(text);
    } else {
        puts("(absent)");
    }
    json_decref(root);
    return 0;
}

int main(int argc, char **argv)
{
    bool lines = false;
    bool keys = false;
    int at = 1;
    for (; at < argc - 1; ++at) {
        lines = lines || strcmp(argv[at], "--lines") == 0;
        keys = keys || strcmp(argv[at], "--keys") == 0;
    }
    if (at >= argc) {
        fputs("usage: json_get [--lines] [--keys] PATH\n", stderr);
        return 2;
    }
    json_error_t error;
    if (!lines) {
        return print_member(json_loadf(stdin, JSON_REJECT_DUPLICATES, &error), &error, argv[at],
                            keys);
    }
    static char line[LINE_BYTES];
    int code = 0;
    while (code == 0 && fgets(line, sizeof line, stdin) != NULL) {
        code =
            print_member(json_loads(line, JSON_REJECT_DUPLICATES, &error), &error, argv[at], keys);
    }
    return code;
}
