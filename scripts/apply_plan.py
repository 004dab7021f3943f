#!/usr/bin/env python3
"""Runs a JAX step under an operator, data or mesh plan on host devices, and compares with the step on one device.

Installed it is `automap-apply-plan` (`automap apply-plan`), in a checkout `scripts/apply_plan.py`. It runs with the python3
of the PATH; where that has no jax, give the script to one that has: `~/venv/bin/python3 $(which automap-apply-plan) ...`.

Examples:
  automap-apply-plan --plan plan.json --step train.py:make_step
  automap-apply-plan --plan plan.json --step mypackage.train:make_step --specs specs.py --json

make_step() returns (step, arguments): a function, jitted or not, and the tuple of its arguments. Leaves may be arrays or
jax.ShapeDtypeStruct, which are filled: floating-point numbers from a normal distribution (its absolute values for
optimizer state), integers from 0 to 7, scalars 0. The plan is `automap-search ... -o plan.json`, or any file with "schema", "kind",
"shards" and "partition", or of two axes with "schema", "kind", "mesh" and "axes" (docs/formats/plan.md). With --specs the shardings come from the file that --emit-jax wrote.

Printed: the collectives of the compiled step by kind with what the plan expects beside them, and the largest difference
of any result. Entries that rounding alone decides are left out: updates whose moments differ by as little as is allowed, and
what moves as much when the step runs on one device again with inputs changed in their last digits. NaN equals nothing.

Exit code 0: all results are equal within --rtol or --atol; 1: they are not, or XLA compiled none of the collectives that the
plan expects, or no sums (with --strict: or any kind that the plan does not expect, or none of one that it does); 2: wrong
usage; 3: the plan, or the specs file, does not fit the step.
"""

import argparse
import difflib
import importlib
import importlib.util
import inspect
import json
import os
import re
import sys
import unicodedata
from pathlib import Path

PROGRAM = Path(sys.argv[0]).name  # automap-apply-plan where AutoMap is installed
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute",
               "collective-broadcast", "ragged-all-to-all")
BITS = {"pred": 8, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16, "f16": 16, "bf16": 16, "s32": 32, "u32": 32,
        "f32": 32, "s64": 64, "u64": 64, "f64": 64, "c64": 64, "c128": 128}


def printable(text):
    """One line in which nothing acts on a terminal; the programs' rule is common/base/printable.h."""
    acts = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return "".join(c if unicodedata.category(c) not in acts else c.encode("unicode_escape").decode() for c in str(text))


class DoesNotFit(Exception):
    """The plan is not for this step, or cannot be read."""


def read_plan(path):
    try:
        plan = json.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DoesNotFit(f"{path}: {error}") from None
    if not isinstance(plan, dict) or not str(plan.get("schema", "")).startswith("automap.plan/"):
        raise DoesNotFit(f"{path}: no plan: expected a JSON object with \"schema\": \"automap.plan/1\"")
    if plan["schema"] != "automap.plan/1":
        raise DoesNotFit(f"{path}: schema: found {plan['schema']}, this version reads up to automap.plan/1")
    if plan.get("kind") == "mesh":
        return read_mesh(path, plan)
    if plan.get("kind") not in ("operator", "data"):
        raise DoesNotFit(f"{path}: kind: found {plan.get('kind')!r}, expected \"operator\", \"data\" or \"mesh\"")
    check_devices(path, "shards", plan.get("shards"))
    check_partition(path, plan)
    return plan


def check_devices(path, key, number):
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= 4096:
        raise DoesNotFit(f"{path}: {key}: found {number!r}, expected a whole number from 1 to 4096")


def check_partition(path, plan):
    partition = plan.get("partition")
    if not isinstance(partition, dict) or not all(isinstance(d, int) and d >= -1 for d in partition.values()):
        raise DoesNotFit(f"{path}: partition: expected an object of dimensions, -1: replicated")


# The axes of a mesh from the outermost, and the kind of their plans.
MESH_AXES = (("data", "data"), ("model", "operator"))


def read_mesh(path, plan):
    """`plan`, where each of its axes has become a plan with all keys that one needs."""
    mesh, axes = plan.get("mesh"), plan.get("axes")
    if not isinstance(mesh, dict) or not isinstance(axes, dict):
        raise DoesNotFit(f"{path}: {'axes' if isinstance(mesh, dict) else 'mesh'}: expected an object with data and model")
    devices, read = 1, {}
    for name, kind in MESH_AXES:
        check_devices(path, f"mesh: {name}", mesh.get(name))
        devices *= mesh[name]
        axis = axes.get(name, {})
        if not isinstance(axis, dict):
            raise DoesNotFit(f"{path}: axes: {name}: expected an object")
        axis = {"partition": {}, **axis}
        for key, expected in (("kind", kind), ("shards", mesh[name])):
            if axis.setdefault(key, expected) != expected:
                raise DoesNotFit(f"{path}: axes: {name}: {key}: found {axis[key]!r}, expected {expected!r}")
        check_partition(f"{path}: axes: {name}", axis)
        read[name] = axis
    check_devices(path, "mesh: data x model", devices)
    if plan.setdefault("shards", devices) != devices:
        raise DoesNotFit(f"{path}: shards: found {plan['shards']!r}, but the mesh has {mesh['data']} x {mesh['model']} devices")
    return {**plan, "axes": read}


