"""A folder that `automap emit PLAN --model MODULE --to hlo -o DIR` wrote: its manifest, read and checked.

Nothing here needs JAX.
"""

import json
import os

from automap.errors import Error

SCHEMA = "automap.programs/2"


class ProgramsError(Error):
    """Says what is wrong with the folder, or with what it is asked for, and what to do."""


class Program:
    """One program of a group: what it reads and makes, by the names of the manifest's values."""

    def __init__(self, record):
        self.name, self.kind, self.group = record["name"], record["kind"], record["group"]
        self.file, self.reads, self.makes = record["file"], record["reads"], record["makes"]
        self.place = record["phase"] if self.kind == "update" else record["part"]


class GroupLayout:
    """The devices of a group, replicas x width, and how they hold what its programs read and make."""

    def __init__(self, record):
        self.replicas, self.width, self.zero = record["replicas"], record["width"], record["zero"]
        self.splits, self.not_divided = record["splits"], record["not_divided"]

    @property
    def devices(self):
        return self.replicas * self.width

    def split(self, name):
        """By axis ("replicas", "width") the dimension that is in parts over it."""
        return self.splits.get(name, {})

    def check(self, shapes):
        """`shapes`: "f32[2,3]" of every input and value by its name."""
        if not (1 <= self.replicas and 1 <= self.width and self.zero in range(4) and isinstance(self.not_divided, list)):
            raise ValueError(f"a group of {self.replicas} x {self.width} devices with ZeRO {self.zero}")
        unknown = [name for name in (*self.splits, *self.not_divided) if name not in shapes]
        if unknown:
            raise ValueError(f"a group holds {unknown[0]}, which is no input or value")
        for name, split in self.splits.items():
            dims = [int(extent) for extent in shapes[name].partition("[")[2].rstrip("]").split(",") if extent]
            parts = {dim: 1 for dim in split.values()}
            for axis, dim in split.items():
                if axis not in ("replicas", "width") or type(dim) is not int or dim not in range(len(dims)):
                    raise ValueError(f"{split} of {name}, which is {shapes[name]}")
                parts[dim] *= self.replicas if axis == "replicas" else self.width
            if any(dims[dim] % count for dim, count in parts.items()):
                raise ValueError(f"{split} of {name}, which is {shapes[name]}, on {self.replicas} x {self.width} devices")


ONE_DEVICE = {"replicas": 1, "width": 1, "zero": 0, "splits": {}, "not_divided": []}


class Section:
    """The step cut one way: as the plan has it, or whole."""

    def __init__(self, record, order, layouts, micro_batches):
        self.groups, self.phases, self.order = record["groups"], record["phases"], order
        self.layouts = [GroupLayout(one) for one in layouts]
        self.micro_batches = micro_batches
        self.programs = [Program(one) for one in record["programs"]]
        self.values, self.results, self.holders = record["values"], record["results"], record["holders"]
        self.by_part = {(p.kind, p.place): p for p in self.programs if p.kind != "update"}
        self.updates = sorted((p for p in self.programs if p.kind == "update"), key=lambda p: (p.place, p.group))
        self.readers = {}
        for program in self.programs:
            for name in program.reads:
                self.readers.setdefault(name, []).append(program)

    def check(self, shapes):
        """Raises ValueError where its lists do not fit each other. `shapes` of the inputs, by their names."""
        if self.micro_batches < 1:
            raise ValueError(f"micro_batches is {self.micro_batches}")
        if self.groups < 1 or len(self.order) != self.groups:
            raise ValueError(f"{len(self.order)} lists of work for {self.groups} groups")
        wrong = [program.name for program in self.programs if program.group not in range(self.groups)]
        if wrong:
            raise ValueError(f"{wrong[0]} runs on a group that there is not")
        for order in self.order:
            for kind, part, micro_batch in order:
                if kind not in ("F", "B", "W") or part < 0 or micro_batch not in range(self.micro_batches):
                    raise ValueError(f"{[kind, part, micro_batch]} in a list of work")
        if not all(isinstance(told, dict) for told in (self.values, self.holders, *self.results)):
            raise TypeError("values, holders or results")
        for layout in self.layouts:
            layout.check({**shapes, **{name: told["shape"] for name, told in self.values.items()}})

    @property
    def devices(self):
        return sum(layout.devices for layout in self.layouts)

    def on_one_device_each(self):
        """Every group on one device, whatever the plan has: the programs hold whole arrays, so the numbers are the same."""
        self.layouts = [GroupLayout(ONE_DEVICE) for _ in self.layouts]

    def program_of(self, item):
        """The program that an element of a group's order runs. None: nothing; the backward makes the gradients of the weights."""
        kind, part, _ = item
        return self.by_part.get(({"F": "forward", "B": "backward"}.get(kind), part))

    def is_value(self, name):
        return name in self.values

    def waited_for(self, program, micro_batch):
        """(value, micro-batch) of all that a program reads: an update reads what was summed over all micro-batches."""
        return [(name, m) for name in program.reads if self.is_value(name)
                for m in (range(self.micro_batches) if program.kind == "update" and self.combined(name) == "mean" else [micro_batch])]

    def combined(self, name):
        """The way in which micro-batches' values become one: "mean", "each", "none", or None where nobody reads them together."""
        told = self.values[name].get("accumulated")
        for result in self.results:
            if result.get("value") == name and "combine" in result:
                told = result["combine"] if told is None else told
        return told


