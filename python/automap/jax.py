"""Runs a plan with JAX: compile(plan) gives a Run, whose step is the user's own step, pipelined, by the user's pytrees."""

import os
import pickle
import tempfile

from automap import installed
from automap.errors import Error
from automap.planning import Plan, write_module
from automap.programs import Manifest

try:
    import jax
    import jax.numpy as jnp
    import numpy as np

    from automap.execution import Execution, parse_shape
    from automap.processes import dealt, in_order, of_runtime
    from automap.tracing import abstract, check_same, check_structure, described, named_leaves, with_samples
except ImportError as error:
    raise installed.jax_error(error) from None


def compile(plan, devices=None, one_device=False):
    """Cuts the step into the plan's programs and compiles them.

    plan: of automap.plan or automap.load. devices: JAX devices in the order of the plan's groups (default: jax.devices());
    it takes plan.devices of them. one_device: every group on one device, whatever the plan has; the numbers are the same.
    Of several processes (jax.distributed.initialize) all do the same with the same plan, and each has groups, or parts of one.
    """
    chosen = devices is not None
    if not isinstance(plan, Plan):
        raise Error(f"a {type(plan).__name__} is no plan; give what automap.plan or automap.load returned")
    try:
        devices = list(jax.devices() if devices is None else devices)
    except TypeError:
        devices = [devices]
    if not all(hasattr(device, "process_index") for device in devices):
        raise Error("devices has to be a list of JAX devices, as jax.devices() is")
    twice = [device for number, device in enumerate(devices) if device in devices[:number]]
    if twice:
        raise Error(f"{twice[0]} is twice among the devices, and each can be given once")
    needed = len(plan.record["groups"]) if one_device else plan.devices
    if len(devices) < needed:
        raise Error(f"the plan takes {needed} devices, and there are {len(devices)}; plan for a cluster of so many, or, on a CPU, let "
                    f"XLA_FLAGS=--xla_force_host_platform_device_count={needed} make as many before JAX is imported")
    with tempfile.TemporaryDirectory(prefix="automap_") as folder:
        module = plan.module or write_module(plan.step, folder)
        path, programs = os.path.join(folder, "plan.json"), os.path.join(folder, "programs")
        plan.save(path)
        installed.call("automap-emit", path, "--model", module, "--to", "hlo", "-o", programs, folder=folder)
        manifest = Manifest(programs)
        if one_device:
            manifest.plan.on_one_device_each()
        trees = _of_function(manifest, plan.step) if plan.step else _of_file(manifest)
        if not chosen and jax.process_count() > 1:
            devices = in_order(devices, dealt([layout.devices for layout in manifest.plan.layouts], jax.process_count()))
        alone = {device.process_index for device in devices[:manifest.plan.devices]} == {jax.process_index()}
        processes = None if alone else of_runtime()
        execution = Execution(manifest, manifest.plan, devices, processes)
        if processes:
            processes.begin()
        return Run(plan, manifest, trees, execution)


class _Trees:
    """The names of the leaves of the user's trees in the manifest.

    state, names: a tree of shapes for each argument of state, and what the arguments are called; state_inputs, batch_inputs:
    the input ("p3") of each leaf; metrics: the structure of what a step returns beside the state, and metric_results: the
    result of each of its leaves.
    """

    def __init__(self, state, batch, names, state_inputs, batch_inputs, metrics, metric_results):
        self.state, self.batch, self.names = state, batch, names
        self.state_inputs, self.batch_inputs = state_inputs, batch_inputs
        self.metrics, self.metric_results = metrics, metric_results


