/* Encoded models of random weights: what is in the file, that it is a model that readers take, and
 * that nothing is left when it cannot be made. */
#include "artifact/artifact.h"
#include "core/fs.h"
#include "core/hash.h"
#include "model/quantised.h"
#include "stages/iebme_encode/random_model.h"
#include "unit/model_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct espl_random_model_options small(struct fixture *f)
{
    const struct espl_random_model_options options = {
        .checkpoint = {.shape = "llama", .layers = 2, .vocab = 99, .dtype = ESPL_DTYPE_F16},
        .path = f->folder,
        .sparsity = 0.5,
        .bits = 4,
        .areas = ESPL_IEBME_AUTO_MATRIX};
    return options;
}

static struct espl_model *write_and_open(struct fixture *f,
                                         const struct espl_random_model_options *options,
                                         struct espl_artifact **artifact)
{
    struct espl_model *model = NULL;
    if (espl_random_model_write(options, NULL, &f->err) != ESPL_OK ||
        espl_artifact_open(f->folder, artifact, &f->err) != ESPL_OK ||
        espl_model_open(*artifact, NULL, &model, &f->err) != ESPL_OK) {
        fail_msg("%s", f->err.message);
    }
    return model;
}

/* Share of zeros, mean and standard deviation of the weights, outliers left out. */
static void expect_codes(struct fixture *f, struct espl_model *model, int64_t layer,
                         enum espl_role role, double sparsity)
{
    struct espl_quant_linear linear;
    assert_int_equal(espl_quant_linear_read(model, layer, role, false, &linear, &f->err), ESPL_OK);
    float *weights = malloc(linear.out * linear.in * sizeof *weights);
    assert_non_null(weights);
    assert_int_equal(espl_quant_linear_dequantise(&linear, 0, linear.out, weights, &f->err),
                     ESPL_OK);
    size_t zeros = 0;
    double sum = 0.0;
    double squares = 0.0;
    for (size_t row = 0; row < linear.out; row++) {
        for (size_t place = 0; place < linear.normal; place++) {
            const float w = weights[row * linear.in + (size_t)linear.order[place]];
            zeros += w == 0.0F ? 1 : 0;
            sum += (double)w;
            squares += (double)w * (double)w;
        }
    }
    const double count = (double)(linear.out * linear.normal);
    const double spread = sqrt(sparsity * (1.0 - sparsity) / count);
    assert_true(fabs((double)zeros / count - sparsity) < 5.0 * spread);
    assert_true(fabs(sum) < 5.0 * sqrt(squares)); /* as many below zero as above */
    assert_true(fabs(sqrt(squares / count) / 0.02 - 1.0) < 0.03);
    free(weights);
    espl_quant_linear_free(&linear);
}

static void test_random_model__has_equal_blocks(void **state)
{
    static const char *const shapes[] = {"llama", "opt", "qwen2"};
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct espl_random_model_options options = small(f);
        struct espl_artifact *artifact = NULL;
        options.checkpoint.shape = shapes[i];
        struct espl_model *model = write_and_open(f, &options, &artifact);
        assert_true(espl_model_blocks_equal(model, 0, 1));
        assert_true(espl_model_blocks_equal(model, 1, 1));
        espl_model_close(model);
        espl_artifact_close(artifact);
        assert_int_equal(espl_fs_remove_tree(f->folder, &f->err), ESPL_OK);
    }
}

static void test_blocks__that_differ(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("llama");
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    char path[ESPL_PATH_MAX];
    fixture_write_artifact(f->dir, "dense", &config, ESPL_DTYPE_F16, path, NULL);
    assert_int_equal(espl_artifact_open(path, &artifact, &f->err), ESPL_OK);
    assert_int_equal(espl_model_open(artifact, NULL, &model, &f->err), ESPL_OK);
    assert_true(config.layers > 1);
    assert_false(espl_model_blocks_equal(model, 0, 1));
    espl_model_close(model);
    espl_artifact_close(artifact);
}

static void test_random_model__has_the_sparsity_asked_for(void **state)
{
    static const struct {
        double sparsity;
        unsigned bits;
    } cases[] = {{0.5, 4}, {0.7, 4}, {0.25, 2}};
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct espl_artifact *artifact = NULL;
        struct espl_random_model_options options = small(f);
        options.sparsity = cases[i].sparsity;
        options.bits = cases[i].bits;
        struct espl_model *model = write_and_open(f, &options, &artifact);
        assert_int_equal(espl_model_get_config(model)->vocab, 99);
        assert_true(espl_model_is_encoded(model));
        expect_codes(f, model, 0, ESPL_ROLE_Q, cases[i].sparsity);
        expect_codes(f, model, 1, ESPL_ROLE_DOWN, cases[i].sparsity);
        espl_model_close(model);
        espl_artifact_close(artifact);
        assert_int_equal(espl_fs_remove_tree(f->folder, &f->err), ESPL_OK);
    }
}

