"""scripts/emit_sdy.py and automap-search --emit-sdy: shardings of HLO as Shardy's, judged by its verifier, by XLA's partitioner
(the collectives are those of the annotated HLO) and by running on 8 host devices. Skipped where no Python has JAX, but for
the translation of shardings and for what is refused before jaxlib is asked."""

import importlib.util
import json
import subprocess
import sys
import unittest

from programs import BIN, FIXTURES, NO_JAX, SOURCE, ProgramTest, environment, python_with_jax, run

SCRIPT = SOURCE / "scripts" / "emit_sdy.py"
JAX = python_with_jax()
TIMEOUT_S = 900


def load(name, path):
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sdy = load("emit_sdy", SCRIPT)
check = load("check_xla_partition", SOURCE / "bench" / "check_xla_partition.py")

TWO = (("data", 4), ("model", 2))
D_ROWS, D_COLUMNS = "{devices=[4,1,2]<=[8] last_tile_dim_replicate}", "{devices=[1,4,2]<=[8] last_tile_dim_replicate}"
M_ROWS, M_COLUMNS = ("{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}",
                     "{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}")

# Batch over data, hidden units over model: a forward pass, a gradient, and every form of a sharding of two axes.
TWO_AXES = f"""HloModule two, entry_computation_layout={{(f32[16,32]{{1,0}}, f32[32,64]{{1,0}}, f32[64,32]{{1,0}}, f32[16]{{0}})->(f32[16,32]{{1,0}}, f32[32,64]{{1,0}}, f32[64,16]{{1,0}}, f32[16,32]{{1,0}}, f32[16]{{0}})}}, num_partitions=8, input_output_alias={{ {{1}}: (1, {{}}, may-alias), {{4}}: (3, {{}}, may-alias) }}

ENTRY main {{
  x = f32[16,32]{{1,0}} parameter(0), sharding={D_ROWS}, metadata={{op_name="batch[\\'x\\'], sharding={{maximal device=1}}"}}
  v = f32[32,64]{{1,0}} parameter(1), sharding={M_COLUMNS}
  w = f32[64,32]{{1,0}} parameter(2), sharding={M_ROWS}
  b = f32[16]{{0}} parameter(3), sharding={{devices=[8]<=[8]}}
  before = f32[16,64]{{1,0}} dot(x, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, sharding={{devices=[4,2]<=[8]}}
  h = f32[16,64]{{1,0}} tanh(before)
  y = f32[16,32]{{1,0}} dot(h, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, sharding={D_ROWS}
  gradient = f32[32,64]{{1,0}} dot(x, h), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}, sharding={M_COLUMNS}
  next = f32[32,64]{{1,0}} subtract(v, gradient)
  turned = f32[64,16]{{1,0}} transpose(h), dimensions={{1,0}}, sharding={{devices=[2,4]<=[4,2]T(1,0)}}
  whole = f32[16,32]{{1,0}} custom-call(y), custom_call_target="Sharding", sharding={{replicated}}
  both = f32[16,32]{{1,0}} negate(whole), sharding={{devices=[8,1]<=[8]}}
  c = f32[16]{{0}} copy(b)
  ROOT r = (f32[16,32]{{1,0}}, f32[32,64]{{1,0}}, f32[64,16]{{1,0}}, f32[16,32]{{1,0}}, f32[16]{{0}}) tuple(y, next, turned, both, c), sharding={{{D_ROWS}, {M_COLUMNS}, {{devices=[2,4]<=[4,2]T(1,0)}}, {{devices=[8,1]<=[8]}}, /*index=4*/{{devices=[8]<=[8]}}}}
}}
"""
# A parameter that is a tuple, an annotated one in a function that is called, a module that returns one array.
TUPLES = """HloModule tuples, entry_computation_layout={((f32[8,4]{1,0}, f32[4]{0}), f32[8,4]{1,0})->f32[8,4]{1,0}}, num_partitions=8, input_output_alias={ {}: (1, {}, may-alias) }

same {
  ROOT x = f32[8,4]{1,0} parameter(0), sharding={devices=[1,4,2]<=[8] last_tile_dim_replicate}
}

ENTRY main {
  p = (f32[8,4]{1,0}, f32[4]{0}) parameter(0), sharding={{devices=[8,1]<=[8]}, {replicated}}
  q = f32[8,4]{1,0} parameter(1), sharding={replicated}
  a = f32[8,4]{1,0} get-tuple-element(p), index=0
  b = f32[4]{0} get-tuple-element(p), index=1
  c = f32[8,4]{1,0} broadcast(b), dimensions={1}
  d = f32[8,4]{1,0} add(a, c)
  e = f32[8,4]{1,0} call(d), to_apply=same
  ROOT f = f32[8,4]{1,0} multiply(e, q), sharding={devices=[8,1]<=[8]}
}
"""


