"""Image models: VGG-19, ResNet-50 and a vision transformer's forward pass."""

import jax
import jax.numpy as jnp
from jax import lax

from . import core
from .core import array, dense, dense_parameters, layer_norm, norm_parameters, scope

CLASSES, IMAGE = 1000, 224
LAYOUT = ("NHWC", "HWIO", "NHWC")


def convolution(kernel, x, stride=1, padding="SAME"):
    return lax.conv_general_dilated(x, kernel, (stride, stride), padding, dimension_numbers=LAYOUT)


def max_pool(x, window, stride, padding="VALID"):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, window, window, 1), (1, stride, stride, 1), padding)


def image_batch(batch):
    return {"image": array(batch, IMAGE, IMAGE, 3), "label": array(batch, dtype=jnp.int32)}


# --- VGG-19 ----------------------------------------------------------------------------------------------------------

VGG_BLOCKS = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))


def vgg19(micro_batch=32):
    tree, channels = {}, 3
    for b, (width, count) in enumerate(VGG_BLOCKS, 1):
        for c in range(1, count + 1):
            tree[f"block{b}_conv{c}"] = {"kernel": array(3, 3, channels, width), "bias": array(width)}
            channels = width
    tree["fc1"] = dense_parameters(7 * 7 * 512, 4096)
    tree["fc2"] = dense_parameters(4096, 4096)
    tree["predictions"] = dense_parameters(4096, CLASSES)

    def loss(params, batch):
        x = batch["image"]
        for b, (_, count) in enumerate(VGG_BLOCKS, 1):
            for c in range(1, count + 1):
                with scope(f"block{b}_conv{c}"):
                    p = params[f"block{b}_conv{c}"]
                    x = jax.nn.relu(convolution(p["kernel"], x) + p["bias"])
            with scope(f"block{b}_pool"):
                x = max_pool(x, 2, 2)
        with scope("flatten"):
            x = x.reshape(x.shape[0], -1)
        for name in ("fc1", "fc2"):
            with scope(name):
                x = jax.nn.relu(dense(params[name], x))
        with scope("predictions"):
            x = dense(params["predictions"], x)
        with scope("loss"):
            return core.class_cross_entropy(x, batch["label"])

    return core.training_model(
        "vgg19", "VGG-19, 224x224 images, momentum", loss, tree, image_batch(micro_batch), micro_batch,
        optimizer=core.momentum)


# --- ResNet-50: batch normalization with running statistics ------------------------------------------------------------

RESNET_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))


def resnet_parameters():
    def conv(size, inputs, outputs):
        return {"kernel": array(size, size, inputs, outputs)}

    tree, inputs = {"conv_init": conv(7, 3, 64), "bn_init": norm_parameters(64)}, 64
    for s, (width, blocks) in enumerate(RESNET_STAGES, 1):
        for b in range(blocks):
            block = {
                "conv1": conv(1, inputs, width), "bn1": norm_parameters(width),
                "conv2": conv(3, width, width), "bn2": norm_parameters(width),
                "conv3": conv(1, width, 4 * width), "bn3": norm_parameters(4 * width),
            }
            if b == 0:
                block.update(conv_proj=conv(1, inputs, 4 * width), bn_proj=norm_parameters(4 * width))
            tree[f"stage{s}_block{b}"] = block
            inputs = 4 * width
    tree["fc"] = dense_parameters(inputs, CLASSES)
    return tree


def statistics_of(tree):
    """{"mean", "var"} wherever the parameters have a normalization."""
    if set(tree) == {"scale", "bias"}:
        return {"mean": tree["scale"], "var": tree["scale"]}
    found = {name: statistics_of(sub) for name, sub in tree.items() if isinstance(sub, dict)}
    return {name: sub for name, sub in found.items() if sub}


def batch_norm(p, running, x, epsilon=1e-5, keep=0.9):
    mean = jnp.mean(x, axis=(0, 1, 2))
    variance = jnp.mean(jnp.square(x), axis=(0, 1, 2)) - jnp.square(mean)
    running = {"mean": keep * running["mean"] + (1 - keep) * mean, "var": keep * running["var"] + (1 - keep) * variance}
    return (x - mean) * (lax.rsqrt(variance + epsilon) * p["scale"]) + p["bias"], running


