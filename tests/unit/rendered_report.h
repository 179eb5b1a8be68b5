/* The report page of one run whose record is given as text; the page must be well-formed. */
#ifndef TESTS_RENDERED_REPORT_H
#define TESTS_RENDERED_REPORT_H

#include "engine/run_record.h"
#include "report/report.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"
#include "xml_check.h"

#include <stdio.h>
#include <string.h>

/* text: run.json. *out: freed by the caller. */
static inline void report_page(const char *run_id, const char *text, struct espl_buf *out)
{
    char folder[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    char message[256] = "";
    struct espl_store store;
    struct espl_error err = {0};
    temp_folder_make(folder);
    espl_buf_init(out, ESPL_REPORT_MAX_BYTES);
    assert_int_equal(espl_store_open(folder, &store, NULL), ESPL_OK);
    assert_int_equal(espl_run_path(&store, run_id, NULL, path, NULL), ESPL_OK);
    assert_int_equal(espl_fs_make_dirs(path, NULL), ESPL_OK);
    assert_int_equal(espl_run_path(&store, run_id, "run.json", path, NULL), ESPL_OK);
    assert_int_equal(espl_fs_write_file(path, text, strlen(text), NULL), ESPL_OK);
    if (espl_report_render(&store, run_id, NULL, out, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    if (!xml_check(espl_buf_text(out), out->len, message)) {
        fail_msg("%s", message);
    }
    temp_folder_remove(folder);
}

/* The page of a run with one stage of deploy-bench, `bench`. volatile_metrics, layer_metrics: JSON.
 * *out: freed by the caller. */
static inline void report_bench_page(const char *volatile_metrics, const char *layer_metrics,
                                     struct espl_buf *out)
{
    static const char run_id[] = "20260512-100411-a-0001";
    char text[16384];
    (void)snprintf(
        text, sizeof text,
        "{\"schema\": \"espalier.run/1\", \"run_id\": \"%s\", \"job\": \"s\", \"status\": \"ok\", "
        "\"expectations\": [], \"environment\": {}, \"stages\": [{\"id\": \"bench\", \"use\": "
        "\"deploy-bench\", \"key\": \"aa\", \"state\": \"done\", \"inputs\": [], \"metrics\": {}, "
        "\"volatile_metrics\": %s, \"layer_metrics\": %s}]}",
        run_id, volatile_metrics, layer_metrics);
    report_page(run_id, text, out);
}

#endif
