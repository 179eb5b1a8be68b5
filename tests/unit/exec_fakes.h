/* Stages that work, sleep, fail and crash on request, and helpers to run jobs of them, for the
 * tests of the executor. */
#ifndef ESPL_TESTS_EXEC_FAKES_H
#define ESPL_TESTS_EXEC_FAKES_H

#include "engine/exec.h"
#include "engine/run_record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/** What the stage "work" does at step `at`. */
enum work_action {
    WORK_NONE,
    WORK_FAIL,    /* returns NUMERIC, blames parameter value */
    WORK_CRASH,   /* SIGSEGV */
    WORK_EXIT,    /* _exit(3) without a status */
    WORK_IGNORE,  /* from then on does not look whether it is cancelled */
    WORK_NAN,     /* reports a metric that is no number */
    WORK_NOSPACE, /* fails as a full disk does */
    WORK_PRINT,   /* writes to stdout and stderr, and logs a warning */
    WORK_HOARD    /* asks for 2 GiB of memory, fails with NOMEM when it does not get them */
};

extern const struct espl_stage exec_fake_work, exec_fake_split;
extern const struct espl_stage *const exec_fake_stages[];

/** A test's folder with results/ in it, and what a run left. */
struct exec_fixture {
    char folder[ESPL_PATH_MAX];
    char counter[ESPL_PATH_MAX]; /* file to which stage bodies append a line a start and a unit */
    struct espl_store store;
    struct espl_exec_result result;
    struct espl_error err;
    struct espl_buf events; /* one line an event: "stage_end prune" */
    int stop_signal;        /* of the run; tests set them in on_event or in a handler */
    int stop_count;
    /* called for every event when set */
    void (*hook)(struct exec_fixture *fixture, const struct espl_event *event);
    /* options of the next run */
    bool keep_going;
    double stop_seconds;
    const char *force;
    const char *until;
};

/** A job of two stages, the second reading the first. */
extern const char exec_chain[];

int exec_fixture_setup(void **state);
int exec_fixture_teardown(void **state);
/** Plans and runs a job text; "%s" in it stands for the counter file (at most 8 times). */
enum espl_status exec_fixture_run(struct exec_fixture *fixture, const char *job);
/** Lines of the counter file that are equal to `line`. */
size_t exec_fixture_count(const struct exec_fixture *fixture, const char *line);
/** Loads run.json of the last run. New reference. */
json_t *exec_fixture_record(const struct exec_fixture *fixture);
/** A number or text of an object; fails the test when there is none. */
double exec_number_at(const json_t *object, const char *name);
const char *exec_text_at(const json_t *object, const char *name);
/** Compares the states of the last run's stages with "first=done second=failed". */
void exec_fixture_check_states(const struct exec_fixture *fixture, const char *expected);
/** A text file below results/, malloc'ed; fails the test when it is not there. */
char *exec_fixture_read(const struct exec_fixture *fixture, const char *name, size_t *len);
/** Names in a folder below results/ that end with `ending`; the empty guard files of taken-over
 * locks stay for ever and do not count. */
size_t exec_fixture_names(const struct exec_fixture *fixture, const char *dir, const char *ending);

#endif
