"""automap-infer: the plan document, its options, its report, its interrupts."""

import fcntl
import gzip
import hashlib
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import unittest
from pathlib import Path

from plan_lists import listed
from programs import (BIN, FIXTURES, ProgramTest, SANITIZED, SOURCE, TIMEOUT_S, environment, plan_with_the_default_effort, profile_csv, read_terminal, run)

plan_with_the_default_effort()

try:
    import jsonschema
except ImportError:
    jsonschema = None

PLANS = json.loads((SOURCE / "docs" / "formats" / "plan.schema.json").read_text())
SCHEMA = PLANS["oneOf"][0]


class Infer(ProgramTest):
    def plan(self, *arguments, **kwargs):
        result = run("automap-infer", *arguments, "--json", **kwargs)
        self.assertEqual(result.returncode, 0, result.stderr)
        plan = json.loads(result.stdout)
        self.check(plan)
        return listed(plan)

    def check(self, plan):
        """The document is as documented and agrees with itself."""
        if jsonschema:
            jsonschema.validate(plan, SCHEMA)
        parts, plan = plan["parts"], listed(plan)
        stages = plan["stages"]
        self.assertEqual(len(parts) % len(stages), 0)
        ends = [part["last_instruction"] for part in parts]
        self.assertEqual(ends, plan["cuts"] + [plan["instructions"]])
        self.assertEqual([part["first_instruction"] for part in parts], [1] + [c + 1 for c in plan["cuts"]])
        device_ends = [s["first_device"] + s["devices"] - 1 for s in stages]
        self.assertEqual(device_ends, plan["device_cuts"] + [plan["devices"]])
        self.assertEqual(len(plan["in_flight"]), len(stages))
        self.assertAlmostEqual(plan["gap"], plan["step_ms"] / plan["lower_bound_ms"] - 1, places=9)
        self.assertGreater(plan["gap"], -1e-9)

    def small(self, **columns):
        return self.put("small.csv", profile_csv(**columns))

    @unittest.skipUnless(jsonschema, "needs python3-jsonschema")
    def test_schema_is_strict_about_what_it_lists(self):
        plan = json.loads(run("automap-infer", self.small(), "--cluster", "config-a", "--json").stdout)
        documented = re.findall(r"`(\w+)`", (SOURCE / "docs" / "formats" / "plan.md").read_text())
        for key in plan:
            self.assertIn(key, SCHEMA["properties"])
            self.assertIn(key, documented)
        for key in [*plan["parts"][0], *plan["groups"][0], *plan["schedule"]]:
            self.assertIn(key, documented)
        for key in SCHEMA["required"]:
            broken = {k: v for k, v in plan.items() if k != key}
            with self.assertRaises(jsonschema.ValidationError):
                jsonschema.validate(broken, SCHEMA)

    @unittest.skipUnless(jsonschema, "needs python3-jsonschema")
    def test_schema_of_minimal_plans(self):
        minimal = {"cuts": [10], "device_cuts": [8]}
        model = self.small(layer=[f"h/{i // 4}" for i in range(40)])
        documented = re.findall(r"`(\w+)`", (SOURCE / "docs" / "formats" / "plan.md").read_text())
        for key in PLANS["oneOf"][2]["properties"]:
            self.assertIn(key, documented)
        for good in ({}, {"schedule": "gpipe"}, {"zero": [0, 3], "recompute": ["none", "layer"], "in_flight": [2, 1]},
                     {"micro_batch_samples": 16, "micro_batches": 4, "devices": 16, "replicas": "whole", "gradient_sync": "after"}):
            jsonschema.validate({**minimal, **good}, PLANS)
            path = self.put("plan.json", json.dumps({**minimal, **good}))
            self.assertEqual(run("automap-infer", model, "--cluster", "config-a", "--plan", path, "--micro-batch", 16).returncode, 0)
        for bad in ({"schedule": "2f2b"}, {"zero": [4]}, {"recompute": ["layr"]}, {"micro_batch_samples": 2.5}, {"in_flight": [0]},
                    {"schema": "mine/1"}):
            with self.assertRaises(jsonschema.ValidationError):
                jsonschema.validate({**minimal, **bad}, PLANS)

    def test_software_says_the_host_time_and_when_gradients_are_summed(self):
        model = FIXTURES / "tiny_mlp.stripped.hlo"
        asked = (model, "--cluster", "a100-2x8", "--batch", "64", "--layout", "dp=8,micro-batch-size=8")

        def plan(*more):
            result = run("automap-infer", *asked, *more, "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            return json.loads(result.stdout)

        plain, megatron = plan(), plan("--software", "megatron")
        self.assertEqual(plan("--software", "jax")["simulated_step_ms"], plain["simulated_step_ms"])
        self.assertGreater(megatron["simulated_step_ms"], 3 * plain["simulated_step_ms"])  # most of it is launches
        self.assertEqual(megatron["gradient_sync"], "after")
        self.assertEqual(megatron["provenance"]["option_software"], "megatron")
        self.assertEqual(megatron["provenance"]["reference_device"], "a100-80gb:host_us=80")
        self.assertIn("software megatron: 80 us of host time for a kernel, gradients summed behind", megatron["estimates"][0])
        # The same by its parts, and what is named stays.
        parts = plan("--device", "a100-80gb:host_us=80", "--gradient-sync", "after")
        self.assertEqual(parts["simulated_step_ms"], megatron["simulated_step_ms"])
        beside = plan("--software", "megatron", "--gradient-sync", "overlap")
        self.assertEqual(beside["gradient_sync"], "overlap")
        eager = plan("--software", "torch-eager")
        self.assertEqual(eager["provenance"]["reference_device"], "a100-80gb:host_us=80,elementwise_passes=2")
        self.assertIn("2 times the traffic of fused elementwise kernels", eager["estimates"][0])
        # Where passes wait for the host, twice the traffic takes no longer.
        self.assertGreaterEqual(eager["simulated_step_ms"], beside["simulated_step_ms"] * (1 - 1e-6))
        wrong = run("automap-infer", *asked, "--software", "megatrn")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("torch-compile", wrong.stderr)
        mixed = self.put("mixed.json", json.dumps({"servers": [
            {"devices": 8, "device": name, "intra_gbytes_per_s": 100, "inter_gbytes_per_s": 10} for name in ("h100", "b200")]}))
        # Devices of several types have it, too.
        several = run("automap-infer", model, "--cluster", mixed, *asked[3:], "--software", "megatron", "--json")
        self.assertEqual(several.returncode, 0, several.stderr)
        for device in ("h100", "b200"):
            alone = self.put("alone.json", json.dumps({"servers": [
                {"devices": 8, "device": device, "intra_gbytes_per_s": 100, "inter_gbytes_per_s": 10}]}))
            one = run("automap-infer", model, "--cluster", alone, *asked[3:], "--software", "megatron", "--json")
            self.assertAlmostEqual(json.loads(one.stdout)["simulated_step_ms"], json.loads(several.stdout)["simulated_step_ms"],
                                   delta=0.2 * json.loads(one.stdout)["simulated_step_ms"])
        unknown = self.put("unknown.json", json.dumps({"servers": [
            {"devices": 8, "device": "mine", "intra_gbytes_per_s": 100, "inter_gbytes_per_s": 10}],
            "devices": {"mine": {"memory_gib": 80, "peak_tflops": {"f32": 10}, "memory_gbytes_per_s": 1000}}}))
        wrong = run("automap-infer", model, "--cluster", unknown, "--software", "megatron")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("--device DEVICE:host_us=80", wrong.stderr)
        # A framework implies its software, which then says nothing of when gradients are summed: the plan says that.
        implied = plan("--for", "megatron")
        self.assertEqual(implied["simulated_step_ms"], beside["simulated_step_ms"])
        self.assertEqual((implied["gradient_sync"], implied["provenance"]["reference_device"]), ("overlap", "a100-80gb:host_us=80"))
        self.assertEqual(plan("--for", "torch")["simulated_step_ms"], eager["simulated_step_ms"])
        for framework in ("jax", "maxtext", "torch", "torchtitan", "megatron", "deepspeed"):
            self.assertIn("software ", plan("--for", framework)["estimates"][0][:9])
        for compiled in (("--for", "jax"), ("--for", "megatron", "--software", "any")):
            self.assertEqual(plan(*compiled)["simulated_step_ms"], plain["simulated_step_ms"])
        said = " ".join(run("automap-infer", *asked, "--for", "megatron").stdout.split())
        self.assertIn("Assumes 80 us of host time a kernel, as megatron takes (--software jax: 3 us)", said)
        # Where its times cannot be had the plan is one without them, and says so.
        left = run("automap-infer", model, "--cluster", unknown, "--for", "megatron", "--json")
        self.assertEqual(left.returncode, 0, left.stderr)
        self.assertIn("times are those of a compiled step, not of megatron with 80 us of host time a kernel, since cluster 'unknown' has devices "
                      "that no table knows", left.stderr)
        self.assertNotIn("option_software", json.loads(left.stdout)["provenance"])
        profile = self.put("tiny.h5", "")
        self.assertEqual(run("automap-profile", model, "--device", "a100-80gb", "-o", profile).returncode, 0)
        left = run("automap-infer", profile, *asked[1:], "--for", "megatron", "--json")
        self.assertEqual(json.loads(left.stdout)["simulated_step_ms"], plain["simulated_step_ms"])
        self.assertIn("tiny.h5 is a profile already", left.stderr)
        self.assert_fails(run("automap-infer", profile, *asked[1:], "--software", "megatron"), 2, "tiny.h5 is a profile already")
        # A file is read again with the software of its times, and with no other.
        for made, times in ((("--for", "megatron"), implied), (("--for", "megatron", "--device", "a100-80gb:host_us=50"), plain), ((), plain)):
            path = self.folder / "made.json"
            self.assertEqual(run("automap-infer", *asked, *made, "-q", "-o", path).returncode, 0)
            again = run("automap-infer", *asked[:3], "--plan", path, "--json")
            self.assertEqual(json.loads(again.stdout)["simulated_step_ms"], times["simulated_step_ms"], made)
        other = run("automap-infer", *asked[:3], "--plan", path, "--for", "megatron", "--json")
        self.assertEqual(json.loads(other.stdout)["simulated_step_ms"], implied["simulated_step_ms"])
        self.assertIn("counted in megatron (--for); the plan was made with a compiled step", other.stderr)
        # A file that is written of a plan for another framework is of that one's times.
        self.assertEqual(run("automap-infer", *asked, "--for", "megatron", "-q", "-o", path).returncode, 0)
        for framework, software in (("torch", "torch-eager"), ("jax", None)):
            counted = self.folder / "counted.json"
            first = run("automap-infer", *asked[:3], "--plan", path, "--for", framework, "-o", counted, "--quiet")
            self.assertEqual(first.returncode, 0, first.stderr)
            written, again = json.loads(counted.read_text()), run("automap-infer", *asked[:3], "--plan", counted, "--json")
            self.assertEqual(written["provenance"].get("option_software"), software)
            self.assertEqual(json.loads(again.stdout)["simulated_step_ms"], written["simulated_step_ms"])
            self.assertNotIn("counted in", again.stderr)
        fifty = run("automap-infer", *asked, "--for", "megatron", "--device", "a100-80gb:host_us=50")
        self.assertIn("50 us of host time a kernel, as --device says", fifty.stdout)

    def test_a_device_file_stands_for_the_clusters_devices(self):
        model = FIXTURES / "transformer_bf16.hlo.gz"
        device = {"schema": "automap.device/1", "name": "mine", "peak_tflops": {"f32": 10, "bf16": 60}, "memory_gbytes_per_s": 1000, "memory_gib": 30}
        path = self.put("mine.json", json.dumps(device))
        common = (model, "--cluster", "a100-2x8", "--effort", "quick")
        known, mine = self.plan(*common), self.plan(*common, "--device", path)
        self.assertGreater(mine["simulated_step_ms"], 1.5 * known["simulated_step_ms"])
        self.assertEqual(mine["provenance"]["reference_device"], "mine")
        self.assertTrue(any(line.startswith("mine, mostly matmul bf16") for line in mine["estimates"]), mine["estimates"])
        other = run("automap-infer", *common, "--device", "h100")
        self.assertEqual(other.returncode, 2)
        for part in ("h100", "a100-80gb", "leave --device out"):
            self.assertIn(part, other.stderr)

    def test_attention_is_said_and_a_plan_is_counted_as_it_was_made(self):
        model = FIXTURES / "transformer_bf16.hlo.gz"
        common = (model, "--cluster", "a100-2x8", "--effort", "quick")
        fused, written = self.plan(*common), self.plan(*common, "--attention", "as-written")
        self.assertLess(fused["simulated_step_ms"], written["simulated_step_ms"])
        self.assertTrue(any("6 attentions" in line for line in fused["estimates"]), fused["estimates"])
        self.assertFalse(any("attention" in line for line in written["estimates"]), written["estimates"])
        def given(source):
            return json.loads(run("automap-infer", source, "--cluster", "a100-2x8", "--plan", self.put("written.json", json.dumps(written)), "--json").stdout)
        again = given(model)
        self.assertEqual(again["simulated_step_ms"], written["simulated_step_ms"])
        # Devices that have kernels are timed with them, where others of the cluster have none; all keep what is written.
        def stages(*devices, width=1):
            servers = [{"devices": width, "intra_gbytes_per_s": 100, "inter_gbytes_per_s": 10, "device": device} for device in devices]
            cluster = self.put("some.json", json.dumps({"schema": "automap.cluster/1", "servers": servers}))
            cuts = self.put("cuts.json", json.dumps({"micro_batch_samples": 2, "micro_batches": 4, "cuts": [200], "device_cuts": [width],
                                                     "width": [width, width]}))
            result = run("automap-infer", model, "--cluster", cluster, "--plan", cuts, "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            mixed = len(set(devices)) > 1
            self.assertEqual("no kernels of libraries for attention are known for v100-16gb" in result.stderr, mixed)
            return listed(json.loads(result.stdout))["stages"]
        for width in (1, 2):
            old, new, mixed = (stages(*devices, width=width) for devices in (
                ("v100-16gb", "v100-16gb"), ("a100-80gb", "a100-80gb"), ("v100-16gb", "a100-80gb")))
            for part in ("forward_ms", "backward_ms"):
                self.assertEqual(mixed[0][part], old[0][part])
                # Replicas of several devices are divided in one way on all types, which may be another than on one.
                self.assertAlmostEqual(mixed[1][part], new[1][part], delta=(width - 1) * 0.01 * new[1][part])
            kept = [stages[1]["memory"]["stash"] for stages in (old, new, mixed)]
            self.assertEqual(kept[2], kept[0])
            self.assertLess(kept[1], kept[0])
        # A profile has the choice behind it.
        profile = self.put("written.h5", "")
        self.assertEqual(run("automap-profile", model, "--device", "a100-80gb", "--attention", "as-written", "-o", profile).returncode, 0)
        through = given(profile)
        self.assertAlmostEqual(through["simulated_step_ms"], written["simulated_step_ms"], delta=1e-6 * written["simulated_step_ms"])

    def test_every_planner_plans_and_auto_is_never_longer(self):
        path = self.small(c_ms=[1 + i % 7 for i in range(40)])
        lengths = {}
        for planner in ("auto", "rollouts", "exact", "balanced", "uniform", "local-search"):
            plan = self.plan(path, "--cluster", "config-a", "--planner", planner, "--time-limit", "1h")
            lengths[planner] = plan["simulated_step_ms"]
            self.assertTrue(planner == "auto" or plan["planner"].startswith(planner))
        for planner, length in lengths.items():
            self.assertLessEqual(lengths["auto"], length * (1 + 1e-9), (planner, lengths))

    def test_options_do_what_they_say(self):
        path = self.small()
        common = (path, "--cluster", "config-a", "--time-limit", "1h")
        for stages in (1, 2, 5):
            self.assertEqual(len(self.plan(*common, "--stages", stages)["stages"]), stages)
        self.assertLessEqual(len(self.plan(*common, "--max-stages", 2)["stages"]), 2)
        overlap = self.plan(*common, "--stages", 3, "--schedule", "1f1b-overlap", "--micro-batch", 16, "--micro-batches", 16)
        self.assertEqual((overlap["schedule"], overlap["in_flight"]), ("1f1b-overlap", [5, 3, 1]))
        self.assertEqual(self.plan(*common, "--stages", 3, "--micro-batch", 16, "--micro-batches", 2, "--schedule", "1f1b")["in_flight"], [2, 2, 1])
        self.assertEqual(self.plan(*common, "--planner", "exact")["objective"], "value")
        self.assertEqual(self.plan(*common, "--objective", "value")["objective"], "value")
        full, paper = (self.plan(*common, "--stages", 4, "--schedule", "adaptive", *more) for more in ((), ("--value", "paper")))
        self.assertLessEqual(paper["lower_bound_ms"], full["lower_bound_ms"] * (1 + 1e-9))
        planners = {a["planner"] for a in self.plan(*common, "--planner", "balanced", "--all-planners")["alternatives"]}
        self.assertLessEqual({"rollouts", "exact", "balanced", "uniform", "local-search"}, planners)
        grid = self.plan(self.put("long.csv", profile_csv(1000)), "--cluster", "config-a", "--planner", "exact", "--no-refine",
                         "--stages", 4, "--grid", 8)
        self.assertTrue(all(cut % 125 == 0 for cut in grid["cuts"]), grid["cuts"])

    def test_memory_is_kept_unless_switched_off(self):
        heavy = self.put("heavy.csv", profile_csv(8, w_bytes=3e9, c_ms=[1, 1, 1, 1, 1, 1, 1, 9]))
        kept = self.plan(heavy, "--cluster", "config-c")
        self.assertTrue(all(s["memory_bytes"] <= s["capacity_bytes"] for s in kept["stages"]))
        free = self.plan(heavy, "--cluster", "config-c", "--memory", "off", "--stages", 1)
        self.assertGreater(free["stages"][0]["memory_bytes"], free["stages"][0]["capacity_bytes"])
        self.assertTrue(any("does not fit" in w for w in free["warnings"]), free["warnings"])

    def test_a_layout_that_does_not_fit_gets_a_way_out(self):
        on = (self.put("heavy.csv", profile_csv(8, w_bytes=1e9, stash_bytes=1e6)), "--cluster", "config-c", "--batch", 64)
        done = run("automap-infer", *on, "--layout", "dp=4,micro-batch-size=4", "--json")
        self.assertEqual(done.returncode, 4, done.stderr)
        told = [w for w in json.loads(done.stdout)["warnings"] if w.startswith("it would fit with ")]
        self.assertEqual(len(told), 1, done.stderr)
        words, step = re.match(r"it would fit with (\S+) \(a step of ([^)]*)\)", told[0]).groups()
        followed = run("automap-infer", *on, "--layout", "dp=4,micro-batch-size=4," + words)
        self.assertEqual(followed.returncode, 0, followed.stderr)
        self.assertIn(step, followed.stdout)
        hopeless = (self.put("hopeless.csv", profile_csv(2, w_bytes=1e12)), *on[1:])
        done = run("automap-infer", *hopeless, "--layout", "dp=4,micro-batch-size=4")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("do not make this layout fit", done.stderr)

    def test_same_question_same_answer(self):
        path = self.small(c_ms=[1 + i % 5 for i in range(40)])
        plans = []
        for _ in range(2):
            plan = self.plan(path, "--cluster", "config-b", "--time-limit", "1h")
            self.assertFalse(plan["cut_by_time"])
            for item in [plan, *plan["alternatives"]]:
                item.pop("planning_ms")
            self.assertLessEqual(plan.pop("found_ms"), 3600e3)
            plan.pop("proven_ms")
            plans.append(plan)
        self.assertEqual(*plans)

    def test_input_forms_agree(self):
        text = profile_csv()
        expected = self.plan(self.put("p.csv", text), "--cluster", "config-a", "--time-limit", "1h")
        packed = self.put("p.csv.gz", gzip.compress(text.encode()))
        for arguments, stdin in (((packed,), None), (("-",), text), (("-",), gzip.compress(text.encode()))):
            plan = self.plan(*arguments, "--cluster", "config-a", "--time-limit", "1h", stdin=stdin)
            self.assertEqual((plan["cuts"], plan["device_cuts"]), (expected["cuts"], expected["device_cuts"]))

    def test_hlo_and_its_profile_give_the_same_plan(self):
        model = FIXTURES / "tiny_mlp.hlo"
        profile = self.folder / "p.h5"
        result = run("automap-profile", model, "--device", "v100-16gb", "-o", profile)
        self.assertEqual(result.returncode, 0, result.stderr)
        arguments = ("--cluster", "config-a", "--stages", 2, "--time-limit", "1h")
        direct, through = self.plan(model, *arguments), self.plan(profile, *arguments)
        self.assertEqual((direct["cuts"], direct["device_cuts"]), (through["cuts"], through["device_cuts"]))
        self.assertAlmostEqual(direct["step_ms"], through["step_ms"], places=9)
        self.assertEqual(direct["model"], "tiny_mlp")

    def test_report_for_people(self):
        result = run("automap-infer", FIXTURES / "bert48.hlo.gz", "--cluster", "config-c", "--batch", "256", "--schedule", "adaptive",
                     "--details")
        self.assertEqual(result.returncode, 0, result.stderr)
        for part in ("bert48 on config-c", "32 devices, 16 micro-batches of 16 samples per step", "Memory of each device", "encoder/layer/", "Step time", "Lower bound",
                     "Limited by", "Planned in", "found by", "data-parallel", "layers of encoder/layer per stage", "SplitPoint.BEGINNING", "of 14.4 GiB"):
            self.assertIn(part, result.stdout)
        counts = re.search(r"encoder/layer per stage: ([\d, ]+)", result.stdout).group(1)
        self.assertEqual(sum(map(int, counts.split(","))), 48)

    def test_output_file_is_the_document(self):
        path = self.folder / "plan.json"
        result = run("automap-infer", self.small(), "--cluster", "config-a", "-o", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("Takes", result.stdout)
        self.check(json.loads(path.read_text()))
        self.assertEqual(self.leftovers(), ["plan.json", "small.csv"])
        on_stdout = run("automap-infer", self.small(), "--cluster", "config-a", "-o", "-")
        self.check(json.loads(on_stdout.stdout))

    def test_plan_files_are_inspected(self):
        path = self.folder / "plan.json"
        run("automap-infer", self.small(), "--cluster", "config-a", "-o", path)
        result = run("automap-inspect", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("plan", result.stdout)

    def test_options_from_file_and_environment(self):
        config = self.put("run.ini", "cluster = config-a\nstages = 3\nmicro_batches = 2\nmicro_batch = 16\n")
        plan = self.plan(self.small(), "--config", config, env=environment(AUTOMAP_INFER_STAGES="4"))
        self.assertEqual((len(plan["stages"]), plan["micro_batches"], plan["cluster"]), (4, 2, "config-a"))

    def test_provenance(self):
        path = self.small()
        plan = self.plan(path, "--cluster", "config-a", "--stages", 2)
        self.assertEqual(plan["provenance"]["input_sha256"], hashlib.sha256(path.read_bytes()).hexdigest())
        self.assertEqual(plan["provenance"]["option_stages"], "2")


class Terminal(ProgramTest):
    def test_it_says_the_best_plan_so_far(self):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        command = [str(BIN / "automap-infer"), str(FIXTURES / "tiny_mlp.hlo"), "--cluster", "config-a", "--effort", "quick", "--json"]
        with open(self.folder / "plan.json", "wb") as out, subprocess.Popen(command, env=environment(), stdout=out, stderr=theirs) as process:
            os.close(theirs)
            said = read_terminal(ours)
        self.assertEqual(process.returncode, 0, said)
        lines = said.split("\r\x1b[K")
        told = [line for line in lines if line.startswith("planning") and "best so far" in line]
        self.assertRegex(told[0], r"^planning  \d\d:\d\d  best so far \S+ \w+ a step: ")
        self.assertLess(max(map(len, told)), 80)
        self.assertNotIn("best so far", lines[-1])  # the line is cleared
        plan = json.loads((self.folder / "plan.json").read_text())
        number, unit = re.search(r"so far (\S+) (\S+) a step", told[-1]).groups()
        last_ms = float(number) * {"µs": 1e-3, "ms": 1, "s": 1e3}[unit]
        self.assertAlmostEqual(last_ms, plan["simulated_step_ms"], delta=0.01 * plan["simulated_step_ms"])


class Interrupts(ProgramTest):
    def start(self, *arguments):
        # A search that would take minutes: many devices, every instruction a place to cut.
        path = self.put("long.csv", profile_csv(3000, c_ms=[1 + (i * 7919) % 13 for i in range(3000)]))
        process = subprocess.Popen([BIN / "automap-infer", path, "--cluster", "h100-8x8", "--grid", "all", "--planner", "exact",
                                    "--micro-batch", "64", "--micro-batches", "16", "--effort", "thorough", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=environment(), preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
        self.addCleanup(process.kill)
        return process

    def wait_for_search(self, process):
        """Until the program has used a second of processor time: reading is over, the search goes on."""
        self.use_processor(process, 10 if SANITIZED else 1)

    def test_first_signal_prints_the_best_so_far(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                plan_path = self.folder / "plan.json"
                process = self.start("--json", "-o", plan_path)
                self.wait_for_search(process)
                process.send_signal(number)
                out, err = process.communicate(timeout=TIMEOUT_S)
                self.assertEqual(process.returncode, 75, err)
                plan = json.loads(out)
                self.assertTrue(plan["cut_by_time"])
                self.assertEqual(json.loads(plan_path.read_text()), plan)
                self.assertIn("stopped by a signal", err)

    def test_second_signal_ends_at_once(self):
        process = self.start()
        self.wait_for_search(process)
        # Stopped, so that both signals are there before it can react to the first.
        process.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate(timeout=TIMEOUT_S)
        self.assertIn(process.returncode, (130, 143))
        self.assertEqual(out, "")
        self.assertEqual(self.leftovers(), ["long.csv"])

    def test_signal_while_reading_ends_at_once(self):
        process = subprocess.Popen([BIN / "automap-infer", "-", "--cluster", "config-a", "-o", self.folder / "plan.json"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        self.addCleanup(process.kill)
        # What cannot be written is refused before the input is read: it is about to wait for that.
        self.wait_until(self.leftovers, process)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 143)
        self.assertEqual(self.leftovers(), [])
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()


if __name__ == "__main__":
    unittest.main()
