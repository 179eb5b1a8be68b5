#include "cli/bench_images.h"

#include "core/rng.h"
#include "eval/vision_quality.h"

#include <string.h>

/* Every batch is drawn anew: cheap beside a forward pass, and nothing is stored. */
static enum espl_status draw(void *user, uint64_t first, uint64_t count, uint8_t *pixels,
                             int32_t *labels, struct espl_error *err)
{
    const struct espl_image_set *set = user;
    struct espl_rng rng = espl_rng_stream(0, "bench-images", first);
    (void)labels; /* the set has none */
    (void)err;
    for (size_t i = 0; i < (size_t)count * espl_image_set_bytes(set); i++) {
        pixels[i] = (uint8_t)(espl_rng_u64(&rng) & 255u);
    }
    return ESPL_OK;
}

static bool keep_going(void *user, uint64_t done, uint64_t total)
{
    const struct espl_cli *cli = user;
    (void)done;
    (void)total;
    return *cli->stop_signal == 0;
}

enum espl_status espl_bench_images(struct espl_cli *cli, struct espl_model *model,
                                   struct espl_backend *backend, uint64_t images,
                                   struct espl_perplexity *result, struct espl_error *err)
{
    const struct espl_model_config *config = espl_model_get_config(model);
    struct espl_image_set set = {.count = images,
                                 .height = config->vision.image_size,
                                 .width = config->vision.image_size,
                                 .channels = config->vision.channels};
    struct espl_vision_quality quality;
    memcpy(set.scale.mean, config->vision.mean, sizeof set.scale.mean);
    memcpy(set.scale.std, config->vision.std, sizeof set.scale.std);
    const struct espl_vision_pictures pictures = {&set, images, draw, &set};
    const enum espl_status status =
        espl_vision_measure(model, NULL, backend, &pictures, keep_going, cli, &quality, err);
    memset(result, 0, sizeof *result);
    if (status == ESPL_OK) {
        result->windows = images;
        result->tokens = images * config->max_positions;
        result->seconds = quality.seconds + quality.times.load;
        result->flop = quality.flop;
        result->times = (struct espl_forward_times){
            .load = quality.times.load,
            .embed = quality.times.embed,
            .gemm = quality.times.gemm,
            .attention = quality.times.attention,
            .norm = quality.times.norm,
            .elementwise = quality.times.elementwise,
            .head = quality.times.head,
        };
    }
    return status;
}
