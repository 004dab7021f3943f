"""What hints, messages and documents tell people to type exists: programs, commands of `automap` and `automap-search`,
and every --option, by a scan of string literals and documents against --help-all."""

import json
import re
import unittest
from pathlib import Path

from programs import BIN, SOURCE, ProgramTest, run

ROOMS = sorted({room["folder"].split("/")[0] for room in json.loads((SOURCE / "cmake/rooms.json").read_text())["rooms"]})
PROGRAMS = ["automap-profile", "automap-infer", "automap-search", "automap-compare", "automap-inspect", "automap-datagen", "automap-train", "automap-emit"]
SEARCH_COMMANDS = ["opp", "adp", "apply", "propagate", "explain", "placement", "soap", "heuristics"]
SCRIPTS = {"automap-apply-plan": "scripts/apply_plan.py", "automap-emit-sdy": "scripts/emit_sdy.py", "automap-run": "python/automap/command.py",
           "automap-from-stablehlo": "python/automap/stablehlo.py", "automap-export-torch": "python/automap/export_torch.py"}
# Named like programs, and are none: packages of CMake and of Debian, names of files.
OTHER_NAMES = {"automap-config", "automap-targets", "automap-output", "automap-cli", "automap-plan", "automap-trainer"}
# Options of XLA, TensorBoard, and of the frameworks and launchers that automap-emit writes for.
# Custom properties of style sheets.
STYLE = re.compile(r"--[a-z]+:(?=\S)|var\(--[a-z]+")
FOREIGN = re.compile(r"--(xla_\w+|use_spmd_partitioning|num_partitions|logdir|nnodes|nproc-per-node|node-rank|master-addr|include|rdzv-\w+|num-layers"
                     r"|deepspeed(_config)?|num_nodes|num_gpus|(job|parallelism|training|activation_checkpoint)\.\w*"
                     r"|(tensor|pipeline)-model-parallel-\w+|(micro|global)-batch-size|sequence-parallel|overlap-grad-reduce"
                     r"|use-(distributed-optimizer|megatron-fsdp)|data-parallel-sharding-strategy|recompute-\w+|ckpt-format"
                     r"|no-gradient-accumulation-fusion"
                     r"|num-(layers|attention-heads|query-groups|experts)|((moe-)?ffn-)?hidden-size|(attention|hidden)-dropout|group-query-attention|kv-channels"
                     r"|use-rotary-position-embeddings|position-embedding-type|disable-bias-linear|add-qkv-bias|swiglu|bf16|fp16"
                     r"|moe-router-topk|normalization|untie-embeddings-and-output-weights|(vocab-size|max-position-embeddings))(?![\w-])")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9_-]*[a-z0-9])")
# Also other scripts, whose options are theirs.
COMMAND = re.compile(r"\bautomap(?:-|[ ](?=[a-z]))([a-z]+(?:-[a-z]+)*)|[\w/]+\.(?:sh|py)\b|\b(?:cmake|ctest|git|pip)\b")


def literals(text):
    """String literals of C++, adjacent ones joined; comments and raw strings are left out."""
    text = re.sub(r"(?m)^\s*(//|#include).*$|\s//\s.*$", "", text)
    text = re.sub(r'R"(\w*)\(.*?\)\1"', '""', text, flags=re.DOTALL)
    out, end = [], None
    for match in LITERAL.finditer(text):
        if end is not None and not text[end:match.start()].strip():
            out[-1] += match.group(1)
        else:
            out.append(match.group(1))
        end = match.end()
    return [re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m.group(1), m.group(1)), literal) for literal in out]


def code_of(markdown):
    """Spans in backquotes and lines of code."""
    spans, text = [], []
    fenced = False
    for line in markdown.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            spans.append(line)
        else:
            text.append(line)
    return spans + [re.sub(r"\s+", " ", span) for span in re.findall(r"`([^`]+)`", "\n".join(text))]


