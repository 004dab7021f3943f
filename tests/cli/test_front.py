"""automap COMMAND runs automap-COMMAND; what all programs have in common."""

import re
import shutil
import subprocess
import unittest

from programs import BIN, FIXTURES, ProgramTest, environment, run

PROGRAMS = ["automap", "automap-profile", "automap-infer", "automap-search", "automap-inspect", "automap-datagen", "automap-emit"]
# What has a table of options: a program, or a command of one.
TABLES = [(p,) for p in PROGRAMS if p not in ("automap", "automap-search")]
TABLES += [("automap-search", command) for command in ("opp", "adp", "apply", "propagate", "explain", "soap", "heuristics")]


class Front(ProgramTest):
    def test_passes_arguments_output_and_exit_code_on(self):
        for arguments in (["--help"], ["--version"], ["--no-such-flag"], []):
            with self.subTest(arguments=arguments):
                front, tool = run("automap", "infer", *arguments), run("automap-infer", *arguments)
                self.assertEqual((front.returncode, front.stdout, front.stderr), (tool.returncode, tool.stdout, tool.stderr))

    def test_lists_the_commands(self):
        for arguments in (["--help"], ["-h"], ["help"]):
            result = run("automap", *arguments)
            self.assertEqual(result.returncode, 0)
            for command in ("profile", "infer", "search", "inspect", "datagen", "train", "apply-plan", "emit-sdy"):
                self.assertRegex(result.stdout, rf"(?m)^  {command} ")
        self.assertEqual(run("automap", "help", "infer").stdout, run("automap-infer", "--help").stdout)

    def test_the_explorer_is_that_of_infer(self):
        model = (FIXTURES / "tiny_mlp.hlo", "--cluster", "config-a")
        explored = run("automap-search", "explore", *model, "--planner", "rollouts")
        self.assertEqual(explored.returncode, 0, explored.stderr)
        self.assertIn("The best of every kind of plan", explored.stdout)
        self.assertEqual(run("automap-search", "explore", "--help").stdout, run("automap-infer", "--help").stdout)
        self.assert_fails(run("automap-search", "explore", "nothing.hlo", "--cluster", "config-a"), 3, "nothing.hlo")

    def test_unknown_commands(self):
        self.assert_fails(run("automap", "inferr"), 2, "unknown command inferr", "did you mean infer?")
        self.assert_fails(run("automap", "xyzzy"), 2, "profile, infer, search, emit, compare, inspect")
        self.assert_fails(run("automap", "--frob"), 2, "unknown option --frob")
        self.assert_fails(run("automap"), 2, "missing command")
        self.assert_fails(run("automap", ""), 2, "missing command")

    def test_finds_the_programs_beside_itself_or_in_path(self):
        alone = self.folder / "automap"
        shutil.copy2(BIN / "automap", alone)
        env = environment()
        result = subprocess.run([alone, "infer", "--version"], env=env, capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        env["PATH"] = str(self.folder)
        result = subprocess.run([alone, "infer", "--version"], env=env, capture_output=True, text=True)
        self.assertEqual(result.returncode, 3)
        self.assertIn("cannot run automap-infer", result.stderr)
        self.assertIn(f"it belongs into {alone.parent}", result.stderr)
        # The one that is left out of a build without LibTorch.
        result = subprocess.run([alone, "train", "--version"], env=env, capture_output=True, text=True)
        self.assertEqual(result.returncode, 3)
        self.assertIn("cannot run automap-train", result.stderr)
        self.assertIn("apt-get install libtorch-dev libopenblas0-openmp", result.stderr)

    def test_apply_plan_is_a_script(self):
        result = run("automap", "apply-plan", "--plan", self.folder / "none.json", "--step", "x.py:y")
        self.assertEqual((result.returncode, result.stdout), (3, ""))
        self.assertRegex(result.stderr, r"^automap-apply-plan: .*none.json")
        self.assertTrue(run("automap", "help", "apply-plan").stdout.startswith("usage: automap-apply-plan "))


class EveryProgram(ProgramTest):
    def test_version(self):
        for program in PROGRAMS:
            result = run(program, "--version")
            self.assertEqual(result.returncode, 0)
            self.assertRegex(result.stdout, rf"^{program}: AutoMap \d+\.\d+\.\d+ \(git .+, .+\)\nbuilt with HDF5 [^\n]+; (no )?polic[^\n]+\n[^\n]+\n$")
        self.assertRegex(run("automap-search", "opp", "--version").stdout, r"^automap-search opp: AutoMap ")

    def test_version_says_whether_what_learns_is_there(self):
        alone = self.folder / "bin"
        alone.mkdir()
        for program in ("automap", "automap-infer"):
            shutil.copy2(BIN / program, alone / program)
            says = subprocess.run([alone / program, "--version"], capture_output=True, text=True, env=environment()).stdout
            self.assertTrue(says.splitlines()[2].startswith("nothing that learns: no libautomap_learned.so"), says)
            (alone / "libautomap_learned.so").touch()
            says = subprocess.run([alone / program, "--version"], capture_output=True, text=True, env=environment()).stdout
            self.assertEqual(says.splitlines()[2], f"what learns (LibTorch): {alone / 'libautomap_learned.so'}")
            (alone / "libautomap_learned.so").unlink()

    def test_help_names_every_option_once(self):
        for program in TABLES:
            usual, everything = run(*program, "--help").stdout, run(*program, "--help-all").stdout
            self.assertLess(usual.index("Examples:"), usual.index("Usage:"))
            for option in ("--json", "--config FILE", "--dump-config", "--version", "-q, --quiet", "-v, --verbose"):
                self.assertEqual(everything.count(f"\n  {option} "), 1, (program, option))
            for line in everything.splitlines():
                self.assertLessEqual(len(line), 110, (program, line))

    def test_usual_help_is_short(self):
        for program, most in (("automap-train", 25), ("automap-infer", 40)):
            options = re.findall(r"^  (?:-\w, )?--\w", run(program, "--help").stdout, flags=re.M)
            self.assertLessEqual(len(options), most, program)

    def test_help_goes_where_it_is_piped(self):
        # The reader takes one line and leaves: no complaint, no crash.
        for program in PROGRAMS:
            command = f"'{BIN / program}' --help-all | head -n 1; exit ${{PIPESTATUS[0]}}" if program != "automap" else f"'{BIN / program}' --help | head -n 1"
            result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment())
            self.assertEqual((result.returncode, result.stderr), (0, ""), program)

    def test_dumped_configuration_is_a_configuration(self):
        for program in TABLES:
            dumped = run(*program, "--dump-config").stdout
            path = self.put("run.ini", dumped)
            # A program with a --config of its own reads options from --options.
            option = "--options" if "\n  --options FILE " in run(*program, "--help").stdout else "--config"
            again = run(*program, option, path, "--dump-config")
            self.assertEqual(again.returncode, 0, again.stderr)
            strip = lambda text: [line.split("  # ")[0] for line in text.splitlines()]
            self.assertEqual(strip(again.stdout), strip(dumped))

    def test_full_disk_and_closed_output(self):
        for program in PROGRAMS:
            for redirect, reason in ((">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")):
                result = subprocess.run(["bash", "-c", f"'{BIN / program}' --help {redirect}"], capture_output=True, text=True,
                                        env=environment())
                self.assertEqual(result.returncode, 3, (program, redirect))
                self.assertIn(f"cannot write to standard output: {reason}", result.stderr)



