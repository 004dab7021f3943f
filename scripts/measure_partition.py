#!/usr/bin/env python3
"""Measures operator and data partitioning (automap-search) and writes docs/results/partition.md. About ten minutes.

Examples:
  cmake --build --preset release && scripts/measure_partition.py
  scripts/measure_partition.py --jax-python .venv/bin/python     # and what XLA's partitioner says (pip install jax)
  scripts/measure_partition.py --only algorithms --seeds 10      # one section, to standard output
  scripts/measure_partition.py --quick                           # a smoke test; the page goes to standard output

Runs automap-search on the training models of fixtures/, and the benchmarks bench-propagation, bench-partition_env and
bench-learner_partition. Needs Python's standard library and a Release build with benches; the learned search, LibTorch.
"""

import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import policy_report as report
from policy_report import Failed, SOURCE, block, progress, table

SHARDS = 8
CLUSTERS = ("config-a", "h100-1x8")
# Where algorithms are compared.
ALGORITHM_MODELS = ("t5_6_6", "t5_24_24", "vgg19", "resnet50", "gpt2")
SHIPPED_POLICY = "models/pretrained/partition.policy"
XLA_MODELS = ("t5_6_6", "vgg19", "gpt2", "transformer_bf16", "transformer_remat", "scan_remat", "grouped_query", "lit_small", "moe_small",
              "moe_dense", "moe_sort", "set_prediction", "mamba", "unet", "vit_forward")
DEPTHS = (6, 12, 24, 48, 96, 192)
# The paper: variables split of all, hours of its first and second stage; data inputs split, seconds.
PAPER_OPP = {"t5_6_6": (111, 188, "0.5 h"), "t5_24_24": (432, 728, "0.94 h (3B), 1.45 h (11B)"), "vgg19": (5, 38, "30 s")}
PAPER_ADP = {"t5_6_6": ("7 of 10 on dimension 0", "0.27 h"), "vgg19": ("2 on dimension 0", "70 s")}
# The decisions of the paper's tables 3 and 4, as patterns of names. The fc2 bias is printed as split there, against the
# table's own rule and the count of 5.
PAPER_PLANS = {
    "t5": (("*/(q|k|v)/kernel", r"/[qkv]/kernel$", 1), ("*/o/kernel", r"/o/kernel$", 0), ("*/conv1/kernel", r"/conv1/kernel$", 1),
           ("*/conv1/bias", r"/conv1/bias$", 0), ("*/conv2/kernel", r"/conv2/kernel$", 0), ("*/conv2/bias", r"/conv2/bias$", -1),
           ("*/embedding", r"/embedding$", 0), ("*/LayerNorm/*", r"LayerNorm/(scale|bias)$", -1)),
    "vgg": (("fc1/kernel", r"/fc1/kernel$", 1), ("fc1/bias", r"/fc1/bias$", 0), ("fc2/kernel", r"/fc2/kernel$", 0),
            ("fc2/bias", r"/fc2/bias$", -1)),
}
BYTES = {"pred": 1, "s4": 0.5, "u4": 0.5, "s8": 1, "u8": 1, "f16": 2, "bf16": 2, "s16": 2, "u16": 2, "f64": 8, "s64": 8, "u64": 8,
         "c64": 8, "c128": 16}


# A process that starts another one: the peak memory of a child counts what its parent had, which must be little.
STARTER = """
import os, sys, time
start = time.perf_counter()
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(child, 0)
with open(sys.argv[1], "w") as figures:
    print(1e3 * (time.perf_counter() - start), 1e3 * (usage.ru_utime + usage.ru_stime), 1024 * usage.ru_maxrss, file=figures)
sys.exit(os.waitstatus_to_exitcode(status) & 255)
"""


def significant(value):
    """Three significant digits and no exponents: 0.0123, 4.56, 1234."""
    if value == 0:
        return "0"
    digits = 0
    while digits < 8 and abs(value) < 99.95 / 10 ** digits:
        digits += 1
    return f"{value:.{digits}f}"


def ms(value):
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}" if value >= 0.0995 else f"{value:.3f}"


def human(count):
    """Bytes with a unit."""
    for unit in ("B", "KiB", "MiB"):
        if count < 999.5:
            return f"{significant(count)} {unit}"
        count /= 1024
    return f"{significant(count)} GiB"


