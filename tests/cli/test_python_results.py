"""What the Python package returns beside plans: layouts and plans scored, published systems, profiles, pictures in notebooks, rows of
datasets. Without JAX."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from html.parser import HTMLParser
from unittest import mock

from programs import BIN, FIXTURES, SOURCE, ProgramTest, environment, run

# As CMake copies it, beside the programs that it calls.
sys.path.insert(0, str(BIN / "python"))
import automap  # noqa: E402
from automap import comparing, installed, planning, profiling  # noqa: E402

try:
    import h5py
    import numpy
except ImportError:
    h5py = numpy = None

TINY = FIXTURES / "tiny_mlp.hlo"
LAYOUT = {"layout": "dp=2,pp=2,micro-batch-size=4", "cluster": "h100-1x8", "batch_size": 64}
# Of a cluster file: with so little memory, nothing fits.
SMALL = {"name": "a<b>&", "servers": [{"count": 1, "devices": 2, "intra_gbytes_per_s": 100, "inter_gbytes_per_s": 10, "device": "small"}],
         "devices": {"small": {"memory_gib": 1e-5, "peak_tflops": {"f32": 10}, "memory_gbytes_per_s": 100}}}


class Texts(HTMLParser):
    """The tags and the texts of a page; what should have been escaped is among the tags."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts = set(), []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.texts.append(data)


class ResultsTest(ProgramTest):
    def refused(self, text, function, *arguments, code=None, **options):
        with self.subTest(text), self.assertRaisesRegex(automap.Error, text) as raised:
            function(*arguments, **options)
        self.assertEqual(raised.exception.exit_code, code)

    def small(self):
        return self.put("small.json", json.dumps(SMALL))


class Scored(ResultsTest):
    def test_a_layout_and_a_plan(self):
        scored = automap.evaluate(TINY, **LAYOUT)
        self.assertEqual((scored.batch_size, scored.micro_batch_size, scored.devices, len(scored.record["groups"])), (64, 8, 4, 2))
        self.assertEqual(scored, automap.plan(TINY, **LAYOUT))
        scored.save(self.folder / "plan.json")
        for given in (scored, self.folder / "plan.json", str(self.folder / "plan.json")):
            again = automap.evaluate(TINY, plan=given, cluster="h100-1x8")
            self.assertEqual((again.step_ms, again.layout, again.batch_size), (scored.step_ms, scored.layout, 64))
        # On other machines, with other options.
        self.assertNotEqual(automap.evaluate(TINY, plan=scored, cluster="v100-2x8").step_ms, scored.step_ms)
        self.assertEqual(automap.evaluate(TINY, plan=scored, cluster="h100-1x8", batch_size=128).micro_batches, 16)

    def test_a_plan_that_does_not_fit_is_one(self):
        scored = automap.evaluate(TINY, layout="dp=2,micro-batch-size=4", cluster=self.small(), batch_size=64)
        self.assertFalse(scored.fits)
        self.assertRegex("".join(scored.warnings), "does not fit")
        again = automap.evaluate(TINY, plan=scored, cluster=self.small())
        self.assertEqual((again.fits, again.step_ms), (False, scored.step_ms))

    def test_names_of_models_need_no_file(self):
        scored = automap.evaluate("bert-large", layout="dp=8,micro-batch-size=1", cluster="h100-1x8", batch_size=8, sequence=128)
        self.assertEqual((scored.record["model"], scored.module), ("bert-large", "bert-large"))
        self.assertIn("<svg ", scored._repr_html_())  # With the model's options again.
        self.refused("the_plan.json is a plan for a model of", automap.evaluate, TINY, plan=scored, cluster="h100-1x8", code=3)
        # What a program would take for something else than a name is a path.
        for name in ("-", "--help", ""):
            self.assertTrue(os.path.isabs(planning._module(name)), name)

    def test_what_is_wrong_is_said(self):
        plan = automap.evaluate(TINY, **LAYOUT)
        self.refused("^give a layout or a plan to evaluate$", automap.evaluate, TINY, cluster="h100-1x8")
        self.refused("layout or a plan to evaluate, not both", automap.evaluate, TINY, plan=plan, **LAYOUT)
        self.refused("layout is 8, and has to be words", automap.evaluate, TINY, layout=8, cluster="h100-1x8")
        self.refused("--layout", automap.evaluate, TINY, layout="dq=8", cluster="h100-1x8", code=2)
        self.refused("the plan is 3, and has to be a Plan or the path", automap.evaluate, TINY, plan=3, cluster="h100-1x8")
        self.refused("none.json", automap.evaluate, TINY, plan=self.folder / "none.json", cluster="h100-1x8", code=3)
        self.refused("--effort would change nothing", automap.evaluate, TINY, plan=plan, cluster="h100-1x8", effort="quick", code=2)
        self.refused("the step is a file", automap.evaluate, TINY, 1, plan=plan, cluster="h100-1x8")
        self.refused("batch_size is 0", automap.evaluate, TINY, plan=plan, cluster="h100-1x8", batch_size=0)