def axes_of(plan):
    """(name in the device mesh, plan) of every axis, from the outermost."""
    return list(plan["axes"].items()) if plan.get("kind") == "mesh" else [("devices", plan)]


def load_object(text):
    """module.py:name or package.module:name -> the object."""
    module, _, name = text.rpartition(":")
    if not module:
        sys.exit(usage(f"--step {text}: expected FILE.py:FUNCTION or MODULE:FUNCTION"))
    if module.endswith(".py"):
        return getattr_or_exit(load_file(module), name, module)
    sys.path.insert(0, os.getcwd())
    try:
        return getattr_or_exit(importlib.import_module(module), name, module)
    except ModuleNotFoundError as error:
        if not module.startswith(error.name or ""):
            raise
        sys.exit(usage(f"--step {text}: {error}"))


def load_file(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or not Path(path).is_file():
        sys.exit(usage(f"{path}: no such Python file"))
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(Path(path).resolve().parent))
    spec.loader.exec_module(module)
    return module


def getattr_or_exit(module, name, where):
    if not hasattr(module, name):
        sys.exit(usage(f"{where} has no {name}"))
    return getattr(module, name)


def usage(message):
    print(f"{PROGRAM}: {printable(message)}", file=sys.stderr)
    return 2


# --- names and shardings ---


def path_of(prefix, path):
    """["wte"]["embedding"] of params -> params/wte/embedding"""
    keys = [prefix]
    for entry in path:
        keys += [str(getattr(entry, field)) for field in ("key", "idx", "name") if hasattr(entry, field)][:1]
    return "/".join(keys)


def argument_names(step, arguments):
    try:
        parameters = list(inspect.signature(step).parameters.values())
    except (TypeError, ValueError):
        return [f"args[{k}]" for k in range(len(arguments))]
    names = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            # As a specs file of --emit-jax names them, in older ones, too; a plan's rest[0]['x'] is found as well.
            names += [f"{parameter.name}/{k}" for k in range(len(arguments) - len(names))]
        else:
            names.append(parameter.name)
    return names[:len(arguments)]


class Leaves:
    """The leaves of the step's arguments, with every name that a plan may use for them."""

    def __init__(self, jax, names, arguments):
        self.leaves, self.structures, self.names = [], [], []
        for name, argument in zip(names, arguments):
            leaves, structure = jax.tree_util.tree_flatten_with_path(argument)
            self.structures.append(structure)
            for path, leaf in leaves:
                exact = re.sub(r"/(\d+)$", r"[\1]", name) + jax.tree_util.keystr(path)
                readable = path_of(name, path)
                # JAX's own name of the parameter, when the module has no metadata.
                mangled = re.sub(r"[^A-Za-z0-9]", "_", exact)
                self.names.append((exact, readable, mangled))
                self.leaves.append(leaf)
        self.place = {}
        for number, names_of in enumerate(self.names):
            for name in names_of:
                self.place.setdefault(name, number)

    def find(self, name):
        for form in (name, re.sub(r"\.\d+$", "", name)):
            if form in self.place:
                return self.place[form]
        tails = [k for k, names_of in enumerate(self.names) if ("/" + names_of[1]).endswith("/" + name)]
        if len(tails) == 1:
            return tails[0]
        near = difflib.get_close_matches(name, [names_of[0] for names_of in self.names], 1)
        raise DoesNotFit(f"the plan's tensor {name} is no argument of the step"
                         + (f"; did you mean {near[0]}?" if near else ""))

    def trees(self, jax, values):
        """One value per leaf -> a tuple of trees."""
        out, at = [], 0
        for structure in self.structures:
            out.append(jax.tree_util.tree_unflatten(structure, values[at:at + structure.num_leaves]))
            at += structure.num_leaves
        return tuple(out)


def shape_text(text):
    """f32[2,3] -> (2, 3)"""
    match = re.match(r"\w+\[([\d,]*)\]", text or "")
    return tuple(int(d) for d in match.group(1).split(",") if d) if match else None


def dims_of_leaves(plan, leaves):
    """Per leaf: the dimension it is split along, -1: replicated, None: the plan does not say."""
    dims, roles = [None] * len(leaves.leaves), [None] * len(leaves.leaves)
    listed = plan.get("inputs") or [{"name": name, "dim": dim} for name, dim in plan["partition"].items()]
    for entry in listed:
        number = leaves.find(entry["name"])
        shape, expected = tuple(leaves.leaves[number].shape), shape_text(entry.get("shape"))
        if expected is not None and shape != expected:
            raise DoesNotFit(f"{leaves.names[number][0]} has shape {shape}, the plan's has {expected}")
        dim = entry["dim"]
        if dim >= len(shape):
            raise DoesNotFit(f"{leaves.names[number][0]} has shape {shape}, which has no dimension {dim}")
        if dim >= 0 and shape[dim] % plan["shards"]:
            raise DoesNotFit(f"{plan['shards']} shards do not divide dimension {dim} of {leaves.names[number][0]}, "
                             f"{shape}")
        if dims[number] not in (None, dim):
            raise DoesNotFit(f"{leaves.names[number][0]} stands in the plan twice, with dimensions {dims[number]} and "
                             f"{dim}")
        dims[number], roles[number] = dim, entry.get("role")
    return dims, roles


