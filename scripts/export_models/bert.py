"""BERT encoders: question answering (BERT-48) and masked language model (BERT-large)."""

import jax
import jax.numpy as jnp

from . import core
from .core import array, dense, dense_parameters, layer_norm, norm_parameters, scope

VOCABULARY, POSITIONS, TYPES = 30522, 512, 2


def layer_parameters(width):
    return {
        "attention": {
            "query": dense_parameters(width, width),
            "key": dense_parameters(width, width),
            "value": dense_parameters(width, width),
            "output": {"dense": dense_parameters(width, width), "LayerNorm": norm_parameters(width)},
        },
        "intermediate": {"dense": dense_parameters(width, 4 * width)},
        "output": {"dense": dense_parameters(4 * width, width), "LayerNorm": norm_parameters(width)},
    }


def parameters(layers, width, head):
    tree = {
        "embeddings": {
            "word_embeddings": {"embedding": array(VOCABULARY, width)},
            "position_embeddings": {"embedding": array(POSITIONS, width)},
            "token_type_embeddings": {"embedding": array(TYPES, width)},
            "LayerNorm": norm_parameters(width),
        },
        "encoder": {"layer": {str(i): layer_parameters(width) for i in range(layers)}},
    }
    tree.update(head)
    return tree


def layer(p, x, bias, heads):
    with scope("attention"):
        a = p["attention"]
        with scope("query"):
            query = core.split_heads(dense(a["query"], x), heads)
        with scope("key"):
            key = core.split_heads(dense(a["key"], x), heads)
        with scope("value"):
            value = core.split_heads(dense(a["value"], x), heads)
        y = core.merge_heads(core.attention(query, key, value, bias))
        with scope("output"):
            with scope("dense"):
                y = dense(a["output"]["dense"], y)
            with scope("LayerNorm"):
                x = layer_norm(a["output"]["LayerNorm"], x + y)
    with scope("intermediate"):
        y = jax.nn.gelu(dense(p["intermediate"]["dense"], x), approximate=False)
    with scope("output"):
        with scope("dense"):
            y = dense(p["output"]["dense"], y)
        with scope("LayerNorm"):
            return layer_norm(p["output"]["LayerNorm"], x + y)


def encode(p, batch, layers, heads):
    with scope("embeddings"):
        e = p["embeddings"]
        positions = jnp.arange(batch["input_ids"].shape[1])
        with scope("word_embeddings"):
            x = core.embed(e["word_embeddings"]["embedding"], batch["input_ids"])
        with scope("position_embeddings"):
            x = x + core.embed(e["position_embeddings"]["embedding"], positions)[None]
        with scope("token_type_embeddings"):
            x = x + core.embed(e["token_type_embeddings"]["embedding"], batch["token_type_ids"])
        with scope("LayerNorm"):
            x = layer_norm(e["LayerNorm"], x)
    bias = core.padding_bias(batch["attention_mask"])
    with scope("encoder"), scope("layer"):
        for i in range(layers):
            with scope(str(i)):
                x = layer(p["encoder"]["layer"][str(i)], x, bias, heads)
    return x


def token_batch(batch, length):
    ids = array(batch, length, dtype=jnp.int32)
    return {"input_ids": ids, "token_type_ids": ids, "attention_mask": ids}


def bert48(layers=48, width=1024, heads=16, micro_batch=2, length=384):
    tree = parameters(layers, width, {"qa_outputs": dense_parameters(width, 2)})
    batch = token_batch(micro_batch, length)
    batch["start_positions"] = array(micro_batch, dtype=jnp.int32)
    batch["end_positions"] = array(micro_batch, dtype=jnp.int32)

    def loss(params, batch):
        x = encode(params, batch, layers, heads)
        with scope("qa_outputs"):
            logits = dense(params["qa_outputs"], x)
        with scope("loss"):
            start = core.class_cross_entropy(logits[..., 0], batch["start_positions"])
            end = core.class_cross_entropy(logits[..., 1], batch["end_positions"])
            return (start + end) / 2

    return core.training_model(
        "bert48",
        f"BERT with {layers} layers, hidden {width}, question answering head, sequence {length}, Adam",
        loss, tree, batch, micro_batch)


def bert_large(layers=24, width=1024, heads=16, micro_batch=8, length=128):
    head = {
        "predictions": {
            "transform": {"dense": dense_parameters(width, width), "LayerNorm": norm_parameters(width)},
            "bias": array(VOCABULARY),
        }
    }
    tree = parameters(layers, width, head)
    batch = token_batch(micro_batch, length)
    batch["labels"] = array(micro_batch, length, dtype=jnp.int32)

    def loss(params, batch):
        x = encode(params, batch, layers, heads)
        with scope("predictions"):
            p = params["predictions"]
            with scope("transform"):
                x = jax.nn.gelu(dense(p["transform"]["dense"], x), approximate=False)
                x = layer_norm(p["transform"]["LayerNorm"], x)
            with scope("decoder"):
                table = params["embeddings"]["word_embeddings"]["embedding"]
                logits = jnp.einsum("bth,vh->btv", x, table) + p["bias"]
        with scope("loss"):
            masked = (batch["labels"] > 0).astype(jnp.float32)
            return core.token_cross_entropy(logits, batch["labels"], masked)

    return core.training_model(
        "bert_large",
        f"BERT-large ({layers} layers, hidden {width}), masked language model with tied embeddings, sequence {length}, Adam",
        loss, tree, batch, micro_batch)
