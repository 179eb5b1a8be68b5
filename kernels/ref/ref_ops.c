/* The reference backend's table. */
#include "kernels/ref/ref_ops.h"

#include "kernels/backend_internal.h"

const struct espl_ops espl_ref_ops = {
    .name = "ref",
    .gemm_f32 = espl_ref_gemm_f32,
    .fused_linear = espl_ref_fused_linear,
    .rmsnorm = espl_ref_rmsnorm,
    .layernorm = espl_ref_layernorm,
    .rope = espl_ref_rope,
    .attention = espl_ref_attention,
    .full_attention = espl_ref_full_attention,
    .silu_mul = espl_ref_silu_mul,
    .relu = espl_ref_relu,
    .gelu = espl_ref_gelu,
    .add = espl_ref_add,
    .cross_entropy = espl_ref_cross_entropy,
    .kl_divergence = espl_ref_kl_divergence,
    .column_sumsq = espl_ref_column_sumsq,
    .wanda_score = espl_ref_wanda_score,
    .row_mask = espl_ref_row_mask,
    .nm_mask = espl_ref_nm_mask,
    .apply_mask = espl_ref_apply_mask,
    .f16_to_f32 = espl_ref_f16_to_f32,
    .bf16_to_f32 = espl_ref_bf16_to_f32,
    .find_nonfinite = espl_ref_find_nonfinite,
    .quantize_act = espl_ref_quantize_act,
    .gemm_w4a4 = espl_ref_gemm_w4a4,
    .quantize_kv = espl_ref_quantize_kv,
    .spmm_iebme = espl_ref_spmm_iebme,
    .spmm_nm_int8 = espl_ref_spmm_nm_int8,
};
