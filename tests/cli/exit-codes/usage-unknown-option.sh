espalier plan job.yaml --foce=dense
