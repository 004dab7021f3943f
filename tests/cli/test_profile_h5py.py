"""The HDF5 profiles we write are read by h5py, and those that h5py writes are read by us."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BIN = Path(os.environ.get("AUTOMAP_BIN", "build"))
SOURCE = Path(os.environ.get("AUTOMAP_SOURCE", Path(__file__).resolve().parent.parent.parent))
MODEL = SOURCE / "fixtures" / "hlo" / "tiny_mlp.hlo"

try:
    import h5py
    import numpy
except ImportError as error:
    # Another Python may be first in PATH; Debian's own has python3-h5py.
    debian = "/usr/bin/python3"
    if os.path.exists(debian) and os.path.realpath(sys.executable) != os.path.realpath(debian):
        os.execv(debian, [debian, "-B", *sys.argv])
    print(f"SKIPPED: h5py is not installed ({error}); no file was read by it", file=sys.stderr)
    sys.exit(0)


def run(*arguments):
    return subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True, timeout=600)


class ProfileH5py(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name) / "model.profile.h5"

    def test_h5py_reads_our_profile(self):
        result = run(BIN / "automap-profile", MODEL, "--device", "v100-16gb", "-o", self.path, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        instructions = json.loads(result.stdout)["instructions"]
        with h5py.File(self.path) as f:
            self.assertEqual(f.attrs["schema"].decode(), "automap.profile/2")
            self.assertEqual(f.attrs["version"], 2)
            self.assertEqual(f.attrs["device"].decode(), "v100-16gb")
            self.assertTrue(0 < f.attrs["forward_fraction"] <= 1)
            self.assertEqual(len(f.attrs["source_sha256"]), 64)
            for name in ("c_ms", "a_bytes", "w_bytes", "stash_bytes"):
                values = f[name][:]
                self.assertEqual(values.dtype, numpy.dtype("<f8"))
                self.assertEqual(values.shape, (instructions,))
                self.assertTrue((values >= 0).all())
            self.assertGreater(f["c_ms"][:].sum(), 0)
            for name in ("name", "op_name", "layer"):
                values = f[name].asstr()[:]
                self.assertEqual(len(values), instructions)
                self.assertTrue(all(isinstance(value, str) for value in values))
                self.assertIsNotNone(h5py.check_string_dtype(f[name].dtype).length, "of a fixed length")
            self.assertIn("tiny_mlp", f.attrs["model"].decode())

    def test_csv_holds_the_same_numbers(self):
        table = Path(self.folder.name) / "model.profile.csv"
        for path in (self.path, table):
            result = run(BIN / "automap-profile", MODEL, "-o", path)
            self.assertEqual(result.returncode, 0, result.stderr)
        lines = [line for line in table.read_text().splitlines() if not line.startswith("#")]
        header = lines[0].split(",")
        at = header.index("c_ms")
        with h5py.File(self.path) as f:
            self.assertEqual([float(line.split(",")[at]) for line in lines[1:]], list(f["c_ms"][:]))

    def test_we_read_what_h5py_writes(self):
        with h5py.File(self.path, "w") as f:
            f.attrs["schema"] = "automap.profile/1"
            f.attrs["model"] = "by hand"
            f.attrs["forward_fraction"] = 0.25
            f["c_ms"] = numpy.array([1, 2, 3], dtype="f4")
            f["a_bytes"] = numpy.array([10, 20, 30], dtype="i8")
            f["w_bytes"] = numpy.array([1.0, 2.0, 3.0], dtype=">f8")
            f.create_dataset("stash_bytes", data=numpy.zeros(3), chunks=(2,), compression="gzip")
            f["layer"] = numpy.array([b"a", b"bb", b"ccc"])
        result = run(BIN / "automap-inspect", self.path, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("by hand", result.stdout)
        with h5py.File(self.path, "a") as f:
            f.attrs["schema"] = "automap.profile/7"
        result = run(BIN / "automap-inspect", self.path)
        self.assertEqual(result.returncode, 3)
        self.assertIn("automap.profile/7", result.stderr)


if __name__ == "__main__":
    unittest.main()
