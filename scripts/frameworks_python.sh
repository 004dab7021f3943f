#!/usr/bin/env bash
# Prints the path of a Python beside which the sources of frameworks lie, for the tests that ask their parsers
# (AUTOMAP_FRAMEWORKS_PYTHON=$(scripts/frameworks_python.sh) ctest -L frameworks).
#   scripts/frameworks_python.sh
# A virtual environment in ${XDG_CACHE_HOME:-~/.cache}/automap, made on the first call: the packages that
# scripts/frameworks_requirements.txt pins are fetched without what they depend on and unpacked (40 MB; torch alone would be
# several GB), and the few small packages that their configuration classes use are installed. Exits 1, with the reason, where the package
# registry cannot be reached.
# AUTOMAP_VENV_PYTHON: the Python the environment is made with (default: python3).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
requirements=$root/scripts/frameworks_requirements.txt
small=(tyro pydantic hjson numpy packaging psutil py-cpuinfo msgpack einops tqdm pyyaml)
timeout_s=600

die() { echo "frameworks_python.sh: $*" >&2; exit 1; }
[[ $# -eq 0 ]] || { sed -n '2,/^set -e/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; exit 0; }

base=${AUTOMAP_VENV_PYTHON:-$(command -v python3)} || die "there is no python3"
key=$({ cat "$requirements"; echo "${small[@]}"; "$base" -c 'import sys; print(sys.version, sys.prefix)'; } | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/automap
venv=$cache/frameworks-$key
[[ -e $venv/ready ]] && { echo "$venv/bin/python"; exit 0; }

mkdir -p "$cache"
exec 9>"$venv.lock"
flock 9  # another run may be making it
if [[ ! -e $venv/ready ]]; then
  echo "frameworks_python.sh: fetching $(grep -v '^#' "$requirements" | tr '\n' ' ')into $venv" >&2
  rm -rf "$venv"
  unpack='
import pathlib, sys, tarfile, zipfile
venv = pathlib.Path(sys.argv[1])
for archive in (venv / "archives").iterdir():
    to = venv / "frameworks" / archive.name.split("-")[0]
    if archive.suffix == ".whl":
        zipfile.ZipFile(archive).extractall(to)
    else:
        tarfile.open(archive).extractall(to.parent)
        (to.parent / archive.name.removesuffix(".tar.gz")).rename(to)
'
  # pip asks the source of DeepSpeed, which comes as nothing else, what it is called; it can say so without torch.
  log=$venv.log
  if ! { "$base" -m venv "$venv" &&
    timeout "$timeout_s" "$venv/bin/pip" install --quiet --no-input --disable-pip-version-check "${small[@]}" &&
    timeout "$timeout_s" "$venv/bin/pip" download --quiet --no-input --disable-pip-version-check --no-deps \
      --ignore-requires-python --no-binary deepspeed -r "$requirements" -d "$venv/archives" &&
    "$venv/bin/python" -c "$unpack" "$venv" && touch "$venv/ready"; } >"$log" 2>&1 9>&- </dev/null; then
    tail -n 5 "$log" >&2
    rm -rf "$venv"
    die "the package registry could not be reached, or does not have the requirements ($log)"
  fi
fi
echo "$venv/bin/python"
