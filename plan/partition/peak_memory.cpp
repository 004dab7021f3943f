#include "plan/partition/peak_memory.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "common/base/check.h"
#include "common/base/numbers.h"
#include "common/sharding/reads.h"

namespace automap::partition {

namespace {

using graph::kNone;
using graph::NodeId;

// The buffers that lie in the memory of a result that is written later, for an order of the entry's steps (whose
// buffers are the first).
class Guests {
 public:
  Guests(const MemorySteps& steps, const std::vector<std::int32_t>& order)
      : steps_(steps),
        order_(order),
        last_(at(steps.regions[0].num_buffers), -1),
        aligned_(at(steps.regions[0].num_buffers), false) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto now = static_cast<std::int32_t>(i);
      for (const MemoryRead& read : steps.reads_of(order[i])) {
        last_[at(read.buffer)] = now;
        aligned_[at(read.buffer)] = read.aligned;
      }
      for (const std::int32_t b : steps.writes_of(order[i])) {
        if (steps.buffers[at(b)].result_bytes > 0) free_[steps.buffers[at(b)].result_bytes].insert({now, b});
      }
    }
  }

  // Per buffer. The smallest result it fits into, and of those the one that is written first.
  std::vector<bool> find() {
    std::vector<bool> guest(last_.size(), false);
    std::vector<std::vector<Guest>> leaving(order_.size());
    for (std::size_t i = 0; i < order_.size() && !free_.empty(); ++i) {
      // The step may write over a buffer that it reads element by element as the last reader.
      for (const Guest& g : leaving[i]) {
        if (g.aligned) free_[g.bytes].insert(g.place);
      }
      for (const std::int32_t b : steps_.writes_of(order_[i])) {
        const MemoryBuffer& buffer = steps_.buffers[at(b)];
        const std::int32_t last = last_[at(b)];
        if (buffer.bytes <= 0 || buffer.stays || last <= static_cast<std::int32_t>(i)) continue;
        const std::int32_t from = last + (aligned_[at(b)] ? 0 : 1);
        for (auto size = free_.lower_bound(buffer.bytes); size != free_.end(); ++size) {
          const auto place = size->second.lower_bound({from, -1});
          if (place == size->second.end()) continue;
          leaving[at(last)].push_back({size->first, *place, aligned_[at(b)]});
          size->second.erase(place);
          guest[at(b)] = true;
          break;
        }
      }
      for (const Guest& g : leaving[i]) {
        if (!g.aligned) free_[g.bytes].insert(g.place);
      }
    }
    return guest;
  }

 private:
  using Place = std::pair<std::int32_t, std::int32_t>;  // when it is written, the result
  struct Guest {
    double bytes = 0;  // of the result
    Place place;
    bool aligned = false;
  };

  const MemorySteps& steps_;
  const std::vector<std::int32_t>& order_;
  std::vector<std::int32_t> last_;          // position of the last reader
  std::vector<bool> aligned_;               // which reads element by element
  std::map<double, std::set<Place>> free_;  // by size
};

// The number of steps that read each buffer of a region.
std::vector<std::int32_t> readers_of(const MemorySteps& steps, const MemoryRegion& region) {
  std::vector<std::int32_t> readers(at(region.num_buffers), 0);
  for (std::int32_t i = 0; i < region.num_steps; ++i) {
    for (const MemoryRead& read : steps.reads_of(region.first_step + i))
      ++readers[at(read.buffer - region.first_buffer)];
  }
  return readers;
}

// Counts the bytes that are alive while the steps of one region run.
class Live {
 public:
  Live(const MemorySteps& steps, const MemoryRegion& region, std::vector<bool> guest)
      : steps_(steps),
        first_(region.first_buffer),
        guest_(std::move(guest)),
        readers_(readers_of(steps, region)),
        taken_(at(region.num_buffers), 0) {}

  // Starts `step` and returns the bytes alive while it runs.
  double begin(std::int32_t step) {
    for (const std::int32_t b : steps_.writes_of(step)) {
      const MemoryBuffer& buffer = steps_.buffers[at(b)];
      double bytes = guest_[local(b)] ? 0 : buffer.bytes;
      if (buffer.in_place_of != kNone && is_done(buffer.in_place_of, step)) bytes = 0;
      if (bytes > 0) replace(step, bytes);
      taken_[local(b)] = bytes;
      live_ += bytes;
    }
    return live_;
  }
  void end(std::int32_t step) {
    for (const MemoryRead& read : steps_.reads_of(step)) {
      if (--readers_[local(read.buffer)] == 0 && !steps_.buffers[at(read.buffer)].stays) release(read.buffer);
    }
    for (const std::int32_t b : steps_.writes_of(step)) {
      if (readers_[local(b)] == 0 && !steps_.buffers[at(b)].stays) release(b);
    }
  }

