#!/usr/bin/env bash
# One night of training: generate -> train -> evaluate -> promote the new policy, but only when it is better than the
# current one on held-out problems (a paired test), not the same, and not worse on profiles of real models. Made for cron;
# run again after a stop or a kill it goes on where it was.
#
# A night starts from the current policy, with hidden layers as that one has them (unless --hidden is given to
# automap-train); from fresh weights when it is another network altogether, and the log says so.
#
#   scripts/nightly.sh FOLDER [options] [-- options of automap-train]
#     --rows N       rows to generate (default 1000000)      --config NAME   distribution (default mixed)
#     --time T       training time of each run (default 1h)  --preset NAME   (default nightly)
#     --seeds N      runs of different seeds, one after the other (default 3): the best is compared
#     --real DATA    problems of real models that a better policy must not be worse on, as automap-train --evaluate-data
#                    takes them, 3400 or more (default: the shipped profiles on random clusters); none: not asked
#     --compare-problems S,M,D   small, middle, deep problems of a comparison's first look (default 512,160,48)
#     --compare-time T   of each comparison, at most: it decides by the problems asked by then (default: no limit)
#     --bin DIR      where the programs are (default: build/release of this checkout)
#     --keep-data    keep the night's dataset
#     --first FILE   the policy that stands for the current one until a night's has been promoted (default: the one that
#                    is shipped, models/pretrained/pipeline.policy); none: nights start fresh and are compared with the
#                    same search without a network
#   0 3 * * *  cd /srv/automap && scripts/nightly.sh /srv/nights
#
# FOLDER/current.policy   the policy in use; appears with the first night whose policy is better than the --first one,
#                         replaced only by one that is better
# FOLDER/nights/DATE/     a night: its runs (report.md, curves.csv, policy.bin, ...), comparison.json, decision.json
# FOLDER/nightly.log      what happened, a line each       FOLDER/unfinished   the night to go on with
# FOLDER/history.html     all nights: decisions, curves, data, machine          FOLDER/history.jsonl   the same, a line each
#
# The last line on standard output is one JSON object for whoever watches: outcome (promoted, kept, stopped, failed,
# given_up, busy), exit code, night, why; of all but busy it is a line of the history, too. Wrong usage (exit 2) prints none.
#
# Exit codes: 0 promoted or kept (the log says which), 75 stopped, run again to go on, else as of the program that failed:
# the log says what failed. Run again after a failure it tries that night once more; when that fails too, the night is
# given up and the next run begins another.
# While another night runs on the same folder it does nothing and exits 0.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

die() { echo "nightly.sh: $*" >&2; exit 2; }
value() { [[ $# -ge 2 ]] || die "$1 needs a value"; echo "$2"; }

folder="" rows=1000000 config=mixed time=1h preset=nightly seeds=3 real="" compare_problems="" compare_time="" bin=$root/build/release keep_data=no first=$root/models/pretrained/pipeline.policy first_given=no
while [[ $# -gt 0 ]]; do
  case $1 in
    --rows) rows=$(value "$@"); shift 2 ;;
    --config) config=$(value "$@"); shift 2 ;;
    --time) time=$(value "$@"); shift 2 ;;
    --preset) preset=$(value "$@"); shift 2 ;;
    --seeds) seeds=$(value "$@"); shift 2 ;;
    --real) real=$(value "$@"); shift 2 ;;
    --compare-problems) compare_problems=$(value "$@"); shift 2 ;;
    --compare-time) compare_time=$(value "$@"); shift 2 ;;
    --bin) bin=$(value "$@"); shift 2 ;;
    --keep-data) keep_data=yes; shift ;;
    --first) first=$(value "$@"); first_given=yes; shift 2 ;;
    -h | --help) sed -n '2,/^set -e/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
    --) shift; break ;;
    -*) die "unknown option $1 (options of automap-train go behind --)" ;;
    *) [[ -z $folder ]] || die "one folder, found '$folder' and '$1'"; folder=$1; shift ;;
  esac
done
[[ -n $folder ]] || die "missing FOLDER; scripts/nightly.sh --help"
[[ $seeds =~ ^[1-9][0-9]?$ ]] || die "--seeds: found '$seeds', expected 1 to 99"
if [[ $first == none ]] || [[ $first_given == no && ! -s $first ]]; then
  first=""
elif [[ ! -s $first ]]; then
  die "--first: $first is not there"
fi
for program in automap-datagen automap-train; do
  [[ -x $bin/$program ]] || die "$bin/$program is not there: build it (scripts/build.sh) or give --bin"
done

command -v python3 > /dev/null || die "python3 is not there, which decides and keeps the history (scripts/install_dependencies.sh --train)"

mkdir -p "$folder/nights"
say() { echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) $*" | tee -a "$folder/nightly.log" >&2; }

exec 9> "$folder/lock"
if ! flock -n 9; then
  say "another night is running, nothing done"
  echo '{"schema": "automap.night/1", "outcome": "busy", "exit": 0, "night": null, "why": "another night is running"}'
  exit 0
fi

