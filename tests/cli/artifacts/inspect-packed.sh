# A packed model: N, M and V by layer, and its bytes as the stage counts them.
. "$SRC/tests/cli/common.inc"
write_import_job
cat >>job.yaml <<END
  - {id: prune, use: magnitude-prune, in: dense, with: {pattern: "2:8", vector: 16}}
  - {id: pack, use: nm-pack, in: prune, with: {ignore: ["layers.0.*"]}}
END
run_quietly
espalier inspect small:pack | sed -n '/^  layer /,$p'
espalier inspect small:pack --traffic --json >pack.json
json_get .traffic.stored.bytes <pack.json >counted
sed -n 's/.*"pack\.packed_bytes": *\([0-9.]*\).*/\1/p' results/by-name/small/metrics.json >packed
cmp counted packed && [ -s packed ] && echo 'same bytes'
json_get .layers.7.nm <pack.json
json_get .traffic.layers.0.stored_as <pack.json
