/* What the linears of a stored model's blocks take: as they lie in the artifact, and in every
 * format that can hold their codes. */
#ifndef ESPL_CLI_MODEL_TRAFFIC_H
#define ESPL_CLI_MODEL_TRAFFIC_H

#include "espalier/formats.h"
#include "model/model.h"

enum { ESPL_MODEL_TRAFFIC_FORMATS = 16, ESPL_MODEL_TRAFFIC_NAME = 24 };

/** One linear. Its codes have the columns that are not outliers. */
struct espl_layer_traffic {
    const struct espl_tensor_spec *spec;     /* of the weight; belongs to the model */
    char stored_as[ESPL_MODEL_TRAFFIC_NAME]; /* "iebme-1x1", "dense int4", "bf16" */
    struct espl_traffic stored;              /* codes, or float weights */
    double side_bytes;                       /* beside the codes in every format: scales, outliers
                                              * and their scales; 0 for float weights */
    struct espl_traffic formats[ESPL_MODEL_TRAFFIC_FORMATS]; /* as espl_formats */
    bool holds[ESPL_MODEL_TRAFFIC_FORMATS];                  /* can the format hold these codes? */
};

struct espl_model_traffic {
    struct espl_layer_traffic *layers;
    size_t count;
    unsigned bits; /* of a code in formats[] */
    bool supposed; /* the weights are floats: formats[] is what their mask would take with `bits` */
};

/** Reads all codes of a quantised or encoded model, or the masks of any other. bits: of a code when
 *  the model is not quantised: 2, 4 or 8. *traffic: free with espl_model_traffic_free() in any
 *  case. Errors: as the model's readers, NOMEM. */
enum espl_status espl_model_traffic_load(struct espl_model *model, unsigned bits,
                                         struct espl_model_traffic *traffic,
                                         struct espl_error *err);
void espl_model_traffic_free(struct espl_model_traffic *traffic);

/** Sum over layers as one figure: bytes add up, and so do rows x columns. format: index into
 *  espl_formats, or SIZE_MAX for what is stored. */
struct espl_model_total {
    double weights; /* outlier columns too */
    double bytes;   /* with side_bytes */
    double payload_bytes, padding_bytes, metadata_bytes;
    double
        intensity;  /* eq. 2 over all layers: their operations over their bytes by that equation */
    double seconds; /* sum of the layers' rooflines */
    bool complete;  /* every layer can be held */
};
struct espl_model_total espl_model_traffic_total(const struct espl_model_traffic *traffic,
                                                 size_t format, double tokens, double bandwidth,
                                                 double rate);
/** Roofline time of one layer whose codes move as `traffic`, side_bytes included. */
double espl_layer_seconds(const struct espl_layer_traffic *layer,
                          const struct espl_traffic *traffic, double tokens, double bandwidth,
                          double rate);

#endif
