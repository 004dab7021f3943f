"""Models small enough to read, each with one trait of its own."""

import jax
import jax.numpy as jnp

from . import core, vision
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
        forms=("stripped", "proto", "stablehlo"),
        plain=True,
    )


def lit_small(layers=2, width=128, heads=4, image=64, vocabulary=1024, length=16, micro_batch=16):
    """The image tower is frozen and returned as it came; the text tower learns, clipped by the global norm."""
    text_block = {
        "LayerNorm_0": core.norm_parameters(width),
        "attention": {name: dense_parameters(width, width) for name in ("query", "key", "value", "out")},
        "LayerNorm_1": core.norm_parameters(width),
        "mlp": {"Dense_0": dense_parameters(width, 4 * width), "Dense_1": dense_parameters(4 * width, width)},
    }
    image_tower = vision.vit_parameters(layers, width, 4 * width, 16, image)
    text_tower = {
        "embedding": array(vocabulary, width),
        "pos_embedding": array(1, length, width),
        "encoderblock": [text_block] * layers,
        "encoder_norm": core.norm_parameters(width),
        "head": dense_parameters(width, width),
    }
    learned = {"t": array(), "txt": text_tower}
    batch = {"image": array(micro_batch, image, image, 3), "text": array(micro_batch, length, dtype=jnp.int32)}

    def text_features(p, ids):
        with scope("embedding"):
            x = core.embed(p["embedding"], ids) + p["pos_embedding"]
        for i, block in enumerate(p["encoderblock"]):
            with scope(f"encoderblock_{i}"):
                y = core.layer_norm(block["LayerNorm_0"], x)
                a = block["attention"]
                q, k, v = (core.split_heads(dense(a[part], y), heads) for part in ("query", "key", "value"))
                x = x + dense(a["out"], core.merge_heads(core.attention(q, k, v)))
                y = core.layer_norm(block["LayerNorm_1"], x)
                x = x + dense(block["mlp"]["Dense_1"], jax.nn.gelu(dense(block["mlp"]["Dense_0"], y)))
        with scope("encoder_norm"):
            x = core.layer_norm(p["encoder_norm"], x)
        with scope("head"):
            return dense(p["head"], x[:, -1])

    def unit(x):
        return x / (jnp.linalg.norm(x, axis=-1, keepdims=True) + 1e-8)

    def train_step(params, opt_state, batch):
        def loss(learned):
            with scope("img"):
                image = unit(vision.vit_features(params["img"], batch["image"], heads))
            with scope("txt"):
                text = unit(text_features(learned["txt"], batch["text"]))
            with scope("loss"):
                scores = jnp.exp(learned["t"]) * text @ image.T
                labels = jnp.arange(micro_batch)
                return (core.class_cross_entropy(scores, labels) + core.class_cross_entropy(scores.T, labels)) / 2

        learned = {name: params[name] for name in ("t", "txt")}
        value, gradients = jax.value_and_grad(loss)(learned)
        with scope("clip"):
            gradients = core.clip_by_global_norm(gradients)
        learned, opt_state = core.adam(gradients, opt_state, learned, decay=1e-2)
        return value, {"img": params["img"], **learned}, opt_state

    return core.Model(
        name="lit_small",
        description="Two towers with a contrastive loss: image tower frozen, text tower trained, global-norm clipping, Adam with decay",
        function=train_step,
        arguments=({"img": image_tower, **learned}, core.adam_state(learned), batch),
        micro_batch=micro_batch,
        roles={"params": "variable", "opt_state": "slot", "batch": "input"},
        loss="[0]",
        updates={"[1]": "params", "[2]": "opt_state"},
        frozen=("img/",),
        locations=True,
        forms=("stripped", "proto"),
    )
