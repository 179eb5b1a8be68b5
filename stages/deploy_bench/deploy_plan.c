#include "stages/deploy_bench/deploy_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MOST_BLAMED = 64 };

enum espl_status espl_deploy_refuse(struct espl_error *err, const char *blamed, const char *hint)
{
    espl_hint(err, "%s", hint);
    return espl_blame(err, blamed);
}

static enum espl_status refuse_list(struct espl_error *err, const char *name, const char *hint)
{
    char blamed[MOST_BLAMED];
    (void)snprintf(blamed, sizeof blamed, "param:%s", name);
    return espl_deploy_refuse(err, blamed, hint);
}

static enum espl_status check_count(const struct espl_list *list, const char *name, size_t most,
                                    struct espl_error *err)
{
    if (list->count == 0) {
        espl_fail(err, ESPL_E_JOB, "'%s' must name at least one", name);
        return refuse_list(err, name, "leave the parameter out for the usual ones");
    }
    if (most != 0 && list->count > most) {
        espl_fail(err, ESPL_E_JOB, "'%s' names %zu, more than %zu", name, list->count, most);
        return refuse_list(err, name, "measure the others in a second stage");
    }
    return ESPL_OK;
}

enum espl_status espl_deploy_check_numbers(const struct espl_list *list, const char *name,
                                           size_t most, struct espl_error *err)
{
    const int64_t *items = list->items;
    const enum espl_status status = check_count(list, name, most, err);
    for (size_t i = 0; status == ESPL_OK && i < list->count; i++) {
        for (size_t j = 0; j < i; j++) {
            if (items[i] == items[j]) {
                espl_fail(err, ESPL_E_JOB, "'%s' names %" PRId64 " twice", name, items[i]);
                return refuse_list(err, name, "name each number once");
            }
        }
    }
    return status;
}

enum espl_status espl_deploy_check_choices(const struct espl_list *list, const char *name,
                                           const char *const *choices, struct espl_error *err)
{
    const int *items = list->items;
    const enum espl_status status = check_count(list, name, 0, err);
    for (size_t i = 0; status == ESPL_OK && i < list->count; i++) {
        for (size_t j = 0; j < i; j++) {
            if (items[i] == items[j]) {
                espl_fail(err, ESPL_E_JOB, "'%s' names '%s' twice", name, choices[items[i]]);
                return refuse_list(err, name, "name each once");
            }
        }
    }
    return status;
}

enum espl_status espl_deploy_check_cuda(const char *device, struct espl_error *err)
{
    static const char cuda[] = "cuda:";
    if (strcmp(device, "auto") == 0 || strcmp(device, "cuda:0") == 0) {
        return ESPL_OK;
    }
    espl_fail(err, ESPL_E_UNSUPPORTED, "deploy-bench measures cuda:0, not '%s'", device);
    return strncmp(device, cuda, sizeof cuda - 1) == 0
               ? espl_hint(err, "make it the first one: CUDA_VISIBLE_DEVICES=%s",
                           device + sizeof cuda - 1)
               : err->code;
}
