#!/usr/bin/env bash
# Trains the policy that is shipped, models/pretrained/pipeline.policy, with its report beside it. Seed, data and options
# are fixed and the run is deterministic: the same bytes for any number of threads and however often it is stopped (run it
# again to go on). Another compiler, LibTorch or kind of processor (OpenBLAS has kernels for each) adds up in another
# order and gets a policy that is as good, not the same.
#
#   scripts/train_pretrained.sh [--episodes N] [--threads N] [--build DIR] [--out DIR]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

episodes=140000 threads=0 build=$root/build/release out=""
while [[ $# -gt 0 ]]; do
  [[ $# -ge 2 || $1 == -h || $1 == --help ]] || { echo "train_pretrained.sh: $1 needs a value" >&2; exit 2; }
  case $1 in
    --episodes) episodes=$2 ;;
    --threads) threads=$2 ;;
    --build) build=$2 ;;
    --out) out=$2 ;;
    -h | --help) sed -n '2,/^set -e/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
    *) echo "train_pretrained.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
build=$(realpath "$build")
[[ -n $out ]] || { cd "$root" && out=runs/pretrained; }  # relative, because the report names it

if [[ -e $out/checkpoint ]]; then
  "$build/automap-train" --out "$out" --resume --threads "$threads"
else
  "$build/automap-train" --out "$out" --resume --preset fast --data synth:mixed \
    --evaluate-small 192 --evaluate-middle 96 --evaluate-deep 32 --evaluate-every 10000 \
    --learning-rate-updates $((episodes * 2 / 3)) --epsilon-episodes 100000 --seed 20200708 --deterministic --episodes "$episodes" --threads "$threads"
fi
# The gate: on problems that have not chosen it the policy is better than the same search without a network.
{
  cat "$out/report.md"
  printf '\n## On problems that have not chosen it\n\n`automap-train --compare`, other problems of the same data:\n\n```text\n'
  "$build/automap-train" --compare "$out/policy.bin" --data synth:mixed --evaluate-seed 7 \
    --evaluate-small 900 --evaluate-middle 450 --evaluate-deep 180 --threads "$threads"
  printf '```\n'
} >"$out/shipped.md"
grep -q "is better than" "$out/shipped.md" || { echo "train_pretrained.sh: not shipped, see $out/shipped.md" >&2; exit 1; }
mkdir -p "$root/models/pretrained"
for pair in "policy.bin:pipeline.policy" "shipped.md:pipeline.md"; do
  target=$root/models/pretrained/${pair#*:}
  cp "$out/${pair%%:*}" "$target.tmp" && mv "$target.tmp" "$target"
done
echo "models/pretrained/pipeline.policy: $(stat -c %s "$root/models/pretrained/pipeline.policy") bytes"
