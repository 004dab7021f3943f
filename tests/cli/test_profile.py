"""automap-profile: the JSON against its schema and the fixtures' manifest, profile files, --variables, errors."""

import csv
import hashlib
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from programs import BIN, FIXTURES, SOURCE, TIMEOUT_S, environment, run

try:
    import jsonschema
except ImportError:
    jsonschema = None

SCHEMA = json.loads((SOURCE / "docs/formats/profile-json.schema.json").read_text())
MANIFEST = {m["name"]: m for m in json.loads((SOURCE / "fixtures/MANIFEST.json").read_text())["models"]}


def scanned_step(layers, samples, width):
    """x = tanh(x w[k]) for each k in a loop, mean squares, and w -= gradient: what a scan of JAX looks like."""
    x, w, stack = f"f32[{samples},{width}]", f"f32[{width},{width}]", f"f32[{layers},{width},{width}]"
    kept = f"f32[{layers},{samples},{width}]"
    forward, backward = f"(s32[], {x}, {kept}, {stack})", f"(s32[], {x}, {kept}, {stack}, {stack})"
    one, sizes = f"dynamic_slice_sizes={{1,{width},{width}}}", f"dynamic_slice_sizes={{1,{samples},{width}}}"

    def named(operation, loop="jvp()"):
        return f', metadata={{op_name="jit(step)/{loop}/while/body/decoder_block/{operation}"}}'

    back = "transpose(jvp())"
    return f"""HloModule step

turn {{
  s = {forward} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = {x} get-tuple-element(s), index=1
  kept = {kept} get-tuple-element(s), index=2
  w = {stack} get-tuple-element(s), index=3
  zero = s32[] constant(0)
  one = s32[] constant(1)
  slice = f32[1,{width},{width}] dynamic-slice(w, i, zero, zero), {one}
  own = {w} reshape(slice)
  dot = {x} dot(x, own), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{named("attention/dot_general")}
  tanh = {x} tanh(dot){named("mlp/tanh")}
  row = f32[1,{samples},{width}] reshape(x)
  put = {kept} dynamic-update-slice(kept, row, i, zero, zero)
  next = s32[] add(i, one)
  ROOT out = {forward} tuple(next, tanh, put, w)
}}

until {{
  s = {forward} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({layers})
  ROOT less = pred[] compare(i, n), direction=LT
}}

back {{
  s = {backward} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  g = {x} get-tuple-element(s), index=1
  kept = {kept} get-tuple-element(s), index=2
  w = {stack} get-tuple-element(s), index=3
  gradients = {stack} get-tuple-element(s), index=4
  zero = s32[] constant(0)
  one = s32[] constant(1)
  last = s32[] constant({layers - 1})
  k = s32[] subtract(last, i)
  slice = f32[1,{width},{width}] dynamic-slice(w, k, zero, zero), {one}
  own = {w} reshape(slice)
  row = f32[1,{samples},{width}] dynamic-slice(kept, k, zero, zero), {sizes}
  x = {x} reshape(row)
  gw = {w} dot(x, g), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}{named("attention/dot_general", back)}
  gx = {x} dot(g, own), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}{named("attention/dot_general", back)}
  grow = f32[1,{width},{width}] reshape(gw)
  put = {stack} dynamic-update-slice(gradients, grow, k, zero, zero)
  next = s32[] add(i, one)
  ROOT out = {backward} tuple(next, gx, kept, w, put)
}}

until_back {{
  s = {backward} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({layers})
  ROOT less = pred[] compare(i, n), direction=LT
}}

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY main {{
  w = {stack} parameter(0), metadata={{op_name="w"}}
  x = {x} parameter(1), metadata={{op_name="x"}}
  zero = s32[] constant(0)
  nought = f32[] constant(0)
  none = {kept} broadcast(nought), dimensions={{}}
  start = {forward} tuple(zero, x, none, w)
  loop = {forward} while(start), condition=until, body=turn, metadata={{op_name="jit(step)/jvp()/while"}}
  y = {x} get-tuple-element(loop), index=1
  kept = {kept} get-tuple-element(loop), index=2
  square = {x} multiply(y, y), metadata={{op_name="jit(step)/jvp()/mul"}}
  loss = f32[] reduce(square, nought), dimensions={{0,1}}, to_apply=sum, metadata={{op_name="jit(step)/jvp()/sum"}}
  g = {x} add(y, y), metadata={{op_name="jit(step)/{back}/mul"}}
  empty = {stack} broadcast(nought), dimensions={{}}
  restart = {backward} tuple(zero, g, kept, w, empty)
  reverse = {backward} while(restart), condition=until_back, body=back, metadata={{op_name="jit(step)/{back}/while"}}
  gradient = {stack} get-tuple-element(reverse), index=4
  updated = {stack} subtract(w, gradient), metadata={{op_name="jit(step)/sub"}}
  ROOT out = (f32[], {stack}) tuple(loss, updated)
}}
"""


