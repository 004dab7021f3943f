"""Run by the Python that scripts/frameworks_python.sh makes: what a framework's own parser makes of a file, as JSON.

    judge.py FOLDER megatron LAYOUT STAGES LAYERS     the decoder layers of each part of the model
    judge.py FOLDER megatron-fields                   the fields of its configuration classes
    judge.py FOLDER torchtitan FILE                   its tables
    judge.py FOLDER deepspeed FILE REPLICAS           its configuration
    judge.py FOLDER deepspeed-stages FILE RANKS       the layers of each stage, by its topology
    judge.py FOLDER deepspeed-include SLOTS INCLUDE   the servers and devices that --include chooses: HOST1=8,HOST2=8
    judge.py FOLDER maxtext FILE DEVICES LAYERS       its configuration of a model of so many layers"""

import ast
import collections
import copy
import importlib
import json
import logging
import math
import sys
import types
import typing
from pathlib import Path

import stand_ins


def megatron(folder, layout, stages, layers):
    core = folder / "megatron_core" / "megatron" / "core"
    stand_ins.stand_in_for("torch")
    stand_ins.bare_package("megatron", core.parent)
    package = stand_ins.bare_package("megatron.core", core)
    stand_ins.bare_package("megatron.core.transformer", core / "transformer")
    state = types.ModuleType("megatron.core.parallel_state")
    state.get_virtual_pipeline_model_parallel_world_size = lambda: None
    sys.modules[state.__name__] = package.parallel_state = state
    from megatron.core.transformer.enums import LayerType
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
    parsed = PipelineParallelLayerLayout(layout, int(stages))
    parsed.validate_layer_layout(int(layers), None)
    chunks = parsed.virtual_pipeline_model_parallel_size
    state.get_virtual_pipeline_model_parallel_world_size = lambda: chunks
    return [parsed.get_num_layers_to_build(LayerType.decoder, vp_stage=chunk, pp_rank=stage)
            for chunk in range(chunks) for stage in range(int(stages))]


def megatron_fields(folder):
    core = folder / "megatron_core" / "megatron" / "core"
    names = set()
    for file in ("model_parallel_config.py", "transformer/transformer_config.py", "distributed/distributed_data_parallel_config.py"):
        for node in ast.walk(ast.parse((core / file).read_text())):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
    return sorted(names)


def torchtitan(folder, file):
    stand_ins.stand_in_for("torch")
    stand_ins.bare_package("torchtitan", folder / "torchtitan" / "torchtitan")
    logging.disable()
    from dataclasses import asdict
    from torchtitan.config.manager import ConfigManager
    return asdict(ConfigManager().parse_args(["--job.config_file", file]))


def load_deepspeed(folder):
    stand_ins.stand_in_for(
        "torch", "triton", *("deepspeed." + name for name in (
            "model_implementations", "module_inject", "ops", "inference", "git_version_info", "accelerator", "utils", "moe",
            "comm.comm", "comm.torch", "runtime.fp16", "runtime.comm", "runtime.zero.stage3", "runtime.zero.stage_1_and_2",
            "runtime.zero.partition_parameters", "runtime.zero.tiling", "runtime.zero.mics")))
    stand_ins.bare_package("deepspeed", folder / "deepspeed" / "deepspeed", HAS_TRITON=False, __version__="0")


def deepspeed(folder, file, replicas):
    load_deepspeed(folder)
    from deepspeed.runtime import config as module
    module.dist = types.SimpleNamespace(get_rank=lambda: 0)  # no processes were started

    class Units:
        def get_data_parallel_world_size(self):
            return int(replicas)

    config = module.DeepSpeedConfig(file, mpu=Units())
    return {"stage": int(config.zero_config.stage), "batch": config.train_batch_size,
            "micro": config.train_micro_batch_size_per_gpu, "steps": config.gradient_accumulation_steps,
            "tp": config.tensor_parallel_config.autotp_size, "pipeline": config.pipeline}


