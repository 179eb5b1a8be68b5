#include "kernels/bench/blas_share.h"

#include <cblas.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

enum { INTERVAL_US = 2000 };

/* A signal handler has no argument of ours, so what it works on cannot live elsewhere. Written
 * before the timer starts, counted by the handler alone. */
static struct {
    uintptr_t low, high; /* of the library */
    uint64_t samples, in_blas;
} sampler;

#if defined(__x86_64__)
#define CAN_SAMPLE          true
#define PROGRAM_COUNTER(uc) ((uintptr_t)(uc)->uc_mcontext.gregs[REG_RIP])
#elif defined(__aarch64__)
#define CAN_SAMPLE          true
#define PROGRAM_COUNTER(uc) ((uintptr_t)(uc)->uc_mcontext.pc)
#else
#define CAN_SAMPLE          false
#define PROGRAM_COUNTER(uc) ((void)(uc), (uintptr_t)0)
#endif

static void on_sample(int number, siginfo_t *info, void *context)
{
    const ucontext_t *where = context;
    const uintptr_t at = PROGRAM_COUNTER(where);
    (void)number;
    (void)info;
    __atomic_fetch_add(&sampler.samples, 1, __ATOMIC_RELAXED);
    if (at >= sampler.low && at < sampler.high) {
        __atomic_fetch_add(&sampler.in_blas, 1, __ATOMIC_RELAXED);
    }
}

/* The object that holds an address. */
struct search {
    uintptr_t address, low, high;
};

static int look_at(struct dl_phdr_info *object, size_t size, void *user)
{
    struct search *search = user;
    uintptr_t low = UINTPTR_MAX;
    uintptr_t high = 0;
    (void)size;
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const uintptr_t start = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
        if (object->dlpi_phdr[i].p_type == PT_LOAD) {
            low = start < low ? start : low;
            high = start + object->dlpi_phdr[i].p_memsz > high
                       ? start + object->dlpi_phdr[i].p_memsz
                       : high;
        }
    }
    if (search->address < low || search->address >= high) {
        return 0;
    }
    search->low = low;
    search->high = high;
    return 1;
}

static bool find_blas(void)
{
    struct search blas = {.address = (uintptr_t)cblas_sgemm};
    struct search program = {.address = (uintptr_t)on_sample};
    if (dl_iterate_phdr(look_at, &blas) == 0 || dl_iterate_phdr(look_at, &program) == 0 ||
        blas.low == program.low) {
        return false;
    }
    sampler.low = blas.low;
    sampler.high = blas.high;
    return true;
}

enum espl_status espl_blas_share_start(struct espl_error *err)
{
    const struct itimerval every = {{0, INTERVAL_US}, {0, INTERVAL_US}};
    struct sigaction action;
    memset(&sampler, 0, sizeof sampler);
    memset(&action, 0, sizeof action);
    if (!CAN_SAMPLE) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "no sampler for this processor");
    }
    if (!find_blas()) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "the BLAS is part of the program, so its share cannot be told");
    }
    action.sa_sigaction = on_sample;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    (void)sigemptyset(&action.sa_mask);
    if (sigaction(SIGPROF, &action, NULL) != 0 || setitimer(ITIMER_PROF, &every, NULL) != 0) {
        return espl_fail_errno(err, errno, "cannot start the profiling timer");
    }
    return ESPL_OK;
}

void espl_blas_share_stop(struct espl_blas_share *share)
{
    const struct itimerval never = {{0, 0}, {0, 0}};
    (void)setitimer(ITIMER_PROF, &never, NULL); /* cannot fail: the timer and the value are valid */
    (void)signal(SIGPROF, SIG_IGN);             /* one may still be on its way */
    share->samples = __atomic_load_n(&sampler.samples, __ATOMIC_RELAXED);
    share->in_blas = __atomic_load_n(&sampler.in_blas, __ATOMIC_RELAXED);
}
