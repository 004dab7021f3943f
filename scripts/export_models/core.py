"""What every model of the exporter is made of: abstract parameters, layers, losses and optimizers in plain JAX.

Nothing here allocates weights: parameter trees hold jax.ShapeDtypeStruct leaves, and a model is only ever lowered.
Scopes (`jax.named_scope`) are opened by the models themselves, so that op_name reads as it would in a user's file.
"""

import dataclasses
import math
from typing import Any, Callable, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

scope = jax.named_scope


@dataclasses.dataclass
class Model:
    """One function to lower, and what we know about it."""

    name: str
    description: str
    function: Callable
    arguments: tuple
    micro_batch: int
    # Role of each argument, by its name in the signature: variable, slot, statistics, input.
    roles: dict
    # Index path of the loss in the result, as jax.tree_util.keystr prints it; None for inference.
    loss: str | None
    # Trees of the result that hold the new value of an argument: result path prefix -> argument name.
    updates: dict = dataclasses.field(default_factory=dict)
    frozen: tuple = ()  # name prefixes ("img/") of parameters that are never trained
    donate: tuple = ()  # argument numbers
    locations: bool = False  # keep file names, lines and stack frames in the text
    forms: tuple = ()  # "stripped" (no metadata), "proto" (binary and JSON), "stablehlo" (text, bytecode, jax.export)
    plain: bool = False  # stored without gzip, to be read by people


# --- abstract values -----------------------------------------------------------------------------------------------


def array(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def dense_parameters(inputs, outputs, bias=True):
    parameters = {"kernel": array(inputs, outputs)}
    if bias:
        parameters["bias"] = array(outputs)
    return parameters


def norm_parameters(width):
    return {"scale": array(width), "bias": array(width)}


def stacked(count, tree):
    """The same layer `count` times in one array per weight, as lax.scan wants it."""
    return jax.tree.map(lambda leaf: array(count, *leaf.shape, dtype=leaf.dtype), tree)


# --- layers --------------------------------------------------------------------------------------------------------


def dense(parameters, x):
    y = x @ parameters["kernel"].astype(x.dtype)
    if "bias" in parameters:
        y = y + parameters["bias"].astype(x.dtype)
    return y


def layer_norm(parameters, x, epsilon=1e-6):
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), axis=-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + epsilon) * parameters["scale"] + parameters["bias"]


def rms_norm(parameters, x, epsilon=1e-6):
    variance = jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1, keepdims=True)
    return (x * lax.rsqrt(variance + epsilon).astype(x.dtype)) * parameters["scale"].astype(x.dtype)


def split_heads(x, heads):
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)


def merge_heads(x):
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def attention(query, key, value, bias=None):
    """Scaled dot-product attention over [batch, position, head, feature]; `bias` is added to the scores."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / math.sqrt(query.shape[-1])
    if bias is not None:
        scores = scores + bias.astype(scores.dtype)
    weights = jax.nn.softmax(scores.astype(jnp.float32), axis=-1).astype(query.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, value)


def causal_bias(length):
    row = lax.broadcasted_iota(jnp.int32, (length, length), 0)
    column = lax.broadcasted_iota(jnp.int32, (length, length), 1)
    return jnp.where(column <= row, 0.0, -1e9)[None, None]


def padding_bias(mask):
    """mask [batch, position] is 1 where there is a token."""
    return ((1.0 - mask.astype(jnp.float32)) * -1e9)[:, None, None, :]


def embed(table, ids):
    return jnp.take(table, ids, axis=0, mode="clip")


# --- losses --------------------------------------------------------------------------------------------------------


def token_cross_entropy(logits, labels, weights=None):
    """Mean over tokens; the label's logit is fetched by a gather."""
    log_normalizer = jax.nn.logsumexp(logits, axis=-1)
    label_logit = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    loss = log_normalizer - label_logit
    if weights is None:
        return jnp.mean(loss)
    return jnp.sum(loss * weights) / jnp.maximum(jnp.sum(weights), 1.0)


def class_cross_entropy(logits, labels):
    """Mean over examples; the label is compared with every class."""
    log_probabilities = jax.nn.log_softmax(logits, axis=-1)
    return -jnp.mean(jnp.sum(jax.nn.one_hot(labels, logits.shape[-1]) * log_probabilities, axis=-1))


# --- optimizers: state trees look like the ones of the usual optimizer libraries --------------------------------------


class AdamState(NamedTuple):
    count: Any
    mu: Any
    nu: Any


class MomentumState(NamedTuple):
    trace: Any


def adam_state(parameters):
    return (AdamState(count=array(dtype=jnp.int32), mu=parameters, nu=parameters),)


def adam(gradients, state, parameters, rate=1e-4, decay=0.0, b1=0.9, b2=0.999, epsilon=1e-8):
    (adam_part,) = state
    count = adam_part.count + 1
    mu = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, gradients, adam_part.mu)
    nu = jax.tree.map(lambda g, v: b2 * v + (1 - b2) * jnp.square(g), gradients, adam_part.nu)
    mu_correction = 1 - b1 ** count.astype(jnp.float32)
    nu_correction = 1 - b2 ** count.astype(jnp.float32)

    def update(p, m, v):
        direction = (m / mu_correction) / (jnp.sqrt(v / nu_correction) + epsilon)
        return p - rate * (direction + decay * p if decay else direction)

    return jax.tree.map(update, parameters, mu, nu), (AdamState(count, mu, nu),)


def momentum_state(parameters):
    return (MomentumState(trace=parameters),)


def momentum(gradients, state, parameters, rate=0.1, decay=0.9):
    trace = jax.tree.map(lambda g, t: g + decay * t, gradients, state[0].trace)
    return jax.tree.map(lambda p, t: p - rate * t, parameters, trace), (MomentumState(trace),)


def clip_by_global_norm(gradients, limit=1.0):
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(gradients)))
    return jax.tree.map(lambda g: g * jnp.minimum(1.0, limit / (norm + 1e-6)), gradients)


# --- whole steps ---------------------------------------------------------------------------------------------------


def training_model(name, description, loss, parameters, batch, micro_batch, optimizer=adam, **options):
    """(params, opt_state, batch) -> (params, opt_state, loss), the step most people write."""
    state = adam_state(parameters) if optimizer is adam else momentum_state(parameters)

    def train_step(params, opt_state, batch):
        value, gradients = jax.value_and_grad(loss)(params, batch)
        params, opt_state = optimizer(gradients, opt_state, params)
        return params, opt_state, value

    return Model(
        name=name,
        description=description,
        function=train_step,
        arguments=(parameters, state, batch),
        micro_batch=micro_batch,
        roles={"params": "variable", "opt_state": "slot", "batch": "input"},
        loss="[2]",
        updates={"[0]": "params", "[1]": "opt_state"},
        **options,
    )


def inference_model(name, description, forward, parameters, batch, micro_batch, **options):
    def predict(params, batch):
        return forward(params, batch)

    return Model(
        name=name,
        description=description,
        function=predict,
        arguments=(parameters, batch),
        micro_batch=micro_batch,
        roles={"params": "frozen", "batch": "input"},
        loss=None,
        **options,
    )
