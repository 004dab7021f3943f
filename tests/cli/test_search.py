"""automap-search: plans, what they are written as, propagation and explanations, and everything that can be wrong."""

import gzip
import json
import os
import re
import resource
import shutil
import unittest
from pathlib import Path

from programs import environment, FIXTURES, SOURCE, ProgramTest, run

try:
    import jsonschema
except ImportError:
    jsonschema = None

SCHEMA = json.loads((SOURCE / "docs/formats/plan.schema.json").read_text())
COMMANDS = ("opp", "adp", "apply", "propagate", "explain", "soap", "heuristics")
TINY = FIXTURES / "tiny_mlp.hlo"
T5 = FIXTURES / "t5_6_6.hlo.gz"
VGG = FIXTURES / "vgg19.hlo.gz"


def split(plan):
    """The split tensors of a plan: {name: dimension}."""
    return {name: dim for name, dim in plan["partition"].items() if dim >= 0}


class SearchTest(ProgramTest):
    def document(self, *arguments, code=0, stdin=None):
        result = run("automap-search", *arguments, "--json", stdin=stdin)
        self.assertEqual(result.returncode, code, result.stderr)
        document = json.loads(result.stdout)
        if jsonschema is not None and document["schema"] == "automap.plan/1":
            jsonschema.Draft202012Validator(SCHEMA).validate(document)
        return document

    def text(self, *arguments, code=0, stdin=None):
        result = run("automap-search", *arguments, stdin=stdin)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stdout

    def fails(self, code, *arguments, says=(), stdin=None):
        self.assert_fails(run("automap-search", *arguments, stdin=stdin), code, *says)


class Commands(SearchTest):
    def test_help_lists_the_commands(self):
        for arguments in (["--help"], ["-h"], ["help"]):
            text = self.text(*arguments)
            for command in COMMANDS:
                self.assertRegex(text, rf"(?m)^  {command} ")
        for command in COMMANDS:
            self.assertEqual(self.text("help", command), self.text(command, "--help"))
            self.assertIn(f"Usage: automap-search {command} ", self.text(command, "--help"))

    def test_unknown_commands(self):
        self.fails(2, "oppp", says=["unknown command oppp", "did you mean opp?"])
        self.fails(2, "xyzzy", says=["opp, adp, apply, propagate, explore, pipeline, compare, explain, placement, soap, heuristics"])
        self.fails(2, says=["missing command"])
        self.fails(2, "--frob", says=["unknown option --frob"])
        for command in COMMANDS:
            self.fails(2, command, says=["missing MODEL"])
            self.fails(2, command, TINY, "--shard", "4", says=["unknown option --shard"])


class Operators(SearchTest):
    def test_time_finds_column_then_row(self):
        """The first layer's kernel along its columns, the second's along its rows: one partial sum."""
        plan = self.document("opp", T5, "--shards", 8, "--reshard", "off")
        self.assertEqual((plan["schema"], plan["kind"], plan["shards"], plan["objective"]), ("automap.plan/1", "operator", 8, "time"))
        partition = plan["partition"]
        for layer in range(6):
            for stack in ("encoder", "decoder"):
                block = f"params['{stack}']['layer'][{layer}]"
                self.assertEqual(partition[f"{block}['feed_forward']['conv1']['kernel']"], 1)
                self.assertEqual(partition[f"{block}['feed_forward']['conv1']['bias']"], 0)
                self.assertEqual(partition[f"{block}['feed_forward']['conv2']['kernel']"], 0)
                for part, dim in (("q", 1), ("k", 1), ("v", 1), ("o", 0)):
                    self.assertEqual(partition[f"{block}['self_attention']['{part}']['kernel']"], dim)
        self.assertGreaterEqual(plan["partitioned"], 108)
        self.assertLessEqual(plan["partial_sums"], 103)
        self.assertEqual(plan["all_gathers"], 0)
        self.assertTrue(plan["proven"])
        self.assertLess(plan["estimate"]["step_ms"], plan["estimate"]["replicated_step_ms"])
        self.assertLess(plan["simulated_step_ms"], self.document("opp", T5, "--shards", 1)["simulated_step_ms"])

    def test_count_splits_more_and_moves_more(self):
        fast, many = self.document("opp", T5), self.document("opp", T5, "--objective", "count")
        self.assertEqual(len(split(many)), many["partitioned"])
        self.assertGreaterEqual(many["partitioned"], 175)
        self.assertTrue(many["proven"])
        self.assertGreater(many["step_ms"], fast["step_ms"])

    def test_the_schema_refuses(self):
        if jsonschema is None:
            self.skipTest("python3-jsonschema is not installed: plans are not checked against their schema")
        plan = self.document("opp", TINY, "--shards", 4)
        for damage in ({"kind": "sideways"}, {"shards": 0}, {"partition": {"x": "0"}}):
            with self.assertRaises(jsonschema.ValidationError):
                jsonschema.Draft202012Validator(SCHEMA).validate({**plan, **damage})

    def test_algorithms(self):
        best = self.document("opp", TINY, "--shards", 4, "--algorithm", "enumerate", "--objective", "count")
        self.assertTrue(best["proven"])
        for algorithm in ("greedy", "cost", "auto"):
            plan = self.document("opp", TINY, "--shards", 4, "--algorithm", algorithm, "--objective", "count")
            self.assertLessEqual(plan["partitioned"], best["partitioned"])
        self.assertEqual(plan["partitioned"], best["partitioned"])

    def test_rainbow_runs_or_says_what_is_missing(self):
        result = run("automap-search", "opp", TINY, "--shards", 4, "--algorithm", "rainbow", "--budget", "2s")
        if result.returncode == 0:
            self.assertIn("rainbow", result.stdout)
        else:
            self.assert_fails(result, 2, "LibTorch")

    def test_the_same_question_gets_the_same_answer(self):
        def answer():
            plan = self.document("opp", T5, "--objective", "count")
            return plan["partition"], plan["step_ms"]
        self.assertEqual(answer(), answer())

    def test_every_form_gives_the_same_plan(self):
        plan = self.document("opp", FIXTURES / "tiny_mlp.stripped.hlo", "--shards", 4, "--objective", "count")
        for form in ("tiny_mlp.pb.gz", "tiny_mlp.json.gz"):
            other = self.document("opp", FIXTURES / form, "--shards", 4, "--objective", "count")
            self.assertEqual(sorted(split(other).values()), sorted(split(plan).values()), form)
        named = self.document("opp", TINY, "--shards", 4, "--objective", "count")
        piped = self.document("opp", "-", "--shards", 4, "--objective", "count", stdin=TINY.read_bytes())
        self.assertEqual(piped["partition"], named["partition"])

    def test_variables(self):
        listed = self.put("vars.txt", "params['dense_1']['kernel']\n")
        plan = self.document("opp", TINY, "--shards", 4, "--variables", listed, "--objective", "count")
        self.assertEqual(list(plan["partition"]), ["params['dense_1']['kernel']"])
        listed.write_text("params['dense_1']['kernal']\n")
        self.fails(3, "opp", TINY, "--variables", listed, says=["vars.txt:1", "did you mean"])

    def test_one_device(self):
        result = run("automap-search", "opp", TINY, "--shards", 1)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("nothing to split over", result.stderr)
        self.assertIn("0 of ", result.stdout)

    def test_report(self):
        text = self.text("opp", T5, "--shards", 8)
        for part in ("of 188 variables split", "What is split", "Algorithms", "Compared", "Memory", "proven"):
            self.assertIn(part, text)
        in_a_hundred = run("automap-search", "opp", T5, "--shards", 8, env=environment(COLUMNS="100")).stdout
        for line in in_a_hundred.splitlines():
            self.assertLessEqual(len(line), 100, line)
        self.assertIn("nothing to split over", run("automap-search", "opp", TINY, "--shards", 1).stderr)


