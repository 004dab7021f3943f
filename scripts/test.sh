#!/usr/bin/env bash
# Installs what is missing, builds Release with warnings as errors, and runs all tests.
#   scripts/test.sh [--build-only] [ctest arguments]      e.g. scripts/test.sh -R pipeline
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/scripts/install_dependencies.sh" --tests
echo "building ..." >&2
"$root/scripts/build.sh" release -DAUTOMAP_BUILD_TESTS=ON -DAUTOMAP_BUILD_BENCH=ON -DAUTOMAP_WARNINGS_AS_ERRORS=ON
if [[ ${1:-} == --build-only ]]; then exit 0; fi

cd "$root"
# One more than there are processors: some tests wait for most of their time.
ctest --preset release -j "$(($(nproc) + 1))" --progress --output-log build/release/ctest.log "$@"