def deepspeed_stages(folder, file, ranks):
    """What the file of stages makes of PipelineModule: its partition, by DeepSpeed's own topology."""
    source = ast.parse((folder / "deepspeed" / "deepspeed" / "runtime" / "pipe" / "module.py").read_text())
    module = next(node for node in source.body if isinstance(node, ast.ClassDef) and node.name == "PipelineModule")
    bounds = next(node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == "_set_bounds")
    text = "class PipelineModule:\n" + "".join("    " + line + "\n" for line in ast.unparse(bounds).split("\n"))
    stand_ins.stand_in_for("torch", "deepspeed.utils", "deepspeed.comm")
    stand_ins.bare_package("deepspeed", folder / "deepspeed" / "deepspeed")
    for name in ("deepspeed.runtime", "deepspeed.runtime.pipe"):
        stand_ins.bare_package(name, folder / "deepspeed" / name.replace(".", "/"))
    scope = {}
    exec(text, scope)  # its own method, without the rest of the class
    base = scope["PipelineModule"]

    def init(self, layers, topology, **options):
        self._topo, self.layers, self.options = topology, layers, options
        self.global_rank, self._num_layers = base.rank, len(layers)
        self._partition_layers()

    base.__init__ = init
    sys.modules["deepspeed.pipe"] = types.SimpleNamespace(PipelineModule=base)
    names = {}
    exec(compile(Path(file).read_text(), file, "exec"), names)
    layers = {name: name for stage in names["STAGES"] for name in stage}
    out = []
    for rank in range(int(ranks)):
        base.rank = rank
        made = names["pipeline_module"](layers)
        out.append(made.layers[made._local_start:made._local_stop])
    return out


def deepspeed_include(folder, slots, include):
    """Its launcher's own functions, without the rest of the launcher."""
    source = ast.parse((folder / "deepspeed" / "deepspeed" / "launcher" / "runner.py").read_text())
    wanted = ("parse_node_config", "parse_node_config_list", "parse_resource_filter", "parse_inclusion_exclusion", "_stable_remove_duplicates")
    functions = [node for node in source.body if isinstance(node, ast.FunctionDef) and node.name in wanted]
    scope = {**vars(typing), "collections": collections, "deepcopy": copy.deepcopy, "logger": logging.getLogger()}
    exec(compile(ast.Module(functions, []), "runner.py", "exec"), scope)
    pool = {host: int(count) for host, count in (one.split("=") for one in slots.split(","))}
    return list(scope["parse_inclusion_exclusion"](pool, include, "").items())


def maxtext(folder, file, devices, layers):
    import yaml
    package = folder / "maxtext" / "maxtext"
    stand_ins.stand_in_for("jax", "flax", "jinja2", "maxtext.utils")
    stand_ins.bare_package("maxtext", package)
    for name in ("configs", "common"):
        stand_ins.bare_package("maxtext." + name, package / name)
    import jax
    jax.devices = lambda *_: [None] * int(devices)
    jax.local_device_count = lambda: int(devices)
    paths, max_utils = (importlib.import_module("maxtext.utils." + name) for name in ("globals", "max_utils"))
    paths.MAXTEXT_ASSETS_ROOT, paths.HF_IDS = "/assets", {}
    from maxtext.configs import types as configs
    values = yaml.safe_load((package / "configs" / "base.yml").read_text())
    own = yaml.safe_load(Path(file).read_text())
    if own.pop("base_config") != "base.yml":
        raise ValueError("it is not made of base.yml")
    unknown = set(own) - set(values)
    if unknown:
        raise ValueError(f"not in base.yml: {sorted(unknown)}")
    values.update(own, run_name="judged", hardware="gpu_multiprocess", base_num_decoder_layers=int(layers))
    max_utils.get_num_slices = lambda *_: math.prod(value for key, value in own.items() if key.startswith("dcn_"))
    known = configs.MaxTextConfig.model_fields
    # As its pyconfig prepares them.
    made = configs.MaxTextConfig(**{key: None if str(value).lower() == "none" else value for key, value in values.items() if key in known})
    found = {key: getattr(made, key) for key in own}
    return {"config": found, "micro": made.micro_batch_size_to_train_on, "batch": made.global_batch_size_to_train_on}


if __name__ == "__main__":
    verdict = globals()[sys.argv[2].replace("-", "_")](Path(sys.argv[1]), *sys.argv[3:])
    print("\n" + json.dumps(verdict, default=str))
