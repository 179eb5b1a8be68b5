#include "eval/rope_frequencies.h"

#include <math.h>

static const double two_pi = 6.28318530717958647692;

static double plain_frequency(double theta, size_t index, double head_dim)
{
    return pow(theta, -2.0 * (double)index / head_dim);
}

/* Windows longer than the model was trained for stretch theta so that the lowest frequency covers
 * them; shorter ones are left alone. */
static double dynamic_theta(const struct espl_rope *rope, double head_dim, double longest,
                            double tokens)
{
    if (tokens <= longest) {
        return rope->theta;
    }
    const double stretch = rope->factor * tokens / longest - (rope->factor - 1.0);
    return rope->theta * pow(stretch, head_dim / (head_dim - 2.0));
}

/* High frequencies stay, low ones are divided by the factor, those between are mixed. */
static double llama3_frequency(const struct espl_rope *rope, double longest, double frequency)
{
    const double wavelength = two_pi / frequency;
    if (wavelength < longest / rope->high_freq_factor) {
        return frequency;
    }
    if (wavelength > longest / rope->low_freq_factor) {
        return frequency / rope->factor;
    }
    const double smooth = (longest / wavelength - rope->low_freq_factor) /
                          (rope->high_freq_factor - rope->low_freq_factor);
    return frequency * ((1.0 - smooth) / rope->factor + smooth);
}

/* The (fractional) index of the frequency that turns `rotations` times over the trained length. */
static double yarn_index(const struct espl_rope *rope, double head_dim, double longest,
                         double rotations)
{
    return head_dim * log(longest / (rotations * two_pi)) / (2.0 * log(rope->theta));
}

/* Fraction of the divided frequency at `index`: 0 up to `low`, 1 from `high` on. */
static double yarn_ramp(double index, double low, double high)
{
    const double span = high > low ? high - low : 0.001;
    const double ramp = (index - low) / span;
    return ramp < 0.0 ? 0.0 : (ramp > 1.0 ? 1.0 : ramp);
}

void espl_rope_frequencies(const struct espl_model_config *config, size_t tokens, float *inv_freq,
                           float *magnitude)
{
    const struct espl_rope *rope = &config->rope;
    const double head_dim = (double)config->head_dim;
    const double longest = (double)(rope->original_max_positions != 0 ? rope->original_max_positions
                                                                      : config->max_positions);
    double theta = rope->theta;
    double low = 0.0;
    double high = 0.0;
    *magnitude = 1.0F;
    if (rope->type == ESPL_ROPE_DYNAMIC) {
        theta = dynamic_theta(rope, head_dim, longest, (double)tokens);
    } else if (rope->type == ESPL_ROPE_YARN) {
        low = fmax(floor(yarn_index(rope, head_dim, longest, rope->beta_fast)), 0.0);
        high = fmin(ceil(yarn_index(rope, head_dim, longest, rope->beta_slow)), head_dim - 1.0);
        const double computed = rope->factor > 1.0 ? 0.1 * log(rope->factor) + 1.0 : 1.0;
        *magnitude = (float)(rope->attention_factor > 0.0 ? rope->attention_factor : computed);
    }
    for (size_t i = 0; i < config->head_dim / 2; i++) {
        double frequency = plain_frequency(theta, i, head_dim);
        if (rope->type == ESPL_ROPE_LINEAR) {
            frequency /= rope->factor;
        } else if (rope->type == ESPL_ROPE_LLAMA3) {
            frequency = llama3_frequency(rope, longest, frequency);
        } else if (rope->type == ESPL_ROPE_YARN) {
            const double divided = yarn_ramp((double)i, low, high);
            frequency = frequency / rope->factor * divided + frequency * (1.0 - divided);
        }
        inv_freq[i] = (float)frequency;
    }
}
