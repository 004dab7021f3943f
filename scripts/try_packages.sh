#!/usr/bin/env bash
# Installs packages where nothing of AutoMap is, and plans with them.
#   scripts/try_packages.sh PACKAGE.whl                    in a new virtual environment, the folder of the sources left
#   scripts/try_packages.sh PACKAGE.deb... [--root DIR]    as root, in a bare Debian 12 that debootstrap makes (some minutes, 300 MB)
#     --root DIR  one that is there already; it is used as it is, and kept
# PYTHON: the Python that makes the environment (default: /usr/bin/python3). Leaves nothing behind.
set -euo pipefail

die() { echo "try_packages.sh: $*" >&2; exit "${code:-1}"; }
files=() root=
while [[ $# -gt 0 ]]; do
  case "$1" in
    -h | --help) sed -n '2,/^set -e/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
    --root) [[ -n ${2:-} ]] || code=2 die "--root: a folder is missing"; root=$(realpath "$2"); shift 2 ;;
    *) [[ -f $1 ]] || code=2 die "$1: there is no such package"; files+=("$(realpath "$1")"); shift ;;
  esac
done
[[ ${#files[@]} -gt 0 ]] || code=2 die "no package is given"

work=$(mktemp -d)
mounted=()
clean() {
  for folder in "${mounted[@]}"; do umount "$folder" || true; done
  rm -rf --one-file-system "$work"
}
trap clean EXIT
# Nothing set, and nothing of this machine's on the PATH but its own programs.
plain=(env -i PATH=/usr/bin:/bin HOME="$work" LC_ALL=C.UTF-8)

if [[ ${files[0]} == *.whl ]]; then
  "${PYTHON:-/usr/bin/python3}" -m venv "$work/venv"
  "$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-index "${files[@]}"
  cd "$work"
  plain=(env -i PATH="$work/venv/bin:/usr/bin:/bin" HOME="$work" LC_ALL=C.UTF-8)
  for program in "$work"/venv/bin/automap*; do
    needed=$(ldd "$program" 2>/dev/null | grep -vE 'linux-vdso|/ld-linux|lib(c|m)\.so' || true)
    [[ -z $needed || $needed == *"not a dynamic executable"* ]] || die "$program needs more than the C library: $needed"
  done
  "${plain[@]}" automap-infer --version
  "${plain[@]}" automap infer llama3-8b --cluster h100-2x8 --effort quick --for megatron -o plan.json | sed -n 1,2p
  "${plain[@]}" automap-emit plan.json --to megatron -o megatron.args
  "${plain[@]}" automap-run --help | sed -n 1p
  "${plain[@]}" automap-apply-plan --help | sed -n 1p
  # Of the environment although it is not on the PATH.
  env -i HOME="$work" "$work/venv/bin/python" -c '
import automap, os, sys
from automap import installed
found = installed.find("automap-infer")
assert os.path.dirname(found) == os.path.join(sys.prefix, "bin"), found
plan = automap.plan("llama3-8b", cluster="h100-2x8", batch_size=256, sequence=4096, effort="quick")
assert plan.fits and plan.step_ms > 0
print(plan)
try:
    automap.plan("no-such-model", cluster="h100-2x8")
except automap.Error as error:
    print("refused:", str(error).splitlines()[0])
else:
    sys.exit("a model that there is not was planned")
'
else
  [[ $EUID -eq 0 ]] || die "a bare Debian is made by root"
  if [[ -z $root ]]; then
    command -v debootstrap >/dev/null || die "there is no debootstrap: apt-get install debootstrap"
    root=$work/debian
    debootstrap --variant=minbase bookworm "$root" "${AUTOMAP_DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$work/debootstrap.log" ||
      { tail -n 5 "$work/debootstrap.log" >&2; die "debootstrap failed"; }
  fi
  for folder in proc dev; do
    mount --bind "/$folder" "$root/$folder"
    mounted=("$root/$folder" "${mounted[@]}")
  done
  cp --remove-destination -L /etc/resolv.conf "$root/etc/resolv.conf"
  names=()
  for file in "${files[@]}"; do
    cp "$file" "$root/tmp/"
    names+=("/tmp/$(basename "$file")")
  done
  inside=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$root")
  "${inside[@]}" sh -c 'apt-get update -q && apt-get install -y -q --no-install-recommends "$@"' sh "${names[@]}" >"$work/apt.log" 2>&1 ||
    { tail -n 15 "$work/apt.log" >&2; die "apt-get could not install ${names[*]}"; }
  "${inside[@]}" automap-infer --version
  "${inside[@]}" automap-infer llama3-8b --cluster h100-2x8 --effort quick | sed -n 1,2p
  if "${inside[@]}" test -x /usr/bin/automap-train; then
    "${inside[@]}" automap-train --out /tmp/training --episodes 16 --evaluate-small 2 --evaluate-middle 0 --evaluate-deep 0 --label-devices 8 \
      --label-stages 4 --round-episodes 16 --hidden 16 --threads 1 | tail -n 1
  fi
  "${inside[@]}" test -f /usr/share/man/man1/automap-infer.1.gz -a -f /usr/share/automap/docs/planner.md
  "${inside[@]}" bash -c '. /usr/share/bash-completion/completions/automap-infer; COMP_WORDS=(automap-infer --clus) COMP_CWORD=1; _automap; test "${COMPREPLY[*]}" = --cluster'
fi
echo "try_packages.sh: works"
