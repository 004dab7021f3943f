"""What the device model says against what was measured, class by class. Each function returns ratios predicted / measured.

`estimate(paths, devices)` is measure_device_model.estimate: [[ms on every device]] of modules.
"""

import csv
import dataclasses
import re
import statistics
from pathlib import Path

from device_model import aceso

# Aceso measured one operator at a time under PyTorch, whose host starts a kernel about this often; fitted on the fitted
# half of the forward times that nothing else explains. XLA's own is DeviceModel::host_us.
EAGER_HOST_US = 40
V100 = f"v100-32gb:host_us={EAGER_HOST_US}"
# The table of products was measured one launch at a time: the shortest of 375 took 4.9 us.
SINGLE_LAUNCH_US = 5
# The data sheet of the accelerator that the whole modules ran on.
MI350 = {"name": "mi350", "peak_tflops": {"f32": 157, "f16": 2300, "bf16": 2300, "f8": 4600, "f64": 78},
         "memory_gbytes_per_s": 8000, "memory_gib": 288, "cores": 256}
# Megatron on A100s (vTrain), and the bus bandwidth of NVLink under NCCL there.
A100 = f"a100-80gb:host_us={EAGER_HOST_US}"
VTRAIN_FITTED_LAYERS = 12
A100_BUS_GBYTES_PER_S = 230
VTRAIN_VOCABULARY = 51200


def summary(ratios):
    """(rows, median, 10th and 90th of a hundred, farthest from 1, median error)"""
    ordered = sorted(ratios)
    pick = lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))]
    worst = max(ordered, key=lambda ratio: max(ratio, 1 / ratio) if ratio > 0 else float("inf"))
    return len(ordered), statistics.median(ordered), pick(0.1), pick(0.9), worst, statistics.median(abs(r - 1) for r in ordered)


def rank_correlation(a, b):
    def ranks(values):
        order = sorted(values)
        first = {value: place for place, value in reversed(list(enumerate(order)))}
        count = {value: order.count(value) for value in first}
        return [first[value] + (count[value] - 1) / 2 for value in values]

    return statistics.correlation(ranks(a), ranks(b))


# --- operators and layers on a V100 ------------------------------------------------------------------------------------


def predict_specs(specs, folder, device, estimate):
    """{spec: (forward us, backward us)}"""
    paths = [folder / f"{spec.name}.{part}.hlo" for spec in specs for part in ("forward", "step")]
    us = [1e3 * ms for (ms,) in estimate(paths, [device])]
    return {spec: (forward, step - forward) for spec, forward, step in zip(specs, us[::2], us[1::2])}


def operator_ratios(rows, predicted):
    """{"kind forward" or "kind backward": ratios}; each measurement once."""
    kinds = {}
    for row in rows:
        if row.repeated or not row.usable:
            continue
        for part, us, measured in zip(("forward", "backward"), predicted[row.spec], (row.forward_us, row.backward_us)):
            if us > 0:  # the gradients of a sum are the gradient that comes in
                kinds.setdefault(f"{row.spec.kind} {part}", []).append(us / measured)
    return kinds


def layer_ratios(rows, predicted):
    """{(family, size, micro-batch, width, algo, block): (forward, backward, both)}; the all-reduces inside a layer are on
    both sides, as the tables of collectives say."""
    sums = {}
    for row in rows:
        if not row.block:
            continue
        total = sums.setdefault((row.family, row.size, row.micro_batch, row.width, row.algo, row.block), [0.0] * 4)
        forward, backward = predicted[row.spec]
        for place, value in enumerate((forward + row.forward_reduced_us, backward + row.backward_reduced_us,
                                       row.forward_us + row.forward_reduced_us, row.backward_us + row.backward_reduced_us)):
            total[place] += value
    return {key: (s[0] / s[2], s[1] / s[3], (s[0] + s[1]) / (s[2] + s[3])) for key, s in sums.items()}


# --- matrix products ---------------------------------------------------------------------------------------------------

PRODUCT_TYPES = {"bf16xbf16->bf16": ("bf16", "bf16"), "f32xf32->f32": ("f32", "f32"),
                 "f8e4m3fnxf8e4m3fn->bf16": ("f8e4m3fn", "bf16")}
PRODUCT_DEVICES = {"sm_90": "h100", "sm_100_B200": "b200"}


def read_products(path):
    """[(device, key of the type, (batch, m, n, k), us)] in the order of XLA's table of matrix products."""
    products = []
    parts = re.split(r'key: "(sm_[^"]*)"', Path(path).read_text())
    for name, body in zip(parts[1::2], parts[2::2]):
        for entry in re.split(r"entries \{", body)[1:]:
            rates = re.findall(r'key: "([^"]+)" value: (\d+)', entry)
            if not rates:  # the opening of the next device
                continue
            b, m, n, k = (int(re.search(rf"\b{field}: (\d+)", entry).group(1)) for field in "bmnk")
            for key, rate in rates:
                products.append((name, key, (b, m, n, k), 2 * b * m * n * k / float(rate) * 1e6))
    return products


