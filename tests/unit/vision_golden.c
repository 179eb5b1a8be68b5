#include "unit/vision_golden.h"

#include "core/fs.h"
#include "datasets/image_idx.h"
#include "datasets/image_list.h"
#include "datasets/image_resize.h"
#include "stages/nm_supernet/nm_rank.h"
#include "unit/golden_data.h"
#include "unit/model_fixture.h"

#include "support/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 50, LEVELS = 8, QUICK = 500, STEP = 20, MOST_LINEARS = 4 };

/* ---- pictures ---- */

static bool read_fashion(struct vision_golden *golden, bool all)
{
    static const char debian[] = "/usr/share/datasets/fashion-mnist/t10k";
    static const char sample[] = ESPL_SOURCE_DIR "/datasets/samples/fashion-mnist/t2k";
    char path[4096];
    char *bytes = NULL;
    struct espl_idx idx;
    (void)snprintf(path, sizeof path, "%s-images-idx3-ubyte.gz", all ? debian : sample);
    if (!espl_fs_exists(path)) {
        return false;
    }
    assert_int_equal(espl_idx_read(path, 1 << 26, &bytes, &idx, NULL), ESPL_OK);
    golden->set.count = all ? idx.shape[0] : QUICK;
    golden->set.height = idx.shape[1];
    golden->set.width = idx.shape[2];
    golden->set.channels = 1;
    const size_t count = (size_t)golden->set.count * espl_image_set_bytes(&golden->set);
    golden->pixels = malloc(count);
    assert_non_null(golden->pixels);
    memcpy(golden->pixels, idx.values, count);
    free(bytes);
    (void)snprintf(path, sizeof path, "%s-labels-idx1-ubyte.gz", all ? debian : sample);
    assert_int_equal(espl_idx_read(path, 1 << 20, &bytes, &idx, NULL), ESPL_OK);
    golden->labels = calloc((size_t)golden->set.count, sizeof *golden->labels);
    assert_non_null(golden->labels);
    for (size_t i = 0; i < golden->set.count; i++) {
        golden->labels[i] = idx.values[i];
    }
    free(bytes);
    return true;
}

static bool read_cifar(struct vision_golden *golden, bool all)
{
    const struct espl_archive_limits limits = {1 << 20, 1 << 20, (uint64_t)1 << 30};
    const struct espl_picture_fit fit = {32, 32, 3, ESPL_FILTER_BICUBIC};
    struct espl_image_list *list = NULL;
    char path[GOLDEN_PATH];
    if (!golden_text_path("cifar10-images.tar.xz", path)) {
        return false;
    }
    assert_int_equal(
        espl_image_list_open(path, "cifar10-images/test", &limits, 1 << 28, &list, NULL), ESPL_OK);
    const size_t step = all ? 1 : STEP;
    golden->set = (struct espl_image_set){
        .count = espl_image_list_count(list) / step, .height = 32, .width = 32, .channels = 3};
    golden->pixels = malloc((size_t)golden->set.count * espl_image_set_bytes(&golden->set));
    golden->labels = calloc((size_t)golden->set.count, sizeof *golden->labels);
    assert_non_null(golden->pixels);
    assert_non_null(golden->labels);
    for (size_t i = 0; i < golden->set.count; i++) {
        struct espl_image_file file;
        struct espl_picture picture;
        assert_int_equal(espl_image_list_read(list, i * step, &file, NULL), ESPL_OK);
        assert_int_equal(espl_picture_decode(file.bytes, file.len, &picture, NULL), ESPL_OK);
        assert_int_equal(espl_picture_fit(&picture, &fit,
                                          golden->pixels + i * espl_image_set_bytes(&golden->set),
                                          NULL),
                         ESPL_OK);
        golden->labels[i] = espl_image_list_class(list, i * step);
        espl_picture_free(&picture);
        free(file.owned);
    }
    espl_image_list_close(list);
    return true;
}

bool vision_golden_open(const char *name, bool all, struct vision_golden *golden)
{
    char path[ESPL_PATH_MAX];
    memset(golden, 0, sizeof *golden);
    if (!golden_model_dir(name, golden->model)) {
        return false;
    }
    const bool there =
        strncmp(name, "deit-fmnist", 11) == 0 ? read_fashion(golden, all) : read_cifar(golden, all);
    if (!there) {
        return false;
    }
    golden->set.classes = 10;
    fixture_make_dir(golden->dir);
    vision_fixture_open(golden->model, fixture_join(path, golden->dir, "model.h5"),
                        &golden->fixture, NULL);
    assert_int_equal(espl_backend_open("cpu", 0, &golden->backend, NULL), ESPL_OK);
    return true;
}

