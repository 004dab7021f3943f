#!/usr/bin/env bash
# A night of training on a Slurm cluster: a dataset by an array of jobs, one run per seed on several machines each, the
# best of them compared with the current policy and promoted when it is better (as scripts/nightly.sh does on one machine).
#
#   scripts/slurm/submit.sh FOLDER [options] [-- options of automap-train]
#     --rows N       rows to generate (1000000)          --config NAME   distribution (mixed)
#     --parts N      jobs that generate them (4)         --shard-rows N  rows per shard, of which a job makes whole ones (65536)
#     --seeds N      runs (3), seeds 1..N                --ranks N       processes of each run (2), one per machine
#     --cpus N       processors of each process (all jobs; 2)
#     --time T       training time of each run (1h)      --preset NAME   (nightly)
#     --data-seed N  of the rows and of the problems that are compared with (1)
#     --first FILE   the policy that stands for the current one until one has been promoted (the one that is shipped)
#     --real DATA, --compare-problems S,M,D, --compare-time T   as of scripts/nightly.sh
#     --bin DIR      where the programs are, on every machine (build/release of this checkout)
#     --sbatch "..." options for every sbatch: --partition=..., --account=..., --time=...
#
# One FOLDER is one night: another night takes another FOLDER, another --data-seed, and
# --first FOLDER_OF_LAST_NIGHT/current.policy if that night promoted one.
#
# FOLDER is on a file system that every machine sees: FOLDER/data, FOLDER/seed-1, ..., FOLDER/comparison.json,
# FOLDER/current.policy, FOLDER/log. A job that fails holds back those behind it: nothing is promoted. Run again, it submits
# the same jobs, which go on where the last ones ended. Prints the numbers of the jobs, the last one promotes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

die() { echo "submit.sh: $*" >&2; exit 2; }
folder="" sbatch="" ranks=2 parts=4 seeds=3 cpus=2
export ROWS=1000000 SHARD_ROWS=65536 CONFIG=mixed TIME=1h PRESET=nightly DATA_SEED=1
export SCRIPTS=$root/scripts REAL="" COMPARE_PROBLEMS="" COMPARE_TIME="" BIN=$root/build/release FIRST=$root/models/pretrained/pipeline.policy
while [[ $# -gt 0 ]]; do
  case $1 in
    -h | --help) sed -n '2,/^set -e/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
    --) shift; break ;;
    -*) [[ $# -ge 2 ]] || die "$1 needs a value" ;;&
    --rows) ROWS=$2; shift 2 ;;
    --shard-rows) SHARD_ROWS=$2; shift 2 ;;
    --config) CONFIG=$2; shift 2 ;;
    --parts) parts=$2; shift 2 ;;
    --seeds) seeds=$2; shift 2 ;;
    --ranks) ranks=$2; shift 2 ;;
    --cpus) cpus=$2; shift 2 ;;
    --time) TIME=$2; shift 2 ;;
    --preset) PRESET=$2; shift 2 ;;
    --data-seed) DATA_SEED=$2; shift 2 ;;
    --first) FIRST=$2; shift 2 ;;
    --real) REAL=$2; shift 2 ;;
    --compare-problems) COMPARE_PROBLEMS=$2; shift 2 ;;
    --compare-time) COMPARE_TIME=$2; shift 2 ;;
    --bin) BIN=$2; shift 2 ;;
    --sbatch) sbatch=$2; shift 2 ;;
    -*) die "unknown option $1 (options of automap-train go behind --)" ;;
    *) [[ -z $folder ]] || die "one folder, found '$folder' and '$1'"; folder=$1; shift ;;
  esac
done
[[ -n $folder ]] || die "missing FOLDER; scripts/slurm/submit.sh --help"
[[ $DATA_SEED =~ ^(0|[1-9][0-9]*)$ ]] || die "--data-seed: found '$DATA_SEED', expected a whole number"
for number in "$parts" "$seeds" "$ranks" "$cpus" "$ROWS" "$SHARD_ROWS"; do
  [[ $number =~ ^[1-9][0-9]*$ ]] || die "found '$number', expected a number from 1 on"
done
[[ $FIRST == none || -s $FIRST ]] || die "--first: found '$FIRST', which is not there"
command -v python3 > /dev/null || die "python3 is not there, which decides at the end (scripts/install_dependencies.sh --train)"
command -v sbatch > /dev/null || die "no sbatch here: this is no machine of a Slurm cluster"
for program in automap-datagen automap-train; do
  [[ -x $BIN/$program ]] || die "$BIN/$program is not there: build it (scripts/build.sh) or give --bin"
done
mkdir -p "$folder/log"
export FOLDER
FOLDER=$(cd "$folder" && pwd)
export SEEDS=$seeds

submit() {
  # shellcheck disable=SC2086 # several options
  command sbatch --parsable --export=ALL --kill-on-invalid-dep=yes --cpus-per-task="$cpus" \
    --output="$FOLDER/log/%x-%A-%a.txt" --open-mode=append $sbatch "$@"
}
rows=$(submit --array="0-$((parts - 1))" "$here/datagen.sbatch")
whole=$(submit --dependency="afterok:$rows" "$here/whole.sbatch")
runs=$(submit --dependency="afterok:$whole" --array="1-$seeds" --nodes="$ranks" --ntasks="$ranks" --ntasks-per-node=1 \
  "$here/train.sbatch" "$@")
last=$(submit --dependency="afterok:$runs" "$here/promote.sbatch")
echo "generate $rows, check $whole, train $runs, promote $last"
