"""Damaged datasets: every changed bit of dataset.json, foreign shards, what is no file, flips in the rows. Whatever the
accident: what verify finds datagen repairs, to the same bytes, and no trainer learns from it."""

import hashlib
import json
import os
import random
import shutil
import socket
import subprocess
import unittest

from faults import LONG, rounds
from programs import BIN, TIMEOUT_S, ProgramTest, environment, run

TRAIN = "automap-train"
SMALL = ["--evaluate-small", "4", "--evaluate-middle", "0", "--evaluate-deep", "0", "--label-devices", "8",
         "--label-stages", "4", "--round-episodes", "32", "--batch-size", "16", "--hidden", "16", "--threads", "2",
         "--quiet", "--episodes", "32", "--evaluate-data", "synth:small"]
# A FIFO that is waited for never ends.
SOON_S = TIMEOUT_S


def files_of(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


def flipped(content, bit):
    out = bytearray(content)
    out[bit // 8] ^= 1 << bit % 8
    return bytes(out)


class DatasetFaults(ProgramTest):
    def setUp(self):
        super().setUp()
        self.data = self.folder / "data"
        self.make_command = ["automap-datagen", "--rows", 700, "--seed", 1, "--shard-rows", 300, "-q", "-o", self.data]
        self.assertEqual(run(*self.make_command).returncode, 0)
        self.expected = files_of(self.data)
        self.manifest = self.data / "dataset.json"

    def soon(self, *command):
        """The result of a program that must not wait for anything."""
        result = subprocess.run([str(BIN / command[0]), *map(str, command[1:])], env=environment(), capture_output=True,
                                timeout=SOON_S, stdin=subprocess.DEVNULL)
        result.stdout, result.stderr = result.stdout.decode(), result.stderr.decode(errors="replace")
        return result

    def verify(self):
        return self.soon("automap-inspect", self.data, "--verify")

    def train(self, *options, data=None):
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        return self.soon(TRAIN, "--data", data or self.data, "--out", self.folder / "run", *SMALL, *options)

    def assert_repaired(self):
        result = self.soon(*self.make_command)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(files_of(self.data), self.expected)
        return result

    def problems(self):
        result = self.soon("automap-inspect", self.data, "--verify", "--json")
        self.assertEqual(result.returncode, 3, result.stdout)
        return json.loads(result.stdout)["problems"]


class Manifest(DatasetFaults):
    def test_every_changed_bit_is_found_and_repaired(self):
        text = self.manifest.read_bytes()
        bits = range(8 * len(text)) if LONG else random.Random(3).sample(range(8 * len(text)), 12)
        for bit in bits:
            with self.subTest(bit=bit, byte=text[bit // 8:bit // 8 + 1]):
                self.manifest.write_bytes(flipped(text, bit))
                self.assert_fails(self.verify(), 3, "dataset.json")
                self.assert_repaired()

    def test_each_key_and_each_kind_of_change(self):
        text = self.manifest.read_text()
        shard = json.loads(text)["shards"][1]
        digest = json.loads(text)["shards_sha256"]
        for change in (
            text.replace(digest, ("1" if digest[0] != "1" else "2") + digest[1:]),
            text.replace(f'"bytes":{shard["bytes"]}', f'"bytes":{shard["bytes"] + 1}'),
            text.replace(shard["crc32c"], "00000000"), text.replace(shard["rest_crc32c"], "00000000"),
            text.replace('"seed": 1,', '"seed": 2,'), text.replace('"rows": 700', '"rows": 701'),
            text.replace('"oracle": false', '"oracle": true'), text.replace('"compressed": false', '"compressed": true'),
            text.replace('"uniform"', '"unifrom"', 1), text.replace('"shards"', '"sharts"'),
            text.replace("{\n", '{\n  "more": 1,\n', 1), text.replace("\n", "\r\n"), text + "\n", text[:-1],
            json.dumps(json.loads(text)), json.dumps(json.loads(text), indent=2), text[:len(text) - 400],
        ):
            with self.subTest(change=change[:40]):
                self.assertNotEqual(change, text)
                self.manifest.write_bytes(change.encode())
                self.assert_fails(self.verify(), 3, "dataset.json")
                self.assert_repaired()

    def test_intact_shards_are_kept_when_the_manifest_is_repaired(self):
        before = {p.name: p.stat().st_mtime_ns for p in self.data.glob("*.h5")}
        text = self.manifest.read_text()
        self.manifest.write_text(text.replace('"seed": 1,', '"seed": 3,'))
        result = self.soon(*[part for part in self.make_command if part != "-q"])
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("3 of 3 shards listed are as they were", result.stderr)
        self.assertIn("nothing to do", result.stdout)
        self.assertEqual({p.name: p.stat().st_mtime_ns for p in self.data.glob("*.h5")}, before)
        self.assertEqual(files_of(self.data), self.expected)

    def test_a_damaged_manifest_of_another_dataset_is_left_alone(self):
        text = self.manifest.read_text()
        damaged = text.replace('"generator"', '"genarator"')
        self.manifest.write_text(damaged)
        for rest in (["--seed", 2, "--shard-rows", 300], ["--seed", 1, "--shard-rows", 200],
                     ["--seed", 1, "--shard-rows", 300, "--config", "paper"], ["--seed", 1, "--shard-rows", 300, "--oracle"],
                     ["--seed", 1, "--shard-rows", 300, "--compress"]):
            self.assert_fails(self.soon("automap-datagen", "--rows", 700, "-o", self.data, *rest), 3, "dataset.json",
                              "another folder")
        fewer = ["automap-datagen", "--rows", 600, "--seed", 1, "--shard-rows", 300, "-o", self.data]
        self.assert_fails(self.soon(*fewer), 2, "shard-000002.h5 is there", "as many rows")
        self.assertEqual(self.manifest.read_text(), damaged)
        for name, digest in self.expected.items():
            if name != "dataset.json":
                self.assertEqual(hashlib.sha256((self.data / name).read_bytes()).hexdigest(), digest)
        self.assert_repaired()

    def test_one_that_older_versions_wrote(self):
        """Without a checksum: read and said so; datagen compares everything and adds it."""
        text = self.manifest.read_text()
        old = text[:text.index(',\n  "manifest_crc32c"')] + "\n}\n"
        self.manifest.write_text(old)
        result = self.verify()
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("has no checksum", result.stdout)
        self.assert_repaired()
        self.assertNotIn("has no checksum", self.verify().stdout)
        digest = json.loads(text)["shards"][1]["crc32c"]
        self.manifest.write_text(old.replace(digest, ("1" if digest[0] != "1" else "2") + digest[1:]))
        self.assert_fails(self.verify(), 3, "shards_sha256")
        self.assert_repaired()


class Shards(DatasetFaults):
    def test_a_shard_of_another_configuration_with_its_line(self):
        other = self.folder / "other"
        self.assertEqual(run(*self.make_command[:-1], other, "--config", "paper").returncode, 0)
        shutil.copy(other / "shard-000001.h5", self.data)
        lines = self.manifest.read_text().splitlines()
        foreign = next(line for line in (other / "dataset.json").read_text().splitlines() if "shard-000001" in line)
        lines = [foreign if "shard-000001" in line else line for line in lines]
        # As an older version would have it, so that nothing but the attribute speaks against it.
        at = next(i for i, line in enumerate(lines) if "manifest_crc32c" in line)
        del lines[at]
        at -= 1
        listed = [line.strip().rstrip(",") + "\n" for line in lines if line.startswith('    {"file"')]
        digest = hashlib.sha256("".join(listed).encode()).hexdigest()
        lines[at] = f'  "shards_sha256": "{digest}"'
        self.manifest.write_text("\n".join(lines) + "\n")
        problems = self.problems()
        self.assertEqual([p["shard"] for p in problems], ["shard-000001.h5"])
        self.assertIn("config_sha256", problems[0]["what"])
        if (BIN / TRAIN).exists():
            self.assert_fails(self.train(), 3, "shard-000001.h5", "config_sha256")
        self.assert_repaired()

    def test_what_is_no_file(self):
        def make_socket(path):
            here = os.getcwd()
            os.chdir(path.parent)  # the path of a socket is short
            try:
                with socket.socket(socket.AF_UNIX) as s:
                    s.bind(path.name)
            finally:
                os.chdir(here)

        kinds = {"a FIFO": os.mkfifo, "a socket": make_socket, "a directory": os.mkdir,
                 "a device": lambda path: path.symlink_to("/dev/zero")}
        for kind, make in kinds.items():
            for name in ("shard-000001.h5", "dataset.json"):
                with self.subTest(kind=kind, name=name):
                    path = self.data / name
                    content = path.read_bytes()
                    path.unlink()
                    make(path)
                    if name == "dataset.json":
                        self.assert_fails(self.verify(), 3, "dataset.json", kind)
                    else:
                        self.assertIn(kind, self.problems()[0]["what"])
                    self.assert_fails(self.soon("automap-inspect", self.data), 3, name, kind)
                    if (BIN / TRAIN).exists() and (LONG or kind == "a FIFO"):
                        self.assert_fails(self.train(), 3, name, kind)
                    result = self.soon(*self.make_command)
                    if name == "dataset.json" or kind == "a directory":
                        self.assert_fails(result, 3, name)
                        path.rmdir() if path.is_dir() else path.unlink()
                        path.write_bytes(content)
                    self.assert_repaired()

    def test_what_is_found_is_repaired(self):
        """Flips anywhere in the shards, several shards at a time: all are named, and made again."""
        chance = random.Random(6)
        for _ in range(rounds(3, 300)):
            touched = sorted(chance.sample(["shard-000000.h5", "shard-000001.h5", "shard-000002.h5"], chance.randint(1, 2)))
            for name in touched:
                path = self.data / name
                content = path.read_bytes()
                damage = chance.choice([lambda: flipped(content, chance.randrange(8 * len(content))),
                                        lambda: content[:chance.randrange(len(content))], lambda: content + b"x"])
                path.write_bytes(damage())
            self.assertEqual(sorted({p["shard"] for p in self.problems()}), touched)
            self.assert_repaired()
            self.assertEqual(self.verify().returncode, 0)

    @unittest.skipUnless((BIN / TRAIN).exists(), "automap-train was built without LibTorch")
    def test_flips_in_the_rows_stop_the_trainer(self):
        """Of a shard in use, whichever row: always. What is a possible row passes with --trust-data."""
        reached = 0
        chance = random.Random(2)
        offset = json.loads(self.manifest.read_text())["shards"][0]["caw_offset"]
        path = self.data / "shard-000000.h5"
        good = path.read_bytes()
        for attempt in range(rounds(2, 100)):
            # The lowest bits of numbers: other rows, but rows.
            at = offset + 4 * chance.randrange(300 * 384)
            path.write_bytes(flipped(good, 8 * at))
            self.assert_fails(self.train(), 3, "shard-000000.h5", "CRC-32C", "automap-datagen")
            self.assertFalse((self.folder / "run" / "checkpoint").exists())
            self.assertFalse((self.folder / "run" / "policy.bin").exists())
            if attempt < 2:
                trusting = self.train("--trust-data")
                self.assertIn(trusting.returncode, (0, 3), trusting.stderr)
                reached += trusting.returncode == 0
        self.assertGreater(reached, 0)
        self.assert_repaired()

    @unittest.skipUnless((BIN / TRAIN).exists(), "automap-train was built without LibTorch")
    def test_damage_stops_a_run_that_goes_on_before_its_next_checkpoint(self):
        """--resume after the shard was damaged: the checkpoint and the policy stay those of the good data."""
        self.assertEqual(self.train().returncode, 0)
        before = {name: (self.folder / "run" / name).read_bytes() for name in ("checkpoint", "policy.bin")}
        path = self.data / "shard-000000.h5"
        offset = json.loads(self.manifest.read_text())["shards"][0]["caw_offset"]
        path.write_bytes(flipped(path.read_bytes(), 8 * (offset + 4 * 384 * 200 + 4)))
        resume = [TRAIN, "--out", self.folder / "run", "--resume", "--episodes", 96, "--quiet"]
        self.assert_fails(self.soon(*resume), 3, "shard-000000.h5", "CRC-32C")
        self.assertEqual({name: (self.folder / "run" / name).read_bytes() for name in before}, before)
        self.assert_repaired()
        self.assertEqual(self.soon(*resume).returncode, 0)


class Leftovers(DatasetFaults):
    def test_what_killed_runs_leave_goes_with_the_next_one(self):
        for name in (".shards-0-3.77-0.tmp", "shard-000001.h5.77-0.tmp", "dataset.json.77.tmp"):
            (self.data / name).write_bytes(b"half")
        (self.data / ".lock").write_text("AutoMap: automap-datagen, process 77 on gone, since long ago (x)\n")
        self.assertEqual(self.verify().returncode, 0)
        self.assert_repaired()


if __name__ == "__main__":
    unittest.main()
