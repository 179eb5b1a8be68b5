espalier synth --help
