#!/usr/bin/env bash
# Trains the policies that are shipped: models/pretrained/pipeline.policy and, with --objective simulated,
# models/pretrained/pipeline-simulated.policy, each with its report beside it. Seed, data and options are fixed and the
# run is deterministic: the same bytes for any number of threads and however often it is stopped (run it again to go on).
# Another compiler, LibTorch or kind of processor (OpenBLAS has kernels for each) adds up in another order and gets a
# policy that is as good, not the same.
#
#   scripts/train_pretrained.sh [--objective value|simulated] [--episodes N] [--threads N] [--build DIR] [--out DIR]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

objective=value episodes=120000 threads=0 build=$root/build/release out=""
while [[ $# -gt 0 ]]; do
  [[ $# -ge 2 || $1 == -h || $1 == --help ]] || { echo "train_pretrained.sh: $1 needs a value" >&2; exit 2; }
  case $1 in
    --objective) objective=$2 ;;
    --episodes) episodes=$2 ;;
    --threads) threads=$2 ;;
    --build) build=$2 ;;
    --out) out=$2 ;;
    -h | --help) sed -n '2,/^set -e/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
    *) echo "train_pretrained.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
case $objective in
  value) name=pipeline ;;
  simulated) name=pipeline-simulated ;;
  *) echo "train_pretrained.sh: --objective: found '$objective', expected value or simulated" >&2; exit 2 ;;
esac
[[ -n $out ]] || out=$root/runs/pretrained-$objective

if [[ -e $out/checkpoint ]]; then
  "$build/automap-train" --out "$out" --resume --threads "$threads"
else
  "$build/automap-train" --out "$out" --resume --preset fast --data synth:mixed --objective "$objective" \
    --evaluate-small 192 --evaluate-middle 96 --evaluate-deep 32 --evaluate-every 20000 \
    --seed 20200708 --deterministic --episodes "$episodes" --threads "$threads"
fi
mkdir -p "$root/models/pretrained"
for pair in "policy.bin:$name.policy" "report.md:$name.md"; do
  target=$root/models/pretrained/${pair#*:}
  cp "$out/${pair%%:*}" "$target.tmp" && mv "$target.tmp" "$target"
done
echo "models/pretrained/$name.policy: $(stat -c %s "$root/models/pretrained/$name.policy") bytes"