def dims_of_axes(plan, leaves):
    """Per leaf: a dimension per axis, as above, or None where no axis says anything; and the roles."""
    of_axis = [dims_of_leaves(axis, leaves) for _, axis in axes_of(plan)]
    dims, roles = [], []
    for number, leaf in enumerate(leaves.leaves):
        own = [axis_dims[number] for axis_dims, _ in of_axis]
        # What one axis speaks of and another does not is whole on the other.
        dims.append(None if all(dim is None for dim in own) else tuple(-1 if dim is None else dim for dim in own))
        roles.append(next((axis_roles[number] for _, axis_roles in of_axis if axis_roles[number]), None))
        for dim in set(own) - {None, -1}:
            parts = [axis["shards"] for (_, axis), other in zip(axes_of(plan), own) if other == dim]
            together = 1
            for count in parts:
                together *= count
            if leaf.shape[dim] % together:
                raise DoesNotFit(f"dimension {dim} of {leaves.names[number][0]}, {tuple(leaf.shape)}, is split by both axes, "
                                 f"into {' x '.join(map(str, parts))} parts, which do not divide {leaf.shape[dim]}")
    return dims, roles


# Of a leaf whose role the plan does not say: opt_state[0].nu['w'], state['batch_stats'].
STATE_NAME = re.compile(r"(?i)opt|state|stats|moment|slot|\b(mu|nu)\b")


# How numbers are made up, the next where the step comes to NaN with the one before (a root or a logarithm of what it
# takes to be positive).
FILLINGS = ("around zero", "positive", "around one")


def fill(jax, np, leaves, roles, seed, filling=FILLINGS[0]):
    """Arrays for the leaves that are only shapes."""
    rng = np.random.default_rng(seed)
    out = []
    for leaf, role, names in zip(leaves.leaves, roles, leaves.names):
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            out.append(leaf)
        elif jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            out.append(jax.random.split(jax.random.key(seed), leaf.shape) if leaf.shape else jax.random.key(seed))
        elif jax.dtypes.issubdtype(leaf.dtype, np.bool_):
            out.append(np.ones(leaf.shape, leaf.dtype))
        elif jax.dtypes.issubdtype(leaf.dtype, np.integer):
            values = rng.integers(0, 8, leaf.shape) if leaf.shape else 0
            out.append(np.asarray(values).astype(leaf.dtype))
        else:
            values = rng.standard_normal(leaf.shape) * 0.05
            # Moments and statistics are above zero: a gradient divided by its own size alone would be all rounding.
            if filling != FILLINGS[0] or role in ("slot", "state") or role is None and STATE_NAME.search(names[0]):
                values = abs(values)
            if filling == FILLINGS[2]:
                values = values + 1
            out.append(np.asarray(values).astype(leaf.dtype))
    return out


# --- what XLA made of it ---


def collectives_of(text):
    """kind -> (instructions, bytes of their results in a step) of a compiled module's text.

    An instruction in a loop moves its bytes in every turn; a loop whose turns XLA does not know counts one.
    """
    found = {}

    def count(computation, times):
        for kind, result, line in computations.get(computation, ()):
            for called in re.findall(r"\b(?:to_apply|calls|body|true_computation|false_computation)=%?([\w.\-]+)", line):
                turns = re.search(r'known_trip_count":\s*{"n":"(\d+)"', line) if kind == "while" else None
                count(called, times * int(turns.group(1)) if turns else times)
            for called in re.findall(r"[\w.\-]+", "".join(re.findall(r"\bbranch_computations={([^}]*)}", line))):
                count(called, times)
            kind = re.sub("-start$", "", kind)
            if kind in COLLECTIVES:
                number, total = found.get(kind, (0, 0))
                found[kind] = (number + 1, total + times * bytes_of(result))

    computations, entry, current = {}, None, []
    for line in text.splitlines():
        begins = re.match(r"(ENTRY )?%?([\w.\-]+) .*{$", line)
        if begins and not line.startswith("HloModule"):
            current = computations.setdefault(begins.group(2), [])
            entry = begins.group(2) if begins.group(1) else entry
        match = re.match(r"\s*(?:ROOT )?%?[\w.\-]+ = (.*?) ([a-z\-]+)\(", line)
        if match:
            current.append((match.group(2), match.group(1), line))
    count(entry, 1)
    return found


