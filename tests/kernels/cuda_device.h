/* What the tests of CUDA kernels begin with. */
#ifndef TESTS_CUDA_DEVICE_H
#define TESTS_CUDA_DEVICE_H

#include "espalier/cuda_probe.h"
#include "support/cmocka_all.h"

#include <stdbool.h>

/* Stops the test with the message of an error. */
static inline void cuda_check(enum espl_status status, const struct espl_error *err)
{
    if (status != ESPL_OK) {
        fail_msg("%s (%s)", err->message, err->hint);
    }
}

/* Says why nothing is tested. */
static inline bool cuda_has_device(void)
{
    static struct espl_cuda_info info;
    struct espl_error err;
    if (espl_cuda_probe(&info, &err) != ESPL_OK) {
        print_message("SKIPPED, NOT TESTED: %s\n", err.message);
        return false;
    }
    return true;
}

#endif
