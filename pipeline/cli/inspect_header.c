#include "cli/inspect_header.h"

#include "artifact/kinds.h"
#include "cli/print.h"
#include "cli/target.h"
#include "core/fs.h"
#include "core/tame.h"
#include "core/units.h"
#include "report/figure_text.h"

#include <stdlib.h>
#include <string.h>

enum {
    LABEL_WIDTH = 10,
    SIDE_FILE_LIMIT = 16 << 20,
    MAX_DEPTH = 12 /* of the chain of inputs; longer ones are cut with "..." */
};

json_t *espl_inspect_side_file(const struct espl_artifact *artifact)
{
    char path[ESPL_PATH_MAX];
    char *text = NULL;
    size_t len = 0;
    const size_t path_len = strlen(espl_artifact_path(artifact));
    if (path_len < 3 || path_len + 3 > sizeof path) {
        return NULL;
    }
    (void)snprintf(path, sizeof path, "%s", espl_artifact_path(artifact));
    (void)snprintf(path + path_len - 3, sizeof path - path_len + 3, ".json"); /* was ".h5" */
    /* A remark beside the artifact: an unreadable one is as good as none. */
    if (espl_fs_read_file(path, SIDE_FILE_LIMIT, &text, &len, NULL) != ESPL_OK) {
        return NULL;
    }
    json_t *root = json_loadb(text, len, 0, NULL);
    free(text);
    return root;
}

static void label(const struct espl_cli *cli, const char *text)
{
    fprintf(cli->out, "%s%-*s%s", espl_style_on(cli->colour_out, ESPL_STYLE_DIM), LABEL_WIDTH, text,
            espl_style_off(cli->colour_out, ESPL_STYLE_DIM));
}

static const char *json_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

static enum espl_status print_file(const struct espl_cli *cli, struct espl_artifact *artifact,
                                   struct espl_error *err)
{
    char shown[ESPL_PATH_MAX];
    char size[ESPL_UNIT_TEXT];
    uint64_t bytes = 0;
    const char *path = espl_artifact_path(artifact);
    const enum espl_status status = espl_fs_file_size(path, &bytes, err);
    if (status != ESPL_OK) {
        return status;
    }
    espl_print_size(bytes, size);
    label(cli, "file");
    fprintf(cli->out, "%s   %s   complete\n", espl_fs_shown_path(path, shown), size);
    label(cli, "content");
    fprintf(cli->out, "sha256 %s\n", espl_artifact_content_sha256(artifact));
    const struct espl_kind *kind = espl_kind_find(espl_artifact_kind(artifact));
    label(cli, "kind");
    fprintf(cli->out, "%s%s%s\n", espl_artifact_kind(artifact), kind != NULL ? ": " : "",
            kind != NULL ? kind->summary : "");
    return ESPL_OK;
}

static void print_maker(const struct espl_cli *cli, struct espl_artifact *artifact)
{
    const char *stage = espl_artifact_attribute(artifact, "stage");
    if (stage[0] == '\0') {
        return;
    }
    label(cli, "made by");
    fprintf(cli->out, "%s (cache version %s)   espalier %s\n", stage,
            espl_artifact_attribute(artifact, "cache_version"),
            espl_artifact_attribute(artifact, "tool_version"));
    json_t *side = espl_inspect_side_file(artifact);
    if (side != NULL) {
        char when[ESPL_FIGURE_TEXT];
        espl_figure_time(json_text(side, "created_utc"), when);
        label(cli, "when");
        fprintf(cli->out, "%s on %s, run %s\n", when, json_text(side, "host"),
                json_text(side, "run_id"));
        json_decref(side);
    }
    label(cli, "key");
    fprintf(cli->out, "%s\n", espl_artifact_attribute(artifact, "key"));
    label(cli, "job");
    fprintf(cli->out, "%s   seed %s\n", espl_artifact_attribute(artifact, "job_name"),
            espl_artifact_attribute(artifact, "seed"));
}

