/* The reference ops, each in a ref_*.c file; contracts: the table in espalier/kernels.h. */
#ifndef ESPL_KERNELS_REF_OPS_H
#define ESPL_KERNELS_REF_OPS_H

#include "espalier/kernels.h"

enum espl_status espl_ref_gemm_f32(struct espl_backend *backend,
                                   const struct espl_gemm_shape *shape, const float *x,
                                   const float *w, const float *bias, float *y,
                                   struct espl_error *err);
enum espl_status espl_ref_fused_linear(struct espl_backend *backend,
                                       const struct espl_gemm_shape *shape,
                                       enum espl_epilogue epilogue, const float *x, const float *w,
                                       const float *bias, float *y, struct espl_error *err);
enum espl_status espl_ref_rmsnorm(struct espl_backend *backend, size_t tokens, size_t width,
                                  const float *x, const float *gain, float eps, float *y,
                                  struct espl_error *err);
enum espl_status espl_ref_layernorm(struct espl_backend *backend, size_t tokens, size_t width,
                                    const float *x, const float *gain, const float *bias, float eps,
                                    float *y, struct espl_error *err);
enum espl_status espl_ref_rope(struct espl_backend *backend, size_t windows, size_t tokens,
                               size_t past, size_t heads, size_t head_dim, const float *inv_freq,
                               float magnitude, float *x, struct espl_error *err);
enum espl_status espl_ref_attention(struct espl_backend *backend,
                                    const struct espl_attention_shape *shape, const float *q,
                                    const float *k, const float *v, float *y,
                                    struct espl_error *err);
enum espl_status espl_ref_full_attention(struct espl_backend *backend,
                                         const struct espl_full_attention_shape *shape,
                                         const struct espl_full_attention_tables *tables,
                                         const float *qkv, float *y, struct espl_error *err);
enum espl_status espl_ref_silu_mul(struct espl_backend *backend, size_t count, float *gate,
                                   const float *up, struct espl_error *err);
enum espl_status espl_ref_relu(struct espl_backend *backend, size_t count, float *x,
                               struct espl_error *err);
enum espl_status espl_ref_gelu(struct espl_backend *backend, size_t count, float *x,
                               struct espl_error *err);
enum espl_status espl_ref_add(struct espl_backend *backend, size_t count, const float *x, float *y,
                              struct espl_error *err);
enum espl_status espl_ref_cross_entropy(struct espl_backend *backend, size_t tokens, size_t vocab,
                                        const float *logits, const int32_t *targets, double *nll,
                                        struct espl_error *err);
enum espl_status espl_ref_kl_divergence(struct espl_backend *backend, size_t tokens, size_t vocab,
                                        const float *logits_p, const float *logits_q, double *kl,
                                        struct espl_error *err);
enum espl_status espl_ref_column_sumsq(struct espl_backend *backend, size_t tokens, size_t width,
                                       const float *x, double *sums, struct espl_error *err);
enum espl_status espl_ref_wanda_score(struct espl_backend *backend,
                                      const struct espl_matrix_shape *shape, const float *w,
                                      const float *norm, float *score, struct espl_error *err);
enum espl_status espl_ref_row_mask(struct espl_backend *backend,
                                   const struct espl_matrix_shape *shape, const float *score,
                                   size_t prune, uint8_t *mask, struct espl_error *err);
enum espl_status espl_ref_nm_mask(struct espl_backend *backend,
                                  const struct espl_matrix_shape *shape, const float *score,
                                  size_t n, size_t m, bool keep_tail, uint8_t *mask,
                                  struct espl_error *err);
enum espl_status espl_ref_apply_mask(struct espl_backend *backend,
                                     const struct espl_matrix_shape *shape, const uint8_t *mask,
                                     float *w, struct espl_error *err);
enum espl_status espl_ref_f16_to_f32(struct espl_backend *backend, size_t count, const uint16_t *x,
                                     float *y, struct espl_error *err);
enum espl_status espl_ref_bf16_to_f32(struct espl_backend *backend, size_t count, const uint16_t *x,
                                      float *y, struct espl_error *err);
enum espl_status espl_ref_find_nonfinite(struct espl_backend *backend, size_t count, const float *x,
                                         size_t *index, struct espl_error *err);
enum espl_status espl_ref_quantize_act(struct espl_backend *backend,
                                       const struct espl_quant_shape *shape, const float *x,
                                       const int32_t *order, float clip,
                                       const struct espl_quant_activations *a,
                                       struct espl_error *err);
enum espl_status espl_ref_gemm_w4a4(struct espl_backend *backend,
                                    const struct espl_quant_shape *shape,
                                    const struct espl_quant_activations *a,
                                    const struct espl_quant_weights *w, float *y,
                                    struct espl_error *err);
enum espl_status espl_ref_quantize_kv(struct espl_backend *backend, size_t tokens, size_t heads,
                                      size_t head_dim, unsigned bits, float clip, float *x,
                                      struct espl_error *err);
enum espl_status espl_ref_spmm_iebme(struct espl_backend *backend,
                                     const struct espl_quant_shape *shape,
                                     const struct espl_quant_activations *a,
                                     const struct espl_iebme_weights *w, float *y,
                                     struct espl_error *err);
enum espl_status espl_ref_spmm_nm_int8(struct espl_backend *backend, const struct espl_nm_matrix *w,
                                       const int8_t *x, size_t tokens,
                                       const struct espl_nm_epilogue *epilogue, void *y,
                                       struct espl_error *err);

#endif
