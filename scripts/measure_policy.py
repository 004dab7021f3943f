#!/usr/bin/env python3
"""Measures policies against the optimum and against planners that have not learned, and writes docs/results/policy.md.

Examples:
  scripts/measure_policy.py --policy runs/s1/policy.bin --policy runs/s2/policy.bin --policy runs/s3/policy.bin \\
      --simulated-policy runs/sim1/policy.bin --threads 2        # everything; give all seeds of one recipe
  scripts/measure_policy.py --policy runs/s1/policy.bin --only random --problems 200 -o -    # one section, to the screen
  scripts/measure_policy.py --left-out-policy runs/no-cnn/policy.bin --left-out cnn,unet --policy ...   # unseen families
  scripts/measure_policy.py --quick                              # a smoke test with an untrained network

What was measured is kept in --work (default: BUILD/policy-measurements): optima, so that neither an interrupted run nor the next
policy has to find them again, and every problem's figures as JSON. AUTOMAP_CORPUS names a folder with more models,
hlo/train_*/*.hlo and profiles/**/*.txt. Needs Python's standard library and a Release build with benches.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from pathlib import Path

import policy_report as report
from policy_report import Difference, Failed, SOURCE, percent, progress, table

CLUSTERS = "config-a,config-b,config-c,8x8"
GREEDY, BEAM, CORRIDOR = "policy greedy", "policy beam 16", "policy beam 16 + corridor"
# Class -> what its policy is to reach, in %: (method, figure, goal).
GOALS = {
    "A": [(GREEDY, "mean", 1.0), (GREEDY, "p95", 5.0), (BEAM, "mean", 0.3), (CORRIDOR, "mean", 0.1)],
    "B": [(GREEDY, "mean", 2.0), (GREEDY, "p95", 10.0), (BEAM, "mean", 1.2), (CORRIDOR, "mean", 0.4)],
    "C": [(GREEDY, "mean", 5.0), (BEAM, "mean", 3.0), (CORRIDOR, "mean", 1.0)],
    "L": [(CORRIDOR, "mean", 3.0)],
}
LARGE_MS = 50
CHOSEN_GOAL = 0.5
# Policy against whom: the same search without the network, then what others reach in about the same time.
PAIRS = [
    (GREEDY, ["rollouts greedy", "balanced"]),
    ("policy beam 4", ["rollouts beam 4"]),
    (BEAM, ["rollouts beam 16", "rollouts beam 32", "local search equal time"]),
    (CORRIDOR, ["rollouts beam 16 + corridor", "rollouts beam 32 + corridor", "coarse exact + corridor",
                "local search equal time", "local search equal time + corridor", "local search 30 ms"]),
]
SHOWN = [GREEDY, BEAM, CORRIDOR, "rollouts greedy", "rollouts beam 16", "rollouts beam 16 + corridor", "coarse exact + corridor"]
LEFT_OUT_FACTOR = 1.5


class Measure:
    def __init__(self, args):
        self.args = args
        self.quick = args.quick
        self.build = args.build.resolve()
        self.work = (args.work or self.build / "policy-measurements").resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        self.corpus = Path(args.corpus).resolve() if args.corpus and not self.quick else None
        self.documents = {}

    def bench(self, name, label, options):
        """The document that a benchmark writes; run once per call of this script."""
        if label not in self.documents:
            output = self.work / f"{label}.json"
            print(report.run([report.program(self.build, name), *options, "--threads", self.args.threads, "-o", output]),
                  file=sys.stderr)
            self.documents[label] = report.read_json(output)
        return self.documents[label]

    def policies(self, paths, flag="--policy"):
        return [part for path in paths for part in (flag, path if path.startswith("untrained:") else Path(path).resolve())]

    # Random problems

    def random_document(self, size):
        count = self.args.large_problems if size == "L" else self.args.problems
        return self.bench("bench-policy_gaps", f"random-{size}", [
            *self.policies(self.args.policy), "--classes", size, "--problems", count, "--generator", self.args.generator,
            "--cache", self.work / "optima.jsonl", "--large-exact-limit", self.args.large_exact_limit, "--proofs"])

    def sizes(self):
        return self.args.classes.split(",")

    @staticmethod
    def counts(document):
        size = document["classes"][0]
        text = f"{size['measured']} problems of {len({p['family'] for p in document['problems']})} families; left out: " \
               f"{size['infeasible']} without a feasible plan, {size['unproven']} whose optimum was not found within the limit"
        if size["measured"] < size["wanted"]:
            text += f"; {size['wanted']} were wanted, the generator has no more of this size"
        return text + "."

    def random(self):
        text = [
            f"Random problems of `{self.args.generator}` under a seed of their own, the same number of every family, servers that "
            "differ and memory limits included. A gap is V over the proven optimum over the same pivots, stages and schedule − 1. "
            "A planner that finds no plan where there is one counts as 100 %. *seeds*: smallest and largest mean among the policies. "
            "*bare*: only the plans that the network's choices lead to; everywhere else the best rollouts met during the search count "
            "as well and the best plans are improved, as in the same search without a network (*rollouts*). *corridor*: the exact "
            "program in a band around the plan, behind policy and rollouts around the two runners-up, too. *coarse exact*: on every "
            "fourth pivot. *equal time*: as much as the policy's beam 16 + corridor took on that problem. Times begin with the prepared "
            "problem."]
        for size in self.sizes():
            document = self.random_document(size)
            problems = document["problems"]
            text += [f"### Class {document['classes'][0]['title']}", self.counts(document)]
            if not problems:
                continue
            proven = [p for p in problems if p["proven"]]
            for title, part in (("", proven), ("Against the lower bound, where the optimum is not proven:",
                                               [p for p in problems if not p["proven"]])):
                if not part:
                    continue
                found = report.planners(document["methods"], part)
                if title:
                    text.append(f"{title} {len(part)} problems. Part of these gaps is the bound's.")
                elif len(proven) < len(problems):
                    text.append(f"Against the proven optimum: {len(proven)} problems.")
                exact = statistics.fmean(p["exact_cpu_ms"] for p in part)
                rows = report.quality_rows(found, None if title else exact)
                text.append(table(report.QUALITY_COLUMNS, rows))
                if title:
                    text.append(f"The exact solver was stopped after {document['large_limit_s']:g} s.")
        return text

    def paired(self):
        text = [
            "Gap of the policy minus the gap of the other planner on the same problems, in percentage points: mean ± standard error "
            "(over problems and, with several seeds, over these); better or worse where it is more than two standard errors, else undecided. In class L "
            "problems without a proven optimum count against the bound, which cancels out."]
        for size in self.sizes():
            document = self.random_document(size)
            found = report.planners(document["methods"], document["problems"])
            rows = []
            for ours, others in PAIRS:
                for other in others:
                    if ours in found and other in found and len(found[ours].gaps) > 1:
                        difference = Difference(found[ours], found[other])
                        rows.append([ours, other, difference.verdict(), difference.cell(), report.milliseconds(found[ours].cpu_ms),
                                     report.milliseconds(found[other].cpu_ms)])
            if rows:
                text += [f"### Class {document['classes'][0]['title']}",
                         table(["policy", "against", "the policy is", "difference", "ms", "its ms"], rows, left=3)]
        return text

    def proofs(self):
        text = ["What the exact solver has left to do once it is told of a plan, until it has found the optimum or shown that there is "
                "nothing shorter: millions of units of work (about milliseconds of one core), means over the proven problems, and the "
                "sum over that without a plan. It looks for good plans itself before it proves; so what a planner's plan saves is at "
                "most what the optimum itself would."]
        for size in self.sizes():
            document = self.random_document(size)
            problems = [p for p in document["problems"] if p["proof_units"]]
            if not problems:
                continue
            columns = {}
            for i, method in enumerate(document["methods"]):
                columns.setdefault(method["name"], []).append(i)
            nothing, optimum = len(document["methods"]), len(document["methods"]) + 1
            told = [("nothing", [nothing]), *((name, columns[name]) for name in SHOWN if name in columns), ("the optimum", [optimum])]
            units = {name: statistics.fmean(p["proof_units"][i] for p in problems for i in at) for name, at in told}
            text += [f"### Class {document['classes'][0]['title']}",
                     table(["told of", "million units", "of nothing"],
                           [[name, f"{mean / 1e6:.3g}", f"{mean / units['nothing']:.2f}"] for name, mean in units.items()])]
        return text

    def families(self):
        text = ["Mean gap in % by family, and by what makes problems harder; only problems with a proven optimum."]
        for size in self.sizes():
            document = self.random_document(size)
            proven = [p for p in document["problems"] if p["proven"]]
            groups = [(f, [p for p in proven if p["family"] == f]) for f in sorted({p["family"] for p in proven})]
            groups += [("equal servers", [p for p in proven if not p["heterogeneous"]]),
                       ("servers that differ", [p for p in proven if p["heterogeneous"]]),
                       ("no memory limit", [p for p in proven if not p["memory_limited"]]),
                       ("memory limit", [p for p in proven if p["memory_limited"]])]
            rows, columns = [], []
            for name, problems in groups:
                found = report.planners(document["methods"], problems)
                columns = [shown for shown in SHOWN if shown in found] or columns
                if found:
                    rows.append([name, len(problems), *(percent(found[shown].mean()) for shown in columns)])
            if rows:
                text += [f"### Class {document['classes'][0]['title']}", table(["", "problems", *columns], rows)]
        return text

    # Real models

    def inputs(self):
        manifest = report.read_json(SOURCE / "fixtures" / "MANIFEST.json")
        training = [m for m in manifest["models"] if m["kind"] == "train"]
        if self.quick:
            training = sorted(training, key=lambda m: m["forms"]["text"]["bytes"])[:1]
        paths = [SOURCE / "fixtures" / m["forms"]["text"]["file"] for m in training]
        if self.corpus:
            paths += sorted(self.corpus.glob("hlo/train_*/*.hlo"))
            paths += sorted(p for p in self.corpus.glob("profiles/**/*.txt") if "LICENSE" not in p.name)
        return paths

    def profiles_document(self):
        quick = ["--clusters", "config-a", "--micro-batches", "16", "--stages", "2-3"] if self.quick else ["--clusters", CLUSTERS]
        return self.bench("bench-policy_profiles", "profiles", [
            *self.inputs(), *self.policies(self.args.policy), *quick, "--cache", self.work / "profile-optima.jsonl", "--sample",
            self.args.sample])

    @staticmethod
    def profile_rows(document, chosen):
        """Rows of the document as problems for report.planners()."""
        return [{**row, "model": case["model"], "cluster": case["cluster"], "micro_batches": case["micro_batches"]}
                for case in document["problems"] for row in case["rows"] if ("chosen" in row) == chosen]

    def profiles(self):
        document = self.profiles_document()
        methods = document["methods"]
        which = "all" if document["cases"] == document["all_cases"] else \
            f"{document['cases']} drawn by chance of {document['all_cases']}"
        given, chosen = self.profile_rows(document, False), self.profile_rows(document, True)
        text = [
            f"{document['models']} models ({'fixtures and a corpus that does not ship with the project' if self.corpus else 'fixtures'})"
            f" on {', '.join(document['clusters'])} (8x8: eight servers of eight devices with config-c's links) with "
            f"{', '.join(map(str, document['micro_batches']))} micro-batches: {which} combinations. What `automap-infer` asks: steps of 16 "
            "times the model's batch, whole samples, the adaptive schedule, overlapped sync, optimizer, ZeRO 0 or 1, recomputation, 10 % "
            f"of memory kept free. Cuts on the grid of 128 pivots. Stage counts left out: {document['infeasible']} without a feasible plan, {document['unproven']} whose "
            "optimum was not proven within the limit."]
        if given:
            text += [f"### Stages given, {document['stages']}: {len(given)} problems",
                     table(report.QUALITY_COLUMNS, report.quality_rows(report.planners(methods, given))),
                     "Mean gap in %, stages given:",
                     self.groups(methods, given, [lambda r: r["cluster"], lambda r: f"S = {r['stages']}", lambda r: f"M = {r['micro_batches']}"])]
        if chosen:
            proven = [row for row in chosen if row["proven"]]
            text += [f"### Stages chosen by the planner, 1..16: {len(chosen)} problems",
                     "The best plan over all stage counts, data parallelism included; the gap is to the optimum over all stage counts"
                     + (f", where that is proven: {len(proven)} problems." if len(proven) < len(chosen) else "."),
                     table(report.QUALITY_COLUMNS, report.quality_rows(report.planners(methods, proven)))]
            if len(proven) < len(chosen):
                text += [f"The other {len(chosen) - len(proven)}, over a lower bound, which is part of the gap:",
                         table(report.QUALITY_COLUMNS,
                               report.quality_rows(report.planners(methods, [row for row in chosen if not row["proven"]])))]
            if proven:
                text += ["Mean gap in % over the proven optimum, stages chosen:",
                         self.groups(methods, proven, [lambda r: r["cluster"], lambda r: f"M = {r['micro_batches']}"])]
            text += self.all_cuts(methods, chosen) + self.worst(methods, given, chosen)
        for ours, others in PAIRS:
            rows = []
            for title, problems in (("stages given", given), ("stages chosen", chosen)):
                found = report.planners(methods, problems)
                for other in others:
                    if ours in found and other in found and len(found[ours].gaps) > 1:
                        difference = Difference(found[ours], found[other])
                        rows.append([title, other, difference.verdict(), difference.cell(), report.milliseconds(found[ours].cpu_ms),
                                     report.milliseconds(found[other].cpu_ms)])
            if rows:
                text += [f"{ours[0].upper()}{ours[1:]}, paired (problems of one model are not independent: these errors are too small):",
                         table(["", "against", "the policy is", "difference", "ms", "its ms"], rows, left=3)]
        return text

    @staticmethod
    def groups(methods, problems, cuts):
        """Mean gaps by each of several ways to group the problems."""
        rows, columns = [], []
        for cut in cuts:
            for group in sorted({cut(p) for p in problems}, key=lambda g: (len(g), g)):
                found = report.planners(methods, [p for p in problems if cut(p) == group])
                columns = [shown for shown in SHOWN if shown in found]
                rows.append([group, len(next(iter(found.values())).gaps), *(percent(found[c].mean()) for c in columns)])
        return table(["", "problems", *columns], rows)

    @staticmethod
    def all_cuts(methods, chosen):
        """At instruction granularity: over the bound, and over the best plan known."""
        rows = []
        names = {}
        for i, method in enumerate(methods):
            names.setdefault(method["name"], []).append(i)
        exact = [row["all_cuts"]["method"] == "exact over all cuts" for row in chosen]
        for name in ("exact", *(shown for shown in SHOWN if shown in names)):
            bound, tight = [], []
            for row, is_exact in zip(chosen, exact):
                fine = row["all_cuts"]
                found = [fine["exact_refined_ms"]] if name == "exact" else [fine["refined_ms"][i] for i in names[name]]
                gap = statistics.fmean(report.NO_PLAN if ms is None else max(ms / fine["bound_ms"] - 1, 0) for ms in found)
                bound.append(gap)
                if is_exact:
                    tight.append(gap)
            rows.append([name, percent(statistics.fmean(bound)), percent(report.quantile(bound, 0.95)), percent(max(bound)),
                         percent(statistics.fmean(tight)) if tight else "-", percent(max(tight)) if tight else "-"])
        return [f"Each planner's best plan refined at instruction granularity, over a lower bound over all instruction cuts. The "
                f"bound is the optimum in {sum(exact)} of {len(chosen)} cases (*proven*), in the others part of the gap is the bound's.",
                table(["planner + refine", "mean %", "p95", "largest", "proven: mean", "largest"], rows)]

    @staticmethod
    def worst(methods, given, chosen):
        """Where the refined policy is farthest from the optimum."""
        at = [i for i, method in enumerate(methods) if method["name"] == CORRIDOR]
        if not at:
            return []

        def listed(problems, stages):
            order = sorted(problems, key=lambda r: -statistics.fmean(report.NO_PLAN if r["gaps"][i] is None else r["gaps"][i] for i in at))
            return [[r["model"][:28], r["cluster"], r["micro_batches"], stages(r),
                     ", ".join("none" if r["gaps"][i] is None else percent(r["gaps"][i]) for i in at)] for r in order[:8]]

        rows = listed(given, lambda r: r["stages"]) + listed(
            chosen, lambda r: "chosen " + ",".join(str(r["chosen"][i]) for i in at) + f", best {r['stages']}")
        return [f"Where {CORRIDOR} is farthest from the optimum (% by seed), stages given and chosen:",
                table(["model", "cluster", "M", "S", "gap"], rows, left=2)]

    # Simulation

    def objective(self):
        if not self.args.simulated_policy:
            return ["*Not measured: no policy trained with `--objective simulated` was given (--simulated-policy).*"]
        document = self.bench("bench-policy_objective", "objective", [
            *self.policies(self.args.simulated_policy), *self.policies(self.args.policy, "--value-policy"), "--problems",
            self.args.simulated_problems, "--generator", self.args.generator])
        columns, problems = document["columns"], document["problems"]
        methods = [{"name": f"{c['planner']} | {c['variant']}"} for c in columns]
        found = report.planners(methods, problems, gaps="over")
        rows = []
        for name, planner in found.items():
            who, variant = name.split(" | ")
            seeds = planner.seed_means()
            rows.append([who, variant, percent(planner.mean()), percent(planner.median()), percent(planner.p95()),
                         percent(planner.largest()), f"{percent(min(seeds))}..{percent(max(seeds))}" if len(seeds) > 1 else "",
                         report.milliseconds(planner.cpu_ms)])
        text = [
            f"{document['measured']} random problems, {document['sizes']}; left out: {document['infeasible']} without a feasible plan, "
            f"{document['unproven']} not solved within {document['limit_s']:g} s. The simulated step over the shortest one that anybody found "
            "− 1. The policies search with a beam of 16 and compare complete plans by simulation; *exact, 100 best*: the 100 best "
            "plans under V, the one that simulates shortest; *policy's time*: the same stopped when the policy was done, balanced cuts "
            "where that was too early for any plan. *+ polish*: moves under the simulation until none is left. *equal time*: everybody "
            "has the time of the slower one of policy and exact 100 best (polished) on that problem, and spends the rest on restarted "
            "moves under the simulation; those that search with a beam first search again with wider ones, for 70 % of the time.",
            "Policies for simulation:\n\n" + report.describe_policies(document["policies"]),
            table(["planner", "", "mean %", "median", "p95", "largest", "seeds", "CPU ms"], rows, left=2)]
        rows = []
        for variant in ("as it is", "+ polish", "equal time", "twice that time"):
            ours = found[f"policy for simulation | {variant}"]
            for other in dict.fromkeys(c["planner"] for c in columns if c["planner"] != "policy for simulation"):
                if len(ours.gaps) > 1:
                    theirs = found[f"{other} | {variant}"]
                    difference = Difference(ours, theirs)
                    rows.append([variant, other, difference.verdict(), difference.cell(), report.milliseconds(ours.cpu_ms),
                                 report.milliseconds(theirs.cpu_ms)])
        if rows:
            text += ["Paired, the policy for simulation minus the other, in percentage points of the shortest step:",
                     table(["", "against", "the policy is", "difference", "ms", "its ms"], rows, left=3)]
        return text

    # Fine-tuning

    def fine_tuning(self):
        if not (self.build / "automap-train").exists():
            return ["*Not measured: automap-train is not built (LibTorch).*"]
        policy = SOURCE / "models" / "pretrained" / "pipeline.policy" if self.quick else self.policies(self.args.policy)[1]
        manifest = report.read_json(SOURCE / "fixtures" / "MANIFEST.json")
        models = sorted((m for m in manifest["models"] if m["kind"] == "train"), key=lambda m: m["forms"]["text"]["bytes"])
        clusters, times = ["config-b", "config-c"], self.args.finetune_times.split(",")
        if self.quick:
            models, clusters, times = models[:1], clusters[:1], ["200ms"]
        searches = ["greedy", "beam 16", "beam 16 + corridor"]
        rows, updates, took = [], [], []
        for given in times:
            gaps = {(when, search): [] for when in ("before", "policy") for search in searches}
            for model in models:
                profile = self.work / f"{model['name']}.h5"
                if not profile.exists():
                    report.run([report.program(self.build, "automap-profile"), SOURCE / "fixtures" / model["forms"]["text"]["file"], "-o", profile, "--quiet"])
                for cluster in clusters:
                    folder = self.work / "finetuned"
                    shutil.rmtree(folder, ignore_errors=True)
                    start = time.monotonic()
                    document = json.loads(report.run([
                        report.program(self.build, "automap-train"), "--finetune", "--data", profile, "--cluster", cluster, "--init", policy,
                        "--out", folder, "--time", given, "--threads", 1, "--json", "--quiet"]))
                    took.append(time.monotonic() - start)
                    updates.append(document["updates"])
                    for when, search in gaps:
                        sets = [q for q in document["quality"] if q["planner"] == f"{when}, {search}"]
                        problems = sum(q["problems"] for q in sets)
                        if problems == 0:
                            raise Failed(f"automap-train said nothing of '{when}, {search}' on {model['name']}")
                        gaps[when, search].append(sum(q["gap_mean"] * q["problems"] for q in sets) / problems)
            for search in searches:
                # A model's clusters are no problems of their own: means of each model.
                before, after = ([statistics.fmean(gaps[when, search][i:i + len(clusters)]) for i in range(0, len(gaps[when, search]), len(clusters))]
                                 for when in ("before", "policy"))
                change = [a - b for a, b in zip(after, before)]
                error = statistics.stdev(change) / len(change) ** 0.5 if len(change) > 1 else 0
                rows.append([given, search, percent(statistics.fmean(before)), percent(statistics.fmean(after)),
                             f"{100 * statistics.fmean(change):+.2f} ± {100 * error:.2f}", sum(c < -1e-6 for c in change),
                             sum(c > 1e-6 for c in change)])
        return [f"`automap-train --finetune --init` with one thread on {len(models)} models (fixtures) and {', '.join(clusters)}: mean gap in % to "
                "the proven optima of all stage counts of the model itself, which are also what the best weights are chosen by, so that the "
                f"search behind a corridor is not worse for it. {min(updates)} to {max(updates)} updates; a command took {min(took):.1f} to "
                f"{max(took):.1f} s, optima, baselines and report included.",
                table(["time", "search", "before", "after", "change, points", "better", "worse"], rows, left=2)]

    # Unseen families

    def left_out(self):
        if not self.args.left_out_policy:
            return ["*Not measured: no policy trained without some families was given (--left-out-policy, --left-out).*"]
        rows = []
        for size in [s for s in self.sizes() if s != "L"]:
            options = ["--classes", size, "--problems", self.args.left_out_problems, "--generator", self.args.generator, "--families",
                       self.args.left_out, "--cache", self.work / "optima.jsonl"]
            for method in (GREEDY, BEAM, CORRIDOR, "rollouts greedy", "rollouts beam 16", "rollouts beam 16 + corridor"):
                options += ["--method", method]
            full = self.bench("bench-policy_gaps", f"families-full-{size}", [*self.policies(self.args.policy), *options])
            without = self.bench("bench-policy_gaps", f"families-left-out-{size}", [*self.policies(self.args.left_out_policy), *options])
            a, b = (report.planners(d["methods"], d["problems"]) for d in (without, full))
            for method in (GREEDY, BEAM, CORRIDOR):
                if method not in a or len(a[method].gaps) < 2:
                    continue
                difference = Difference(a[method], b[method])
                seen, unseen = b[method].mean(), a[method].mean()
                rows.append([size, method, len(a[method].gaps), percent(unseen), percent(seen),
                             f"{unseen / seen:.2f}" if seen > 0 else "-", difference.cell(),
                             percent(a[method.replace("policy", "rollouts")].mean()),
                             "yes" if unseen <= LEFT_OUT_FACTOR * seen or unseen <= OPTIMAL_MEAN else "no"])
        return [f"Families {self.args.left_out.replace(',', ', ')}: policies that never saw them beside policies that did, mean gaps in %.",
                table(["class", "method", "problems", "unseen", "seen", "ratio", "difference", "rollouts",
                       f"within {LEFT_OUT_FACTOR}x"], rows, left=2)]

    # Goals

    def goals(self):
        rows = []

        def add(what, method, figure, goal, value, unit="%"):
            rows.append([what, method, figure, f"{goal:g} {unit}", f"{value:.2f} {unit}", "yes" if value <= goal else
                         f"no, by {value - goal:.2f} {unit}"])

        for size in self.sizes():
            document = self.random_document(size)
            problems = document["problems"]
            proven = [p for p in problems if p["proven"]]
            found = report.planners(document["methods"], proven)
            for method, figure, goal in GOALS[size]:
                if method in found:
                    value = found[method].mean() if figure == "mean" else found[method].p95()
                    add(f"{document['classes'][0]['title']}", method, figure, goal, 100 * value)
            if size == "L" and CORRIDOR in found:
                everything = report.planners(document["methods"], problems)[CORRIDOR]
                if len(proven) < len(problems):
                    add("L, unproven ones against the bound", CORRIDOR, "mean", 3.0, 100 * everything.mean())
                add("L", CORRIDOR, "CPU time", LARGE_MS, everything.cpu_ms, "ms")
        if "profiles" in self.documents or self.args.only is None or "profiles" in self.args.only:
            document = self.profiles_document()
            rows_chosen = self.profile_rows(document, True)
            chosen = report.planners(document["methods"], [row for row in rows_chosen if row["proven"]])
            if CORRIDOR in chosen:
                add("real models, S chosen", CORRIDOR, "mean", CHOSEN_GOAL, 100 * chosen[CORRIDOR].mean())
                add("real models, S chosen", CORRIDOR, "p95", CHOSEN_GOAL, 100 * chosen[CORRIDOR].p95())
                add("real models, S chosen", CORRIDOR, "largest", CHOSEN_GOAL, 100 * chosen[CORRIDOR].largest())
            unproven = report.planners(document["methods"], [row for row in rows_chosen if not row["proven"]])
            if CORRIDOR in unproven:
                add("the same, unproven ones against the bound", CORRIDOR, "mean", CHOSEN_GOAL, 100 * unproven[CORRIDOR].mean())
        return ["What was aimed at, and what was reached (over the proven optimum unless said otherwise):",
                table(["problems", "planner", "figure", "goal", "reached", "met"], rows, left=3)]

    SECTIONS = (("goals", "Goals"), ("random", "Random problems"), ("paired", "Paired differences"), ("proofs", "Proofs"),
                ("families", "Families and kinds of problems"), ("left-out", "Families left out of training"),
                ("profiles", "Real models"), ("objective", "Planning for the simulated step"),
                ("fine-tuning", "Fine-tuning to one model"))

    def page(self):
        text = ["# What the policy is worth", *report.header("measure_policy.py", self.build, self.quick)]
        sections = [(name, title) for name, title in self.SECTIONS if not self.args.only or name in self.args.only]
        parts = {}
        # The goals stand first and need the rest.
        for name, title in sorted(sections, key=lambda s: s[0] == "goals"):
            progress(f"{title} ...")
            start = time.monotonic()
            load = report.load_line()
            parts[name] = [f"## {title}", load, *getattr(self, name.replace("-", "_"))()]
            progress(f"  {time.monotonic() - start:.0f} s")
        for document in self.documents.values():
            if "seed" in document and document.get("policies"):
                text.append("Policies:\n\n" + report.describe_policies(document["policies"]))
                text.append(f"Problems: seed {document['seed']}, {document['threads']} threads, git {document['git']}.")
                break
        for name, _ in sections:
            text += parts[name]
        page = "\n\n".join(text) + "\n"
        return page.replace(str(self.corpus), "$AUTOMAP_CORPUS") if self.corpus else page


# A mean gap up to this is as good as optimal when ratios of gaps are formed.
OPTIMAL_MEAN = 5e-4


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", action="append", help="a policy; give every seed of the recipe (default: the shipped one)")
    parser.add_argument("--simulated-policy", action="append", default=[], help="trained with --objective simulated (repeatable; default: the shipped "
                        "one)")
    parser.add_argument("--left-out-policy", action="append", default=[], help="trained without the families of --left-out (repeatable)")
    parser.add_argument("--left-out", default="", metavar="A,B", help="families that --left-out-policy has not seen")
    parser.add_argument("--build", type=Path, default=SOURCE / "build" / "release", help="a Release build (default: build/release)")
    parser.add_argument("--work", type=Path, help="where optima and raw figures are kept (default: BUILD/policy-measurements)")
    parser.add_argument("--corpus", default=os.environ.get("AUTOMAP_CORPUS"), help="more models (default: $AUTOMAP_CORPUS)")
    parser.add_argument("--generator", default="mixed", help="configuration of the random problems (default: mixed)")
    parser.add_argument("--classes", default="A,B,C,L", help="sizes of random problems (default: A,B,C,L)")
    parser.add_argument("--problems", type=int, default=1000, help="of each of the classes A, B, C (default: 1000)")
    parser.add_argument("--large-problems", type=int, default=150, help="of class L (default: 150)")
    parser.add_argument("--large-exact-limit", default="60s", help="for the exact optimum of one of them (default: 60s)")
    parser.add_argument("--left-out-problems", type=int, default=300, help="of each class, unseen families (default: 300)")
    parser.add_argument("--simulated-problems", type=int, default=600, help="for the simulated step (default: 600)")
    parser.add_argument("--finetune-times", default="2s", help="of fine-tuning, separated by commas (default: 2s)")
    parser.add_argument("--sample", type=int, default=0, help="only so many combinations of real models (default: 0, all)")
    parser.add_argument("--threads", type=int, default=1, help="problems at once; more make times less exact (default: 1)")
    parser.add_argument("--quick", action="store_true", help="a smoke test: a handful of problems, an untrained network")
    parser.add_argument("--only", action="append", choices=[name for name, _ in Measure.SECTIONS], help="only this section (repeatable)")
    parser.add_argument("-o", "--output", help="- is standard output (default: docs/results/policy.md; with --quick or --only: -)")
    args = parser.parse_args()
    if bool(args.left_out_policy) != bool(args.left_out):
        parser.error("--left-out-policy and --left-out belong together")
    if args.quick:
        args.policy = args.policy or ["untrained:1", "untrained:2"]
        args.simulated_policy = args.simulated_policy or ["untrained:1"]
        args.classes, args.problems, args.large_problems, args.simulated_problems, args.left_out_problems = "A,L", 16, 3, 16, 6
        args.large_exact_limit = "1s"
    shipped = SOURCE / "models" / "pretrained"
    args.policy = args.policy or [str(shipped / "pipeline.policy")]
    if not args.simulated_policy and (shipped / "pipeline-simulated.policy").exists():
        args.simulated_policy = [str(shipped / "pipeline-simulated.policy")]
    output = args.output or ("-" if args.quick or args.only else str(SOURCE / "docs" / "results" / "policy.md"))
    try:
        report.write_page(Measure(args).page(), output)
    except Failed as error:
        print(f"measure_policy.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
