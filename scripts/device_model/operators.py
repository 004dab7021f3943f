"""The measured operators as HLO: forward, and forward with its backward, at local extents. Nothing is run.

Kinds are functions below. What PyTorch ran as one kernel is written as the operations that fuse into one: layer norm and
softmax compute in f32 between f16 ends, dropout writes a byte per element (its mask) beside its result, for its gradient.
What it ran as several is kept apart by barriers: a bias, dropout and a residual took three kernels (the measured forward
times are those of 17 bytes per element; one kernel would move 7).
"""

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import jax
import jax.numpy as jnp
from jax import lax

HALF = jnp.float16
KEEP = 0.9


def half(*shape):
    return jax.ShapeDtypeStruct(shape, HALF)


def single(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def ids(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.int32)


KEY = jax.ShapeDtypeStruct((4,), jnp.uint32)


def keep_mask(key, shape):
    _, bits = lax.rng_bit_generator(key, shape, dtype=jnp.uint8)
    return bits < int(256 * KEEP)


def kept(mask, x):
    return lax.select(mask, x * jnp.array(1 / KEEP, x.dtype), jnp.zeros_like(x))


def drop(key, x):
    return kept(keep_mask(key, x.shape), x)


@jax.custom_vjp
def drop_at_once(key, x):
    """drop as one kernel that writes the mask beside the result."""
    return drop_and_mask(key, x)[0]


def drop_and_mask(key, x):
    mask = keep_mask(key, x.shape)
    return lax.optimization_barrier((kept(mask, x), mask))


drop_at_once.defvjp(drop_and_mask, lambda mask, gradient: (None, kept(mask, gradient)))


@jax.custom_vjp
def own_kernel(x):
    """x, written before anything reads it; its gradient goes on as it comes."""
    return lax.optimization_barrier((x, x))[0]  # a barrier of one value is taken for the value itself


own_kernel.defvjp(lambda x: (own_kernel(x), None), lambda _, gradient: (gradient,))


def softmax_f32(scores):
    return jax.nn.softmax(scores.astype(jnp.float32), axis=-1).astype(scores.dtype)


# Each kind returns (function, trained or passed-back arguments, other arguments): gradients are taken to the first group.


def layer_norm(b, length, hidden):
    def run(x, scale, bias):
        wide = x.astype(jnp.float32)
        mean = jnp.mean(wide, axis=-1, keepdims=True)
        variance = jnp.mean(jnp.square(wide), axis=-1, keepdims=True) - jnp.square(mean)
        return ((wide - mean) * lax.rsqrt(variance + 1e-5) * scale + bias).astype(HALF)

    return run, (half(b, length, hidden), half(hidden), half(hidden)), ()


def linear(b, length, inputs, outputs):
    return (lambda x, w: x @ w), (half(b, length, inputs), half(inputs, outputs)), ()


def linear_bias(b, length, inputs, outputs):
    return (lambda x, w, bias: x @ w + bias), (half(b, length, inputs), half(inputs, outputs), half(outputs)), ()


def cross_qkv(b, queries, keys, hidden, inner):
    def run(x, memory, query, query_bias, pair, pair_bias):
        return x @ query + query_bias, memory @ pair + pair_bias

    return run, (half(b, queries, hidden), half(b, keys, hidden), half(hidden, inner), half(inner),
                 half(hidden, 2 * inner), half(2 * inner)), ()


def score(b, heads, queries, keys, per_head):
    def run(query, key):  # the scale is a factor of the product (baddbmm)
        return jnp.einsum("bqhd,bkhd->bhqk", query, key)

    return run, (half(b, queries, heads, per_head), half(b, keys, heads, per_head)), ()


def causal_softmax(b, heads, queries, keys):
    def run(scores):
        row = lax.broadcasted_iota(jnp.int32, (queries, keys), 0)
        column = lax.broadcasted_iota(jnp.int32, (queries, keys), 1)
        below = jnp.broadcast_to(column <= row, scores.shape)
        return softmax_f32(lax.select(below, scores, jnp.full_like(scores, -1e4)))

    return run, (half(b, heads, queries, keys),), ()


def masked_softmax(b, heads, queries, keys):
    def run(scores, mask):
        return softmax_f32(lax.select(jnp.broadcast_to(mask, scores.shape), jnp.full_like(scores, -1e4), scores))

    return run, (half(b, heads, queries, keys),), (jax.ShapeDtypeStruct((b, 1, queries, keys), jnp.bool_),)


def dropout(b, heads, queries, keys):
    return (lambda x, key: drop_at_once(key, x)), (half(b, heads, queries, keys),), (KEY,)


def context(b, heads, queries, keys, per_head):
    def run(probabilities, value):
        return jnp.einsum("bhqk,bkhd->bqhd", probabilities, value)

    return run, (half(b, heads, queries, keys), half(b, keys, heads, per_head)), ()


def bias_dropout_add(b, length, hidden):
    def run(x, bias, residual, key):
        return residual + drop_at_once(key, own_kernel(x + bias))

    return run, (half(b, length, hidden), half(hidden), half(b, length, hidden)), (KEY,)


def bias_gelu(b, length, hidden):
    def run(x, bias):  # keeps its inputs, and computes again from them
        return jax.checkpoint(lambda x, bias: jax.nn.gelu(x + bias, approximate=True))(x, bias)

    return run, (half(b, length, hidden), half(hidden)), ()


def embedding(b, length, hidden, vocabulary):
    def run(table, positions, tokens, key):
        return drop_at_once(key, own_kernel(own_kernel(jnp.take(table, tokens, axis=0, mode="clip")) + positions))

    return run, (half(vocabulary, hidden), half(length, hidden)), (ids(b, length), KEY)


def head(b, length, hidden, vocabulary):
    def run(x, table, labels):
        logits = (x @ table.T).astype(jnp.float32)
        label = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - label)

    return run, (half(b, length, hidden), half(vocabulary, hidden)), (ids(b, length),)


