# Mistake 3: a checkpoint that is not there; the help lists what is.
mkdir -p checkpoints/llama-2-7b-hf checkpoints/tiny-llama
cat >job.yaml <<END
version: 1
name: small
stages:
  - id: dense
    use: import
    with:
      checkpoint: checkpoints/llama-2-7b
END
espalier plan job.yaml >plan.txt
