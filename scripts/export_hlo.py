#!/usr/bin/env python3
"""Writes the HLO fixtures: training steps and forward passes of well-known models, with XLA's own figures beside them.

Examples:
  python3 -m venv .venv && .venv/bin/pip install -r scripts/export_requirements.txt
  .venv/bin/python scripts/export_hlo.py                  # every model, into fixtures/
  .venv/bin/python scripts/export_hlo.py --only vgg19 --out /tmp/vgg
  .venv/bin/python scripts/export_hlo.py --check          # export again and compare with what is stored

Shapes are abstract: no weights are allocated, and nothing is compiled or run. Equal inputs and package versions give
equal bytes. What is written, and the meaning of every field: fixtures/README.md.
"""

import argparse
import gzip
import hashlib
import json
import os
import re
import sys
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

try:
    import jax
    import jax.export
    import jaxlib
except ImportError:
    sys.exit("export_hlo.py: jax is not installed for this Python\n"
             "  python3 -m venv .venv && .venv/bin/pip install -r scripts/export_requirements.txt, then use "
             ".venv/bin/python")

from jax._src import source_info_util

import hlo_proto_json
import xla_costs
from export_models import MODELS

# Stack frames in the modules start at the model, so that editing this script changes no fixture.
source_info_util.register_exclusion(__file__)

SCHEMA = "automap.fixtures/1"
FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
PARAMETER_COLUMNS = ("parameter", "role", "name", "shape", "bytes", "output", "variable")
ENTRY_PARAMETER = re.compile(r'^  (?:ROOT )?\S+ = (\S+) parameter\((\d+)\).*?op_name="((?:[^"\\]|\\.)*)"')


def readable(path):
    """['encoder']['layer'][3]['kernel'] or [0].mu['a'] -> encoder/layer/3/kernel, 0/mu/a"""
    keys = []
    for key in path:
        for field in ("key", "idx", "name"):
            if hasattr(key, field):
                keys.append(str(getattr(key, field)))
                break
    return "/".join(keys)


def entry_parameters(text):
    """parameter number -> (op_name, shape without layout) of the entry computation."""
    entry = text[text.index("\nENTRY "):]
    found = {}
    for line in entry.splitlines():
        match = ENTRY_PARAMETER.match(line)
        if match:
            shape, number, op_name = match.groups()
            found[int(number)] = (op_name.replace("\\'", "'"), re.sub(r"\{[^{}]*\}", "", shape))
    return found


def parameter_table(model, lowered, text):
    """One row per entry parameter, in the order of PARAMETER_COLUMNS, and the loss's place in the result."""
    import inspect

    names = list(inspect.signature(model.function).parameters)
    leaves = {}  # op_name -> (argument, path, leaf)
    for name, argument in zip(names, model.arguments):
        for path, leaf in jax.tree_util.tree_flatten_with_path(argument)[0]:
            leaves[name + jax.tree_util.keystr(path)] = (name, path, leaf)
    results = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(lowered.out_info)[0]]
    output_of = {}  # op_name of an argument leaf -> result leaf with its new value
    for index, result in enumerate(results):
        for prefix, argument in model.updates.items():
            if result.startswith(prefix):
                output_of[argument + result[len(prefix):]] = index

    printed = entry_parameters(text)
    number_of = {op_name: number for number, (op_name, _) in printed.items()}
    unknown = set(number_of) - set(leaves)
    if unknown:
        raise SystemExit(f"{model.name}: parameters that are no argument leaves: {sorted(unknown)[:3]}")
    rows = []
    for number in sorted(printed):
        op_name, shape = printed[number]
        argument, path, leaf = leaves[op_name]
        name, role, variable = readable(path), model.roles[argument], ""
        if role == "variable" and name.startswith(tuple(model.frozen)) and model.frozen:
            role = "frozen"
        if role == "slot":  # opt_state[0].mu['a'] belongs to params['a']
            tail = re.sub(r"^.*?\.(mu|nu|trace)(?=\[)", "", op_name)
            variable = number_of.get("params" + tail, "")
        size = leaf.size * leaf.dtype.itemsize
        rows.append((number, role, name, shape, size, output_of.get(op_name, ""), variable))
    loss = results.index(model.loss) if model.loss else None
    return rows, loss, sorted(set(leaves) - set(number_of))


