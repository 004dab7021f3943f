#!/usr/bin/env python3
"""Trains the paper's recipe and what was added to it, one part after the other, for the same time each and with several seeds,
and writes what every part is worth to docs/results/ablation.md.

Examples:
  scripts/ablation.py                               # 3 seeds, 120 s each; prints the time it needs before it starts
  scripts/ablation.py --time 60s --seeds 5 --jobs 2 # two runs at once
  scripts/ablation.py --list                        # the recipes and their flags
  scripts/ablation.py --quick                       # a smoke test

Runs are kept in --work (default: BUILD/ablation): finished ones are not repeated, interrupted ones go on. Every run has one thread,
so that its time is processor time when it has a core to itself; what it really used is in the table. Needs Python's
standard library and a Release build with automap-train (LibTorch) and benches.
"""

import argparse
import concurrent.futures
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import policy_report as report
from policy_report import Difference, Failed, SOURCE, percent, progress, table

# What turns the default recipe into its first step: no part that comes later.
PLAIN = ["--preset", "fast", "--returns", "monte-carlo", "--residual", "off", "--best-return", "off", "--prioritized", "off",
         "--distributional", "none", "--label-fraction", "0", "--label-weight", "0"]
MONTE_CARLO = ["--returns", "monte-carlo", "--gamma", "1", "--double", "off", "--target-update", "0"]
PRIORITIES = ["--prioritized", "on", "--priority-alpha", "0.2", "--priority-beta", "0.6"]


def changed(flags, *more):
    """`flags` with the values of `more` instead of its own."""
    pairs = dict(zip(flags[::2], flags[1::2]))
    pairs.update(zip(more[::2], more[1::2]))
    return [part for pair in pairs.items() for part in pair]


def recipes():
    """(key, what it is, flags of automap-train)."""
    # Nothing learned: what the searches are worth with weights as before any training.
    steps = [("random", "random weights, the same network as the default's", None)]
    steps.append(("faithful", "the paper's: flat network, 1-step double dueling DQN, prioritized replay, γ 0.6",
                  ["--preset", "faithful"]))

    def add(key, text, *more):
        steps.append((key, text, changed(steps[-1][2], *more)))

    add("uniform-replay", "without prioritized replay, which comes back below", "--prioritized", "off")
    add("monte-carlo", "+ Monte-Carlo returns, γ 1, no target network", *MONTE_CARLO)
    add("features", "+ cost-model features for every action instead of the raw arrays", "--flat-input", "features")
    steps.append(("after-state", "+ one after-state network for all (device cut, pivot) pairs; rollouts choose the pairs, are among its "
                  "features and cap its answers; default replay and exploration", PLAIN))
    add("residual", "+ residual on the admissible bound", "--residual", "on")
    add("best-return", "+ the best return met below a decision", "--best-return", "on")
    add("prioritized", "+ prioritized replay", *PRIORITIES)
    add("distributional", "+ distributional head (HL-Gauss)", "--distributional", "hl-gauss")
    add("imitation", "+ imitation of exact labels", "--label-fraction", "0.1", "--label-weight", "1")
    steps.append(("default", "the default recipe: without priorities and distribution", ["--preset", "fast"]))
    steps.append(("expert", "the default recipe with expert iteration: beam 64 and its corridor followed in a tenth of the problems without labels",
                  ["--preset", "fast", "--expert-fraction", "0.1"]))
    steps.append(("rainbow", "Rainbow on the after-state network: 3-step double Q, target network, priorities; no labels, no best returns",
                  ["--preset", "rainbow"]))
    steps.append(("rainbow-labels", "Rainbow with exact labels as demonstrations", ["--preset", "rainbow", "--label-fraction", "0.1",
                                                                                   "--label-weight", "10"]))
    return steps


# Further steps of the last chain link are ways of searching with the policy that is there.
SEARCHES = [("policy greedy", "+ the best rollout met on the way counts"), ("policy beam 16", "+ beam 16"),
            ("policy beam 16 + corridor", "beam 16 + corridor, the search that plans")]
METHODS = ["policy greedy bare", *(name for name, _ in SEARCHES), "rollouts greedy", "rollouts beam 16", "rollouts beam 16 + corridor"]
LAST_STEP = "imitation"


def seconds_of(text):
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"'{text}' is no time such as 90s or 2m")
    return float(match[1]) * {"ms": 1e-3, "s": 1, "m": 60, "h": 3600}[match[2] or "s"]


