/* Names of private files, and how to tell leftovers of dead processes from files in use. */
#include "core/fs.h"
#include "core/units.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HOST_TAG = 9 /* with the NUL */ };

/* FNV-1a of the host name: short, and free of characters that a file name cannot have. */
static void host_tag(char out[HOST_TAG])
{
    char host[256] = "";
    uint32_t hash = UINT32_C(2166136261);
    if (gethostname(host, sizeof host) != 0) {
        host[0] = '\0';
    }
    host[sizeof host - 1] = '\0';
    for (const char *c = host; *c != '\0'; c++) {
        hash = (hash ^ (unsigned char)*c) * UINT32_C(16777619);
    }
    (void)snprintf(out, HOST_TAG, "%08" PRIx32, hash);
}

enum espl_status espl_fs_temporary_name(char out[ESPL_PATH_MAX], const char *path,
                                        struct espl_error *err)
{
    char tag[HOST_TAG];
    host_tag(tag);
    const int len =
        snprintf(out, ESPL_PATH_MAX, "%s.%s-%" PRId64 ".tmp", path, tag, (int64_t)getpid());
    if (len < 0 || len >= ESPL_PATH_MAX) {
        return espl_fail(err, ESPL_E_IO, "path is too long: '%.100s...'", path);
    }
    return ESPL_OK;
}

/* A process that has ended and that nobody has waited for yet still has its number, but no files.
 * Where /proc does not tell, it counts as living. */
static bool is_zombie(int64_t pid)
{
    char path[64];
    char text[512] = "";
    (void)snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    FILE *const stream = fopen(path, "re");
    if (stream == NULL) {
        return false;
    }
    const char *const line = fgets(text, sizeof text, stream);
    (void)fclose(stream); /* only read from */
    const char *const state = line != NULL ? strrchr(line, ')') : NULL;
    return state != NULL && state[1] == ' ' && (state[2] == 'Z' || state[2] == 'X');
}

bool espl_fs_is_abandoned(const char *name)
{
    static const char ending[] = ".tmp";
    char tag[HOST_TAG];
    char digits[24];
    int64_t pid = 0;
    const size_t len = strlen(name);
    const char *dash = strrchr(name, '-');
    if (len < sizeof ending || strcmp(name + len - (sizeof ending - 1), ending) != 0 ||
        dash == NULL || dash - name < HOST_TAG) {
        return false;
    }
    host_tag(tag);
    const char *tag_start = dash - (HOST_TAG - 1);
    if (tag_start[-1] != '.' || strncmp(tag_start, tag, HOST_TAG - 1) != 0) {
        return false;
    }
    const int digit_count = (int)((size_t)(name + len - dash) - sizeof ending);
    if (digit_count < 1 || (size_t)digit_count >= sizeof digits) {
        return false;
    }
    (void)snprintf(digits, sizeof digits, "%.*s", digit_count, dash + 1);
    if (!espl_parse_int(digits, &pid) || pid <= 0 || pid > INT32_MAX) {
        return false;
    }
    return (kill((pid_t)pid, 0) != 0 && errno == ESRCH) || is_zombie(pid);
}

void espl_fs_remove_abandoned(const char *path)
{
    enum { PARENT_LIMIT = 100000 };
    char parent[ESPL_PATH_MAX];
    char leftover[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    const size_t len = strlen(name);
    const int parent_len = slash == NULL ? 1 : (slash == path ? 1 : (int)(slash - path));
    (void)snprintf(parent, sizeof parent, "%.*s", parent_len, slash == NULL ? "." : path);
    if (len == 0 || espl_fs_list(parent, PARENT_LIMIT, &names, &count, NULL) != ESPL_OK) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (strncmp(names[i], name, len) == 0 && names[i][len] == '.' &&
            strchr(names[i] + len + 1, '.') == strrchr(names[i], '.') &&
            espl_fs_is_abandoned(names[i]) &&
            espl_fs_join(leftover, parent, names[i], NULL) == ESPL_OK) {
            (void)espl_fs_remove_tree(leftover, NULL);
        }
    }
    espl_fs_free_names(names, count);
}