def bytes_of(shapes):
    """Of all arrays in an HLO shape, "(f32[8,64], s32[])"."""
    size = 0
    for element, dims in re.findall(r"\b(pred|bf16|[sufc]\d+)\[([\d,]*)\]", shapes):
        count = 1
        for extent in filter(None, dims.split(",")):
            count *= int(extent)
        size += (count * BITS.get(element, 32) + 7) // 8
    return size


def expected_of_axis(plan):
    """all-reduces: node -> bytes of the partial sum, or None where the plan lists none; and kind -> (instructions, bytes)."""
    listed = plan.get("collectives") or []
    sums = {source["node"]: source["bytes"] * collective.get("times", 1) for collective in listed
            if collective["kind"] == "all-reduce" for source in collective.get("sources") or []}
    expected = {}
    if sums:
        expected["all-reduce"] = (len(sums), sum(sums.values()))
    elif plan.get("partial_sums") or plan.get("all_reduces"):
        expected["all-reduce"] = (plan.get("partial_sums") or plan["all_reduces"], None)
    # An all-to-all leaves its part of the tensor on every device.
    for kind, key, parts in (("all-gather", "all_gather", 1), ("all-to-all", "all_to_all", plan.get("shards") or 1),
                             ("collective-permute", "permute", 1)):
        moved = [collective["bytes"] * collective.get("times", 1) / parts for collective in listed if collective["kind"] == kind]
        if moved:
            expected[kind] = (len(moved), sum(moved))
        elif plan.get(key + "s"):
            size = plan.get(key + "_bytes")
            expected[kind] = (plan[key + "s"], None if size is None else size / parts)
    return sums, expected


def expected_of(plan, found=None):
    """kind -> (instructions, bytes): all-reduces as XLA inserts them, one per partial sum; what is in a loop is
    one instruction that moves its bytes in every turn.

    Of a mesh those of both axes. Over which axes an instruction's result is a partial sum XLA may reduce at once: where
    `found`, what was compiled, has fewer all-reduces, what is summed over both axes counts once.
    """
    expected, seen, both = {}, set(), []
    for _, axis in axes_of(plan):
        sums, more = expected_of_axis(axis)
        both += [size for node, size in sums.items() if node in seen and node >= 0]
        seen |= set(sums)
        for kind, (count, size) in more.items():
            had, total = expected.get(kind, (0, 0))
            expected[kind] = (had + count, None if size is None or total is None else total + size)
    count, size = expected.get("all-reduce", (0, None))
    compiled = (found or {}).get("all-reduce", (count, 0))[0]
    once = both[:max(0, count - compiled)]
    if once:
        expected["all-reduce"] = (count - len(once), None if size is None else size - sum(once))
    return expected


def missing_of(found, expected):
    """Kinds that the plan expects and of which nothing was compiled. A reduce-scatter stands for all-reduces, and an
    all-reduce of which every device keeps a part for reduce-scatters."""
    stands = {"all-reduce": ("all-reduce", "reduce-scatter"), "reduce-scatter": ("reduce-scatter", "all-reduce")}
    return sorted(kind for kind, (count, _) in expected.items()
                  if count > 0 and not any(other in found for other in stands.get(kind, (kind,))))


def not_applied(missing, found, expected):
    """Whether the step cannot have run as planned: nothing of all that the plan expects, or no sums where it has some."""
    return bool(missing) and ("all-reduce" in missing or not set(found) & set(expected))


# Entries of a result may differ between one device and many because rounding decides them: Adam divides a gradient by
# its own size, so one that is zero but for rounding (of a bias in front of a normalisation, of the keys' bias of an
# attention) becomes a full update of random sign. Such entries change as much when all that happens is another rounding,
# so the step on one device runs again, every number of its inputs multiplied by 1 + u * kick, u uniform in [-1, 1]. The
# first time kick is 0: what changes then is random by itself, and excuses nothing.
MOST_RERUNS = 40
RERUNS_WITHOUT_PROGRESS = 10  # an entry of random sign is found with probability 1/2 each time
RERUN_FACTOR = 2              # an entry that moves by half of its difference is decided by rounding
KICK_SHARE = 1 / 64           # of --rtol; what is computed soundly moves by far less than is allowed
# Before that, an update is judged by its own sensitivity: moments are compared as tightly as everything else, and the
# update may differ by as much as the differences of its moments, entry by entry, explain, twice.
UPDATE_FACTOR = 2
# Results that are stored in few digits differ by the last of them where the numbers before storing differ by next to nothing.
LAST_DIGIT = {"bfloat16": 2.0**-7, "float16": 2.0**-10}


