"""What the scripts that measure policies share: running the benchmarks, statistics over problems and seeds, text tables.

A policy's figures are means over its seeds, problem by problem; spreads are over the seeds. Needs Python's standard library
alone.
"""

import datetime
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
# What counts as the gap of a planner that finds no plan where there is one.
NO_PLAN = 1.0
# A gap up to this is rounding: the plan is optimal.
OPTIMAL = 1e-6


class Failed(Exception):
    pass


def progress(text):
    print(text, file=sys.stderr, flush=True)


def block(text):
    return "```text\n" + "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n```"


def table(columns, rows, left=1):
    """Aligned text: the first `left` columns to the left, the others to the right."""
    cells = [[str(c) for c in row] for row in [columns, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = ["  ".join(c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))) for row in cells]
    return block("\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]]))


def percent(ratio, digits=2):
    return "-" if ratio is None else f"{100 * ratio:.{digits}f}"


def milliseconds(ms):
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"


def load_line():
    return f"Load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores when this section began."


def machine_line():
    cpu, memory = "unknown processor", ""
    try:
        cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), flags=re.M)[1]
        kilobytes = int(re.search(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(), flags=re.M)[1])
        memory = f", {kilobytes / 2 ** 20:.0f} GiB"
    except (OSError, TypeError):
        pass
    return f"Machine: {cpu}, {os.cpu_count()} cores{memory}, {platform.system()} {platform.machine()}."


def program(build, name):
    path = build / "bench" / name if name.startswith("bench-") else build / name
    if not path.exists():
        raise Failed(f"{path} does not exist; build it first: cmake --preset release && cmake --build --preset release")
    return str(path)


def run(command, **kwargs):
    """Runs a program, its progress on our standard error; standard output as text."""
    result = subprocess.run([str(c) for c in command], cwd=SOURCE, stdout=subprocess.PIPE, text=True, **kwargs)
    if result.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))} ended with {result.returncode}")
    return result.stdout


def version_of(build):
    """Program version and git revision."""
    return run([program(build, "bench-policy_gaps"), "--version"]).splitlines()[0].split(": ", 1)[-1]


def quantile(values, q):
    """The smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(q * len(ordered)), 1) - 1]


class Planner:
    """One planner's gaps and times over problems: [seed][problem], a single seed when it is no policy."""

    def __init__(self, name, gaps, cpu_ms):
        self.name = name
        self.missing = sum(g is None for seed in gaps for g in seed) / len(gaps)
        self.by_seed = [[NO_PLAN if g is None else g for g in seed] for seed in gaps]
        self.gaps = [statistics.fmean(values) for values in zip(*self.by_seed)]
        self.cpu_ms = statistics.fmean(t for seed in cpu_ms for t in seed) if self.gaps else 0

    def mean(self):
        return statistics.fmean(self.gaps)

    def seed_means(self):
        return [statistics.fmean(seed) for seed in self.by_seed]

    def over_seeds(self, figure):
        """The mean over the seeds of a figure of one seed's gaps."""
        return statistics.fmean(figure(seed) for seed in self.by_seed)

    def median(self):
        return self.over_seeds(statistics.median)

    def p95(self):
        return self.over_seeds(lambda gaps: quantile(gaps, 0.95))

    def largest(self):
        return max(max(seed) for seed in self.by_seed)

    def optimal(self):
        return self.over_seeds(lambda gaps: statistics.fmean(g <= OPTIMAL for g in gaps))


def planners(methods, problems, gaps="gaps", times="cpu_ms"):
    """name -> Planner, in the order of the methods of a benchmark's document."""
    columns = {}
    for i, method in enumerate(methods):
        columns.setdefault(method["name"], []).append(i)
    if not problems:
        return {}
    return {name: Planner(name, [[p[gaps][i] for p in problems] for i in at], [[p[times][i] for p in problems] for i in at])
            for name, at in columns.items()}


class Difference:
    """Mean of a's gap minus b's over the same problems. The standard error has two parts: the problems', and, when the
    policies have several seeds, the seeds'."""

    def __init__(self, a, b):
        differences = [x - y for x, y in zip(a.gaps, b.gaps)]
        self.mean = statistics.fmean(differences)
        variance = statistics.variance(differences) / len(differences) if len(differences) > 1 else 0
        for planner in (a, b):
            seeds = planner.seed_means()
            if len(seeds) > 1:
                variance += statistics.variance(seeds) / len(seeds)
        self.error = math.sqrt(variance)

    def verdict(self):
        if self.mean + 2 * self.error < 0:
            return "better"
        if self.mean - 2 * self.error > 0:
            return "worse"
        return "undecided"

    def cell(self):
        return f"{100 * self.mean:+.2f} ± {100 * self.error:.2f}"


def quality_rows(found, exact_ms=None):
    """Rows of the usual table: mean (and over the seeds least..most), median, p95, largest, optimal, none, time."""
    rows = []
    for planner in found.values():
        seeds = planner.seed_means()
        spread = f"{percent(min(seeds))}..{percent(max(seeds))}" if len(seeds) > 1 else ""
        rows.append([planner.name, percent(planner.mean()), spread, percent(planner.median()), percent(planner.p95()),
                     percent(planner.largest()), percent(planner.optimal(), 1),
                     f"{planner.missing:.3g}" if planner.missing else "", milliseconds(planner.cpu_ms)])
    if exact_ms is not None:
        rows.append(["exact", "0", "", "0", "0", "0", "100", "", milliseconds(exact_ms)])
    return rows


QUALITY_COLUMNS = ["planner", "mean %", "seeds", "median", "p95", "largest", "optimal %", "no plan", "CPU ms"]


def describe_policies(documents):
    """Lines that say which policies were measured."""
    lines = []
    for policy in documents:
        made = policy["provenance"] if isinstance(policy["provenance"], dict) else {}
        known = ", ".join(f"{key} {made[key]}" for key in sorted(made) if isinstance(made[key], (int, float, str)) and
                          len(str(made[key])) <= 40)
        name = policy["path"] if policy["path"].startswith("untrained:") else "/".join(Path(policy["path"]).parts[-2:])
        lines.append(f"- `{name}`, {policy['weights']} weights, SHA-256 {policy['sha256'][:12]}" + (f": {known}" if known else ""))
    return "\n".join(lines)


def read_json(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def header(script, build, quick=False):
    return [f"Generated by `scripts/{script}`" + (" --quick (a smoke test: these figures mean nothing)" if quick else "") +
            "; do not edit.",
            f"{datetime.date.today().isoformat()}, {version_of(build)}. {machine_line()} Times are processor time of one thread; on "
            "a shared machine they still depend on what else runs: compare within one table."]


def write_page(text, output):
    """A page is there in whole or not at all; - is standard output."""
    if output == "-":
        sys.stdout.write(text)
        return
    beside = Path(output).with_name(Path(output).name + ".part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(output)
    progress(f"wrote {output}")
