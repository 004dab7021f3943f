"""The wheel of pyproject.toml in an environment of its own: of the programs that are built already, so that nothing is compiled. Skipped
where scikit-build-core cannot be had."""

import os
import shutil
import subprocess
import sys
import tomllib
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))
from programs import BIN, SOURCE, ProgramTest, SANITIZED  # noqa: E402

BUILT = Path(__file__).resolve().parent / "built"
NEEDED = tomllib.loads((SOURCE / "pyproject.toml").read_text())["build-system"]["requires"]
PLAN = """
import automap, os, sys
from automap import installed
found = installed.find("automap-infer")
assert found == os.path.join(sys.prefix, "bin", "automap-infer"), found
plan = automap.plan("gpt2", cluster="h100-1x8", batch_size=64, effort="quick")
assert plan.fits and plan.devices == 8
for program in ("automap-profile", "automap-compare", "automap-emit"):
    assert os.path.dirname(installed.find(program)) == os.path.dirname(found), program
"""


@unittest.skipIf(SANITIZED, "a wheel is built without sanitizers")
class Wheel(ProgramTest):
    def output(self, *command, **options):
        result = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=self.folder, **options)
        self.assertEqual(result.returncode, 0, f"{command}\n{result.stdout}{result.stderr}")
        return result.stdout

    def test_in_an_environment_of_its_own(self):
        builder, home = self.folder / "builder", self.folder / "home"
        if subprocess.run([sys.executable, "-m", "venv", builder], capture_output=True).returncode != 0:
            self.skipTest("no python3-venv")
        fetched = subprocess.run([builder / "bin" / "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--retries", "0",
                                  "--timeout", "20", *NEEDED], capture_output=True, text=True)
        if fetched.returncode != 0:
            self.skipTest(f"{NEEDED} cannot be had: {(fetched.stderr.strip() or 'pip failed').splitlines()[-1]}")
        self.output(builder / "bin" / "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation",
                    "--wheel-dir", self.folder, f"--config-settings=build-dir={self.folder / 'build'}",
                    f"--config-settings=cmake.source-dir={BUILT}", f"--config-settings=cmake.define.AUTOMAP_BUILT={BIN}",
                    "--config-settings=install.strip=false", SOURCE)
        wheel, = self.folder.glob("automap_programs-*.whl")
        self.assertRegex(wheel.name, r"^automap_programs-\d+\.\d+\.\d+-py3-none-linux_\w+\.whl$")
        tried = self.folder / "tried"
        # Without pip, which that of the builder does for it.
        self.output(sys.executable, "-m", "venv", "--without-pip", tried)
        self.output(builder / "bin" / "pip", "--python", tried / "bin" / "python", "install", "--quiet", "--no-deps", "--no-index", wheel)
        shutil.rmtree(builder)
        home.mkdir()
        # With nothing else set; the environment is not even on the PATH.
        self.output(tried / "bin" / "python", "-c", PLAN, env={"HOME": str(home)})
        path = {"HOME": str(home), "PATH": f"{tried / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"}
        version = self.output("automap-infer", "--version", env=path)
        self.assertIn(f"AutoMap {wheel.name.split('-')[1]} ", version)
        self.assertEqual(self.output("automap", "infer", "--version", env=path), version)
        self.assertRegex(self.output("automap", "run", "--help", env=path), "^usage: automap-run ")
        self.assertRegex(self.output("automap", "apply-plan", "--help", env=path), "^usage: automap-apply-plan ")
        self.assertTrue((tried / "share" / "man" / "man1").is_dir())


if __name__ == "__main__":
    unittest.main()
