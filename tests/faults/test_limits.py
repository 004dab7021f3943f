"""Limits of the shell, files that name other files, and numbers no file should hold: an answer or an error, never a crash or a wait."""

import json
import os
import resource
import subprocess
import tempfile
import unittest
from pathlib import Path

BIN = Path(os.environ["AUTOMAP_BIN"])
CSV = "name,c_ms,a_bytes,w_bytes,stash_bytes\n" + "".join(f"i{k},{k % 3 + 1},1000,800,50\n" for k in range(24))
CLUSTER = {"schema": "automap.cluster/1", "name": "pair", "servers": [
    {"count": 1, "devices": 4, "intra_gbytes_per_s": 130, "inter_gbytes_per_s": 3.125, "device": "one"},
    {"count": 1, "devices": 4, "intra_gbytes_per_s": 130, "inter_gbytes_per_s": 3.125, "device": "other"}],
    "devices": {"one": {"memory_gib": 16, "relative_speed": 1}, "other": {"memory_gib": 16, "relative_speed": 1}}}


class Limits(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "p.csv").write_text(CSV)

    def run_in(self, *arguments, limit=None, timeout=120):
        set_limit = (lambda: resource.setrlimit(limit[0], (limit[1], limit[1]))) if limit else None
        return subprocess.run([str(BIN / arguments[0]), *map(str, arguments[1:])], capture_output=True, text=True, cwd=self.folder,
                              preexec_fn=set_limit, timeout=timeout)

    def infer(self, cluster):
        (self.folder / "c.json").write_text(json.dumps(cluster))
        return self.run_in("automap-infer", "p.csv", "--cluster", "c.json", "--effort", "quick", "-q", "--time-limit", "5s")

    def test_small_stacks(self):
        for kib in (256, 512, 1024, 2048):
            self.assertEqual(self.run_in("automap-infer", "--version", limit=(resource.RLIMIT_STACK, kib << 10)).returncode, 0, kib)

    def test_a_hard_limit_of_time_leaves_no_temporary_file(self):
        model = Path(os.environ["AUTOMAP_SOURCE"]) / "fixtures/hlo/gpt2.hlo.gz"
        result = self.run_in("automap-infer", model, "--cluster", "config-b", "-q", "--effort", "thorough", "-o", "o.json",
                             limit=(resource.RLIMIT_CPU, 2))
        self.assertEqual(result.returncode, 152, result.stderr)
        self.assertIn("limit of CPU time", result.stderr)
        self.assertEqual([f.name for f in self.folder.iterdir() if f.name.endswith(".tmp")], [])

    def test_extreme_speeds(self):
        for speed in (1e-6, 1e6):
            cluster = json.loads(json.dumps(CLUSTER))
            cluster["devices"]["other"]["relative_speed"] = speed
            result = self.infer(cluster)
            self.assertIn(result.returncode, (0, 4), result.stderr)
        for speed in (1e-7, 1e18, 5e-324):
            cluster["devices"]["other"]["relative_speed"] = speed
            result = self.infer(cluster)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("devices.other.relative_speed", result.stderr)

    def test_absurd_numbers_of_profiles(self):
        for number in ("1e308", "1e31", "5e-324", "nan"):
            (self.folder / "p.csv").write_text(CSV.replace("i3,1,", f"i3,{number},"))
            result = self.infer(CLUSTER)
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertIn("p.csv:5", result.stderr)

    def test_turns_of_nested_loops_that_no_number_holds(self):
        """34 loops in one another, each of 2e9 turns: 1e316 turns of the innermost."""
        loop = ("b{k} {{ p = (s32[], f32[4]) parameter(0)  i = s32[] get-tuple-element(p), index=0  v = f32[4] get-tuple-element(p), index=1\n"
                "  {inner}  o = s32[] constant(1)  j = s32[] add(i, o)  ROOT t = (s32[], f32[4]) tuple(j, {value}) }}\n"
                "k{k} {{ p = (s32[], f32[4]) parameter(0)  i = s32[] get-tuple-element(p), index=0  n = s32[] constant(2000000000)\n"
                "  ROOT c = pred[] compare(i, n), direction=LT }}\n")
        enter = ("z = s32[] constant(0)  t0 = (s32[], f32[4]) tuple(z, {0})  wh = (s32[], f32[4]) while(t0), condition=k{1}, body=b{1}\n"
                 "  {2}v2 = f32[4] get-tuple-element(wh), index=1\n")
        for depth in (5, 34):
            text = "HloModule loops\n" + loop.format(k=0, inner="w = f32[4] tanh(v)\n", value="w")
            for k in range(1, depth):
                text += loop.format(k=k, inner=enter.format("v", k - 1, ""), value="v2")
            text += "ENTRY e { x = f32[4] parameter(0)\n  " + enter.format("x", depth - 1, "ROOT ") + "}\n"
            (self.folder / "w.hlo").write_text(text)
            result = self.run_in("automap-search", "adp", "w.hlo", "--shards", "4")
            self.assertIn(result.returncode, (0, 3), result.stderr)
            result = self.run_in("automap-profile", "w.hlo", "-q", "-o", "w.h5")
            self.assertIn(result.returncode, (0, 3), result.stderr)
            if result.returncode == 0:  # what is written is read again
                self.assertEqual(self.run_in("automap-inspect", "w.h5").returncode, 0)

    def test_many_parameters_take_time_in_proportion(self):
        """20 000 take 2 s of a processor; with the square of that, as it once was, 17 s and more."""
        count = 20000
        names, shapes = [", ".join(f(k) for k in range(count)) for f in (lambda k: f"p{k}", lambda k: "f32[4]")]
        (self.folder / "wide.hlo").write_text(
            "HloModule wide\nENTRY e {\n" + "".join(f"  p{k} = f32[4] parameter({k})\n" for k in range(count))
            + f"  ROOT t = ({shapes}) tuple({names})\n}}\n")
        for command in (("automap-search", "opp", "wide.hlo", "--shards", "4", "--budget", "1s"),
                        ("automap-infer", "wide.hlo", "--cluster", "config-a", "--time-limit", "1s")):
            result = self.run_in(*command, limit=(resource.RLIMIT_CPU, 10))
            self.assertIn(result.returncode, (0, 3, 4), result.stderr)

    def test_a_fifo_that_a_cluster_names(self):
        os.mkfifo(self.folder / "log")
        result = self.infer({**CLUSTER, "collectives": [{"nccl_tests": "log"}]})
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("FIFO", result.stderr)


if __name__ == "__main__":
    unittest.main()
