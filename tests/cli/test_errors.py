"""Bad input, bad files, bad questions: a clear error, the right exit code, nothing half written."""

import gzip
import json
import os
import subprocess
import unittest

from programs import BIN, FIXTURES, ProgramTest, environment, profile_csv, run

TOOLS = [("automap-infer", "--cluster", "config-a"), ("automap-profile",), ("automap-inspect",)]


def cluster(**changes):
    servers = {"count": 2, "devices": 4, "intra_gbytes_per_s": 130, "inter_gbytes_per_s": 3.125, "device": "gpu"}
    device = {"memory_gib": 16, "relative_speed": 1}
    document = {"schema": "automap.cluster/1", "name": "mine", "servers": [servers], "devices": {"gpu": device}}
    for key, value in changes.items():
        next(part for part in (servers, device, document) if key in part)[key] = value
    return json.dumps(document)


class BadInput(ProgramTest):
    def each(self, path, code, *parts, tools=TOOLS, **kwargs):
        for tool in tools:
            with self.subTest(tool=tool[0], path=str(path)):
                self.assert_fails(run(tool[0], path, *tool[1:], **kwargs), code, *parts)

    def test_not_there_or_not_a_file(self):
        self.each(self.folder / "missing.hlo", 3, "missing.hlo: No such file or directory")
        self.each(self.folder, 3, "is a directory")

    def test_empty_garbage_and_truncated(self):
        text = (FIXTURES / "tiny_mlp.hlo").read_bytes()
        self.each(self.put("empty", b""), 3, "empty")
        self.each(self.put("garbage", bytes(range(256)) * 64), 3, "garbage")
        self.each(self.put("half.hlo", text[: len(text) // 2]), 3, "half.hlo:")
        packed = gzip.compress(text)
        self.each(self.put("half.hlo.gz", packed[: len(packed) // 2]), 3, "half.hlo.gz", "gzip")
        self.each(self.put("damaged.gz", packed[:40] + b"XXXX" + packed[44:]), 3, "damaged.gz")

    def test_standard_input_is_named(self):
        self.each("-", 3, "<stdin>", stdin="")
        self.each("-", 3, "<stdin>", stdin=b"\x00\x01\x02\x03" * 100)

    def test_json_errors(self):
        for tool in TOOLS:
            result = run(tool[0], self.folder / "missing", *tool[1:], "--json")
            error = self.assert_json_error(result, 3, "io")
            self.assertIn("missing", error["message"])
            self.assert_json_error(run(tool[0], "x", *tool[1:], "--json", "--frob"), 2, "usage")

    def test_json_errors_behind_two_dashes(self):
        """An option without its value in front of them: what is wrong is said as JSON to whoever wrote --json anywhere."""
        self.assert_json_error(run("automap-datagen", "--preview", "--", "--json"), 2, "usage")
        self.assert_json_error(run("automap-infer", "--cluster", "--", "--json"), 2, "usage")
        # Understood, it is an argument: the name of a file.
        result = run("automap-inspect", "--", "--json", cwd=self.folder)
        self.assertEqual((result.returncode, result.stdout), (3, ""))
        self.assertIn("--json: No such file", result.stderr)

    def test_options_as_other_programs_have_them(self):
        for option, says in (("--batch-size", "--batch "), ("--global-batch-size", "--batch "), ("--seq", "--sequence"),
                             ("--seq_length", "--sequence"), ("--framework", "--for"), ("--nodes", "--cluster"), ("--gpus", "--cluster"),
                             ("--tp", "--layout"), ("--micro-batch-size", "--micro-batch "), ("--model", "automap infer MODEL")):
            with self.subTest(option=option):
                result = run("automap-infer", "gpt2", "--cluster", "h100-1x8", option, "8")
                self.assert_fails(result, 2, f"unknown option {option}", says)
        self.assert_fails(run("automap-infer", "gpt2", "--cluster", "h100-1x8", "--tp=8"), 2, "unknown option --tp\n", "--layout")
        # Before the model is built.
        self.assert_fails(run("automap-infer", "missing", "--cluster", "h100-1x8", "--batch", "0"), 2, "--batch: found '0'")

    def test_devices_of_cluster_files(self):
        servers = {"count": 1, "devices": 8, "device": "b100", "inter_gbytes_per_s": 50}
        path = self.put("mine.json", json.dumps({"schema": "automap.cluster/1", "servers": [servers]}))
        self.assert_fails(run("automap-infer", "gpt2", "--cluster", path), 2, 'servers[0].device: no device type "b100"', "known: ")
        path = self.put("a100.json", json.dumps({"schema": "automap.cluster/1", "servers": [{**servers, "device": "a100"}]}))
        self.assertEqual(run("automap-infer", FIXTURES / "tiny_mlp.hlo", "--cluster", path).returncode, 0)

    def test_layouts_say_what_would_do(self):
        servers = [{"count": 7, "devices": 8, "device": "h100", "inter_gbytes_per_s": 50}, {"devices": 7, "device": "h100", "inter_gbytes_per_s": 50}]
        path = self.put("uneven.json", json.dumps({"schema": "automap.cluster/1", "servers": servers}))
        on = ("automap-infer", "gpt2", "--cluster", path, "--sequence", "128")
        self.assert_fails(run(*on, "--layout", "tp=4,pp=2,dp=8"), 2, "64 devices", "dp=7,pp=2,tp=4 would do")
        result = run(*on, "--layout", "tp=4 pp=2, micro-batch-size=1")
        self.assertIn("names no dp, which is 1: it uses 8 of 63 devices; dp=7 uses 56", result.stderr)
        self.assertNotIn("names no dp", run(*on, "--layout", "tp=4 pp=2 dp=1 micro-batch-size=1").stderr)

    def test_words_of_frameworks_that_contradict_the_question(self):
        result = run("automap-infer", "gpt2", "--cluster", "h100-1x8", "--batch", "512", "--sequence", "128", "--layout",
                     "--micro-batch-size 4 --global-batch-size 256 --num-layers 40 --seq-length 2048 --bf16 --recompute-activations")
        self.assertEqual(result.returncode, 0, result.stderr)
        for says in ("--global-batch-size 256 (256 samples a step), the command line --batch 512", "--num-layers 40, the model has 12",
                     "--seq-length 2048, the model has 128, which is planned; --sequence 2048", "bf16, the model computes in f32",
                     "--dtype bf16", "selective is counted as if nothing were recomputed"):
            self.assertIn(says, result.stderr)

    def test_wrong_clusters(self):
        profile = self.put("p.csv", profile_csv())
        wrong = {
            "zero": (cluster(devices=0), "devices"),
            "none": (cluster(count=0), "count"),
            "negative": (cluster(inter_gbytes_per_s=-1), "inter_gbytes_per_s"),
            "unknown-device": (cluster(device="tpu"), "tpu"),
            "newer": (cluster(schema="automap.cluster/2"), "automap.cluster/2"),
            "not-json": ("{", "not-json"),
            "empty": ("", "empty"),
            "garbage": ("\x00\x01\x02", "garbage"),
        }
        for name, (text, part) in wrong.items():
            with self.subTest(cluster=name):
                self.assert_fails(run("automap-infer", profile, "--cluster", self.put(name, text)), 2, part)
        self.assert_fails(run("automap-infer", profile, "--cluster", "confg-a"), 2, "confg-a", "config-a")
        self.assert_fails(run("automap-infer", profile), 2, "missing --cluster", "config-a")
        self.assertEqual(run("automap-infer", profile, "--cluster", self.put("right", cluster())).returncode, 0)

    def test_wrong_profiles(self):
        wrong = {
            "nan": profile_csv(c_ms=[1] * 20 + [float("nan")] + [1] * 19),
            "infinite": profile_csv(c_ms=[1] * 20 + [float("inf")] + [1] * 19),
            "negative": profile_csv(a_bytes=-1),
            "one": profile_csv(1),
            "none": profile_csv(0),
            "all-zero": profile_csv(c_ms=0),
            "short-row": profile_csv() + "1,2\n",
            "words": profile_csv(w_bytes="much"),
        }
        for name, text in wrong.items():
            self.each(self.put(f"{name}.csv", text), 3, f"{name}.csv", tools=TOOLS[:1])

    def test_impossible_questions(self):
        profile = self.put("p.csv", profile_csv())
        infer = lambda *arguments: run("automap-infer", profile, *arguments)
        small = self.put("small.json", cluster(count=1))
        self.assert_fails(infer("--cluster", small, "--stages", 5), 2, "5 stages", "4 devices")
        few = self.put("few.csv", profile_csv(3))
        self.assert_fails(run("automap-infer", few, "--cluster", "config-a", "--stages", 4), 2, "4 stages", "3")
        self.assert_fails(infer("--cluster", "config-a", "--micro-batches", 0), 2, "--micro-batches")
        self.assert_fails(infer("--cluster", "config-a", "--stages", "many"), 2, "--stages", "auto")
        self.assert_fails(infer("--cluster", "config-a", "--planner", "exakt"), 2, "did you mean 'exact'?")
        self.assert_fails(infer("--cluster", "config-a", "--variables", "x"), 2, "--variables", "profile")

    def test_nothing_fits(self):
        huge = self.put("huge.csv", profile_csv(8, w_bytes=1e12))
        result = run("automap-infer", huge, "--cluster", "config-a")
        self.assert_fails(result, 4, "stages fits in memory", "GiB", "--memory off")
        self.assert_json_error(run("automap-infer", huge, "--cluster", "config-a", "--json"), 4, "infeasible")
        # Variables at both ends of a grid bucket of 10: a grid of 4 cannot part them, and without refinement nothing does.
        close = self.put("close.csv", profile_csv(40, w_bytes=[1e6 if i in (1, 2) else 0 for i in range(40)]))
        arguments = (close, "--cluster", "config-a", "--planner", "exact", "--grid", 4, "--no-refine", "--stages", 2)
        self.assert_fails(run("automap-infer", *arguments), 4, "No feasible plan of 2 stages", "--allow-empty-stages")
        self.assertEqual(run("automap-infer", *arguments, "--allow-empty-stages").returncode, 0)

    def test_unwritable_outputs(self):
        profile = self.put("p.csv", profile_csv())
        infer = lambda output: run("automap-infer", profile, "--cluster", "config-a", "-o", output)
        self.assert_fails(infer(self.folder / "no" / "such" / "plan.json"), 3, "plan.json", "No such file or directory")
        self.assert_fails(infer(self.folder), 3, "is a directory")
        self.assert_fails(infer("/dev/full"), 3, "/dev/full", "No space left on device")
        self.assert_fails(infer("/proc/plan.json"), 3, "/proc/plan.json")
        self.assert_fails(infer(""), 2, "--output")
        self.assertEqual(self.leftovers(), ["p.csv"])
        old = self.put("plan.json", "old")
        old.chmod(0o444)
        if os.geteuid() != 0:
            self.assert_fails(infer(old), 3, "plan.json", "Permission denied")
            self.assertEqual(old.read_text(), "old")

    def test_results_that_cannot_be_printed(self):
        profile = self.put("p.csv", profile_csv(8))
        for flags in ("--effort quick", "--effort quick --json"):
            for redirect, reason in ((">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")):
                command = f"'{BIN}/automap-infer' '{profile}' --cluster config-a {flags} {redirect}"
                result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment())
                self.assert_fails(result, 3, "standard output", reason)

    def test_newer_files_are_refused_by_name(self):
        profile = self.put("p.csv", profile_csv())
        plan = self.folder / "plan.json"
        self.assertEqual(run("automap-infer", profile, "--cluster", "config-a", "-o", plan).returncode, 0)
        newer = self.put("newer.json", plan.read_text().replace("automap.plan/3", "automap.plan/4"))
        self.assert_fails(run("automap-inspect", newer), 3, "automap.plan/3", "update AutoMap")

    def test_wrong_variables(self):
        model = FIXTURES / "tiny_mlp.hlo"
        for name, text in (("unknown", "no_such_parameter\n"), ("empty", ""), ("number", "99999\n")):
            path = self.put(name, text)
            self.assert_fails(run("automap-infer", model, "--cluster", "config-a", "--variables", path), 3, name)
        self.assert_fails(run("automap-infer", model, "--cluster", "config-a", "--variables", self.folder / "none"), 3, "none")

    def test_wrong_devices(self):
        model = FIXTURES / "tiny_mlp.hlo"
        own = json.loads(cluster())
        self.assert_fails(run("automap-infer", model, "--cluster", self.put("own.json", json.dumps(own))), 2, "gpu", "peak_tflops")
        own["devices"]["gpu"].update(peak_tflops={"f32": 10}, memory_gbytes_per_s=500)
        result = run("automap-infer", model, "--cluster", self.put("own.json", json.dumps(own)), "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(result.stdout)["provenance"]["reference_device"], "gpu")
        own["devices"]["gpu"]["relative_speed"] = 2
        self.assert_fails(run("automap-infer", model, "--cluster", self.put("own.json", json.dumps(own))), 2, "relative_speed", "--device")
        self.assert_fails(run("automap-infer", model, "--cluster", "config-a", "--device", "v1000"), 2, "v1000", "v100-16gb")


if __name__ == "__main__":
    unittest.main()
