/* The CUDA kernels against the reference backend, integer by integer: every form of the weights,
 * every number of tokens, tails, and cuts of the work that the rule would not choose. Skipped on
 * machines without a CUDA device. */
#include "espalier/cuda_memory.h"
#include "espalier/cuda_spmm.h"
#include "kernels/cuda_device.h"
#include "kernels/cuda_load.h"
#include "kernels/cuda_product.h"
#include "kernels/iebme_fixture.h"

#include <stdlib.h>
#include <string.h>

static struct espl_cuda_matrix *upload_bits(const struct cuda_product *p, unsigned bits)
{
    struct espl_error err;
    struct espl_dense_device device = {.data = NULL};
    struct espl_cuda_matrix *out = NULL;
    cuda_check(espl_dense_device_encode(p->codes, p->rows, p->cols, bits, &device, &err), &err);
    cuda_check(espl_cuda_matrix_create_dense(&device, &out, &err), &err);
    espl_dense_device_free(&device);
    return out;
}

/* The forms in which the weights can be on the device. */
static const struct form {
    const char *name;
    enum espl_iebme_areas unit;
} forms[] = {
    {"1x1", ESPL_IEBME_1X1}, {"1x2", ESPL_IEBME_1X2},     {"2x1", ESPL_IEBME_2X1},
    {"2x2", ESPL_IEBME_2X2}, {"dense", ESPL_IEBME_DENSE}, {"mixed", ESPL_IEBME_MIXED},
};
enum { SLICE = 512 };

/* The instruction that ESPL_TEST_INSTRUCTION names, int8 or int4, else the automatic one: a build
 * for virtual architecture 8.0 shows the sums of INT4 on devices that have no such instruction. */
static enum espl_cuda_instruction wanted_instruction(void)
{
    const char *text = getenv("ESPL_TEST_INSTRUCTION");
    return text == NULL                ? ESPL_CUDA_INSTRUCTION_AUTOMATIC
           : strcmp(text, "int4") == 0 ? ESPL_CUDA_INSTRUCTION_INT4
                                       : ESPL_CUDA_INSTRUCTION_INT8;
}

/* INT4 has all but the last, mixed areas. */
static size_t form_count(void)
{
    const size_t count = sizeof forms / sizeof forms[0];
    return wanted_instruction() == ESPL_CUDA_INSTRUCTION_INT4 ? count - 1 : count;
}

static const enum espl_cuda_pipeline pipelines[] = {ESPL_CUDA_PIPELINE_AUTOMATIC,
                                                    ESPL_CUDA_PIPELINE_PRODUCER};
enum { PIPELINES = sizeof pipelines / sizeof pipelines[0] };

/* The product as wanted, or NULL when it is one that no producer warp is for, or a device:
 * test_producer__exact_or_refused() looks at which. */
static struct espl_cuda_spmm *create(const struct espl_cuda_matrix *matrix, size_t tokens,
                                     const struct espl_cuda_spmm_choice *wanted)
{
    struct espl_error err;
    struct espl_cuda_spmm *spmm = NULL;
    const enum espl_status status = espl_cuda_spmm_create(matrix, tokens, wanted, &spmm, &err);
    if (wanted->pipeline != ESPL_CUDA_PIPELINE_PRODUCER || status != ESPL_E_UNSUPPORTED ||
        strstr(err.message, "producer warp") == NULL) {
        cuda_check(status, &err);
    }
    return spmm;
}

static struct espl_cuda_matrix *upload_form(const struct cuda_product *p, const struct form *form)
{
    struct espl_error err;
    struct espl_iebme_plan plan;
    struct espl_iebme_matrix matrix = {.masks = NULL};
    struct espl_iebme_device device = {.index = NULL};
    struct espl_cuda_matrix *out = NULL;
    const struct espl_iebme_layout layout = {p->rows, p->cols, 4, ESPL_IEBME_AUTO,
                                             ESPL_IEBME_SCOPE_NONE};
    if (form->unit == ESPL_IEBME_DENSE) {
        return upload_bits(p, 4);
    }
    fixture_encode(p->codes, &layout, NULL, &plan, &matrix);
    cuda_check(espl_iebme_device_encode(&matrix, form->unit, SLICE, &device, &err), &err);
    cuda_check(espl_cuda_matrix_create_iebme(&device, &out, &err), &err);
    espl_iebme_matrix_free(&matrix);
    espl_iebme_device_free(&device);
    return out;
}

