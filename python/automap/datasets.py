"""The rows of a dataset that automap-datagen wrote, as numpy arrays: automap.datasets.open(folder). Needs h5py."""

import json
import operator
import os
from collections import OrderedDict
from pathlib import Path

from automap.errors import Error

SCHEMAS = ("automap.caw/1", "automap.caw/2", "automap.caw/3")
# Shards that stay open, of a dataset that may have thousands.
OPEN_FILES = 16


def open(path):
    """Opens the folder of a dataset and reads dataset.json; rows are read when they are asked for.

        rows = automap.datasets.open("data")
        c, a, w = rows["caw"][17]                 # float32 [128] each
        rows["caw"][1000:2000, 0]                 # C' of a thousand rows: float32 [1000, 128]; nothing else is read
        rows["scale_ms"][[3, 1, 4]]               # also by numbers of rows, or a bool for each
        rows[17:20]                               # {"caw": [3, 3, 128], "scale_ms": [3], ...}: all columns of some rows

    Columns by name, with N rows (docs/formats/dataset.md has all of them; `shape`, `dtype` and `units` of a column say the same):

        caw [N, 3, 128]      float32  C', A', W' at 128 points of the model, each in [0, 1]
        scale_ms [N]         float32  ms: what the three are multiplied with; A' and W' are then times at the slowest link
        num_instructions [N] uint32   positions of the model; below 128 points repeat
        distribution [N]     uint8    family, a number of `names`
        servers, devices_per_server, micro_batches, stages, samples, layers [N]   uint16
        intra_over_inter [N] float32  bandwidth inside a server over the slowest link's
        memory_limit [N]     float32  of a device, as time at the slowest link over scale_ms; inf: none
        schedule [N]         uint8    a number of `names`: 1f1b, 1f1b-overlap, adaptive
        forward_fraction, stash_factor, launch_share, launch_even, gradient_share, slot_factor, ...   float32 [N], of 1
        hop_latency [N]      float32  over scale_ms
        oracle/cuts, oracle/device_cuts [N, 15]   int16   with labels alone: the best plan's cuts, in points and devices; -1: no more
        oracle/variants [N, 16]                   uint8   of each stage; 255: no more
        oracle/length [N]    float32  the best plan's step over scale_ms; inf: no plan fits; nan: no label

    Error where the folder is no dataset, is not finished or lacks a shard. What is read is not compared with the checksums:
    automap-inspect DIR --verify does.
    """
    try:
        import h5py
        import numpy
    except ImportError as error:
        raise Error(f"the rows of a dataset are read with h5py, which this Python does not have ({error}); install h5py") from None
    if not isinstance(path, (str, os.PathLike)):
        raise Error(f"the dataset is a {type(path).__name__}, and has to be the path of its folder")
    return Dataset(os.path.abspath(os.fsdecode(path)), h5py, numpy)


