"""automap-infer --minimize, --within, --reach and --price: how many devices to rent, and what a plan costs."""

import json
import signal
import subprocess
import unittest

from programs import BIN, FIXTURES, SANITIZED, SOURCE, TIMEOUT_S, ProgramTest, environment, profile_csv, run

try:
    import jsonschema
except ImportError:
    jsonschema = None

TINY = FIXTURES / "tiny_mlp.hlo"
SCHEMA = json.loads((SOURCE / "docs" / "formats" / "plan.schema.json").read_text())["oneOf"][0]
# What clocks say, what the call was, and what only a call that chooses says.
OWN = ("planning_ms", "found_ms", "proven_ms", "provenance", "alternatives", "frontier", "report", "bounds", "warnings", "to_type")


def without_clocks(plan):
    return {key: value for key, value in plan.items() if key not in OWN}


def servers(count, devices, device, **more):
    return {"count": count, "devices": devices, "intra_gbytes_per_s": 10, "inter_gbytes_per_s": 2, "device": device, **more}


def devices_of(plan):
    return sorted(number for group in plan["groups"] for number in group["devices"])


class Frontier(ProgramTest):
    def cluster(self, *groups):
        types = {"slow": {"memory_gib": 16, "relative_speed": 1}, "fast": {"memory_gib": 16, "relative_speed": 3}}
        return self.put("cluster.json", json.dumps({"schema": "automap.cluster/1", "name": "mine", "servers": groups, "devices": types}))

    def model(self):
        return self.put("small.csv", profile_csv(12, w_bytes=2e7, a_bytes=4e6))

    def plan(self, *arguments):
        result = run("automap-infer", *arguments, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        document = json.loads(result.stdout)
        if jsonschema:
            jsonschema.validate(document, SCHEMA)
        return document

    def test_the_chosen_point_is_the_least_and_its_plan_that_of_a_call_of_its_own(self):
        on = (self.model(), "--cluster", self.cluster(servers(3, 4, "slow", price_per_device_hour=2)), "--batch", "32", "--explore", "off")
        whole = self.plan(*on)
        self.assertNotIn("frontier", whole)
        self.assertAlmostEqual(whole["cost"]["per_step"], 12 * 2 * whole["simulated_step_ms"] / 3.6e6)
        for asked in (("--minimize", "time"), ("--minimize", "devices"), ("--minimize", "cost"), ("--minimize", "devices", "--within", "40%"),
                      ("--minimize", "cost", "--within", "20%")):
            with self.subTest(asked=asked):
                plan = self.plan(*on, *asked)
                points = plan["frontier"]["points"]
                self.assertEqual([p["devices"] for p in points], [1, 2, 4, 8, 12])
                chosen, = [p for p in points if p["chosen"]]
                self.assertEqual(chosen["simulated_step_ms"], plan["simulated_step_ms"])
                self.assertEqual(plan["cost"], chosen["cost"])
                for p in points:
                    self.assertAlmostEqual(p["cost"]["price_per_hour"], 2 * p["devices"])
                    self.assertAlmostEqual(p["cost"]["per_step"], 2 * p["devices"] * p["simulated_step_ms"] / 3.6e6)
                    self.assertAlmostEqual(p["cost"]["per_million_samples"], p["cost"]["per_step"] / 32 * 1e6, places=6)
                fastest = min(p["simulated_step_ms"] for p in points)
                self.assertEqual(points[-1]["simulated_step_ms"], whole["simulated_step_ms"])
                percent = float(asked[3][:-1]) if len(asked) > 2 else 1e9
                may = [p for p in points if p["simulated_step_ms"] <= fastest * (1 + percent / 100)]
                least = {"time": lambda p: p["simulated_step_ms"], "devices": lambda p: p["devices"],
                         "cost": lambda p: p["cost"]["per_step"]}[asked[1]]
                self.assertEqual(least(chosen), min(map(least, may)))
                # As --vary devices asks it.
                alone = run("automap-infer", *on, "--vary", f"devices={chosen['devices']}", "--json")
                row, = json.loads(alone.stdout)["rows"]
                self.assertEqual(without_clocks(row["plan"]), without_clocks(plan))

    def test_reach(self):
        on = (self.model(), "--cluster", self.cluster(servers(12, 1, "slow")), "--batch", "24", "--explore", "off")
        points = self.plan(*on, "--minimize", "devices")["frontier"]["points"]
        rates = {p["devices"]: p["samples_per_s"] for p in points}
        # Between 8 and 12 servers the numbers that the table skips are looked at where the answer lies there.
        self.assertEqual(sorted(rates), [1, 2, 3, 4, 5, 6, 7, 8, 12])
        asked = (rates[8] + rates[12]) / 2
        plan = self.plan(*on, "--reach", f"{asked}samples/s")
        self.assertEqual(plan["frontier"]["reach"], {"per_s": asked, "unit": "samples"})
        found = {p["devices"]: p["samples_per_s"] for p in plan["frontier"]["points"]}
        chosen, = [p["devices"] for p in plan["frontier"]["points"] if p["chosen"]]
        self.assertGreaterEqual(found[chosen], asked)
        self.assertIn(chosen - 1, found)
        self.assertLess(found[chosen - 1], asked)
        self.assertNotIn("cost", plan)
        failed = run("automap-infer", *on, "--reach", "1G")
        self.assert_fails(failed, 4, "no part of cluster 'mine' reaches", "the most is", "on 12 devices", "--reach ")
        # What the hint names is reached.
        self.plan(*on, "--reach", failed.stderr.split("--reach ")[1].split(" at most")[0])
        self.assert_fails(run("automap-infer", *on, "--reach", "5 tokens/s"), 2, "tokens", "not known", "samples")

    def test_what_is_no_question_about_a_part_is_a_row_and_about_the_whole_an_error(self):
        on = (self.model(), "--cluster", self.cluster(servers(4, 1, "slow")), "--batch", "32", "--minimize", "devices")
        points = self.plan(*on, "--stages", "3")["frontier"]["points"]
        self.assertEqual([p["found"] for p in points], [False, False, True, True])
        self.assertIn("3 stages on 2 devices", points[1]["why"])
        self.assert_fails(run("automap-infer", *on, "--stages", "5"), 2, "5 stages on 4 devices")

    def test_servers_of_several_kinds_keep_their_numbers(self):
        path = self.cluster(servers(2, 1, "slow", price_per_device_hour=1), servers(2, 2, "fast", price_per_device_hour=1.5))
        on = (self.model(), "--cluster", path, "--batch", "32")
        target = self.folder / "plan.json"
        plan = self.plan(*on, "--minimize", "cost", "-o", target)
        points = plan["frontier"]["points"]
        kinds = {p["servers"] for p in points}
        self.assertEqual(kinds, {"1 x 1 slow", "2 x 1 slow", "1 x 2 fast", "2 x 2 fast", "1 x 1 fast", "1 x 1 slow + 1 x 2 fast",
                                 "1 x 1 slow + 2 x 2 fast", "2 x 1 slow + 1 x 2 fast", "2 x 1 slow + 2 x 2 fast"})
        self.assertEqual(len(points), len(kinds))
        price = {"slow": 1, "fast": 1.5}
        for p in points:
            whole = sum(int(n) * int(d) * price[kind] for n, _, d, kind in (part.split() for part in p["servers"].split(" + ")))
            self.assertAlmostEqual(p["cost"]["price_per_hour"], whole)
        # A fast device is three times as fast and half as dear again: 3 is the first of them in the whole cluster.
        self.assertEqual(devices_of(plan), [3])
        self.assertEqual(json.loads(target.read_text())["groups"], plan["groups"])
        again = self.plan(self.model(), "--cluster", path, "--plan", target, "--batch", "32")
        self.assertAlmostEqual(again["simulated_step_ms"], plan["simulated_step_ms"])

    def test_servers_that_are_alike_are_looked_at_once(self):
        path = self.cluster(servers(1, 2, "slow"), servers(1, 2, "slow"))
        points = self.plan(self.model(), "--cluster", path, "--batch", "8", "--minimize", "time")["frontier"]["points"]
        self.assertEqual([p["servers"] for p in points], ["1 x 1 slow", "1 x 2 slow", "2 x 2 slow"])

    def test_text_fits_and_says_the_choice(self):
        page = self.folder / "page.html"
        result = run("automap-infer", TINY, "--cluster", "config-a", "--price", "v100-16gb=0.5", "--minimize", "cost", "--within", "50%", "--batch", "72", "--report", page)
        self.assertEqual(result.returncode, 0, result.stderr)
        head = result.stdout.split("To type")[0]
        self.assertLessEqual(max(map(len, head.splitlines())), 100)
        self.assertIn("Chosen ", head)
        self.assertIn("Costs ", head)
        self.assertIn(" an hour for all devices", head)
        self.assertEqual(head.count(" chosen "), 1)
        # Nobody who rents a part asks what divides by the whole cluster.
        self.assertNotIn("divides by all 16 devices", head)
        self.assertIn("a step costs", head)
        self.assertIn("How many devices", page.read_text())

    def test_parts_on_which_nothing_fits_say_so(self):
        model = self.put("big.csv", profile_csv(12, w_bytes=1e9))
        result = run("automap-infer", model, "--cluster", self.cluster(servers(4, 1, "slow")), "--batch", "16", "--minimize", "devices", "--zero", "0")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("no plan: ", result.stdout)
        plan = self.plan(model, "--cluster", self.cluster(servers(4, 1, "slow")), "--batch", "16", "--minimize", "devices", "--zero", "0")
        found = [p["found"] for p in plan["frontier"]["points"]]
        chosen = [p["chosen"] for p in plan["frontier"]["points"]]
        self.assertFalse(found[0])
        self.assertEqual(chosen.index(True), found.index(True))

    @unittest.skipIf(SANITIZED, "how far a search has come is told by its processor time")
    def test_a_signal_leaves_the_best_of_what_was_looked_at(self):
        command = [BIN / "automap-infer", FIXTURES / "bert48.hlo.gz", "--cluster", "config-c", "--minimize", "devices", "--within", "20%", "--json"]
        process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        # Past the model's profile, far from the last of eight parts.
        self.use_processor(process, 3)
        process.send_signal(signal.SIGTERM)
        plan = json.loads(process.communicate(timeout=TIMEOUT_S)[0])
        self.assertEqual(process.returncode, 75)
        self.assertTrue(plan["frontier"]["stopped"])
        self.assertEqual(sum(p["chosen"] for p in plan["frontier"]["points"]), 1)
        self.assertLess(len(plan["frontier"]["points"]), 7)

    def test_refusals(self):
        half = self.cluster(servers(1, 2, "slow", price_per_device_hour=1), servers(1, 2, "fast"))
        on = (self.model(), "--cluster", half)
        for arguments, parts in ((("--minimize", "cost"), ("no price of servers[1] (fast)", "--price")), (("--minimize", "devices"), ("servers[1] (fast)",)),
                                 (("--price", "slow=2,fast=x"), ("--price: found 'x'",)), (("--price", "-1"), ("--price: found '-1'",)), (("--price", "quick=1"), ("no device 'quick'",)),
                                 (("--price", "slow=1,slow=2"), ("twice",)), (("--price", "slow=1,2"), ("--price: found",)), (("--within", "10%"), ("without --minimize", "--minimize cost")),
                                 (("--minimize", "cost", "--within", "0.1"), ("in percent",)), (("--minimize", "cost", "--within", "%"), ("in percent",)), (("--minimize", "time", "--within", "10%"), ("change nothing",)),
                                 (("--minimize", "time", "--reach", "5"), ("change nothing",)), (("--reach", "fast"), ("--reach: found 'fast'", "250k")), (("--reach", "0"), ("above 0",)),
                                 (("--reach", "5 apples"), ("found '5 apples'",)), (("--minimize", "cost", "--vary", "batch=1,2"), ("--vary does not fit",)),
                                 (("--minimize", "cost", "--layout", "dp=2,pp=1"), ("--layout does not fit",))):
            with self.subTest(arguments=arguments):
                self.assert_fails(run("automap-infer", *on, *arguments), 2, *parts)
        none = (self.model(), "--cluster", "config-a", "--minimize", "cost")
        self.assert_fails(run("automap-infer", *none), 2, "no price of its devices", "--price 2.5")
        wrong = self.cluster(servers(1, 2, "slow", price_per_device_hour=0))
        self.assert_fails(run("automap-infer", self.model(), "--cluster", wrong), 2, "servers[0].price_per_device_hour: found 0")


if __name__ == "__main__":
    unittest.main()
