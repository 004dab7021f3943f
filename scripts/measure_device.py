#!/usr/bin/env python3
"""Times a few kernels on the device at hand, for automap-profile --calibrate: matrix products by type, convolutions,
softmax, copies, launches, under JAX pieces of training steps, and all-reduces where there are several devices.

    scripts/measure_device.py -o measured.json            # JAX's default device, else torch's
    scripts/measure_device.py --framework torch -o measured.json
    automap-profile --calibrate measured.json -o mine.json
    automap-profile model.hlo --device mine.json

Runs on whatever JAX or torch sees: a CPU, a GPU. Leave the device alone meanwhile. Every time is the least of several,
each the mean over calls in a row, less what calling a function that does nothing takes. A CPU that cannot be left alone:
give this program one core and count the time that it has it, here and wherever times are compared with these:

    taskset -c 0 scripts/measure_device.py --cpu-time -o measured.json"""

import argparse
import json
import math
import os
import sys
import time

SCHEMA = "automap.measurements/1"
SHORT_SECONDS = 0.005
SIDES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


def products(largest):
    """(batch, m, n, k): squares, wide and narrow ones, and as attention has them."""
    squares = [(1, side, side, side) for side in SIDES if 64 <= side <= largest]
    big = largest // 2
    others = [(1, big // 2, 4 * big // 2, big), (1, 4 * big // 2, big // 2, big), (1, big, big, 64), (1, 64, big, big),
              (16, 128, 128, 64), (16, 128, 64, 128), (32, 256, 256, 64)]
    return squares + [tuple(max(1, int(x)) for x in other) for other in others]


def convolutions(large):
    """(batch, side, inputs, outputs, window)."""
    batch = 64 if large else 4
    return [(batch, 56, 64, 64, 3), (batch, 28, 128, 128, 3), (batch, 14, 256, 256, 3), (batch, 28, 128, 256, 1),
            (batch, 56, 64, 128, 1)]


def softmaxes(large):
    return [(256, 1024), (4096, 256), (4096, 1024)] + ([(65536, 1024)] if large else [])


def copies(large, quick):
    """Beyond the caches, which whole steps do not live in."""
    return [1 << power for power in (range(22, 29, 2) if large else range(16, 21, 2) if quick else range(22, 27))]


class Jax:
    name = "jax"

    def __init__(self):
        import jax
        import jax.numpy as jnp
        from jax import lax

        self.jax, self.jnp, self.lax = jax, jnp, lax
        self.device = jax.devices()[0]
        self.on_cpu = self.device.platform == "cpu"
        self.framework = "jax " + jax.__version__

    def facts(self):
        return cpu_facts() if self.on_cpu else {
            "device": self.device.device_kind,
            "cores": int(getattr(self.device, "core_count", 0) or 1),
            **memory_of(self.device),
        }

    def array(self, shape, kind):
        key = self.jax.random.key(0)
        return self.jax.random.normal(key, shape, dtype=getattr(self.jnp, kind))

    def function(self, kind, count=1):
        lax = self.lax
        return self.jax.jit({
            "matmul": lambda a, b: a @ b,
            "convolution": lambda x, w: lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
            "softmax": lambda x: self.jax.nn.softmax(x, axis=-1),
            "copy": lambda x: x * 2,
            "launch": lambda x: chain(x, count),
            "nothing": lambda x: x,
        }[kind])

    def wait(self, value):
        self.jax.block_until_ready(value)

    def blocks(self, large):
        """Pieces of training steps, (name, function, arguments): a step of gradient descent with momentum each."""
        jax, jnp = self.jax, self.jnp
        batch, length, width = (8, 1024, 1024) if large else (2, 192, 320)
        norm = lambda x: (x - x.mean(-1, keepdims=True)) * self.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
        weight = lambda *shape: 0.02 * self.array(shape, "float32")

        def feed_forward(p, x):
            return x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]

        def attention(p, x):
            heads = lambda w: (norm(x) @ w).reshape(batch, length, width // 64, 64)
            scores = jnp.einsum("bqhd,bkhd->bhqk", heads(p["q"]), heads(p["k"])) / 8
            mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), heads(p["v"]))
            return x + mixed.reshape(x.shape) @ p["o"]

        def convolution(p, x):
            y = self.function("convolution")(x, p["w"])
            scale = self.lax.rsqrt(y.var((0, 1, 2)) + 1e-5)
            return jax.nn.relu((y - y.mean((0, 1, 2))) * scale * p["scale"])

        def step(block):
            def loss(p, x):
                y = block(p, block(p, x)) if block is not convolution else block(p, x)
                return jnp.mean(jnp.square(y))

            def train(p, moments, x):
                gradients = jax.grad(loss)(p, x)
                moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradients)
                return jax.tree.map(lambda w, m: w - 0.1 * m, p, moments), moments
            return jax.jit(train)

        tokens, images = weight(batch, length, width), weight(batch, 56, 56, 64)
        found = []
        for name, block, p, x in (
                ("feed forward", feed_forward, {"up": weight(width, 4 * width), "down": weight(4 * width, width)}, tokens),
                ("attention", attention, {key: weight(width, width) for key in "qkvo"}, tokens),
                ("convolution", convolution, {"w": weight(3, 3, 64, 64), "scale": weight(64)}, images)):
            found.append((name, step(block), (p, p, x)))
        return found

    def all_reduce(self, size):
        jax, devices = self.jax, self.jax.local_devices()
        if len(devices) < 2:
            return None, None
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        try:
            from jax import shard_map
        except ImportError:  # before 0.6
            from jax.experimental.shard_map import shard_map

        mesh, split = Mesh(devices, ("i",)), PartitionSpec("i")
        ones = jax.jit(lambda: self.jnp.ones((len(devices), size // 4)), out_shardings=NamedSharding(mesh, split))
        reduce = shard_map(lambda x: self.lax.psum(x, "i"), mesh=mesh, in_specs=split, out_specs=PartitionSpec())
        run = jax.jit(reduce)
        # On CPUs devices are threads of one pool: calls that wait for each other's partners in it would never end.
        waited = (lambda x: jax.block_until_ready(run(x))) if self.on_cpu else run
        return len(devices), (waited, (ones(),))


class Torch:
    name = "torch"
    KINDS = {"float32": "float32", "bfloat16": "bfloat16", "float16": "float16"}

    def __init__(self):
        import torch

        self.torch = torch
        self.on_cpu = not torch.cuda.is_available()
        self.device = torch.device("cpu" if self.on_cpu else "cuda:0")
        self.framework = "torch " + torch.__version__

    def facts(self):
        if self.on_cpu:
            return cpu_facts()
        properties = self.torch.cuda.get_device_properties(0)
        return {"device": properties.name, "cores": properties.multi_processor_count,
                "memory_gib": round(properties.total_memory / 2**30, 1)}

    def array(self, shape, kind):
        return self.torch.randn(shape, device=self.device).to(getattr(self.torch, kind))

    def function(self, kind, count=1):
        functional = self.torch.nn.functional
        return {
            "matmul": lambda a, b: a @ b,
            "convolution": lambda x, w: functional.conv2d(
                x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), padding="same"),
            "softmax": lambda x: functional.softmax(x, dim=-1),
            "copy": lambda x: x * 2,
            "launch": lambda x: chain(x, count),
            "nothing": lambda x: x,
        }[kind]

    def wait(self, value):
        if not self.on_cpu:
            self.torch.cuda.synchronize()

    def all_reduce(self, size):
        count = 0 if self.on_cpu else self.torch.cuda.device_count()
        if count < 2:
            return None, None
        import torch.cuda.nccl as nccl

        data = [self.torch.ones(size // 4, device="cuda:%d" % i) for i in range(count)]

        def run():
            nccl.all_reduce(data)
            for i in range(count):
                self.torch.cuda.synchronize(i)
            return data[0]
        return count, (run, ())


def chain(x, count):
    y = x
    for _ in range(count):
        y = y @ x
    return y


def memory_of(device):
    """The device's memory: JAX says how large its pool may grow, a share of the memory whether it is taken at the start
    or piece by piece."""
    limit = (device.memory_stats() or {}).get("bytes_limit")
    share = os.environ.get("XLA_CLIENT_MEM_FRACTION") or os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION") or "0.75"
    if not limit or device.platform not in ("gpu", "cuda", "rocm"):
        share = "1"
    try:
        return {"memory_gib": round(limit / float(share) / 2**30, 1)} if limit else {}
    except (ValueError, ZeroDivisionError):
        return {}


def cpu_facts():
    name = "cpu"
    try:
        with open("/proc/cpuinfo") as file:
            name = next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    facts = {"device": "cpu: " + name, "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity")
             else os.cpu_count() or 1}
    try:
        facts["memory_gib"] = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError):
        pass
    return facts


class Clock:
    def __init__(self, backend, repeats, seconds, now):
        self.backend, self.repeats, self.seconds, self.now = backend, repeats, seconds, now
        nothing, x = backend.function("nothing"), backend.array((16,), "float32")
        self.empty = 0
        self.empty = self.time(nothing, x)

    def time(self, function, *arguments):
        """Seconds."""
        wait = self.backend.wait
        wait(function(*arguments))  # compiles
        began = self.now()
        wait(function(*arguments))
        once = self.now() - began
        # Short runs of calls, so that some of them fall between what else goes on.
        calls = max(1, min(1000, int(SHORT_SECONDS / max(once, 1e-7))))
        best, until, runs = float("inf"), time.monotonic() + self.seconds, 0
        while runs < self.repeats or time.monotonic() < until:
            began = self.now()
            for _ in range(calls):
                value = function(*arguments)
            wait(value)
            best = min(best, (self.now() - began) / calls)
            runs += 1
        return max(best - self.empty, best * 0.05)


class Timed:
    """A row without its time, and what measures it, in seconds: the least so far is kept."""

    def __init__(self, row, run):
        self.row, self.run, self.seconds = row, run, run()

    def again(self):
        self.seconds = min(self.seconds, self.run())

    def us(self):
        return round(self.seconds * 1e6, 3)


MOST_PER_WORK = 4


def timed_again(timed):
    """What is as large in every size does not take less, nor far more than its work: where it does, something else went
    on during the one that took too long. `timed`: rows that have no other numbers than sizes."""
    def work(one):
        return math.prod(value for value in one.row.values() if isinstance(value, int))

    def slower(small, large):
        if small.seconds > large.seconds:
            return small
        most = MOST_PER_WORK * small.seconds * work(large) / work(small)
        return large if large.seconds > most else None

    def contains(large, small):
        return large is not small and all(large.row[key] >= value if isinstance(value, int) else large.row[key] == value
                                          for key, value in small.row.items())

    same = {}
    for one in timed:
        same.setdefault((one.row["kind"], one.row.get("type")), []).append(one)
    pairs = [(small, large) for kind in same.values() for small in kind for large in kind if contains(large, small)]
    for _ in range(5):
        disturbed = {id(one): one for one in (slower(*pair) for pair in pairs) if one is not None}
        for one in disturbed.values():
            one.again()
    return timed


def measure(backend, clock, quick):
    timed, on_cpu = [], backend.on_cpu
    short = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}

    def add(kind, type_name, sizes, *shapes, scale=None, count=1):
        def run():
            arrays = [backend.array(shape, type_name) for shape in shapes]
            return clock.time(backend.function(kind, count), *(a if scale is None else a * scale for a in arrays))
        one = Timed({"kind": kind, "type": short[type_name], **sizes}, run)
        timed.append(one)
        print("%-12s %-5s %-60s %12.1f us" % (kind, short[type_name], sizes, one.us()), file=sys.stderr)

    large = not on_cpu and not quick
    for type_name in ("float32",) if on_cpu else ("float32", "bfloat16", "float16"):
        largest = 256 if quick else 1024 if on_cpu else 8192
        for batch, m, n, k in products(largest):
            shapes = ((m, k), (k, n)) if batch == 1 else ((batch, m, k), (batch, k, n))
            add("matmul", type_name, {"batch": batch, "m": m, "n": n, "k": k}, *shapes)
        for batch, side, inputs, outputs, window in convolutions(large)[: 2 if quick else None]:
            add("convolution", type_name,
                {"batch": batch, "side": side, "inputs": inputs, "outputs": outputs, "window": window},
                (batch, side, side, inputs), (window, window, inputs, outputs))
    for row, columns in softmaxes(large)[: 2 if quick else None]:
        add("softmax", "float32", {"rows": row, "columns": columns}, (row, columns))
    for elements in copies(large, quick):
        add("copy", "float32", {"elements": elements}, (elements,))
    add("launch", "float32", {"count": 200}, (16, 16), scale=0.1, count=200)
    rows = [{**one.row, "us": one.us()} for one in timed_again(timed)]
    if isinstance(backend, Jax):
        for name, function, arguments in backend.blocks(large):
            seconds = clock.time(function, *arguments)
            text = function.lower(*arguments).compiler_ir(dialect="hlo").as_hlo_text()
            rows.append({"kind": "module", "name": name, "hlo": text, "us": round(seconds * 1e6, 3)})
            print("%-12s %-66s %12.1f us" % ("module", name, seconds * 1e6), file=sys.stderr)
    return rows


def all_reduces(backend, clock):
    """Rows by size. Where one fails there are none, and the other kernels' times are not lost."""
    timed = []
    try:
        for power in range(16, 29, 2):
            devices, run = backend.all_reduce(1 << power)
            if devices is None:
                return []
            row = {"kind": "all-reduce", "devices": devices, "bytes": 1 << power}
            timed.append(Timed(row, lambda run=run: clock.time(run[0], *run[1])))
        timed_again(timed)
        # What goes on beside only adds: a message takes no longer than a larger one was seen to.
        for small, large in reversed(list(zip(timed, timed[1:]))):
            small.seconds = min(small.seconds, large.seconds)
    except Exception as error:  # of whatever library is below
        print("measure_device.py: warning: all-reduces are left out: %s: %s" %
              (type(error).__name__, (str(error).splitlines() or [""])[0]), file=sys.stderr)
        return []
    return [{**one.row, "us": one.us()} for one in timed]


def backend_of(name):
    for candidate in (Jax, Torch):
        if name not in (None, candidate.name):
            continue
        try:
            return candidate()
        except ImportError as error:
            if name is not None:
                sys.exit("measure_device.py: %s is not installed for this Python: %s" % (name, error))
    sys.exit("measure_device.py: neither jax nor torch is installed for this Python (AUTOMAP_JAX_PYTHON, "
             "scripts/jax_python.sh makes one)")


def write(path, facts, rows):
    text = json.dumps(facts)[:-1] + ', "measured": [\n  ' + ",\n  ".join(json.dumps(row) for row in rows) + "\n]}\n"
    partial = path + ".tmp"
    with open(partial, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(partial, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", required=True, help="the file to write")
    parser.add_argument("--framework", choices=("jax", "torch"), help="default: JAX where it is installed, else torch")
    parser.add_argument("--repeats", type=int, default=7, help="the least of at least so many times (7)")
    parser.add_argument("--seconds", type=float, default=1.0, help="about so long for each kernel (1)")
    parser.add_argument("--quick", action="store_true", help="few and small kernels: to see that it runs")
    parser.add_argument("--cpu-time", action="store_true", help="count the time that this program has its CPU")
    options = parser.parse_args()
    if options.repeats < 1 or not options.seconds > 0:
        parser.error("--repeats and --seconds must be above 0")
    backend = backend_of(options.framework)
    if options.cpu_time and not backend.on_cpu:
        parser.error("--cpu-time is for CPUs; this is " + backend.facts()["device"])
    now = time.process_time if options.cpu_time else time.perf_counter
    clock = Clock(backend, options.repeats, options.seconds, now)
    facts = {"schema": SCHEMA, **backend.facts(), "framework": backend.framework}
    rows = measure(backend, clock, options.quick)
    write(options.output, facts, rows)
    # These can end the program from below: what was measured before is written by then.
    reduced = all_reduces(backend, clock)
    if reduced:
        rows += reduced
        write(options.output, facts, rows)
    print("wrote %s: %d times on %s" % (options.output, len(rows), facts["device"]), file=sys.stderr)


if __name__ == "__main__":
    main()
