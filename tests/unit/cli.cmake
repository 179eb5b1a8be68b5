# Tests of what the verbs share.
espl_unit_test(test_cli_print LINK espl_cli)
