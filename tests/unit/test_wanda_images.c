/* wanda-prune on image models: masks against the rule written out again, resumption, evaluation. */
#include "core/rng.h"
#include "eval/vision_images.h"
#include "stages/evaluate/evaluate_windows.h"
#include "stages/images/image_setup.h"
#include "stages/wanda_prune/wanda_setup.h"
#include "unit/prune_fixture.h"

#include "support/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct espl_stage espl_stage_images;
extern const struct espl_stage espl_stage_wanda_prune;
extern const struct espl_stage espl_stage_evaluate;

enum { IMAGES = 37, SIDE = 16, MODEL = 'a', PICTURES = 'b' }; /* not a multiple of a batch */

static const char *const star[] = {"*"};

static struct espl_wanda_params make_params(int propagate)
{
    return (struct espl_wanda_params){
        .common = {.sparsity = 0.5,
                   .pattern = {3, 8},
                   .layers = {.targets = {1, star}, .last_layer = -1}},
        .propagate = propagate,
        .max_perplexity_ratio = 1000.0,
    };
}

/* A Swin of two stages: 4 blocks, 8 and 16 wide, shifted windows of 4. */
static struct espl_model_config swin_config(void)
{
    static const char text[] =
        "{\"architecture\":\"swin\",\"model_args\":{\"img_size\":16,\"patch_size\":2,\"in_chans\":"
        "1,"
        "\"num_classes\":5,\"embed_dim\":8,\"depths\":[2,2],\"num_heads\":[1,2],\"window_size\":4,"
        "\"mlp_ratio\":2.0},\"pretrained_cfg\":{\"mean\":[0.5],\"std\":[0.25]}}";
    struct espl_model_config config;
    json_t *json = json_loads(text, 0, NULL);
    assert_int_equal(espl_model_config_from_hf(json, &config, NULL), ESPL_OK);
    json_decref(json);
    (void)snprintf(config.dtype, sizeof config.dtype, "f32");
    return config;
}

