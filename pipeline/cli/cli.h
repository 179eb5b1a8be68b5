/* The command line as a function: main.c calls it, and so can a test. */
#ifndef ESPL_CLI_CLI_H
#define ESPL_CLI_CLI_H

/** Runs one command line and returns the exit code (docs/cli.md). stop_signal, stop_count: set by
 *  signal handlers, see struct espl_cli. */
int espl_cli_main(int argc, char **argv, const volatile int *stop_signal,
                  const volatile int *stop_count);

#endif
