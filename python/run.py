#!/usr/bin/env python3
"""automap-run (`automap run`): the command of the package beside it, with the python3 of the PATH.

Where that has no jax: `~/venv/bin/python3 $(which automap-run) DIR --check`.
"""

import sys
from pathlib import Path

here = Path(__file__).resolve().parent
for folder in (here / "python", here.parent / "share" / "automap" / "python", here):
    if (folder / "automap" / "command.py").is_file():
        sys.path.insert(0, str(folder))
        break

from automap.command import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
