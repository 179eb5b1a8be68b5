/* The drawings that `espalier bench spmm` writes beside its tables: the ablation. */
#include "cli/bench_spmm.h"

#include "support/test_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Content of a file in the test's folder, with an end; free() it. */
static char *content_of(const char *name)
{
    FILE *file = fopen(below(name), "r");
    assert_non_null(file);
    char *text = calloc(1, 1 << 16);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 16) - 1, file) > 0);
    assert_int_equal(fclose(file), 0);
    return text;
}

static struct espl_spmm_ablation panel(double sparsity, double seconds)
{
    struct espl_spmm_ablation made = {
        .rows = 64, .cols = 128, .tokens = 8, .sparsity = sparsity, .count = 4};
    made.variants[0] = (struct espl_spmm_variant){
        .form = "dense", .measured = true, .bytes = 4096, .time = {4e-6, 5e-6}};
    made.variants[1] = (struct espl_spmm_variant){.form = "2x1",
                                                  .reordered = true,
                                                  .stages = 3,
                                                  .measured = true,
                                                  .bytes = 3000,
                                                  .time = {seconds, seconds}};
    made.variants[2] = (struct espl_spmm_variant){.form = "2x2", .stages = 4};
    made.variants[3] = made.variants[1];
    made.variants[3].reordered = false;
    made.variants[3].producer = true;
    return made;
}

static void test_ablation__is_drawn_with_its_figures(void **state)
{
    (void)state;
    struct espl_error err;
    const struct espl_spmm_ablation panels[] = {panel(0.5, 3e-6), panel(0.7, 2e-6)};
    char folder[ESPL_PATH_MAX];
    (void)snprintf(folder, sizeof folder, "%s", below("plots"));
    assert_int_equal(espl_spmm_ablation_plot(panels, 2, folder, &err), ESPL_OK);
    char *csv = content_of("plots/ablation-64x128-n8.csv");
    assert_string_equal(
        csv, "zeros,form,reordered,producer,stages,weight_bytes,median_seconds,p95_seconds\n"
             "0.5,dense,0,0,0,4096,4e-06,5e-06\n"
             "0.5,2x1,1,0,3,3000,3e-06,3e-06\n"
             "0.5,2x1,0,1,3,3000,3e-06,3e-06\n"
             "0.7,dense,0,0,0,4096,4e-06,5e-06\n"
             "0.7,2x1,1,0,3,3000,2e-06,2e-06\n"
             "0.7,2x1,0,1,3,3000,2e-06,2e-06\n");
    char *svg = content_of("plots/ablation-64x128-n8.svg");
    assert_non_null(strstr(svg, ">Ablation, 64 x 128, 8 tokens</text>"));
    assert_non_null(strstr(svg, ">50 % zeros, us</text>"));
    assert_non_null(strstr(svg, ">70 % zeros, us</text>"));
    assert_non_null(strstr(svg, ">2x1 in order, 3</text>"));
    assert_non_null(strstr(svg, ">2x1 producer, 3</text>"));
    assert_non_null(strstr(svg, ">2.00</text>"));
    assert_non_null(strstr(svg, ">does not fit</text>"));
    free(csv);
    free(svg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ablation__is_drawn_with_its_figures),
    };
    return cmocka_run_group_tests(tests, test_folder_set_up, test_folder_tear_down);
}
