#include "engine/override.h"

#include "core/suggest.h"
#include "engine/source_text.h"

#include <stdio.h>
#include <string.h>

struct overlay {
    const struct espl_stage *const *registry;
    struct espl_arena *arena;
    struct espl_diagnostics *diags;
    struct espl_srcpos at; /* of the override in work */
    bool no_memory;
};

/* The mapping with `key` set to `value`; other entries are shared. mapping: NULL or not a mapping =
 * an empty one. */
static const struct espl_node *with_entry(struct overlay *overlay, const struct espl_node *mapping,
                                          const char *key, const struct espl_node *value)
{
    const bool exists = mapping != NULL && mapping->type == ESPL_NODE_MAPPING;
    const size_t count = exists ? mapping->count : 0;
    struct espl_node *node = espl_arena_alloc(overlay->arena, sizeof *node);
    struct espl_node *key_node = espl_arena_alloc(overlay->arena, sizeof *key_node);
    const struct espl_node **items =
        espl_arena_array(overlay->arena, count + 1, sizeof(const struct espl_node *));
    const struct espl_node **keys =
        espl_arena_array(overlay->arena, count + 1, sizeof(const struct espl_node *));
    if (node == NULL || key_node == NULL || items == NULL || keys == NULL) {
        overlay->no_memory = true;
        return NULL;
    }
    *key_node = (struct espl_node){.type = ESPL_NODE_SCALAR, .at = overlay->at, .text = key};
    size_t index = count;
    for (size_t i = count; i > 0; i--) {
        items[i - 1] = mapping->items[i - 1];
        keys[i - 1] = mapping->keys[i - 1];
        if (strcmp(keys[i - 1]->text, key) == 0) {
            index = i - 1;
        }
    }
    items[index] = value;
    keys[index] = key_node;
    *node = (struct espl_node){.type = ESPL_NODE_MAPPING,
                               .at = exists ? mapping->at : overlay->at,
                               .count = index == count ? count + 1 : count,
                               .items = items,
                               .keys = keys};
    return node;
}

static const struct espl_node *with_item(struct overlay *overlay, const struct espl_node *sequence,
                                         size_t index, const struct espl_node *value)
{
    struct espl_node *node = espl_arena_alloc(overlay->arena, sizeof *node);
    const struct espl_node **items =
        espl_arena_array(overlay->arena, sequence->count, sizeof(const struct espl_node *));
    if (node == NULL || items == NULL) {
        overlay->no_memory = true;
        return NULL;
    }
    for (size_t i = 0; i < sequence->count; i++) {
        items[i] = i == index ? value : sequence->items[i];
    }
    *node = *sequence;
    node->items = items;
    return node;
}

static const char *scalar_of(const struct espl_node *mapping, const char *key)
{
    const struct espl_node *node = espl_node_get(mapping, key, NULL);
    return node != NULL && node->type == ESPL_NODE_SCALAR ? node->text : NULL;
}

static void report_unknown_stage(struct overlay *overlay, const struct espl_node *stages,
                                 const char *id)
{
    struct espl_diagnostic *item = espl_diagnostics_add(overlay->diags, ESPL_E_JOB, &overlay->at,
                                                        "the job has no stage '%s'", id);
    const char *near = NULL;
    size_t near_distance = 0;
    for (size_t i = 0; stages != NULL && stages->type == ESPL_NODE_SEQUENCE && i < stages->count;
         i++) {
        const char *known = scalar_of(stages->items[i], "id");
        if (known != NULL && strlen(known) <= ESPL_JOB_NAME_MAX &&
            espl_suggest(id, &known, 1) != NULL) {
            const size_t distance = espl_edit_distance(id, known);
            if (near == NULL || distance < near_distance) {
                near = known;
                near_distance = distance;
            }
        }
    }
    if (near != NULL) {
        espl_diagnostic_hint(item, "did you mean '%s'?", near);
    }
}

/* The table row that an override of this stage's parameter will meet, NULL when there is none. */
static const struct espl_param *find_row(const struct overlay *overlay,
                                         const struct espl_node *stage, const char *param)
{
    const char *use = scalar_of(stage, "use");
    for (size_t i = 0; use != NULL && overlay->registry[i] != NULL; i++) {
        if (strcmp(overlay->registry[i]->name, use) == 0) {
            return espl_schema_find(overlay->registry[i]->params, param);
        }
    }
    return NULL;
}

