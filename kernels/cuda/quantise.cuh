/* Device code of the dynamic quantiser of activations [Atom, section 4]: INT4 groups and INT8
 * outliers of a token in the order of the kernels (struct atom_layout), from whatever gives the
 * token's values. A group, or the outliers, is done by a team: a block or a warp. */
#ifndef ESPL_CUDA_QUANTISE_CUH
#define ESPL_CUDA_QUANTISE_CUH

#include "kernels/cuda/atom_args.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/quant_internal.h"

enum { QUANTISE_LANE_COLS = 8, QUANTISE_MOST_TOKENS = 65535 };

/* Where codes and scales go to, and how. */
struct quantise_target {
    const int32_t *order; /* (in) original column at each place, or NULL */
    uint8_t *codes;
    unsigned long long *nonfinite;
    unsigned in;
    unsigned tokens;
    unsigned groups;
    unsigned columns; /* of a group */
    unsigned outliers;
    unsigned team_steps; /* ints of shared memory that a team needs */
    float clip;
    struct atom_layout layout;
};

/** Fills *target for shape->tokens tokens; codes: 16-byte aligned. Errors: UNSUPPORTED. */
enum espl_status quantise_target_of(const struct espl_quant_shape *shape, const int32_t *order,
                                    float clip, void *codes, uint64_t *nonfinite,
                                    struct quantise_target *target, struct espl_error *err);
/** Tokens filled up to whole tiles: 1, 2 or a multiple of 4 of them, as products take them. */
size_t quantise_filled_tokens(size_t tokens);

#ifdef __CUDACC__

/* Groups and, after them, the outliers: what a token's teams share among them. */
__device__ __forceinline__ unsigned quantise_parts(const quantise_target &target)
{
    return target.groups + (target.outliers > 0 ? 1u : 0u);
}

/* All threads of a block. */
struct quantise_block {
    float *of_warp; /* shared, (REDUCE_MOST_WARPS) */

    __device__ __forceinline__ unsigned rank() const
    {
        return threadIdx.x;
    }
    __device__ __forceinline__ unsigned size() const
    {
        return blockDim.x;
    }
    __device__ __forceinline__ void sync() const
    {
        __syncthreads();
    }
    __device__ __forceinline__ float max(float value) const
    {
        value = warp_max(value);
        if (threadIdx.x % REDUCE_WARP == 0) {
            of_warp[threadIdx.x / REDUCE_WARP] = value;
        }
        __syncthreads();
        for (unsigned warp = 0; warp < blockDim.x / REDUCE_WARP; warp++) {
            value = fmaxf(value, of_warp[warp]);
        }
        return value;
    }
};

struct quantise_warp {
    __device__ __forceinline__ unsigned rank() const
    {
        return threadIdx.x % REDUCE_WARP;
    }
    __device__ __forceinline__ unsigned size() const
    {
        return REDUCE_WARP;
    }
    __device__ __forceinline__ void sync() const
    {
        __syncwarp();
    }
    __device__ __forceinline__ float max(float value) const
    {
        return warp_max(value);
    }
};

__device__ __forceinline__ unsigned quantise_column(const quantise_target &target, unsigned place)
{
    return target.order != nullptr ? (unsigned)__ldg(target.order + place) : place;
}

/* The largest magnitude of some places, at least the least; reports what is not finite. source(c):
 * value of original column c. */
template <class TEAM, class SOURCE>
__device__ __forceinline__ float quantise_largest(const quantise_target &target, const TEAM &team,
                                                  const SOURCE &source, unsigned token,
                                                  unsigned first, unsigned count)
{
    float amax = ESPL_QUANT_LEAST_AMAX;
    for (unsigned i = team.rank(); i < count; i += team.size()) {
        const unsigned column = quantise_column(target, first + i);
        const float v = source(column);
        if (!isfinite(v)) {
            atomicMin(target.nonfinite, (unsigned long long)token * target.in + column);
        }
        amax = fmaxf(amax, fabsf(v));
    }
    return team.max(amax);
}