class Dataset:
    """A dataset that open() has opened. `rows`: their number; `names`: of the columns; `distributions`: names of the families; `record`:
    dataset.json, with "seed" and "config". Also a context manager, which closes the files at its end."""

    def __init__(self, path, h5py, numpy):
        self.path, self._h5py, self._numpy, self._files = path, h5py, numpy, OrderedDict()
        self.record = _manifest(path)
        self.rows, self.distributions = self.record["rows"], list(self.record["distributions"])
        self._shards = self.record["shards"]
        self._firsts = [shard["first_row"] for shard in self._shards]
        self.names = self._names() if self._shards else []

    def __len__(self):
        return self.rows

    def __contains__(self, name):
        return name in self.names

    def __getitem__(self, which):
        """A column by its name; or of a row, or of some, a dict of all columns."""
        if isinstance(which, str):
            if which not in self.names:
                labels = which.startswith("oracle/") and not any(name.startswith("oracle/") for name in self.names)
                raise Error(f"{self.path}: there is no column {which!r}" +
                            ("; its rows have no labels (automap-datagen --oracle)" if labels else f"; there are {', '.join(self.names)}"))
            return Column(self, which)
        return {name: Column(self, name)[which] for name in self.names}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Closes the files; what is read later opens them again."""
        while self._files:
            self._files.popitem()[1].close()

    def __repr__(self):
        return f"<dataset {self.path}: {self.rows} rows, {len(self.names)} columns>"

    def _names(self):
        """The names of everything that has a row for each row of the first shard."""
        found, rows = [], self._shards[0]["rows"]

        def look(name, held):
            if isinstance(held, self._h5py.Dataset) and held.shape[:1] == (rows,) and name != "channel":
                found.append(name)

        file = self._file(0)
        try:
            file.visititems(look)
        except (OSError, RuntimeError, KeyError) as error:
            raise self._damaged(0, error) from None
        return sorted(found)

    def _damaged(self, number, error, what=""):
        return Error(f"{self.path}: {self._shards[number]['file']}: {what}cannot be read ({error}); automap-inspect {self.path} --verify "
                     "says more")

    def _file(self, number):
        if number not in self._files:
            while len(self._files) >= OPEN_FILES:
                self._files.popitem(last=False)[1].close()
            name = self._shards[number]["file"]
            try:
                self._files[number] = self._h5py.File(os.path.join(self.path, name), "r")
            except OSError as error:
                raise self._damaged(number, error) from None
        self._files.move_to_end(number)
        return self._files[number]

    def _held(self, name, number=0):
        """h5py's object for a column in a shard."""
        shard, file = self._shards[number], self._file(number)
        try:
            held = file.get(name)
        except (OSError, RuntimeError, KeyError) as error:
            raise self._damaged(number, error, f"{name} ") from None
        if held is None or held.shape[:1] != (shard["rows"],):
            raise Error(f"{self.path}: {shard['file']} has no {name} of {shard['rows']} rows; automap-inspect {self.path} --verify says more")
        return held

    def _read(self, name, number, selection):
        try:
            return self._held(name, number)[selection]
        except OSError as error:
            raise self._damaged(number, error, f"{name} ") from None


