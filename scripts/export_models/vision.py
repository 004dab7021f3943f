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
