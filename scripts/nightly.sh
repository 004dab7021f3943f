#!/usr/bin/env bash
# One night of training: generate -> train -> evaluate -> promote the new policy, but only when it is not worse than the
# current one on held-out problems (a paired test). Made for cron; run again after a stop or a kill it goes on where it
# was.
#
#   scripts/nightly.sh FOLDER [options] [-- options of automap-train]
#     --rows N       rows to generate (default 1000000)      --config NAME   distribution (default mixed)
#     --time T       training time (default 1h)              --preset NAME   (default nightly)
#     --bin DIR      where the programs are (default: build/release of this checkout)
#     --keep-data    keep the night's dataset
#   0 3 * * *  cd /srv/automap && scripts/nightly.sh /srv/nights
#
# FOLDER/current.policy   the policy in use; appears with the first night, replaced only by one that is not worse
# FOLDER/nights/DATE/     a night: its run (report.md, curves.csv, policy.bin, ...), comparison.json
# FOLDER/nightly.log      what happened, a line each       FOLDER/unfinished   the night to go on with
#
# Exit codes: 0 promoted or kept (the log says which), 75 stopped, run again to go on, else as of the program that failed.
# While another night runs on the same folder it does nothing and exits 0.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

die() { echo "nightly.sh: $*" >&2; exit 2; }
value() { [[ $# -ge 2 ]] || die "$1 needs a value"; echo "$2"; }

folder="" rows=1000000 config=mixed time=1h preset=nightly bin=$root/build/release keep_data=no
while [[ $# -gt 0 ]]; do
  case $1 in
    --rows) rows=$(value "$@"); shift 2 ;;
    --config) config=$(value "$@"); shift 2 ;;
    --time) time=$(value "$@"); shift 2 ;;
    --preset) preset=$(value "$@"); shift 2 ;;
    --bin) bin=$(value "$@"); shift 2 ;;
    --keep-data) keep_data=yes; shift ;;
    -h | --help) sed -n '2,/^set -e/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
    --) shift; break ;;
    -*) die "unknown option $1 (options of automap-train go behind --)" ;;
    *) [[ -z $folder ]] || die "one folder, found '$folder' and '$1'"; folder=$1; shift ;;
  esac
done
[[ -n $folder ]] || die "missing FOLDER; scripts/nightly.sh --help"
for program in automap-datagen automap-train; do
  [[ -x $bin/$program ]] || die "$bin/$program is not there: build it (scripts/build.sh) or give --bin"
done

mkdir -p "$folder/nights"
say() { echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) $*" | tee -a "$folder/nightly.log" >&2; }

exec 9> "$folder/lock"
if ! flock -n 9; then
  say "another night is running, nothing done"
  exit 0
fi

# Runs a program so that a signal to this script reaches it and its checkpoint is waited for. Descriptor 9 is closed in
# it: whoever outlives this script does not keep the lock.
child="" stopping=""
trap 'stopping=yes; [[ -z $child ]] || kill -TERM "$child" 2> /dev/null || true' TERM INT
run() {
  "$@" 9>&- &
  child=$!
  [[ -z $stopping ]] || kill -TERM "$child" 2> /dev/null || true
  local code=0
  wait "$child" || code=$?
  # A trap ends wait early; the program's own code comes with the second one.
  while kill -0 "$child" 2> /dev/null; do
    code=0
    wait "$child" || code=$?
  done
  child=""
  return "$code"
}
step() {
  local what=$1 code=0
  shift
  # The signal came when no program was running, or one that was about to end.
  if [[ -n $stopping ]]; then
    say "stopped before $what; run again to go on"
    exit 75
  fi
  run "$@" || code=$?
  [[ $code -ne 0 ]] || return 0
  if [[ $code -eq 75 || $code -ge 128 ]]; then
    say "stopped while $what (exit $code); run again to go on"
    exit 75
  fi
  say "failed while $what (exit $code)"
  exit "$code"
}
# Replaces file $2 by a copy of $1 in one step.
install_file() { cp "$1" "$2.tmp" && sync "$2.tmp" && mv "$2.tmp" "$2"; }

if [[ -s $folder/unfinished ]]; then
  read -r night seed < "$folder/unfinished"
  say "$night goes on"
else
  # The seed counts the nights, so that each has other problems, also when old nights have been deleted.
  last=$(find "$folder/nights" -mindepth 1 -maxdepth 1 -type d -printf '%f\n' |
    sed -n 's/^.*-0*\([0-9][0-9]*\)$/\1/p' | sort -n | tail -1)
  seed=$((${last:-0} + 1))
  night=$(date -u +%Y-%m-%d)-$(printf %04d "$seed")
  echo "$night $seed" > "$folder/unfinished.tmp" && mv "$folder/unfinished.tmp" "$folder/unfinished"
  say "$night begins: $rows rows of $config, seed $seed, $time"
fi
here=$folder/nights/$night
mkdir -p "$here"

# What the night starts from stays the same when it goes on later.
if [[ -s $folder/current.policy && ! -e $here/start.policy && ! -e $here/run/checkpoint ]]; then
  install_file "$folder/current.policy" "$here/start.policy"
fi

step "generating" "$bin/automap-datagen" --rows "$rows" --config "$config" --seed "$seed" -o "$here/data" --quiet

init=()
[[ ! -s $here/start.policy ]] || init=(--init "$here/start.policy")
if [[ -e $here/run/checkpoint ]]; then
  step "training" "$bin/automap-train" --out "$here/run" --resume --quiet > "$here/training.txt"
else
  step "training" "$bin/automap-train" --data "$here/data" --evaluate-data "synth:$config" --out "$here/run" --resume \
    --preset "$preset" --time "$time" --seed "$seed" "${init[@]}" --quiet "$@" > "$here/training.txt"
fi

new=$here/run/policy.bin
if [[ ! -s $folder/current.policy ]]; then
  install_file "$new" "$folder/current.policy"
  say "$night: promoted, the first policy"
else
  # Only options that belong to the held-out problems matter here; they are the run's own but for the seed: each night asks
  # others, or the policies would be chosen by the same few problems night after night.
  step "comparing" "$bin/automap-train" --config "$here/run/config.ini" --compare --json --quiet \
    --evaluate-seed "$((20000000 + seed))" "$new" "$folder/current.policy" > "$here/comparison.json.tmp"
  mv "$here/comparison.json.tmp" "$here/comparison.json"
  summary=$(tr -d ' \n' < "$here/comparison.json" | grep -o '"first_mean":[^,]*,"second_mean":[^,]*,"mean":[^,]*,"standard_error":[^,]*' | head -1)
  if grep -q '"not_worse": true,\{0,1\}$' <(tail -3 "$here/comparison.json"); then
    install_file "$new" "$folder/current.policy"
    say "$night: promoted, not worse than the policy before ($summary)"
  else
    say "$night: kept the current policy, the new one is not shown to be as good ($summary)"
  fi
fi
[[ $keep_data == yes ]] || rm -rf "$here/data"
rm -f "$folder/unfinished"