class Comparison:
    """A result on one device (alone) and on many (sharded): arrays of the host."""

    def __init__(self, np, name, alone, sharded, rtol, atol):
        self.stored = np.asarray(alone).dtype.name
        self.last_digit = LAST_DIGIT.get(self.stored, 0.0)
        self.np, self.name, self.rtol, self.atol = np, name, max(rtol, self.last_digit), atol
        kind = np.complex128 if np.iscomplexobj(alone) else np.float64
        self.alone, self.sharded = np.asarray(alone).astype(kind), np.asarray(sharded).astype(kind)
        self.largest = float(np.max(np.abs(self.alone[np.isfinite(self.alone)]), initial=0.0))
        self.apart = self.distance(self.sharded)
        # A gradient that is zero but for rounding has no meaningful relative difference: --atol.
        self.differ = self.apart > max(self.rtol * self.largest, atol)
        self.rounding = np.zeros(self.alone.shape, bool)
        self.random = np.zeros(self.alone.shape, bool)

    def distance(self, other):
        """Of each entry from the one computed alone. NaN is infinitely far from everything, itself included."""
        np = self.np
        if other.shape != self.alone.shape:
            return np.full(self.alone.shape, np.inf)
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.where(other == self.alone, 0.0, np.abs(other - self.alone))
        return np.where(np.isnan(apart), np.inf, apart)

    def open(self):
        """Entries that differ and are not known to be decided by rounding."""
        return self.differ & ~self.rounding

    def excuse_update(self, before, slots):
        """Of an updated variable, with its value before and the Comparisons of its slots: entries that differ by no more
        than the update would when its slots change as much as they did. Adam's m / sqrt(v) changes by |u| (dm / m + dv / v).
        Where slots are stored in few digits, the update may have been made of what they were before."""
        np = self.np
        update = np.maximum(np.abs(self.alone - before), np.abs(self.sharded - before))
        with np.errstate(divide="ignore", invalid="ignore"):
            change = sum(np.where(slot.apart == 0, 0.0, slot.apart / np.minimum(np.abs(slot.alone), np.abs(slot.sharded)))
                         + slot.last_digit for slot in slots)
            allowed = UPDATE_FACTOR * update * np.minimum(change, 2.0)
        sound = np.isfinite(self.apart) & np.logical_and.reduce([~slot.differ for slot in slots])
        self.rounding |= self.differ & sound & (self.apart <= allowed)

    def rerun(self, result, kicked):
        """Takes the same result of another run on one device."""
        moved = self.distance(self.np.asarray(result).astype(self.alone.dtype))
        if kicked:
            sound = self.np.isfinite(self.apart) & self.np.isfinite(moved) & ~self.random
            self.rounding |= self.differ & sound & (RERUN_FACTOR * moved >= self.apart)
        else:
            self.random |= moved > 0

    def worst(self):
        """The largest difference over the largest entry, of what rounding does not decide; None: infinite."""
        apart = float(self.np.max(self.apart[~self.rounding], initial=0.0))
        relative = apart / self.largest if self.largest > 0 else apart
        if relative > self.rtol and apart <= self.atol:
            return 0.0
        return relative if relative != float("inf") else None

    def why(self):
        np = self.np
        if self.alone.shape != self.sharded.shape:
            return f"shape {self.sharded.shape}, on one device {self.alone.shape}"
        if alone := int(np.isnan(self.alone).sum()):
            return f"{alone} NaN on one device already: the step cannot compute with any of the values made up for it: give some in make_step()"
        if sharded := int(np.isnan(self.sharded).sum()):
            return f"{sharded} NaN, none on one device"
        if np.isinf(self.apart).any():
            return "infinite on one side only"
        if (self.random & self.open()).any():
            return "not the same in two runs on one device either"
        return f"by up to {self.worst():.2g} of the largest entry"


def differing_of(comparisons):
    return [c for c in comparisons if c.open().any()]


def told(comparisons):
    """What a report says of compared results."""
    worst = [c.worst() for c in comparisons]
    return {
        "results": len(comparisons),
        "worst_relative_difference": None if None in worst else max(worst, default=0.0),
        "differing_results": [{"result": c.name, "entries": int(c.open().sum()), "of": int(c.alone.size),
                               "worst_relative_difference": c.worst(), "why": c.why()} for c in differing_of(comparisons)],
        "decided_by_rounding": [{"result": c.name, "entries": int(c.rounding.sum()), "of": int(c.alone.size)}
                                for c in comparisons if c.rounding.any()],
    }


def find_rounding(comparisons, run_again):
    """run_again(kicked): the results of the step on one device once more. As often as it is of use."""
    def left():
        return sum(int((c.open() & c.np.isfinite(c.apart)).sum()) for c in comparisons)

    before, idle = left(), 0
    for number in range(MOST_RERUNS):
        if not before or idle > RERUNS_WITHOUT_PROGRESS:
            return
        for comparison, result in zip(comparisons, run_again(number > 0)):
            comparison.rerun(result, number > 0)
        now = left()
        idle = 0 if now < before else idle + 1
        before = now


