"""Gzip bombs are refused at once and in little memory, whichever program reads them and from where."""

from faults import rounds

import gzip
import json
import os
import random
import subprocess
import sys
import unittest
import zlib

from programs import BIN, FIXTURES, SANITIZED, ProgramTest, environment, run

SIZE = 10_000_000  # bytes of each bomb
HEADER = gzip.compress(b"")[:10]


def repeat(piece, size=SIZE):
    return piece * (size // len(piece) + 1)


def blocks(data):
    """`data` in deflate blocks that mean the same wherever they stand."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH)


def bombs():
    text = b"  %add.1 = f32[8,128]{1,0} add(f32[8,128]{1,0} %a, f32[8,128]{1,0} %b)\n"
    noise = random.Random(1).randbytes(SIZE // 2)
    return {
        "zeros": HEADER + repeat(blocks(bytes(1 << 24))),
        "text": HEADER + repeat(blocks(text * 200000)),
        "members": repeat(gzip.compress(bytes(1 << 22))),
        "nested": gzip.compress(repeat(gzip.compress(bytes(1 << 22)), SIZE * 20), 9),
        "behind noise": HEADER + blocks(noise) + repeat(blocks(bytes(1 << 24)), SIZE // 2),
        "empty members": repeat(gzip.compress(b"")),
        "tiny members": repeat(gzip.compress(b"x")),
        "empty blocks": HEADER + repeat(b"\0\0\0\xff\xff"),
        "says nothing of its size": HEADER + repeat(blocks(bytes(1 << 24))) + b"\x03\0" + bytes(8),
    }


# A process begins with the peak of whoever started it, so that a small one has to.
HELPER = """import json, resource, subprocess, sys
result = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([result.returncode, result.stderr, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024]))
"""


def measured(command, stdin=None):
    """Exit code, standard error, seconds of CPU, peak bytes."""
    with open(stdin or os.devnull, "rb") as source:
        helper = subprocess.run([sys.executable, "-c", HELPER, str(BIN / command[0]), *map(str, command[1:])], stdin=source,
                                stdout=subprocess.PIPE, env=environment(), check=True)
    return json.loads(helper.stdout)


class Gzip(ProgramTest):
    def refuse(self, command, stdin=None):
        code, text, seconds, peak = measured(command, stdin)
        self.assertEqual(code, 3, text)
        self.assertRegex(text, "refused while expanding it|larger than")
        if not SANITIZED:
            # It takes 0.3 s; what it took without the limit was 23 s.
            self.assertLess(seconds, 2)
            self.assertLess(peak, 200e6)

    def test_every_bomb(self):
        for name, bomb in bombs().items():
            path = self.put("bomb.hlo.gz", bomb)
            with self.subTest(name):
                self.assertGreater(len(bomb), SIZE / 100)
                self.refuse(["automap-profile", path])

    def test_every_reader(self):
        bomb = self.put("bomb.gz", HEADER + repeat(blocks(bytes(1 << 24))))
        tiny = FIXTURES / "tiny_mlp.hlo"
        for command in (["automap-infer", bomb, "--cluster", "config-a"], ["automap-inspect", bomb],
                        ["automap-search", "opp", bomb], ["automap-search", "propagate", bomb],
                        ["automap-search", "explain", tiny, "--plan", bomb],
                        ["automap-search", "apply", tiny, "--plan", bomb, "--emit-jax", self.folder / "x"],
                        ["automap-profile", tiny, "--variables", bomb]):
            with self.subTest(command):
                self.refuse(command)
        self.refuse(["automap-infer", "-", "--cluster", "config-a"], stdin=bomb)
        self.assertEqual(self.leftovers(), ["bomb.gz"])

    def test_honest_files_are_read(self):
        text = (FIXTURES / "tiny_mlp.hlo").read_bytes()
        # A constant of zeros such as models have, in the comment that text may hold anywhere.
        for more in (b"", b"/* " + b"0, " * 20_000_000 + b"*/\n"):
            path = self.put("model.hlo.gz", gzip.compress(text + more, 6))
            result = run("automap-profile", path)
            self.assertEqual(result.returncode, 0, result.stderr)
        for level in (1, 9):
            path = self.put("model.hlo.gz", b"".join(gzip.compress(text[i:i + 1000], level) for i in range(0, len(text), 1000)))
            self.assertEqual(run("automap-profile", path).returncode, 0)

    def test_damage_is_named(self):
        whole = (FIXTURES / "gpt2.hlo.gz").read_bytes()
        chance = random.Random(7)
        for _ in range(rounds(4, 200)):
            damaged = bytearray(whole)
            for _ in range(chance.randint(1, 8)):
                damaged[chance.randrange(10, len(damaged))] ^= 1 << chance.randrange(8)
            path = self.put("model.hlo.gz", bytes(damaged))
            self.assert_fails(run("automap-profile", path), 3, "gzip stream")


if __name__ == "__main__":
    unittest.main()
