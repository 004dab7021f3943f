"""A plan for a training step, asked of automap-infer."""

import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from automap import installed
from automap.errors import Error


@dataclass(frozen=True)
class Plan:
    """How a step is to be trained. Times are in ms, sizes in bytes, of a step of `batch_size` samples.

    `record`: the whole plan as JSON (automap.plan/3, docs/formats/plan.md). `step`: the traced function that it is of
    (automap.tracing.TracedStep), or None; `module`: the path of the HLO file that it is of, or None.
    """

    record: dict = field(repr=False)
    step: object = field(default=None, repr=False)
    module: str = None

    @property
    def step_ms(self):
        """The estimate of a step."""
        return self.record["simulated_step_ms"]

    @property
    def expected_ms(self):
        """(low, high): between these a measured step is expected. None where nothing is known of the model's errors."""
        return tuple(self.record["expected_ms"]) if "expected_ms" in self.record else None

    @property
    def memory_bytes(self):
        """Of the device that is fullest, as a share of what it has."""
        return self._fullest["memory_bytes"]

    @property
    def capacity_bytes(self):
        """What that device has, without the reserve."""
        return self._fullest["capacity_bytes"]

    @property
    def _fullest(self):
        return max(self.record["groups"], key=lambda group: group["memory_bytes"] / group["capacity_bytes"])

    @property
    def devices(self):
        """How many devices it uses."""
        return sum(len(group["devices"]) for group in self.record["groups"])

    @property
    def batch_size(self):
        return round(self.record["batch"])

    @property
    def micro_batch_size(self):
        """Samples of one micro-batch, over all replicas."""
        return round(self.record["micro_batch_samples"])

    @property
    def micro_batches(self):
        return self.record["micro_batches"]

    @property
    def layout(self):
        """In the words of --layout: "dp=2,pp=4,tp=2,micro-batch-size=4,zero=1,schedule=1f1b". Of groups that differ those of
        each group, with "; " between."""
        told = []
        for group in self.record["groups"]:
            words = {"dp": group["replicas"], "pp": len(self.record["groups"]), "tp": group["width"],
                     "micro-batch-size": group["samples"][0], "zero": group["zero"]}
            text = ",".join(f"{key}={value:g}" for key, value in words.items())
            told.append(text + ("" if group["recompute"] == "none" else f",recompute={group['recompute']}"))
        told = told[:1] if len(set(told)) == 1 else told
        schedule = self.record["schedule"]["name"]
        return "; ".join(f"{one},schedule={schedule}" for one in told)

    @property
    def report(self):
        """The answer in sentences, each behind its label: what it takes, why, what the plans of other kinds would."""
        return "\n".join(f"{one['label']:<8}{one['text']}" for one in self.record.get("report", []))

    @property
    def warnings(self):
        """What was assumed or is tight, a sentence each."""
        return list(self.record["warnings"])

    def save(self, path):
        """Writes the JSON, which every program of AutoMap takes, and automap.load."""
        Path(path).write_text(json.dumps(self.record, indent=1) + "\n", encoding="utf-8")

    def __str__(self):
        expected = "" if self.expected_ms is None else " ({:.4g} to {:.4g})".format(*self.expected_ms)
        return (f"{self.record['model']} on {self.devices} devices of {self.record['cluster']}: {self.layout}, {self.step_ms:.4g} ms a step"
                f"{expected} of {self.batch_size} samples, {self.memory_bytes / 2**30:.3g} of {self.capacity_bytes / 2**30:.3g} GiB "
                "on the fullest device")


