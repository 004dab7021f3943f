"""Damaged HDF5 files end in one clear error: no crash, no hang, whatever the HDF5 library does with them."""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

from faults import rounds
from programs import BIN, FIXTURES, SANITIZED, TIMEOUT_S, ProgramTest, environment, run

try:
    import h5py
    import numpy
except ImportError as error:
    # Another Python may be first in PATH; Debian's own has python3-h5py.
    debian = "/usr/bin/python3"
    if os.path.exists(debian) and os.path.realpath(sys.executable) != os.path.realpath(debian):
        os.execv(debian, [debian, "-B", *sys.argv])
    print(f"SKIPPED: h5py is not installed ({error}); no file was damaged", file=sys.stderr)
    sys.exit(0)

# Far above what the limits of the library's process come to.
CPU_S = 60
CHECKSUM_BYTES = 32


def crc32c_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


TABLE = crc32c_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def with_checksum(data):
    data += b"AutoMap checksum" + len(data).to_bytes(8, "little") + (1).to_bytes(4, "little")
    return data + crc32c(data).to_bytes(4, "little")


def mutant(data, rng):
    """1 to 12 bytes changed, often many of them in front where the structure is; one in ten cut or made longer."""
    kind = rng.randrange(10)
    if kind == 0:
        return data[: rng.randrange(8, len(data))] if rng.randrange(3) else data + rng.randbytes(rng.randrange(1, 100))
    changed = bytearray(data)
    end = len(data) if kind < 6 else min(len(data), 4096)
    for _ in range(rng.randint(1, 12)):
        changed[rng.randrange(8, end)] = rng.randrange(256)
    return bytes(changed)


def version_1(path, instructions=100):
    """A profile as AutoMap wrote them before version 2: strings of variable length, in global heaps."""
    with h5py.File(path, "w") as f:
        f.attrs["schema"] = "automap.profile/1"
        f.attrs["version"] = 1
        f.attrs["model"] = "made by hand"
        f.attrs["device"] = "v100-16gb"
        f.attrs["micro_batch_size"] = 4.0
        f.attrs["forward_fraction"] = 0.3
        for name in ("c_ms", "a_bytes", "w_bytes", "stash_bytes"):
            f[name] = numpy.arange(1.0, instructions + 1)
        for name in ("name", "op_name", "layer"):
            values = [f"{name}/{i}" for i in range(instructions)]
            f.create_dataset(name, data=values, dtype=h5py.string_dtype())


