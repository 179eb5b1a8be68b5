# Mistake 8: a grouped-query checkpoint whose config.json says otherwise.
espalier synth --quiet --shape=llama --layers=2 --hidden=64 --heads=8 --kv-heads=2 --ffn=96 \
    --vocab=128 --dtype=f16 checkpoint >/dev/null || exit 98
sed -i 's/"num_key_value_heads": 2/"num_key_value_heads": 8/' checkpoint/config.json
cat >job.yaml <<END
version: 1
name: small
stages:
  - id: dense
    use: import
    with:
      checkpoint: checkpoint
END
espalier plan job.yaml >plan.txt
