# Tests of eval/energy.
foreach(name IN ITEMS test_energy_sysfs test_energy_boards test_energy_play test_energy_rapl test_power_state)
    espl_unit_test(${name} LINK espl_energy SOURCES energy_fixture.c)
endforeach()
espl_unit_test(test_energy_integral LINK espl_energy)
espl_unit_test(test_energy_faults LINK espl_energy)
# A library that stands in for NVML.
add_library(fake_nvml MODULE fake_nvml.c)
target_link_libraries(fake_nvml PRIVATE espl_flags)
espl_unit_test(test_energy_nvml LINK espl_energy ${CMAKE_DL_LIBS})
target_compile_definitions(test_energy_nvml PRIVATE FAKE_NVML="$<TARGET_FILE:fake_nvml>")
add_dependencies(test_energy_nvml fake_nvml)
