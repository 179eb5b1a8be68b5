#include "stages/calibration/hessians.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool espl_site_selected(const struct espl_model_config *config,
                        const struct espl_prune_selection *selection, uint64_t layer,
                        enum espl_quant_site site)
{
    const enum espl_role *roles = espl_quant_site_roles(config, site);
    while (*roles != ESPL_ROLE_NONE &&
           espl_prune_selection_find(selection, layer, *roles) == NULL) {
        roles++;
    }
    return *roles != ESPL_ROLE_NONE;
}

/* Sums of squares are finite exactly when all summands are: float32 squares cannot overflow a
 * double sum. So x is searched only when a sum went wrong. */
static enum espl_status fail_activation(const struct espl_chains *chains, uint64_t layer,
                                        enum espl_role role, const float *x, size_t tokens_total,
                                        size_t in, struct espl_error *err)
{
    const struct espl_tensor_spec *spec =
        espl_model_find(chains->model, (int64_t)layer, role, false);
    const size_t count = tokens_total * in;
    size_t bad = count;
    const enum espl_status status =
        espl_backend_ops(chains->backend)->find_nonfinite(chains->backend, count, x, &bad, err);
    if (status != ESPL_OK) {
        return status;
    }
    const size_t token = bad / in;
    espl_fail(err, ESPL_E_NUMERIC,
              "activation at the input of '%s' (layer %" PRIu64 ") is not finite: channel %zu, "
              "calibration window %" PRIu64 ", token %zu",
              spec != NULL ? spec->module : espl_role_name(role), layer, bad % in,
              chains->first_window + token / chains->windows->tokens,
              token % chains->windows->tokens);
    return espl_hint(err, "check the model: run 'evaluate' on the input of this stage");
}

enum espl_status espl_moments_observe(void *user, const enum espl_role *roles, size_t role_count,
                                      const float *x, size_t tokens_total, size_t in,
                                      struct espl_error *err)
{
    struct espl_moments *moments = user;
    struct espl_backend *backend = moments->chains->backend;
    const enum espl_quant_site site = espl_quant_site_of(roles[0]);
    (void)role_count;
    if (moments->sums[site] == NULL) {
        moments->sums[site] = calloc(in, sizeof(double));
        moments->widths[site] = in;
    }
    double *sums = moments->sums[site];
    if (sums == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for %zu sums", in);
    }
    const enum espl_status status =
        espl_backend_ops(backend)->column_sumsq(backend, tokens_total, in, x, sums, err);
    for (size_t channel = 0; channel < in && status == ESPL_OK; channel++) {
        if (!isfinite(sums[channel])) {
            return fail_activation(moments->chains, moments->layer, roles[0], x, tokens_total, in,
                                   err);
        }
    }
    return status;
}

void espl_moments_reset(struct espl_moments *moments, uint64_t layer)
{
    moments->layer = layer;
    for (size_t site = 0; site < ESPL_QUANT_SITES; site++) {
        if (moments->sums[site] != NULL) {
            memset(moments->sums[site], 0, moments->widths[site] * sizeof(double));
        }
    }
}

void espl_moments_free(struct espl_moments *moments)
{
    for (size_t site = 0; site < ESPL_QUANT_SITES; site++) {
        free(moments->sums[site]);
        moments->sums[site] = NULL;
    }
}

void espl_hessians_want(struct espl_hessians *hessians,
                        const struct espl_prune_selection *selection, uint64_t layer)
{
    hessians->layer = layer;
    for (size_t site = 0; site < ESPL_QUANT_SITES; site++) {
        hessians->wanted[site] = espl_site_selected(espl_model_get_config(hessians->chains->model),
                                                    selection, layer, (enum espl_quant_site)site);
    }
}

enum espl_status espl_hessians_observe(void *user, const enum espl_role *roles, size_t role_count,
                                       const float *x, size_t tokens_total, size_t in,
                                       struct espl_error *err)
{
    struct espl_hessians *hessians = user;
    const struct espl_chains *chains = hessians->chains;
    const enum espl_quant_site site = espl_quant_site_of(roles[0]);
    const size_t tokens = chains->windows->tokens;
    enum espl_status status = ESPL_OK;
    (void)role_count;
    if (!hessians->wanted[site]) {
        return ESPL_OK;
    }
    if (hessians->sites[site] == NULL) {
        status = espl_hessian_create(in, &hessians->sites[site], err);
    }
    if (status == ESPL_OK) {
        status = espl_hessian_add(hessians->sites[site], chains->backend, tokens_total / tokens,
                                  tokens, x, err);
    }
    return status == ESPL_OK ? status
                             : espl_context(err, "in the input of '%s' of layer %" PRIu64,
                                            espl_role_name(roles[0]), hessians->layer);
}

void espl_hessians_free(struct espl_hessians *hessians)
{
    for (size_t site = 0; site < ESPL_QUANT_SITES; site++) {
        espl_hessian_destroy(hessians->sites[site]);
        hessians->sites[site] = NULL;
    }
}

uint64_t espl_hessians_bytes(const struct espl_prune_selection *selection)
{
    uint64_t widths[ESPL_QUANT_SITES] = {0};
    uint64_t bytes = 0;
    uint64_t widest = 0;
    for (size_t i = 0; i < selection->count; i++) {
        const struct espl_prune_linear *linear = &selection->linears[i];
        if (linear->selected) {
            widths[espl_quant_site_of(linear->spec.role)] = linear->spec.shape[1];
        }
    }
    for (size_t site = 0; site < ESPL_QUANT_SITES; site++) {
        bytes += widths[site] > 0 ? espl_hessian_bytes((size_t)widths[site]) : 0;
        widest = widths[site] > widest ? widths[site] : widest;
    }
    return bytes + 3 * widest * widest * sizeof(double);
}
