// A script for torch.distributed (PyTorch 2.6 and later): device mesh, stages, schedule or lists of work, replicas,
// recomputation.
#include <algorithm>

#include "common/base/json_text.h"
#include "plan/emit/to_type.h"
#include "plan/emit/torch_order.h"

namespace automap::emit {
namespace {

const char* const kHead = R"(import contextlib
import pathlib
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B, SplitPoint, pipeline
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
from torch.nn.parallel import DistributedDataParallel
)";

const char* const kBody = R"(

def mesh(device_type="cuda"):
    """Ranks stage by stage, in a stage replica by replica."""
    return init_device_mesh(device_type, (STAGES, REPLICAS, WIDTH), mesh_dim_names=("stage", "replica", "width"))


def layers(module, part):
    """Names of its layers: those that MODULES has, of one stage the entries of the longest list of modules."""
    if STAGES > 1:
        return [name for name, _ in module.named_modules() if name in MODULES[part]]
    kinds = (torch.nn.ModuleList, torch.nn.Sequential)
    lists = {name: one for name, one in module.named_modules() if isinstance(one, kinds)}
    longest = max(lists, key=lambda name: len(lists[name]), default=None)
    return [] if longest is None else [f"{longest}.{name}".lstrip(".") for name, _ in lists[longest].named_children()]


def replicate(module, part, devices):
    """The module on all replicas, as ZERO says; its layers are sharded one by one."""
    if REPLICAS == 1:
        return module
    if ZERO < 2 and SPLIT_BACKWARD:  # whose gradients DistributedDataParallel does not see: sum_gradients does it
        group = devices["replica"].get_group()
        for parameter in module.parameters():
            dist.broadcast(parameter.data, dist.get_global_rank(group, 0), group)
        return module
    if ZERO < 2:
        wrapped = DistributedDataParallel(module, process_group=devices["replica"].get_group())
        if STAGES > 1:
            wrapped.graph = module.graph  # in which the stage looks up what it receives
        return wrapped
    for name in layers(module, part):
        fully_shard(module.get_submodule(name), mesh=devices["replica"], reshard_after_forward=ZERO == 3)
    fully_shard(module, mesh=devices["replica"], reshard_after_forward=ZERO == 3)
    return module


def sum_gradients(modules, devices):
    """Means over the replicas, behind the last pass, where nothing else sums them."""
    if REPLICAS == 1 or ZERO >= 2 or not SPLIT_BACKWARD:
        return
    for module in modules:
        for parameter in module.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad, group=devices["replica"].get_group())
                parameter.grad /= REPLICAS


def scheduled(parts, loss):
    """What runs the parts of this rank: a schedule of torch, or the lists of ORDER."""
    if not ORDER:
        return SCHEDULE(parts if len(parts) > 1 else parts[0], n_microbatches=MICRO_BATCHES, loss_fn=loss)
    schedule = SCHEDULE(parts, n_microbatches=MICRO_BATCHES, loss_fn=loss)
    stage_of = {part: stage for stage, own in enumerate(PARTS) for part in own}
    for one in (schedule, *parts):  # PyTorch 2.6 and 2.7 do not see it in the lists
        one.stage_index_to_group_rank = stage_of
    with tempfile.TemporaryDirectory() as folder:
        rows = pathlib.Path(folder, "order.csv")
        rows.write_text("".join(row.replace(" ", ",") + "\n" for row in ORDER))
        schedule._load_csv(str(rows))
    return schedule


def recompute(module, stage, part):
    """Its layers keep what enters them, and run again in the backward."""
    if not RECOMPUTE[stage]:
        return
    for name in layers(module, part):
        parent, _, last = name.rpartition(".")
        setattr(module.get_submodule(parent), last, checkpoint_wrapper(module.get_submodule(name)))


def optimizer(modules, kind=torch.optim.AdamW, **options):
    parameters = [parameter for module in modules for parameter in module.parameters()]
    if ZERO != 1 or REPLICAS == 1:
        return kind(parameters, **options)
    from torch.distributed.optim import ZeroRedundancyOptimizer
    return ZeroRedundancyOptimizer(parameters, kind, **options)


class Step:
    """One step of training on this rank. `model` on the meta or the CPU device, `example` the inputs of one micro-batch
    in one replica (SAMPLES samples), loss(output, target) the mean over them."""

    def __init__(self, model, example, loss, devices, device, **optimizer_options):
        self.loss, self.device, self.devices = loss, device, devices
        self.stage = devices["stage"].get_local_rank() if STAGES > 1 else 0
        if STAGES == 1:
            recompute(model, 0, 0)
            self.modules = [replicate(model.to(device), 0, devices)]
        else:
            pipe = pipeline(model, mb_args=example, split_spec={name: SplitPoint.BEGINNING for name in SPLIT_BEFORE})
            numbers = PARTS[self.stage]
            parts = [pipe.build_stage(number, device, devices["stage"].get_group()) for number in numbers]
            for number, part in zip(numbers, parts):
                recompute(part.submod, self.stage, number)
                part.submod = replicate(part.submod.to(device), number, devices)
            self.modules = [part.submod for part in parts]
            self.schedule = scheduled(parts, loss)
        self.optimizer = optimizer(self.modules, **optimizer_options)

    def __call__(self, inputs, targets):
        """inputs, targets: of this replica, SAMPLES * MICRO_BATCHES samples. The losses of the micro-batches, where
        they are known: where the last part is."""
        self.optimizer.zero_grad()
        losses = []
        if STAGES > 1:
            first, last = 0 in PARTS[self.stage], len(MODULES) - 1 in PARTS[self.stage]
            self.schedule.step(*((inputs.to(self.device),) if first else ()),
                               **({"target": targets.to(self.device), "losses": losses} if last else {}))
            sum_gradients(self.modules, self.devices)
        else:
            parts = zip(inputs.to(self.device).split(SAMPLES), targets.to(self.device).split(SAMPLES))
            module = self.modules[0]
            for number, (part, target) in enumerate(parts, 1):
                # Gradients are summed over the replicas once, beside the last backward pass.
                alone = number < MICRO_BATCHES and hasattr(module, "no_sync")
                with module.no_sync() if alone else contextlib.nullcontext():
                    loss = self.loss(module(part), target)
                    (loss / MICRO_BATCHES).backward()
                losses.append(loss.detach())
        self.optimizer.step()
        return losses
)";