void vision_golden_close(struct vision_golden *golden)
{
    if (golden->backend != NULL) {
        espl_backend_close(golden->backend);
        vision_fixture_close(&golden->fixture);
        (void)espl_fs_remove_tree(golden->dir, NULL);
    }
    free(golden->pixels);
    free(golden->labels);
}

/* ---- logits ---- */

void vision_golden_check_logits(struct vision_golden *golden)
{
    struct espl_vision *vision = NULL;
    float logits[4 * 10];
    double *expected = vision_fixture_logits(golden->model, "logits_first4", 4, 10);
    assert_int_equal(
        espl_vision_create(golden->fixture.model, golden->backend, 4, NULL, &vision, NULL),
        ESPL_OK);
    assert_int_equal(espl_vision_logits(vision, NULL, golden->pixels, 4, logits, NULL), ESPL_OK);
    for (size_t i = 0; i < 40; i++) {
        if (!(fabs((double)logits[i] - expected[i]) <= 2e-3)) {
            fail_msg("%s: logit %zu is %.6g, expected %.6g", golden->model, i, (double)logits[i],
                     expected[i]);
        }
    }
    free(expected);
    espl_vision_destroy(vision);
}

/* ---- masks ---- */

static const enum espl_role linears[MOST_LINEARS] = {ESPL_ROLE_QKV, ESPL_ROLE_O, ESPL_ROLE_FC1,
                                                     ESPL_ROLE_FC2};

static struct espl_vision_replacement *mask_all(const struct espl_vision *vision, unsigned level)
{
    const uint64_t blocks = espl_vision_blocks(vision);
    struct espl_vision_replacement *replace = calloc((size_t)blocks, sizeof *replace);
    assert_non_null(replace);
    for (uint64_t i = 0; i < blocks * MOST_LINEARS; i++) {
        struct espl_matrix_shape shape;
        const enum espl_role role = linears[i % MOST_LINEARS];
        const float *own = espl_vision_weight(vision, i / MOST_LINEARS, role, &shape);
        uint8_t *ranks = malloc(shape.rows * shape.cols);
        float *masked = malloc(shape.rows * shape.cols * sizeof *masked);
        assert_non_null(ranks);
        assert_non_null(masked);
        espl_nm_rank(&shape, LEVELS, 1, own, ranks);
        espl_nm_apply(&shape, 1, ranks, level, own, masked);
        replace[i / MOST_LINEARS].weight[role] = masked;
        free(ranks);
    }
    return replace;
}

static void free_masks(struct espl_vision_replacement *replace, uint64_t blocks)
{
    for (uint64_t i = 0; i < blocks * MOST_LINEARS; i++) {
        free((void *)replace[i / MOST_LINEARS].weight[linears[i % MOST_LINEARS]]);
    }
    free(replace);
}

struct espl_vision_tally vision_golden_measure(struct vision_golden *golden, unsigned level,
                                               float *base)
{
    struct espl_vision *vision = NULL;
    struct espl_vision_tally tally = {0};
    float logits[BATCH * 10];
    assert_int_equal(
        espl_vision_create(golden->fixture.model, golden->backend, BATCH, NULL, &vision, NULL),
        ESPL_OK);
    struct espl_vision_replacement *replace = level < LEVELS ? mask_all(vision, level) : NULL;
    for (size_t i = 0; i < golden->set.count; i += BATCH) {
        float *kept = base != NULL ? base + i * 10 : NULL;
        const size_t left = (size_t)golden->set.count - i;
        const size_t images = left < BATCH ? left : BATCH;
        assert_int_equal(espl_vision_logits(vision, replace,
                                            golden->pixels + i * espl_image_set_bytes(&golden->set),
                                            images, logits, NULL),
                         ESPL_OK);
        if (kept != NULL && level == LEVELS) {
            memcpy(kept, logits, images * 10 * sizeof *kept);
        }
        assert_int_equal(espl_vision_tally_add(&tally, golden->backend, logits, kept,
                                               golden->labels + i, images, 10, NULL),
                         ESPL_OK);
    }
    if (replace != NULL) {
        free_masks(replace, espl_vision_blocks(vision));
    }
    espl_vision_destroy(vision);
    return tally;
}
