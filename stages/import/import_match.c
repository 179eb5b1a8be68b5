#include "stages/import/import_match.h"

#include "core/pattern.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void espl_import_print_shape(unsigned rank, const uint64_t *shape, char out[96])
{
    size_t len = 0;
    out[0] = '\0';
    for (unsigned i = 0; i < rank && len < 96; i++) {
        len += (size_t)snprintf(out + len, 96 - len, "%s%" PRIu64, i > 0 ? " x " : "", shape[i]);
    }
    if (rank == 0) {
        (void)snprintf(out, 96, "scalar");
    }
}

/* A name as it is, without one of the architecture's prefixes, or with one more. */
static const struct espl_safetensor *find_source(const struct espl_import_checkpoint *checkpoint,
                                                 const struct espl_arch *arch, const char *name)
{
    const struct espl_safetensor *found = espl_safetensors_find(checkpoint->files, name);
    char other[192];
    for (size_t i = 0; found == NULL && arch->name_prefixes[i] != NULL; i++) {
        const char *prefix = arch->name_prefixes[i];
        const size_t len = strlen(prefix);
        if (strncmp(name, prefix, len) == 0) {
            found = espl_safetensors_find(checkpoint->files, name + len);
        } else {
            (void)snprintf(other, sizeof other, "%s%s", prefix, name);
            found = espl_safetensors_find(checkpoint->files, other);
        }
    }
    return found;
}

static bool same_shape(const struct espl_safetensor *tensor, const struct espl_tensor_spec *spec)
{
    return tensor->rank == spec->file_rank &&
           memcmp(tensor->shape, spec->file_shape, spec->file_rank * sizeof spec->file_shape[0]) ==
               0;
}

static bool is_ignored(const struct espl_arch *arch, const char *name)
{
    for (size_t i = 0; arch->ignored[i] != NULL; i++) {
        if (espl_pattern_match(arch->ignored[i], name)) {
            return true;
        }
    }
    return false;
}

static const struct espl_tensor_spec *
embedding_spec(const struct espl_import_checkpoint *checkpoint, size_t *index)
{
    for (size_t i = 0; i < checkpoint->count; i++) {
        if (checkpoint->specs[i].role == ESPL_ROLE_EMBEDDING) {
            *index = i;
            return &checkpoint->specs[i];
        }
    }
    return NULL;
}

/* Tied embeddings may be stored under either name, or under both. */
static void match_tied_head(struct espl_import_checkpoint *checkpoint, const struct espl_arch *arch)
{
    size_t index = 0;
    const struct espl_tensor_spec *embedding = embedding_spec(checkpoint, &index);
    const struct espl_safetensor *head = find_source(checkpoint, arch, "lm_head.weight");
    if (!checkpoint->config.tied_embeddings || head == NULL || embedding == NULL) {
        return;
    }
    if (checkpoint->sources[index] == NULL) {
        checkpoint->sources[index] = head;
        (void)espl_buf_printf(&checkpoint->notes,
                              "the tied embeddings are stored as '%s' and read from there\n",
                              head->name);
    } else if (same_shape(head, embedding)) {
        checkpoint->spare_head = head;
    }
}

/* Tensors that nothing of the model uses and that are not known to be harmless. */
static enum espl_status find_extra(const struct espl_import_checkpoint *checkpoint,
                                   const struct espl_arch *arch,
                                   struct espl_import_problems *problems, struct espl_error *err)
{
    const size_t total = espl_safetensors_count(checkpoint->files);
    const struct espl_safetensor *first = espl_safetensors_tensor(checkpoint->files, 0);
    bool *used = calloc(total, sizeof *used);
    if (used == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu tensors", total);
    }
    for (size_t i = 0; i < checkpoint->count; i++) {
        for (size_t part = 0; part < ESPL_ARCH_MAX_PARTS; part++) {
            const struct espl_safetensor *tensor = espl_import_part(checkpoint, i, part);
            if (tensor != NULL) {
                used[tensor - first] = true;
            }
        }
    }
    if (checkpoint->spare_head != NULL) {
        used[checkpoint->spare_head - first] = true;
    }
    for (size_t i = 0; i < total; i++) {
        if (!used[i] && !is_ignored(arch, first[i].name)) {
            problems->extra[problems->extra_count++] = i;
        }
    }
    free(used);
    return ESPL_OK;
}

/* ---- naming schemes ---- */

/* Name of part `part` of a tensor in a scheme; OWN_NAMES: as the architecture has it. */
enum { OWN_NAMES = -1 };

static bool name_in_scheme(const struct espl_import_checkpoint *checkpoint,
                           const struct espl_arch *arch, size_t index, int scheme, unsigned part,
                           char out[128])
{
    const struct espl_tensor_spec *spec = &checkpoint->specs[index];
    if (scheme == OWN_NAMES) {
        (void)snprintf(out, 128, "%s", spec->name);
        return part == 0;
    }
    return arch->scheme_name != NULL &&
           arch->scheme_name(&checkpoint->config, spec, (unsigned)scheme, part, out);
}

