"""Policy files (docs/formats/policy.md) made without AutoMap: untrained, for tests of what reads them."""

import random
import re
import struct

from programs import SOURCE

MAGIC = b"automap.policy/1\n".ljust(24, b"\0")
_HEADER = (SOURCE / "models" / "features.h").read_text()
FEATURES = int(re.search(r"kFeatures = (\d+)", _HEADER).group(1))
FEATURE_VERSION = int(re.search(r"kFeatureVersion = (\d+)", _HEADER).group(1))


def _crc_table():
    table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    return table


_TABLE = _crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def with_checksum(body):
    return body + struct.pack("<I", crc32c(body))


def policy(hidden=(64, 64), features=FEATURES, feature_version=FEATURE_VERSION, family=0, head=1, actions=1, objective=0,
           magic=MAGIC, provenance=b"{}", weight=None, seed=1, spread=0.1):
    """A policy file with random weights of at most `spread` (or all of them `weight`)."""
    rng = random.Random(seed)
    sizes = [features, *hidden, actions]
    count = sum((a + 1) * b for a, b in zip(sizes, sizes[1:]))
    weights = [rng.uniform(-spread, spread) if weight is None else weight for _ in range(count)]
    body = magic + struct.pack("<5I2f5I", family, features, feature_version, head, 1, 0.0, 1.0, objective, actions, 0, 0,
                               len(hidden))
    body += struct.pack(f"<{len(hidden)}I", *hidden) + struct.pack("<I", len(provenance)) + provenance
    body += b"\0" * (-len(body) % 4) + struct.pack(f"<{count}f", *weights)
    return with_checksum(body)
