# Tests of pipeline/core.
espl_unit_test(test_buf LINK espl_core)
espl_unit_test(test_hash LINK espl_core)
espl_unit_test(test_rng LINK espl_core)
espl_unit_test(test_units LINK espl_core)
espl_unit_test(test_text_tools LINK espl_core)
espl_unit_test(test_fs LINK espl_core)
espl_unit_test(test_lock LINK espl_core)
