"""One cost: automap-search opp and adp say of a mesh what automap-infer --layout says of the same module, layout and options."""

import json
import re
import unittest

from plan_lists import listed
from programs import FIXTURES, ProgramTest, run

GPT2, BF16, TINY = "gpt2.hlo.gz", "transformer_bf16.hlo.gz", "tiny_mlp.hlo"
# Module, cluster, data x model devices, ZeRO, options of both programs.
QUESTIONS = [
    (TINY, "config-a", 2, 1, 0, ()),
    (TINY, "config-a", 4, 2, 0, ()),
    (TINY, "config-a", 1, 4, 0, ()),
    (TINY, "config-a", 16, 1, 3, ()),
    (GPT2, "h100-1x8", 4, 1, 0, ()),
    (GPT2, "h100-1x8", 4, 2, 0, ()),
    (GPT2, "h100-1x8", 2, 4, 2, ()),
    (GPT2, "config-b", 4, 1, 3, ()),
    (GPT2, "h100-1x8", 2, 2, 0, ("--micro-batches", 8)),
    (BF16, "h100-1x8", 2, 2, 0, ()),
    (BF16, "h100-1x8", 2, 4, 3, ("--attention", "as-written")),
    (BF16, "h100-1x8", 8, 1, 0, ("--attention", "fused")),
    (BF16, "a100-2x8", 4, 2, 2, ("--batch", 64)),
    (BF16, "h100-1x8", 4, 2, 0, ("--sequence-parallel", "off")),
    (BF16, "h100-1x8", 2, 1, 0, ("--micro-batch", 32, "--micro-batches", 2)),
    (BF16, "h100-1x8", 1, 8, 0, ("--device", "h100-80gb")),
    ("transformer_scan.hlo.gz", "config-a", 2, 2, 0, ()),
    ("grouped_query.hlo.gz", "h100-1x8", 2, 1, 3, ()),
    ("mamba.hlo.gz", "h100-1x8", 2, 1, 0, ()),
    ("vgg19.hlo.gz", "config-a", 8, 1, 0, ()),
    ("gpt2_forward.hlo.gz", "h100-1x8", 2, 4, 0, ()),
]


