"""Runs a folder of programs on the devices of one process: every group on a device of its own.

JAX dispatches without waiting, so that groups work beside each other; values go from device to device by device_put.
"""

import numpy as np

import jax
import jax.numpy as jnp
from jaxlib import _hlo, _jax

from automap.programs import Manifest, ProgramsError, walk


def parse_shape(text):
    """"f32[2,3]" -> (numpy type, (2, 3))."""
    name, dims = text.rstrip("]").split("[")
    kinds = {"pred": "bool", "bf16": jnp.bfloat16}
    if name in kinds:
        kind = np.dtype(kinds[name])
    elif name[0] in "sufc" and name[1:].isdigit():
        kind = np.dtype({"s": "int", "u": "uint", "f": "float", "c": "complex"}[name[0]] + name[1:])
    else:
        raise ProgramsError(f"an input has the type {name}, which this runner does not know")
    return kind, tuple(int(d) for d in dims.split(",") if d)


def compile_text(text, device, name):
    """HLO text as a program on one device; a function from arrays to a list of arrays."""
    try:
        module = _hlo.hlo_module_from_text(text)
        lowered = _jax.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
        options = _jax.CompileOptions()
        options.num_replicas = options.num_partitions = 1
        options.device_assignment = _jax.DeviceAssignment.create(np.array([[device.id]]))
        options.compile_portable_executable = False
        loaded = device.client.compile_and_load(lowered, _jax.DeviceList((device,)), options)
    except Exception as error:
        raise ProgramsError(f"{name}: XLA does not take it: {str(error).splitlines()[0]}") from error

    def run(arrays):
        try:
            return [parts[0] for parts in loaded.execute_sharded(arrays).disassemble_into_single_device_arrays()]
        except Exception as error:
            raise ProgramsError(f"{name}: XLA cannot run it: {str(error).splitlines()[0]}") from error

    return run


_add = jax.jit(jnp.add)


class Execution:
    """One way of cutting the step (a Section of the manifest) on its devices."""

    def __init__(self, manifest, section, devices):
        if len(devices) < section.groups:
            raise ProgramsError(f"the plan has {section.groups} groups, and there are {len(devices)} devices; on a CPU, "
                                f"XLA_FLAGS=--xla_force_host_platform_device_count={section.groups} makes as many")
        self.manifest, self.section, self.devices = manifest, section, devices[:section.groups]
        self.run_of = {p.name: compile_text(manifest.text(p.file), self.devices[p.group], p.file) for p in section.programs}
        self.inputs = {manifest.input_name(one): one for one in manifest.inputs}
        self.peak = 0

    def holders(self, name):
        told = self.section.holders[name]
        return sorted({told["owner"], *told["held_by"]})

    def init(self, arrays):
        """`arrays`: of every input that is no batch, by the manifest's name "p3"; where the plan wants them."""
        return {name: {g: jax.device_put(arrays[name], self.devices[g]) for g in self.holders(name)}
                for name, one in self.inputs.items() if one["role"] != "batch"}

    def gather(self, state):
        return {name: np.asarray(held[self.section.holders[name]["owner"]]) for name, held in state.items()}

    def step(self, state, batches):
        """`batches`: of every micro-batch its arrays by name. The new state, and the results by number."""
        section, devices = self.section, self.devices
        fed = [{(name, g): jax.device_put(array, devices[g]) for name, array in batch.items() for g in self.holders(name)}
               for batch in batches]
        there, sums, last_m = {}, {}, {}

        def operand(name, group, m):
            if section.is_value(name):
                return there[group, name, m]
            return fed[m][name, group] if self.inputs[name]["role"] == "batch" else state[name][group]

        uses = {}
        for group, order in enumerate(section.order):
            for item in order:
                program = section.program_of(item)
                for name in program.reads if program else ():
                    if section.is_value(name):
                        uses[group, name, item[2]] = uses.get((group, name, item[2]), 0) + 1

        def run(program, m):
            made = self.run_of[program.name]([operand(name, program.group, m) for name in program.reads])
            for name, array in zip(program.makes, made):
                how = section.combined(name)
                if how == "mean":
                    wide = array.astype(jnp.float32) if array.dtype.itemsize < 4 else array
                    sums[name] = wide if name not in sums else _add(sums[name], wide)
                    last_m[name] = array.dtype
                elif how in ("each", "none"):
                    sums.setdefault(name, []).append((m, array))
                if (program.group, name, m) in uses or any(r.group != program.group for r in section.readers.get(name, [])):
                    there[program.group, name, m] = array
            for name in program.reads:
                key = (program.group, name, m)
                if key in uses:
                    uses[key] -= 1
                    if uses[key] == 0:
                        there.pop(key, None)
            self.peak = max(self.peak, len(there))

        def send(program, name, m, group):
            there[group, name, m] = jax.device_put(there[program.group, name, m], devices[group])
            # What its own group does not read is kept by those that it went to.
            last = max(r.group for r in section.readers[name] if r.kind != "update" and r.group != program.group)
            if group == last and (program.group, name, m) not in uses:
                del there[program.group, name, m]

        walk(section, run, send)
        once = {}

        def value(name, group):
            if (name, group) not in once:
                if name in sums:
                    total = sums[name]
                    if section.combined(name) == "mean":
                        total = (total / section.micro_batches).astype(last_m[name])
                    else:
                        total = total[0][1]
                    once[name, group] = jax.device_put(total, devices[group])
                else:
                    once[name, group] = jax.device_put(once[name, section.values[name]["group"]], devices[group])
            return once[name, group]

        for program in section.updates:
            read = [value(n, program.group) if section.is_value(n) else operand(n, program.group, 0) for n in program.reads]
            for name, array in zip(program.makes, self.run_of[program.name](read)):
                once[name, program.group] = array
        results = []
        for result in section.results:
            if "input" in result:
                name = result["input"]
                results.append([batch[name] for batch in batches] if self.inputs[name]["role"] == "batch"
                               else state[name][section.holders[name]["owner"]])
            elif result.get("combine") == "each":
                results.append([array for _, array in sorted(sums[result["value"]], key=lambda one: one[0])])
            else:
                results.append(value(result["value"], section.values[result["value"]]["group"]))
        changed = {}
        for name, one in self.inputs.items():
            if one["role"] == "batch":
                continue
            changed[name] = state[name]
            if "result" in one:
                new = results[one["result"]]
                changed[name] = {g: jax.device_put(new, devices[g]) for g in self.holders(name)}
        return changed, results


def load(folder, devices=None):
    """The plan of a folder, ready to run: (manifest, Execution)."""
    manifest = Manifest(folder)
    return manifest, Execution(manifest, manifest.plan, devices or jax.devices())