class Shardings(unittest.TestCase):
    """Needs no jaxlib: which axes a sharding of HLO splits along."""

    def test_two_axes(self):
        for text, axes in ((D_ROWS, (("data",), ())), (D_COLUMNS, ((), ("data",))), (M_ROWS, (("model",), ())),
                           (M_COLUMNS, ((), ("model",))), ("{replicated}", ((), ())),
                           ("{devices=[8,1]<=[8]}", (("data", "model"), ())),
                           ("{devices=[8,1]<=[4,2]T(1,0)}", (("model", "data"), ())),
                           ("{devices=[4,2]<=[8]}", (("data",), ("model",))),
                           ("{devices=[2,4]<=[4,2]T(1,0)}", (("model",), ("data",))),
                           ("{devices=[2,4]0,2,4,6,1,3,5,7}", (("model",), ("data",))),
                           ("{devices=[4,1,2]<=[8] last_tile_dims={replicated}}", (("data",), ())),
                           ("{devices=[4,1,2]1,0,3,2,4,5,7,6 last_tile_dim_replicate}", (("data",), ()))):
            self.assertEqual(sdy.axes_of(text, 2, TWO), axes, text)
        self.assertEqual(sdy.axes_of("{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}", 2, (("data", 4), ("model", 2), ("one", 1))),
                         ((), ("model",)))
        self.assertEqual(sdy.axes_of("{devices=[2,1,3,4]<=[4,2,3]T(1,2,0) last_tile_dim_replicate}", 3, (("a", 4), ("b", 2), ("c", 3))),
                         (("b",), (), ("c",)))

    def test_one_axis_and_equal_axes(self):
        self.assertEqual(sdy.axes_of("{devices=[1,8]<=[8]}", 2, (("model", 8),)), ((), ("model",)))
        self.assertEqual(sdy.axes_of("{replicated}", 0, (("model", 8),)), ())
        self.assertEqual(sdy.axes_of("{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}", 2, (("a", 2), ("b", 2))), (("b",), ()))
        self.assertEqual(sdy.axes_of("{devices=[2,1,2]<=[4] last_tile_dim_replicate}", 2, (("a", 2), ("b", 2))), (("a",), ()))

    def test_tuples(self):
        self.assertEqual(sdy.axes_of_all(f"{{{D_ROWS}, /*index=1*/{{replicated}}, {{{M_ROWS}}}}}", [2, 0, 2], TWO),
                         [(("data",), ()), (), (("model",), ())])
        self.assertEqual(sdy.axes_of_all("{replicated}", [1, 2], TWO), [((),), ((), ())])
        self.assertEqual(sdy.axes_of_all("{}", [], TWO), [])

    def test_what_cannot_be_expressed_says_why(self):
        for text, rank, why in (("{maximal device=3}", 2, "expected {replicated} or"), ("{manual}", 2, "expected {replicated} or"),
                                ("{unknown}", 1, "expected {replicated} or"),
                                ("{mesh['data'=4], [{'data'}]}", 1, "expected {replicated} or"),
                                ("{devices=[2,1,2]<=[4] last_tile_dims={manual}}", 1, "of 4 devices, the mesh has 8"),
                                ("{devices=[4,2]<=[8] last_tile_dims={manual}}", 1, "only replicated subgroups"),
                                ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", 2, "no axes of the mesh data=4,model=2"),
                                ("{devices=[8,1]7,6,5,4,3,2,1,0}", 2, "no axes of the mesh"),
                                ("{devices=[8]<=[8]}", 2, "1 dimensions, the tensor has 2"),
                                ("{devices=[8]<=[4,4]}", 1, "makes no sense"), ("{devices=[8]<=[4,2]T(0,0)}", 1, "makes no sense"),
                                ("{devices=[8]0,1,2,3,4,5,6,6}", 1, "makes no sense")):
            with self.assertRaises(sdy.NotExpressible, msg=text) as caught:
                sdy.axes_of(text, rank, TWO)
            self.assertIn(why, str(caught.exception), text)
        with self.assertRaises(sdy.NotExpressible):
            sdy.axes_of_all("{{replicated}, {replicated}}", [1, 1, 1], TWO)

    def test_meshes(self):
        self.assertEqual(sdy.parse_mesh("data=4, model=2"), TWO)
        for text in ("", "data", "data=0", "data=x", "4=data", "data=4,,model=2", "data=4,data=2", "data=99999999999"):
            with self.assertRaises(sdy.Refused, msg=text) as caught:
                sdy.parse_mesh(text)
            self.assertEqual(caught.exception.code, 2)


