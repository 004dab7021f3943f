"""Profiles: the cost of every position of a model, from automap-profile."""

import csv
import io
import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from automap import installed, notebook, planning

# As planning.FLAGS and planning.NO_PLAN, of automap-profile.
FLAGS = frozenset("as-is whole-loops quiet verbose".split())
NO_PROFILE = frozenset("output json calibrate dump-config help help-all version".split())
TEXTS = frozenset("name op_name layer".split())


@dataclass(frozen=True)
class Profile:
    """The forward instructions of a step in the order of its data flow, and what each costs. Times are in ms, sizes in bytes, of one
    micro-batch of `micro_batch_size` samples on one device of the kind `device`.

    `record`: what automap-profile --json prints (automap.profile-report/1, docs/formats/printed.md). `columns`: by the
    names of docs/formats/profile.md a list each with one element for every position, numbers (float) or texts. A notebook
    shows a table of layers.
    """

    record: dict = field(repr=False)
    columns: dict = field(repr=False)

    @property
    def model(self):
        return self.record["model"]

    @property
    def device(self):
        """The reference device of all times."""
        return self.record["device"]

    @property
    def micro_batch_size(self):
        """Samples of a micro-batch; 0 where that is not known."""
        return self.record["micro_batch_size"]

    @property
    def c_ms(self):
        """C, a list [positions]: compute of the instruction and of its part of the backward pass, ms."""
        return self.columns["c_ms"]

    @property
    def a_bytes(self):
        """A, a list [positions]: bytes that cross a cut behind the instruction, in one direction."""
        return self.columns["a_bytes"]

    @property
    def w_bytes(self):
        """W, a list [positions]: bytes of the trainable variables that are first used there."""
        return self.columns["w_bytes"]

    @property
    def stash_bytes(self):
        """A list [positions]: bytes kept from the forward to the backward pass."""
        return self.columns["stash_bytes"]

    @property
    def names(self):
        """A list [positions] of the instructions' names in the HLO."""
        return self.columns["name"]

    @property
    def totals(self):
        """Sums over all positions: "c_ms", "w_bytes", "stash_bytes"."""
        return self.record["totals"]

    @property
    def times_ms(self):
        """"forward", "backward" (together C's sum), "optimizer" and "other", ms."""
        return self.record["times_ms"]

    @property
    def memory_bytes(self):
        """By what it is for: "variables", "slots" (optimizer state), "stash", "gradients", "workspace" and others."""
        return self.record["memory_bytes"]

    @property
    def layers(self):
        """In order a dict for each layer: "name", "first_instruction" and "last_instruction" (from 1), "c_ms", "a_bytes",
        "w_bytes", "stash_bytes"."""
        return self.record["layers"]

    @property
    def warnings(self):
        """Assumptions, a sentence each."""
        return list(self.record["warnings"])

    def __len__(self):
        """The number of positions."""
        return len(self.c_ms)

    def __str__(self):
        samples = f"{self.micro_batch_size} samples" if self.micro_batch_size else "its samples"
        return (f"{self.model} on {self.device}: {len(self)} positions, {self.totals['c_ms']:.4g} ms for a micro-batch of {samples}, "
                f"{self.totals['w_bytes'] / 2**20:.4g} MiB of weights, {self.totals['stash_bytes'] / 2**20:.4g} MiB kept for the backward")

    def _repr_html_(self):
        keys = ("name", "c_ms", "a_bytes", "w_bytes", "stash_bytes")
        return (notebook.sentence(str(self)) + notebook.sentences(self.warnings) +
                notebook.table(["Layer", "compute, ms", "crosses the cut behind it, bytes", "weights, bytes", "stash, bytes"],
                               [[one[key] for key in keys] for one in self.layers]))


def profile(step, *arguments, device=None, cluster=None, **options):
    """Returns a Profile: the cost of every position of a step. Takes moments.

    step: a function with its arguments as automap.plan takes them (the batch is the micro-batch), or what automap-profile takes
        for a model: the path of an HLO module or a config.json, or a published model's name.
    device: a name ("h100") or the path of a device file; cluster: instead, a preset or the path of a file.
    options: of automap-profile, with _ for -: samples=[1, 2, 4], widths=[1, 2], sequence=2048, attention="fused".

    >>> profile = automap.profile("gpt2", device="h100")
    >>> len(profile) == len(profile.c_ms) == len(profile.w_bytes)
    True
    >>> profile.layers[1]["name"], profile.totals["w_bytes"] == sum(profile.w_bytes)
    ('layers/0', True)
    """
    also = options.pop("also_device", None) or []
    with tempfile.TemporaryDirectory(prefix="automap_") as folder:
        words = planning.words_of({"device": device, "cluster": cluster, **options}, FLAGS, NO_PROFILE, "automap.profile returns a profile")
        words += [f"--also-device={one}" for one in (also if isinstance(also, (list, tuple)) else [also])]
        module, _ = planning.module_of(step, arguments, folder)
        table = os.path.join(folder, "profile.csv")
        written = [word for word in words if not word.startswith(("--widths=", "--sequence-parallel="))]  # CSV has none of those.
        printed, _ = installed.call("automap-profile", module, *written, "--json", f"--output={table}", folder=folder)
        if written != words:
            printed, _ = installed.call("automap-profile", module, *words, "--json", folder=folder)
        return Profile(json.loads(printed), _columns(Path(table).read_text(encoding="utf-8")))


def _columns(text):
    """The columns of a profile as CSV."""
    while text.startswith("#"):
        text = text.partition("\n")[2]
    names, *rows = csv.reader(io.StringIO(text, newline=""))
    return {name: [row[at] if name in TEXTS else float(row[at]) for row in rows] for at, name in enumerate(names)}
