#!/usr/bin/env python3
"""Training steps that others measured and published, beside what AutoMap says of them: docs/results/published-steps.md.

    scripts/measure_published.py FOLDER [--programs build/release] [--every N] [-o docs/results/published-steps.md]

FOLDER holds what is read, each where it is there: published/vtrain_a100_servers.csv and vtrain-a100-single-server.csv
(Megatron on A100s), published/dlperf_v100.tsv (OneFlow and Megatron on V100s), published/single_device.tsv (its rows of
`gpt`), published/anchors.tsv. --every N reads every Nth row of the large table of one server (7). Every step is a file of
Megatron's arguments that automap-infer is given, with the layout that was measured: no framework is needed. Models have the
dropout that Megatron has where nothing is said (0.1); of one device what the row says (`r`), and Llama none.

Of each class the page has the number of steps, predicted / measured (below 1: too fast) as geometric mean and range, the
mean error, the rank correlation, and between which factors of the estimate four of five measurements lie.
"""
import argparse
import csv
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

OLD_MEGATRON = ("--attention", "as-written", "--sequence-parallel", "off", "--gradient-sync", "after", "--software", "megatron")
SERVERS = {"v100-16gb": "v100-16gb-1x8", "v100-32gb": "v100-32gb-1x8", "a100-40gb": "a100-40gb-1x8", "a100-80gb": "a100-80gb-1x8",
           "h100": "h100-1x8"}
TYPES = {"bfloat16": "--bf16", "float16": "--fp16", "float32": ""}
MOST_STEPS = 8  # of accumulation: more change nothing
REFUSED = (2, 4)  # exit codes of automap-infer for what cannot be asked, and for what has no plan


def dropout(rate):
    return {"attention_dropout": str(rate), "hidden_dropout": str(rate)}


class Asking:
    def __init__(self, programs, folder):
        self.program, self.folder, self.refused = programs / "automap-infer", folder, []

    def model(self, **arguments):
        words = [f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}") for name, value in arguments.items() if value]
        path = self.folder / ("_".join(word.strip("-").replace(" ", "-") for word in words)[:200] + ".args")
        path.write_text("\n".join(words) + "\n", encoding="utf-8")
        return path

    def gpt(self, layers, hidden, heads, sequence, vocabulary, kind="--fp16", **more):
        return self.model(num_layers=layers, hidden_size=hidden, num_attention_heads=heads, seq_length=sequence,
                          max_position_embeddings=sequence, vocab_size=vocabulary, **more, **{kind.strip("-"): bool(kind)} if kind else {})

    def step_ms(self, model, cluster, batch, layout, options=()):
        command = [self.program, model, "--cluster", cluster, "--batch", batch, "--layout", layout, "--memory", "off", "--json", "-q", *options]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode != 0:
            said = (done.stderr.splitlines() or ["(nothing was said)"])[0].removeprefix("error: ")
            if done.returncode not in REFUSED:
                sys.exit(f"measure_published.py: exit {done.returncode} of {' '.join(map(str, command))}: {said}")
            refused = f"`{layout}` on {cluster}: {said.split(': ', 1)[-1]}"
            if refused not in self.refused:
                self.refused.append(refused)
            return None
        return json.loads(done.stdout)["simulated_step_ms"]


