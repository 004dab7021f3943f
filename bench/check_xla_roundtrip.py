#!/usr/bin/env python3
"""Does XLA parse what our writer writes, and count the same opcodes and operands?

  bench/check_xla_roundtrip.py --rewrite build/bench/bench-hlo_rewrite FILE...

Each FILE is read and written again by this project (bench-hlo_rewrite, one module per file: a file that holds several
is split), then both the original and the rewritten text go through XLA's parser in jaxlib. Opcode counts, computation
counts and operand counts must agree. Without jaxlib it says so and ends well. Exit code 1: some file disagrees.
"""

import argparse
import collections
import os
import subprocess
import sys
import tempfile


def facts(module):
    opcodes = collections.Counter()
    operands = 0
    computations = module.computations()
    for computation in computations:
        for instruction in computation.instructions():
            opcodes[str(instruction.opcode)] += 1
            operands += len(instruction.operands())
    return len(computations), operands, opcodes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rewrite", required=True, help="the bench-hlo_rewrite program")
    parser.add_argument("files", nargs="+", metavar="FILE")
    args = parser.parse_args()
    try:
        from jaxlib import _hlo
    except ImportError as error:
        print(f"SKIPPED: jaxlib is not installed ({error}); XLA's opinion was not asked", file=sys.stderr)
        return 0
    agreed = disagreed = refused = 0
    for path in args.files:
        with tempfile.TemporaryDirectory() as folder:
            out = subprocess.run([args.rewrite, path, folder], capture_output=True, text=True)
            if out.returncode != 0:
                print(f"{path}: not read by us: {out.stderr.strip()}")
                disagreed += 1
                continue
            for name in sorted(os.listdir(folder)):
                if not name.endswith(".original.hlo"):
                    continue
                texts = []
                for suffix in (".original.hlo", ".hlo", ".shapes.hlo", ".plain.hlo"):
                    with open(os.path.join(folder, name[: -len(".original.hlo")] + suffix), encoding="utf-8",
                              errors="surrogateescape") as f:
                        texts.append(f.read())
                try:
                    original = facts(_hlo.hlo_module_from_text(texts[0]))
                except Exception as error:  # jaxlib raises its own runtime error type
                    print(f"{path}: XLA refuses the original, so there is nothing to compare: {str(error).splitlines()[0][:100]}")
                    refused += 1
                    continue
                problem = ""
                for what, text in zip(("rewritten", "with operand shapes", "without metadata"), texts[1:]):
                    try:
                        found = facts(_hlo.hlo_module_from_text(text))
                    except Exception as error:
                        problem = f"XLA refuses it {what}: {str(error)[:400]}"
                        break
                    if found != original:
                        difference = {k: (original[2][k], found[2][k]) for k in set(original[2]) | set(found[2])
                                      if original[2][k] != found[2][k]}
                        problem = f"{what}: computations {original[0]} -> {found[0]}, operands {original[1]} -> {found[1]}, opcodes {difference}"
                        break
                if problem:
                    print(f"{path} ({name}): {problem}")
                    disagreed += 1
                else:
                    agreed += 1
    print(f"{agreed} modules agree, {disagreed} do not, {refused} originals are refused by XLA itself")
    return 1 if disagreed else 0


if __name__ == "__main__":
    sys.exit(main())
