/* Quality of layer-wise N:M configurations of a supernet on pictures: what a search asks.
 *
 * Configurations are scored by running the model with masked matrices in place of its own. Work is
 * saved three ways: masked matrices are kept, activations are kept by the configuration of the
 * blocks before them (a configuration starts at the first block where it leaves a kept path), and
 * the configurations of one call go in an order in which neighbours share most. What was scored
 * before is the caller's to remember. Scores do not depend on what is kept. */
#ifndef ESPL_STAGES_NM_ORACLE_H
#define ESPL_STAGES_NM_ORACLE_H

#include "eval/vision_quality.h"
#include "search/search.h"
#include "stages/nm_supernet/nm_pictures.h"
#include "stages/nm_supernet/supernet_store.h"

enum espl_nm_metric {
    ESPL_NM_KL,   /* minus the mean KL divergence from the dense supernet: least noise */
    ESPL_NM_TOP1, /* share of pictures whose label has the highest logit */
    ESPL_NM_LOSS  /* minus the mean cross entropy */
};
/** "kl", "top1", "loss"; ends with NULL. */
extern const char *const espl_nm_metrics[];

struct espl_nm_oracle_options {
    unsigned fidelities;                         /* 1..ESPL_SEARCH_MAX_FIDELITIES */
    size_t pictures[ESPL_SEARCH_MAX_FIDELITIES]; /* of each, at most those of the search */
    int metric[ESPL_SEARCH_MAX_FIDELITIES];      /* enum espl_nm_metric of each */
    uint64_t activation_bytes; /* for kept activations; two buffers are always there */
    uint64_t weight_bytes;     /* for kept masked matrices; one a layer is always there */
};

/** Work done and saved. */
struct espl_nm_oracle_work {
    uint64_t block_pictures; /* pictures times blocks that were run */
    double flop;
    double seconds; /* in blocks, embedding and heads */
};

struct espl_nm_oracle;

/** Everything is borrowed and must outlive the object. Errors: NOMEM, KIND for pictures that do not
 * fit or are too few, and those of espl_vision_create(). */
enum espl_status espl_nm_oracle_create(struct espl_model *model, struct espl_backend *backend,
                                       const struct espl_supernet *supernet,
                                       struct espl_nm_pictures *pictures,
                                       const struct espl_nm_oracle_options *options,
                                       struct espl_nm_oracle **out, struct espl_error *err);
void espl_nm_oracle_destroy(struct espl_nm_oracle *oracle);
/** Most host bytes that the object takes. */
uint64_t espl_nm_oracle_bytes(const struct espl_model_config *config,
                              const struct espl_nm_oracle_options *options);

/** Pictures that a call of espl_nm_oracle_score() looks at, at a fidelity. */
uint64_t espl_nm_oracle_pictures(const struct espl_nm_oracle *oracle, unsigned fidelity);
/** scores (count) of configurations n (count, layers): N of every layer, 1..M. The pictures are
 *  those of (epoch, fidelity). Errors: CANCELLED, NUMERIC, NOMEM, what reading pictures gives. */
enum espl_status espl_nm_oracle_score(struct espl_nm_oracle *oracle, uint64_t epoch,
                                      unsigned fidelity, size_t count, const uint8_t *n,
                                      double *scores, struct espl_error *err);
/** Asked before every configuration and batch of pictures; true stops a call with CANCELLED. */
void espl_nm_oracle_set_stop(struct espl_nm_oracle *oracle, bool (*stop)(void *user), void *user);

/** Top-1 and more of one configuration on the first `count` held-out pictures (0 = all), or, with
 *  `own` not NULL, on pictures of another artifact (its pool). */
enum espl_status espl_nm_oracle_hold_out(struct espl_nm_oracle *oracle,
                                         struct espl_nm_pictures *own, uint64_t count,
                                         const uint8_t *n, struct espl_vision_tally *tally,
                                         struct espl_error *err);
const struct espl_nm_oracle_work *espl_nm_oracle_get_work(const struct espl_nm_oracle *oracle);
/** Blocks of the model. */
uint64_t espl_nm_oracle_blocks(const struct espl_nm_oracle *oracle);

#endif
