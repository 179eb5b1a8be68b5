# nm-pack with what it cannot pack, and what cannot be built on it.
. "$SRC/tests/cli/common.inc"
plan_with() { # list of stages after 'dense'
    write_import_job
    printf '%s\n' "$1" >>job.yaml
    espalier plan job.yaml >/dev/null
    echo "exit $?"
}
plan_with '  - {id: pack, use: nm-pack, in: dense}'
plan_with '  - {id: prune, use: magnitude-prune, in: dense}
  - {id: pack, use: nm-pack, in: prune}'
plan_with '  - {id: prune, use: magnitude-prune, in: dense, with: {pattern: "1:2"}}
  - {id: pack, use: nm-pack, in: prune}'
plan_with '  - {id: prune, use: magnitude-prune, in: dense, with: {pattern: "2:4"}}
  - {id: pack, use: nm-pack, in: prune, with: {vector: 4}}'
plan_with '  - {id: prune, use: magnitude-prune, in: dense, with: {pattern: "2:4"}}
  - {id: pack, use: nm-pack, in: prune}
  - {id: encode, use: iebme-encode, in: pack}'
