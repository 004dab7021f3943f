#!/usr/bin/env bash
# The fault tests (tests/faults) with many more tries than in CI: kills, full disks, damaged files, failing allocations.
#   scripts/test_faults.sh [ctest arguments]      e.g. scripts/test_faults.sh -R hdf5
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
AUTOMAP_FAULTS=long exec "$root/scripts/test.sh" -L faults "$@"
