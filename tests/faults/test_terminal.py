"""Names, options and files that try to act on the terminal or to look like lines of ours (common/base/printable.h).

Every kind of text from outside is given every payload; what the programs print must hold no control but line ends, no
C1, nothing that reorders or hides characters, no line that the payload forged, and the escaped form must be there to
see. JSON must hold the exact value.
"""

import ast
import gzip
import json
import os
import re
import subprocess
import unicodedata
import unittest
import xml.etree.ElementTree

from faults import rounds

from policies import policy
from programs import BIN, FIXTURES, TIMEOUT_S, ProgramTest, environment, profile_csv

FORGED = "error: forged"
LAYER = r"(?<!_)dense_1(?!_)"  # in op_names, not in names of instructions
# Valid UTF-8 first: those JSON can hold.
PAYLOADS = ["\x1b]0;owned\x07", "\x1b[2J", "\u009b31m", "\u202egnp", "\r" + FORGED, "\n" + FORGED, "\n  hint: " + FORGED,
            "\x7f", "\u2028" + FORGED, "\u2066x\u2069", "\u200b\ufeff", "\U000e0041", "\t"]
NO_UTF8 = [b"\xff\x9b31m", b"\xe2\x80", b"\xc0\x8a" + FORGED.encode()]
SHORT = ["\x1bc", "\u009b31m\u202egnp", "\n" + FORGED]  # where names are cut to fit a column

# All at once, where nothing is cut; one by one in the long tests.
TEXT = rounds(["-".join(PAYLOADS)], PAYLOADS)
BYTES = rounds([b"-".join(NO_UTF8)], NO_UTF8)
CUT = rounds(SHORT, PAYLOADS)
LAYERS = [payload.replace("[", "") for payload in CUT]  # brackets part the names of layers


def raw(text):
    return text if isinstance(text, bytes) else text.encode()