 private:
  // Something of `bytes` that `step` is the last to read, element by element, makes room.
  void replace(std::int32_t step, double bytes) {
    for (const MemoryRead& read : steps_.reads_of(step)) {
      if (!read.aligned || readers_[local(read.buffer)] != 1 || steps_.buffers[at(read.buffer)].stays ||
          taken_[local(read.buffer)] != bytes)
        continue;
      release(read.buffer);
      return;
    }
  }
  // Nobody needs `buffer` after `step`, nor while it writes.
  bool is_done(std::int32_t buffer, std::int32_t step) const {
    if (readers_[local(buffer)] == 0) return true;
    if (readers_[local(buffer)] > 1) return false;
    for (const MemoryRead& read : steps_.reads_of(step)) {
      if (read.buffer == buffer) return read.aligned;
    }
    return false;
  }
  void release(std::int32_t buffer) {
    live_ -= taken_[local(buffer)];
    taken_[local(buffer)] = 0;
  }

  std::size_t local(std::int32_t buffer) const { return at(buffer - first_); }

  const MemorySteps& steps_;
  std::int32_t first_;
  std::vector<bool> guest_;
  std::vector<std::int32_t> readers_;  // that have not run yet
  std::vector<double> taken_;          // bytes that each buffer holds now
  double live_ = 0;
};

// Depth first from the values that must be there at the end.
class DepthFirst {
 public:
  DepthFirst(const MemorySteps& steps, const MemoryRegion& region)
      : steps_(steps), region_(region), before_(at(region.num_steps)), weight_(at(region.num_steps)) {
    const std::vector<std::int32_t> readers = readers_of(steps, region);
    Weight sum;
    for (std::int32_t i = 0; i < region.num_steps; ++i) weigh(i, readers, &sum);
    const auto by_weight = [this](std::int32_t a, std::int32_t b) { return precedes(a, b); };
    for (std::int32_t i = 0; i < region.num_steps; ++i) {
      std::sort(before_[at(i)].begin(), before_[at(i)].end(), by_weight);
      const Span<const std::int32_t> writes = steps.writes_of(region.first_step + i);
      bool root = writes.empty();
      for (const std::int32_t b : writes)
        root = root || steps.buffers[at(b)].stays || readers[at(b - region.first_buffer)] == 0;
      if (root) roots_.push_back(i);
    }
    std::sort(roots_.begin(), roots_.end(), by_weight);
  }

  std::vector<std::int32_t> order() const {
    std::vector<std::int32_t> out;
    std::vector<bool> seen(before_.size(), false);
    std::vector<std::pair<std::int32_t, std::size_t>> stack;
    const auto enter = [&](std::int32_t i) {
      if (seen[at(i)]) return;
      seen[at(i)] = true;
      stack.push_back({i, 0});
    };
    for (const std::int32_t root : roots_) {
      enter(root);
      while (!stack.empty()) {
        auto& [i, next] = stack.back();
        if (next < before_[at(i)].size()) {
          enter(before_[at(i)][next++]);
          continue;
        }
        out.push_back(region_.first_step + i);
        stack.pop_back();
      }
    }
    AM_CHECK(out.size() == before_.size());
    return out;
  }

 private:
  // Totals over a step and all that it needs: other reads of their results, and bytes of their results, both added up
  // along every path (as XLA does it).
  struct Weight {
    double others = 0, bytes = 0;
  };

  void weigh(std::int32_t i, const std::vector<std::int32_t>& readers, Weight* sum) {
    const std::int32_t step = region_.first_step + i;
    Weight& own = weight_[at(i)];
    std::int32_t read = 0;
    for (const std::int32_t b : steps_.writes_of(step)) {
      read += readers[at(b - region_.first_buffer)];
      own.bytes += steps_.buffers[at(b)].bytes + steps_.buffers[at(b)].result_bytes;
    }
    own.others = std::max(0, read - 1);
    sum->bytes += own.bytes;
    sum->others += 1;
    std::vector<std::int32_t>& before = before_[at(i)];
    for (const MemoryRead& read_one : steps_.reads_of(step)) {
      const std::int32_t writer = steps_.buffers[at(read_one.buffer)].writer;
      if (writer != kNone) before.push_back(writer - region_.first_step);
    }
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    for (const std::int32_t b : before) {
      own.others += weight_[at(b)].others;
      own.bytes += weight_[at(b)].bytes;
    }
    own.others = std::min(own.others, sum->others);
    own.bytes = std::min(own.bytes, sum->bytes);
  }
  bool precedes(std::int32_t a, std::int32_t b) const {
    const Weight &x = weight_[at(a)], &y = weight_[at(b)];
    if (x.others != y.others) return x.others > y.others;
    if (x.bytes != y.bytes) return x.bytes > y.bytes;
    return a < b;
  }

