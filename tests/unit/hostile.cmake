# What careless or hostile users give the program.
espl_unit_test(test_bad_checkpoints LINK espl_test_model SOURCES checkpoint_damage.c)