static enum espl_status print_params(const struct espl_cli *cli, struct espl_artifact *artifact,
                                     struct espl_error *err)
{
    json_t *params = NULL;
    const enum espl_status status = espl_target_provenance(artifact, "params", &params, err);
    const char *name;
    json_t *value;
    bool first = true;
    json_object_foreach(params, name, value)
    {
        char text[512];
        if (json_is_null(value)) {
            continue; /* an optional parameter that was left out */
        }
        espl_figure_param(value, text, sizeof text);
        label(cli, first ? "params" : "");
        fprintf(cli->out, "%s %s\n", name, text);
        first = false;
    }
    json_decref(params);
    return status;
}

void espl_inspect_stores_find(const char *path, const struct espl_store *store,
                              struct espl_inspect_stores *out)
{
    memset(out, 0, sizeof *out);
    if (espl_store_of_file(path, &out->items[0]) && strcmp(out->items[0].root, store->root) != 0) {
        out->count = 1;
    }
    out->items[out->count++] = *store;
}

static struct espl_artifact *open_input(const struct espl_inspect_stores *stores, const char *key)
{
    struct espl_artifact *artifact = NULL;
    for (size_t i = 0; i < stores->count && artifact == NULL && strlen(key) >= 6; ++i) {
        char path[ESPL_PATH_MAX];
        if (espl_store_find(&stores->items[i], key, path, NULL) != ESPL_OK ||
            espl_artifact_open(path, &artifact, NULL) != ESPL_OK) {
            artifact = NULL;
        }
    }
    return artifact;
}

/* One line an input, and below it, indented, what that was made from. Inputs that are no longer in
 * the store end the chain: gc may have taken them. */
static void print_chain(const struct espl_cli *cli, const struct espl_inspect_stores *stores,
                        struct espl_artifact *artifact, unsigned depth)
{
    json_t *inputs = NULL;
    if (espl_target_provenance(artifact, "inputs", &inputs, NULL) != ESPL_OK) {
        return;
    }
    size_t index;
    const json_t *input;
    json_array_foreach(inputs, index, input)
    {
        const char *key = json_text(input, "key");
        struct espl_artifact *source = open_input(stores, key);
        label(cli, depth == 0 && index == 0 ? "inputs" : "");
        fprintf(cli->out, "%*s%s%-8s %-16s key %.8s", (int)(depth * 2), "", depth > 0 ? "`- " : "",
                json_text(input, "port"), json_text(input, "kind"), key);
        fprintf(cli->out, "   %s\n",
                source != NULL ? espl_artifact_attribute(source, "stage") : "(not in the store)");
        if (source != NULL && depth < MAX_DEPTH) {
            print_chain(cli, stores, source, depth + 1);
        }
        espl_artifact_close(source);
    }
    json_decref(inputs);
}

enum espl_status espl_inspect_header_print(const struct espl_cli *cli,
                                           const struct espl_inspect_stores *stores,
                                           struct espl_artifact *artifact, struct espl_error *err)
{
    enum espl_status status = print_file(cli, artifact, err);
    if (status == ESPL_OK) {
        print_maker(cli, artifact);
        status = print_params(cli, artifact, err);
    }
    if (status == ESPL_OK) {
        print_chain(cli, stores, artifact, 0);
    }
    return status;
}

/* Sizes of a model and what pruning did to it: the layer table and the parameters say as much. */
static bool is_long(const char *name)
{
    return strcmp(name, "config") == 0 || strcmp(name, "pruning") == 0;
}

static void print_members(const struct espl_cli *cli, const json_t *object, const char *prefix,
                          bool brief, unsigned depth)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        char dotted[256];
        char text[1024];
        if (brief && depth == 0 && is_long(name)) {
            continue;
        }
        (void)snprintf(dotted, sizeof dotted, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", name);
        espl_text_tame(dotted);
        if (json_is_object(value) && depth < MAX_DEPTH) {
            print_members(cli, value, dotted, brief, depth + 1);
            continue;
        }
        if (json_is_real(value)) {
            (void)snprintf(text, sizeof text, "%.6g", json_real_value(value));
        } else {
            espl_figure_param(value, text, sizeof text);
        }
        fprintf(cli->out, "  %-28s %s\n", dotted, text);
    }
}

void espl_inspect_description_print(const struct espl_cli *cli, const json_t *description,
                                    bool brief)
{
    print_members(cli, description, "", brief, 0);
}