/* Every architecture, and every tensor that the model view asks for. */
static void test_random_model__readers_take_it(void **state)
{
    static const char *const shapes[] = {"llama", "opt", "qwen2"};
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct espl_artifact *artifact = NULL;
        struct espl_random_model_options options = small(f);
        options.checkpoint.shape = shapes[i];
        struct espl_model *model = write_and_open(f, &options, &artifact);
        for (size_t t = 0; t < espl_model_tensor_count(model); t++) {
            const struct espl_tensor_spec *spec = espl_model_tensor(model, t);
            float *row = malloc((size_t)(spec->rank == 2 ? spec->shape[1] : 1) * sizeof *row);
            assert_non_null(row);
            if (espl_model_read_f32(model, spec, spec->shape[0] - 1, 1, row, &f->err) != ESPL_OK) {
                fail_msg("%s of %s: %s", spec->name, shapes[i], f->err.message);
            }
            free(row);
        }
        espl_model_close(model);
        espl_artifact_close(artifact);
        assert_int_equal(espl_fs_remove_tree(f->folder, &f->err), ESPL_OK);
    }
}

static void hash_of(struct fixture *f, uint64_t seed, char hex[ESPL_SHA256_HEX])
{
    struct espl_random_model_options options = small(f);
    options.checkpoint.seed = seed;
    assert_int_equal(espl_random_model_write(&options, NULL, &f->err), ESPL_OK);
    assert_int_equal(espl_sha256_file(f->folder, hex, &f->err), ESPL_OK);
    assert_int_equal(espl_fs_remove_tree(f->folder, &f->err), ESPL_OK);
}

static void test_random_model__equal_seeds_give_equal_bytes(void **state)
{
    struct fixture *f = *state;
    char one[ESPL_SHA256_HEX];
    char two[ESPL_SHA256_HEX];
    hash_of(f, 1, one);
    hash_of(f, 1, two);
    assert_string_equal(one, two);
    hash_of(f, 2, two);
    assert_string_not_equal(one, two);
}

static void expect_usage(struct fixture *f, const struct espl_random_model_options *options,
                         const char *message)
{
    assert_int_equal(espl_random_model_write(options, NULL, &f->err), ESPL_E_USAGE);
    if (strstr(f->err.message, message) == NULL) {
        fail_msg("'%s'", f->err.message);
    }
    assert_false(espl_fs_exists(f->folder));
}

static void test_random_model__wrong_options_are_named(void **state)
{
    struct fixture *f = *state;
    struct espl_random_model_options options = small(f);
    options.sparsity = 1.5;
    expect_usage(f, &options, "from 0 to 1");
    options.sparsity = (double)NAN;
    expect_usage(f, &options, "from 0 to 1");
    options = small(f);
    options.bits = 3;
    expect_usage(f, &options, "2 or 4 bits");
    options = small(f);
    options.checkpoint.shape = "deit-small";
    expect_usage(f, &options, "image model");
    options = small(f);
    options.checkpoint.ffn = 100;
    expect_usage(f, &options, "fits 100 columns of which 0 are outliers");
}

/* A killed process leaves its file under a name that tells whose it is; "checkpoint" of the fixture
 * is the name of the model. */
static void test_random_model__leftovers_of_dead_processes_are_removed(void **state)
{
    struct fixture *f = *state;
    const struct espl_random_model_options options = small(f);
    char name[ESPL_PATH_MAX];
    char leftover[ESPL_PATH_MAX];
    char other[ESPL_PATH_MAX];
    assert_int_equal(espl_fs_temporary_name(name, f->folder, &f->err), ESPL_OK);
    (void)snprintf(leftover, sizeof leftover, "%.*s-999999999.tmp",
                   (int)(strrchr(name, '-') - name), name);
    fixture_join(other, f->dir, "checkpoint.tmp");
    assert_int_equal(espl_fs_write_file(leftover, "half", 4, &f->err), ESPL_OK);
    assert_int_equal(espl_fs_write_file(other, "mine", 4, &f->err), ESPL_OK);
    assert_int_equal(espl_random_model_write(&options, NULL, &f->err), ESPL_OK);
    assert_false(espl_fs_exists(leftover));
    assert_true(espl_fs_exists(other));
}

static bool stop_later(void *user, uint64_t done, uint64_t total)
{
    unsigned *calls = user;
    assert_true(done > 0 && done <= total);
    return ++*calls < 3;
}

static void test_random_model__stops_and_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    unsigned calls = 0;
    char **names = NULL;
    size_t count = 0;
    struct espl_random_model_options options = small(f);
    options.checkpoint.progress = stop_later;
    options.checkpoint.progress_user = &calls;
    assert_int_equal(espl_random_model_write(&options, NULL, &f->err), ESPL_E_CANCELLED);
    assert_int_equal(calls, 3);
    assert_int_equal(espl_fs_list(f->dir, 10, &names, &count, &f->err), ESPL_OK);
    assert_int_equal(count, 0);
    espl_fs_free_names(names, count);
    fixture_write_text(f->dir, "checkpoint", "mine");
    assert_int_equal(espl_random_model_write(&options, NULL, &f->err), ESPL_E_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
        T(test_random_model__has_the_sparsity_asked_for),
        T(test_random_model__readers_take_it),
        T(test_random_model__has_equal_blocks),
        T(test_blocks__that_differ),
        T(test_random_model__equal_seeds_give_equal_bytes),
        T(test_random_model__wrong_options_are_named),
        T(test_random_model__leftovers_of_dead_processes_are_removed),
        T(test_random_model__stops_and_leaves_nothing),
#undef T
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
