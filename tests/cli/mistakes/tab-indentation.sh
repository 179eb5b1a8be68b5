printf 'version: 1\nname: small\nstages:\n  - id: dense\n\tuse: import\n' >job.yaml
espalier plan job.yaml