# Whatever happens is said in one line, and goes into the history; a history that cannot be written changes nothing.
exec 8>&1
night="" outcome=failed why="the script ended before anything was decided"
at_end() {
  local code=$?
  python3 "$root/scripts/nightly_history.py" "$folder" --night "$night" --outcome "$outcome" --exit "$code" --why "$why" >&8 9>&- ||
    say "the history could not be written"
}
trap at_end EXIT

# Runs a program so that a signal to this script reaches it and its checkpoint is waited for. Descriptors 8 and 9 are
# closed in it: whoever outlives this script keeps neither the lock nor whoever reads its output.
child="" stopping=""
trap 'stopping=yes; [[ -z $child ]] || kill -TERM "$child" 2> /dev/null || true' TERM INT HUP
run() {
  "$@" 8>&- 9>&- &
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
ends() {
  outcome=$1 why=$2
  say "$2"
  exit "$3"
}
step() {
  local what=$1 code=0
  shift
  # The signal came when no program was running, or one that was about to end.
  if [[ -n $stopping ]]; then
    ends stopped "stopped before $what; run again to go on" 75
  fi
  run "$@" 2> "$here/errors.txt" || code=$?
  cat "$here/errors.txt" >&2
  [[ $code -ne 0 ]] || return 0
  # Stopped with a checkpoint, or ended by SIGHUP, SIGINT, SIGTERM; a crash (other signals) is a failure.
  case $code in
    75 | 129 | 130 | 143)
      ends stopped "stopped while $what (exit $code); run again to go on" 75 ;;
  esac
  # A program of a night that was killed may be at work still.
  if grep -qE '^error: .*(is in use by|are being made by)' "$here/errors.txt"; then
    ends stopped "$what is under way in another process: $(grep -m1 '^error: ' "$here/errors.txt"); run again when it has ended" 75
  fi
  fail "$what" "$code"
}
# What is the same every time would be tried every night for ever: the second failure ends the night.
fail() {
  local error=""
  error=$(grep -m1 '^error: ' "$here/errors.txt" || true)
  error=${error//"$here/start.policy"/"$current"}
  outcome=failed why="failed while $1 (exit $2)${error:+: ${error#error: }}"
  say "$why"
  if [[ -e $here/failed ]]; then
    [[ $keep_data == yes ]] || rm -rf "$here/data"
    rm -f "$folder/unfinished"
    outcome=given_up
    say "$night: given up, it has failed twice; what it has made stays in $here, and the next run begins another night"
  else
    echo "$1 $2" > "$here/failed"
    say "$night: set right what failed and run again to go on; when it fails once more it is given up"
  fi
  exit "$2"
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

# What new policies are compared with; empty: the same search without a network.
current=$first
[[ ! -s $folder/current.policy ]] || current=$folder/current.policy

# What the night starts from stays the same once it has a checkpoint; until then the current policy may be put right.
if [[ ! -e $here/run-1/checkpoint ]]; then
  rm -f "$here/start.policy"
  [[ -z $current ]] || install_file "$current" "$here/start.policy"
fi

# What is left to do when all runs have ended needs no data.
ended=0
for ((number = 1; number <= seeds; ++number)); do [[ ! -s $here/run-$number/result.json ]] || ended=$((ended + 1)); done
[[ $ended -eq $seeds ]] ||
  step "generating" "$bin/automap-datagen" --rows "$rows" --config "$config" --seed "$seed" -o "$here/data" --quiet

init=()
[[ ! -s $here/start.policy ]] || init=(--init "$here/start.policy" --init-or-fresh)
runs=()
for ((number = 1; number <= seeds; ++number)); do
  run=$here/run-$number
  runs+=("$run")
  [[ ! -s $run/result.json ]] || continue
  options=()
  if [[ ! -e $run/checkpoint ]]; then
    options=(--data "$here/data" --evaluate-data "synth:$config" --preset "$preset" --time "$time"
      --seed "$((1000 * seed + number))" "${init[@]}" "$@")
  fi
  mkdir -p "$run"
  step "training run $number" "$bin/automap-train" --out "$run" --resume --json --quiet "${options[@]}" > "$run/result.json.tmp"
  mv "$run/result.json.tmp" "$run/result.json"
  if [[ -s $here/start.policy && -e $run/report.md ]] && ! grep -q '^- Started from ' "$run/report.md"; then
    say "$night: the current policy is another network than the options ask for; run $number began with fresh weights"
  fi
done

if [[ $current == "$folder/current.policy" ]]; then
  before="the current policy"
elif [[ -n $current ]]; then
  before="the policy $current"
else
  before="the search without a network"
fi
# Only options that belong to the held-out problems matter here; they are the run's own but for the seed: each night asks
# others, or the policies would be chosen by the same few problems night after night.
step "comparing" python3 "$root/scripts/promote.py" --bin "$bin" --out "$here" --install "$folder/current.policy" \
  --evaluate-seed "$((20000000 + seed))" --before "$before" ${current:+--current "$current"} ${real:+--real "$real"} \
  ${compare_problems:+--compare-problems "$compare_problems"} ${compare_time:+--compare-time "$compare_time"} "${runs[@]}" \
  > "$here/decision.txt"
said=$(cat "$here/decision.txt")
outcome="${said%%[ ,]*}" why=$said
say "$night: $said"
rm -f "$folder/unfinished"
[[ $keep_data == yes ]] || rm -rf "$here/data" || say "$here/data could not be removed"
