#include "stages/calibration/distance.h"

#include <math.h>

void espl_distance_add(struct espl_distance *distance, const float *x, const float *y, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const double difference = (double)x[i] - (double)y[i];
        distance->difference += difference * difference;
        distance->reference += (double)y[i] * (double)y[i];
    }
}

double espl_distance_value(const struct espl_distance *distance)
{
    if (distance->difference == 0.0) {
        return 0.0;
    }
    return sqrt(distance->difference / distance->reference);
}