__device__ __forceinline__ int quantise_code(float v, float scale, float qmax)
{
    return (int)fminf(fmaxf(rintf(__fdiv_rn(v, scale)), -qmax - 1.0F), qmax);
}

/* A group: words of 8 codes, and what every step of it needs: the scale, and the magic number plus
 * the sum of codes, times what a biased row has too much of each. step_sums: shared, of the team.
 */
template <class TEAM, class SOURCE>
__device__ __forceinline__ void quantise_group(const quantise_target &target, const TEAM &team,
                                               const SOURCE &source, uint8_t *tile, unsigned token,
                                               unsigned group, int *step_sums)
{
    constexpr float QMAX = 7.0F;
    constexpr int BIAS = 8 << SPMM_X_SHIFT;
    const bool there = token < target.tokens;
    const unsigned in_tile = token % SPMM_COLUMNS;
    const unsigned at = group * target.layout.group;
    const unsigned end = group + 1 == target.groups ? target.layout.steps * target.layout.step
                                                    : at + target.layout.group;
    const unsigned steps = (end - at) / target.layout.step;
    uint32_t *words = reinterpret_cast<uint32_t *>(tile);
    float scale = 0.0F;
    for (unsigned s = team.rank(); s < steps; s += team.size()) {
        step_sums[s] = 0;
    }
    if (there) {
        const float amax =
            quantise_largest(target, team, source, token, group * target.columns, target.columns);
        scale = __fdiv_rn(__fmul_rn(target.clip, amax), QMAX);
    }
    team.sync();
    for (unsigned w = team.rank(); w < (end - at) / QUANTISE_LANE_COLS; w += team.size()) {
        const unsigned column = at + w * QUANTISE_LANE_COLS;
        const unsigned first = w * QUANTISE_LANE_COLS;
        unsigned packed = 0;
        int sum = 0;
        for (unsigned i = 0; there && i < QUANTISE_LANE_COLS && first + i < target.columns; i++) {
            const unsigned place = group * target.columns + first + i;
            const int code = quantise_code(source(quantise_column(target, place)), scale, QMAX);
            packed |= ((unsigned)code & 15u) << (8 * (i % 4) + (i >= 4 ? 4 : 0));
            sum += code;
        }
        words[column / 128 * (SPMM_X_BLOCK / 4) + in_tile * 16 +
              column % 32 / QUANTISE_LANE_COLS * 4 + column % 128 / 32] = packed;
        atomicAdd(step_sums + first / target.layout.step, sum);
    }
    team.sync();
    float *entries =
        reinterpret_cast<float *>(tile + target.layout.scales_at) + in_tile / 2 * 4 + in_tile % 2;
    for (unsigned s = team.rank(); s < steps; s += team.size()) {
        float *entry = entries + (at / target.layout.step + s) * (ATOM_STEP_BYTES / 4);
        entry[0] = scale;
        entry[2] = ATOM_MAGIC_FLOAT + (float)(BIAS * step_sums[s]);
    }
}

template <class TEAM, class SOURCE>
__device__ __forceinline__ void quantise_outliers(const quantise_target &target, const TEAM &team,
                                                  const SOURCE &source, uint8_t *tile,
                                                  unsigned token)
{
    constexpr float QMAX = 127.0F;
    const bool there = token < target.tokens;
    const unsigned in_tile = token % SPMM_COLUMNS;
    const unsigned first = target.in - target.outliers;
    float scale = 0.0F;
    if (there) {
        scale =
            __fdiv_rn(quantise_largest(target, team, source, token, first, target.outliers), QMAX);
    }
    for (unsigned c = team.rank(); c < target.layout.outlier_blocks * ATOM_BLOCK_COLS;
         c += team.size()) {
        int code = 0;
        if (there && c < target.outliers) {
            code = quantise_code(source(quantise_column(target, first + c)), scale, QMAX);
        }
        const unsigned lane = in_tile * 4 + c % ATOM_BLOCK_COLS / QUANTISE_LANE_COLS;
        tile[target.layout.outliers_at + c / ATOM_BLOCK_COLS * ATOM_X_BLOCK_BYTES +
             lane * QUANTISE_LANE_COLS + c % QUANTISE_LANE_COLS] = (uint8_t)code;
    }
    if (team.rank() == 0) {
        reinterpret_cast<float *>(tile + target.layout.outlier_scales_at)[in_tile] = scale;
    }
}

