#!/usr/bin/env bash
# Installs the Debian packages that building AutoMap needs and that are not there yet.
#   scripts/install_dependencies.sh [--train] [--milp] [--tests] [--packages] [--ci]
#     --train  also LibTorch for automap-train;  --milp  also the other solvers of automap-search placement: CBC, Scotch
#     --tests  both and what the tests need;  --packages  what scripts/package.sh and try_packages.sh need besides
#     --ci  --tests, and the second compiler, formatter and sanitizers
# Run as root, or as a user who may use sudo. Prints nothing when nothing is missing.
set -euo pipefail

packages=(
  g++ cmake ninja-build
  libhdf5-dev libboost-program-options-dev nlohmann-json3-dev zlib1g-dev
)
# The learner of automap-train. The BLAS is a real dependency: with Debian's default one training is 20 times slower.
# python3: scripts/promote.py and nightly_history.py.
train_packages=(libtorch-dev libgloo-dev libopenblas0-openmp python3)
# plan/systems/placement: cbc.cpp opens the library that the package brings, scotch.cpp runs the program.
milp_packages=(coinor-libcbc-dev scotch)
test_packages=(libgtest-dev libgmock-dev python3-h5py python3-jsonschema)
# git: the commit that --version names.
package_packages=(dpkg-dev file git python3-venv debootstrap)
# python3-venv: scripts/jax_python.sh; slurm-wlm, munge and iproute2: the tests of several machines.
ci_packages=(clang lld clang-format libclang-rt-14-dev ccache python3-venv slurm-wlm munge iproute2)

for argument in "$@"; do
  case "$argument" in
    --train) packages+=("${train_packages[@]}") ;;
    --milp) packages+=("${milp_packages[@]}") ;;
    --packages) packages+=("${package_packages[@]}") ;;
    --tests) packages+=("${train_packages[@]}" "${milp_packages[@]}" "${test_packages[@]}") ;;
    --ci) packages+=("${train_packages[@]}" "${milp_packages[@]}" "${test_packages[@]}" "${ci_packages[@]}") ;;
    -h | --help)
      sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *)
      echo "error: unknown argument $argument (--train, --milp, --tests, --packages, --ci)" >&2
      exit 2
      ;;
  esac
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "error: this script installs Debian packages and found no apt; install by other means: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

as_root=()
if [[ $EUID -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "error: missing packages: ${missing[*]}" >&2
    echo "  hint: run 'apt-get install ${missing[*]}' as root" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "installing ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
}
# The package lists may be missing or old: try with what there is, then refresh them.
if ! install >"$log" 2>&1; then
  if ! { "${as_root[@]}" apt-get update -q && install; } >"$log" 2>&1; then
    cat "$log" >&2
    echo "error: apt-get could not install ${missing[*]}" >&2
    exit 1
  fi
fi
