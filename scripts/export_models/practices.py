"""Small modules of what people do beside plain transformers, one practice each: what is hard to split over devices.

Small enough that XLA compiles and runs them on eight host devices in seconds."""

import jax
import jax.numpy as jnp
from jax import lax

from . import core, vision
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


def mamba(layers=2, width=256, inner=512, state=16, rank=16, taps=4, vocabulary=1024, micro_batch=16, length=64):
    """A selective state space model: what a token leaves in the state, and what it reads, depends on the token (Mamba)."""
    block = {
        "norm": {"scale": array(width)},
        "in_proj": dense_parameters(width, 2 * inner, bias=False),
        "conv1d": {"kernel": array(taps, 1, inner), "bias": array(inner)},
        "x_proj": dense_parameters(inner, rank + 2 * state, bias=False),
        "dt_proj": dense_parameters(rank, inner),
        "A_log": array(inner, state),
        "D": array(inner),
        "out_proj": dense_parameters(inner, width, bias=False),
    }
    tree = {"embedding": array(vocabulary, width), "layers": [block] * layers, "norm_f": {"scale": array(width)}}

    def after(first, second):
        """Two steps of h -> a h + b as one."""
        return second[0] * first[0], second[0] * first[1] + second[1]

    def mixer(p, x):
        with scope("in_proj"):
            x, z = jnp.split(dense(p["in_proj"], x), 2, axis=-1)
        with scope("conv1d"):  # of every channel by itself, over what came before
            x = lax.conv_general_dilated(x, p["conv1d"]["kernel"], (1,), [(taps - 1, 0)], feature_group_count=inner,
                                         dimension_numbers=("NWC", "WIO", "NWC"))
            x = jax.nn.silu(x + p["conv1d"]["bias"])
        with scope("ssm"):
            step, b, c = jnp.split(dense(p["x_proj"], x), (rank, rank + state), axis=-1)
            step = jax.nn.softplus(dense(p["dt_proj"], step))
            decay = jnp.exp(step[..., None] * -jnp.exp(p["A_log"]))
            left = (step * x)[..., None] * b[:, :, None, :]
            _, h = lax.associative_scan(after, (decay, left), axis=1)
            y = jnp.einsum("blin,bln->bli", h, c) + x * p["D"]
        with scope("out_proj"):
            return dense(p["out_proj"], y * jax.nn.silu(z))

    def loss(params, batch):
        with scope("embedding"):
            x = core.embed(params["embedding"], batch["tokens"])
        for i, p in enumerate(params["layers"]):
            with scope(f"layers_{i}"):
                x = x + mixer(p, rms_norm(p["norm"], x))
        with scope("head"):
            logits = rms_norm(params["norm_f"], x) @ params["embedding"].T
        with scope("loss"):
            return core.token_cross_entropy(logits[:, :-1], batch["tokens"][:, 1:])

    return core.training_model(
        "mamba", f"Selective state space model of {layers} layers, {inner} channels of {state} states, associative scan, Adam",
        loss, tree, {"tokens": array(micro_batch, length, dtype=jnp.int32)}, micro_batch, locations=True)


def group_norm(p, x, groups=8, epsilon=1e-5):
    y = core.split_heads(x, groups)
    mean = jnp.mean(y, axis=(1, 2, 4), keepdims=True)
    variance = jnp.mean(jnp.square(y - mean), axis=(1, 2, 4), keepdims=True)
    return core.merge_heads((y - mean) * lax.rsqrt(variance + epsilon)) * p["scale"] + p["bias"]


