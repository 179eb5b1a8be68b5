#include "stages/nm_supernet/nm_int8.h"

#include <math.h>

void espl_nm_round_int8(float *x, size_t rows, size_t cols)
{
    for (size_t row = 0; row < rows; row++) {
        float *values = x + row * cols;
        float most = 0.0f;
        for (size_t col = 0; col < cols; col++) {
            const float magnitude = fabsf(values[col]);
            most = magnitude > most ? magnitude : most;
        }
        if (!(most > 0.0f)) {
            continue;
        }
        const float scale = most / 127.0f;
        for (size_t col = 0; col < cols; col++) {
            values[col] = rintf(values[col] / scale) * scale;
        }
    }
}
