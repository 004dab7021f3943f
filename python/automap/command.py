"""automap-run: runs the programs of a pipeline plan, in one process or in several on this machine or many."""

import argparse
import os
import sys
import time
import traceback

from automap import launch, measure
from automap.errors import Error
from automap.installed import jax_error
from automap.processes import dealt, first_line, in_order, join, leave, place_of
from automap.programs import Manifest, ProgramsError


def arguments(argv):
    parser = argparse.ArgumentParser(
        prog="automap-run", allow_abbrev=False,  # launch.py hands on the options by their names, without its own
        description="Run the programs that automap emit PLAN --model MODULE --to hlo -o DIR wrote, every group of the plan on devices "
                    "of its own, in the plan's order. Weights and batches are drawn. It runs in one process, or in those that torchrun, "
                    "srun or mpirun started, or --processes or --hosts: each has some of the groups, or a part of one.",
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
    parser.add_argument("--processes", type=int, metavar="N", help="start N processes on this machine")
    parser.add_argument("--hosts", metavar="FILE",
                        help="start processes on the machines of FILE by ssh: a line each, NAME or NAME slots=N for N processes there; "
                             "DIR and this program have to be in the same place on all of them")
    parser.add_argument("--wait", type=float, default=300, metavar="S",
                        help="the longest that a process waits for another one, in seconds (default: 300)")
    asked = parser.parse_args(argv)
    if asked.processes is not None and asked.hosts is not None:
        parser.error("--processes: not with --hosts, whose file says how many there are")
    if asked.processes is not None and not 1 <= asked.processes <= 4096:
        parser.error("--processes: from 1 to 4096")
    if not 0 < asked.wait < 1e6:
        parser.error("--wait: more than 0, and less than a million")
    if asked.measure and (asked.check or asked.trace):
        parser.error(f"--measure: not with {'--check' if asked.check else '--trace'}, it runs programs one by one")
    if asked.steps < 1:
        parser.error("--steps: at least 1")
    if asked.trace and asked.check:
        parser.error("--trace: not with --check, which compares numbers and times nothing")
    return asked


def with_devices(platform, count, place=None):
    """JAX, whose devices are still to be counted; must come before JAX is imported. count: of this process, on a CPU."""
    if platform == "cpu":
        flags = os.environ.get("XLA_FLAGS", "")
        if "xla_force_host_platform_device_count" not in flags:
            os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={count}".strip()
        if place:
            # XLA's threads: one for each device may wait in a sum with another process, and values have to come and go meanwhile.
            os.environ.setdefault("NPROC", str((os.cpu_count() or 1) + count + 2))
    # XLA says of every program of several devices that Shardy is the newer way.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["JAX_PLATFORMS"] = {"gpu": "cuda"}.get(platform, platform)
    if platform == "gpu" and place and place.local_count > 1:
        share_gpus(place)
    try:
        import jax
    except ImportError:
        raise ProgramsError("this Python has no JAX; install jax, or call automap-run with a Python that has it") from None
    return jax


def share_gpus(place):
    """Of the GPUs of this server, or those that CUDA_VISIBLE_DEVICES names, this process's part."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        seen = named.split(",") if named else [str(number) for number in range(len(os.listdir("/proc/driver/nvidia/gpus")))]
    except OSError:
        return
    each = len(seen) // place.local_count
    # A launcher that has already dealt them shows every process its own.
    if len(seen) > 1 and each > 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(seen[place.local_rank * each:(place.local_rank + 1) * each])


def devices_of(jax, platform):
    try:
        return jax.devices()
    except RuntimeError as error:
        raise ProgramsError(f"--platform {platform}: {first_line(error)}") from None


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
    return f"{count} {what}" if count == 1 else f"{count} {what}{'es' if what.endswith(('ch', 's')) else 's'}"


def devices_text(layouts):
    """"8 devices, groups of 2 x 2, 4 x 1 with ZeRO 1": of every kind of group its replicas x width."""
    kinds = []
    for layout in layouts:
        kind = f"{layout.replicas} x {layout.width}" + (f" with ZeRO {layout.zero}" if layout.zero else "")
        if kind not in kinds:
            kinds.append(kind)
    return f"{sum(layout.devices for layout in layouts)} devices, groups of {', '.join(kinds)}"


def groups_text(layouts, wanted, rank):
    """"group 1", "groups 2 to 3", "a part of group 1": what a process has of the groups."""
    first, ends = sum(wanted[:rank]), []
    for layout in layouts:
        ends.append((ends[-1] if ends else 0) + layout.devices)
    begins = [0, *ends[:-1]]
    mine = [g for g in range(len(layouts)) if begins[g] < first + wanted[rank] and ends[g] > first]
    part = any(begins[g] < first or ends[g] > first + wanted[rank] for g in mine)
    which = f"group {mine[0] + 1}" if len(mine) == 1 else f"groups {mine[0] + 1} to {mine[-1] + 1}"
    return f"a part of {which}" if part else which


def run(asked):
    place = place_of(os.environ)
    manifest = Manifest(asked.folder)
    if asked.measure:
        measure.check(manifest)
    if asked.one_device or asked.measure:
        manifest.plan.on_one_device_each()
    if place is None:
        devices = devices_of(with_devices(asked.platform, manifest.plan.devices), asked.platform)
        return execute(asked, manifest, devices, None)
    for option, given in (("--measure", asked.measure), ("--trace", asked.trace)):
        if given:
            raise ProgramsError(f"{option}: not with several processes; one has to have all groups")
    wanted = dealt([layout.devices for layout in manifest.plan.layouts], place.count)
    launch.end_with_parent(os.environ)
    jax = with_devices(asked.platform, wanted[place.rank], place)
    if place.count <= manifest.plan.groups:
        jax.config.update("jax_cpu_collectives_implementation", None)  # No sum goes from process to process.
    watch = None
    try:
        processes, watch = join(place, asked.wait, groups_text(manifest.plan.layouts, wanted, place.rank))
        code = execute(asked, manifest, in_order(devices_of(jax, asked.platform), wanted), processes.started())
        processes.meet("the end")
        watch.close()
        return code
    except Exception as error:
        if watch is None:
            return leave(str(error), 3)
        if not isinstance(error, Error):
            watch.wait_for_a_name()
            traceback.print_exc()  # Anything else is for whoever mends it.
        watch.failed(first_line(error))
        return leave(f"{watch.name}: {first_line(error)}", 3)


def execute(asked, manifest, devices, processes):
    """The exit code. devices: of all groups in their order."""
    import numpy as np

    try:
        from automap import check
        from automap.execution import Execution
    except ImportError as error:
        raise jax_error(error) from None
    from automap.trace import Trace, write_trace

    first = processes is None or processes.rank == 0
    if first:
        note_devices(manifest)
    what = f"{manifest.model}: {counted(manifest.plan.groups, 'group')}, {counted(manifest.micro_batches, 'micro-batch')}, {manifest.schedule}"
    if manifest.plan.devices > manifest.plan.groups:
        what += f", on {devices_text(manifest.plan.layouts)}"
    if processes:
        what += f", in {counted(processes.count, 'process')}"
    if asked.check:
        worst, differs, losses = check.check(manifest, devices, asked.steps, asked.seed, asked.tolerance, processes)
        if differs:
            if first:
                print(f"automap-run: {what}: {differs}", file=sys.stderr)
            return 1
        if not first:
            return 0
        told = f", losses {' '.join(f'{loss:.6g}' for loss in losses)}" if losses else ""
        print(f"{what}: {asked.steps} steps equal the unsplit module's, largest relative difference {worst:.2g}{told}")
        return 0
    generator = np.random.default_rng(asked.seed)
    execution = Execution(manifest, manifest.plan, devices, processes)
    if processes:
        processes.begin()
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
                if array is not None:
                    array.block_until_ready()
        took = 1e3 * (time.perf_counter() - begun)
        loss = "" if manifest.loss_result is None else f", loss {float(np.asarray(results[manifest.loss_result])):.6g}"
        if first:
            print(f"step {step}: {took:.1f} ms{loss}", flush=True)
        if trace:
            write_trace(asked.trace, manifest, trace.finish())
            print(f"automap-run: {asked.trace} has what ran when in step {step}", file=sys.stderr)
    return 0


def main(argv=None):
    asked = arguments(sys.argv[1:] if argv is None else argv)
    try:
        if asked.processes is not None or asked.hosts is not None:
            Manifest(asked.folder)  # One word about a folder that is none, and not one of every process.
            hosts = ["localhost"] * asked.processes if asked.hosts is None else launch.read_hosts(asked.hosts)
            return launch.launch(hosts, sys.argv[1:] if argv is None else argv)
        return run(asked)
    except Error as error:
        print(f"automap-run: error: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