static bool scheme_exists(const struct espl_import_checkpoint *checkpoint,
                          const struct espl_arch *arch, int scheme)
{
    char name[128];
    return checkpoint->count > 0 && name_in_scheme(checkpoint, arch, 0, scheme, 0, name);
}

/* Tensors of the right shape under the names of a scheme: the same name may stand for tensors of
 * different sizes in two schemes (layers.1.downsample of Swin). */
static size_t count_fitting(const struct espl_import_checkpoint *checkpoint,
                            const struct espl_arch *arch, int scheme)
{
    size_t fitting = 0;
    char name[128];
    for (size_t i = 0; i < checkpoint->count; i++) {
        if (!name_in_scheme(checkpoint, arch, i, scheme, 0, name)) {
            continue;
        }
        const struct espl_safetensor *tensor = find_source(checkpoint, arch, name);
        const bool in_parts = name_in_scheme(checkpoint, arch, i, scheme, 1, name);
        fitting += tensor != NULL && (in_parts || same_shape(tensor, &checkpoint->specs[i]));
    }
    return fitting;
}

/* The scheme with the most tensors; of equals the first, the architecture's own names before all.
 */
static int choose_scheme(const struct espl_import_checkpoint *checkpoint,
                         const struct espl_arch *arch)
{
    int best = OWN_NAMES;
    size_t most = count_fitting(checkpoint, arch, OWN_NAMES);
    for (int scheme = 0; scheme_exists(checkpoint, arch, scheme); scheme++) {
        const size_t fitting = count_fitting(checkpoint, arch, scheme);
        if (fitting > most) {
            most = fitting;
            best = scheme;
        }
    }
    return best;
}

/* Finds all parts of a tensor under the names of a scheme. One that lacks a part is missing. */
static void find_parts(struct espl_import_checkpoint *checkpoint, const struct espl_arch *arch,
                       int scheme, size_t index)
{
    struct espl_tensor_spec *spec = &checkpoint->specs[index];
    char name[128];
    char told[128] = ""; /* the first part, or the first that is not there */
    unsigned part = 0;
    bool whole = true;
    for (; part < ESPL_ARCH_MAX_PARTS; part++) {
        if (!name_in_scheme(checkpoint, arch, index, scheme, part, name)) {
            break;
        }
        const struct espl_safetensor *tensor = find_source(checkpoint, arch, name);
        if (part == 0) {
            checkpoint->sources[index] = tensor;
        } else {
            checkpoint->parts[index][part - 1] = tensor;
        }
        if (part == 0 || (tensor == NULL && whole)) {
            memcpy(told, name, sizeof told);
        }
        whole = whole && tensor != NULL;
    }
    memcpy(spec->name, told, sizeof spec->name);
    if (!whole) {
        checkpoint->sources[index] = NULL;
    }
    if (part > 1) {
        spec->file_shape[0] /= part;
    }
}

static bool parts_fit(const struct espl_import_checkpoint *checkpoint, size_t index)
{
    bool fit = true;
    for (size_t part = 0; part < espl_import_part_count(checkpoint, index); part++) {
        fit =
            fit && same_shape(espl_import_part(checkpoint, index, part), &checkpoint->specs[index]);
    }
    return fit;
}

static enum espl_status find_all(struct espl_import_checkpoint *checkpoint,
                                 struct espl_import_problems *problems, struct espl_error *err)
{
    const struct espl_arch *arch = espl_arch_find(checkpoint->config.architecture);
    const int scheme = choose_scheme(checkpoint, arch);
    for (size_t i = 0; i < checkpoint->count; i++) {
        find_parts(checkpoint, arch, scheme, i);
    }
    match_tied_head(checkpoint, arch);
    for (size_t i = 0; i < checkpoint->count; i++) {
        if (checkpoint->sources[i] == NULL) {
            problems->missing[problems->missing_count++] = i;
        } else if (!parts_fit(checkpoint, i)) {
            problems->wrong[problems->wrong_count++] = i;
        }
    }
    return find_extra(checkpoint, arch, problems, err);
}

enum espl_status espl_import_match(struct espl_import_checkpoint *checkpoint,
                                   struct espl_error *err)
{
    struct espl_import_problems problems = {0};
    const size_t stored = espl_safetensors_count(checkpoint->files);
    enum espl_status status = ESPL_OK;

    checkpoint->sources = calloc(checkpoint->count + 1, sizeof(void *));
    checkpoint->parts = calloc(checkpoint->count + 1, sizeof *checkpoint->parts);
    problems.missing = calloc(checkpoint->count + 1, sizeof *problems.missing);
    problems.wrong = calloc(checkpoint->count + 1, sizeof *problems.wrong);
    problems.extra = calloc(stored + 1, sizeof *problems.extra);
    if (checkpoint->sources == NULL || checkpoint->parts == NULL || problems.missing == NULL ||
        problems.wrong == NULL || problems.extra == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu tensors", stored);
    } else {
        status = find_all(checkpoint, &problems, err);
    }
    if (status == ESPL_OK &&
        problems.missing_count + problems.wrong_count + problems.extra_count > 0) {
        status = espl_import_explain(checkpoint, &problems, err);
    }
    free(problems.missing);
    free(problems.wrong);
    free(problems.extra);
    return status;
}
