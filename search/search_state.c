/* The saved form of a search: little-endian fields in a fixed order, bound to the problem by a hash
 * of space, options and strategy. */
#include "search/search_internal.h"

#include "core/hash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char magic[8] = {'e', 's', 'p', 'l', 's', 'r', 'c', '1'};

/* ---- writing ---- */

static void put_u64(struct espl_buf *buf, uint64_t value)
{
    unsigned char bytes[8];
    for (unsigned i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)(value >> (8 * i));
    }
    espl_buf_add(buf, bytes, sizeof bytes);
}

static void put_real(struct espl_buf *buf, double value)
{
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    put_u64(buf, bits);
}

static void put_reals(struct espl_buf *buf, const double *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        put_real(buf, values[i]);
    }
}

/* What must be equal for a state to continue the same search. */
static enum espl_status problem_hash(const struct espl_search *search, char hex[ESPL_SHA256_HEX],
                                     struct espl_error *err)
{
    const struct espl_search_space *space = search->space;
    const struct espl_search_options *options = &search->options;
    struct espl_buf buf;
    espl_buf_init(&buf, (size_t)1 << 26);
    espl_buf_puts(&buf, search->strategy->name);
    const uint64_t numbers[] = {options->seed,
                                options->generations,
                                options->offspring,
                                options->initial,
                                options->fill_initial,
                                options->overshoot_min,
                                options->overshoot_max,
                                (uint64_t)options->repair,
                                (uint64_t)options->refine,
                                (uint64_t)options->selection,
                                options->fidelities,
                                options->survivors[0],
                                options->survivors[1],
                                options->survivors[2],
                                options->survivors[3],
                                options->resample,
                                options->max_evaluations,
                                options->patience,
                                space->layers,
                                space->constraints};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        put_u64(&buf, numbers[i]);
    }
    for (size_t layer = 0; layer < space->layers; layer++) {
        const size_t row = layer * ESPL_SEARCH_MAX_LEVELS;
        put_u64(&buf, space->level_count[layer]);
        espl_buf_add(&buf, space->level_n + row, space->level_count[layer]);
        for (size_t c = 0; c < space->constraints; c++) {
            put_reals(&buf, space->constraint[c].cost + row, space->level_count[layer]);
        }
    }
    for (size_t c = 0; c < space->constraints; c++) {
        put_real(&buf, space->constraint[c].budget);
        put_real(&buf, space->constraint[c].base);
    }
    enum espl_status status = espl_buf_check(&buf, "the description of a search", err);
    if (status == ESPL_OK) {
        status = espl_sha256_bytes(buf.data, buf.len, hex, err);
    }
    espl_buf_free(&buf);
    return status;
}

enum espl_status espl_search_save(const struct espl_search *search, struct espl_buf *state,
                                  struct espl_error *err)
{
    const size_t layers = search->space->layers;
    char hex[ESPL_SHA256_HEX];
    const enum espl_status status = problem_hash(search, hex, err);
    if (status != ESPL_OK) {
        return status;
    }
    espl_buf_add(state, magic, sizeof magic);
    espl_buf_add(state, hex, ESPL_SHA256_HEX - 1);
    const uint64_t numbers[] = {search->started,      (uint64_t)search->stop, search->generation,
                                search->stale,        search->asked[0],       search->asked[1],
                                search->asked[2],     search->asked[3],       search->computed,
                                search->record_count, search->memo.count,     search->front.count};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        put_u64(state, numbers[i]);
    }
    put_real(state, search->parent_score);
    espl_buf_add(state, search->parent, layers);
    put_reals(state, search->table, layers * ESPL_SEARCH_MAX_LEVELS);
    for (size_t i = 0; i < search->record_count; i++) {
        put_u64(state, search->records[i].generation);
        put_u64(state, search->records[i].computed);
        put_real(state, search->records[i].score);
        put_reals(state, search->records[i].cost, ESPL_SEARCH_MAX_CONSTRAINTS);
    }
    espl_buf_add(state, search->memo.levels, search->memo.count * layers);
    espl_buf_add(state, search->memo.fidelity, search->memo.count);
    put_reals(state, search->memo.score, search->memo.count);
    espl_buf_add(state, search->front.levels, search->front.count * layers);
    put_reals(state, search->front.cost, search->front.count);
    put_reals(state, search->front.score, search->front.count);
    return espl_buf_check(state, "the state of a search", err);
}

/* ---- reading ---- */

/* What is left of a state; after the first shortfall everything reads as zero and bad is set. */
struct reader {
    const unsigned char *bytes;
    size_t left;
    bool bad;
};

static const unsigned char *take(struct reader *reader, size_t len)
{
    if (reader->bad || len > reader->left) {
        reader->bad = true;
        return NULL;
    }
    const unsigned char *bytes = reader->bytes;
    reader->bytes += len;
    reader->left -= len;
    return bytes;
}

static uint64_t get_u64(struct reader *reader)
{
    const unsigned char *bytes = take(reader, 8);
    uint64_t value = 0;
    for (unsigned i = 0; bytes != NULL && i < 8; i++) {
        value |= (uint64_t)bytes[i] << (8 * i);
    }
    return value;
}

