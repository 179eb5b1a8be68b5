/* Linears of a model as the ops on codes describe them. */
#ifndef ESPL_EVAL_QUANT_SHAPE_H
#define ESPL_EVAL_QUANT_SHAPE_H

#include "espalier/kernels.h"
#include "model/quantised.h"

static inline struct espl_quant_shape espl_quant_shape_of(const struct espl_quant_linear *linear,
                                                          size_t tokens, unsigned activation_bits)
{
    return (struct espl_quant_shape){
        .tokens = tokens,
        .in = linear->in,
        .out = linear->out,
        .group_size = linear->group_size,
        .outliers = linear->outliers,
        .rows_per_scale = linear->rows_per_scale,
        .weight_bits = linear->weight_bits,
        .activation_bits = activation_bits,
    };
}

#endif
