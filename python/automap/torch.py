"""A training step of PyTorch planned: module, example inputs and optimizer become a step of JAX, by torchax.

    import automap.torch
    plan = automap.torch.plan(module, (ids, labels), torch.optim.AdamW(module.parameters()), cluster="h100-4x8", batch_size=256)
    automap.torch.export_step(module, (ids, labels), optimizer, "step.hlo")

automap.export_torch is the command. Nothing is computed: modules and inputs on torch's device "meta" do.
Layers are called as the module calls them (blocks.3.mlp is blocks/3/mlp), weights by their names in state_dict.
"""

import contextlib
import copy
import sys

from automap import planning
from automap.errors import Error

try:
    import jax
    import torch
    import torchax
except (ImportError, AttributeError) as error:  # An AttributeError: torchax and torch do not fit each other.
    raise Error(f"automap.torch needs torch, torchax and jax that fit each other, and {sys.executable} has not ({error}); in a "
                "checkout scripts/torch_python.sh makes an environment that has", 2) from None


def step(module, inputs, optimizer, loss=None):
    """(the step, its arguments) as automap.plan takes them: step(params, opt_state, buffers, batch) gives those three anew, and the loss.

    module: torch.nn.Module, on any device. inputs: a tensor, a tuple (module(*inputs)) or a dict (module(**inputs)) of example
        tensors, whose first dimension is the samples, and of numbers and flags. optimizer: of torch.optim or of your own, over the
        module's parameters; those that it has not, or that need no gradient, are not trained.
    loss: loss(module, inputs), which calls the module; default: what the module returns, a tensor without dimensions, or that
        as `.loss`, ["loss"] or first of a tuple.
    """
    _check(module, optimizer)
    return _Step(module, inputs, optimizer, loss).with_arguments()


def plan(module, inputs, optimizer, *, cluster, loss=None, **options):
    """The plan of automap.plan for a step of PyTorch. module, inputs, optimizer, loss: as `step` takes them; cluster, options: as
    automap.plan does."""
    function, arguments = step(module, inputs, optimizer, loss)
    return planning.plan(function, *arguments, cluster=cluster, **options)


def export_step(module, inputs, optimizer, path, loss=None):
    """Writes the step as HLO text, which every program of AutoMap takes. module, inputs, optimizer, loss: as `step` takes them."""
    from automap.tracing import TracedStep

    function, arguments = step(module, inputs, optimizer, loss)
    planning.write_whole(path, TracedStep(function, arguments).hlo)


def _check(module, optimizer):
    if not isinstance(module, torch.nn.Module):
        raise Error(f"the module is a {type(module).__name__}, and has to be a torch.nn.Module")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise Error(f"the optimizer is a {type(optimizer).__name__}, and has to be one of torch.optim, such as "
                    "torch.optim.AdamW(module.parameters())")
    own = {id(weight) for weight in module.parameters()}
    given = [weight for group in optimizer.param_groups for weight in group["params"]]
    if not any(id(weight) in own and weight.requires_grad for weight in given):
        raise Error("the optimizer has none of the module's weights that need a gradient; make it with module.parameters(), after the "
                    "module is as it will be trained")


def _shape(tensor):
    from torchax.ops import mappings

    return jax.ShapeDtypeStruct(tuple(tensor.shape), mappings.t2j_dtype(tensor.dtype))


class _Called(torch.nn.Module):
    """The loss as a module, so that its weights can be given with the call."""

    def __init__(self, module, loss):
        super().__init__()
        self.module, self._loss = module, loss

    def forward(self, inputs):
        if self._loss is not None:
            return _only(self._loss(self.module, inputs), "the loss function")
        if isinstance(inputs, dict):
            return _only(self.module(**inputs), "the module")
        return _only(self.module(*inputs) if isinstance(inputs, (tuple, list)) else self.module(inputs), "the module")


def _only(result, what):
    """The loss that is returned."""
    found = result
    if not isinstance(found, torch.Tensor):
        found = getattr(result, "loss", None)
        if found is None and isinstance(result, dict):
            found = result.get("loss")
        if found is None and isinstance(result, (tuple, list)) and result:
            found = result[0]
    if not isinstance(found, torch.Tensor) or found.ndim != 0:
        shown = f"a tensor of shape {list(found.shape)}" if isinstance(found, torch.Tensor) else f"a {type(result).__name__}"
        raise Error(f"{what} returns {shown}, and no loss; give loss=, a function (module, inputs) that returns a tensor without dimensions")
    return found


