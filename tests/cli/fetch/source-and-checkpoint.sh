cat >job.yaml <<'END'
version: 1
name: both
stages:
  - id: dense
    use: import
    with: {source: qwen2-0.5b, checkpoint: .}
  - id: neither
    use: import
  - id: text
    use: tokens
    with: {source: wikitext2, text: [a.txt]}
END
espalier plan job.yaml