  const MemorySteps& steps_;
  const MemoryRegion& region_;
  // By step of the region.
  std::vector<std::vector<std::int32_t>> before_;
  std::vector<Weight> weight_;
  std::vector<std::int32_t> roots_;
};

}  // namespace

std::vector<std::int32_t> order_steps(const MemorySteps& steps, std::int32_t region) {
  return DepthFirst(steps, steps.regions[at(region)]).order();
}

RegionPeak peak_of_region(const MemorySteps& steps, std::int32_t region, const std::vector<std::int32_t>& order,
                          const std::vector<double>& inside) {
  RegionPeak out;
  std::vector<bool> guest(at(steps.regions[at(region)].num_buffers), false);
  if (region == 0 && steps.results > 0) guest = Guests(steps, order).find();
  Live live(steps, steps.regions[at(region)], std::move(guest));
  for (const std::int32_t step : order) {
    const double now = live.begin(step) + steps.steps[at(step)].workspace + inside[at(step)];
    if (now > out.bytes) out = {now, step};
    live.end(step);
  }
  return out;
}

PeakMemory peak_memory(const MemorySteps& steps) {
  std::vector<double> inside(steps.steps.size(), 0);
  std::vector<std::int32_t> deepest(steps.steps.size(), kNone);  // the step within, at its peak
  RegionPeak peak;
  // Inner regions first, the entry last.
  for (std::size_t r = steps.regions.size(); r-- > 0;) {
    const auto region = static_cast<std::int32_t>(r);
    peak = peak_of_region(steps, region, order_steps(steps, region), inside);
    if (peak.step != kNone && deepest[at(peak.step)] != kNone) peak.step = deepest[at(peak.step)];
    const std::int32_t around = steps.regions[r].around;
    if (around == kNone || peak.bytes <= inside[at(around)]) continue;
    inside[at(around)] = peak.bytes;
    deepest[at(around)] = peak.step;
  }
  PeakMemory out;
  out.arguments = steps.arguments;
  out.results = steps.results;
  out.temporaries = peak.bytes;
  out.total = out.arguments + out.results + out.temporaries;
  if (peak.step != kNone) out.at = steps.steps[at(peak.step)].node;
  return out;
}

PeakMemory peak_memory(const sharding::ShardingModel& model, const std::vector<double>& part_of_node,
                       const std::vector<TensorCopy>& copies) {
  return peak_memory(memory_steps(model, part_of_node, copies));
}

std::vector<double> parts_of_axis(const sharding::Propagation& decided) {
  const sharding::Linkage& linkage = decided.linkage();
  std::vector<double> parts(at(linkage.flow().size()), 1);
  for (NodeId id = 0; id < linkage.flow().size(); ++id) {
    if (decided.state(id).kind == sharding::TensorStateKind::kSplit) parts[at(id)] = 1.0 / linkage.shards();
  }
  return parts;
}

std::vector<TensorCopy> copies_of_axis(const sharding::ShardingModel& model, const sharding::Propagation& decided) {
  // By tensor and the dimension that it is exchanged to (kNone: gathered). A whole tensor that is read in parts needs
  // no copy; a new value that is handed on whole is written over the old one.
  std::map<std::pair<NodeId, std::int32_t>, TensorCopy> copies;
  for (const sharding::Read& read : sharding::reads_of(model, decided)) {
    if (!read.gathered && !read.exchanged()) continue;
    TensorCopy& copy = copies[{read.tensor, read.gathered ? graph::kNone : read.in_parts}];
    copy.tensor = read.tensor;
    if (read.exchanged()) copy.part = 1.0 / model.linkage().shards();
    copy.readers.push_back(read.reader);
  }
  // A value that is made whole and kept in parts is whole while it is made.
  for (const sharding::TensorDim dim : sharding::kept_in_parts(model, decided)) {
    TensorCopy& copy = copies[{dim.node, graph::kNone}];
    copy.tensor = dim.node;
    copy.readers.push_back(model.flow().producer(dim.node));
  }
  std::vector<TensorCopy> out;
  for (auto& [key, copy] : copies) out.push_back(std::move(copy));
  return out;
}

}  // namespace automap::partition