class Bridge(ProgramTest):
    def bridge(self, *words, python=(sys.executable,), stdin=None):
        done = subprocess.run([*python, "-B", SCRIPT, *map(str, words)], capture_output=True, text=True, cwd=self.folder,
                              input=stdin, env=environment(JAX_PLATFORMS="cpu"), timeout=TIMEOUT_S)
        self.assertNotIn("Traceback", done.stderr)
        return done


class WithoutJax(Bridge):
    """What is refused without asking jaxlib."""

    def setUp(self):
        super().setUp()
        self.two = self.put("two.hlo", TWO_AXES)

    def test_help(self):
        done = self.bridge("--help")
        self.assertEqual(done.returncode, 0)
        for word in ("--mesh", "--run", "--against", "Exit codes"):
            self.assertIn(word, done.stdout)

    def test_usage(self):
        for words, *parts in (([], "missing FILE"), ([self.two], "neither -o nor --run"), ([self.two, "--run", "-o", "-"], "both want"),
                            ([self.two, "-o", self.two], "would replace what is read"), ([self.two, "--frob"], "--frob"),
                            ([self.two, "-o", "x", "--against", "y"], "--against is for --run"),
                            ([self.two, "-o", "x", "--mesh", "data:4"], "expected AXIS=DEVICES"),
                            ([self.two, "-o", "x", "--mesh", "data=4,model=4"], "--mesh data=4,model=4 has 16 devices, ", "is for 8")):
            with self.subTest(words=words):
                self.assert_fails(self.bridge(*words), 2, *parts)
        self.assertEqual(self.leftovers(), ["two.hlo"])

    def test_inputs_that_are_something_else(self):
        for text, *parts in (("module @m {\n}\n", "is MLIR already", "--run judges"), ("#loc = loc(unknown)\nmodule {}", "is MLIR already"),
                             ("{}", "found '{}', expected an HLO text"), ("", "expected an HLO text")):
            with self.subTest(text=text):
                self.assert_fails(self.bridge(self.put("x.hlo", text), "-o", "x.mlir"), 3, "x.hlo", "hint:", *parts)
        self.assert_fails(self.bridge(self.put("x.hlo", b"HloModule x\n\n\xff"), "-o", "x.mlir"), 3, "x.hlo:3: is no text")
        self.assert_fails(self.bridge(self.put("x.hlo", b"ML\xefR\r"), "-o", "x.mlir"), 3, "is MLIR bytecode, expected text")
        self.assert_fails(self.bridge("none.hlo", "-o", "x.mlir"), 3, "none.hlo: No such file")
        self.assert_fails(self.bridge(FIXTURES / "tiny_mlp.hlo", "-o", "x.mlir", "--mesh", "model=8"), 2, "is for 1", "--emit-hlo")
        self.assertEqual(self.leftovers(), ["two.hlo", "x.hlo"])

    def test_shardings_that_cannot_be_expressed_name_the_instruction(self):
        self.put("x.mlir", "what was there")
        for old, new, mesh, *parts in (
                ("transpose(h), dimensions={1,0}, sharding={devices=[2,4]<=[4,2]T(1,0)}",
                 "transpose(h), dimensions={1,0}, sharding={maximal device=3}", "data=4,model=2",
                 "x.hlo:13: the sharding of turned, {maximal device=3}, cannot be expressed on the mesh data=4,model=2"),
                ("", "", "model=8", "x.hlo:4: the sharding of x, " + D_ROWS, "no axes of the mesh model=8"),
                ("", "", "model=2,data=4", "no axes of the mesh model=2,data=4"),
                ("dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding=" + D_ROWS,
                 "dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={devices=[8]<=[8]}", "data=4,model=2",
                 "x.hlo:10: the sharding of y", "of 1 dimensions, the tensor has 2")):
            with self.subTest(parts=parts):
                path = self.put("x.hlo", TWO_AXES.replace(old, new))
                self.assert_fails(self.bridge(path, "--mesh", mesh, "-o", "x.mlir"), 3, *parts, "hint: give the mesh")
        self.assertEqual((self.folder / "x.mlir").read_text(), "what was there")

    def test_missing_jaxlib(self):
        done = self.bridge(self.two, "--mesh", "data=4,model=2", "-o", "x.mlir", python=("/usr/bin/python3", "-I", "-S"))
        self.assert_fails(done, 2, "jaxlib is not installed for this Python, /usr/bin/python3", "pip install jax", "AUTOMAP_JAX_PYTHON")
        self.assertEqual(self.leftovers(), ["two.hlo"])

    def test_search_says_what_is_missing_before_it_works(self):
        bare = self.put("python", "#!/bin/sh\nexec /usr/bin/python3 -I -S \"$@\"\n")
        bare.chmod(0o755)
        broken = self.put("broken", "#!/bin/sh\necho something >&2\nexit 7\n")
        broken.chmod(0o755)
        for python, part in ((bare, "jaxlib is not installed"), (broken, "ended with exit code 7"), (self.folder / "none", "cannot run")):
            done = run("automap-search", "opp", FIXTURES / "tiny_mlp.hlo", "-o", self.folder / "plan.json", "--emit-sdy",
                       self.folder / "x.mlir", env=environment(AUTOMAP_JAX_PYTHON=str(python)))
            self.assert_fails(done, 2, "--emit-sdy: ", part, "AUTOMAP_JAX_PYTHON", "automap emit-sdy FILE")
        self.assertEqual(self.leftovers(), ["broken", "python", "two.hlo"])

    def test_the_front_program_runs_it(self):
        done = run("automap", "emit-sdy", self.two, "--mesh", "data=3", "-o", self.folder / "x.mlir")
        self.assert_fails(done, 2, "--mesh data=3 has 3 devices")
        self.assertTrue(run("automap", "help", "emit-sdy").stdout.startswith("usage: automap-emit-sdy "))


