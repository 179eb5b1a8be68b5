#include "energy_fixture.h"

#include "support/cmocka_all.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void energy_put(const char *root, const char *path, const char *fmt, ...)
{
    char file[ESPL_PATH_MAX];
    char folder[ESPL_PATH_MAX];
    va_list args;
    assert_int_equal(espl_fs_join(file, root, path, NULL), ESPL_OK);
    (void)snprintf(folder, sizeof folder, "%s", file);
    *strrchr(folder, '/') = '\0';
    assert_int_equal(espl_fs_make_dirs(folder, NULL), ESPL_OK);
    FILE *stream = fopen(file, "w");
    assert_non_null(stream);
    va_start(args, fmt);
    assert_true(vfprintf(stream, fmt, args) >= 0);
    va_end(args);
    assert_int_equal(fclose(stream), 0);
}

void energy_put_board(const char *root, const char *names, size_t size)
{
    char file[ESPL_PATH_MAX];
    energy_put(root, "proc/device-tree/compatible", "%s", "");
    assert_int_equal(espl_fs_join(file, root, "proc/device-tree/compatible", NULL), ESPL_OK);
    FILE *stream = fopen(file, "w");
    assert_non_null(stream);
    assert_int_equal(fwrite(names, 1, size, stream), size);
    assert_int_equal(fclose(stream), 0);
}

void energy_put_ina3221(const char *root, unsigned hwmon, const char *const labels[3],
                        int64_t millivolts, int64_t shunt_uohm)
{
    char path[128];
    (void)snprintf(path, sizeof path, "sys/class/hwmon/hwmon%u/name", hwmon);
    energy_put(root, path, "ina3221\n");
    for (unsigned i = 1; i <= 3; i++) {
        (void)snprintf(path, sizeof path, "sys/class/hwmon/hwmon%u/in%u_label", hwmon, i);
        if (labels[i - 1] != NULL) {
            energy_put(root, path, "%s\n", labels[i - 1]);
        }
        (void)snprintf(path, sizeof path, "sys/class/hwmon/hwmon%u/in%u_input", hwmon, i);
        energy_put(root, path, "%" PRId64 "\n", millivolts);
        (void)snprintf(path, sizeof path, "sys/class/hwmon/hwmon%u/curr%u_input", hwmon, i);
        energy_put(root, path, "1000\n");
        (void)snprintf(path, sizeof path, "sys/class/hwmon/hwmon%u/in%u_enable", hwmon, i);
        energy_put(root, path, "1\n");
        (void)snprintf(path, sizeof path, "sys/class/hwmon/hwmon%u/shunt%u_resistor", hwmon, i);
        energy_put(root, path, "%" PRId64 "\n", shunt_uohm);
    }
    /* What looks like a fourth channel and is the sum of the shunt voltages. */
    (void)snprintf(path, sizeof path, "sys/class/hwmon/hwmon%u/in7_label", hwmon);
    energy_put(root, path, "sum of shunt voltages\n");
    (void)snprintf(path, sizeof path, "sys/class/hwmon/hwmon%u/curr4_input", hwmon);
    energy_put(root, path, "3000\n");
}

void energy_put_agx_orin(const char *root, unsigned first_hwmon)
{
    static const char names[] = "nvidia,p3737-0000+p3701-0000\0nvidia,p3701-0000\0nvidia,tegra234";
    static const char *const first[] = {"VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"};
    static const char *const second[] = {"NC", "VDDQ_VDD2_1V8AO", "NC"};
    energy_put_board(root, names, sizeof names);
    energy_put_ina3221(root, first_hwmon, first, 12000, 2000);
    energy_put_ina3221(root, first_hwmon + 1, second, 5000, 2000);
    energy_put(root, "sys/class/hwmon/hwmon0/name", "tmp451\n");
}

void energy_put_orin_nx(const char *root, unsigned hwmon)
{
    static const char names[] = "nvidia,p3768-0000+p3767-0000\0nvidia,p3767-0000\0nvidia,tegra234";
    static const char *const labels[] = {"VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"};
    energy_put_board(root, names, sizeof names);
    energy_put_ina3221(root, hwmon, labels, 5000, 5000);
}

