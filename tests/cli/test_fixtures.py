"""fixtures/ agrees with its manifest: contents, counts, parameter tables, size. Needs nothing but Python."""

import collections
import csv
import gzip
import hashlib
import json
import os
import sys
import unittest
from pathlib import Path

SOURCE = Path(os.environ.get("AUTOMAP_SOURCE", Path(__file__).resolve().parent.parent.parent))
FIXTURES = SOURCE / "fixtures"
sys.path.insert(0, str(SOURCE / "scripts"))
import hlo_proto_json  # noqa: E402
import xla_costs  # noqa: E402

MANIFEST = json.loads((FIXTURES / "MANIFEST.json").read_text())
MODELS = {model["name"]: model for model in MANIFEST["models"]}


def content(form):
    data = (FIXTURES / form["file"]).read_bytes()
    return gzip.decompress(data) if form["file"].endswith(".gz") else data


def parameters(model):
    with open(FIXTURES / model["parameters"], newline="") as table:
        return list(csv.DictReader(table, delimiter="\t"))


class Fixtures(unittest.TestCase):
    def test_schema_and_size(self):
        self.assertEqual(MANIFEST["schema"], "automap.fixtures/1")
        self.assertLess(sum(path.stat().st_size for path in FIXTURES.rglob("*") if path.is_file()), 8 << 20)

    def test_every_file_is_the_manifest_s_and_every_file_is_listed(self):
        listed = {"README.md", "MANIFEST.json"}
        for model in MODELS.values():
            listed.add(model["parameters"])
            for form in model["forms"].values():
                listed.add(form["file"])
                data = content(form)
                self.assertEqual(len(data), form["bytes"], form["file"])
                self.assertEqual(hashlib.sha256(data).hexdigest(), form["sha256"], form["file"])
        # Workloads for placement are no models.
        self.assertEqual({str(path.relative_to(FIXTURES)) for path in FIXTURES.rglob("*") if path.is_file()
                          and path.parent.name != "placement"}, listed)

    def test_gzip_headers_carry_no_time(self):
        for path in FIXTURES.rglob("*.gz"):
            self.assertEqual(path.read_bytes()[4:8], bytes(4), path)

    def test_opcodes_of_every_text_form(self):
        for name, model in MODELS.items():
            self.assertEqual(sum(model["opcodes"].values()), model["instructions"], name)
            for kind in ("text", "stripped"):
                if kind in model["forms"]:
                    text = content(model["forms"][kind]).decode()
                    self.assertEqual(xla_costs.opcode_counts(text), model["opcodes"], (name, kind))
                    self.assertEqual("op_name=" in text, kind == "text", (name, kind))

    def test_json_is_made_from_the_proto(self):
        found = 0
        for name, model in MODELS.items():
            if "proto" not in model["forms"]:
                continue
            found += 1
            made = json.loads(hlo_proto_json.hlo_proto_json(content(model["forms"]["proto"])))
            self.assertEqual(made, json.loads(content(model["forms"]["json"])), name)
            instructions = [i for c in made["hloModule"]["computations"] for i in c["instructions"]]
            self.assertEqual(dict(collections.Counter(i["opcode"] for i in instructions)), model["opcodes"], name)
        self.assertGreaterEqual(found, 3)

    def test_a_broken_proto_is_an_error(self):
        good = content(MODELS["tiny_mlp"]["forms"]["proto"])
        for bad in (good[:-1], good[:len(good) // 2], b"\x80\x01\xff", b"\xff" * 20):
            with self.assertRaises(ValueError):
                hlo_proto_json.hlo_proto_json(bad)
        self.assertEqual(list(hlo_proto_json.read_fields(hlo_proto_json.without_field(good, 1)))[0][0], 2)

    def test_parameter_tables(self):
        for name, model in MODELS.items():
            rows = parameters(model)
            self.assertEqual([int(row["parameter"]) for row in rows], list(range(model["entry_parameters"])), name)
            by_role = collections.defaultdict(list)
            for row in rows:
                by_role[row["role"]].append(row)
            self.assertEqual(len(by_role["variable"]), model["trainable_variables"], name)
            self.assertEqual(sum(int(row["bytes"]) for row in by_role["variable"]), model["trainable_bytes"], name)
            self.assertEqual(len(by_role["frozen"]), model["frozen_variables"], name)
            self.assertEqual(len(by_role["slot"]), model["optimizer_slots"], name)
            outputs = [int(row["output"]) for row in rows if row["output"]]
            self.assertEqual(len(outputs), len(set(outputs)), name)
            self.assertNotIn(model["loss_output"], outputs, name)
            for row in by_role["variable"]:
                self.assertTrue(row["output"], (name, row["name"]))
            for row in by_role["slot"]:  # a moment has its weight's shape
                if row["variable"]:
                    self.assertEqual(rows[int(row["variable"])]["shape"], row["shape"], (name, row["name"]))

    def test_documented_sizes(self):
        page = (SOURCE / "docs" / "models.md").read_text()
        for name, model in MODELS.items():
            row = f"| {name} | {model['trainable_variables']} | {model['trainable_bytes'] / 1e6:.1f} | " \
                  f"{model['flops'] / 1e9:.1f} | {model['micro_batch']} |"
            self.assertIn(row, page)
            if model["kind"] == "inference":
                self.assertIn(f"{model['frozen_variables']} weights, {model['frozen_bytes'] / 1e6:.1f} MB", page)

    def test_variable_counts_of_the_well_known_models(self):
        expected = {"bert48": 775, "t5_6_6": 188, "t5_24_24": 728, "vgg19": 38, "resnet50": 161, "gpt2": 148}
        self.assertEqual({name: MODELS[name]["trainable_variables"] for name in expected}, expected)


if __name__ == "__main__":
    unittest.main()
