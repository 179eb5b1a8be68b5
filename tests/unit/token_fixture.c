#include "token_fixture.h"

#include "core/fs.h"
#include "support/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>

void token_fixture_path(char *out, const char *name)
{
    (void)snprintf(out, ESPL_PATH_MAX, "%s/tests/data/%s", ESPL_SOURCE_DIR, name);
}

char *token_fixture_read(const char *name, size_t *len)
{
    char path[ESPL_PATH_MAX];
    token_fixture_path(path, name);
    char *text = NULL;
    struct espl_error err = {0};
    token_fixture_ok(espl_fs_read_file(path, (size_t)1 << 26, &text, len, &err), &err);
    return text;
}

json_t *token_fixture_json(const char *name)
{
    size_t len = 0;
    char *const text = token_fixture_read(name, &len);
    json_error_t error;
    json_t *const root = json_loadb(text, len, JSON_ALLOW_NUL, &error);
    free(text);
    if (root == NULL) {
        fail_msg("%s: line %d: %s", name, error.line, error.text);
    }
    return root;
}

void token_fixture_ok(enum espl_status status, const struct espl_error *err)
{
    if (status != ESPL_OK) {
        fail_msg("status %s: %s | %s | %s", espl_status_name(status), err->message, err->hint,
                 err->context);
    }
}