def judge_updates(comparisons, owners, leaves, roles, values):
    """excuse_update() of every result that is the new value of a variable. `owners`: per result, the name of the input
    whose new value it is, or None; then result and input are those whose paths end alike."""
    is_slot = [role == "slot" if role else STATE_NAME.search(names[0]) is not None for role, names in zip(roles, leaves.names)]
    number_of = [leaves.find(owner) if owner else None for owner in owners]
    for k, comparison in enumerate(comparisons):
        if number_of[k] is None:  # result[0]['w'] of params['w']; the loss has no path of its own
            slot = STATE_NAME.search(comparison.name) is not None
            fit = [n for n, names in enumerate(leaves.names) if is_slot[n] == slot and path_behind(names[0])
                   and comparison.name.endswith(path_behind(names[0])) and leaves.leaves[n].shape == comparison.alone.shape]
            number_of[k] = fit[0] if len(fit) == 1 else None
    paths = {n: path_behind(leaves.names[n][0]) for n in number_of if n is not None}
    slots_of = {}  # path of a variable -> its slots: those whose path ends in it, and in no longer one of a variable
    for comparison, number in zip(comparisons, number_of):
        if number is not None and is_slot[number]:
            of = max((path for n, path in paths.items() if not is_slot[n] and paths[number].endswith(path)), key=len, default="")
            slots_of.setdefault(of, []).append(comparison)
    for comparison, number in zip(comparisons, number_of):
        if number is None or is_slot[number] or not comparison.open().any():
            continue
        slots = [c for c in slots_of.get(paths[number] or None, []) if c.alone.shape == comparison.alone.shape]
        if slots:
            comparison.excuse_update(comparison.np.asarray(values[number]).astype(comparison.alone.dtype), slots)


def path_behind(name):
    """params['w'][0] -> ['w'][0]; state.params['w'] -> ['w']"""
    return re.search(r"(?:\[[^\]]*\])*$", name).group()


def kicked(np, jax, leaf, rtol, rng):
    """`leaf` with every number changed by up to its `kick`; integers and keys stay."""
    if not jax.dtypes.issubdtype(leaf.dtype, np.inexact):
        return leaf
    epsilon = float(jax.numpy.finfo(leaf.dtype).eps)
    kick = max(KICK_SHARE * rtol, epsilon if epsilon < rtol else 0.0)
    value = np.asarray(leaf)
    wide = value.astype(np.complex128 if np.iscomplexobj(value) else np.float64)
    return (wide * (1 + kick * rng.uniform(-1, 1, value.shape))).astype(value.dtype)


def owners_of_results(plan, count):
    """Per result, the name of the input whose new value it is; None where the plan does not say."""
    listed = axes_of(plan)[0][1].get("results") or []  # whose they are all axes say alike
    return [entry.get("input") or None for entry in listed] if len(listed) == count else [None] * count


def result_names(jax, tree, owners):
    """[0]['hidden']['kernel'] -> result[0]['hidden']['kernel'], and whose new value it is when the plan says so."""
    names = ["result" + jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]
    return [f"{name} (new {of})" if of else name for name, of in zip(names, owners)]


def host(jax, np, leaf):
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def check_specs(path, jax, said, leaves, dims, sharding):
    """Every array that the plan speaks of has the plan's spec in the file, too."""
    specs = jax.tree_util.tree_leaves(said, is_leaf=lambda x: isinstance(x, jax.sharding.PartitionSpec))
    for names, leaf, spec, split in zip(leaves.names, leaves.leaves, specs, dims):
        if split is None:
            continue  # a plan may name a part of the arrays
        planned = sharding(split)
        if not jax.sharding.NamedSharding(planned.mesh, spec).is_equivalent_to(planned, len(leaf.shape)):
            raise DoesNotFit(f"{path}: {names[0]}: the file says {spec}, the plan {planned.spec}: write the file again with "
                             "--emit-jax, from this plan and the module of this step")