static void try_matrix(struct cuda_product *p, const struct espl_cuda_matrix *matrix,
                       const struct espl_cuda_spmm_choice *cut, size_t tokens, const char *what)
{
    struct espl_cuda_spmm_choice wanted =
        cut != NULL ? *cut : (struct espl_cuda_spmm_choice){.warps = 0};
    wanted.instruction = wanted_instruction();
    for (size_t i = 0; i < PIPELINES; i++) {
        wanted.pipeline = pipelines[i];
        struct espl_cuda_spmm *spmm = create(matrix, p->tokens, &wanted);
        /* Twice: the work space is as it was. */
        for (unsigned run = 0; run < (cuda_small() ? 1 : 2) && spmm != NULL; run++) {
            cuda_product_run(p, spmm, tokens, what);
        }
        espl_cuda_spmm_destroy(spmm);
    }
}

static void try_all_forms(struct cuda_product *p, size_t tokens)
{
    for (size_t f = 0; f < form_count(); f++) {
        struct espl_cuda_matrix *matrix = upload_form(p, &forms[f]);
        try_matrix(p, matrix, NULL, tokens, forms[f].name);
        espl_cuda_matrix_destroy(matrix);
    }
}

static void test_sizes__same_integers_as_ref(void **state)
{
    (void)state;
    static const size_t shapes[][2] = {{1, 1},     {16, 512},   {17, 513},   {33, 100},  {40, 1287},
                                       {70, 5000}, {300, 2048}, {2200, 640}, {130, 4608}};
    enum { SMALL = 6 };
    struct espl_rng rng = espl_rng_stream(21, "cuda-spmm", 0);
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < (cuda_small() ? SMALL : sizeof shapes / sizeof shapes[0]); i++) {
        struct cuda_product p;
        cuda_product_make(&rng, shapes[i][0], shapes[i][1], 8, 4, 0.5, &p);
        try_all_forms(&p, 8);
        cuda_product_free(&p);
    }
}

static void test_tokens__every_number(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(22, "cuda-spmm", 0);
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t tokens = 1; tokens <= 65; tokens = cuda_next_tokens(tokens)) {
        struct cuda_product p;
        cuda_product_make(&rng, 50, 1100, tokens, 4, 0.5, &p);
        try_all_forms(&p, tokens);
        try_all_forms(&p, (tokens + 1) / 2); /* fewer than prepared for */
        cuda_product_free(&p);
    }
}

static void test_sparsity__none_to_all(void **state)
{
    (void)state;
    static const double levels[] = {0.0, 0.05, 0.3, 0.4, 0.5, 0.7, 0.95, 1.0};
    struct espl_rng rng = espl_rng_stream(23, "cuda-spmm", 0);
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i += cuda_small() ? 2 : 1) {
        struct cuda_product p;
        cuda_product_make(&rng, cuda_small() ? 30 : 100, 1536, 11, 4, levels[i], &p);
        try_all_forms(&p, 11);
        cuda_product_free(&p);
    }
}

/* Full and empty chunks side by side, and columns with and without weights. */
static void test_uneven__full_and_empty_chunks(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(24, "cuda-spmm", 0);
    struct cuda_product p;
    if (!cuda_has_device()) {
        skip();
    }
    cuda_product_make(&rng, cuda_small() ? 160 : 400, 2048, 8, 4, 0.0, &p);
    for (size_t r = 0; r < p.rows; r++) {
        for (size_t c = 0; c < p.cols; c++) {
            const bool empty = (r / 16 + c / 512) % 3 == 0 || (r / 16 % 5 == 1 && c % 2 == 0);
            p.codes[r * p.cols + c] = empty ? 0 : p.codes[r * p.cols + c];
        }
    }
    cuda_product_compute(&p);
    try_all_forms(&p, 8);
    cuda_product_free(&p);
}

/* Chunks of all five forms in one matrix, in turns of warps and stages of rings that mix them. */
static void test_mixed__chunks_of_all_forms(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {
        {16, 2560, 8}, {100, 3000, 1}, {700, 3000, 1}, {2300, 4700, 19}};
    struct espl_rng rng = espl_rng_stream(30, "cuda-spmm", 0);
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < (cuda_small() ? 2 : sizeof shapes / sizeof shapes[0]); i++) {
        const size_t tokens = shapes[i][2];
        struct cuda_product p;
        cuda_product_make(&rng, shapes[i][0], shapes[i][1], tokens, 4, 0.5, &p);
        free(p.codes);
        p.codes = fixture_patchwork(&rng, p.rows, p.cols);
        cuda_product_compute(&p);
        try_all_forms(&p, tokens);
        cuda_product_free(&p);
    }
}

