"""An encoder-decoder transformer in the shape of T5, with the variables counted as the planner's literature counts them.

Per encoder layer 12 variables (q, k, v, o; conv1 and conv2 with kernel and bias; two LayerNorm), per decoder layer 18
(a second attention and a third LayerNorm), and 8 others: two embedding tables and the softmax kernel (not shared),
the softmax bias, and the final LayerNorm of either side. Positions are sinusoids, computed and not learned.
"""

import jax
import jax.numpy as jnp
from jax import lax

from . import core
from .core import array, dense, dense_parameters, layer_norm, norm_parameters, scope

VOCABULARY = 32128


def attention_parameters(width, inner):
    q = {name: dense_parameters(width, inner, bias=False) for name in ("q", "k", "v")}
    return {**q, "o": dense_parameters(inner, width, bias=False)}


def feed_forward_parameters(width, hidden):
    return {"conv1": dense_parameters(width, hidden), "conv2": dense_parameters(hidden, width)}


def layer_parameters(width, inner, hidden, decoder):
    tree = {
        "self_attention": {**attention_parameters(width, inner), "LayerNorm": norm_parameters(width)},
        "feed_forward": {**feed_forward_parameters(width, hidden), "LayerNorm": norm_parameters(width)},
    }
    if decoder:
        tree["cross_attention"] = {**attention_parameters(width, inner), "LayerNorm": norm_parameters(width)}
    return tree


def sinusoids(length, width):
    position = lax.broadcasted_iota(jnp.float32, (length, width // 2), 0)
    channel = lax.broadcasted_iota(jnp.float32, (length, width // 2), 1)
    angle = position * jnp.exp(channel * (-9.21 / (width // 2)))
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)


def attention_block(name, p, x, memory, bias, heads):
    with scope(name):
        with scope("LayerNorm"):
            y = layer_norm(p["LayerNorm"], x)
        source = y if memory is None else memory
        with scope("q"):
            q = core.split_heads(dense(p["q"], y), heads)
        with scope("k"):
            k = core.split_heads(dense(p["k"], source), heads)
        with scope("v"):
            v = core.split_heads(dense(p["v"], source), heads)
        y = core.merge_heads(core.attention(q, k, v, bias))
        with scope("o"):
            return x + dense(p["o"], y)


def feed_forward_block(p, x):
    with scope("feed_forward"):
        with scope("LayerNorm"):
            y = layer_norm(p["LayerNorm"], x)
        with scope("conv1"):
            y = jax.nn.relu(dense(p["conv1"], y))
        with scope("conv2"):
            return x + dense(p["conv2"], y)


def embedding(p, ids, width):
    with scope("embedding"):
        return core.embed(p["embedding"], ids) * width**0.5 + sinusoids(ids.shape[1], width)


def t5(name, layers, width, inner, hidden, heads, micro_batch, length):
    def stack(decoder):
        return {
            "embedding": array(VOCABULARY, width),
            "layer": [layer_parameters(width, inner, hidden, decoder) for _ in range(layers)],
            "final_LayerNorm": norm_parameters(width),
        }

    tree = {"encoder": stack(False), "decoder": stack(True), "softmax": dense_parameters(width, VOCABULARY)}
    ids = array(micro_batch, length, dtype=jnp.int32)
    batch = {"inputs": ids, "targets": ids, "labels": ids}

    def loss(params, batch):
        with scope("encoder"):
            p = params["encoder"]
            bias = core.padding_bias(batch["inputs"] > 0)
            x = embedding(p, batch["inputs"], width)
            for i in range(layers):
                with scope("layer"), scope(str(i)):
                    x = attention_block("self_attention", p["layer"][i]["self_attention"], x, None, bias, heads)
                    x = feed_forward_block(p["layer"][i]["feed_forward"], x)
            with scope("final_LayerNorm"):
                memory = layer_norm(p["final_LayerNorm"], x)
        with scope("decoder"):
            p = params["decoder"]
            causal = core.causal_bias(length)
            x = embedding(p, batch["targets"], width)
            for i in range(layers):
                with scope("layer"), scope(str(i)):
                    x = attention_block("self_attention", p["layer"][i]["self_attention"], x, None, causal, heads)
                    x = attention_block("cross_attention", p["layer"][i]["cross_attention"], x, memory, bias, heads)
                    x = feed_forward_block(p["layer"][i]["feed_forward"], x)
            with scope("final_LayerNorm"):
                x = layer_norm(p["final_LayerNorm"], x)
        with scope("softmax"):
            logits = dense(params["softmax"], x)
        with scope("loss"):
            return core.token_cross_entropy(logits, batch["labels"], (batch["labels"] > 0).astype(jnp.float32))

    return core.training_model(
        name,
        f"T5-like, {layers} encoder and {layers} decoder layers, hidden {width}, {heads} heads, sequence {length}, Adam",
        loss, tree, batch, micro_batch)


def t5_6_6():
    return t5("t5_6_6", layers=6, width=768, inner=1024, hidden=3072, heads=16, micro_batch=8, length=256)


def t5_24_24():
    return t5("t5_24_24", layers=24, width=1024, inner=4096, hidden=16384, heads=32, micro_batch=4, length=256)
