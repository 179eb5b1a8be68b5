# A stored result that lost its tail: the plan says that it will be made again and names the file,
# the run replaces it, and what is whole stays as it is.
. "$SRC/tests/cli/common.inc"
write_prune_job
run_quietly
file=$(readlink -f results/by-name/small/dense.h5)
cp "$file" whole.h5
truncate -s 2000 "$file"
espalier plan job.yaml >plan.txt
espalier plan job.yaml --json 2>/dev/null | json_get .stages.0.why
espalier why job.yaml dense
espalier run job.yaml --progress=lines >run.out 2>run.err || exit 98
sed -nE 's/^[0-9:]{8} warn/TIME warn/p' run.err
cmp whole.h5 "$file" && echo "whole again"