class Data(SearchTest):
    def test_the_batch(self):
        for model, tensors in ((T5, None), (VGG, 2)):
            plan = self.document("adp", model, "--shards", 8)
            self.assertEqual(plan["kind"], "data")
            dims = split(plan)
            self.assertTrue(dims)
            self.assertEqual(set(dims.values()), {0})
            if tensors is not None:
                self.assertEqual(len(dims), tensors)
            variables = [t for t in plan["inputs"] if t["role"] == "variable"]
            self.assertTrue(all(t["dim"] == -1 for t in variables))
            # Every variable's gradient is a partial sum, reduced.
            self.assertGreaterEqual(plan["all_reduces"], len(variables))

    def test_what_does_not_work_in_parts_is_gathered(self):
        model = FIXTURES / "lit_small.hlo.gz"
        path = self.folder / "data.json"
        text = self.text("adp", model, "-o", path, "--emit-hlo", self.folder / "sharded.hlo")
        self.assertIn("1 all-gather", text)
        self.assertIn("What is gathered", text)
        plan = json.loads(path.read_text())
        self.assertEqual((plan["all_gathers"], len(plan["gathers"])), (1, 2))
        again = self.text("apply", model, "--plan", path, "--emit-hlo", "-")
        self.assertEqual(again, (self.folder / "sharded.hlo").read_text())

    def test_a_batch_that_does_not_divide_says_what_would(self):
        result = run("automap-search", "adp", TINY, "--shards", 7)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("7 devices do not divide", result.stderr)
        self.assertRegex(result.stderr, r"2, .* would")


class Overlap(SearchTest):
    """--overlap: collectives beside compute."""

    def test_one_axis(self):
        apart = self.document("opp", T5)
        for key in ("overlapped_ms", "overlapped_bound_ms"):
            self.assertIsNone(apart["estimate"][key])
        document = self.document("opp", T5, "--overlap")
        self.assertEqual(document["provenance"]["option_overlap"], "true")
        plan = document["estimate"]
        self.assertLess(plan["overlapped_ms"], plan["step_ms"])
        self.assertGreaterEqual(plan["overlapped_ms"], max(plan["compute_ms"], plan["collective_ms"], plan["overlapped_bound_ms"]))
        self.assertAlmostEqual(plan["step_ms"], plan["compute_ms"] + plan["collective_ms"], delta=1e-9 * plan["step_ms"])
        for other in document["alternatives"]:
            self.assertLessEqual(other["overlapped_ms"], other["step_ms"])
        text = self.text("opp", T5, "--overlap")
        hidden = rf"{self.ms(plan['overlapped_ms'])} estimated \({self.ms(plan['step_ms'])} added up\)"
        self.assertRegex(text, hidden)
        for part in ("of them hidden behind compute", "of the step added up: proven", "overlapped: nothing is proven but that no step is shorter than"):
            self.assertIn(part, " ".join(text.split()))

    @staticmethod
    def ms(value):
        return f"{value:.1f} ms"

    def test_of_data(self):
        plan = self.document("adp", T5, "--overlap")["estimate"]
        self.assertLess(plan["overlapped_ms"], plan["step_ms"])
        self.assertIn("hidden behind compute", " ".join(self.text("adp", T5, "--overlap").split()))

    def test_of_meshes(self):
        plan = self.document("opp", TINY, *Meshes.MESH, "--overlap")["estimate"]
        self.assertLessEqual(plan["overlapped_ms"], plan["step_ms"])
        self.assertLessEqual(plan["overlapped_bound_ms"], plan["overlapped_ms"])
        text = " ".join(self.text("opp", T5, "--mesh", "data=4,model=2", "--overlap").split())
        for part in ("added up)", "hidden behind compute and each other", "overlapped: nothing is proven"):
            self.assertIn(part, text)

    def test_of_stored_plans(self):
        for ask in (["--shards", 8], ["--mesh", "data=4,model=2"]):
            path = self.folder / "plan.json"
            self.document("opp", T5, *ask, "--overlap", "-o", path)
            plan = json.loads(path.read_text())["estimate"]
            for command in ("apply", "explain"):
                estimate = self.document(command, T5, "--plan", path, "--overlap")["estimate"]
                for key in ("step_ms", "overlapped_ms"):
                    self.assertAlmostEqual(estimate[key], plan[key], delta=1e-9 * plan[key], msg=(command, key))
                self.assertIsNone(self.document(command, T5, "--plan", path)["estimate"]["overlapped_ms"])
                self.assertIn("hidden behind compute", " ".join(self.text(command, T5, "--plan", path, "--overlap").split()))
                self.assertNotIn("hidden", self.text(command, T5, "--plan", path))
            self.assertNotIn("estimate", self.document("explain", T5, "--plan", path, "encoder/embedding", "--overlap"))
            shown = run("automap-inspect", path)
            self.assertIn("with collectives beside compute", shown.stdout)

    def test_what_takes_it(self):
        for command in ("opp", "adp", "apply", "explain"):
            self.assertIn("--overlap", self.text(command, "--help"))
        self.fails(2, "propagate", TINY, "--overlap", says=["unknown option --overlap"])
        self.fails(2, "opp", TINY, "--overlap=maybe", says=["--overlap"])


class Machines(SearchTest):
    def test_a_stored_plan_is_priced_on_its_own(self):
        """apply and explain take the cluster and device that the plan was made for, where none is given."""
        cluster, plan = self.folder / "servers.json", self.folder / "plan.json"
        servers = {"count": 1, "devices": 8, "intra_gbytes_per_s": 450, "inter_gbytes_per_s": 50, "device": "h100-80gb"}
        cluster.write_text(json.dumps({"schema": "automap.cluster/1", "servers": [servers]}))
        for asked in ("h100-1x8", str(cluster)):
            made = self.document("opp", TINY, "--shards", 4, "--objective", "count", "--cluster", asked, "-o", plan)
            for command in ("apply", "explain"):
                priced = self.document(command, TINY, "--plan", plan)["estimate"]
                self.assertEqual(priced["cluster"], asked)
                self.assertAlmostEqual(priced["step_ms"], made["estimate"]["step_ms"], delta=1e-9 * priced["step_ms"])
                other = self.document(command, TINY, "--plan", plan, "--cluster", "config-a")["estimate"]
                self.assertEqual(other["cluster"], "config-a")
                self.assertNotEqual(other["step_ms"], priced["step_ms"])
        # A file that is gone, or is another one now.
        cluster.write_text(cluster.read_text().replace('"count": 1', '"count": 2'))
        result = run("automap-search", "explain", TINY, "--plan", plan, "--json")
        self.assertEqual((result.returncode, json.loads(result.stdout)["estimate"]["cluster"]), (0, "config-a"))
        self.assertIn("has changed since", result.stderr)
        cluster.unlink()
        result = run("automap-search", "explain", TINY, "--plan", plan, "--json")
        self.assertEqual((result.returncode, json.loads(result.stdout)["estimate"]["cluster"]), (0, "config-a"))
        self.assertIn("no preset and no file here", result.stderr)
        # A name inside a file opens nothing that waits.
        os.mkfifo(cluster)
        self.assertEqual(run("automap-search", "explain", TINY, "--plan", plan, "--json").returncode, 0)


