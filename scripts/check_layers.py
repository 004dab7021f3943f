#!/usr/bin/env python3
"""Fails when a room includes what the house (docs/house.md) does not let it include.

    scripts/check_layers.py              checks the repository
    scripts/check_layers.py --self-test  checks the checker
"""

import pathlib
import re
import sys
import tempfile

# What each room may include besides itself. Tests, benchmarks and fuzzers may include everything.
ROOMS = {
    "common/base": [],
    "common/graph": ["common/base"],
    "common/hlo": ["common/base", "common/graph"],
    "common/architecture": ["common/base", "common/graph"],
    "common/sharding": ["common/base", "common/graph"],
    "common/machine": ["common/base"],
    "common/pipeline": ["common/base", "common/machine"],
    "common/io": ["common/base", "common/graph", "common/machine", "common/pipeline"],
    "profile": ["common/base", "common/graph", "common/architecture", "common/hlo", "common/sharding", "common/machine", "common/pipeline", "common/io"],
    "profile/measured": ["common/base", "common/graph", "common/pipeline", "profile"],
    "models": ["common/base", "common/machine", "common/pipeline"],
    "models/learner": ["common/base", "common/pipeline", "models"],
    "datagen": ["common/base", "common/machine", "common/pipeline", "common/io"],
    "train": ["common/base", "common/machine", "common/pipeline", "common/io", "models", "datagen"],
    "train/learned": ["models", "models/learner", "train"],
    "plan/planners": ["common/base", "common/machine", "common/pipeline", "models"],
    "plan/rivals": ["common/base", "common/machine", "common/pipeline", "plan/planners"],
    "plan/placement": ["common/base", "common/machine", "common/pipeline", "plan/soap"],
    "plan/pictures": ["common/base", "common/machine", "common/pipeline"],
    "infer": ["common/base", "common/graph", "common/architecture", "common/hlo", "common/machine", "common/pipeline", "common/io", "profile", "profile/measured", "models",
              "plan/partition", "plan/planners", "plan/rivals", "plan/emit", "plan/pictures"],
    "compare": ["common/base", "common/graph", "common/hlo", "common/machine", "common/pipeline", "profile", "plan/partition",
                "plan/planners", "plan/rivals", "plan/placement", "plan/soap", "plan/heuristics", "infer"],
    "plan/partition": ["common/base", "common/graph", "common/sharding", "common/machine", "common/pipeline", "profile", "models"],
    "profile/program": ["common/base", "common/architecture", "common/hlo", "common/io", "common/machine", "profile", "profile/measured", "plan/partition"],
    "plan/partition/learned": ["common/base", "common/pipeline", "models", "models/learner", "plan/partition"],
    "plan/planners/learned": ["common/base", "common/machine", "common/pipeline", "models", "models/learner", "plan/planners"],
    "plan/plugin": ["common/base", "common/pipeline", "models", "models/learner", "plan/partition", "plan/partition/learned",
                    "plan/planners", "plan/planners/learned", "train", "train/learned"],
    "plan/emit": ["common/base", "common/architecture", "common/graph", "common/hlo", "common/sharding", "common/machine", "common/pipeline", "plan/partition",
                  "plan/planners", "plan/soap"],
    "plan/programs": ["common/base", "common/graph", "common/hlo", "common/machine", "common/pipeline", "profile"],
    "plan/emit/program": ["common/base", "common/graph", "common/hlo", "common/machine", "common/pipeline", "profile", "plan/planners",
                          "plan/rivals", "plan/emit", "plan/programs", "infer"],
    "plan/soap": ["common/base", "common/graph", "common/sharding", "common/machine", "common/pipeline", "profile"],
    "plan/heuristics": ["common/base", "common/graph", "common/machine", "common/pipeline", "profile", "plan/soap"],
    "inspect": ["common/base", "common/graph", "common/architecture", "common/hlo", "common/machine", "common/pipeline", "common/io", "profile", "models",
                "plan/partition"],
    "search": ["common/base", "common/graph", "common/architecture", "common/hlo", "common/sharding", "common/machine", "common/pipeline", "common/io", "profile",
               "plan/partition", "plan/planners", "plan/placement", "plan/emit", "plan/soap", "plan/heuristics"],
    "front": ["common/base"],
}
FREE = ["tests", "bench", "fuzz"]
# Headers of outside libraries and the only rooms that may see them.
LIBRARIES = {
    "hdf5": ["common/io"],
    "torch/": ["models/learner"],
    "boost/program_options": ["common/base"],
    "zlib": ["common/base", "common/io"],
    "coin/": ["plan/placement"],
}
GENERATED = ["automap_version.h"]
SUFFIXES = {".h", ".cpp"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def room_of(path):
    """The room of a repository path, None outside all rooms."""
    rooms = [room for room in ROOMS if path.startswith(room + "/")]
    return max(rooms, key=len) if rooms else None


def check(root):
    """Problems found below root, as lines."""
    problems = []
    files = []
    for top in sorted({room.split("/")[0] for room in ROOMS} | set(FREE)):
        files += sorted(p for p in (root / top).rglob("*") if p.suffix in SUFFIXES)
    for file in files:
        path = file.relative_to(root).as_posix()
        room = room_of(path)
        if room is None and path.split("/")[0] not in FREE:
            problems.append(f"{path}: stands in no room (rooms: {', '.join(ROOMS)})")
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            quote, included = match.groups()
            where = f"{path}:{number}"
            for library, allowed in LIBRARIES.items():
                if room and included.startswith(library) and room not in allowed:
                    problems.append(f"{where}: {room} may not include <{included}> (only {', '.join(allowed) or 'nobody'})")
            if quote == "<":
                if room_of(included):
                    problems.append(f"{where}: write #include \"{included}\"")
                continue
            if included in GENERATED:
                continue
            target = room_of(included)
            if not (root / included).is_file():
                problems.append(f"{where}: \"{included}\" is no file of the repository; include by repository path")
            elif room and target != room and target not in ROOMS[room]:
                allowed = ", ".join(ROOMS[room]) or "nothing outside itself"
                problems.append(f"{where}: {room} may not include \"{included}\" (it may include {allowed})")
    return problems


def self_test():
    files = {
        "common/base/error.h": "#include <string>\n",
        "common/graph/graph.h": '#include "common/base/error.h"\n',
        "common/hlo/hlo_text.h": '#include "common/graph/graph.h"\n',
        "common/pipeline/cost.h": '#include "common/base/error.h"\n',
        "common/io/file.h": '#include <hdf5.h>\n#include "common/pipeline/cost.h"\n#include "common/graph/graph.h"\n',
        "infer/main.cpp": '#include "common/io/file.h"\n',
        "tests/x_test.cpp": '#include "infer/planner.h"\n#include "common/graph/graph.h"\n',
        "infer/planner.h": "",
    }
    wrong = {
        "common/base/cli.h": ('#include "common/graph/graph.h"', "common/base may not include"),
        "common/graph/x.cpp": ('  #  include "common/pipeline/cost.h"', "common/graph may not include"),
        "common/graph/y.cpp": ('#include "common/hlo/hlo_text.h"', "common/graph may not include"),
        "common/pipeline/x.cpp": ("#include <hdf5.h>", "common/pipeline may not include <hdf5.h>"),
        "profile/x.cpp": ('#include "infer/planner.h"', "profile may not include"),
        "infer/y.cpp": ('#include "planner.h"', "no file of the repository"),
        "inspect/x.cpp": ("#include <torch/nn.h>", "torch"),
        "common/z.cpp": ("", "stands in no room"),
    }

    def write(root, name, text):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
        return path

    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            write(root, name, text)
        assert check(root) == [], check(root)
        for name, (text, expected) in wrong.items():
            path = write(root, name, text)
            problems = check(root)
            assert len(problems) == 1 and expected in problems[0] and name in problems[0], (name, problems)
            path.unlink()
    print("check_layers: self-test passed")


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    root = pathlib.Path(__file__).resolve().parent.parent
    problems = check(root)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
