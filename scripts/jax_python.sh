#!/usr/bin/env bash
# Prints the path of a Python that has jax, for the tests that ask JAX and XLA (AUTOMAP_JAX_PYTHON=$(scripts/jax_python.sh)).
#   scripts/jax_python.sh [--no-install]
# $AUTOMAP_JAX_PYTHON when it has jax; else a virtual environment with what scripts/export_requirements.txt pins, made on
# the first call in ${XDG_CACHE_HOME:-~/.cache}/automap (600 MB, one or two minutes, from the package registry that pip is
# set up for) and used again afterwards. Says on standard error why there is none, and exits 1.
# AUTOMAP_VENV_PYTHON: the Python the environment is made with (default: /usr/bin/python3 when it is there).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
requirements=$root/scripts/export_requirements.txt
install_timeout_s=600

die() { echo "jax_python.sh: $*" >&2; exit "${code:-1}"; }
has_jax() { [[ -n $1 ]] && "$1" -B -c 'import jax' >/dev/null 2>&1; }

install=yes
case "${1:-}" in
  "") ;;
  --no-install) install=no ;;
  -h | --help) sed -n '2,/^set -e/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
  *) code=2 die "unknown argument $1 (--no-install)" ;;
esac

if [[ -n ${AUTOMAP_JAX_PYTHON:-} ]]; then
  has_jax "$AUTOMAP_JAX_PYTHON" || die "AUTOMAP_JAX_PYTHON=$AUTOMAP_JAX_PYTHON cannot import jax; unset it, or install jax there"
  echo "$AUTOMAP_JAX_PYTHON"
  exit 0
fi

base=${AUTOMAP_VENV_PYTHON:-/usr/bin/python3}
[[ -x $base ]] || base=$(command -v python3) || die "there is no python3"
# One environment per set of requirements and Python: a change of either makes a new one.
key=$({ cat "$requirements"; "$base" -c 'import sys; print(sys.version, sys.prefix)'; } | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/automap
venv=$cache/jax-$key
if has_jax "$venv/bin/python"; then
  echo "$venv/bin/python"
  exit 0
fi
[[ $install == yes ]] || die "no Python with jax is there yet; scripts/jax_python.sh makes one"

mkdir -p "$cache"
exec 9>"$venv.lock"
flock 9  # another run may be making it
if ! has_jax "$venv/bin/python"; then
  echo "jax_python.sh: installing $(tr '\n' ' ' <"$requirements")into $venv" >&2
  log=$venv.log
  rm -rf "$venv"
  if ! { "$base" -m venv "$venv" &&
    timeout "$install_timeout_s" "$venv/bin/pip" install --quiet --no-input --disable-pip-version-check -r "$requirements"; } \
    >"$log" 2>&1 9>&- </dev/null; then
    tail -n 5 "$log" >&2
    rm -rf "$venv"
    die "no Python with jax: the package registry could not be reached, or does not have the requirements ($log)"
  fi
  has_jax "$venv/bin/python" || die "jax was installed into $venv and cannot be imported: $("$venv/bin/python" -c 'import jax' 2>&1 | tail -n 1)"
fi
echo "$venv/bin/python"
