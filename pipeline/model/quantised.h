/* Quantised linears of a model.quant/1, model.iebme/1 or model.nm/1 artifact: integer codes,
 * scales, INT8 outlier channels and the orders their columns stand in [Atom, sections 4.1 and 4.2;
 * docs/quantisation.md].
 *
 * Stored at /layers/NNN/<module>/: codes (packed, core/codes.h), scales, outlier_codes,
 * outlier_scales, mask, bias. Stored at /layers/NNN/: order_attention_in, order_attention_out,
 * order_mlp_in, order_mlp_mid. An order names the original column at each place. The rows of the
 * linears that feed the last linear of a block (gate and up, or fc1 with its bias) stand in the
 * order of that linear's columns when all of them are quantised, so that its input needs no gather.
 */
#ifndef ESPL_MODEL_QUANTISED_H
#define ESPL_MODEL_QUANTISED_H

#include "espalier/iebme.h"
#include "model/model.h"

struct espl_nm_matrix; /* espalier/nm_pack.h */

enum { ESPL_QUANT_MAX_WIDTHS = 8, ESPL_QUANT_FLOAT_BITS = 16, ESPL_QUANT_OUTLIER_BITS = 8 };

/** Places of a block where a linear's input is quantised; each has one order. */
enum espl_quant_site {
    ESPL_QUANT_ATTENTION_IN,  /* q, k, v */
    ESPL_QUANT_ATTENTION_OUT, /* o */
    ESPL_QUANT_MLP_IN,        /* gate, up; fc1 */
    ESPL_QUANT_MLP_MID,       /* down; fc2 */
    ESPL_QUANT_SITES
};
/** "order_attention_in", ...: name of the dataset. */
const char *espl_quant_order_name(enum espl_quant_site site);
/** Site of a block linear. */
enum espl_quant_site espl_quant_site_of(enum espl_role role);
/** Linears that read the input at a site of this architecture; ends with ESPL_ROLE_NONE. */
const enum espl_role *espl_quant_site_roles(const struct espl_model_config *config,
                                            enum espl_quant_site site);

/** Sizes for linears with this many input columns. */
struct espl_quant_width {
    size_t columns;
    size_t outliers;   /* last columns of the order, INT8 */
    size_t group_size; /* 0 = one scale a row */
};

/** What all quantised linears of a model share. */
struct espl_quant_scheme {
    unsigned weight_bits;     /* 2..8 */
    unsigned activation_bits; /* 4..8; 16 = float */
    unsigned kv_bits;         /* 4..8; 16 = float */
    size_t rows_per_scale;    /* 1 or 2 */
    double weight_clip;
    double activation_clip;
    double kv_clip;
    bool gptq;       /* false: round to nearest */
    bool full_scale; /* Atom's GPTQ formula; false: its round-to-nearest formula */
    bool reordered;  /* columns by ascending second moment of their input */
    struct espl_quant_width widths[ESPL_QUANT_MAX_WIDTHS];
    size_t width_count;
};

/** Sizes for a width; NULL when the scheme has none. */
const struct espl_quant_width *espl_quant_scheme_width(const struct espl_quant_scheme *scheme,
                                                       size_t columns);
/** The "quantisation" object of a description. New reference, NULL when out of memory. */
json_t *espl_quant_scheme_to_json(const struct espl_quant_scheme *scheme);
/** Errors: CORRUPT naming the member that is missing or out of range. */
enum espl_status espl_quant_scheme_from_json(const json_t *json, struct espl_quant_scheme *scheme,
                                             struct espl_error *err);

/** One quantised linear; owns its arrays. */
struct espl_quant_linear {
    size_t out, in;
    size_t normal; /* in - outliers */
    size_t outliers;
    size_t group_size; /* resolved: never 0 */
    size_t groups;
    size_t rows_per_scale;
    unsigned weight_bits;
    uint8_t *codes; /* (out, espl_codes_stride(normal, weight_bits)); NULL when encoded */
    struct espl_iebme_matrix *encoded; /* (out, normal) instead of codes: model/iebme_linear.h */
    struct espl_nm_matrix *nm;         /* (out, in) instead of codes: model/nm_linear.h */
    float *scales;                     /* (ceil(out / rows_per_scale), groups) */
    int8_t *outlier_codes;             /* (out, outliers); NULL without */
    float *outlier_scales;             /* (out); NULL without */
    uint8_t *mask;      /* (out, ceil(in / 8)) kept weights; NULL: none, or not asked for */
    float *bias;        /* (out), rows as stored here; NULL without */
    int32_t *order;     /* (in) original column at each place; NULL = as they are */
    int32_t *row_order; /* (out) original row at each place; NULL = as they are */
    bool gathered; /* the input already stands in `order`: the linears before have permuted rows */
};

