# All problems of a file in one go, in order of place.
cat >job.yaml <<END
version: 2
nmae: small
stages:
  - id: dense
    use: imports
  - id: prune
    use: magnitude-prune
    in: dnse
    with: {sparsity: 1.5, scope: rows}
END
espalier plan job.yaml
