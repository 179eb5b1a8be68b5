/* Payload, metadata and what they mean for time [UnionSparse, section III]. */
#include "espalier/formats.h"

#include <math.h>

struct espl_traffic espl_traffic_of_bytes(size_t rows, size_t cols, unsigned bits,
                                          uint64_t nonzeros, double bytes, double metadata_bytes)
{
    struct espl_traffic traffic = {.rows = rows, .cols = cols, .nonzeros = nonzeros};
    traffic.bytes_per_value = bits / 8.0;
    traffic.payload_bytes = traffic.bytes_per_value * (double)nonzeros;
    traffic.metadata_bytes = metadata_bytes;
    traffic.padding_bytes = bytes - traffic.payload_bytes - metadata_bytes;
    return traffic;
}

struct espl_traffic espl_traffic_of_iebme(const struct espl_iebme_plan *plan)
{
    const double metadata = (double)(plan->bytes - plan->value_bytes);
    return espl_traffic_of_bytes(plan->layout.rows, plan->layout.cols, plan->layout.bits,
                                 plan->nonzeros, (double)plan->bytes, metadata);
}

/* The limit where there is no metadata, and 0 of nothing. */
static double ratio(double payload, double metadata)
{
    if (metadata > 0.0) {
        return payload / metadata;
    }
    return payload > 0.0 ? INFINITY : 0.0;
}

double espl_traffic_pmr(const struct espl_traffic *traffic)
{
    return ratio(traffic->payload_bytes, traffic->metadata_bytes);
}

double espl_traffic_pmr_effective(const struct espl_traffic *traffic)
{
    return ratio(traffic->payload_bytes, traffic->metadata_bytes + traffic->padding_bytes);
}

double espl_traffic_intensity(const struct espl_traffic *traffic, double tokens, double pmr)
{
    const double weights = (double)traffic->rows * (double)traffic->cols;
    const double kept = weights > 0.0 ? (double)traffic->nonzeros / weights : 0.0;
    const double kept_rows = (double)traffic->rows * kept;
    /* M (1-s) (1 + 1/PMR) per column of W: 1/PMR = metadata / payload, also where payload is 0 */
    const double moved = pmr > 0.0 ? kept_rows * (1.0 + 1.0 / pmr) : kept_rows;
    return 2.0 * kept_rows * tokens / (traffic->bytes_per_value * (moved + tokens));
}

double espl_traffic_bytes_per_weight(const struct espl_traffic *traffic)
{
    return (traffic->payload_bytes + traffic->padding_bytes + traffic->metadata_bytes) /
           ((double)traffic->rows * (double)traffic->cols);
}

double espl_traffic_roofline_seconds(const struct espl_traffic *traffic, double tokens,
                                     double output_bytes, double bandwidth, double rate)
{
    const double rows = (double)traffic->rows;
    const double cols = (double)traffic->cols;
    const double bytes = espl_traffic_bytes_per_weight(traffic) * rows * cols +
                         cols * tokens * traffic->bytes_per_value + rows * tokens * output_bytes;
    const double moving = bytes / bandwidth;
    const double computing = rate > 0.0 ? 2.0 * rows * cols * tokens / rate : 0.0;
    return moving > computing ? moving : computing;
}
