#!/usr/bin/env bash
# From nothing to a plan: installs what is missing (no LibTorch: planning does not need it), builds Release, and plans
# BERT with 48 layers (a training step in HLO that comes with the project) on 4 servers of 8 V100, 256 sequences per
# step. First with the trained policy alone, in one shot; then with every planner and a proven bound.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/scripts/install_dependencies.sh"
echo "building (a few minutes the first time) ..." >&2
"$root/scripts/build.sh" release -DAUTOMAP_BUILD_TESTS=OFF -DAUTOMAP_BUILD_BENCH=OFF

cd "$root"
plan=(build/release/automap-infer fixtures/hlo/bert48.hlo.gz --cluster config-c --batch 256)
if [[ -e models/pretrained/pipeline.policy ]]; then
  set -x
  # In one shot: milliseconds of planning, and how far from the best V that can be at most.
  "${plan[@]}" --stages 4 --planner policy
fi
set -x
# All planners together, and a proven bound; --details says the rest.
"${plan[@]}"