class Notebook(ResultsTest):
    def test_sentences_and_timeline(self):
        plan = automap.evaluate(TINY, **LAYOUT)
        page = plan._repr_html_()
        texts = "".join(Texts(page).texts)
        for one in plan.record["report"]:
            self.assertIn(one["text"], texts)
        self.assertNotIn("<?xml", page)
        picture = xml.etree.ElementTree.fromstring(re.search("(?s)<svg .*</svg>", page).group())
        self.assertEqual(picture.find("{*}title").text, "tiny_mlp on h100-1x8")
        drawn = run("automap-infer", TINY, "--cluster", "h100-1x8", "--layout", LAYOUT["layout"], "--batch", 64, "--timeline", "-")
        self.assertEqual(plan.timeline, drawn.stdout, drawn.stderr)

    def test_the_picture_is_made_once_and_may_be_missing(self):
        module, path = self.put("model.hlo", TINY.read_bytes()), self.folder / "plan.json"
        plan = automap.evaluate(module, **LAYOUT)
        plan.save(path)
        self.assertEqual(automap.load(path, module).timeline, plan.timeline)
        module.unlink()
        self.assertIn("<svg ", plan._repr_html_())
        # Not the one that has a picture already.
        page = automap.load(path, module)._repr_html_()
        self.assertNotIn("<svg", page)
        self.assertRegex(page, "Train model on .*<p>The timeline cannot be drawn: cannot read .*model.hlo: No such file")
        self.assertIn("the plan has no step to draw", automap.Plan(plan.record)._repr_html_())

    def test_a_saved_plan_is_whole_or_the_one_before(self):
        plan, path = automap.evaluate(TINY, **LAYOUT), self.folder / "saved" / "plan.json"
        with self.assertRaises(FileNotFoundError) as raised:
            plan.save(path)
        self.assertEqual(raised.exception.filename, str(path))
        path.parent.mkdir()
        path.write_text("before")
        path.chmod(0o640)
        link = self.folder / "link.json"
        link.symlink_to(path)
        # The disk is full behind the first half.
        with mock.patch("os.fsync", side_effect=OSError(28, "No space left on device")), self.assertRaises(OSError) as raised:
            plan.save(str(link))
        self.assertEqual((raised.exception.filename, path.read_text(), os.listdir(path.parent)), (str(link), "before", ["plan.json"]))
        plan.save(link)
        self.assertEqual((automap.load(path, TINY).record, os.listdir(path.parent)), (plan.record, ["plan.json"]))
        self.assertEqual((path.stat().st_mode & 0o777, link.is_symlink()), (0o640, True))

    def test_relative_paths_start_where_they_did(self):
        self.small()
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            plan = automap.evaluate(TINY, layout="dp=2,micro-batch-size=4", cluster="small.json", batch_size=64)
            shutil.copy(TINY, "model.hlo")
            of_relative = automap.evaluate("model.hlo", **LAYOUT)
        finally:
            os.chdir(before)
        self.assertEqual(of_relative.module, str(self.folder.resolve() / "model.hlo"))
        self.assertIn("<svg ", of_relative.timeline)
        # It does not fit, and is drawn.
        self.assertIn("<svg ", plan.timeline)
        plan.save(self.folder / "plan.json")
        self.assertNotIn("<svg ", automap.load(self.folder / "plan.json", TINY)._repr_html_())
        self.assertEqual(automap.load(self.folder / "plan.json", TINY, cluster=self.folder / "small.json").timeline, plan.timeline)

    def test_texts_are_escaped(self):
        plan = automap.evaluate(TINY, layout="dp=2,micro-batch-size=4", cluster=self.small(), batch_size=64)
        wrong = dataclasses.replace(plan, record={**plan.record, "report": [{"label": "<script>", "text": "1 <i> & 2"}], "warnings": ["<h1>"]})
        wrong = Texts(wrong._repr_html_())
        self.assertEqual(wrong.tags & {"script", "i", "h1", "b"}, set())
        for text in ("<script>", "1 <i> & 2", "<h1>", "tiny_mlp on a<b>&"):
            self.assertIn(text, wrong.texts)
        compared = automap.compare(TINY, cluster=self.small(), batch_size=64, systems="megatron")
        self.assertNotIn("b", Texts(compared._repr_html_()).tags)
        profiled = automap.profile(TINY)
        layers = [{**profiled.record["layers"][0], "name": "<i>"}]
        profiled = Texts(automap.Profile({**profiled.record, "layers": layers, "warnings": ["<h1>"]}, profiled.columns)._repr_html_())
        self.assertEqual(profiled.tags & {"i", "h1"}, set())
        self.assertEqual({"<i>", "<h1>"} - set(profiled.texts), set())

    def test_the_report_as_a_page(self):
        plan, page = automap.evaluate(TINY, **LAYOUT), self.folder / "page.html"
        plan.report_page(page)
        self.assertIn(plan.record["report"][0]["text"], " ".join("".join(Texts(page.read_text()).texts).split()))
        unfit = automap.evaluate(TINY, layout="dp=2,micro-batch-size=4", cluster=self.small(), batch_size=64)
        unfit.report_page(page)
        self.assertIn("does not fit", page.read_text())
        self.refused("expected a name that ends in .html", plan.report_page, self.folder / "page.txt", code=2)
        self.refused("cannot write .*none", plan.report_page, self.folder / "none" / "page.html", code=3)
        self.refused("the page is 3, and has to be a path", plan.report_page, 3)


