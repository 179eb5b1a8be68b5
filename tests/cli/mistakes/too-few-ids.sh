# An ids file says by its size how many windows there are: found before anything runs.
head -c 4096 /dev/zero >ids.bin
cat >job.yaml <<END
version: 1
name: small
stages:
  - {id: dense, use: import, with: {checkpoint: $SRC/datasets/samples/llama-6m}}
  - {id: text, use: tokens, with: {ids: ids.bin}}
  - {id: eval, use: evaluate, in: {model: dense, tokens: text}, with: {sequence_length: 128, windows: 9}}
  - {id: calib, use: tokens, with: {ids: ids.bin, samples: 4, sequence_length: 1024}}
END
espalier plan job.yaml >plan.out
