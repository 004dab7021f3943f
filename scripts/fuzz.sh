#!/usr/bin/env bash
# Fuzzes every reader of bytes: scripts/fuzz.sh MINUTES (or SECONDSs) of processor time, an equal share for each target, as
# many beside each other as there are processors. Seeds are always run. Prints the executions of each target, and fails when
# one found something: its input and its log stay in build/asan, where corpora grow from run to run.
# The targets are built by `scripts/build.sh asan` (clang, ASan + UBSan).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ ! ${1:-} =~ ^[1-9][0-9]{0,4}s?$ ]]; then
  echo "usage: scripts/fuzz.sh MINUTES (or SECONDSs: 240s)" >&2
  exit 2
fi
seconds=$([[ $1 == *s ]] && echo "${1%s}" || echo $((60 * $1)))

fuzz() {
  local target=$1 name seeds corpus
  name=$(basename "$target")
  seeds=fuzz/seeds/${name#fuzz-}
  corpus=build/asan/corpus/$name
  mkdir -p "$corpus"
  [[ -d $seeds ]] || seeds=
  # The seeds are always run, however short the time.
  if ! { { [[ -z $seeds ]] || "$target" -runs=0 -timeout=10 -rss_limit_mb=2048 -artifact_prefix="build/asan/$name-" "$seeds"; } &&
    "$target" -max_total_time="$seconds_each" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
      -artifact_prefix="build/asan/$name-" "$corpus" ${seeds:+"$seeds"}; } >"build/asan/$name.log" 2>&1; then
    tail -n 60 "build/asan/$name.log" >&2
    # The machine may be gone tomorrow: `base64 -d | gunzip` gives the input again.
    for input in build/asan/"$name"-*; do
      [[ ! -e $input ]] || { echo "$input, gzip and base64:" && gzip -9c "$input" | base64; }
    done >&2
    echo "error: $name failed; the input is build/asan/$name-*" >&2
    return 1
  fi
  printf '%-24s %12s\n' "$name" "$(awk '/stat::number_of_executed_units/ {print $2}' "build/asan/$name.log")"
}
export -f fuzz

mapfile -t targets < <(find build/asan/fuzz -maxdepth 1 -type f -executable -name 'fuzz-*' 2>/dev/null | sort)
if [[ ${#targets[@]} == 0 ]]; then
  echo "error: build/asan/fuzz holds no targets; scripts/build.sh asan builds them" >&2
  exit 2
fi
# 0 would be no limit.
export seconds_each=$((seconds >= ${#targets[@]} ? seconds / ${#targets[@]} : 1))
printf '%-24s %12s\n' target executions
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'fuzz {}'
