"""Runs a folder of programs on the devices of one process: every group on devices of its own.

JAX dispatches without waiting, so that groups work beside each other; values go from group to group by device_put.
"""

import numpy as np

import jax
import jax.numpy as jnp

from automap.mesh import CompiledProgram, GroupMesh
from automap.programs import Manifest, ProgramsError, walk


def parse_shape(text):
    """"f32[2,3]" -> (numpy type, (2, 3))."""
    name = text.split("[")[0]
    kinds = {"pred": "bool", "bf16": jnp.bfloat16}
    if name in kinds:
        kind = np.dtype(kinds[name])
    elif name[0] in "sufc" and name[1:].isdigit():
        kind = np.dtype({"s": "int", "u": "uint", "f": "float", "c": "complex"}[name[0]] + name[1:])
    else:
        raise ProgramsError(f"an input has the type {name}, which this runner does not know")
    return kind, dims_of(text)


def dims_of(text):
    """"f32[2,3]" -> (2, 3), whatever the type."""
    return tuple(int(d) for d in text.rstrip("]").split("[")[1].split(",") if d)


_add = jax.jit(jnp.add)


class Execution:
    """One way of cutting the step (a Section of the manifest) on its devices."""

    def __init__(self, manifest, section, devices):
        if len(devices) < section.devices:
            raise ProgramsError(f"the plan's {section.groups} groups have {section.devices} devices together, and there are "
                                f"{len(devices)} devices; on a CPU, "
                                f"XLA_FLAGS=--xla_force_host_platform_device_count={section.devices} makes as many, and "
                                "--one-device runs every group on one")
        self.manifest, self.section, self.meshes = manifest, section, []
        for layout in section.layouts:
            first = sum(len(mesh.devices) for mesh in self.meshes)
            self.meshes.append(GroupMesh(devices[first:first + layout.devices], layout.replicas, layout.width))
        self.inputs = {manifest.input_name(one): one for one in manifest.inputs}
        self.peak = 0
        self._made = {}  # (group, value) -> the sharding in which a program of the group made it
        self.run_of = {}
        self._compile()

    def _compile(self):
        """A program behind those of its group whose values it reads: XLA decides how they lie."""
        made_here = {(p.group, name) for p in self.section.programs for name in p.makes}
        waiting = list(self.section.programs)
        while waiting:
            ready = [p for p in waiting
                     if all((p.group, n) in self._made or (p.group, n) not in made_here for n in p.reads)]
            if not ready:
                raise ProgramsError(f"{waiting[0].file}: it reads what it makes itself; write the folder again")
            for program in ready:
                self.run_of[program.name] = self._compiled(program)
                for name, sharding in zip(program.makes, self.run_of[program.name].shardings):
                    self._made[program.group, name] = sharding
                waiting.remove(program)

    def _compiled(self, program):
        mesh, layout = self.meshes[program.group], self.section.layouts[program.group]
        # Gradients and new values of inputs lie as the manifest says; of all else XLA decides.
        told = {name: name for name in program.makes if self.section.values[name]["what"] == "gradient"}
        for name, one in self.inputs.items():
            result = self.section.results[one["result"]] if "result" in one else {}
            if "value" in result and self.section.holders[name]["owner"] == program.group:
                told[result["value"]] = name
        makes = [self.sharding(program.group, told[name]) if name in told else None for name in program.makes]
        # A weight in parts over the replicas is brought together where it is computed with.
        gathered = {}
        for number, name in enumerate(program.reads):
            split = layout.split(name)
            if program.kind != "update" and "replicas" in split and name in self.inputs and self.inputs[name]["role"] == "variable":
                gathered[number] = mesh.sharding({axis: dim for axis, dim in split.items() if axis != "replicas"})
        return CompiledProgram(self.manifest.text(program.file), program.file, mesh,
                               [self.sharding(program.group, name) for name in program.reads], makes,
                               [dims_of(self.section.values[name]["shape"]) for name in program.makes], gathered)

    def sharding(self, group, name):
        """The sharding of an input or a value over the devices of a group."""
        if (group, name) in self._made:
            return self._made[group, name]
        return self.meshes[group].sharding(self.section.layouts[group].split(name))

    def put(self, array, name, group):
        return jax.device_put(array, self.sharding(group, name))

    def holders(self, name):
        told = self.section.holders[name]
        return sorted({told["owner"], *told["held_by"]})

    def init(self, arrays):
        """`arrays`: of every input that is no batch, by the manifest's name "p3"; where the plan wants them."""
        return {name: {g: self.put(arrays[name], name, g) for g in self.holders(name)}
                for name, one in self.inputs.items() if one["role"] != "batch"}

    def gather(self, state):
        return {name: np.asarray(held[self.section.holders[name]["owner"]]) for name, held in state.items()}

    def step(self, state, batches, trace=None, call=None):
        """`batches`: of every micro-batch its arrays by name. The new state, and the results by number. `call`(program, compiled,
        arrays), where it is given, runs a program in place of compiled(arrays)."""
        section = self.section
        fed = [{(name, g): self.put(array, name, g) for name, array in batch.items() for g in self.holders(name)}
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

        def called(program, m, arrays):
            dispatched = trace.dispatching() if trace else None
            compiled = self.run_of[program.name]
            made = call(program, compiled, arrays) if call else compiled(arrays)
            if trace:
                trace.ran(program, m, dispatched, made, section.waited_for(program, m))
            return made

        def run(program, m):
            made = called(program, m, [operand(name, program.group, m) for name in program.reads])
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
            there[group, name, m] = self.put(there[program.group, name, m], name, group)
            # A value that its own group does not read is kept by the groups that it went to.
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
                    once[name, group] = self.put(total, name, group)
                else:
                    once[name, group] = self.put(once[name, section.values[name]["group"]], name, group)
            return once[name, group]

        for program in section.updates:
            read = [value(n, program.group) if section.is_value(n) else operand(n, program.group, 0) for n in program.reads]
            for name, array in zip(program.makes, called(program, 0, read)):
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
                changed[name] = {g: self.put(new, name, g) for g in self.holders(name)}
        return changed, results


def load(folder, devices=None):
    """The plan of a folder, ready to run: (manifest, Execution)."""
    manifest = Manifest(folder)
    return manifest, Execution(manifest, manifest.plan, devices or jax.devices())
