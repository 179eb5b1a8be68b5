#include "stages/nm_supernet/nm_oracle.h"

#include "core/checked.h"
#include "core/log.h"
#include "stages/nm_supernet/nm_int8.h"
#include "stages/nm_supernet/nm_prefix.h"
#include "stages/nm_supernet/nm_weights.h"

#include <stdlib.h>
#include <string.h>

const char *const espl_nm_metrics[] = {"kl", "top1", "loss", NULL};

enum { CHUNK = 64 /* pictures through a block at once: 64 x 65 rows fill a product well */ };

/* Logits of the dense supernet on one chunk of pictures. */
struct teacher {
    uint64_t epoch, first;
    size_t pictures;
    float *logits;
};

struct espl_nm_oracle {
    struct espl_model *model;
    struct espl_backend *backend;
    const struct espl_supernet *supernet;
    struct espl_nm_pictures *pictures;
    struct espl_nm_oracle_options options;
    struct espl_vision *vision;
    struct espl_nm_weights *weights;
    struct espl_nm_prefix *prefix;
    struct espl_nm_oracle_work work;
    size_t layers, classes;
    uint64_t blocks;
    size_t *block_end; /* (blocks): layers of all blocks up to and with this one */
    uint8_t *dense;    /* (layers): m everywhere */
    uint8_t *pixels;   /* (CHUNK) pictures */
    int32_t *labels;   /* (CHUNK) */
    float *logits;     /* (CHUNK, classes) */
    float *last;       /* activations that leave the last block */
    struct teacher *teachers;
    size_t teacher_count;
    bool (*stop)(void *user);
    void *stop_user;
};

/* ---- creation ---- */

static void index_blocks(struct espl_nm_oracle *oracle)
{
    size_t layer = 0;
    for (uint64_t block = 0; block < oracle->blocks; block++) {
        while (layer < oracle->layers &&
               (uint64_t)oracle->supernet->layers.items[layer].spec.layer <= block) {
            layer++;
        }
        oracle->block_end[block] = layer;
    }
    memset(oracle->dense, (int)oracle->supernet->facts.m, oracle->layers);
}

static enum espl_status allocate(struct espl_nm_oracle *oracle, struct espl_error *err)
{
    const size_t values = espl_vision_values(oracle->vision, 0);
    size_t most = 0;
    size_t buffers = 0;
    oracle->block_end = calloc((size_t)oracle->blocks, sizeof *oracle->block_end);
    oracle->dense = calloc(oracle->layers, 1);
    oracle->pixels = malloc(CHUNK * espl_image_set_bytes(&oracle->pictures->set));
    oracle->labels = calloc(CHUNK, sizeof *oracle->labels);
    oracle->logits = calloc(CHUNK * oracle->classes, sizeof *oracle->logits);
    if (espl_mul_size(CHUNK, values, &most) && most <= SIZE_MAX / sizeof(float)) {
        oracle->last = malloc(most * sizeof *oracle->last);
        buffers = (size_t)(oracle->options.activation_bytes / (most * sizeof(float)));
    }
    if (oracle->block_end == NULL || oracle->dense == NULL || oracle->pixels == NULL ||
        oracle->labels == NULL || oracle->logits == NULL || oracle->last == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory to run %d pictures at a time", (int)CHUNK);
    }
    index_blocks(oracle);
    return espl_nm_prefix_create(buffers < 2 ? 2 : buffers, most, oracle->layers, &oracle->prefix,
                                 err);
}

enum espl_status espl_nm_oracle_create(struct espl_model *model, struct espl_backend *backend,
                                       const struct espl_supernet *supernet,
                                       struct espl_nm_pictures *pictures,
                                       const struct espl_nm_oracle_options *options,
                                       struct espl_nm_oracle **out, struct espl_error *err)
{
    struct espl_nm_oracle *oracle = calloc(1, sizeof *oracle);
    if (oracle == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for an oracle");
    }
    oracle->model = model;
    oracle->backend = backend;
    oracle->supernet = supernet;
    oracle->pictures = pictures;
    oracle->options = *options;
    oracle->layers = supernet->layers.count;
    for (unsigned f = 0; f < options->fidelities; f++) {
        if (options->pictures[f] < 1 || options->pictures[f] > pictures->pool) {
            espl_fail(err, ESPL_E_KIND, "a fidelity of %zu pictures, but the search has %llu",
                      options->pictures[f], (unsigned long long)pictures->pool);
            espl_blame(err, "param:pictures");
            espl_nm_oracle_destroy(oracle);
            return ESPL_E_KIND;
        }
    }
    enum espl_status status =
        espl_vision_create(model, backend, CHUNK, &pictures->set.scale, &oracle->vision, err);
    if (status == ESPL_OK) {
        oracle->classes = espl_vision_classes(oracle->vision);
        oracle->blocks = espl_vision_blocks(oracle->vision);
        status = allocate(oracle, err);
    }
    if (status == ESPL_OK) {
        status = espl_nm_weights_create(oracle->vision, supernet, options->weight_bytes,
                                        &oracle->weights, err);
    }
    if (status != ESPL_OK) {
        espl_nm_oracle_destroy(oracle);
        return status;
    }
    *out = oracle;
    return ESPL_OK;
}

