"""The ```sh blocks of README.md, docs/tutorials and the pages that say what to type work as written: each page's, one after the
other, in a folder that looks like a fresh clone with the programs built. What would take minutes is asked for less (SMALLER),
and what a page cannot do here is left out (LEFT_OUT); both say why, and a line that no page has any more is an error."""

import os
import re
import subprocess
import unittest

from programs import BIN, NO_JAX, ProgramTest, SOURCE, TIMEOUT_S, environment, plan_with_the_default_effort, python_with_jax

plan_with_the_default_effort()

DOCS = SOURCE / "docs"
JAX = python_with_jax()
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / "tutorials").glob("*.md")) + ["research.md", "trust.md", "../README.md"]

# The programs that are tested are built already.
BUILD = "scripts/install_dependencies.sh --train && scripts/build.sh release -DAUTOMAP_BUILD_TESTS=OFF\n"
# A minute of kernels; tests/cli/test_calibrate.py runs it, and what follows reads these times instead.
MEASURE = "python3 scripts/measure_device.py -o measured.json "
LEFT_OUT = {
    "tutorials/datasets.md": [BUILD],
    "tutorials/nightly.md": [BUILD],
    "trust.md": [MEASURE],
    # What installs and builds: CI's own steps.
    "../README.md": ["./scripts/demo.sh ", "./scripts/test.sh "],
}
# Few held-out problems, small ones.
FEW = "--evaluate-small 8 --evaluate-middle 0 --evaluate-deep 0 --label-devices 8 --label-stages 4 --round-episodes 32 --evaluate-every 64"
SMALLER = {
    "tutorials/datasets.md": [
        ("--rows 100000", "--rows 300"),
        ("--time 10m", f"--time 1s {FEW}"),
        ("--compare runs/mine/policy.bin models/pretrained/pipeline.policy",
         "--compare runs/mine/policy.bin models/pretrained/pipeline.policy --evaluate-small 30 --evaluate-middle 0 --evaluate-deep 0 --margin 1"),
    ],
    "tutorials/nightly.md": [
        ("--rows 100000 --time 10m --seeds 1", f"--rows 300 --time 1s --seeds 1 --preset fast --real none -- {FEW} --margin 1"),
    ],
    "trust.md": [("fixtures/hlo/llama_8b.hlo.gz --cluster h100-4x8 --batch 256 --effort quick --sensitivity",
                  "fixtures/hlo/tiny_mlp.hlo --cluster h100-1x8 --batch 256 --effort quick --sensitivity")],
    # Half a minute each on a real model.
    "research.md": [
        ("fixtures/hlo/t5_6_6.hlo.gz --cluster config-b --html", "fixtures/hlo/tiny_mlp.hlo --systems automap,alpa --cluster config-b --html"),
        ("fixtures/hlo/bert48.hlo.gz --cluster config-a --systems automap,flexflow,tarnawski --time 20s",
         "fixtures/hlo/tiny_mlp.hlo --cluster config-a --systems automap,flexflow,tarnawski --time 0.1s"),
    ],
}
MEASURED = """{"schema": "automap.measurements/1", "device": "one that is made up", "framework": "none", "cores": 108, "memory_gib": 80, "measured": [
  {"kind": "matmul", "type": "f32", "batch": 1, "m": 512, "n": 512, "k": 512, "us": 21.5},
  {"kind": "matmul", "type": "f32", "batch": 1, "m": 1024, "n": 1024, "k": 1024, "us": 130},
  {"kind": "matmul", "type": "f32", "batch": 1, "m": 4096, "n": 4096, "k": 4096, "us": 8000},
  {"kind": "copy", "type": "f32", "elements": 1048576, "us": 9},
  {"kind": "copy", "type": "f32", "elements": 16777216, "us": 100},
  {"kind": "copy", "type": "f32", "elements": 268435456, "us": 1550}]}
"""


def blocks(text):
    return re.findall(r"(?ms)^```sh\n(.*?)^```$", text)


