espalier run jobs/nothing.yaml
