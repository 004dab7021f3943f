"""The plans of published systems and ours, asked of automap-compare."""

import json
import tempfile
from dataclasses import dataclass, field

from automap import installed, notebook, planning
from automap.errors import Error

# As planning.FLAGS and planning.NO_PLAN, of automap-compare.
FLAGS = frozenset("quiet verbose".split())
NO_ROWS = frozenset("json dump-config help help-all version".split())


@dataclass(frozen=True)
class System:
    """One system's plan. `record`: as automap-compare prints it (docs/formats/printed.md)."""

    record: dict = field(repr=False)

    @property
    def key(self):
        """Its name for systems=: "automap", "megatron", "pipedream"."""
        return self.record["system"]

    @property
    def name(self):
        return self.record["name"]

    @property
    def found(self):
        """True if it has a plan."""
        return self.record["found"]

    @property
    def why_not(self):
        """Why it has none; None where it has."""
        return self.record.get("why_not")

    @property
    def plan(self):
        """The plan in a line; None where there is none."""
        return self.record.get("plan")

    @property
    def step_ms(self):
        """The step in ms, by the judge that `judged_by` names; None without a plan, and of workloads, which have `load_ms`."""
        return self.record.get("simulated_step_ms", self.record.get("step_ms"))

    @property
    def load_ms(self):
        """For a workload: the largest load of a device for a sample, in ms. Else None."""
        return self.record.get("load_ms")

    @property
    def judged_by(self):
        """"our simulation", "its own simulator" or "the largest load"; None without a plan."""
        return self.record.get("judged_by")

    @property
    def own_ms(self):
        """The time in ms by which its own model ranks the plan first; None where it has none."""
        return self.record.get("own_ms")

    @property
    def fits(self):
        """True if the fullest device has the memory; None without a plan."""
        return self.record.get("fits")

    @property
    def fullest_share(self):
        """The share of that device's memory that the plan needs, 0 to 1 where it fits; None without a plan."""
        return self.record.get("fullest_share")

    @property
    def search_s(self):
        """Wall time of its search in seconds; None where it was not asked."""
        return self.record.get("search_s")

    def __str__(self):
        if not self.found:
            return f"{self.name}: no plan, {self.why_not}"
        ms = self.step_ms if self.load_ms is None else self.load_ms
        return f"{self.name}: {ms:.4g} ms by {self.judged_by}, {self.plan}" + ("" if self.fits else ", which does not fit")


@dataclass(frozen=True)
class Comparison:
    """The answers of all systems, in the order asked; one of them is found by its key, `systems["megatron"]`, or number, systems[1].

    `record`: the document as JSON (automap.systems/1). A notebook shows a table.
    """

    record: dict = field(repr=False)
    warnings: list = field(default_factory=list, repr=False)

    @property
    def model(self):
        return self.record["model"]

    @property
    def cluster(self):
        return self.record["cluster"]

    @property
    def batch_size(self):
        """Samples of a step; None of a workload."""
        return round(self.record["batch"]) if "batch" in self.record else None

    @property
    def systems(self):
        """A list of System."""
        return [System(one) for one in self.record["systems"]]

    def __len__(self):
        return len(self.record["systems"])

    def __iter__(self):
        return iter(self.systems)

    def __getitem__(self, which):
        """By number, or by the key of a system."""
        if not isinstance(which, str):
            return self.systems[which]
        for one in self.systems:
            if one.key == which:
                return one
        raise Error(f"{which!r} is none of the systems that were asked: {', '.join(one.key for one in self.systems)}")

    def __str__(self):
        return "\n".join([f"{self.model} on {self.cluster}" + (f", {self.batch_size} samples a step" if self.batch_size else ""),
                          *map(str, self.systems)])

    def _repr_html_(self):
        rows = [(one.name, one.step_ms if one.load_ms is None else one.load_ms, one.judged_by, one.plan if one.found else one.why_not,
                 {True: "yes", False: "no"}.get(one.fits), one.search_s) for one in self.systems]
        return (notebook.sentence(str(self).splitlines()[0]) + notebook.sentences(self.warnings) +
                notebook.table(["System", "ms", "judged by", "plan", "fits", "search, s"], rows))


def compare(step, *arguments, cluster=None, batch_size=None, systems=None, **options):
    """The plans of published systems and ours for one step; a Comparison. Takes up to minutes.

    step: a function with its arguments as automap.plan takes them, or the path of what automap-compare takes: an HLO module, a
        profile, or a workload for placement, which needs no cluster.
    cluster: a preset ("h100-4x8") or the path of a file.
    batch_size: samples of a step; default: of a function the batch's, else what automap-compare chooses.
    systems: keys, ["automap", "megatron"]; default: all.
    options: of automap-compare, with _ for -: max_stages=8, time="10s", html="page.html".

    That no system has a plan that fits is an answer, too: then `fits` or `found` of all of them is False.

    >>> rows = automap.compare("fixtures/hlo/tiny_mlp.hlo", cluster="config-a", systems=["automap", "pipedream"])
    >>> [row.key for row in rows]
    ['automap', 'pipedream']
    >>> rows["pipedream"].step_ms >= rows["automap"].step_ms
    True
    """
    with tempfile.TemporaryDirectory(prefix="automap_") as folder:
        words = planning.words_of({"cluster": cluster, "systems": systems, **options}, FLAGS, NO_ROWS, "automap.compare returns rows")
        module, traced = planning.module_of(step, arguments, folder)
        batch_size = planning.samples_of("batch_size", batch_size) or (traced.given_samples if traced else None)
        if batch_size is not None:
            words.append(f"--batch={batch_size}")
        printed, warnings = installed.call("automap-compare", module, *words, "--json", folder=folder, answered=lambda text: '"systems"' in text)
    return Comparison(json.loads(printed), warnings)
