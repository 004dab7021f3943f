#!/usr/bin/env python3
"""Writes down how a night of scripts/nightly.sh ended: a line of FOLDER/history.jsonl, also printed, and FOLDER/history.html.

  scripts/nightly_history.py FOLDER --night 2026-11-24-0007 --outcome promoted --exit 0 --why "promoted, better than ..."
  scripts/nightly_history.py FOLDER            # only draws the page again

The page has all nights, the last first: what was decided and by what test, the curves of every run, data, program, machine. It
needs nothing but itself. A night that was stopped and went on has several lines; the page shows its last one.
"""

import argparse
import csv
import datetime
import html
import json
import os
import platform
import sys
from pathlib import Path

SCHEMA = "automap.night/1"
COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#805ad5", "#b83280", "#4a5568")
STYLE = """body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em;color:#1a202c}
table{border-collapse:collapse}td,th{padding:.3em .9em .3em 0;text-align:left;vertical-align:top;border-bottom:1px solid #e2e8f0}
.promoted{color:#2f855a;font-weight:600}.failed,.given_up{color:#c53030;font-weight:600}.n{text-align:right;white-space:nowrap}
small{color:#718096}svg{display:block}"""


def read(path, default=None):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return default


def lines_of(path):
    """Every whole line; one that a kill has cut short is left out."""
    found = []
    if path.exists():
        for line in path.read_text(errors="replace").splitlines():
            try:
                one = json.loads(line)
            except ValueError:
                continue
            if isinstance(one, dict) and one.get("schema") == SCHEMA:
                found.append(one)
    return found


def machine():
    return {"host": platform.node(), "processors": len(os.sched_getaffinity(0)), "load": round(os.getloadavg()[0], 1)}


def record(folder, options):
    here = folder / "nights" / options.night if options.night else None
    decision = read(here / "decision.json", {}) if here else {}
    line = {"schema": SCHEMA, "time": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "night": options.night or None, "outcome": options.outcome, "exit": options.exit, "why": options.why}
    for key in ("run", "scores", "start_won"):
        if key in decision:
            line[key] = decision[key]
    for name, test in (("comparison", decision.get("comparison")), ("real", decision.get("real"))):
        if test:
            line[name] = {key: test.get(key) for key in ("verdict", "difference", "standard_error", "lower_bound", "upper_bound", "problems", "ended_by")}
    run = read(here / "run-1" / "run.json", {}) if here else {}
    for key in ("git", "preset", "data"):
        if run.get(key):
            line[key] = run[key]
    line["machine"] = machine()
    text = json.dumps(line)
    # Whoever watches is told first, whatever becomes of the files.
    print(text, flush=True)
    path = folder / "history.jsonl"
    # Behind a line that was cut short, a new one begins.
    cut = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
    with open(path, "a") as file:
        file.write(("\n" if cut else "") + text + "\n")
        file.flush()
        os.fsync(file.fileno())


def curve_of(run):
    """(episodes, mean gap in %) of every evaluation."""
    try:
        with open(run / "curves.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        return [(float(row["episodes"]), 100 * float(row["gap/score"])) for row in rows if row.get("gap/score")]
    except (OSError, ValueError, KeyError):
        return []


def picture(curves, width=300, height=90):
    """Of several runs: mean gap over episodes, from 0."""
    curves = [curve for curve in curves if len(curve) > 1]
    if not curves:
        return "<small>no curve</small>"
    most_x = max(x for curve in curves for x, _ in curve) or 1
    most_y = max(y for curve in curves for _, y in curve) or 1
    lines = "".join(
        f'<polyline fill="none" stroke="{COLOURS[i % len(COLOURS)]}" stroke-width="1.5" points="'
        + " ".join(f"{x / most_x * width:.1f},{height - y / most_y * (height - 12):.1f}" for x, y in curve) + '"/>'
        for i, curve in enumerate(curves))
    return (f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}"><line x1="0" y1="{height}" x2="{width}" '
            f'y2="{height}" stroke="#cbd5e0"/>{lines}<text x="2" y="10" font-size="10" fill="#718096">{most_y:.2f} %</text>'
            f'<text x="{width - 2}" y="10" font-size="10" text-anchor="end" fill="#718096">{most_x:.0f} episodes</text></svg>')


def points(test):
    if not test or test.get("difference") is None:
        return "-"
    # Older lines have no verdict.
    said = html.escape(test.get("verdict") or str(test.get("ended_by")).replace("_", " "))
    return (f"{100 * test['difference']:+.3f} &plusmn; {100 * (test.get('standard_error') or 0):.3f}<br><small>{said}, "
            f"{test.get('problems')} problems</small>")


def page(folder):
    last = {}
    for line in lines_of(folder / "history.jsonl"):
        if line.get("night"):
            last.pop(line["night"], None)
            last[line["night"]] = line
    rows = []
    for line in reversed(last.values()):
        runs = sorted((folder / "nights" / line["night"]).glob("run-*"))
        scores = line.get("scores") or {}
        said = ", ".join(f"{html.escape(name)} {100 * score:.3f} %" for name, score in scores.items())
        place = line.get("machine") or {}
        rows.append(
            f"<tr><td><a href=\"nights/{html.escape(line['night'])}\">{html.escape(line['night'])}</a><br><small>"
            f"{html.escape(str(line.get('time')))}</small></td><td class=\"{html.escape(str(line.get('outcome')))}\">"
            f"{html.escape(str(line.get('outcome')).replace('_', ' '))}</td><td>{html.escape(str(line.get('why')))}"
            f"<br><small>{said}</small></td><td class=n>{points(line.get('comparison'))}</td><td class=n>{points(line.get('real'))}</td>"
            f"<td>{picture([curve_of(run) for run in runs])}</td><td><small>{html.escape(str(line.get('data', '')))}<br>"
            f"{html.escape(str(line.get('preset', '')))} {html.escape(str(line.get('git', '')))}<br>{html.escape(str(place.get('host')))}, "
            f"{place.get('processors')} processors, load {place.get('load')}</small></td></tr>")
    text = (f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Nights of {html.escape(str(folder))}</title><style>{STYLE}'
            f"</style><h1>Nights of {html.escape(folder.name)}</h1><p>{len(last)} nights, "
            f"{sum(line.get('outcome') == 'promoted' for line in last.values())} promoted. Differences in points of the mean gap, the new "
            "policy less the current one: below 0 the new one is better. Curves: mean gap on the problems a run chose its best policy "
            "by, one line for each run.</p><table><tr><th>night<th>outcome<th>why<th class=n>own problems<th class=n>real profiles"
            f"<th>curves<th>data, program, machine</tr>{''.join(rows)}</table></html>\n")
    partial = folder / "history.html.tmp"
    partial.write_text(text)
    os.replace(partial, folder / "history.html")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--night", default="")
    parser.add_argument("--outcome", choices=("promoted", "kept", "stopped", "failed", "given_up"))
    parser.add_argument("--exit", type=int, default=0)
    parser.add_argument("--why", default="")
    options = parser.parse_args()
    if not options.folder.is_dir():
        print(f"error: {options.folder}: no such folder", file=sys.stderr)
        sys.exit(3)
    if options.outcome:
        record(options.folder, options)
    page(options.folder.absolute())


if __name__ == "__main__":
    main()
