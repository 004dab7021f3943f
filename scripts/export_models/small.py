"""Models small enough to read, each with one trait of its own."""

import jax
import jax.numpy as jnp

from . import core
from .core import array, dense, dense_parameters, scope


def tiny_mlp(micro_batch=16):
    tree = {"dense_1": dense_parameters(32, 64), "dense_2": dense_parameters(64, 10)}
    batch = {"x": array(micro_batch, 32), "y": array(micro_batch, 10)}

    def train_step(params, batch):
        def loss(params):
            with scope("dense_1"):
                x = jnp.tanh(dense(params["dense_1"], batch["x"]))
            with scope("dense_2"):
                x = dense(params["dense_2"], x)
            with scope("loss"):
                return jnp.mean(jnp.square(x - batch["y"]))

        value, gradients = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    return core.Model(
        name="tiny_mlp",
        description="Two dense layers, plain gradient descent: a module to read in full",
        function=train_step,
        arguments=(tree, batch),
        micro_batch=micro_batch,
        roles={"params": "variable", "batch": "input"},
        loss="[1]",
        updates={"[0]": "params"},
        locations=True,
        forms=("stripped", "proto"),
        plain=True,
    )
