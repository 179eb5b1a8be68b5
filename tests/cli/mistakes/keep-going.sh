# Two stages fail on their own; both are told in full, and what does not depend on them runs.
printf 'fine\nbad \377\n' >one.txt
printf '\377\n' >two.txt
printf 'hello\n' >good.txt
cat >job.yaml <<END
version: 1
name: small
stages:
  - id: one
    use: tokens
    with:
      tokenizer: $SRC/datasets/samples/llama-6m
      text: one.txt
  - id: two
    use: tokens
    with:
      tokenizer: $SRC/datasets/samples/llama-6m
      text: two.txt
  - id: good
    use: tokens
    with:
      tokenizer: $SRC/datasets/samples/llama-6m
      text: good.txt
END
espalier run job.yaml --keep-going --quiet --progress=none >run.out
code=$?
ls results/by-name/small
exit $code
