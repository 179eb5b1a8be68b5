/* The cases of the N:M bench: the paper's grid, and linear layers of image models. */
#include "kernels/bench/nm_bench.h"

#include <string.h>

const struct espl_nm_bench_set espl_nm_bench_sets[] = {
    {"grid", "the grid of realizable N:M, 64 shapes"},
    {"deit-s", "layers of DeiT-S"},
    {"deit-b", "layers of DeiT-B"},
    {"swin-s", "layers of Swin-S"},
    {NULL, NULL},
};

/* Collects cases, and counts those that have no room. */
struct list {
    struct espl_nm_bench_case *cases;
    size_t most;
    size_t count;
};

static void add(struct list *list, const struct espl_nm_bench_case *item)
{
    if (list->count < list->most) {
        list->cases[list->count] = *item;
    }
    list->count++;
}

static void add_grid(struct list *list)
{
    static const size_t tokens[] = {64, 128, 256, 512};
    static const size_t sides[] = {128, 256, 512, 1024};
    for (size_t i = 0; i < 64; i++) {
        const struct espl_nm_bench_case item = {.set = "grid",
                                                .layer = "",
                                                .tokens = tokens[i / 16],
                                                .rows = sides[i / 4 % 4],
                                                .cols = sides[i % 4]};
        add(list, &item);
    }
}

/* The four linear layers of a transformer block. */
static void add_block(struct list *list, const char *set, size_t batch, size_t tokens, size_t width)
{
    static const struct {
        const char *name;
        size_t rows, cols; /* in widths */
    } layers[] = {{"qkv", 3, 1}, {"proj", 1, 1}, {"fc1", 4, 1}, {"fc2", 1, 4}};
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        const struct espl_nm_bench_case item = {.set = set,
                                                .layer = layers[i].name,
                                                .batch = batch,
                                                .tokens = batch * tokens,
                                                .rows = layers[i].rows * width,
                                                .cols = layers[i].cols * width};
        add(list, &item);
    }
}

enum { DEIT_TOKENS = 197, SWIN_STAGES = 4, SWIN_WIDTH = 96, SWIN_TOKENS = 56 * 56 };

size_t espl_nm_bench_cases(const char *set, size_t batch, struct espl_nm_bench_case *cases,
                           size_t most)
{
    struct list list = {cases, most, 0};
    if (strcmp(set, "grid") == 0) {
        add_grid(&list);
    } else if (strcmp(set, "deit-s") == 0) {
        add_block(&list, "deit-s", batch, DEIT_TOKENS, 384);
    } else if (strcmp(set, "deit-b") == 0) {
        add_block(&list, "deit-b", batch, DEIT_TOKENS, 768);
    } else if (strcmp(set, "swin-s") == 0) {
        for (size_t stage = 0; stage < SWIN_STAGES; stage++) {
            add_block(&list, "swin-s", batch, (size_t)SWIN_TOKENS >> (2 * stage),
                      (size_t)SWIN_WIDTH << stage);
        }
    }
    return list.count;
}
