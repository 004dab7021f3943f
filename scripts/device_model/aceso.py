"""The measured operator tables of Aceso (microsoft/SuperScaler, V100-SXM2-32GB, PyTorch 1.12), one Row per operator.

A file {gpt,t5,resnet}_SIZE_mbsB_tpT_algoA.csv holds forward and backward times in microseconds of one device at micro-batch
B and width T, and sizes in MiB. Extents are read off the size columns of the file at width 1, never off the names of models.
gpt and t5 are f16, resnet is f32: only so do its activation columns (4 bytes per element) fit its weights.
"""

import csv
import dataclasses
import functools
import re
from pathlib import Path

MIB = 1 << 20
NAME = re.compile(r"^(gpt|t5|resnet)_(.+)_mbs(\d+)_tp(\d+)_algo(\d)\.csv$")
SIZES = ("input_size", "output_size", "weights", "activations", "fwd_reserved", "bwd_reserved")
DECODER_LENGTH = 512  # of t5; corpus README
LENGTH = 2048
IMAGE = 224


@dataclasses.dataclass(frozen=True)
class Spec:
    """An operator with its local extents; equal specs are one module."""

    kind: str  # a function of operators.py
    extents: tuple  # ((name, value), ...)

    @property
    def name(self):
        return self.kind + "".join(f"-{key}{value}" for key, value in self.extents)


@dataclasses.dataclass
class Row:
    family: str
    size: str
    micro_batch: int
    width: int
    algo: int
    operator: str
    forward_us: float  # as measured, without the collective below
    backward_us: float
    memory_mib: dict  # SIZES
    spec: Spec
    block: str = ""  # rows of equal block, size, micro-batch, width and algo add up to one layer
    repeated: bool = False  # the same measurement as an earlier row's
    # What the all-reduces inside the measured operator took, by the tables of collectives; taken out of the times.
    forward_reduced_us: float = 0
    backward_reduced_us: float = 0

    @property
    def usable(self):
        """Whether the operator's own times are known: not when most of the measured time went into a collective."""
        return self.forward_us > self.forward_reduced_us and self.backward_us > self.backward_reduced_us

    @property
    def fitted(self):
        """The half that constants may be fitted on: micro-batches 1 and 4 (images: 16 and 48) at odd places of the sizes,
        2 and 8 (32 and 64) at even ones, whatever the width. So both halves span all sizes and micro-batches."""
        order = {1: 0, 2: 1, 4: 2, 8: 3, 16: 0, 32: 1, 48: 2, 64: 3}[self.micro_batch]
        return (order + SIZE_ORDER[self.family].index(self.size)) % 2 == 0


SIZE_ORDER = {
    "gpt": ("scale-layer", "350M", "1_3B", "2_6B", "13B"),
    "t5": ("770M", "3B", "6B"),
    "resnet": ("500M", "2B"),
}


def spec(kind, **extents):
    return Spec(kind, tuple((key, int(value)) for key, value in extents.items()))


def read_table(path):
    with open(path, newline="") as file:
        return {row["op_name"]: {key: float(value) for key, value in row.items() if key != "op_name"} for row in csv.DictReader(file)}


