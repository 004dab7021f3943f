#!/usr/bin/env bash
# Builds the pages of docs/ as a site into build/site, by mkdocs.yml; a link that leads nowhere is an error.
#   scripts/docs_site.sh [--serve]      --serve: shows it at http://127.0.0.1:8000, and follows changes
# mkdocs stands in a virtual environment in ${XDG_CACHE_HOME:-~/.cache}/automap, made on the first call with what
# scripts/docs_requirements.txt pins (170 MB) and used again afterwards. Exits 1, with the reason, where the package
# registry cannot be reached.
# AUTOMAP_VENV_PYTHON: the Python the environment is made with (default: python3).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
requirements=$root/scripts/docs_requirements.txt
install_timeout_s=600

die() { echo "docs_site.sh: $*" >&2; exit "${code:-1}"; }
serve=no
case "${1:-}" in
  "") ;;
  --serve) serve=yes ;;
  -h | --help) sed -n '2,/^set -e/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
  *) code=2 die "unknown argument $1 (--serve)" ;;
esac

base=${AUTOMAP_VENV_PYTHON:-$(command -v python3)} || die "there is no python3"
# One environment per set of requirements and Python: a change of either makes a new one.
key=$({ cat "$requirements"; "$base" -c 'import sys; print(sys.version, sys.prefix)'; } | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/automap
venv=$cache/docs-$key
if [[ ! -e $venv/ready ]]; then
  mkdir -p "$cache"
  exec 9>"$venv.lock"
  flock 9  # another run may be making it
  if [[ ! -e $venv/ready ]]; then
    echo "docs_site.sh: installing $(tr '\n' ' ' <"$requirements")into $venv" >&2
    log=$venv.log
    rm -rf "$venv"
    if ! { "$base" -m venv "$venv" &&
      timeout "$install_timeout_s" "$venv/bin/pip" install --quiet --no-input --disable-pip-version-check -r "$requirements" &&
      touch "$venv/ready"; } >"$log" 2>&1 9>&- </dev/null; then
      tail -n 5 "$log" >&2
      rm -rf "$venv"
      die "the package registry could not be reached, or does not have the requirements ($log)"
    fi
  fi
  exec 9>&-
fi

cd "$root"
export NO_MKDOCS_2_WARNING=1  # mkdocs-material speaks of its successor on every call
[[ $serve == no ]] || exec "$venv/bin/mkdocs" serve --strict
# Not --quiet: what it does not say it does not count as an error either.
mkdir -p build
if ! "$venv/bin/mkdocs" build --strict >build/site.log 2>&1; then
  grep -vE '^INFO' build/site.log >&2
  exit 1
fi
echo "wrote build/site/index.html"
