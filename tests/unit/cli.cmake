# Tests of what the verbs share.
espl_unit_test(test_cli_print LINK espl_cli)
espl_unit_test(test_cli_stop LINK espl_cli)
espl_unit_test(test_bench_plots LINK espl_cli)
