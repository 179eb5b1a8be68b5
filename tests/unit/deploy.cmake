# Tests of stages/deploy_bench.
espl_unit_test(test_tuning_file LINK espl_stages)
espl_unit_test(test_bench_record LINK espl_stages)
espl_unit_test(test_decode_record LINK espl_stages SOURCES energy_fixture.c)
espl_unit_test(test_deploy_stage LINK espl_stages TIMEOUT 300
               SOURCES encode_fixture.c quant_fixture.c prune_fixture.c)
espl_unit_test(test_deploy_plan LINK espl_stages SOURCES plan_fixture.c prune_fixture.c)
espl_unit_test(test_encoder_mode LINK espl_stages
               SOURCES search_stage_fixture.c plan_fixture.c prune_fixture.c)
espl_unit_test(test_deploy_figures LINK espl_stages
               SOURCES energy_fixture.c search_stage_fixture.c prune_fixture.c)
espl_unit_test(test_deploy_decode LINK espl_stages
               SOURCES encode_fixture.c quant_fixture.c prune_fixture.c)