class _Step:
    def __init__(self, module, inputs, optimizer, loss):
        self.env = torchax.default_env()
        self.called = _Called(module, loss)
        self.optimizer = optimizer
        named = list(module.named_parameters())
        in_groups = {id(weight): number for number, group in enumerate(optimizer.param_groups) for weight in group["params"]}
        self.group_of = {name: in_groups[id(weight)] for name, weight in named if weight.requires_grad and id(weight) in in_groups}
        self.params = {name: _shape(weight) for name, weight in named if name in self.group_of}
        self.buffers = {name: _shape(weight) for name, weight in [*named, *module.named_buffers()] if name not in self.group_of}
        self.path_of = {id(one): name.split(".") for name, one in module.named_modules() if name}
        # Tensors of the inputs by their names; the rest stands in the step.
        leaves, self.tree = jax.tree_util.tree_flatten_with_path(inputs, is_leaf=lambda leaf: leaf is None)
        self.leaves = [leaf for _, leaf in leaves]
        self.names = [jax.tree_util.keystr(path, simple=True, separator=".") or "input" for path, _ in leaves]
        self.batch = {name: _shape(leaf) for name, leaf in zip(self.names, self.leaves) if isinstance(leaf, torch.Tensor)}
        if not self.batch:
            raise Error("there is no tensor among the inputs; give those of a micro-batch, samples in the first dimension")

    def with_arguments(self):
        def train_step(params, opt_state, buffers, batch):
            (value, buffers), gradients = jax.value_and_grad(self.forward, has_aux=True)(params, buffers, batch)
            with jax.named_scope("optimizer"):
                params, opt_state = self.update(params, opt_state, gradients)
            return params, opt_state, buffers, value

        try:
            _, opt_state = jax.eval_shape(lambda params: self.update(params, None, params), self.params)
        except Error:
            raise
        except Exception as error:
            raise Error(f"a step of {type(self.optimizer).__name__} cannot be traced: {first_line(error)}") from error
        return train_step, (self.params, opt_state, self.buffers, self.batch)

    def forward(self, params, buffers, batch):
        """(the loss, the buffers as the module leaves them)."""
        weights, state, tensors = self.env.j2t_iso((params, buffers, batch))
        leaves = [tensors[name] if name in tensors else leaf for name, leaf in zip(self.names, self.leaves)]
        inputs = jax.tree_util.tree_unflatten(self.tree, leaves)
        # Dropout draws from a key of the trace; the environment's own is left as it was.
        with self.env, self.env.override_property(prng=jax.random.key(0)), self.scopes():
            value = torch.func.functional_call(self.called, {f"module.{name}": one for name, one in {**weights, **state}.items()}, (inputs,))
            value = value.float()
        return value.jax(), {name: one.jax() for name, one in state.items()}

    @contextlib.contextmanager
    def scopes(self):
        """Every call of a module is a scope of JAX by the module's name, within that of the module that calls it."""
        stack, open_paths = [], [[]]

        def enter(one, _):
            path = self.path_of.get(id(one))
            if path is None:
                return
            outer = open_paths[-1]
            scope = contextlib.ExitStack()
            for part in path[len(outer):] if path[:len(outer)] == outer else path:
                scope.enter_context(jax.named_scope(part))
            stack.append((id(one), scope))
            open_paths.append(path)

        def leave(one, *_):
            if stack and stack[-1][0] == id(one):
                stack.pop()[1].close()
                open_paths.pop()

        hooks = [torch.nn.modules.module.register_module_forward_pre_hook(enter),
                 torch.nn.modules.module.register_module_forward_hook(leave)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            while stack:  # of calls that an exception ended, the innermost first
                stack.pop()[1].close()

    def update(self, params, opt_state, gradients):
        """What the optimizer makes of the weights and of its state; of no state what its first step makes."""
        env = self.env
        weights, slopes, state = env.j2t_iso((params, gradients, opt_state))
        optimizer = copy.copy(self.optimizer)
        optimizer.param_groups = []
        for number, group in enumerate(self.optimizer.param_groups):
            group = {**group, "params": [weights[name] for name in weights if self.group_of[name] == number]}
            # One tensor after the other, the count of steps a tensor like the others: what can be traced.
            group.update({key: value for key, value in (("foreach", False), ("fused", False), ("capturable", True)) if key in group})
            optimizer.param_groups.append(group)
        optimizer.state = type(self.optimizer.state)(dict)
        for name, weight in weights.items():
            weight.grad = slopes[name]
            if state and state.get(name):
                optimizer.state[weight] = dict(state[name])
        with env, torch.no_grad(), _plain_step(optimizer):
            optimizer.step()
        made = {name: {key: value.jax() for key, value in optimizer.state[weight].items() if isinstance(value, torchax.tensor.Tensor)}
                for name, weight in weights.items()}
        return {name: weight.jax() for name, weight in weights.items()}, made


@contextlib.contextmanager
def _plain_step(optimizer):
    """Hooks of the user's optimizer are not called by its copy."""
    kept = {name: getattr(optimizer, name) for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks") if hasattr(optimizer, name)}
    for name in kept:
        setattr(optimizer, name, type(kept[name])())
    yield


def first_line(error):
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].strip() if lines else 'no reason is given'}"