static const struct espl_node *set_stage_param(struct overlay *overlay,
                                               const struct espl_node *root, const char *id,
                                               const char *param, const char *value)
{
    const struct espl_node *stages = espl_node_get(root, "stages", NULL);
    const bool list = stages != NULL && stages->type == ESPL_NODE_SEQUENCE;
    size_t index = 0;
    while (list && index < stages->count) {
        const char *known = scalar_of(stages->items[index], "id");
        if (known != NULL && strcmp(known, id) == 0) {
            break;
        }
        index++;
    }
    if (!list || index == stages->count) {
        report_unknown_stage(overlay, stages, id);
        return root;
    }
    const struct espl_node *stage = stages->items[index];
    const struct espl_node *node = espl_schema_override_node(
        find_row(overlay, stage, param), value, &overlay->at, overlay->arena, overlay->diags);
    if (node == NULL) {
        return root;
    }
    const struct espl_node *with =
        with_entry(overlay, espl_node_get(stage, "with", NULL), param, node);
    const struct espl_node *new_stage =
        with != NULL ? with_entry(overlay, stage, "with", with) : NULL;
    const struct espl_node *new_stages =
        new_stage != NULL ? with_item(overlay, stages, index, new_stage) : NULL;
    return new_stages != NULL ? with_entry(overlay, root, "stages", new_stages) : NULL;
}

static const struct espl_node *set_top(struct overlay *overlay, const struct espl_node *root,
                                       const char *key, const char *value)
{
    static const char *const known[] = {"seed", "device", "name"};
    enum { KNOWN = sizeof known / sizeof known[0] };
    for (size_t i = 0; i < KNOWN; i++) {
        if (strcmp(key, known[i]) == 0) {
            const struct espl_node *node = espl_schema_override_node(
                NULL, value, &overlay->at, overlay->arena, overlay->diags);
            return node != NULL ? with_entry(overlay, root, known[i], node) : root;
        }
    }
    struct espl_diagnostic *item =
        espl_diagnostics_add(overlay->diags, ESPL_E_JOB, &overlay->at, "unknown setting '%s'", key);
    const char *near = espl_suggest(key, known, KNOWN);
    if (near != NULL) {
        espl_diagnostic_hint(item, "did you mean '%s'?", near);
    } else {
        espl_diagnostic_hint(item, "write <stage id>.<parameter>, seed, device, name, "
                                   "limits.host_memory or limits.scratch");
    }
    return root;
}

static const struct espl_node *apply_one(struct overlay *overlay, const struct espl_node *root,
                                         const struct espl_override *override)
{
    char shown[ESPL_CLIP_TEXT];
    espl_text_clip(override->path, shown);
    overlay->at = (struct espl_srcpos){0};
    if (override->option != NULL) {
        (void)snprintf(overlay->at.file, sizeof overlay->at.file, "%s", override->option);
    } else {
        (void)snprintf(overlay->at.file, sizeof overlay->at.file, "--set %s", shown);
    }
    const char *dot = strchr(override->path, '.');
    if (strlen(override->path) >= ESPL_CLIP_TEXT * 2) {
        (void)espl_diagnostics_add(overlay->diags, ESPL_E_JOB, &overlay->at,
                                   "no parameter has so long a name");
        return root;
    }
    if (dot == NULL) {
        return set_top(overlay, root, override->path, override->value);
    }
    const char *id =
        espl_arena_strndup(overlay->arena, override->path, (size_t)(dot - override->path));
    const char *param = espl_arena_strdup(overlay->arena, dot + 1);
    if (id == NULL || param == NULL) {
        return NULL;
    }
    if (strcmp(id, "limits") != 0) {
        return set_stage_param(overlay, root, id, param, override->value);
    }
    const struct espl_node *node = espl_schema_override_node(NULL, override->value, &overlay->at,
                                                             overlay->arena, overlay->diags);
    if (node == NULL) {
        return root;
    }
    const struct espl_node *limits =
        with_entry(overlay, espl_node_get(root, "limits", NULL), param, node);
    return limits != NULL ? with_entry(overlay, root, "limits", limits) : NULL;
}

const struct espl_node *espl_override_apply(const struct espl_node *root,
                                            const struct espl_stage *const *registry,
                                            const struct espl_override *overrides, size_t count,
                                            struct espl_arena *arena,
                                            struct espl_diagnostics *diags)
{
    struct overlay overlay = {.registry = registry, .arena = arena, .diags = diags};
    for (size_t i = 0; i < count && root != NULL; i++) {
        root = apply_one(&overlay, root, &overrides[i]);
    }
    return overlay.no_memory ? NULL : root;
}
