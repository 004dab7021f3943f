#include "plan/systems/soap/task_graph.h"

#include <algorithm>

#include "common/base/numbers.h"
#include "plan/systems/soap/overlaps.h"

namespace automap::soap {

namespace {

// Forward pass, backward pass, update; in each the operators in their order (backward: from the last one), each behind
// the tasks that it waits for.
enum class Stage : std::uint64_t { kForward, kBackward, kUpdate };
enum class Step : std::uint64_t { kBefore, kCompute, kAfter, kUpdate };
TaskOrder order_of(Stage stage, OperatorId op, Step step, std::int32_t group, std::int32_t a, std::int32_t b) {
  return static_cast<TaskOrder>(stage) << 60 | static_cast<TaskOrder>(op) << 40 | static_cast<TaskOrder>(step) << 38 |
         static_cast<TaskOrder>(group) << 24 | static_cast<TaskOrder>(a) << 12 | static_cast<TaskOrder>(b);
}
static_assert(kMostOperators == 1 << 20 && kMostEdgesPerOperator == 1 << 14 && kMostParts == 1 << 12);

double part_ms(double ms, double launch_ms, std::int32_t parts, double speed) {
  const double launches = std::min(ms, launch_ms);
  return ((ms - launches) / parts + launches) / speed;
}

class OperatorBuilder {
 public:
  OperatorBuilder(const Space& space, OperatorId id, const Config& config, const MachineLinks& machine)
      : op_(space.operators[at(id)]), backward_id_(space.size() - 1 - id), config_(config), machine_(machine) {
    block_.parts = config.parts();
    block_.backward = op_.backward;
    for (std::int32_t part = 0; part < block_.parts; ++part) {
      add(part_ms(op_.forward_ms, op_.forward_launch_ms, block_.parts, speed(part)), config.devices[at(part)],
          order_of(Stage::kForward, id, Step::kCompute, 0, 0, part));
    }
    if (!op_.backward) return;
    for (std::int32_t part = 0; part < block_.parts; ++part) {
      const std::int32_t task =
          add(part_ms(op_.backward_ms, op_.backward_launch_ms, block_.parts, speed(part)), config.devices[at(part)],
              order_of(Stage::kBackward, backward_id_, Step::kCompute, 0, 0, part));
      arrows_.emplace_back(block_.forward_task(part), task);
    }
    for (std::size_t w = 0; w < op_.weights.size(); ++w) add_weights(static_cast<std::int32_t>(w));
  }

  OperatorBlock finish() {
    const std::size_t n = block_.tasks.size();
    const auto list = [&](bool behind, std::vector<std::int32_t>* first, std::vector<std::int32_t>* to) {
      first->assign(n + 1, 0);
      for (const auto& [a, b] : arrows_) ++(*first)[at(behind ? a : b) + 1];
      for (std::size_t i = 0; i < n; ++i) (*first)[i + 1] += (*first)[i];
      to->assign(arrows_.size(), 0);
      std::vector<std::int32_t> next(first->begin(), first->end() - 1);
      for (const auto& [a, b] : arrows_) (*to)[at(next[at(behind ? a : b)]++)] = behind ? b : a;
    };
    list(false, &block_.first_before, &block_.before);
    list(true, &block_.first_behind, &block_.behind);
    return std::move(block_);
  }

 private:
  double speed(std::int32_t part) const { return machine_.speed(config_.devices[at(part)]); }

  std::int32_t add(double ms, std::int32_t resource, TaskOrder order) {
    block_.tasks.push_back({ms, resource, order});
    return static_cast<std::int32_t>(block_.tasks.size()) - 1;
  }

  void add_weights(std::int32_t w) {
    const Weights& weights = op_.weights[at(w)];
    std::int32_t ways = 1;
    for (const std::int32_t dim : weights.dims) ways *= config_.degrees[at(dim)];
    // The parts that hold the same weights.
    std::vector<std::vector<std::int32_t>> groups(at(ways));
    for (std::int32_t part = 0; part < block_.parts; ++part) {
      const std::vector<std::int32_t> indices = indices_of(config_, part);
      std::int32_t group = 0;
      for (const std::int32_t dim : weights.dims) group = group * config_.degrees[at(dim)] + indices[at(dim)];
      groups[at(group)].push_back(part);
    }
    for (std::int32_t g = 0; g < ways; ++g) {
      add_group(w, g, groups[at(g)], weights.gradient_bytes / ways, weights.update_ms / ways);
    }
  }

  void add_group(std::int32_t w, std::int32_t g, const std::vector<std::int32_t>& parts, double bytes,
                 double update_ms) {
    std::vector<std::int32_t> devices;
    for (const std::int32_t part : parts) devices.push_back(config_.devices[at(part)]);
    std::sort(devices.begin(), devices.end());
    devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
    const auto order = [&](Step step, std::int32_t k) { return order_of(Stage::kUpdate, backward_id_, step, w, g, k); };
    const bool ring = devices.size() > 1 && bytes > 0;
    const std::int32_t begun = add(0, kNone, order(Step::kBefore, 0));
    for (const std::int32_t part : parts) arrows_.emplace_back(block_.backward_task(part), begun);
    std::int32_t added_up = begun;
    if (ring) {
      const double ms = machine_.all_reduce(devices).ms(bytes);
      added_up = add(0, kNone, order(Step::kAfter, kMostParts - 1));
      for (std::size_t k = 0; k < devices.size(); ++k) {
        const std::int32_t hop = add(ms, machine_.link(devices[k], devices[(k + 1) % devices.size()]),
                                     order(Step::kCompute, static_cast<std::int32_t>(k)));
        arrows_.emplace_back(begun, hop);
        arrows_.emplace_back(hop, added_up);
      }
    }
    for (std::size_t k = 0; k < devices.size(); ++k) {
      const std::int32_t update =
          add(update_ms / machine_.speed(devices[k]), devices[k], order(Step::kUpdate, static_cast<std::int32_t>(k)));
      arrows_.emplace_back(added_up, update);
    }
  }

