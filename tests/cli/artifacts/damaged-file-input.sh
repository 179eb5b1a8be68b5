# A damaged artifact that the job names as a file is an error: nobody can make it again.
. "$SRC/tests/cli/common.inc"
write_prune_job
run_quietly
cp -L results/by-name/small/dense.h5 mine.h5
truncate -s 2000 mine.h5
cat >other.yaml <<END
version: 1
name: other
stages:
  - id: prune
    use: magnitude-prune
    in: {model: {file: mine.h5}}
END
espalier run other.yaml
