"""automap-search on bad input: every command with what is no model, odd modules, plans that cannot be, outputs that
cannot be written. Always one `error:` line, the right exit code, and nothing half written."""

import gzip
import json
import signal
import subprocess
import time
import unittest

from programs import BIN, FIXTURES, ProgramTest, environment, run

TINY = FIXTURES / "tiny_mlp.hlo"
ONE = "HloModule m\nENTRY e {\n  ROOT p = f32[8,16] parameter(0)\n}\n"


class SearchErrors(ProgramTest):
    def setUp(self):
        super().setUp()
        self.plan = self.put("p.json", self.plan_text({"p": 0}))

    @staticmethod
    def plan_text(partition, shards=2, **more):
        return json.dumps({"schema": "automap.plan/1", "kind": "operator", "shards": shards, "partition": partition, **more})

    def commands(self, model):
        yield ["opp", model, "--shards", "2"]
        yield ["adp", model, "--shards", "2"]
        yield ["propagate", model, "--shards", "2", "--set", "p=0"]
        yield ["apply", model, "--plan", self.plan, "--emit-hlo", self.folder / "out.hlo"]
        yield ["explain", model, "--plan", self.plan]

    def fails(self, code, *arguments, says=()):
        before = {path: path.read_bytes() for path in self.folder.iterdir() if path.is_file()}
        self.assert_fails(run("automap-search", *arguments, cwd=self.folder), code, *says)
        after = {path: path.read_bytes() for path in self.folder.iterdir() if path.is_file()}
        self.assertEqual(before, after)

    def test_what_is_no_model(self):
        whole = gzip.compress(TINY.read_bytes(), mtime=0)
        damaged = bytearray(whole)
        damaged[len(damaged) // 2] ^= 0xFF
        for name, content, says in [
            ("empty", b"", "the file is empty"),
            ("binary", bytes(range(128, 256)) * 20, "binary"),
            ("cut.hlo", TINY.read_bytes()[:4000], "found the end of the file"),
            ("cut.gz", whole[: len(whole) // 2], "the gzip stream ends too early"),
            ("damaged.gz", bytes(damaged), "damaged"),
        ]:
            model = self.put(name, content)
            for command in self.commands(model):
                with self.subTest(command=command[0], model=name):
                    self.fails(3, *command, says=[says])
        for command in self.commands(self.folder / "missing"):
            self.fails(3, *command, says=["cannot read", "No such file"])
        for command in self.commands(self.folder):
            self.fails(3, *command, says=["it is a directory"])

    def test_odd_modules(self):
        scalars = self.put("scalars", "HloModule m\nENTRY e {\n  p = f32[] parameter(0)\n  ROOT t = f32[] tanh(p)\n}\n")
        tuples = self.put("tuples", "HloModule m\nENTRY e {\n  q = () parameter(0)\n  ROOT t = () tuple()\n}\n")
        nothing = self.put("nothing", "HloModule m\nENTRY e {\n  ROOT c = f32[] constant(1)\n}\n")
        says = {"opp": "has no variables", "adp": "has no data inputs"}
        for model in (scalars, tuples, nothing):
            for command in self.commands(model):
                with self.subTest(command=command[0], model=model.name):
                    code = 2 if command[0] == "propagate" else 3
                    missing = "f32[]" if model == scalars else "has no input 'p'"
                    self.fails(code, *command, says=[says.get(command[0], missing)])

    def test_one_parameter_is_a_model(self):
        for text in (ONE, ONE.replace("parameter(0)", "parameter(0), metadata={op_name=\"params[\\'größe 漢字\\']\"}")):
            model = self.put("one.hlo", text)
            for command in self.commands(model):
                code = 3 if command[0] == "adp" else 0
                self.assertEqual(run("automap-search", *command).returncode, code, command)
        result = run("automap-search", "propagate", model, "--shards", "2", "--set", "params/größe 漢字=1")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_shards_out_of_range(self):
        for shards in ("0", "-1", "1000001", "99999999999999999999", "1.5", "x"):
            for command in ("opp", "adp", "propagate"):
                self.fails(2, command, TINY, "--shards", shards, says=["a whole number from 1 to 1000000"])
        self.fails(2, "opp", TINY, "--shards", "1000000", says=["1000000 shards need as many devices"])
        self.fails(4, "opp", TINY, "--shards", "2", "--memory", "1KiB", says=["into 1.00 KiB per device"])

    def test_plans_that_cannot_be(self):
        model = self.put("one.hlo", ONE)
        for text, says in [
            (self.plan_text({"p": 10**30}), "whole number"),
            (self.plan_text({"p": -2}), "found -2"),
            (self.plan_text({"p": 0.5}), "found 0.5"),
            (self.plan_text({"p": float("nan")}), "not JSON"),
            (self.plan_text({"p": 2}), "dimension 2"),
            (self.plan_text({"p": 0}, shards=7), "shards that would: 2, 4, 8"),
            (self.plan_text({"p": 0}, shards=10**6), "do not divide 8"),
            (self.plan_text({"p": 0}, shards=0), "shards: found 0"),
            (self.plan_text({"p": 0, "0": 1}), "twice"),
            (self.plan_text({"q": 0}), "has no input 'q'"),
            (self.plan_text({"p": 0}, gathers=[{"instruction": "z", "tensor": "p", "dim": 0}]), "gathers at z"),
            (self.plan_text({"p": 0}, gathers=[{"instruction": "p", "tensor": "p", "dim": 2}]), "along dimension 2"),
            (self.plan_text({"p": 0}, gathers=[{"instruction": "p", "tensor": "p", "dim": 0, "how": "exchanged"}]),
             "exchanges p for p, which does not read it"),
            (self.plan_text({"p": 0}, gathers=[{"instruction": "p", "tensor": "p", "dim": 0, "how": "moved"}]),
             'how: found "moved", expected "whole", "in parts", "exchanged", "handed on" or "begun"'),
            ('{"a":' * 100000, "nested deeper than"),
            (ONE, "not JSON"),
            ("", "JSON"),
        ]:
            plan = self.put("bad.json", text)
            for command in (["explain", model], ["apply", model, "--emit-hlo", "out.hlo"]):
                with self.subTest(command=command[0], says=says):
                    self.fails(3, *command, "--plan", plan, says=[says])

    def test_splittings_that_cannot_begin(self):
        model = self.put("two.hlo", "HloModule m\nENTRY e {\n  p = f32[8,16] parameter(0)\n  ROOT q = f32[8,16] tanh(p)\n}\n")
        for gather, says, code in (({"instruction": "q", "tensor": "p", "dim": 0}, "begins to split p at q, which does not make it", 3),
                                   ({"instruction": "q", "tensor": "q", "dim": 2}, "along dimension 2", 3)):
            plan = self.put("bad.json", self.plan_text({"p": 0}, gathers=[{**gather, "how": "begun"}]))
            self.fails(code, "apply", model, "--plan", plan, says=[says])

    def test_outputs_that_cannot_be_written(self):
        (self.folder / "folder").mkdir()
        for command in ("opp", "adp"):
            for option in ("-o", "--emit-hlo", "--emit-jax"):
                self.fails(3, command, TINY, "--shards", "2", option, "no/folder", says=["create the folder first"])
                self.fails(3, command, TINY, "--shards", "2", option, "folder", says=["it is a directory"])
        self.fails(3, "opp", TINY, "--shards", "2", "-o", "good", "--emit-hlo", "no/folder", says=["no/folder"])

    def test_one_file_is_wanted_twice(self):
        (self.folder / "folder").mkdir()
        for other in ("same", "./same", "folder/../same", self.folder / "same"):
            self.fails(2, "opp", TINY, "--shards", "2", "-o", "same", "--emit-hlo", other, says=["-o and --emit-hlo both want"])

    def test_no_output_replaces_an_input(self):
        model = self.put("one.hlo", ONE)
        names = self.put("names", "p\n")
        (self.folder / "link").symlink_to(model)
        for output in (model, "one.hlo", "./one.hlo", "link"):
            for option in ("-o", "--emit-hlo", "--emit-jax"):
                self.fails(2, "opp", model, "--shards", "2", option, output, says=[f"{option} would replace MODEL"])
            self.fails(2, "apply", model, "--plan", self.plan, "--emit-hlo", output, says=["would replace MODEL"])
        self.fails(2, "apply", model, "--plan", self.plan, "--emit-jax", self.plan, says=["would replace --plan"])
        self.fails(2, "opp", model, "--variables", names, "-o", names, says=["would replace --variables"])

    def test_full_disks_and_readers_that_go(self):
        plan = self.put("tiny.json", self.plan_text({"params/dense_1/kernel": 1}))
        for command in (["opp", TINY, "--shards", "2"], ["adp", TINY, "--shards", "2"],
                        ["propagate", TINY, "--shards", "2"], ["explain", TINY, "--plan", plan]):
            program = [str(BIN / "automap-search"), *map(str, command)]
            for more in ([], ["--json"]):
                with open("/dev/full", "wb") as full:
                    result = subprocess.run(program + more, stdout=full, stderr=subprocess.PIPE, env=environment())
                self.assertEqual(result.returncode, 3, result.stderr)
                self.assertIn(b"cannot write to standard output: No space left on device", result.stderr)
            reader = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
            reader.stdout.close()
            self.assertNotIn(b"error", reader.stderr.read())
            reader.stderr.close()
            self.assertEqual(reader.wait(), 0)
        result = run("automap-search", "opp", TINY, "--shards", "2", "-o", "/dev/full")
        self.assertEqual(result.returncode, 3)
        self.assertIn("cannot write /dev/full: No space left on device", result.stderr)

    def test_devices_beside_each_other(self):
        result = run("automap-search", "opp", TINY, "--shards", "2", "-o", "/dev/null", "--emit-hlo", "-")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(result.stdout.startswith("HloModule"), result.stdout[:100])

    def test_signals_leave_nothing(self):
        program = [str(BIN / "automap-search"), "opp", str(FIXTURES / "t5_24_24.hlo.gz"), "--shards", "8", "--algorithm",
                   "cost", "--budget", "60s", "-o", "plan.json", "--emit-hlo", "sharded.hlo"]
        for stop in (signal.SIGTERM, signal.SIGINT):
            began = subprocess.Popen(program, cwd=self.folder, env=environment(), stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
            while began.poll() is None and not list(self.folder.glob("plan.json*")):
                time.sleep(0.01)
            began.send_signal(stop)
            self.assertEqual(began.wait(), 128 + stop)
            self.assertEqual([path.name for path in self.folder.iterdir()], ["p.json"])


if __name__ == "__main__":
    unittest.main()
