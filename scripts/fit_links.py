#!/usr/bin/env python3
"""Fits the links of common/machine/links.cpp to measured collectives and says how well the lines hold.

    scripts/fit_links.py CORPUS

CORPUS holds measured/aceso-v100/ (prim_*_OPERATION_Ngpus.csv: MB and ms; p2p_*.csv) and hlo/perf/
default_collective_perf_table.txtpb (XLA's table of collectives on H100 and B200). Of the sizes from 64 KiB on, in
order, every second one is fitted, beginning with the first, and the others are only compared. Prints the rows of
links.cpp and, for both halves, median and largest error. The same fit as common/machine/link_fit.cpp."""

import collections
import glob
import itertools
import os
import re
import sys

MIB = 1048576
SMALLEST = 65536  # bytes; below it latency is all there is
SEND_LARGEST = 64 * MIB  # of messages between two devices, which have one line


def line_of(points, least):
    """Least squares of (latency + bytes * pace) / ms - 1; neither below 0, the pace not below `least`."""
    ones = sum(1 / t**2 for b, t in points)
    first = sum(b / t**2 for b, t in points)
    squares = sum(b * b / t**2 for b, t in points)
    per_ms = sum(1 / t for b, t in points)
    bytes_per_ms = sum(b / t for b, t in points)
    determinant = ones * squares - first * first
    latency = pace = -1
    if determinant > 1e-12 * ones * squares:
        latency = (per_ms * squares - bytes_per_ms * first) / determinant
        pace = (bytes_per_ms * ones - per_ms * first) / determinant
    if latency < 0:
        latency, pace = 0, bytes_per_ms / squares
    if pace < least:
        latency, pace = max(0, (per_ms - least * first) / ones), least
    return latency, pace


def time_of(lines, size):
    return min(latency + size * pace for latency, pace in lines)


def errors(lines, points):
    return [time_of(lines, b) / t - 1 for b, t in points]


def fit_lines(points, count):
    least = points[-1][1] / points[-1][0] / 2
    best, best_error = None, float("inf")
    for lines in range(1, count + 1):
        for ends in itertools.combinations(range(2, len(points) - 1), lines - 1):
            cuts = (0,) + ends + (len(points),)
            if any(b - a < 2 for a, b in zip(cuts, cuts[1:])):
                continue
            fitted = [line_of(points[a:b], least) for a, b in zip(cuts, cuts[1:])]
            error = sum(e * e for e in errors(fitted, points))
            # A further line has to be worth it.
            if error < best_error * (1 if best is None or len(best) == lines else 0.95):
                best, best_error = fitted, error
    return best


def aceso(corpus):
    """{(operation, devices): [(bytes, ms)]}; bytes as links.h counts them."""
    found = collections.defaultdict(dict)
    for path in glob.glob(os.path.join(corpus, "measured/aceso-v100/prim_*.csv")):
        operation, devices = re.search(r"_(all_reduce|reduce_scatter|all_gather|all_to_all)_(\d)gpus", path).groups()
        for line in list(open(path))[1:]:
            fields = line.strip().split(",")
            if len(fields) < 2 or float(fields[0]) < 1 or float(fields[1]) > 1e8:  # rounded to 0; out of memory
                continue
            whole = float(fields[0]) * MIB * (int(devices) if operation == "all_gather" else 1)
            sizes = found[operation, int(devices)]
            # The layouts of one size differ by the copies around the collective: the one with the fewest.
            sizes[whole] = min(sizes.get(whole, 1e9), float(fields[1]))
    return {key: sorted(sizes.items()) for key, sizes in found.items()}


def aceso_sends(corpus, where):
    sizes, rates = [
        [float(x) for x in line.split(",")]
        for line in open(os.path.join(corpus, "measured/aceso-v100/p2p_%s_node.csv" % where))
    ][:2]
    return [(mb * MIB, mb * MIB / (rate * 1e6)) for mb, rate in zip(sizes, rates)]


def xla(corpus, device):
    """Of one device of XLA's table; sends by the number of pairs that send at once."""
    text = open(os.path.join(corpus, "hlo/perf/default_collective_perf_table.txtpb")).read()
    found = collections.defaultdict(list)
    current, row = None, {}
    for line in text.split("\n"):
        word, _, value = line.strip().partition(" ")
        if word == "key:":
            current = value.strip('"')
        elif word == "instruction":
            row = {"pairs": 0}
        elif word in ("opcode:", "num_devices_per_group:"):
            row[word] = value.strip('"')
        elif word == "dimensions:" and "size" not in row:
            row["size"] = int(value) * 4
        elif word == "source_target_pairs":
            row["pairs"] += 1
        elif word == "network_throughput_bytes_per_sec:" and current == device:
            operation = row["opcode:"].replace("-", "_")
            devices = int(row.get("num_devices_per_group:", row["pairs"]))
            # The shape of a reduce-scatter is one device's part; the throughput counts all of them.
            size = row["size"] * (devices if operation == "reduce_scatter" else 1)
            found[operation, devices].append((size, size / int(value) * 1e3))
    return {key: sorted(points) for key, points in found.items()}


def median(values):
    return sorted(values)[len(values) // 2]


def report(name, operation, devices, servers, points, count, largest=float("inf")):
    points = [p for p in points if SMALLEST <= p[0] <= largest]
    fitted, other = points[0::2], points[1::2]
    lines = fit_lines(fitted, count)
    cpp = ", ".join("{%.4g, %.4g}" % (latency * 1e3, 1e-6 / pace) for latency, pace in lines)
    constant = "k" + operation.title().replace("_", "")
    print("{CollectiveKind::%s, %d, %d, {%s}}," % (constant, devices, servers, cpp), end="  // ")
    half = lambda of: "%.1f %% (%.0f %%)" % (
        100 * median([abs(e) for e in errors(lines, of)]), 100 * max(abs(e) for e in errors(lines, of)))
    print("%s: fitted %s of %d, others %s of %d" % (name, half(fitted), len(fitted), half(other), len(other)))


def main():
    corpus = sys.argv[1]
    operations = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")
    v100 = aceso(corpus)
    for devices in (2, 4, 8):
        report("v100", "all_reduce", devices, 1, v100["all_reduce", devices], 3)
    report("v100", "all_to_all", 8, 1, v100["all_to_all", 8], 3)
    report("v100", "permute", 2, 1, aceso_sends(corpus, "intra"), 1)
    report("v100", "permute", 2, 2, aceso_sends(corpus, "inter"), 1)
    for name, device in (("h100", "sm_90"), ("b200", "sm_100_B200")):
        table = xla(corpus, device)
        for operation in operations:
            for devices in (2, 4, 8):
                report(name, operation, devices, 1, table[operation, devices], 3)
        report(name, "permute", 2, 1, table["collective_permute", 4], 1, SEND_LARGEST)
        report(name + ", 8 pairs", "permute", 2, 1, table["collective_permute", 8], 1, SEND_LARGEST)


if __name__ == "__main__":
    main()
