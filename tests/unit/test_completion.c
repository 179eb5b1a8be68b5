/* The completion scripts, in the shells themselves. */
#include "cli/command.h"
#include "core/fs.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[ESPL_PATH_MAX];

static const char job_text[] = "version: 1\n"
                               "name: completion-test\n"
                               "stages:\n"
                               "  - id: dense\n"
                               "    use: import\n"
                               "    with: {checkpoint: somewhere}\n"
                               "  - id: prune\n"
                               "    use: magnitude-prune\n"
                               "    in: dense\n";

static int set_up(void **state)
{
    char path[ESPL_PATH_MAX];
    (void)state;
    temp_folder_make(folder);
    assert_int_equal(espl_fs_join(path, folder, "job.yaml", NULL), ESPL_OK);
    assert_int_equal(espl_fs_write_file(path, job_text, strlen(job_text), NULL), ESPL_OK);
    assert_int_equal(espl_fs_join(path, folder, "notes.txt", NULL), ESPL_OK);
    assert_int_equal(espl_fs_write_file(path, "x", 1, NULL), ESPL_OK);
    assert_int_equal(espl_fs_join(path, folder, "results/by-name/quick", NULL), ESPL_OK);
    assert_int_equal(espl_fs_make_dirs(path, NULL), ESPL_OK);
    assert_int_equal(espl_fs_join(path, folder, "results/by-name/quick/prune.h5", NULL), ESPL_OK);
    assert_int_equal(espl_fs_write_file(path, "x", 1, NULL), ESPL_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    temp_folder_remove(folder);
    return 0;
}

static bool have(const char *program)
{
    char command[128];
    (void)snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", program);
    return system(command) == 0;
}

/* Runs a script in the test's folder with the built program first in PATH; returns its output. */
static const char *run_shell(const char *shell, const char *script)
{
    static char output[65536];
    char path[ESPL_PATH_MAX];
    char command[3 * ESPL_PATH_MAX];
    assert_int_equal(espl_fs_join(path, folder, "script", NULL), ESPL_OK);
    assert_int_equal(espl_fs_write_file(path, script, strlen(script), NULL), ESPL_OK);
    (void)snprintf(command, sizeof command, "cd '%s' && PATH='%s':\"$PATH\" %s ./script 2>&1",
                   folder, ESPL_BINARY_DIR, shell);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    const size_t len = fread(output, 1, sizeof output - 1, pipe);
    output[len] = '\0';
    const int status = pclose(pipe);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail_msg("%s ended with %d:\n%s", shell, status, output);
    }
    return output;
}

/* What bash would offer for a command line, one a line, sorted. words: the line split as bash
 * splits it, shell-quoted. */
