"""automap-train: runs, resumes, evaluates, compares; bad input; what it writes. Skipped when it was built without LibTorch."""

import contextlib
import csv
import json
import os
import shutil
import signal
import struct
import subprocess
import time
import unittest

from policies import policy as policy_file
from programs import BIN, SOURCE, TIMEOUT_S, ProgramTest, environment, profile_csv, run

PROGRAM = "automap-train"
SHIPPED = SOURCE / "models" / "pretrained" / "pipeline.policy"
# Seconds on a busy machine: few plays of few problems.
SMALL = ["--evaluate-small", "6", "--evaluate-middle", "0", "--evaluate-deep", "0", "--label-devices", "8",
         "--label-stages", "4", "--round-episodes", "32", "--batch-size", "16", "--hidden", "16", "--threads", "2",
         "--evaluate-every", "64"]


def small(*options):
    """`options` and what SMALL adds to them."""
    out = list(options)
    for name, value in zip(SMALL[::2], SMALL[1::2]):
        if name not in options:
            out += [name, value]
    return [str(option) for option in out]


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    """The records of an event file; raises when anything about them is wrong."""
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        assert struct.unpack_from("<I", data, at + 8)[0] == masked(data[at:at + 8]), "length checksum"
        record = data[at + 12:at + 12 + length]
        assert len(record) == length, "cut short"
        assert struct.unpack_from("<I", data, at + 12 + length)[0] == masked(record), "record checksum"
        yield record
        at += 16 + length


