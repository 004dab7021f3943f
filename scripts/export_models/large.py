"""Decoders of the sizes that are trained today."""

import jax
import jax.numpy as jnp
from jax import lax

from . import core
from .core import array, dense, rms_norm, scope
from .decoders import decoder_parameters, feed_forward, head_and_loss
from .practices import grouped_attention, grouped_parameters


def decoder(name, description, layers, width, heads, kv_heads, hidden, vocabulary, micro_batch, length, gated=True,
            tied=False, compute=jnp.bfloat16):
    """A model of today's size, as it is trained: weights in float32 used in `compute`, one scanned layer. No weights are
    made, so that it is as small a file as the others. Without gates as GPT: two products and a GELU."""
    one = grouped_parameters(width, hidden, heads, kv_heads)
    if not gated:
        del one["feed_forward"]["w3"]
    tree = decoder_parameters(vocabulary, width, core.stacked(layers, one))
    if tied:
        del tree["output"]

    def loss(params, batch):
        with scope("tok_embeddings"):
            x = core.embed(params["tok_embeddings"]["embedding"].astype(compute), batch["tokens"])

        def body(x, p):
            x = grouped_attention(p, x, heads, kv_heads)
            with scope("ffn_norm"):
                y = rms_norm(p["ffn_norm"], x)
            with scope("feed_forward"):
                f = p["feed_forward"]
                return x + (feed_forward(f, y) if gated else dense(f["w2"], jax.nn.gelu(dense(f["w1"], y)))), None

        with scope("layers"):
            x, _ = lax.scan(body, x, params["layers"])
        head = {"output": {"kernel": params["tok_embeddings"]["embedding"].T}} if tied else {}
        return head_and_loss({**params, **head}, x, batch["tokens"])

    return core.training_model(
        name, description, loss, tree, {"tokens": array(micro_batch, length, dtype=jnp.int32)}, micro_batch, donate=(0, 1),
        locations=True)


def llama_8b():
    return decoder(
        "llama_8b",
        "Decoder of 32 layers of Llama 3's sizes as one lax.scan, hidden 4096, sequence 4096, bfloat16 over float32 weights, Adam",
        layers=32, width=4096, heads=32, kv_heads=8, hidden=14336, vocabulary=128256, micro_batch=2, length=4096)
