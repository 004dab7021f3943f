"""The models whose training steps and forward passes export_hlo.py writes: name -> function that builds the Model."""

from . import bert, small, vision

MODELS = {
    "bert48": bert.bert48,
    "vgg19": vision.vgg19,
    "tiny_mlp": small.tiny_mlp,
}