@functools.lru_cache(maxsize=None)
def all_reduce_table(folder, width):
    """[(MiB, us)] by size: the medians of the same collective measured for several models."""
    times = {}
    for path in sorted(Path(folder).glob(f"prim_*_all_reduce_{width}gpus.csv")):
        with open(path, newline="") as file:
            for mib, ms in list(csv.reader(file))[1:]:
                if float(mib) > 0:
                    times.setdefault(float(mib), []).append(float(ms) * 1e3)
    return sorted((mib, sorted(us)[len(us) // 2]) for mib, us in times.items())


def all_reduce_us(folder, width, mib):
    """Linear between the measured sizes, proportional beyond the last."""
    if mib <= 0 or width == 1:
        return 0.0
    table = all_reduce_table(str(folder), width)
    before = (0.0, table[0][1])
    for size, us in table:
        if mib <= size:
            return before[1] + (us - before[1]) * (mib - before[0]) / (size - before[0])
        before = (size, us)
    return before[1] * mib / before[0]


# --- transformers ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Transformer:
    """The extents of one size."""

    hidden: int
    inner: int  # features of queries, of keys and of values
    heads: int
    feed: int
    vocabulary: int
    length: int = LENGTH

    @classmethod
    def of_table(cls, table):
        """From its file at micro-batch 1 and width 1."""
        elements = lambda operator, column: table[operator][column] * MIB / 2
        hidden = round(elements("enc-MLP-GEMM-2", "activations") / LENGTH)
        head = next(operator for operator in table if operator.endswith("post-process"))
        return cls(
            hidden=hidden,
            inner=round(elements("enc-attention-context", "activations") / LENGTH),
            heads=round(elements("enc-attention-score", "activations") / LENGTH**2),
            feed=round(elements("enc-MLP-GEMM-1", "activations") / LENGTH),
            vocabulary=round(elements(head, "weights") / hidden))


def attention_specs(size, b, t, queries, keys, masked):
    """The four operators between the projections; `masked`: causal."""
    heads, per_head = size.heads // t, size.inner // size.heads
    scores = dict(b=b, heads=heads, queries=queries, keys=keys)
    return {
        "attention-score": spec("score", **scores, per_head=per_head),
        "attention-softmax": spec("causal_softmax" if masked else "masked_softmax", **scores),
        "attention-dropout": spec("dropout", **scores),
        "attention-context": spec("context", **scores, per_head=per_head),
    }


def transformer_specs(family, size, b, t, algo):
    """operator name -> Spec, local to one of t devices."""
    rows = {}

    def layer(prefix, length, attentions):
        norms = ("1st", "2nd", "3rd")
        for place, (suffix, keys, masked) in enumerate(attentions):
            rows[f"{prefix}-{norms[place]}-layernorm"] = spec("layer_norm", b=b, length=length, hidden=size.hidden)
            qkv = f"{prefix}-attention-qkv{suffix}"
            if keys == length:
                split_inputs = algo == 1 and family == "gpt"
                inputs, outputs = (size.hidden // t, 3 * size.inner) if split_inputs else (size.hidden, 3 * size.inner // t)
                rows[qkv] = spec("linear_bias", b=b, length=length, inputs=inputs, outputs=outputs)
            else:
                rows[qkv] = spec("cross_qkv", b=b, queries=length, keys=keys, hidden=size.hidden, inner=size.inner // t)
            for name, made in attention_specs(size, b, t, length, keys, masked).items():
                rows[f"{prefix}-{name}{suffix}"] = made
            rows[f"{prefix}-attention-dense{suffix}"] = spec("linear", b=b, length=length, inputs=size.inner // t, outputs=size.hidden)
            rows[f"{prefix}-post-attention-dropout{suffix}"] = spec("bias_dropout_add", b=b, length=length, hidden=size.hidden)
        rows[f"{prefix}-{norms[len(attentions)]}-layernorm"] = spec("layer_norm", b=b, length=length, hidden=size.hidden)
        rows[f"{prefix}-MLP-GEMM-1"] = spec("linear", b=b, length=length, inputs=size.hidden, outputs=size.feed // t)
        rows[f"{prefix}-MLP-gelu"] = spec("bias_gelu", b=b, length=length, hidden=size.feed // t)
        rows[f"{prefix}-MLP-GEMM-2"] = spec("linear", b=b, length=length, inputs=size.feed // t, outputs=size.hidden)
        rows[f"{prefix}-post-MLP-dropout"] = spec("bias_dropout_add", b=b, length=length, hidden=size.hidden)

    head = dict(b=b, hidden=size.hidden, vocabulary=size.vocabulary // t)
    rows["encoder-embedding"] = spec("embedding", b=b, length=size.length, hidden=size.hidden, vocabulary=size.vocabulary // t)
    layer("enc", size.length, [("", size.length, family == "gpt")])
    if family == "gpt":
        rows["final-layernorm"] = spec("layer_norm", b=b, length=size.length, hidden=size.hidden)
        rows["gpt-post-process"] = spec("head", length=size.length, **head)
    else:
        layer("dec", DECODER_LENGTH, [("-1", DECODER_LENGTH, True), ("-2", size.length, False)])
        rows["enc-final-layernorm"] = spec("layer_norm", b=b, length=size.length, hidden=size.hidden)
        rows["dec-final-layernorm"] = spec("layer_norm", b=b, length=DECODER_LENGTH, hidden=size.hidden)
        rows["t5-post-process"] = spec("head", length=DECODER_LENGTH, **head)
    return rows


def reduced_mib(family, operator, size, b, t, algo):
    """(forward, backward) MiB that tensor parallelism all-reduces inside an operator's measured time."""
    if t == 1:
        return 0.0, 0.0
    length = DECODER_LENGTH if operator.startswith(("dec-", "t5-")) else LENGTH
    whole = b * length * size.hidden * 2 / MIB
    if "qkv-2" in operator:
        return 0.0, whole + b * LENGTH * size.hidden * 2 / MIB
    if "attention-qkv" in operator:
        return (b * length * 3 * size.inner * 2 / MIB, 0.0) if algo == 1 and family == "gpt" else (0.0, whole)
    if "MLP-GEMM-1" in operator or "post-process" in operator:
        return 0.0, whole
    if "dense" in operator or "MLP-GEMM-2" in operator or operator.endswith("embedding"):
        return whole, 0.0
    return 0.0, 0.0


def block_of(operator):
    """One layer of the encoder; a decoder layer has a block of its own."""
    if "final" in operator or operator.endswith("embedding"):
        return ""
    return "encoder" if operator.startswith("enc-") else "decoder" if operator.startswith("dec-") else ""


# --- resnet ----------------------------------------------------------------------------------------------------------


def resnet_specs(table, b):
    """Convolutions of a wide ResNet-50 from its weights and activations, at width 1 only: what wider rows measured of the
    gathers between the parts of a convolution is not said."""
    rows, extent, features = {}, IMAGE, 3
    elements = lambda operator, column: table[operator][column] * MIB / 4

    def features_of(operator, pixels):  # the allocator rounds up to 2 MiB; features are multiples of 32
        return 32 * round(elements(operator, "activations") / (b * pixels**2) / 32)

    for operator in table:
        if operator == "conv1":
            stem = features_of(operator, extent // 2)
            rows[operator] = spec("convolution", b=b, pixels=extent, inputs=features, outputs=stem, window=7, stride=2)
            extent, features = extent // 2, stem
        elif operator in ("bn1", "relu1"):
            kind = "batch_norm" if operator == "bn1" else "relu"
            rows[operator] = spec(kind, b=b, pixels=extent, features=features)
        elif operator == "maxpool":
            rows[operator] = spec("max_pool", b=b, pixels=extent, features=features)
            extent //= 2
        elif operator.startswith("block-"):
            stage, block, part = operator.split("-")[1:]
            first = f"block-{stage}-{block}-"
            stride = 2 if block == "0" and stage != "0" else 1
            inside = extent // stride
            outputs = features_of(first + "conv3", inside)
            middle = features_of(first + "conv2", inside)
            narrow = features_of(first + "conv1", extent)
            if part == "conv1":
                rows[operator] = spec("convolution", b=b, pixels=extent, inputs=features, outputs=narrow, window=1, stride=1)
            elif part == "conv2":
                rows[operator] = spec("convolution", b=b, pixels=extent, inputs=narrow, outputs=middle, window=3, stride=stride)
            elif part == "conv3":
                rows[operator] = spec("convolution", b=b, pixels=inside, inputs=middle, outputs=outputs, window=1, stride=1)
            elif part in ("bn1", "bn2", "bn3"):
                shape = {"bn1": (extent, narrow), "bn2": (inside, middle), "bn3": (inside, outputs)}[part]
                rows[operator] = spec("batch_norm", b=b, pixels=shape[0], features=shape[1])
            elif part == "downsample" and block == "0":
                rows[operator] = spec("downsample", b=b, pixels=extent, inputs=features, outputs=outputs, stride=stride)
            elif part == "downsample":
                rows[operator] = spec("add", b=b, pixels=inside, features=outputs)
            else:
                rows[operator] = spec("relu", b=b, pixels=inside, features=outputs)
                extent, features = inside, outputs
        elif operator == "avgpool":
            rows[operator] = spec("average_pool", b=b, pixels=extent, features=features)
        elif operator == "fc":
            outputs = round(elements(operator, "activations") / b)
            rows[operator] = spec("classifier", b=b, inputs=features, outputs=outputs)
    return rows


# --- all of it -------------------------------------------------------------------------------------------------------


def read(folder):
    """Every measured row that can be written as HLO, in the order of the files. `folder`: aceso-v100 of the corpus."""
    folder = Path(folder)
    rows, seen = [], set()
    for path in sorted(folder.glob("*_mbs*.csv")):
        family, size_name, b, t, algo = NAME.match(path.name).groups()
        b, t, algo = int(b), int(t), int(algo)
        table = read_table(path)
        if family == "resnet":
            if t > 1:
                continue
            size, specs = None, resnet_specs(table, b)
        else:
            size = Transformer.of_table(read_table(folder / f"{family}_{size_name}_mbs1_tp1_algo0.csv"))
            specs = transformer_specs(family, size, b, t, algo)
        for operator, columns in table.items():
            if operator not in specs:
                continue
            measured = (family, size_name, b, t, specs[operator], columns["forward-compute"], columns["backward-compute"])
            repeated = measured in seen
            seen.add(measured)
            reduced = [all_reduce_us(folder, t, mib) for mib in reduced_mib(family, operator, size, b, t, algo)]
            rows.append(Row(
                family, size_name, b, t, algo, operator, columns["forward-compute"] - reduced[0],
                columns["backward-compute"] - reduced[1], {key: columns[key] for key in SIZES}, specs[operator],
                block_of(operator), repeated, *reduced))
    return rows