class Compared(ResultsTest):
    def test_rows_are_the_programs(self):
        compared = automap.compare(TINY, cluster="h100-1x8", batch_size=64, systems=["megatron", "pipedream"])
        told = json.loads(run("automap-compare", TINY, "--cluster", "h100-1x8", "--batch", 64, "--systems", "megatron,pipedream", "--json").stdout)
        self.assertEqual((compared.model, compared.cluster, compared.batch_size, len(compared)), ("tiny_mlp", "h100-1x8", 64, 2))
        self.assertEqual([one.key for one in compared], ["megatron", "pipedream"])
        for one, expected in zip(compared, told["systems"]):
            self.assertEqual((one.name, one.plan, one.judged_by), (expected["name"], expected["plan"], "our simulation"))
            self.assertEqual((one.step_ms, one.own_ms), (expected["simulated_step_ms"], expected.get("own_ms")))
            self.assertEqual((one.found, one.fits, one.why_not, one.load_ms), (True, True, None, None))
            self.assertTrue(0 < one.fullest_share < 1 and one.search_s >= 0)
        self.assertEqual(compared["pipedream"], compared[1])
        self.assertIn(f"PipeDream: {compared[1].step_ms:.4g} ms by our simulation, ", str(compared))
        self.assertIn(compared[0].plan, Texts(compared._repr_html_()).texts)
        self.refused("'alpa' is none of the systems that were asked: megatron, pipedream", lambda: compared["alpa"])

    def test_that_none_fits_is_an_answer(self):
        compared = automap.compare(TINY, cluster=self.small(), batch_size=64, systems=["megatron"])
        self.assertEqual((compared[0].found, compared[0].step_ms, compared[0].fits), (False, None, None))
        self.assertIn(f"Megatron grid: no plan, {compared[0].why_not}", str(compared))
        self.assertIn(compared[0].why_not, Texts(compared._repr_html_()).texts)

    def test_workloads_have_loads(self):
        compared = automap.compare(SOURCE / "fixtures" / "placement" / "training.json", systems="placement-greedy")
        self.assertEqual((compared.batch_size, compared[0].step_ms, compared[0].judged_by), (None, None, "the largest load"))
        self.assertGreater(compared[0].load_ms, 0)
        self.assertIn(f"{compared[0].load_ms:.4g} ms by the largest load", str(compared))

    def test_steps_of_another_simulator(self):
        one = automap.System({"system": "x", "name": "X", "found": True, "plan": "p", "judged_by": "its own simulator", "step_ms": 2.5, "fits": False})
        self.assertEqual((one.step_ms, str(one)), (2.5, "X: 2.5 ms by its own simulator, p, which does not fit"))

    def test_only_that_nothing_fits_is_an_answer(self):
        for code, answered in ((3, True), (75, True), (4, False)):
            self.refused("^no$", installed.call, "sh", "-c", f"echo error: no >&2; exit {code}", folder="x", answered=lambda _: answered, code=code)
        said = "echo answer; echo warning: one >&2; echo wrote x >&2; exit "
        self.assertEqual(installed.call("sh", "-c", said + "4", folder="x", answered="answer\n".__eq__), ("answer\n", ["one"]))
        self.assertEqual(installed.call("sh", "-c", said + "0", folder="x"), ("answer\n", ["one"]))

    def test_what_is_wrong_is_said(self):
        self.refused("none.hlo", automap.compare, self.folder / "none.hlo", cluster="h100-1x8", code=3)
        self.refused("no-such", automap.compare, TINY, cluster="h100-1x8", systems=["no-such"], code=2)
        self.refused("--cluster", automap.compare, TINY, code=2)
        self.refused("json= is no option here: automap.compare returns rows", automap.compare, TINY, cluster="h100-1x8", json=True)
        self.refused("batch= is no option here; say batch_size=", automap.compare, TINY, cluster="h100-1x8", batch=1)
        self.refused("the step is None", automap.compare, None, cluster="h100-1x8")


