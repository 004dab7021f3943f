#!/usr/bin/env python3
"""Chooses the best of a night's runs, compares it with the current policy, and promotes it when it is better.

  scripts/promote.py --bin build/release --out NIGHT --install current.policy --evaluate-seed 20000001 NIGHT/run-*

RUN is the folder of a finished run of automap-train in NIGHT, with what it printed (--json) in RUN/result.json. The best is that of the
least score, on the problems by which each run chose its best policy. It alone goes on: several comparisons, each of which may be
wrong now and then, would be wrong more often than that.
  1. better than the current policy on held-out problems of its own distribution, others every night (docs/training.md)
  2. not worse by more than 0.1 points on profiles of real models (--real; needs not be better there)
The problems of both are drawn by numbers of their own (--compare-problems), not by the runs'.
Where the best of a run is what it began with, nothing was learned that is worth a comparison: the current policy stays.
NIGHT/comparison.json, NIGHT/comparison-real.json: both tests; NIGHT/decision.json: what came of it, also printed in words.
Exit codes: 0 decided, 3 something is missing, 75 stopped (the comparison so far is written, ended_by: stopped), else as of automap-train.
"""

import argparse
import fcntl
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

# Of the second test: equal policies have to get through it, 2.4 standard errors below the margin. Where no problem tells two apart
# the bound of n problems is 3.4 / (n + 1) (train/promotion.h), so that fewer than these show nothing.
REAL_MARGIN = 0.001
REAL_ERROR = 0.0002
REAL_LEAST = math.ceil(3.4 / REAL_MARGIN)
# Problems of the first look (small, middle, deep), which each look doubles: not the runs' own, which short runs have few of.
PROBLEMS = "512,160,48"
REAL_ONLY = {"schema": "automap.datagen/1", "name": "real-profiles", "families": {"empirical": {}}}
WHY = {"too_few_problems": "only {problems} problems could be judged",
       "no_more_problems": "the held-out problems ran out before it was settled",
       "looks": "not settled after the most looks",
       "time": "the time for comparing was over before it was settled"}
# What is decided by has to be there.
DECIDING = ("accepted", "verdict", "all_alike", "ended_by", "margin", "first_lost", "second_lost")


def fail(message, code=3):
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)


def write(path, document):
    """Whole or not at all."""
    partial = path.with_name(path.name + ".tmp")
    with open(partial, "w") as file:
        json.dump(document, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def install(policy, path):
    partial = path.with_name(path.name + ".tmp")
    shutil.copyfile(policy, partial)
    with open(partial, "rb") as file:
        os.fsync(file.fileno())
    os.replace(partial, path)


def carry_out(decision, options):
    if decision["promoted"]:
        install(options.out / decision["run"] / "policy.bin", options.install)


def result_of(run):
    try:
        result = json.loads((run / "result.json").read_text())
        score = result["score"]
    except (OSError, ValueError, KeyError, TypeError) as why:
        fail(f"{run} has no result ({why}): nothing is promoted")
    if not isinstance(score, (int, float)) or not math.isfinite(score):
        fail(f"{run / 'result.json'}: score is {score!r}, expected a number: nothing is promoted")
    return result


class Comparer:
    def __init__(self, options, run, policies):
        self.child = None
        self.stopped = False
        small, middle, deep = options.compare_problems
        self.command = [options.bin / "automap-train", "--config", run / "config.ini", "--compare", "--json", "--quiet",
                        "--evaluate-small", small, "--evaluate-middle", middle, "--evaluate-deep", deep,
                        *(("--threads", options.threads) if options.threads else ()),
                        *(("--time-limit", options.compare_time) if options.compare_time else ())]
        self.policies = policies
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self.stop)

    def stop(self, *_):
        self.stopped = True
        if self.child:
            self.child.terminate()

    def compare(self, seed, path, *more):
        if self.stopped:
            sys.exit(75)
        self.child = subprocess.Popen([*map(str, self.command), *map(str, more), "--evaluate-seed", str(seed),
                                       *map(str, self.policies)], stdout=subprocess.PIPE)
        if self.stopped:
            self.child.terminate()
        text, _ = self.child.communicate()
        code = self.child.returncode
        # Who is stopped says what it has, if anything; who stops it may have gone to it directly.
        stopped = self.stopped or code == 75
        if code != 0 and not stopped:
            sys.exit(code if code > 0 else 128 - code)
        try:
            comparison = json.loads(text)
            _ = [comparison[key] for key in DECIDING]
        except (ValueError, KeyError, TypeError) as why:
            if stopped:
                sys.exit(75)
            fail(f"automap-train --compare printed no comparison ({why}): nothing is promoted")
        write(path, comparison)
        if stopped:
            sys.exit(75)
        return comparison


def why_undecided(comparison):
    """": why", or nothing to say."""
    why = WHY.get(comparison["ended_by"], "").format(problems=comparison.get("problems"))
    first, second = comparison["first_lost"], comparison["second_lost"]
    if not why and first > second:
        why = f"it found no plan for {first} problems, the other for {second}"
    if not why and comparison["all_alike"]:
        why = f"none of {comparison.get('problems')} problems told them apart"
    return f": {why}" if why else ""


def in_points(comparison):
    def points(key):
        return 100 * comparison.get(key, math.nan)

    return (f"difference {points('difference'):+.3f} +- {points('standard_error'):.3f} points, between {points('lower_bound'):+.3f} and "
            f"{points('upper_bound'):+.3f}, {comparison.get('problems')} problems")


