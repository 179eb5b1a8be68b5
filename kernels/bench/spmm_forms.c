#include "kernels/bench/spmm_forms.h"

#include "kernels/bench/spmm_weights.h"

#include <stdlib.h>
#include <string.h>

enum { SEED = 5 };

static enum espl_status upload_dense(const struct espl_spmm_form *form,
                                     const struct espl_spmm_weights *weights, unsigned bits,
                                     const int8_t *codes, struct espl_cuda_matrix **out,
                                     struct espl_error *err)
{
    struct espl_dense_device layout = {.data = NULL};
    if (form->layer) {
        return espl_spmm_layer_upload(weights->layer, codes, weights->cols, bits, ESPL_IEBME_DENSE,
                                      out, err);
    }
    enum espl_status status =
        espl_spmm_weights_dense(codes, weights->rows, weights->cols, bits, &layout, err);
    if (status == ESPL_OK) {
        status = espl_cuda_matrix_create_dense(&layout, out, err);
    }
    espl_dense_device_free(&layout);
    return status;
}

/* A rival: as many codes of fewer bits, none of them 0. */
static enum espl_status upload_rival(const struct espl_spmm_form *form,
                                     const struct espl_spmm_weights *weights, unsigned bits,
                                     struct espl_cuda_matrix **out, struct espl_error *err)
{
    int8_t *codes = NULL;
    enum espl_status status =
        espl_spmm_weights_codes(weights->rows, weights->cols, bits, 0.0, SEED, &codes, err);
    if (status == ESPL_OK) {
        status = upload_dense(form, weights, bits, codes, out, err);
    }
    free(codes);
    return status;
}

static enum espl_status upload_sparse(const struct espl_spmm_form *form,
                                      const struct espl_spmm_weights *weights,
                                      enum espl_iebme_areas unit, struct espl_cuda_matrix **out,
                                      struct espl_error *err)
{
    struct espl_iebme_device layout = {.data = NULL};
    if (form->layer) {
        return espl_spmm_layer_upload(weights->layer, weights->codes, weights->cols, weights->bits,
                                      unit, out, err);
    }
    enum espl_status status =
        espl_spmm_weights_iebme(weights->codes, weights->rows, weights->cols, unit, &layout, err);
    if (status == ESPL_OK) {
        status = espl_cuda_matrix_create_iebme(&layout, out, err);
    }
    espl_iebme_device_free(&layout);
    return status;
}

static enum espl_status make_first(struct espl_spmm_form *form,
                                   const struct espl_spmm_weights *weights, struct espl_error *err)
{
    enum espl_iebme_areas unit = ESPL_IEBME_1X1;
    form->sparse = false;
    form->lossless = true;
    if (strcmp(form->name, "dense") == 0) {
        return upload_dense(form, weights, weights->bits, weights->codes, &form->copies[0], err);
    }
    if (strcmp(form->name, "int3") == 0 || strcmp(form->name, "int2") == 0) {
        form->lossless = false;
        return upload_rival(form, weights, form->name[3] == '3' ? 3 : 2, &form->copies[0], err);
    }
    if (!espl_iebme_areas_parse(form->name, &unit)) {
        return espl_fail(err, ESPL_E_USAGE, "there is no form '%s' of weights", form->name);
    }
    form->sparse = true;
    return upload_sparse(form, weights, unit, &form->copies[0], err);
}

enum espl_status espl_spmm_form_make(struct espl_spmm_form *form, const char *name, bool layer,
                                     const struct espl_spmm_weights *weights, size_t cold_bytes,
                                     struct espl_error *err)
{
    form->name = name;
    form->layer = layer;
    enum espl_status status = make_first(form, weights, err);
    if (status != ESPL_OK) {
        return status;
    }
    size_t wanted = cold_bytes / (size_t)espl_cuda_matrix_bytes(form->copies[0]) + 1;
    form->cold = wanted <= ESPL_SPMM_MAX_COPIES;
    wanted = form->cold ? wanted : ESPL_SPMM_MAX_COPIES;
    for (form->count = 1; status == ESPL_OK && form->count < wanted;) {
        status = espl_cuda_matrix_clone(form->copies[0], &form->copies[form->count], err);
        form->count += status == ESPL_OK ? 1 : 0;
    }
    return status;
}

void espl_spmm_form_free(struct espl_spmm_form *form)
{
    for (size_t i = 0; i < form->count; i++) {
        espl_cuda_matrix_destroy(form->copies[i]);
    }
    form->count = 0;
}