class Profiled(ResultsTest):
    def test_positions_and_totals(self):
        profiled = automap.profile(TINY, device="h100")
        told = json.loads(run("automap-profile", TINY, "--device", "h100", "--json").stdout)
        self.assertEqual((profiled.record, profiled.device, profiled.micro_batch_size), (told, "h100", 16))
        self.assertEqual(len(profiled), told["instructions"])
        for values in (profiled.c_ms, profiled.a_bytes, profiled.w_bytes, profiled.stash_bytes):
            self.assertEqual((type(values), {type(one) for one in values}, len(values)), (list, {float}, len(profiled)))
        self.assertAlmostEqual(sum(profiled.c_ms), profiled.totals["c_ms"], 9)
        self.assertEqual((sum(profiled.w_bytes), sum(profiled.stash_bytes)), (profiled.totals["w_bytes"], profiled.totals["stash_bytes"]))
        for layer in profiled.layers:
            self.assertEqual(profiled.a_bytes[layer["last_instruction"] - 1], layer["a_bytes"])
        self.assertEqual(profiled.names[0], "dot_general.5")
        self.assertEqual(set(profiled.columns["layer"]), {"dense_1", "dense_2", "loss"})
        self.assertAlmostEqual(profiled.times_ms["forward"] + profiled.times_ms["backward"], profiled.totals["c_ms"], 9)
        self.assertEqual(profiled.memory_bytes["variables"], profiled.totals["w_bytes"])
        self.assertIn("tiny_mlp on h100: 17 positions, ", str(profiled))
        self.assertEqual({"dense_1", "8448"} - set(Texts(profiled._repr_html_()).texts), set())

    def test_options(self):
        profiled = automap.profile(TINY, device="h100", samples=[1, 3], also_device=["v100-32gb", "l4"])
        self.assertEqual([one["device"] for one in profiled.record["times"]], ["h100", "v100-32gb", "l4"])
        self.assertEqual({one["samples"] for one in profiled.record["times"][0]["points"]} & {1, 2, 3}, {1, 3})
        self.assertEqual(automap.profile(TINY, device="h100", also_device="l4").record["times"][1]["device"], "l4")
        wide = automap.profile("bert-large", sequence=64, cluster="v100-2x8", widths=[1, 2], sequence_parallel=False)
        self.assertEqual((wide.model, [one["width"] for one in wide.record["widths"]]), ("bert-large", [2]))
        self.assertEqual(len(wide), wide.record["instructions"])
        # What had to be assumed is said of the question as it was asked.
        self.assertRegex("".join(automap.profile(TINY, cluster="v100-2x8", widths=[1, 2]).warnings), "--widths: there is none")

    def test_columns_with_anything_in_their_names(self):
        columns = profiling._columns('# model = x\n#\nc_ms,name\n1e-3,"a, ""b""\nc"\n2,#d\n')
        self.assertEqual(columns, {"c_ms": [0.001, 2.0], "name": ['a, "b"\nc', "#d"]})

    def test_what_is_wrong_is_said(self):
        self.refused("cannot read none", automap.profile, "none", code=3)
        self.refused("unknown device 'none'", automap.profile, TINY, device="none", code=2)
        self.refused("output= is no option here: automap.profile returns a profile", automap.profile, TINY, output="x.csv")
        self.refused("no-option", automap.profile, TINY, no_option=1, code=2)
        self.refused("the step is a file", automap.profile, TINY, 1)

    def test_flags_are_those_of_the_programs(self):
        for program, flags, refused in (("automap-compare", comparing.FLAGS, comparing.NO_ROWS),
                                        ("automap-profile", profiling.FLAGS, profiling.NO_PROFILE)):
            lines = re.findall(r"(?m)^  (?:-\w, )?--([\w-]+)( \S+)?", run(program, "--help-all").stdout)
            self.assertEqual({name for name, value in lines if not value} - refused, flags)
            self.assertEqual(refused - {name for name, _ in lines}, set())
        known = re.findall(r"(?m)^  (?:-\w, )?--([\w-]+)", run("automap-infer", "--help-all").stdout)
        self.assertEqual(planning.OF_THE_QUESTION - set(known), set())


