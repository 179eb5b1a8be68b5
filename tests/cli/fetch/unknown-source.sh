# A job that names what was never fetched.
export ESPALIER_CACHE=cache
cat >job.yaml <<'END'
version: 1
name: fetched
stages:
  - id: dense
    use: import
    with: {source: qwen2-0.5b}
END
espalier plan job.yaml