def resnet50(micro_batch=32):
    parameters = resnet_parameters()

    def convolve(p, stats, names, x, stride=1):
        conv, norm = names
        with scope(conv):
            x = convolution(p[conv]["kernel"], x, stride)
        with scope(norm):
            x, stats[norm] = batch_norm(p[norm], stats[norm], x)
        return x

    def logits(params, batch_stats, image):
        new = jax.tree.map(lambda leaf: leaf, batch_stats)
        x = jax.nn.relu(convolve(params, new, ("conv_init", "bn_init"), image, 2))
        with scope("pool_init"):
            x = max_pool(x, 3, 2, "SAME")
        for s, (_, blocks) in enumerate(RESNET_STAGES, 1):
            for b in range(blocks):
                name = f"stage{s}_block{b}"
                with scope(name):
                    p, stats = params[name], new[name]
                    stride = 2 if b == 0 and s > 1 else 1
                    y = jax.nn.relu(convolve(p, stats, ("conv1", "bn1"), x))
                    y = jax.nn.relu(convolve(p, stats, ("conv2", "bn2"), y, stride))
                    y = convolve(p, stats, ("conv3", "bn3"), y)
                    if b == 0:
                        x = convolve(p, stats, ("conv_proj", "bn_proj"), x, stride)
                    x = jax.nn.relu(x + y)
        with scope("pool"):
            x = jnp.mean(x, axis=(1, 2))
        with scope("fc"):
            return dense(params["fc"], x), new

    def train_step(params, batch_stats, opt_state, batch):
        def loss(params):
            scores, new = logits(params, batch_stats, batch["image"])
            with scope("loss"):
                return core.class_cross_entropy(scores, batch["label"]), (scores, new)

        (value, (scores, new)), gradients = jax.value_and_grad(loss, has_aux=True)(params)
        params, opt_state = core.momentum(gradients, opt_state, params)
        with scope("metrics"):
            accuracy = jnp.mean((jnp.argmax(scores, axis=-1) == batch["label"]).astype(jnp.float32))
        return params, new, opt_state, {"accuracy": accuracy, "loss": value}

    return core.Model(
        name="resnet50",
        description="ResNet-50 with batch normalization and running statistics, 224x224 images, momentum; returns accuracy too",
        function=train_step,
        arguments=(parameters, statistics_of(parameters), core.momentum_state(parameters), image_batch(micro_batch)),
        micro_batch=micro_batch,
        roles={"params": "variable", "batch_stats": "statistics", "opt_state": "slot", "batch": "input"},
        loss="[3]['loss']",
        updates={"[0]": "params", "[1]": "batch_stats", "[2]": "opt_state"},
        locations=True,
    )


# --- vision transformer -------------------------------------------------------------------------------------------------


def vit_parameters(layers, width, hidden, patch, image):
    block = {
        "LayerNorm_0": norm_parameters(width),
        "MultiHeadAttention": {name: dense_parameters(width, width) for name in ("query", "key", "value", "out")},
        "LayerNorm_1": norm_parameters(width),
        "Mlp": {"Dense_0": dense_parameters(width, hidden), "Dense_1": dense_parameters(hidden, width)},
    }
    return {
        "embedding": {"kernel": array(patch, patch, 3, width), "bias": array(width)},
        "pos_embedding": array(1, (image // patch) ** 2, width),
        "encoderblock": {f"encoderblock_{i}": block for i in range(layers)},
        "encoder_norm": norm_parameters(width),
    }


def vit_features(params, image, heads):
    patch = params["embedding"]["kernel"].shape[0]
    with scope("embedding"):
        x = convolution(params["embedding"]["kernel"], image, patch, "VALID") + params["embedding"]["bias"]
        x = x.reshape(x.shape[0], -1, x.shape[-1]) + params["pos_embedding"]
    for name in sorted(params["encoderblock"], key=lambda name: int(name.rsplit("_", 1)[1])):
        p = params["encoderblock"][name]
        with scope(name):
            with scope("LayerNorm_0"):
                y = layer_norm(p["LayerNorm_0"], x)
            with scope("MultiHeadAttention"):
                a = p["MultiHeadAttention"]
                q, k, v = (core.split_heads(dense(a[part], y), heads) for part in ("query", "key", "value"))
                x = x + dense(a["out"], core.merge_heads(core.attention(q, k, v)))
            with scope("LayerNorm_1"):
                y = layer_norm(p["LayerNorm_1"], x)
            with scope("Mlp"):
                x = x + dense(p["Mlp"]["Dense_1"], jax.nn.gelu(dense(p["Mlp"]["Dense_0"], y), approximate=True))
    with scope("encoder_norm"):
        x = layer_norm(params["encoder_norm"], x)
    with scope("pool"):
        return jnp.mean(x, axis=1)


def vit_forward(layers=12, width=768, heads=12, micro_batch=32):
    tree = vit_parameters(layers, width, 4 * width, 16, IMAGE)
    tree["head"] = dense_parameters(width, CLASSES)

    def forward(params, batch):
        x = vit_features(params, batch["image"], heads)
        with scope("head"):
            return dense(params["head"], x)

    return core.inference_model(
        "vit_forward", f"ViT-B/16's forward pass ({layers} layers, hidden {width}), 224x224 images",
        forward, tree, {"image": array(micro_batch, IMAGE, IMAGE, 3)}, micro_batch, forms=("stripped",))