def unet(channels=(32, 64, 128), image=32, colors=3, frequencies=32, micro_batch=16):
    """Noise told from an image: down by strides, up by transposed convolutions, and what was seen on the way is kept."""
    def conv(size, inputs, outputs):
        return {"kernel": array(size, size, inputs, outputs), "bias": array(outputs)}

    def block_tree(inputs, outputs):
        tree = {"norm1": core.norm_parameters(inputs), "conv1": conv(3, inputs, outputs),
                "time": dense_parameters(4 * frequencies, outputs),
                "norm2": core.norm_parameters(outputs), "conv2": conv(3, outputs, outputs)}
        return tree if inputs == outputs else tree | {"skip": conv(1, inputs, outputs)}

    pairs = list(zip(channels, channels[1:]))
    tree = {
        "time": {"in": dense_parameters(frequencies, 4 * frequencies), "out": dense_parameters(4 * frequencies, 4 * frequencies)},
        "conv_in": conv(3, colors, channels[0]),
        "down": [{"block": block_tree(low, low), "conv": conv(3, low, high)} for low, high in pairs],
        "middle": block_tree(channels[-1], channels[-1]),
        "up": [{"conv": conv(4, high, low), "block": block_tree(2 * low, low)} for low, high in reversed(pairs)],
        "norm_out": core.norm_parameters(channels[0]),
        "conv_out": conv(3, channels[0], colors),
    }

    def convolve(p, x, stride=1):
        return vision.convolution(p["kernel"], x, stride) + p["bias"]

    def block(p, x, time):
        with scope("block"):
            y = convolve(p["conv1"], jax.nn.silu(group_norm(p["norm1"], x)))
            y = y + dense(p["time"], time)[:, None, None, :]
            y = convolve(p["conv2"], jax.nn.silu(group_norm(p["norm2"], y)))
            return y + (convolve(p["skip"], x) if "skip" in p else x)

    def loss(params, batch):
        with scope("time"):
            rates = jnp.exp(-jnp.log(10000.0) * jnp.arange(frequencies // 2) / (frequencies // 2))
            angles = batch["time"][:, None] * rates
            time = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
            time = jax.nn.silu(dense(params["time"]["in"], time))
            time = jax.nn.silu(dense(params["time"]["out"], time))
        with scope("conv_in"):
            x = convolve(params["conv_in"], batch["image"])
        seen = []
        for i, p in enumerate(params["down"]):
            with scope(f"down_{i}"):
                x = block(p["block"], x, time)
                seen.append(x)
                x = convolve(p["conv"], x, 2)
        with scope("middle"):
            x = block(params["middle"], x, time)
        for i, p in enumerate(params["up"]):
            with scope(f"up_{i}"):
                x = lax.conv_transpose(x, p["conv"]["kernel"], (2, 2), "SAME", dimension_numbers=vision.LAYOUT) + p["conv"]["bias"]
                x = block(p["block"], jnp.concatenate([x, seen.pop()], axis=-1), time)
        with scope("conv_out"):
            x = convolve(params["conv_out"], jax.nn.silu(group_norm(params["norm_out"], x)))
        with scope("loss"):
            return jnp.mean(jnp.square(x - batch["noise"]))

    picture = array(micro_batch, image, image, colors)
    return core.training_model(
        "unet", f"U-Net of {len(channels)} scales over {image}x{image} images, group normalization, predicts the noise, Adam",
        loss, tree, {"image": picture, "noise": picture, "time": array(micro_batch)}, micro_batch, locations=True)


def grouped_query(layers=2, width=256, heads=8, kv_heads=2, hidden=512, vocabulary=512, micro_batch=2, length=256):
    """Grouped attention that repeats nothing: neither the heads of keys and values nor the queries of each divide by 8."""
    tree = decoder_parameters(vocabulary, width, {str(i): grouped_parameters(width, hidden, heads, kv_heads) for i in range(layers)})

    def attention(p, x):
        batch, positions, _ = x.shape
        with scope("attention_norm"):
            y = rms_norm(p["attention_norm"], x)
        with scope("attention"):
            q = core.split_heads(dense(p["attention"]["wq"], y), heads)
            k, v = (core.split_heads(dense(p["attention"][name], y), kv_heads) for name in ("wk", "wv"))
            q = rotate(q).reshape(batch, positions, kv_heads, heads // kv_heads, -1)
            scores = jnp.einsum("bqkgd,btkd->bkgqt", q, rotate(k)) / jnp.sqrt(q.shape[-1]).astype(q.dtype)
            weights = jax.nn.softmax(scores + core.causal_bias(positions), axis=-1)
            y = jnp.einsum("bkgqt,btkd->bqkgd", weights, v).reshape(batch, positions, -1)
            return x + dense(p["attention"]["wo"], y)

    def loss(params, batch):
        with scope("tok_embeddings"):
            x = core.embed(params["tok_embeddings"]["embedding"], batch["tokens"])
        for i in range(layers):
            p = params["layers"][str(i)]
            with scope(f"layers/{i}"):
                x = attention(p, x)
                with scope("ffn_norm"):
                    y = rms_norm(p["ffn_norm"], x)
                with scope("feed_forward"):
                    x = x + feed_forward(p["feed_forward"], y)
        return head_and_loss(params, x, batch["tokens"])

    return core.training_model(
        "grouped_query",
        f"Decoder of {layers} layers, {kv_heads} heads of keys and values that {heads} of queries share without a copy, Adam",
        loss, tree, {"tokens": array(micro_batch, length, dtype=jnp.int32)}, micro_batch, locations=True)
