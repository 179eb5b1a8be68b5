# Mistake 4: stages that need each other.
cat >job.yaml <<END
version: 1
name: small
stages:
  - id: quant
    use: magnitude-prune
    in: {model: reorder}
  - id: reorder
    use: magnitude-prune
    in: {model: quant}
END
espalier plan job.yaml
