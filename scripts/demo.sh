#!/usr/bin/env bash
# From nothing to a plan: installs what is missing (no LibTorch: planning does not need it), builds Release, and plans
# a decoder of 8 billion weights (a training step in HLO that comes with the project) on 4 servers of 8 H100, 256
# sequences of 4096 tokens a step.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/scripts/install_dependencies.sh"
echo "building (a few minutes the first time) ..." >&2
"$root/scripts/build.sh" release -DAUTOMAP_BUILD_TESTS=OFF -DAUTOMAP_BUILD_BENCH=OFF

cd "$root"
(
  set -x
  build/release/automap-infer fixtures/hlo/llama_8b.hlo.gz --cluster h100-4x8 --batch 256 --report build/llama_8b.html
)
echo "build/llama_8b.html is the same to look at: open it in a browser" >&2
