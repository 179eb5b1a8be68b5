/* The checks of doctor: facts about this machine and build, each with a state. */
#ifndef ESPL_CLI_DOCTOR_H
#define ESPL_CLI_DOCTOR_H

#include "cli/command.h"

enum espl_check_state { ESPL_CHECK_OK, ESPL_CHECK_WARN, ESPL_CHECK_FAIL, ESPL_CHECK_NONE };

struct espl_check {
    const char *name; /* "openblas" */
    enum espl_check_state state;
    char facts[512];
    char advice[384]; /* "" = none */
};

/** Fills state, facts and advice. */
typedef void (*espl_check_fn)(const struct espl_cli *cli, struct espl_check *check);

struct espl_check_row {
    const char *name;
    espl_check_fn run;
};
/** The table in the order of the output; ends with .name == NULL. */
extern const struct espl_check_row espl_checks[];

/* doctor_machine.c */
void espl_check_cpu(const struct espl_cli *cli, struct espl_check *check);
void espl_check_memory(const struct espl_cli *cli, struct espl_check *check);
void espl_check_threads(const struct espl_cli *cli, struct espl_check *check);
void espl_check_cuda(const struct espl_cli *cli, struct espl_check *check);
/* doctor_energy.c */
void espl_check_energy(const struct espl_cli *cli, struct espl_check *check);
void espl_check_clocks(const struct espl_cli *cli, struct espl_check *check);
/* doctor_software.c */
void espl_check_program(const struct espl_cli *cli, struct espl_check *check);
void espl_check_openblas(const struct espl_cli *cli, struct espl_check *check);
void espl_check_hdf5(const struct espl_cli *cli, struct espl_check *check);
void espl_check_libraries(const struct espl_cli *cli, struct espl_check *check);
/* doctor_store.c */
void espl_check_store(const struct espl_cli *cli, struct espl_check *check);

#endif
