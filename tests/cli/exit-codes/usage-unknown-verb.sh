espalier rum job.yaml
