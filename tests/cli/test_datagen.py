"""automap-datagen: what it writes, kills and stops, full disks, bad input; h5py reads it."""

import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import unittest

from programs import BIN, SANITIZED, TIMEOUT_S, ProgramTest, environment, run

try:
    import h5py
    import numpy
except ImportError:
    h5py = None



def files_of(folder):
    """Name -> hash of every file of a dataset."""
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


class Datagen(ProgramTest):
    def make(self, name, *arguments, rows=3000, code=0):
        folder = self.folder / name
        result = run("automap-datagen", "--rows", rows, "--seed", 1, "-o", folder, *arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        return folder

    def test_says_what_it_did(self):
        folder = self.folder / "data"
        command = ["automap-datagen", "--rows", 2500, "--seed", 3, "--shard-rows", 1000, "-o", folder]
        result = run(*command)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"data: 2.500 rows in 3 shards written in ")
        again = run(*command)
        self.assertRegex(again.stdout, r"data: 3 shards kept, nothing to do")
        document = json.loads(run(*command[:2], 2600, *command[3:], "--json").stdout)
        self.assertEqual((document["shards_written"], document["shards_kept"], document["rows_written"]), (1, 2, 600))
        self.assertEqual(sorted(files_of(folder)),
                         [".lock", "dataset.json", "shard-000000.h5", "shard-000001.h5", "shard-000002.h5"])
        manifest = json.loads((folder / "dataset.json").read_text())
        self.assertEqual((manifest["schema"], manifest["rows"], manifest["seed"]), ("automap.caw/3", 2600, 3))
        for shard in manifest["shards"]:
            content = (folder / shard["file"]).read_bytes()
            self.assertEqual(len(content), shard["bytes"])
        lines = [json.dumps(shard, separators=(",", ":")) + "\n" for shard in manifest["shards"]]
        self.assertEqual(hashlib.sha256("".join(lines).encode()).hexdigest(), manifest["shards_sha256"])

    def test_threads_change_nothing(self):
        one = self.make("one", "--threads", 1, "--shard-rows", 1000)
        self.assertEqual(files_of(one), files_of(self.make("three", "--threads", 3, "--shard-rows", 1000)))
        packed = self.make("packed", "--threads", 1, "--shard-rows", 1000, "--compress")
        if SANITIZED:
            self.skipTest("a sanitizer's allocator may be locked for ever in the child that compresses, when other threads make rows")
        self.assertEqual(files_of(packed), files_of(self.make("packed3", "--threads", 3, "--shard-rows", 1000, "--compress")))

    def test_a_thousand_threads(self):
        result = run("automap-datagen", "--rows", 3000, "--seed", 1, "-o", self.folder / "data", "--threads", 1000)
        self.assertEqual(result.returncode, 0, result.stderr)
        if os.cpu_count() < 250:
            self.assertRegex(result.stderr, r"warning: --threads 1000 on \d+ processors: using \d+")
        self.assertEqual(files_of(self.folder / "data"), files_of(self.make("one", "--threads", 1)))

    def test_job_arrays(self):
        whole = self.make("whole", "--shard-rows", 500)
        folder = self.folder / "parts"
        jobs = [subprocess.Popen([BIN / "automap-datagen", "--rows", "3000", "--seed", "1", "--shard-rows", "500", "-q",
                                  "--shard-range", part, "-o", folder], env=environment(), stdout=subprocess.DEVNULL)
                for part in ("0:2", "2:3", "3:6")]
        self.assertEqual([job.wait(TIMEOUT_S) for job in jobs], [0, 0, 0])
        self.assertEqual(files_of(folder), files_of(whole))

    def test_parts_of_an_array(self):
        whole = self.make("whole", "--shard-rows", 500)
        for parts in (2, 4, 7):
            folder = self.folder / f"parts{parts}"
            command = ["automap-datagen", "--rows", "3000", "--seed", "1", "--shard-rows", "500", "-o", folder]
            for part in range(1, parts):
                self.assertEqual(run(*command, "--part", f"{part}/{parts}").returncode, 0)
            # Part 0 is missing (of 7 parts the first is empty): the trainer says which shards, the whole command makes them.
            if parts < 7:
                listed = json.loads((folder / "dataset.json").read_text())["shards"]
                self.assertLess(len(listed), 6)
                if (BIN / "automap-train").exists():
                    self.assert_fails(run("automap-train", "--data", folder, "--out", self.folder / "run"), 3, "not complete",
                                      "shards are missing (shard-000000.h5", "automap-datagen command again")
            again = json.loads(run(*command, "--json").stdout)
            self.assertEqual(again["shards_written"] + again["shards_kept"], 6)
            self.assertEqual(again["shards_written"] > 0, parts < 7)
            self.assertEqual(files_of(folder), files_of(whole))
        nothing = run("automap-datagen", "--rows", 10, "-o", self.folder / "none", "--part", "0/7", "--json")
        self.assertEqual((nothing.returncode, json.loads(nothing.stdout)["rows_written"]), (0, 0), nothing.stderr)
        self.assertIn("more parts than shards", nothing.stderr)

    def test_killed_at_any_moment_and_run_again_it_gives_the_same_bytes(self):
        arguments = ["--rows", "24000", "--seed", "5", "--shard-rows", "2000", "--threads", "2", "-q"]
        start = time.monotonic()
        reference = self.folder / "reference"
        self.assertEqual(run("automap-datagen", *arguments, "-o", reference).returncode, 0)
        usual = time.monotonic() - start
        expected = files_of(reference)
        folder = self.folder / "killed"
        moments, kills, resumed = random.Random(4), 0, 0
        shards = lambda: len(list(folder.glob("shard-*.h5")))
        for attempt in range(500):
            if kills == 25:
                break
            job = subprocess.Popen([BIN / "automap-datagen", *arguments, "-o", folder], env=environment(),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            # At any moment of the start, or of what follows on another shard, however fast the machine is now.
            if attempt % 2:
                there = shards()
                self.wait_until(lambda: job.poll() is not None or shards() > there)
            time.sleep(moments.uniform(0, 0.2 * usual))
            job.kill()
            job.stderr.close()
            if job.wait() == 0:
                self.assertEqual(files_of(folder), expected)
                shutil.rmtree(folder)
                continue
            kills += 1
            resumed += shards() > 0
        self.assertEqual(kills, 25)
        self.assertGreater(resumed, 0, "every kill came before the first shard")
        self.assertEqual(run("automap-datagen", *arguments, "-o", folder).returncode, 0)
        self.assertEqual(files_of(folder), expected)

    def test_sigterm_stops_cleanly_and_a_rerun_continues(self):
        arguments = ["--rows", "400000", "--seed", "5", "--shard-rows", "4000", "-q"]
        folder = self.folder / "stopped"
        for number in (signal.SIGTERM, signal.SIGINT):
            job = subprocess.Popen([BIN / "automap-datagen", *arguments, "-o", folder], env=environment(),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            # At work: one shard is there, another is being written.
            self.wait_until(lambda: any(folder.glob("shard-*.h5")) and any(folder.glob("*.tmp")), job)
            job.send_signal(number)
            out, err = job.communicate(timeout=TIMEOUT_S)
            self.assertEqual(job.returncode, 75, err)
            self.assertEqual([p.name for p in folder.glob("*.tmp")], [])
        manifest = json.loads((folder / "dataset.json").read_text())
        self.assertGreater(len(manifest["shards"]), 0)
        self.assertLess(len(manifest["shards"]), 100)
        self.assertEqual({s["file"] for s in manifest["shards"]}, {p.name for p in folder.glob("shard-*")})

    def test_another_dataset_in_the_folder(self):
        folder = self.make("data", rows=100)
        common = ["automap-datagen", "--rows", 100, "--seed", 1, "-o", folder]
        self.assert_fails(run(*common[:4], 2, "-o", folder), 2, "seed: holds 1, asked for 2", "another folder")
        self.assert_fails(run(*common, "--shard-rows", 7), 2, "shard-rows: holds 65536, asked for 7")
        self.assert_fails(run(*common, "--config", "paper"), 2, "config/")
        self.assert_fails(run(*common, "--oracle"), 2, "oracle: holds false, asked for true")
        self.assert_fails(run(*common, "--compress"), 2, "compress: holds false, asked for true")
        self.assert_fails(run("automap-datagen", "--rows", 99, "--seed", 1, "-o", folder), 2, "grow but not shrink")
        self.assertEqual(run(*common).returncode, 0)

    def test_wrong_usage(self):
        out = self.folder / "data"
        self.assert_fails(run("automap-datagen"), 2, "missing --rows")
        self.assert_fails(run("automap-datagen", "--rows", 10), 2, "missing --output")
        for rows in (0, -1, "many", 1e13):
            self.assert_fails(run("automap-datagen", "--rows", rows, "-o", out), 2, "--rows", str(rows)[:4])
        for threads in (-1, 1025, "x"):
            self.assert_fails(run("automap-datagen", "--rows", 10, "-o", out, "--threads", threads), 2, "--threads")
        for shard_range in ("1", "2:1", "a:b", "1:1", "-1:2", "5:9"):
            self.assert_fails(run("automap-datagen", "--rows", 10, "-o", out, "--shard-range", shard_range), 2, "range")
        for part in ("1/1", "-1/2", "1", "1/", "/2", "1/2/3", "a/b", "0/0", "0/100001"):
            self.assert_fails(run("automap-datagen", "--rows", 10, "-o", out, "--part", part), 2, "--part: found")
        self.assert_fails(run("automap-datagen", "--rows", 10, "-o", out, "--part", "0/2", "--shard-range", "0:1"), 2, "exclude")
        self.assert_fails(run("automap-datagen", "--rows", 10, "-o", out, "--shard-rows", 0), 2, "--shard-rows")
        self.assert_fails(run("automap-datagen", "--rows", 10, "-o", out, "--config", "mixxed"), 2, "mixxed", "mixed")
        self.assert_fails(run("automap-datagen", "--rows", 10, "-o", self.put("file", "x")), 3, "file")
        file = self.put("file", "mine")
        self.assert_fails(run("automap-datagen", "--rows", 10, "-o", file / "data"), 3, "Not a directory")
        self.assertFalse(out.exists())
        error = self.assert_json_error(run("automap-datagen", "--rows", 0, "--json"), 2, "usage")
        self.assertIn("--rows", error["message"])

    def test_damaged_manifest(self):
        folder = self.make("data", rows=100)
        for text in ("", "{", "[]", '{"schema": "automap.caw/4"}', '{"schema": "automap.caw/3"}', '{"schema": "automap.caw/1"}'):
            (folder / "dataset.json").write_text(text)
            self.assert_fails(run("automap-datagen", "--rows", 100, "--seed", 1, "-o", folder), 3, "dataset.json")

    def test_file_size_limit(self):
        """A write that fails half way, without a small disk: as with a full one."""
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 3 << 20))
        for extra in ([], ["--compress"]):
            folder = self.folder / "data"
            result = subprocess.run([BIN / "automap-datagen", "--rows", "9000", "--seed", "1", "--shard-rows", "3000", *extra,
                                     "-o", folder], preexec_fn=limit, capture_output=True, text=True, env=environment())
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertRegex(result.stderr, r"error: cannot write .*/shard-00000\d.h5: File too large")
            self.assertEqual(sorted(p.name for p in folder.iterdir()), [".lock", "dataset.json"])
            self.assertEqual(run("automap-datagen", "--rows", 9000, "--seed", 1, "--shard-rows", 3000, *extra, "-o",
                                 folder).returncode, 0)
            shutil.rmtree(folder)

    def test_full_disk(self):
        disk = self.folder / "disk"
        disk.mkdir()
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", disk],
                                               capture_output=True).returncode != 0:
            print("SKIPPED: no small disk can be mounted here; running full was not tried", file=sys.stderr)
            self.skipTest("cannot mount a small disk")
        try:
            command = ["automap-datagen", "--rows", 10000, "--seed", 1, "--shard-rows", 2000, "-o", disk / "data"]
            self.assert_fails(run(*command), 3, "No space left on device", "shard-00000", "run the same command again")
            manifest = json.loads((disk / "data" / "dataset.json").read_text())
            self.assertGreater(len(manifest["shards"]), 0)
            self.assertEqual(sorted(p.name for p in (disk / "data").iterdir()),
                             sorted([".lock", "dataset.json"] + [s["file"] for s in manifest["shards"]]))
            self.assertEqual(subprocess.run(["mount", "-o", "remount,size=64m", disk]).returncode, 0)
            self.assertEqual(run(*command).returncode, 0)
            self.assertEqual(files_of(disk / "data"), files_of(self.make("roomy", "--shard-rows", 2000, rows=10000)))
        finally:
            subprocess.run(["umount", disk])

    def test_oracle(self):
        folder = self.folder / "labelled"
        result = run("automap-datagen", "--rows", 60, "--seed", 1, "--oracle", "-o", folder, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        document = json.loads(result.stdout)
        counts = [document[key] for key in ("rows_labelled", "rows_infeasible", "rows_unlabelled")]
        self.assertEqual(sum(counts), 60)
        self.assertGreater(counts[0], 20)

    def test_preview_and_list(self):
        result = run("automap-datagen", "--preview", 3, "--seed", 2)
        self.assertEqual(result.returncode, 0)
        self.assertEqual(len(re.findall(r"(?m)^row \d+  \w+  ", result.stdout)), 3)
        self.assertEqual(result.stdout.count("  weights "), 3)
        rows = json.loads(run("automap-datagen", "--preview", 2, "--json").stdout)["rows"]
        self.assertEqual([len(rows[0][key]) for key in "caw"], [128] * 3)
        listing = run("automap-datagen", "--list-distributions").stdout
        names = [d["name"] for d in json.loads(run("automap-datagen", "--list-distributions", "--json").stdout)["distributions"]]
        for name in names:
            self.assertRegex(listing, rf"(?m)^{name}: ")
        self.assertIn("transformer", names)

    @unittest.skipUnless(h5py, "SKIPPED: needs python3-h5py")
    def test_h5py_reads_both_forms(self):
        plain, packed = self.make("plain", "--oracle", rows=40), self.make("packed", "--oracle", "--compress", rows=40)
        with h5py.File(plain / "shard-000000.h5") as a, h5py.File(packed / "shard-000000.h5") as b:
            self.assertEqual((a["caw"].shape, a["caw"].dtype), ((40, 3, 128), numpy.dtype("<f4")))
            self.assertIsNone(a["caw"].chunks)
            self.assertEqual((b["caw"].compression, b["caw"].shuffle), ("gzip", True))
            self.assertEqual([d.label for d in a["caw"].dims], ["env", "channel", "position"])
            self.assertEqual(b"".join(a["caw"].dims[1]["channel"][:]), b"CAW")
            self.assertEqual(a.attrs["schema"], "automap.caw/3")
            self.assertEqual(int(a.attrs["seed"]), 1)
            self.assertEqual(json.loads(a.attrs["config_json"]), json.loads((plain / "dataset.json").read_text())["config"])
            columns = sorted(name for name in a if isinstance(a[name], h5py.Dataset)) + ["oracle/cuts", "oracle/length"]
            self.assertEqual(sorted(a), sorted(b))
            for name in columns:
                numpy.testing.assert_array_equal(a[name][()], b[name][()], name)
            caw = a["caw"][()]
            self.assertTrue(((caw >= 0) & (caw <= 1)).all())
            self.assertTrue((caw.max(axis=(1, 2)) == 1).all())
            self.assertTrue((numpy.diff(caw[:, [0, 2]], axis=2) >= 0).all())
            self.assertTrue((a["oracle/cuts"][()][numpy.isfinite(a["oracle/length"][()])][:, 0] >= -1).all())
            names = a["distribution"].attrs["names"]
            self.assertLess(a["distribution"][()].max(), len(names))


if __name__ == "__main__":
    unittest.main()
