#include "artifact/kinds.h"

#include <string.h>

static const char *const nothing_required[] = {NULL};
static const char *const tokens_required[] = {"/tokens/ids", NULL};
static const char *const images_required[] = {"/images/pixels", NULL};
static const char *const assignment_required[] = {"/assignment/n", NULL};
static const char *const bench_required[] = {"/cases/rows", "/results/seconds", NULL};
static const char *const passes_required[] = {"/passes/seconds", NULL};
static const char *const decode_required[] = {"/cells/numbers", "/cells/seconds", NULL};
static const char *const metrics_required[] = {"/metrics/values", NULL};

const struct espl_kind espl_kinds[] = {
    {"model.dense/1", "a model with all its weights", nothing_required},
    {"model.masked/1", "masks over the weights of another model", nothing_required},
    {"model.updated/1", "changed weights and masks over another model", nothing_required},
    {"model.quant/1", "integer codes and scales over another model", nothing_required},
    {"model.iebme/1", "encoded integer codes and all else of a model", nothing_required},
    {"model.nm/1", "INT8 codes packed N:M and all else of a model", nothing_required},
    {"order.rows/1", "row orders for the encoder, by stripe or tile", nothing_required},
    {"tokens/1", "token ids of a text, or sampled windows of them", tokens_required},
    {"images/1", "pictures of one size as bytes, with their labels", images_required},
    {"supernet/1", "ranks of a model's weights for all N:M masks", nothing_required},
    {"latency/1", "measured costs of layers and a predictor of the whole", nothing_required},
    {"assignment/1", "an N:M level for every layer, and how it was found", assignment_required},
    {"bench.spmm/1", "measured times of products of few tokens", bench_required},
    {"bench.encoder/1", "measured times of passes of an image model", passes_required},
    {"bench.decode/1", "measured times of tokens of a language model", decode_required},
    {"metrics/1", "named numbers measured by a stage", metrics_required},
    {"export/1", "manifest of files written outside the store", nothing_required},
    {"unit/1", "finished part of a stage, for resuming", nothing_required},
    {NULL, NULL, NULL},
};

const struct espl_kind *espl_kind_find(const char *name)
{
    for (const struct espl_kind *kind = espl_kinds; kind->name != NULL; kind++) {
        if (strcmp(kind->name, name) == 0) {
            return kind;
        }
    }
    return NULL;
}

bool espl_kind_accepts(const char *accepted, const char *kind)
{
    const size_t len = strlen(kind);
    if (len == 0) {
        return false;
    }
    for (const char *choice = accepted; *choice != '\0';) {
        const size_t choice_len = strcspn(choice, "|");
        if (choice_len == len && memcmp(choice, kind, len) == 0) {
            return true;
        }
        choice += choice_len;
        if (*choice == '|') {
            choice++;
        }
    }
    return false;
}
