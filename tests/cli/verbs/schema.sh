# Deterministic, and it knows every stage.
espalier schema >one.json
espalier schema >two.json
cmp one.json two.json && echo "twice the same"
for stage in import tokens wanda-prune magnitude-prune evaluate export; do
    grep -q "\"$stage\"" one.json || echo "$stage is missing"
done