static double get_real(struct reader *reader)
{
    const uint64_t bits = get_u64(reader);
    double value = 0.0;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A configuration whose levels exist; NULL and bad otherwise. */
static const uint8_t *get_levels(struct reader *reader, const struct espl_search_space *space)
{
    const unsigned char *levels = take(reader, space->layers);
    for (size_t layer = 0; levels != NULL && layer < space->layers; layer++) {
        if (levels[layer] >= space->level_count[layer]) {
            reader->bad = true;
            return NULL;
        }
    }
    return levels;
}

/* A count of things that take at least `size` bytes each: never more than there is left. */
static size_t get_count(struct reader *reader, size_t size)
{
    const uint64_t count = get_u64(reader);
    if (count > reader->left / size) {
        reader->bad = true;
        return 0;
    }
    return (size_t)count;
}

static enum espl_status read_records(struct reader *reader, struct espl_search *search,
                                     size_t count, struct espl_error *err)
{
    search->records = calloc(count > 0 ? count : 1, sizeof *search->records);
    if (search->records == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for %zu generations", count);
    }
    search->record_capacity = count > 0 ? count : 1;
    search->record_count = count;
    for (size_t i = 0; i < count; i++) {
        struct espl_search_record *record = &search->records[i];
        record->generation = get_u64(reader);
        record->computed = get_u64(reader);
        record->score = get_real(reader);
        for (size_t c = 0; c < ESPL_SEARCH_MAX_CONSTRAINTS; c++) {
            record->cost[c] = get_real(reader);
        }
    }
    return ESPL_OK;
}

static enum espl_status read_memo(struct reader *reader, struct espl_search *search, size_t count,
                                  struct espl_error *err)
{
    struct reader levels = *reader;
    enum espl_status status = ESPL_OK;
    (void)take(reader, count * search->space->layers);
    const unsigned char *fidelity = take(reader, count);
    for (size_t i = 0; status == ESPL_OK && i < count && fidelity != NULL; i++) {
        const uint8_t *entry = get_levels(&levels, search->space);
        const double score = get_real(reader);
        if (entry == NULL || reader->bad || fidelity[i] >= search->options.fidelities) {
            reader->bad = true;
            break;
        }
        status = espl_search_memo_add(&search->memo, fidelity[i], entry, score, err);
    }
    return status;
}

static enum espl_status read_front(struct reader *reader, struct espl_search *search, size_t count,
                                   struct espl_error *err)
{
    const size_t layers = search->space->layers;
    struct reader levels = *reader;
    enum espl_status status = ESPL_OK;
    (void)take(reader, count * layers);
    struct reader costs = *reader;
    (void)take(reader, count * sizeof(double));
    for (size_t i = 0; status == ESPL_OK && i < count && !reader->bad; i++) {
        const uint8_t *entry = get_levels(&levels, search->space);
        const double cost = get_real(&costs);
        const double score = get_real(reader);
        if (entry == NULL || isnan(cost) || isnan(score)) {
            reader->bad = true;
            break;
        }
        status = espl_pareto_add(&search->front, entry, cost, score, err);
    }
    return status;
}

static enum espl_status read_fields(struct reader *reader, struct espl_search *search,
                                    struct espl_error *err)
{
    const size_t layers = search->space->layers;
    const uint64_t started = get_u64(reader);
    const uint64_t stop = get_u64(reader);
    search->generation = get_u64(reader);
    search->stale = get_u64(reader);
    for (size_t f = 0; f < ESPL_SEARCH_MAX_FIDELITIES; f++) {
        search->asked[f] = get_u64(reader);
    }
    search->computed = get_u64(reader);
    const size_t records = get_count(reader, 5 * sizeof(uint64_t));
    const size_t remembered = get_count(reader, layers);
    const size_t front = get_count(reader, layers);
    search->parent_score = get_real(reader);
    const uint8_t *parent = get_levels(reader, search->space);
    for (size_t i = 0; i < layers * ESPL_SEARCH_MAX_LEVELS; i++) {
        search->table[i] = get_real(reader);
    }
    if (reader->bad || parent == NULL || started > 1 || stop > ESPL_SEARCH_STRATEGY) {
        reader->bad = true;
        return ESPL_OK;
    }
    search->started = started != 0;
    search->stop = (enum espl_search_stop)stop;
    memcpy(search->parent, parent, layers);
    enum espl_status status = read_records(reader, search, records, err);
    if (status == ESPL_OK) {
        status = read_memo(reader, search, remembered, err);
    }
    if (status == ESPL_OK) {
        status = read_front(reader, search, front, err);
    }
    return status;
}

enum espl_status espl_search_restore(struct espl_search *search, const void *state, size_t len,
                                     struct espl_error *err)
{
    struct reader reader = {.bytes = state, .left = len};
    char hex[ESPL_SHA256_HEX];
    enum espl_status status = problem_hash(search, hex, err);
    if (status != ESPL_OK) {
        return status;
    }
    const unsigned char *head = take(&reader, sizeof magic);
    const unsigned char *problem = take(&reader, ESPL_SHA256_HEX - 1);
    if (head == NULL || problem == NULL || memcmp(head, magic, sizeof magic) != 0) {
        return espl_fail(err, ESPL_E_CORRUPT, "this is no saved state of a search");
    }
    if (memcmp(problem, hex, ESPL_SHA256_HEX - 1) != 0) {
        return espl_fail(err, ESPL_E_KIND,
                         "the saved state belongs to another search: its layers, "
                         "costs or options differ");
    }
    status = read_fields(&reader, search, err);
    if (status == ESPL_OK && (reader.bad || reader.left != 0)) {
        status = espl_fail(err, ESPL_E_CORRUPT, "the saved state of a search is damaged");
    }
    return status;
}
