"""automap-run: runs the programs of a pipeline plan on the devices of this machine."""

import argparse
import os
import sys
import time

from automap import measure
from automap.errors import Error
from automap.installed import jax_error
from automap.programs import Manifest, ProgramsError


def arguments(argv):
    parser = argparse.ArgumentParser(
        prog="automap-run",
        description="Run the programs that automap emit PLAN --model MODULE --to hlo -o DIR wrote, every group of the plan on devices "
                    "of its own, in one process and the plan's order. Weights and batches are drawn.",
        epilog="Exit codes: 0 it ran (--check: all numbers are equal), 1 a number differs, 2 wrong usage, 3 bad input or no JAX.")
    parser.add_argument("folder", metavar="DIR", help="the folder with manifest.json")
    parser.add_argument("--check", action="store_true",
                        help="compare loss, weights and optimizer state of every step with the unsplit module's")
    parser.add_argument("--steps", type=int, default=3, metavar="N", help="how many steps (default: 3)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the weights and batches that are drawn (default: 0)")
    parser.add_argument("--tolerance", type=float, default=1e-4, metavar="X",
                        help="the largest relative difference that counts as equal (default: 1e-4, for fp32)")
    parser.add_argument("--platform", default="cpu", metavar="NAME", help="cpu, gpu or tpu (default: cpu, as many devices as the plan has)")
    parser.add_argument("--one-device", action="store_true",
                        help="run every group on one device instead of as many as the plan has; the numbers are the same")
    parser.add_argument("--trace", metavar="FILE.json",
                        help="write what ran when in the last step, of every group (Perfetto and chrome://tracing read it)")
    parser.add_argument("--measure", action="store_true",
                        help="time every program alone on one device and write DIR/measured.json, by which automap-profile MODEL "
                             "--measured DIR scales a profile")
    asked = parser.parse_args(argv)
    if asked.measure and (asked.check or asked.trace):
        parser.error(f"--measure: not with {'--check' if asked.check else '--trace'}, it runs programs one by one")
    if asked.steps < 1:
        parser.error("--steps: at least 1")
    if asked.trace and asked.check:
        parser.error("--trace: not with --check, which compares numbers and times nothing")
    return asked


def with_devices(platform, count):
    """JAX with enough devices; must come before JAX is imported."""
    if platform == "cpu":
        flags = os.environ.get("XLA_FLAGS", "")
        if "xla_force_host_platform_device_count" not in flags:
            os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={count}".strip()
    # XLA says of every program of several devices that Shardy is the newer way.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["JAX_PLATFORMS"] = {"gpu": "cuda"}.get(platform, platform)
    try:
        import jax
    except ImportError:
        raise ProgramsError("this Python has no JAX; install jax, or call automap-run with a Python that has it") from None
    try:
        return jax.devices()
    except RuntimeError as error:
        raise ProgramsError(f"--platform {platform}: {error}") from None


def note_devices(manifest):
    names = {manifest.input_name(one): one["name"] for one in manifest.inputs}
    for number, layout in enumerate(manifest.plan.layouts, 1):
        if layout.not_divided:
            which = [names.get(name) or manifest.plan.values[name]["instruction"] for name in layout.not_divided]
            shown = ", ".join(which[:3]) + (f" and {len(which) - 3} more" if len(which) > 3 else "")
            print(f"automap-run: note: group {number} holds whole on every replica what has no dimension that {layout.replicas} "
                  f"replicas divide: {shown}", file=sys.stderr)
        if layout.width > 1 and not any("width" in split for split in layout.splits.values()):
            print(f"automap-run: note: the plan has no partition of what group {number} holds, so nothing is split over its width "
                  f"of {layout.width}", file=sys.stderr)
    if any(item[0] == "W" for group in manifest.groups for item in group["order"]):
        print("automap-run: note: the backward is one program; where the plan has weight gradients apart, nothing is run",
              file=sys.stderr)


def counted(count, what):
    return f"{count} {what}" if count == 1 else f"{count} {what}{'es' if what.endswith('ch') else 's'}"


def devices_text(layouts):
    """"8 devices, groups of 2 x 2, 4 x 1 with ZeRO 1": of every kind of group its replicas x width."""
    kinds = []
    for layout in layouts:
        kind = f"{layout.replicas} x {layout.width}" + (f" with ZeRO {layout.zero}" if layout.zero else "")
        if kind not in kinds:
            kinds.append(kind)
    return f"{sum(layout.devices for layout in layouts)} devices, groups of {', '.join(kinds)}"


def run(asked):
    manifest = Manifest(asked.folder)
    if asked.measure:
        measure.check(manifest)
    if asked.one_device or asked.measure:
        manifest.plan.on_one_device_each()
    devices = with_devices(asked.platform, manifest.plan.devices)
    import numpy as np

    try:
        from automap import check
        from automap.execution import Execution
    except ImportError as error:
        raise jax_error(error) from None
    from automap.trace import Trace, write_trace

    note_devices(manifest)
    what = f"{manifest.model}: {counted(manifest.plan.groups, 'group')}, {counted(manifest.micro_batches, 'micro-batch')}, {manifest.schedule}"
    if manifest.plan.devices > manifest.plan.groups:
        what += f", on {devices_text(manifest.plan.layouts)}"
    if asked.check:
        worst, first, losses = check.check(manifest, devices, asked.steps, asked.seed, asked.tolerance)
        if first:
            print(f"automap-run: {what}: {first}", file=sys.stderr)
            return 1
        told = f", losses {' '.join(f'{loss:.6g}' for loss in losses)}" if losses else ""
        print(f"{what}: {asked.steps} steps equal the unsplit module's, largest relative difference {worst:.2g}{told}")
        return 0
    generator = np.random.default_rng(asked.seed)
    execution = Execution(manifest, manifest.plan, devices)
    state = execution.init({manifest.input_name(one): check.draw(one, generator) for one in manifest.inputs if one["role"] != "batch"})
    fed = [one for one in manifest.inputs if one["role"] == "batch"]
    if asked.measure:
        stopwatch = measure.Stopwatch()
        batch = {manifest.input_name(one): check.draw(one, generator) for one in fed}
        execution.step(state, [batch] * manifest.micro_batches, call=stopwatch)
        path, kinds = measure.write(manifest, devices[0].device_kind, stopwatch.times)
        print(f"{what}: a micro-batch takes {', '.join(f'{kind} {ms:.4g} ms' for kind, ms in kinds.items())} on one device "
              f"({devices[0].device_kind})")
        print(f"automap-run: wrote {path}; automap-profile MODEL --measured {asked.folder} scales a profile by it", file=sys.stderr)
        return 0
    for step in range(1, asked.steps + 1):
        batches = [{manifest.input_name(one): check.draw(one, generator) for one in fed} for _ in range(manifest.micro_batches)]
        begun = time.perf_counter()
        trace = Trace(manifest.plan.groups) if asked.trace and step == asked.steps else None
        state, results = execution.step(state, batches, trace)
        for held in state.values():
            for array in held.values():
                array.block_until_ready()
        took = 1e3 * (time.perf_counter() - begun)
        loss = "" if manifest.loss_result is None else f", loss {float(np.asarray(results[manifest.loss_result])):.6g}"
        print(f"step {step}: {took:.1f} ms{loss}")
        if trace:
            write_trace(asked.trace, manifest, trace.finish())
            print(f"automap-run: {asked.trace} has what ran when in step {step}", file=sys.stderr)
    return 0


def main(argv=None):
    asked = arguments(sys.argv[1:] if argv is None else argv)
    try:
        return run(asked)
    except Error as error:
        print(f"automap-run: error: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
