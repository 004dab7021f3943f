#!/usr/bin/env python3
"""The commands of the package beside it, each by the name that this file has, with the python3 of the PATH: automap-run
(`automap run`), automap-from-stablehlo, automap-export-torch.

Where that has no jax: `~/venv/bin/python3 $(which automap-run) DIR --check`.
"""

import importlib
import sys
from pathlib import Path

here = Path(__file__).resolve().parent
for folder in (here / "python", here.parent / "share" / "automap" / "python", here):
    if (folder / "automap" / "command.py").is_file():
        sys.path.insert(0, str(folder))
        break

MODULES = {"automap-from-stablehlo": "automap.stablehlo", "automap-export-torch": "automap.export_torch"}

if __name__ == "__main__":
    sys.exit(importlib.import_module(MODULES.get(Path(__file__).name, "automap.command")).main())