def without(text, lines):
    for line in lines:
        # A line that ends with a blank is the start of one.
        pattern = re.escape(line) + (".*\n" if line.endswith(" ") else "")
        text, count = re.subn(pattern, "", text)
        assert count == 1, f"{count} times: {line}"
    return text


class Tutorials(ProgramTest):
    def clone(self):
        for name in ("fixtures", "models", "scripts"):
            (self.folder / name).symlink_to(SOURCE / name)
        (self.folder / "build").mkdir()
        (self.folder / "build" / "release").symlink_to(BIN)

    def run_page(self, page):
        text = (DOCS / page).read_text()
        script = without("".join(blocks(text)), LEFT_OUT.get(page, []))
        for long, short in SMALLER.get(page, []):
            self.assertEqual(script.count(long), 1, long)
            script = script.replace(long, short)
        self.assertIn("\n", script)
        self.clone()
        self.put("measured.json", MEASURED)
        # -x names the line that failed. Plans are looked for with less effort than a user's: what is asked is whether they come.
        result = subprocess.run(["bash", "-xeo", "pipefail", "-c", script], cwd=self.folder, capture_output=True, text=True,
                                env=environment(AUTOMAP_INFER_EFFORT="quick", PYTHONDONTWRITEBYTECODE="1", **self.jax), timeout=TIMEOUT_S)
        self.assertEqual(result.returncode, 0, f"{page}\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}")
        return result.stdout

    jax = {}

    def with_jax(self):
        if not JAX:
            self.skipTest(NO_JAX)
        self.jax = {"AUTOMAP_JAX_PYTHON": JAX}

    def with_training(self):
        if not (BIN / "automap-train").exists() or not (BIN / "libautomap_learned.so").exists():
            self.skipTest("automap-train was built without LibTorch")

    def test_every_page_is_run(self):
        named = {match.replace("_", "-") for match in re.findall(r"def test_page_(\w+)\(", (SOURCE / "tests/cli/test_tutorials.py").read_text())}
        self.assertEqual({os.path.basename(page).removesuffix(".md") for page in PAGES}, named)
        for page in [*LEFT_OUT, *SMALLER]:
            self.assertIn(page, PAGES)

    def test_the_reading_of_pages(self):
        self.assertEqual(blocks("a\n```sh\nb\nc\n```\n```python\nd\n```\n```sh\ne\n```\n"), ["b\nc\n", "e\n"])
        self.assertEqual(without("a b\nc\nd x\n", ["c\n", "d "]), "a b\n")

    def test_page_jax(self):
        self.with_jax()
        out = self.run_page("tutorials/jax.md")
        self.assertRegex(out, r"(?m)^loss 6\.2\d* momentum PartitionSpec|^loss 6\.2\d* momentum P\(")
        self.assertIn("equal: ", out)

    def test_page_pytorch_megatron(self):
        self.with_jax()
        self.run_page("tutorials/pytorch-megatron.md")
        self.assertIn("--micro-batch-size", (self.folder / "megatron.args").read_text())

    def test_page_nightly(self):
        self.with_training()
        self.assertIn('"schema": "automap.night/1"', self.run_page("tutorials/nightly.md"))

    def test_page_datasets(self):
        self.with_training()
        self.run_page("tutorials/datasets.md")
        self.assertTrue((self.folder / "runs" / "mine" / "report.md").exists())

    def test_page_README(self):
        self.with_jax()
        # What the line of Python above the first command writes.
        self.put("step.hlo", (SOURCE / "fixtures" / "hlo" / "llama_8b.hlo.gz").read_bytes())
        self.run_page("../README.md")

    def test_page_research(self):
        self.run_page("research.md")

    def test_page_trust(self):
        self.assertRegex(self.run_page("trust.md"), r"stays within 1\.0 % of the best .* in \d+ of \d+ cases")


if __name__ == "__main__":
    unittest.main()
