"""automap run --check: the plan's step against the unsplit one, from the same drawn weights and batches."""

import numpy as np

import jax

from automap.execution import Execution, parse_shape
from automap.mesh import CompiledProgram, GroupMesh
from automap.programs import ProgramsError


def draw(one, generator):
    """Numbers for an input that a step can begin with: small weights, moments that are not zero, counters at zero."""
    kind, shape = parse_shape(one["shape"])
    role, integer = one["role"], np.issubdtype(kind, np.integer)
    if kind == np.bool_:
        return generator.integers(0, 2, shape).astype(bool)
    if integer and kind == np.uint32 and role in ("state", "input"):
        return generator.integers(0, 2**32, shape, dtype=np.uint32)
    if integer:
        return (generator.integers(0, 8, shape) if role == "batch" else np.zeros(shape)).astype(kind)
    drawn = generator.standard_normal(shape)
    if role == "slot":
        drawn = 1e-2 * (np.abs(drawn) + 0.1)
    elif role == "state":
        drawn = 0.5 + 0.1 * np.abs(drawn)
    elif role != "batch":
        drawn = 0.05 * drawn + (1 if one["name"].endswith("scale") else 0)
        if not shape:
            drawn = np.abs(drawn)
    return np.asarray(drawn, kind)


def floating(array):
    return np.issubdtype(array.dtype, np.inexact) or array.dtype.name == "bfloat16"


def difference(a, b):
    """The largest difference over the largest number; infinite where either is not finite, or integers differ."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return float("inf")
    if a.size == 0:
        return 0.0
    if not floating(a):
        return 0.0 if np.array_equal(a, b) else float("inf")
    if not (finite(a) and finite(b)):
        return float("inf")
    a, b = a.astype(np.float64), b.astype(np.float64)
    largest = max(np.abs(a).max(), np.abs(b).max())
    return float(np.abs(a - b).max() / largest) if largest > 0 else 0.0


def finite(array):
    array = np.asarray(array)
    return not floating(array) or bool(np.isfinite(array.astype(np.float64)).all())


class Comparison:
    def __init__(self, manifest, tolerance):
        self.manifest, self.tolerance, self.worst, self.first = manifest, tolerance, 0.0, None

    def results(self, mine, theirs, step, against):
        for number, (a, b) in enumerate(zip(mine, theirs)):
            pairs = zip(a, b) if isinstance(a, list) else [(a, b)]
            for one, other in pairs:
                if not finite(other):
                    raise ProgramsError(f"step {step}: {self.manifest.result_name(number)} of {against} is not finite with the weights "
                                        "and batches that were drawn, so nothing can be compared; another --seed may help")
                off = difference(one, other)
                self.worst = max(self.worst, off)
                if off > self.tolerance and self.first is None:
                    what = "is not finite, or no number of the same kind" if off == float("inf") else f"differs by {off:.2g}"
                    self.first = f"step {step}: {self.manifest.result_name(number)} {what} (relative; at most {self.tolerance:g}) from {against}"


class Unsplit:
    """What the plan's numbers are compared with: the step of one part, and the module itself, on one device."""

    def __init__(self, manifest, device, begin):
        self.manifest, self.device, self.begin = manifest, device, begin
        self.whole = Execution(manifest, manifest.whole, [device])
        self.module = CompiledProgram(manifest.text(manifest.module), manifest.module, GroupMesh([device]))
        self.state = self.whole.init(begin)

    def own_step(self, batch):
        names = [self.manifest.input_name(one) for one in self.manifest.inputs]
        return self.module([jax.device_put(batch[n] if n in batch else self.begin[n], self.device) for n in names])

    def step(self, batches):
        self.state, results = self.whole.step(self.state, batches)
        return results


def check(manifest, devices, steps, seed, tolerance, processes=None):
    """(worst relative difference, the first that is too large in words or None, the losses). Of several processes, all of which
    draw the same numbers, process 0 compares: the others give 0 and no losses, and of a difference that there is one."""
    generator = np.random.default_rng(seed)
    plan = Execution(manifest, manifest.plan, devices, processes)
    begin = {manifest.input_name(one): draw(one, generator) for one in manifest.inputs if one["role"] != "batch"}
    fed = [one for one in manifest.inputs if one["role"] == "batch"]
    compared, losses = Comparison(manifest, tolerance), []
    compares = processes is None or processes.rank == 0
    unsplit = Unsplit(manifest, devices[0], begin) if compares else None
    if processes:
        processes.begin()
    state = plan.init(begin)
    for step in range(1, steps + 1):
        batches = [{manifest.input_name(one): draw(one, generator) for one in fed} for _ in range(manifest.micro_batches)]
        if step == 1:
            # The module as it was given knows one batch: every micro-batch is that one.
            mine = plan.all_results(plan.step(state, [batches[0]] * manifest.micro_batches)[1])
            if compares:
                compared.results([one[0] if isinstance(one, list) else one for one in mine], unsplit.own_step(batches[0]), step,
                                 "the module's own step")
        state, mine = plan.step(state, batches)
        mine = plan.all_results(mine)
        if compares:
            compared.results(mine, unsplit.step(batches), step, "the unsplit step")
            if manifest.loss_result is not None:
                losses.append(float(np.asarray(mine[manifest.loss_result])))
        if processes:
            if compares:
                processes.tell(f"compared/{step}", compared.first or "")
            compared.first = processes.hear(f"compared/{step}", 0) or None
        if compared.first:
            break
    return compared.worst, compared.first, losses