std::string python_bools(const std::vector<bool>& values) {
  std::string text;
  for (const bool value : values) text += std::string(text.empty() ? "" : ", ") + (value ? "True" : "False");
  return "[" + text + "]";
}

const char* schedule_class(const FrameworkPlan& plan) {
  if (!plan.order.empty()) return "_PipelineScheduleRuntime";
  if (plan.chunks > 1) return "ScheduleInterleaved1F1B";
  return plan.schedule == pipeline::Schedule::kGpipe ? "ScheduleGPipe" : "Schedule1F1B";
}

}  // namespace

Emitted emit_torch(const FrameworkPlan& plan, const std::string& layers) {
  Emitted out;
  ModulePaths paths;
  if (plan.stages > 1) {
    paths = module_paths(plan, layers);
    if (!paths.why.what.empty()) {
      out.cannot = paths.why;
      return out;
    }
    if (!paths.note.empty()) out.missing.push_back(paths.note);
  }
  const auto number = [](const char* name, std::int64_t value) {
    return std::string(name) + " = " + std::to_string(value) + "\n";
  };
  std::string text =
      "\"\"\"A plan of AutoMap for torch.distributed: torchrun a script that makes a model and a Step of it.\"\"\"\n";
  text += std::string(kHead) + "\n";
  text += number("STAGES", plan.stages) + number("REPLICAS", plan.replicas) + number("WIDTH", plan.width) +
          number("MICRO_BATCHES", plan.micro_batches) + "SAMPLES = " + std::to_string(plan.samples) +
          "  # of one micro-batch in one replica\n" + number("ZERO", plan.zero) +
          "RECOMPUTE = " + python_bools(plan.recompute) + "\nSCHEDULE = " + schedule_class(plan) + "\n";
  const bool split_backward = has_weights_pass(plan.order);
  text +=
      "# What each stage does in order: PART F MICRO-BATCH, a backward B, or I for what the part in front waits for "
      "and "
      "W for\n# the gradients of the weights; empty: what SCHEDULE does.\nORDER = [";
  for (const std::string& row : torch_order(plan.order, ' ')) text += "\n    \"" + row + "\",";
  text += (plan.order.empty() ? "]\n" : "\n]\n");
  text += std::string("SPLIT_BACKWARD = ") + (split_backward ? "True" : "False") + "\n";
  std::vector<std::string> of_stages(static_cast<std::size_t>(plan.stages));
  for (std::size_t part = 0; part < plan.stage_of_part.size(); ++part) {
    std::string& own = of_stages[static_cast<std::size_t>(plan.stage_of_part[part])];
    own += (own.empty() ? "" : ", ") + std::to_string(part);
  }
  text += "# The parts of the model of each stage; the modules of each part; and those that begin one.\nPARTS = [";
  for (const std::string& own : of_stages) text += (&own == &of_stages.front() ? "[" : ", [") + own + "]";
  text += "]\nMODULES = [\n";
  std::string before;
  for (std::size_t s = 0; s < paths.stages.size(); ++s) {
    std::string names;
    for (const std::string& name : paths.stages[s]) names += (names.empty() ? "" : ", ") + python_literal(name);
    text += "    [" + names + "],\n";
    if (s > 0) before += (before.empty() ? "" : ", ") + python_literal(paths.stages[s].front());
  }
  text += "]\nSPLIT_BEFORE = [" + before + "]\n" + kBody;
  out.files.push_back({"", text});
  if (!plan.overlap) out.missing.push_back(kSumsBeside);
  out.launch = torchrun_words(plan, &out.missing);
  out.launch.push_back(kUsersProgram);
  out.missing.push_back(std::string(kUsersProgram) +
                        ", which makes the model and a Step of the script: automap emit writes that");
  if (plan.width > 1) {
    out.missing.push_back("parallelize_module of torch.distributed.tensor.parallel over mesh()[\"width\"], " +
                          std::to_string(plan.width) + " devices: which modules are split is in the plan's partition");
  }
  if (plan.shares_variables) {
    out.missing.push_back("stages share variables: torch.distributed.pipelining sums no gradients between stages");
  }
  return out;
}

}  // namespace automap::emit
