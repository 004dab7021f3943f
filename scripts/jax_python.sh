#!/usr/bin/env bash
# Prints the path of a Python that has jax, for the tests that ask JAX and XLA (AUTOMAP_JAX_PYTHON=$(scripts/jax_python.sh)).
#   scripts/jax_python.sh [--no-install]
# $AUTOMAP_JAX_PYTHON when it has jax; else a virtual environment with what scripts/export_requirements.txt pins, made on
# the first call in ${XDG_CACHE_HOME:-~/.cache}/automap (600 MB, one or two minutes, from the package registry that pip is
# set up for) and used again afterwards. Says on standard error why there is none, and exits 1.
# AUTOMAP_VENV_PYTHON: the Python the environment is made with (default: /usr/bin/python3 when it is there).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
package=jax kind=jax given=AUTOMAP_JAX_PYTHON
requirements=$root/scripts/export_requirements.txt
install_timeout_s=600
is_made() { has_package "$1/bin/python"; }
source "$root/scripts/python_with.sh"
