# Tests of eval/energy.
espl_unit_test(test_energy_integral LINK espl_energy)
