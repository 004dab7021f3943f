"""The notebook of docs/tutorials, and the examples in the Python package's docstrings, are run. The notebook by Jupyter's own client
where the Python with JAX has that; without it of a smaller model, whose plans take a fifth of the time (SMALLER)."""

import ast
import contextlib
import doctest
import io
import json
import os
import subprocess
import sys
import unittest
from unittest import mock

from programs import BIN, SOURCE, ProgramTest, environment, python_with_jax

sys.path.insert(0, str(BIN / "python"))
import automap  # noqa: E402
from automap import comparing, datasets, planning, profiling  # noqa: E402

NOTEBOOK = SOURCE / "docs" / "tutorials" / "notebook.ipynb"
CLIENT = """
import sys
import nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(notebook)
nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
shown = [output["data"] for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output]
assert sum("text/html" in data for data in shown) == 2, [list(data) for data in shown]
"""


SMALLER = [("llama3-8b", "gpt2"), ("h100-2x8", "h100-1x8"), ('"sequence": 4096', '"sequence": 512'), ("sequence=4096", "sequence=512"),
           ("dp=2,tp=8", "dp=2,tp=4"),
           ('"batch_size": 256', '"batch_size": 16'), ("(64, 256, 1024)", "(8, 16, 32)")]


def code_cells():
    found = ["".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    for given, smaller in SMALLER:
        assert any(given in source for source in found), given
        found = [source.replace(given, smaller) for source in found]
    return found


def run_cell(source, names):
    """What a notebook shows of a cell: its text, and what its last expression is."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        exec(compile(tree, "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None
    return text.getvalue(), value


class Notebook(ProgramTest):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.dict(os.environ, environment(), clear=True))
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)

    def test_every_cell_runs_and_shows_something(self):
        names, shown = {}, []
        for source in code_cells():
            text, value = run_cell(source, names)
            shown.append(value._repr_html_() if hasattr(value, "_repr_html_") else text)
        self.assertIn("<svg ", shown[0])
        self.assertRegex(shown[1], r"^gpt2 on 8 devices of h100-1x8: .*\n\d+ ms a step")
        self.assertRegex(shown[2], r"times as long, fits: (True|False)\n$")
        self.assertEqual(len(shown[3].splitlines()), 3)
        self.assertIn("<table>", shown[4])
        self.assertIn("--stages", shown[5])
        self.assertEqual(names["again"].record, names["plan"].record)

    def test_nothing_that_ran_is_kept_in_it(self):
        for cell in json.loads(NOTEBOOK.read_text())["cells"]:
            self.assertEqual((cell.get("outputs", []), cell.get("execution_count")), ([], None))

    def test_by_jupyter(self):
        python = python_with_jax()
        if python is None or subprocess.run([python, "-c", "import nbclient, nbformat, ipykernel"], capture_output=True).returncode != 0:
            self.skipTest("no Jupyter in the Python with JAX; $(scripts/jax_python.sh) -m pip install nbclient ipykernel")
        result = subprocess.run([python, "-B", "-c", CLIENT, NOTEBOOK], env={**environment(), "PYTHONPATH": str(BIN / "python")},
                                capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)


class Docstrings(ProgramTest):
    def test_their_examples_are_true(self):
        self.enterContext(mock.patch.dict(os.environ, environment(), clear=True))
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(SOURCE)
        said = io.StringIO()
        tried = 0
        for module in (automap, comparing, datasets, planning, profiling):
            with contextlib.redirect_stdout(said):
                result = doctest.testmod(module, extraglobs={"automap": automap})
            tried += result.attempted
            self.assertEqual(result.failed, 0, said.getvalue())
        self.assertGreater(tried, 8)


if __name__ == "__main__":
    unittest.main()