class DamagedHdf5(ProgramTest):
    def profile(self, name="p.h5"):
        path = self.folder / name
        result = run("automap-profile", FIXTURES / "tiny_mlp.hlo", "-o", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        return path

    def read(self, path):
        """Exit code and error of reading `path`: 0, or 3 with one error that names the file."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = run("automap-inspect", path)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertLess(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, CPU_S)
        if result.returncode != 0:
            self.assert_fails(result, 3, path.name)
            self.assertNotRegex(result.stderr, r"\b0x[0-9a-f]")
        else:
            self.assertEqual(result.stderr, "")
        return result.returncode, result.stderr

    def read_mutants(self, data, count, seed, finish=lambda mutant: mutant):
        """How many were refused, and of how many the library's process died."""
        rng = random.Random(seed)
        refused = died = 0
        path = self.folder / "mutant.h5"
        for i in range(count):
            path.write_bytes(finish(mutant(data, rng)))
            try:
                code, error = self.read(path)
            except AssertionError:
                kept = Path(f"mutant-{seed}-{i}.h5").resolve()
                shutil.copy(path, kept)
                print(f"the file is {kept}", file=sys.stderr)
                raise
            refused += code != 0
            died += "the HDF5 library" in error
        return refused, died

    def test_version_2(self):
        data = self.profile().read_bytes()
        count = rounds(20, 1000)
        refused, died = self.read_mutants(data, count, seed=1)
        # Nothing reaches the library, but where the checksum's own mark was hit.
        self.assertGreaterEqual(refused, 0.9 * count)
        self.assertLessEqual(died, 0.1 * count)

    def test_version_2_with_a_right_checksum(self):
        data = self.profile().read_bytes()[:-CHECKSUM_BYTES]
        self.assertEqual(with_checksum(data), (self.folder / "p.h5").read_bytes())
        refused, _ = self.read_mutants(data, rounds(20, 1000), seed=2, finish=with_checksum)
        self.assertGreater(refused, 0)

    def test_version_1(self):
        path = self.folder / "version_1.h5"
        version_1(path)
        self.assertEqual(self.read(path), (0, ""))
        count = rounds(30, 2000)
        refused, died = self.read_mutants(path.read_bytes(), count, seed=3)
        # Else nothing was tried: a library that bears them needs no process of its own.
        self.assertGreater(died, 0, f"{count} damaged files, {refused} refused, and the library bore them all")

    def test_files_that_crashed_or_hung(self):
        corpus = os.environ.get("AUTOMAP_CORPUS")
        files = sorted((Path(corpus) / "faults").glob("bad_h5_*.h5")) if corpus else []
        if not files:
            self.skipTest("AUTOMAP_CORPUS is not set, or has no faults: the files that crashed or hung were not read")
        for file in files:
            code, error = self.read(file)
            self.assertEqual(code, 3)
            self.assertIn("damaged", error)

    def test_planner_and_pipe(self):
        """The same for a program that plans, from a pipe."""
        path = self.folder / "version_1.h5"
        version_1(path)
        rng = random.Random(4)
        for _ in range(rounds(4, 200)):
            damaged = mutant(path.read_bytes(), rng)
            result = run("automap-infer", "-", "--cluster", "config-a", "--planner", "data-parallel", stdin=damaged)
            if result.returncode != 0:
                self.assertIn(result.returncode, (3, 4), result.stderr)
                self.assert_fails(result, result.returncode)

    def test_datasets(self):
        """Shards: the checksums of dataset.json find the damage before the library sees it."""
        data = self.folder / "data"
        result = run("automap-datagen", "--rows", "40", "--shard-rows", "20", "-o", data, "-q")
        self.assertEqual(result.returncode, 0, result.stderr)
        shard = data / "shard-000001.h5"
        whole = shard.read_bytes()
        rng = random.Random(5)
        for _ in range(rounds(10, 500)):
            shard.write_bytes(mutant(whole, rng))
            result = run("automap-inspect", data)
            if result.returncode != 0:
                self.assert_fails(result, 3, shard.name)
            verified = run("automap-inspect", data, "--verify")
            if shard.read_bytes() != whole:
                self.assertEqual(verified.returncode, 3, verified.stdout + verified.stderr)

    def test_too_little_memory(self):
        if SANITIZED:
            self.skipTest("sanitizers reserve terabytes: no limit of address space was tried")
        profile = self.profile()
        for mib in range(40, 100, rounds(6, 1)):
            for arguments in (["automap-datagen", "--rows", "64", "--shard-rows", "32", "--threads", "1", "-o", "data"],
                              ["automap-datagen", "--rows", "64", "--shard-rows", "32", "--threads", "1", "--compress",
                               "-o", "packed"],
                              ["automap-inspect", profile],
                              ["automap-profile", FIXTURES / "tiny_mlp.hlo", "-o", "again.h5"]):
                limit = mib << 20
                result = subprocess.run([BIN / arguments[0], *map(str, arguments[1:])], cwd=self.folder, env=environment(),
                                        capture_output=True, text=True, timeout=TIMEOUT_S,
                                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
                # 127: the loader had too little for the libraries.
                self.assertGreaterEqual(result.returncode, 0, f"{arguments} with {mib} MiB: {result.stderr}")
                if result.returncode not in (0, 127):
                    self.assertEqual(result.stderr.count("error: "), 1, result.stderr)
                    self.assertNotIn("damaged", result.stderr)
                leftovers = [name for name in os.listdir(self.folder) if name.endswith(".tmp")]
                self.assertEqual(leftovers, [])
                shutil.rmtree(self.folder / "data", ignore_errors=True)
                shutil.rmtree(self.folder / "packed", ignore_errors=True)


class WholeHdf5(ProgramTest):
    def test_the_same_bytes_at_any_time_in_any_process(self):
        for name in ("first.h5", "second.h5"):
            result = run("automap-profile", FIXTURES / "tiny_mlp.hlo", "-o", self.folder / name)
            self.assertEqual(result.returncode, 0, result.stderr)
            time.sleep(1.1)  # HDF5 keeps times in seconds
        self.assertEqual((self.folder / "first.h5").read_bytes(), (self.folder / "second.h5").read_bytes())

    def checksum(self, path):
        result = run("automap-inspect", path, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_a_file_that_h5py_edited_is_read(self):
        path = self.folder / "p.h5"

        def edit_value(f):
            f["c_ms"][1] = 1234.5

        def replace_column(f):
            del f["c_ms"]
            f["c_ms"] = numpy.arange(1.0, f["a_bytes"].shape[0] + 1)

        def edit_attribute(f):
            f.attrs["model"] = "another"

        def add_dataset(f):
            f["measured_on"] = "Tuesday"

        for edit in (None, lambda f: None, edit_value, replace_column, edit_attribute, add_dataset):
            self.assertEqual(run("automap-profile", FIXTURES / "tiny_mlp.hlo", "-o", path).returncode, 0)
            before = self.checksum(path)
            self.assertEqual(before["checksum"], "verified")
            if edit is None:
                with h5py.File(path) as f:  # reading changes nothing
                    self.assertGreater(f["c_ms"][:].sum(), 0)
                self.assertEqual(self.checksum(path)["checksum"], "verified")
                continue
            with h5py.File(path, "r+") as f:
                edit(f)
            after = self.checksum(path)
            self.assertEqual(after["checksum"], "none")
            self.assertEqual(before["c_ms"] != after["c_ms"], edit in (edit_value, replace_column))
            self.assertEqual(after["model"], "another" if edit is edit_attribute else before["model"])
            plan = run("automap-infer", path, "--cluster", "config-a", "--planner", "data-parallel")
            self.assertEqual(plan.returncode, 0, plan.stderr)

    def test_a_full_disk(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("this system has no /dev/full")
        (self.folder / "full.h5").symlink_to("/dev/full")
        result = run("automap-profile", FIXTURES / "tiny_mlp.hlo", "-o", self.folder / "full.h5", "-q")
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("full.h5: No space left on device", result.stderr)
        self.assertNotRegex(result.stderr, r"\b0x[0-9a-f]")

    def test_a_limit_of_file_size(self):
        """The other way to have no room, which reaches whoever writes the temporary file."""
        def little_room():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

        result = subprocess.run([BIN / "automap-profile", FIXTURES / "tiny_mlp.hlo", "-o", "p.h5", "-q"], cwd=self.folder,
                                env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S, preexec_fn=little_room)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("cannot write p.h5", result.stderr)
        self.assertNotRegex(result.stderr, r"\b0x[0-9a-f]")
        self.assertEqual(self.leftovers(), [])


if __name__ == "__main__":
    unittest.main()
