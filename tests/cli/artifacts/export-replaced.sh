# An export folder that two recipes share: the second is warned, and the first then says what happened to it.
. "$SRC/tests/cli/common.inc"
write_prune_job
cat >>job.yaml <<END
  - id: checkpoint
    use: export
    in: prune
    with: {folder: out}
END
run_quietly
espalier inspect small:checkpoint | grep '^ *files '
espalier run job.yaml --set prune.sparsity=0.25 --quiet >run.out
espalier plan job.yaml 2>&1 | grep -o -e 'another export has.*folder ' -e 'warning: .*'
espalier run job.yaml --quiet >run.out 2>&1
espalier plan job.yaml --check >plan.out && echo "its own again"
