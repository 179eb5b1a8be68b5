/* Orders for qsort(). */
#ifndef ESPL_CORE_ORDER_H
#define ESPL_CORE_ORDER_H

/** Doubles, the smallest first. No NaN: it has no place. */
static inline int espl_compare_doubles(const void *a, const void *b)
{
    const double left = *(const double *)a;
    const double right = *(const double *)b;
    return (left > right) - (left < right);
}

#endif
