"""A step that JAX traces: its HLO with a batch of any size, and which of its results are whose new values.

The convention: step(*state, batch) -> (*state, *metrics). The last argument is the batch; every argument before it is state,
and the result in its place has its structure, shapes and types.
"""

import inspect
import re

import jax
import numpy as np

from automap.errors import Error

CONVENTION = "the step has to be step(*state, batch) -> (*state, *metrics)"


def described(leaf):
    """"float32[16,32]" of an array or a shape."""
    return f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]"


def abstract(leaf):
    """Shape and type of an array or a number, as JAX holds it (64 bits become 32 unless they are enabled)."""
    if not hasattr(leaf, "dtype"):
        leaf = np.asarray(leaf)
    return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))


def named_leaves(tree, name):
    """(name, leaf) of every leaf: ("params['kernel']", array)."""
    return [(name + jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]]


def structure_text(tree):
    """The structure of a tree, of a large one the beginning."""
    text = str(jax.tree.structure(tree)).removeprefix("PyTreeDef(").removesuffix(")")
    return text if len(text) <= 200 else text[:200] + "..."


def check_structure(given, expected, name):
    """Error that names the first array that is missing or new, unless a tree has the structure that is expected."""
    if jax.tree.structure(given) == jax.tree.structure(expected):
        return
    there, wanted = ([leaf_name for leaf_name, _ in named_leaves(tree, name)] for tree in (given, expected))
    for names, others, what in ((wanted, there, "is missing"), (there, wanted, "is one more than expected")):
        unknown = sorted(set(names) - set(others), key=names.index)
        if unknown and unknown[0] != name:
            raise Error(f"{unknown[0]} {what}" + (f", and {len(unknown) - 1} more" if len(unknown) > 1 else ""))
    raise Error(f"{name} has the structure {structure_text(given)}, expected {structure_text(expected)}")


def check_same(given, expected, name):
    """Error unless a tree of arrays has the structure, shapes and types that are expected."""
    check_structure(given, expected, name)
    for (leaf_name, leaf), other in zip(named_leaves(given, name), jax.tree.leaves(expected)):
        if described(abstract(leaf)) != described(other):
            raise Error(f"{leaf_name} is {described(abstract(leaf))}, expected {described(other)}")


