/* The stages of this build: are their tables sound, and do the jobs that ship read with them? */
#include "engine/job.h"
#include "stages/registry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/fs.h"

static void test_tables__are_sound(void **state)
{
    (void)state;
    struct espl_error err = {0};
    if (espl_schema_check_stages(espl_stages, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
}

static void read_job(const char *path)
{
    struct espl_diagnostics diags;
    struct espl_error err = {0};
    struct espl_job *job = NULL;
    struct espl_buf text;
    espl_buf_init(&text, 1 << 20);
    assert_int_equal(espl_diagnostics_init(&diags, &err), ESPL_OK);
    const enum espl_status status = espl_job_load(path, espl_stages, NULL, 0, &diags, &job, &err);
    espl_diagnostics_render(&diags, false, &text);
    if (status != ESPL_OK) {
        fail_msg("%s\n%s", err.message, espl_buf_text(&text));
    }
    espl_job_free(job);
    espl_diagnostics_free(&diags);
    espl_buf_free(&text);
}

static void test_jobs__that_ship_are_read(void **state)
{
    (void)state;
    char **names = NULL;
    size_t count = 0;
    size_t jobs = 0;
    assert_int_equal(espl_fs_list(ESPL_SOURCE_DIR "/jobs", 1000, &names, &count, NULL), ESPL_OK);
    for (size_t i = 0; i < count; i++) {
        const size_t len = strlen(names[i]);
        if (len > 5 && strcmp(names[i] + len - 5, ".yaml") == 0) {
            char path[ESPL_PATH_MAX];
            assert_int_equal(espl_fs_join(path, ESPL_SOURCE_DIR "/jobs", names[i], NULL), ESPL_OK);
            read_job(path);
            jobs++;
        }
    }
    espl_fs_free_names(names, count);
    assert_true(jobs > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables__are_sound),
        cmocka_unit_test(test_jobs__that_ship_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