class WithoutH5py(ResultsTest):
    def test_h5py_is_missed_where_rows_are_asked_for(self):
        script = ("import sys\nsys.modules['h5py'] = None\nimport automap\ntry:\n  automap.datasets.open('data')\n"
                  "except automap.Error as error:\n  print(error)\nprint({'jax', 'numpy', 'h5py'} & {*sys.modules} - {'h5py'})\n")
        result = subprocess.run([sys.executable, "-B", "-c", script], capture_output=True, text=True,
                                env=environment(PYTHONPATH=str(BIN / "python")))
        self.assertRegex(result.stdout, r"^the rows of a dataset are read with h5py, which this Python does not have .*; install h5py\nset\(\)\n$",
                         result.stderr)


@unittest.skipIf(h5py is None, "no h5py in this Python")
class Datasets(ResultsTest):
    @classmethod
    def setUpClass(cls):
        cls.home = tempfile.mkdtemp(prefix="automap_rows_")
        cls.addClassCleanup(shutil.rmtree, cls.home)
        cls.path = os.path.join(cls.home, "data")
        made = run("automap-datagen", "--rows", 50, "--shard-rows", 20, "--seed", 3, "-o", cls.path, "-q")
        assert made.returncode == 0, made.stderr
        cls.shards = [os.path.join(cls.path, f"shard-00000{number}.h5") for number in range(3)]

    def copy(self, change=None):
        """A copy of the dataset, with dataset.json changed."""
        path = self.folder / "copy"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.path, path)
        if change:
            record = json.loads((path / "dataset.json").read_text())
            change(record)
            (path / "dataset.json").write_text(json.dumps(record))
        return path

    def test_rows_are_those_of_the_shards(self):
        with automap.datasets.open(self.path) as rows:
            self.assertEqual((len(rows), rows.rows, rows.record["seed"]), (50, 50, 3))
            self.assertIn("uniform", rows.distributions)
            self.assertTrue("caw" in rows and "channel" not in rows)
            for name in rows.names:
                whole = []
                for shard in self.shards:
                    with h5py.File(shard) as file:
                        whole.append(file[name][:])
                whole, column = numpy.concatenate(whole), rows[name]
                self.assertEqual((column.shape, column.dtype, len(column)), (whole.shape, whole.dtype, 50))
                for index in (slice(None), slice(18, 43), slice(0, 50, 7), slice(1, 50, 20), slice(None, None, -3), slice(45, 2, -21), slice(5, 5),
                              slice(19, 20), slice(20, 21), slice(-1, None), slice(48, 99), 0, 20, -1, -50, numpy.int64(49), [3, 41, 4, -1, 3], [],
                              [20], numpy.arange(50) % 3 == 0, numpy.zeros(50, bool), numpy.array([20, 19], numpy.uint8), ...):
                    taken, expected = column[index], whole[numpy.array(index, int) if isinstance(index, list) else index]
                    self.assertEqual((taken.shape, taken.dtype), (expected.shape, expected.dtype), (name, index))
                    self.assertTrue(numpy.array_equal(taken, expected), (name, index))
                self.assertTrue(numpy.array_equal(numpy.asarray(column), whole))
            self.assertEqual(numpy.asarray(rows["zero"], dtype=float).dtype, float)
            self.assertEqual((rows["scale_ms"].units, rows["scale_ms"].names), ("ms", None))
            self.assertEqual(rows["schedule"].names, ["1f1b", "1f1b-overlap", "adaptive"])
            self.assertEqual(rows["distribution"].names, rows.distributions)
            some = rows[18:22]
            self.assertEqual((list(some), some["caw"].shape, some["stages"].shape), (rows.names, (4, 3, 128), (4,)))
            self.assertEqual(float(rows[7]["scale_ms"]), float(rows["scale_ms"][7]))
            self.assertEqual(len(list(rows["stages"])), 50)
        self.assertEqual(rows["stages"][18], some["stages"][0])  # Opened again.
        rows.close()

    def test_other_dimensions_and_only_what_is_asked_for_is_read(self):
        rows = automap.datasets.open(self.path)
        whole = rows["caw"][:]
        for index in ((slice(18, 23), 0), (17, 1), ([3, 41], slice(1, 3), 5), (..., 5), (slice(None), ..., 0), (slice(5, 5), 0),
                      (slice(None, None, -1), 2, slice(0, 128, 3)), ()):
            self.assertTrue(numpy.array_equal(rows["caw"][index], whole[index]), index)
        rows.close()
        # A shard that is gone is missed by what lies in it, and by nothing else.
        path = self.copy()
        rows = automap.datasets.open(path)
        (path / "shard-000001.h5").write_bytes(b"no HDF5")
        self.assertTrue(numpy.array_equal(rows["caw"][:20], whole[:20]))
        self.assertTrue(numpy.array_equal(rows["caw"][[0, 45]], whole[[0, 45]]))
        self.refused("shard-000001.h5: cannot be read .*automap-inspect .* --verify", lambda: rows["caw"][19:21])
        rows.close()

    def test_few_files_are_open_at_once(self):
        with mock.patch.object(automap.datasets, "OPEN_FILES", 2), automap.datasets.open(self.path) as rows:
            first = rows._file(0)
            self.assertEqual((len(rows["zero"][:]), len(rows._files), bool(first)), (50, 2, False))
            last = rows._file(2)
        self.assertEqual((len(rows._files), bool(last)), (0, False))

    def test_labels_and_older_versions(self):
        rows = automap.datasets.open(SOURCE / "tests" / "data" / "dataset_v1")
        self.assertEqual((rows["oracle/cuts"].shape, rows["oracle/length"].units), ((3, 15), "scale_ms"))
        self.assertTrue((rows["oracle/length"][:] > 0).all())
        self.assertNotIn("channel", rows.names)  # It has three of its own.
        self.refused("there is no column 'samples'; there are .*caw", lambda: rows["samples"])
        rows.close()
        self.refused("no column 'oracle/cuts'; its rows have no labels", lambda: automap.datasets.open(self.path)["oracle/cuts"])

    def test_what_is_wrong_is_said(self):
        rows = automap.datasets.open(self.path)
        for index in (50, -51, 1.5, "x", None, [0.5], [[1]], [True], [50], {}):
            with self.assertRaises(IndexError, msg=index):
                rows["caw"][index]
        with self.assertRaisesRegex(IndexError, "^row 50 of caw, which has 50$"):
            rows["caw"][[0, 50]]
        opened = automap.datasets.open
        self.refused("the dataset is a int, and has to be the path", opened, 3)
        self.refused("none.*dataset.json: No such file or directory; give the folder", opened, self.folder / "none")
        self.refused("dataset.json: Not a directory", opened, self.shards[0])
        (self.copy() / "dataset.json").write_bytes(b"{\xff")
        self.refused("it is no JSON that can be read", opened, self.folder / "copy")
        for text in ("[]", "{}", '{"schema": "automap.caw/9"}'):
            (self.folder / "copy" / "dataset.json").write_text(text)
            self.refused("its schema is .*, expected automap.caw/1 or", opened, self.folder / "copy")
        self.refused("40 of 50 rows are there; the same automap-datagen", opened, self.copy(lambda record: record["shards"].pop()))
        self.refused("'shards' is missing", opened, self.copy(lambda record: record.pop("shards")))
        for wrong in ({"first_row": 1}, {"rows": -1}, {"rows": "x"}, {"file": "../copy/shard-000000.h5"}, {"file": 3}, {"bytes": None}):
            self.refused("something in it is not what it should be", opened, self.copy(lambda record: record["shards"][0].update(wrong)))
        self.refused("something in it", opened, self.copy(lambda record: record.update(distributions=[1])))
        self.refused("something in it", opened, self.copy(lambda record: record.update(rows=1.5)))
        path = self.copy()
        (path / "shard-000002.h5").unlink()
        self.refused("shard-000002.h5: No such file or directory; the same automap-datagen", opened, path)
        shutil.copy(self.shards[0], path / "shard-000002.h5")
        self.refused("shard-000002.h5 has .* bytes, and dataset.json says", opened, path)
        # The size of another: its rows are missed when they are read.
        path = self.copy(lambda record: record["shards"][2].update(bytes=os.path.getsize(self.shards[0])))
        shutil.copy(self.shards[0], path / "shard-000002.h5")
        self.refused("shard-000002.h5 has no caw of 10 rows", lambda: opened(path)["caw"][45])


if __name__ == "__main__":
    unittest.main()
