/* What the stand-in for NVML shows; a test sets it through the symbol "fake_nvml". */
#ifndef ESPL_TESTS_FAKE_NVML_H
#define ESPL_TESTS_FAKE_NVML_H

struct fake_nvml {
    int energy_result, power_result,
        field_result;    /* NVML's codes: 0 = success, 3 = not supported */
    unsigned field_type; /* of the instant power; 1 = unsigned int */
    unsigned long long energy_mj;
    unsigned power_mw, instant_mw;
    unsigned count, mig;
    int running; /* inits less shutdowns */
};

#endif
