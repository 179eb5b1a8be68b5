# Both places are shown.
cat >job.yaml <<END
version: 1
name: small
stages:
  - id: dense
    use: import
    with:
      checkpoint: a
      dtype: f16
      checkpoint: b
END
espalier plan job.yaml
