# A name of the registry where a path is expected: the help says where names go.
export ESPALIER_CACHE=cache
mkdir -p cache/sets/known-model
echo '{"schema":"espalier.set/1","name":"known-model","use":[],"files":[]}' >cache/sets/known-model/set.json
cat >job.yaml <<END
version: 1
name: names
stages:
  - id: unknown
    use: import
    with: {checkpoint: my-model}
  - id: fetched
    use: import
    with: {checkpoint: known-model}
  - id: tokenizer
    use: tokens
    with: {text: [job.yaml], tokenizer: known-model}
  - id: text
    use: tokens
    with: {text: [wikitext2], tokenizer: $SRC/datasets/samples/llama-6m}
  - id: path
    use: tokens
    with: {text: [texts/wikitext2.txt], tokenizer: $SRC/datasets/samples/llama-6m}
END
espalier plan job.yaml >plan.out
