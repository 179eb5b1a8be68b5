/* Device code of the dynamic quantiser of activations [Atom, section 4]: INT4 groups and INT8
 * outliers of a token in the order of the kernels (struct atom_layout), from whatever gives the
 * token's values. A group, or the outliers, is done by a team: a block or a warp. */
#ifndef ESPL_CUDA_QUANTISE_CUH
#define ESPL_CUDA_QUANTISE_CUH

#include "kernels/cuda/atom_args.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/quant_internal.h"

enum {
    QUANTISE_LANE_COLS = 8,
    QUANTISE_LANE_PLACES = 4, /* of a lane in a narrow part */
    QUANTISE_NARROW = 32 * QUANTISE_LANE_PLACES,
    QUANTISE_MOST_TOKENS = 65535
};

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
/** Are all parts of a token narrow enough for quantise_narrow_part()? */
bool quantise_is_narrow(const struct quantise_target *target);
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

/* The same by a multiplication: inverse is 1 / scale. Within +-128 the product is off by less than
 * 1e-4, so only near the middle of two codes the quotient itself must tell. */
__device__ __forceinline__ int quantise_code(float v, float scale, float inverse, float qmax)
{
    constexpr float SURE = 0.4998F;
    const float near = __fmul_rn(v, inverse);
    float code = rintf(near);
    if (fabsf(__fsub_rn(near, code)) > SURE) {
        code = rintf(__fdiv_rn(v, scale));
    }
    return (int)fminf(fmaxf(code, -qmax - 1.0F), qmax);
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

/* Constants that are read here, as if they could change: loads that the assembler knows to be of
 * constants it moves behind the wait for the kernel before. */
__device__ __forceinline__ float quantise_constant(const float *from)
{
    float v;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(from) : "memory");
    return v;
}

