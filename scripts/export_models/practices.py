"""Small modules of what people do beside plain transformers, one practice each: what is hard to split over devices.

Small enough that XLA compiles and runs them on eight host devices in seconds."""

import jax
import jax.numpy as jnp
from jax import lax

from . import core
from .core import array, dense, dense_parameters, rms_norm, scope
from .decoders import block_parameters, decoder_parameters, feed_forward, head_and_loss, rotate


def grouped_attention(p, x, heads, kv_heads):
    """Several query heads share each head of keys and values."""
    with scope("attention_norm"):
        y = rms_norm(p["attention_norm"], x)
    with scope("attention"):
        q = core.split_heads(dense(p["attention"]["wq"], y), heads)
        k, v = (core.split_heads(dense(p["attention"][name], y), kv_heads) for name in ("wk", "wv"))
        k, v = (jnp.repeat(part, heads // kv_heads, axis=2) for part in (rotate(k), v))
        y = core.attention(rotate(q), k, v, core.causal_bias(x.shape[1]))
        return x + dense(p["attention"]["wo"], core.merge_heads(y))


def grouped_parameters(width, hidden, heads, kv_heads):
    tree = block_parameters(width, hidden)
    for name in ("wk", "wv"):
        tree["attention"][name] = dense_parameters(width, width // heads * kv_heads, bias=False)
    return tree


def scan_remat(layers=4, width=256, heads=8, kv_heads=2, hidden=512, vocabulary=1024, micro_batch=8, length=64):
    """How most large JAX models are written: one scanned layer, its forward repeated in backward, grouped attention."""
    tree = decoder_parameters(vocabulary, width, core.stacked(layers, grouped_parameters(width, hidden, heads, kv_heads)))

    def loss(params, batch):
        with scope("tok_embeddings"):
            x = core.embed(params["tok_embeddings"]["embedding"], batch["tokens"])

        def body(x, p):
            x = grouped_attention(p, x, heads, kv_heads)
            with scope("ffn_norm"):
                y = rms_norm(p["ffn_norm"], x)
            with scope("feed_forward"):
                return x + feed_forward(p["feed_forward"], y), None

        with scope("layers"):
            x, _ = lax.scan(jax.checkpoint(body), x, params["layers"])
        return head_and_loss(params, x, batch["tokens"])

    return core.training_model(
        "scan_remat",
        f"Decoder of {layers} layers, {kv_heads} heads of keys and values for {heads} of queries, as one lax.scan under jax.checkpoint, Adam",
        loss, tree, {"tokens": array(micro_batch, length, dtype=jnp.int32)}, micro_batch, donate=(0, 1), locations=True)


def routed_layer(p, x, experts, chosen):
    """Every expert sees every token; the router's weights, written back to their experts, decide what counts."""
    with scope("router"):
        logits = dense(p["router"], x)
        gates, choice = lax.top_k(logits, chosen)
        gates = jax.nn.softmax(gates, axis=-1)
        batch = jnp.arange(x.shape[0])[:, None, None]
        position = jnp.arange(x.shape[1])[None, :, None]
        weights = jnp.zeros_like(logits).at[batch, position, choice].set(gates)
    with scope("experts"):
        hidden = jax.nn.silu(jnp.einsum("bsh,ehf->bsef", x, p["experts"]["wi"]))
        y = jnp.einsum("bsef,efh->bseh", hidden, p["experts"]["wo"])
    with scope("combine"):
        return jnp.einsum("bseh,bse->bsh", y, weights)


def sorted_layer(p, x, experts, chosen, capacity):
    """Tokens sorted by expert, each expert's first `capacity` of them computed, and put back where they came from."""
    tokens = x.reshape(-1, x.shape[-1])
    with scope("router"):
        gates, choice = lax.top_k(jax.nn.softmax(dense(p["router"], tokens), axis=-1), chosen)
    with scope("dispatch"):
        flat = choice.reshape(-1)
        order = jnp.argsort(flat)
        expert = flat[order]
        sizes = jnp.bincount(flat, length=experts)
        place = jnp.arange(flat.shape[0]) - (jnp.cumsum(sizes) - sizes)[expert]
        slot = jnp.where(place < capacity, expert * capacity + place, experts * capacity)  # beyond: dropped
        routed = jnp.zeros((experts * capacity, tokens.shape[-1]), x.dtype).at[slot].set(tokens[order // chosen], mode="drop")
        routed = routed.reshape(experts, capacity, -1)
    with scope("experts"):
        hidden = jax.nn.silu(jnp.einsum("ech,ehf->ecf", routed, p["experts"]["wi"]))
        routed = jnp.einsum("ecf,efh->ech", hidden, p["experts"]["wo"])
    with scope("combine"):
        back = routed.reshape(experts * capacity, -1).at[slot].get(mode="fill", fill_value=0)
        back = back * gates.reshape(-1)[order][:, None]
        return jnp.zeros_like(tokens).at[order // chosen].add(back).reshape(x.shape)


def routed_model(name, description, layer, layers=2, width=256, heads=8, hidden=256, experts=8, vocabulary=1024,
                 micro_batch=8, length=64):
    one = block_parameters(width, hidden)
    del one["feed_forward"]
    one["moe"] = {
        "router": dense_parameters(width, experts, bias=False),
        "experts": {"wi": array(experts, width, hidden), "wo": array(experts, hidden, width)},
    }
    tree = decoder_parameters(vocabulary, width, core.stacked(layers, one))

    def loss(params, batch):
        with scope("tok_embeddings"):
            x = core.embed(params["tok_embeddings"]["embedding"], batch["tokens"])

        def body(x, p):
            x = grouped_attention(p, x, heads, heads)
            with scope("ffn_norm"):
                y = rms_norm(p["ffn_norm"], x)
            with scope("moe"):
                return x + layer(p["moe"], y, experts), None

        with scope("layers"):
            x, _ = lax.scan(body, x, params["layers"])
        return head_and_loss(params, x, batch["tokens"])

    return core.training_model(
        name, description, loss, tree, {"tokens": array(micro_batch, length, dtype=jnp.int32)}, micro_batch, locations=True)


def moe_dense():
    return routed_model(
        "moe_dense", "Scanned decoder with 8 experts that all see all tokens, the router's weights scattered over them, Adam",
        lambda p, x, experts: routed_layer(p, x, experts, 2))


def moe_sort():
    return routed_model(
        "moe_sort", "Scanned decoder with 8 experts, tokens sorted by expert and dropped beyond the capacity, Adam",
        lambda p, x, experts: sorted_layer(p, x, experts, 2, 2 * x.shape[0] * x.shape[1] // experts))


def set_prediction(layers=2, width=256, heads=8, hidden=512, queries=32, classes=91, objects=16, patches=64, micro_batch=8):
    """A decoder of queries over an image's patches whose answers are matched with objects in the order given (DETR)."""
    def kernel(inputs, outputs):
        return dense_parameters(inputs, outputs)

    block = {
        "norms": [core.norm_parameters(width) for _ in range(3)],
        "self": {name: kernel(width, width) for name in ("query", "key", "value", "out")},
        "cross": {name: kernel(width, width) for name in ("query", "key", "value", "out")},
        "mlp": {"in": kernel(width, hidden), "out": kernel(hidden, width)},
    }
    tree = {"patches": kernel(width, width), "queries": array(queries, width), "layers": [block] * layers,
            "classes": kernel(width, classes + 1), "boxes": kernel(width, 4)}

    def attend(p, x, y):
        q = core.split_heads(dense(p["query"], x), heads)
        k, v = (core.split_heads(dense(p[name], y), heads) for name in ("key", "value"))
        return dense(p["out"], core.merge_heads(core.attention(q, k, v)))

    def loss(params, batch):
        with scope("patches"):
            memory = dense(params["patches"], batch["patches"])
        x = jnp.broadcast_to(params["queries"], (micro_batch, queries, width))
        for i, p in enumerate(params["layers"]):
            with scope(f"layers_{i}"):
                y = core.layer_norm(p["norms"][0], x)
                x = x + attend(p["self"], y, y)
                x = x + attend(p["cross"], core.layer_norm(p["norms"][1], x), memory)
                y = core.layer_norm(p["norms"][2], x)
                x = x + dense(p["mlp"]["out"], jax.nn.relu(dense(p["mlp"]["in"], y)))
        with scope("loss"):
            logits, boxes = dense(params["classes"], x), jax.nn.sigmoid(dense(params["boxes"], x))
            # The queries that were matched with the objects; the others shall find nothing.
            rows = jnp.arange(micro_batch)[:, None]
            labels = jnp.full((micro_batch, queries), classes).at[rows, batch["matched"]].set(batch["labels"])
            weights = jnp.where(labels == classes, 0.1, 1.0)
            found = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=-1)[..., 0]
            matched = jnp.take_along_axis(boxes, batch["matched"][..., None], axis=1)
            return (-jnp.sum(found * weights) / jnp.sum(weights) + jnp.mean(jnp.abs(matched - batch["boxes"])))

    batch = {"patches": array(micro_batch, patches, width), "matched": array(micro_batch, objects, dtype=jnp.int32),
             "labels": array(micro_batch, objects, dtype=jnp.int32), "boxes": array(micro_batch, objects, 4)}
    return core.training_model(
        "set_prediction", f"Decoder of {queries} queries over {patches} patches, matched with {objects} objects, Adam",
        loss, tree, batch, micro_batch, locations=True)