class Manifest:
    def __init__(self, folder):
        self.folder = folder
        path = os.path.join(folder, "manifest.json")
        try:
            with open(path, encoding="utf-8") as file:
                record = json.load(file)
        except OSError as error:
            raise ProgramsError(f"{path}: {error.strerror}; give the folder that automap emit --to hlo wrote") from None
        except (ValueError, RecursionError) as error:
            raise ProgramsError(f"{path}: it is no JSON that can be read ({error}); write the folder again") from None
        schema = record.get("schema") if isinstance(record, dict) else None
        if schema != SCHEMA:
            raise ProgramsError(f"{path}: its schema is {schema!r}, expected {SCHEMA!r}; write the folder again with this version")
        try:
            self.model, self.schedule = record["model"], record["schedule"]
            self.micro_batches, self.samples = record["micro_batches"], record["samples"]
            self.inputs, self.groups, self.loss_result = record["inputs"], record["groups"], record["loss_result"]
            self.group_of_part, self.module = record["group_of_part"], record["module"]
            self.model_sha256 = record.get("model_sha256")
            self.recomputes = [bool(group.get("recompute")) for group in self.groups]
            # Forward positions, and behind which of them a part ends, from 1. None: a folder from before they were written.
            self.positions, self.cuts = record.get("positions"), record.get("cuts")
            self.plan = Section(record["plan"], [group["order"] for group in self.groups], self.groups, self.micro_batches)
            self.whole = Section(record["whole"], [[["B", 0, m] for m in range(self.micro_batches)]], [ONE_DEVICE],
                                 self.micro_batches)
            for section in (self.plan, self.whole):
                section.check({self.input_name(one): one["shape"] for one in self.inputs})
        except KeyError as error:
            raise ProgramsError(f"{path}: {error} is missing; write the folder again") from None
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            raise ProgramsError(f"{path}: something in it is not what it should be ({error}); write the folder again") from None

    def text(self, name):
        path = os.path.join(self.folder, name)
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except OSError as error:
            raise ProgramsError(f"{path}: {error.strerror}; the folder is not complete, write it again") from None

    def input_name(self, one):
        return "p" + str(one["parameter"])

    def result_name(self, number):
        for one in self.inputs:
            if one.get("result") == number:
                return one["name"]
        return "the loss" if number == self.loss_result else f"result {number}"


def walk(section, run, send):
    """Runs the step's forwards and backwards, every group in its own order, an element as soon as what it reads is there.

    run(program, micro_batch) executes; send(program, name, micro_batch, group) hands a value to another group. Raises
    ProgramsError where the lists wait for each other.
    """
    there, at = set(), [0] * section.groups
    todo = sum(len(order) for order in section.order)
    while todo:
        moved = False
        for group, order in enumerate(section.order):
            while at[group] < len(order):
                program, m = section.program_of(order[at[group]]), order[at[group]][2]
                if program is not None:
                    waits = [name for name in program.reads if section.is_value(name) and (group, name, m) not in there]
                    if waits:
                        break
                    run(program, m)
                    for name in program.makes:
                        there.add((group, name, m))
                        for other in sorted({reader.group for reader in section.readers.get(name, []) if reader.kind != "update"} - {group}):
                            send(program, name, m, other)
                            there.add((other, name, m))
                at[group] += 1
                todo -= 1
                moved = True
        if not moved:
            stuck = [f"group {g + 1} at {order[at[g]]}" for g, order in enumerate(section.order) if at[g] < len(order)]
            raise ProgramsError("the groups wait for each other: " + ", ".join(stuck))