class Judging(Bridge):
    def write(self, hlo, mesh, name="sharded.mlir"):
        done = self.bridge(hlo, "--mesh", mesh, "-o", name, python=(JAX,))
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        return self.folder / name

    def judged(self, *words, code=0):
        done = self.bridge(*words, "--run", "--json", python=(JAX,))
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        report = json.loads(done.stdout)
        self.assertEqual(report["equal"], code == 0)
        return report

    def partitioned(self, path, devices):
        """XLA's collectives right behind its partitioner."""
        folder = self.folder / (path.name + ".xla")
        folder.mkdir()
        return check.ask_xla(str(path), devices, str(folder), quick=True, timeout_s=TIMEOUT_S, python=JAX)["before"]


@unittest.skipUnless(JAX, NO_JAX)
class WithJax(Judging):
    def test_combined_sums_are_refused(self):
        done = run("automap-search", "opp", FIXTURES / "tiny_mlp.hlo", "--sums", "combined", "--emit-sdy", self.folder / "x.mlir",
                   env=environment(AUTOMAP_JAX_PYTHON=str(JAX)))
        self.assert_fails(done, 2, "--emit-sdy writes every partial sum apart", "--emit-hlo", "--sums apart")
        self.assertFalse((self.folder / "x.mlir").exists())

    def test_two_axes(self):
        hlo = self.put("two.hlo", TWO_AXES)
        text = self.write(hlo, "data=4,model=2").read_text()
        for part in ('sdy.mesh @mesh = <["data"=4, "model"=2]>', "mhlo.num_partitions = 8",
                     '%arg0: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}',
                     '%arg1: tensor<32x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>, tf.aliasing_output = 1 : i32}',
                     '%arg2: tensor<64x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>}',
                     '%arg3: tensor<16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data", "model"}]>, tf.aliasing_output = 4 : i32}',
                     'tensor<64x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {"data"}]>}',
                     '<@mesh, [{"data"}, {"model"}]> : tensor<16x64xf32>', "<@mesh, [{}, {}]> : tensor<16x32xf32>"):
            self.assertIn(part, text)
        for part in ("mhlo.sharding", "mhlo.copy", "@Sharding"):
            self.assertNotIn(part, text)
        report = self.judged("sharded.mlir", "--against", hlo)
        self.assertEqual((report["mesh"], report["results"]), ({"data": 4, "model": 2}, 5))
        self.assertLess(report["worst_relative_difference"], 1e-5)
        found = self.partitioned(self.folder / "sharded.mlir", 8)
        self.assertEqual(found, self.partitioned(hlo, 8))
        # Of y over model, of the gradient over data.
        self.assertEqual(found["all-reduce"], [[512, 2], [4096, 4]])  # bytes, devices

    def test_tuples_and_calls(self):
        text = self.write(self.put("tuples.hlo", TUPLES), "data=4,model=2").read_text()
        self.assertIn('%arg1: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}', text)
        self.assertIn('sdy.sharding_constraint %arg0 <@mesh, [{}, {"data"}]>', text)
        self.assertNotIn("aliasing_output", text)  # parameter 1 is argument 2
        self.judged("sharded.mlir")

    def test_a_mesh_is_named_otherwise_than_functions(self):
        text = TUPLES.replace("same", "mesh")
        written = self.write(self.put("x.hlo", text), "data=4,model=2").read_text()
        self.assertRegex(written, r'sdy\.mesh @(mesh_0 = .*(?s:.)*@mesh\b|mesh = )')
        self.judged("sharded.mlir")

    def test_judged_by_running(self):
        hlo = self.put("two.hlo", TWO_AXES)
        out = self.bridge(hlo, "--mesh", "data=4,model=2", "--run", python=(JAX,)).stdout
        for part in ("on 8 host devices, data=4,model=2", "all-reduce", "equal: 5 results"):
            self.assertIn(part, out)
        other = self.put("other.hlo", TWO_AXES.replace("tanh(before)", "cosine(before)"))
        report = self.judged(hlo, "--mesh", "data=4,model=2", "--against", other, code=1)
        self.assertIn("result 0", [r["result"] for r in report["differing_results"]])
        self.assert_fails(self.bridge(hlo, "--mesh", "data=4,model=2", "--run", "--against", self.put("tuples.hlo", TUPLES),
                                      python=(JAX,)), 3, "tuples.hlo: has other inputs")

    def test_inputs_that_jaxlib_refuses(self):
        cut = self.put("cut.hlo", TWO_AXES[:TWO_AXES.index("  turned")])
        self.assert_fails(self.bridge(cut, "--mesh", "data=4,model=2", "-o", "x.mlir", python=(JAX,)), 3, "cut.hlo", "cannot turn it into")
        good = self.write(self.put("two.hlo", TWO_AXES), "data=4,model=2").read_text()
        for old, new, *parts in (
                ("#sdy.sharding<@mesh, [{\"data\"}, {}]>", "#sdy.future<@mesh>", "does not read it", "another version"),
                ("#sdy.sharding<@mesh, [{\"data\"}, {}]>", "#sdy.sharding<@mesh, [{\"data\"}, {}, {}]>", "does not read it"),
                ("#sdy.sharding<@mesh, [{\"data\"}, {}]>", "#sdy.sharding<@mesh, [{\"rows\"}, {}]>", "does not read it"),
                ("{sdy.sharding = #sdy.sharding<@mesh, [{\"data\"}, {}]>}", "{mhlo.sharding = \"{replicated}\"}",
                 "found mhlo.sharding, expected sdy.sharding"),
                ("sdy.mesh @mesh = <[", "sdy.mesh @other = <[\"x\"=2]>\n  sdy.mesh @mesh = <[", "found 2 sdy.mesh, expected one"),
                ("sdy.mesh @mesh = <[\"data\"=4, \"model\"=2]>", "sdy.mesh @mesh = <[\"data\"=4, \"model\"=2], device_ids=[1,0,2,3,4,5,6,7]>",
                 "its mesh lists devices"),
                ("\n} loc", "", "does not read it")):
            with self.subTest(new=new):
                self.assertIn(old, good)
                path = self.put("bad.mlir", good.replace(old, new))
                self.assert_fails(self.bridge(path, "--run", python=(JAX,)), 3, "bad.mlir", "hint:", *parts)
        self.assert_fails(self.bridge("sharded.mlir", "--run", "--mesh", "model=8", python=(JAX,)), 2, "with a mesh of its own")
        self.assert_fails(self.bridge("two.hlo", "--mesh", "data=4,model=2", "-o", "no/folder.mlir", python=(JAX,)), 3, "cannot write")

    def test_standard_streams(self):
        written = self.write(self.put("two.hlo", TWO_AXES), "data=4,model=2").read_text()
        done = self.bridge("-", "--mesh", "data=4,model=2", "-o", "-", python=(JAX,), stdin=TWO_AXES)
        self.assertEqual((done.returncode, done.stdout), (0, written))


