/* What the tests of CUDA kernels begin with. */
#ifndef TESTS_CUDA_DEVICE_H
#define TESTS_CUDA_DEVICE_H

#include "espalier/cuda_probe.h"
#include "support/cmocka_all.h"

#include <stdbool.h>
#include <stdlib.h>

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

/* ESPL_TEST_SMALL in the environment: smaller cases, for compute-sanitizer, which takes a thousand
 * times as long. */
static inline bool cuda_small(void)
{
    return getenv("ESPL_TEST_SMALL") != NULL;
}

/* The next number of tokens, from 1 on to 65: all to 33 and then every eighth; of small cases 1, 9,
 * 17, 33, 65. */
static inline size_t cuda_next_tokens(size_t tokens)
{
    if (cuda_small()) {
        return tokens < 17 ? tokens + 8 : 2 * tokens - 1;
    }
    return tokens < 33 ? tokens + 1 : tokens + 8;
}

/* ESPL_TEST_FILTER: a pattern of the tests to run. */
static inline void cuda_filter_tests(void)
{
    const char *filter = getenv("ESPL_TEST_FILTER");
    if (filter != NULL) {
        cmocka_set_test_filter(filter);
    }
}

/* Launches of the tests that repeat: 200, small 4, or what ESPL_TEST_LAUNCHES says. */
static inline size_t cuda_launches(void)
{
    const char *text = getenv("ESPL_TEST_LAUNCHES");
    const long count = text != NULL ? strtol(text, NULL, 10) : 0;
    return count > 0 ? (size_t)count : cuda_small() ? 4 : 200;
}

#endif