class DataIsSplitForTime(SearchTest):
    def test_never_slower_than_nothing_split(self):
        """On links so slow that reducing gradients takes longer than splitting the batch saves."""
        cluster = self.folder / "slow.json"
        for gbytes, slow in ((1e-4, True), (100, False)):
            cluster.write_text(json.dumps({"schema": "automap.cluster/1", "devices": {"one": {
                "memory_gib": 16, "relative_speed": 1, "peak_tflops": {"f32": 15.7, "f16": 125}}}, "servers": [
                {"count": 1, "devices": 4, "device": "one", "intra_gbytes_per_s": gbytes, "inter_gbytes_per_s": gbytes}]}))
            result = run("automap-search", "adp", FIXTURES / "mamba.hlo.gz", "--shards", 4, "--cluster", cluster,
                         "--device", "v100-16gb", "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            found = json.loads(result.stdout)
            estimate = found["estimate"]
            self.assertLessEqual(estimate["step_ms"], estimate["replicated_step_ms"])
            self.assertEqual("longer than the" in result.stderr, slow)
            self.assertEqual(found["partitioned"] == 0, slow)
            if not slow:
                self.assertLess(estimate["step_ms"], 0.9 * estimate["replicated_step_ms"])


class Absurd(SearchTest):
    def test_loops_in_loops(self):
        """Two thousand million turns, forty deep: costs stay numbers."""
        state, parts = "(s32[], f32[4])", []
        for depth in range(40):
            inner = f"w = {state} while(t0), condition=until{depth - 1}, body=turn{depth - 1}\n  y = f32[4] get-tuple-element(w), index=1"
            parts.append(f"""until{depth} {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(2000000000)
  ROOT c = pred[] compare(i, n), direction=LT
}}
turn{depth} {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4] get-tuple-element(p), index=1
  z = s32[] constant(0)
  t0 = {state} tuple(z, x)
  {inner if depth else "y = f32[4] tanh(x)"}
  o = s32[] constant(1)
  j = s32[] add(i, o)
  ROOT t = {state} tuple(j, y)
}}
""")
        model = self.put("nested.hlo", "HloModule m\n" + "".join(parts) + f"""ENTRY e {{
  x = f32[4] parameter(0)
  z = s32[] constant(0)
  t = {state} tuple(z, x)
  w = {state} while(t), condition=until39, body=turn39
  ROOT r = f32[4] get-tuple-element(w), index=1
}}
""")
        for options in ([], ["--overlap"], ["--objective", "time"]):
            result = run("automap-search", "adp", model, "--shards", 4, *options, "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            json.loads(result.stdout, parse_constant=self.fail)  # no NaN, no Infinity

    # Seconds; by the square of their number it would take a minute.
    def test_thirty_thousand_parameters(self):
        count = 30000
        parameters = "".join(f"  p{i} = f32[4,4] parameter({i})\n" for i in range(count))
        for kind in ("handed on", "each by itself"):
            if kind == "handed on":
                body, names, command = "", "p", ("automap-infer", "--cluster", "config-a", "--time-limit", "1s")
            else:
                body = "".join(f"  a{i} = f32[4,4] tanh(p{i})\n" for i in range(count))
                names, command = "a", ("automap-search", "adp", "--shards", 4, "--budget", "1s")
            shapes, roots = ", ".join(["f32[4,4]"] * count), ", ".join(f"{names}{i}" for i in range(count))
            model = self.put("many.hlo", f"HloModule many\nENTRY e {{\n{parameters}{body}  ROOT t = ({shapes}) tuple({roots})\n}}\n")
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            with self.subTest(kind):
                result = run(*command[:2] if command[1] == "adp" else command[:1], model, *command[2 if command[1] == "adp" else 1:])
                self.assertIn(result.returncode, (0, 3), result.stderr)
                self.assertNotIn("killed", result.stderr)
                self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, 20)


class CombinedSums(SearchTest):
    def test_counted_and_reported(self):
        apart, combined = (self.document("opp", T5, "--reshard", "off", "--sums", sums) for sums in ("apart", "combined"))
        self.assertEqual((apart["sums"], combined["sums"]), ("apart", "combined"))
        self.assertEqual(apart, {**self.document("opp", T5, "--reshard", "off"), "planning_ms": apart["planning_ms"],
                                 "alternatives": apart["alternatives"]})
        self.assertEqual((apart["partial_sums"], combined["partial_sums"], combined["all_reduces"]), (102, 102, 67))
        self.assertLess(combined["step_ms"], apart["step_ms"])
        self.assertTrue(combined["proven"])
        self.assertEqual((combined["estimate"]["lower_bound_ms"], combined["estimate"]["gap"]), (None, None))
        text = self.text("opp", T5, "--reshard", "off", "--sums", "combined")
        self.assertIn("67 all-reduces of partial sums", text)
        self.assertIn("(combined, of 102 and 594 MiB", text)

    def test_applied_and_explained(self):
        plan, hlo, again = (self.folder / name for name in ("plan.json", "sharded.hlo", "again.hlo"))
        self.text("opp", T5, "--reshard", "off", "--sums", "combined", "-o", plan, "--emit-hlo", hlo)
        wanted = json.loads(plan.read_text())
        applied = self.document("apply", T5, "--plan", plan, "--emit-hlo", again)
        self.assertEqual(applied["collectives"], wanted["collectives"])
        wanted_ms = wanted["estimate"]["step_ms"]
        self.assertAlmostEqual(applied["estimate"]["step_ms"], wanted_ms, delta=1e-9 * wanted_ms)
        self.assertEqual(again.read_text(), hlo.read_text())
        by_hand = [c for c in wanted["collectives"] if f"%{c['instruction']}.reduced.1 = " in hlo.read_text()]
        self.assertEqual(len(by_hand), hlo.read_text().count(" all-reduce("))
        self.assertEqual(len([c for c in wanted["collectives"] if c["partial_sums"] > 1]), len(by_hand))
        explained = self.document("explain", T5, "--plan", plan, by_hand[0]["instruction"])
        self.assertIn(by_hand[0]["partial_sums"], [len(c["sources"]) for c in explained["tensors"][0]["collectives"]])

    def test_wrong_uses(self):
        self.fails(2, "opp", TINY, "--sums", "later", says=["apart", "combined"])
        for mesh in (("--mesh", "data=4,model=2"), ("--shards", "auto")):
            self.fails(2, "opp", TINY, *mesh, "--sums", "combined", says=["--sums combined is about one axis", "leave --sums out"])
        self.fails(2, "adp", TINY, "--sums", "combined", says=["unknown option --sums"])
        plan = {"schema": "automap.plan/1", "kind": "operator", "shards": 4, "partition": {}}
        self.fails(3, "apply", TINY, "--plan", self.put("p.json", json.dumps({**plan, "sums": "late"})), says=["sums", '"combined"'])
        mesh = {"schema": "automap.plan/1", "kind": "mesh", "mesh": {"data": 4, "model": 2}, "axes": {"model": {"sums": "combined", "partition": {}}}}
        self.fails(3, "apply", TINY, "--plan", self.put("m.json", json.dumps(mesh)), says=["sums", "by itself", "plan one axis"])


class KeptShardings(SearchTest):
    """What a module says of shardings, taken as given: `w` along its rows, the value inside along its columns."""

    STEP = """HloModule step, input_output_alias={ {0}: (0, {}, may-alias) }
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY e {
  w = f32[32,64] parameter(0), sharding={devices=[4,1,2]<=[8] last_tile_dim_replicate}
  x = f32[16,32] parameter(1), sharding={devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}
  h = f32[16,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[16,64] tanh(h)
  y = f32[16,64] custom-call(t), custom_call_target="Sharding", sharding={devices=[1,4,2]<=[8] last_tile_dim_replicate}
  zero = f32[] constant(0)
  loss = f32[] reduce(y, zero), dimensions={0,1}, to_apply=sum
  one = f32[] constant(1)
  ones = f32[16,64] broadcast(one), dimensions={}
  yy = f32[16,64] multiply(y, y)
  slope = f32[16,64] subtract(ones, yy)
  g = f32[32,64] dot(x, slope), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  new_w = f32[32,64] subtract(w, g)
  ROOT out = (f32[32,64], f32[]) tuple(new_w, loss)
}
"""

    def test_what_is_given_is_kept_and_what_it_moves_named(self):
        model = self.put("step.hlo", self.STEP)
        plan_file, hlo = self.folder / "plan.json", self.folder / "kept.hlo"
        plan = self.document("opp", model, "--shards", 4, "--cluster", "h100-1x8", "--keep-shardings", "-o", plan_file, "--emit-hlo", hlo)
        self.assertEqual(plan["partition"], {"w": 0})
        self.assertEqual([(k["tensor"], k["dim"]) for k in plan["kept"]], [("w", 0), ("x", -1), ("y", 1)])
        self.assertEqual(plan["kept"][1]["left"], "2 parts of dimension 0: another axis than is planned")
        self.assertTrue(plan["reshards"])
        for reshard in plan["reshards"]:
            self.assertGreater(reshard["ms"], 0)
            self.assertGreater(reshard["bytes"], 0)
        self.assertFalse([w for w in plan["warnings"] if "set aside" in w])
        self.assertTrue([w for w in plan["warnings"] if w.startswith("not kept of the module's own shardings, 1 value: x")])
        # What is written says the same when it is set on the model again.
        again = self.text("apply", model, "--plan", plan_file, "--cluster", "h100-1x8")
        self.assertIn("1 of 1 variable", again)
        self.assertIn("sharding=", hlo.read_text())
        report = self.text("opp", model, "--shards", 4, "--cluster", "h100-1x8", "--keep-shardings")
        self.assertIn("Kept as the module says, over the axis of 4 devices", report)
        self.assertIn("Reshards that this forces", report)
        data = self.document("adp", model, "--shards", 2, "--cluster", "h100-1x8", "--keep-shardings")
        self.assertEqual(data["partition"], {"x": 0})

    def test_what_cannot_be_asked(self):
        model = self.put("step.hlo", self.STEP)
        self.fails(3, "opp", model, "--shards", 3, "--keep-shardings", says=["no axis of 3 devices", "axes of 2, 4"])
        self.fails(2, "opp", model, "--mesh", "data=4,model=2", "--keep-shardings", says=["--keep-shardings is about one axis"])
        aside = run("automap-search", "opp", model, "--shards", 4)
        self.assertIn("set aside", aside.stderr)
        nothing = run("automap-search", "opp", TINY, "--shards", 4, "--keep-shardings")
        self.assertEqual(nothing.returncode, 0, nothing.stderr)
        self.assertIn("no shardings of its own", nothing.stderr)

    def test_replicas_of_infer_keep_them(self):
        model = self.put("step.hlo", self.STEP)
        ask = ("automap-infer", model, "--cluster", "h100-1x8", "--keep-shardings", "--details", "--layout")
        kept = run(*ask, "dp=1,pp=1,tp=4")
        self.assertEqual(kept.returncode, 0, kept.stderr)
        self.assertIn("automap-search opp MODEL --shards 4 --keep-shardings", " ".join(kept.stdout.split()))
        self.assertNotIn("set aside", kept.stderr)
        self.assertIn("kept inside replicas of several devices alone", kept.stderr)
        # What opp says to type is taken. Where it keeps nothing in parts infer knows no such replicas, and none are named.
        opp = " ".join(self.text("opp", model, "--shards", 4, "--cluster", "h100-1x8", "--keep-shardings").split())
        said = re.search("as automap-infer (--layout .*) counts it", opp)[1].split()
        self.assertIn("--keep-shardings", said)
        typed = run("automap-infer", model, "--cluster", "h100-1x8", *said)
        self.assertEqual(typed.returncode, 0, typed.stderr)
        copies = self.put("copies.hlo", re.sub(r"sharding=\{devices=[^}]*\}", "sharding={devices=[2,1,4]<=[8] last_tile_dim_replicate}", self.STEP))
        self.assertNotIn("as automap-infer", self.text("opp", copies, "--shards", 8, "--cluster", "h100-1x8", "--keep-shardings"))
        # Of a mesh of 3 devices none is kept by 4: said so.
        step = self.STEP.replace("32,64", "6144,12288").replace("16,32", "3072,6144").replace("16,64", "3072,12288")
        odd = self.put("odd.hlo", re.sub(r"sharding=\{devices=[^}]*\}", "sharding={devices=[3,1]<=[3]}", step))
        other = run(ask[0], odd, *ask[2:], "dp=1,pp=1,tp=4")
        self.assertEqual(other.returncode, 0, other.stderr)
        self.assertIn("of the module's own shardings none is kept: the module's own shardings have no axis of 4 devices",
                      " ".join(other.stdout.split()))

    def test_the_case_of_the_corpus(self):
        corpus = os.environ.get("AUTOMAP_CORPUS")
        if not corpus:
            self.skipTest("AUTOMAP_CORPUS is not set: its case of shardings is not planned")
        model = Path(corpus) / "cases/user-shardings-ignored/remat.hlo"
        plan = self.document("opp", model, "--shards", 8, "--cluster", "h100-1x8", "--keep-shardings")
        kept = {k["tensor"]: k["dim"] for k in plan["kept"]}
        self.assertEqual(kept, {"c": 1, "a": 2, "sharding_constraint.2": 1, "sharding_constraint.3": 1})
        self.assertIn("2 parts of dimension 0", plan["kept"][1]["left"])
        # From a's columns to the rows of what is made of it, and of the gradient to a's columns again: 256 KiB each.
        self.assertEqual(sorted(r["bytes"] for r in plan["reshards"])[-2:], [16 * 64 * 64 * 4] * 2)


class Meshes(SearchTest):
    MESH = ("--mesh", "data=4,model=2")

    def test_the_document(self):
        plan = self.document("opp", TINY, *self.MESH)
        self.assertEqual((plan["kind"], plan["shards"], plan["mesh"]), ("mesh", 8, {"data": 4, "model": 2}))
        data, model = plan["axes"]["data"], plan["axes"]["model"]
        self.assertEqual((data["kind"], data["shards"], model["kind"], model["shards"]), ("data", 4, "operator", 2))
        self.assertEqual(split(data), {"batch['x']": 0, "batch['y']": 0})
        self.assertEqual(split(model)["params['dense_1']['kernel']"], 1)
        estimate = plan["estimate"]
        parts = estimate["compute_ms"] + estimate["data_collective_ms"] + estimate["model_collective_ms"]
        self.assertAlmostEqual(estimate["step_ms"], parts, delta=1e-9 * estimate["step_ms"])
        chosen = [(a["mesh"], a["zero"], a["step_ms"]) for a in plan["alternatives"]]
        self.assertIn((plan["mesh"], plan["zero"], plan["step_ms"]), chosen)
        # Of a sum over the data axis each device has what the model axis leaves it, of one over the model axis its replica's.
        self.assertEqual({c["instruction"]: c["bytes"] for c in model["collectives"]}, {"dot_general.6": 4 * 4 * 10})
        self.assertEqual(data["all_reduce_bytes"], 4 * ((32 * 64 + 64 + 64 * 10) // 2 + 10 + 1))

    def test_the_schema_refuses(self):
        if jsonschema is None:
            self.skipTest("python3-jsonschema is not installed: plans are not checked against their schema")
        validator = jsonschema.Draft202012Validator(SCHEMA)
        plan = self.document("opp", TINY, *self.MESH)
        axes = plan["axes"]
        for damage in ({"mesh": {"data": 4}}, {"zero": 4}, {"axes": {"data": axes["model"]}}, {"axes": None},
                       {"axes": {**axes, "model": {**axes["model"], "inputs": 3}}}):
            with self.assertRaises(jsonschema.ValidationError):
                validator.validate({**plan, **damage})
        minimal = {key: plan[key] for key in ("schema", "kind", "mesh")}
        validator.validate({**minimal, "axes": {name: {"partition": axis["partition"]} for name, axis in axes.items()}})

    def test_stored_in_parts(self):
        off, full = (self.document("opp", T5, *self.MESH, "--zero", zero) for zero in (0, 3))
        self.assertEqual((off["zero"], off["axes"]["data"]["gathers"]), (0, []))
        self.assertEqual(full["zero"], 3)
        self.assertLess(full["memory_bytes"], off["memory_bytes"])
        data = full["axes"]["data"]
        self.assertTrue(any(c["kept_in_parts"] for c in data["collectives"]))
        self.assertGreater(data["all_gathers"], 0)
        half = self.document("opp", T5, *self.MESH, "--zero", 2)["axes"]["data"]
        self.assertIn("handed on", {g["how"] for g in half["gathers"]})

    def test_one_axis_may_be_left_out(self):
        for text, mesh in (("data=4", {"data": 4, "model": 1}), ("model=4", {"data": 1, "model": 4})):
            self.assertEqual(self.document("opp", TINY, "--mesh", text)["mesh"], mesh)

    def test_auto(self):
        plan = self.document("opp", TINY, "--shards", "auto")
        self.assertEqual(plan["kind"], "mesh")
        self.assertGreater(len(plan["alternatives"]), 4)
        self.assertEqual(plan["simulated_step_ms"], min(a["simulated_step_ms"] for a in plan["alternatives"] if a["fits"]))
        self.assertIn("What is gathered over the data axis (split, and read whole somewhere; bytes of the whole tensors)",
                      self.text("opp", TINY, "--mesh", "data=4,model=2", "--zero", 3))
        text = self.text("opp", TINY, "--shards", "auto")
        for part in ("Step time", "Memory", "Meshes", "this plan"):
            self.assertIn(part, text)

    def test_what_is_asked_for_and_not_done_is_said(self):
        for also in (["--algorithm", "greedy"], ["--objective", "count"]):
            done = run("automap-search", "opp", TINY, "--reshard", "auto", *also)
            self.assertIn("--reshard auto cuts nothing here", done.stderr)
            self.assertNotIn("--reshard", run("automap-search", "opp", TINY, *also).stderr)

    def test_jax_cannot_combine_sums(self):
        specs = self.folder / "specs.py"
        for sums, said in (("combined", True), ("apart", False)):
            done = run("automap-search", "opp", T5, "--reshard", "off", "--sums", sums, "--emit-jax", specs)
            self.assertEqual("--emit-jax cannot say that partial sums are combined" in done.stderr, said)
            self.assertEqual("adds partial sums up before they are reduced" in specs.read_text(), said)

    def test_there_is_one_step_and_one_memory(self):
        """What the search judges by adds up to a step that stands nowhere beside the step that is counted."""
        grouped = FIXTURES / "grouped_query.hlo.gz"
        text, plan = self.text("opp", grouped), self.document("opp", grouped)
        self.assertEqual((len(re.findall(r"^Step time", text, re.M)), len(re.findall(r"^Memory", text, re.M))), (1, 1))
        self.assertNotIn("estimated (", text)
        self.assertRegex(text, r"(?m)^Judged by +\S+ ms compute, ")
        self.assertIn(f"--layout {plan['layout']}", " ".join(text.split()))
        # Positions of queries may be split, which no variable decides.
        self.assertIn("How good proven", " ".join(text.split()))
        text = self.text("opp", FIXTURES / "lit_small.hlo.gz")
        self.assertIn("keeps whole what no variable decides", " ".join(text.split()))

    def test_wrong_meshes(self):
        for text, says in (("data=x", ["does not say how many", "data=4,model=2"]), ("data=0", ["does not say how many"]),
                           ("foo=2,model=2", ["'foo' is no axis", "data and model"]), ("data=4,data=2", ["axis data stands there twice"]),
                           ("data=4,", ["is no axis"]), ("4,2", ["is no axis", "data=4,model=2"]),
                           ("data=64,model=2", ["64 x 2 needs 128 devices", "16", "a larger cluster"])):
            self.fails(2, "opp", TINY, "--mesh", text, says=says)
        self.fails(2, "opp", TINY, "--mesh", "model=16", "--cluster", "config-a", says=["a server of cluster 'config-a' has 8", "divides 8"])
        self.fails(2, "opp", TINY, *self.MESH, "--shards", 8, says=["--mesh and --shards", "give one of them"])
        self.fails(2, "opp", TINY, "--zero", 3, says=["needs a data axis", "--mesh data=D,model=T"])
        self.fails(2, "opp", TINY, "--mesh", "data=1,model=8", "--zero", 3, says=["needs a data axis", "several devices for data"])
        self.fails(2, "opp", TINY, *self.MESH, "--objective", "count", says=["planned by time", "leave --objective out"])
        self.fails(2, "adp", TINY, "--shards", "auto", says=["automap-search opp has it", "give a number"])
        self.fails(2, "adp", TINY, *self.MESH, says=["unknown option --mesh"])
        self.fails(3, "opp", TINY, "--mesh", "data=3", says=["3 devices do not divide 16", "another number of devices for data"])
        self.fails(4, "opp", TINY, *self.MESH, "--memory", "1kB", says=["nothing fits", "the least is"])

    def stored(self):
        path, hlo = self.folder / "mesh.json", self.folder / "sharded.hlo"
        result = run("automap-search", "opp", TINY, *self.MESH, "-o", path, "--emit-hlo", hlo, "--emit-jax", self.folder / "specs.py")
        self.assertEqual(result.returncode, 0, result.stderr)
        return path, hlo

    def test_written_and_applied(self):
        path, hlo = self.stored()
        self.assertIn("num_partitions=8", hlo.read_text())
        again, jax = self.folder / "again.hlo", self.folder / "again.py"
        text = self.text("apply", TINY, "--plan", path, "--emit-hlo", again, "--emit-jax", jax)
        self.assertEqual(again.read_bytes(), hlo.read_bytes())
        self.assertEqual(jax.read_bytes(), (self.folder / "specs.py").read_bytes())
        self.assertIn('MESH = {"data": 4, "model": 2}', jax.read_text())
        for part in ("a mesh of 4 x 2 devices", "data axis:", "model axis:", "Estimate", "per device of"):
            self.assertIn(part, text)
        # The estimate of what was applied is that of the plan.
        plan, applied = json.loads(path.read_text()), self.document("apply", TINY, "--plan", path)
        self.assertEqual((applied["kind"], applied["mesh"], applied["shards"]), ("mesh", plan["mesh"], 8))
        for key in ("step_ms", "compute_ms", "memory_bytes", "replicated_step_ms", "capacity_bytes"):
            self.assertAlmostEqual(applied["estimate"][key], plan["estimate"][key], delta=1e-9 * plan["estimate"][key], msg=key)
        for axis in ("data", "model"):
            self.assertEqual(applied["axes"][axis]["collectives"], plan["axes"][axis]["collectives"])

    def test_explained(self):
        path, hlo = self.stored()
        text = self.text("explain", TINY, "--plan", path)
        for part in ("Data axis", "Model axis", "Estimate", "per device of"):
            self.assertIn(part, text)
        document = self.document("explain", TINY, "--plan", path)
        self.assertEqual({name: axis["kind"] for name, axis in document["axes"].items()}, {"data": "data", "model": "operator"})
        # Bytes are what the other axis leaves of a tensor, here as in the plan.
        plan = json.loads(path.read_text())
        for name, axis in document["axes"].items():
            self.assertEqual([c["bytes"] for c in axis["collectives"]], [c["bytes"] for c in plan["axes"][name]["collectives"]])
        self.assertIn("1 all-reduce of partial sums, 160 B per step", text)
        axes = self.document("explain", TINY, "--plan", path, "dense_1/kernel")["axes"]
        self.assertEqual([axes[name]["tensors"][0]["dim"] for name in ("data", "model")], [-1, 1])

    def test_anybodys(self):
        def mine(**keys):
            axes = {"data": {"partition": {"batch/x": 0}}, "model": {"partition": {"params/dense_1/kernel": 1}}}
            return self.put("mine.json", json.dumps({"schema": "automap.plan/1", "kind": "mesh", "mesh": {"data": 4, "model": 2},
                                                     "axes": axes, **keys}))
        self.assertIn("3 of 4 variables", self.text("apply", TINY, "--plan", mine()))
        kernel = {"partition": {"params/dense_2/kernel": 0}}
        for keys, code, says in (
                ({"mesh": {"data": 4}}, 3, "model"), ({"shards": 4}, 3, "4 x 2 devices"), ({"axes": {"data": {"kind": "operator"}}}, 3, "data"),
                ({"axes": {"model": {"shards": 4}}}, 3, "found 4"), ({"axes": {"data": {"partition": {"batch/w": 0}}}}, 3, "batch/w"),
                ({"mesh": {"data": 3, "model": 2}}, 3, "3"),
                ({"mesh": {"data": 16, "model": 8}, "axes": {"data": kernel, "model": kernel}}, 4, "split by both axes")):
            self.fails(code, "apply", TINY, "--plan", mine(**keys), "--cluster", "config-c", says=[says])


class Files(SearchTest):
    def outputs(self):
        return [self.folder / name for name in ("plan.json", "sharded.hlo", "specs.py")]

    def plan_tiny(self, *more):
        plan, hlo, jax = self.outputs()
        return run("automap-search", "opp", TINY, "--shards", 4, "--objective", "count", "-o", plan, "--emit-hlo", hlo,
                   "--emit-jax", jax, *more)

    def test_written_and_applied(self):
        plan, hlo, jax = self.outputs()
        result = self.plan_tiny()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("num_partitions=4", hlo.read_text())
        self.assertIn("sharding={devices=", hlo.read_text())
        compile(jax.read_text(), str(jax), "exec")
        again = self.folder / "again.hlo"
        text = self.text("apply", TINY, "--plan", plan, "--emit-hlo", again, "--emit-jax", self.folder / "again.py")
        self.assertIn("variables split over 4 devices", text)
        self.assertEqual(again.read_bytes(), hlo.read_bytes())
        self.assertEqual((self.folder / "again.py").read_bytes(), jax.read_bytes())
        self.assertEqual(self.text("apply", TINY, "--plan", plan, "--emit-hlo", "-"), hlo.read_text())
        applied = self.document("apply", TINY, "--plan", plan, "--emit-hlo", again)
        self.assertEqual(applied["partitioned"], json.loads(plan.read_text())["partitioned"])
        # Anybody's decision.
        mine = self.put("mine.json", json.dumps({"schema": "automap.plan/1", "kind": "operator", "shards": 4,
                                                 "partition": {"params['dense_1']['kernel']": 1}}))
        self.assertIn("split over 4 devices", self.text("apply", TINY, "--plan", mine, "--emit-hlo", again))

    def test_an_annotated_module_is_a_model(self):
        plan, hlo, jax = self.outputs()
        self.plan_tiny()
        self.assertEqual(self.document("opp", hlo, "--shards", 4, "--objective", "count")["partition"],
                         json.loads(plan.read_text())["partition"])

    def test_nothing_half_written(self):
        missing = self.folder / "no" / "such"
        plan, hlo, jax = self.outputs()
        self.fails(3, "opp", TINY, "-o", plan, "--emit-hlo", hlo, "--emit-jax", missing / "specs.py", says=["specs.py"])
        self.assertEqual(self.leftovers(), [])
        self.fails(3, "opp", self.folder / "none.hlo", "-o", plan, says=["none.hlo"])
        self.assertEqual(self.leftovers(), [])
        plan.write_text("old")
        self.fails(2, "opp", TINY, "--shards", 1000000, "-o", plan)
        self.assertEqual(plan.read_text(), "old")
        self.assertEqual(self.leftovers(), ["plan.json"])

    def test_standard_output_has_one_owner(self):
        result = run("automap-search", "opp", TINY, "-o", "-", "--json")
        self.assertEqual(result.returncode, 2)
        self.assertIn("both want standard output", result.stderr)
        self.fails(2, "opp", TINY, "-o", "-", "--emit-hlo", "-", says=["both want standard output"])
        same = self.folder / "same"
        self.fails(2, "opp", TINY, "-o", same, "--emit-hlo", self.folder / "." / "same", says=["both want"])
        self.assertEqual(json.loads(self.text("opp", TINY, "-o", "-"))["kind"], "operator")
        self.fails(2, "apply", "-", "--plan", "-", "--emit-hlo", same, says=["both want standard input"])

    def test_wrong_plans(self):
        plan, hlo, jax = self.outputs()
        self.plan_tiny()
        self.fails(3, "apply", VGG, "--plan", plan, "--emit-hlo", self.folder / "x.hlo")
        self.fails(3, "explain", VGG, "--plan", plan)
        # Nothing to write: what it costs.
        self.assertIn("Estimate", self.text("apply", TINY, "--plan", plan))
        self.fails(3, "explain", TINY, "--plan", TINY)
        self.fails(3, "explain", TINY, "--plan", self.folder / "none.json", says=["none.json"])
        for partition, code, says in (
                ({"params['dense_9']['kernel']": 1}, 3, "dense_9"),
                ({"params['dense_1']['kernel']": 2}, 3, "dense_1"),
                ({"params['dense_2']['kernel']": 1}, 3, "do not divide 10"),
                ({"params['dense_1']['kernel']": 1, "params['dense_2']['kernel']": 0, "params['dense_1']['bias']": -1}, 4, "dense_")):
            wrong = self.put("wrong.json", json.dumps({"schema": "automap.plan/1", "kind": "operator", "shards": 4,
                                                       "partition": partition}))
            self.fails(code, "explain", TINY, "--plan", wrong, says=[says])
        # The same module in another form is the same model.
        again = run("automap-search", "apply", FIXTURES / "tiny_mlp.pb.gz", "--plan", plan, "--emit-hlo", self.folder / "pb.hlo")
        self.assertIn(again.returncode, (0, 3), again.stderr)
        self.assertFalse((self.folder / "x.hlo").exists())


class Propagation(SearchTest):
    def test_complete(self):
        text = self.text("propagate", TINY, "--shards", 4, "--set", "params/dense_1/kernel=1")
        self.assertIn("complete", text.splitlines()[0])
        self.assertIn("params['dense_2']['kernel'] is split along dimension 0", text)
        document = self.document("propagate", TINY, "--shards", 4, "--set", "params/dense_1/kernel=1")
        self.assertEqual((document["schema"], document["outcome"]), ("automap.propagation/1", "complete"))
        states = {t["name"]: (t["state"], t["dim"]) for t in document["inputs"]}
        self.assertEqual(states["params['dense_1']['kernel']"], ("split", 1))
        self.assertEqual(states["params['dense_1']['bias']"], ("split", 0))
        self.assertEqual(states["params['dense_2']['kernel']"], ("split", 0))
        self.assertEqual(states["params['dense_2']['bias']"], ("whole", -1))
        self.assertEqual(document["tensors"]["undecided"], 0)
        self.assertEqual(len(document["steps"]), document["tensors"]["split"])
        self.assertEqual([s["by"] for s in document["steps"]].count("decision"), 1)
        self.assertEqual(len(document["collectives"]), 1)
        # Every step but the first comes from a tensor that an earlier one reached.
        reached = set()
        for step in document["steps"]:
            if step["from"] is not None:
                self.assertIn((step["from"]["tensor"], step["from"]["dim"]), reached)
            reached.add((step["tensor"], step["dim"]))

    def test_stuck(self):
        document = self.document("propagate", TINY, "--shards", 4)
        self.assertEqual(document["outcome"], "stuck")
        self.assertTrue(document["undecided"])
        self.assertEqual(document["tensors"]["split"], 0)
        self.assertIn("Undecided", self.text("propagate", TINY, "--shards", 4))

    def test_order_does_not_matter(self):
        sets = ["params/softmax/kernel=1", "params/decoder/embedding=0", "params/encoder/layer/3/feed_forward/conv1/kernel=1"]
        def answer(order):
            document = self.document("propagate", T5, *[a for s in order for a in ("--set", s)])
            return document["inputs"], document["tensors"], document["collectives"]
        self.assertEqual(answer(sets), answer(sets[::-1]))

    def test_kept_whole(self):
        document = self.document("propagate", TINY, "--shards", 4, "--set", "params/dense_1/kernel=-1")
        states = {t["name"]: t["state"] for t in document["inputs"]}
        self.assertEqual(states["params['dense_1']['kernel']"], "whole")
        self.assertEqual(states["params['dense_1']['bias']"], "whole")

    def test_conflict(self):
        sets = ["--set", "params/dense_1/kernel=1", "--set", "params/dense_1/kernel=0"]
        text = self.text("propagate", TINY, "--shards", 4, *sets, code=4)
        self.assertIn("conflict: params/dense_1/kernel=0 cannot be", text)
        document = self.document("propagate", TINY, "--shards", 4, *sets, code=4)
        self.assertEqual(document["outcome"], "conflict")
        self.assertEqual(document["conflict"]["set"], "params/dense_1/kernel=0")
        self.assertTrue(document["conflict"]["summary"])
        # What was taken before stands.
        self.assertEqual(len(document["decisions"]), 1)
        for second in ("=-1", "=1"):
            other = run("automap-search", "propagate", TINY, "--shards", 4, *sets[:2], "--set", "params/dense_1/kernel" + second)
            self.assertEqual(other.returncode, 4 if second == "=-1" else 0, other.stdout)

    def test_indivisible_says_what_would_do(self):
        text = self.text("propagate", TINY, "--shards", 7, "--set", "params/dense_1/kernel=1", code=4)
        self.assertIn("2, 4, 8, 16, 32 or 64 devices would do", text)

    def test_wrong_sets(self):
        for text, says in (("params/dense_9/kernel=1", "dense_"), ("params/dense_1/kernel=2", "no dimension 2"),
                           ("params/dense_1/kernel=-2", "no dimension -2"), ("params/dense_1/kernel", "TENSOR=DIMENSION"),
                           ("=1", "TENSOR=DIMENSION"), ("params/dense_1/kernel=one", "TENSOR=DIMENSION"),
                           ("params/dense_1/kernel=99999999999999999999", "TENSOR=DIMENSION")):
            self.fails(2, "propagate", TINY, "--set", text, says=[says])


class Explanations(SearchTest):
    def setUp(self):
        super().setUp()
        self.plan = self.folder / "plan.json"
        partition = {"params['dense_1']['kernel']": 1, "params['dense_1']['bias']": 0, "params['dense_2']['kernel']": 0}
        self.plan.write_text(json.dumps({"schema": "automap.plan/1", "kind": "operator", "shards": 4, "partition": partition}))

    def test_overview(self):
        text = self.text("explain", TINY, "--plan", self.plan)
        self.assertIn("1 all-reduce of partial sums, 640 B", text)
        document = self.document("explain", TINY, "--plan", self.plan)
        self.assertEqual((document["schema"], len(document["collectives"])), ("automap.explanation/1", 1))

    def test_tensors(self):
        text = self.text("explain", TINY, "--plan", self.plan, "params/dense_2/kernel")
        self.assertIn("split along dimension 0", text)
        document = self.document("explain", TINY, "--plan", self.plan)
        reduced = document["collectives"][0]
        text = self.text("explain", TINY, "--plan", self.plan, reduced["sources"][0])
        self.assertIn("all-reduce", text)
        own = self.document("explain", TINY, "--plan", self.plan, reduced["sources"][0])["tensors"][0]
        self.assertEqual(own["collectives"], [reduced])
        self.assertEqual(own["partial"], "add")
        whole = self.document("explain", TINY, "--plan", self.plan, "dense_2/bias")["tensors"][0]
        self.assertEqual((whole["state"], whole["dim"]), ("whole", -1))

    def test_unknown_tensors(self):
        self.fails(2, "explain", TINY, "--plan", self.plan, "dense_1/kernal", says=["kernal"])
        self.fails(2, "explain", TINY, "--plan", self.plan, "dot_generall.6", says=["dot_general"])


class BadInput(SearchTest):
    def test_devices(self):
        self.fails(2, "opp", TINY, "--shards", 0, says=["from 1 to"])
        self.fails(2, "opp", TINY, "--shards", 1000000, says=["devices"])
        self.fails(2, "opp", TINY, "--shards", 17, "--cluster", "config-a", says=["16"])
        self.fails(2, "opp", TINY, "--cluster", "config-z", says=["config-a"])
        self.fails(2, "opp", TINY, "--device", "v1000", says=["v100-16gb"])
        self.text("propagate", TINY, "--shards", 1000000)
        self.text("propagate", TINY, "--shards", 1)

    def test_memory(self):
        self.fails(2, "opp", TINY, "--memory", "lots", says=["on, off or a size"])
        self.fails(2, "opp", TINY, "--memory", "-1GiB", says=["on, off or a size"])
        self.fails(4, "opp", TINY, "--shards", 4, "--memory", "1kB", says=["nothing that was found fits", "the least is", "--memory off"])
        self.text("opp", TINY, "--shards", 4, "--memory", "1GiB")

    def test_meshes_that_the_budget_leaves_out_are_told(self):
        plan = self.document("opp", FIXTURES / "gpt2.hlo.gz", "--shards", "auto", "--cluster", "config-a", "--budget", "0.001s")
        self.assertTrue([w for w in plan["warnings"] if "before all meshes were looked at" in w], plan["warnings"])

    def test_what_a_hint_says_to_type_fits(self):
        cluster = ("--cluster", "config-a", "--effort", "quick")
        for command, asked, in_place in (
                ("opp", ("--shards", 2, "--memory", "7KiB"), "--shards 2"),
                ("opp", ("--shards", 2, "--memory", "7KiB", "--micro-batch", 4, "--micro-batches", 4), "--shards 2"),
                ("opp", ("--shards", 4, "--objective", "count", "--memory", "6KiB"), "--shards 4 --objective count"),
                ("opp", ("--mesh", "data=1,model=2", "--memory", "8KiB", "--micro-batch", 1), None),
                ("opp", ("--shards", "auto", "--memory", "3KiB"), None),
                ("adp", ("--shards", 2, "--memory", "7KiB", "--objective", "time"), None)):
            with self.subTest(command=command, asked=asked):
                refused = run("automap-search", command, TINY, *asked, *cluster)
                self.assertEqual(refused.returncode, 4, refused.stderr)
                hints = re.search("hint: (.*)", refused.stderr)[1].split("; or ")
                self.assertEqual(hints.pop(), "--memory off plans without a limit")
                self.assertTrue(hints, refused.stderr)
                for hint in hints:
                    if "devices of such servers" in hint:
                        continue
                    said, memory = re.match(r"(.*?)(?:, as by .*)? fits(?:, as by .*)?: (.*?) per device", hint).groups()
                    said, _, replaced = said.partition(" in place of ")
                    words = said.replace("automap-search opp ", "").split()
                    kept = [str(word) for word in asked]
                    if "--mesh" in words:
                        self.assertEqual(replaced, in_place or "")
                        of = "opp"
                        kept = ["--memory", kept[kept.index("--memory") + 1]]
                    else:
                        of = command
                        for option in ("--micro-batch", "--micro-batches"):
                            if option in kept:
                                del kept[kept.index(option):kept.index(option) + 2]
                    plan = self.document(of, TINY, *kept, *words, *cluster)
                    self.assertLessEqual(plan["memory_bytes"], 8 * 1024)

    def test_options(self):
        self.fails(2, "opp", TINY, "--objective", "speed", says=["time, count"])
        self.fails(2, "opp", TINY, "--algorithm", "exakt", says=["enumerate"])
        self.fails(2, "opp", TINY, "--budget", "0s", says=["0.001"])

    def test_models(self):
        for command in ("opp", "adp", "propagate"):
            self.fails(3, command, self.folder / "none.hlo", says=["none.hlo"])
            self.fails(3, command, self.folder)
            self.fails(3, command, "-", stdin="")
            self.fails(3, command, "-", stdin="HloModule m\nENTRY e {\n  p = f32[8] parameter(0)\n", says=["<stdin>"])
            self.fails(3, command, "-", stdin=gzip.compress(TINY.read_bytes())[:200])
        profile = self.folder / "p.csv"
        run("automap-profile", TINY, "-o", profile)
        self.fails(3, "opp", profile, says=["this is a profile already", "needs the model itself"])

    def test_modules_without_anything_to_decide(self):
        constant = "HloModule m\nENTRY e {\n  c = f32[8] constant({1,2,3,4,5,6,7,8})\n  ROOT r = f32[8] negate(c)\n}\n"
        self.fails(3, "opp", "-", stdin=constant, says=["module 'm' has no variables", "--variables"])
        self.fails(3, "adp", "-", stdin=constant, says=["module 'm' has no data"])
        self.assertIn("complete", self.text("propagate", "-", stdin=constant))
        scalar = "HloModule m\nENTRY e {\n  p = f32[] parameter(0)\n  ROOT r = f32[] negate(p)\n}\n"
        for command in ("opp", "adp"):
            result = run("automap-search", command, "-", stdin=scalar)
            self.assertIn(result.returncode, (0, 3), result.stderr)
        empty = "HloModule m\nENTRY e {\n  p = f32[0,8] parameter(0)\n  q = f32[8,4] parameter(1)\n  ROOT r = f32[0,4] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"
        for command in ("opp", "adp"):
            result = run("automap-search", command, "-", "--shards", 4, stdin=empty)
            self.assertIn(result.returncode, (0, 3), result.stderr)


# A fixture of so many bytes holds the operations of the smaller ones, only more of them.
LARGE_BYTES = 100_000


class Models(SearchTest):
    """A valid plan or an explained refusal for everything there is."""

    def check(self, path, command, *more):
        result = run("automap-search", command, path, "--json", *more)
        self.assertIn(result.returncode, (0, 3, 4), result.stderr)
        self.assertNotIn("bug in AutoMap", result.stderr)
        document = json.loads(result.stdout)
        if result.returncode:
            self.assertTrue(document["error"]["message"])
            return None
        self.assertEqual(len(split(document)), document["partitioned"])
        plan = self.put("plan.json", result.stdout)
        explained = run("automap-search", "explain", path, "--plan", plan)
        self.assertEqual(explained.returncode, 0, explained.stderr)
        return document

    def check_all(self, paths):
        for path in paths:
            for command in ("opp", "adp"):
                with self.subTest(path=path.name, command=command):
                    document = self.check(path, command, "--objective", "count")
                    self.assertIsNotNone(document)

    def test_fixtures(self):
        self.check_all(path for path in sorted(FIXTURES.iterdir()) if path.stat().st_size < LARGE_BYTES)

    def test_large_fixtures(self):
        self.check_all(path for path in sorted(FIXTURES.iterdir()) if path.stat().st_size >= LARGE_BYTES)

    def test_corpus(self):
        corpus = os.environ.get("AUTOMAP_CORPUS")
        if not corpus:
            self.skipTest("AUTOMAP_CORPUS is not set: modules of the corpus are not planned")
        paths = sorted(p for p in (Path(corpus) / "hlo" / "train_1dev").rglob("*") if p.is_file())
        self.assertTrue(paths)
        for path in paths:
            for command in ("opp", "adp"):
                with self.subTest(path=path.name, command=command):
                    self.check(path, command, "--objective", "count", "--budget", "2s")


if __name__ == "__main__":
    unittest.main()
