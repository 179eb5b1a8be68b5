/* The body of a chip's thread: probes the rails once, or reads them tick after tick. */
#include "eval/energy/meter_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

enum {
    PROBE_READINGS = 3,
    FIRST_CAPACITY = 1024,
    MAX_SAMPLES = 1 << 22 /* a rail: 58 hours at 50 ms */
};

int64_t espl_energy_now(void)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC_RAW, &at); /* cannot fail */
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

/* Reads a rail outside the lock. False: the thread shall end, because it is asked to or because the
 * meter has given up on it; then nothing was read. */
static bool read_rail(struct espl_energy_chip *chip, size_t i, struct espl_energy_sample *sample,
                      int64_t *cost_ns, enum espl_rail_state *state, int *sys_errno)
{
    (void)pthread_mutex_lock(&chip->lock);
    chip->reading = i;
    bool wanted = !chip->abandoned && !chip->stop;
    (void)pthread_mutex_unlock(&chip->lock);
    if (!wanted) {
        return false;
    }
    const int64_t before = chip->now();
    *sys_errno = 0;
    *state = chip->driver->read(chip, i, &sample->value, sys_errno);
    *cost_ns = chip->now() - before;
    sample->time_ns = before + *cost_ns / 2;
    if (*state == ESPL_RAIL_OK && !isfinite(sample->value)) {
        *state = ESPL_RAIL_BAD_VALUE;
    }
    (void)pthread_mutex_lock(&chip->lock);
    wanted = !chip->abandoned;
    (void)pthread_mutex_unlock(&chip->lock);
    return wanted;
}

static int64_t median_of_three(const int64_t cost[PROBE_READINGS])
{
    const int64_t low = cost[0] < cost[1] ? cost[0] : cost[1];
    const int64_t high = cost[0] < cost[1] ? cost[1] : cost[0];
    return cost[2] < low ? low : cost[2] > high ? high : cost[2];
}

static void probe(struct espl_energy_chip *chip)
{
    for (size_t i = 0; i < chip->rail_count; i++) {
        struct espl_energy_rail *rail = &chip->rails[i];
        int64_t cost[PROBE_READINGS] = {0};
        enum espl_rail_state state = rail->state;
        int sys_errno = rail->sys_errno;
        for (size_t n = 0; n < PROBE_READINGS && state == ESPL_RAIL_OK; n++) {
            struct espl_energy_sample sample;
            if (!read_rail(chip, i, &sample, &cost[n], &state, &sys_errno)) {
                return;
            }
        }
        (void)pthread_mutex_lock(&chip->lock);
        if (!chip->abandoned) {
            rail->state = state;
            rail->sys_errno = sys_errno;
            rail->read_cost_s = (double)median_of_three(cost) * 1e-9;
        }
        (void)pthread_mutex_unlock(&chip->lock);
    }
}

/* Under the lock. Out of memory, or of the limit: the reading is lost and counted as a failure, so
 * that the window is refused as not covered. */
static void append(struct espl_energy_chip *chip, size_t i, struct espl_energy_sample sample)
{
    struct espl_energy_rail *rail = &chip->rails[i];
    if (rail->series.count == chip->capacity[i]) {
        const size_t capacity =
            chip->capacity[i] == 0 ? (size_t)FIRST_CAPACITY : 2 * chip->capacity[i];
        struct espl_energy_sample *grown =
            capacity <= MAX_SAMPLES ? realloc(chip->samples[i], capacity * sizeof *grown) : NULL;
        if (grown == NULL) {
            rail->failures++;
            rail->last_failure = ESPL_RAIL_UNREADABLE;
            rail->sys_errno = ENOMEM;
            return;
        }
        chip->samples[i] = grown;
        chip->capacity[i] = capacity;
        rail->series.samples = grown;
    }
    chip->samples[i][rail->series.count++] = sample;
}

bool espl_energy_sample_round(struct espl_energy_chip *chip)
{
    for (size_t i = 0; i < chip->rail_count; i++) {
        struct espl_energy_rail *rail = &chip->rails[i];
        struct espl_energy_sample sample;
        enum espl_rail_state state = ESPL_RAIL_OK;
        int64_t cost_ns = 0;
        int sys_errno = 0;
        if (rail->state != ESPL_RAIL_OK) {
            continue; /* written by this thread alone while it runs */
        }
        if (!read_rail(chip, i, &sample, &cost_ns, &state, &sys_errno)) {
            return false;
        }
        (void)pthread_mutex_lock(&chip->lock);
        if (chip->abandoned) {
            (void)pthread_mutex_unlock(&chip->lock);
            return false;
        }
        if (state == ESPL_RAIL_OK) {
            append(chip, i, sample);
        } else {
            rail->failures++;
            rail->last_failure = state;
            rail->sys_errno = sys_errno;
            /* What a counter lost cannot be made up for. */
            rail->state = state == ESPL_RAIL_WENT_BACK ? state : rail->state;
        }
        (void)pthread_mutex_unlock(&chip->lock);
    }
    return true;
}

/* Sleeps until the next tick of a grid that begins at *tick; ticks that have passed are left out,
 * so that a slow sensor is not read without pause. True: the thread shall end. */
static bool wait_for_tick(struct espl_energy_chip *chip, int64_t *tick_ns)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t now_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    const int64_t passed = (now_ns - *tick_ns) / chip->interval_ns;
    *tick_ns += (passed + 1) * chip->interval_ns;
    const struct timespec until = {(time_t)(*tick_ns / 1000000000), (long)(*tick_ns % 1000000000)};
    (void)pthread_mutex_lock(&chip->lock);
    int waited = 0;
    while (!chip->stop && !chip->abandoned && waited == 0) {
        waited = pthread_cond_timedwait(&chip->changed, &chip->lock, &until);
    }
    const bool stop = chip->stop || chip->abandoned;
    (void)pthread_mutex_unlock(&chip->lock);
    return stop;
}

void *espl_energy_chip_main(void *argument)
{
    struct espl_energy_chip *chip = argument;
    if (!chip->sampling) {
        probe(chip);
        return NULL;
    }
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t tick_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    while (espl_energy_sample_round(chip) && !wait_for_tick(chip, &tick_ns)) {
    }
    return NULL;
}