def convolve(x, kernel, stride):
    padding = (kernel.shape[0] - 1) // 2
    return lax.conv_general_dilated(x, kernel, (stride, stride), [(padding, padding)] * 2,
                                    dimension_numbers=("NHWC", "HWIO", "NHWC"))


def normalize(x, scale, bias):
    mean = jnp.mean(x, axis=(0, 1, 2))
    variance = jnp.mean(jnp.square(x), axis=(0, 1, 2)) - jnp.square(mean)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + bias


def convolution(b, pixels, inputs, outputs, window, stride):
    return ((lambda x, w: convolve(x, w, stride)),
            (single(b, pixels, pixels, inputs), single(window, window, inputs, outputs)), ())


def batch_norm(b, pixels, features):
    return normalize, (single(b, pixels, pixels, features), single(features), single(features)), ()


def relu(b, pixels, features):
    return jax.nn.relu, (single(b, pixels, pixels, features),), ()


def add(b, pixels, features):
    x = single(b, pixels, pixels, features)
    return (lambda left, right: left + right), (x, x), ()


def max_pool(b, pixels, features):
    def run(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), [(0, 0), (1, 1), (1, 1), (0, 0)])

    return run, (single(b, pixels, pixels, features),), ()


def downsample(b, pixels, inputs, outputs, stride):
    def run(x, kernel, scale, bias, other):
        return normalize(convolve(x, kernel, stride), scale, bias) + other

    inside = pixels // stride
    return run, (single(b, pixels, pixels, inputs), single(1, 1, inputs, outputs), single(outputs), single(outputs),
                 single(b, inside, inside, outputs)), ()


def average_pool(b, pixels, features):
    return (lambda x: jnp.mean(x, axis=(1, 2))), (single(b, pixels, pixels, features),), ()


def classifier(b, inputs, outputs):
    return (lambda x, w, bias: x @ w + bias), (single(b, inputs), single(inputs, outputs), single(outputs)), ()


def modules(spec):
    """-> {"forward": HLO text, "step": HLO text}. The step returns the result and the gradients of what is trained or
    passed back; the result's own gradient is an input, and there only when the result is (so that nothing of the backward
    fuses with the forward)."""
    function, passed, others = globals()[spec.kind](**dict(spec.extents))
    result = jax.eval_shape(function, *passed, *others)

    def step(passed, others, gradient):
        value, backward = jax.vjp(lambda *arguments: function(*arguments, *others), *passed)
        value, gradient = lax.optimization_barrier((value, gradient))
        return value, backward(gradient)

    forward = jax.jit(lambda passed, others: function(*passed, *others)).lower(passed, others)
    whole = jax.jit(step).lower(passed, others, result)
    return {"forward": forward.as_text("hlo"), "step": whole.as_text("hlo")}
