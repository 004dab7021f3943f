#!/usr/bin/env python3
"""Plans of every fixture by two builds of automap-infer: what a step takes, what it keeps, and why that changed.

    scripts/compare_plans.py BEFORE AFTER [--clusters config-c,a100-4x8,h100-4x8] [--effort quick] [--only REGEX] [-o FILE]

BEFORE and AFTER are automap-infer of two builds; a page of Markdown goes to FILE or standard output. Both plan the same
batch: what AFTER takes when it is not told. AFTER also says what BEFORE's plan takes on its own costs (`--plan`): what is
between BEFORE's figure and that is a change of the costs, what is between that and AFTER's plan is one of the search. A
plan that AFTER refuses is a change of rules or memory, with its words. Rows that change by more than 1 % are named with
the part that changed them. Processor time is that of the child processes. Needs nothing but Python's standard library.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
SAME = 0.01  # a change of so much is no change
MOST_SECONDS = 900


def fixtures():
    """One form of each training step: the text with its names."""
    manifest = json.loads((SOURCE / "fixtures/MANIFEST.json").read_text())
    return {m["name"]: SOURCE / "fixtures" / m["forms"]["text"]["file"] for m in manifest["models"]
            if m["kind"] == "train" and "text" in m["forms"]}


def ask(program, *arguments):
    """-> (document or None, the error, processor seconds)"""
    start = os.times()
    try:
        done = subprocess.run([str(program), *map(str, arguments), "--json", "-q"], capture_output=True, text=True,
                              timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired:
        return None, f"no answer in {MOST_SECONDS} s", MOST_SECONDS
    end = os.times()
    seconds = end.children_user + end.children_system - start.children_user - start.children_system
    try:
        document = json.loads(done.stdout)
    except ValueError:
        document = {}
    if done.returncode == 0:
        return document, "", seconds
    error = document.get("error", document)
    words = error.get("message") if isinstance(error, dict) else None
    return None, words or (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0], seconds


def groups_of(document):
    """automap.plan/3 lists groups of devices; before it each stage was one."""
    groups = document.get("groups") or document["stages"]
    for group in groups:
        group["count"] = len(group["devices"]) if isinstance(group["devices"], list) else group["devices"]
    return groups


def step_of(document):
    return document["simulated_step_ms"]


def fullest_gib(document):
    return max(group["memory_bytes"] for group in groups_of(document)) / 2**30


def kind_of(document):
    """Devices, stages, widths and replicas of each, ZeRO, micro-batches: 32: pp2 tp2/1 dp8/16 zero1 x16"""
    groups = groups_of(document)

    def all_of(key, word, plain):
        values = list(dict.fromkeys(group[key] for group in groups))
        return "" if values == [plain] else f" {word}" + "/".join(map(str, values))

    return (f"{sum(group['count'] for group in groups)}: pp{len(groups)}" + all_of("width", "tp", 1) +
            all_of("replicas", "dp", 1) + all_of("zero", "zero", 0) + all_of("recompute", "recompute-", "none") +
            f" x{document['micro_batches']}")


def duration(ms):
    for unit, size in (("s", 1000), ("ms", 1), ("µs", 1e-3)):
        if ms >= size or unit == "µs":
            return f"{ms / size:.4g} {unit}"


def percent(after, before):
    return 100 * (after / before - 1)


def compare(name, path, cluster, options, folder):
    row = {"model": name, "cluster": cluster}
    after, row["after_error"], row["after_s"] = ask(options.after, path, "--cluster", cluster, "--effort", options.effort)
    batch = ["--batch", f"{after['batch']:.0f}"] if after else []
    plan = folder / "before.json"
    plan.unlink(missing_ok=True)
    before, row["before_error"], row["before_s"] = ask(options.before, path, "--cluster", cluster, "--effort",
                                                       options.effort, *batch, "-o", plan)
    again = None
    row["again_error"] = ""
    if before and after:
        again, row["again_error"], _ = ask(options.after, path, "--cluster", cluster, "--plan", plan)
    for key, document in (("before", before), ("again", again), ("after", after)):
        if document:
            row[key] = {"step_ms": step_of(document), "gib": fullest_gib(document), "kind": kind_of(document),
                        "batch": document["batch"]}
    row["cause"] = cause_of(row)
    return row


def cause_of(row):
    """What of the change is the costs' and what the search's."""
    if "before" not in row or "after" not in row:
        return f"no plan: {row['before_error'] or row['after_error']}"
    before, after = row["before"], row["after"]
    change = percent(after["step_ms"], before["step_ms"])
    if abs(change) <= 100 * SAME:
        return ""
    if "again" not in row:
        return f"the plan before is refused now: {row['again_error']}"
    again = row["again"]
    parts = []
    costs, search = percent(again["step_ms"], before["step_ms"]), percent(after["step_ms"], again["step_ms"])
    if abs(costs) > 100 * SAME / 2:
        parts.append(f"costs {costs:+.1f} % (the same plan)")
    if abs(search) > 100 * SAME / 2:
        what = "the search" if search < 0 else "LONGER than the plan before"
        if search > 0 and after["gib"] < again["gib"]:
            what = "the leaner of two"
        parts.append(f"{what} {search:+.1f} %")
    return "; ".join(parts)


def page(rows, options):
    lines = [f"# Plans before and after\n",
             f"`{version(options.before)}` against `{version(options.after)}`, `--effort {options.effort}`. A plan: devices:"
             " stages (pp), devices of a replica (tp), replicas (dp), micro-batches (x); *again* is the plan before on the"
             " costs of today.\n",
             "| model | cluster | batch | step before | again | step after | change | GiB before | after | plan before |"
             " plan after | processor time | why |", "|" + "---|" * 13]
    for row in rows:
        cells = [row["model"], row["cluster"]]
        both = "before" in row and "after" in row
        cells.append(f"{row['after']['batch']:.0f}" if "after" in row else "-")
        for key in ("before", "again", "after"):
            cells.append(duration(row[key]["step_ms"]) if key in row else "-")
        cells.append(f"{percent(row['after']['step_ms'], row['before']['step_ms']):+.1f} %" if both else "-")
        for what in ("gib", "kind"):
            for key in ("before", "after"):
                value = row[key][what] if key in row else "-"
                cells.append(f"{value:.3g}" if isinstance(value, float) else value)
        cells.append(f"{row['after_s']:.1f} / {row['before_s']:.1f} s")
        cells.append(row["cause"].replace("|", "/"))
        lines.append("| " + " | ".join(cells) + " |")
    both = [row for row in rows if "before" in row and "after" in row]
    shorter = sum(percent(r["after"]["step_ms"], r["before"]["step_ms"]) < -100 * SAME for r in both)
    longer = sum(percent(r["after"]["step_ms"], r["before"]["step_ms"]) > 100 * SAME for r in both)
    missed = sum("LONGER" in row["cause"] for row in both)
    seconds = [sum(row[key] for row in both) for key in ("before_s", "after_s")]
    lines.append(f"\nOf {len(both)} plans {shorter} are more than 1 % shorter and {longer} longer, "
                 f"{len(both) - shorter - longer} as long; {missed} are longer than the plan before would be today. "
                 f"Processor time {seconds[1] / max(seconds[0], 1e-9):.2f} times as much in all.")
    return "\n".join(lines) + "\n"


def version(program):
    return subprocess.run([str(program), "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--clusters", default="config-c,a100-4x8,h100-4x8")
    parser.add_argument("--effort", default="quick", choices=("quick", "normal", "thorough"))
    parser.add_argument("--only", default="", help="fixtures whose names match")
    parser.add_argument("-o", "--output", type=Path, help="the page")
    options = parser.parse_args()
    chosen = {name: path for name, path in fixtures().items() if re.search(options.only, name)}
    if not chosen:
        raise SystemExit(f"--only: no fixture matches {options.only!r}; there are {', '.join(fixtures())}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, path in sorted(chosen.items(), key=lambda item: item[1].stat().st_size):
            for cluster in options.clusters.split(","):
                rows.append(compare(name, path, cluster, options, Path(folder)))
                if options.output:
                    options.output.write_text(page(rows, options))
                print(f"{name} {cluster}: {rows[-1]['cause'] or 'as long'}", file=sys.stderr, flush=True)
    if not options.output:
        print(page(rows, options), end="")


if __name__ == "__main__":
    main()