class Column:
    """A column over all shards, indexed as a numpy array of `shape` whose first dimension is the rows: a number, a slice, or an
    array of numbers or of bools, and behind it what the other dimensions take. What is not asked for is not read.

    `dtype`: numpy's; `units`: "ms", "1", ...; `names`: what the numbers of distribution and schedule stand for, else None.
    """

    def __init__(self, dataset, name):
        held = dataset._held(name)
        self._dataset, self.name = dataset, name
        self.shape, self.dtype = (dataset.rows, *held.shape[1:]), held.dtype
        self.units = _text(held.attrs.get("units"))
        self.names = [_text(one) for one in held.attrs["names"]] if "names" in held.attrs else None

    def __len__(self):
        return self.shape[0]

    def __repr__(self):
        return f"<column {self.name}: {self.dtype}{list(self.shape)}, units {self.units}>"

    def __array__(self, dtype=None, copy=None):
        whole = self[:]
        return whole if dtype is None else whole.astype(dtype)

    def __getitem__(self, index):
        rows, *rest = (index or (...,)) if isinstance(index, tuple) else (index,)
        rest = tuple(rest)
        if rows is Ellipsis:
            rows, rest = slice(None), (Ellipsis, *rest) if rest else ()
        if isinstance(rows, slice):
            return self._slice(range(len(self))[rows], rest)
        try:
            return self._numbers([operator.index(rows)], rest)[0]
        except TypeError:
            return self._numbers(rows, rest)

    def _slice(self, rows, rest):
        if rows.step < 0:
            return self._slice(rows[::-1], rest)[::-1]
        parts = []
        for number, shard in enumerate(self._dataset._shards):
            first = shard["first_row"]
            # The elements of `rows` in this shard.
            begin, end = (min(len(rows), max(0, -(-(at - rows.start) // rows.step))) for at in (first, first + shard["rows"]))
            if begin < end:
                local = slice(rows[begin] - first, rows[end - 1] - first + 1, rows.step)
                parts.append(self._dataset._read(self.name, number, (local, *rest)))
        return self._joined(parts, rest)

    def _numbers(self, given, rest):
        numpy = self._dataset._numpy
        wanted = numpy.asarray(given)
        if wanted.size == 0 and wanted.dtype != bool:
            wanted = wanted.astype(int)
        if wanted.ndim != 1 or wanted.dtype.kind not in "biu":
            raise IndexError(f"rows of {self.name} are taken by a number, a slice, or a list of numbers or bools, not by {given!r}")
        if wanted.dtype == bool:
            if len(wanted) != len(self):
                raise IndexError(f"{len(wanted)} bools for {len(self)} rows")
            wanted = numpy.flatnonzero(wanted)
        wanted = wanted.astype(numpy.int64)
        outside = wanted[(wanted < -len(self)) | (wanted >= len(self))]
        if len(outside):
            raise IndexError(f"row {outside[0]} of {self.name}, which has {len(self)}")
        # HDF5 takes numbers that rise.
        rising, places = numpy.unique(numpy.where(wanted < 0, wanted + len(self), wanted), return_inverse=True)
        parts = []
        for number, shard in enumerate(self._dataset._shards):
            begin, end = numpy.searchsorted(rising, [shard["first_row"], shard["first_row"] + shard["rows"]])
            if begin < end:
                local = rising[begin:end] - shard["first_row"]
                if len(local) == 1:
                    parts.append(self._dataset._read(self.name, number, (slice(int(local[0]), int(local[0]) + 1), *rest)))
                else:
                    parts.append(self._dataset._read(self.name, number, (local, *rest)))
        return self._joined(parts, rest)[places]

    def _joined(self, parts, rest):
        if not parts:
            return self._dataset._read(self.name, 0, (slice(0, 0), *rest))
        return parts[0] if len(parts) == 1 else self._dataset._numpy.concatenate(parts)


def _text(value):
    return value.decode() if isinstance(value, bytes) else value


def _manifest(path):
    """dataset.json, whose shards are all there and have all rows."""
    file = os.path.join(path, "dataset.json")
    try:
        record = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise Error(f"{file}: {error.strerror}; give the folder that automap-datagen wrote") from None
    except (ValueError, RecursionError) as error:
        raise Error(f"{file}: it is no JSON that can be read ({error}); the same automap-datagen command makes it again") from None
    schema = record.get("schema") if isinstance(record, dict) else None
    if schema not in SCHEMAS:
        raise Error(f"{file}: its schema is {schema!r}, expected {' or '.join(SCHEMAS)}")
    try:
        rows = 0
        for shard in record["shards"]:
            if shard["first_row"] != rows or operator.index(shard["rows"]) < 1 or os.path.basename(shard["file"]) != shard["file"]:
                raise ValueError(f"the shard {shard['file']!r}")
            rows += shard["rows"]
            _check_size(path, shard["file"], operator.index(shard["bytes"]))
        if not all(isinstance(name, str) for name in record["distributions"]):
            raise ValueError("distributions")
        missing = operator.index(record["rows"]) - rows
    except KeyError as error:
        raise Error(f"{file}: {error} is missing; automap-inspect {path} says more") from None
    except (TypeError, ValueError) as error:
        raise Error(f"{file}: something in it is not what it should be ({error}); automap-inspect {path} says more") from None
    if missing:
        raise Error(f"{file}: {rows} of {record['rows']} rows are there; the same automap-datagen command makes the others")
    return record


def _check_size(path, name, size):
    try:
        found = os.path.getsize(os.path.join(path, name))
    except OSError as error:
        raise Error(f"{path}: {name}: {error.strerror}; the same automap-datagen command makes it again") from None
    if found != size:
        raise Error(f"{path}: {name} has {found} bytes, and dataset.json says {size}; the same automap-datagen command makes it again")
