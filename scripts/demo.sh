#!/usr/bin/env bash
# From nothing to a plan: installs what is missing, builds Release, and plans BERT with 48 layers (a training step in
# HLO that comes with the project) on 4 servers of 8 V100, 16 micro-batches per step.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/scripts/install_dependencies.sh"
echo "building (a few minutes the first time) ..." >&2
"$root/scripts/build.sh" release -DAUTOMAP_BUILD_TESTS=OFF -DAUTOMAP_BUILD_BENCH=OFF

cd "$root"
set -x
build/release/automap-infer fixtures/hlo/bert48.hlo.gz --cluster config-c --micro-batches 16
