#!/usr/bin/env python3
"""Fails when files include what cmake/rooms.json does not say, or when docs/house.md does not show what it says.

    scripts/check_layers.py              checks the repository
    scripts/check_layers.py --docs       writes the picture and the table of docs/house.md
    scripts/check_layers.py --self-test  checks the checker
"""

import json
import pathlib
import re
import sys
import tempfile

from docs_tables import replace

HOUSE, PAGE = "cmake/rooms.json", "docs/house.md"
GENERATED = ["automap_version.h"]
SUFFIXES = {".h", ".cpp"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


class House:
    """What cmake/rooms.json below root says."""

    def __init__(self, root):
        said = json.loads((root / HOUSE).read_text(encoding="utf-8"))
        self.root = root
        self.rows = {room["folder"]: room for room in said["rooms"]}
        self.besides = said["besides"]
        self.free = [folder["folder"] for folder in self.besides if folder.get("includes") == "everything"]
        # Library -> how the names of its headers begin; "" when it has none of its own.
        self.libraries = {name: library["headers"] for name, library in said["libraries"].items()}

    def room_of(self, path):
        """The room of a repository path, None outside all rooms."""
        rooms = [room for room in self.rows if path.startswith(room + "/")]
        return max(rooms, key=len) if rooms else None

    def below(self, room):
        """What a room includes, and what that includes, and so on."""
        found = set()
        for other in self.rows[room]["includes"]:
            found |= {other} | self.below(other)
        return found

    def picture(self):
        """Lines "room -> rooms": of what it includes, what does not come with another of them."""
        lines = []
        for room, row in self.rows.items():
            through_others = set().union(*map(self.below, row["includes"]))
            direct = [other for other in row["includes"] if other not in through_others]
            lines.append(f"{room:{max(map(len, self.rows))}} -> {', '.join(direct)}" if direct else room)
        return ["```text", *lines, "```"]

    def table(self):
        """Rows of folders, their targets and what lives in them."""
        lines = ["| room | target | what lives there |", "|---|---|---|"]
        for folder, row in self.rows.items():
            targets = []
            if "module" in row:
                targets.append(f"`lib{row['module']}.so`")
            elif row.get("installed", True):
                targets.append(f"`automap::{row['target']}`")
            if (self.root / folder / "main.cpp").is_file():
                targets.append(f"`{row.get('program', 'automap-' + row['target'])}`")
            lines.append(f"| `{folder}` | {', '.join(targets)} | {row['about']} |")
        return lines + [f"| `{row['folder']}` | {row['target']} | {row['about']} |" for row in self.besides]

    def page(self):
        """docs/house.md as it should be."""
        text = (self.root / PAGE).read_text(encoding="utf-8")
        text = replace(text, "check_layers", "picture", self.picture())
        return replace(text, "check_layers", "rooms", self.table())


def check_house(house):
    """What is wrong with the declaration itself, as lines."""
    problems, before = [], []
    for room, row in house.rows.items():
        for other in row["includes"]:
            if other not in house.rows:
                problems.append(f"{HOUSE}: {room} includes {other}, which is no room")
            elif other not in before:
                problems.append(f"{HOUSE}: {room} stands before {other}, which it includes; put it behind")
        before.append(room)
        for library in row.get("libraries", []):
            if library not in house.libraries:
                problems.append(f"{HOUSE}: {room} has the library {library}, which is not among its \"libraries\"")
    return problems


def check(root):
    """Problems found below root, as lines."""
    house = House(root)
    problems = check_house(house)
    if problems:
        return problems
    files = []
    for top in sorted({room.split("/")[0] for room in house.rows} | set(house.free)):
        files += sorted(p for p in (root / top).rglob("*") if p.suffix in SUFFIXES)
    used = {room: set() for room in house.rows}  # rooms and libraries
    for file in files:
        path = file.relative_to(root).as_posix()
        room = house.room_of(path)
        if room is None and path.split("/")[0] not in house.free:
            problems.append(f"{path}: stands in no room (rooms: {', '.join(house.rows)})")
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            quote, included = match.groups()
            where = f"{path}:{number}"
            for library, headers in house.libraries.items():
                if not room or not headers or not included.startswith(headers):
                    continue
                used[room].add(library)
                allowed = [other for other, row in house.rows.items() if library in row.get("libraries", [])]
                if room not in allowed:
                    problems.append(f"{where}: {room} may not include <{included}> (only {', '.join(allowed) or 'nobody'}: {HOUSE})")
            if quote == "<":
                if house.room_of(included):
                    problems.append(f"{where}: write #include \"{included}\"")
                continue
            if included in GENERATED:
                continue
            target = house.room_of(included)
            if not (root / included).is_file():
                problems.append(f"{where}: \"{included}\" is no file of the repository; include by repository path")
            elif room and target != room:
                used[room].add(target)
                if target not in house.rows[room]["includes"]:
                    allowed = ", ".join(house.rows[room]["includes"]) or "nothing outside itself"
                    problems.append(f"{where}: {room} may not include \"{included}\" (it may include {allowed}: {HOUSE})")
    for room, row in house.rows.items():
        named = row["includes"] + [library for library in row.get("libraries", []) if house.libraries[library]]
        problems += [f"{HOUSE}: {room} includes nothing of {other}; take it from the list" for other in named if other not in used[room]]
    if not problems and (root / PAGE).read_text(encoding="utf-8") != house.page():
        problems.append(f"{PAGE}: its picture or table is not what {HOUSE} says; run scripts/check_layers.py --docs")
    return problems


def self_test():
    def row(folder, includes, *libraries, **more):
        return {"folder": folder, "target": folder.split("/")[-1], "libraries": libraries, "includes": includes, "about": f"of {folder}", **more}

    rows = [row("base", []), row("base/hlo", ["base"]), row("deep/io", ["base"], "HDF5", installed=False),
            row("plan", ["base", "base/hlo", "deep/io"], module="plug")]
    house = {"libraries": {"HDF5": {"headers": "hdf5"}, "torch": {"headers": "torch/"}, "threads": {"headers": ""}}, "rooms": rows,
             "besides": [{"folder": "tests", "target": "`test-<room>`", "includes": "everything", "about": "tests"}]}
    page = ("# House\n<!-- picture: scripts/check_layers.py -->\nold\n<!-- end of picture -->\n"
            "text\n<!-- rooms: scripts/check_layers.py -->\n<!-- end of rooms -->\n")
    files = {
        "base/error.h": "#include <string>\n",
        "base/hlo/text.h": '#include "base/error.h"\n',
        "deep/io/file.h": '#include <hdf5.h>\n#include "base/error.h"\n',
        "plan/main.cpp": '#include "deep/io/file.h"\n#include "base/error.h"\n#include "base/hlo/text.h"\n',
        "plan/planner.h": "",
        "tests/x_test.cpp": '#include "plan/planner.h"\n#include "base/error.h"\n#include <hdf5.h>\n',
        PAGE: page,
        HOUSE: json.dumps(house),
    }
    wrong = {
        "base/cli.h": ('#include "deep/io/file.h"', "base may not include"),
        "base/x.cpp": ('  #  include "base/hlo/text.h"', "base may not include"),
        "base/hlo/x.cpp": ("#include <hdf5.h>", "base/hlo may not include <hdf5.h>"),
        "deep/io/x.cpp": ('#include "plan/planner.h"', "deep/io may not include"),
        "plan/y.cpp": ('#include "planner.h"', "no file of the repository"),
        "plan/z.cpp": ("#include <torch/nn.h>", "torch"),
        "deep/x.cpp": ("", "stands in no room"),
        "tests/y_test.cpp": ("#include <base/error.h>", "write #include"),
    }
    wrong_houses = {
        "deep/io includes nothing of base/hlo": [rows[0], rows[1], row("deep/io", ["base", "base/hlo"], "HDF5"), rows[3]],
        "deep/io includes nothing of torch": [rows[0], rows[1], row("deep/io", ["base"], "HDF5", "torch"), rows[3]],
        "deep/io has the library boost": [rows[0], rows[1], row("deep/io", ["base"], "HDF5", "boost"), rows[3]],
        "base/hlo stands before base, which": [rows[1], rows[0], rows[2], rows[3]],
        "base includes nowhere, which is no room": [row("base", ["nowhere"]), *rows[1:]],
        "picture or table": [*rows[:3], {**rows[3], "about": "else"}],
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
        assert len(check(root)) == 1 and "picture or table" in check(root)[0], check(root)
        write(root, PAGE, House(root).page())
        assert check(root) == [], check(root)
        text = (root / PAGE).read_text()
        for line in ("base\n", "base/hlo -> base\n", "plan     -> base/hlo, deep/io\n", "| `base` | `automap::base` | of base |\n",
                     "| `deep/io` |  | of deep/io |\n", "| `plan` | `libplug.so`, `automap-plan` | of plan |\n", "| `tests` | `test-<room>` | tests |\n"):
            assert line in text, (line, text)
        for name, (text, expected) in wrong.items():
            path = write(root, name, text)
            problems = check(root)
            assert len(problems) == 1 and expected in problems[0] and name in problems[0], (name, problems)
            path.unlink()
        for expected, changed in wrong_houses.items():
            write(root, HOUSE, json.dumps({**house, "rooms": changed}))
            problems = check(root)
            assert problems and expected in problems[0], (expected, problems)
    print("check_layers: self-test passed")


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    root = pathlib.Path(__file__).resolve().parent.parent
    if sys.argv[1:] == ["--docs"]:
        (root / PAGE).write_text(House(root).page(), encoding="utf-8")
        return 0
    problems = check(root)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