static void forget_teachers(struct espl_nm_oracle *oracle)
{
    for (size_t i = 0; i < oracle->teacher_count; i++) {
        free(oracle->teachers[i].logits);
    }
    free(oracle->teachers);
    oracle->teachers = NULL;
    oracle->teacher_count = 0;
}

void espl_nm_oracle_destroy(struct espl_nm_oracle *oracle)
{
    if (oracle == NULL) {
        return;
    }
    forget_teachers(oracle);
    espl_nm_prefix_destroy(oracle->prefix);
    espl_nm_weights_destroy(oracle->weights);
    espl_vision_destroy(oracle->vision);
    free(oracle->block_end);
    free(oracle->dense);
    free(oracle->pixels);
    free(oracle->labels);
    free(oracle->logits);
    free(oracle->last);
    free(oracle);
}

uint64_t espl_nm_oracle_bytes(const struct espl_model_config *config,
                              const struct espl_nm_oracle_options *options)
{
    const uint64_t weights = espl_arch_parameters(config) * sizeof(float);
    const uint64_t kept = options->weight_bytes > weights ? options->weight_bytes : weights;
    const uint64_t values = config->max_positions * config->hidden;
    const uint64_t buffer = CHUNK * values * sizeof(float);
    const uint64_t activations =
        options->activation_bytes > 2 * buffer ? options->activation_bytes : 2 * buffer;
    return espl_vision_bytes(config, CHUNK) + kept + activations + buffer;
}

void espl_nm_oracle_set_stop(struct espl_nm_oracle *oracle, bool (*stop)(void *user), void *user)
{
    oracle->stop = stop;
    oracle->stop_user = user;
}

uint64_t espl_nm_oracle_pictures(const struct espl_nm_oracle *oracle, unsigned fidelity)
{
    return oracle->options.pictures[fidelity];
}

const struct espl_nm_oracle_work *espl_nm_oracle_get_work(const struct espl_nm_oracle *oracle)
{
    return &oracle->work;
}

uint64_t espl_nm_oracle_blocks(const struct espl_nm_oracle *oracle)
{
    return oracle->blocks;
}

/* ---- running a configuration on a chunk of pictures ---- */

static enum espl_status round_input(void *user, uint64_t block, enum espl_role role, float *x,
                                    size_t rows, size_t in, struct espl_error *err)
{
    (void)user;
    (void)block;
    (void)role;
    (void)err;
    espl_nm_round_int8(x, rows, in);
    return ESPL_OK;
}

/* A batch of pictures in oracle->pixels. keep: its activations may be kept under (epoch, first). */
struct chunk {
    uint64_t epoch, first;
    size_t count;
    bool keep;
};

static struct espl_nm_prefix_key make_key(const struct espl_nm_oracle *oracle,
                                          const struct chunk *chunk, const uint8_t *n,
                                          uint64_t block)
{
    return (struct espl_nm_prefix_key){.epoch = chunk->epoch,
                                       .first = chunk->first,
                                       .pictures = chunk->count,
                                       .block = block,
                                       .levels = n,
                                       .count = block == 0 ? 0 : oracle->block_end[block - 1]};
}