/* Random pictures in an idx file, through the images stage. */
static void make_pictures(struct prune_fixture *fixture, bool labelled)
{
    static const double mean[] = {0.5};
    static const double std[] = {0.25};
    enum { HEADER = 16 };
    static uint8_t bytes[HEADER + IMAGES * SIDE * SIDE] = {0, 0, 8, 3,    0, 0, 0, IMAGES,
                                                           0, 0, 0, SIDE, 0, 0, 0, SIDE};
    static uint8_t labels[8 + IMAGES] = {0, 0, 8, 1, 0, 0, 0, IMAGES};
    char source[ESPL_PATH_MAX];
    char label_path[ESPL_PATH_MAX];
    struct espl_rng rng = espl_rng_stream(3, "pictures", 0);
    struct espl_error err;
    for (size_t i = HEADER; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)espl_rng_below(&rng, 256);
    }
    for (size_t i = 8; i < sizeof labels; i++) {
        labels[i] = (uint8_t)(i % 5);
    }
    assert_int_equal(espl_fs_join(source, fixture->folder, "pictures-ubyte", NULL), ESPL_OK);
    assert_int_equal(espl_fs_join(label_path, fixture->folder, "labels-ubyte", NULL), ESPL_OK);
    assert_int_equal(espl_fs_write_file(source, bytes, sizeof bytes, NULL), ESPL_OK);
    assert_int_equal(espl_fs_write_file(label_path, labels, sizeof labels, NULL), ESPL_OK);
    const struct espl_image_params params = {.source = source,
                                             .labels = labelled ? label_path : NULL,
                                             .mean = {1, mean},
                                             .std = {1, std},
                                             .memory = 1 << 20};
    if (prune_run_ports(fixture, &espl_stage_images, &params, PICTURES, NULL, 0, NULL, NULL,
                        &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
}

static enum espl_status prune(struct prune_fixture *fixture, const struct espl_wanda_params *params,
                              char digit, const volatile int *stopped, struct prune_result *result,
                              struct espl_error *err)
{
    const struct prune_port ports[] = {{"model", MODEL}, {"images", PICTURES}};
    return prune_run_ports(fixture, &espl_stage_wanda_prune, params, digit, ports, 2, stopped,
                           result, err);
}

/* Sums of squares of a linear's input channels, for one block and role. */
struct sums {
    enum espl_role role;
    double values[64];
};

static enum espl_status add(void *user, uint64_t block, enum espl_role role, float *x, size_t rows,
                            size_t in, struct espl_error *err)
{
    struct sums *sums = user;
    (void)block;
    (void)err;
    for (size_t i = 0; role == sums->role && i < rows * in; i++) {
        sums->values[i % in] += (double)x[i] * (double)x[i];
    }
    return ESPL_OK;
}

/* Which of a row's window of 8 are among the three with the highest |w| norm; ties: higher column
 * stays. */
static bool is_kept(const float *row, const double *sums, size_t column)
{
    const size_t first = column / 8 * 8;
    const double own = fabs((double)row[column]) * sqrt(sums[column]);
    size_t better = 0;
    for (size_t i = first; i < first + 8; i++) {
        const double other = fabs((double)row[i]) * sqrt(sums[i]);
        better += other > own || (other == own && i > column);
    }
    return better < 3;
}

/* Dense propagation: inputs of every block are those of the model as it came. */
static void check_masks(struct prune_fixture *fixture, char digit)
{
    struct espl_artifact *artifact = NULL;
    struct espl_artifact *dense_artifact = NULL;
    struct espl_artifact *pictures = NULL;
    struct espl_model *model = NULL;
    struct espl_model *dense = NULL;
    struct espl_backend *backend = NULL;
    struct espl_vision *vision = NULL;
    char path[ESPL_PATH_MAX];
    static uint8_t pixels[IMAGES * SIDE * SIDE];
    struct espl_image_set set;
    prune_open(fixture, digit, &artifact, &model);
    prune_open(fixture, MODEL, &dense_artifact, &dense);
    prune_path(fixture, PICTURES, path);
    assert_int_equal(espl_artifact_open(path, &pictures, NULL), ESPL_OK);
    assert_int_equal(espl_image_set_open(pictures, &set, NULL), ESPL_OK);
    assert_int_equal(espl_image_set_read(pictures, &set, 0, IMAGES, pixels, NULL, NULL), ESPL_OK);
    assert_int_equal(espl_backend_open("cpu", 1, &backend, NULL), ESPL_OK);
    assert_int_equal(espl_vision_create(dense, backend, IMAGES, &set.scale, &vision, NULL),
                     ESPL_OK);
    float *hidden = malloc(IMAGES * espl_vision_values(vision, 0) * sizeof *hidden);
    float *output = malloc(IMAGES * espl_vision_values(vision, 0) * sizeof *output);
    assert_non_null(hidden);
    assert_non_null(output);
    assert_int_equal(espl_vision_embed(vision, pixels, IMAGES, hidden, NULL), ESPL_OK);
    size_t checked = 0;
    for (size_t i = 0; i < espl_model_tensor_count(model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, i);
        if (!espl_role_is_block_linear(spec->role) || spec->is_bias) {
            continue;
        }
        struct espl_matrix_shape shape;
        struct sums sums = {.role = spec->role};
        const float *w = espl_vision_weight(vision, (uint64_t)spec->layer, spec->role, &shape);
        assert_int_equal(espl_vision_embed(vision, pixels, IMAGES, hidden, NULL), ESPL_OK);
        for (uint64_t b = 0; b <= (uint64_t)spec->layer; b++) {
            assert_int_equal(espl_vision_block(vision, b, NULL, IMAGES, hidden, output,
                                               b == (uint64_t)spec->layer ? add : NULL, &sums,
                                               NULL),
                             ESPL_OK);
            memcpy(hidden, output, IMAGES * espl_vision_values(vision, b + 1) * sizeof *hidden);
        }
        uint8_t *mask = prune_read_mask(model, spec);
        for (size_t n = 0; n < shape.rows * shape.cols; n++) {
            const size_t row = n / shape.cols;
            assert_int_equal(prune_mask_bit(mask, shape.cols, row, n % shape.cols),
                             is_kept(w + row * shape.cols, sums.values, n % shape.cols));
        }
        checked++;
        free(mask);
    }
    assert_int_equal(checked, 16);
    free(hidden);
    free(output);
    espl_vision_destroy(vision);
    espl_backend_close(backend);
    espl_model_close(model);
    espl_model_close(dense);
    espl_artifact_close(artifact);
    espl_artifact_close(dense_artifact);
    espl_artifact_close(pictures);
}

static void test_masks(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    struct espl_error err;
    const struct espl_model_config config = swin_config();
    const struct espl_wanda_params params = make_params(ESPL_WANDA_PROPAGATE_DENSE);
    prune_fixture_open(&fixture);
    prune_make_model(&fixture, MODEL, &config, ESPL_DTYPE_F32, NULL);
    make_pictures(&fixture, true);
    if (prune(&fixture, &params, 'c', NULL, &result, &err) != ESPL_OK) {
        fail_msg("%s (%s)", err.message, err.context);
    }
    check_masks(&fixture, 'c');
    assert_float_equal(prune_metric(&result, "calibration_images"), IMAGES, 0);
    assert_float_equal(prune_metric(&result, "sparsity_targeted"), 0.625, 1e-12);
    assert_true(prune_metric(&result, "check_loss_base") > 0.0);
    prune_result_free(&result);
    prune_fixture_close(&fixture);
}

/* Units of an earlier run under the same key are taken as they are, and give the same bytes. */
static void test_resume(void **state)
{
    (void)state;
    const int stop = 1;
    struct prune_fixture fixture;
    struct prune_result whole;
    struct prune_result resumed;
    struct espl_error err;
    const struct espl_model_config config = swin_config();
    for (int propagate = 0; propagate < 2; propagate++) {
        const struct espl_wanda_params params = make_params(propagate);
        struct espl_wanda_params strict = params;
        prune_fixture_open(&fixture);
        prune_make_model(&fixture, MODEL, &config, ESPL_DTYPE_F32, NULL);
        make_pictures(&fixture, true);
        assert_int_equal(prune(&fixture, &params, 'c', NULL, &whole, &err), ESPL_OK);
        assert_int_equal(prune(&fixture, &params, 'd', &stop, NULL, &err), ESPL_E_CANCELLED);
        strict.max_perplexity_ratio = 1e-6; /* fails at the end, after all units */
        assert_int_equal(prune(&fixture, &strict, 'd', NULL, NULL, &err), ESPL_E_NUMERIC);
        assert_string_equal(err.blame, "param:max_perplexity_ratio");
        assert_int_equal(prune(&fixture, &params, 'd', NULL, &resumed, &err), ESPL_OK);
        assert_int_equal(resumed.resumed, 4);
        assert_string_equal(resumed.content_sha256, whole.content_sha256);
        prune_result_free(&whole);
        prune_result_free(&resumed);
        prune_fixture_close(&fixture);
    }
}

/* Without labels the check goes by what the dense model would choose, whose own loss is then that
 * of its highest class: below that of guessing among five. */
static void test_unlabelled(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    struct espl_error err;
    const struct espl_model_config config = swin_config();
    const struct espl_wanda_params params = make_params(ESPL_WANDA_PROPAGATE_PRUNED);
    const struct espl_evaluate_params all = {.images = 0};
    const struct prune_port ports[] = {{"model", 'c'}, {"images", PICTURES}, {"base", MODEL}};
    prune_fixture_open(&fixture);
    prune_make_model(&fixture, MODEL, &config, ESPL_DTYPE_F32, NULL);
    make_pictures(&fixture, false);
    assert_int_equal(prune(&fixture, &params, 'c', NULL, &result, &err), ESPL_OK);
    assert_true(prune_metric(&result, "check_loss_base") < log(5.0));
    assert_true(prune_metric(&result, "check_loss") != prune_metric(&result, "check_loss_base"));
    prune_result_free(&result);
    assert_int_equal(
        prune_run_ports(&fixture, &espl_stage_evaluate, &all, 'd', ports, 3, NULL, &result, &err),
        ESPL_OK);
    assert_true(prune_metric(&result, "kl") > 0.0);
    assert_null(json_object_get(result.metrics, "top1"));
    prune_result_free(&result);
    assert_int_equal(
        prune_run_ports(&fixture, &espl_stage_evaluate, &all, 'e', ports, 2, NULL, NULL, &err),
        ESPL_E_KIND);
    assert_string_equal(err.message, "the pictures have no labels");
    prune_fixture_close(&fixture);
}

/* Evaluation of the pruned model beside the dense one, and of all pictures against some. */
static void test_evaluate(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    struct espl_error err;
    const struct espl_model_config config = swin_config();
    const struct espl_wanda_params params = make_params(ESPL_WANDA_PROPAGATE_PRUNED);
    const struct espl_evaluate_params all = {.images = 0};
    const struct espl_evaluate_params many = {.images = IMAGES + 1};
    const struct prune_port ports[] = {{"model", 'c'}, {"images", PICTURES}, {"base", MODEL}};
    const struct prune_port itself[] = {{"model", MODEL}, {"images", PICTURES}, {"base", MODEL}};
    prune_fixture_open(&fixture);
    prune_make_model(&fixture, MODEL, &config, ESPL_DTYPE_F32, NULL);
    make_pictures(&fixture, true);
    assert_int_equal(prune(&fixture, &params, 'c', NULL, NULL, &err), ESPL_OK);
    assert_int_equal(
        prune_run_ports(&fixture, &espl_stage_evaluate, &all, 'd', ports, 3, NULL, &result, &err),
        ESPL_OK);
    assert_float_equal(prune_metric(&result, "images"), IMAGES, 0);
    assert_true(prune_metric(&result, "kl") > 0.0);
    assert_true(prune_metric(&result, "top5") == 100.0); /* of five classes */
    prune_result_free(&result);
    assert_int_equal(
        prune_run_ports(&fixture, &espl_stage_evaluate, &all, 'e', itself, 3, NULL, &result, &err),
        ESPL_OK);
    assert_float_equal(prune_metric(&result, "kl"), 0.0, 1e-12);
    assert_float_equal(prune_metric(&result, "top1"), prune_metric(&result, "top1_base"), 0);
    prune_result_free(&result);
    assert_int_equal(
        prune_run_ports(&fixture, &espl_stage_evaluate, &many, 'f', ports, 2, NULL, NULL, &err),
        ESPL_E_KIND);
    assert_string_equal(err.message, "'images' is 38, but there are 37");
    assert_int_equal(
        prune_run_ports(&fixture, &espl_stage_evaluate, &all, 'f', ports, 1, NULL, NULL, &err),
        ESPL_E_JOB);
    assert_string_equal(err.message, "architecture 'swin' needs input 'images'");
    prune_fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_unlabelled),
        cmocka_unit_test(test_evaluate),
    };
    return cmocka_run_group_tests_name("wanda_images", tests, NULL, NULL);
}
