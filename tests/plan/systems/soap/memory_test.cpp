// Compares the memory of strategies with a count of every element.
#include "plan/systems/soap/memory.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "common/hlo/hlo_reader.h"
#include "plan/systems/soap/full_simulation.h"
#include "plan/systems/soap/operators.h"
#include "plan/systems/soap/proposals.h"
#include "plan/systems/soap/search.h"
#include "tests/plan/systems/soap/random_space.h"
#include "tests/sanitized.h"

namespace automap::soap {
namespace {

Space with_memory(Rng* rng, int operators) {
  Space space = random_space(rng, operators);
  for (Operator& op : space.operators) {
    op.kept_bytes = static_cast<double>(rng->below(5)) * 240;
    for (Weights& weights : op.weights) weights.slot_bytes = 2 * weights.weight_bytes;
  }
  for (Edge& edge : space.edges) {
    for (EdgeTensor& tensor : edge.tensors) tensor.kept = rng->below(3) != 0;
  }
  return space;
}

// True if the element of a dimension is in the slab of part `index` of `degree`.
bool holds(std::int64_t element, std::int64_t extent, std::int64_t degree, std::int64_t index, std::int64_t left,
           std::int64_t right) {
  const std::int64_t slab = extent / degree;
  if (degree == 1) return true;
  return element >= index * slab - left && element < (index + 1) * slab + right;
}

std::vector<std::int64_t> places(const Config& config, std::int32_t part) {
  std::vector<std::int64_t> out;
  std::int64_t stride = config.parts();
  for (const std::int32_t degree : config.degrees) {
    stride /= degree;
    out.push_back(part / stride % degree);
  }
  return out;
}

// Elements of a tensor that the part reads and its device did not make, one by one.
double sent_elements(const EdgeTensor& tensor, const Config& producer, const Config& consumer, std::int32_t q) {
  std::int64_t all = 1;
  for (const EdgeDim& dim : tensor.dims) all *= dim.extent;
  const std::vector<std::int64_t> reader = places(consumer, q);
  double sent = 0;
  for (std::int64_t e = 0; e < all; ++e) {
    std::vector<std::int64_t> at;
    std::int64_t rest = e;
    for (const EdgeDim& dim : tensor.dims) {
      at.push_back(rest % dim.extent);
      rest /= dim.extent;
    }
    bool read = true;
    for (std::size_t d = 0; d < at.size(); ++d) {
      const EdgeDim& dim = tensor.dims[d];
      if (dim.consumer == kNone) continue;
      const auto k = static_cast<std::size_t>(dim.consumer);
      read = read && holds(at[d], dim.extent, consumer.degrees[k], reader[k], dim.left, dim.right);
    }
    if (!read) continue;
    bool here = false;
    for (std::int32_t p = 0; p < producer.parts() && !here; ++p) {
      if (producer.devices[static_cast<std::size_t>(p)] != consumer.devices[static_cast<std::size_t>(q)]) continue;
      const std::vector<std::int64_t> maker = places(producer, p);
      bool makes = true;
      for (std::size_t d = 0; d < at.size(); ++d) {
        const EdgeDim& dim = tensor.dims[d];
        if (dim.producer == kNone) continue;
        const auto k = static_cast<std::size_t>(dim.producer);
        makes = makes && holds(at[d], dim.extent, producer.degrees[k], maker[k], 0, 0);
      }
      here = makes;
    }
    sent += !here;
  }
  return sent;
}

std::vector<double> by_hand(const Space& space, const Strategy& strategy, int devices) {
  std::vector<double> out(static_cast<std::size_t>(devices), 0);
  for (std::size_t i = 0; i < strategy.size(); ++i) {
    const Operator& op = space.operators[i];
    const Config& config = strategy[i];
    std::set<std::tuple<std::int32_t, std::size_t, std::vector<std::int64_t>>> held;
    for (std::int32_t p = 0; p < config.parts(); ++p) {
      const std::int32_t device = config.devices[static_cast<std::size_t>(p)];
      double& bytes = out[static_cast<std::size_t>(device)];
      bytes += op.kept_bytes / config.parts();
      for (std::size_t w = 0; w < op.weights.size(); ++w) {
        std::vector<std::int64_t> slab;
        double share = 1;
        for (const std::int32_t dim : op.weights[w].dims) {
          slab.push_back(places(config, p)[static_cast<std::size_t>(dim)]);
          share /= config.degrees[static_cast<std::size_t>(dim)];
        }
        if (!held.emplace(device, w, slab).second) continue;
        bytes += share * (op.weights[w].weight_bytes + op.weights[w].gradient_bytes + op.weights[w].slot_bytes);
      }
    }
  }
  for (const Edge& edge : space.edges) {
    const Config &producer = strategy[static_cast<std::size_t>(edge.producer)],
                 &consumer = strategy[static_cast<std::size_t>(edge.consumer)];
    for (const EdgeTensor& tensor : edge.tensors) {
      if (!tensor.kept) continue;
      for (std::int32_t q = 0; q < consumer.parts(); ++q) {
        out[static_cast<std::size_t>(consumer.devices[static_cast<std::size_t>(q)])] +=
            tensor.element_bytes * sent_elements(tensor, producer, consumer, q);
      }
    }
  }
  return out;
}

TEST(Memory, IsWhatAnElementByElementCountSays) {
  const MachineLinks machine(test_cluster(2));
  for (std::uint64_t seed = 0; seed < 300u / kShare; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Rng rng(seed, 1, 2);
    const Space space = with_memory(&rng, 1 + static_cast<int>(rng.below(5)));
    const Strategy strategy = random_strategy(&rng, space, 4);
    const std::vector<DeviceMemory> memory = memory_of(space, strategy, machine);
    const std::vector<double> slow = by_hand(space, strategy, 4);
    for (std::size_t d = 0; d < 4; ++d) EXPECT_NEAR(memory[d].bytes(), slow[d], 1e-9 * (1 + slow[d])) << d;
  }
}

TEST(Memory, IsKeptWhileOperatorsChange) {
  const MachineLinks machine(test_cluster(2));
  Rng rng(3, 1, 2);
  Space space = with_memory(&rng, 8);
  for (Operator& op : space.operators) op.kept_bytes *= 1e8;
  Strategy strategy = random_strategy(&rng, space, 4);
  MemoryTally tally(space, machine, strategy);
  for (int i = 0; i < 200; ++i) {
    const auto op = static_cast<OperatorId>(rng.below(8));
    const Config config = random_config(&rng, space.operators[static_cast<std::size_t>(op)], 4);
    tally.change(op, config);
    strategy[static_cast<std::size_t>(op)] = config;
    double missing = 0;
    const std::vector<DeviceMemory> memory = memory_of(space, strategy, machine);
    for (std::int32_t d = 0; d < 4; ++d)
      missing += std::max(0.0, memory[static_cast<std::size_t>(d)].bytes() - machine.memory_bytes(d));
    EXPECT_NEAR(tally.missing_bytes(), missing, 1e-6 * (1 + missing));
  }
}

// The case of the header.
TEST(Memory, OfTwoParts) {
  Space space;
  space.operators.resize(1);
  Operator& op = space.operators[0];
  op.dims = {{DimKind::kSample, 2}};
  op.kept_bytes = 4;
  op.weights.resize(1);
  op.weights[0].weight_bytes = op.weights[0].gradient_bytes = 8;
  op.weights[0].slot_bytes = 16;
  space.link();
  const MachineLinks machine(test_cluster(1));
  const std::vector<DeviceMemory> memory = memory_of(space, {{{2}, {0, 1}}}, machine);
  ASSERT_EQ(memory.size(), 2u);
  for (const DeviceMemory& device : memory) EXPECT_EQ(device.bytes(), 8 + 8 + 16 + 2);
  const Fullest fullest = fullest_of(memory, machine);
  EXPECT_TRUE(fullest.fits());
  EXPECT_EQ(fullest.capacity_bytes, 16.0 * (1 << 30));
}

// Weights that two devices cannot both hold: the search that shall fit splits them, the other one copies them.
TEST(Memory, ASearchThatShallFitFits) {
  Space space;
  space.operators.resize(1);
  Operator& op = space.operators[0];
  op.dims = {{DimKind::kSample, 2}, {DimKind::kParameter, 2}};
  op.forward_ms = 10;
  op.backward_ms = 20;
  op.backward = true;
  op.weights.resize(1);
  op.weights[0].dims = {1};
  op.weights[0].weight_bytes = 20.0 * (1 << 30);
  space.link();
  const MachineLinks machine(test_cluster(1));
  const Proposals proposals(space, 2, Placement::kRange);
  SearchOptions options;
  for (const bool fit : {false, true}) {
    options.fit = fit;
    Work work(WorkLimits::of_units(2000000));
    const SearchResult found = search(space, machine, proposals, {{"data", data_parallel(space, 2)}}, options, work);
    EXPECT_EQ(fullest_of(memory_of(space, found.strategy, machine), machine).fits(), fit);
    EXPECT_EQ(found.step_ms, simulated_step_ms(space, found.strategy, machine));
  }
}

TEST(Memory, OfAModelIsItsProfiles) {
  const hlo::HloModule module = hlo::load_hlo(std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/t5_6_6.hlo.gz");
  const ModelSpace model =
      operators_of(module.graph, graph::analyze_training_step(module.graph), *machine::find_device("v100-16gb"));
  double weights = 0, slots = 0, kept = 0;
  for (const Operator& op : model.space.operators) {
    for (const Weights& w : op.weights) {
      weights += w.weight_bytes;
      slots += w.slot_bytes;
    }
    kept += op.kept_bytes;
  }
  EXPECT_GT(weights, 0);
  EXPECT_NEAR(slots, 2 * weights, 1e-6 * weights);  // Adam
  EXPECT_GT(kept, 0);
  EXPECT_EQ(model.instructions.size(), model.space.operators.size());
}

// On a mesh every operator has as many parts as divide the devices, and lies on all of them evenly.
TEST(Mesh, ProposalsAndStartsAreOnIt) {
  for (const int devices : {1, 4, 6, 8}) {
    Rng rng(7, 1, 2);
    const Space space = random_space(&rng, 12);
    const Proposals proposals(space, devices, Placement::kMesh);
    const Strategy near = proposals.nearest(data_parallel(space, devices));
    for (OperatorId op = 0; op < space.size(); ++op) {
      std::int32_t most = 1;
      for (const auto& degrees : degree_vectors(space.operators[static_cast<std::size_t>(op)], devices)) {
        std::int32_t parts = 1;
        for (const std::int32_t degree : degrees) parts *= degree;
        if (devices % parts == 0) most = std::max(most, parts);
      }
      const auto expect_on_mesh = [&](const Config& config) {
        EXPECT_EQ(config.parts(), most);
        for (std::int32_t p = 0; p < most; ++p)
          EXPECT_EQ(config.devices[static_cast<std::size_t>(p)], p * (devices / most));
      };
      for (std::int64_t k = 0; k < proposals.count(op); ++k) expect_on_mesh(proposals.config(op, k));
      expect_on_mesh(proposals.draw(op, &rng));
      expect_on_mesh(near[static_cast<std::size_t>(op)]);
    }
    EXPECT_EQ(proposals.nearest(near), near);
  }
}

}  // namespace
}  // namespace automap::soap