static void test_bits__2_3_and_4_dense(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 8, 9, 17, 40};
    struct espl_rng rng = espl_rng_stream(25, "cuda-spmm", 0);
    if (!cuda_has_device()) {
        skip();
    }
    if (wanted_instruction() == ESPL_CUDA_INSTRUCTION_INT4) {
        print_message("SKIPPED, NOT TESTED: INT4 multiplies 4-bit weights only\n");
        skip();
    }
    for (unsigned bits = 2; bits <= 4; bits++) {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            struct cuda_product p;
            cuda_product_make(&rng, 77, 1999, counts[i], bits, 0.3, &p);
            struct espl_cuda_matrix *matrix = upload_bits(&p, bits);
            try_matrix(&p, matrix, NULL, counts[i], "dense bits");
            espl_cuda_matrix_destroy(matrix);
            cuda_product_free(&p);
        }
    }
}

/* warps, splits, window, stages, parts; instruction and pipeline are wanted for all */
static const struct espl_cuda_spmm_choice cuts[] = {
    {14, 1, 1, 2, 64, 0, 0}, {5, 1, 5, 2, 3, 0, 0},   {8, 2, 2, 3, 7, 0, 0},
    {1, 1, 1, 2, 2, 0, 0},   {12, 3, 3, 2, 0, 0, 0},  {4, 5, 1, 4, 40, 0, 0},
    {9, 1, 3, 3, 11, 0, 0},  {8, 4, 2, 2, 384, 0, 0}, {15, 1, 5, 2, 0, 0, 0},
};

/* A few blocks without rows. */
enum { CUT_ROWS = 2000, SMALL_ROWS = 90, SMALL_PARTS = 8 };

static void test_cuts__do_not_change_the_result(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(26, "cuda-spmm", 0);
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t tokens = 7; tokens <= (cuda_small() ? 17 : 27); tokens += 10) {
        struct cuda_product p;
        cuda_product_make(&rng, cuda_small() ? SMALL_ROWS : CUT_ROWS, 2600, tokens, 4, 0.5, &p);
        for (size_t f = 0; f < form_count(); f++) {
            struct espl_cuda_matrix *matrix = upload_form(&p, &forms[f]);
            for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
                struct espl_cuda_spmm_choice cut = cuts[i];
                cut.parts = cuda_small() && cut.parts > SMALL_PARTS ? SMALL_PARTS : cut.parts;
                if (forms[f].unit == ESPL_IEBME_DENSE) { /* has 16 or, for 8 tokens, 20 */
                    cut.warps = tokens <= 8 && i % 2 == 0 ? 20 : 16;
                }
                try_matrix(&p, matrix, &cut, tokens, forms[f].name);
            }
            espl_cuda_matrix_destroy(matrix);
        }
        cuda_product_free(&p);
    }
}

/* One block with more stripes than have room for their sums at once, for 1, 2 and more tiles of
 * tokens. */
static void test_stripe_tiles__same_integers_as_ref(void **state)
{
    (void)state;
    static const size_t counts[] = {25, 9, 8};
    const size_t rows = cuda_small() ? 800 : 3100; /* small: 25 and 9 tokens, dense 25 */
    struct espl_rng rng = espl_rng_stream(32, "cuda-spmm", 0);
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < (cuda_small() ? 2 : sizeof counts / sizeof counts[0]); i++) {
        const struct espl_cuda_spmm_choice one = {.parts = 1};
        struct cuda_product p;
        cuda_product_make(&rng, rows, 600, counts[i], 4, 0.5, &p);
        for (size_t f = 0; f < form_count(); f++) {
            struct espl_cuda_matrix *matrix = upload_form(&p, &forms[f]);
            try_matrix(&p, matrix, &one, counts[i], forms[f].name);
            espl_cuda_matrix_destroy(matrix);
        }
        cuda_product_free(&p);
    }
}

