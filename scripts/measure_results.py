#!/usr/bin/env python3
"""Measures AutoMap and writes the figures as a page, docs/results/plans.md. Takes about 20 minutes; --quick less than one.

Examples:
  cmake --build --preset release && scripts/measure_results.py
  scripts/measure_results.py --jax-python .venv/bin/python       # with XLA's own parser beside ours (pip install jaxlib)
  AUTOMAP_CORPUS=~/models scripts/measure_results.py             # with models and profiles of your own, as listed below
  scripts/measure_results.py --quick                             # a smoke test; the page goes to standard output
  scripts/measure_results.py --only end-to-end -o -              # one section, to standard output

AUTOMAP_CORPUS names a folder with HLO training steps in hlo/train_*/*.hlo and profiles in profiles/**/*.txt; without it
only the models in fixtures/ are measured. Needs nothing but Python's standard library and a Release build with benches.
"""

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
CLUSTERS = ("config-a", "config-b", "config-c")
# What the end-to-end times are about, and the models whose plans are shown.
END_TO_END_MODEL = "bert48"
SHOWN_MODELS = ("bert48", "bert_large", "t5_6_6", "t5_24_24", "vgg19", "resnet50", "gpt2")
MICRO_BATCHES = 16
SCHEDULES = ("adaptive", "1f1b", "1f1b-overlap")


class Failed(Exception):
    pass


def progress(text):
    print(text, file=sys.stderr, flush=True)


def load_line():
    return f"Load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores when this section began."


def block(text):
    return "```text\n" + "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n```"