static const char *bash_offers(const char *words)
{
    char script[2048];
    (void)snprintf(script, sizeof script,
                   "set -u\nsource <(espalier completion bash)\n"
                   "COMP_WORDS=(espalier %s)\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                   "_espalier\n(( ${#COMPREPLY[@]} )) && printf '%%s\\n' \"${COMPREPLY[@]}\" | "
                   "LC_ALL=C sort\nexit 0\n",
                   words);
    return run_shell("bash --norc", script);
}

static void assert_line(const char *text, const char *line, bool wanted)
{
    char with_end[256];
    (void)snprintf(with_end, sizeof with_end, "%s\n", line);
    const char *at = strstr(text, with_end);
    const bool found = at != NULL && (at == text || at[-1] == '\n');
    if (found != wanted) {
        fail_msg("'%s' is %sin:\n%s", line, wanted ? "not " : "", text);
    }
}

static void need_bash(void)
{
    if (!have("bash")) {
        print_message("skipped: no bash here\n");
        skip();
    }
}

static void need_zsh(void)
{
    if (!have("zsh")) {
        print_message("skipped: no zsh here\n");
        skip();
    }
}

static void test_bash__verbs(void **state)
{
    (void)state;
    need_bash();
    assert_string_equal(bash_offers("re"), "report\n");
    const char *all = bash_offers("''");
    for (size_t i = 0; espl_commands[i] != NULL; ++i) {
        assert_line(all, espl_commands[i]->name, true);
    }
}

static void test_bash__options_of_the_verb(void **state)
{
    (void)state;
    need_bash();
    const char *offers = bash_offers("report --");
    assert_line(offers, "--format=", true);
    assert_line(offers, "--store=", true);
    assert_line(offers, "--json", true);
    assert_line(offers, "--tensor=", false); /* inspect's */
}

static void test_bash__choices_and_values(void **state)
{
    (void)state;
    need_bash();
    assert_string_equal(bash_offers("report --format = ''"), "csv\nhtml\njson\nmd\n");
    assert_string_equal(bash_offers("report --format = m"), "md\n");
    assert_string_equal(bash_offers("report -f h"), "html\n");
    assert_string_equal(bash_offers("completion z"), "zsh\n");
    assert_line(bash_offers("stages ''"), "wanda-prune", true);
}

static void test_bash__job_files_stages_and_parameters(void **state)
{
    (void)state;
    need_bash();
    const char *files = bash_offers("plan ''");
    assert_line(files, "job.yaml", true);
    assert_line(files, "results", true); /* a folder may hold jobs */
    assert_line(files, "notes.txt", false);
    assert_string_equal(bash_offers("plan job.yaml --until ''"), "dense\nprune\n");
    assert_string_equal(bash_offers("plan job.yaml --until = p"), "prune\n");
    assert_string_equal(bash_offers("why job.yaml d"), "dense\n");
    assert_line(bash_offers("run job.yaml --set prune.s"), "prune.sparsity=", true);
    assert_line(bash_offers("run job.yaml --set s"), "seed=", true);
}

static void test_bash__artifacts_across_the_colon(void **state)
{
    (void)state;
    need_bash();
    assert_line(bash_offers("inspect qu"), "quick:prune", true);
    assert_string_equal(bash_offers("inspect quick :"), "prune\n");
    assert_string_equal(bash_offers("inspect quick : p"), "prune\n");
    assert_string_equal(bash_offers("inspect --store = elsewhere quick : p"), "");
}

static void test_bash__broken_job_offers_nothing(void **state)
{
    char path[ESPL_PATH_MAX];
    (void)state;
    need_bash();
    assert_int_equal(espl_fs_join(path, folder, "bad.yaml", NULL), ESPL_OK);
    assert_int_equal(espl_fs_write_file(path, "a: [", 4, NULL), ESPL_OK);
    assert_string_equal(bash_offers("plan bad.yaml --until ''"), "");
}

/* Types a line and a tab into an interactive zsh and gives back what stands on the line then. */
static const char *zsh_line(const char *typed)
{
    char script[4096];
    (void)snprintf(
        script, sizeof script,
        "zmodload zsh/zpty\n"
        "zpty -b shell \"PS1='' TERM=dumb zsh -f -i\"\n"
        "zpty -w shell \"stty cols 1000; autoload -Uz compinit; compinit -u -D; "
        "source <(espalier completion zsh); setopt no_beep no_zle_bracketed_paste 2>/dev/null\"\n"
        "zpty -w shell \"show() { print -r -- \\\"<line>\\$BUFFER</line>\\\"; zle kill-whole-line "
        "}; "
        "zle -N show; bindkey '^X' show; print re''ady\"\n"
        "zpty -r -m shell seen '*ready*'\n"
        "zpty -w -n shell $'%s\\t'\nsleep 0.5\nzpty -w -n shell $'\\x18'\n"
        "zpty -r -m shell seen '*</line>*'\nprint -r -- \"$seen\"\n"
        "zpty -d shell\n",
        typed);
    return run_shell("timeout 20 zsh -f", script);
}

static void assert_zsh(const char *typed, const char *expected)
{
    char wanted[256];
    (void)snprintf(wanted, sizeof wanted, "<line>%s</line>", expected);
    const char *seen = zsh_line(typed);
    if (strstr(seen, wanted) == NULL) {
        fail_msg("'%s' did not become '%s' but:\n%s", typed, expected, seen);
    }
}

static void test_zsh__syntax(void **state)
{
    (void)state;
    need_zsh();
    assert_string_equal(run_shell("zsh -f", "espalier completion zsh > s && zsh -n s\n"), "");
}

static void test_zsh__completes(void **state)
{
    (void)state;
    need_zsh();
    assert_zsh("espalier repo", "espalier report ");
    assert_zsh("espalier report --form", "espalier report --format=");
    assert_zsh("espalier report --format=m", "espalier report --format=md ");
    assert_zsh("espalier plan job.yaml --until pr", "espalier plan job.yaml --until prune ");
    assert_zsh("espalier run job.yaml --set prune.spars",
               "espalier run job.yaml --set prune.sparsity=");
    assert_zsh("espalier plan jo", "espalier plan job.yaml ");
    assert_zsh("espalier inspect quick:", "espalier inspect quick:prune ");
    assert_zsh("espalier stages wan", "espalier stages wanda-prune ");
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(test_bash__verbs),
        WITH_FOLDER(test_bash__options_of_the_verb),
        WITH_FOLDER(test_bash__choices_and_values),
        WITH_FOLDER(test_bash__job_files_stages_and_parameters),
        WITH_FOLDER(test_bash__artifacts_across_the_colon),
        WITH_FOLDER(test_bash__broken_job_offers_nothing),
        WITH_FOLDER(test_zsh__syntax),
        WITH_FOLDER(test_zsh__completes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
