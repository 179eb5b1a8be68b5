# Groups that do not cover the matrices, and what cannot go together with groups.
. "$SRC/tests/cli/common.inc"
for with in '{align: {rows: 3}, align_form: block, scope: row}' '{align: {rows: 2, cols: 8}, scope: row}' \
    '{align: {rows: 2}}' '{align: 2x1, scope: row, pattern: "2:4"}' '{fill: union}' '{align: {row: 2}}' '{align: 2:4}'; do
    write_import_job
    cat >>job.yaml <<END
  - id: prune
    use: magnitude-prune
    in: dense
    with: $with
END
    espalier plan job.yaml >/dev/null
    echo "exit $?"
done