def export(model):
    """-> ({relative path: bytes}, manifest record)"""
    # What was traced for another model keeps its places in the source.
    jax.clear_caches()
    jax.config.update("jax_traceback_in_locations_limit", 10 if model.locations else 0)
    # Paths in the module do not depend on where the checkout is.
    jax.config.update("jax_hlo_source_file_canonicalization_regex", r"^.*/(scripts|site-packages)/")
    lowered = jax.jit(model.function, donate_argnums=model.donate).lower(*model.arguments)
    text = lowered.as_text("hlo", debug_info=True)
    module = xla_costs.parse(text)
    counts, costs = xla_costs.counts_of(module, text), xla_costs.costs_of(module)
    own = xla_costs.costs_of(lowered.compiler_ir("hlo").as_hlo_module())
    if own != costs:
        raise SystemExit(f"{model.name}: printing and parsing changed the costs: {own} became {costs}")
    opcodes = xla_costs.opcode_counts(text)
    if sum(opcodes.values()) != counts["instructions"]:
        raise SystemExit(f"{model.name}: {sum(opcodes.values())} opcodes for {counts['instructions']} instructions")
    rows, loss, dropped = parameter_table(model, lowered, text)
    if len(rows) != counts["entry_parameters"]:
        raise SystemExit(f"{model.name}: {len(rows)} parameters named of {counts['entry_parameters']}")

    files, forms = {}, {}

    def add(form, path, data, packed=True):
        forms[form] = {"file": path, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        files[path] = gzip.compress(data, 9, mtime=0) if packed else data

    ending = "" if model.plain else ".gz"
    add("text", f"hlo/{model.name}.hlo{ending}", text.encode(), not model.plain)
    if "stripped" in model.forms:
        stripped = lowered.as_text("hlo", debug_info=False)
        add("stripped", f"hlo/{model.name}.stripped.hlo{ending}", stripped.encode(), not model.plain)
    if "proto" in model.forms:
        # Without field 5, the module's number within the exporting process.
        proto = hlo_proto_json.without_field(module.as_serialized_hlo_module_proto(), 5)
        if xla_costs.counts_of_proto(proto) != counts:
            raise SystemExit(f"{model.name}: the proto holds another number of instructions")
        add("proto", f"hlo/{model.name}.pb.gz", proto)
        add("json", f"hlo/{model.name}.json.gz", (hlo_proto_json.hlo_proto_json(proto) + "\n").encode())
    if "stablehlo" in model.forms:
        exported = jax.export.export(jax.jit(model.function, donate_argnums=model.donate))(*model.arguments)
        add("stablehlo", f"stablehlo/{model.name}.mlir", lowered.as_text(debug_info=True).encode(), packed=False)
        add("bytecode", f"stablehlo/{model.name}.mlirbc.gz", bytes(exported.mlir_module_serialized))
        add("jax_export", f"stablehlo/{model.name}.jax_export.gz", bytes(exported.serialize()))
    table = "\t".join(PARAMETER_COLUMNS) + "\n" + "".join("\t".join(map(str, row)) + "\n" for row in rows)
    files[f"parameters/{model.name}.tsv"] = table.encode()

    by_role = {role: [row for row in rows if row[1] == role]
               for role in ("variable", "frozen", "slot", "statistics", "input")}
    record = {
        "name": model.name,
        "description": model.description,
        "kind": "inference" if loss is None else "train",
        "micro_batch": model.micro_batch,
        "forms": forms,
        **counts,
        **costs,
        "opcodes": opcodes,
        "parameters": f"parameters/{model.name}.tsv",
        "loss_output": loss,
        "trainable_variables": len(by_role["variable"]),
        "trainable_bytes": sum(row[4] for row in by_role["variable"]),
        "frozen_variables": len(by_role["frozen"]),
        "frozen_bytes": sum(row[4] for row in by_role["frozen"]),
        "optimizer_slots": len(by_role["slot"]),
        "statistics": len(by_role["statistics"]),
        "inputs": len(by_role["input"]),
        "unused_arguments": dropped,
        "aliased": bool(model.donate),
    }
    return files, record


def manifest_of(records):
    order = {name: place for place, name in enumerate(MODELS)}
    models = sorted(records.values(), key=lambda record: order.get(record["name"], len(order)))
    document = {"schema": SCHEMA, "jax": jax.__version__, "jaxlib": jaxlib.__version__, "models": models}
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def stored_records(out):
    path = out / "MANIFEST.json"
    if not path.exists():
        return {}
    return {record["name"]: record for record in json.loads(path.read_text())["models"]}


def unpacked(path, data):
    return gzip.decompress(data) if path.endswith(".gz") else data


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the models and stop")
    parser.add_argument("--only", action="append", metavar="NAME", help="this model (repeatable); default: all")
    parser.add_argument("--out", type=Path, default=FIXTURES, metavar="DIR", help="default: fixtures/ of the checkout")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where an export differs from DIR")
    options = parser.parse_args()

    wanted = options.only or list(MODELS)
    for name in wanted:
        if name not in MODELS:
            parser.error(f"no model named {name}; there are {', '.join(MODELS)}")
    if options.list:
        for name in wanted:
            print(f"{name:20} {MODELS[name]().description}")
        return 0

    records = stored_records(options.out)
    differing = []
    for name in wanted:
        files, record = export(MODELS[name]())
        print(f"{name:20} {record['instructions']:6} instructions {record['trainable_variables']:4} variables "
              f"{record['flops']:17} FLOPs {sum(map(len, files.values())) / 1024:7.0f} KiB", flush=True)
        if options.check:
            if records.get(name) != record:
                differing.append(f"{name} in MANIFEST.json")
            for path, data in files.items():
                stored = options.out / path
                if not stored.exists() or unpacked(path, stored.read_bytes()) != unpacked(path, data):
                    differing.append(path)
            continue
        for path, data in files.items():
            target = options.out / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        records[name] = record
        (options.out / "MANIFEST.json").write_bytes(manifest_of(records))
    for line in differing:
        print(f"differs: {line}", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
