/* Published shapes: sizes as the models' own config.json files state them. The first three are
 * small defaults. Columns: name, architecture, layers, hidden, heads, key/value heads, ffn,
 * vocabulary, positions, head dimension, embedding width, post-norm, tied, rope theta, norm eps. */
#include "model/synth.h"

#include <stddef.h>

const struct espl_synth_shape espl_synth_shapes[] = {
    {"llama", "llama", 4, 256, 4, 2, 768, 4096, 512, 0, 0, false, true, 1e4, 1e-5},
    {"opt", "opt", 4, 256, 4, 4, 1024, 4096, 512, 0, 0, false, true, 0, 1e-5},
    {"qwen2", "qwen2", 4, 256, 4, 2, 768, 4096, 512, 0, 0, false, true, 1e6, 1e-6},
    {"opt-125m", "opt", 12, 768, 12, 12, 3072, 50272, 2048, 0, 0, false, true, 0, 1e-5},
    {"opt-350m", "opt", 24, 1024, 16, 16, 4096, 50272, 2048, 0, 512, true, true, 0, 1e-5},
    {"opt-1.3b", "opt", 24, 2048, 32, 32, 8192, 50272, 2048, 0, 0, false, true, 0, 1e-5},
    {"opt-2.7b", "opt", 32, 2560, 32, 32, 10240, 50272, 2048, 0, 0, false, true, 0, 1e-5},
    {"opt-6.7b", "opt", 32, 4096, 32, 32, 16384, 50272, 2048, 0, 0, false, true, 0, 1e-5},
    {"opt-13b", "opt", 40, 5120, 40, 40, 20480, 50272, 2048, 0, 0, false, true, 0, 1e-5},
    {"opt-30b", "opt", 48, 7168, 56, 56, 28672, 50272, 2048, 0, 0, false, true, 0, 1e-5},
    {"opt-66b", "opt", 64, 9216, 72, 72, 36864, 50272, 2048, 0, 0, false, true, 0, 1e-5},
    {"llama-7b", "llama", 32, 4096, 32, 32, 11008, 32000, 2048, 0, 0, false, false, 1e4, 1e-6},
    {"llama-13b", "llama", 40, 5120, 40, 40, 13824, 32000, 2048, 0, 0, false, false, 1e4, 1e-6},
    {"llama-30b", "llama", 60, 6656, 52, 52, 17920, 32000, 2048, 0, 0, false, false, 1e4, 1e-6},
    {"llama-65b", "llama", 80, 8192, 64, 64, 22016, 32000, 2048, 0, 0, false, false, 1e4, 1e-5},
    {"llama-2-7b", "llama", 32, 4096, 32, 32, 11008, 32000, 4096, 0, 0, false, false, 1e4, 1e-5},
    {"llama-2-13b", "llama", 40, 5120, 40, 40, 13824, 32000, 4096, 0, 0, false, false, 1e4, 1e-5},
    {"llama-2-70b", "llama", 80, 8192, 64, 8, 28672, 32000, 4096, 0, 0, false, false, 1e4, 1e-5},
    {"llama-3-8b", "llama", 32, 4096, 32, 8, 14336, 128256, 8192, 0, 0, false, false, 5e5, 1e-5},
    {"llama-3-70b", "llama", 80, 8192, 64, 8, 28672, 128256, 8192, 0, 0, false, false, 5e5, 1e-5},
    {"llama-3.2-1b", "llama", 16, 2048, 32, 8, 8192, 128256, 131072, 64, 0, false, true, 5e5, 1e-5},
    {"llama-3.2-3b", "llama", 28, 3072, 24, 8, 8192, 128256, 131072, 128, 0, false, true, 5e5,
     1e-5},
    {"qwen2-0.5b", "qwen2", 24, 896, 14, 2, 4864, 151936, 131072, 0, 0, false, true, 1e6, 1e-6},
    {"qwen2-1.5b", "qwen2", 28, 1536, 12, 2, 8960, 151936, 131072, 0, 0, false, true, 1e6, 1e-6},
    {"qwen2-7b", "qwen2", 28, 3584, 28, 4, 18944, 152064, 131072, 0, 0, false, false, 1e6, 1e-6},
    {NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, false, 0, 0},
};
