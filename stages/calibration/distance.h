/* How far one array is from another, collected piece by piece. */
#ifndef ESPL_STAGES_DISTANCE_H
#define ESPL_STAGES_DISTANCE_H

#include <stddef.h>

/** Relative L2 distance sqrt(sum (x - y)^2 / sum y^2); starts zeroed. */
struct espl_distance {
    double difference; /* sum (x - y)^2 */
    double reference;  /* sum y^2 */
};

/** Adds `count` values of x and of the reference y. */
void espl_distance_add(struct espl_distance *distance, const float *x, const float *y,
                       size_t count);
/** 0 for equal arrays; infinity when only the reference is zero. */
double espl_distance_value(const struct espl_distance *distance);

#endif
