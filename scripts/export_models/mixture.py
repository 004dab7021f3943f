"""A decoder of experts as Mixtral's, which tests/cli/test_descriptions.py compares with the described one. It is no fixture."""

import jax
import jax.numpy as jnp
from jax import lax

from . import core
from .core import array, dense, dense_parameters, rms_norm, scope
from .decoders import decoder_parameters, head_and_loss, rotate
from .practices import grouped_parameters


def shared_heads_attention(p, x, heads, kv_heads):
    """Grouped attention without copies of keys and values."""
    batch, positions, _ = x.shape
    q = core.split_heads(dense(p["wq"], x), heads)
    k, v = (core.split_heads(dense(p[name], x), kv_heads) for name in ("wk", "wv"))
    q = rotate(q).reshape(batch, positions, kv_heads, heads // kv_heads, -1)
    scores = jnp.einsum("bqkgd,btkd->bkgqt", q, rotate(k)) / jnp.sqrt(q.shape[-1]).astype(q.dtype)
    weights = jax.nn.softmax(scores + core.causal_bias(positions), axis=-1)
    return dense(p["wo"], jnp.einsum("bkgqt,btkd->bqkgd", weights, v).reshape(batch, positions, -1))


def experts_layer(p, x, experts, chosen):
    """The tokens of every sample, sorted by expert; each expert computes an even share of them, as where load is balanced."""
    batch, positions, width = x.shape
    with scope("router"):
        gates, choice = lax.top_k(jax.nn.softmax(dense(p["router"], x), axis=-1), chosen)
        gates = (gates / jnp.sum(gates, axis=-1, keepdims=True)).reshape(batch, -1)
    with scope("dispatch"):
        order = jnp.argsort(choice.reshape(batch, -1), axis=-1)
        token = order // chosen
        routed = jax.vmap(lambda one, token: one[token])(x, token).reshape(batch, experts, -1, width)
    with scope("experts"):
        gate = jax.nn.silu(jnp.einsum("bech,ehf->becf", routed, p["experts"]["w1"]))
        routed = jnp.einsum("becf,efh->bech", gate * jnp.einsum("bech,ehf->becf", routed, p["experts"]["w3"]), p["experts"]["w2"])
    with scope("combine"):
        back = routed.reshape(batch, -1, width) * jnp.take_along_axis(gates, order, axis=-1)[..., None]
        return jax.vmap(lambda back, token: jnp.zeros((positions, width), x.dtype).at[token].add(back))(back, token)


def mixtral(layers=2, width=2048, heads=16, kv_heads=4, hidden=7168, experts=8, vocabulary=4096, micro_batch=4, length=1024):
    one = grouped_parameters(width, hidden, heads, kv_heads)
    del one["feed_forward"]
    one["moe"] = {
        "router": dense_parameters(width, experts, bias=False),
        "experts": {"w1": array(experts, width, hidden), "w3": array(experts, width, hidden), "w2": array(experts, hidden, width)},
    }
    tree = decoder_parameters(vocabulary, width, {str(i): one for i in range(layers)})

    def loss(params, batch):
        with scope("tok_embeddings"):
            x = core.embed(params["tok_embeddings"]["embedding"], batch["tokens"])
        for i in range(layers):
            p = params["layers"][str(i)]
            with scope(f"layers/{i}"):
                with scope("attention"):
                    x = x + shared_heads_attention(p["attention"], rms_norm(p["attention_norm"], x), heads, kv_heads)
                with scope("moe"):
                    x = x + experts_layer(p["moe"], rms_norm(p["ffn_norm"], x), experts, 2)
        return head_and_loss(params, x, batch["tokens"])

    return core.training_model(
        "mixtral", f"Decoder of {layers} layers with {experts} gated experts each, two for every token, Adam",
        loss, tree, {"tokens": array(micro_batch, length, dtype=jnp.int32)}, micro_batch)
