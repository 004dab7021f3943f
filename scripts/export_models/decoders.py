"""Decoder-only language models: GPT-2, a scanned transformer, mixed precision, rematerialization, mixture of experts."""

import jax
import jax.numpy as jnp
from jax import lax

from . import core
from .core import array, dense, dense_parameters, layer_norm, norm_parameters, rms_norm, scope

# --- GPT-2: pre-norm, learned positions, output tied to the token table ----------------------------------------------

GPT2_VOCABULARY, GPT2_LENGTH, GPT2_WIDTH, GPT2_HEADS = 50257, 1024, 768, 12


def gpt2_parameters(layers):
    width = GPT2_WIDTH
    block = {
        "ln_1": norm_parameters(width),
        "attn": {"c_attn": dense_parameters(width, 3 * width), "c_proj": dense_parameters(width, width)},
        "ln_2": norm_parameters(width),
        "mlp": {"c_fc": dense_parameters(width, 4 * width), "c_proj": dense_parameters(4 * width, width)},
    }
    return {
        "wte": {"embedding": array(GPT2_VOCABULARY, width)},
        "wpe": {"embedding": array(GPT2_LENGTH, width)},
        "h": [block] * layers,
        "ln_f": norm_parameters(width),
    }


def gpt2_block(p, x, bias):
    with scope("ln_1"):
        y = layer_norm(p["ln_1"], x)
    with scope("attn"):
        with scope("c_attn"):
            y = dense(p["attn"]["c_attn"], y)
        query, key, value = (core.split_heads(part, GPT2_HEADS) for part in jnp.split(y, 3, axis=-1))
        y = core.merge_heads(core.attention(query, key, value, bias))
        with scope("c_proj"):
            x = x + dense(p["attn"]["c_proj"], y)
    with scope("ln_2"):
        y = layer_norm(p["ln_2"], x)
    with scope("mlp"):
        with scope("c_fc"):
            y = jax.nn.gelu(dense(p["mlp"]["c_fc"], y), approximate=True)
        with scope("c_proj"):
            return x + dense(p["mlp"]["c_proj"], y)


def gpt2_logits(params, ids):
    length = ids.shape[1]
    with scope("wte"):
        x = core.embed(params["wte"]["embedding"], ids)
    with scope("wpe"):
        x = x + params["wpe"]["embedding"][:length]
    bias = core.causal_bias(length)
    with scope("h"):
        for i, p in enumerate(params["h"]):
            with scope(str(i)):
                x = gpt2_block(p, x, bias)
    with scope("ln_f"):
        x = layer_norm(params["ln_f"], x)
    with scope("lm_head"):
        return jnp.einsum("bth,vh->btv", x, params["wte"]["embedding"])


def gpt2(layers=12, micro_batch=4):
    ids = array(micro_batch, GPT2_LENGTH, dtype=jnp.int32)

    def loss(params, batch):
        logits = gpt2_logits(params, batch["input_ids"])
        with scope("loss"):
            return core.token_cross_entropy(logits[:, :-1], batch["input_ids"][:, 1:])

    return core.training_model(
        "gpt2", f"GPT-2 ({layers} layers, hidden {GPT2_WIDTH}), tied embeddings, sequence {GPT2_LENGTH}, Adam, donated state",
        loss, gpt2_parameters(layers), {"input_ids": ids}, micro_batch, donate=(0, 1))


def gpt2_forward(layers=12, micro_batch=4):
    ids = array(micro_batch, GPT2_LENGTH, dtype=jnp.int32)
    return core.inference_model(
        "gpt2_forward", f"GPT-2's forward pass to logits ({layers} layers), sequence {GPT2_LENGTH}",
        lambda params, batch: gpt2_logits(params, batch["input_ids"]),
        gpt2_parameters(layers), {"input_ids": ids}, micro_batch, locations=True)


# --- a gated decoder with rotary positions: one block, used scanned, rematerialized, in bfloat16, with experts ---------


def block_parameters(width, hidden):
    def kernel(inputs, outputs):
        return dense_parameters(inputs, outputs, bias=False)

    return {
        "attention_norm": {"scale": array(width)},
        "attention": {name: kernel(width, width) for name in ("wq", "wk", "wv", "wo")},
        "ffn_norm": {"scale": array(width)},
        "feed_forward": {"w1": kernel(width, hidden), "w2": kernel(hidden, width), "w3": kernel(width, hidden)},
    }


