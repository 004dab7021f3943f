#!/usr/bin/env bash
# Builds what is handed out, into build/packages: a wheel, or the .debs automap and automap-trainer.
#   scripts/package.sh wheel|deb [--build DIR]
#     wheel  with any Python 3.10 or newer that has venv (PYTHON=...); programs without LibTorch, which need the C library alone
#     deb    of the packages that scripts/install_dependencies.sh installs; automap-trainer where LibTorch is among them (--train)
#   --build DIR  take the build folder DIR (default: build/wheel, build/package); for a wheel one that was made for a wheel: what
#                CMake has found once stays, so that the shared libraries of another would be taken
# scripts/try_packages.sh installs them elsewhere and runs them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { echo "package.sh: $*" >&2; exit "${code:-1}"; }
kind=${1:-} build=
[[ $# -eq 0 ]] || shift
while [[ $# -gt 0 ]]; do
  case "$1" in
    --build) [[ -n ${2:-} ]] || code=2 die "--build: a folder is missing"; build=$2; shift 2 ;;
    *) code=2 die "unknown argument $1 (--build DIR)" ;;
  esac
done
out=$PWD/build/packages
mkdir -p "$out"

case "$kind" in
  -h | --help) sed -n '2,/^set -e/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//' ;;
  wheel)
    build=${build:-build/wheel}
    python=${PYTHON:-/usr/bin/python3}
    venv=build/packages/.venv
    [[ -x $venv/bin/pip ]] || "$python" -m venv "$venv" || die "$python cannot make a virtual environment; install python3-venv, or set PYTHON"
    rm -f "$out"/automap_programs-*.whl
    if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
    "$venv/bin/pip" wheel --quiet --disable-pip-version-check --no-deps -w "$out" --config-settings "build-dir=$build" . ||
      die "the wheel could not be built; what is needed stands in scripts/install_dependencies.sh"
    ls "$out"/automap_programs-*.whl
    ;;
  deb)
    build=${build:-build/package}
    if [[ ! -f $build/CMakeCache.txt ]]; then
      launcher=()
      if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
      cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DAUTOMAP_BUILD_TESTS=OFF -DAUTOMAP_BUILD_BENCH=OFF "${launcher[@]}" >/dev/null
    fi
    # The programs and what is made of them; not the tests of a folder that has some.
    targets=(automap_man)
    # All of the list is read: grep -q ends ninja in the middle of it, which pipefail takes for a list without the target.
    if ninja -C "$build" -t targets all | grep '^automap_plugin:' >/dev/null; then targets+=(automap_plugin); fi
    cmake --build "$build" --target "${targets[@]}" >"$out/build.log" || { tail -n 20 "$out/build.log" >&2; die "building $build failed"; }
    rm -f "$out"/automap*.deb
    (cd "$build" && cpack -G DEB -B "$out") >"$out/cpack.log" 2>&1 || { tail -n 20 "$out/cpack.log" >&2; die "cpack failed"; }
    rm -rf "$out/_CPack_Packages"
    ls "$out"/automap*.deb
    ;;
  *) code=2 die "found '$kind', expected wheel or deb" ;;
esac
