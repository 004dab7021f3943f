"""The models whose training steps and forward passes export_hlo.py writes: name -> function that builds the Model."""

from . import bert, decoders, large, practices, small, t5, vision

MODELS = {
    model.__name__: model
    for model in (
        bert.bert48,
        bert.bert_large,
        t5.t5_6_6,
        t5.t5_24_24,
        vision.vgg19,
        vision.resnet50,
        decoders.gpt2,
        decoders.transformer_scan,
        decoders.transformer_remat,
        decoders.transformer_bf16,
        decoders.moe_small,
        practices.scan_remat,
        large.llama_8b,
        practices.grouped_query,
        practices.moe_dense,
        practices.moe_sort,
        practices.set_prediction,
        practices.mamba,
        practices.unet,
        small.lit_small,
        small.tiny_mlp,
        decoders.gpt2_forward,
        vision.vit_forward,
    )
}