/* Launches that overlap and split their columns, while another stream stores to memory. */
static void repeat_form(const struct cuda_product *p, const struct form *form,
                        const struct espl_cuda_spmm *spmm, size_t launches, struct cuda_load *load)
{
    struct espl_error err;
    void *outputs = NULL;
    cuda_check(espl_cuda_alloc(launches * cuda_product_bytes(p), &outputs, &err), &err);
    cuda_check(espl_cuda_fill(outputs, CUDA_POISON, launches * cuda_product_bytes(p), &err), &err);
    cuda_check(espl_cuda_synchronize(&err), &err);
    for (size_t i = 0; i < launches; i++) {
        struct espl_cuda_spmm_operands operands = p->operands;
        operands.y = (int32_t *)outputs + i * cuda_product_bytes(p) / sizeof(int32_t);
        cuda_load_store(load);
        cuda_check(espl_cuda_spmm_run(spmm, NULL, &operands, i % 8 != 0, NULL, &err), &err);
    }
    for (size_t i = 0; i < launches; i++) {
        cuda_check(espl_cuda_download(p->y, (char *)outputs + i * cuda_product_bytes(p),
                                      cuda_product_bytes(p), &err),
                   &err);
        cuda_product_expect(p, p->tokens, form->name);
    }
    espl_cuda_free(outputs);
}

static void test_repeats__two_hundred_times_the_same_bits(void **state)
{
    (void)state;
    const size_t launches = cuda_launches();
    struct espl_rng rng = espl_rng_stream(27, "cuda-spmm", 0);
    struct cuda_product p;
    struct cuda_load load;
    if (!cuda_has_device()) {
        skip();
    }
    cuda_product_make(&rng, cuda_small() ? SMALL_ROWS : 1500, 3072, 8, 4, 0.5, &p);
    cuda_load_open(&load);
    for (size_t f = 0; f < PIPELINES * form_count(); f++) {
        const struct form *form = &forms[f / PIPELINES];
        const struct espl_cuda_spmm_choice wanted = {
            .splits = 3, .instruction = wanted_instruction(), .pipeline = pipelines[f % PIPELINES]};
        struct espl_cuda_matrix *matrix = upload_form(&p, form);
        struct espl_cuda_spmm *spmm = create(matrix, p.tokens, &wanted);
        if (spmm != NULL) {
            repeat_form(&p, form, spmm, launches, &load);
        }
        espl_cuda_spmm_destroy(spmm);
        espl_cuda_matrix_destroy(matrix);
    }
    cuda_load_close(&load);
    cuda_product_free(&p);
}

/* Where the kernels were compiled for the INT4 instruction, its sums; elsewhere a refusal. */
static void test_int4__exact_or_refused(void **state)
{
    (void)state;
    const struct espl_cuda_spmm_choice wanted = {.instruction = ESPL_CUDA_INSTRUCTION_INT4};
    struct espl_rng rng = espl_rng_stream(29, "cuda-spmm", 0);
    struct espl_error err;
    struct cuda_product p;
    if (!cuda_has_device()) {
        skip();
    }
    cuda_product_make(&rng, 40, 1100, 9, 4, 0.5, &p);
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        const bool mixed = forms[f].unit == ESPL_IEBME_MIXED;
        struct espl_cuda_matrix *matrix = upload_form(&p, &forms[f]);
        struct espl_cuda_spmm *spmm = NULL;
        if (espl_cuda_spmm_create(matrix, p.tokens, &wanted, &spmm, &err) == ESPL_OK) {
            assert_false(mixed);
            assert_int_equal(espl_cuda_spmm_chosen(spmm).instruction, ESPL_CUDA_INSTRUCTION_INT4);
            cuda_product_run(&p, spmm, p.tokens, forms[f].name);
        } else {
            assert_non_null(strstr(err.message, mixed ? "not those of mixed areas"
                                                      : "no INT4 matrix instruction on a device"));
        }
        espl_cuda_spmm_destroy(spmm);
        espl_cuda_matrix_destroy(matrix);
    }
    cuda_product_free(&p);
    cuda_product_make(&rng, 40, 300, 1, 3, 0.5, &p);
    struct espl_cuda_matrix *three_bits = upload_bits(&p, 3);
    struct espl_cuda_spmm *none = NULL;
    assert_int_equal(espl_cuda_spmm_create(three_bits, 1, &wanted, &none, &err),
                     ESPL_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "not those of 2 or 3 bits"));
    espl_cuda_matrix_destroy(three_bits);
    cuda_product_free(&p);
}

/* A producer warp multiplies plain sparse weights of one form, from 9.0; what it does not is told
 * why. */
