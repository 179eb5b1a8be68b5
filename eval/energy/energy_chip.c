/* Chips: making, starting and ending their threads, and letting go of one that does not answer. */
#include "eval/energy/meter_internal.h"

#include <stdlib.h>
#include <time.h>

struct espl_energy_chip *espl_energy_add_chip(struct espl_energy_meter *meter, void *state_take,
                                              struct espl_error *err)
{
    pthread_condattr_t monotonic;
    struct espl_energy_chip *chip = calloc(1, sizeof *chip);
    struct espl_energy_chip unborn = {.driver = meter->driver, .state = state_take};
    if (chip == NULL || meter->chip_count == ESPL_ENERGY_MAX_CHIPS) {
        free(chip);
        meter->driver->close_chip(&unborn);
        (void)espl_fail(err, ESPL_E_NOMEM, "no room for another sensor chip (limit %d)",
                        ESPL_ENERGY_MAX_CHIPS);
        return NULL;
    }
    chip->driver = meter->driver;
    chip->state = state_take;
    chip->interval_ns = meter->interval_ns;
    chip->now = espl_energy_now;
    /* With these attributes neither can fail here. */
    (void)pthread_mutex_init(&chip->lock, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&chip->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    meter->chips[meter->chip_count++] = chip;
    return chip;
}

struct espl_energy_rail *espl_energy_add_rail(struct espl_energy_meter *meter,
                                              struct espl_error *err)
{
    struct espl_energy_chip *chip = meter->chips[meter->chip_count - 1];
    if (chip->rail_count == ESPL_ENERGY_CHIP_RAILS || meter->rail_count == ESPL_ENERGY_MAX_RAILS) {
        (void)espl_fail(err, ESPL_E_NOMEM, "no room for another rail (limit %d a chip, %d in all)",
                        ESPL_ENERGY_CHIP_RAILS, ESPL_ENERGY_MAX_RAILS);
        return NULL;
    }
    struct espl_energy_rail *rail = &chip->rails[chip->rail_count++];
    rail->series.interval_ns = chip->interval_ns;
    meter->rails[meter->rail_count++] = rail;
    return rail;
}

static void destroy(struct espl_energy_chip *chip)
{
    chip->driver->close_chip(chip);
    for (size_t i = 0; i < chip->rail_count; i++) {
        free(chip->samples[i]);
    }
    (void)pthread_cond_destroy(&chip->changed);
    (void)pthread_mutex_destroy(&chip->lock);
    free(chip);
}

static void *chip_thread(void *argument)
{
    struct espl_energy_chip *chip = argument;
    (void)espl_energy_chip_main(chip);
    (void)pthread_mutex_lock(&chip->lock);
    const bool mine = chip->abandoned && chip->stop;
    chip->running = false;
    (void)pthread_cond_broadcast(&chip->changed);
    (void)pthread_mutex_unlock(&chip->lock);
    if (mine) {
        destroy(chip); /* the meter is gone */
    }
    return NULL;
}

enum espl_status espl_energy_chip_start(struct espl_energy_chip *chip, bool sampling,
                                        struct espl_error *err)
{
    if (chip->abandoned) {
        return ESPL_OK; /* its rails say so */
    }
    if (sampling) {
        for (size_t i = 0; i < chip->rail_count; i++) {
            struct espl_energy_rail *rail = &chip->rails[i];
            rail->series.count = 0;
            rail->failures = 0;
            rail->last_failure = ESPL_RAIL_OK;
        }
    }
    chip->sampling = sampling;
    chip->stop = false;
    chip->running = true;
    const int reason = pthread_create(&chip->thread, NULL, chip_thread, chip);
    if (reason != 0) {
        chip->running = false;
        return espl_fail_errno(err, reason, "cannot start a thread for the energy meter");
    }
    return ESPL_OK;
}

/* The time of CLOCK_MONOTONIC in `ns` nanoseconds. */
static struct timespec deadline_in(int64_t ns)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC, &at); /* cannot fail */
    const int64_t sum = at.tv_nsec + ns;
    at.tv_sec += (time_t)(sum / 1000000000);
    at.tv_nsec = (long)(sum % 1000000000);
    return at;
}

void espl_energy_chip_finish(struct espl_energy_chip *chip, int64_t stall_ns)
{
    int waited = 0;
    (void)pthread_mutex_lock(&chip->lock);
    const bool started = chip->running || chip->thread != (pthread_t)0;
    if (!started || chip->abandoned) {
        (void)pthread_mutex_unlock(&chip->lock);
        return;
    }
    const struct timespec deadline = deadline_in(stall_ns);
    chip->stop = chip->sampling;
    (void)pthread_cond_broadcast(&chip->changed);
    while (chip->running && waited == 0) {
        waited = pthread_cond_timedwait(&chip->changed, &chip->lock, &deadline);
    }
    const bool stalled = chip->running;
    if (stalled) {
        chip->abandoned = true;
        chip->stop = false; /* set again when the meter lets go of it */
        chip->rails[chip->reading].state = ESPL_RAIL_STALLED;
        for (size_t i = 0; i < chip->rail_count; i++) {
            if (!chip->sampling && chip->rails[i].state == ESPL_RAIL_OK) {
                chip->rails[i].state = ESPL_RAIL_STALLED; /* their only reader is stuck */
            }
        }
    }
    (void)pthread_mutex_unlock(&chip->lock);
    if (stalled) {
        (void)pthread_detach(chip->thread);
    } else {
        (void)pthread_join(chip->thread, NULL); /* it has nothing left to do */
    }
    chip->thread = (pthread_t)0;
}

void espl_energy_chip_release(struct espl_energy_chip *chip)
{
    (void)pthread_mutex_lock(&chip->lock);
    const bool theirs = chip->abandoned && chip->running;
    chip->stop = true;
    (void)pthread_mutex_unlock(&chip->lock);
    if (!theirs) {
        destroy(chip);
    }
}