def _of_function(manifest, step):
    """The structure of the step says what is state, and which result is its new value; the module alone says most of it."""
    num_state, num_batch = len(jax.tree.leaves(step.state)), len(jax.tree.leaves(step.batch))
    names = [name for tree, of in zip(step.arguments, step.names) for name, _ in named_leaves(tree, of)]
    batch = jax.tree.leaves(step.batch)
    updates = {name for program in manifest.plan.updates for name in program.reads}
    for one in manifest.inputs:
        number = one["parameter"]
        if number < num_state:
            one["result"] = number
            if one["role"] == "batch":
                one["role"] = "state"
            if manifest.plan.results[number].get("combine") == "each" and step.of_batch[number]:
                raise Error(f"{names[number]}: every micro-batch makes another new value, and a step has one")
        elif batch[number - num_state].shape:
            if one["role"] != "batch" and manifest.input_name(one) in updates:
                raise Error(f"{names[number]} has samples, and is read where the weights are updated, once for all micro-batches")
            one["role"] = "batch"
    for result, of_batch in zip(manifest.plan.results, step.of_batch):
        if "combine" in result and not of_batch:
            result["combine"] = "none"  # All micro-batches make the same: that of the first will do.
    if len(manifest.inputs) != num_state + num_batch:
        raise Error(f"the step has {num_state + num_batch} arrays, and its module {len(manifest.inputs)} parameters")
    num_results = num_state + len(jax.tree.leaves(step.metrics))
    return _Trees(step.state, step.batch, step.names, [f"p{n}" for n in range(num_state)], [f"p{num_state + n}" for n in range(num_batch)],
                  jax.tree.structure(step.metrics), range(num_state, num_results))


def _of_file(manifest):
    """A module has no trees: state and batch are a dict each, by the names that its inputs have."""
    names = [one["name"] for one in manifest.inputs]
    called = {manifest.input_name(one): one["name"] if names.count(one["name"]) == 1 else manifest.input_name(one) for one in manifest.inputs}

    def of(inputs):
        return {called[manifest.input_name(one)]: jax.ShapeDtypeStruct(*reversed(parse_shape(one["shape"]))) for one in inputs}

    fed = [one for one in manifest.inputs if one["role"] == "batch"]
    state, batch = of(one for one in manifest.inputs if one["role"] != "batch"), of(fed)
    input_of = {name: number for number, name in called.items()}
    new = {one["result"] for one in manifest.inputs if "result" in one}
    others = [number for number in range(len(manifest.plan.results)) if number not in new]
    return _Trees((state,), batch, ["state", "batch"], [input_of[name] for name in sorted(state)], [input_of[name] for name in sorted(batch)],
                  jax.tree.structure((0,) * len(others)), others)


def _alone(values):
    """As a function returns them: one is not put into a tuple."""
    return values[0] if len(values) == 1 else tuple(values)


def _of_pickle(path):
    try:
        with open(path, "rb") as file:
            return pickle.load(file)
    except OSError as error:
        raise Error(f"{path} cannot be read: {error.strerror}") from None
    except Exception as error:  # Bytes that are no pickle may raise anything.
        raise Error(f"{path} is not what pickle wrote ({type(error).__name__}: {error}); write it with pickle.dump(run.gather(state), file), "
                    "or a folder with orbax") from None


def _of_orbax(path, expected):
    try:
        import orbax.checkpoint
    except ImportError:
        raise Error(f"{path} is a folder, and reading a checkpoint of orbax takes the package orbax-checkpoint: pip install it") from None
    # Into memory of the host: a state that is cut over devices need not fit on one of them.
    shapes = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), expected)
    try:
        with orbax.checkpoint.StandardCheckpointer() as checkpointer:
            return jax.tree.map(np.asarray, checkpointer.restore(path, shapes))
    except Exception as error:  # Orbax has no class of its own for what does not fit.
        raise Error(f"{path} is no checkpoint of this step: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}") from None