def shown(text):
    """What printable() makes of a payload, written another way: by Unicode's categories."""
    out = ""
    for c in raw(text).decode("utf-8", "surrogateescape"):
        code = ord(c)
        if 0xDC80 <= code <= 0xDCFF:
            out += f"\\x{code - 0xDC00:02x}"
        elif c in "\n\r\t":
            out += {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[c]
        elif unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp"):
            out += f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
        else:
            out += c
    return out


def json_quoted(text):
    return json.dumps(text, ensure_ascii=False)[1:-1] if isinstance(text, str) else text


def hlo_escape(text):
    """In a string of HLO text: bytes outside ASCII's printable range in octal, as XLA prints them."""
    return "".join(chr(b) if 0x20 <= b < 0x7F and b not in b"\"\\'" else f"\\{b:03o}" for b in raw(text))


class Terminal(ProgramTest):
    def run_raw(self, *command, stdin=None, env=None):
        command = [str(BIN / command[0]).encode()] + [raw(c if isinstance(c, (str, bytes)) else str(c)) for c in command[1:]]
        return subprocess.run(command, input=stdin, cwd=os.fsencode(self.folder), env=env or environment(),
                              capture_output=True, timeout=TIMEOUT_S)

    def assert_harmless(self, output, command):
        try:
            text = output.decode()
        except UnicodeDecodeError as error:
            self.fail(f"{command}: no UTF-8: {error}: {output!r}")
        for c in text:
            if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp"):
                self.fail(f"{command}: U+{ord(c):04X} in {text!r}")
        for line in text.split("\n"):
            self.assertFalse(line.startswith((FORGED, "  hint: " + FORGED)), f"{command}: a forged line in\n{text}")
        return text

    def check(self, payload, *command, codes=(0,), see=True, stdin=None, env=None):
        """Runs it and gives standard output and error, which are harmless and (`see`) show the payload escaped."""
        result = self.run_raw(*command, stdin=stdin, env=env)
        out = self.assert_harmless(result.stdout, result.args)
        err = self.assert_harmless(result.stderr, result.args)
        self.assertIn(result.returncode, codes, f"{result.args}\n{out}\n{err}")
        if see:
            # As it is, or where a value of JSON is quoted.
            found = shown(payload) in out + err or shown(json_quoted(payload)) in out + err
            self.assertTrue(found, f"{shown(payload)!r}: {result.args}\n{out}\n{err}")
        return out, err

    def check_json(self, payload, *command, codes=(0,), **options):
        """The same with --json: harmless, and a JSON document whose strings hold the exact payload."""
        out, _ = self.check(payload, *command, "--json", codes=codes, see=False, **options)
        document = json.loads(out)
        self.assertIn(payload, "\0".join(strings_of(document)), out)
        return document


def strings_of(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings_of(item)


class Arguments(Terminal):
    PROGRAMS = ["automap", "automap-infer", "automap-inspect", "automap-profile", "automap-search", "automap-datagen",
                "automap-train"]

    def setUp(self):
        super().setUp()
        self.programs = [p for p in self.PROGRAMS if (BIN / p).exists()]
        self.assertGreaterEqual(len(self.programs), 6)

    def test_files_that_are_not_there_and_options_that_are_none(self):
        for payload in TEXT + BYTES:
            p = raw(payload)
            for program in self.programs:
                more = ["opp"] if program == "automap-search" else ["infer"] if program == "automap" else []
                cluster = ["--cluster", "config-a"] if program in ("automap-infer", "automap") else []
                if program not in ("automap-datagen", "automap-train"):
                    self.check(payload, program, *more, b"no" + p, *cluster, codes=(3,))
                self.check(payload, program, *more, b"--frob" + p, codes=(2,))
            self.check(payload, "automap", b"com" + p, codes=(2,))
            self.check(payload, "automap-search", b"com" + p, codes=(2,))
            self.check(payload, "automap-datagen", "--preview", b"1" + p, codes=(2,))
            self.check(payload, "automap-datagen", "--preview", "1", "--config", b"./no" + p, codes=(2, 3))
            self.check(payload, "automap-infer", "x.csv", "--cluster", b"no" + p, codes=(2,))
            self.check(payload, "automap-infer", "x.csv", "--cluster", b"config-a", "--schedule", p, codes=(2,))
            self.check(payload, "automap-infer", "x.csv", "--cluster", b"config-a", "--config", b"no" + p, codes=(3,))

    def test_errors_as_json(self):
        for payload in TEXT:
            out, err = self.check(payload, "automap-inspect", "no" + payload, "--json", codes=(3,))
            error = json.loads(out)["error"]
            # A sentence for people, the same as on standard error.
            self.assertIn(shown(payload), error["message"])
            self.assertTrue(err.startswith("error: " + error["message"] + "\n"), err)

    def test_environment_variables(self):
        for payload in TEXT + BYTES:
            env = {os.fsencode(k): os.fsencode(v) for k, v in environment().items()}
            self.check(payload, "automap-datagen", "--preview", "1", codes=(2,),
                       env={**env, b"AUTOMAP_DATAGEN_RO" + raw(payload): b"1"})
            self.check(payload, "automap-datagen", "--preview", "1", codes=(2,),
                       env={**env, b"AUTOMAP_DATAGEN_ROWS": b"1" + raw(payload)})

    def test_files_of_options(self):
        for payload in PAYLOADS + NO_UTF8:
            p = raw(payload)
            one_line = b"\n" not in p
            name = b"options" + p
            (self.folder / os.fsdecode(name)).write_bytes(b"preview = x\n")
            self.check(payload, "automap-datagen", "--config", "small", "--options", name, codes=(2,))
            if one_line:
                for line in (b"pre" + p + b"view = 1", b"preview = 1" + p + b"1", b"no equals" + p + b"sign"):
                    self.check(payload, "automap-datagen", "--options", self.put("options.ini", line), codes=(2,))
            if not isinstance(payload, bytes):
                for document in ({"pre" + payload: 1}, {"preview": "1" + payload + "1"}, {"preview": {payload: 1}}):
                    self.check(payload, "automap-datagen", "--options", self.put("o.json", json.dumps(document)),
                               codes=(2,), see="preview" not in document or isinstance(document["preview"], str))
            self.check(payload, "automap-datagen", "--options", self.put("o.json", b'{"a" ' + p), codes=(2,), see=False)

    def test_dumped_options_are_options(self):
        # Exact for --config, and no value can bring options of its own.
        out = self.run_raw("automap-infer", "--device", "a\u202eb", "--dump-config").stdout.decode()
        self.assertIn("device = a\u202eb ", out)
        for line_end in ("\n", "\r", "\r\n"):
            out = self.run_raw("automap-infer", "--device", f"a{line_end}grid = 7", "--dump-config").stdout.decode()
            self.assertNotRegex(out, r"(?m)^grid = 7")
            self.assertNotIn("\r", out)
            again = self.run_raw("automap-infer", "--config", self.put("dumped.ini", out), "--dump-config")
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertRegex(again.stdout.decode(), r"(?m)^grid = 128 ")
        name = "o\ngrid = 7\n.ini"
        (self.folder / name).write_text("max-stages = 4\n")
        self.assertNotRegex(self.run_raw("automap-infer", "--config", name, "--dump-config").stdout.decode(), r"(?m)^grid = 7")


class Models(Terminal):
    def modules(self, payload):
        """The smallest fixture as HLO text, JSON and binary protobuf, with the payload in its names."""
        for name, module, escaped in (
            ("m.hlo", (FIXTURES / "tiny_mlp.hlo").read_text(), hlo_escape(payload)),
            ("m.json", gzip.decompress((FIXTURES / "tiny_mlp.json.gz").read_bytes()).decode(), json.dumps(payload)[1:-1]),
        ):
            renamed, count = re.subn(LAYER, lambda match: escaped + match.group(), module)
            self.assertGreater(count, 5)
            yield self.put(name, renamed)

    def test_layers_and_parameters(self):
        for payload in LAYERS:
            for module in self.modules(payload):
                self.check(payload, "automap-inspect", module)
                self.check_json(payload, "automap-inspect", module)
                self.check(payload, "automap-profile", module)
                self.check_json(payload, "automap-profile", module)
                self.check(payload, "automap-infer", module, "--cluster", "config-a", "--stages", "2", "--time-limit", "0.1",
                           see=len(shown(payload)) < 20)
                self.check_json(payload, "automap-infer", module, "--cluster", "config-a", "--stages", "2",
                                "--time-limit", "0.1")

    def test_tensors(self):
        for payload in LAYERS:
            module = next(self.modules(payload))
            name = f"params/{payload}dense_1/kernel"
            search = ["automap-search"]
            for command in (["propagate", module, "--shards", "2", "--set", name + "=1"],
                            ["propagate", module, "--shards", "2", "--set", name + "x=1"]):
                self.check(payload, *search, *command, codes=(0, 2))
            self.check_json(payload, *search, "propagate", module, "--shards", "2", "--set", name + "=1")
            self.check(payload, *search, "opp", module, "--shards", "2", "-o", "plan.json", "--emit-jax", "specs.py")
            self.check_json(payload, *search, "opp", module, "--shards", "2")
            self.check(payload, *search, "explain", module, "--plan", "plan.json")
            self.check(payload, *search, "explain", module, "--plan", "plan.json", name)
            self.check_json(payload, *search, "explain", module, "--plan", "plan.json", name)
            self.check(payload, *search, "explain", module, "--plan", "plan.json", name + "x", codes=(2,))
            self.check(payload, "automap-inspect", "plan.json")
            self.check_json(payload, "automap-inspect", "plan.json")
            # What is written is harmless to look at, and exact.
            specs = self.assert_harmless((self.folder / "specs.py").read_bytes(), "specs.py")
            written = [node.value for node in ast.walk(ast.parse(specs)) if isinstance(node, ast.Constant)]
            self.assertIn(name, written)
            plan = json.loads(self.assert_harmless((self.folder / "plan.json").read_bytes(), "plan.json"))
            self.assertIn(payload, "\0".join(strings_of(plan)))
            # Names in a plan that this model does not have.
            plan["partition"] = {"no" + payload: 0}
            plan["inputs"] = []
            self.check(payload, *search, "apply", module, "--plan", self.put("other.json", json.dumps(plan)), "--emit-hlo",
                       "x.hlo", codes=(3,))

    def test_a_binary_module(self):
        data = gzip.decompress((FIXTURES / "tiny_mlp.pb.gz").read_bytes())
        for payload in ("\x1bc", "\u009b31m", "\u202egn", "\nerror", "\x7f"):
            padded = raw(payload)[:6] + b"_" * (6 - len(raw(payload))) + b"1"
            self.assertGreater(data.count(b"dense_1"), 5)
            module = self.put("m.pb", data.replace(b"dense_1", padded))
            text = padded.decode()
            self.check(text, "automap-inspect", module)
            self.check_json(text, "automap-inspect", module)

    def test_bytes_that_are_no_utf8(self):
        for payload in NO_UTF8:
            text = (FIXTURES / "tiny_mlp.hlo").read_bytes()
            module = self.put("m.hlo", re.sub(LAYER.encode(), lambda match: payload + match.group(), text))
            self.check(payload, "automap-inspect", module)
            out, _ = self.check(payload, "automap-inspect", module, "--json", see=False)
            json.loads(out)

    def test_lines_quoted_by_the_parsers(self):
        text = (FIXTURES / "tiny_mlp.hlo").read_text()
        for payload in PAYLOADS + NO_UTF8:
            p = raw(payload)
            if b"\n" in p or payload in ("\r" + FORGED, "\t"):  # blanks between the tokens of HLO
                continue
            broken = text.encode().replace(b"parameter(0)", b"parameter(0) " + p + b" ", 1)
            self.check(payload, "automap-inspect", self.put("b.hlo", broken), codes=(3,))
        for payload in TEXT + BYTES:
            p = raw(payload)
            for name, content in (("b.json", b'{"hloModule": ' + p + b"}"), ("b.pbtxt", b"hlo_module { name: " + p + b" }"),
                                  ("b.csv", b"c_ms,a_bytes,w_bytes,stash_bytes\n1,2,3" + p + b",4\n"),
                                  ("c.csv", b"c_ms,a_bytes,w_bytes,stash_bytes," + p + b"\n1,2,3,4,5\n"),
                                  ("cluster.json", b'{"servers": ["' + p + b'"]}'),
                                  ("graph.txt", b"node1 -- " + p + b" -- forward=1\n"), ("any", p * 20)):
                self.check(payload, "automap-inspect", self.put(name, content), codes=(0, 2, 3), see=False)

    def test_cut_off_text_stays_whole(self):
        # The quoted part ends somewhere in the payload, at every place.
        for payload in ("\u202e" * 30, "é" * 80, "\x1b[31m" * 12):
            for before in rounds(range(0, 6), range(0, 60)):
                text = f"c_ms,a_bytes,w_bytes,stash_bytes\n1,2,3,{'x' * before}{payload}\n"
                _, err = self.check("", "automap-inspect", self.put("cut.csv", text), codes=(3,))
                self.assertIn("…", err)
                for escape in re.findall(r"\\.{0,5}", err):
                    self.assertRegex(escape, r"^\\(x[0-9a-f]{2}|u[0-9a-f]{4})")


class Profiles(Terminal):
    def csv(self, payload):
        quoted = ('"' + payload.replace('"', '""') + '"')
        rows = profile_csv(8, name=[f"add.{i}" for i in range(8)], layer=[quoted] * 4 + ["b"] * 4)
        return self.put("p.csv", rows)

    def test_layers_of_a_csv(self):
        for payload in CUT:
            path = self.csv("l" + payload)
            self.check(payload, "automap-inspect", path, see=False)
            self.check_json(payload, "automap-inspect", path)
            infer = ["automap-infer", path, "--cluster", "config-a", "--stages", "2", "--time-limit", "0.1"]
            self.check(payload, *infer, "-o", "plan.json", see=len(shown(payload)) < 24)
            self.check_json(payload, *infer)
            self.check(payload, "automap-inspect", "plan.json")

    def test_the_line_to_paste_into_python(self):
        name = "h/0\"): SplitPoint.END}; print('owned')  # \u202e"
        layers = [f'"{name.replace(chr(34), chr(34) * 2)}/{i // 2}"' for i in range(16)]
        path = self.put("p.csv", profile_csv(16, layer=layers))
        out, _ = self.check("", "automap-infer", path, "--cluster", "config-a", "--stages", "2", "--time-limit", "0.1", "--details")
        # Nothing to paste where a name is no path of a module.
        self.assertNotIn("split_spec = ", out)
        self.assertIn("is no module's path", out)

    def test_clusters_and_devices(self):
        profile = self.put("p.csv", profile_csv(8))
        for payload in CUT:
            device = "D" + payload
            document = {"schema": "automap.cluster/1", "name": "C" + payload,
                        "servers": [{"count": 2, "devices": 2, "intra_gbytes_per_s": 100, "inter_gbytes_per_s": 10,
                                     "device": device}],
                        "devices": {device: {"memory_gib": 16, "relative_speed": 1}}}
            path = self.put("c.json", json.dumps(document))
            self.check(payload, "automap-inspect", path)
            self.check_json(payload, "automap-inspect", path)
            self.check(payload, "automap-infer", profile, "--cluster", path, "--time-limit", "0.1")
            self.check_json(payload, "automap-infer", profile, "--cluster", path, "--time-limit", "0.1")
            document["servers"][0]["device"] = "other" + payload
            self.check(payload, "automap-inspect", self.put("c.json", json.dumps(document)), codes=(2, 3))
            document[payload] = 1
            self.check(payload, "automap-inspect", self.put("c.json", json.dumps(document)), codes=(2, 3))
            self.check(payload, "automap-profile", FIXTURES / "tiny_mlp.hlo", "--device", device, codes=(2, 3))

    def test_names_of_files_that_are_there(self):
        text = (FIXTURES / "tiny_mlp.hlo").read_bytes()
        for payload in CUT + NO_UTF8:
            name = b"m" + raw(payload) + b".hlo"
            (self.folder / os.fsdecode(name)).write_bytes(text)
            self.check(payload, "automap-inspect", name)
            self.check(payload, "automap-profile", name, "-o", b"out" + raw(payload) + b".csv", see=False)
            self.check(payload, "automap-inspect", b"out" + raw(payload) + b".csv")
            self.check(payload, "automap-search", "adp", name, "--shards", "2", see=False)
            if not isinstance(payload, bytes):
                self.check_json(payload, "automap-inspect", name)

    def test_policies(self):
        for payload in CUT:
            provenance = json.dumps({"made" + payload: "by" + payload}).encode()
            path = self.put("a.policy", policy(provenance=provenance))
            self.check(payload, "automap-inspect", path)
            self.check_json(payload, "automap-inspect", path)


class Datasets(Terminal):
    def test_folders_pictures_and_manifests(self):
        for payload in CUT + NO_UTF8[:1]:
            folder = b"d" + raw(payload)
            self.check(payload, "automap-datagen", "--rows", "40", "--config", "small", "-o", folder)
            self.check(payload, "automap-inspect", folder, "--plot", "plot.svg")
            picture = (self.folder / "plot.svg").read_bytes()
            self.assert_harmless(picture, "plot.svg")
            root = xml.etree.ElementTree.fromstring(picture)
            self.assertIn(shown(payload), "".join(root.itertext()))
            # What a folder says about itself, in differences and descriptions. Without shards nothing else is looked at.
            path = self.folder / os.fsdecode(folder) / "dataset.json"
            document = json.loads(path.read_text())
            text = payload if isinstance(payload, str) else "\x1b[2J"
            document["shards"] = []
            del document["manifest_crc32c"]  # as older versions wrote it
            document["schema"], _ = "automap.caw/2", document.pop("shards_sha256")
            document["generator"] = "G" + text
            document["config"]["name"] = "N" + text
            path.write_text(json.dumps(document))
            self.check(text, "automap-inspect", folder)
            self.check_json(text, "automap-inspect", folder)
            self.check(text, "automap-datagen", "--rows", "40", "--config", "small", "-o", folder, codes=(2, 3))
            document["distributions"] = {"a" + text: 1}
            path.write_text(json.dumps(document))
            self.check(text, "automap-inspect", folder, codes=(3,))

    def test_configurations(self):
        for payload in PAYLOADS:
            for document in ({"name": "x", payload: 1}, {"families": {payload: 1}}, {"cluster": {"devices": payload}},
                             {"rows": {payload: [1, 2]}}):
                self.check(payload, "automap-datagen", "--preview", "1", "--config",
                           self.put("c.json", json.dumps(document)), codes=(2,))


@unittest.skipUnless((BIN / "automap-train").exists(), "automap-train was built without LibTorch")
class Training(Terminal):
    def test_what_is_given_to_training(self):
        for payload in TEXT + BYTES:
            p = raw(payload)
            self.check(payload, "automap-train", "--compare", b"a" + p, b"b" + p, codes=(3,))
            self.check(payload, "automap-train", "--out", "run", "--init", b"a" + p, codes=(3,))
            self.check(payload, "automap-train", "--out", "run", "--data", b"a" + p, codes=(2, 3))

    def test_a_run(self):
        payload = "\x1b[2J\u009b\u202e\n" + FORGED
        out = "run" + payload
        self.check(payload, "automap-train", "--out", out, "--episodes", "40", "--hidden", "8", "--round-episodes", "32",
                   "--batch-size", "16", "--evaluate-small", "3", "--evaluate-middle", "0", "--evaluate-deep", "0",
                   "--label-fraction", "0", "--threads", "1")
        self.assert_harmless((self.folder / out / "report.md").read_bytes(), "report.md")
        config = (self.folder / out / "config.ini").read_text()
        self.assertNotRegex(config, "(?m)^" + FORGED)


if __name__ == "__main__":
    unittest.main()
