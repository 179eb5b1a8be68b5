/* Row reorder of whole matrices: batches of tiles over threads, one tile per lane. */
#include "kernels/cpu/cpu_reorder.h"

#include "core/checked.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROWS = ESPL_REORDER_ROWS, COLS = ESPL_IEBME_TILE_COLS, ALIGNMENT = 64, MOST_THREADS = 1024 };

struct espl_reorder {
    struct espl_reorder_options options;
    const struct espl_reorder_path *path;
    size_t lanes;
    struct espl_reorder_pair_program pairs; /* zeroed unless R_A = 2 */
    struct espl_reorder_quad_program quads; /* zeroed unless R_A = 4 */
    void *memory;
    struct espl_reorder_work *works; /* (threads) */
    struct espl_reorder_split *split;
};

/* Where tiles come from: masks, or codes when masks is NULL. */
struct source {
    const int8_t *codes;
    size_t rows;
    size_t cols;
    const uint64_t *masks;
    size_t tile_cols;
};

const char *espl_reorder_path_name(size_t index)
{
    for (const struct espl_reorder_path *path = espl_reorder_paths; path->name != NULL; path++) {
        if (path->supported() && index-- == 0) {
            return path->name;
        }
    }
    return NULL;
}

static const struct espl_reorder_path *find_path(const char *name)
{
    const struct espl_reorder_path *path = espl_reorder_paths;
    while (path->name != NULL &&
           (!path->supported() || (name != NULL && strcmp(path->name, name) != 0))) {
        path++;
    }
    return path->name != NULL ? path : NULL;
}

static enum espl_status check_options(const struct espl_reorder_options *options,
                                      struct espl_error *err)
{
    enum espl_iebme_areas areas = ESPL_IEBME_1X1;
    if (!espl_iebme_areas_from_grid(options->row_areas, options->col_areas, &areas) ||
        areas == ESPL_IEBME_DENSE) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "cannot reorder rows for %u x %u areas",
                         options->row_areas, options->col_areas);
    }
    if (options->scope != ESPL_IEBME_SCOPE_STRIPE && options->scope != ESPL_IEBME_SCOPE_TILE) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "cannot reorder rows with scope %d",
                         (int)options->scope);
    }
    if (options->threads == 0 || options->threads > MOST_THREADS) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "cannot reorder rows with %u threads",
                         options->threads);
    }
    if (find_path(options->path) == NULL) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "no row reorder path '%s' on this machine",
                         options->path);
    }
    return ESPL_OK;
}

/* The bytes of each table of a thread, in the order of struct espl_reorder_work; rounded. */
enum { TABLES = 11 };
static size_t table_sizes(const struct espl_reorder *reorder, size_t sizes[TABLES])
{
    const size_t lanes = reorder->lanes;
    const bool pairs = reorder->options.row_areas == 2;
    const bool quads = reorder->options.row_areas == 4;
    const bool stripe = reorder->options.scope == ESPL_IEBME_SCOPE_STRIPE;
    const size_t groups = pairs ? ESPL_REORDER_PAIRS : quads ? ESPL_REORDER_QUADS : 0;
    const size_t states = pairs ? reorder->pairs.states : quads ? ESPL_REORDER_QUADS_8 : 0;
    const size_t width = pairs ? sizeof(uint16_t) : sizeof(uint8_t);
    size_t total = 0;
    sizes[0] = (size_t)ROWS * COLS;
    sizes[1] = ROWS * lanes * sizeof(uint64_t);
    sizes[2] = ROWS * lanes * sizeof(uint64_t);
    sizes[3] = groups * lanes * width;
    sizes[4] = stripe ? 0 : states * lanes * width;
    sizes[5] = pairs && !stripe ? states * lanes : 0;
    sizes[6] = quads && !stripe ? ESPL_REORDER_QUADS_12 * lanes : 0;
    sizes[7] = quads && !stripe ? lanes : 0;
    sizes[8] = stripe ? groups * sizeof(uint64_t) : 0;
    sizes[9] = stripe ? states * sizeof(uint64_t) : 0;
    sizes[10] = stripe ? states : 0;
    for (size_t i = 0; i < TABLES; i++) {
        sizes[i] += (ALIGNMENT - sizes[i] % ALIGNMENT) % ALIGNMENT;
        total += sizes[i];
    }
    return total;
}