  const Operator& op_;
  const OperatorId backward_id_;
  const Config& config_;
  const MachineLinks& machine_;
  OperatorBlock block_;
  std::vector<std::pair<std::int32_t, std::int32_t>> arrows_;
};

}  // namespace

OperatorBlock operator_block(const Space& space, OperatorId op, const Config& config, const MachineLinks& machine) {
  return OperatorBuilder(space, op, config, machine).finish();
}

EdgeBlock edge_block(const Space& space, std::int32_t edge, const Config& producer, const Config& consumer,
                     const MachineLinks& machine) {
  const Edge& of = space.edges[at(edge)];
  const bool backward = space.operators[at(of.producer)].backward && space.operators[at(of.consumer)].backward;
  // Edges of one consumer, and of one producer, follow each other.
  const auto place = [edge](const std::vector<std::int32_t>& edges) {
    return static_cast<std::int32_t>(std::lower_bound(edges.begin(), edges.end(), edge) - edges.begin());
  };
  const std::int32_t place_in = place(space.in[at(of.consumer)]), place_out = place(space.out[at(of.producer)]);
  EdgeBlock block;
  Overlaps overlaps(of, producer, consumer, machine);
  for (std::int32_t q = 0; q < consumer.parts(); ++q) {
    block.first_of_consumer.push_back(static_cast<std::int32_t>(block.pairs.size()));
    const std::int32_t reader = consumer.devices[at(q)];
    for (const Overlaps::Bytes& bytes : overlaps.of(q)) {
      PartPair pair{bytes.producer, q, kNone, kNone, backward && bytes.back > 0};
      const std::int32_t maker = producer.devices[at(bytes.producer)];
      const auto number = static_cast<std::int32_t>(block.pairs.size());
      const auto message = [&](double ms, std::int32_t link, TaskOrder order) {
        block.tasks.push_back({ms, link, order});
        block.pair_of.push_back(number);
        return static_cast<std::int32_t>(block.tasks.size()) - 1;
      };
      if (maker != reader) {
        pair.message = message(machine.send_ms(maker, reader, bytes.forward), machine.link(maker, reader),
                               order_of(Stage::kForward, of.consumer, Step::kBefore, place_in, pair.producer, q));
        if (pair.has_back) {
          pair.back = message(
              machine.send_ms(reader, maker, bytes.back), machine.link(reader, maker),
              order_of(Stage::kBackward, space.size() - 1 - of.producer, Step::kBefore, place_out, pair.producer, q));
        }
      }
      block.pairs.push_back(pair);
    }
  }
  block.first_of_consumer.push_back(static_cast<std::int32_t>(block.pairs.size()));
  block.first_of_producer.assign(at(producer.parts()) + 1, 0);
  for (const PartPair& pair : block.pairs) ++block.first_of_producer[at(pair.producer) + 1];
  for (std::size_t p = 0; p < at(producer.parts()); ++p) block.first_of_producer[p + 1] += block.first_of_producer[p];
  block.of_producer.assign(block.pairs.size(), 0);
  std::vector<std::int32_t> next(block.first_of_producer.begin(), block.first_of_producer.end() - 1);
  for (std::size_t i = 0; i < block.pairs.size(); ++i) {
    block.of_producer[at(next[at(block.pairs[i].producer)]++)] = static_cast<std::int32_t>(i);
  }
  return block;
}

double bytes_moved(const Space& space, const Strategy& strategy, const MachineLinks& machine) {
  double bytes = 0;
  for (const Edge& edge : space.edges) {
    const Config& producer = strategy[at(edge.producer)];
    const Config& consumer = strategy[at(edge.consumer)];
    const bool backward = space.operators[at(edge.producer)].backward && space.operators[at(edge.consumer)].backward;
    Overlaps overlaps(edge, producer, consumer, machine);
    for (std::int32_t q = 0; q < consumer.parts(); ++q) {
      for (const Overlaps::Bytes& found : overlaps.of(q)) {
        if (producer.devices[at(found.producer)] != consumer.devices[at(q)])
          bytes += found.forward + (backward ? found.back : 0);
      }
    }
  }
  for (OperatorId i = 0; i < space.size(); ++i) {
    const Operator& op = space.operators[at(i)];
    const Config& config = strategy[at(i)];
    if (!op.backward) continue;
    for (const Weights& weights : op.weights) {
      std::int32_t ways = 1;
      for (const std::int32_t dim : weights.dims) ways *= config.degrees[at(dim)];
      // A ring of n devices moves 2 (n-1) times the bytes; parts of one device have added theirs up before.
      std::vector<std::vector<std::int32_t>> holders(at(ways));
      for (std::int32_t part = 0; part < config.parts(); ++part) {
        const std::vector<std::int32_t> indices = indices_of(config, part);
        std::int32_t group = 0;
        for (const std::int32_t dim : weights.dims) group = group * config.degrees[at(dim)] + indices[at(dim)];
        holders[at(group)].push_back(config.devices[at(part)]);
      }
      for (std::vector<std::int32_t>& devices : holders) {
        std::sort(devices.begin(), devices.end());
        const auto n = std::unique(devices.begin(), devices.end()) - devices.begin();
        bytes += 2.0 * static_cast<double>(n - 1) * weights.gradient_bytes / ways;
      }
    }
  }
  return bytes;
}

}  // namespace automap::soap
