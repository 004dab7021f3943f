#!/usr/bin/env python3
"""What XLA says of an HLO module: counts and costs.

Examples:
  python3 scripts/xla_costs.py fixtures/hlo/tiny_mlp.hlo
  python3 scripts/xla_costs.py --opcodes fixtures/hlo/*.hlo.gz
  zcat model.hlo.gz | python3 scripts/xla_costs.py -
  python3 scripts/xla_costs.py --against build/release/automap-inspect fixtures/hlo/*.hlo*

Prints one JSON object per file and line: instructions, entry_instructions, computations, entry_parameters, and from
XLA's HloCostAnalysis of the module as it stands (nothing is compiled) flops, transcendentals and bytes_accessed; a
`while` body counts once. A file that XLA does not parse gives {"file", "error"} and exit code 1. With --against, the
program is asked for the same figures, `flops_ratio` (ours / XLA's) and `differs` are added, and the exit code is 1 where
a count differs or the FLOPs differ by more than 1 %.
Needs the packages of scripts/export_requirements.txt.
"""

import argparse
import collections
import gzip
import json
import os
import re
import subprocess
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

NAME = re.compile(r"^\s*(?:ROOT )?%?[\w.\-]+ = ")


def opcode_of(line):
    """The opcode of one printed instruction, or None for any other line."""
    match = NAME.match(line)
    if not match:
        return None
    at = match.end()
    if line[at] == "(":  # a tuple shape: skip to its closing parenthesis
        depth = 0
        while True:
            depth += {"(": 1, ")": -1}.get(line[at], 0)
            at += 1
            if depth == 0:
                break
    else:
        at = line.index(" ", at)
    return line[at:line.index("(", at)].strip()


def opcode_counts(text):
    counts = collections.Counter(filter(None, map(opcode_of, text.splitlines())))
    return dict(sorted(counts.items()))


def entry_name(text):
    return re.search(r"^ENTRY %?([\w.\-]+)", text, re.MULTILINE).group(1)


def counts_of(module, text):
    """Counts of a parsed module; `text` is how XLA prints it."""
    entry = entry_name(text)
    per_computation = {c.name: c.instructions() for c in module.computations()}
    return {
        "instructions": sum(map(len, per_computation.values())),
        "entry_instructions": len(per_computation[entry]),
        "computations": len(per_computation),
        "entry_parameters": sum(str(i.opcode) == "HloOpcode.kParameter" for i in per_computation[entry]),
    }


def counts_of_proto(data):
    """Counts of a binary HloModuleProto, through XLA."""
    from jaxlib import _hlo

    module = _hlo.HloModule.from_serialized_hlo_module_proto(data)
    return counts_of(module, module.to_string())


def costs_of(module):
    import jax
    from jaxlib import _jax

    properties = _jax.hlo_module_cost_analysis(jax.devices("cpu")[0].client, module)
    return {
        "flops": int(properties["flops"]),
        "transcendentals": int(properties.get("transcendentals", 0)),
        "bytes_accessed": int(properties["bytes accessed"]),
    }


def parse(text):
    from jaxlib import _hlo

    return _hlo.hlo_module_from_text(text)


def read(path):
    data = sys.stdin.buffer.read() if path == "-" else open(path, "rb").read()
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()


def compare(program, path, xla):
    """What `program FILE --json` says of the file, beside XLA's figures."""
    done = subprocess.run([program, path, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        return {"differs": [f"{program} failed: {done.stderr.strip()}"]}
    ours = json.loads(done.stdout)
    fields = ("instructions", "entry_instructions", "computations", "entry_parameters", "opcodes")
    differs = [field for field in fields if ours[field] != xla[field]]
    ratio = ours["flops"] / xla["flops"] if xla["flops"] else float(ours["flops"] == 0)
    if abs(ratio - 1) > 0.01:
        differs.append("flops")
    return {"flops_ratio": round(ratio, 6), "differs": differs}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="HLO text, gzipped or not; - is standard input")
    parser.add_argument("--opcodes", action="store_true", help="also count instructions per opcode")
    parser.add_argument("--against", metavar="AUTOMAP_INSPECT", help="compare with this program's answer")
    options = parser.parse_args()
    if options.against and "-" in options.files:
        parser.error("--against needs files, not standard input")
    status = 0
    for path in options.files:
        try:
            module = parse(read(path))
            text = module.to_string()
            answer = {"file": path, **counts_of(module, text), **costs_of(module)}
            opcodes = opcode_counts(text)
            if options.opcodes:
                answer["opcodes"] = opcodes
            if options.against:
                answer.update(compare(options.against, path, {**answer, "opcodes": opcodes}))
                status |= bool(answer["differs"])
        except (OSError, UnicodeDecodeError, RuntimeError, ValueError) as error:
            answer = {"file": path, "error": str(error).strip().split("\n")[0]}
            status = 1
        print(json.dumps(answer), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