@unittest.skipUnless(JAX, NO_JAX)
class Fixtures(Judging):
    """Plans of real modules: Shardy moves what GSPMD moves, byte for byte, and small ones compute the same."""

    def emitted(self, name, command, shards):
        path = FIXTURES / (name if name.endswith(".hlo") else f"{name}.hlo.gz")
        hlo, mlir, plan = (self.folder / f"{command}.{end}" for end in ("hlo", "mlir", "json"))
        done = run("automap-search", command, path, "--shards", shards, "-o", plan, "--emit-hlo", hlo, "--emit-sdy", mlir, "-q",
                   "--objective", "count", env=environment(AUTOMAP_JAX_PYTHON=JAX))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f'sdy.mesh @mesh = <["{"data" if command == "adp" else "model"}"={shards}]>', mlir.read_text())
        return path, hlo, mlir, plan

    def same_collectives(self, hlo, mlir, plan, shards):
        found = self.partitioned(mlir, shards)
        self.assertEqual(found, self.partitioned(hlo, shards))
        row = check.compare(json.loads(plan.read_text()), {"before": found})
        self.assertGreater(row["split"], 0)
        self.assertTrue(row["agrees"], row)

    def test_shardy_moves_what_gspmd_moves(self):
        for name, command, shards in (("moe_small", "opp", 8), ("moe_small", "adp", 4), ("transformer_scan", "opp", 8),
                                      ("transformer_scan", "adp", 4), ("transformer_remat", "opp", 8), ("transformer_remat", "adp", 8)):
            with self.subTest(name=name, command=command):
                _, hlo, mlir, plan = self.emitted(name, command, shards)
                self.same_collectives(hlo, mlir, plan, shards)
                for old in self.folder.glob("*.xla"):
                    old.rename(old.with_name(f"{name}.{old.name}.old"))

    def test_small_modules_compute_the_same(self):
        for name, command in (("tiny_mlp.hlo", "opp"), ("tiny_mlp.hlo", "adp"), ("scan_remat", "opp"), ("scan_remat", "adp")):
            with self.subTest(name=name, command=command):
                path, hlo, mlir, plan = self.emitted(name, command, 8)
                self.same_collectives(hlo, mlir, plan, 8)
                report = self.judged(mlir, "--against", path)
                self.assertLessEqual(report["worst_relative_difference"], 1e-4)
                for old in self.folder.glob("*.xla"):
                    old.rename(old.with_name(f"{name}.{old.name}.old"))

    def test_apply_writes_the_same(self):
        path, _, mlir, plan = self.emitted("tiny_mlp.hlo", "adp", 8)
        again = self.folder / "again.mlir"
        done = run("automap-search", "apply", path, "--plan", plan, "--emit-sdy", again, env=environment(AUTOMAP_JAX_PYTHON=JAX))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(again.read_text(), mlir.read_text())
        done = run("automap-search", "apply", path, "--plan", plan, "--emit-sdy", "-", "-q", env=environment(AUTOMAP_JAX_PYTHON=JAX))
        self.assertEqual(done.stdout, mlir.read_text())

    def test_one_device(self):
        self.emitted("tiny_mlp.hlo", "opp", 1)
        self.assertEqual(self.judged("opp.mlir")["collectives"], {})


if __name__ == "__main__":
    unittest.main()
