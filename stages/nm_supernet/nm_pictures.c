#include "stages/nm_supernet/nm_pictures.h"

#include "core/rng.h"

#include <stdlib.h>
#include <string.h>

static void shuffle(uint64_t *items, uint64_t count, struct espl_rng *rng)
{
    for (uint64_t i = count; i > 1; i--) {
        const uint64_t j = espl_rng_below(rng, i);
        const uint64_t swapped = items[i - 1];
        items[i - 1] = items[j];
        items[j] = swapped;
    }
}

enum espl_status espl_nm_pictures_open(struct espl_artifact *artifact,
                                       const struct espl_model_config *config, uint64_t pool,
                                       uint64_t seed, struct espl_nm_pictures *pictures,
                                       struct espl_error *err)
{
    memset(pictures, 0, sizeof *pictures);
    pictures->artifact = artifact;
    pictures->seed = seed;
    pictures->pool = pool;
    enum espl_status status = espl_image_set_open(artifact, &pictures->set, err);
    if (status == ESPL_OK) {
        status = espl_image_set_check(&pictures->set, config, true, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    const uint64_t count = pictures->set.count;
    if (pool < 1 || pool > count) {
        return espl_fail(err, ESPL_E_KIND,
                         "%llu pictures were asked for the search, there are %llu",
                         (unsigned long long)pool, (unsigned long long)count);
    }
    if (count <= SIZE_MAX / sizeof(uint64_t)) {
        pictures->order = malloc((size_t)count * sizeof *pictures->order);
        pictures->drawn = malloc((size_t)pool * sizeof *pictures->drawn);
    }
    if (pictures->order == NULL || pictures->drawn == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the order of %llu pictures",
                         (unsigned long long)count);
    }
    for (uint64_t i = 0; i < count; i++) {
        pictures->order[i] = i;
    }
    struct espl_rng rng = espl_rng_stream(seed, "search-pictures", 0);
    shuffle(pictures->order, count, &rng);
    memcpy(pictures->drawn, pictures->order, (size_t)pool * sizeof *pictures->drawn);
    return ESPL_OK;
}

void espl_nm_pictures_free(struct espl_nm_pictures *pictures)
{
    free(pictures->order);
    free(pictures->drawn);
    memset(pictures, 0, sizeof *pictures);
}

/* One picture at a time: they lie anywhere in the artifact. */
static enum espl_status read_listed(struct espl_nm_pictures *pictures, const uint64_t *list,
                                    size_t count, uint8_t *pixels, int32_t *labels,
                                    struct espl_error *err)
{
    const size_t bytes = espl_image_set_bytes(&pictures->set);
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        status = espl_image_set_read(pictures->artifact, &pictures->set, list[i], 1,
                                     pixels + i * bytes, labels + i, err);
    }
    return status;
}

enum espl_status espl_nm_pictures_read(struct espl_nm_pictures *pictures, uint64_t epoch,
                                       uint64_t first, size_t count, uint8_t *pixels,
                                       int32_t *labels, struct espl_error *err)
{
    if (epoch != pictures->epoch) {
        memcpy(pictures->drawn, pictures->order, (size_t)pictures->pool * sizeof *pictures->drawn);
        if (epoch != 0) {
            struct espl_rng rng = espl_rng_stream(pictures->seed, "search-pictures", epoch);
            shuffle(pictures->drawn, pictures->pool, &rng);
        }
        pictures->epoch = epoch;
    }
    return read_listed(pictures, pictures->drawn + first, count, pixels, labels, err);
}

uint64_t espl_nm_pictures_held_out(const struct espl_nm_pictures *pictures)
{
    return pictures->set.count - pictures->pool;
}

enum espl_status espl_nm_pictures_read_held_out(struct espl_nm_pictures *pictures, uint64_t first,
                                                size_t count, uint8_t *pixels, int32_t *labels,
                                                struct espl_error *err)
{
    return read_listed(pictures, pictures->order + pictures->pool + first, count, pixels, labels,
                       err);
}
