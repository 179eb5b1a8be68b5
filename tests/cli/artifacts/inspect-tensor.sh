. "$SRC/tests/cli/common.inc"
write_prune_job
run_quietly
espalier inspect small:prune --tensor /layers/000/self_attn.q_proj/mask --stats
