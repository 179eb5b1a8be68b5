/* What the parts of `espalier bench spmm` share. */
#ifndef ESPL_CLI_BENCH_SPMM_H
#define ESPL_CLI_BENCH_SPMM_H

#include "cli/bench.h"
#include "cli/bench_settings.h"
#include "core/buf.h"
#include "kernels/bench/spmm_ablation.h"
#include "kernels/bench/spmm_bench.h"
#include "kernels/bench/spmm_tuning.h"
#include "stages/deploy_bench/bench_record.h"
#include "stages/deploy_bench/deploy_matrices.h"

enum { ESPL_BENCH_MOST_LIBRARIES = 4 };

struct espl_spmm_settings {
    struct espl_bench_size sizes[ESPL_BENCH_MOST_SETTINGS];
    double sparsities[ESPL_BENCH_MOST_SETTINGS];
    size_t tokens[ESPL_BENCH_MOST_SETTINGS];
    size_t size_count, sparsity_count, token_count;
    const char *model;         /* its matrices instead of random ones; NULL = no */
    bool cpu;                  /* --backend cpu: the CPU's ops instead of the CUDA device */
    bool ablation;             /* the ablation instead of the cases */
    const char *tune_file;     /* write choices there; NULL = no */
    const char *tuning_file;   /* take choices from there; NULL = no */
    const char *artifact_file; /* write an artifact there; NULL = no */
    const char *plot_folder;   /* write plots there; NULL = no */
    bool sgemm;                /* CPU: the baseline */
    struct espl_spmm_bench_options options; /* of the CUDA bench; forms are the CPU's, too */
    void *libraries[ESPL_BENCH_MOST_LIBRARIES];
    size_t library_count;
};

/** Reads the options of the command line and loads the libraries of --baseline-library. Errors:
 *  USAGE, VERSION for a library of another version, NOMEM. */
enum espl_status espl_spmm_settings_read(const struct espl_cli *cli,
                                         struct espl_spmm_settings *settings,
                                         struct espl_error *err);
void espl_spmm_settings_free(struct espl_spmm_settings *settings);

/** Are dense forms all that is asked for? */
bool espl_spmm_dense_only(const struct espl_spmm_bench_options *options);

/** The model whose matrices are measured. */
struct espl_spmm_model {
    struct espl_artifact *artifact;
    struct espl_model *model; /* NULL: none was named */
    struct espl_deploy_matrices matrices;
};
/** Opens settings->model, when there is one, and finds its matrices. *out: espl_spmm_model_close()
 *  also after an error. Errors: those of the target, KIND, UNSUPPORTED for codes that the device
 *  cannot measure. */
enum espl_status espl_spmm_model_open(const struct espl_cli *cli,
                                      const struct espl_spmm_settings *settings,
                                      struct espl_spmm_model *out, struct espl_error *err);
void espl_spmm_model_close(struct espl_spmm_model *model);

/** The ablation of all shapes, tokens and sparsities: a table, or the JSON object. */
enum espl_status espl_spmm_ablation_run(const struct espl_cli *cli,
                                        const struct espl_spmm_settings *settings,
                                        const char *device, const struct espl_spmm_ceiling *ceiling,
                                        struct espl_error *err);
/** ablation-ROWSxCOLS-nTOKENS.svg and .csv: the same shape and tokens at `count` sparsities, into a
 *  folder that is made when missing. */
enum espl_status espl_spmm_ablation_plot(const struct espl_spmm_ablation *panels, size_t count,
                                         const char *folder, struct espl_error *err);
/** Tables of all cases and of the means, or the JSON object. */
enum espl_status espl_spmm_print(const struct espl_cli *cli, const struct espl_bench_record *record,
                                 struct espl_error *err);
/** One row for every result, with every mode that was measured, when there is more to tell than the
 *  usual mode: other modes, layers beside the products of their codes, sweeps; and the means of the
 *  latter two. */
enum espl_status espl_spmm_print_details(const struct espl_cli *cli,
                                         const struct espl_bench_record *record,
                                         struct espl_error *err);
/** speedups.svg, roofline.svg and their figures as CSV, into a folder that is made when missing. */
enum espl_status espl_spmm_plot(const struct espl_bench_record *record, const char *folder,
                                struct espl_error *err);

#endif
