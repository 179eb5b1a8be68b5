/* espalier doctor: what this machine and build can do, one line a check. */
#include "cli/command.h"
#include "cli/doctor.h"
#include "cli/print.h"

#include <string.h>

static const struct espl_option doctor_options[] = {{0}};

const struct espl_check_row espl_checks[] = {
    {"program", espl_check_program},     {"cpu", espl_check_cpu},
    {"memory", espl_check_memory},       {"threads", espl_check_threads},
    {"openblas", espl_check_openblas},   {"hdf5", espl_check_hdf5},
    {"libraries", espl_check_libraries}, {"store", espl_check_store},
    {"cuda", espl_check_cuda},           {"energy", espl_check_energy},
    {"clocks", espl_check_clocks},       {NULL, NULL},
};

static const struct {
    const char *word;
    enum espl_style style;
} states[] = {[ESPL_CHECK_OK] = {"ok", ESPL_STYLE_GOOD},
              [ESPL_CHECK_WARN] = {"warn", ESPL_STYLE_WARN},
              [ESPL_CHECK_FAIL] = {"fail", ESPL_STYLE_BAD},
              [ESPL_CHECK_NONE] = {"none", ESPL_STYLE_DIM}};

static void print_check(const struct espl_cli *cli, const struct espl_check *check)
{
    const enum espl_style style = states[check->state].style;
    fprintf(cli->out, "%s%-5s%s %-10s %s\n", espl_style_on(cli->colour_out, style),
            states[check->state].word, espl_style_off(cli->colour_out, style), check->name,
            check->facts);
    if (check->advice[0] != '\0') {
        fprintf(cli->out, "%17s%s\n", "", check->advice);
    }
}

static enum espl_status run_doctor(struct espl_cli *cli, struct espl_error *err)
{
    json_t *list = json_array();
    size_t failed = 0;
    size_t count = 0;
    for (; espl_checks[count].name != NULL; ++count) {
        struct espl_check check;
        memset(&check, 0, sizeof check);
        check.name = espl_checks[count].name;
        espl_checks[count].run(cli, &check);
        failed += check.state == ESPL_CHECK_FAIL ? 1 : 0;
        if (cli->json) {
            (void)json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "name", check.name,
                                                        "state", states[check.state].word, "facts",
                                                        check.facts, "advice", check.advice));
        } else {
            print_check(cli, &check);
        }
    }
    enum espl_status status = ESPL_OK;
    if (cli->json) {
        status = espl_print_json_take(
            cli, json_pack("{s:s, s:O}", "schema", "espalier.doctor/1", "checks", list), err);
    }
    json_decref(list);
    if (status == ESPL_OK && failed > 0) {
        status = espl_fail(err, ESPL_E_MACHINE, "%zu of %zu checks failed", failed, count);
    }
    return status;
}

const struct espl_command espl_command_doctor = {
    .name = "doctor",
    .summary = "check what this machine and build can do",
    .positional = "",
    .complete = ESPL_COMPLETE_NONE,
    .min_positional = 0,
    .max_positional = 0,
    .options = doctor_options,
    .description = "States: ok; warn = works, but something is worth a look; fail = runs will "
                   "fail; none = this machine\nhas no such thing. Exits with 0 unless a check "
                   "fails.",
    .run = run_doctor,
};
