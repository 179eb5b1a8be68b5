#include "cli/run_progress.h"

#include "engine/run_record.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { TAIL_BYTES = 256 * 1024 };

/* The last bytes of a file, NUL-terminated; the first line may be cut. */
static size_t read_tail(const char *path, char *out, size_t size)
{
    FILE *stream = fopen(path, "re");
    if (stream == NULL) {
        return 0;
    }
    if (fseek(stream, -(long)(size - 1), SEEK_END) != 0) {
        rewind(stream); /* it is shorter */
    }
    const size_t len = fread(out, 1, size - 1, stream);
    (void)fclose(stream); /* only read from */
    out[len] = '\0';
    return len;
}

static void take_event(const json_t *event, const char *stage_id, double *first_time,
                       uint64_t *first_done, struct espl_run_progress *out)
{
    const char *type = json_string_value(json_object_get(event, "type"));
    const char *stage = json_string_value(json_object_get(event, "stage"));
    const char *what = json_string_value(json_object_get(event, "what"));
    if (type == NULL || stage == NULL || strcmp(type, "progress") != 0 ||
        strcmp(stage, stage_id) != 0) {
        return;
    }
    const uint64_t done = (uint64_t)json_integer_value(json_object_get(event, "done"));
    const double time = json_number_value(json_object_get(event, "time"));
    if (!out->known || done < *first_done) {
        *first_time = time;
        *first_done = done;
    }
    out->known = true;
    out->done = done;
    out->total = (uint64_t)json_integer_value(json_object_get(event, "total"));
    out->time = time;
    (void)snprintf(out->what, sizeof out->what, "%s", what != NULL ? what : "");
}

void espl_run_progress_read(const struct espl_store *store, const char *run_id,
                            const char *stage_id, struct espl_run_progress *out)
{
    static const size_t size = TAIL_BYTES;
    char path[ESPL_PATH_MAX];
    double first_time = 0.0;
    uint64_t first_done = 0;
    char tail[TAIL_BYTES];
    memset(out, 0, sizeof *out);
    out->eta = -1.0;
    if (espl_run_path(store, run_id, "events.jsonl", path, NULL) != ESPL_OK ||
        read_tail(path, tail, size) == 0) {
        return;
    }
    for (char *line = tail, *end = NULL; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        json_t *event = json_loadb(line, (size_t)(end - line), 0, NULL);
        take_event(event, stage_id, &first_time, &first_done, out); /* NULL: a cut line */
        json_decref(event);
    }
    if (out->known && out->done > first_done && out->time > first_time && out->total >= out->done) {
        out->eta = (double)(out->total - out->done) * (out->time - first_time) /
                   (double)(out->done - first_done);
    }
}