def at_margin(comparison):
    return f"by more than {100 * comparison['margin']:g} points"


def decide(decision, comparison, before):
    """By the first test."""
    verdict = comparison["verdict"]
    if comparison["accepted"] and not comparison["all_alike"]:
        # A margin that was asked for takes what may be worse, too.
        better = f"better than {before}"
        decision.update(promoted=True, why=better if verdict == "better" else f"not worse than {before} {at_margin(comparison)}")
    elif verdict == "worse":
        decision["why"] = "the new one is worse"
    else:
        decision["why"] = "undecided whether the new one is better" + why_undecided(comparison)


def decide_by_real(decision, real):
    """By the second one, what the first would promote."""
    if real["accepted"]:
        return
    why = ("worse on real profiles" if real["verdict"] == "worse" else
           f"not shown not to be worse {at_margin(real)} on real profiles" + why_undecided(real))
    problems = real.get("problems")
    if real["verdict"] != "worse" and isinstance(problems, int) and problems < REAL_LEAST:
        why += f"; {problems} problems cannot show that, even policies that are alike need {REAL_LEAST}"
    decision.update(promoted=False, why=f"the new one is {decision['why']} on made-up problems, but {why}")


def counts(text):
    numbers = text.split(",")
    if len(numbers) != 3 or not all(number.isdecimal() for number in numbers) or not any(map(int, numbers)):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected three numbers, SMALL,MIDDLE,DEEP")
    return numbers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN", type=Path)
    parser.add_argument("--bin", required=True, type=Path, help="where automap-train is")
    parser.add_argument("--out", required=True, type=Path, help="where the comparisons and the decision are written")
    parser.add_argument("--current", type=Path, help="the policy to be better than; left out: the same search without a network")
    parser.add_argument("--install", required=True, type=Path, help="where a policy that is better goes")
    parser.add_argument("--evaluate-seed", required=True, type=int, help="of the problems")
    parser.add_argument("--real", metavar="DATA",
                        help="problems of the second test, as for automap-train --evaluate-data [the shipped profiles of real "
                        "models]; none: no second test. It takes 3400 problems or more: of a dataset 6800 rows with three or more "
                        "stages, since every other row judges")
    parser.add_argument("--before", help="what the current policy is called in what is said")
    parser.add_argument("--threads", type=int, help="of automap-train")
    parser.add_argument("--compare-problems", metavar="SMALL,MIDDLE,DEEP", type=counts, default=counts(PROBLEMS),
                        help="of the first look of each test; each look doubles what there is [512,160,48]")
    parser.add_argument("--compare-time", metavar="T", help="of each test, at most: it decides by the problems asked by then")
    options = parser.parse_args()

    before = options.before or (f"the policy {options.current}" if options.current else "the search without a network")
    # One at a time, also when what started another one was killed and left it behind.
    lock = open(options.install.with_name(options.install.name + ".lock"), "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        fail(f"{options.install} is in use by another promotion", 75)
    decided = options.out / "decision.json"
    if decided.exists():
        # Killed since: what was decided is done, and not asked again.
        decision = json.loads(decided.read_text())
        carry_out(decision, options)
        print(decision["said"])
        return
    results = {run: result_of(run) for run in options.runs}
    scores = {run: result["score"] for run, result in results.items()}
    best = min(options.runs, key=lambda run: scores[run])
    for run, result in results.items():
        print(f"{run.name}: mean gap {100 * scores[run]:.3f} %" + (", the start itself" if result.get("start_won") else ""), file=sys.stderr)
    new = best / "policy.bin"
    comparer = Comparer(options, best, [new, *([options.current] if options.current else [])])
    decision = {"schema": "automap.decision/1", "promoted": False, "run": best.name,
                "scores": {run.name: score for run, score in scores.items()},
                "start_won": bool(results[best].get("start_won")), "current": str(options.current) if options.current else None}
    of_runs = f"{best.name} of {len(options.runs)}"
    if decision["start_won"]:
        start = "the policy that the runs began with" if results[best].get("start") else "fresh weights, which the runs began with,"
        decision["why"] = f"{start} won: nothing better was learned"
        decision["said"] = f"kept {before}, {decision['why']} (mean gap {100 * scores[best]:.3f} % on the runs' own problems; {of_runs})"
        write(decided, decision)
        print(decision["said"])
        return
    comparison = comparer.compare(options.evaluate_seed, options.out / "comparison.json")
    decision["comparison"] = comparison
    decide(decision, comparison, before)
    if decision["promoted"] and options.real != "none":
        data = options.real
        if not data:
            write(options.out / "real-profiles.json", REAL_ONLY)
            data = f"synth:{options.out / 'real-profiles.json'}"
        real = comparer.compare(options.evaluate_seed, options.out / "comparison-real.json", "--evaluate-data", data, "--margin",
                                REAL_MARGIN, "--standard-error", REAL_ERROR)
        decision["real"] = real
        decide_by_real(decision, real)
    said = f"promoted, {decision['why']}" if decision["promoted"] else f"kept {before}, {decision['why']}"
    real = f"; real profiles: {in_points(decision['real'])}" if "real" in decision else ""
    decision["said"] = f"{said} ({in_points(comparison)}{real}; {of_runs})"
    write(decided, decision)
    carry_out(decision, options)
    print(decision["said"])


if __name__ == "__main__":
    main()