void energy_put_thor(const char *root)
{
    static const char names[] = "nvidia,p4071-0000+p3834-0008\0nvidia,p3834-0008\0nvidia,tegra264";
    static const char *const labels[] = {"VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0"};
    energy_put_board(root, names, sizeof names);
    energy_put_ina3221(root, 2, labels, 12000, 2000);
    energy_put(root, "sys/class/hwmon/hwmon4/name", "ina238\n");
    energy_put(root, "sys/class/hwmon/hwmon4/in1_input", "20000\n");
    energy_put(root, "sys/class/hwmon/hwmon4/curr1_input", "2000\n");
    energy_put(root, "sys/class/hwmon/hwmon4/power1_input", "40000000\n"); /* uW */
    /* A negotiated, not a measured value: never a rail. */
    energy_put(root, "sys/class/hwmon/hwmon5/name", "ucsi_source_psy_0_0041\n");
    energy_put(root, "sys/class/hwmon/hwmon5/curr1_input", "3000\n");
}

void energy_put_jetpack4(const char *root)
{
    static const char *const labels[] = {"POM_5V_IN", "POM_5V_GPU", "POM_5V_CPU"};
    for (unsigned i = 0; i < 3; i++) {
        char path[128];
        const char *base = "sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0";
        (void)snprintf(path, sizeof path, "%s/rail_name_%u", base, i);
        energy_put(root, path, "%s\n", labels[i]);
        (void)snprintf(path, sizeof path, "%s/in_power%u_input", base, i);
        energy_put(root, path, "5000\n"); /* mW */
    }
    energy_put(root, "sys/bus/i2c/drivers/ina3221x/uevent", "\n");
}

void energy_wave_add(struct energy_wave *wave, const char *root, const char *path, int64_t low,
                     int64_t high)
{
    const size_t i = wave->count++;
    assert_true(i < ENERGY_MAX_FILES);
    assert_int_equal(espl_fs_join(wave->paths[i], root, path, NULL), ESPL_OK);
    wave->low[i] = low;
    wave->high[i] = high;
}

void energy_wave_write(const struct energy_wave *wave, double seconds)
{
    const double t = seconds / wave->period_s;
    const double phase = t - floor(t);
    const double share = seconds < 0.0 ? 0.0 : phase < 0.5 ? 2.0 * phase : 2.0 - 2.0 * phase;
    for (size_t i = 0; i < wave->count; i++) {
        char text[32];
        const double span = (double)(wave->high[i] - wave->low[i]);
        /* Always of one length: a reader sees the old value or the new one. */
        const int len = snprintf(text, sizeof text, "%+020" PRId64 "\n",
                                 wave->low[i] + (int64_t)llround(share * span));
        const int fd = open(wave->paths[i], O_WRONLY | O_CLOEXEC);
        assert_int_equal(pwrite(fd, text, (size_t)len, 0), len);
        assert_int_equal(close(fd), 0);
    }
}

static int64_t played_ns; /* the time that the readings are stamped with */

static int64_t played_time(void)
{
    return played_ns;
}

void energy_play(const struct energy_wave *wave, struct espl_energy_meter *meter,
                 struct espl_energy_result *result)
{
    const int64_t second = 1000000000;
    const int64_t tick = second / 100;
    const struct espl_energy_windows windows = {
        {0, second - tick}, {second, 3 * second}, {3 * second + tick, 4 * second}};
    for (size_t c = 0; c < meter->chip_count; c++) {
        meter->chips[c]->now = played_time;
    }
    for (played_ns = 0; played_ns <= 4 * second; played_ns += tick) {
        const bool in_run = played_ns >= second && played_ns <= 3 * second;
        energy_wave_write(wave, in_run ? (double)(played_ns - second) * 1e-9 : -1.0);
        for (size_t c = 0; c < meter->chip_count; c++) {
            assert_true(espl_energy_sample_round(meter->chips[c]));
        }
    }
    assert_int_equal(espl_energy_measure(meter, &windows, result, NULL), ESPL_OK);
}

struct espl_energy_meter *energy_open(const char *root, const char *name)
{
    const struct espl_energy_options options = {.meter = name, .root = root, .interval_s = 0.01};
    struct espl_energy_meter *meter = NULL;
    struct espl_error err = {0};
    if (espl_energy_open(&options, &meter, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    return meter;
}

size_t energy_rail(const struct espl_energy_meter *meter, const char *name)
{
    for (size_t i = 0; i < espl_energy_rail_count(meter); i++) {
        if (strcmp(espl_energy_rail_at(meter, i)->name, name) == 0) {
            return i;
        }
    }
    fail_msg("no rail '%s'", name);
    return 0;
}
