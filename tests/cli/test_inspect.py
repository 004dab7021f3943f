"""automap-inspect: every kind of file, the JSON against its schema and the fixtures' manifest, errors and exit codes."""

import gzip
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

try:
    import jsonschema
except ImportError:
    jsonschema = None

SOURCE = Path(os.environ.get("AUTOMAP_SOURCE", Path(__file__).resolve().parent.parent.parent))
PROGRAM = Path(os.environ["AUTOMAP_BIN"]) / "automap-inspect"
SCHEMA = json.loads((SOURCE / "docs/formats/inspect.schema.json").read_text())
MANIFEST = json.loads((SOURCE / "fixtures/MANIFEST.json").read_text())
DATA = SOURCE / "tests/data/hlo"

CSV = "name,c_ms,a_bytes,w_bytes,stash_bytes\na,1.5,100,8,50\nb,2.5,200,0,60\nc,1,0,4,0\n"
CLUSTER = json.dumps({"schema": "automap.cluster/1", "name": "pair", "servers": [
    {"count": 2, "devices": 4, "intra_gbytes_per_s": 130, "inter_gbytes_per_s": 3.125, "device": "v100-16gb"}]})

STAGE = {"first_name": None, "last_name": None, "first_layer": "h/0", "last_layer": "h/1", "devices": 4, "compute_ms": 2.0,
         "transfer_ms": 0.5, "allreduce_ms": 0.25, "memory_bytes": 1e9}
PLAN = {
    "schema": "automap.plan/1", "kind": "pipeline", "model": "mine", "cluster": "pair", "micro_batches": 4,
    "instructions": 10, "devices": 8, "schedule": "1f1b", "cuts": [6], "device_cuts": [4], "grid_cuts": [77],
    "in_flight": [2, 1], "step_ms": 11.0, "simulated_step_ms": 11.5, "lower_bound_ms": 10.0, "gap": 0.1,
    "lower_bound_method": "exact", "planner": "exact", "planning_ms": 3.0, "alternatives": [], "provenance": {},
    "stages": [{**STAGE, "first_instruction": 1, "last_instruction": 6, "first_device": 1},
               {**STAGE, "first_instruction": 7, "last_instruction": 10, "first_device": 5, "transfer_ms": 0}]}


def run(*arguments, stdin=None):
    return subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, capture_output=True, timeout=600, cwd=SOURCE)


