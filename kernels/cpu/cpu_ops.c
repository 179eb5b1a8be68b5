/* The CPU backend's table. */
#include "kernels/cpu/cpu_ops.h"

#include "kernels/backend_internal.h"

const struct espl_ops espl_cpu_ops = {
    .name = "cpu",
    .gemm_f32 = espl_cpu_gemm_f32,
    .fused_linear = espl_cpu_fused_linear,
    .rmsnorm = espl_cpu_rmsnorm,
    .layernorm = espl_cpu_layernorm,
    .rope = espl_cpu_rope,
    .attention = espl_cpu_attention,
    .full_attention = espl_cpu_full_attention,
    .silu_mul = espl_cpu_silu_mul,
    .relu = espl_cpu_relu,
    .gelu = espl_cpu_gelu,
    .add = espl_cpu_add,
    .cross_entropy = espl_cpu_cross_entropy,
    .kl_divergence = espl_cpu_kl_divergence,
    .column_sumsq = espl_cpu_column_sumsq,
    .wanda_score = espl_cpu_wanda_score,
    .row_mask = espl_cpu_row_mask,
    .nm_mask = espl_cpu_nm_mask,
    .apply_mask = espl_cpu_apply_mask,
    .f16_to_f32 = espl_cpu_f16_to_f32,
    .bf16_to_f32 = espl_cpu_bf16_to_f32,
    .find_nonfinite = espl_cpu_find_nonfinite,
    .quantize_act = espl_cpu_quantize_act,
    .gemm_w4a4 = espl_cpu_gemm_w4a4,
    .quantize_kv = espl_cpu_quantize_kv,
    .spmm_iebme = espl_cpu_spmm_iebme,
    .spmm_nm_int8 = espl_cpu_spmm_nm_int8,
};
