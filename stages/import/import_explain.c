/* From a list of tensors that do not fit to a message a user can act on. */
#include "core/buf.h"
#include "stages/import/import_match.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMED = 3 }; /* tensors of each sort that are named */

struct view {
    const struct espl_import_checkpoint *checkpoint;
    const struct espl_import_problems *problems;
};

static const struct espl_tensor_spec *spec_at(const struct view *view, const size_t *list, size_t i)
{
    return &view->checkpoint->specs[list[i]];
}

static const struct espl_safetensor *source_at(const struct view *view, const size_t *list,
                                               size_t i)
{
    return view->checkpoint->sources[list[i]];
}

static const struct espl_safetensor *extra_at(const struct view *view, size_t i)
{
    return espl_safetensors_tensor(view->checkpoint->files, view->problems->extra[i]);
}

static const char *file_of(const struct view *view, const struct espl_safetensor *tensor)
{
    const char *path = espl_safetensors_file(view->checkpoint->files, tensor->file);
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* ---- causes: each returns true when it knows what happened and has said so ---- */

static bool cause_grouped_heads(const struct view *view, struct espl_error *err)
{
    const struct espl_model_config *config = &view->checkpoint->config;
    for (size_t i = 0; i < view->problems->wrong_count; i++) {
        const struct espl_tensor_spec *spec = spec_at(view, view->problems->wrong, i);
        const struct espl_safetensor *tensor = source_at(view, view->problems->wrong, i);
        const uint64_t rows = tensor->rank > 0 ? tensor->shape[0] : 0;
        const uint64_t heads = rows / config->head_dim;
        if ((spec->role != ESPL_ROLE_K && spec->role != ESPL_ROLE_V) ||
            tensor->rank != spec->rank || heads == 0 || rows % config->head_dim != 0 ||
            config->heads % heads != 0 || heads == config->kv_heads) {
            continue;
        }
        (void)espl_hint(
            err,
            "%" PRIu64 " = %" PRIu64 " key/value heads x %" PRIu64
            ": this looks like a %s, but config.json says num_key_value_heads = %" PRIu64,
            rows, heads, config->head_dim,
            heads == config->heads ? "model without grouped heads" : "grouped-query model",
            config->kv_heads);
        return true;
    }
    return false;
}

static bool cause_vocabulary(const struct view *view, struct espl_error *err)
{
    const uint64_t vocab = view->checkpoint->config.vocab;
    for (size_t i = 0; i < view->problems->wrong_count; i++) {
        const struct espl_tensor_spec *spec = spec_at(view, view->problems->wrong, i);
        const struct espl_safetensor *tensor = source_at(view, view->problems->wrong, i);
        if ((spec->role != ESPL_ROLE_EMBEDDING && spec->role != ESPL_ROLE_HEAD) ||
            tensor->rank != 2 || tensor->shape[1] != spec->shape[1]) {
            continue;
        }
        uint64_t multiple = 1;
        while (multiple < 4096 && tensor->shape[0] % (2 * multiple) == 0) {
            multiple *= 2;
        }
        if (tensor->shape[0] > vocab && tensor->shape[0] - vocab < multiple) {
            (void)espl_hint(err,
                            "%" PRIu64 " rows for vocab_size = %" PRIu64
                            ": the vocabulary looks padded to a multiple of %" PRIu64
                            "; set vocab_size to %" PRIu64 " in config.json",
                            tensor->shape[0], vocab, multiple, tensor->shape[0]);
        } else {
            (void)espl_hint(err,
                            "%" PRIu64 " rows for vocab_size = %" PRIu64
                            ": tokens were added or removed without changing config.json",
                            tensor->shape[0], vocab);
        }
        return true;
    }
    return false;
}

static bool cause_embedding_width(const struct view *view, struct espl_error *err)
{
    for (size_t i = 0; i < view->problems->wrong_count; i++) {
        const struct espl_tensor_spec *spec = spec_at(view, view->problems->wrong, i);
        const struct espl_safetensor *tensor = source_at(view, view->problems->wrong, i);
        if (spec->role == ESPL_ROLE_EMBEDDING && tensor->rank == 2 &&
            tensor->shape[0] == spec->shape[0] &&
            strcmp(view->checkpoint->config.architecture, "opt") == 0) {
            (void)espl_hint(err,
                            "embeddings are %" PRIu64
                            " wide, but config.json says word_embed_proj_dim = %" PRIu64,
                            tensor->shape[1], view->checkpoint->config.embed_dim);
            return true;
        }
    }
    return false;
}

static bool cause_tied(const struct view *view, struct espl_error *err)
{
    if (view->problems->missing_count != 1 ||
        spec_at(view, view->problems->missing, 0)->role != ESPL_ROLE_HEAD) {
        return false;
    }
    (void)espl_hint(err, "the embeddings are probably tied: set tie_word_embeddings to true in "
                         "config.json if the model has no output matrix of its own");
    return true;
}

/* The number behind "layers.", or -1. */
static int64_t layer_of(const char *name)
{
    const char *at = strstr(name, "layers.");
    char *end = NULL;
    if (at == NULL || at[7] < '0' || at[7] > '9') {
        return -1;
    }
    const long value = strtol(at + 7, &end, 10);
    return *end == '.' && value < 1000000 ? (int64_t)value : -1;
}

/* Whole layers are not there. */
static bool cause_missing_layers(const struct view *view, struct espl_error *err)
{
    int64_t first = INT64_MAX;
    int64_t last = -1;
    for (size_t i = 0; i < view->problems->missing_count; i++) {
        const int64_t layer = spec_at(view, view->problems->missing, i)->layer;
        if (layer >= 0) {
            first = layer < first ? layer : first;
            last = layer > last ? layer : last;
        }
    }
    if (last < 0) {
        return false;
    }
    size_t present = 0; /* tensors of layers [first, last] that are there */
    for (size_t i = 0; i < view->checkpoint->count; i++) {
        const int64_t layer = view->checkpoint->specs[i].layer;
        present += layer >= first && layer <= last && view->checkpoint->sources[i] != NULL;
    }
    if (present * 2 > view->problems->missing_count) {
        return false;
    }
    if ((uint64_t)last + 1 == view->checkpoint->config.layers && first > 0 && present == 0) {
        (void)espl_hint(err,
                        "the files hold %" PRId64 " layers, config.json says num_hidden_layers = "
                        "%" PRIu64 ": a shard is missing, or config.json is of another model",
                        first, view->checkpoint->config.layers);
    } else {
        (void)espl_hint(err,
                        "layers %" PRId64 " to %" PRId64
                        " are missing: probably a shard that was not downloaded",
                        first, last);
    }
    return true;
}

static bool cause_more_layers(const struct view *view, struct espl_error *err)
{
    int64_t last = -1;
    for (size_t i = 0; i < view->problems->extra_count; i++) {
        const int64_t layer = layer_of(extra_at(view, i)->name);
        last = layer > last ? layer : last;
    }
    if (last < 0 || (uint64_t)last < view->checkpoint->config.layers) {
        return false;
    }
    (void)espl_hint(
        err, "the files hold %" PRId64 " layers, but config.json says num_hidden_layers = %" PRIu64,
        last + 1, view->checkpoint->config.layers);
    return true;
}

static bool ends_in(const char *name, const char *ending)
{
    const size_t len = strlen(name);
    const size_t tail = strlen(ending);
    return len >= tail && strcmp(name + len - tail, ending) == 0;
}

/* Which key of config.json switches this bias on. */
static const char *bias_key(const char *architecture, const char *name)
{
    if (strcmp(architecture, "opt") == 0) {
        return strstr(name, "layer_norm") != NULL ? "layer_norm_elementwise_affine" : "enable_bias";
    }
    if (strcmp(architecture, "qwen2") == 0) {
        return NULL;
    }
    return strstr(name, ".mlp.") != NULL ? "mlp_bias" : "attention_bias";
}

static bool cause_biases(const struct view *view, struct espl_error *err)
{
    const char *architecture = view->checkpoint->config.architecture;
    const char *name = NULL;
    bool there = false;
    if (view->problems->extra_count > 0 && ends_in(extra_at(view, 0)->name, ".bias")) {
        name = extra_at(view, 0)->name;
        there = true;
    } else if (view->problems->missing_count > 0 &&
               spec_at(view, view->problems->missing, 0)->is_bias) {
        name = spec_at(view, view->problems->missing, 0)->name;
    }
    const bool opt = strcmp(architecture, "opt") == 0;
    if (name == NULL || (!opt && strstr(name, "_proj.") == NULL)) {
        return false;
    }
    const char *key = bias_key(architecture, name);
    if (key == NULL) {
        (void)espl_hint(err,
                        "%s has biases on q, k and v and nowhere else: is this checkpoint "
                        "another architecture?",
                        architecture);
    } else {
        (void)espl_hint(err, "the files %s biases, but config.json says %s = %s",
                        there ? "hold" : "lack", key, there ? "false" : "true");
    }
    return true;
}

static bool cause_other_names(const struct view *view, struct espl_error *err)
{
    if (view->problems->missing_count * 2 < view->checkpoint->count ||
        view->problems->extra_count == 0) {
        return false;
    }
    (void)espl_hint(err,
                    "the names are not those of %s (expected '%s', found '%s'): is arch or "
                    "model_type right?",
                    view->checkpoint->config.architecture,
                    spec_at(view, view->problems->missing, 0)->name, extra_at(view, 0)->name);
    return true;
}

typedef bool (*cause_fn)(const struct view *view, struct espl_error *err);

static const cause_fn causes[] = {
    cause_grouped_heads, cause_vocabulary,     cause_embedding_width, cause_tied,
    cause_other_names,   cause_missing_layers, cause_more_layers,     cause_biases,
};

/* ---- the message ---- */

static void add_names(struct espl_buf *buf, const struct view *view, const size_t *specs,
                      size_t count)
{
    for (size_t i = 0; i < count && i < NAMED; i++) {
        (void)espl_buf_printf(buf, "%s'%s'", i > 0 ? ", " : "",
                              specs != NULL ? spec_at(view, specs, i)->name
                                            : extra_at(view, i)->name);
    }
    if (count > NAMED) {
        (void)espl_buf_puts(buf, ", ...");
    }
}

/* How many have the shapes (stored and expected) of the first one. */
static size_t count_alike(const struct view *view)
{
    const struct espl_tensor_spec *spec = spec_at(view, view->problems->wrong, 0);
    const struct espl_safetensor *tensor = source_at(view, view->problems->wrong, 0);
    size_t alike = 0;
    for (size_t i = 0; i < view->problems->wrong_count; i++) {
        const struct espl_tensor_spec *other = spec_at(view, view->problems->wrong, i);
        const struct espl_safetensor *source = source_at(view, view->problems->wrong, i);
        alike += other->file_rank == spec->file_rank && source->rank == tensor->rank &&
                 memcmp(other->file_shape, spec->file_shape, sizeof spec->file_shape) == 0 &&
                 memcmp(source->shape, tensor->shape, sizeof tensor->shape) == 0;
    }
    return alike;
}

static void say_shapes(const struct view *view, struct espl_error *err)
{
    const struct espl_tensor_spec *spec = spec_at(view, view->problems->wrong, 0);
    const struct espl_safetensor *tensor = source_at(view, view->problems->wrong, 0);
    char stored[96];
    char expected[96];
    espl_import_print_shape(tensor->rank, tensor->shape, stored);
    espl_import_print_shape(spec->file_rank, spec->file_shape, expected);
    (void)espl_fail(err, ESPL_E_KIND, "tensor '%s' has shape %s, expected %s", tensor->name, stored,
                    expected);
    const size_t alike = count_alike(view);
    const size_t others = view->problems->wrong_count - alike;
    if (others == 0) {
        (void)espl_context(err, "in file %s; %zu tensors differ the same way",
                           file_of(view, tensor), alike);
    } else {
        (void)espl_context(err, "in file %s; %zu tensors differ the same way, %zu in other ways",
                           file_of(view, tensor), alike, others);
    }
}

static void say_all(const struct view *view, struct espl_error *err)
{
    const struct espl_import_problems *problems = view->problems;
    struct espl_buf buf;
    const char *join = "";

    espl_buf_init(&buf, 4096);
    if (problems->missing_count > 0) {
        (void)espl_buf_printf(&buf, "%zu missing (", problems->missing_count);
        add_names(&buf, view, problems->missing, problems->missing_count);
        (void)espl_buf_puts(&buf, ")");
        join = ", ";
    }
    if (problems->extra_count > 0) {
        (void)espl_buf_printf(&buf, "%s%zu unexpected (", join, problems->extra_count);
        add_names(&buf, view, NULL, problems->extra_count);
        (void)espl_buf_puts(&buf, ")");
        join = ", ";
    }
    if (problems->wrong_count > 0) {
        (void)espl_buf_printf(&buf, "%s%zu of another shape (", join, problems->wrong_count);
        add_names(&buf, view, problems->wrong, problems->wrong_count);
        (void)espl_buf_puts(&buf, ")");
    }
    (void)espl_fail(err, ESPL_E_KIND, "tensors do not fit config.json: %s", espl_buf_text(&buf));
    espl_buf_free(&buf);
}

enum espl_status espl_import_explain(const struct espl_import_checkpoint *checkpoint,
                                     const struct espl_import_problems *problems,
                                     struct espl_error *err)
{
    const struct view view = {checkpoint, problems};
    if (problems->missing_count == 0 && problems->extra_count == 0) {
        say_shapes(&view, err);
    } else {
        say_all(&view, err);
    }
    for (size_t i = 0; i < sizeof causes / sizeof causes[0]; i++) {
        if (causes[i](&view, err)) {
            return ESPL_E_KIND;
        }
    }
    (void)espl_hint(err,
                    "config.json and the files must be of the same model (%s, %" PRIu64
                    " layers, hidden size %" PRIu64 ")",
                    checkpoint->config.architecture, checkpoint->config.layers,
                    checkpoint->config.hidden);
    return ESPL_E_KIND;
}
