"""automap-infer --timeline, --trace, --report: pictures of the plan that is reported; what cannot be drawn or written is said first."""

import html
import json
import re
import shutil
import subprocess
import unittest
import xml.etree.ElementTree
from html.parser import HTMLParser

from programs import FIXTURES, ProgramTest, profile_csv, run

MODEL = FIXTURES / "tiny_mlp.hlo"
BROWSER = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)


class Strict(HTMLParser):
    """Fails where an element is not closed by its own end."""

    def __init__(self, text):
        super().__init__()
        self.open, self.links = [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.links += [value for key, value in attributes if key in ("src", "href")]
        self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.links += [value for key, value in attributes if key in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (self.open[-3:], tag)
        self.open.pop()


class Pictures(ProgramTest):
    def plan(self, *options):
        """Of a small profile on two servers: what --json says."""
        profile = self.put("m.csv", profile_csv(40))
        done = run("automap-infer", profile, "--cluster", "config-a", "--batch", "16", "--explore", "off", "--planner", "exact",
                   "--json", "-q", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def trace(self, path):
        events = json.loads(path.read_text())["traceEvents"]
        works = [event for event in events if event["ph"] == "X"]
        return works, events

    def test_what_is_drawn_is_the_plan_that_is_reported(self):
        svg, page, trace, plan = (self.folder / name for name in ("t.svg", "t.html", "t.json", "plan.json"))
        said = self.plan("--stages", "4", "--timeline", svg, "--trace", trace, "-o", plan)
        works, events = self.trace(trace)
        self.assertAlmostEqual(max(event["ts"] + event["dur"] for event in works), said["simulated_step_ms"] * 1e3, places=2)
        groups = len(said["groups"])
        self.assertEqual({event["pid"] for event in works}, set(range(1, groups + 1)))
        for kind in ("forward", "backward"):
            self.assertEqual(sum(event["cat"] == kind for event in works), groups * said["micro_batches"])
        self.assertEqual(sum(event["cat"] == "transfer" for event in works), 2 * (groups - 1) * said["micro_batches"])
        for number, group in enumerate(said["groups"], 1):
            most = max(event["args"]["GiB"] for event in events if event["ph"] == "C" and event["pid"] == number
                       and event["name"] == "memory, GiB")
            self.assertAlmostEqual(most * 2**30 / group["memory_bytes"], 1, places=4)
        root = xml.etree.ElementTree.parse(svg).getroot()
        words = " ".join(root.itertext())
        for word in ("forward", "backward", "transfer", "limits the step", "Memory on each device", "4 groups"):
            self.assertIn(word, words)
        self.assertNotRegex(svg.read_text(), r'="-?(nan|inf)')
        # The plan as a file is the same picture.
        again = self.folder / "again.svg"
        done = run("automap-infer", self.folder / "m.csv", "--cluster", "config-a", "--plan", plan, "--timeline", again)
        self.assertEqual(done.returncode, 0, done.stderr)
        pathless = [re.sub(r"<text.*", "", text.read_text()) for text in (svg, again)]
        self.assertEqual(*pathless)

    def test_one_stage_has_a_timeline_too(self):
        page = self.folder / "t.html"
        self.plan("--stages", "1", "--timeline", page)
        text = page.read_text()
        parsed = Strict(text)
        self.assertEqual(parsed.links, ["data:,"])
        self.assertIn("gradients summed", text)
        self.assertIn("The devices wait", text)

    def test_the_page_says_what_the_report_says(self):
        page, plan = self.folder / "r.html", self.folder / "plan.json"
        done = run("automap-infer", FIXTURES / "tiny_mlp.hlo", "--cluster", "config-a", "--batch", "64", "--explore", "off",
                   "--planner", "exact", "--report", page, "-o", plan)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = page.read_text()
        parsed = Strict(text)
        self.assertEqual(parsed.links, ["data:,"], "no network")
        shown = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", "", text)))
        said = json.loads(plan.read_text())
        for sentence in (said["limits"][0]["text"], *said["warnings"], *said["estimates"]):
            self.assertIn(sentence, shown)
        for line in done.stdout.split("\n\n")[0].splitlines():
            if not line.endswith("...") and not line.startswith("More"):
                self.assertIn(re.sub(r"\s+", " ", line[8:]).strip(), shown)
        for title in ("Answer", "How to run it", "Servers and devices", "Layers by stage", "What happens when", "Memory",
                      "Instead of it", "How sure", "If the numbers are wrong"):
            self.assertIn(f"<h2>{title}</h2>", text)
        self.assertEqual(text.count('class="device"'), 16)
        for table in re.findall("<table>.*?</table>", text, re.DOTALL):
            rows = [row.count("</td>") + row.count("</th>") for row in table.split("</tr>")[:-1]]
            self.assertEqual(len(set(rows)), 1, table)

    def test_layouts_are_drawn(self):
        done = run("automap-infer", FIXTURES / "gpt2.hlo.gz", "--cluster", "a100-2x8", "--batch", "64", "--layout",
                   "dp=4,pp=4,micro-batch-size=2", "--trace", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        events = json.loads(done.stdout)["traceEvents"]
        self.assertEqual(sum(event.get("cat") == "forward" for event in events), 4 * 8)

    def test_names_are_text(self):
        profile = self.put("<b>&\"m.csv", profile_csv(8))
        page, svg = self.folder / "t.html", self.folder / "t.svg"
        for file in (page, svg):
            done = run("automap-infer", profile, "--cluster", "config-a", "--batch", "16", "--planner", "exact", "--explore", "off",
                       "--timeline", file)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("<b>", file.read_text())
        Strict(page.read_text())
        xml.etree.ElementTree.parse(svg)

    def test_what_cannot_be_drawn_or_written_is_said(self):
        ask = ("automap-infer", self.folder / "no-model", "--cluster", "config-a")
        self.assert_fails(run(*ask, "--timeline", "t.txt"), 2, "--timeline: found 't.txt'", ".svg or .html")
        self.assert_fails(run(*ask, "--trace", "t.svg"), 2, "--trace: found 't.svg'", ".json")
        self.assert_fails(run(*ask, "--report", "t.pdf"), 2, "--report: found 't.pdf'", ".html")
        self.assert_fails(run(*ask, "--timeline", "-", "--trace", "-"), 2, "both want standard output")
        done = run(*ask, "--json", "--trace", "-")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("both want standard output", done.stdout)
        self.assert_fails(run(*ask, "--sweep", "--timeline", "t.svg"), 2, "--sweep finds no single plan to draw")
        self.assert_fails(run(*ask, "--timeline", self.folder / "none" / "t.svg"), 3, "none")
        long = self.put("m.csv", profile_csv(40))
        done = run("automap-infer", long, "--cluster", "config-a", "--stages", "16", "--planner", "uniform", "--explore", "off",
                   "--schedule", "1f1b", "--batch", "65536", "--micro-batch", "1", "--timeline", self.folder / "t.svg", "-q")
        self.assert_fails(done, 2, "events", "larger micro-batches")
        self.assertEqual(list(self.folder.glob("t.*")), [])

    @unittest.skipIf(BROWSER is None, "no browser (chromium) to open the page in")
    def test_a_browser_draws_it_without_errors(self):
        page = self.folder / "t.html"
        self.plan("--stages", "4", "--report", page)
        done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
                               f"--user-data-dir={self.folder / 'browser'}", "--dump-dom", f"file://{page}"],
                              capture_output=True, text=True, timeout=300)
        self.assertIn('class="picture zooms wide live"', done.stdout, done.stderr)
        self.assertNotIn("CONSOLE", done.stderr)


if __name__ == "__main__":
    unittest.main()