class Shells(ProgramTest):
    """Manual pages and completion, which programs make of their tables of options."""

    def words(self, *program):
        result = run(*program, "--help-as", "words")
        self.assertEqual((result.returncode, result.stderr), (0, ""), program)
        return [line.split("\t") for line in result.stdout.splitlines()]

    def test_words_are_the_options(self):
        for program in TABLES:
            options = [row[1] for row in self.words(*program) if row[0] == "option"]
            listed = re.findall(r"(?m)^  (?:-\w, )?(--[\w-]+)", run(*program, "--help-all").stdout)
            self.assertEqual(sorted(options), sorted(listed), program)
        rows = {row[1]: row for row in self.words("automap-infer")}
        self.assertEqual(rows["--recompute"][3:5], ["text", "auto none layer"])
        self.assertEqual(rows["--memory"][4], "on off")
        self.assertEqual(rows["--output"][2:4], ["-o", "file"])
        self.assertIn("h100-4x8", rows["--cluster"][4].split())
        self.assertIn("llama3-8b", rows["INPUT"][4].split())
        self.assertEqual([row[1] for row in self.words("automap-search")][:2], ["opp", "adp"])
        self.assert_fails(run("automap-infer", "--help-as", "html"), 2, "found 'html', expected man or words")
        self.assert_fails(run("automap", "--help-as", "html"), 2, "found 'html', expected man or words")

    def test_manual_pages(self):
        for program in (*TABLES, ("automap",), ("automap-search",)):
            page = run(*program, "--help-as", "man").stdout
            name = "-".join(program)
            self.assertTrue(page.startswith(f'.TH {name.upper()} 1 "" "AutoMap '), page[:80])
            for row in self.words(*program):
                shown = row[1].replace("-", "\\-")
                if row[0] == "option":
                    self.assertEqual(page.count(f"\\fB{shown}\\fR"), 1, (name, shown))
                self.assertIn(shown, page)
            requests = re.findall(r"(?m)^[.'](\w+)", page)
            self.assertLessEqual(set(requests), {"TH", "SH", "SS", "TP"}, name)
        if shutil.which("groff"):
            page = run("automap-infer", "--help-as", "man").stdout
            result = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-Wbreak"], input=page, capture_output=True, text=True)
            self.assertEqual((result.returncode, [line for line in result.stderr.splitlines() if "adjust" not in line]), (0, []))

    def completed(self, *words):
        """What bash offers for the last word."""
        quoted = " ".join(f"'{word}'" for word in words)
        script = (f". '{BIN}/completions/bash/automap'; COMP_WORDS=({quoted}) COMP_CWORD={len(words) - 1}; _automap; "
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment(), cwd=self.folder)
        self.assertEqual(result.stderr, "", words)
        return result.stdout.split("\n")[:-1]

    def test_bash(self):
        self.put("model.hlo", "")
        (self.folder / "data").mkdir()
        self.assertEqual(self.completed("automap", "inf"), ["infer"])
        self.assertEqual(self.completed("automap-infer", "--clus"), ["--cluster"])
        self.assertEqual(self.completed("automap", "infer", "--clus"), ["--cluster"])
        self.assertIn("h100-4x8", self.completed("automap-infer", "model.hlo", "--cluster", "h100-4"))
        self.assertEqual(self.completed("automap-infer", "--recompute", ""), ["auto", "none", "layer"])
        self.assertEqual(self.completed("automap-infer", "--recompute", "=", "l"), ["layer"])
        self.assertEqual(self.completed("automap-infer", "-o", "mod"), ["model.hlo"])
        self.assertEqual(self.completed("automap-infer", "mod"), ["model.hlo"])
        self.assertEqual(self.completed("automap-infer", "llama3-70"), ["llama3-70b"])
        self.assertEqual(self.completed("automap", "search", "op"), ["opp"])
        self.assertEqual(self.completed("automap", "search", "opp", "--shar"), ["--shards"])
        self.assertEqual(self.completed("automap-search", "opp", "mod"), ["model.hlo"])
        # A script has no table: files.
        self.assertEqual(self.completed("automap", "run", "da"), ["data"])

    def test_zsh_can_read_its_file(self):
        if shutil.which("zsh") is None:
            self.skipTest("no zsh")
        result = subprocess.run(["zsh", "-n", BIN / "completions" / "zsh" / "_automap"], capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
