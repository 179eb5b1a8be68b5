# Pickle files run code when they are loaded: refused by name.
mkdir checkpoint
cp "$SRC/datasets/samples/llama-6m/config.json" checkpoint/
: >checkpoint/pytorch_model.bin
printf 'version: 1\nname: small\nstages:\n  - {id: dense, use: import, with: {checkpoint: checkpoint}}\n' >job.yaml
espalier plan job.yaml >plan.txt
