"""Times of the programs of a folder, each alone on one device: what `automap-profile MODEL --measured DIR` scales a profile by.

The micro-batch is whole on that device, whatever the plan has, since that is what a profile's times are of.
"""

import os
import statistics
import time

from automap.programs import ProgramsError
from automap.trace import write_whole

SCHEMA = "automap.program-times/1"
FILE = "measured.json"
# Of every program: runs that are not counted, then at least and at most so many that are, the most only within these seconds.
WARM_UP, LEAST, MOST, ENOUGH_S = 2, 5, 100, 0.5


def check(manifest):
    """Raises ProgramsError before anything is run for a folder that does not say which positions its parts are."""
    ends = manifest.cuts + [manifest.positions] if isinstance(manifest.cuts, list) else []
    if len(ends) != len(manifest.group_of_part) or not all(type(end) is int for end in ends) or [0, *ends] != sorted({0, *ends}):
        raise ProgramsError(f"{manifest.folder}: its manifest does not say which positions its parts have; write the folder again with "
                            "this version")


class Stopwatch:
    """Given to Execution.step as `call`: times every program the first time that it is run."""

    def __init__(self):
        self.times = {}  # by the program's name, seconds

    def __call__(self, program, compiled, arrays):
        if program.name in self.times:
            return compiled(arrays)
        for array in arrays:
            array.block_until_ready()
        took = []
        while len(took) < WARM_UP + LEAST or (len(took) < WARM_UP + MOST and sum(took) < ENOUGH_S):
            begun = time.perf_counter()
            made = compiled(arrays)
            for array in made:
                array.block_until_ready()
            took.append(time.perf_counter() - begun)
        self.times[program.name] = took[WARM_UP:]
        return made


def record_of(manifest, device, times):
    """`times`: of every program by its name, seconds, of which the median counts."""
    ends = [*manifest.cuts, manifest.positions]
    programs = []
    for program in manifest.plan.programs:
        one = {"name": program.name, "kind": program.kind, "ms": 1e3 * statistics.median(times[program.name]),
               "runs": len(times[program.name])}
        if program.kind != "update":
            one["positions"] = [ends[program.place - 1] + 1 if program.place else 1, ends[program.place]]
            one["recomputes"] = program.kind == "backward" and manifest.recomputes[program.group]
        programs.append(one)
    return {"schema": SCHEMA, "model": manifest.model, "model_sha256": manifest.model_sha256, "device": device,
            "samples": manifest.samples, "positions": manifest.positions, "programs": programs}


def write(manifest, device, times):
    """Into the folder. Its path, and the milliseconds of a micro-batch by kind."""
    record = record_of(manifest, device, times)
    path = os.path.join(manifest.folder, FILE)
    write_whole(path, record, "--measure")
    kinds = {}
    for one in record["programs"]:
        kinds[one["kind"]] = kinds.get(one["kind"], 0) + one["ms"]
    return path, kinds
