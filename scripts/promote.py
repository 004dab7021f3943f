#!/usr/bin/env python3
"""Chooses the best of a night's runs, compares it with the current policy, and promotes it when it is better.

  scripts/promote.py --bin build/release --out NIGHT --install current.policy --evaluate-seed 20000001 NIGHT/run-*

RUN is the folder of a finished run of automap-train in NIGHT, with what it printed (--json) in RUN/result.json. The best is that of the
least score, on the problems by which each run chose its best policy. It alone goes on: several comparisons, each of which may be
wrong now and then, would be wrong more often than that.
  1. better than the current policy on held-out problems of its own distribution, others every night (docs/training.md)
  2. not worse by more than 0.1 points on profiles of real models (--real; needs not be better there)
NIGHT/comparison.json, NIGHT/comparison-real.json: both tests; NIGHT/decision.json: what came of it, also printed in words.
Exit codes: 0 decided, 3 something is missing, 75 stopped, else as of automap-train.
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

# Of the second test: equal policies have to get through it, 2.4 standard errors below the margin.
REAL_MARGIN = 0.001
REAL_ERROR = 0.0002
REAL_ONLY = {"schema": "automap.datagen/1", "name": "real-profiles", "families": {"empirical": {}}}
WHY = {"too_few_problems": "only {problems} problems could be judged",
       "refused": "it is worse",
       "no_more_problems": "the held-out problems ran out before it was settled",
       "looks": "not settled after the most looks"}


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


def score_of(run):
    try:
        score = json.loads((run / "result.json").read_text())["score"]
    except (OSError, ValueError, KeyError, TypeError) as why:
        fail(f"{run} has no result ({why}): nothing is promoted")
    if not isinstance(score, (int, float)) or not math.isfinite(score):
        fail(f"{run / 'result.json'}: score is {score!r}, expected a number: nothing is promoted")
    return score


class Comparer:
    def __init__(self, options, run, policies):
        self.child = None
        self.command = [options.bin / "automap-train", "--config", run / "config.ini", "--compare", "--json", "--quiet",
                        *(("--threads", options.threads) if options.threads else ())]
        self.policies = policies
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self.stop)

    def stop(self, *_):
        if self.child:
            self.child.terminate()
        sys.exit(75)

    def compare(self, seed, path, *more):
        self.child = subprocess.Popen([*map(str, self.command), *map(str, more), "--evaluate-seed", str(seed),
                                       *map(str, self.policies)], stdout=subprocess.PIPE)
        text, _ = self.child.communicate()
        if self.child.returncode != 0:
            sys.exit(self.child.returncode if self.child.returncode > 0 else 128 - self.child.returncode)
        try:
            comparison = json.loads(text)
            # What is decided by has to be there.
            _ = [comparison[key] for key in ("accepted", "no_difference", "ended_by", "first_lost", "second_lost")]
        except (ValueError, KeyError, TypeError) as why:
            fail(f"automap-train --compare printed no comparison ({why}): nothing is promoted")
        write(path, comparison)
        return comparison


def why_not(comparison):
    """Why it was not shown to be better, in words."""
    why = WHY.get(comparison["ended_by"], "").format(problems=comparison.get("problems"))
    first, second = comparison["first_lost"], comparison["second_lost"]
    if not why and first > second:
        why = f"it found no plan for {first} problems, the other for {second}"
    return why


def in_points(comparison):
    return (f"difference {100 * comparison.get('difference', math.nan):+.3f} +- {100 * comparison.get('standard_error', math.nan):.3f} "
            f"points, {comparison.get('problems')} problems")


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
                        "models]; none: no second test")
    parser.add_argument("--before", help="what the current policy is called in what is said")
    parser.add_argument("--threads", type=int, help="of automap-train")
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
    scores = {run: score_of(run) for run in options.runs}
    best = min(options.runs, key=lambda run: scores[run])
    for run in options.runs:
        print(f"{run.name}: mean gap {100 * scores[run]:.3f} %", file=sys.stderr)
    new = best / "policy.bin"
    comparer = Comparer(options, best, [new, *([options.current] if options.current else [])])
    decision = {"schema": "automap.decision/1", "promoted": False, "run": best.name,
                "scores": {run.name: score for run, score in scores.items()},
                "current": str(options.current) if options.current else None}
    comparison = comparer.compare(options.evaluate_seed, options.out / "comparison.json")
    decision["comparison"] = comparison
    if comparison["no_difference"] and comparison["ended_by"] != "too_few_problems":
        decision["why"] = "makes no difference"
    elif not comparison["accepted"] or comparison["no_difference"]:
        why = why_not(comparison)
        decision["why"] = "is not shown to be better" + (f": {why}" if why else "")
    else:
        decision["promoted"], decision["why"] = True, "is better"
    if decision["promoted"] and options.real != "none":
        data = options.real
        if not data:
            write(options.out / "real-profiles.json", REAL_ONLY)
            data = f"synth:{options.out / 'real-profiles.json'}"
        real = comparer.compare(options.evaluate_seed, options.out / "comparison-real.json", "--evaluate-data", data, "--margin",
                                REAL_MARGIN, "--standard-error", REAL_ERROR)
        decision["real"] = real
        if not (real["accepted"] or (real["no_difference"] and real["ended_by"] != "too_few_problems")):
            why = why_not(real)
            decision.update(promoted=False, why="is better, but not shown to be as good on profiles of real models" +
                            (f": {why}" if why else ""))
    said = f"promoted, better than {before}" if decision["promoted"] else f"kept {before}, the new one {decision['why']}"
    real = f"; real profiles: {in_points(decision['real'])}" if "real" in decision else ""
    decision["said"] = f"{said} ({in_points(comparison)}{real}; {best.name} of {len(options.runs)})"
    write(decided, decision)
    carry_out(decision, options)
    print(decision["said"])


if __name__ == "__main__":
    main()