class Profile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def document(self, *arguments, stdin=None):
        result = run("automap-profile", *arguments, "--json", stdin=stdin)
        self.assertEqual(result.returncode, 0, result.stderr)
        document = json.loads(result.stdout)
        if jsonschema is not None:
            jsonschema.Draft202012Validator(SCHEMA).validate(document)
        return document

    def error(self, *arguments, code, stdin=None):
        result = run("automap-profile", *arguments, stdin=stdin)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        return result.stderr

    def test_the_schema_is_one_and_refuses(self):
        if jsonschema is None:
            self.skipTest("python3-jsonschema is not installed: documents are not checked against their schema")
        jsonschema.Draft202012Validator.check_schema(SCHEMA)
        document = self.document(FIXTURES / "tiny_mlp.hlo")
        for damage in ({"split": "guess"}, {"instructions": 1}, {"totals": {}}, {"surprise": 1}, {"forward_fraction": 2}):
            with self.assertRaises(jsonschema.ValidationError):
                jsonschema.Draft202012Validator(SCHEMA).validate({**document, **damage})

    def test_fixtures(self):
        for name in ("tiny_mlp", "vgg19", "transformer_scan", "gpt2_forward"):
            with self.subTest(name):
                record = MANIFEST[name]
                document = self.document(SOURCE / "fixtures" / record["forms"]["text"]["file"])
                self.assertEqual(document["model"], name)
                self.assertLess(abs(document["total_flops"] / record["flops"] - 1), 0.01)
                self.assertLessEqual(document["forward_flops"], document["total_flops"])
                self.assertEqual(document["training"], record["kind"] == "train")
                if document["training"]:
                    self.assertEqual(len(document["trainable_variables"]), record["trainable_variables"])
                    self.assertEqual(sum(v["bytes"] for v in document["trainable_variables"]), record["trainable_bytes"])
                    self.assertEqual(document["totals"]["w_bytes"], record["trainable_bytes"])
                    self.assertEqual(document["loss"], record["loss_output"])
                    self.assertEqual(document["split"], "metadata")
                    self.assertEqual(document["micro_batch_size"], record["micro_batch"])
                else:
                    self.assertEqual(document["forward_fraction"], 1)
                times = document["times_ms"]
                self.assertAlmostEqual(document["totals"]["c_ms"], times["forward"] + times["backward"],
                                       delta=1e-9 * document["totals"]["c_ms"])
                self.assertEqual(document["layers"][-1]["last_instruction"], document["instructions"])
                self.assertAlmostEqual(sum(layer["c_ms"] for layer in document["layers"]), document["totals"]["c_ms"],
                                       delta=1e-9 * document["totals"]["c_ms"])

    def test_a_scanned_module(self):
        """Turns of a loop do matrix products and have names: both as often as it runs."""
        layers, samples, width = 6, 8, 64
        path = self.folder / "scanned.hlo"
        path.write_text(scanned_step(layers, samples, width))
        document = self.document(path)
        once = 2 * samples * width * width  # one product
        self.assertAlmostEqual(document["executed_forward_flops"], layers * document["forward_flops"], delta=0.2 * once)
        self.assertGreaterEqual(document["executed_forward_flops"], layers * once)
        self.assertGreaterEqual(document["executed_flops"], 3 * layers * once)
        self.assertLess(document["total_flops"], 4 * once)
        text = run("automap-profile", path).stdout
        self.assertIn(f"{document['executed_forward_flops'] / 1e3:.0f} kFLOP of "
                      f"{document['executed_flops'] / 1e6:.2f} MFLOP", text)
        self.assertIn("decoder_block/0 ", text)
        self.assertIn(f"decoder_block/{layers - 1} ", text)
        self.assertNotIn("carries no layer names", text)

    def test_every_form_gives_the_same_profile(self):
        text = self.document(FIXTURES / "tiny_mlp.stripped.hlo")
        self.assertEqual(text["split"], "dataflow")
        for form in ("tiny_mlp.pb.gz", "tiny_mlp.json.gz"):
            other = self.document(FIXTURES / form)
            for key in ("instructions", "forward_flops", "forward_fraction", "totals", "loss"):
                self.assertEqual(other[key], text[key], (form, key))
        piped = self.document("-", stdin=(FIXTURES / "tiny_mlp.hlo").read_bytes())
        self.assertEqual(piped["totals"], text["totals"])

    def test_profile_files(self):
        document = self.document(FIXTURES / "vgg19.hlo.gz", "-o", self.folder / "p.csv")
        with open(self.folder / "p.csv", newline="") as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
        self.assertEqual(len(rows), document["instructions"])
        for column in ("c_ms", "w_bytes", "stash_bytes"):
            total = document["totals"][column]
            self.assertAlmostEqual(sum(float(row[column]) for row in rows), total, delta=1e-9 * total)
        self.assertEqual(float(rows[-1]["a_bytes"]), 0)
        result = run("automap-profile", FIXTURES / "vgg19.hlo.gz", "-o", self.folder / "p.h5")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("block3_conv2", result.stdout)
        again = run("automap-profile", FIXTURES / "vgg19.hlo.gz", "-o", "-")
        self.assertEqual(again.stdout, (self.folder / "p.csv").read_text())
        try:
            import h5py
        except ImportError:
            self.skipTest("python3-h5py is not installed: the HDF5 profile is not opened from Python")
        with h5py.File(self.folder / "p.h5") as file:
            self.assertEqual(list(file["c_ms"]), [float(row["c_ms"]) for row in rows])
            self.assertEqual(file.attrs["forward_fraction"], document["forward_fraction"])

    def test_hashes_are_of_the_file_as_given(self):
        for path in (FIXTURES / "tiny_mlp.hlo", FIXTURES / "vgg19.hlo.gz"):
            self.assertEqual(self.document(path)["source_sha256"], hashlib.sha256(path.read_bytes()).hexdigest())

    def test_a_reader_that_stops_early_is_no_error(self):
        reading, writing = os.pipe()
        os.close(reading)
        try:
            result = subprocess.run([BIN / "automap-profile", FIXTURES / "bert48.hlo.gz", "-o", "-"], stdout=writing,
                                    stderr=subprocess.PIPE, env=environment(), timeout=TIMEOUT_S)
        finally:
            os.close(writing)
        self.assertEqual((result.returncode, result.stderr), (0, b""))

    def test_the_report_fits_the_terminal(self):
        for columns in (60, 80, 120):
            for model in ("gpt2.hlo.gz", "tiny_mlp.hlo", "lit_small.stripped.hlo.gz"):
                result = run("automap-profile", FIXTURES / model, env=environment(COLUMNS=str(columns)))
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual([line for line in result.stdout.splitlines() if len(line) > columns], [])
                self.assertIn("parameters", result.stdout)

    def test_a_profile_is_refused(self):
        run("automap-profile", FIXTURES / "tiny_mlp.hlo", "-o", self.folder / "p.csv")
        self.assertIn("this is a profile already", self.error(self.folder / "p.csv", code=3))

    def test_variables(self):
        module = FIXTURES / "tiny_mlp.hlo"
        found = self.document(module)
        listed = self.folder / "vars.txt"
        listed.write_text("# the kernels\n1 first kernel\n" + found["trainable_variables"][3]["parameter"] + "\n")
        document = self.document(module, "--variables", listed)
        self.assertEqual([v["number"] for v in document["trainable_variables"]], [1, 3])
        self.assertEqual(document["trainable_variables"][0]["name"], "first kernel")
        self.assertEqual(document["forward_flops"], found["forward_flops"])
        (self.folder / "found.json").write_text(json.dumps(found))
        again = self.document(module, "--variables", self.folder / "found.json")
        self.assertEqual(again["totals"], found["totals"])
        listed.write_text("1\n\nparams['dense_1']['kernal']\n")
        message = self.error(module, "--variables", listed, code=3)
        self.assertIn("vars.txt:3: the module has no parameter", message)
        self.assertIn("did you mean", message)
        listed.write_text("# nothing\n")
        self.assertIn("no variable at all", self.error(module, "--variables", listed, code=3))
        self.assertIn("vars.none", self.error(module, "--variables", self.folder / "vars.none", code=3))

    def test_devices(self):
        slow = self.document(FIXTURES / "tiny_mlp.hlo", "--device", "v100-16gb")
        fast = self.document(FIXTURES / "tiny_mlp.hlo", "--device", "h100")
        self.assertLess(fast["totals"]["c_ms"], slow["totals"]["c_ms"])
        self.assertEqual(fast["totals"]["w_bytes"], slow["totals"]["w_bytes"])
        self.assertIn("v100-16gb", self.error(FIXTURES / "tiny_mlp.hlo", "--device", "v1000", code=2))

    def test_samples(self):
        module = FIXTURES / "tiny_mlp.hlo"
        document = self.document(module)
        points = document["times"][0]["points"]
        self.assertEqual([point["samples"] for point in points], [1, 2, 4, 8, 16, 32, 64])
        own = next(point for point in points if point["samples"] == document["micro_batch_size"])
        self.assertAlmostEqual(own["forward_ms"] + own["backward_ms"], document["totals"]["c_ms"], 9)
        # Never proportional: launches do not shrink.
        self.assertGreater(points[0]["forward_ms"], own["forward_ms"] / 16)
        several = self.document(module, "--samples", "8,2", "--also-device", "h100", "--also-device", "h200")
        self.assertEqual([times["device"] for times in several["times"]], ["v100-16gb", "h100", "h200"])
        for times in several["times"]:
            self.assertEqual([point["samples"] for point in times["points"]], [2, 8, 16])
        self.assertIn("--samples", self.error(module, "--samples", "2,x", code=2))
        self.assertIn("no-such", self.error(module, "--also-device", "no-such", code=2))

    def test_attention(self):
        module = FIXTURES / "transformer_bf16.hlo.gz"
        found = "6 attentions (6 causal), 6 attention gradients, 1 cross-entropy, 1 cross-entropy gradient"
        fused = self.document(module, "--device", "a100-80gb")
        self.assertEqual(fused["fused_kernels"], {
            "looked_for": "16-bit", "found": found, "device_without": "", "softmaxes_as_written": 0,
            "as_written_since": {"no_16_bit_products": 0, "longer_heads": 0, "read_by_others": 0}})
        written = self.document(module, "--device", "a100-80gb", "--attention", "as-written")
        self.assertEqual(written["fused_kernels"]["looked_for"], "none")
        self.assertLess(fused["totals"]["c_ms"], written["totals"]["c_ms"])
        self.assertLess(fused["totals"]["stash_bytes"], written["totals"]["stash_bytes"])
        self.assertEqual(fused["forward_flops"], written["forward_flops"])
        # A V100 has no such kernels; another device beside it has, but what is kept is one figure for both.
        old = self.document(module, "--device", "v100-16gb")
        self.assertEqual((old["fused_kernels"]["looked_for"], old["fused_kernels"]["device_without"]), ("none", "v100-16gb"))
        both = self.document(module, "--device", "a100-80gb", "--also-device", "v100-16gb")
        self.assertEqual((both["fused_kernels"]["found"], both["fused_kernels"]["device_without"]), (found, "v100-16gb"))
        self.assertEqual((both["totals"]["c_ms"], both["totals"]["stash_bytes"]), (fused["totals"]["c_ms"], written["totals"]["stash_bytes"]))
        self.assertEqual(both["times"], [fused["times"][0], old["times"][0]])
        self.assertEqual(both["times_ms"], fused["times_ms"])
        self.assertAlmostEqual(sum(layer["c_ms"] for layer in both["layers"]), both["totals"]["c_ms"], delta=1e-9 * both["totals"]["c_ms"])
        self.assertIn("v100-16gb has none: its times, and what all keep, are as written",
                      run("automap-profile", module, "--device", "a100-80gb", "--also-device", "v100-16gb").stdout)
        single = self.document(FIXTURES / "gpt2.hlo.gz", "--device", "a100-80gb")["fused_kernels"]
        self.assertEqual((single["found"], single["softmaxes_as_written"]), ("", 12))
        text = run("automap-profile", module, "--device", "a100-80gb").stdout
        self.assertIn(found, text)
        # Why not, in one line.
        self.assertIn("no kernels of libraries are known for v100-16gb", run("automap-profile", module, "--device", "v100-16gb").stdout)
        self.assertIn("12 softmaxes of scores as written, since their products are no 16-bit ones (--attention fused",
                      run("automap-profile", FIXTURES / "gpt2.hlo.gz", "--device", "a100-80gb").stdout)
        self.assertIn("as-written", self.error(module, "--attention", "flash", code=2))

    def test_batch_inputs(self):
        module = FIXTURES / "tiny_mlp.hlo"
        name = "batch['x']"
        self.assertEqual(self.document(module, "--batch-input", name)["times"], self.document(module)["times"])
        near = self.error(module, "--batch-input", "batch['z']", code=3)
        self.assertIn("--batch-input", near)
        self.assertIn(name, near)
        weights = self.document(module, "--batch-input", "0")
        self.assertEqual(weights["times"], [])
        self.assertIn("would grow", weights["times_problem"])
        self.assertTrue(any("--batch-input" in warning for warning in weights["warnings"]))

    def test_errors(self):
        self.error(code=2)
        self.error(self.folder / "none.hlo", code=3)
        self.error(self.folder, code=3)
        empty = self.folder / "empty.hlo"
        empty.write_text("")
        self.error(empty, code=3)
        constant = "HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n  c = f32[] constant(1)\n  ROOT r = f32[2] broadcast(c), dimensions={}\n}\n"
        self.assertIn("at least 2", self.error("-", stdin=constant, code=3))
        self.error(FIXTURES / "tiny_mlp.hlo", "-o", self.folder / "p.xlsx", code=2)
        self.error(FIXTURES / "tiny_mlp.hlo", "-o", self.folder / "no" / "p.csv", code=3)
        both = run("automap-profile", FIXTURES / "tiny_mlp.hlo", "-o", "-", "--json")
        self.assertEqual(both.returncode, 2)
        self.assertIn("both want standard output", json.loads(both.stdout)["error"]["message"])
        document = json.loads(run("automap-profile", empty, "--json").stdout)
        self.assertEqual(document["error"]["kind"], "data")


if __name__ == "__main__":
    unittest.main()