static void test_producer__exact_or_refused(void **state)
{
    (void)state;
    struct espl_cuda_info info;
    struct espl_cuda_spmm_choice wanted = {.instruction = ESPL_CUDA_INSTRUCTION_INT8,
                                           .pipeline = ESPL_CUDA_PIPELINE_PRODUCER};
    struct espl_rng rng = espl_rng_stream(31, "cuda-spmm", 0);
    struct espl_error err;
    struct cuda_product p;
    if (!cuda_has_device()) {
        skip();
    }
    cuda_check(espl_cuda_probe(&info, &err), &err);
    cuda_product_make(&rng, 40, 1100, 9, 4, 0.5, &p);
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        const char *refusal = forms[f].unit == ESPL_IEBME_MIXED   ? "not for mixed areas"
                              : forms[f].unit == ESPL_IEBME_DENSE ? "not for dense weights"
                              : info.devices[0].compute_major < 9
                                  ? "no bulk copies for a producer warp on a device"
                                  : NULL;
        struct espl_cuda_matrix *matrix = upload_form(&p, &forms[f]);
        struct espl_cuda_spmm *spmm = NULL;
        const enum espl_status status =
            espl_cuda_spmm_create(matrix, p.tokens, &wanted, &spmm, &err);
        if (refusal == NULL) {
            cuda_check(status, &err);
            assert_int_equal(espl_cuda_spmm_chosen(spmm).pipeline, wanted.pipeline);
            cuda_product_run(&p, spmm, p.tokens, forms[f].name);
        } else {
            assert_int_equal(status, ESPL_E_UNSUPPORTED);
            assert_non_null(strstr(err.message, refusal));
        }
        espl_cuda_spmm_destroy(spmm);
        espl_cuda_matrix_destroy(matrix);
    }
    struct espl_cuda_matrix *matrix = upload_form(&p, &forms[0]);
    struct espl_cuda_spmm *none = NULL;
    wanted.instruction = ESPL_CUDA_INSTRUCTION_INT4;
    assert_int_equal(espl_cuda_spmm_create(matrix, 9, &wanted, &none, &err), ESPL_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "not for the INT4 matrix instruction"));
    wanted = (struct espl_cuda_spmm_choice){.warps = 16, .pipeline = ESPL_CUDA_PIPELINE_PRODUCER};
    assert_int_equal(espl_cuda_spmm_create(matrix, 9, &wanted, &none, &err), ESPL_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "cannot use 16 warps"));
    espl_cuda_matrix_destroy(matrix);
    cuda_product_free(&p);
}

static void test_refusals__say_what_does_not_fit(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(28, "cuda-spmm", 0);
    struct espl_error err;
    struct cuda_product p;
    struct espl_cuda_spmm *spmm = NULL;
    if (!cuda_has_device()) {
        skip();
    }
    cuda_product_make(&rng, 20, 600, 4, 4, 0.5, &p);
    struct espl_cuda_matrix *matrix = upload_form(&p, &forms[0]);
    const struct espl_cuda_spmm_choice too_many = {.warps = 17};
    assert_int_equal(espl_cuda_spmm_create(matrix, 4, &too_many, &spmm, &err), ESPL_E_UNSUPPORTED);
    cuda_check(espl_cuda_spmm_create(matrix, 4, NULL, &spmm, &err), &err);
    struct espl_cuda_spmm_operands operands = p.operands;
    operands.tokens = 5;
    assert_int_equal(espl_cuda_spmm_run(spmm, NULL, &operands, false, NULL, &err),
                     ESPL_E_UNSUPPORTED);
    operands = p.operands;
    operands.y_stride = 19;
    assert_int_equal(espl_cuda_spmm_run(spmm, NULL, &operands, false, NULL, &err),
                     ESPL_E_UNSUPPORTED);
    espl_cuda_spmm_destroy(spmm);
    espl_cuda_matrix_destroy(matrix);
    cuda_product_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes__same_integers_as_ref),
        cmocka_unit_test(test_tokens__every_number),
        cmocka_unit_test(test_sparsity__none_to_all),
        cmocka_unit_test(test_uneven__full_and_empty_chunks),
        cmocka_unit_test(test_mixed__chunks_of_all_forms),
        cmocka_unit_test(test_bits__2_3_and_4_dense),
        cmocka_unit_test(test_cuts__do_not_change_the_result),
        cmocka_unit_test(test_stripe_tiles__same_integers_as_ref),
        cmocka_unit_test(test_repeats__two_hundred_times_the_same_bits),
        cmocka_unit_test(test_int4__exact_or_refused),
        cmocka_unit_test(test_producer__exact_or_refused),
        cmocka_unit_test(test_refusals__say_what_does_not_fit),
    };
    cuda_filter_tests();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
