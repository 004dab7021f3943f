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
package=torchax kind=torch given=AUTOMAP_TORCH_PYTHON
requirements=$root/scripts/torch_requirements.txt
install_timeout_s=1800
is_made() { [[ -e $1/ready ]]; }  # to import torch takes seconds
source "$root/scripts/python_with.sh"
