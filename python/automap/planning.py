"""A plan for a training step, asked of automap-infer."""

import json
import operator
import os
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from automap import installed
from automap.errors import Error


# Options of automap-infer that are there or not; all others take a value.
FLAGS = frozenset("as-is whole-loops keep-shardings allow-empty-stages allow-idle-stages all-planners planner-table sensitivity "
                  "refine no-refine details quiet verbose".split())
# With these it answers something else than one plan, or elsewhere.
NO_PLAN = frozenset("output json plan sweep vary compare-clusters csv chart dump-config help help-all version".split())


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
    def fits(self):
        """Whether every device has the memory for it. Only a layout that was given, or memory=False, makes a plan that does not."""
        return all(group["memory_bytes"] <= group["capacity_bytes"] for group in self.record["groups"])

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
                "on the fullest device" + ("" if self.fits else ", which is too much"))


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
        True and False are on and off of an option that takes a value (memory=False); None leaves an option out.

    Error where the programs refuse; its exit_code is 4 where no plan fits. A layout that does not fit is a plan with a warning.
    """
    module = _module(step)
    batch_size, micro_batch_size = _samples("batch_size", batch_size), _samples("micro_batch_size", micro_batch_size)
    words = [f"--cluster={_path('cluster', cluster, 'a preset or the path of a file')}", *_words(options)]
    if module:
        if arguments:
            raise Error("the arguments are those of a function, and the step is a file, whose shapes are in it")
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


def _words(options):
    """The options as automap-infer takes them. A value stands in the word of its option, so that it is taken for nothing else."""
    words = []
    for option, value in options.items():
        name = option.replace("_", "-")
        if name in ("batch", "micro-batch"):
            raise Error(f"{option}= is no option here; say {option}_size=")
        if value is None or (value is False and name in FLAGS | NO_PLAN):
            continue
        if name in NO_PLAN:
            raise Error(f"{option}= is no option here: automap-infer makes no plan with it that can be returned")
        if name in FLAGS:
            if value is not True:
                raise Error(f"{option} is {value!r}, and has to be True or False")
            words.append(f"--{name}")
        else:
            told = ("on" if value else "off") if isinstance(value, bool) else value
            words.append(f"--{name}={told}")
    return words


def _path(name, given, what):
    if not isinstance(given, (str, os.PathLike)):
        raise Error(f"{name} is {_shown(given)}, and has to be {what}")
    return os.fsdecode(given)


def _module(step):
    """The path of the step where it is a file; None: it is a function."""
    return None if callable(step) else os.path.abspath(_path("the step", step, "a function or the path of an HLO module"))


def _samples(name, given):
    if given is None:
        return None
    try:
        count = 0 if isinstance(given, bool) else operator.index(given)
    except TypeError:
        count = 0
    if count < 1:
        raise Error(f"{name} is {_shown(given)}, and has to be a whole number of samples; without it " +
                    ("it is the size of the batch" if name == "batch_size" else "the plan chooses"))
    return count


def _shown(value):
    text = repr(value).splitlines()[0] if repr(value) else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."


def load(path, step, *arguments):
    """A plan that was saved, for the function and arguments (or the HLO module) that it was made for. automap.jax.compile
    refuses the plan of another step."""
    path, module = _path("the plan", path, "the path of a file that Plan.save wrote"), _module(step)
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
        _look_at(Plan(record))
    except OSError as error:
        raise Error(f"{path}: {error.strerror}") from None
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        raise Error(f"{path}: it is no pipeline plan that this version reads; save it again") from None
    if module:
        return Plan(record, module=module)
    return Plan(record, step=_traced(step, arguments, _whole(record["micro_batch_samples"])))


def _look_at(plan):
    """Raises whatever Python does where the record of a plan has something else than a Plan reads in it."""
    operator.index(plan.micro_batches)
    str(plan), plan.report, plan.warnings, plan.batch_size, plan.micro_batch_size


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
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", str(traced.name).strip("<>"))[:100] or "step"
    path = os.path.join(folder, f"{name}.hlo")
    Path(path).write_text(traced.hlo, encoding="utf-8")
    return path


def _asked(module, folder, words, batch_size, micro_batch_size):
    """The plan of a module that automap-infer finds and writes into the folder."""
    if batch_size is not None:
        words = [*words, f"--batch={batch_size}"]
    if micro_batch_size is not None:
        words = [*words, f"--micro-batch={micro_batch_size}"]
    path = os.path.join(folder, "plan.json")
    try:
        installed.call("automap-infer", module, *words, f"--output={path}", folder=folder)
    except Error as error:
        if error.exit_code != 4 or not os.path.exists(path):  # A layout that does not fit is written, and says so.
            raise
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Error("automap-infer made no plan with these options") from None
