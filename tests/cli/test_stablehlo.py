"""Models that are StableHLO: text, bytecode and files of jax.export, told from their bytes and made HLO by jaxlib."""

import gzip
import json
import os
import subprocess
import unittest

from programs import BIN, FIXTURES, NO_JAX, SOURCE, TIMEOUT_S, ProgramTest, environment, python_with_jax, run

JAX = python_with_jax()
STABLEHLO = FIXTURES.parent / "stablehlo"
FORMS = ("tiny_mlp.mlir", "tiny_mlp.mlirbc.gz", "tiny_mlp.jax_export.gz")
MAIN = "module {{ func.func {name}(%x: tensor<{shape}xf32>) -> tensor<{shape}xf32> {{ return %x : tensor<{shape}xf32> }} {more}}}\n"


def content(name):
    data = (STABLEHLO / name).read_bytes()
    return gzip.decompress(data) if name.endswith(".gz") else data


class WithoutJax(ProgramTest):
    def test_refused_with_the_line_that_converts_them(self):
        for name in FORMS:
            for words in (["automap-profile"], ["automap-infer", "--cluster", "h100-1x8"], ["automap-inspect"]):
                done = run(words[0], STABLEHLO / name, *words[1:], env=environment(AUTOMAP_JAX_PYTHON="/no/such/python"))
                self.assert_fails(done, 3, f"{name}: this is StableHLO", "cannot run /no/such/python",
                                  "VENV/bin/python $(which automap-from-stablehlo) step.mlir -o step.pb")

    def test_what_a_python_says_that_ends_without_an_answer(self):
        for body, says in (("echo '   ' >&2; echo 'RuntimeError: built with AVX' >&2; exit 1", ("ended with exit code 1 and no answer", "  RuntimeError: built with AVX")),
                           ("kill -9 $$", ("ended with exit code 137 and no answer",)),
                           ("cat >/dev/null; echo hello", ("step.mlir, made HLO by jaxlib: ",))):
            python = self.put("python", f"#!/bin/sh\n{body}\n")
            python.chmod(0o755)
            done = run("automap-profile", self.put("step.mlir", content("tiny_mlp.mlir")), env=environment(AUTOMAP_JAX_PYTHON=python))
            self.assert_fails(done, 3, "step.mlir", *says)

    def test_the_command_says_what_is_no_stablehlo(self):
        done = run("automap-from-stablehlo", FIXTURES / "tiny_mlp.hlo", "-o", "-")
        self.assert_fails(done, 3, "this is no StableHLO, expected text, bytecode or a file of jax.export")
        done = run("automap-from-stablehlo", self.folder / "none", "-o", "-")
        self.assert_fails(done, 3, "No such file")
        same = self.put("step.mlir", content("tiny_mlp.mlir"))
        self.assert_fails(run("automap-from-stablehlo", same, "-o", same), 2, "would replace what is read")
        self.assertEqual(same.read_bytes(), content("tiny_mlp.mlir"))


