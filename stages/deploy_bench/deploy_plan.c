#include "stages/deploy_bench/deploy_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum espl_status espl_deploy_refuse(struct espl_error *err, const char *blamed, const char *hint)
{
    espl_hint(err, "%s", hint);
    return espl_blame(err, blamed);
}

static enum espl_status refuse_twice(const char *name, const char *hint, struct espl_error *err)
{
    char blamed[64];
    (void)snprintf(blamed, sizeof blamed, "param:%s", name);
    return espl_deploy_refuse(err, blamed, hint);
}

enum espl_status espl_deploy_check_numbers(const struct espl_list *list, const char *name,
                                           struct espl_error *err)
{
    const int64_t *numbers = list->items;
    for (size_t i = 0; i < list->count; i++) {
        for (size_t j = 0; j < i; j++) {
            if (numbers[i] == numbers[j]) {
                espl_fail(err, ESPL_E_JOB, "'%s' names %" PRId64 " twice", name, numbers[i]);
                return refuse_twice(name, "name each number once", err);
            }
        }
    }
    return ESPL_OK;
}

enum espl_status espl_deploy_check_choices(const struct espl_list *list, const char *name,
                                           const char *const *choices, struct espl_error *err)
{
    const int *items = list->items;
    for (size_t i = 0; i < list->count; i++) {
        for (size_t j = 0; j < i; j++) {
            if (items[i] == items[j]) {
                espl_fail(err, ESPL_E_JOB, "'%s' names '%s' twice", name, choices[items[i]]);
                return refuse_twice(name, "name each once", err);
            }
        }
    }
    return ESPL_OK;
}

enum espl_status espl_deploy_check_cuda(const char *device, struct espl_error *err)
{
    if (strcmp(device, "auto") == 0 || strcmp(device, "cuda:0") == 0) {
        return ESPL_OK;
    }
    espl_fail(err, ESPL_E_UNSUPPORTED, "deploy-bench measures cuda:0, not '%s'", device);
    return espl_hint(err, "make it the first one: CUDA_VISIBLE_DEVICES=%s", device + 5);
}