void espl_quant_linear_free(struct espl_quant_linear *linear);
/** Sizes of a linear with `out` rows; no arrays. */
struct espl_quant_linear espl_quant_linear_sizes(const struct espl_quant_scheme *scheme,
                                                 const struct espl_quant_width *width, size_t out);
/** Reads the linear `role` of block `layer`; encoded codes are decoded. with_mask: the mask too.
 *  *linear: freed by the caller, empty after an error. Errors: NOTFOUND (not quantised), CORRUPT
 * (sizes that do not fit, an order that is no permutation, a scale that is not positive and
 * finite), NOMEM, IO. */
enum espl_status espl_quant_linear_read(struct espl_model *model, int64_t layer,
                                        enum espl_role role, bool with_mask,
                                        struct espl_quant_linear *linear, struct espl_error *err);
/** As espl_quant_linear_read(), from datasets that are not in `model` but in `artifact` (a unit of
 *  a stage that quantises `model`); biases that were not permuted come from the model. */
enum espl_status espl_quant_linear_read_from(struct espl_artifact *artifact,
                                             struct espl_model *model,
                                             const struct espl_quant_scheme *scheme, int64_t layer,
                                             enum espl_role role, bool with_mask,
                                             struct espl_quant_linear *linear,
                                             struct espl_error *err);
/** As espl_quant_linear_read() without mask, but an encoded linear keeps its form: linear->encoded
 *  or linear->nm is set (and was validated) and linear->codes is NULL. A linear that is not encoded
 *  comes with its packed codes. */
enum espl_status espl_quant_linear_read_stored(struct espl_model *model, int64_t layer,
                                               enum espl_role role,
                                               struct espl_quant_linear *linear,
                                               struct espl_error *err);
/** Writes the datasets of a linear, whose weight is `weight`, to an output or unit: codes, or their
 *  encoded form. The bias is written when row_order is there, unless the codes are encoded (such a
 *  model holds it in original order). Orders are written by espl_quant_order_write(). */
enum espl_status espl_quant_linear_write(struct espl_artifact *artifact,
                                         const struct espl_tensor_spec *weight,
                                         const struct espl_quant_linear *linear,
                                         struct espl_error *err);
enum espl_status espl_quant_order_write(struct espl_artifact *artifact, int64_t layer,
                                        enum espl_quant_site site, const int32_t *order,
                                        size_t count, struct espl_error *err);
/** dst (rows, in): rows [row, row + rows) in original row and column order, scale * code in
 * float32, from codes (not encoded). Errors: NOMEM. */
enum espl_status espl_quant_linear_dequantise(const struct espl_quant_linear *linear, size_t row,
                                              size_t rows, float *dst, struct espl_error *err);
/** Mask bits of these rows in original row and column order; all ones without a mask. */
void espl_quant_linear_original_mask(const struct espl_quant_linear *linear, size_t row,
                                     size_t rows, uint8_t *mask);
/** Bytes of codes, packed or encoded as they are here, scales, outliers and outlier scales. */
uint64_t espl_quant_linear_bytes(const struct espl_quant_linear *linear);
/** Of these, what stays beside the codes in every format: scales, outliers and their scales. */
uint64_t espl_quant_linear_side_bytes(const struct espl_quant_linear *linear);

/** Scheme of a quantised or encoded model; NULL for others. */
const struct espl_quant_scheme *espl_model_quant_scheme(const struct espl_model *model);
/** Is this weight stored as integer codes, packed or encoded? */
bool espl_model_is_quantised(const struct espl_model *model, const struct espl_tensor_spec *spec);
/** Are its codes encoded (model.iebme/1, model.nm/1)? */
bool espl_model_is_encoded(const struct espl_model *model);
/** Starts an encoded model, which stands alone: description of `base` with `encoding` and
 *  `quantisation` (both borrowed; quantisation NULL = that of the base) and the content hash of
 * what was encoded. */
enum espl_status espl_model_begin_encoded(struct espl_artifact *output,
                                          const struct espl_model *base, const json_t *encoding,
                                          const json_t *quantisation, struct espl_error *err);
/** Copies a tensor that is not quantised, masks applied, to its own path in an output or unit. */
enum espl_status espl_model_copy_tensor(struct espl_artifact *output, struct espl_model *model,
                                        const struct espl_tensor_spec *spec,
                                        struct espl_error *err);
/** Starts a quantised model over `base`: description (with "quantisation" from `quantisation` and,
 *  when the base has one, its "pruning"; both borrowed) and attributes. */
enum espl_status espl_model_begin_quantised(struct espl_artifact *output,
                                            const struct espl_model *base,
                                            const json_t *quantisation, struct espl_error *err);

#endif