static void lay_out_work(struct espl_reorder_work *work, uint8_t *memory,
                         const size_t sizes[TABLES])
{
    uint8_t *tables[TABLES];
    for (size_t i = 0; i < TABLES; i++) {
        tables[i] = memory;
        memory += sizes[i];
    }
    work->tile = (int8_t *)tables[0];
    work->masks = (uint64_t *)(void *)tables[1];
    work->planes = tables[2];
    work->costs = tables[3];
    work->optima = tables[4];
    work->choices = tables[5];
    work->optima_12 = tables[6];
    work->totals = tables[7];
    work->sums = (uint64_t *)(void *)tables[8];
    work->wide = (uint64_t *)(void *)tables[9];
    work->wide_choices = tables[10];
}

static enum espl_status allocate_works(struct espl_reorder *reorder, struct espl_error *err)
{
    size_t sizes[TABLES];
    const size_t bytes = table_sizes(reorder, sizes);
    const size_t threads = reorder->options.threads;
    reorder->works = calloc(threads, sizeof *reorder->works);
    reorder->memory = aligned_alloc(ALIGNMENT, bytes * threads);
    if (reorder->works == NULL || reorder->memory == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the work space of %zu threads",
                         threads);
    }
    memset(reorder->memory, 0, bytes * threads);
    for (size_t t = 0; t < threads; t++) {
        lay_out_work(&reorder->works[t], (uint8_t *)reorder->memory + t * bytes, sizes);
    }
    return ESPL_OK;
}

enum espl_status espl_reorder_create(const struct espl_reorder_options *options,
                                     struct espl_reorder **out, struct espl_error *err)
{
    enum espl_status status = check_options(options, err);
    if (status != ESPL_OK) {
        return status;
    }
    struct espl_reorder *reorder = calloc(1, sizeof *reorder);
    if (reorder == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the row reorder");
    }
    const bool stripe = options->scope == ESPL_IEBME_SCOPE_STRIPE;
    reorder->options = *options;
    reorder->path = find_path(options->path);
    reorder->options.path = reorder->path->name;
    reorder->lanes =
        options->row_areas == 4 ? reorder->path->quad_lanes : reorder->path->pair_lanes;
    if (options->row_areas == 2) {
        status =
            espl_reorder_pair_program_build(stripe ? 1 : reorder->lanes / 4, &reorder->pairs, err);
    } else if (options->row_areas == 4) {
        status =
            espl_reorder_quad_program_build(stripe ? 1 : reorder->lanes / 8, &reorder->quads, err);
    }
    if (status == ESPL_OK) {
        status = allocate_works(reorder, err);
    }
    if (status != ESPL_OK) {
        espl_reorder_destroy(reorder);
        return status;
    }
    *out = reorder;
    return ESPL_OK;
}

void espl_reorder_destroy(struct espl_reorder *reorder)
{
    if (reorder == NULL) {
        return;
    }
    free(reorder->memory);
    free(reorder->works);
    espl_reorder_quad_program_free(&reorder->quads);
    espl_reorder_pair_program_free(&reorder->pairs);
    free(reorder);
}

void espl_reorder_set_split(struct espl_reorder *reorder, struct espl_reorder_split *split)
{
    reorder->split = split;
}

