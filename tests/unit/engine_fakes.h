/* A small registry of stages that do nothing, and helpers, for the tests of the engine. */
#ifndef ESPL_TESTS_ENGINE_FAKES_H
#define ESPL_TESTS_ENGINE_FAKES_H

#include "engine/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct fake_import_params {
    const char *checkpoint;
    int arch;
    int dtype;
    int storage;
};

struct fake_prune_params {
    double sparsity;
    struct espl_nm pattern;
    struct espl_list targets;
    int64_t group_size;
    uint64_t budget;
    double patience;
    const char *note;
    bool fast;
    struct espl_list widths;
};

enum fake_dtype { FAKE_DTYPE_KEEP, FAKE_DTYPE_F16, FAKE_DTYPE_F32 };

extern const struct espl_stage fake_import, fake_tokens, fake_prune, fake_evaluate, fake_export,
    fake_split;
extern const struct espl_stage *const fake_stages[];

/** What fake_prune's plan() says; reset by fakes_reset(). Tests are single processes. */
struct fake_settings {
    uint64_t host_bytes, scratch_bytes, output_bytes, units;
    const char *fail_blame; /* plan() fails with this blame when set */
    bool export_is_stale;
    bool folder_is_taken; /* an older export lies where fake_export writes */
};
extern struct fake_settings fake_settings;
void fakes_reset(void);

/** Parses a job text with the fake registry; fails the test when it has errors. */
struct espl_job *fakes_job(const char *text, const struct espl_override *overrides, size_t count);
/** Parses a text that has errors and compares the rendered errors. */
void fakes_expect_errors(const char *text, const struct espl_override *overrides, size_t count,
                         const char *expected);
/** Plans a job; the diagnostics must be empty. */
struct espl_plan *fakes_plan(const struct espl_job *job, const struct espl_store *store,
                             const struct espl_plan_options *options);
/** Plans a job that has errors and compares the rendered errors. The plan may be NULL. */
struct espl_plan *fakes_plan_errors(const struct espl_job *job, const struct espl_store *store,
                                    const struct espl_plan_options *options, const char *expected);
const struct espl_plan_stage *fakes_find(const struct espl_plan *plan, const char *id);
/** A fresh folder below the temporary folder, and a store in it that is opened read-only. */
void fakes_make_folder(char folder[ESPL_PATH_MAX]);
void fakes_remove_folder(const char *folder);
/** Publishes a result of a planned stage, as a run would: artifact, provenance, link. */
void fakes_store_result(const struct espl_store *store, const struct espl_plan *plan,
                        const char *id, const char *description);
/** Writes a text file. */
void fakes_write(const char *path, const char *text);

#endif
