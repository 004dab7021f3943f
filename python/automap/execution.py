"""Runs a folder of programs: every group on devices of its own, of one process or of several.

JAX dispatches without waiting, so that groups work beside each other; groups of several devices of one CPU hardly do, since they take
turns (_takes_turns). With several processes each walks the whole order,
executes what its own devices do, and offers and fetches values in that order; what it has no part of is None.
"""

import json

import numpy as np

import jax
import jax.numpy as jnp

from automap.mesh import CompiledProgram, GroupMesh
from automap.programs import Manifest, ProgramsError, walk
from automap.transfers import move


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
    """One way of cutting the step (a Section of the manifest) on its devices. processes: those that the devices belong to
    (automap.processes.Processes); all of them make the same calls. None: all are this one's."""

    def __init__(self, manifest, section, devices, processes=None):
        if len(devices) < section.devices:
            raise ProgramsError(f"the plan's {section.groups} groups have {section.devices} devices together, and there are "
                                f"{len(devices)} devices; on a CPU, "
                                f"XLA_FLAGS=--xla_force_host_platform_device_count={section.devices} makes as many, and "
                                "--one-device runs every group on one")
        self.manifest, self.section, self.meshes, self.processes = manifest, section, [], processes
        for layout in section.layouts:
            first = sum(len(mesh.devices) for mesh in self.meshes)
            self.meshes.append(GroupMesh(devices[first:first + layout.devices], layout.replicas, layout.width))
        # Of every process the device that results are brought to.
        used = [device for mesh in self.meshes for device in mesh.devices]
        self.home = {device.process_index: jax.sharding.SingleDeviceSharding(device) for device in reversed(used)}
        idle = sorted(set(range(processes.count)) - set(self.home)) if processes else []
        if idle:
            raise ProgramsError(f"process {idle[0]} has none of the {section.devices} devices of the plan; start at most {section.devices} "
                                "processes, and give the devices of all of them")
        self.inputs = {manifest.input_name(one): one for one in manifest.inputs}
        self.peak = 0
        self._made = {}  # (group, value) -> the sharding in which a program of the group made it
        self.run_of = {}
        self._running = {}  # group that _takes_turns -> what its last program makes
        self._compile()
        if processes:
            self._tell_layouts()

    def here(self, group):
        """Whether devices of the group are this process's."""
        return self.processes is None or any(device.process_index == self.processes.rank for device in self.meshes[group].devices)

    def _tell_layouts(self):
        """XLA has decided how values lie on a group's devices: the processes that have none of them are told."""
        number = self.processes.next_number()
        for group, mesh in enumerate(self.meshes):
            first, key = mesh.devices[0].process_index, f"layout/{self.processes.of_run}/{number}/{group}"
            if first == self.processes.rank:
                self.processes.tell(key, json.dumps({name: mesh.told(sharding) for (of, name), sharding in self._made.items() if of == group}))
            elif not self.here(group):
                self._made.update({(group, name): mesh.of_told(told) for name, told in json.loads(self.processes.hear(key, first)).items()})

    def _compile(self):
        """A program behind those of its group whose values it reads: XLA decides how they lie."""
        made_here = {(p.group, name) for p in self.section.programs for name in p.makes}
        waiting = [program for program in self.section.programs if self.here(program.group)]
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
        """An array that every process of the group has, or one on the group's devices, as the group holds it."""
        sharding = self.sharding(group, name)
        if not self.here(group) or array is None:
            return None
        if sharding.is_fully_addressable or (isinstance(array, jax.Array) and array.sharding.device_set == sharding.device_set):
            return jax.device_put(array, sharding)
        whole = np.asarray(array)
        return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])

    def moved(self, array, name, source, group):
        """A value of the group `source` on the devices of another."""
        return self._move(array, name, self.sharding(source, name), self.sharding(group, name))

    def _move(self, array, name, source, target):
        told = self.section.values[name] if self.section.is_value(name) else self.inputs[name]
        kind, shape = parse_shape(told["shape"])
        return move(array, source, target, shape, kind, self.processes)

    def everywhere(self, array, name, group, ranks=None):
        """A value or an input of a group whole on one device of every process, or of those of `ranks`."""
        if self.processes is None:
            return array
        for rank in sorted(self.home) if ranks is None else ranks:
            told = self._move(array, name, self.sharding(group, name), self.home[rank])
            if rank == self.processes.rank:
                mine = told
        return mine if ranks is None or self.processes.rank in ranks else None

    def holders(self, name):
        told = self.section.holders[name]
        return sorted({told["owner"], *told["held_by"]})

    def init(self, arrays):
        """`arrays`: of every input that is no batch, by the manifest's name "p3"; where the plan wants them."""
        return {name: {g: self.put(arrays[name], name, g) for g in self.holders(name)}
                for name, one in self.inputs.items() if one["role"] != "batch"}

    def gather(self, state):
        """By the manifest's names numpy arrays, in every process."""
        owners = {name: self.section.holders[name]["owner"] for name in state}
        return {name: np.asarray(self.everywhere(held[owners[name]], name, owners[name])) for name, held in state.items()}

    def all_results(self, results):
        """Results of a step, those that are new values of inputs as well, whole in process 0; None in the others."""
        if self.processes is None:
            return results
        return [one if self._is_metric(number) else self.everywhere(one, *self._source(result), ranks=[0])
                for number, (one, result) in enumerate(zip(results, self.section.results))]

    def _is_metric(self, number):
        return all(one.get("result") != number for one in self.inputs.values())

    def _source(self, result):
        """The name of a result, and the group that has it."""
        if "input" in result:
            return result["input"], self.section.holders[result["input"]]["owner"]
        return result["value"], self.section.values[result["value"]]["group"]

    def _takes_turns(self, group):
        """Whether a program of the group is begun when the one before has ended. On a CPU a device that waits in a sum keeps one of XLA's
        threads, of which there may be no more than devices: two programs of a group, begun in different order on its devices, would wait
        for each other for ever."""
        devices = self.meshes[group].devices
        return len(devices) > 1 and devices[0].platform == "cpu"

    def _wait_for_turn(self, group):
        for array in self._running.pop(group, []):
            if not array.is_deleted():
                array.block_until_ready()

    def step(self, state, batches, trace=None, call=None):
        """`batches`: of every micro-batch its arrays by name. The new state, and the results by number: what is the new value of an
        input where its group is, anything else in every process. `call`(program, compiled, arrays), where it is given, runs a
        program in place of compiled(arrays)."""
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
            if not self.here(program.group):
                return [None] * len(program.makes)
            self._wait_for_turn(program.group)
            dispatched = trace.dispatching() if trace else None
            compiled = self.run_of[program.name]
            made = call(program, compiled, arrays) if call else compiled(arrays)
            if self._takes_turns(program.group):
                self._running[program.group] = made
            if trace:
                trace.ran(program, m, dispatched, made, section.waited_for(program, m))
            return made

        def run(program, m):
            made = called(program, m, [operand(name, program.group, m) for name in program.reads])
            for name, array in zip(program.makes, made):
                how = section.combined(name)
                if how == "mean" and array is None:
                    sums[name] = None
                elif how == "mean":
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
            there[group, name, m] = self.moved(there[program.group, name, m], name, program.group, group)
            # A value that its own group does not read is kept by the groups that it went to.
            last = max(r.group for r in section.readers[name] if r.kind != "update" and r.group != program.group)
            if group == last and (program.group, name, m) not in uses:
                del there[program.group, name, m]

        walk(section, run, send)
        once = {}

        def value(name, group):
            if (name, group) not in once:
                source = section.values[name]["group"]
                if group != source:
                    once[name, group] = self.moved(value(name, source), name, source, group)
                elif section.combined(name) == "mean":
                    total = sums[name]
                    if total is not None:
                        total = (total / section.micro_batches).astype(last_m[name])
                    once[name, group] = self.put(total, name, group)
                else:
                    once[name, group] = self.put(sums[name][0][1], name, group)
            return once[name, group]

        for program in section.updates:
            read = [value(n, program.group) if section.is_value(n) else operand(n, program.group, 0) for n in program.reads]
            for name, array in zip(program.makes, called(program, 0, read)):
                once[name, program.group] = array
        results = []
        for number, result in enumerate(section.results):
            name, group = self._source(result)
            if "input" in result and self.inputs[name]["role"] == "batch":
                results.append([batch[name] for batch in batches])
                continue
            if "input" in result:
                found = [state[name][group]]
            elif result.get("combine") == "each":
                found = [array for _, array in sorted(sums[name], key=lambda one: one[0])]
            else:
                found = [value(name, group)]
            if self._is_metric(number):
                found = [self.everywhere(array, name, group) for array in found]
            results.append(found if result.get("combine") == "each" else found[0])
        changed = {}
        for name, one in self.inputs.items():
            if one["role"] == "batch":
                continue
            changed[name] = state[name]
            if "result" in one:
                new, (made, source) = results[one["result"]], self._source(section.results[one["result"]])
                # A group takes its own new value as it holds the old one.
                changed[name] = {g: self.put(new, name, g) if g == source else
                                 self._move(new, made, self.sharding(source, made), self.sharding(g, name)) for g in self.holders(name)}
        return changed, results


def load(folder, devices=None):
    """The plan of a folder, ready to run: (manifest, Execution)."""
    manifest = Manifest(folder)
    return manifest, Execution(manifest, manifest.plan, devices or jax.devices())
