"""A plan for a training step, asked of automap-infer."""

import json
import operator
import os
import re
import secrets
import tempfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from automap import installed, notebook
from automap.errors import Error


# Options of automap-infer that are there or not; all others take a value.
FLAGS = frozenset("as-is whole-loops keep-shardings allow-empty-stages allow-idle-stages all-planners planner-table sensitivity "
                  "refine no-refine details quiet verbose".split())
# With these it answers something else than one plan, or elsewhere.
NO_PLAN = frozenset("output json plan sweep vary compare-clusters csv chart dump-config help help-all version".split())
# Options that say what a plan is for: they are given again when its file is drawn. All others are in the file, or of the search.
OF_THE_QUESTION = frozenset("cluster device sequence dtype model-optimizer remat model-samples as-is variables batch-input attention "
                            "whole-loops keep-shardings sequence-parallel max-width memory config".split())


@dataclass(frozen=True)
class Question:
    """The words of automap-infer that say which model and machine a plan is for, and the folder that paths in them start at."""

    words: tuple
    folder: str = None

    @staticmethod
    def of(words):
        return Question(tuple(word for word in words if word.partition("=")[0].removeprefix("--") in OF_THE_QUESTION), _here())


@dataclass(frozen=True)
class Plan:
    """A plan of how a step is to be trained. Times are in ms, sizes in bytes, of a step of `batch_size` samples.

    `record`: the whole plan as JSON (automap.plan/3, docs/formats/plan.md). `step`: the traced function that it is of
    (automap.tracing.TracedStep), or None; `module`: the path of the file or the name of the model that it is of, or None.
    A notebook shows the report's sentences and the timeline.
    """

    record: dict = field(repr=False)
    step: object = field(default=None, repr=False)
    module: str = None
    question: Question = field(default=None, repr=False, compare=False)

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
        """Memory of the fullest device: the one that uses the largest share of its own."""
        return self._fullest["memory_bytes"]

    @property
    def capacity_bytes(self):
        """Memory that this device has, without the reserve."""
        return self._fullest["capacity_bytes"]

    @property
    def _fullest(self):
        return max(self.record["groups"], key=lambda group: group["memory_bytes"] / group["capacity_bytes"])

    @property
    def fits(self):
        """True if every device has the memory for it. Only a layout that was given, or memory=False, makes a plan that does not."""
        return all(group["memory_bytes"] <= group["capacity_bytes"] for group in self.record["groups"])

    @property
    def devices(self):
        """The number of devices that it uses."""
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
        each group, with "; " between. Empty of lists of work (the schedule "searched"), which no layout says: evaluate takes
        the plan itself."""
        if self.record["schedule"]["name"] == "searched":
            return ""
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
        """Assumptions, and limits that are nearly reached, a sentence each."""
        return list(self.record["warnings"])

    @cached_property
    def timeline(self):
        """The picture of the step as SVG text (docs/pictures.md): what every group of devices does when, and its memory over time.
        Made when it is first asked for, then kept. Error where automap-infer cannot make it."""
        with tempfile.TemporaryDirectory(prefix="automap_") as folder:
            path = os.path.join(folder, "timeline.svg")
            self._draw(folder, f"--timeline={path}", path)
            return Path(path).read_text(encoding="utf-8")

    def report_page(self, path):
        """Writes the whole answer as one page that needs no network; the path ends in .html. Error where automap-infer cannot."""
        path = os.path.abspath(_path("the page", path, "a path"))
        with tempfile.TemporaryDirectory(prefix="automap_") as folder:
            self._draw(folder, f"--report={path}", path)

    def _draw(self, folder, word, made):
        """Has automap-infer show this plan, with a file more."""
        if self.module is None and self.step is None:
            raise Error("the plan has no step to draw; automap.load gives it one")
        question = self.question or Question((_cluster_word(self.record["cluster"]),))
        module, saved = self.module or write_module(self.step, folder), os.path.join(folder, "plan.json")
        self.save(saved)
        before = _time_of(made)
        installed.call("automap-infer", module, *question.words, f"--plan={saved}", word, folder=folder, cwd=question.folder,
                       answered=lambda _: _time_of(made) not in (None, before))

    def _repr_html_(self):
        told = [(one["label"], one["text"]) for one in self.record.get("report", [])] or [("", str(self))]
        try:
            picture = notebook.picture(self.timeline)
        except Error as error:
            picture = notebook.sentence(f"The timeline cannot be drawn: {error}")
        return notebook.table([], told) + notebook.sentences(self.warnings) + picture

    def save(self, path):
        """Writes the JSON, which every program of AutoMap takes, and automap.load. A file of that name is replaced as a whole:
        where the plan cannot be written, it stays as it was."""
        write_whole(path, json.dumps(self.record, indent=1) + "\n")

    def __str__(self):
        expected = "" if self.expected_ms is None else " ({:.4g} to {:.4g})".format(*self.expected_ms)
        return (f"{self.record['model']} on {self.devices} devices of {self.record['cluster']}: {self.layout or 'lists of work'}, {self.step_ms:.4g} ms a step"
                f"{expected} of {self.batch_size} samples, {self.memory_bytes / 2**30:.3g} of {self.capacity_bytes / 2**30:.3g} GiB "
                "on the fullest device" + ("" if self.fits else ", which is too much"))


def write_whole(path, content):
    """`content` (text or bytes) as a file: whatever happens, at `path` is what was there before or all of `content`. What is no
    file of its own (/dev/stdout, a FIFO) is written to."""
    given, path = path, Path(path).resolve()  # of a link, what it points at
    content = content.encode("utf-8") if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    written = path.with_name(f".automap.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with open(written, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            os.chmod(written, path.stat().st_mode & 0o7777)
        os.replace(written, path)
    except BaseException as error:
        written.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(given), None
        raise


def plan(step, *arguments, cluster, batch_size=None, micro_batch_size=None, **options):
    """Plans a training step for a cluster; takes seconds, and no accelerator.

    step: a function, jitted or not, step(*state, batch) -> (*state, *metrics), or what automap-infer takes for a model: the path
        of an HLO module or a config.json, or a published model's name ("llama3-8b").
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

    >>> plan = automap.plan("gpt2", cluster="h100-1x8", batch_size=64)
    >>> plan.devices, plan.batch_size, plan.fits
    (8, 64, True)
    >>> plan.expected_ms[0] < plan.expected_ms[1]
    True
    >>> automap.plan("gpt2", cluster="h100-1x9x")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    automap.errors.Error: no cluster preset or file named "h100-1x9x"
      hint: did you mean h100-1x8? ...
    """
    return _planned(step, arguments, cluster, batch_size, micro_batch_size, options)


def _planned(step, arguments, cluster, batch_size, micro_batch_size, options):
    module = _module(step, arguments)
    batch_size, micro_batch_size = samples_of("batch_size", batch_size), samples_of("micro_batch_size", micro_batch_size)
    words = [_cluster_word(cluster), *words_of(options)]
    question = Question.of(words)
    if module is not None:
        with tempfile.TemporaryDirectory(prefix="automap_") as folder:
            return Plan(_asked(module, folder, words, batch_size, micro_batch_size), module=module, question=question)
    traced = _traced(step, arguments, micro_batch_size)
    if batch_size is None:
        batch_size = traced.given_samples
    record = _asked_of(traced, words, batch_size, micro_batch_size)
    samples = record["micro_batch_samples"]
    if samples != traced.samples:
        # Programs have the shapes of micro-batches, so the plan is made of such a step.
        traced = traced.at(_whole(samples))
        record = _asked_of(traced, words, batch_size, None if "layout" in options else traced.samples)
    return Plan(record, step=traced, question=question)


def evaluate(step, *arguments, layout=None, plan=None, cluster, batch_size=None, micro_batch_size=None, **options):
    """Says what a layout or a plan takes, without searching for another: the same Plan that automap.plan returns, times in ms,
    sizes in bytes.

    step, arguments, cluster, batch_size, micro_batch_size, options: as automap.plan takes them.
    layout: whole layers spread evenly, in words: "dp=8,pp=4,micro-batch-size=2", or a framework's own arguments.
    plan: instead, a Plan, or the path of a file that Plan.save or automap-infer -o wrote, for the same step; on another cluster, too.

    What does not fit in memory is a Plan all the same, with `fits` False and a sentence among `warnings`. Error where the programs
    refuse: a plan of another step, a layout that the model or the cluster cannot have.

    >>> mine = automap.evaluate("gpt2", layout="dp=4,tp=2,micro-batch-size=1", cluster="h100-1x8", batch_size=64)
    >>> mine.layout, mine.micro_batches
    ('dp=4,pp=1,tp=2,micro-batch-size=1,zero=0,schedule=adaptive', 16)
    """
    if (layout is None) == (plan is None):
        raise Error("give a layout or a plan to evaluate" + ("" if plan is None else ", not both"))
    if layout is not None:
        if not isinstance(layout, str):
            raise Error(f"layout is {_shown(layout)}, and has to be words, such as \"dp=2,pp=4,micro-batch-size=4\"")
        return _planned(step, arguments, cluster, batch_size, micro_batch_size, {**options, "layout": layout})
    module = _module(step, arguments)
    batch_size, micro_batch_size = samples_of("batch_size", batch_size), samples_of("micro_batch_size", micro_batch_size)
    words = [_cluster_word(cluster), *words_of(options)]
    with tempfile.TemporaryDirectory(prefix="automap_") as folder:
        if isinstance(plan, Plan):
            given, record = os.path.join(folder, "the_plan.json"), plan.record
            plan.save(given)
        else:
            given = os.path.abspath(_path("the plan", plan, "a Plan or the path of one that was saved"))
            record = None if module is not None else _read(given).record
        traced = None
        if module is None:
            # The shapes of the programs are those of the plan's micro-batches.
            traced = _traced(step, arguments, micro_batch_size or _whole(record["micro_batch_samples"]))
        asked = _asked(write_module(traced, folder) if traced else module, folder, [*words, f"--plan={given}"], batch_size, micro_batch_size)
    return Plan(asked, step=traced, module=module, question=Question.of(words))


def _cluster_word(cluster):
    return f"--cluster={_path('cluster', cluster, 'a preset or the path of a file')}"


def words_of(options, flags=FLAGS, refused=NO_PLAN, why="automap-infer makes no plan with it that can be returned"):
    """The options as a program takes them. A value stands in the word of its option, so that it is taken for nothing else; those
    of a list stand in one word with commas between."""
    words = []
    for option, value in options.items():
        name = option.replace("_", "-")
        if name in ("batch", "micro-batch"):
            raise Error(f"{option}= is no option here; say {option}_size=")
        if value is None or (value is False and name in flags | refused):
            continue
        if name in refused:
            raise Error(f"{option}= is no option here: {why}")
        if name in flags:
            if value is not True:
                raise Error(f"{option} is {value!r}, and has to be True or False")
            words.append(f"--{name}")
        else:
            told = ("on" if value else "off") if isinstance(value, bool) else value
            words.append(f"--{name}={','.join(map(str, told)) if isinstance(told, (list, tuple)) else told}")
    return words


def _path(name, given, what):
    if not isinstance(given, (str, os.PathLike)):
        raise Error(f"{name} is {_shown(given)}, and has to be {what}")
    return os.fsdecode(given)


def _module(step, arguments=()):
    """The path of the step where it is a file, or the name of a model; None: it is a function."""
    if callable(step):
        return None
    if arguments:
        raise Error("the arguments are those of a function, and the step is a file, whose shapes are in it")
    path = _path("the step", step, "a function or the path of an HLO module")
    # Names of models have no file. What a program would take for an option or for its standard input has to be one.
    return path if re.match(r"[A-Za-z0-9]", path) and not os.path.exists(path) else os.path.abspath(path)


def _here():
    """The folder that relative paths start at; None where it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return None