static enum espl_status run_block(struct espl_nm_oracle *oracle, const struct chunk *chunk,
                                  const uint8_t *n, uint64_t block, const float *input,
                                  float *output, struct espl_error *err)
{
    struct espl_vision_replacement replacement = {{NULL}};
    const bool int8 = oracle->supernet->facts.precision == ESPL_NM_INT8;
    const size_t begin = block == 0 ? 0 : oracle->block_end[block - 1];
    enum espl_status status = ESPL_OK;
    for (size_t layer = begin; status == ESPL_OK && layer < oracle->block_end[block]; layer++) {
        const enum espl_role role = oracle->supernet->layers.items[layer].spec.role;
        status =
            espl_nm_weights_get(oracle->weights, layer, n[layer], &replacement.weight[role], err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    oracle->work.block_pictures += chunk->count;
    oracle->work.flop +=
        (double)chunk->count * espl_vision_block_flop(espl_model_get_config(oracle->model), block);
    return espl_vision_block(oracle->vision, block, &replacement, chunk->count, input, output,
                             int8 ? round_input : NULL, NULL, err);
}

/* The deepest block whose input is kept for this configuration, and that input. Without any: embeds
 * the pictures, which oracle->pixels must hold. */
static enum espl_status find_start(struct espl_nm_oracle *oracle, const struct chunk *chunk,
                                   const uint8_t *n, uint64_t *block, float **input,
                                   struct espl_error *err)
{
    struct espl_nm_prefix_key key;
    *input = NULL;
    for (*block = chunk->keep ? oracle->blocks : 0; *block > 0 && *input == NULL;) {
        (*block)--;
        key = make_key(oracle, chunk, n, *block);
        *input = espl_nm_prefix_find(oracle->prefix, &key);
    }
    if (*input != NULL) {
        return ESPL_OK;
    }
    *block = 0;
    *input = oracle->last;
    if (chunk->keep) {
        key = make_key(oracle, chunk, n, 0);
        *input = espl_nm_prefix_take(oracle->prefix, &key);
    }
    const enum espl_status status =
        espl_vision_embed(oracle->vision, oracle->pixels, chunk->count, *input, err);
    if (status != ESPL_OK && chunk->keep) {
        espl_nm_prefix_drop(oracle->prefix, *input);
    }
    return status;
}

/* logits (count, classes) of configuration n. */
static enum espl_status run_chunk(struct espl_nm_oracle *oracle, const struct chunk *chunk,
                                  const uint8_t *n, float *logits, struct espl_error *err)
{
    const double start = espl_clock_monotonic();
    uint64_t block = 0;
    float *input = NULL;
    enum espl_status status = find_start(oracle, chunk, n, &block, &input, err);
    for (; status == ESPL_OK && block < oracle->blocks; block++) {
        float *output = oracle->last;
        const bool keep = chunk->keep && block + 1 < oracle->blocks;
        if (keep) {
            const struct espl_nm_prefix_key key = make_key(oracle, chunk, n, block + 1);
            output = espl_nm_prefix_take(oracle->prefix, &key);
        }
        status = run_block(oracle, chunk, n, block, input, output, err);
        if (status != ESPL_OK && keep) {
            espl_nm_prefix_drop(oracle->prefix, output);
        }
        input = output;
    }
    if (status == ESPL_OK) {
        status = espl_vision_head(oracle->vision, chunk->count, input, logits, err);
    }
    oracle->work.seconds += espl_clock_monotonic() - start;
    return status;
}

/* ---- scoring ---- */

/* Logits of the dense supernet on a chunk whose pictures are in oracle->pixels. */
static enum espl_status get_teacher(struct espl_nm_oracle *oracle, const struct chunk *chunk,
                                    const float **logits, struct espl_error *err)
{
    if (oracle->teacher_count > 0 && oracle->teachers[0].epoch != chunk->epoch) {
        forget_teachers(oracle);
    }
    for (size_t i = 0; i < oracle->teacher_count; i++) {
        const struct teacher *teacher = &oracle->teachers[i];
        if (teacher->first == chunk->first && teacher->pictures == chunk->count) {
            *logits = teacher->logits;
            return ESPL_OK;
        }
    }
    struct teacher *grown = realloc(oracle->teachers, (oracle->teacher_count + 1) * sizeof *grown);
    float *own = malloc(chunk->count * oracle->classes * sizeof *own);
    oracle->teachers = grown != NULL ? grown : oracle->teachers;
    if (grown == NULL || own == NULL) {
        free(own);
        return espl_fail(err, ESPL_E_NOMEM, "no memory for logits of %zu pictures", chunk->count);
    }
    const enum espl_status status = run_chunk(oracle, chunk, oracle->dense, own, err);
    if (status != ESPL_OK) {
        free(own);
        return status;
    }
    oracle->teachers[oracle->teacher_count++] =
        (struct teacher){chunk->epoch, chunk->first, chunk->count, own};
    *logits = own;
    return ESPL_OK;
}

static enum espl_status check_stop(const struct espl_nm_oracle *oracle, struct espl_error *err)
{
    if (oracle->stop != NULL && oracle->stop(oracle->stop_user)) {
        return espl_fail(err, ESPL_E_CANCELLED, "stopped while scoring configurations");
    }
    return ESPL_OK;
}

/* Order in which neighbours share the longest prefixes: lexicographic. Few configurations, so
 * insertion. order (count). */
static void sort_configurations(const struct espl_nm_oracle *oracle, size_t count, const uint8_t *n,
                                size_t *order)
{
    const size_t layers = oracle->layers;
    for (size_t i = 0; i < count; i++) {
        size_t place = i;
        while (place > 0 && memcmp(n + order[place - 1] * layers, n + i * layers, layers) > 0) {
            order[place] = order[place - 1];
            place--;
        }
        order[place] = i;
    }
}

static double tally_score(const struct espl_vision_tally *tally, int metric)
{
    const double images = (double)tally->images;
    return metric == ESPL_NM_KL     ? -tally->kl / images
           : metric == ESPL_NM_TOP1 ? (double)tally->top1 / images
                                    : -tally->loss / images;
}

/* Adds one chunk of pictures to the tallies of all configurations. */
static enum espl_status score_chunk(struct espl_nm_oracle *oracle, const struct chunk *chunk,
                                    bool kl, size_t count, const uint8_t *n, const size_t *order,
                                    struct espl_vision_tally *tallies, struct espl_error *err)
{
    const float *teacher = NULL;
    enum espl_status status =
        espl_nm_pictures_read(oracle->pictures, chunk->epoch, chunk->first, chunk->count,
                              oracle->pixels, oracle->labels, err);
    if (status == ESPL_OK && kl) {
        status = get_teacher(oracle, chunk, &teacher, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        status = check_stop(oracle, err);
        if (status == ESPL_OK) {
            status = run_chunk(oracle, chunk, n + order[i] * oracle->layers, oracle->logits, err);
        }
        if (status == ESPL_OK) {
            status =
                espl_vision_tally_add(&tallies[order[i]], oracle->backend, oracle->logits, teacher,
                                      oracle->labels, chunk->count, oracle->classes, err);
        }
    }
    return status;
}

enum espl_status espl_nm_oracle_score(struct espl_nm_oracle *oracle, uint64_t epoch,
                                      unsigned fidelity, size_t count, const uint8_t *n,
                                      double *scores, struct espl_error *err)
{
    const int metric = oracle->options.metric[fidelity];
    const uint64_t pictures = oracle->options.pictures[fidelity];
    struct espl_vision_tally *tallies = calloc(count, sizeof *tallies);
    size_t *order = calloc(count, sizeof *order);
    enum espl_status status = ESPL_OK;
    if (tallies == NULL || order == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory to score %zu configurations", count);
        goto cleanup;
    }
    sort_configurations(oracle, count, n, order);
    for (uint64_t first = 0; status == ESPL_OK && first < pictures; first += CHUNK) {
        const uint64_t left = pictures - first;
        const struct chunk chunk = {epoch, first, left < CHUNK ? (size_t)left : CHUNK, true};
        status = score_chunk(oracle, &chunk, metric == ESPL_NM_KL, count, n, order, tallies, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        scores[i] = tally_score(&tallies[i], metric);
    }

cleanup:
    free(tallies);
    free(order);
    return status;
}

enum espl_status espl_nm_oracle_hold_out(struct espl_nm_oracle *oracle,
                                         struct espl_nm_pictures *own, uint64_t count,
                                         const uint8_t *n, struct espl_vision_tally *tally,
                                         struct espl_error *err)
{
    const uint64_t all = own != NULL ? own->pool : espl_nm_pictures_held_out(oracle->pictures);
    const uint64_t wanted = count == 0 || count > all ? all : count;
    enum espl_status status = ESPL_OK;
    memset(tally, 0, sizeof *tally);
    for (uint64_t first = 0; status == ESPL_OK && first < wanted; first += CHUNK) {
        const uint64_t left = wanted - first;
        const struct chunk chunk = {0, first, left < CHUNK ? (size_t)left : CHUNK, false};
        status = check_stop(oracle, err);
        if (status == ESPL_OK) {
            status = own != NULL
                         ? espl_nm_pictures_read(own, 0, first, chunk.count, oracle->pixels,
                                                 oracle->labels, err)
                         : espl_nm_pictures_read_held_out(oracle->pictures, first, chunk.count,
                                                          oracle->pixels, oracle->labels, err);
        }
        if (status == ESPL_OK) {
            status = run_chunk(oracle, &chunk, n, oracle->logits, err);
        }
        if (status == ESPL_OK) {
            status = espl_vision_tally_add(tally, oracle->backend, oracle->logits, NULL,
                                           oracle->labels, chunk.count, oracle->classes, err);
        }
    }
    return status;
}
