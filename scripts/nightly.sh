#!/usr/bin/env bash
# One night of training: generate -> train -> evaluate -> promote the new policy, but only when it is better than the
# current one on held-out problems (a paired test), and not the same. Made for cron; run again after a stop or a kill it
# goes on where it was.
#
# A night starts from the current policy, with hidden layers as that one has them (unless --hidden is given to
# automap-train); from fresh weights when it is another network altogether, and the log says so.
#
#   scripts/nightly.sh FOLDER [options] [-- options of automap-train]
#     --rows N       rows to generate (default 1000000)      --config NAME   distribution (default mixed)
#     --time T       training time (default 1h)              --preset NAME   (default nightly)
#     --bin DIR      where the programs are (default: build/release of this checkout)
#     --keep-data    keep the night's dataset
#     --first FILE   the policy that stands for the current one until a night's has been promoted (default: the one that
#                    is shipped, models/pretrained/pipeline.policy); none: nights start fresh and are compared with the
#                    same search without a network
#   0 3 * * *  cd /srv/automap && scripts/nightly.sh /srv/nights
#
# FOLDER/current.policy   the policy in use; appears with the first night whose policy is better than the --first one,
#                         replaced only by one that is better
# FOLDER/nights/DATE/     a night: its run (report.md, curves.csv, policy.bin, ...), comparison.json
# FOLDER/nightly.log      what happened, a line each       FOLDER/unfinished   the night to go on with
#
# Exit codes: 0 promoted or kept (the log says which), 75 stopped, run again to go on, else as of the program that failed:
# the log says what failed. Run again after a failure it tries that night once more; when that fails too, the night is
# given up and the next run begins another.
# While another night runs on the same folder it does nothing and exits 0.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

die() { echo "nightly.sh: $*" >&2; exit 2; }
value() { [[ $# -ge 2 ]] || die "$1 needs a value"; echo "$2"; }

folder="" rows=1000000 config=mixed time=1h preset=nightly bin=$root/build/release keep_data=no first=$root/models/pretrained/pipeline.policy first_given=no
while [[ $# -gt 0 ]]; do
  case $1 in
    --rows) rows=$(value "$@"); shift 2 ;;
    --config) config=$(value "$@"); shift 2 ;;
    --time) time=$(value "$@"); shift 2 ;;
    --preset) preset=$(value "$@"); shift 2 ;;
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
if [[ $first == none ]] || [[ $first_given == no && ! -s $first ]]; then
  first=""
elif [[ ! -s $first ]]; then
  die "--first: $first is not there"
fi
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
  run "$@" 2> "$here/errors.txt" || code=$?
  cat "$here/errors.txt" >&2
  [[ $code -ne 0 ]] || return 0
  # Stopped with a checkpoint, or ended by SIGHUP, SIGINT, SIGTERM; a crash (other signals) is a failure.
  case $code in
    75 | 129 | 130 | 143)
      say "stopped while $what (exit $code); run again to go on"
      exit 75 ;;
  esac
  # A program of a night that was killed may be at work still.
  if grep -qE '^error: .*(is in use by|are being made by)' "$here/errors.txt"; then
    say "$what is under way in another process: $(grep -m1 '^error: ' "$here/errors.txt"); run again when it has ended"
    exit 75
  fi
  fail "$what" "$code"
}
# What is the same every time would be tried every night for ever: the second failure ends the night.
fail() {
  local why=""
  why=$(grep -m1 '^error: ' "$here/errors.txt" || true)
  why=${why//"$here/start.policy"/"$current"}
  say "failed while $1 (exit $2)${why:+: ${why#error: }}"
  if [[ -e $here/failed ]]; then
    [[ $keep_data == yes ]] || rm -rf "$here/data"
    rm -f "$folder/unfinished"
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
if [[ ! -e $here/run/checkpoint ]]; then
  rm -f "$here/start.policy"
  [[ -z $current ]] || install_file "$current" "$here/start.policy"
fi

step "generating" "$bin/automap-datagen" --rows "$rows" --config "$config" --seed "$seed" -o "$here/data" --quiet

init=()
[[ ! -s $here/start.policy ]] || init=(--init "$here/start.policy" --init-or-fresh)
if [[ -e $here/run/checkpoint ]]; then
  step "training" "$bin/automap-train" --out "$here/run" --resume --quiet > "$here/training.txt"
else
  step "training" "$bin/automap-train" --data "$here/data" --evaluate-data "synth:$config" --out "$here/run" --resume \
    --preset "$preset" --time "$time" --seed "$seed" "${init[@]}" --quiet "$@" > "$here/training.txt"
fi

new=$here/run/policy.bin
if [[ -s $here/start.policy && -e $here/run/report.md ]] && ! grep -q '^- Started from ' "$here/run/report.md"; then
  say "$night: the current policy is another network than the options ask for; the night began with fresh weights"
fi
# Only options that belong to the held-out problems matter here; they are the run's own but for the seed: each night asks
# others, or the policies would be chosen by the same few problems night after night.
step "comparing" "$bin/automap-train" --config "$here/run/config.ini" --compare --json --quiet \
  --evaluate-seed "$((20000000 + seed))" "$new" ${current:+"$current"} > "$here/comparison.json.tmp"
mv "$here/comparison.json.tmp" "$here/comparison.json"
summary=$(tr -d ' \n' < "$here/comparison.json" | grep -o '"first_mean":[^,]*,"second_mean":[^,]*,"mean":[^,]*,"standard_error":[^,]*' | tail -1)
if [[ $current == "$folder/current.policy" ]]; then
  before="the current policy"
elif [[ -n $current ]]; then
  before="the policy $current"
else
  before="the search without a network"
fi
# Why it was kept, in words.
field() { sed -n "s/^ *\"$1\": \"\{0,1\}\([^,\"]*\).*/\1/p" "$here/comparison.json" | tail -1; }
why() {
  local lost other
  lost=$(field first_lost) other=$(field second_lost)
  case $(field ended_by) in
    too_few_problems) echo ": only $(field problems) problems could be judged" ;;
    refused) echo ": it is worse" ;;
    no_more_problems) echo ": the held-out problems ran out before it was settled" ;;
    looks) echo ": not settled after the most looks" ;;
    *) [[ ${lost:-0} -le ${other:-0} ]] || echo ": it found no plan for $lost problems, the other for $other" ;;
  esac
}
verdict() { tail -4 "$here/comparison.json" | grep -q "\"$1\": true,\{0,1\}\$"; }
if verdict no_difference && [[ $(field ended_by) != too_few_problems ]]; then
  say "$night: kept $before, the new one makes no difference ($summary)"
elif verdict accepted; then
  install_file "$new" "$folder/current.policy"
  say "$night: promoted, better than $before ($summary)"
else
  say "$night: kept $before, the new one is not shown to be better$(why) ($summary)"
fi
[[ $keep_data == yes ]] || rm -rf "$here/data"
rm -f "$folder/unfinished"
