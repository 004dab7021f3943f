#!/usr/bin/env bash
# Prints the path of a Python that has torch and torchax, for automap.torch, automap-export-torch and the tests that ask torch
# (AUTOMAP_TORCH_PYTHON=$(scripts/torch_python.sh) ctest -L frameworks).
#   scripts/torch_python.sh [--no-install]
# $AUTOMAP_TORCH_PYTHON when it has both; else a virtual environment with what scripts/torch_requirements.txt pins, made on the
# first call in ${XDG_CACHE_HOME:-~/.cache}/automap and used again afterwards. From PyPI it takes five minutes and 6 GB,
# most of it libraries for GPUs that nothing here uses; PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu has pip take the
# build without them. Says on standard error why there is none, and exits 1.
# AUTOMAP_VENV_PYTHON: the Python the environment is made with (default: /usr/bin/python3 when it is there; 3.11 or later).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
requirements=$root/scripts/torch_requirements.txt
install_timeout_s=1800

die() { echo "torch_python.sh: $*" >&2; exit "${code:-1}"; }
has_torchax() { [[ -n $1 ]] && "$1" -B -c 'import torchax' >/dev/null 2>&1; }

install=yes
case "${1:-}" in
  "") ;;
  --no-install) install=no ;;
  -h | --help) sed -n '2,/^set -e/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
  *) code=2 die "unknown argument $1 (--no-install)" ;;
esac

if [[ -n ${AUTOMAP_TORCH_PYTHON:-} ]]; then
  has_torchax "$AUTOMAP_TORCH_PYTHON" || die "AUTOMAP_TORCH_PYTHON=$AUTOMAP_TORCH_PYTHON cannot import torchax; unset it, or install torchax there"
  echo "$AUTOMAP_TORCH_PYTHON"
  exit 0
fi

base=${AUTOMAP_VENV_PYTHON:-/usr/bin/python3}
[[ -x $base ]] || base=$(command -v python3) || die "there is no python3"
# One environment per set of requirements and Python: a change of either makes a new one.
key=$({ cat "$requirements"; "$base" -c 'import sys; print(sys.version, sys.prefix)'; } | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/automap
venv=$cache/torch-$key
[[ -e $venv/ready ]] && { echo "$venv/bin/python"; exit 0; }
[[ $install == yes ]] || die "no Python with torchax is there yet; scripts/torch_python.sh makes one"

mkdir -p "$cache"
exec 9>"$venv.lock"
flock 9  # another run may be making it
if [[ ! -e $venv/ready ]]; then
  echo "torch_python.sh: installing $(tr '\n' ' ' <"$requirements")into $venv" >&2
  log=$venv.log
  rm -rf "$venv"
  if ! { "$base" -m venv "$venv" &&
    timeout "$install_timeout_s" "$venv/bin/pip" install --quiet --no-input --disable-pip-version-check -r "$requirements"; } \
    >"$log" 2>&1 9>&- </dev/null; then
    tail -n 5 "$log" >&2
    rm -rf "$venv"
    die "no Python with torchax: the package registry could not be reached, or does not have the requirements ($log)"
  fi
  has_torchax "$venv/bin/python" || die "torchax was installed into $venv and cannot be imported: $("$venv/bin/python" -c 'import torchax' 2>&1 | tail -n 1)"
  touch "$venv/ready"
fi
echo "$venv/bin/python"