def fields(data):
    """(number, value) of a protocol buffer message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            value = data[at:at + size]
            at += size
        yield key >> 3, value


def scalars(path):
    """[(step, {tag: value})] of an event file."""
    out = []
    for i, record in enumerate(records(path.read_bytes())):
        event = dict(fields(record))
        if i == 0:
            assert event[3] == b"brain.Event:2"
            continue
        values = {}
        for number, value in fields(event[5]):
            assert number == 1
            entry = dict(fields(value))
            values[entry[1].decode()] = struct.unpack("<f", entry[2])[0]
        out.append((event.get(2, 0), values))
    return out


@unittest.skipUnless((BIN / PROGRAM).exists(), "automap-train was built without LibTorch")
class Train(ProgramTest):
    def out(self, name="run"):
        return self.folder / name

    def train(self, *options, name="run", **kwargs):
        return run(PROGRAM, "--out", self.out(name), *small(*options), **kwargs)

    def start(self, *options, name="run"):
        return subprocess.Popen([str(BIN / PROGRAM), "--out", str(self.out(name)), *small(*options)],
                                env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Runs(Train):
    def test_a_run_explains_itself(self):
        result = self.train("--episodes", "200", "--json", "--seed", "3")
        self.assertEqual(result.returncode, 0, result.stderr)
        document = json.loads(result.stdout)
        self.assertEqual(document["schema"], "automap.training/2")
        self.assertGreaterEqual(document["episodes"], 200)
        self.assertFalse(document["stopped"])
        files = sorted(p.name for p in self.out().iterdir())
        self.assertEqual(files, [".lock", "checkpoint", "config.ini", "curves.csv", "events.out.tfevents.automap", "heldout.json",
                                 "policy.bin", "report.md", "run.json"])
        facts = json.loads((self.out() / "run.json").read_text())
        self.assertEqual(facts["seed"], 3)
        self.assertIn("LibTorch", facts["torch"])
        report = (self.out() / "report.md").read_text()
        for part in ("Gaps on held-out problems", "environment steps/s", "rollouts beam 16", "policy.bin", "By family"):
            self.assertIn(part, report)
        self.assertIn("episodes = 200", (self.out() / "config.ini").read_text())

    def test_a_curve_by_default(self):
        """The start, and 24 evaluations behind it, however short the run is; one figure everywhere."""
        given = dict(zip(SMALL[::2], SMALL[1::2]))
        options = [text for name in given if name not in ("--evaluate-every", "--round-episodes") for text in (name, given[name])]
        result = run(PROGRAM, "--out", self.out(), *options, "--episodes", "192", "--plays-per-problem", "4", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        document = json.loads(result.stdout)
        with open(self.out() / "curves.csv") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 25)
        self.assertEqual((document["evaluations"], int(rows[0]["episodes"]), int(rows[-1]["episodes"])), (25, 0, 192))
        self.assertAlmostEqual(float(rows[0]["gap/score"]), document["start_score"], places=8)
        self.assertAlmostEqual(min(float(row["gap/score"]) for row in rows), document["score"], places=8)
        self.assertLessEqual(document["score"], document["start_score"])
        self.assertEqual(document["start_won"], document["best_episodes"] == 0)
        # The best of 25 on these very problems: no verdict against the start.
        self.assertEqual({d["planner"] for d in document["differences"]}, {"policy, greedy", "policy, beam 16", "policy, beam 16 + corridor"})
        self.assertEqual([(d["verdict"], d["low"]) for d in document["differences"] if d["to"] == "the start"],
                         [] if document["start_won"] else [(None, None)])
        self.assertEqual({q["planner"]: q["gap_mean"] for q in document["quality"]}["policy, beam 16 + corridor"], document["score"])
        # The schedules end with the run.
        self.assertEqual([float(rows[i]["train/progress"]) for i in (0, -1)], [0, 1])
        self.assertAlmostEqual(float(rows[-1]["train/epsilon"]), 0.05 ** 0.5, places=6)
        self.assertLess(float(rows[-1]["train/learning_rate"]), 1.01e-4)
        report = (self.out() / "report.md").read_text()
        self.assertRegex(report, r"25 evaluations of 6 problems took .*, their optima and baselines .*, together \d+(\.\d+)? % of "
                         "the run's time")

    def test_never_worse_than_its_start(self):
        """What ruins the weights leaves the policy that the run began with, byte for byte."""
        options = small("--init", SHIPPED, "--episodes", "96", "--deterministic", "--beam", "1", "--evaluate-small", "24",
                        "--learning-rate", "1", "--learning-rate-end", "1", "--ema", "0", "--clip-norm", "0", "--label-fraction", "0")
        at = options.index("--hidden")
        result = run(PROGRAM, "--out", self.out(), *options[:at], *options[at + 2:], "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        document = json.loads(result.stdout)
        with open(self.out() / "curves.csv") as file:
            scores = [float(row["gap/score"]) for row in csv.DictReader(file)]
        self.assertGreater(min(scores[1:]), scores[0])
        self.assertTrue(document["start_won"])
        self.assertEqual(document["score"], document["start_score"])
        self.assertEqual((self.out() / "policy.bin").read_bytes(), SHIPPED.read_bytes())
        self.assertIn("the start itself", (self.out() / "report.md").read_text())

    def test_curves_as_csv_and_for_tensorboard(self):
        self.assertEqual(self.train("--episodes", "200").returncode, 0)
        with open(self.out() / "curves.csv") as file:
            rows = list(csv.DictReader(file))
        events = scalars(self.out() / "events.out.tfevents.automap")
        self.assertGreater(len(rows), 2)
        self.assertEqual(len(events), len(rows))
        for row, (step, values) in zip(rows, events):
            self.assertEqual(int(row["episodes"]), step)
            for name, value in values.items():
                self.assertAlmostEqual(float(row[name]), value, delta=1e-5 * max(1, abs(value)))
        self.assertIn("small/greedy/mean", events[0][1])

    def test_tensorboard_reads_the_events(self):
        try:
            from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        except ImportError:
            self.skipTest("the Python package tensorboard is not installed")
        self.assertEqual(self.train("--episodes", "100").returncode, 0)
        accumulator = EventAccumulator(str(self.out()))
        accumulator.Reload()
        self.assertIn("gap/score", accumulator.Tags()["scalars"])

    def test_its_own_config_repeats_it(self):
        options = ["--episodes", "150", "--deterministic", "--seed", "5"]
        self.assertEqual(self.train(*options).returncode, 0)
        again = run(PROGRAM, "--config", self.out() / "config.ini", "--out", self.out("again"), "--threads", "1")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual((self.out() / "policy.bin").read_bytes(), (self.out("again") / "policy.bin").read_bytes())

    def test_presets(self):
        for preset, part in (("fast", "network = after-state"), ("nightly", "time = 1h"), ("faithful", "gamma = 0.6")):
            dumped = run(PROGRAM, "--preset", preset, "--dump-config")
            self.assertEqual(dumped.returncode, 0, dumped.stderr)
            self.assertIn(f"preset = {preset}", dumped.stdout)
            self.assertIn(part, dumped.stdout.replace("3600s", "1h").replace("60m", "1h"))
            config = self.put("c.ini", dumped.stdout)
            self.assertEqual(run(PROGRAM, "--config", config, "--dump-config").stdout.count("\n"),
                             dumped.stdout.count("\n"))

    def test_the_papers_recipe_runs(self):
        result = self.train("--preset", "faithful", "--episodes", "60", "--plays-per-problem", "5")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("greedy", result.stdout)

    def test_simulated_objective(self):
        result = self.train("--objective", "simulated", "--episodes", "60")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_other_switches_run(self):
        for options in (["--returns", "n-step", "--n-step", "2", "--target-update", "5", "--double", "on",
                         "--best-return", "off", "--prioritized", "on"],
                        ["--distributional", "c51", "--atoms", "21"], ["--distributional", "hl-gauss", "--atoms", "21"]):
            with self.subTest(options=options):
                result = self.train("--episodes", "60", *options, name=options[1])
                self.assertEqual(result.returncode, 0, result.stderr)

    def test_from_a_dataset(self):
        if not (BIN / "automap-datagen").exists():
            self.skipTest("automap-datagen is not built")
        data = self.folder / "data"
        made = run("automap-datagen", "--rows", "300", "--seed", "1", "-o", data)
        self.assertEqual(made.returncode, 0, made.stderr)
        result = self.train("--data", data, "--episodes", "100")
        self.assertEqual(result.returncode, 0, result.stderr)
        # One row in 16 is held out, and half of those judge afterwards; the report names where they come from.
        report = (self.out() / "report.md").read_text()
        self.assertRegex(report, r"\(dataset \S+, one row in 16 held out\)")
        self.assertRegex(report, r"Problems: `dataset \S+, rows held out of it`")
        self.assertNotIn("synth:", report.split("## ")[1])
        judged = run("automap-train", "--evaluate", "--data", data, "--json", self.out() / "policy.bin")
        self.assertEqual(judged.returncode, 0, judged.stderr)
        self.assertRegex(json.loads(judged.stdout)["data"], "rows held out of it to judge by$")
        few = self.folder / "few"
        self.assertEqual(run("automap-datagen", "--rows", "20", "-o", few).returncode, 0)
        self.assert_fails(self.train("--data", few, name="few"), 3, "20 rows", "--evaluate-data")
        shard = next(p for p in data.iterdir() if p.suffix in (".h5", ".hdf5"))
        shard.write_bytes(shard.read_bytes()[:1000])
        self.assert_fails(self.train("--data", data, "--episodes", "100", name="damaged"), 3, shard.name)

    def test_finetune(self):
        self.assertEqual(self.train("--episodes", "64").returncode, 0)
        profile = self.put("model.csv", profile_csv(60, c_ms=[1 + i % 7 for i in range(60)]))
        result = self.train("--finetune", "--data", profile, "--cluster", "config-a", "--init", self.out() / "policy.bin",
                            "--episodes", "64", "--label-fraction", "0.1", name="fine")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("before, greedy", result.stdout)
        # The best of many on these problems: no verdict against the start.
        self.assertIn("These problems have chosen the policy", result.stdout)
        self.assertNotRegex(result.stdout, r"the start +\d+ .*(better|worse|undecided)$")
        self.assertIn("before training", (self.out("fine") / "report.md").read_text())


class Resume(Train):
    def policy(self, name):
        return (self.out(name) / "policy.bin").read_bytes()

    def test_stopped_by_a_signal_and_resumed_bit_equal(self):
        options = ["--episodes", "600", "--deterministic", "--seed", "2"]
        begin = time.monotonic()
        self.assertEqual(self.train(*options, name="whole").returncode, 0)
        first_s = min(1.2, 0.3 * (time.monotonic() - begin))
        stops = 0
        for session in range(40):
            process = self.start(*options, "--resume", "--threads", str(1 + session % 3))
            if session == 0:
                # It has just begun, however fast the machine is now.
                self.wait_until((self.out() / "run.json").exists, process)
            else:
                # Longer each time, until also a busy machine gets as far as learning.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=first_s * 1.15 ** session)
            process.send_signal(signal.SIGTERM if session % 2 else signal.SIGINT)  # nothing where it has ended
            errors = process.communicate(timeout=TIMEOUT_S)[1].decode()
            if process.returncode == 0:
                break
            # A signal before the program listens ends it at once.
            self.assertIn(process.returncode, (75, -signal.SIGTERM, -signal.SIGINT, 130, 143), errors)
            stops += 1
        self.assertEqual(process.returncode, 0)
        self.assertGreater(stops, 0)
        self.assertEqual(self.policy("whole"), self.policy("run"))

    def test_killed_and_resumed_bit_equal(self):
        options = ["--episodes", "600", "--deterministic", "--seed", "2", "--checkpoint-every", "0.05"]
        self.assertEqual(self.train(*options, name="whole").returncode, 0)
        checkpoint = self.out() / "checkpoint"
        kills = 0
        for _ in range(3):
            process = self.start(*options, "--resume")
            before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
            self.wait_until(lambda: process.poll() is not None or
                          (checkpoint.exists() and checkpoint.stat().st_mtime_ns != before), process) \
                if process.poll() is None else None
            if process.poll() is None:
                process.kill()
                kills += 1
            process.communicate()
        # --resume alone takes the options of the run.
        result = run(PROGRAM, "--out", self.out(), "--resume")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreater(kills, 0)
        self.assertEqual(self.policy("whole"), self.policy("run"))
        self.assertEqual([p.name for p in self.out().iterdir() if p.name.endswith(".tmp")], [])

    def test_a_finished_run_goes_on_with_more_episodes(self):
        self.assertEqual(self.train("--episodes", "64").returncode, 0)
        result = run(PROGRAM, "--out", self.out(), "--resume", "--episodes", "200", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreaterEqual(json.loads(result.stdout)["episodes"], 200)

    def test_a_checkpoint_of_another_run_or_damaged(self):
        self.assertEqual(self.train("--episodes", "40").returncode, 0)
        again = self.train("--episodes", "40")
        self.assert_fails(again, 2, "already holds a run", "--resume")
        other = run(PROGRAM, "--out", self.out(), "--resume", "--batch-size", "32", "--seed", "4")
        self.assert_fails(other, 2, "--batch-size was 16 and is now 32", "--seed was 1 and is now 4", "checkpoint")
        checkpoint = self.out() / "checkpoint"
        good = checkpoint.read_bytes()
        checkpoint.write_bytes(good[:-100])
        self.assert_fails(run(PROGRAM, "--out", self.out(), "--resume"), 3, "checkpoint", "checksum")
        checkpoint.write_bytes(good[:5000] + bytes([good[5000] ^ 1]) + good[5001:])
        self.assert_fails(run(PROGRAM, "--out", self.out(), "--resume"), 3, "checkpoint", "checksum")
        checkpoint.write_bytes(b"")
        self.assert_fails(run(PROGRAM, "--out", self.out(), "--resume"), 3, "not a checkpoint")


class Policies(Train):
    def test_evaluate_and_compare(self):
        self.assertEqual(self.train("--episodes", "64").returncode, 0)
        policy = self.out() / "policy.bin"
        table = run(PROGRAM, "--evaluate", policy, "--evaluate-small", "5", "--evaluate-middle", "0", "--evaluate-deep", "0")
        self.assertEqual(table.returncode, 0, table.stderr)
        self.assertIn("policy, greedy", table.stdout)
        same = run(PROGRAM, "--compare", policy, policy, "--evaluate-small", "40", "--evaluate-middle", "0",
                   "--evaluate-deep", "0", "--standard-error", "0.03", "--json")
        self.assertEqual(same.returncode, 0, same.stderr)
        document = json.loads(same.stdout)
        self.assertEqual((document["accepted"], document["verdict"]), (False, "undecided"))
        self.assertTrue(document["same_policy"])
        self.assertTrue(document["all_alike"])
        self.assertEqual((document["looks"], document["ended_by"]), (1, "error_reached"))
        self.assertEqual(document["first_lost"], document["second_lost"])
        self.assertEqual([d["mean"] for d in document["differences"]], [0, 0, 0])
        # What 40 problems that are alike leave open: 3 in 40 others, at most; of the search that is judged over all looks.
        self.assertEqual([(d["low"], d["high"]) for d in document["differences"]],
                         [(-0.075, 0.075)] * 2 + [(document["lower_bound"], document["upper_bound"])])
        self.assertAlmostEqual(document["upper_bound"], 3.4 / 41)
        self.assertAlmostEqual(document["lower_bound"], -3.4 / 41)
        # One policy alone: against the same search without a network.
        alone = run(PROGRAM, "--compare", policy, "--evaluate-small", "5", "--evaluate-middle", "0", "--evaluate-deep", "0",
                    "--standard-error", "0.001", "--json")
        self.assertEqual(alone.returncode, 0, alone.stderr)
        document = json.loads(alone.stdout)
        # Each look doubles the problems, none is asked twice.
        self.assertEqual(document["problems"], 5 * 2 ** (document["looks"] - 1))
        self.assertEqual([d["planner"] for d in document["differences"]], ["greedy", "beam 16", "beam 16 + corridor"])
        for row in document["differences"]:
            self.assertAlmostEqual(row["mean"], row["first_mean"] - row["second_mean"])
        self.assertEqual(document["difference"], document["differences"][-1]["mean"])
        self.assertIn(document["ended_by"], ("accepted", "refused", "error_reached", "looks"))
        # How good: beside the same searches without a network, and with one that has learned nothing.
        document = json.loads(run(PROGRAM, "--evaluate", policy, "--evaluate-small", "5", "--evaluate-middle", "0", "--evaluate-deep",
                                  "0", "--json").stdout)
        quality = {q["planner"]: q for q in document["quality"]}
        for name in ("policy, beam 16 + corridor", "rollouts beam 16 + corridor", "random weights, beam 16 + corridor"):
            self.assertIn(name, quality)
        self.assertEqual(document["policies"][0]["mean_gap"], quality["policy, beam 16 + corridor"]["gap_mean"])
        # And how much better, on the same problems; five tell nothing.
        self.assertEqual([(d["planner"], d["to"]) for d in document["differences"]],
                         [("policy, greedy", "no network"), ("policy, beam 16", "no network"),
                          ("policy, beam 16 + corridor", "no network"), ("policy, beam 16 + corridor", "random weights")])
        for d, other in zip(document["differences"], ("rollouts", "rollouts beam 16", "rollouts beam 16 + corridor",
                                                      "random weights, beam 16 + corridor")):
            self.assertEqual((d["problems"], d["verdict"]), (5, "undecided"))
            self.assertLessEqual(d["low"], d["mean"])
            self.assertAlmostEqual(d["mean"], quality[d["planner"]]["gap_mean"] - quality[other]["gap_mean"])
        self.assertRegex(table.stdout, r"(?m)^policy, beam 16 \+ corridor +random weights +5 .* undecided$")

    MANY = ["--compare", SHIPPED, SHIPPED, "--evaluate-small", "100000", "--evaluate-middle", "0", "--evaluate-deep", "0", "--json",
            "--threads", "1", "--standard-error", "1e-6"]

    def test_a_limit_of_time(self):
        """A comparison that ends early says what it has."""
        result = run(PROGRAM, *self.MANY, "--time-limit", "1ms")
        self.assertEqual(result.returncode, 0, result.stderr)
        document = json.loads(result.stdout)
        self.assertEqual((document["problems"], document["ended_by"], document["verdict"]), (16, "time", "undecided"))
        self.assertIn("16 problems could be judged, at least 30 are needed", result.stderr)

    def test_a_signal(self):
        """Likewise: one policy twice is never settled, and the signal comes when problems have been judged."""
        process = subprocess.Popen([str(BIN / PROGRAM), *map(str, self.MANY), "--verbose"], env=environment(), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        said = process.stderr.readline()
        while said and "problems judged" not in said:
            said = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        text, errors = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 75, said + errors)
        document = json.loads(text)
        self.assertEqual((document["ended_by"], document["verdict"]), ("stopped", "undecided"))
        self.assertGreaterEqual(document["problems"], 16)

    def test_compare_with_few_problems(self):
        """Nothing is accepted by a handful, whatever the margin, and data that run out are no error."""
        self.assertEqual(self.train("--episodes", "64").returncode, 0)
        policy = self.out() / "policy.bin"
        few, some = self.folder / "few", self.folder / "some"
        self.assertEqual(run("automap-datagen", "--rows", "40", "--config", "small", "-o", few).returncode, 0)
        self.assertEqual(run("automap-datagen", "--rows", "300", "--config", "small", "-o", some).returncode, 0)
        sets = ["--evaluate-small", "16", "--evaluate-middle", "0", "--evaluate-deep", "0"]
        for data, margin, ended_by, warning in (
            (few, "1", "too_few_problems", "problems could be judged, at least 30 are needed"),
            (some, "0", None, "there are no more problems"),
            (some, "1", "accepted", None),
        ):
            with self.subTest(data=data.name, margin=margin):
                options = ["--compare", policy, "--evaluate-data", data, "--margin", margin, "--standard-error", "1e-6", *sets]
                result = run(PROGRAM, *options, "--json")
                self.assertEqual(result.returncode, 0, result.stderr)
                document = json.loads(result.stdout)
                # Policies may be clearly different, or the same, on so few problems.
                expected = (ended_by,) if ended_by else ("no_more_problems", "refused")
                self.assertIn(document["ended_by"], expected)
                self.assertEqual(document["accepted"], document["ended_by"] == "accepted")
                text = run(PROGRAM, *options)
                if document["ended_by"] in ("too_few_problems", "no_more_problems"):
                    self.assertIn("warning: ", result.stderr)
                    self.assertIn(warning, result.stderr)
                    self.assertIn(warning, text.stdout)
                if ended_by == "too_few_problems":
                    self.assertEqual(document["verdict"], "undecided")
                self.assertEqual("undecided: " in text.stdout, document["verdict"] == "undecided", text.stdout)
        # Half of the rows choose the best policy of a run, the others judge.
        self.assertIn(", every other row", json.loads(run(PROGRAM, "--evaluate", policy, "--evaluate-data", some, "--json",
                                                          *sets).stdout)["data"])
        # Nothing to judge by at all is an error.
        none = self.folder / "none"
        self.assertEqual(run("automap-datagen", "--rows", "1", "--config", "small", "-o", none).returncode, 0)
        self.assert_fails(run(PROGRAM, "--compare", policy, "--evaluate-data", none, *sets), 3, "1 rows")

    def test_policies_that_are_none(self):
        garbage = self.put("garbage.bin", b"no policy at all" * 10)
        small = ["--evaluate-small", "3", "--evaluate-middle", "0", "--evaluate-deep", "0"]
        self.assert_fails(run(PROGRAM, "--evaluate", garbage, *small), 3, "garbage.bin")
        self.assert_fails(run(PROGRAM, "--compare", garbage, garbage, *small), 3, "garbage.bin")
        self.assert_fails(self.train("--episodes", "10", "--init", garbage), 3, "garbage.bin")
        self.assert_fails(self.train("--episodes", "10", "--init", self.folder / "missing"), 3, "missing")
        self.assertFalse(self.out().exists())
        self.assertEqual(self.train("--episodes", "40", name="a").returncode, 0)
        other = self.train("--episodes", "40", "--hidden", "8", "--init", self.out("a") / "policy.bin", name="b")
        self.assertEqual(other.returncode, 3, other.stderr)
        self.assertFalse(self.out("b").exists())
        fresh = self.train("--episodes", "40", "--hidden", "8", "--init", self.out("a") / "policy.bin", "--init-or-fresh",
                           name="b")
        self.assertEqual(fresh.returncode, 0, fresh.stderr)
        self.assertIn("starting with fresh weights", fresh.stderr)
        self.assertNotIn("Started from", (self.out("b") / "report.md").read_text())

    def test_init_brings_its_hidden_layers(self):
        self.assertEqual(self.train("--episodes", "40", "--hidden", "12,6", name="a").returncode, 0)
        options = small("--episodes", "40", "--init", self.out("a") / "policy.bin", "--init-or-fresh")
        at = options.index("--hidden")
        result = run(PROGRAM, "--out", self.out("b"), *options[:at], *options[at + 2:])
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("Started from", (self.out("b") / "report.md").read_text())
        self.assertIn("\nhidden = 12,6\n", (self.out("b") / "config.ini").read_text())
        described = json.loads(run("automap-inspect", self.out("b") / "policy.bin", "--json").stdout)
        self.assertEqual(described["hidden"], [12, 6])
        # And it goes on as what it is.
        self.assertEqual(run(PROGRAM, "--out", self.out("b"), "--resume", "--episodes", "80").returncode, 0)


class Library(Train):
    """What needs LibTorch is in a library that a training opens."""

    def test_no_libtorch_at_the_start(self):
        libraries = subprocess.run(["ldd", str(BIN / PROGRAM)], capture_output=True, text=True, check=True).stdout
        self.assertIn("libhdf5", libraries)
        for word in ("torch", "libc10", "blas", "gomp"):
            self.assertNotIn(word, libraries)

    def test_without_the_library(self):
        alone = self.folder / PROGRAM
        shutil.copy2(BIN / PROGRAM, alone)
        few = ["--evaluate-small", "2", "--evaluate-middle", "0", "--evaluate-deep", "0"]
        self.assertEqual(run(alone, "--help").stdout, run(PROGRAM, "--help").stdout)
        for options in (["--evaluate", SHIPPED], ["--compare", SHIPPED, SHIPPED]):
            result = run(alone, *options, *few)
            self.assertEqual(result.returncode, 0, result.stderr)
        ranks = environment(RANK="1", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
        for env in (environment(), ranks):
            self.assert_fails(run(alone, "--out", self.out(), *SMALL, env=env), 2, "training needs libautomap_learned.so", "LibTorch",
                              str(self.folder))
        self.put("libautomap_learned.so", "no library")
        for env in (environment(), ranks):
            self.assert_fails(run(alone, "--out", self.out(), *SMALL, env=env), 2, "libautomap_learned.so: cannot be used")
        self.assertFalse(self.out().exists())


class BadInput(Train):
    def test_wrong_flags(self):
        for options, parts in (
            ([], ["missing --out"]),
            (["--out", "x", "policy.bin"], ["unexpected argument 'policy.bin'"]),
            (["--out", "x", "--preset", "quick"], ["--preset", "fast"]),
            (["--out", "x", "--hidden", "64,x"], ["--hidden", "64,64"]),
            (["--out", "x", "--learning-rte", "1"], ["--learning-rate"]),
            (["--out", "x", "--dueling", "on"], ["dueling"]),
            (["--out", "x", "--double", "on"], ["double"]),
            (["--out", "x", "--finetune"], ["--cluster"]),
            (["--compare", "a", "b", "c"], ["--compare needs two policies"]),
            (["--evaluate"], ["--evaluate needs"]),
            (["--out", "x", "--time", "0"], ["--time"]),
            (["--out", "x", "--threads", "-1"], ["--threads"]),
        ):
            with self.subTest(options=options):
                self.assert_fails(run(PROGRAM, *options, cwd=self.folder), 2, *parts)
                self.assertEqual(self.leftovers(), [])

    def test_a_replay_that_takes_much_memory(self):
        common = ["--episodes", "10", "--returns", "n-step", "--best-return", "off"]
        result = self.train(*common)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"--replay-size 100000 .* come to about 4\.\d+ G")
        result = self.train(*common, "--replay-size", "1000", name="small")
        self.assertNotIn("--replay-size", result.stderr)

    def test_missing_data(self):
        self.assert_fails(self.train("--data", self.folder / "nothing"), 3, "nothing")
        result = self.train("--data", "synth:" + str(self.folder / "nothing.json"))
        self.assertIn(result.returncode, (2, 3))
        self.assertIn("nothing.json", result.stderr)

    def test_a_thousand_threads(self):
        result = self.train("--episodes", "40", "--threads", "1000")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("--threads 1000", result.stderr)

    @unittest.skipIf(os.geteuid() == 0, "root may write everywhere")
    def test_a_folder_that_cannot_be_written(self):
        locked = self.folder / "locked"
        locked.mkdir(mode=0o500)
        self.assert_fails(run(PROGRAM, "--out", locked / "run", *SMALL), 3, "locked")

    def test_out_is_a_file(self):
        self.put("run", "x")
        self.assert_fails(self.train("--episodes", "10"), 3, "run")

    def test_disk_full(self):
        """A file size limit stands for a full disk: the run ends with an error, and resumes when there is room."""
        self.assertEqual(self.train("--episodes", "64", "--deterministic").returncode, 0)
        expected = self.folder / "expected"
        shutil.copytree(self.out(), expected)
        command = f"trap '' XFSZ; ulimit -f 8; exec {BIN / PROGRAM} --out {self.out()} --resume --episodes 128"
        result = subprocess.run(["bash", "-c", command], capture_output=True, env=environment(), timeout=TIMEOUT_S)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn(b"checkpoint", result.stderr)
        # The checkpoint is still the old one.
        self.assertEqual((self.out() / "checkpoint").read_bytes(), (expected / "checkpoint").read_bytes())
        after = run(PROGRAM, "--out", self.out(), "--resume", "--episodes", "128")
        self.assertEqual(after.returncode, 0, after.stderr)


if __name__ == "__main__":
    unittest.main()