def with_samples(batch, samples):
    """Shapes of a batch of so many samples. Leaves without dimensions belong to every sample."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((samples, *leaf.shape[1:]) if leaf.shape else (), leaf.dtype), batch)


class TracedStep:
    """Attributes: `arguments`, a tree of shapes for each argument, the batch with `samples` samples (`given_samples` of those that
    were given); `names` of the arguments; `hlo`, the text of the module, whose parameters and results are the leaves of
    arguments and results in their order; `results`, a tree of shapes; `of_batch`, whether each leaf of them may depend on the batch."""

    def __init__(self, function, arguments, samples=None):
        # jit's settings of donation and of unused arguments are for another call than ours.
        self.function = function.__wrapped__ if hasattr(function, "lower") and hasattr(function, "__wrapped__") else function
        self.name = getattr(self.function, "__name__", "step")
        if len(arguments) < 2:
            raise Error(f"{self.name} is given {len(arguments)} argument{'s' if len(arguments) != 1 else ''}; {CONVENTION}, "
                        "at least one of state and the batch")
        self.names = _argument_names(self.function, len(arguments))
        self.arguments = tuple(_shapes(argument, name) for argument, name in zip(arguments, self.names))
        self.given_samples = self.samples = _samples_of(self.arguments[-1], self.names[-1])
        if samples is not None and samples != self.samples:
            self.arguments = (*self.arguments[:-1], with_samples(self.arguments[-1], samples))
            self.samples = samples
        self._trace()

    @property
    def state(self):
        return self.arguments[:-1]

    @property
    def batch(self):
        return self.arguments[-1]

    def at(self, samples):
        """The same step with a batch of so many samples."""
        return self if samples == self.samples else TracedStep(self.function, self.arguments, samples)

    def _trace(self):
        try:
            # An argument that is not used stays a parameter, so that parameters are numbered as the leaves are.
            traced = jax.jit(self.function, keep_unused=True).trace(*self.arguments)
            lowered = traced.lower()
        except Exception as error:
            raise Error(f"{self.name} cannot be traced with a batch of {self.samples} samples: {type(error).__name__}: "
                        f"{str(error).strip() or 'no reason is given'}") from error
        self.hlo = _without_frames(lowered.as_text("hlo", debug_info=True))
        num_batch = len(jax.tree.leaves(self.batch))
        jaxpr = traced.jaxpr.jaxpr
        self.of_batch = _reached(jaxpr, [number >= len(jaxpr.invars) - num_batch for number in range(len(jaxpr.invars))])
        self.results = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), lowered.out_info)
        if len(self.state) == 1 and jax.tree.structure(self.results) == jax.tree.structure(self.state[0]):
            self.results = (self.results,)
        if not isinstance(self.results, (tuple, list)) or len(self.results) < len(self.state):
            raise Error(f"{self.name} returns {structure_text(self.results)}, and has {len(self.state)} arguments of state; {CONVENTION}")
        for number, (new, old, name) in enumerate(zip(self.results, self.state, self.names), 1):
            try:
                check_same(new, old, f"result {number}")
            except Error as error:
                raise Error(f"{self.name}: {error}; result {number} has to be like the argument {name}: {CONVENTION}") from None

    @property
    def metrics(self):
        return tuple(self.results[len(self.state):])


def _argument_names(function, count):
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in kinds][:count]
    return names + [f"argument {i + 1}" for i in range(len(names), count)]


def _shapes(argument, name):
    for leaf_name, leaf in named_leaves(argument, name):
        if jax.dtypes.issubdtype(getattr(leaf, "dtype", np.int32), jax.dtypes.extended):
            raise Error(f"{leaf_name} is a {leaf.dtype}; give jax.random.key_data(key), and make the key of it in the step with "
                        "jax.random.wrap_key_data")
        if not hasattr(leaf, "shape") and not isinstance(leaf, (bool, int, float, complex)):
            raise Error(f"{leaf_name} is a {type(leaf).__name__}, and has to be an array or a jax.ShapeDtypeStruct; bind what is no array "
                        "with functools.partial")
    return jax.tree.map(abstract, argument)


def _samples_of(batch, name):
    """The first dimension of all leaves that have one."""
    first = {leaf_name: leaf.shape[0] for leaf_name, leaf in named_leaves(batch, name) if leaf.shape}
    if not first:
        raise Error(f"{name} has no array with a dimension of samples; {CONVENTION}")
    if len(set(first.values())) > 1:
        told = ", ".join(f"{leaf_name} {count}" for leaf_name, count in first.items())
        raise Error(f"the first dimension of every array of {name} has to be its samples, and they differ: {told}; put what is no sample "
                    "into the state")
    return next(iter(first.values()))


def _reached(jaxpr, inputs):
    """Which results of a jaxpr may depend on the inputs that are marked."""
    reached = {variable for variable, marked in zip(jaxpr.invars, inputs) if marked}
    for equation in jaxpr.eqns:
        marked = [not hasattr(one, "val") and one in reached for one in equation.invars]
        inside = getattr(equation.params.get("jaxpr"), "jaxpr", None)
        if equation.primitive.name in ("jit", "pjit") and inside is not None:
            outputs = _reached(inside, marked)
        else:
            outputs = [any(marked)] * len(equation.outvars)
        reached |= {variable for variable, marked in zip(equation.outvars, outputs) if marked}
    return [not hasattr(one, "val") and one in reached for one in jaxpr.outvars]


def _without_frames(text):
    """Without the lines of the sources: the same step traced from elsewhere is the same module. Without scopes for single operations
    of torch (aten::add.Tensor), which name no layer."""
    text = re.sub(r"aten::[\w.]+(/|(?=\)))", "", text)
    text = re.sub(r"(?ms)^(FileNames|FunctionNames|FileLocations|StackFrames)\n.*?(?=^\n|^$)", "", text)
    return re.sub(r" stack_frame_id=\d+", "", text)
