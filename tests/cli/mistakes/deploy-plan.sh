# What deploy-bench refuses when it is to measure the CPU.
job() {
    cat >job.yaml <<END
version: 1
name: small
device: $1
stages:
  - id: dense
    use: import
    with: {checkpoint: $SRC/datasets/samples/llama-6m}
  - id: calib
    use: tokens
    with: {tokenizer: $SRC/datasets/samples/llama-6m, text: $SRC/datasets/samples/novels-calib-sample.txt.xz, samples: 2, sequence_length: 64}
  - id: quant
    use: atom-quantize
    in: {model: dense, tokens: calib}
    with: {weight_bits: $2}
  - id: bench
    use: deploy-bench
    in: quant
    with: {$3}
END
    espalier plan job.yaml >/dev/null
    echo "exit $?"
}
job cpu 4 "sweep: true"
job cpu 4 "atom: true"
job cpu 4 "tuning: job.yaml"
job cpu 4 "baselines: [cublas-fp16]"
job cpu 3 "tokens: 1"
job cpu 4 "tokens: 65"
job cpu 4 "forms: [4x4]"
job cpu 4 "mode: decode, energy: nvml"
job cuda:1 4 "tokens: 1"
