#!/usr/bin/env bash
# Installs what is missing, builds Release with warnings as errors, and runs all tests.
#   scripts/test.sh [ctest arguments]      e.g. scripts/test.sh -R pipeline
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/scripts/install_dependencies.sh" --tests
echo "building ..." >&2
"$root/scripts/build.sh" release -DAUTOMAP_BUILD_TESTS=ON -DAUTOMAP_BUILD_BENCH=ON -DAUTOMAP_WARNINGS_AS_ERRORS=ON

cd "$root"
ctest --preset release -j "$(nproc)" --progress --output-log build/release/ctest.log "$@"
