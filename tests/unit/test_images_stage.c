/* The images stage: what it stores from idx files and folders, in which order, and what it does
 * with pictures that cannot be read. */
#include "eval/vision_images.h"
#include "stages/images/image_choice.h"
#include "stages/images/image_source.h"
#include "unit/golden_data.h"
#include "unit/prune_fixture.h"

#include "support/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct espl_stage espl_stage_images;

#define FASHION ESPL_SOURCE_DIR "/datasets/samples/fashion-mnist/t2k-"

static const struct espl_image_params fashion = {
    .source = FASHION "images-idx3-ubyte.gz",
    .labels = FASHION "labels-idx1-ubyte.gz",
    .memory = (uint64_t)1 << 24,
};

/* An artifact's pictures, all of them in memory. */
struct pictures {
    struct espl_image_set set;
    uint8_t *pixels;
    int32_t *labels;
};

static void run(struct prune_fixture *fixture, const struct espl_image_params *params, char digit,
                struct prune_result *result)
{
    struct espl_error err;
    if (prune_run_ports(fixture, &espl_stage_images, params, digit, NULL, 0, NULL, result, &err) !=
        ESPL_OK) {
        fail_msg("%s", err.message);
    }
}

static void read_pictures(struct prune_fixture *fixture, char digit, struct pictures *pictures)
{
    char path[ESPL_PATH_MAX];
    struct espl_artifact *artifact = NULL;
    struct espl_error err = {0};
    prune_path(fixture, digit, path);
    assert_int_equal(espl_artifact_open(path, &artifact, &err), ESPL_OK);
    if (espl_image_set_open(artifact, &pictures->set, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    const size_t count = (size_t)pictures->set.count;
    pictures->pixels = malloc(count * espl_image_set_bytes(&pictures->set));
    pictures->labels = calloc(count, sizeof *pictures->labels);
    assert_non_null(pictures->pixels);
    assert_non_null(pictures->labels);
    assert_int_equal(espl_image_set_read(artifact, &pictures->set, 0, count, pictures->pixels,
                                         pictures->set.classes != 0 ? pictures->labels : NULL,
                                         &err),
                     ESPL_OK);
    espl_artifact_close(artifact);
}

static void free_pictures(struct pictures *pictures)
{
    free(pictures->pixels);
    free(pictures->labels);
}

static void test_idx(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    struct pictures pictures;
    struct espl_idx idx;
    char *bytes = NULL;
    prune_fixture_open(&fixture);
    run(&fixture, &fashion, 'a', &result);
    read_pictures(&fixture, 'a', &pictures);
    assert_int_equal(pictures.set.count, 2000);
    assert_int_equal(pictures.set.classes, 10);
    assert_int_equal(pictures.set.height, 28);
    assert_int_equal(pictures.set.channels, 1);
    assert_float_equal(pictures.set.scale.mean[0], 0.5, 1e-12);
    assert_float_equal(prune_metric(&result, "images"), 2000, 0);
    assert_float_equal(prune_metric(&result, "classes"), 10, 0);
    assert_float_equal(prune_metric(&result, "skipped"), 0, 0);
    assert_int_equal(espl_idx_read(fashion.source, 1 << 24, &bytes, &idx, NULL), ESPL_OK);
    assert_memory_equal(pictures.pixels, idx.values, 2000 * 784);
    free(bytes);
    assert_int_equal(pictures.labels[0], 9);
    assert_int_equal(pictures.labels[9], 7);
    free_pictures(&pictures);
    prune_result_free(&result);
    prune_fixture_close(&fixture);
}

/* Two parts of one shuffled order share no picture, and together they are the whole of it. */
static void test_order(void **state)
{
    (void)state;
    struct espl_image_params params = fashion;
    struct espl_image_choice whole;
    struct espl_image_choice part;
    bool seen[2000] = {false};
    params.order = ESPL_IMAGE_ORDER_SHUFFLED;
    params.seed = 7;
    assert_int_equal(espl_image_choice_make(&params, 2000, &whole, NULL), ESPL_OK);
    size_t kept_place = 0;
    for (size_t i = 0; i < 2000; i++) {
        assert_false(seen[whole.indices[i]]);
        seen[whole.indices[i]] = true;
        kept_place += whole.indices[i] == i;
    }
    assert_true(kept_place < 20);
    params.first = 700;
    params.count = 300;
    assert_int_equal(espl_image_choice_make(&params, 2000, &part, NULL), ESPL_OK);
    assert_int_equal(part.count, 300);
    assert_memory_equal(part.indices, whole.indices + 700, 300 * sizeof *part.indices);
    espl_image_choice_free(&part);
    params.seed = 8;
    assert_int_equal(espl_image_choice_make(&params, 2000, &part, NULL), ESPL_OK);
    assert_memory_not_equal(part.indices, whole.indices + 700, 300 * sizeof *part.indices);
    espl_image_choice_free(&part);
    espl_image_choice_free(&whole);

    struct espl_error err = {0};
    params.first = 1900;
    assert_int_equal(espl_image_choice_make(&params, 2000, &part, &err), ESPL_E_JOB);
    assert_string_equal(err.message, "pictures 1900 to 2199 are asked for, but there are 2000");
    assert_string_equal(err.blame, "param:count");
    params.first = 2000;
    assert_int_equal(espl_image_choice_make(&params, 2000, &part, &err), ESPL_E_JOB);
    assert_string_equal(err.blame, "param:first");
}

/* A copy of a test picture at dir/name. */
static void put(const char *dir, const char *name, const char *picture)
{
    char from[GOLDEN_PATH];
    char to[ESPL_PATH_MAX];
    char folder[ESPL_PATH_MAX];
    char member[128];
    size_t len = 0;
    (void)snprintf(member, sizeof member, "images/pictures/%s", picture);
    golden_path(member, from);
    void *bytes = golden_read(from, &len);
    assert_int_equal(espl_fs_join(to, dir, name, NULL), ESPL_OK);
    memcpy(folder, to, sizeof folder);
    *strrchr(folder, '/') = '\0';
    assert_int_equal(espl_fs_make_dirs(folder, NULL), ESPL_OK);
    assert_int_equal(espl_fs_write_file(to, bytes, len, NULL), ESPL_OK);
    free(bytes);
}

static void test_folder(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    struct pictures pictures;
    struct espl_error err;
    char dir[ESPL_PATH_MAX];
    const struct espl_image_params params = {.source = dir,
                                             .size = 32,
                                             .channels = 3,
                                             .crop_pct = 1.0,
                                             .memory = 1 << 20,
                                             .on_error = ESPL_IMAGE_ON_ERROR_SKIP};
    struct espl_image_params strict = params;
    strict.on_error = ESPL_IMAGE_ON_ERROR_FAIL;
    prune_fixture_open(&fixture);
    assert_int_equal(espl_fs_join(dir, fixture.folder, "set", NULL), ESPL_OK);
    put(dir, "bee/one.png", "colour.png");
    put(dir, "ant/two.png", "tall.png");
    put(dir, "ant/cut.jpg", "truncated.jpg");
    put(dir, "cow/wide.jpg", "cmyk.jpg");
    assert_int_equal(
        prune_run_ports(&fixture, &espl_stage_images, &strict, 'a', NULL, 0, NULL, NULL, &err),
        ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "picture 'ant/cut.jpg' of '"));
    assert_non_null(strstr(err.message, "the JPEG is truncated or damaged"));

    run(&fixture, &params, 'b', &result);
    read_pictures(&fixture, 'b', &pictures);
    assert_int_equal(pictures.set.count, 2);
    assert_int_equal(pictures.set.classes, 3); /* that of the unreadable one too */
    assert_int_equal(pictures.labels[0], 0);
    assert_int_equal(pictures.labels[1], 1);
    assert_float_equal(prune_metric(&result, "skipped"), 2, 0);
    assert_float_equal(pictures.set.scale.mean[0], 0.485, 1e-12);
    free_pictures(&pictures);
    prune_result_free(&result);
    prune_fixture_close(&fixture);
}

/* A class whose name is not UTF-8 keeps its place among the names. */
static void test_class_names(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    struct espl_artifact *artifact = NULL;
    char path[ESPL_PATH_MAX];
    char dir[ESPL_PATH_MAX];
    const struct espl_image_params params = {
        .source = dir, .size = 32, .channels = 3, .crop_pct = 1.0, .memory = 1 << 20};
    prune_fixture_open(&fixture);
    assert_int_equal(espl_fs_join(dir, fixture.folder, "set", NULL), ESPL_OK);
    put(dir, "ant/one.png", "colour.png");
    put(dir, "b\xe9/two.png", "colour.png");
    put(dir, "cow/three.png", "colour.png");
    run(&fixture, &params, 'a', &result);
    prune_path(&fixture, 'a', path);
    assert_int_equal(espl_artifact_open(path, &artifact, NULL), ESPL_OK);
    assert_non_null(
        strstr(espl_artifact_description(artifact), "\"class_names\":[\"ant\",\"b?\",\"cow\"]"));
    espl_artifact_close(artifact);
    prune_result_free(&result);
    prune_fixture_close(&fixture);
}

static void keep_line(void *user, enum espl_log_level level, const char *line)
{
    struct espl_buf *lines = user;
    assert_int_equal(level, ESPL_LOG_WARN);
    espl_buf_printf(lines, "%s\n", line);
}

/* Folders that are not numbered, and another number of them than the model has classes. */
static void test_warnings(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_image_source source;
    struct espl_buf lines;
    const struct espl_log log = {keep_line, &lines, ESPL_LOG_INFO};
    char dir[ESPL_PATH_MAX];
    const struct espl_image_params params = {.source = dir, .memory = 1 << 20};
    prune_fixture_open(&fixture);
    espl_buf_init(&lines, 4096);
    assert_int_equal(espl_fs_join(dir, fixture.folder, "set", NULL), ESPL_OK);
    put(dir, "ant/one.png", "colour.png");
    put(dir, "bee/two.webp", "colour.png");
    put(dir, "cow/three.png", "colour.png");
    assert_int_equal(espl_image_source_open(&params, &source, NULL), ESPL_OK);
    espl_image_source_warn(&source, 2, &log);
    assert_non_null(strstr(espl_buf_text(&lines), "1 folder of '"));
    assert_non_null(
        strstr(espl_buf_text(&lines), "/set' without *.jpg, *.jpeg or *.png is no class: 'bee'\n"));
    assert_null(strstr(espl_buf_text(&lines), "class folders"));
    espl_buf_reset(&lines);
    espl_image_source_warn(&source, 10, &log);
    assert_non_null(strstr(espl_buf_text(&lines),
                           "has 2 class folders, the model 10 classes: folders are numbered from 0 "
                           "in the order of their names"));
    espl_image_source_close(&source);
    espl_buf_free(&lines);
    prune_fixture_close(&fixture);
}

static void test_refusals(void **state)
{
    (void)state;
    static const double halves[] = {0.5, 0.5};
    struct prune_fixture fixture;
    struct espl_error err;
    struct espl_image_params params = fashion;
    prune_fixture_open(&fixture);
    params.mean = (struct espl_list){2, halves};
    assert_int_equal(
        prune_run_ports(&fixture, &espl_stage_images, &params, 'a', NULL, 0, NULL, NULL, &err),
        ESPL_E_JOB);
    assert_string_equal(err.message, "'mean' has 2 numbers, the pictures have 1 channels");
    params = fashion;
    params.labels = fashion.source;
    assert_int_equal(
        prune_run_ports(&fixture, &espl_stage_images, &params, 'b', NULL, 0, NULL, NULL, &err),
        ESPL_E_KIND);
    assert_string_equal(err.blame, "param:labels");
    assert_non_null(strstr(err.message, "-ubyte.gz' has 3 dimensions, expected 1 (labels)"));
    params = fashion;
    params.subset = "test";
    assert_int_equal(
        prune_run_ports(&fixture, &espl_stage_images, &params, 'c', NULL, 0, NULL, NULL, &err),
        ESPL_E_JOB);
    assert_string_equal(err.blame, "param:subset");
    params = fashion;
    params.source = fashion.labels;
    params.labels = NULL;
    assert_int_equal(
        prune_run_ports(&fixture, &espl_stage_images, &params, 'd', NULL, 0, NULL, NULL, &err),
        ESPL_E_KIND);
    params = fashion;
    params.channels = 2;
    assert_int_equal(
        prune_run_ports(&fixture, &espl_stage_images, &params, 'e', NULL, 0, NULL, NULL, &err),
        ESPL_E_JOB);
    assert_string_equal(err.message, "'channels' must be 1 (grey) or 3 (colour), got 2");
    prune_fixture_close(&fixture);
}

/* Do pictures fit a model? */
static void test_check(void **state)
{
    (void)state;
    struct espl_image_set set = {
        .count = 5, .height = 28, .width = 28, .channels = 1, .classes = 10, .labelled = true};
    struct espl_model_config config = {.architecture = "vit", .vocab = 10};
    struct espl_error err = {0};
    config.vision.image_size = 28;
    config.vision.channels = 1;
    assert_int_equal(espl_image_set_check(&set, &config, true, &err), ESPL_OK);
    set.labelled = false;
    assert_int_equal(espl_image_set_check(&set, &config, false, &err), ESPL_OK);
    assert_int_equal(espl_image_set_check(&set, &config, true, &err), ESPL_E_KIND);
    assert_string_equal(err.message, "the pictures have no labels");
    set.classes = 11;
    assert_int_equal(espl_image_set_check(&set, &config, false, &err), ESPL_E_KIND);
    assert_string_equal(err.message, "the pictures have 11 classes, but the model knows 10");
    set.height = 32;
    assert_int_equal(espl_image_set_check(&set, &config, false, &err), ESPL_E_KIND);
    assert_string_equal(err.message, "the pictures are 32 x 28 x 1, expected 28 x 28 x 1");
    const struct espl_model_config llama = prune_llama_config();
    assert_int_equal(espl_image_set_check(&set, &llama, false, &err), ESPL_E_KIND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idx),      cmocka_unit_test(test_order),
        cmocka_unit_test(test_folder),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_check),    cmocka_unit_test(test_class_names),
        cmocka_unit_test(test_warnings),
    };
    return cmocka_run_group_tests_name("images_stage", tests, NULL, NULL);
}
