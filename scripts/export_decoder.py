#!/usr/bin/env python3
"""The training step of a decoder-only language model, described in the words of Megatron-LM, as HLO for AutoMap.

For who trains with Megatron-LM, torchtitan or DeepSpeed and has no JAX or PyTorch/XLA model to export: the step is that of
the same sizes in plain JAX. The arguments of pretrain_gpt.py may be given as they are; those that do not change what is
computed are named and not looked at.

    $(scripts/jax_python.sh) scripts/export_decoder.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\
        --group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 --swiglu --vocab-size 128256 \\
        --untie-embeddings-and-output-weights --seq-length 4096 --bf16 -o step.hlo
    automap-infer step.hlo --cluster h100-4x8 --batch 256 --for megatron

What it is: RMS norms, rotary positions, causal attention, GELU or (--swiglu) gated SiLU, no biases, no dropout, Adam;
weights and moments in float32, products in bfloat16 (--bf16, --fp16) or float32. One layer stands in a loop over all of
them. Recomputation is not part of it: AutoMap decides it.
"""
import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--num-layers", type=int, required=True)
    parser.add_argument("--hidden-size", type=int, required=True)
    parser.add_argument("--num-attention-heads", type=int, required=True)
    parser.add_argument("--num-query-groups", type=int, help="heads of keys and values (default: one for each head of queries)")
    parser.add_argument("--group-query-attention", action="store_true", help="as Megatron has it: --num-query-groups counts")
    parser.add_argument("--ffn-hidden-size", type=int, help="default: 4 times --hidden-size; 8/3 of it with --swiglu")
    parser.add_argument("--swiglu", action="store_true", help="a gated feed-forward part, as Llama has it")
    parser.add_argument("--vocab-size", type=int, default=50304, help="default: 50304, GPT-2's made a multiple of 128")
    parser.add_argument("--seq-length", type=int, default=2048, help="default: 2048")
    parser.add_argument("--micro-batch-size", type=int, default=2,
                        help="samples in the module (2); AutoMap chooses what is trained with")
    parser.add_argument("--untie-embeddings-and-output-weights", action="store_true", help="the output has weights of its own")
    parser.add_argument("--bf16", action="store_true", help="products in bfloat16")
    parser.add_argument("--fp16", action="store_true", help="products in float16")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the HLO to write")
    options, others = parser.parse_known_args(words)
    for name in ("num_layers", "hidden_size", "num_attention_heads", "num_query_groups", "ffn_hidden_size", "vocab_size",
                 "seq_length", "micro_batch_size"):
        value = getattr(options, name)
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} is {value}, expected at least 1")
    heads = options.num_attention_heads
    options.groups = options.num_query_groups or heads
    if options.hidden_size % heads or options.hidden_size // heads % 2:
        parser.error(f"--hidden-size {options.hidden_size} is not divided into {heads} heads of an even size")
    if heads % options.groups:
        parser.error(f"--num-attention-heads {heads} is not divided into --num-query-groups {options.groups}")
    if options.bf16 and options.fp16:
        parser.error("--bf16 and --fp16 exclude each other")
    return options, others


def model_of(options):
    import jax.numpy as jnp

    from export_models import large

    width = options.hidden_size
    hidden = options.ffn_hidden_size or (8 * width // 3 if options.swiglu else 4 * width)
    name = Path(options.output).name.split(".")[0] or "decoder"
    return large.decoder(
        name, f"Decoder of {options.num_layers} layers, hidden {width}, sequence {options.seq_length}", layers=options.num_layers,
        width=width, heads=options.num_attention_heads, kv_heads=options.groups, hidden=hidden,
        vocabulary=options.vocab_size, micro_batch=options.micro_batch_size, length=options.seq_length, gated=options.swiglu,
        tied=not options.untie_embeddings_and_output_weights,
        compute=jnp.bfloat16 if options.bf16 else jnp.float16 if options.fp16 else jnp.float32)


def main():
    options, others = parse(sys.argv[1:])
    try:
        import jax
    except ImportError:
        sys.exit("export_decoder.py: this Python has no jax: run it by $(scripts/jax_python.sh), which makes one that has")
    flags = [word for word in others if word.startswith("-")]
    if flags:
        print("export_decoder.py: not looked at: " + " ".join(flags), file=sys.stderr)
    model = model_of(options)
    text = jax.jit(model.function, donate_argnums=model.donate).lower(*model.arguments).as_text("hlo", debug_info=True)
    partial = options.output + ".tmp"
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(partial, options.output)
    except OSError as error:
        sys.exit(f"export_decoder.py: cannot write {options.output}: {error.strerror}")
    weights = sum(leaf.size for leaf in jax.tree.leaves(model.arguments[0]))
    print(f"wrote {options.output}: {weights / 1e9:.2f} billion weights", file=sys.stderr)


if __name__ == "__main__":
    main()
