#!/usr/bin/env bash
# Configures and builds one CMake preset into build/<preset>; extra arguments go to cmake's configure step.
#   scripts/build.sh release -DAUTOMAP_BUILD_TESTS=OFF
# Quiet when it succeeds; prints the log when it does not.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:?"usage: scripts/build.sh PRESET [cmake arguments]"}
shift
if command -v ccache >/dev/null; then set -- -DCMAKE_CXX_COMPILER_LAUNCHER=ccache "$@"; fi

mkdir -p "build/$preset"
log=build/$preset/build.log
if ! { cmake --preset "$preset" "$@" && cmake --build --preset "$preset"; } >"$log" 2>&1; then
  # The first errors say what happened; the end says what was being built.
  grep -nE -A5 'error:|Error|FAILED' "$log" | head -n 100 >&2 || true
  tail -n 20 "$log" >&2
  echo "error: building the preset $preset failed; the whole log is $PWD/$log" >&2
  exit 1
fi