def table(columns, rows, left=1):
    """Aligned text: the first `left` columns to the left, the others to the right."""
    cells = [[str(c) for c in row] for row in [columns, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = ["  ".join(c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))) for row in cells]
    return block("\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]]))


def short(path):
    """A model's name for people from its path: models/x.before_opt.hlo -> x."""
    return re.sub(r"(\.before_opt)?\.(hlo|graph|txt)\b.*$", "", Path(path).name)[:28]


def significant(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def median_and_range(values, factor=1.0):
    low, middle, high = (significant(f(values) * factor) for f in (min, statistics.median, max))
    return f"{middle} ({low} .. {high})"


def percentiles(values):
    """Median / 90th percentile / largest, in percent."""
    if not values:
        return "-"
    ordered = sorted(values)
    return "/".join(f"{100 * value:.1f}" for value in (statistics.median(ordered), ordered[int(0.9 * (len(ordered) - 1))], ordered[-1]))


class Measure:
    def __init__(self, args):
        self.quick = args.quick
        self.build = args.build.resolve()
        self.jax_python = args.jax_python
        self.corpus = Path(args.corpus).resolve() if args.corpus else None
        manifest = json.loads((SOURCE / "fixtures" / "MANIFEST.json").read_text())
        # Paths relative to the checkout, where every program runs.
        self.fixtures = {m["name"]: f"fixtures/{m['forms']['text']['file']}" for m in manifest["models"]}
        self.training = [m["name"] for m in manifest["models"] if m["kind"] == "train"]
        if self.quick:
            size = {m["name"]: m["forms"]["text"]["bytes"] for m in manifest["models"]}
            self.training = sorted(self.training, key=size.get)[:2]

    # Running programs

    def program(self, name):
        path = self.build / "bench" / name if name.startswith("bench-") else self.build / name
        if not path.exists():
            raise Failed(f"{path} does not exist; build it first: cmake --preset release && cmake --build --preset release")
        return str(path)

    def output(self, command, **kwargs):
        result = subprocess.run([str(c) for c in command], cwd=SOURCE, capture_output=True, text=True, **kwargs)
        if result.returncode != 0:
            raise Failed(f"{' '.join(map(str, command))} ended with {result.returncode}: {result.stderr.strip()}")
        return result

    def timed(self, command):
        """Wall ms, processor ms and peak bytes of a fresh process."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            start = time.perf_counter()
            process = subprocess.Popen([str(c) for c in command], cwd=SOURCE, stdout=out, stderr=err)
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - start
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode != 0:
                err.seek(0)
                raise Failed(f"{' '.join(map(str, command))} ended with {process.returncode}: {err.read().decode()}")
        return 1e3 * wall, 1e3 * (usage.ru_utime + usage.ru_stime), 1024 * usage.ru_maxrss

    def corpus_hlo(self):
        return sorted(map(str, self.corpus.glob("hlo/train_*/*.hlo"))) if self.corpus and not self.quick else []

    def corpus_profiles(self):
        if not self.corpus or self.quick:
            return []
        return sorted(str(p) for p in self.corpus.glob("profiles/**/*.txt") if "LICENSE" not in p.name)

    def models_sentence(self):
        text = f"{len(self.training)} training models of `fixtures/`"
        if self.corpus_hlo() or self.corpus_profiles():
            text += (f", {len(self.corpus_hlo())} training steps and {len(self.corpus_profiles())} profiles of others that do "
                     "not ship with the project (`$AUTOMAP_CORPUS`)")
        return text

    def anonymous(self, text):
        return text.replace(str(self.corpus), "$AUTOMAP_CORPUS") if self.corpus else text

    # Sections: each gives Markdown

    def parsing(self):
        paths = [self.fixtures[name] for name in (self.training if self.quick else self.fixtures)] + self.corpus_hlo()
        repeat = 2 if self.quick else 15
        rows = []
        result = self.output([self.program("bench-hlo_parse"), "--tsv", "--repeat", repeat, *paths])
        for line in result.stdout.splitlines():
            path, size, instructions, first, best, peak = line.split("\t")
            rows.append([short(path), f"{float(size) / 1e6:.2f}", instructions, f"{float(first):.2f}", f"{float(best):.2f}",
                         f"{float(size) / 1e3 / float(best):.0f}", f"{float(peak):.1f}"])
        columns = ["file", "MB", "instructions", "first ms", "best ms", "best MB/s", "peak/text"]
        text = [
            "Text in memory to graph on one core; *first* in a fresh process, *best* of the repeats after it, peak memory over "
            "the size of the text (the text included).", table(columns, rows)]
        text.append("Beside XLA's own text parser (jaxlib): the same files, one core, alternately in one run, best of each round, "
                    "medians over the rounds; *ratio* is XLA's time over ours, *first* that over our first parse in a fresh process.")
        skipped = None
        if not self.jax_python:
            skipped = "no Python with jaxlib was given (--jax-python or AUTOMAP_JAX_PYTHON)"
        else:
            rounds = ["--rounds", 1, "--repeat", 1] if self.quick else []
            result = self.output([self.jax_python, "bench/hlo_parse_xla.py", "--bench", self.program("bench-hlo_parse"), *rounds,
                                  *paths])
            lines = result.stdout.splitlines()
            if lines:
                # The first column is 44 wide and holds the end of the path: the name is enough here.
                is_row = [line.startswith("file ") or "/" in line[:44] and len(line) > 44 for line in lines]
                text.append(block("\n".join(f"{short(line[:44].strip()):<28}{line[44:]}" if row else line
                                            for line, row in zip(lines, is_row))))
            else:
                skipped = result.stderr.strip()
        if skipped:
            progress(f"SKIPPED: the comparison with XLA's parser: {skipped}")
            text.append(f"*Not measured: {skipped}.*")
        return text

    def end_to_end(self):
        model = self.training[0] if self.quick else END_TO_END_MODEL
        path, infer = self.fixtures[model], self.program("automap-infer")
        runs = 1 if self.quick else 7
        rest = ["--cluster", "config-c", "--micro-batches", MICRO_BATCHES]
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            profile = Path(folder) / f"{model}.profile.h5"
            cases = [(f"automap-profile {model}.hlo.gz", [self.program("automap-profile"), path, "-o", profile])]
            for source, shown in ((path, f"{model}.hlo.gz"), (profile, f"{model}.profile.h5")):
                for options in ("--planner auto", "--planner exact", "--planner policy", "--planner policy --stages 4"):
                    cases.append((f"automap-infer {shown} {options}", [infer, source, *rest, *options.split()]))
            for shown, command in cases:
                if command[-2:] == ["-o", profile]:
                    samples = []
                    for _ in range(runs):
                        profile.unlink(missing_ok=True)
                        samples.append(self.timed(command))
                else:
                    samples = [self.timed(command) for _ in range(runs)]
                wall, processor, peak = zip(*samples)
                rows.append([shown, median_and_range(wall), significant(statistics.median(processor)),
                             significant(max(peak) / 1e6)])
        return [
            f"Whole commands in fresh processes, from gzipped HLO ({MICRO_BATCHES} micro-batches on config-c, default "
            f"effort) and from the profile made of it; {runs} run{'s' if runs > 1 else ''}: median (shortest .. longest).",
            table(["command", "wall ms", "processor ms", "peak MB"], rows)]

    def exact(self):
        result = self.output([self.program("bench-exact"), *((1, 8) if self.quick else (20, 64))])
        return [
            "The exact solver on random problems (`common/pipeline/random_problem.h`): 2 000 instructions, servers of 8 devices, "
            "16 micro-batches, one core; *fractional* replicas with the schedule `1f1b`, *whole* ones with `adaptive` and four variants of every stage. *pivots* 128 is the grid, 2000 every instruction; `2..16` all stage counts "
            "in one call. *proven*: how many were solved to the end (limit 60 s each).", block(result.stdout)]

    def accuracy(self):
        result = self.output([self.program("bench-value_accuracy"), "--problems", 1 if self.quick else 60])
        sample = re.compile(r"([+-]?[\d.]+) +\( *([+-]?[\d.]+), *([+-]?[\d.]+)\)|(?<= )-(?= |$)")
        rows = []
        for line in result.stdout.splitlines():
            start = re.match(r"(yes|no) +(\S+) +(\d+) +", line)
            if start:
                found = [f"{m[1]} ({m[2]}, {m[3]})" if m[1] else "-" for m in sample.finditer(line, start.end() - 1)]
                rows.append([*start.groups(), *found])
        if not rows or any(len(row) != 7 for row in rows):
            raise Failed("bench-value_accuracy printed another table than this script knows:\n" + result.stdout)
        columns = ["all-reduce", "schedule", "S", "V-optimal plan", "balanced plan", "random plans", "regret"]
        return [
            "V over the event simulation − 1 in %: mean (5th, 95th percentile) over random problems on 4 servers of 8 devices; *regret*: "
            "how much longer the V-optimal plan simulates than the best plan known (docs/cost-model.md explains the suite).",
            table(columns, rows, left=2)]

    def gaps(self):
        """Every planner alone and all together, on the question that automap-infer asks of each model and cluster."""
        models = [self.fixtures[name] for name in self.training] + self.corpus_hlo() + self.corpus_profiles()
        text = [
            f"`automap-infer --planner-table --effort quick` on {self.models_sentence()}, on {', '.join(CLUSTERS)}, with {MICRO_BATCHES} "
            "micro-batches. Median / 90th percentile / largest, in %. *V*: over the least V there is where it was proven, else over a lower "
            "bound (*proven* counts the former). *Simulated*: over the shortest of all rows and of `auto`, which judges by it. *ms*: median "
            "of the planner alone."]
        for stages in ("auto", "4"):
            found, cases, proven, none = {}, 0, 0, 0
            certificates = {"value": [], "simulated": []}
            for model in models:
                for cluster in CLUSTERS[:1] if self.quick else CLUSTERS:
                    plan = self.plan_under(model, cluster, "adaptive", stages, "--micro-batches", MICRO_BATCHES, "--planner-table")
                    if not plan:
                        none += 1
                        continue
                    cases += 1
                    proven += plan["planner_table"]["reference_method"].startswith("exact")
                    certificates["value"].append(plan["step_ms"] / plan["bounds"]["value"] - 1)
                    certificates["simulated"].append(plan["simulated_step_ms"] / plan["bounds"]["simulated"] - 1)
                    rows = plan["planner_table"]["rows"] + [{**plan, "planner": "auto"}]
                    rows = [row for row in rows if row.get("simulated_step_ms")]
                    shortest = min(row["simulated_step_ms"] for row in rows)
                    for row in rows:
                        value = row["step_ms"] / plan["planner_table"]["reference_ms"] - 1
                        found.setdefault(row["planner"], []).append(
                            (value, row["simulated_step_ms"] / shortest - 1, row["planning_ms"]))
            lines = [[name, len(of), percentiles([v for v, _, _ in of]), percentiles([s for _, s, _ in of]),
                      significant(statistics.median(ms for _, _, ms in of))] for name, of in found.items()]
            text.append(f"### {'Chosen stages' if stages == 'auto' else f'{stages} stages'}")
            text.append(f"{cases} questions, the least V proven in {proven}; no plan in {none} more. Certificates of `auto` as printed: V at most "
                        f"{percentiles(certificates['value'])} % above the least, the simulated step at most "
                        f"{percentiles(certificates['simulated'])} %.")
            text.append(table(["planner", "plans", "V", "simulated", "ms"], lines))
        return text

    def schedules(self):
        """The chosen warm-up beside the fixed ones: the same question under each schedule."""
        models = [self.fixtures[name] for name in self.training] + self.corpus_hlo() + self.corpus_profiles()
        text = [
            f"The plan of `automap-infer --effort quick` under each schedule, on {self.models_sentence()}, with the batch that it takes by "
            "itself. *1f1b*, *1f1b-overlap*: how much longer their best plans simulate than that of `adaptive`. *V*: V over the simulated "
            "step − 1 of the adaptive plan. *ΣK*: micro-batches in flight over all stages; *GiB*: memory of the fullest device. Models "
            "whose plans have one stage under every schedule are in the means and not in the list."]
        for stages in ("auto", "4"):
            rows, longer, accuracy, alike, none = [], {name: [] for name in SCHEDULES[1:]}, [], 0, 0
            for model in models:
                for cluster in CLUSTERS[:1] if self.quick else CLUSTERS:
                    found = {name: self.plan_under(model, cluster, name, stages) for name in SCHEDULES}
                    if not all(found.values()):
                        none += 1
                        continue
                    steps = {name: plan["simulated_step_ms"] for name, plan in found.items()}
                    for name in longer:
                        longer[name].append(steps[name] / steps["adaptive"] - 1)
                    best = found["adaptive"]
                    accuracy.append(best["step_ms"] / best["simulated_step_ms"] - 1)
                    if all(len(plan["groups"]) == 1 for plan in found.values()):
                        alike += 1
                        continue
                    rows.append([short(model), cluster, f"{steps['adaptive']:.4g}", *(f"{100 * longer[name][-1]:+.1f}" for name in longer),
                                 f"{100 * accuracy[-1]:+.1f}",
                                 *("/".join(str(sum(found[name]["schedule"]["in_flight"])) for name in SCHEDULES),
                                   "/".join(f"{max(s['memory_bytes'] for s in found[name]['groups']) / 2 ** 30:.1f}" for name in SCHEDULES),
                                   "/".join(str(len(found[name]["groups"])) for name in SCHEDULES))])
            text.append(f"### {'Chosen stages' if stages == 'auto' else f'{stages} stages'}")
            if accuracy:
                means = "; ".join(f"`{name}` {100 * statistics.mean(values):+.1f} % on average ({100 * min(values):+.1f} .. "
                                  f"{100 * max(values):+.1f})" for name, values in longer.items())
                distance = [abs(value) for value in accuracy]
                text.append(f"{len(accuracy)} plans, {alike} of them with one stage under every schedule; {none} more have no plan under at "
                            f"least one schedule. Longer than `adaptive`: {means}. V from the simulation: {100 * statistics.mean(distance):.2f} % "
                            f"on average, {100 * max(distance):.1f} % at most.")
            text.append(table(["model", "cluster", "adaptive ms", "1f1b %", "overlap %", "V %", "ΣK a/1/o", "GiB a/1/o", "stages a/1/o"], rows,
                              left=2))
        return text

    def plan_under(self, model, cluster, schedule, stages, *options):
        command = [self.program("automap-infer"), model, "--cluster", cluster, "--schedule", schedule, "--stages", stages, "--effort",
                   "quick", "--json", *options]
        result = subprocess.run([str(c) for c in command], cwd=SOURCE, capture_output=True, text=True)
        return json.loads(result.stdout) if result.returncode == 0 else None

    def plans(self):
        lines = []
        for model in self.training if self.quick else SHOWN_MODELS:
            for cluster in CLUSTERS:
                command = [self.program("automap-infer"), self.fixtures[model], "--cluster", cluster, "--micro-batches", MICRO_BATCHES,
                           "--json"]
                result = subprocess.run([str(c) for c in command], cwd=SOURCE, capture_output=True, text=True)
                document = json.loads(result.stdout)
                if result.returncode != 0:
                    lines.append(f"{model} on {cluster}: {document['error']['message']}")
                    continue
                lines += self.plan_lines(model, cluster, document)
        return [
            "The plan of `automap-infer` (planner auto, stages auto) for each model of the paper and two more. Devices per stage, and the "
            "layer each stage ends in; then the best plan that cuts between whole layers only. `docs/models.md` says why they look so.",
            block("\n".join(lines))]

    @staticmethod
    def plan_lines(model, cluster, document):
        def devices(cuts):
            borders = [0, *cuts, document["devices"]]
            return " ".join(str(b - a) for a, b in zip(borders, borders[1:]))

        stages = document["parts"]
        simulated = document["simulated_step_ms"]
        lines = [f"{model} on {cluster}: {significant(simulated)} ms simulated, {len(stages)} stage{'s' if len(stages) > 1 else ''}, devices "
                 f"{' '.join(str(len(group['devices'])) for group in document['groups'])}"]
        if len(stages) > 1:
            # encoder/layer/3, encoder/layer/9, loss -> encoder/layer 3 9, loss
            groups = []
            for stage in stages:
                number = re.search(r"[/_]?(\d+)(?=/|$)", stage["last_layer"])
                stack = stage["last_layer"][:number.start()] if number else stage["last_layer"]
                if not groups or groups[-1][0] != stack or not number:
                    groups.append((stack, []))
                groups[-1][1].extend([number[1]] if number else [])
            lines.append("  ends in " + ", ".join(" ".join([stack, *numbers]) for stack, numbers in groups))
        split = document.get("layer_split")
        if split and len(stages) > 1:
            longer = split["simulated_step_ms"] / simulated - 1
            whole = f"  at whole layers {100 * longer:+.1f} %: {len(split['split_before']) + 1} stages"
            if "device_cuts" in split:
                whole += f", devices {devices(split['device_cuts'])}"
            stacks = "; ".join(f"{stack} {' '.join(map(str, counts))}" for stack, counts in split["layers_per_stage"].items())
            lines.append(whole + (f"; {stacks}" if stacks and len(stacks) < 70 else ""))
        return lines

    SECTIONS = (("parsing", "HLO text to graph"), ("end-to-end", "From the command line to the plan"),
                ("exact", "The exact solver"), ("accuracy", "V and the simulation"), ("gaps", "How good the planners are"),
                ("schedules", "Schedules"), ("plans", "Plans of the paper's models"))

    def page(self, only):
        version = self.output([self.program("automap-infer"), "--version"]).stdout.splitlines()[0]
        cpu = "unknown processor"
        memory = ""
        try:
            cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), flags=re.M)[1]
            kilobytes = int(re.search(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(), flags=re.M)[1])
            memory = f", {kilobytes / 2 ** 20:.0f} GiB"
        except (OSError, TypeError):
            pass
        text = ["# Results",
                "Generated by `scripts/measure_results.py`" + (" --quick (a smoke test: these figures mean nothing)" if self.quick else "")
                + "; do not edit.",
                f"{datetime.date.today().isoformat()}, {version}. Machine: {cpu}, {os.cpu_count()} cores{memory}, {platform.system()} "
                f"{platform.machine()}. Times on a shared machine depend on what else runs: look at the load averages, and at ratios "
                "within one table rather than at times."]
        for name, title in self.SECTIONS:
            if only and name not in only:
                continue
            progress(f"{title} ...")
            start = time.monotonic()
            load = load_line()
            text += [f"## {title}", load, *getattr(self, name.replace("-", "_"))()]
            progress(f"  {time.monotonic() - start:.0f} s")
        return "\n\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=SOURCE / "build" / "release", help="a Release build (default: build/release)")
    parser.add_argument("--jax-python", default=os.environ.get("AUTOMAP_JAX_PYTHON"),
                        help="a Python that has jaxlib (default: $AUTOMAP_JAX_PYTHON)")
    parser.add_argument("--corpus", default=os.environ.get("AUTOMAP_CORPUS"), help="more models (default: $AUTOMAP_CORPUS)")
    parser.add_argument("--quick", action="store_true", help="a smoke test: few models, few repeats")
    parser.add_argument("--only", action="append", choices=[name for name, _ in Measure.SECTIONS], help="only this section (repeatable)")
    parser.add_argument("-o", "--output", help="- is standard output (default: docs/results/plans.md; with --quick or --only: -)")
    args = parser.parse_args()
    output = args.output or ("-" if args.quick or args.only else str(SOURCE / "docs" / "results" / "plans.md"))
    try:
        page = Measure(args).page(args.only)
    except Failed as error:
        print(f"measure_results.py: {error}", file=sys.stderr)
        return 1
    if output == "-":
        sys.stdout.write(page)
        return 0
    # A page is there in whole or not at all.
    beside = Path(output).with_name(Path(output).name + ".part")
    beside.write_text(page, encoding="utf-8")
    beside.replace(output)
    progress(f"wrote {output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