/* ---- groups of up to 128 columns by a warp: a lane has four places, and their values once ---- */

constexpr unsigned QUANTISE_LANE_PLACES = 4;
constexpr unsigned QUANTISE_NARROW = REDUCE_WARP * QUANTISE_LANE_PLACES;

/* A lane's values at four places from `first` on, of which `count` (a multiple of 4) are there.
 * Reports what is not finite. */
template <class SOURCE>
__device__ __forceinline__ float quantise_four(const quantise_target &target, const SOURCE &source,
                                               unsigned token, unsigned first, bool there,
                                               float (&v)[QUANTISE_LANE_PLACES])
{
    float amax = ESPL_QUANT_LEAST_AMAX;
    int4 columns = make_int4((int)first, (int)first + 1, (int)first + 2, (int)first + 3);
    if (there && target.order != nullptr) {
        columns = __ldg(reinterpret_cast<const int4 *>(target.order + first));
    }
    const unsigned at[QUANTISE_LANE_PLACES] = {(unsigned)columns.x, (unsigned)columns.y,
                                               (unsigned)columns.z, (unsigned)columns.w};
#pragma unroll
    for (unsigned i = 0; i < QUANTISE_LANE_PLACES; i++) {
        v[i] = there ? source(at[i]) : 0.0F;
    }
#pragma unroll
    for (unsigned i = 0; i < QUANTISE_LANE_PLACES; i++) {
        if (!isfinite(v[i])) {
            atomicMin(target.nonfinite, (unsigned long long)token * target.in + at[i]);
        }
        amax = fmaxf(amax, fabsf(v[i]));
    }
    return warp_max(amax);
}

/* The same bytes as quantise_group(). */
template <class SOURCE>
__device__ __forceinline__ void quantise_narrow_group(const quantise_target &target,
                                                      const SOURCE &source, uint8_t *tile,
                                                      unsigned token, unsigned group)
{
    constexpr float QMAX = 7.0F;
    constexpr int BIAS = 8 << SPMM_X_SHIFT;
    const unsigned lane = threadIdx.x % REDUCE_WARP;
    const unsigned mine = lane * QUANTISE_LANE_PLACES;
    const bool there = token < target.tokens && mine < target.columns;
    const unsigned in_tile = token % SPMM_COLUMNS;
    const unsigned at = group * target.layout.group;
    const unsigned end = group + 1 == target.groups ? target.layout.steps * target.layout.step
                                                    : at + target.layout.group;
    const unsigned step_lanes = target.layout.step / QUANTISE_LANE_PLACES;
    float v[QUANTISE_LANE_PLACES];
    const float amax =
        quantise_four(target, source, token, group * target.columns + mine, there, v);
    const float scale =
        token < target.tokens ? __fdiv_rn(__fmul_rn(target.clip, amax), QMAX) : 0.0F;
    unsigned packed = 0;
    int sum = 0;
#pragma unroll
    for (unsigned i = 0; i < QUANTISE_LANE_PLACES; i++) {
        const int code = there ? quantise_code(v[i], scale, QMAX) : 0;
        packed |= ((unsigned)code & 15u) << (8 * i);
        sum += code;
    }
    /* A word is eight places: the even lane's four in the low halves of bytes. */
    const unsigned other = __shfl_xor_sync(0xFFFFFFFFu, packed, 1);
    for (unsigned offset = 1; offset < step_lanes; offset *= 2) {
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
    }
    uint32_t *words = reinterpret_cast<uint32_t *>(tile);
    float *entries =
        reinterpret_cast<float *>(tile + target.layout.scales_at) + in_tile / 2 * 4 + in_tile % 2;
    for (unsigned column = at + mine; column < end; column += QUANTISE_NARROW) {
        const bool first = column < at + QUANTISE_NARROW; /* what comes later fills up slices */
        if (lane % 2 == 0) {
            words[column / 128 * (SPMM_X_BLOCK / 4) + in_tile * 16 +
                  column % 32 / QUANTISE_LANE_COLS * 4 + column % 128 / 32] =
                first ? packed | other << 4 : 0u;
        }
        if (lane % step_lanes == 0) {
            float *entry = entries + column / target.layout.step * (ATOM_STEP_BYTES / 4);
            entry[0] = scale;
            entry[2] = ATOM_MAGIC_FLOAT + (float)(first ? BIAS * sum : 0);
        }
    }
}

