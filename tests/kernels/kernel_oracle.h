/* Expected outputs of kernel problems in double, written apart from the backends: the obvious
 * formula over the problem's inputs, no code shared with kernels/. */
#ifndef ESPL_TESTS_KERNEL_ORACLE_H
#define ESPL_TESTS_KERNEL_ORACLE_H

#include "kernels/bench/cases.h"

/** Expected values, problem->output_count of them (a mask: its bytes as numbers); malloc'ed. Fails
 * the running test for an op it does not know. */
double *kernel_oracle(const struct espl_kernel_problem *problem);
/** The output as doubles; malloc'ed. */
double *kernel_output_as_double(const struct espl_kernel_problem *problem);

#endif
