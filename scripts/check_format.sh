#!/usr/bin/env bash
# Checks (or with --fix makes) the layout of all C++ files as .clang-format says.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mapfile -t files < <(git ls-files --cached --others --exclude-standard -- '*.h' '*.cpp')
if [[ ${1:-} == --fix ]]; then
  clang-format -i "${files[@]}"
elif ! clang-format --dry-run --Werror "${files[@]}"; then
  echo "error: run scripts/check_format.sh --fix" >&2
  exit 1
fi