class Run:
    """A compiled plan. `plan`; `devices`: those that it uses."""

    def __init__(self, plan, manifest, trees, execution):
        self.plan, self._manifest, self._trees, self._execution = plan, manifest, trees, execution
        self._role = {manifest.input_name(one): one["role"] for one in manifest.inputs}
        self.devices = [device for mesh in execution.meshes for device in mesh.devices]

    def init(self, *state):
        """The state of a run of the step's arguments but the batch, its arrays where the plan wants them. What is returned is
        a tree of arrays for step and gather; what is in it is the run's own affair."""
        trees = self._trees
        if len(state) != len(trees.state):
            raise Error(f"init is given {len(state)} arguments, expected {len(trees.state)}: {', '.join(trees.names[:-1])}")
        for given, expected, name in zip(state, trees.state, trees.names):
            check_same(given, expected, name)
        arrays = dict(zip(trees.state_inputs, jax.tree.leaves(state)))
        # Numbers of the batch come with every step.
        for name, leaf in zip(trees.batch_inputs, jax.tree.leaves(trees.batch)):
            if self._role[name] != "batch":
                arrays[name] = np.zeros(leaf.shape, leaf.dtype)
        return self._execution.init(arrays)

    def restore(self, path):
        """The state of a run that a checkpoint holds: what gather returned of a run of the same step, under any plan. A folder is
        one of orbax (StandardCheckpointer), a file one of pickle, which executes what is in it: read only files of your own.
        Of several processes each reads it."""
        path, expected = os.path.abspath(path), _alone(self._trees.state)
        state = _of_orbax(path, expected) if os.path.isdir(path) else _of_pickle(path)
        try:
            # Of a step of one state that is it, of others a tuple, which other forms of files may have made a list.
            return self.init(*(state if len(self._trees.state) > 1 and isinstance(state, (tuple, list)) else (state,)))
        except Error as error:
            raise Error(f"{path} is no checkpoint of this step: {error}") from None

    def step(self, state, batch):
        """One step: (the new state, metrics).

        batch: as the step's own, of plan.batch_size samples, in every process; each takes what its devices read. metrics: what the step returns behind its state, one thing alone or
        a tuple. Floating-point scalars are means over the micro-batches, other metrics that depend on the batch have one dimension
        more, in front: the micro-batch. What does not depend on it is as the step returns it.
        """
        self._check_state(state)
        trees, samples = self._trees, self.plan.micro_batch_size
        self._check_batch(batch)
        fed, of_step = [{} for _ in range(self.plan.micro_batches)], {}
        for name, leaf in zip(trees.batch_inputs, jax.tree.leaves(batch)):
            if self._role[name] != "batch":
                of_step[name] = {group: self._execution.put(leaf, name, group) for group in self._execution.holders(name)}
                continue
            whole = leaf if hasattr(leaf, "shape") else np.asarray(leaf)
            for number, micro_batch in enumerate(fed):
                micro_batch[name] = whole[number * samples:(number + 1) * samples] if whole.shape else whole
        state, results = self._execution.step({**state, **of_step}, fed)
        metrics = [jnp.stack(results[number]) if isinstance(results[number], list) else results[number] for number in trees.metric_results]
        return state, _alone(jax.tree.unflatten(trees.metrics, metrics))

    def gather(self, state):
        """The step's arguments of state as numpy arrays, one alone or a tuple; in every process, all of which call it."""
        self._check_state(state)
        arrays = self._execution.gather(state)
        return _alone(jax.tree.unflatten(jax.tree.structure(self._trees.state), [arrays[name] for name in self._trees.state_inputs]))

    def _check_state(self, state):
        expected = {name for name, role in self._role.items() if role != "batch"}
        if not isinstance(state, dict) or set(state) != expected:
            raise Error("the state is not one of this run; give what init or step returned")

    def _check_batch(self, batch):
        expected, size, name = self._trees.batch, self.plan.batch_size, self._trees.names[-1]
        check_structure(batch, expected, name)
        for (leaf_name, leaf), wanted in zip(named_leaves(batch, name), jax.tree.leaves(with_samples(expected, size))):
            if described(abstract(leaf)) != described(wanted):
                raise Error(f"{leaf_name} is {described(abstract(leaf))}, expected {described(wanted)}: {self.plan.micro_batches} "
                            f"micro-batches of {self.plan.micro_batch_size} samples")