@unittest.skipUnless(JAX, NO_JAX)
class WithJax(ProgramTest):
    def setUp(self):
        super().setUp()
        self.environment = environment(AUTOMAP_JAX_PYTHON=JAX)

    def said(self, *words, **more):
        done = run(*words, env=self.environment, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_every_form_is_the_module_that_jax_says_in_hlo(self):
        whole = self.said("automap-profile", FIXTURES / "tiny_mlp.hlo", "--json", "--device", "h100")
        for name in FORMS:
            got = self.said("automap-profile", STABLEHLO / name, "--json", "--device", "h100")
            self.assertEqual(got["form"], "StableHLO, made HLO by jaxlib")
            for key in ("totals", "total_flops", "variables", "layers", "memory_bytes"):
                self.assertEqual(got.get(key), whole.get(key), (name, key))
        self.assertIn("totals", whole)

    def test_names_of_layers_and_parameters_survive(self):
        pb = self.folder / "step.pb"
        for name in FORMS:
            done = run("automap-from-stablehlo", STABLEHLO / name, "-o", pb, env=self.environment)
            if done.returncode == 2:  # The python3 of the PATH has no jax.
                done = subprocess.run([JAX, "-B", BIN / "automap-from-stablehlo", STABLEHLO / name, "-o", pb], capture_output=True,
                                      text=True, timeout=TIMEOUT_S)
            self.assertEqual(done.returncode, 0, done.stderr)
            for part in (b"params['dense_1']['kernel']", b"dense_2"):
                self.assertIn(part, pb.read_bytes(), name)

    def test_what_libraries_print_is_not_taken_for_the_module(self):
        code = ("import sys, builtins; real = builtins.__import__\n"
                "def loud(name, *more):\n    print('loud') if name.startswith('jaxlib') else None\n    return real(name, *more)\n"
                "builtins.__import__ = loud\nfrom automap.stablehlo import main\nsys.exit(main(sys.argv[1:]))")
        done = subprocess.run([JAX, "-B", "-c", code, STABLEHLO / "tiny_mlp.mlir", "-o", "-"], capture_output=True, timeout=TIMEOUT_S,
                              env=environment(PYTHONPATH=SOURCE / "python"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn(b"loud", done.stdout)
        self.assertIn(b"loud", done.stderr)
        self.assertGreater(len(done.stdout), 1000)
        with open("/dev/full", "w") as full:
            done = subprocess.run([JAX, "-B", BIN / "automap-from-stablehlo", STABLEHLO / "tiny_mlp.mlir", "-o", "-"], stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S)
        self.assertEqual((done.returncode, done.stderr), (3, "error: standard output: No space left on device\n"))

    def test_standard_input_inspect_and_a_plan(self):
        data = content("tiny_mlp.jax_export.gz")
        told = self.said("automap-inspect", "-", "--json", stdin=data)
        self.assertEqual((told["kind"], told["form"]), ("hlo", "stablehlo"))
        plan = self.said("automap-infer", STABLEHLO / "tiny_mlp.mlir", "--cluster", "h100-1x8", "--json")
        self.assertGreater(plan["simulated_step_ms"], 0)

    def test_what_is_wrong_with_a_module_is_said(self):
        bytecode, export = content("tiny_mlp.mlirbc.gz"), content("tiny_mlp.jax_export.gz")
        private = "func.func private @{0}(%x: tensor<4xf32>) -> tensor<4xf32> {{ return %x : tensor<4xf32> }}"
        for data, says in (
                (content("tiny_mlp.mlir")[:3000], ("no module can be read of this MLIR", "cut short")),
                (bytecode[:len(bytecode) // 2], ("no module can be read of this MLIR", "cut short")),
                (export[:len(export) // 2], ("cut short",)),
                ('module { func.func @main(%x: tensor<4xf32>) { "torch.aten.relu"(%x) : (tensor<4xf32>) -> () return } }',
                 ("operations of the dialect torch", "expected StableHLO")),
                (MAIN.format(name="@a", shape="4", more=private.format("b").replace("private ", "")),
                 ("which of 2 functions is the step (a, b)",)),
                (MAIN.format(name="@main", shape="?", more=""), ("tensor<?xf32>", "dimension of no size")),
                ("module {\n}\n", ("no function in the module",))):
            done = run("automap-profile", self.put("bad.mlir", data), env=self.environment)
            self.assert_fails(done, 3, "bad.mlir: ", *says)

    def test_the_only_public_function_is_the_step(self):
        path = self.put("one.mlir", "module { func.func @step(%x: tensor<4xf32>) -> tensor<4xf32> { "
                                    "%y = call @inner(%x) : (tensor<4xf32>) -> tensor<4xf32> return %y : tensor<4xf32> } "
                                    "func.func private @inner(%x: tensor<4xf32>) -> tensor<4xf32> { "
                                    "%y = stablehlo.tanh %x : tensor<4xf32> return %y : tensor<4xf32> } }")
        told = self.said("automap-inspect", path, "--json")
        self.assertIn("tanh", json.dumps(told))

    def test_the_package_asks_its_own_python(self):
        code = f"""import automap
plan = automap.plan({str(STABLEHLO / 'tiny_mlp.mlir')!r}, cluster="h100-1x8", batch_size=64, effort="quick")
assert plan.step_ms > 0 and plan.record["model"]
print("planned")"""
        env = {k: v for k, v in self.environment.items() if k != "AUTOMAP_JAX_PYTHON"}
        env["PYTHONPATH"] = os.pathsep.join([str(SOURCE / "python")])
        done = subprocess.run([JAX, "-B", "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S, env=env)
        self.assertEqual(done.stdout, "planned\n", done.stderr)


if __name__ == "__main__":
    unittest.main()