__device__ __forceinline__ int4 quantise_constant(const int4 *from)
{
    int4 v;
    asm volatile("ld.global.v4.s32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}

/* A lane's four places of a part of quantise_parts(), found before the token's values are there. */
struct quantise_lane {
    unsigned columns[QUANTISE_LANE_PLACES]; /* original ones */
    bool narrow;                            /* else the part needs quantise_part() */
    bool there;                             /* the places are part of it */
};

__device__ __forceinline__ quantise_lane quantise_lane_of(const quantise_target &target,
                                                          unsigned part)
{
    const bool is_group = part < target.groups;
    const unsigned count = is_group ? target.columns : target.outliers;
    const unsigned first = is_group ? part * target.columns : target.in - target.outliers;
    const unsigned mine = threadIdx.x % REDUCE_WARP * QUANTISE_LANE_PLACES;
    const unsigned at = first + mine;
    int4 columns = make_int4((int)at, (int)at + 1, (int)at + 2, (int)at + 3);
    quantise_lane lane;
    lane.narrow = part < quantise_parts(target) && count <= QUANTISE_NARROW &&
                  count % QUANTISE_LANE_COLS == 0 && first % QUANTISE_LANE_PLACES == 0;
    lane.there = lane.narrow && mine < count;
    if (lane.there && target.order != nullptr) {
        columns = quantise_constant(reinterpret_cast<const int4 *>(target.order + at));
    }
    lane.columns[0] = (unsigned)columns.x;
    lane.columns[1] = (unsigned)columns.y;
    lane.columns[2] = (unsigned)columns.z;
    lane.columns[3] = (unsigned)columns.w;
    return lane;
}

/* A lane's values at its places; what is not there is 0. Reports what is not finite. Loads are all
 * on their way before the first is looked at: SOURCE has what it loads of a column, and its value.
 */
template <class SOURCE>
__device__ __forceinline__ float quantise_four(const quantise_target &target,
                                               const quantise_lane &lane, const SOURCE &source,
                                               unsigned token, float (&v)[QUANTISE_LANE_PLACES])
{
    const bool there = lane.there && token < target.tokens;
    typename SOURCE::loaded loaded[QUANTISE_LANE_PLACES] = {};
    float amax = ESPL_QUANT_LEAST_AMAX;
    if (there) {
#pragma unroll
        for (unsigned i = 0; i < QUANTISE_LANE_PLACES; i++) {
            loaded[i] = source.load(lane.columns[i]);
        }
    }
#pragma unroll
    for (unsigned i = 0; i < QUANTISE_LANE_PLACES; i++) {
        v[i] = there ? source.value(loaded[i], lane.columns[i], i) : 0.0F;
        if (!isfinite(v[i])) {
            atomicMin(target.nonfinite, (unsigned long long)token * target.in + lane.columns[i]);
        }
        amax = fmaxf(amax, fabsf(v[i]));
    }
    return warp_max(amax);
}

/* A lane's four codes of a group, as quantise_group() puts them. sum: of all codes of the step. */
__device__ __forceinline__ void quantise_put_codes(const quantise_target &target, uint8_t *tile,
                                                   unsigned in_tile, unsigned group, float scale,
                                                   unsigned packed, int sum)
{
    constexpr int BIAS = 8 << SPMM_X_SHIFT;
    const unsigned lane = threadIdx.x % REDUCE_WARP;
    const unsigned at = group * target.layout.group;
    const unsigned end = group + 1 == target.groups ? target.layout.steps * target.layout.step
                                                    : at + target.layout.group;
    const unsigned step_lanes = target.layout.step / QUANTISE_LANE_PLACES;
    uint32_t *words = reinterpret_cast<uint32_t *>(tile);
    float *entries =
        reinterpret_cast<float *>(tile + target.layout.scales_at) + in_tile / 2 * 4 + in_tile % 2;
    /* A word is eight places: the even lane's four in the low halves of bytes. */
    const unsigned other = __shfl_xor_sync(0xFFFFFFFFu, packed, 1);
    for (unsigned offset = 1; offset < step_lanes; offset *= 2) {
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
    }
#pragma unroll 1
    for (unsigned column = at + lane * QUANTISE_LANE_PLACES; column < end;
         column += QUANTISE_NARROW) {
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

/* A lane's four outliers, as quantise_outliers() puts them. */
__device__ __forceinline__ void quantise_put_outliers(const quantise_target &target, uint8_t *tile,
                                                      unsigned in_tile, float scale,
                                                      unsigned packed)
{
    const unsigned lane = threadIdx.x % REDUCE_WARP;
    const unsigned mine = lane * QUANTISE_LANE_PLACES;
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

/* A narrow part of a token by a warp: the bytes of quantise_part(). */
template <class SOURCE>
__device__ __forceinline__ void
quantise_narrow_part(const quantise_target &target, const quantise_lane &lane, const SOURCE &source,
                     unsigned token, unsigned part)
{
    constexpr float QMAX = 7.0F;
    constexpr float QMAX_OUTLIERS = 127.0F;
    const bool is_group = part < target.groups;
    const bool there = lane.there && token < target.tokens;
    const float qmax = is_group ? QMAX : QMAX_OUTLIERS;
    const unsigned in_tile = token % SPMM_COLUMNS;
    const unsigned mask = is_group ? 15u : 255u;
    uint8_t *tile = target.codes + (size_t)(token / SPMM_COLUMNS) * target.layout.tile_bytes;
    float v[QUANTISE_LANE_PLACES];
    const float amax = quantise_four(target, lane, source, token, v);
    const float scale = token < target.tokens
                            ? __fdiv_rn(is_group ? __fmul_rn(target.clip, amax) : amax, qmax)
                            : 0.0F;
    const float inverse = __frcp_rn(scale);
    unsigned packed = 0;
    int sum = 0;
#pragma unroll
    for (unsigned i = 0; i < QUANTISE_LANE_PLACES; i++) {
        const int code = there ? quantise_code(v[i], scale, inverse, qmax) : 0;
        packed |= ((unsigned)code & mask) << (8 * i);
        sum += code;
    }
    if (is_group) {
        quantise_put_codes(target, tile, in_tile, part, scale, packed, sum);
    } else {
        quantise_put_outliers(target, tile, in_tile, scale, packed);
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

/* The same by a warp. lane: quantise_lane_of() the part. */
template <class SOURCE>
__device__ __forceinline__ void quantise_warp_part(const quantise_target &target,
                                                   const quantise_lane &lane, const SOURCE &source,
                                                   unsigned token, unsigned part, int *step_sums)
{
    if (lane.narrow) {
        quantise_narrow_part(target, lane, source, token, part);
    } else {
        quantise_part(target, quantise_warp{}, source, token, part, step_sums);
    }
}

#endif
#endif