class Ablation:
    def __init__(self, args):
        self.args = args
        self.build = args.build.resolve()
        self.work = (args.work or self.build / "ablation").resolve()
        self.recipes = [r for r in recipes() if not args.recipe or r[0] in args.recipe]
        self.lock = threading.Lock()

    def folder(self, key, seed):
        return self.work / f"{self.args.time:g}s" / f"{key}-{seed}"

    def command(self, key, flags, seed):
        return [report.program(self.build, "automap-train"), "--out", self.folder(key, seed), *flags, "--data", f"synth:{self.args.data}",
                "--seed", seed, "--threads", 1, "--time", f"{self.args.time:g}s", *self.evaluation(), "--quiet", "--resume"]

    def evaluation(self):
        # Little of the time goes into choosing the best checkpoint, the same for all.
        sizes = ("8", "0", "0") if self.args.quick else ("64", "16", "0")
        return ["--evaluate-small", sizes[0], "--evaluate-middle", sizes[1], "--evaluate-deep", sizes[2], "--evaluate-every", "500" if self.args.quick else "2000"]

    def finished(self, key, flags, seed):
        """What is written down about a run that is done, or None."""
        mark, policy = self.folder(key, seed) / "ablation.json", self.folder(key, seed) / "policy.bin"
        if not mark.exists() or not policy.exists():
            return None
        done = report.read_json(mark)
        return done if done["flags"] == flags and done["data"] == self.args.data and done["quick"] == self.args.quick else None

    def train(self, key, flags, seed):
        """A finished run's facts; trains when there is none. An interrupted run's processor time is added up."""
        done = self.finished(key, flags, seed)
        if done:
            return done
        folder = self.folder(key, seed)
        folder.mkdir(parents=True, exist_ok=True)
        started = folder / "ablation.part.json"
        before = report.read_json(started)["cpu_s"] if started.exists() else 0.0
        start = time.monotonic()
        log = open(folder / "ablation.log", "a", encoding="utf-8")
        with log:
            process = subprocess.Popen([str(c) for c in self.command(key, flags, seed)], cwd=SOURCE, stdout=log, stderr=log)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        facts = {"flags": flags, "data": self.args.data, "quick": self.args.quick, "cpu_s": before + usage.ru_utime + usage.ru_stime,
                 "wall_s": time.monotonic() - start, "load": os.getloadavg()[0], "git": self.git}
        code = process.returncode
        target = started if code == 75 else folder / "ablation.json"
        if code not in (0, 75):
            tail = "\n".join((folder / "ablation.log").read_text(encoding="utf-8", errors="replace").splitlines()[-5:])
            raise Failed(f"training {key} with seed {seed} ended with {code}:\n{tail}\n(all of it: {folder / 'ablation.log'})")
        report.write_page(json.dumps(facts, indent=1) + "\n", target)
        if code == 75:
            raise Failed(f"training {key} with seed {seed} was stopped; run this again to go on")
        return facts

    def train_all(self):
        runs = [(key, flags, seed) for key, _, flags in self.recipes if flags is not None for seed in self.seeds()]
        left = [run for run in runs if not self.finished(*run)]
        need = len(left) * (self.args.time + 10) / self.args.jobs
        progress(f"{len(runs)} runs of {self.args.time:g} s, {len(runs) - len(left)} of them finished; the others need about "
                 f"{need / 60:.0f} min with {self.args.jobs} at a time, the measuring some minutes more")
        facts = {}
        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            futures = {pool.submit(self.train, *run): run for run in runs}
            try:
                for future in concurrent.futures.as_completed(futures):
                    key, _, seed = futures[future]
                    facts[key, seed] = future.result()
                    if (key, seed) in {(k, s) for k, _, s in left}:
                        progress(f"  {key}, seed {seed}: {facts[key, seed]['cpu_s']:.0f} s of processor time")
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return facts

    def seeds(self):
        return range(1, self.args.seeds + 1)

    def measure(self, key, size):
        """The benchmark's document for all seeds of a recipe."""
        output = self.work / f"{self.args.time:g}s" / f"{key}-{size}.json"
        of_seed = {seed: f"untrained:{seed}" if key == "random" else self.folder(key, seed) / "policy.bin" for seed in self.seeds()}
        policies = [part for seed in self.seeds() for part in ("--policy", of_seed[seed])]
        methods = [part for name in METHODS for part in ("--method", name)]
        report.run([report.program(self.build, "bench-policy_gaps"), *policies, *methods, "--classes", size, "--problems",
                    self.args.problems, "--generator", self.args.data, "--threads", self.args.jobs, "--quiet", "--cache",
                    self.work / "optima.jsonl", "-o", output])
        return report.read_json(output)

    def page(self):
        self.git = report.version_of(self.build)
        load = report.load_line()
        facts = self.train_all()
        sizes = self.args.classes.split(",")
        found, counts, titles, seed = {}, {}, {}, 0
        for key, _, _ in self.recipes:
            for size in sizes:
                document = self.measure(key, size)
                seed = document["seed"]
                found[key, size] = report.planners(document["methods"], document["problems"])
                counts[size], titles[size] = len(document["problems"]), document["classes"][0]["title"]
        text = ["# What each part of the recipe is worth", *report.header("ablation.py", self.build, self.args.quick), load,
                f"Every row is the recipe above it with one change, trained anew for {self.args.time:g} s on one thread with seeds "
                f"{', '.join(map(str, self.seeds()))} on rows of `{self.args.data}`; gaps to the proven optimum on held-out problems (seed "
                f"{seed}): " + "; ".join(f"{titles[size]}: {counts[size]} problems" for size in sizes) + ". Mean over problems "
                "and seeds in %, smallest and largest mean of a seed in brackets, 95th percentile behind it. A plan that is not found "
                "counts as 100 %. *CPU s*: processor time that a run really used, mean over the seeds; one training run differs "
                "from the next by more than a standard error of its problems, so look at the brackets."]
        rows, flags_of = [], []

        def row(label, key, method, extra=""):
            cells = []
            for size in sizes:
                planner = found[key, size].get(method)
                if planner is None:
                    cells.append("-")
                    continue
                means = planner.seed_means()
                cells.append(f"{percent(planner.mean())} ({percent(min(means))}..{percent(max(means))}) {percent(planner.p95(), 1)}")
            rows.append([label, *cells, extra])

        for key, label, flags in self.recipes:
            if flags is None:
                row(label, key, "policy greedy bare", "0")
            else:
                cpu = statistics.fmean(facts[key, s]["cpu_s"] for s in self.seeds())
                row(label, key, "policy greedy bare", f"{cpu:.0f}")
                flags_of.append(f"{label}: automap-train {' '.join(map(str, flags))}")
            for method, search in SEARCHES if key in (LAST_STEP, "default") else SEARCHES[-1:]:
                if any(method in found[key, size] for size in sizes):  # flat networks have no searches
                    row(f"    {search}", key, method)
        columns = ["", *(titles[size] for size in sizes), "CPU s"]
        used = [one["cpu_s"] for one in facts.values()]
        text.append(f"The runs really used {min(used):.0f} to {max(used):.0f} s of processor time each, {sum(used) / 3600:.1f} h in all.")
        text += ["## The chain", "The network alone, greedily (after-state networks choose the last boundary exactly, as all searches "
                 "in the plan space do), then the searches with the last policy:", table(columns, rows)]
        rows = []
        trained = [recipe for recipe in self.recipes if recipe[2] is not None]
        for (previous, _, _), (key, label, _) in zip(trained, trained[1:]):
            cells = []
            for size in sizes:
                a, b = (found[k, size]["policy greedy bare"] for k in (key, previous))
                difference = Difference(a, b) if len(a.gaps) > 1 else None
                cells += [difference.cell(), difference.verdict()] if difference else ["-", "-"]
            rows.append([label, *cells])
        if rows:
            text += ["## Step by step", "Each step minus the one above it, percentage points, mean ± standard error over problems and "
                     "seeds (the default recipe minus the imitation step; Rainbow minus the default):",
                     table(["", *(part for size in sizes for part in (f"class {size}", ""))], rows)]
        key = self.recipes[-1][0]
        rows = [[name, *(percent(found[key, size][name].mean()) for size in sizes)]
                for name in ("rollouts greedy", "rollouts beam 16", "rollouts beam 16 + corridor")]
        text += ["## The same searches without a network", table(["mean gap in %", *(titles[s] for s in sizes)], rows),
                 "## Flags", report.block("\n".join(flags_of))]
        return "\n\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", type=seconds_of, default=120, help="of each run (default: 120s)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each recipe (default: 3)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once; not more than there are idle cores (default: 1)")
    parser.add_argument("--problems", type=int, default=300, help="held-out problems per class (default: 300)")
    parser.add_argument("--classes", default="A,B", help="their sizes, as in bench-policy_gaps (default: A,B)")
    parser.add_argument("--data", default="mixed", help="configuration of the row generator (default: mixed)")
    parser.add_argument("--recipe", action="append", choices=[key for key, _, _ in recipes()], help="only this one (repeatable)")
    parser.add_argument("--list", action="store_true", help="print the recipes and stop")
    parser.add_argument("--build", type=Path, default=SOURCE / "build" / "release", help="a Release build (default: build/release)")
    parser.add_argument("--work", type=Path, help="where runs are kept (default: BUILD/ablation)")
    parser.add_argument("--quick", action="store_true", help="a smoke test: 2 seeds, 2 s, a handful of problems")
    parser.add_argument("-o", "--output", help="- is standard output (default: docs/results/ablation.md; with --quick or --recipe: -)")
    args = parser.parse_args()
    if args.list:
        for key, text, flags in recipes():
            print(f"{key:15} {text}" + (f"\n{'':15} automap-train {' '.join(flags)}" if flags else ""))
        return 0
    if args.quick:
        args.time, args.seeds, args.problems, args.classes = 2.0, 2, 12, "A"
    if args.seeds < 1 or args.jobs < 1 or args.time <= 0:
        parser.error("--seeds, --jobs and --time must be positive")
    output = args.output or ("-" if args.quick or args.recipe else str(SOURCE / "docs" / "results" / "ablation.md"))
    try:
        report.write_page(Ablation(args).page(), output)
    except Failed as error:
        print(f"ablation.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("ablation.py: stopped; run it again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
