# Tests of stages/deploy_bench.
espl_unit_test(test_tuning_file LINK espl_stages)
espl_unit_test(test_bench_record LINK espl_stages)
