#!/usr/bin/env python3
"""Makes datagen/fixture_profiles.inc: the models of fixtures/ at the 128 points of a row, what the family `empirical` of
automap-datagen draws from where no profiles are named (docs/datagen.md).

Example:
  cmake --build --preset release --target automap-profile && scripts/make_fixture_profiles.py --build build/release

Per model three lines of whole numbers: c and w of each point over the largest of the model's, a over its largest, all
times 9999, and what that is in ms and bytes. A reduced form is enough, because rows have 128 points. Needs nothing but
Python's standard library.
"""

import argparse
import csv
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
POINTS = 128
LARGEST = 9999
LEAST_POSITIONS = 32  # smaller ones are toys


def columns(build, model, folder):
    target = Path(folder) / "profile.csv"
    subprocess.run([str(build / "automap-profile"), str(model), "-o", str(target), "--quiet"], check=True, capture_output=True)
    with open(target, newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return [[float(row[key]) for row in rows] for key in ("c_ms", "a_bytes", "w_bytes")]


def at_points(c, a, w):
    n, done = len(c), 0
    out = ([], [], [])
    for k in range(1, POINTS + 1):
        i = k * n // POINTS
        if i == done:
            continue
        out[0].append(sum(c[done:i]))
        out[1].append(a[i - 1])
        out[2].append(sum(w[done:i]))
        done = i
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=SOURCE / "build" / "release", help="where automap-profile is")
    arguments = parser.parse_args()
    lines = ["// Made by scripts/make_fixture_profiles.py from fixtures/hlo; not to be edited."]
    with tempfile.TemporaryDirectory() as folder:
        for model in sorted((SOURCE / "fixtures" / "hlo").glob("*.hlo.gz")):
            name = model.name[: -len(".hlo.gz")]
            if name.endswith(".stripped"):
                continue
            read = columns(arguments.build, model, folder)
            if len(read[0]) < LEAST_POSITIONS:
                continue
            points = at_points(*read)
            tops = [max(values) for values in points]
            lines.append(f'R"({name} {len(points[0])} ' + " ".join(f"{top:.6g}" for top in tops))
            for values, top in zip(points, tops):
                lines.append(" ".join(str(round(value / top * LARGEST) if top > 0 else 0) for value in values))
            lines.append(')",')
    (SOURCE / "datagen" / "fixture_profiles.inc").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