class OneCost(ProgramTest):
    def document(self, *arguments, code=0):
        result = run(*arguments, "--json")
        self.assertEqual(result.returncode, code, result.stderr)
        return json.loads(result.stdout)

    def layout_of(self, found, module, *options):
        """What automap-infer says of the layout that a plan of automap-search names."""
        return listed(self.document("automap-infer", module, *options, "--layout", found["layout"] + ",recompute=none",
                                    "--micro-batches", found["micro_batches"]))

    def assert_same(self, found, counted):
        self.assertIsNone(found["not_counted"])
        stage = counted["stages"][0]
        for name, one, other in (("step", found["step_ms"], counted["step_ms"]),
                                 ("simulated", found["simulated_step_ms"], counted["simulated_step_ms"]),
                                 ("memory", found["memory_bytes"], stage["memory_bytes"]),
                                 ("capacity", found["capacity_bytes"], stage["capacity_bytes"]),
                                 ("samples", found["micro_batch_samples"], counted["micro_batch_samples"])):
            self.assertGreater(one, 0, name)
            self.assertAlmostEqual(one, other, delta=1e-9 * other, msg=name)

    # Twenty questions, a second each at most: what the issue asks for.
    def test_a_mesh_is_a_layout(self):
        for module, cluster, data, model, zero, options in QUESTIONS:
            with self.subTest(module=module, cluster=cluster, data=data, model=model, zero=zero, options=options):
                found = self.document("automap-search", "opp", FIXTURES / module, "--cluster", cluster,
                                      "--mesh", f"data={data},model={model}", *(["--zero", zero] if data > 1 else []), *options)
                self.assertTrue(found["layout"].startswith(f"dp={data},pp=1"), found["layout"])
                self.assertEqual(f"tp={model}," in found["layout"], model > 1)
                self.assertEqual((f"zero={found['zero']}" in found["layout"]), found["zero"] > 0)
                # The samples stand in the layout and in the number of micro-batches.
                split = [i for name in ("--batch", "--micro-batch", "--micro-batches") if name in options
                         for i in (options.index(name), options.index(name) + 1)]
                rest = [option for i, option in enumerate(options) if i not in split]
                counted = self.layout_of(found, FIXTURES / module, "--cluster", cluster, *rest)
                self.assert_same(found, counted)
                if model > 1:
                    self.assertEqual(counted["partition"], {key: found["axes"]["model"].get(key, counted["partition"][key])
                                                            for key in counted["partition"]})

    def test_one_axis_is_a_layout(self):
        for command, shards in (("opp", 4), ("adp", 2)):
            found = self.document("automap-search", command, FIXTURES / GPT2, "--cluster", "h100-1x8", "--shards", shards)
            self.assert_same(found, self.layout_of(found, FIXTURES / GPT2, "--cluster", "h100-1x8"))

    def test_options_count(self):
        def step(*options):
            return self.document("automap-search", "opp", FIXTURES / BF16, "--cluster", "h100-1x8", "--mesh", "data=2,model=2",
                                 *options)["simulated_step_ms"]
        self.assertLess(step("--attention", "fused"), step("--attention", "as-written"))
        self.assertLess(step(), step("--micro-batches", 4))
        found = self.document("automap-search", "opp", FIXTURES / BF16, "--cluster", "h100-1x8", "--mesh", "data=2,model=2",
                              "--batch", 64, "--micro-batches", 4)
        self.assertEqual((found["micro_batch_samples"], found["micro_batches"]), (16, 4))

    def test_the_quickest_mesh_is_the_quickest_layout(self):
        cluster = ("--cluster", "h100-1x8")
        found = self.document("automap-search", "opp", FIXTURES / GPT2, *cluster, "--shards", "auto")
        self.assert_same(found, self.layout_of(found, FIXTURES / GPT2, *cluster))
        self.assertLessEqual(found["simulated_step_ms"], min(a["simulated_step_ms"] for a in found["alternatives"] if a["fits"]))
        for other in found["alternatives"][:3]:
            layout = f"dp={other['mesh']['data']},tp={other['mesh']['model']},micro-batch-size={4 // other['mesh']['data']},zero={other['zero']}"
            counted = listed(self.document("automap-infer", FIXTURES / GPT2, *cluster, "--layout", layout, "--micro-batches", 1))
            self.assertAlmostEqual(other["simulated_step_ms"], counted["simulated_step_ms"], delta=1e-9 * other["simulated_step_ms"])
            self.assertAlmostEqual(other["memory_bytes"], counted["stages"][0]["memory_bytes"], delta=1e-9 * other["memory_bytes"])

    def test_what_fits_is_what_fits_there(self):
        found = self.document("automap-search", "opp", FIXTURES / GPT2, "--cluster", "h100-1x8", "--mesh", "data=2,model=2", "--zero", 0)
        enough, less = found["memory_bytes"], found["memory_bytes"] // 2
        common = (FIXTURES / GPT2, "--cluster", "h100-1x8", "--mesh", "data=2,model=2", "--zero", 0)
        again = self.document("automap-search", "opp", *common, "--memory", str(enough))
        self.assertEqual(again["simulated_step_ms"], found["simulated_step_ms"])
        self.assert_fails(run("automap-search", "opp", *common, "--memory", str(less)), 4, "nothing fits", "--zero 3 stores less")

    def test_the_micro_batch_that_fits(self):
        """Where nothing fits, the largest that would is named, with what it then takes."""
        question = ("automap-search", "opp", FIXTURES / "mamba.hlo.gz", "--cluster", "h100-1x8", "--mesh", "data=2,model=2",
                    "--memory", "50MiB")
        refused = run(*question)
        self.assert_fails(refused, 4, "nothing fits")
        named = re.search(r"--micro-batch (\d+) --micro-batches (\d+) fits: ([\d.]+ [KMG]iB) per device", refused.stderr)
        self.assertIsNotNone(named, refused.stderr)
        samples, count = int(named[1]), int(named[2])
        found = self.document(*question, "--micro-batch", samples, "--micro-batches", count)
        self.assertEqual((found["micro_batch_samples"], samples * count), (samples, 16))
        self.assertLessEqual(found["memory_bytes"], 50 * 2 ** 20)
        self.assertEqual(f"{found['memory_bytes'] / 2 ** 20:.1f} MiB", named[3])
        self.assert_fails(run(*question, "--micro-batch", 2 * samples, "--micro-batches", count // 2), 4, "nothing fits")
        # Of one axis, too.
        refused = run("automap-search", "adp", FIXTURES / "mamba.hlo.gz", "--cluster", "h100-1x8", "--shards", 2, "--memory", "50MiB")
        self.assertRegex(refused.stderr, r"--micro-batch \d+ --micro-batches \d+ fits")

    def test_another_partition_that_fits(self):
        """Where the quickest does not: it is counted by the same cost, and is said not to be what automap-infer counts."""
        result = run("automap-search", "opp", FIXTURES / BF16, "--cluster", "config-a", "--shards", 4, "--memory", "200MiB", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        found = json.loads(result.stdout)
        self.assertLessEqual(found["memory_bytes"], 200 * 2 ** 20)
        self.assertIn("another one than automap-infer counts", result.stderr)
        self.assertGreater(self.layout_of(found, FIXTURES / BF16, "--cluster", "config-a")["stages"][0]["memory_bytes"], 200 * 2 ** 20)

    def test_what_is_no_layout_says_so(self):
        for arguments, says in (
                (("opp", FIXTURES / TINY, "--cluster", "config-a", "--shards", 12), "inside one server"),
                (("adp", FIXTURES / TINY, "--cluster", "config-a", "--shards", 7), "not split as replicas share a batch")):
            found = self.document("automap-search", *arguments)
            self.assertEqual((found["step_ms"], found["memory_bytes"], found["layout"]), (None, None, None))
            self.assertIn(says, found["not_counted"])
            self.assertGreater(found["estimate"]["step_ms"], 0)
            result = run("automap-search", *arguments)
            self.assertIn("Not counted", result.stdout)
            self.assertNotIn("Step time", result.stdout)
            self.assertIn(says, " ".join(result.stdout.split()))

    def test_wrong_uses(self):
        mesh = ("opp", FIXTURES / TINY, "--mesh", "data=4,model=2")
        for options, says in ((("--micro-batches", 0), ("--micro-batches", "auto or a whole number")),
                              (("--batch", "many"), ("--batch", "auto or a whole number")),
                              (("--batch", 24), ("does not split into micro-batches of 16",)),
                              (("--micro-batch", 6), ("4 replicas do not divide the 6", "--micro-batch")),
                              (("--batch", 32, "--micro-batch", 16, "--micro-batches", 3), ("not the batch of 32",)),
                              (("--attention", "some"), ("--attention",))):
            self.assert_fails(run("automap-search", *mesh, *options), 2, *says)


if __name__ == "__main__":
    unittest.main()
