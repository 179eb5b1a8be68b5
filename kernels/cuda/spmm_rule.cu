/* The rule that cuts a product into blocks, warps and stages: a small model of time over the few
 * choices there are. Its constants and its regret are measured in docs/kernels/spmm.md. */
#include "kernels/cuda/spmm_rule.cuh"

#include "kernels/cuda/atom_kernels.cuh"
#include "kernels/cuda/cuda_support.cuh"
#include "kernels/cuda/spmm_kernels.cuh"

#include <math.h>

namespace
{

enum {
    DENSE_SUMS_BYTES = 96 * 1024,
    SPARSE_SUMS_BYTES = 48 * 1024,
    OWN_SHARED_BYTES = 512, /* at most what kernels declare beside what they are given */
    MAX_SPLITS = 8,
    MAX_STAGES = 4
};

/* Seconds, fitted to sweeps on an H200: docs/kernels/spmm.md. */

/* Dense weights: a block does its units in rounds of one a warp. */
constexpr double DENSE_START = 1.9e-6;       /* launch, first weights, end */
constexpr double DENSE_START_TILE = 0.23e-6; /* for every tile of tokens but the first */
constexpr double DENSE_BLOCK = 8.2e-9;       /* for every block of the grid */
constexpr double DENSE_STRIPE = 0.065e-6;    /* for every stripe of a block: its sums */
constexpr double DENSE_ROUND = 0.50e-6;      /* from a load to its products, for one tile */
constexpr double DENSE_ROUND_TILE = 0.17e-6;
constexpr double IDLE_WARP =
    0.86e-9;                        /* warps without a unit get in the way of those that have one */
constexpr unsigned IDLE_FREE = 256; /* so many in the grid do not */
constexpr double DENSE_SPLIT = 5.0e-6; /* sums of several blocks meet in memory, for every tile */
constexpr double ATOM_DENSE_START = 0.88e-6; /* what scales and outliers add */
constexpr double ATOM_DENSE_BLOCK = -2.9e-9;
constexpr double ATOM_DENSE_ROUND = 0.21e-6;
/* Memory delivers all bytes at its bandwidth by clock and width, but blocks with fewer stripes than
 * the busiest leave it idle in the end: time is the first part of an even share of the bytes and
 * the second of the busiest block's. */
constexpr double EVEN_PART = 0.72;
constexpr double BUSIEST_PART = 0.29;

/* Sparse weights: a block does its chunks in rounds of one a warp. */
constexpr double SPARSE_START = 2.56e-6; /* launch, index, table, first chunk, end */
constexpr double SPARSE_START_TILE = 1.12e-6;
constexpr double SPARSE_WARP = 1.4e-9;     /* for every warp of the grid that has chunks */
constexpr double SPARSE_STRIPE = 0.037e-6; /* for every stripe of a block, and every tile */
constexpr double SPARSE_PASS = 0.31e-6;    /* activations of the next slices, for every tile */
constexpr double SINGLE_ROUND = 0.363e-6;  /* decoding a chunk: 1x1 */
constexpr double SINGLE_WARP = 0.0748e-6;  /* for every warp that decodes at the same time */
constexpr double UNION_ROUND = 0.415e-6;   /* the same: 1x2, 2x1, 2x2 */
constexpr double UNION_WARP = 0.0429e-6;
constexpr double MIXED_ROUND = 1.17;       /* times a round of 1x1 */
constexpr double SPARSE_ROUND_TILE = 0.56; /* of a round, for every tile but the first */
constexpr double SPARSE_BYTES = 1.059;     /* of the bytes over the bandwidth */
constexpr double SPARSE_SPLIT = 4.0e-6;
constexpr double ATOM_SPARSE_START = 1.6e-6;
constexpr double ATOM_SINGLE_ROUND = 1.35; /* times a round */
constexpr double ATOM_UNION_ROUND = 1.7;
/* The model errs by some percent: a sparse form must promise this much before it is taken for
 * faster than dense weights, of which up to a tenth more is expected for several tiles. */
constexpr double TILE_MARGIN = 1.04;
constexpr double TILES_MARGIN = 1.09;

/* What a rule is asked: a product on a device. */
struct problem {
    const struct espl_cuda_matrix *matrix;
    const struct spmm_device *device;
    const struct espl_cuda_spmm_choice *wanted;
    unsigned tiles;
    unsigned groups; /* of tokens: blocks of the grid for each */
};

unsigned ceil_div(unsigned a, unsigned b)
{
    return a / b + (a % b != 0 ? 1 : 0);
}

unsigned smaller(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned token_groups(size_t tokens, unsigned tiles)
{
    return static_cast<unsigned>((tokens + tiles * SPMM_COLUMNS - 1) / (tiles * SPMM_COLUMNS));
}

/* Stripes of the busiest block when all blocks run at once, at least. */
unsigned least_stripes(const struct problem *p, unsigned splits)
{
    const unsigned beside = splits * p->groups;
    const unsigned room = p->device->multiprocessors / beside > 0
                              ? smaller(p->device->multiprocessors / beside, SPMM_MAX_PARTS)
                              : 1;
    return ceil_div(p->matrix->stripes, room);
}

/* Decoding or products and the moving of bytes go on at the same time, but not all of it. */
double overlapped(double a, double b)
{
    return sqrt(a * a + b * b);
}

/* The same of a loop that decodes: nearly the longer of the two. */
double hidden(double a, double b)
{
    const double power = 8.0;
    return pow(pow(a, power) + pow(b, power), 1.0 / power);
}

/* Grids of more blocks than multiprocessors take turns. */
double turns(const struct problem *p, unsigned blocks)
{
    return ceil_div(blocks, p->device->multiprocessors);
}

double dense_time(const struct problem *p, unsigned warps, unsigned splits, unsigned parts)
{
    const struct espl_cuda_matrix *matrix = p->matrix;
    const bool scaled = matrix->atom != NULL;
    const unsigned stripes = ceil_div(matrix->stripes, parts);
    const unsigned units = stripes * ceil_div(matrix->depth, splits);
    const unsigned rounds = ceil_div(units, warps);
    const unsigned blocks = parts * splits * p->groups;
    const unsigned idle = (warps - ceil_div(units, rounds)) * blocks;
    const double more = p->tiles - 1.0;
    const double unit_time =
        static_cast<double>(matrix->bits) * ESPL_DENSE_UNIT_BYTES / p->device->bytes_a_second;
    const double even = static_cast<double>(matrix->stripes) * matrix->depth;
    const double busiest = static_cast<double>(units) * parts * splits;
    const double moving = unit_time * (EVEN_PART * even + BUSIEST_PART * busiest);
    const double round = DENSE_ROUND + (scaled ? ATOM_DENSE_ROUND : 0.0) + more * DENSE_ROUND_TILE;
    return DENSE_START + (scaled ? ATOM_DENSE_START : 0.0) + more * DENSE_START_TILE +
           blocks * (DENSE_BLOCK + (scaled ? ATOM_DENSE_BLOCK : 0.0)) + stripes * DENSE_STRIPE +
           (idle > IDLE_FREE ? (idle - IDLE_FREE) * IDLE_WARP : 0.0) +
           (splits > 1 ? p->tiles * DENSE_SPLIT : 0.0) +
           turns(p, blocks) * overlapped(rounds * round, moving);
}

double sparse_time(const struct problem *p, const struct espl_cuda_spmm_choice *cut)
{
    const struct espl_cuda_matrix *matrix = p->matrix;
    const bool single = matrix->unit == ESPL_IEBME_1X1 || matrix->unit == ESPL_IEBME_MIXED;
    const bool scaled = matrix->atom != NULL;
    const unsigned stripes = ceil_div(matrix->stripes, cut->parts);
    const unsigned depth = ceil_div(matrix->depth, cut->splits);
    const unsigned rows = smaller(cut->warps / cut->window, stripes);
    const unsigned warps = smaller(cut->window, depth) * rows;
    const unsigned passes = ceil_div(depth, cut->window);
    const unsigned rounds = passes * ceil_div(stripes, rows);
    const unsigned blocks = cut->parts * cut->splits * p->groups;
    const double tiles = p->tiles;
    const double round =
        (single ? SINGLE_ROUND + warps * SINGLE_WARP : UNION_ROUND + warps * UNION_WARP) *
        (matrix->unit == ESPL_IEBME_MIXED ? MIXED_ROUND : 1.0) *
        (1.0 + (tiles - 1.0) * SPARSE_ROUND_TILE) *
        (scaled ? (single ? ATOM_SINGLE_ROUND : ATOM_UNION_ROUND) : 1.0);
    const double moving =
        SPARSE_BYTES * static_cast<double>(matrix->data_bytes) / p->device->bytes_a_second;
    const double margin = p->tiles > 1 ? TILES_MARGIN : TILE_MARGIN;
    return margin *
           (SPARSE_START + (scaled ? ATOM_SPARSE_START : 0.0) + (tiles - 1.0) * SPARSE_START_TILE +
            blocks * warps * SPARSE_WARP + tiles * stripes * SPARSE_STRIPE +
            tiles * (passes - 1) * SPARSE_PASS + (cut->splits > 1 ? tiles * SPARSE_SPLIT : 0.0) +
            turns(p, blocks) * hidden(rounds * round, moving));
}

size_t sparse_bytes(const struct problem *p, unsigned parts, unsigned stages, unsigned warps)
{
    struct spmm_args args;
    args.tile_stripes = spmm_tile_stripes(p->matrix, p->tiles, parts);
    args.stage_bytes = spmm_stage_bytes(p->matrix);
    args.stages = stages;
    return spmm_shared_bytes(p->matrix, &args, p->tiles, warps, p->wanted->pipeline);
}

/* Warps of a sparse block that can multiply. */
unsigned most_sparse_warps(const struct espl_cuda_spmm_choice *wanted)
{
    return wanted->pipeline == ESPL_CUDA_PIPELINE_PRODUCER ? static_cast<unsigned>(SPMM_PRODUCER)
                                                           : static_cast<unsigned>(SPMM_WARPS);
}

/* Two stages a warp unless more are asked for: one chunk is on its way while another is decoded. */
enum { USUAL_STAGES = 2 };

/* As many blocks as run at once; then windows of slices, and rows of such windows. false: no choice
 * of this many splits fits. */
bool choose_sparse(const struct problem *p, unsigned splits, struct espl_cuda_spmm_choice *best,
                   double *best_time)
{
    const struct espl_cuda_spmm_choice *wanted = p->wanted;
    const unsigned parts =
        wanted->parts != 0 ? wanted->parts : ceil_div(p->matrix->stripes, least_stripes(p, splits));
    const unsigned stages = wanted->stages != 0 ? wanted->stages : USUAL_STAGES;
    const unsigned most = most_sparse_warps(wanted);
    bool found = false;
    for (unsigned window = 1; window <= most; window++) {
        for (unsigned warps = window; warps <= most; warps += window) {
            const struct espl_cuda_spmm_choice cut = {warps, splits, window, stages, parts};
            if ((wanted->window != 0 && window != wanted->window) ||
                (wanted->warps != 0 && warps != wanted->warps) ||
                sparse_bytes(p, parts, stages, warps) > p->device->shared_bytes) {
                continue;
            }
            const double time = sparse_time(p, &cut);
            if (time < *best_time) {
                *best_time = time;
                *best = cut;
                found = true;
            }
        }
    }
    return found;
}

/* Scales change every 32 columns: kernels with more registers and fewer warps. */
bool fine_steps(const struct espl_cuda_matrix *matrix)
{
    return matrix->atom != NULL && matrix->atom->layout.step == ATOM_FINE_STEP;
}

/* 16 warps, or 20 where the kernel can have them; kernels with scales for 4 tiles have 12. */
bool can_have_more_warps(const struct espl_cuda_matrix *matrix, unsigned tiles,
                         const struct spmm_device *device)
{
    return tiles == 1 && !fine_steps(matrix) && !(matrix->atom != NULL && device->few_registers);
}

unsigned least_dense_warps(const struct espl_cuda_matrix *matrix, unsigned tiles)
{
    return matrix->atom != NULL && tiles == 4 ? static_cast<unsigned>(ATOM_WIDE_WARPS)
                                              : static_cast<unsigned>(SPMM_WARPS);
}

bool warps_fit(const struct espl_cuda_matrix *matrix, unsigned tiles,
               const struct spmm_device *device, const struct espl_cuda_spmm_choice *wanted)
{
    const unsigned warps = wanted->warps;
    if (matrix->unit != ESPL_IEBME_DENSE) {
        return warps <= most_sparse_warps(wanted);
    }
    return warps == 0 || warps == least_dense_warps(matrix, tiles) ||
           (warps == SPMM_DENSE_MAX_WARPS && can_have_more_warps(matrix, tiles, device));
}

bool try_dense(const struct problem *p, unsigned warps, unsigned splits, unsigned parts,
               struct espl_cuda_spmm_choice *best, double *best_time)
{
    struct spmm_args args;
    const double time = dense_time(p, warps, splits, parts);
    args.tile_stripes = spmm_tile_stripes(p->matrix, p->tiles, parts);
    if (time >= *best_time || spmm_shared_bytes(p->matrix, &args, p->tiles, warps,
                                                ESPL_CUDA_PIPELINE_OWN) > p->device->shared_bytes) {
        return false;
    }
    *best_time = time;
    *best = {warps, splits, 1, 1, parts};
    return true;
}

/* Parts with the least number of stripes of which all run at once, or with up to four times as
 * many: small matrices leave warps of many blocks idle. */
bool choose_dense(const struct problem *p, unsigned splits, struct espl_cuda_spmm_choice *best,
                  double *best_time)
{
    const struct espl_cuda_spmm_choice *wanted = p->wanted;
    const unsigned usual = least_dense_warps(p->matrix, p->tiles);
    const unsigned few = wanted->warps != 0 ? wanted->warps : usual;
    const unsigned many = wanted->warps == 0 && can_have_more_warps(p->matrix, p->tiles, p->device)
                              ? static_cast<unsigned>(SPMM_DENSE_MAX_WARPS)
                              : few;
    const unsigned least = least_stripes(p, splits);
    const unsigned most = wanted->parts != 0 ? least : 4 * least;
    bool found = false;
    for (unsigned stripes = least; stripes <= most; stripes++) {
        const unsigned parts =
            wanted->parts != 0 ? wanted->parts : ceil_div(p->matrix->stripes, stripes);
        found = try_dense(p, few, splits, parts, best, best_time) || found;
        found = try_dense(p, many, splits, parts, best, best_time) || found;
    }
    return found;
}

} // namespace

enum espl_status spmm_device_get(struct spmm_device *device, struct espl_error *err)
{
    int multiprocessors = 0;
    int shared = 0;
    int kilohertz = 0;
    int width = 0;
    int major = 0;
    enum espl_status status =
        espl_cuda_attribute(cudaDevAttrMultiProcessorCount, &multiprocessors, err);
    if (status == ESPL_OK) {
        status = espl_cuda_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, &shared, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_attribute(cudaDevAttrMemoryClockRate, &kilohertz, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_attribute(cudaDevAttrGlobalMemoryBusWidth, &width, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_attribute(cudaDevAttrComputeCapabilityMajor, &major, err);
    }
    device->few_registers = major >= 10;
    device->multiprocessors = static_cast<unsigned>(multiprocessors);
    device->shared_bytes = static_cast<size_t>(shared) - OWN_SHARED_BYTES;
    device->bytes_a_second = 2.0 * kilohertz * 1000.0 * width / 8.0;
    return status;
}

unsigned spmm_tiles(const struct espl_cuda_matrix *matrix, size_t tokens)
{
    const unsigned most = matrix->unit == ESPL_IEBME_DENSE ? 4 : 2;
    if (fine_steps(matrix) || matrix->unit == ESPL_IEBME_MIXED) {
        return 1;
    }
    return tokens <= SPMM_COLUMNS ? 1 : tokens <= 2 * SPMM_COLUMNS ? 2 : most;
}

unsigned spmm_tile_stripes(const struct espl_cuda_matrix *matrix, unsigned tiles, unsigned parts)
{
    const bool dense = matrix->unit == ESPL_IEBME_DENSE;
    const unsigned values = matrix->atom == NULL ? 1 : dense ? 2 : 3; /* of 4 bytes, for each sum */
    const unsigned bytes = dense ? DENSE_SUMS_BYTES : SPARSE_SUMS_BYTES;
    const unsigned room =
        bytes / (SPMM_STRIPE * SPMM_COLUMNS * tiles * values * static_cast<unsigned>(sizeof(int)));
    /* Byte-balanced parts may have a few stripes more than an even share. */
    return smaller(ceil_div(matrix->stripes, parts) + 1, room);
}

size_t spmm_shared_bytes(const struct espl_cuda_matrix *matrix, const struct spmm_args *args,
                         unsigned tiles, unsigned warps, enum espl_cuda_pipeline pipeline)
{
    if (matrix->unit == ESPL_IEBME_DENSE) {
        return matrix->atom != NULL ? atom_dense_shared_bytes(args, tiles, warps)
                                    : spmm_dense_shared_bytes(args, tiles);
    }
    return matrix->atom != NULL ? atom_sparse_shared_bytes(args, tiles, warps)
                                : spmm_sparse_shared_bytes(args, tiles, warps, pipeline);
}

unsigned spmm_stage_bytes(const struct espl_cuda_matrix *matrix)
{
    enum { STAGE_UNIT = 256, WINDOW_ROWS = 3 };
    /* At the end of its stream a lane still reads a window of three words of each stream: they must
     * not lie where another chunk is being written. */
    const bool two = matrix->unit == ESPL_IEBME_2X2 || matrix->unit == ESPL_IEBME_MIXED;
    const unsigned streams = two ? 2 : 1;
    const unsigned bytes = matrix->chunk_bytes + streams * WINDOW_ROWS * SPMM_ROW;
    return ceil_div(bytes, STAGE_UNIT) * STAGE_UNIT;
}

enum espl_status spmm_choose(const struct espl_cuda_matrix *matrix, size_t tokens,
                             const struct spmm_device *device,
                             const struct espl_cuda_spmm_choice *wanted,
                             struct espl_cuda_spmm_choice *choice, double *seconds,
                             struct espl_error *err)
{
    const struct espl_cuda_spmm_choice nothing = {};
    const struct espl_cuda_spmm_choice *w = wanted != NULL ? wanted : &nothing;
    const unsigned tiles = spmm_tiles(matrix, tokens);
    const struct problem problem = {matrix, device, w, tiles, token_groups(tokens, tiles)};
    const bool dense = matrix->unit == ESPL_IEBME_DENSE;
    double time = 1.0e9;
    bool found = false;
    if (!warps_fit(matrix, tiles, device, w) || w->parts > SPMM_MAX_PARTS ||
        w->splits > matrix->depth || w->stages > MAX_STAGES || (w->stages == 1 && !dense)) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "the CUDA kernels cannot use %u warps, %u parts, %u splits, %u stages",
                         w->warps, w->parts, w->splits, w->stages);
    }
    for (unsigned splits = 1; splits <= smaller(matrix->depth, MAX_SPLITS); splits++) {
        if (w->splits != 0 && w->splits != splits) {
            continue;
        }
        found = (dense ? choose_dense(&problem, splits, choice, &time)
                       : choose_sparse(&problem, splits, choice, &time)) ||
                found;
    }
    if (!found) {
        return espl_fail(
            err, ESPL_E_UNSUPPORTED,
            "the CUDA kernels cannot cut a product of %zu x %zu and %zu tokens so that "
            "it fits the %zu bytes of shared memory here",
            matrix->rows, matrix->cols, tokens, device->shared_bytes);
    }
    *seconds = time;
    return ESPL_OK;
}
