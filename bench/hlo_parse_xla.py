#!/usr/bin/env python3
"""HLO text parsing: this project's reader against XLA's own, on the same files, alternately, in one run.

  bench/hlo_parse_xla.py --bench build/bench/bench-hlo_parse [--rounds 5] FILE...

XLA's parser comes with jaxlib (pip install jaxlib, best in a virtual environment). Both sides start from text in
memory and run on one core: the first parse of each round is left out on both sides, the best of the round is kept, and
the ratio is taken per round; the table shows the median of the rounds. Without jaxlib it says so and ends well.
"""

import argparse
import gzip
import os
import statistics
import subprocess
import sys
import time


def read_text(path):
    with open(path, "rb") as f:
        data = f.read()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    return data.decode("utf-8", "surrogateescape")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, help="the bench-hlo_parse program of a Release build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=5, help="parses per side and round")
    parser.add_argument("--minimum", type=float, default=0.0, help="fail when the median ratio over files is lower")
    parser.add_argument("files", nargs="+", metavar="FILE")
    args = parser.parse_args()
    try:
        import jaxlib
        from jaxlib import _hlo
    except ImportError as error:
        print(f"SKIPPED: jaxlib is not installed ({error}); nothing to compare with", file=sys.stderr)
        return 0
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[-1]})  # one core, inherited by the bench program
    print(f"jaxlib {jaxlib.__version__}, load average {os.getloadavg()[0]:.2f}")
    print(f"{'file':<44} {'MB':>7} {'instr':>7} {'XLA ms':>9} {'ours ms':>9} {'XLA MB/s':>9} {'ours MB/s':>9} {'ratio':>7} {'first':>7}")
    ratios = []
    for path in args.files:
        text = read_text(path)
        xla, ours, first, instructions = [], [], [], 0
        try:
            _hlo.hlo_module_from_text(text)
        except Exception as error:  # jaxlib raises its own runtime error type
            print(f"{path[-44:]:<44} skipped: XLA refuses it: {str(error).splitlines()[0][:80]}")
            continue
        for _ in range(args.rounds):
            times = []
            for _ in range(args.repeat):
                begin = time.perf_counter()
                module = _hlo.hlo_module_from_text(text)
                times.append((time.perf_counter() - begin) * 1e3)
                del module
            xla.append(min(times))
            out = subprocess.run([args.bench, "--tsv", "--repeat", str(args.repeat), path], capture_output=True, text=True)
            if out.returncode != 0 or not out.stdout:
                print(f"{path[-44:]:<44} skipped: {out.stderr.strip()[:100]}")
                break
            fields = out.stdout.rstrip("\n").split("\t")
            instructions = int(fields[2])
            first.append(float(fields[3]))
            ours.append(float(fields[4]))
        if not ours:
            continue
        ratio = statistics.median(x / o for x, o in zip(xla, ours))
        cold = statistics.median(x / o for x, o in zip(xla, first))
        ratios.append(ratio)
        x, o, size = statistics.median(xla), statistics.median(ours), len(text) / 1e6
        print(f"{path[-44:]:<44} {size:7.2f} {instructions:7d} {x:9.2f} {o:9.2f} {size / x * 1e3:9.1f} {size / o * 1e3:9.1f} "
              f"{ratio:7.1f} {cold:7.1f}")
        sys.stdout.flush()
    if ratios:
        print(f"ratio over {len(ratios)} files: median {statistics.median(ratios):.1f}, lowest {min(ratios):.1f}, "
              f"highest {max(ratios):.1f}; 'first' = XLA's best against our first parse in a fresh process; "
              f"load average {os.getloadavg()[0]:.2f}")
        if statistics.median(ratios) < args.minimum:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