def product_module(operands, result, b, m, n, k):
    return (f"HloModule product\nENTRY e {{ x = {operands}[{b},{m},{k}] parameter(0)\n y = {operands}[{b},{k},{n}] parameter(1)\n"
            f" ROOT d = {result}[{b},{m},{n}] dot(x, y), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, "
            f"lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}} }}\n")


def product_ratios(path, folder, estimate):
    """{(device, key of the type): [(fitted, ratio)]}; every other product was fitted on."""
    wanted = [p for p in read_products(path) if p[1] in PRODUCT_TYPES]
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for _, key, extents, _ in wanted:
        operands, result = PRODUCT_TYPES[key]
        paths.append(folder / f"product-{operands}-{'x'.join(map(str, extents))}.hlo")
        if not paths[-1].exists():
            paths[-1].write_text(product_module(operands, result, *extents))
    # XLA's were timed one by one: the clock is not yet what a step leaves of it.
    devices = [f"{device}:launch_us={SINGLE_LAUNCH_US},sustained_clock=1" for device in PRODUCT_DEVICES.values()]
    places = {name: place for place, name in enumerate(PRODUCT_DEVICES)}
    ratios, seen = {}, {}
    for (name, key, _, us), ms in zip(wanted, estimate(paths, devices)):
        number = seen[name, key] = seen.get((name, key), -1) + 1
        ratios.setdefault((name, key), []).append((number % 2 == 0, 1e3 * ms[places[name]] / us))
    return ratios


# --- whole modules -----------------------------------------------------------------------------------------------------


def module_times(hlo):
    """[(path, workload, measured ms)] of the modules in the corpus whose times on one MI350 are public."""
    hlo = Path(hlo)
    manifest = [line.split("\t") for line in (hlo / "MANIFEST.tsv").read_text().splitlines()]
    found = []
    with open(hlo / "derived/mi350_module_times.tsv", newline="") as file:
        for model, workload, module, time in list(csv.reader(file, delimiter="\t"))[1:]:
            if workload == "inference_8gpu":
                continue
            for columns in manifest:
                if len(columns) > 5 and f"/{model}/" in columns[5] and f"/{module}" in columns[5]:
                    found.append((hlo / columns[0], workload, float(time.removesuffix("ms"))))
    return found


# --- training steps of Megatron on A100s ---------------------------------------------------------------------------------


@dataclasses.dataclass
class Step:
    devices: int
    batch: int
    micro_batch: int
    size: aceso.Transformer
    layers: int
    tensor: int
    data: int
    pipeline: int
    measured_ms: float


def read_steps(path):
    steps = []
    with open(path, newline="") as file:
        for columns in list(csv.reader(file))[1:]:
            devices, batch, micro_batch, hidden, heads, layers, length, tensor, data, pipeline = map(int, columns[:10])
            size = aceso.Transformer(hidden, hidden, heads, 4 * hidden, VTRAIN_VOCABULARY, length)
            steps.append(Step(devices, batch, micro_batch, size, layers, tensor, data, pipeline, float(columns[10])))
    return steps


def step_specs(step):
    return aceso.transformer_specs("gpt", step.size, step.micro_batch, step.tensor, 0)


def all_reduce_ms(megabytes, group):
    return 2 * (group - 1) / group * megabytes / A100_BUS_GBYTES_PER_S


def step_ms(step, predicted):
    """1F1B of equal stages: (micro-batches + stages - 1) times the longest stage, then the gradients of a device."""
    specs, size = step_specs(step), step.size
    of = lambda operator: sum(predicted[specs[operator]]) * 1e-3
    # The residual stream is all-reduced twice each way per layer.
    reduced = 4 * all_reduce_ms(step.micro_batch * size.length * size.hidden * 2e-6, step.tensor)
    layer = sum(of(operator) for operator in specs if aceso.block_of(operator)) + reduced
    stage = step.layers / step.pipeline * layer + of("final-layernorm") + of("gpt-post-process")
    if step.pipeline == 1:
        stage += of("encoder-embedding")
    micro_batches = step.batch // (step.micro_batch * step.data)
    weights = (12 * size.hidden**2 * step.layers / step.pipeline + size.hidden * size.vocabulary) / step.tensor
    return (micro_batches + step.pipeline - 1) * stage + all_reduce_ms(weights * 2e-6, step.data)
