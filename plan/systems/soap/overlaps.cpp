#include "plan/systems/soap/overlaps.h"

#include <algorithm>

#include "common/base/numbers.h"

namespace automap::soap {

std::vector<std::int32_t> indices_of(const Config& config, std::int32_t part) {
  std::vector<std::int32_t> out(config.degrees.size());
  for (std::size_t d = config.degrees.size(); d-- > 0;) {
    out[d] = part % config.degrees[d];
    part /= config.degrees[d];
  }
  return out;
}

Overlaps::Overlaps(const Edge& edge, const Config& producer, const Config& consumer, const MachineLinks& machine)
    : producer_(producer), consumer_(consumer), machine_(machine) {
  forward_.assign(at(producer.parts()), 0);
  back_.assign(at(producer.parts()), 0);
  kept_.assign(at(producer.parts()), 0);
  strides_.assign(producer.degrees.size(), 1);
  for (std::size_t d = producer.degrees.size(); d-- > 1;) strides_[d - 1] = strides_[d] * producer.degrees[d];
  for (const EdgeTensor& tensor : edge.tensors) {
    std::vector<std::int32_t> copies{0};
    // The parts that hold the same slab as the first one does: of all dimensions that do not split this tensor.
    for (std::size_t d = 0; d < producer.degrees.size(); ++d) {
      const bool splits = std::any_of(tensor.dims.begin(), tensor.dims.end(),
                                      [&](const EdgeDim& dim) { return dim.producer == static_cast<std::int32_t>(d); });
      if (splits) continue;
      const std::size_t before = copies.size();
      for (std::int32_t k = 1; k < producer.degrees[d]; ++k) {
        for (std::size_t c = 0; c < before; ++c) copies.push_back(copies[c] + k * strides_[d]);
      }
    }
    std::sort(copies.begin(), copies.end());
    tensors_.push_back({&tensor, std::move(copies)});
  }
}

const std::vector<Overlaps::Bytes>& Overlaps::of(std::int32_t part) {
  touched_.clear();
  const std::vector<std::int32_t> indices = indices_of(consumer_, part);
  for (const Tensor& tensor : tensors_) add(tensor, indices, consumer_.devices[at(part)]);
  std::sort(touched_.begin(), touched_.end());
  found_.clear();
  for (const std::int32_t p : touched_) {
    found_.push_back({p, forward_[at(p)], back_[at(p)], kept_[at(p)]});
    forward_[at(p)] = back_[at(p)] = kept_[at(p)] = 0;
  }
  return found_;
}

void Overlaps::add(const Tensor& of, const std::vector<std::int32_t>& indices, std::int32_t device) {
  slabs_.assign(1, {0, of.tensor->element_bytes});
  for (const EdgeDim& dim : of.tensor->dims) {
    const std::int64_t parts = dim.consumer == kNone ? 1 : consumer_.degrees[at(dim.consumer)];
    const std::int64_t index = dim.consumer == kNone ? 0 : indices[at(dim.consumer)];
    const std::int64_t slab = dim.extent / parts;
    const std::int64_t first = std::max<std::int64_t>(0, index * slab - (parts > 1 ? dim.left : 0));
    const std::int64_t end = std::min(dim.extent, (index + 1) * slab + (parts > 1 ? dim.right : 0));
    if (dim.producer == kNone || producer_.degrees[at(dim.producer)] == 1) {
      for (Slab& s : slabs_) s.elements *= static_cast<double>(end - first);
      continue;
    }
    const std::int64_t made = dim.extent / producer_.degrees[at(dim.producer)];
    wider_.clear();
    for (std::int64_t k = first / made; k * made < end; ++k) {
      const auto common = static_cast<double>(std::min(end, (k + 1) * made) - std::max(first, k * made));
      for (const Slab& s : slabs_) {
        wider_.push_back({s.offset + static_cast<std::int32_t>(k) * strides_[at(dim.producer)], s.elements * common});
      }
    }
    slabs_.swap(wider_);
  }
  for (const Slab& s : slabs_) {
    if (!(s.elements > 0)) continue;
    const std::int32_t p = nearest(of.copies, s.offset, device);
    if (forward_[at(p)] == 0) touched_.push_back(p);
    forward_[at(p)] += s.elements;
    if (of.tensor->gradient) back_[at(p)] += s.elements;
    if (of.tensor->kept) kept_[at(p)] += s.elements;
  }
}

std::int32_t Overlaps::nearest(const std::vector<std::int32_t>& copies, std::int32_t offset,
                               std::int32_t device) const {
  std::int32_t in_server = kNone;
  for (const std::int32_t copy : copies) {
    const std::int32_t holder = producer_.devices[at(offset + copy)];
    if (holder == device) return offset + copy;
    if (in_server == kNone && machine_.server_of(holder) == machine_.server_of(device)) in_server = offset + copy;
  }
  return in_server != kNone ? in_server : offset + copies.front();
}

}  // namespace automap::soap
