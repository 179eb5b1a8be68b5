/* The rule that cuts a product into blocks, warps and stages: a small model of time over the few
 * choices there are. Its constants and its regret are measured in docs/kernels/spmm.md. */
#include "kernels/cuda/spmm_rule.cuh"

#include "kernels/cuda/atom_kernels.cuh"
#include "kernels/cuda/cuda_support.cuh"
#include "kernels/cuda/spmm_kernels.cuh"

namespace
{

enum {
    DENSE_SUMS_BYTES = 96 * 1024,
    SPARSE_SUMS_BYTES = 48 * 1024,
    OWN_SHARED_BYTES = 512, /* at most what kernels declare beside what they are given */
    MAX_SPLITS = 8,
    MAX_STAGES = 4
};

/* Measured on an H200, N = 8: docs/kernels/spmm.md. Seconds. */
constexpr double DENSE_START = 2.8e-6;     /* launch, first weights, end */
constexpr double SPARSE_START = 4.9e-6;    /* the same with an index and a table */
constexpr double SPLIT_COST = 4.0e-6;      /* sums of several blocks meet in memory */
constexpr double SINGLE_CHUNK = 1.95e-6;   /* a warp decodes a chunk, 1x1, up to 16 at once */
constexpr double UNION_CHUNK = 1.60e-6;    /* 1x2, 2x1, 2x2 */
constexpr double CHUNK_COST = 0.3e-6;      /* of a round of chunks that waits for memory */
constexpr double RELOAD_COST = 0.6e-6;     /* activations of the next slice */
constexpr double DENSE_SHARE = 0.88;       /* of the memory's bandwidth by clock and width */
constexpr double SPARSE_SHARE = 0.94;      /* the same beside CHUNK_COST */
constexpr double BLOCK_BANDWIDTH = 75.0e9; /* bytes a second that one multiprocessor can take */
constexpr double MORE_TILES = 0.045;       /* of the time of one tile of tokens, for each other */
constexpr double MORE_TILES_SPARSE = 0.15;
constexpr double ATOM_DENSE_START = 1.0e-6; /* what scales and outliers add */
constexpr double ATOM_SPARSE_START = 1.9e-6;
constexpr double ATOM_SPARSE_CHUNK = 1.2; /* times a round of chunks */
/* The model errs by some percent: a sparse form must promise this much before it is taken for
 * faster than dense weights, which are never far from what is expected. */
constexpr double SPARSE_MARGIN = 1.04;

unsigned ceil_div(unsigned a, unsigned b)
{
    return a / b + (a % b != 0 ? 1 : 0);
}

unsigned smaller(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned parts_for(const struct espl_cuda_matrix *matrix, unsigned multiprocessors, unsigned splits)
{
    const unsigned blocks = multiprocessors / splits > 0 ? multiprocessors / splits : 1;
    return smaller(smaller(blocks, matrix->stripes), SPMM_MAX_PARTS);
}

/* Bytes a second that a block gets when `blocks` of them share the memory. */
double share_of_memory(const struct spmm_device *device, double reached, double blocks)
{
    const double share = reached * device->bytes_a_second / blocks;
    return share < BLOCK_BANDWIDTH ? share : BLOCK_BANDWIDTH;
}

/* Blocks of the grid do tiles of tokens one after the other. */
unsigned token_groups(size_t tokens, unsigned tiles)
{
    return static_cast<unsigned>((tokens + tiles * SPMM_COLUMNS - 1) / (tiles * SPMM_COLUMNS));
}

/* Time of a dense product: the largest part at its share of the bandwidth. */
double dense_time(const struct espl_cuda_matrix *matrix, const struct spmm_device *device,
                  unsigned tiles, unsigned splits, unsigned parts)
{
    const double units =
        static_cast<double>(ceil_div(matrix->stripes, parts)) * ceil_div(matrix->depth, splits);
    const double share = share_of_memory(device, DENSE_SHARE, static_cast<double>(parts) * splits);
    return DENSE_START + (matrix->atom != NULL ? ATOM_DENSE_START : 0.0) +
           units * matrix->bits * ESPL_DENSE_UNIT_BYTES / share * (1.0 + MORE_TILES * (tiles - 1)) +
           (splits > 1 ? SPLIT_COST : 0.0);
}

/* Time of a sparse product: what its busiest warp does, one chunk after the other, each at the pace
 * of decoding or of the memory. */
double sparse_time(const struct espl_cuda_matrix *matrix, const struct spmm_device *device,
                   unsigned tiles, unsigned splits, unsigned parts, unsigned window, unsigned warps)
{
    const unsigned passes = ceil_div(ceil_div(matrix->depth, splits), window);
    const unsigned rows = ceil_div(ceil_div(matrix->stripes, parts), warps / window);
    const double chunks = static_cast<double>(matrix->stripes) * matrix->depth;
    const double bytes = static_cast<double>(matrix->data_bytes) / chunks * warps;
    const double moving = CHUNK_COST + bytes / share_of_memory(device, SPARSE_SHARE,
                                                               static_cast<double>(parts) * splits);
    const double decoding = (matrix->unit == ESPL_IEBME_1X1 ? SINGLE_CHUNK : UNION_CHUNK) *
                            (1.0 + MORE_TILES_SPARSE * (tiles - 1));
    const bool scaled = matrix->atom != NULL;
    const double round =
        (moving > decoding ? moving : decoding) * (scaled ? ATOM_SPARSE_CHUNK : 1.0);
    const double start = SPARSE_START + (scaled ? ATOM_SPARSE_START : 0.0);
    return SPARSE_MARGIN * (start + passes * (rows * round) + (passes - 1) * RELOAD_COST +
                            (splits > 1 ? SPLIT_COST : 0.0));
}

size_t sparse_bytes(const struct espl_cuda_matrix *matrix, unsigned tiles, unsigned parts,
                    unsigned stages, unsigned warps)
{
    struct spmm_args args;
    args.tile_stripes = spmm_tile_stripes(matrix, tiles, parts);
    args.stage_bytes = spmm_stage_bytes(matrix);
    args.stages = stages;
    return spmm_shared_bytes(matrix, &args, tiles, warps);
}

/* false: no choice of this many splits fits. */
bool choose_sparse(const struct espl_cuda_matrix *matrix, unsigned tiles,
                   const struct spmm_device *device, const struct espl_cuda_spmm_choice *wanted,
                   unsigned splits, struct espl_cuda_spmm_choice *best, double *best_time)
{
    bool found = false;
    const unsigned parts =
        wanted->parts != 0 ? wanted->parts : parts_for(matrix, device->multiprocessors, splits);
    for (unsigned window = 1; window <= SPMM_WARPS; window++) {
        for (unsigned rows = 1; rows * window <= SPMM_WARPS; rows++) {
            const unsigned warps = rows * window;
            unsigned stages = wanted->stages != 0 ? wanted->stages : MAX_STAGES - 1;
            while (wanted->stages == 0 && stages > 2 &&
                   sparse_bytes(matrix, tiles, parts, stages, warps) > device->shared_bytes) {
                stages--;
            }
            if ((wanted->window != 0 && window != wanted->window) ||
                (wanted->warps != 0 && warps != wanted->warps) ||
                sparse_bytes(matrix, tiles, parts, stages, warps) > device->shared_bytes) {
                continue;
            }
            const double time = sparse_time(matrix, device, tiles, splits, parts, window, warps);
            if (time < *best_time) {
                *best_time = time;
                *best = {warps, splits, window, stages, parts};
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

/* 20 warps where the kernel can have them and that saves a round of units, else 16; kernels with
 * scales for 4 tiles have 12. */
bool can_have_more_warps(const struct espl_cuda_matrix *matrix, unsigned tiles)
{
    return tiles == 1 && !fine_steps(matrix);
}

unsigned least_dense_warps(const struct espl_cuda_matrix *matrix, unsigned tiles)
{
    return matrix->atom != NULL && tiles == 4 ? static_cast<unsigned>(ATOM_WIDE_WARPS)
                                              : static_cast<unsigned>(SPMM_WARPS);
}

unsigned dense_warps(const struct espl_cuda_matrix *matrix, unsigned tiles, unsigned splits,
                     unsigned parts)
{
    const unsigned units = ceil_div(matrix->stripes, parts) * ceil_div(matrix->depth, splits);
    const bool more = can_have_more_warps(matrix, tiles) &&
                      ceil_div(units, SPMM_DENSE_MAX_WARPS) < ceil_div(units, SPMM_WARPS);
    return more ? static_cast<unsigned>(SPMM_DENSE_MAX_WARPS) : least_dense_warps(matrix, tiles);
}

bool warps_fit(const struct espl_cuda_matrix *matrix, unsigned tiles, unsigned warps)
{
    if (matrix->unit != ESPL_IEBME_DENSE) {
        return warps <= SPMM_WARPS;
    }
    return warps == 0 || warps == least_dense_warps(matrix, tiles) ||
           (warps == SPMM_DENSE_MAX_WARPS && can_have_more_warps(matrix, tiles));
}

bool choose_dense(const struct espl_cuda_matrix *matrix, unsigned tiles,
                  const struct spmm_device *device, const struct espl_cuda_spmm_choice *wanted,
                  unsigned splits, struct espl_cuda_spmm_choice *best, double *best_time)
{
    const unsigned parts =
        wanted->parts != 0 ? wanted->parts : parts_for(matrix, device->multiprocessors, splits);
    const double time = dense_time(matrix, device, tiles, splits, parts);
    const unsigned warps =
        wanted->warps != 0 ? wanted->warps : dense_warps(matrix, tiles, splits, parts);
    struct spmm_args args;
    args.tile_stripes = spmm_tile_stripes(matrix, tiles, parts);
    if (time >= *best_time ||
        spmm_shared_bytes(matrix, &args, tiles, warps) > device->shared_bytes) {
        return false;
    }
    *best_time = time;
    *best = {warps, splits, 1, 1, parts};
    return true;
}

} // namespace

enum espl_status spmm_device_get(struct spmm_device *device, struct espl_error *err)
{
    int multiprocessors = 0;
    int shared = 0;
    int kilohertz = 0;
    int width = 0;
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
    device->multiprocessors = static_cast<unsigned>(multiprocessors);
    device->shared_bytes = static_cast<size_t>(shared) - OWN_SHARED_BYTES;
    device->bytes_a_second = 2.0 * kilohertz * 1000.0 * width / 8.0;
    return status;
}

unsigned spmm_tiles(const struct espl_cuda_matrix *matrix, size_t tokens)
{
    const unsigned most = matrix->unit == ESPL_IEBME_DENSE ? 4 : 2;
    if (fine_steps(matrix)) {
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
                         unsigned tiles, unsigned warps)
{
    if (matrix->unit == ESPL_IEBME_DENSE) {
        return matrix->atom != NULL ? atom_dense_shared_bytes(args, tiles, warps)
                                    : spmm_dense_shared_bytes(args, tiles);
    }
    return matrix->atom != NULL ? atom_sparse_shared_bytes(args, tiles, warps)
                                : spmm_sparse_shared_bytes(args, tiles, warps);
}

unsigned spmm_stage_bytes(const struct espl_cuda_matrix *matrix)
{
    enum { STAGE_UNIT = 256, WINDOW_ROWS = 3 };
    /* At the end of its stream a lane still reads a window of three words of each stream: they must
     * not lie where another chunk is being written. */
    const unsigned streams = matrix->unit == ESPL_IEBME_2X2 ? 2 : 1;
    const unsigned bytes = matrix->chunk_bytes + streams * WINDOW_ROWS * SPMM_ROW;
    return ceil_div(bytes, STAGE_UNIT) * STAGE_UNIT;
}

enum espl_status spmm_choose(const struct espl_cuda_matrix *matrix, size_t tokens,
                             const struct spmm_device *device,
                             const struct espl_cuda_spmm_choice *wanted,
                             struct espl_cuda_spmm_choice *choice, double *seconds,
                             struct espl_error *err)
{
    const struct espl_cuda_spmm_choice nothing = {0, 0, 0, 0, 0};
    const struct espl_cuda_spmm_choice *w = wanted != NULL ? wanted : &nothing;
    const unsigned tiles = spmm_tiles(matrix, tokens);
    const bool dense = matrix->unit == ESPL_IEBME_DENSE;
    double time = 1.0e9;
    bool found = false;
    if (!warps_fit(matrix, tiles, w->warps) || w->parts > SPMM_MAX_PARTS ||
        w->splits > matrix->depth || w->stages > MAX_STAGES || (w->stages == 1 && !dense)) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "the CUDA kernels cannot use %u warps, %u parts, %u splits, %u stages",
                         w->warps, w->parts, w->splits, w->stages);
    }
    for (unsigned splits = 1; splits <= smaller(matrix->depth, MAX_SPLITS); splits++) {
        if (w->splits != 0 && w->splits != splits) {
            continue;
        }
        found = (dense ? choose_dense(matrix, tiles, device, w, splits, choice, &time)
                       : choose_sparse(matrix, tiles, device, w, splits, choice, &time)) ||
                found;
    }
    if (!found) {
        return espl_fail(
            err, ESPL_E_UNSUPPORTED,
            "the CUDA kernels cannot cut a product of %zu x %zu and %zu tokens so that "
            "it fits the %zu bytes of shared memory here",
            matrix->rows, matrix->cols, tokens, device->shared_bytes);
    }
    *seconds = time * token_groups(tokens, tiles);
    return ESPL_OK;
}
