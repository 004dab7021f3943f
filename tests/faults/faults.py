"""What the fault tests share: how long they try, and what the command-line tests share."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))

LONG = os.environ.get("AUTOMAP_FAULTS") == "long"


def rounds(short, long):
    """How often to try: `short` in CI, `long` behind scripts/test_faults.sh."""
    return long if LONG else short