class Hints(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.built = [p for p in PROGRAMS if (BIN / p).exists()]
        cls.options = {}
        for program in cls.built:
            calls = [(program, c) for c in SEARCH_COMMANDS] if program == "automap-search" else [(program,)]
            for call in calls:
                listed = set(OPTION.findall(run(*call, "--help-all").stdout))
                cls.options[call] = listed
                cls.options[(program,)] = cls.options.get((program,), set()) | listed
        for script, file in SCRIPTS.items():
            text = (SOURCE / file).read_text()
            cls.options[(script,)] = set(re.findall(r'add_argument\((?:"-\w", )?"--([a-z-]+)"', text)) | {"help"}
        cls.every = set().union(*cls.options.values()) | {"version", "help", "help-as"}

    def test_the_scan_finds_what_there_is(self):
        self.assertEqual(literals('f("a \\"b\\""\n  " c", "d");  // "e"'), ['a "b" c', "d"])
        self.assertEqual(code_of("x `a\nb` y\n\n    c\n```\nd\n```\n"), ["    c", "d", "a b"])
        self.assertEqual(self.wrong("run automap-infer MODEL --cluster C --clutser D"), ["--clutser of automap-infer"])
        self.assertEqual(self.wrong("automap-search opp M --shards 8 --set a=1"), ["--set of automap-search opp"])
        self.assertEqual(self.wrong("automap profile M --json | automap infer - --stages 2 --rows 3"), ["--rows of automap-infer"])
        self.assertEqual(self.wrong("automap-frob x; automap frob y"), ["automap-frob", "automap-frob"])
        self.assertEqual(self.wrong("no such --frobnicate"), ["--frobnicate"])
        self.assertEqual(self.wrong("svg{--ink:#000}text{fill:var(--ink)} --pink: no"), ["--pink"])
        self.assertEqual(self.wrong("scripts/install_dependencies.sh --train and automap-infer (--json) or --version"), [])

    def wrong(self, text, lone=True):
        """What `text` names that does not exist. An option belongs to the program before it, up to the end of a command;
        one without a program (looked at when `lone`) is of any."""
        found = []
        text = STYLE.sub("", text)
        for part in re.split(r"[|;&)\n]|\.\s", text):
            at, call = 0, None
            for match in [*COMMAND.finditer(part), None]:
                until = match.start() if match else len(part)
                for option in OPTION.findall(FOREIGN.sub("", part[at:until])):
                    if call == ():
                        continue
                    if call is None:
                        if lone and option not in self.every:
                            found.append(f"--{option}")
                    elif call[0] in [*self.built, *SCRIPTS] and option not in self.options[call]:
                        found.append(f"--{option} of {' '.join(call)}")
                if match is None:
                    break
                name = f"automap-{match.group(1)}"
                at, call = match.end(), (name,)
                if match.group(1) is None:
                    call = ()
                elif name not in [*PROGRAMS, *SCRIPTS, *OTHER_NAMES]:
                    found.append(name)
                    call = None
                elif name in OTHER_NAMES:
                    call = None
                elif name == "automap-search":
                    command = re.match(r"\s+([a-z]+)\b", part[at:])
                    if command and command.group(1) in SEARCH_COMMANDS:
                        call = (name, command.group(1))
        return found

    def check(self, texts, lone):
        for where, text in texts:
            with self.subTest(where=where, text=text):
                self.assertEqual(self.wrong(text, lone), [])

    def test_messages(self):
        texts = []
        for room in ROOMS:
            for path in sorted((SOURCE / room).rglob("*")):
                if path.suffix in (".cpp", ".h"):
                    texts += [(str(path.relative_to(SOURCE)), literal) for literal in literals(path.read_text())]
        texts = [(where, text) for where, text in texts if "automap" in text or "--" in text]
        self.assertGreater(len(texts), 100)
        self.check(texts, lone=True)

    def test_documents(self):
        texts = []
        for path in [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", *sorted((SOURCE / "docs").rglob("*.md"))]:
            texts += [(str(path.relative_to(SOURCE)), code) for code in code_of(path.read_text())]
        texts = [(where, text) for where, text in texts if "automap" in text]
        self.assertGreater(len(texts), 100)
        self.check(texts, lone=False)


if __name__ == "__main__":
    unittest.main()