def _time_of(path):
    """When a file was written; None: there is none."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


def samples_of(name, given):
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


def load(path, step, *arguments, cluster=None, **options):
    """A plan that was saved, for the function and arguments (or the HLO module) that it was made for. automap.jax.compile
    refuses the plan of another step. cluster, options: what automap.plan was given, for pictures of the plan; default: the preset
    that the plan names."""
    path, module = _path("the plan", path, "the path of a file that Plan.save wrote"), _module(step)
    plan = _read(path)
    question = Question.of([_cluster_word(plan.record["cluster"] if cluster is None else cluster), *words_of(options)])
    if module is not None:
        return Plan(plan.record, module=module, question=question)
    return Plan(plan.record, step=_traced(step, arguments, _whole(plan.record["micro_batch_samples"])), question=question)


def _read(path):
    """The plan of a file, without its step."""
    try:
        plan = Plan(json.loads(Path(path).read_text(encoding="utf-8")))
        _look_at(plan)
        return plan
    except OSError as error:
        raise Error(f"{path}: {error.strerror}") from None
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        raise Error(f"{path}: it is no pipeline plan that this version reads; save it again") from None


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


def module_of(step, arguments, folder):
    """The argument by which a program takes the step; and, for a function, whose HLO is written into the folder, the traced step."""
    module = _module(step, arguments)
    if module is not None:
        return module, None
    traced = _traced(step, arguments)
    return write_module(traced, folder), traced


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
    installed.call("automap-infer", module, *words, f"--output={path}", folder=folder, answered=lambda _: os.path.exists(path))
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Error("automap-infer made no plan with these options") from None