def rows_of(path, delimiter=","):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def vtrain(ask, path, every):
    """-> predicted and measured ms of GPT under Megatron; the tables of one server and of several have the same last columns."""
    for row in rows_of(path)[::every]:
        columns = list(row.values())
        devices, batch, micro, hidden, heads, layers, sequence, tensor, data, stages = map(int, columns[-11:-1])
        servers = max(1, devices // 8)
        cluster = f"a100-80gb-{servers}x8" + ("@hdr4" if servers > 1 else "")
        recompute = "layer" if "published" in str(path) else "none"
        layout = f"dp={data},tp={tensor},pp={stages},micro-batch-size={micro},schedule=1f1b,recompute={recompute}"
        yield ask.step_ms(ask.gpt(layers, hidden, heads, sequence, 51200), cluster, batch, layout, OLD_MEGATRON), float(columns[-1])


def dlperf(ask, path, column):
    for row in rows_of(path, "\t"):
        layout = f"dp={row['dp']},tp={row['tp']},pp={row['pp']},micro-batch-size={row['micro_batch']},schedule=1f1b,recompute=layer"
        cluster = f"v100-16gb-{row['servers']}x{row['devices_per_server']}" + ("@100gx1" if row["servers"] != "1" else "")
        model = ask.gpt(row["layers"], row["hidden"], row["heads"], 2048, 50688)
        yield ask.step_ms(model, cluster, row["global_batch"], layout, OLD_MEGATRON), float(row[column])


def single(ask, path, device):
    for row in rows_of(path, "\t"):
        if row["kind"] != "gpt" or not row["device"].startswith(device):
            continue
        sizes, steps = json.loads(row["arguments"]), min(MOST_STEPS, int(row["accumulation_steps"]))
        model = ask.gpt(sizes["L"], sizes["h"], sizes["heads"], sizes["seq"], sizes["V"], TYPES[sizes["dt"]], **dropout(sizes.get("r", 0)))
        layout = f"dp=1,micro-batch-size={sizes['b']},recompute={'layer' if sizes.get('remat') else 'none'}"
        options = OLD_MEGATRON if sizes["dt"] == "float16" else ("--software", "torch-eager")
        yield (ask.step_ms(model, SERVERS[row["device"]], sizes["b"] * steps, layout, options),
               sizes["b"] * steps / float(row["samples_per_s"]) * 1e3)


# Name in anchors.tsv: the model, and how it ran; with nothing recomputed (whole layers of those that recomputed a part).
LLAMA = {"group_query_attention": True, "num_query_groups": 8, "swiglu": True, "untie_embeddings_and_output_weights": True, "bf16": True,
         "normalization": "RMSNorm", "position_embedding_type": "rope", "disable_bias_linear": True, **dropout(0)}
ANCHORS = {
    "torchtitan-llama8b": (dict(num_layers=32, hidden_size=4096, num_attention_heads=32, ffn_hidden_size=14336, vocab_size=128256, seq_length=8192,
                                **LLAMA), "h100-1x8", 8, "dp=8,zero=3,micro-batch-size=1,recompute=", ("none", "layer"), ("--software", "torch-compile")),
    "maxtext-llama70b": (dict(num_layers=80, hidden_size=8192, num_attention_heads=64, ffn_hidden_size=28672, vocab_size=32000, seq_length=4096,
                              **LLAMA), "h100-8x8", 128, "dp=64,zero=3,micro-batch-size=2,recompute=", ("none", "layer"), ()),
    "megatron-175b-selective": (dict(num_layers=96, hidden_size=12288, num_attention_heads=96, vocab_size=51200, seq_length=2048, fp16=True),
                                "a100-80gb-8x8", 64, "dp=1,tp=8,pp=8,micro-batch-size=1,schedule=interleaved,chunks=3,recompute=", ("none",),
                                ("--attention", "as-written")),
    "megatron-175b-full": (dict(num_layers=96, hidden_size=12288, num_attention_heads=96, vocab_size=51200, seq_length=2048, fp16=True),
                           "a100-80gb-8x8", 64, "dp=1,tp=8,pp=8,micro-batch-size=1,schedule=interleaved,chunks=3,recompute=", ("layer",),
                           ("--attention", "as-written", "--sequence-parallel", "off")),
}


def anchor_lines(ask, path):
    lines = ["| run | measured | predicted | predicted / measured |", "|---|---|---|---|"]
    for row in rows_of(path, "\t"):
        if row["name"] not in ANCHORS:
            continue
        sizes, cluster, batch, layout, recomputed, options = ANCHORS[row["name"]]
        seconds = float(row["measured"])
        if "tokens/s" in row["unit"]:
            seconds = int(row["batch"]) * int(row["sequence"]) / (seconds * int(row["devices"].split()[0]))
        for how in recomputed:
            predicted = ask.step_ms(ask.model(**sizes), cluster, batch, layout + how, options)
            if predicted is not None:
                what = {"none": "nothing recomputed", "layer": "all recomputed"}[how]
                lines.append(f"| {row['name']}, {what} | {seconds:.2f} s | {predicted / 1e3:.2f} s | {predicted / 1e3 / seconds:.2f} |")
    return lines


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    out = [0] * len(values)
    for place, index in enumerate(order):
        out[index] = place
    return out


def line(name, pairs):
    pairs = [(predicted, measured) for predicted, measured in pairs if predicted is not None]
    if not pairs:
        return f"| {name} | 0 | - | - | - | - | - |"
    ratios = [predicted / measured for predicted, measured in pairs]
    n = len(ratios)
    mean = math.exp(sum(map(math.log, ratios)) / n)
    error = sum(abs(ratio - 1) for ratio in ratios) / n
    rank = "-"
    if n > 4:
        a, b = (ranks([pair[side] for pair in pairs]) for side in (0, 1))
        rank = f"{1 - 6 * sum((x - y) ** 2 for x, y in zip(a, b)) / (n * (n * n - 1)):.2f}"
    longer = sorted(1 / ratio for ratio in ratios)
    tenth = lambda share: longer[round(share * (n - 1))]
    return (f"| {name} | {n} | {mean:.2f} | {min(ratios):.2f} to {max(ratios):.2f} | {100 * error:.0f} % | {rank} | "
            f"{tenth(0.1):.2f} to {tenth(0.9):.2f} |")


def page(ask, folder, every):
    published = folder / "published"
    # Name, file, and how it is read.
    tables = [
        ("GPT of 3.6 to 175 billion weights, Megatron, 64 to 512 A100, every layer recomputed (vTrain)", published / "vtrain_a100_servers.csv", lambda path: vtrain(ask, path, 1)),
        (f"GPT of hidden size 1024 and 2048, Megatron, 1 to 8 A100 (vTrain; every {every}th of 720)", folder / "vtrain-a100-single-server.csv",
         lambda path: vtrain(ask, path, every)),
        ("GPT, OneFlow, 1 to 32 V100, every layer recomputed (DLPerf)", published / "dlperf_v100.tsv",
         lambda path: dlperf(ask, path, "oneflow_ms")),
        ("the same, Megatron", published / "dlperf_v100.tsv", lambda path: dlperf(ask, path, "megatron_ms")),
        ("GPT on one V100, f16", published / "single_device.tsv", lambda path: single(ask, path, "v100")),
        ("MPT and GPT on one A100", published / "single_device.tsv", lambda path: single(ask, path, "a100")),
        ("MPT on one H100, bf16", published / "single_device.tsv", lambda path: single(ask, path, "h100")),
    ]
    lines = ["# Steps that others measured and published", "",
             "Made by `scripts/measure_published.py`; what is said of it stands in [trust.md](../trust.md). Predicted / measured below 1 is too fast. The last",
             "column says between which factors of the estimate four of five measurements lie.", "",
             "| steps | number | geometric mean | range | mean error | rank correlation | measured / estimate |", "|---|---|---|---|---|---|---|"]
    for name, path, read in tables:
        if path.exists():
            lines.append(line(name, list(read(path))))
    if (published / "anchors.tsv").exists():
        lines += ["", "Well-known runs. Of what was recomputed in part, the estimates with none and with all of it:", "",
                  *anchor_lines(ask, published / "anchors.tsv")]
    if ask.refused:
        lines += ["", "What is refused, and left out:", "", *(f"- {words}" for words in ask.refused)]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--programs", type=Path, default=Path(__file__).resolve().parent.parent / "build/release", metavar="DIR")
    parser.add_argument("--every", type=int, default=7, metavar="N", help="of the large table of one server (7)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: standard output")
    options = parser.parse_args()
    if not options.folder.is_dir():
        sys.exit(f"measure_published.py: {options.folder} is no folder: give the one that holds published/")
    if options.every < 1:
        parser.error(f"--every is {options.every}, expected at least 1")
    with tempfile.TemporaryDirectory() as folder:
        text = page(Asking(options.programs.resolve(), Path(folder)), options.folder, options.every)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