def run(options, plan):
    import jax
    import numpy as np

    if len(jax.devices()) < plan["shards"]:
        raise DoesNotFit(f"the plan needs {plan['shards']} devices, JAX has {len(jax.devices())} ({jax.devices()[0]})")
    step, arguments = load_object(options.step)()
    arguments = tuple(arguments)
    names = argument_names(step, arguments)
    # Python numbers among the arguments become arrays.
    arguments = jax.tree_util.tree_map(lambda x: x if hasattr(x, "shape") else np.asarray(x), arguments)
    leaves = Leaves(jax, names, arguments)
    dims, roles = dims_of_axes(plan, leaves)
    unknown = [leaves.names[k][0] for k, split in enumerate(dims) if split is None]
    shapes = jax.eval_shape(step, *arguments)
    results, tree = jax.tree_util.tree_flatten(shapes)

    axes = axes_of(plan)
    sizes = {name: axis["shards"] for name, axis in axes}
    devices = np.array(jax.devices()[:plan["shards"]]).reshape(tuple(sizes.values()))
    mesh = jax.sharding.Mesh(devices, tuple(sizes))

    def sharding(split):
        """Of a dimension per axis. What several split is cut by the inner one first, as --emit-jax says it, too."""
        names = [[name for (name, _), own in reversed(list(zip(axes, split))) if own == dim]
                 for dim in range(max(split) + 1)]
        spec = [None if not of else of[0] if len(of) == 1 else tuple(of) for of in names]
        return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))

    how, planned_step = {}, step
    if options.specs:
        specs = load_file(options.specs)
        if getattr(specs, "MESH", sizes) != sizes:
            raise DoesNotFit(f"{options.specs} is for the mesh {specs.MESH}, the plan for {sizes}")
        try:
            said = specs.argument_specs(*arguments, names=names, unknown="replicate")
            check_specs(options.specs, jax, said, leaves, dims, sharding)
            how["in_shardings"] = specs.shardings(said, mesh)
            if hasattr(specs, "constrained"):  # files of older versions have no such function
                planned_step = specs.constrained(step, mesh)
            how["out_shardings"] = specs.shardings(specs.result_specs(jax.tree_util.tree_unflatten(tree, results)), mesh)
        except ValueError as error:
            raise DoesNotFit(f"{options.specs}: {error}") from None
    else:
        # Of a plan that lists all inputs the others are unused; else XLA chooses for what the plan does not say.
        others = sharding((-1,)) if all(axis.get("inputs") for _, axis in axes) else None
        how["in_shardings"] = leaves.trees(jax, [others if split is None else sharding(split) for split in dims])
        listed = [axis.get("results") or [] for _, axis in axes]
        if results and all([shape_text(r.get("shape")) for r in of] == [tuple(r.shape) for r in results] for of in listed):
            how["out_shardings"] = jax.tree_util.tree_unflatten(
                tree, [sharding(tuple(r["dim"] for r in of)) for of in zip(*listed)])

    one = jax.devices()[0]
    again = jax.jit(step)
    for filling in FILLINGS:
        values = leaves.trees(jax, fill(jax, np, leaves, roles, options.seed, filling))
        alone = jax.tree_util.tree_leaves(again(*jax.device_put(values, one)))
        if not any(np.isnan(host(jax, np, leaf).astype(np.complex128)).any() for leaf in alone
                   if jax.dtypes.issubdtype(leaf.dtype, np.inexact)):
            break
    lowered = jax.jit(planned_step, **how).lower(*values)
    try:  # every collective by itself, so that they can be counted
        compiled = lowered.compile(compiler_options={"xla_disable_hlo_passes": "cpu-all-reduce-combiner"})
    except Exception:  # pylint: disable=broad-except  # a JAX that does not know the option
        compiled = lowered.compile()
    placed = jax.device_put(values, compiled.input_shardings[0])
    sharded = jax.tree_util.tree_leaves(compiled(*placed))
    half = re.search(r"[x<]b?f16>", lowered.as_text()) is not None
    rtol = options.rtol if options.rtol is not None else 3e-2 if half else 1e-4
    owners = owners_of_results(plan, len(results))
    comparisons = [Comparison(np, name, host(jax, np, a), host(jax, np, b), rtol, options.atol)
                   for name, a, b in zip(result_names(jax, shapes, owners), alone, sharded)]
    judge_updates(comparisons, owners, leaves, roles, jax.tree_util.tree_leaves(values))
    rng = np.random.default_rng(options.seed + 1)

    def run_again(kick):
        inputs = jax.tree_util.tree_map(lambda leaf: kicked(np, jax, leaf, rtol, rng) if kick else leaf, values)
        return [host(jax, np, leaf) for leaf in jax.tree_util.tree_leaves(again(*jax.device_put(inputs, one)))]

    find_rounding(comparisons, run_again)
    found = collectives_of(compiled.as_text())
    expected = expected_of(plan, found)
    missing = missing_of(found, expected)
    memory = compiled.memory_analysis()
    return {
        "schema": "automap.apply/2",
        "shards": plan["shards"],
        "devices": plan["shards"],
        "mesh": sizes,
        "platform": jax.devices()[0].platform,
        "jax": jax.__version__,
        "partitioned": sum(split is not None and max(split) >= 0 for split in dims),
        "not_in_plan": unknown,
        "collectives": {kind: {"count": count, "bytes": size} for kind, (count, size) in sorted(found.items())},
        "expected": {kind: {"count": count, "bytes": size} for kind, (count, size) in sorted(expected.items())},
        "unexpected": sorted(set(found) - set(expected)) if expected or all(axis.get("inputs") for _, axis in axes) else [],
        "missing": missing,
        "applied": not not_applied(missing, found, expected),
        "argument_bytes_per_device": getattr(memory, "argument_size_in_bytes", None),
        "temporary_bytes_per_device": getattr(memory, "temp_size_in_bytes", None),
        **told(comparisons),
        "rtol": rtol,
        "rtol_of_narrow": {c.stored: c.rtol for c in comparisons if c.rtol > rtol},
        "half_precision": half,
        "atol": options.atol,
        "equal": not differing_of(comparisons),
    }


MOST_NAMED = 10