/* Adds the time since *last to *part and moves *last on. */
static void stamp(const struct espl_reorder *reorder, double *part, double *last)
{
    struct timespec now;
    if (reorder->split == NULL) {
        return;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
    const double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    if (part != NULL) {
        *part += seconds - *last;
    }
    *last = seconds;
}

/* ---- masks ---- */

/* A tile at the right or lower edge of the matrix: what is there, and zeros. */
static const int8_t *copy_edge_tile(const struct source *source, size_t row, size_t col,
                                    int8_t *tile)
{
    const size_t rows = source->rows - row < ROWS ? source->rows - row : ROWS;
    const size_t cols = source->cols - col < COLS ? source->cols - col : COLS;
    memset(tile, 0, (size_t)ROWS * COLS);
    for (size_t r = 0; r < rows; r++) {
        memcpy(tile + r * COLS, source->codes + (row + r) * source->cols + col, cols);
    }
    return tile;
}

/* Masks of tile number `tile` to lane `lane`. */
static void load_tile(const struct espl_reorder *reorder, const struct source *source, size_t tile,
                      const struct espl_reorder_work *work, size_t lane)
{
    if (source->masks != NULL) {
        for (size_t r = 0; r < ROWS; r++) {
            work->masks[r * reorder->lanes + lane] = source->masks[tile * ROWS + r];
        }
        return;
    }
    const size_t row = tile / source->tile_cols * ROWS;
    const size_t col = tile % source->tile_cols * COLS;
    const int8_t *codes = source->codes + row * source->cols + col;
    size_t stride = source->cols;
    if (source->rows - row < ROWS || source->cols - col < COLS) {
        codes = copy_edge_tile(source, row, col, work->tile);
        stride = COLS;
    }
    reorder->path->tile_masks(codes, stride, work->masks + lane, reorder->lanes);
}

/* Lanes without a tile get empty ones. */
static void load_tiles(const struct espl_reorder *reorder, const struct source *source,
                       size_t first, size_t count, const struct espl_reorder_work *work)
{
    for (size_t lane = 0; lane < count; lane++) {
        load_tile(reorder, source, first + lane, work, lane);
    }
    for (size_t r = 0; r < ROWS && count < reorder->lanes; r++) {
        memset(work->masks + r * reorder->lanes + count, 0,
               (reorder->lanes - count) * sizeof(uint64_t));
    }
}

static unsigned count_bits(uint64_t bits)
{
    bits -= bits >> 1 & UINT64_C(0x5555555555555555);
    bits = (bits & UINT64_C(0x3333333333333333)) + (bits >> 2 & UINT64_C(0x3333333333333333));
    bits = (bits + (bits >> 4)) & UINT64_C(0x0F0F0F0F0F0F0F0F);
    return (unsigned)(bits * UINT64_C(0x0101010101010101) >> 56);
}

static uint64_t fold(uint64_t mask, unsigned col_areas)
{
    const uint64_t keep = col_areas == 1 ? UINT64_MAX : (UINT64_C(1) << (64 / col_areas)) - 1;
    return espl_reorder_fold(mask, col_areas) & keep;
}

unsigned espl_reorder_active(const uint64_t *masks, uint64_t order, unsigned row_areas,
                             unsigned col_areas)
{
    const unsigned groups = ROWS / row_areas;
    unsigned active = 0;
    for (unsigned g = 0; g < groups; g++) {
        uint64_t together = 0;
        for (unsigned p = 0; p < row_areas; p++) {
            together |= masks[order >> (4 * (p * groups + g)) & 15u];
        }
        active += count_bits(fold(together, col_areas));
    }
    return active;
}

/* ---- scope tile ---- */

/* R_A = 1: rows share nothing, so the first partition is the only one. */
static uint64_t keep_order(const struct espl_reorder *reorder, const struct espl_reorder_work *work,
                           size_t lane, uint64_t *active)
{
    *active = 0;
    for (size_t r = 0; r < ROWS; r++) {
        *active +=
            count_bits(fold(work->masks[r * reorder->lanes + lane], reorder->options.col_areas));
    }
    return ESPL_IEBME_ORDER_IDENTITY;
}

static void solve_batch(const struct espl_reorder *reorder, const struct espl_reorder_work *work)
{
    if (reorder->options.row_areas == 2) {
        reorder->path->pair_solve(&reorder->pairs, work);
    } else if (reorder->options.row_areas == 4) {
        reorder->path->quad_solve(&reorder->quads, work);
    }
}

static void count_costs(const struct espl_reorder *reorder, const struct espl_reorder_work *work)
{
    if (reorder->options.row_areas == 2) {
        reorder->path->pair_costs(work, reorder->options.col_areas);
    } else if (reorder->options.row_areas == 4) {
        reorder->path->quad_costs(work, reorder->options.col_areas);
    }
}

static uint64_t recover(const struct espl_reorder *reorder, const struct espl_reorder_work *work,
                        size_t lane, uint64_t *active)
{
    switch (reorder->options.row_areas) {
    case 1:
        return keep_order(reorder, work, lane, active);
    case 2:
        return espl_reorder_pair_recover(&reorder->pairs, work, reorder->lanes, lane, active);
    default:
        return espl_reorder_quad_recover(&reorder->quads, work, reorder->lanes, lane, active);
    }
}

static void reorder_batch(const struct espl_reorder *reorder, const struct source *source,
                          size_t first, size_t count, const struct espl_reorder_work *work,
                          uint64_t *orders, uint64_t *active)
{
    struct espl_reorder_split unused = {0.0, 0.0, 0.0, 0.0};
    struct espl_reorder_split *split = reorder->split != NULL ? reorder->split : &unused;
    double last = 0.0;
    stamp(reorder, NULL, &last);
    load_tiles(reorder, source, first, count, work);
    stamp(reorder, &split->masks, &last);
    count_costs(reorder, work);
    stamp(reorder, &split->costs, &last);
    solve_batch(reorder, work);
    stamp(reorder, &split->solve, &last);
    for (size_t lane = 0; lane < count; lane++) {
        uint64_t bits = 0;
        orders[first + lane] = recover(reorder, work, lane, &bits);
        if (active != NULL) {
            active[first + lane] = bits;
        }
    }
    stamp(reorder, &split->recover, &last);
}

static void reorder_tiles(const struct espl_reorder *reorder, const struct source *source,
                          size_t tiles, uint64_t *orders, uint64_t *active)
{
    const size_t batches = espl_ceil_div(tiles, reorder->lanes);
    const size_t pieces = reorder->options.threads;
#pragma omp parallel for num_threads(reorder->options.threads) schedule(static, 1)
    for (size_t piece = 0; piece < pieces; piece++) {
        const size_t end = batches * (piece + 1) / pieces;
        for (size_t batch = batches * piece / pieces; batch < end; batch++) {
            const size_t first = batch * reorder->lanes;
            const size_t left = tiles - first;
            reorder_batch(reorder, source, first, left < reorder->lanes ? left : reorder->lanes,
                          &reorder->works[piece], orders, active);
        }
    }
}

/* ---- scope stripe ---- */

/* sums += the costs of a batch; lanes without a tile cost nothing. */
static void add_costs(const struct espl_reorder *reorder, const struct espl_reorder_work *work)
{
    const size_t lanes = reorder->lanes;
    if (reorder->options.row_areas == 2) {
        const uint16_t *costs = work->costs;
        for (size_t pair = 0; pair < ESPL_REORDER_PAIRS; pair++) {
            uint32_t sum = 0;
            for (size_t lane = 0; lane < lanes; lane++) {
                sum += (uint32_t)(costs[pair * lanes + lane] >> 4);
            }
            work->sums[pair] += sum;
        }
    } else {
        const uint8_t *costs = work->costs;
        for (size_t quad = 0; quad < ESPL_REORDER_QUADS; quad++) {
            uint16_t sum = 0; /* at most 64 lanes of 64 */
            for (size_t lane = 0; lane < lanes; lane++) {
                sum = (uint16_t)(sum + costs[quad * lanes + lane]);
            }
            work->sums[quad] += sum;
        }
    }
}

/* One batch of a stripe; adds to sums, or for R_A = 1 to *active. */
static void add_batch(const struct espl_reorder *reorder, size_t count,
                      const struct espl_reorder_work *work, uint64_t *active)
{
    if (reorder->options.row_areas != 1) {
        count_costs(reorder, work);
        add_costs(reorder, work);
        return;
    }
    for (size_t lane = 0; lane < count; lane++) {
        uint64_t bits = 0;
        (void)keep_order(reorder, work, lane, &bits);
        *active += bits;
    }
}

static uint64_t reorder_stripe(const struct espl_reorder *reorder, const struct source *source,
                               size_t stripe, const struct espl_reorder_work *work,
                               uint64_t *active)
{
    struct espl_reorder_split unused = {0.0, 0.0, 0.0, 0.0};
    struct espl_reorder_split *split = reorder->split != NULL ? reorder->split : &unused;
    const size_t groups = reorder->options.row_areas == 2 ? ESPL_REORDER_PAIRS : ESPL_REORDER_QUADS;
    uint64_t order = ESPL_IEBME_ORDER_IDENTITY;
    double last = 0.0;
    *active = 0;
    stamp(reorder, NULL, &last);
    if (reorder->options.row_areas != 1) {
        memset(work->sums, 0, groups * sizeof *work->sums);
    }
    for (size_t first = 0; first < source->tile_cols; first += reorder->lanes) {
        const size_t left = source->tile_cols - first;
        const size_t count = left < reorder->lanes ? left : reorder->lanes;
        load_tiles(reorder, source, stripe * source->tile_cols + first, count, work);
        stamp(reorder, &split->masks, &last);
        add_batch(reorder, count, work, active);
        stamp(reorder, &split->costs, &last);
    }
    if (reorder->options.row_areas == 2) {
        order = espl_reorder_pair_solve_wide(&reorder->pairs, work, active);
    } else if (reorder->options.row_areas == 4) {
        order = espl_reorder_quad_solve_wide(&reorder->quads, work, active);
    }
    stamp(reorder, &split->solve, &last);
    return order;
}

static void reorder_stripes(const struct espl_reorder *reorder, const struct source *source,
                            size_t stripes, uint64_t *orders, uint64_t *active)
{
    const size_t pieces = reorder->options.threads;
#pragma omp parallel for num_threads(reorder->options.threads) schedule(static, 1)
    for (size_t piece = 0; piece < pieces; piece++) {
        const size_t end = stripes * (piece + 1) / pieces;
        for (size_t stripe = stripes * piece / pieces; stripe < end; stripe++) {
            uint64_t bits = 0;
            orders[stripe] = reorder_stripe(reorder, source, stripe, &reorder->works[piece], &bits);
            if (active != NULL) {
                active[stripe] = bits;
            }
        }
    }
}

static void run(const struct espl_reorder *reorder, const struct source *source, size_t stripes,
                uint64_t *orders, uint64_t *active)
{
    if (reorder->options.scope == ESPL_IEBME_SCOPE_TILE) {
        reorder_tiles(reorder, source, stripes * source->tile_cols, orders, active);
    } else {
        reorder_stripes(reorder, source, stripes, orders, active);
    }
}

void espl_reorder_masks(struct espl_reorder *reorder, const uint64_t *masks, size_t stripes,
                        size_t tile_cols, uint64_t *orders, uint64_t *active)
{
    const struct source source = {NULL, 0, 0, masks, tile_cols};
    run(reorder, &source, stripes, orders, active);
}

void espl_reorder_codes(struct espl_reorder *reorder, const int8_t *codes, size_t rows, size_t cols,
                        uint64_t *orders, uint64_t *active)
{
    const struct source source = {codes, rows, cols, NULL, espl_ceil_div(cols, COLS)};
    run(reorder, &source, espl_ceil_div(rows, ROWS), orders, active);
}
