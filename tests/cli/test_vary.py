"""automap-infer --vary, --compare-clusters, --explain and reports of any width; automap-inspect --graph."""

import csv
import json
import os
import pty
import re
import signal
import subprocess
import unittest
import xml.etree.ElementTree as ElementTree

from programs import BIN, FIXTURES, TIMEOUT_S, ProgramTest, environment, profile_csv, read_terminal, run

SVG = "{http://www.w3.org/2000/svg}"
TINY = FIXTURES / "tiny_mlp.hlo"
# What a clock says of a plan, and which call it was made by.
OWN = ("planning_ms", "found_ms", "proven_ms", "provenance", "alternatives")


def without_clocks(plan):
    return {key: value for key, value in plan.items() if key not in OWN}


class Vary(ProgramTest):
    def infer(self, *arguments, code=0, **kwargs):
        result = run("automap-infer", *arguments, **kwargs)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def rows(self, *arguments, code=0):
        document = json.loads(self.infer(*arguments, "--json", code=code).stdout)
        self.assertEqual(document["schema"], "automap.vary/1")
        return document["rows"]

    def alone(self, *arguments):
        return without_clocks(json.loads(self.infer(*arguments, "--json").stdout))

    def test_each_plan_is_that_of_a_call_of_its_own(self):
        common = (TINY, "--effort", "quick")
        on = (*common, "--cluster", "config-a")
        for name, values in (("batch", "32,64"), ("micro-batch", "16..32"), ("micro-batches", "2,4")):
            fixed = ("--batch", "64") if name != "batch" else ()
            for row in self.rows(*on, *fixed, "--vary", f"{name}={values}"):
                with self.subTest(name=name, value=row["value"]):
                    self.assertEqual(without_clocks(row["plan"]), self.alone(*on, *fixed, f"--{name}", row["value"]))
        for row in self.rows(*common, "--compare-clusters", "config-a,config-b"):
            self.assertLess({"Plan", "Takes", "Why", "Proven"}, {one["label"] for one in row["plan"]["report"]})
            self.assertEqual(without_clocks(row["plan"]), self.alone(*common, "--cluster", row["value"]))

    def test_lengths_of_a_described_model(self):
        table = {"schema": "automap.layers/1", "name": "mine", "hidden": 64, "vocabulary": 128, "sequence": 32, "norm": "rms",
                 "layers": [{"repeat": 2, "blocks": [{"block": "mlp", "hidden": 128}]}]}
        on = (self.put("mine.json", json.dumps(table)), "--cluster", "h100-1x2", "--batch", "8", "--effort", "quick")
        for row in self.rows(*on, "--vary", "sequence=16,32"):
            self.assertEqual(without_clocks(row["plan"]), self.alone(*on, "--sequence", row["value"]))
        chart = self.folder / "c.svg"
        said = self.infer(*on, "--vary", "sequence=16,32", "--chart", chart).stdout
        self.assertIn("tokens/s", said)
        self.assertIn("the most tokens in a second", said)
        self.assertIn("positions of a sample", chart.read_text())
        self.assert_fails(run("automap-infer", TINY, "--cluster", "h100-1x2", "--vary", "sequence=16,32"), 2, "--sequence")
        self.assert_fails(run("automap-infer", "-", "--cluster", "h100-1x2", "--vary", "sequence=16,32", stdin=TINY.read_bytes()), 2, "as a file")

    def test_figures_are_those_of_a_cluster_file(self):
        cluster = {"schema": "automap.cluster/1", "name": "two", "servers": [{"count": 2, "devices": 2, "intra_gbytes_per_s": 10,
                   "inter_gbytes_per_s": 2, "device": "mine"}], "intra_latency_us": 5, "inter_latency_us": 20,
                   "devices": {"mine": {"memory_gib": 16, "relative_speed": 1}}}
        model = self.put("small.csv", profile_csv(12, w_bytes=4e8))
        path = self.put("two.json", json.dumps(cluster))

        def changed(**to):
            other = json.loads(json.dumps(cluster))
            for key, value in to.items():
                (other["devices"]["mine"] if key == "memory_gib" else other["servers"][0])[key] = value
            return self.put("changed.json", json.dumps(other))

        on = (model, "--cluster", path, "--effort", "quick", "--micro-batch", "8", "--micro-batches", "4")
        for name, value, to in (("memory_gib", "24", {"memory_gib": 24}), ("inter_gbytes_per_s", "0.5", {"inter_gbytes_per_s": 0.5}),
                                ("devices", "2", {"count": 1}), ("devices", "6", {"count": 3})):
            with self.subTest(name=name, value=value):
                row, = self.rows(*on, "--vary", f"{name}={value}")
                own = self.alone(model, "--cluster", changed(**to), *on[3:])
                self.assertEqual(without_clocks(row["plan"]), own)

    def test_what_has_no_plan_is_a_row_that_says_why(self):
        on = (TINY, "--cluster", "config-a", "--effort", "quick", "--micro-batch", "32")
        chart, table = self.folder / "c.svg", self.folder / "t.csv"
        result = self.infer(*on, "--vary", "batch=64,65", "--csv", table, "--chart", chart)
        self.assertLessEqual(max(map(len, result.stdout.splitlines())), 100)
        self.assertIn("no plan: ", result.stdout)
        rows = list(csv.DictReader(table.open()))
        self.assertEqual([row["batch"] for row in rows], ["64", "65"])
        self.assertGreater(float(rows[0]["step_ms"]), 0)
        self.assertIn("65", rows[1]["why_none"])
        picture = ElementTree.parse(chart).getroot()
        words = " ".join(picture.itertext())
        self.assertIn("samples of a step (batch)", words)
        self.assertIn("65: no plan: ", words)
        self.assertEqual(len(list(picture.iter(f"{SVG}circle"))), 2)  # a step and samples in a second
        self.assertNotIn("nan", chart.read_text())
        rows = self.rows(*on, "--vary", "batch=65", code=4)
        self.assertFalse(rows[0]["found"])

    def test_refusals(self):
        on = (TINY, "--cluster", "config-a")
        for arguments, parts in ((("--vary", "bach=1,2"), ("did you mean 'batch'?", "devices")), (("--vary", "batch"), ("found ''",)),
                                 (("--vary", "cluster=a,b"), ("--compare-clusters",)), (("--vary", "batch=4,8", "--batch", "4"), ("leave --batch out",)),
                                 (("--vary", "batch=1,x"), ("found 'x'", "whole number")), (("--vary", "batch=8..2"), ("ends below",)),
                                 (("--vary", "batch=1,1"), ("twice",)), (("--vary", "batch=4", "--batch", "4"), ("exclude",)),
                                 (("--vary", "batch=4", "--details"), ("drop --details",)), (("--vary", "batch=4", "--report", "x.html"), ("drop --report",)), (("--chart", "x.svg"), ("--vary",)),
                                 (("--compare-clusters", "config-b"), ("exclude",)), (("--explain", "bound"), ("did you mean 'bounds'?", "memory"))):
            with self.subTest(arguments=arguments):
                self.assert_fails(run("automap-infer", *on, *arguments), 2, *parts)
        self.assertIn("change nothing", run("automap-infer", *on, "--explain", "memory", "--json").stderr)
        for other in ("--details", "-o"):
            asked = ("automap-infer", *on, "--explain", "memory", other, *(("-",) if other == "-o" else ()))
            self.assert_fails(run(*asked), 2, "--explain", "drop one of them")
        self.assert_fails(run("automap-infer", TINY), 2, "missing --cluster")
        # What stands in a file or the environment would be the value of every row.
        self.assert_fails(run("automap-infer", *on, "--vary", "batch=16,32", env=environment(AUTOMAP_INFER_BATCH="64")), 2,
                          "--batch of AUTOMAP_INFER_BATCH exclude")
        self.assert_fails(run("automap-infer", "-", "--cluster", "config-a", "--vary", "devices=2,4", stdin=TINY.read_bytes()), 2,
                          "standard input is read once")
        self.assert_fails(run("automap-infer", *on, "--vary", "batch=16,16.0"), 2, "found '16.0'")
        self.assertIn("give --csv a file", run("automap-infer", *on, "--vary", "batch=16", "--csv", "-", "--json").stdout)
        # Where no value can be asked so, the call is wrong.
        forward = FIXTURES / "vit_forward.hlo.gz"
        self.assert_fails(run("automap-infer", forward, "--cluster", "config-a", "--vary", "batch=64,128", "--recompute", "layer"), 2,
                          "nothing to recompute")
        self.assert_fails(run("automap-infer", TINY, "--compare-clusters", "config-a,nowhere"), 2, "nowhere")

    def test_first_signal_prints_the_values_so_far(self):
        path = self.put("long.csv", profile_csv(2000, c_ms=[1 + (i * 7919) % 13 for i in range(2000)]))
        chart = self.folder / "c.svg"
        process = subprocess.Popen([BIN / "automap-infer", path, "--cluster", "h100-8x8", "--grid", "all", "--planner", "exact",
                                    "--micro-batch", "64", "--effort", "thorough", "--vary", "micro-batches=70000,16", "--json", "--chart", chart],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        self.addCleanup(process.kill)
        self.use_processor(process, 2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 75, err)
        document = json.loads(out)
        self.assertEqual(document["asked"], 2)
        # The first has no plan, at once; the second was being searched.
        self.assertEqual([row["value"] for row in document["rows"]], ["70000"])
        self.assertTrue(chart.exists())


class Explain(ProgramTest):
    on = (TINY, "--cluster", "config-a", "--effort", "quick")

    def words(self):
        """Those that the help names."""
        text = run("automap-infer", "--help").stdout
        words = text[text.index("--explain"):].split("commas between:")[1].split("-o,")[0]
        words = [word.strip(" ,\n") for word in words.split(",")]
        self.assertIn("bounds", words)
        return words

    def check_on_a_terminal(self, word):
        result = run("automap-infer", *self.on, "--explain", word, env=environment(COLUMNS="100"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreater(len(result.stdout), 60)
        self.assertNotIn("nan", result.stdout)
        self.assertLessEqual(max(map(len, result.stdout.splitlines())), 100)

    def test_every_word_of_the_help_is_explained(self):
        for word in self.words():
            with self.subTest(word=word):
                self.check_on_a_terminal(word)

    def test_all_words_in_one_call(self):
        words, on = self.words(), self.on
        self.check_on_a_terminal(",".join(words))
        # A pipe, for which no column is left out.
        result = run("automap-infer", *on, "--explain", ",".join(words))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreater(len(result.stdout), 60 * len(words))
        self.assertNotIn("nan", result.stdout)
        self.assertNotIn("there is no room for", result.stdout)
        both = run("automap-infer", *on, "--explain", "memory,batch").stdout
        self.assertLess(both.index("Memory\n"), both.index("Batch\n"))

    def test_reports_fit_the_terminal(self):
        on = (FIXTURES / "gpt2.hlo.gz", "--cluster", "config-a", "--effort", "quick", "--stages", "4", "--details")
        for columns in (40, 80, 100):
            text = run("automap-infer", *on, env=environment(COLUMNS=str(columns))).stdout
            # What is to be copied is not broken.
            report = text.split("\nTo type for")[0].split("    split_spec = {")[0]
            self.assertLessEqual(max(map(len, report.splitlines())), columns)
        self.assertIn("there is no room for", text)


class Colours(ProgramTest):
    def seen(self, *arguments, **env):
        """Standard output and standard error of a terminal of 100 columns."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen([BIN / "automap-infer", *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
                                   env=environment(COLUMNS="100", TERM="xterm", **env))
        os.close(theirs)
        text = read_terminal(ours)
        process.wait(TIMEOUT_S)
        return text.replace("\r\n", "\n")

    def test_terminals_alone_have_colours(self):
        on = (TINY, "--cluster", "config-a", "--effort", "quick", "--explore", "off", "--memory", "off", "--attention", "as-written")
        plain = run("automap-infer", *on)
        self.assertNotIn("\x1b", plain.stdout + plain.stderr)
        text = self.seen(*on)
        self.assertIn("\x1b[1mPlan\x1b[0m    Train", text)
        self.assertNotRegex(self.seen(*on, NO_COLOR="1"), "\x1b\\[[0-9;]*m")  # a slow machine shows and erases progress, too
        without = re.sub("\x1b\\[[0-9]*[mK]", "", text)
        self.assertIn(plain.stdout, without)
        self.assertTrue(self.seen(TINY, "--cluster", "nowhere").startswith("\x1b[31merror:\x1b[0m "))


class FiveQuestions(ProgramTest):
    def test_ten_fixtures(self):
        """What do I type, how long, does it fit, why not FSDP (of FSDP: why no pipeline), how sure: in fifteen lines of a hundred columns."""
        for name, cluster, batch, *options in (
                ("gpt2", "a100-2x8", 256), ("gpt2", "config-c", 256, "--for", "megatron"), ("llama_8b", "h100-4x8", 500, "--for", "megatron"),
                ("llama_8b", "a100-2x8", 256), ("transformer_scan", "h100-1x8", 64), ("mamba", "h100-1x8", 64),
                ("resnet50", "h100-1x8", 256), ("vgg19", "config-b", 256), ("bert48", "config-b", 64, "--for", "torchtitan"),
                ("t5_6_6", "h100-2x8", 64, "--for", "deepspeed")):
            with self.subTest(name=name, cluster=cluster, options=options):
                result = run("automap-infer", FIXTURES / f"{name}.hlo.gz", "--cluster", cluster, "--batch", batch, "--effort", "quick", *options)
                self.assertEqual(result.returncode, 0, result.stderr)
                # What is copied is a line, however long.
                lines = [line for line in result.stdout.split("\n") if line and not line.startswith("  ")]
                self.assertLessEqual(len(result.stdout.rstrip("\n").split("\n")), 15, result.stdout)
                self.assertLessEqual(max(map(len, lines)), 100, result.stdout)
                report = " ".join(result.stdout.split())
                self.assertRegex(report, r"Takes [0-9.]+ (ms|s|min|us) a step \(")  # how sure of the time
                self.assertRegex(report, r" of [0-9.]+ [GM]iB on ")
                self.assertRegex(report, r"Why not (FSDP|a pipeline)")
                self.assertRegex(report, r"Proven (no plan|nothing)")
                self.assertRegex(result.stdout, r"(?m)^To type ( *nothing: .* cannot run |for \w+|.*--for )")
                if batch == 500:
                    self.assertIn("--batch 512 divides by all 32 devices", report)


class Graph(ProgramTest):
    def picture(self, path, *arguments):
        out = self.folder / "graph.svg"
        result = run("automap-inspect", path, "--graph", out, *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("parameters", result.stdout)
        return ElementTree.parse(out).getroot()

    @staticmethod
    def titles(picture):
        return [title.text for title in picture.iter(f"{SVG}title")]

    def test_layers_tensors_and_stages(self):
        model, plan = FIXTURES / "transformer_scan.hlo.gz", self.folder / "plan.json"
        result = run("automap-infer", model, "--cluster", "config-a", "--effort", "quick", "--stages", "2", "--explore", "off", "-o", plan)
        self.assertEqual(result.returncode, 0, result.stderr)
        titles = self.titles(self.picture(model, "--plan", plan))
        self.assertTrue(any("a loop of 24 turns" in title for title in titles), titles)
        self.assertTrue(any(title.startswith("stage 2, device") for title in titles), titles)
        self.assertTrue(any(title.startswith("cut: ") for title in titles), titles)
        self.assert_fails(run("automap-inspect", TINY, "--graph", self.folder / "x.svg", "--plan", plan), 3, "no plan of this model")
        self.assertFalse((self.folder / "x.svg").exists())

    def module(self, layers, name):
        lines, last = [], "x"
        for i in range(layers):
            lines.append(f'  %d{i} = f32[8,8]{{1,0}} dot(f32[8,8]{{1,0}} %{last}, f32[8,8]{{1,0}} %w), lhs_contracting_dims={{1}}, '
                         f'rhs_contracting_dims={{0}}, metadata={{op_name="jit(f)/{name}_{i}/dot_general"}}')
            last = f"d{i}"
        lines[-1] = lines[-1].replace("  %d", "  ROOT %d", 1)
        body = "\n".join(lines)
        return (f"HloModule m\n\nENTRY %main (x: f32[8,8], w: f32[8,8]) -> f32[8,8] {{\n  %x = f32[8,8]{{1,0}} parameter(0)\n"
                f"  %w = f32[8,8]{{1,0}} parameter(1)\n{body}\n}}\n")

    def test_one_layer_two_hundred_and_long_names(self):
        for layers, name in ((1, "h"), (200, "h"), (3, "<&" + 200 * "n")):
            picture = self.picture(self.put("m.hlo", self.module(layers, name)))
            boxes = [r for r in picture.iter(f"{SVG}rect") if r.get("class") == "box"]
            self.assertEqual(len(boxes), layers)
            self.assertNotIn("nan", ElementTree.tostring(picture, encoding="unicode").split(">", 1)[1][:200])
        edges = [t for t in self.titles(picture) if " to " in t]
        self.assertEqual(len(edges), 2)
        self.assertTrue(all(t.endswith(": 256 B") for t in edges), edges)

    def test_refusals(self):
        out = self.folder / "x.svg"
        self.assert_fails(run("automap-inspect", "config-a", "--graph", out), 3)
        empty = self.folder / "empty"
        empty.mkdir()
        self.assert_fails(run("automap-inspect", empty, "--graph", out), 2, "--graph is for HLO")
        self.assert_fails(run("automap-inspect", self.put("p.csv", profile_csv()), "--graph", out), 2, "--graph is for HLO")
        self.assert_fails(run("automap-inspect", TINY, "--plan", "x.json"), 2, "--graph")


if __name__ == "__main__":
    unittest.main()