def rotate(x):
    """Rotary positions over [batch, position, head, feature]."""
    length, features = x.shape[1], x.shape[3]
    position = lax.broadcasted_iota(jnp.float32, (length, features // 2), 0)
    channel = lax.broadcasted_iota(jnp.float32, (length, features // 2), 1)
    angle = (position * jnp.exp(channel * (-9.21 / (features // 2))))[None, :, None, :]
    cosine, sine = jnp.cos(angle).astype(x.dtype), jnp.sin(angle).astype(x.dtype)
    left, right = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([left * cosine - right * sine, left * sine + right * cosine], axis=-1)


def attention_part(p, x, heads):
    with scope("attention_norm"):
        y = rms_norm(p["attention_norm"], x)
    with scope("attention"):
        q, k, v = (core.split_heads(dense(p["attention"][name], y), heads) for name in ("wq", "wk", "wv"))
        y = core.attention(rotate(q), rotate(k), v, core.causal_bias(x.shape[1]))
        return x + dense(p["attention"]["wo"], core.merge_heads(y))


def feed_forward(p, y):
    return dense(p["w2"], jax.nn.silu(dense(p["w1"], y)) * dense(p["w3"], y))


def block(p, x, heads):
    x = attention_part(p, x, heads)
    with scope("ffn_norm"):
        y = rms_norm(p["ffn_norm"], x)
    with scope("feed_forward"):
        return x + feed_forward(p["feed_forward"], y)


def decoder_parameters(vocabulary, width, layers):
    return {
        "tok_embeddings": {"embedding": array(vocabulary, width)},
        "layers": layers,
        "norm": {"scale": array(width)},
        "output": dense_parameters(width, vocabulary, bias=False),
    }


def head_and_loss(params, x, ids):
    with scope("norm"):
        x = rms_norm(params["norm"], x)
    with scope("output"):
        logits = dense(params["output"], x).astype(jnp.float32)
    with scope("loss"):
        return core.token_cross_entropy(logits[:, :-1], ids[:, 1:])


def transformer_scan(layers=24, width=1024, heads=16, hidden=2816, vocabulary=32000, micro_batch=4, length=512):
    tree = decoder_parameters(vocabulary, width, core.stacked(layers, block_parameters(width, hidden)))

    def loss(params, batch):
        with scope("tok_embeddings"):
            x = core.embed(params["tok_embeddings"]["embedding"], batch["tokens"])

        def body(x, p):
            return block(p, x, heads), None

        with scope("layers"):
            x, _ = lax.scan(body, x, params["layers"])
        return head_and_loss(params, x, batch["tokens"])

    return core.training_model(
        "transformer_scan",
        f"Decoder of {layers} equal layers as one lax.scan over stacked weights, hidden {width}, sequence {length}, Adam, donated state",
        loss, tree, {"tokens": array(micro_batch, length, dtype=jnp.int32)}, micro_batch, donate=(0, 1),
        forms=("stripped", "proto"), locations=True)


def transformer_remat(layers=6, width=512, heads=8, hidden=1408, vocabulary=8192, micro_batch=8, length=256):
    tree = decoder_parameters(vocabulary, width, {f"layers_{i}": block_parameters(width, hidden) for i in range(layers)})

    def loss(params, batch):
        with scope("tok_embeddings"):
            x = core.embed(params["tok_embeddings"]["embedding"], batch["tokens"])
        for i in range(layers):
            with scope(f"layers_{i}"):
                x = jax.checkpoint(lambda p, x: block(p, x, heads))(params["layers"][f"layers_{i}"], x)
        return head_and_loss(params, x, batch["tokens"])

    return core.training_model(
        "transformer_remat",
        f"Decoder of {layers} layers, each under jax.checkpoint (its forward pass is repeated in backward), Adam",
        loss, tree, {"tokens": array(micro_batch, length, dtype=jnp.int32)}, micro_batch, forms=("stripped",))


def transformer_bf16(layers=6, width=512, heads=8, hidden=1408, vocabulary=8192, micro_batch=8, length=256, drop=0.1):
    """Weights are kept in f32 and used in bf16; dropout after the attention of every layer."""
    tree = decoder_parameters(vocabulary, width, {f"layers_{i}": block_parameters(width, hidden) for i in range(layers)})

    def loss(params, batch):
        with scope("tok_embeddings"):
            x = core.embed(params["tok_embeddings"]["embedding"].astype(jnp.bfloat16), batch["tokens"])
        keys = jax.random.split(jax.random.wrap_key_data(batch["dropout_key"]), layers)
        for i in range(layers):
            with scope(f"layers_{i}"):
                x = block(params["layers"][f"layers_{i}"], x, heads)
                with scope("dropout"):
                    kept = jax.random.bernoulli(keys[i], 1 - drop, x.shape)
                    x = jnp.where(kept, x / (1 - drop), 0).astype(x.dtype)
        return head_and_loss(params, x, batch["tokens"])

    batch = {"tokens": array(micro_batch, length, dtype=jnp.int32), "dropout_key": array(2, dtype=jnp.uint32)}
    return core.training_model(
        "transformer_bf16", f"Decoder of {layers} layers in bfloat16 over float32 weights, with dropout, Adam",
        loss, tree, batch, micro_batch, locations=True)


# --- mixture of experts ------------------------------------------------------------------------------------------------


def expert_layer(p, x, experts, capacity):
    """The two best experts of each token, each expert with `capacity` places (dense dispatch by one-hot masks)."""
    tokens = x.reshape(-1, x.shape[-1])
    with scope("router"):
        probabilities = jax.nn.softmax(dense(p["router"], tokens), axis=-1)
        gates, choice = lax.top_k(probabilities, 2)
        gates = gates / jnp.sum(gates, axis=-1, keepdims=True)
    with scope("dispatch"):
        chosen = jax.nn.one_hot(choice, experts)  # [token, 2, expert]
        flat = chosen.transpose(1, 0, 2).reshape(-1, experts)  # first choices take their places first
        place = jnp.cumsum(flat, axis=0) - flat
        place = place.reshape(2, -1, experts).transpose(1, 0, 2)
        place = jnp.sum(place * chosen, axis=-1).astype(jnp.int32)
        slots = chosen[..., None] * jax.nn.one_hot(place, capacity)[:, :, None, :]  # a place beyond capacity drops out
        dispatch = jnp.sum(slots, axis=1)
        combine = jnp.sum(slots * gates[..., None, None], axis=1)
        routed = jnp.einsum("tec,th->ech", dispatch, tokens)
    with scope("experts"):
        hidden = jax.nn.silu(jnp.einsum("ech,ehf->ecf", routed, p["experts"]["wi"]))
        routed = jnp.einsum("ecf,efh->ech", hidden, p["experts"]["wo"])
    with scope("combine"):
        y = jnp.einsum("tec,ech->th", combine, routed).reshape(x.shape)
    load = jnp.mean(chosen[:, 0], axis=0) * jnp.mean(probabilities, axis=0)
    return y, experts * jnp.sum(load)


def moe_small(layers=4, width=512, heads=8, hidden=1024, experts=8, vocabulary=8192, micro_batch=4, length=128):
    layer = block_parameters(width, hidden)
    del layer["feed_forward"]
    layer["moe"] = {
        "router": dense_parameters(width, experts, bias=False),
        "experts": {"wi": array(experts, width, hidden), "wo": array(experts, hidden, width)},
    }
    tree = decoder_parameters(vocabulary, width, [layer] * layers)
    capacity = micro_batch * length * 2 // experts

    def loss(params, batch):
        with scope("tok_embeddings"):
            x = core.embed(params["tok_embeddings"]["embedding"], batch["tokens"])
        balance = 0.0
        with scope("layers"):
            for i, p in enumerate(params["layers"]):
                with scope(str(i)):
                    x = attention_part(p, x, heads)
                    with scope("ffn_norm"):
                        y = rms_norm(p["ffn_norm"], x)
                    with scope("moe"):
                        y, load = expert_layer(p["moe"], y, experts, capacity)
                    x, balance = x + y, balance + load
        return head_and_loss(params, x, batch["tokens"]) + 0.01 * balance

    return core.training_model(
        "moe_small", f"Decoder of {layers} layers with {experts} experts each, top-2 routing and a balance loss, Adam",
        loss, tree, {"tokens": array(micro_batch, length, dtype=jnp.int32)}, micro_batch, locations=True,
        forms=("stripped", "proto"))
