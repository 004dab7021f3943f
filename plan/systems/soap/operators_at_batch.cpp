#include "plan/systems/soap/operators_at_batch.h"

#include <utility>

#include "profile/module_at_batch.h"

namespace automap::soap {

namespace {

using profile::cannot_resize;

// Sample dimensions of which a tensor holds fewer (places that samples are sorted into) can be split as before.
void keep_where_tensors_do_not_grow(const Space& own, Space* space) {
  const auto check = [&](OperatorId op, std::int32_t dim, std::int64_t extent) {
    if (dim == kNone) return;
    const auto o = static_cast<std::size_t>(op), d = static_cast<std::size_t>(dim);
    if (extent % space->operators[o].dims[d].extent != 0)
      space->operators[o].dims[d].extent = own.operators[o].dims[d].extent;
  };
  for (const Edge& edge : space->edges) {
    for (const EdgeTensor& tensor : edge.tensors) {
      for (const EdgeDim& dim : tensor.dims) {
        check(edge.producer, dim.producer, dim.extent);
        check(edge.consumer, dim.consumer, dim.extent);
      }
    }
  }
}

// Copies the fields of `resized` that depend on the batch into the space; both are of one module.
void take_over(const ModelSpace& resized, std::int64_t samples, std::int64_t batch, ModelSpace* space) {
  const Space own = space->space;
  std::vector<Operator>& operators = space->space.operators;
  if (operators.size() != resized.space.operators.size()) cannot_resize("it has other operators there");
  for (std::size_t i = 0; i < operators.size(); ++i) {
    Operator& op = operators[i];
    const Operator& there = resized.space.operators[i];
    if (op.name != there.name) cannot_resize("it has other operators there");
    for (OperatorDim& dim : op.dims) {
      if (dim.kind != DimKind::kSample) continue;
      if (dim.extent * samples % batch != 0) cannot_resize("operator " + op.name + " does not grow with it");
      dim.extent = dim.extent * samples / batch;
    }
    op.forward_ms = there.forward_ms;
    op.forward_launch_ms = there.forward_launch_ms;
    op.backward_ms = there.backward_ms;
    op.backward_launch_ms = there.backward_launch_ms;
    op.kept_bytes = there.kept_bytes;
  }
  std::vector<Edge>& edges = space->space.edges;
  if (edges.size() != resized.space.edges.size()) cannot_resize("its operators read others there");
  for (std::size_t e = 0; e < edges.size(); ++e) {
    const std::vector<EdgeTensor>& there = resized.space.edges[e].tensors;
    if (edges[e].tensors.size() != there.size()) cannot_resize("its operators read others there");
    for (std::size_t t = 0; t < there.size(); ++t) {
      for (std::size_t d = 0; d < there[t].dims.size(); ++d) {
        edges[e].tensors[t].dims[d].extent = there[t].dims[d].extent;
      }
    }
  }
  space->forward_ms = resized.forward_ms;
  space->backward_ms = resized.backward_ms;
  space->left_out_ms = resized.left_out_ms;
  keep_where_tensors_do_not_grow(own, &space->space);
  space->space.link();
}

}  // namespace

ModelSpace operators_at_batch(const graph::Graph& graph, const machine::DeviceModel& device, std::int64_t samples) {
  const profile::ModuleAtBatch module(graph, samples);
  ModelSpace out = operators_of(graph, module.own_step(), device);
  if (module.resized()) {
    take_over(operators_of(module.graph(), module.step(), device), samples, module.own_batch(), &out);
  }
  return out;
}

}  // namespace automap::soap
