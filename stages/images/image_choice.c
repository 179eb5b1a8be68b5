#include "stages/images/image_choice.h"

#include "core/rng.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NAMED_SKIPPED = 8 }; /* skipped pictures that the log names */

/* Fisher and Yates; the stream has no part in the job's seed. */
static void shuffle(uint64_t *indices, uint64_t count, uint64_t seed)
{
    struct espl_rng rng = espl_rng_stream(seed, "images", 0);
    for (uint64_t i = count; i > 1; i--) {
        const uint64_t other = espl_rng_below(&rng, i);
        const uint64_t kept = indices[i - 1];
        indices[i - 1] = indices[other];
        indices[other] = kept;
    }
}

enum espl_status espl_image_choice_make(const struct espl_image_params *params, uint64_t available,
                                        struct espl_image_choice *choice, struct espl_error *err)
{
    const uint64_t first = (uint64_t)params->first;
    const uint64_t wanted = (uint64_t)params->count;
    memset(choice, 0, sizeof *choice);
    if (first >= available || wanted > available - first) {
        (void)espl_fail(err, ESPL_E_JOB,
                        "pictures %" PRIu64 " to %" PRIu64 " are asked for, but there are %" PRIu64,
                        first, first + (wanted > 0 ? wanted - 1 : 0), available);
        return espl_blame(err, first >= available ? "param:first" : "param:count");
    }
    uint64_t *all = calloc((size_t)available, sizeof *all);
    if (all == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for %" PRIu64 " pictures", available);
    }
    for (uint64_t i = 0; i < available; i++) {
        all[i] = i;
    }
    if (params->order == ESPL_IMAGE_ORDER_SHUFFLED) {
        shuffle(all, available, (uint64_t)params->seed);
    }
    choice->count = wanted > 0 ? wanted : available - first;
    memmove(all, all + first, (size_t)choice->count * sizeof *all);
    choice->indices = all;
    return ESPL_OK;
}

enum espl_status espl_image_choice_drop_unreadable(struct espl_stage_ctx *ctx,
                                                   const struct espl_image_source *source,
                                                   const struct espl_picture_fit *fit,
                                                   uint8_t *pixels,
                                                   struct espl_image_choice *choice,
                                                   struct espl_error *err)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < choice->count; i++) {
        struct espl_error why = {0};
        if (espl_ctx_cancelled(ctx)) {
            return espl_ctx_stop(ctx, err);
        }
        const enum espl_status status =
            espl_image_source_fit(source, choice->indices[i], fit, pixels, &why);
        if (status == ESPL_OK) {
            choice->indices[kept++] = choice->indices[i];
        } else if (status != ESPL_E_CORRUPT && status != ESPL_E_UNSUPPORTED) {
            return espl_fail(err, status, "%s", why.message);
        } else if (choice->skipped++ < NAMED_SKIPPED) {
            espl_log(espl_ctx_log(ctx), ESPL_LOG_WARN, "left out: %s", why.message);
        }
        espl_ctx_progress(ctx, i + 1, choice->count, "image checked");
    }
    choice->count = kept;
    if (choice->skipped > 0) {
        espl_log(espl_ctx_log(ctx), ESPL_LOG_WARN,
                 "%" PRIu64 " pictures left out, %" PRIu64 " kept", choice->skipped, kept);
    }
    return kept > 0 ? ESPL_OK
                    : espl_fail(err, ESPL_E_CORRUPT, "none of the pictures of '%s' can be read",
                                source->path);
}

void espl_image_choice_free(struct espl_image_choice *choice)
{
    free(choice->indices);
    memset(choice, 0, sizeof *choice);
}
