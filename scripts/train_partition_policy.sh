#!/usr/bin/env bash
# Trains models/pretrained/partition.policy, from which `automap-search ... --algorithm rainbow --policy` can start, and
# writes what it is worth beside it. Seed, problems and options are fixed; the same bytes on the same compiler, LibTorch
# and kind of processor. About two minutes.
#
#   scripts/train_partition_policy.sh [--build DIR] [--episodes N] [--out DIR]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

build=$root/build/release episodes=100000 out=$root/models/pretrained
while [[ $# -gt 0 ]]; do
  case $1 in
    -h | --help) sed -n '2,/^set -e/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
  esac
  [[ $# -ge 2 ]] || { echo "train_partition_policy.sh: $1 needs a value" >&2; exit 2; }
  case $1 in
    --build) build=$2 ;;
    --episodes) episodes=$2 ;;
    --out) out=$2 ;;
    *) echo "train_partition_policy.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
program=$build/bench/bench-learner_train_partition
[[ -x $program ]] || { echo "train_partition_policy.sh: $program is not there: build with -DAUTOMAP_BUILD_BENCH=ON and LibTorch" >&2; exit 2; }

mkdir -p "$out"
report=$(cd "$root" && "$program" "$out/partition.policy" "$episodes")
{
  echo "# The policy for partitionings"
  echo
  echo "Made by \`scripts/train_partition_policy.sh\`. Values over the proven optimum; \"rule\": everything is split that is"
  echo "worth something, in the order of the paper; \"policy\": that and one episode of the policy; \"search\": Rainbow from"
  echo "scratch, and \"with policy\" starting from it; then the episode that found the best answer."
  echo
  echo '```'
  echo "$report"
  echo '```'
} >"$out/partition.md"