def plan(step, *arguments, cluster, batch_size=None, micro_batch_size=None, **options):
    """Plans a training step for a cluster; takes seconds, and no accelerator.

    step: a function, jitted or not, step(*state, batch) -> (*state, *metrics), or the path of an HLO module of one.
    arguments: of the function, as arrays or jax.ShapeDtypeStructs, the batch last; the first dimension of each of its arrays
        is its samples, arrays without dimensions belong to all of them. The function is traced again with batches of the
        plan's micro-batches, so it must not rely on the size of its batch.
    cluster: a preset ("h100-4x8") or the path of a file (docs/formats/cluster.md).
    batch_size: samples of a step on all devices; default: the batch's.
    micro_batch_size: samples that go through the pipeline together, over all replicas; default: planned. A file cannot be traced
        again: to run its plan this has to be the module's own batch.
    options: of automap-infer, with _ for -: stages=2, effort="quick", layout="dp=2,pp=4,micro-batch-size=4", whole_loops=True.

    Error where the programs refuse; its exit_code is 4 where no plan fits.
    """
    for option in ("output", "json", "plan", "batch", "micro_batch"):
        if option in options:
            raise Error(f"{option}= is no option here" + (f"; say {option}_size=" if "batch" in option else ""))
    words = ["--cluster", os.fspath(cluster)]
    for option, value in options.items():
        if value is not False and value is not None:
            words += ["--" + option.replace("_", "-")] + ([] if value is True else [value])
    if not callable(step):
        if arguments:
            raise Error("the arguments are those of a function, and the step is a file, whose shapes are in it")
        module = os.path.abspath(os.fspath(step))
        with tempfile.TemporaryDirectory(prefix="automap_") as folder:
            return Plan(_asked(module, folder, words, batch_size, micro_batch_size), module=module)
    traced = _traced(step, arguments, micro_batch_size)
    if batch_size is None:
        batch_size = traced.given_samples
    record = _asked_of(traced, words, batch_size, micro_batch_size)
    samples = record["micro_batch_samples"]
    if samples != traced.samples:
        # Programs have the shapes of micro-batches, so the plan is made of such a step.
        traced = traced.at(_whole(samples))
        record = _asked_of(traced, words, batch_size, None if "layout" in options else traced.samples)
    return Plan(record, step=traced)


def load(path, step, *arguments):
    """A plan that was saved, for the function and arguments (or the HLO module) that it was made for. automap.jax.compile
    refuses the plan of another step."""
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
        samples = record["micro_batch_samples"]
        record["groups"], record["micro_batches"]
    except OSError as error:
        raise Error(f"{path}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError):
        raise Error(f"{path}: it is no pipeline plan that this version reads; save it again") from None
    if not callable(step):
        return Plan(record, module=os.path.abspath(os.fspath(step)))
    return Plan(record, step=_traced(step, arguments, _whole(samples)))


def _whole(samples):
    if samples != int(samples):
        raise Error(f"the plan has micro-batches of {samples} samples, and only whole ones can be traced")
    return int(samples)


def _traced(step, arguments, samples=None):
    try:
        from automap.tracing import TracedStep
    except ImportError:
        raise Error("a function is traced with JAX, which this Python does not have; install jax, or give an HLO file") from None
    return TracedStep(step, arguments, samples)


def _asked_of(traced, words, batch_size, micro_batch_size):
    with tempfile.TemporaryDirectory(prefix="automap_") as folder:
        return _asked(write_module(traced, folder), folder, words, batch_size, micro_batch_size)


def write_module(traced, folder):
    """The HLO of a traced step as a file in a folder; its path."""
    path = os.path.join(folder, f"{traced.name.strip('<>')}.hlo")
    Path(path).write_text(traced.hlo, encoding="utf-8")
    return path


def _asked(module, folder, words, batch_size, micro_batch_size):
    """The plan of a module that automap-infer finds and writes into the folder."""
    if batch_size is not None:
        words = [*words, "--batch", batch_size]
    if micro_batch_size is not None:
        words = [*words, "--micro-batch", micro_batch_size]
    path = os.path.join(folder, "plan.json")
    installed.call("automap-infer", module, *words, "-o", path, folder=folder)
    return json.loads(Path(path).read_text(encoding="utf-8"))
