#include "datasets/fetch/token.h"

#include "core/fs.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *from_environment(const char *name)
{
    const char *const value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* Without the blanks around it; nothing that would end or split a header line. */
static enum espl_status take(const char *text, const char *where, char out[ESPL_TOKEN_TEXT],
                             struct espl_error *err)
{
    while (isspace((unsigned char)*text)) {
        text++;
    }
    size_t len = strlen(text);
    while (len > 0 && isspace((unsigned char)text[len - 1])) {
        len--;
    }
    bool good = len > 0 && len < ESPL_TOKEN_TEXT;
    for (size_t i = 0; i < len && good; i++) {
        good = text[i] > 0x20 && text[i] < 0x7f;
    }
    if (!good) {
        return espl_fail(err, ESPL_E_USAGE, "'%s' does not hold a token: one word is expected",
                         where);
    }
    (void)snprintf(out, ESPL_TOKEN_TEXT, "%.*s", (int)len, text);
    return ESPL_OK;
}

enum espl_status espl_fetch_read_token(const char *file, char out[ESPL_TOKEN_TEXT],
                                       struct espl_error *err)
{
    static const char *const variables[] = {"ESPALIER_HUB_TOKEN", "HF_TOKEN"};
    char *text = NULL;
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; file == NULL && i < sizeof variables / sizeof variables[0]; i++) {
        const char *const value = from_environment(variables[i]);
        if (value != NULL) {
            return take(value, variables[i], out, err);
        }
    }
    if (file == NULL) {
        file = from_environment("ESPALIER_HUB_TOKEN_FILE");
    }
    if (file == NULL) {
        return ESPL_OK;
    }
    enum espl_status status = espl_fs_read_file(file, ESPL_TOKEN_TEXT, &text, &len, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = take(text, file, out, err);
    explicit_bzero(text, len);
    free(text);
    return status;
}