/* The same bytes as quantise_outliers(). */
template <class SOURCE>
__device__ __forceinline__ void quantise_narrow_outliers(const quantise_target &target,
                                                         const SOURCE &source, uint8_t *tile,
                                                         unsigned token)
{
    constexpr float QMAX = 127.0F;
    const unsigned lane = threadIdx.x % REDUCE_WARP;
    const unsigned mine = lane * QUANTISE_LANE_PLACES;
    const bool there = token < target.tokens && mine < target.outliers;
    const unsigned in_tile = token % SPMM_COLUMNS;
    float v[QUANTISE_LANE_PLACES];
    const float amax =
        quantise_four(target, source, token, target.in - target.outliers + mine, there, v);
    const float scale = token < target.tokens ? __fdiv_rn(amax, QMAX) : 0.0F;
    unsigned packed = 0;
#pragma unroll
    for (unsigned i = 0; i < QUANTISE_LANE_PLACES; i++) {
        const int code = there ? quantise_code(v[i], scale, QMAX) : 0;
        packed |= ((unsigned)code & 255u) << (8 * i);
    }
    if (mine < target.layout.outlier_blocks * ATOM_BLOCK_COLS) {
        const unsigned at =
            target.layout.outliers_at + mine / ATOM_BLOCK_COLS * ATOM_X_BLOCK_BYTES +
            (in_tile * 4 + mine % ATOM_BLOCK_COLS / QUANTISE_LANE_COLS) * QUANTISE_LANE_COLS +
            mine % QUANTISE_LANE_COLS;
        *reinterpret_cast<unsigned *>(tile + at) = packed;
    }
    if (lane == 0) {
        reinterpret_cast<float *>(tile + target.layout.outlier_scales_at)[in_tile] = scale;
    }
}

/* Part `part` of quantise_parts() of a token, also of one that fills up the last tile. */
template <class TEAM, class SOURCE>
__device__ __forceinline__ void quantise_part(const quantise_target &target, const TEAM &team,
                                              const SOURCE &source, unsigned token, unsigned part,
                                              int *step_sums)
{
    uint8_t *tile = target.codes + (size_t)(token / SPMM_COLUMNS) * target.layout.tile_bytes;
    if (part < target.groups) {
        quantise_group(target, team, source, tile, token, part, step_sums);
    } else {
        quantise_outliers(target, team, source, tile, token);
    }
}

/* The same by a warp. */
template <class SOURCE>
__device__ __forceinline__ void quantise_warp_part(const quantise_target &target,
                                                   const SOURCE &source, unsigned token,
                                                   unsigned part, int *step_sums)
{
    uint8_t *tile = target.codes + (size_t)(token / SPMM_COLUMNS) * target.layout.tile_bytes;
    const unsigned columns = part < target.groups ? target.columns : target.outliers;
    const unsigned first =
        part < target.groups ? part * target.columns : target.in - target.outliers;
    if (columns > QUANTISE_NARROW || columns % QUANTISE_LANE_COLS != 0 ||
        first % QUANTISE_LANE_PLACES != 0) {
        quantise_part(target, quantise_warp{}, source, token, part, step_sums);
    } else if (part < target.groups) {
        quantise_narrow_group(target, source, tile, token, part);
    } else {
        quantise_narrow_outliers(target, source, tile, token);
    }
}

#endif
#endif