class Inspect(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, name, content):
        path = Path(self.folder.name) / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def document(self, *arguments, stdin=None):
        result = run(*arguments, "--json", stdin=stdin)
        self.assertEqual(result.returncode, 0, result.stderr)
        document = json.loads(result.stdout)
        if jsonschema is not None:
            jsonschema.Draft202012Validator(SCHEMA).validate(document)
        return document

    def error(self, *arguments, stdin=None, code=3):
        result = run(*arguments, stdin=stdin)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, b"")
        return result.stderr.decode()

    def test_the_schema_is_one_and_refuses(self):
        if jsonschema is None:
            self.skipTest("python3-jsonschema is not installed: documents are not checked against their schema")
        jsonschema.Draft202012Validator.check_schema(SCHEMA)
        document = self.document("fixtures/hlo/tiny_mlp.hlo")
        for damage in ({"kind": "hlo!"}, {"flops": "many"}, {"surprise": 1}, {"schema": "automap.inspect/2"}):
            with self.assertRaises(jsonschema.ValidationError):
                jsonschema.Draft202012Validator(SCHEMA).validate({**document, **damage})
        del document["opcodes"]
        with self.assertRaises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(SCHEMA).validate(document)

    def test_every_fixture_agrees_with_its_manifest(self):
        forms = {"text": "text", "stripped": "text", "proto": "proto", "json": "proto-json"}
        seen = 0
        for model in MANIFEST["models"]:
            for kind, form in model["forms"].items():
                if kind not in forms:  # StableHLO: test_stablehlo
                    continue
                with self.subTest(form["file"]):
                    d = self.document("fixtures/" + form["file"])
                    self.assertEqual((d["kind"], d["form"]), ("hlo", forms[kind]))
                    for key in ("instructions", "computations", "entry_instructions", "entry_parameters"):
                        self.assertEqual(d[key], model[key], key)
                    self.assertEqual(d["opcodes"], model["opcodes"])
                    self.assertAlmostEqual(d["flops"], model["flops"], delta=0.01 * model["flops"])
                    self.assertEqual(d["unknown_opcodes"], 0)
                    self.assertNotIn("parse_ms", d)
                    seen += 1
        self.assertGreater(seen, 10)

    def test_time(self):
        d = self.document("fixtures/hlo/vgg19.hlo.gz", "--time")
        self.assertGreater(d["parse_ms"], 0)
        self.assertLess(d["parse_ms"], 5000)
        self.assertIn(b"parsed in", run("fixtures/hlo/vgg19.hlo.gz", "--time").stdout)

    def test_the_forms_of_one_module_say_the_same(self):
        documents = [self.document(DATA / name) for name in
                     ("every_field.hlo", "every_field.pb", "every_field.module.pb", "every_field.snapshot.pb",
                      "every_field.json", "every_field.snake.json", "every_field.full.json.gz")]
        for d in documents:
            for key in ("source", "file_bytes", "sha256", "form"):
                d.pop(key)
            self.assertEqual(d, documents[0])
        self.assertEqual(self.document(DATA / "ast.json")["form"], "ast-json")

    def test_standard_input_plain_and_gzipped(self):
        text = (SOURCE / "fixtures/hlo/tiny_mlp.hlo").read_bytes()
        plain, packed = self.document("-", stdin=text), self.document("-", stdin=gzip.compress(text))
        self.assertEqual(plain["source"], "<stdin>")
        self.assertEqual(plain["instructions"], packed["instructions"])
        self.assertNotEqual(plain["sha256"], packed["sha256"])

    def test_several_modules_in_one_text(self):
        one = (SOURCE / "fixtures/hlo/tiny_mlp.hlo").read_text()
        two = "HloModule second\n\nENTRY e {\n  p = f32[8] parameter(0)\n  ROOT n = f32[8] negate(p)\n}\n"
        first = self.document(self.file("one.hlo", one))
        self.assertNotIn("modules", first)
        for name, text in (("plain", one + "\n" + two), ("parted", one + "\n// -----\n\n" + two)):
            with self.subTest(name):
                path = self.file(name + ".hlo", text)
                d = self.document(path)
                self.assertEqual([m["module"] for m in d["modules"]], [first["module"], "second"])
                self.assertEqual([m["instructions"] for m in d["modules"]], [first["instructions"], 2])
                self.assertEqual([m["training"] for m in d["modules"]], [True, False])
                self.assertEqual((d["instructions"], d["computations"]), (first["instructions"] + 2, first["computations"] + 1))
                self.assertEqual(d["entry_parameters"], first["entry_parameters"] + 1)
                self.assertEqual(d["opcodes"]["parameter"], first["opcodes"]["parameter"] + 1)
                self.assertEqual(d["flops"], first["flops"] + 8)
                self.assertEqual([m["line"] for m in d["modules"]], [1, text[:text.index("HloModule second")].count("\n") + 1])
                self.assertEqual((d["layers"], d["parameters"]), ([], []))
                self.assertIn(b"modules", run(path).stdout)
        # Errors name the line in the whole file; a rule between computations of one module parts nothing.
        damaged = self.file("damaged.hlo", "\n" + two + "// -----\n" + two.replace("negate(p)", "negate(q)"))
        self.assertIn("damaged.hlo:13:", self.error(damaged))
        rule = "HloModule m\n\nf {\n  ROOT a = f32[] parameter(0)\n}\n// -----\nENTRY e {\n  p = f32[] parameter(0)\n  ROOT c = f32[] call(p), to_apply=f\n}\n"
        d = self.document(self.file("rule.hlo", rule))
        self.assertNotIn("modules", d)
        self.assertEqual((d["instructions"], d["computations"]), (3, 2))

    def test_several_modules_in_protobuf_text(self):
        one = ('name: "%s"\nentry_computation_name: "e"\nentry_computation_id: 1\ncomputations {\n  name: "e"\n  id: 1\n  root_id: 1\n'
               '  instructions {\n    name: "p"\n    opcode: "parameter"\n    id: 1\n'
               '    shape { element_type: F32 dimensions: 4 }\n  }\n}\n')
        d = self.document(self.file("two.pbtxt", one % "a" + "\n// -----\n\n# the other\n" + one % "b"))
        self.assertEqual((d["form"], d["instructions"]), ("proto-text", 2))
        self.assertEqual([m["module"] for m in d["modules"]], ["a", "b"])

    def test_parameters_are_what_variables_accepts(self):
        d = self.document("fixtures/hlo/tiny_mlp.hlo")
        self.assertEqual([p["number"] for p in d["parameters"]], list(range(d["entry_parameters"])))
        self.assertEqual(sum(p["bytes"] for p in d["parameters"]), d["parameter_bytes"])
        weight = max(d["parameters"][:4], key=lambda p: p["bytes"])
        for key in ("number", "parameter", "name"):
            path = self.file("vars", f"{weight[key]}\n")
            result = subprocess.run([PROGRAM.parent / "automap-profile", "fixtures/hlo/tiny_mlp.hlo", "--variables", path, "--json"],
                                    capture_output=True, timeout=600, cwd=SOURCE)
            self.assertEqual(result.returncode, 0, result.stderr)
            found = json.loads(result.stdout)["trainable_variables"]
            self.assertEqual([(v["number"], v["shape"]) for v in found], [(weight["number"], weight["shape"])])

    def test_text_for_people(self):
        out = run("fixtures/hlo/tiny_mlp.hlo").stdout.decode()
        for word in ("HLO text", "jit_train_step", "80 in 6 computations", "training step", "opcode", "multiply"):
            self.assertIn(word, out)

    def test_profiles(self):
        d = self.document(self.file("p.anything", CSV))
        self.assertEqual((d["kind"], d["form"], d["instructions"]), ("profile", "csv", 3))
        self.assertEqual((d["c_ms"], d["w_bytes"], d["stash_bytes"], d["max_a_bytes"]), (5, 12, 110, 200))
        self.assertEqual(d["instructions_with_variables"], 2)
        self.assertIn(b"profile (CSV)", run(self.file("p", CSV)).stdout)

    def test_clusters_by_preset_and_file(self):
        d = self.document("config-c")
        self.assertEqual((d["kind"], d["servers"], d["devices"], d["sha256"]), ("cluster", 4, 32, None))
        d = self.document(self.file("c.json", CLUSTER))
        self.assertEqual((d["name"], d["servers"], d["devices"], d["memory_gib"]), ("pair", 2, 8, 128))
        self.assertIn(b"8 devices in 2 servers", run(self.file("c.json", CLUSTER)).stdout)

    def test_clusters_say_what_was_read_of_their_links(self):
        cluster = {"schema": "automap.cluster/1",
                   "servers": [{"count": 2, "devices": 4, "inter_gbytes_per_s": 12.5, "device": "v100-32gb"}],
                   "collectives": [{"operation": "all-reduce", "devices": 4,
                                    "bytes": [65536, 1048576, 16777216, 268435456], "ms": [0.1, 0.2, 1.8, 27.4]}]}
        path = self.file("links.json", json.dumps(cluster).encode())
        (row,) = self.document(path)["groups"][0]["links"]
        self.assertEqual((row["operation"], row["devices"], row["servers"], row["assumed"]), ("all-reduce", 4, 1, False))
        self.assertLess(row["largest_fit_error"], 0.1)
        self.assertRegex(run(path).stdout.decode(), r"all-reduce +4 in 1 server .* within .* measured")
        self.assertIn(b"assumed", run("a100-2x8").stdout)
        self.assertEqual(self.document("config-a")["groups"][0]["links"], [])

    def test_partition_plans(self):
        plan = {"schema": "automap.plan/1", "kind": "operator", "shards": 8, "partition": {"params/w": 1, "b": -1}}
        path = self.file("partition.json", json.dumps(plan))
        d = self.document(path)
        self.assertEqual((d["kind"], d["plan_kind"], d["shards"], d["partition"], d["decided"], d["partitioned"]),
                         ("plan", "operator", 8, plan["partition"], 2, 1))
        self.assertIsNone(d["bound"])
        out = run(path).stdout.decode()
        for word in ("operator plan for 8 shards", "1 of 2 variables", "params/w"):
            self.assertIn(word, out)
        path = self.file("data.json", json.dumps({**plan, "kind": "data"}))
        self.assertIn("1 of 2 data inputs", run(path).stdout.decode())
        for damage, word in (({"shards": 0}, "shards: found 0"), ({"partition": [1]}, "expected an object"),
                             ({"kind": "stew"}, "stew"), ({"schema": "automap.plan/2"}, "automap.plan/2")):
            result = run(self.file("damaged.json", json.dumps({**plan, **damage})))
            self.assertEqual(result.returncode, 3)
            self.assertIn(word, result.stderr.decode())

    def test_mesh_plans(self):
        plan = {"schema": "automap.plan/1", "kind": "mesh", "mesh": {"data": 4, "model": 2},
                "axes": {"data": {"partition": {"batch/x": 0, "params/w": 0}}, "model": {"partition": {"params/w": 1, "b": -1}}}}
        path = self.file("mesh.json", json.dumps(plan))
        d = self.document(path)
        self.assertEqual((d["kind"], d["plan_kind"], d["shards"], d["mesh"], d["zero"]), ("plan", "mesh", 8, plan["mesh"], 0))
        for axis in ("data", "model"):
            self.assertEqual(d["axes"][axis]["partition"], plan["axes"][axis]["partition"])
            self.assertEqual(d["axes"][axis]["shards"], plan["mesh"][axis])
        self.assertEqual((d["capacity_bytes"], d["step_ms"], d["alternatives"]), (None, None, []))
        out = run(path).stdout.decode()
        for word in ("mesh plan for 8 devices", "data 4, model 2", "2 devices, 1 of 2 variables split"):
            self.assertIn(word, out)
        self.assertRegex(out, r"params/w +0 +1\n")
        for damage, word in (({"mesh": {"data": 4}}, "model"), ({"mesh": {"data": 0, "model": 2}}, "data: found 0"),
                             ({"shards": 4}, "4 x 2 devices"), ({"zero": 4}, "zero: found 4"), ({"axes": []}, "axes"),
                             ({"axes": {"data": {"kind": "operator"}}}, "expected \"data\""),
                             ({"axes": {"model": {"shards": 8}}}, "shards: found 8"),
                             ({"axes": {"model": {"partition": [1]}}}, "expected an object")):
            self.assertIn(word, self.error(self.file("damaged.json", json.dumps({**plan, **damage}))))

    def test_a_mesh_plan_of_the_search(self):
        path = Path(self.folder.name) / "mesh.json"
        done = subprocess.run([PROGRAM.parent / "automap-search", "opp", "fixtures/hlo/gpt2.hlo.gz", "--shards", "auto", "--zero", "3",
                               "-o", path], capture_output=True, timeout=600, cwd=SOURCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        plan, d = json.loads(path.read_text()), self.document(path)
        for key in ("model", "cluster", "shards", "mesh", "zero", "layout", "micro_batches", "micro_batch_samples", "step_ms",
                    "simulated_step_ms", "memory_bytes", "capacity_bytes", "not_counted", "alternatives"):
            self.assertEqual(d[key], plan[key], key)
        for key in ("step_ms", "compute_ms", "data_collective_ms", "model_collective_ms", "replicated_step_ms", "memory_bytes"):
            self.assertEqual(d["estimate"][key], plan["estimate"][key], key)
        for axis in ("data", "model"):
            for key in ("partition", "partitioned", "all_reduces", "partial_sums", "all_gathers", "all_gather_bytes"):
                self.assertEqual(d["axes"][axis][key], plan["axes"][axis][key], key)
        out = run(path).stdout.decode()
        for word in ("step", "compute", "over the data axis", "per device of", "all-reduces", "meshes that were compared", "this plan"):
            self.assertIn(word, out)

    def test_plans(self):
        path = self.file("plan.json", json.dumps(PLAN))
        d = self.document(path)
        self.assertEqual(d["plan_kind"], "pipeline")
        self.assertEqual((d["kind"], d["stages"], d["cuts"], d["device_cuts"]), ("plan", 2, [6], [4]))
        self.assertEqual((d["step_ms"], d["simulated_step_ms"], d["lower_bound_ms"]), (11, 11.5, 10))
        self.assertAlmostEqual(d["gap"], 0.1)
        out = run(path).stdout.decode()
        for word in ("pipeline plan with 2 stages", f"{PLAN['micro_batches']} micro-batches", "h/0", "7-10", "5-8", "10.0 %"):
            self.assertIn(word, out)
        self.assertIsNone(d["measured_step"])
        self.assertNotIn("corrected", out)
        self.assertIn("contradicts", self.error(self.file("bad.json", json.dumps({**PLAN, "cuts": [5]}))))

    def test_what_corrects_a_plan_is_said(self):
        step = {"layout": "dp=8", "batch": 64, "measured_ms": 12.0, "estimated_ms": 10.0, "factor": 1.2, "scaled": "compute",
                "compute_factor": 1.25, "network_factor": 1, "class": "v100", "usual_factors": [0.9, 1.3], "usual": True}
        for changed, said in (({}, "compute takes 1.25 times as long: dp=8 at a batch of 64 took 12.0 ms (--measured-step), 10.0 ms by the"),
                              ({"network_factor": 1.25, "scaled": "everything"}, "compute takes 1.25 times, the network 1.25 times as long: dp=8"),
                              ({"compute_factor": 1, "scaled": "nothing"}, "by nothing: dp=8 at a batch")):
            path = self.file("plan.json", json.dumps({**PLAN, "measured_step": {**step, **changed}}))
            with self.subTest(said):
                self.assertEqual(self.document(path)["measured_step"],
                                 {key: {**step, **changed}[key] for key in ("layout", "batch", "measured_ms", "estimated_ms",
                                                                            "compute_factor", "network_factor")})
                self.assertIn(said, " ".join(run(path).stdout.decode().split()))

    def test_devices_of_a_plan_are_those_of_the_cluster(self):
        path = Path(self.folder.name) / "plan.json"
        done = subprocess.run([PROGRAM.parent / "automap-infer", self.file("p.csv", CSV), "--cluster", "config-a", "--batch", "16",
                               "-o", path, "--quiet"], capture_output=True, timeout=600, cwd=SOURCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads(path.read_text())
        self.assertNotIn("101-", run(path).stdout.decode())
        for group in plan["groups"]:
            group["devices"] = [device + 100 for device in group["devices"]]
        path.write_text(json.dumps(plan))
        self.assertIn("101-", run(path).stdout.decode())

    def test_devices(self):
        d = self.document(self.file("d.json", json.dumps({
            "schema": "automap.device/1", "name": "mine", "peak_tflops": {"f32": 10}, "memory_gbytes_per_s": 500,
            "memory_gib": 8})))
        self.assertEqual((d["kind"], d["name"], d["peak_tflops"]), ("device", "mine", {"f32": 10}))
        constants = {constant["name"]: constant["source"] for constant in d["constants"]}
        self.assertIsNone(constants["matmul.f32"])
        measured = self.document(self.file("m.json", json.dumps({
            "schema": "automap.device/1", "name": "mine", "peak_tflops": {"f32": 10}, "memory_gbytes_per_s": 500,
            "memory_gib": 8, "memory_efficiency": 0.5})))
        constants = {constant["name"]: constant["source"] for constant in measured["constants"]}
        self.assertEqual(constants["memory_efficiency"], "the device file")

    def test_errors(self):
        self.assertIn("No such file", self.error("no/such/file"))
        self.assertIn("directory", self.error("tests"))
        self.assertIn("empty", self.error(self.file("e", b"")))
        self.assertIn("binary data", self.error(self.file("b", b"\xde\xad\xbe\xef\x00")))
        with mock.patch.dict(os.environ, {"AUTOMAP_JAX_PYTHON": "/no/such/python"}):
            self.assertIn("StableHLO", self.error(self.file("m", "module @m {}")))
        self.assertIn("x.json:2:1", self.error(self.file("x.json", '{"hloModule": {"computations": [\n}}')))
        self.assertIn("automap.plan/9", self.error(self.file("n.json", '{"schema": "automap.plan/9"}')))
        self.assertIn("automap.zoo/1", self.error(self.file("z.json", '{"schema": "automap.zoo/1"}')))
        whole = (DATA / "every_field.pb").read_bytes()
        self.assertIn("left", self.error(self.file("t.pb", whole[:-100])))
        self.assertIn("servers", self.error(self.file("c.json", '{"schema": "automap.cluster/1", "servers": []}'), code=2))
        self.error(code=2)
        self.error("a", "--no-such-flag", code=2)

    def test_what_compilers_refuse_is_counted(self):
        text = ("HloModule m\nENTRY e {\n  a = f32[4,6] parameter(0)\n  b = f32[6,4] parameter(1)\n  c = f32[4,6] add(a, b)\n"
                "  ROOT d = f32[4,4] dot(c, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n")
        path = self.file("loose.hlo", text)
        document = self.document(path)
        self.assertEqual(document["opcodes"], {"add": 1, "dot": 1, "parameter": 2})
        self.assertEqual(len(document["faults"]), 1)
        self.assertIn("loose.hlo:5:", document["faults"][0])
        self.assertEqual(document["flops"], 2 * 4 * 4 * 6)
        self.assertIsNone(document["training"])
        self.assertIn("loose.hlo:5:", run(path).stderr.decode())
        # What plans refuses it, at the same place.
        refused = subprocess.run([PROGRAM.with_name("automap-profile"), path], capture_output=True, timeout=600)
        self.assertEqual(refused.returncode, 3, refused.stderr)
        self.assertIn("loose.hlo:5:", refused.stderr.decode())
        # Attributes that nothing here uses are said by all.
        text = "HloModule m\nENTRY e {\n  ROOT a = f32[4,6] parameter(0), sharding={devices=[2,2]<=[16]}\n}\n"
        result = run(self.file("s.hlo", text))
        self.assertEqual(result.returncode, 0)
        self.assertIn("s.hlo:3:", result.stderr.decode())
        self.assertIn("4 tiles on 16 devices", result.stderr.decode())

    def test_one_part_of_a_partitioned_model_is_no_model(self):
        text = ("HloModule m, num_partitions=4\nENTRY main_spmd {\n  x = f32[8,6] parameter(0), sharding={devices=[4,1]<=[4]}\n"
                "  w = f32[6,2] parameter(1), sharding={devices=[1,4]<=[4]}\n"
                "  g = f32[6,8] all-gather(w), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={1}\n"
                "  ROOT d = f32[8,8] dot(x, g), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n")
        path = self.file("part.hlo", text)
        self.document(path)  # described all the same
        for program, *arguments in (("automap-profile",), ("automap-infer", "--cluster", "config-a"),
                                    ("automap-search", "adp", "--shards", "4")):
            command = [PROGRAM.with_name(program), *arguments, path]
            if program == "automap-search":
                command = [PROGRAM.with_name(program), "adp", path, "--shards", "4"]
            refused = subprocess.run(command, capture_output=True, text=True, timeout=600)
            self.assertEqual(refused.returncode, 3, refused.stderr)
            self.assertIn("over 4 devices", refused.stderr)
            self.assertIn("before it is partitioned", refused.stderr)
            taken = subprocess.run([*command, "--as-is"], capture_output=True, text=True, timeout=600)
            self.assertNotIn("before it is partitioned", taken.stderr)
            self.assertIn("nothing here holds for the whole model", taken.stderr)

    def test_a_policy(self):
        path = "models/pretrained/pipeline.policy"
        document = json.loads(run(path, "--json").stdout)
        jsonschema.validate(document, SCHEMA)
        self.assertEqual((document["kind"], document["features"], document["hidden"]), ("policy", 58, [64, 64]))
        self.assertIn("58-64-64-1", run(path).stdout.decode())
        damaged = bytearray((SOURCE / path).read_bytes())
        damaged[-100] ^= 1
        self.assertIn("checksum", self.error(self.file("damaged.policy", bytes(damaged))))

    def test_errors_as_json(self):
        result = run("no/such/file", "--json")
        self.assertEqual(result.returncode, 3)
        self.assertEqual(json.loads(result.stdout)["error"]["kind"], "io")

    def test_a_full_disk_behind_standard_output(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "wb") as full:
            result = subprocess.run([PROGRAM, "config-a"], stdout=full, stderr=subprocess.PIPE, timeout=600, cwd=SOURCE)
        self.assertEqual(result.returncode, 3)

    def test_help_examples_work(self):
        out = run("--help").stdout.decode()
        examples = [line.split() for line in out.splitlines() if line.startswith("  automap-inspect ")]
        self.assertEqual(len(examples), 3)
        for example in examples:
            self.assertEqual(run(*example[1:]).returncode, 0, example)


if __name__ == "__main__":
    unittest.main()
