# A predictor that no whole pass was measured for: known once the latencies are there, so `plan`
# says it and not the search an hour later.
cat >job.yaml <<END
version: 1
name: unsafe
stages:
  - id: net
    use: import
    with: {checkpoint: $SRC/datasets/samples/deit-fmnist-supernet}
  - id: pictures
    use: images
    in: {model: net}
    with:
      source: $SRC/datasets/samples/fashion-mnist/t2k-images-idx3-ubyte.gz
      labels: $SRC/datasets/samples/fashion-mnist/t2k-labels-idx1-ubyte.gz
  - id: ranks
    use: nm-supernet
    in: {model: net, images: pictures}
    with: {trained: true, check_pictures: 1}
  - id: latency
    use: latency-profile
    in: {model: net}
    with: {runs: 0, repeats: 3, threads: 1}
  - id: search
    use: budget-search
    in: {model: net, quality: ranks, latency: latency, images: pictures}
    with: {speedup: 1.0, allow_vector_mismatch: true}
END
espalier run job.yaml --until latency --quiet >run.txt 2>log.txt || exit 98
espalier plan job.yaml >plan.txt
code=$?
espalier plan job.yaml --set search.allow_unsafe_predictor=true >plan.txt && echo planned
exit $code
