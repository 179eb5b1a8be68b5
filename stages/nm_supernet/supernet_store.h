/* supernet/1 artifacts: ranks of the weights of another model, and how they are to be judged.
 *
 * Description: {"architecture", "config", "base": {"content_sha256"}, "supernet": {"m", "vector",
 * "trained", "precision", "modules": [..]}}. Dataset /layers/NNN/<module>/rank u8 [groups, stride],
 * packing "rank<bits>-lsb0" (core/codes.h without sign), logical shape [groups, in]. */
#ifndef ESPL_STAGES_SUPERNET_STORE_H
#define ESPL_STAGES_SUPERNET_STORE_H

#include "artifact/artifact.h"
#include "model/model.h"
#include "stages/nm_supernet/nm_layers.h"

enum espl_nm_precision { ESPL_NM_FLOAT, ESPL_NM_INT8 };
/** "float", "int8"; ends with NULL. */
extern const char *const espl_nm_precisions[];

/** What the description says. */
struct espl_supernet_facts {
    unsigned m;
    size_t vector; /* output channels that share a pattern */
    bool trained;  /* as a supernet; false: accuracy is inherited without training */
    int precision; /* enum espl_nm_precision */
    char base_sha256[ESPL_SHA256_HEX]; /* content of the model; "" at plan time */
};

/** A supernet in memory: ranks of every layer, unpacked. */
struct espl_supernet {
    struct espl_supernet_facts facts;
    struct espl_nm_layers layers;
    uint8_t **ranks; /* (layers): (groups, in) each */
};

/** Description of a supernet over `config`. base_sha256: NULL at plan time. New reference, NULL
 * when out of memory. */
json_t *espl_supernet_describe(const struct espl_model_config *config, const char *base_sha256,
                               const struct espl_supernet_facts *facts,
                               const struct espl_nm_layers *layers);
/** Facts and layers out of a description, as espl_plan_input() gives it. layers: NULL = not wanted.
 *  Errors: CORRUPT naming the member. */
enum espl_status espl_supernet_read_description(const json_t *description,
                                                struct espl_supernet_facts *facts,
                                                struct espl_nm_layers *layers,
                                                struct espl_error *err);
/** Writes the ranks (groups, in) of a layer. */
enum espl_status espl_supernet_write_ranks(struct espl_artifact *artifact,
                                           const struct espl_supernet_facts *facts,
                                           const struct espl_nm_layer *layer, const uint8_t *ranks,
                                           struct espl_error *err);
/** Reads all; checks that it belongs to `model` (content hash). Free with espl_supernet_free(),
 * also after a failure. Errors: KIND for another model's supernet; CORRUPT; NOMEM. */
enum espl_status espl_supernet_open(struct espl_artifact *artifact, const char *model_sha256,
                                    struct espl_supernet *supernet, struct espl_error *err);
void espl_supernet_free(struct espl_supernet *supernet);

#endif