def verdict_lines(report):
    """Whether two runs compute the same, for people."""
    worst, differing = report["worst_relative_difference"], report["differing_results"]
    lines = [("equal: " if report["equal"] else "DIFFERENT: ") + f"{report['results']} results, largest relative "
             f"difference {'infinite' if worst is None else f'{worst:.2g}'} (allowed {report['rtol']:g}"
             + "".join(f", of {kind} {allowed:.2g}" for kind, allowed in report.get("rtol_of_narrow", {}).items()) + ")"]
    for result in differing[:MOST_NAMED]:
        lines.append(f"  {result['result']}: {result['entries']:,} of {result['of']:,} entries, {result['why']}")
    if len(differing) > MOST_NAMED:
        lines.append(f"  and {len(differing) - MOST_NAMED} more results")
    return lines


def human(report, plan_path):
    mesh = ", ".join(f"{name} {count}" for name, count in report["mesh"].items()) if len(report["mesh"]) > 1 else ""
    lines = [f"{plan_path} on {report['devices']} {report['platform']} devices{f' ({mesh})' if mesh else ''}: "
             f"{report['partitioned']} of the step's arrays are split", ""]
    rows = [("collective", "compiled", "bytes", "plan expects", "bytes")]
    for kind in sorted(set(report["collectives"]) | set(report["expected"])):
        found = report["collectives"].get(kind, {"count": 0, "bytes": 0})
        plan = report["expected"].get(kind)
        rows.append((kind, f"{found['count']:,}", f"{found['bytes']:,}",
                     f"{plan['count']:,}" if plan else "-",
                     f"{int(plan['bytes']):,}" if plan and plan["bytes"] is not None else "-"))
    widths = [max(len(row[c]) for row in rows) for c in range(5)]
    for row in rows:
        lines.append("  " + row[0].ljust(widths[0]) + "".join("  " + row[c].rjust(widths[c]) for c in range(1, 5)))
    if len(rows) == 1:
        lines.append("  none")
    elif report["expected"]:
        lines.append("  (the compiled step's before XLA combines them where it can; bytes of a whole step, every turn of its loops)")
        if report["half_precision"] and report["platform"] == "cpu":
            lines.append("  (on host devices XLA moves bf16 and f16 as f32, which doubles their bytes)")
    lines.append("")
    if report["unexpected"]:
        lines.append("XLA needed what the plan does not expect: " + ", ".join(report["unexpected"]))
    if report["missing"]:
        lines.append(("" if report["applied"] else "NOT APPLIED: ") + "the plan expects "
                     + ", ".join(f"{report['expected'][kind]['count']:,} x {kind}" for kind in report["missing"])
                     + ", XLA compiled none")
    if report["not_in_plan"]:
        names = report["not_in_plan"]
        lines.append(f"not in the plan: {', '.join(names[:5])}" + (f" and {len(names) - 5} more" if len(names) > 5 else ""))
    lines += verdict_lines(report)
    rounding = report["decided_by_rounding"]
    if rounding:
        lines.append("left out, since nothing but rounding decides them (a gradient of zero that the optimizer divides by "
                     "its own size):")
    for result in rounding[:MOST_NAMED]:
        lines.append(f"  {result['result']}: {result['entries']:,} of {result['of']:,} entries")
    if len(rounding) > MOST_NAMED:
        lines.append(f"  and {len(rounding) - MOST_NAMED} more results")
    return "\n".join(map(printable, lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", required=True, metavar="FILE", help="plan of kind operator, data or mesh")
    parser.add_argument("--step", required=True, metavar="FILE.py:FUNCTION",
                        help="FUNCTION() returns (step, arguments)")
    parser.add_argument("--specs", metavar="FILE.py", help="take the shardings from what --emit-jax wrote")
    parser.add_argument("--rtol", type=float, help="largest relative difference per result (1e-4; 0.03 "
                                                   "of a step that computes in bf16 or f16); results that are "
                                                   "stored in these may always differ by their last digit")
    parser.add_argument("--atol", type=float, default=1e-6, help="absolute differences up to this do not count (1e-6)")
    parser.add_argument("--seed", type=int, default=0, help="of the values that are filled in (0)")
    parser.add_argument("--platform", default="cpu", help="JAX platform; cpu (the default) gets as many host devices as "
                                                          "the plan has shards")
    parser.add_argument("--strict", action="store_true", help="exit 1 for unexpected and for missing kinds of collectives, too")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    try:
        plan = read_plan(options.plan)
        os.environ["JAX_PLATFORMS"] = options.platform
        if options.platform == "cpu":
            os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "")
                                       + f" --xla_force_host_platform_device_count={plan['shards']}")
        try:
            import jax  # noqa: F401
        except ImportError:
            return usage(f"jax is not installed for this Python, {sys.executable}: pip install jax, or run this script with "
                         f"one that has it: PYTHON {sys.argv[0]} ...")
        report = run(options, plan)
    except DoesNotFit as error:
        print(f"{PROGRAM}: {printable(error)}", file=sys.stderr)
        return 3
    print(json.dumps(report, indent=2) if options.json else human(report, options.plan))
    strictly = options.strict and (report["unexpected"] or report["missing"])
    return 0 if report["equal"] and report["applied"] and not strictly else 1


if __name__ == "__main__":
    sys.exit(main())
