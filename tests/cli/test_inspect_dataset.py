"""automap-inspect on datasets: description, --verify, --plot, errors."""

import json
import re
import unittest
import xml.etree.ElementTree
from collections import Counter
from pathlib import Path

from programs import SOURCE, ProgramTest, run

try:
    import jsonschema
except ImportError:
    jsonschema = None

SCHEMA = json.loads((SOURCE / "docs" / "formats" / "inspect.schema.json").read_text())


class InspectDataset(ProgramTest):
    def make(self, *arguments, rows=3000):
        folder = self.folder / "data"
        result = run("automap-datagen", "--rows", rows, "--seed", 1, "--shard-rows", 1000, "-o", folder, *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return folder

    def document(self, *arguments, code=0):
        result = run("automap-inspect", *arguments, "--json")
        self.assertEqual(result.returncode, code, result.stderr)
        document = json.loads(result.stdout)
        if jsonschema:
            jsonschema.Draft202012Validator(SCHEMA).validate(document)
        return document

    def test_describes(self):
        folder = self.make()
        document = self.document(folder)
        self.assertEqual((document["kind"], document["rows"], document["shards"], document["seed"]), ("dataset", 3000, 3, 1))
        self.assertEqual(sum(f["rows"] for f in document["families"]), 3000)
        self.assertEqual(document["config"], json.loads((folder / "dataset.json").read_text())["config"])
        self.assertEqual((document["whole_samples"], sum(document["schedules"].values())), (3000, 3000))
        self.assertGreater(document["schedules"]["adaptive"], 2400)
        result = run("automap-inspect", f"{folder}/")
        self.assertIn("in 3 shards of", result.stdout)
        for family in document["families"]:
            self.assertRegex(result.stdout, rf"(?m)^  {family['name']} ")

    def test_version_1(self):
        old = SOURCE / "tests" / "data" / "dataset_v1"
        document = self.document(old, "--verify")
        self.assertEqual((document["rows"], document["whole_samples"], document["schedules"]), (3, 0, {"1f1b": 3}))
        self.assertEqual(document["labels"]["optimal"], 3)

    def test_labels(self):
        document = self.document(self.make("--oracle", "--compress", rows=50), "--verify")
        self.assertEqual(sum(document["labels"].values()), 50)
        self.assertTrue(document["intact"])

    def test_verify_finds_a_flipped_byte_in_the_rows(self):
        folder = self.make()
        self.assertTrue(self.document(folder, "--verify")["intact"])
        shard = folder / "shard-000001.h5"
        content = bytearray(shard.read_bytes())
        content[65536 + 1536 * 500 + 41] ^= 4
        shard.write_bytes(content)
        document = self.document(folder, "--verify", code=3)
        self.assertFalse(document["intact"])
        self.assertEqual(document["problems"][0]["shard"], "shard-000001.h5")
        self.assertIn("CRC-32C", document["problems"][0]["what"])
        # A value that cannot be is named with its row.
        content[65536 + 1536 * 500 + 43] = 0xff
        content[65536 + 1536 * 500 + 42] = 0xff
        shard.write_bytes(content)
        problems = self.document(folder, "--verify", code=3)["problems"]
        self.assertEqual(Counter(p["row"] for p in problems), Counter([None, 500]))
        self.assertRegex(run("automap-inspect", folder, "--verify").stdout, r"shard-000001\.h5, row 500: ")
        self.assertEqual(run("automap-datagen", "--rows", 3000, "--seed", 1, "--shard-rows", 1000, "-o", folder).returncode, 0)
        self.assertTrue(self.document(folder, "--verify")["intact"])

    def test_cut_missing_and_incomplete(self):
        folder = self.make()
        shard = folder / "shard-000002.h5"
        content = shard.read_bytes()
        shard.write_bytes(content[:-1])
        self.assert_fails(run("automap-inspect", folder), 3, "shard-000002.h5", "cut short", "automap-datagen")
        self.assertIn("cut short", self.document(folder, "--verify", code=3)["problems"][0]["what"])
        shard.unlink()
        self.assert_fails(run("automap-inspect", folder), 3, "shard-000002.h5", "No such file")
        partial = self.folder / "partial"
        run("automap-datagen", "--rows", 3000, "--seed", 1, "--shard-rows", 1000, "--shard-range", "1:2", "-o", partial)
        document = self.document(partial)
        self.assertEqual((document["shards_there"], document["rows_there"]), (1, 1000))
        self.assertIn("not complete", run("automap-inspect", partial).stdout)

    def test_against(self):
        folder = self.make(rows=2000)
        profiles = self.folder / "profiles"
        profiles.mkdir()
        run("automap-profile", SOURCE / "fixtures/hlo/tiny_mlp.hlo", "-o", profiles / "tiny.h5")
        (profiles / "notes.txt").write_text("no profile\n")
        model = SOURCE / "fixtures/hlo/resnet50.hlo.gz"
        against = self.document(folder, "--against", profiles, "--against", model)["against"]
        self.assertEqual((against["compared_rows"], against["asked_rows"]), (2000, 512))
        self.assertEqual([Path(p["source"]).name for p in against["profiles"]], ["tiny.h5", "resnet50.hlo.gz"])
        self.assertEqual([Path(s["file"]).name for s in against["skipped"]], ["notes.txt"])
        self.assertGreater(against["statistics"]["corr_c_w"]["profiles"]["median"], 0.2)
        for profile in against["profiles"]:
            self.assertLess(profile["nearest_row"], 2000)
            self.assertGreater(profile["distance"], 0)
        # The same question, the same answer.
        self.assertEqual(self.document(folder, "--against", profiles, "--against", model)["against"], against)
        text = run("automap-inspect", folder, "--against", profiles).stdout
        self.assertRegex(text, r"median percentile [\d.]+, by the facts below")
        self.assertRegex(text, r"(?m)^  distance   0 .* rows$")

    def test_against_what_cannot_be_read(self):
        folder = self.make(rows=20)
        empty = self.folder / "empty"
        empty.mkdir()
        self.assert_fails(run("automap-inspect", folder, "--against", empty), 3, "holds no files")
        (empty / "a.txt").write_text("nothing\n")
        self.assert_fails(run("automap-inspect", folder, "--against", empty), 3, "none of its 1 files", "a.txt")
        self.assert_fails(run("automap-inspect", folder, "--against", empty / "a.txt"), 3, "a.txt")
        self.assert_fails(run("automap-inspect", folder, "--against", self.folder / "none"), 3, "none")
        self.assert_fails(run("automap-inspect", "config-c", "--against", empty), 2, "--against is for datasets")
        (folder / "shard-000000.h5").unlink()
        failed = run("automap-inspect", folder, "--against", SOURCE / "fixtures/hlo/tiny_mlp.hlo")
        self.assert_fails(failed, 3, "shard-000000.h5")

    def test_plot(self):
        picture = self.folder / "rows.svg"
        self.assertEqual(run("automap-inspect", self.make(), "--plot", picture).returncode, 0)
        root = xml.etree.ElementTree.parse(picture).getroot()
        lines = root.findall("{http://www.w3.org/2000/svg}polyline")
        self.assertGreater(len(lines), 6)
        for line in lines:
            self.assertEqual(len(re.findall(r"[-\d.]+,[-\d.]+", line.get("points"))), 128)
        self.assertNotIn("nan", picture.read_text())

    def test_not_a_dataset(self):
        self.assert_fails(run("automap-inspect", self.folder), 3, "dataset.json is missing")
        cluster = ["automap-inspect", "config-c"]
        self.assert_fails(run(*cluster, "--verify"), 2, "--verify is for datasets")
        self.assert_fails(run(*cluster, "--plot", "x.svg"), 2, "--plot is for datasets")
        folder = self.make(rows=20)
        text = (folder / "dataset.json").read_text()
        (folder / "dataset.json").write_text(text.replace("automap.caw/3", "automap.caw/9"))
        self.assert_fails(run("automap-inspect", folder), 3, "found automap.caw/9", "reads automap.caw/3")


if __name__ == "__main__":
    unittest.main()