def path_of(name):
    """params['a'][0]['b'] -> params/a/0/b"""
    return re.sub(r"\[['\"]?([^\]'\"]*)['\"]?\]", r"/\1", name)


def bytes_of(shape):
    """f32[2,3] -> 24"""
    kind, dims = re.match(r"(\w+)\[([\d,]*)\]", shape).groups()
    count = 1
    for dim in filter(None, dims.split(",")):
        count *= int(dim)
    return count * BYTES.get(kind, 4)


class Measure:
    def __init__(self, args):
        self.args = args
        self.quick = args.quick
        self.build = args.build.resolve()
        self.runs = 1 if self.quick else 5
        models = report.read_json(SOURCE / "fixtures" / "MANIFEST.json")["models"]
        self.fixtures = {m["name"]: f"fixtures/{m['forms']['text']['file']}" for m in models}
        self.training = [m["name"] for m in models if m["kind"] == "train"]
        if self.quick:
            size = {m["name"]: m["forms"]["text"]["bytes"] for m in models}
            self.training = sorted(self.training, key=size.get)[:2]
        self.plans = {}

    # Running programs

    def timed(self, command):
        """(standard output, wall ms, processor ms, peak bytes) of a fresh process; None where it says that nothing fits."""
        with tempfile.TemporaryDirectory() as folder:
            figures, out = Path(folder) / "figures", Path(folder) / "out"
            with open(out, "wb") as stdout:
                done = subprocess.run([sys.executable, "-I", "-S", "-c", STARTER, str(figures), *map(str, command)], cwd=SOURCE,
                                      stdout=stdout, stderr=subprocess.PIPE)
            if done.returncode == 4:
                return None
            if done.returncode != 0:
                raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}: {done.stderr.decode().strip()}")
            return (out.read_text(), *map(float, figures.read_text().split()))

    def plan(self, command, path, options=(), runs=1):
        """The plan, with the medians of the process's times and its peak memory; None: nothing fits. Run once per call."""
        key = (command, str(path), tuple(map(str, options)))
        if key not in self.plans:
            words = [report.program(self.build, "automap-search"), command, path, *([] if "--shards" in options else ["--shards", SHARDS]),
                     *options, "--json", "--quiet"]
            samples = [self.timed(words) for _ in range(runs)]
            if samples[0] is None:
                self.plans[key] = None
            else:
                plan = json.loads(samples[0][0])
                # What is measured is the search: its own estimate, not what the plan is counted to take.
                plan.update(plan["estimate"])
                # The same search every time: only its time differs.
                for sample in samples[1:]:
                    for a, b in zip(plan["alternatives"], json.loads(sample[0])["alternatives"]):
                        a.setdefault("samples_ms", [a["planning_ms"]]).append(b["planning_ms"])
                plan["process"] = {"wall_ms": statistics.median(s[1] for s in samples),
                                   "cpu_ms": statistics.median(s[2] for s in samples), "peak_bytes": max(s[3] for s in samples)}
                self.plans[key] = plan
        return self.plans[key]

    def bench(self, name, *options):
        return self.timed([report.program(self.build, name), *options])[0]

    @staticmethod
    def alternative(plan, planner):
        return next((a for a in plan["alternatives"] if a["planner"] == planner), None)

    @staticmethod
    def moved_bytes(plan):
        """Of all collectives where partial sums are reduced at once, as the step's estimate counts them."""
        own = next((a for a in plan["alternatives"] if abs(a["step_ms"] - plan["step_ms"]) <= 1e-9 * plan["step_ms"]), None)
        return own["collective_bytes"] if own else plan["all_reduce_bytes"] + plan["all_gather_bytes"]

    # Sections: each gives Markdown

    @staticmethod
    def verdict(plan):
        if plan["proven"]:
            return "proven"
        return f"at most {plan['bound']:.4g}" if plan["bound"] is not None else "no bound"

    def opp(self):
        text = [
            f"`automap-search opp MODEL --shards {SHARDS}`, by `count` (as many variables as possible, the paper's objective) and by "
            "`time` (the least estimated step under the devices' memory; `count` is not held to it), without cutting linkage groups "
            "(*uncut*, `--reshard off`) and with cuts where they pay. *gathers*: all-gathers of the cuts. *unsplit*: nothing split; *data "
            "parallel*: the batch split instead, on the same estimate (- where the devices do not divide it). *sums*: partial sums, which "
            "XLA reduces where they arise; *carried*: all-reduces if they are carried through linear instructions first. *bytes*: of "
            "the former per step, each tensor once. *memory*: per device. *wall, CPU, peak*: the whole process, from gzipped HLO text to "
            f"plan, median and largest of {self.runs}."]
        for cluster in CLUSTERS:
            rows = []
            for model in self.training:
                for objective, name, options in (("count", "count", []), ("time", "uncut", ["--reshard", "off"]), ("time", "time", [])):
                    plan = self.plan("opp", self.fixtures[model], ["--objective", objective, "--cluster", cluster, *options], self.runs)
                    if plan is None:
                        rows.append([model, name, "nothing fits", *[""] * 13])
                        continue
                    data = self.alternative(plan, "data parallel")
                    process = plan["process"]
                    rows.append([model, name, plan["partitioned"], len(plan["partition"]), self.verdict(plan), ms(plan["step_ms"]),
                                 ms(plan["replicated_step_ms"]), ms(data["step_ms"]) if data else "-", plan["partial_sums"],
                                 plan["all_reduces"], plan["all_gathers"], human(self.moved_bytes(plan)), human(plan["memory_bytes"]),
                                 ms(process["wall_ms"]), ms(process["cpu_ms"]),
                                 ms(process["peak_bytes"] / 1e6)])
            columns = ["model", "objective", "split", "of", "best?", "step ms", "unsplit", "data parallel", "sums", "carried", "gathers", "bytes",
                       "memory", "wall ms", "CPU ms", "peak MB"]
            text += [f"### {cluster}", table(columns, rows, left=2)]
        return text

    def paper(self):
        models = [m for m in PAPER_OPP if m in self.training] or self.training[:1]
        rows, plans, plans_of = [], [], []
        for model in models:
            count, fast = (self.plan("opp", self.fixtures[model], ["--objective", objective, "--cluster", "config-a"], self.runs)
                           for objective in ("count", "time"))
            if count is None or fast is None:
                continue
            plans_of.append((model, count, fast))
            split, of, took = PAPER_OPP.get(model, ("-", "-", "-"))
            for plan in (count, fast):
                rows.append([model, split, of, took, plan["objective"], plan["partitioned"], len(plan["partition"]),
                             f"{plan['process']['cpu_ms'] / 1e3:.2f} s", plan["partial_sums"], human(self.moved_bytes(plan)),
                             human(plan["memory_bytes"]), ms(plan["step_ms"]), ms(plan["replicated_step_ms"])])
            for kind, rules in PAPER_PLANS.items():
                if not model.startswith(kind):
                    continue
                for shown, pattern, dim in rules:
                    found = [d for name, d in fast["partition"].items() if re.search(pattern, path_of(name))]
                    same = sum(d == dim for d in found)
                    others = sorted({d for d in found if d != dim})
                    plans.append([model, shown, dim, len(found), same, ", ".join(map(str, others)) or "-"])
        text = [
            "Variables split over 8 devices of config-a: the paper's figures, and ours by both objectives. Its times are of learning on "
            "the module (for 24+24 both stages of its T5-3B and T5-11B); ours processor time from file to plan.",
            table(["model", "paper", "of", "took", "ours by", "split", "of", "took", "partial sums", "bytes", "memory", "step ms", "unsplit"], rows)]
        if "t5_6_6" in models:
            text.append(
                "The T5 of `fixtures/` has the paper's 188 variables, but not quite its variables: two embeddings, and a softmax matrix of "
                "its own with a bias, instead of one tied embedding and two tables of relative positions. So the paper's plan, Megatron's "
                "(heads, inner widths, vocabularies), splits 112 here instead of 111, and as many as possible are 175: the model dimension. "
                "111 is not the maximum of the objective that the paper names. It is the better plan, and `time` finds it.")
        costs = []
        for model, count, fast in plans_of:
            ratio = self.moved_bytes(count) / max(self.moved_bytes(fast), 1)
            if count["partitioned"] > fast["partitioned"] > 0:
                costs.append(f"{model} {count['partitioned'] - fast['partitioned']} variables more for {ratio:.1f} times the bytes and "
                             f"{count['step_ms'] / fast['step_ms']:.1f} times the step")
        if costs:
            text.append("What `count` costs beside `time`: " + "; ".join(costs) + ".")
        if plans:
            text += ["The decisions of its tables 3 and 4 beside those of `time`, which was told none of them (dimension, -1: whole; "
                     "*same*: how many of our variables of that name are decided alike):",
                     table(["model", "variable", "paper", "ours", "same", "else"], plans, left=2)]
        return text

    def algorithms(self):
        models = self.training[:1] if self.quick else [m for m in ALGORITHM_MODELS if m in self.training]
        learned = (self.build / "libautomap_learned.so").exists()
        seeds = range(1, (1 if self.quick else self.args.seeds) + 1)
        text = [
            "Values: variables split (count), or ms saved per step (time), on config-a without a memory limit (`--memory off`). *gap*: to "
            "the optimum that `enumerate` proves, in %. *ms*: wall time of the search alone, without reading the model. `greedy`: by the "
            "size of the linkage groups as the paper orders them, *first stage*, and the better of that and by worth after its second "
            f"stage. `rainbow`: {len(seeds)} seed{'s' if len(seeds) > 1 else ''}, from random weights and from the shipped policy: worst "
            "and best gap, medians of the time and episode of its best answer, and of all. It stops where the common bound is reached, "
            "so it need not prove anything by itself; LibTorch's start, 0.4 s, is not counted."]
        rows = []
        for model in models:
            for objective in ("count", "time"):
                def answer(algorithm, *options):
                    plan = self.plan("opp", self.fixtures[model], ["--objective", objective, "--cluster", "config-a", "--memory", "off",
                                                                   "--algorithm", algorithm, *options],
                                     1 if algorithm == "rainbow" else self.runs)
                    found = self.alternative(plan, algorithm)
                    statistic = found.get("statistics", {})
                    saved = plan["replicated_step_ms"] - found["step_ms"]
                    value = found["partitioned"] if objective == "count" else saved
                    took = statistics.median(found.get("samples_ms", [found["planning_ms"]]))
                    return value, took, found["proven"], statistic

                best, best_ms, proven, statistic = answer("enumerate")

                def gap(value):
                    return "0" if abs(best - value) <= 1e-9 * abs(best) else f"{100 * (1 - value / best):.2f}" if best else "-"

                def shown(value):
                    return f"{value:.0f}" if objective == "count" else ms(value)

                head = [model, objective]
                value, took, _, greedy = answer("greedy")
                first = greedy.get("first_stage_value")
                if first is None and objective == "count":
                    first = greedy.get("first_stage_variables")
                if first is not None:
                    rows.append([*head, "greedy, first stage", shown(first), gap(first), "", "", "", ""])
                rows.append([*head, "greedy", shown(value), gap(value), significant(took), "", "", ""])
                value, took, _, _ = answer("cost", "--effort", "quick")
                rows.append([*head, "cost", shown(value), gap(value), significant(took), "", "", ""])
                rows.append([*head, "enumerate", shown(best) + (" proven" if proven else ""), "0" if proven else "-", significant(best_ms), "",
                             "", ""])
                if not learned:
                    continue
                for name, options in (("rainbow", []), ("rainbow from the policy", ["--policy", SHIPPED_POLICY])):
                    if options and not (SOURCE / SHIPPED_POLICY).exists():
                        continue
                    found = [answer("rainbow", "--seed", seed, *options) for seed in seeds]
                    values = [f[0] for f in found]
                    middle = lambda pick: statistics.median(pick(f) for f in found)
                    rows.append([*head, name, shown(statistics.median(values)), f"{gap(min(values))} .. {gap(max(values))}",
                                 significant(middle(lambda f: f[1])), f"{middle(lambda f: f[3].get('episodes', 0)):.0f}",
                                 significant(middle(lambda f: 1e3 * f[3].get("best_seconds", 0))),
                                 f"{middle(lambda f: f[3].get('best_episode', 0)):.0f}"])
        text.append(table(["model", "by", "algorithm", "value", "gap %", "ms", "episodes", "best after ms", "at episode"], rows, left=3))
        if not learned:
            progress("SKIPPED: the learned search: this build has no LibTorch")
            text.append("*Not measured: `rainbow`, because this build has no LibTorch.*")
        elif not self.quick:
            text += ["### Problems harder than any model",
                     "`bench-learner_partition` on random problems (`tests/models/random_partition_problem.h`): processor time, rainbow from "
                     "random weights with three seeds, the right half of the one with the median time; 20 s of wall time each at most (what is "
                     "not proven was ended by that). *after*: wall time.", block(self.random_problems())]
        return text

    def random_problems(self):
        lines = self.bench("bench-learner_partition").splitlines()
        at = next((i for i, line in enumerate(lines) if line.startswith("module")), None)
        rows = [line for line in lines if line.startswith("random ")]
        if at is None or not rows:
            raise Failed("bench-learner_partition printed another table than this script knows:\n" + "\n".join(lines))
        return "\n".join([lines[at], lines[at + 1], *rows])

    def adp_plan(self, model, shards):
        return self.plan("adp", self.fixtures[model], ["--shards", shards, "--cluster", "config-a", "--objective", "count"], self.runs)

    def adp(self):
        rows, notes = [], []
        for model in self.training:
            shards = SHARDS
            plan = self.adp_plan(model, shards)
            # A batch that the devices do not divide: also on as many as do.
            while plan["partitioned"] == 0 and shards > 2:
                if shards == SHARDS:
                    notes += [f"- {model}: {warning}" for warning in plan["warnings"] if "split" in warning]
                shards //= 2
                plan = self.adp_plan(model, shards)
            variables = [i for i in plan["inputs"] if i["role"] == "variable"]
            sizes = sum(bytes_of(i["shape"]) for i in variables)
            split = [d for d in plan["partition"].values() if d >= 0]
            dims = ", ".join(map(str, sorted(set(split)))) or "-"
            reduced = sum(c["bytes"] * c["times"] for c in plan["collectives"] if c["kind"] == "all-reduce")
            paper = PAPER_ADP.get(model, ("", ""))
            rows.append([model, shards, f"{len(split)} of {len(plan['partition'])}", dims, plan["all_gathers"],
                         human(plan["all_gather_bytes"]) if plan["all_gathers"] else "-",
                         plan["partial_sums"], len(variables), human(reduced) if plan["partial_sums"] else "-", human(sizes),
                         ms(plan["step_ms"]), ms(plan["replicated_step_ms"]), ms(plan["process"]["wall_ms"]),
                         ms(plan["process"]["cpu_ms"]), *paper])
        text = [
            f"`automap-search adp MODEL --shards {SHARDS}` on config-a: the batch split, over fewer devices where {SHARDS} do not "
            "divide it. *gathers*: tensors of the batch that have to be put together again, and their bytes. *sums*: partial sums, beside the number of trained *variables*, each of which has a gradient "
            "to be reduced; the rest are losses and statistics. *reduced*: bytes of the all-reduces per step, beside the variables' "
            "size (gradients may be narrower than variables). *wall, CPU*: from gzipped HLO text to plan. The paper's "
            "figures: T5-base and VGG-19, learned in 70 s to 16 min.",
            table(["model", "devices", "split", "dimension", "gathers", "gathered", "sums", "variables", "reduced", "variables' size",
                   "step ms", "unsplit", "wall ms", "CPU ms", "paper", "took"], rows)]
        if notes:
            text.append("Not split over 8, and measured on fewer:\n\n" + "\n".join(notes))
        return text

    def speed(self):
        models = ["t5_6_6", "t5_24_24", "bert_large", "bert48"]
        paths = [self.fixtures[m] for m in (self.training[:1] if self.quick else models)]
        printed = self.bench("bench-propagation", *paths)
        steps = self.bench("bench-partition_env", *([self.fixtures[self.training[0]]] if self.quick else []))
        rows = self.bench_rows(printed, "module")
        environment = self.bench_rows(steps, "module")
        text = [
            "`bench-propagation`, processor time of one thread. *full decision*: every group decided and every tensor's state read; *set, "
            "undo*: one dimension of one input split, which is all there is to propagating it, and undone, median and 99 % over all of "
            "them; *and read*: all states of its group read in between.", block(printed)]
        text += ["`bench-partition_env`, steps of the environment per second of processor time; *with features*: what the network sees "
                 "computed for both actions before each.", block(re.sub(r"^load of the machine.*\n+", "", steps))]
        text += [f"### By depth, the whole command", self.depths()]
        largest = self.plan("opp", self.fixtures[self.training[0] if self.quick else "t5_24_24"], ["--objective", "time", "--cluster",
                                                                                                "config-a"], self.runs)
        asked = rows.get("96 layers")
        goals = [["propagation of a full decision, 10 000 instructions", "< 5 ms", f"{asked['full decision ms']} ms (96 layers)"],
                 ["set, propagate, undo of one variable, median", "< 50 us", f"{asked['set, undo us']} us (96 layers)"]]
        name = self.training[0] if self.quick else "t5_6_6"
        if f"{name} count" in environment:
            goals.append([f"environment steps per second, {name}", ">= 20 000", environment[f"{name} count"]["with features"] +
                          " with features"])
        name = "t5_24_24.hlo.gz"
        if name in rows:
            goals.append(["linkage groups of 24+24", "< 1 s", f"{rows[name]['of it linkage ms']} ms"])
        for model, limit in (("t5_6_6", "< 2 s"), ("t5_24_24", "< 10 s")):
            if model in self.training:
                process = self.plan("opp", self.fixtures[model], ["--objective", "time", "--cluster", "config-a"], self.runs)["process"]
                goals.append([f"{model}, from file to plan", limit, f"{process['wall_ms'] / 1e3:.2f} s wall, {process['cpu_ms'] / 1e3:.2f} s "
                              "processor"])
        goals.append(["peak memory of that" if not self.quick else "peak memory", "< 500 MB", f"{largest['process']['peak_bytes'] / 1e6:.0f} MB"])
        return ["Goals:", table(["what", "goal", "measured"], goals, left=3), *text]

    @staticmethod
    def bench_rows(printed, first):
        """Rows of all tables of a benchmark by their first cell: {column: cell}."""
        rows, columns, spans = {}, [], []
        for line in printed.splitlines():
            if re.fullmatch(r"-+(  -+)+", line):
                spans = [m.span() for m in re.finditer(r"-+", line)]
                columns = [header[a:b].strip() for a, b in spans]
            elif not line or not spans or len(line) < spans[-1][0]:
                spans = []
            else:
                cells = [line[a:b].strip() for a, b in spans]
                rows[cells[0]] = dict(zip(columns, cells))
            header = line
        if not rows or columns[:1] != [first]:
            raise Failed("a benchmark printed another table than this script knows:\n" + printed)
        return rows

    def depths(self):
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            for layers in DEPTHS[:2] if self.quick else DEPTHS:
                path = Path(folder) / f"layers_{layers}.hlo"
                path.write_text(self.bench("bench-propagation", "--layers", layers))
                row = [layers, human(path.stat().st_size)]
                for cluster in CLUSTERS:
                    process = self.plan("opp", path, ["--cluster", cluster], self.runs)["process"]
                    row += [ms(process["cpu_ms"]), f"{process['cpu_ms'] / layers:.2f}"]
                rows.append([*row, ms(process["peak_bytes"] / 1e6)])
        columns = ["layers", "HLO"]
        for cluster in CLUSTERS:
            columns += [f"{cluster}, CPU ms", "per layer"]
        return "The same repeated layer through `automap-search opp`, from HLO text to plan:\n\n" + table([*columns, "peak MB"], rows, left=0)

    def xla(self):
        text = ["`bench/check_xla_partition.py`: each plan's annotated module through XLA's SPMD partitioner for 8 host devices (fewer where 8 "
                "do not divide), the collectives that it inserts beside those that the plan predicts, before any are combined."]
        if not self.args.jax_python:
            progress("SKIPPED: XLA's side: no Python with jaxlib was given (--jax-python)")
            return [*text, "*Not measured: no Python with jaxlib was given (--jax-python or AUTOMAP_JAX_PYTHON).*"]
        paths = [self.fixtures[m] for m in (self.training if self.quick else XLA_MODELS)]
        result = subprocess.run([str(c) for c in [self.args.jax_python, "bench/check_xla_partition.py", "--search",
                                                  report.program(self.build, "automap-search"), "--quick", *paths]],
                                cwd=SOURCE, capture_output=True, text=True)
        if result.returncode not in (0, 1):
            raise Failed(f"bench/check_xla_partition.py ended with {result.returncode}: {result.stderr.strip()}")
        if not result.stdout.strip():
            why = result.stderr.strip().removeprefix("SKIPPED: ")
            progress(f"SKIPPED: XLA's side: {why}")
            return [*text, f"*Not measured: {why}.*"]
        return [*text, *self.xla_tables(result.stdout)]

    @staticmethod
    def xla_tables(printed):
        """One row per plan; what is not of the usual form (no answer, nothing split) as it was said."""
        pattern = re.compile(r"(\S+) +(\S+) +(opp:\w+|adp) +(\d+) +(\d+) of +(\d+) split; partial sums +(\d+), +([\d.]+) GB; XLA's "
                             r"all-reduces +(\d+), +([\d.]+) GB[^;]*; missing (\d+), unforeseen (\d+)[^;]*; others ([^;]*)"
                             r"(?:; (\d+) all-gathers announced)?")
        parts = printed.split("\n\n", 1)
        rows, others = [], []
        for line in parts[0].splitlines():
            found = pattern.match(line)
            if not found:
                others.append(line)
                continue
            verdict, model, ask, devices, split, of, sums, sums_gb, xla, xla_gb, missing, unforeseen, else_, announced = found.groups()
            besides = re.sub(r"[{}']", "", else_).replace(": ", " ")
            rows.append([model, ask, devices, f"{split} of {of}", sums, sums_gb, xla, xla_gb, missing, unforeseen, announced or "-",
                         "-" if besides == "none" else besides, verdict])
        text = []
        if rows:
            text.append(table(["model", "plan", "devices", "split", "sums", "GB", "XLA's all-reduces", "GB", "missing", "unforeseen",
                               "gathers announced", "XLA's others", "verdict"], rows, left=2))
        if others:
            text.append(block("\n".join(others)))
        if len(parts) > 1:
            text.append("All of them; *both* is what was predicted and found, agreement that of all that either has.")
            text.append(block(parts[1]))
        return text

    SECTIONS = (("opp", "Operator partitioning"), ("paper", "Beside the paper"), ("algorithms", "Algorithms"),
                ("adp", "Data parallelism"), ("speed", "Propagation and the environment"), ("xla", "What XLA does with the plans"))

    def page(self):
        version = report.run([report.program(self.build, "automap-search"), "--version"]).splitlines()[0].split(": ", 1)[-1]
        for name in ("bench-propagation", "bench-partition_env", "bench-learner_partition"):
            if name != "bench-learner_partition" or (self.build / "libautomap_learned.so").exists():
                report.program(self.build, name)
        text = ["# Operator and data partitioning, measured",
                "Generated by `scripts/measure_partition.py`" + (" --quick (a smoke test: these figures mean nothing)" if self.quick else "") +
                "; do not edit. `docs/search.md` explains the commands, `docs/sharding.md` what partial sums and linkage groups are.",
                f"{datetime.date.today().isoformat()}, {version}. {report.machine_line()} Wall times on a shared machine depend on what else "
                "runs: look at the load averages, and compare within one table. Step times, bytes and memory are estimates and the same on "
                "every machine."]
        for name, title in self.SECTIONS:
            if self.args.only and name not in self.args.only:
                continue
            progress(f"{title} ...")
            start = time.monotonic()
            load = report.load_line()
            text += [f"## {title}", load, *getattr(self, name)()]
            progress(f"  {time.monotonic() - start:.0f} s")
        return "\n\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=SOURCE / "build" / "release", help="a Release build (default: build/release)")
    parser.add_argument("--jax-python", default=os.environ.get("AUTOMAP_JAX_PYTHON"),
                        help="a Python that has jaxlib (default: $AUTOMAP_JAX_PYTHON)")
    parser.add_argument("--seeds", type=int, default=5, help="of the learned search (default: 5)")
    parser.add_argument("--quick", action="store_true", help="a smoke test: the smallest models, one run each")
    parser.add_argument("--only", action="append", choices=[name for name, _ in Measure.SECTIONS], help="only this section (repeatable)")
    parser.add_argument("-o", "--output", help="- is standard output (default: docs/results/partition.md; with --quick or --only: -)")
    args = parser.parse_args()
    if args.seeds < 1:
        parser.error("--seeds must be at least 1")
    output = args.output or ("-" if args.quick or args.only else str(SOURCE / "docs" / "results" / "partition.md"))
    try:
        report.write_page(Measure(args).page(), output)
    except Failed as error:
        print(f"measure_partition.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
