#include "common/sharding/propagation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "common/hlo/hlo_reader.h"
#include "common/hlo/hlo_text.h"
#include "tests/common/sharding/emulator.h"
#include "tests/common/sharding/linkage_twin.h"

namespace automap::sharding {
namespace {

using emulator::Dims;
using graph::FlowGraph;
using graph::Graph;
using graph::InstructionId;

template <typename T>
const T& pick(Rng* rng, const std::vector<T>& from) {
  return from[static_cast<std::size_t>(rng->below(from.size()))];
}

std::string shape_text(const Dims& dims) {
  std::string out = "f32[";
  for (const std::int64_t dim : dims) out += (out.back() == '[' ? "" : ",") + std::to_string(dim);
  return out + "]";
}

// ---- small random modules ----

// Operators that nobody knows, with rules drawn at random.
struct RandomModule {
  std::string text;
  std::map<std::string, OpRule> rules;  // by instruction name
};

OpRule random_rule(Rng* rng, const std::vector<Dims>& slots, std::size_t num_operands) {
  OpRule rule;
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    const std::size_t factors_before = rule.factors.size();
    std::vector<bool> taken(rule.factors.size(), false);
    for (std::size_t dim = 0; dim < slots[slot].size(); ++dim) {
      const std::int64_t extent = slots[slot][dim];
      if (extent == 1) continue;
      const SlotDim at{static_cast<std::int32_t>(slot), static_cast<std::int32_t>(dim)};
      if (rng->below(14) == 0) {
        rule.blocked.push_back({at, Block::kHalo});
        continue;
      }
      // A factor of the slots before, or a new one.
      const std::size_t choice = static_cast<std::size_t>(rng->below(factors_before + 1));
      if (choice < factors_before && !taken[choice]) {
        taken[choice] = true;
        rule.factors[choice].dims.push_back(at);
      } else {
        Factor factor;
        factor.dims.push_back(at);
        factor.extent = rng->below(20) == 0 ? 4 : 8;
        rule.factors.push_back(factor);
      }
    }
  }
  for (Factor& factor : rule.factors) {
    std::vector<bool> has(slots.size(), false);
    for (const SlotDim at : factor.dims) has[static_cast<std::size_t>(at.slot)] = true;
    for (std::size_t slot = num_operands; slot < slots.size(); ++slot) {
      if (has[slot] || rng->below(2) == 0) continue;
      factor.reduction = Reduction::kAdd;
      factor.partial.push_back(static_cast<std::int32_t>(slot));
    }
  }
  return rule;
}

RandomModule random_module(Rng* rng) {
  RandomModule out;
  struct Value {
    std::string name;
    Dims dims;
  };
  std::vector<Value> values;
  const auto draw_dims = [&] {
    Dims dims;
    const std::uint64_t rank = rng->below(10) == 0 ? rng->below(4) : 1 + rng->below(2);
    for (std::uint64_t i = 0; i < rank; ++i) dims.push_back(pick<std::int64_t>(rng, {8, 8, 16, 16, 24, 12, 1}));
    return dims;
  };
  std::string body, computations;
  const int inputs = 1 + static_cast<int>(rng->below(3));
  for (int i = 0; i < inputs; ++i) {
    values.push_back({"p" + std::to_string(i), draw_dims()});
    body +=
        "  " + values.back().name + " = " + shape_text(values.back().dims) + " parameter(" + std::to_string(i) + ")\n";
  }
  if (rng->below(2) == 0) {
    values.push_back({"free", draw_dims()});
    if (values.back().dims.empty()) values.back().dims = {2};  // no scalar is an iota
    body += "  free = " + shape_text(values.back().dims) + " iota(), iota_dimension=0\n";
  }
  const int operators = 1 + static_cast<int>(rng->below(4));
  for (int i = 0; i < operators; ++i) {
    const std::string name = "o" + std::to_string(i);
    std::vector<Dims> slots;
    std::string operands;
    const std::size_t num_operands = static_cast<std::size_t>(1 + rng->below(2));
    for (std::size_t k = 0; k < num_operands; ++k) {
      const Value& value = rng->below(2) == 0 ? values.back() : pick(rng, values);
      operands += (k == 0 ? "" : ", ") + value.name;
      slots.push_back(value.dims);
    }
    const bool two_results = rng->below(4) == 0;
    const Dims first = draw_dims(), second = draw_dims();
    slots.push_back(first);
    if (two_results) {
      slots.push_back(second);
      body += "  " + name + " = (" + shape_text(first) + ", " + shape_text(second) + ") mystery(" + operands + ")\n";
      for (int leaf = 0; leaf < 2; ++leaf) {
        const Value value{name + "." + std::to_string(leaf), leaf == 0 ? first : second};
        body += "  " + value.name + " = " + shape_text(value.dims) + " get-tuple-element(" + name +
                "), index=" + std::to_string(leaf) + "\n";
        values.push_back(value);
      }
    } else {
      values.push_back({name, first});
      body += "  " + name + " = " + shape_text(first) + " mystery(" + operands + ")\n";
    }
    out.rules[name] = random_rule(rng, slots, num_operands);
  }
  const auto in_shape = [](const Value& value) { return shape_text(value.dims) + " "; };
  if (rng->below(4) == 0) {
    // A loop over two values, one of which may be handed on as it came.
    const Value a = pick(rng, values), b = pick(rng, values);
    const std::string state = "(" + shape_text(a.dims) + ", " + shape_text(b.dims) + ")";
    computations += "cond { s = " + state + " parameter(0)  ROOT c = pred[] constant(true) }\nbody {\n  s = " + state +
                    " parameter(0)\n  a = " + in_shape(a) + "get-tuple-element(s), index=0\n  b = " + in_shape(b) +
                    "get-tuple-element(s), index=1\n  turn = " + in_shape(a) +
                    "mystery(a, b)\n  other = " + in_shape(b) + "mystery(b)\n  ROOT t = " + state + " tuple(turn, " +
                    (rng->below(2) == 0 ? "b" : "other") + ")\n}\n";
    out.rules["turn"] = random_rule(rng, {a.dims, b.dims, a.dims}, 2);
    out.rules["other"] = random_rule(rng, {b.dims, b.dims}, 1);
    body += "  initial = " + state + " tuple(" + a.name + ", " + b.name + ")\n  loop = " + state +
            " while(initial), condition=cond, body=body\n  after = " + in_shape(a) +
            "get-tuple-element(loop), index=0\n  last = " + in_shape(a) + "mystery(after)\n";
    out.rules["last"] = random_rule(rng, {a.dims, a.dims}, 1);
  } else if (rng->below(4) == 0) {
    // Two branches; one computation called by both.
    const Value a = pick(rng, values);
    computations += "called { x = " + in_shape(a) + "parameter(0)  ROOT inner = " + in_shape(a) +
                    "mystery(x) }\nyes { y = " + in_shape(a) + "parameter(0)  ROOT c1 = " + in_shape(a) +
                    "call(y), to_apply=called }\nno { z = " + in_shape(a) + "parameter(0)  n = " + in_shape(a) +
                    "mystery(z)  ROOT c2 = " + in_shape(a) + "call(n), to_apply=called }\n";
    out.rules["inner"] = random_rule(rng, {a.dims, a.dims}, 1);
    out.rules["n"] = random_rule(rng, {a.dims, a.dims}, 1);
    body += "  flag = pred[] parameter(" + std::to_string(inputs) + ")\n  joined = " + in_shape(a) +
            "conditional(flag, " + a.name + ", " + a.name +
            "), true_computation=yes, false_computation=no\n  held = " + in_shape(a) + "opt-barrier(joined)\n";
  }
  out.text = "HloModule m\n" + computations + "ENTRY e {\n" + body + "}\n";
  return out;
}

// Real operators on small shapes.
std::string random_hlo(Rng* rng) {
  struct Value {
    std::string name;
    Dims dims;
  };
  std::vector<Value> values;
  std::string body;
  const auto shape_of_new = [&](std::size_t rank) {
    Dims dims;
    for (std::size_t i = 0; i < rank; ++i) dims.push_back(pick<std::int64_t>(rng, {8, 8, 16, 64}));
    return dims;
  };
  // `dims` by value: they may be those of one of `values`.
  const auto add = [&](Dims dims, const std::string& what) {
    values.push_back({"v" + std::to_string(values.size()), dims});
    body += "  " + values.back().name + " = " + shape_text(dims) + " " + what + "\n";
  };
  int parameters = 0;
  const auto parameter = [&](const Dims& dims) {
    add(dims, "parameter(" + std::to_string(parameters) + ")");
    ++parameters;
  };
  parameter(shape_of_new(2));
  if (rng->below(2) == 0) add(values[0].dims, "iota(), iota_dimension=0");
  const int operators = 2 + static_cast<int>(rng->below(4));
  for (int i = 0; i < operators; ++i) {
    const Value x = rng->below(2) == 0 ? values.back() : pick(rng, values);
    const std::size_t rank = x.dims.size();
    const auto dim = static_cast<std::size_t>(rank == 0 ? 0 : rng->below(rank));
    switch (rng->below(6)) {
      case 0: {
        std::vector<Value> same;
        for (const Value& value : values) {
          if (value.dims == x.dims) same.push_back(value);
        }
        add(x.dims, "add(" + x.name + ", " + pick(rng, same).name + ")");
        break;
      }
      case 1: {
        if (rank != 2) break;
        std::vector<Value> fits;
        for (const Value& value : values) {
          if (value.dims.size() == 2 && (value.dims[0] == x.dims[dim] || value.dims[1] == x.dims[dim]))
            fits.push_back(value);
        }
        if (parameters < 4 && rng->below(2) == 0) {
          parameter({x.dims[dim], pick<std::int64_t>(rng, {8, 16})});
          fits = {values.back()};
        }
        const Value y = pick(rng, fits);
        const std::size_t other = y.dims[0] == x.dims[dim] ? 0 : 1;
        add({x.dims[1 - dim], y.dims[1 - other]}, "dot(" + x.name + ", " + y.name + "), lhs_contracting_dims={" +
                                                      std::to_string(dim) + "}, rhs_contracting_dims={" +
                                                      std::to_string(other) + "}");
        break;
      }
      case 2: {
        if (rank != 2) break;
        add({x.dims[1], x.dims[0]}, "transpose(" + x.name + "), dimensions={1,0}");
        break;
      }
      case 3: {
        if (rank > 1) break;
        const bool front = rng->below(2) == 0;
        Dims dims = x.dims;
        dims.insert(front ? dims.begin() : dims.end(), 8);
        add(dims, "broadcast(" + x.name + "), dimensions={" + (rank == 0 ? "" : front ? "1" : "0") + "}");
        break;
      }
      case 4: {
        if (rank == 0) break;
        Dims dims = x.dims;
        dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(dim));
        add(dims, "reduce(" + x.name + ", zero), dimensions={" + std::to_string(dim) + "}, to_apply=sum");
        break;
      }
      default: {
        if (rank == 0) break;
        if (rank == 2 && rng->below(2) == 0) {
          add({x.dims[0] * x.dims[1]}, "reshape(" + x.name + ")");
        } else if (x.dims[0] > 8) {
          Dims dims = x.dims;
          dims[0] /= 8;
          dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(rng->below(2)), 8);
          if (dims.size() <= 2) add(dims, "reshape(" + x.name + ")");
        }
      }
    }
  }
  return "HloModule m\nsum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }\nENTRY e {\n"
         "  zero = f32[] constant(0)\n" +
         body + "}\n";
}

// ---- against the twin ----

struct Tally {
  int modules = 0, splittable = 0, refused = 0, split = 0, with_neighbours = 0;
};

void compare_with_twin(const std::string& text, const RuleFunction& rules, bool with_extras, Rng* rng, Tally* tally) {
  const Graph graph = hlo::read_hlo_text(text, "random");
  graph::FlowOptions flow_options;
  flow_options.loops = true;
  const FlowGraph flow = FlowGraph::build(graph, flow_options);
  LinkageOptions options;
  options.shards = 8;
  if (with_extras && rng->below(3) == 0) {
    const auto node = [&] { return static_cast<NodeId>(rng->below(static_cast<std::uint64_t>(flow.size()))); };
    for (std::uint64_t i = rng->below(3); i > 0; --i) options.ties.emplace_back(node(), node());
    for (std::uint64_t i = rng->below(4); i > 0; --i) {
      const NodeId op = node();
      NodeId tensor = op;
      if (flow.operands(op).size() > 0 && rng->below(3) > 0)
        tensor = flow.operands(op)[static_cast<std::size_t>(rng->below(flow.operands(op).size()))];
      options.gathers.push_back({op, tensor, static_cast<std::int32_t>(rng->below(2))});
    }
  }
  const Linkage linkage = Linkage::build(flow, options, rules);
  const LinkageTwin twin(linkage, options, rules);
  ++tally->modules;
  ASSERT_TRUE(twin.minimal_is_unique()) << text;

  std::vector<TensorDim> all;
  for (NodeId node = 0; node < flow.size(); ++node) {
    for (std::size_t dim = 0; dim < linkage.groups_of(node).size(); ++dim)
      all.push_back({node, static_cast<std::int32_t>(dim)});
  }
  if (all.empty()) return;
  const auto is = [](const Assignment& assignment, TensorDim at) {
    return assignment[static_cast<std::size_t>(at.node)] == at.dim;
  };
  for (int round = 0; round < 4; ++round) {
    Propagation propagation(linkage);
    std::vector<const Assignment*> left;
    for (const Assignment& assignment : twin.assignments()) left.push_back(&assignment);
    for (int step = 0; step < 6; ++step) {
      // Every tensor is as the assignments that are left say.
      bool undecided = false;
      for (NodeId node = 0; node < flow.size(); ++node) {
        ASSERT_EQ(propagation.state(node), state_in(twin, left, node)) << text << "node " << node;
        undecided = undecided || propagation.state(node).kind == TensorStateKind::kUndecided;
      }
      ASSERT_EQ(propagation.complete(), !undecided) << text;
      const std::size_t mark = propagation.mark();
      const TensorDim at = pick(rng, all);
      const bool split = rng->below(3) > 0;
      const bool possible =
          std::any_of(left.begin(), left.end(), [&](const Assignment* a) { return is(*a, at) == split; });
      const auto conflict = split ? propagation.split(at) : propagation.keep_whole(at);
      ASSERT_EQ(conflict.has_value(), !possible)
          << text << (split ? "split " : "keep ") << at.node << " " << at.dim << " step " << step;
      if (conflict) {
        ++tally->refused;
        ASSERT_EQ(propagation.mark(), mark);
        continue;
      }
      if (split) ++tally->split;
      const std::vector<const Assignment*> before = left;
      left.erase(std::remove_if(left.begin(), left.end(), [&](const Assignment* a) { return is(*a, at) != split; }),
                 left.end());
      if (rng->below(4) == 0) {
        propagation.undo(mark);
        left = before;
      }
    }
  }
  bool splittable = false, neighbours = false;
  for (GroupId group = 0; group < linkage.num_groups(); ++group) {
    splittable = splittable || linkage.decidable(group);
    neighbours = neighbours || !linkage.neighbours(group).empty();
  }
  if (splittable) ++tally->splittable;
  if (neighbours) ++tally->with_neighbours;
}

TEST(Propagation, IsAsEveryAssignmentOfRandomOperatorsSays) {
  Tally tally;
  for (std::uint64_t item = 0; item < 3000; ++item) {
    Rng rng(1, 0, item);
    const RandomModule module = random_module(&rng);
    const RuleFunction rules = [&](const Graph& graph, InstructionId id) {
      const auto found = module.rules.find(std::string(graph.instruction(id).name));
      return found == module.rules.end() ? OpRule{} : found->second;
    };
    compare_with_twin(module.text, rules, true, &rng, &tally);
    if (HasFatalFailure()) FAIL() << "module " << item;
  }
  // The test is about something.
  EXPECT_GT(tally.splittable, 1500);
  EXPECT_GT(tally.with_neighbours, 800);
  EXPECT_GT(tally.split, 4000);
  EXPECT_GT(tally.refused, 4000);
}

TEST(Propagation, IsAsEveryAssignmentOfRandomHloSays) {
  Tally tally;
  for (std::uint64_t item = 0; item < 2000; ++item) {
    Rng rng(2, 0, item);
    const std::string text = random_hlo(&rng);
    compare_with_twin(text, rule_of, true, &rng, &tally);
    if (HasFatalFailure()) FAIL() << "module " << item;
  }
  EXPECT_GT(tally.splittable, 1200);
  EXPECT_GT(tally.with_neighbours, 800);
  EXPECT_GT(tally.split, 3000);
  EXPECT_GT(tally.refused, 3000);
}

// ---- real modules ----

struct Loaded {
  hlo::HloModule module;
  FlowGraph flow;
  std::unique_ptr<Linkage> linkage;
};

std::unique_ptr<Loaded> load_fixture(const std::string& name) {
  hlo::HloModule module = hlo::load_hlo(std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/" + name + ".hlo.gz");
  auto out = std::make_unique<Loaded>();
  out->module = std::move(module);
  graph::FlowOptions options;
  options.loops = options.fusions = true;
  out->flow = FlowGraph::build(out->module.graph, options);
  out->linkage = std::make_unique<Linkage>(Linkage::build(out->flow, LinkageOptions{}));
  return out;
}

struct Decision {
  bool split = true;
  TensorDim at;
};

std::optional<Conflict> decide(Propagation* propagation, const Decision& decision) {
  return decision.split ? propagation->split(decision.at) : propagation->keep_whole(decision.at);
}

bool same(const Propagation& a, const Propagation& b) {
  const Linkage& linkage = a.linkage();
  for (GroupId group = 0; group < linkage.num_groups(); ++group) {
    if (a.group_state(group) != b.group_state(group)) return false;
  }
  for (NodeId node = 0; node < linkage.flow().size(); ++node) {
    if (!(a.state(node) == b.state(node))) return false;
  }
  return a.complete() == b.complete() && a.undecided() == b.undecided();
}

std::vector<TensorDim> input_dims(const Linkage& linkage) {
  std::vector<TensorDim> out;
  for (const graph::FlowInput& input : linkage.flow().inputs()) {
    for (std::size_t dim = 0; dim < linkage.groups_of(input.node).size(); ++dim)
      out.push_back({input.node, static_cast<std::int32_t>(dim)});
  }
  return out;
}

class PropagationOfModels : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Fixtures, PropagationOfModels,
                         testing::Values("t5_6_6", "gpt2", "moe_small", "transformer_scan", "vgg19", "resnet50",
                                         "bert_large"),
                         [](const testing::TestParamInfo<const char*>& param) { return std::string(param.param); });

TEST_P(PropagationOfModels, DoesNotDependOnTheOrderOfDecisions) {
  const auto loaded = load_fixture(GetParam());
  const Linkage& linkage = *loaded->linkage;
  const std::vector<TensorDim> dims = input_dims(linkage);
  for (std::uint64_t item = 0; item < 10; ++item) {
    Rng rng(3, 0, item);
    Propagation first(linkage);
    std::vector<Decision> made;
    std::size_t splits = 0;
    for (int i = 0; i < 200; ++i) {
      const Decision decision{rng.below(4) > 0, pick(&rng, dims)};
      if (decide(&first, decision)) continue;
      made.push_back(decision);
      if (decision.split) ++splits;
    }
    EXPECT_GT(splits, 0u);
    for (int order = 0; order < 3; ++order) {
      for (std::size_t i = made.size(); i > 1; --i)
        std::swap(made[i - 1], made[static_cast<std::size_t>(rng.below(i))]);
      Propagation again(linkage);
      for (const Decision& decision : made) ASSERT_FALSE(decide(&again, decision).has_value());
      ASSERT_TRUE(same(first, again)) << "seed " << item;
    }
    // A conflict is one in every order, too: what the first refuses, the last does.
    Propagation last(linkage);
    for (const Decision& decision : made) decide(&last, decision);
    for (const TensorDim at : dims) {
      const auto a = first.split(at), b = last.split(at);
      ASSERT_EQ(a.has_value(), b.has_value());
      if (a) {
        ASSERT_EQ(a->kind, b->kind);
        ASSERT_EQ(a->group, b->group);
        ASSERT_EQ(a->other, b->other);
      }
    }
  }
}

TEST_P(PropagationOfModels, UndoIsAsIfItHadNeverHappened) {
  const auto loaded = load_fixture(GetParam());
  const Linkage& linkage = *loaded->linkage;
  const std::vector<TensorDim> dims = input_dims(linkage);
  for (std::uint64_t item = 0; item < 4; ++item) {
    Rng rng(4, 0, item);
    Propagation propagation(linkage);
    struct Step {
      std::size_t mark;
      Decision decision;
    };
    std::vector<Step> steps;
    for (int i = 0; i < 200; ++i) {
      if (rng.below(4) == 0 && !steps.empty()) {
        const auto keep = static_cast<std::size_t>(rng.below(steps.size()));
        propagation.undo(steps[keep].mark);
        steps.resize(keep);
      } else {
        const Decision decision{rng.below(3) > 0, pick(&rng, dims)};
        const std::size_t mark = propagation.mark();
        if (!decide(&propagation, decision)) steps.push_back({mark, decision});
      }
      if (i % 10 != 0) continue;
      Propagation fresh(linkage);
      for (const Step& step : steps) ASSERT_FALSE(decide(&fresh, step.decision).has_value());
      ASSERT_TRUE(same(propagation, fresh)) << "seed " << item << " step " << i;
      ASSERT_EQ(propagation.split_groups(), fresh.split_groups());
    }
    propagation.undo(0);
    ASSERT_TRUE(same(propagation, Propagation(linkage)));
  }
}

TEST_P(PropagationOfModels, KeepingEverythingElseWholeCompletesIt) {
  const auto loaded = load_fixture(GetParam());
  Propagation propagation(*loaded->linkage);
  EXPECT_FALSE(propagation.complete());
  EXPECT_FALSE(propagation.stuck().empty());
  for (const GroupId group : propagation.undecided()) {
    if (propagation.group_state(group) == GroupState::kUndecided) {
      EXPECT_FALSE(propagation.split_group(group).has_value());
    }
  }
  EXPECT_TRUE(propagation.complete());
  EXPECT_TRUE(propagation.stuck().empty());
  EXPECT_TRUE(propagation.undecided().empty());
  for (NodeId node = 0; node < loaded->flow.size(); ++node)
    ASSERT_NE(propagation.state(node).kind, TensorStateKind::kUndecided);
}

// ---- worked cases ----

constexpr const char* kTwoLayers = R"(HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[16,8] parameter(0)
  w = f32[8,32] parameter(1)
  v = f32[32,8] parameter(2)
  h = f32[16,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  r = f32[16,32] tanh(h)
  y = f32[16,8] dot(r, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  zero = f32[] constant(0)
  ROOT loss = f32[] reduce(y, zero), dimensions={0,1}, to_apply=sum
})";
enum TwoLayers : NodeId { kX, kW, kV, kH, kR, kY, kZero, kLoss };

struct PropagationModule {
  explicit PropagationModule(const std::string& text, LinkageOptions options = {})
      : graph(hlo::read_hlo_text(text, "test")),
        flow(FlowGraph::build(graph)),
        linkage(Linkage::build(flow, options)) {}
  Graph graph;
  FlowGraph flow;
  Linkage linkage;
};

TensorState split_along(std::int32_t dim, Reduction partial = Reduction::kNone) {
  return {TensorStateKind::kSplit, dim, partial};
}
TensorState whole(Reduction partial = Reduction::kNone) {
  return {TensorStateKind::kReplicated, kNone, partial};
}

TEST(Propagation, MegatronOnTwoLayers) {
  const PropagationModule m(kTwoLayers);
  Propagation p(m.linkage);
  EXPECT_EQ(p.state(kW).kind, TensorStateKind::kUndecided);
  EXPECT_FALSE(p.split({kW, 1}).has_value());
  EXPECT_EQ(p.state(kX), whole());
  EXPECT_EQ(p.state(kW), split_along(1));
  EXPECT_EQ(p.state(kV), split_along(0));
  EXPECT_EQ(p.state(kR), split_along(1));
  EXPECT_EQ(p.state(kY), whole(Reduction::kAdd));
  EXPECT_EQ(p.state(kLoss), whole());
  EXPECT_TRUE(p.complete());
  // By any member.
  const std::size_t mark = p.mark();
  EXPECT_FALSE(p.split({kV, 0}).has_value());
  EXPECT_EQ(p.mark(), mark);
  const GroupId group = m.linkage.group_of(kW, 1);
  EXPECT_EQ(p.decided_by(group), (TensorDim{kW, 1}));
  EXPECT_EQ(p.split_groups(), std::vector<GroupId>{group});

  p.undo(0);
  EXPECT_EQ(p.decided_by(group).node, kNone);
  EXPECT_FALSE(p.split_group(m.linkage.group_of(kX, 0)).has_value());
  EXPECT_EQ(p.decided_by(m.linkage.group_of(kX, 0)), (TensorDim{kX, 0}));
  EXPECT_EQ(p.state(kY), split_along(0));
  EXPECT_EQ(p.state(kLoss), whole(Reduction::kAdd));
}

TEST(Propagation, ConflictsSayWhatTheyCollideWith) {
  const PropagationModule m(kTwoLayers);
  Propagation p(m.linkage);
  ASSERT_FALSE(p.split({kX, 0}).has_value());
  auto conflict = p.split({kV, 0});
  ASSERT_TRUE(conflict.has_value());
  EXPECT_EQ(conflict->kind, Conflict::Kind::kExcluded);
  EXPECT_EQ(conflict->wanted, (TensorDim{kV, 0}));
  EXPECT_EQ(conflict->group, m.linkage.group_of(kV, 0));
  EXPECT_EQ(conflict->other, m.linkage.group_of(kX, 0));
  EXPECT_EQ(conflict->earlier, (TensorDim{kX, 0}));

  conflict = p.keep_whole(TensorDim{kY, 0});
  ASSERT_TRUE(conflict.has_value());
  EXPECT_EQ(conflict->kind, Conflict::Kind::kSplit);
  EXPECT_EQ(conflict->earlier, (TensorDim{kX, 0}));
  const std::size_t mark = p.mark();
  ASSERT_TRUE(p.keep_whole(kY).has_value());  // its other dimension is not kept either
  EXPECT_EQ(p.mark(), mark);

  // Kept whole although excluded already: it stays so when what excludes it is taken back.
  p.undo(0);
  ASSERT_FALSE(p.keep_whole(kW).has_value());
  EXPECT_EQ(p.group_state(m.linkage.group_of(kW, 1)), GroupState::kWhole);
  conflict = p.split({kV, 0});
  ASSERT_TRUE(conflict.has_value());
  EXPECT_EQ(conflict->kind, Conflict::Kind::kWhole);
  EXPECT_EQ(conflict->earlier, (TensorDim{kW, 1}));

  // No dimension, no node, a scalar.
  for (const TensorDim at : {TensorDim{kX, 2}, TensorDim{kX, -1}, TensorDim{-1, 0}, TensorDim{1000, 0}}) {
    ASSERT_TRUE(p.split(at).has_value());
    EXPECT_EQ(p.split(at)->kind, Conflict::Kind::kNoGroup);
    ASSERT_TRUE(p.keep_whole(at).has_value());
  }
  EXPECT_EQ(p.split({kLoss, 0})->kind, Conflict::Kind::kNoGroup);
  EXPECT_FALSE(p.keep_whole(kLoss).has_value());
  EXPECT_TRUE(p.keep_whole(NodeId{1000}).has_value());
  EXPECT_TRUE(p.split_group(1000).has_value());
}

TEST(Propagation, KeptWholeIsRememberedBehindAnExclusion) {
  const PropagationModule m(kTwoLayers);
  Propagation p(m.linkage);
  const GroupId hidden = m.linkage.group_of(kW, 1);
  ASSERT_FALSE(p.split({kX, 0}).has_value());
  EXPECT_EQ(p.group_state(hidden), GroupState::kExcluded);
  ASSERT_FALSE(p.keep_whole(TensorDim{kW, 1}).has_value());
  EXPECT_EQ(p.group_state(hidden), GroupState::kWhole);
  p.undo(1);
  EXPECT_EQ(p.group_state(hidden), GroupState::kExcluded);
  p.undo(0);
  EXPECT_EQ(p.group_state(hidden), GroupState::kUndecided);
}

TEST(Propagation, ModulesWithNothingToDecideAreComplete) {
  for (const char* text :
       {"HloModule m\nENTRY e { ROOT p = f32[] parameter(0) }\n", "HloModule m\nENTRY e { ROOT t = () tuple() }\n",
        "HloModule m\nENTRY e { ROOT p = f32[1,1] parameter(0) }\n",
        "HloModule m\nENTRY e { ROOT i = f32[8] iota(), iota_dimension=0 }\n",
        "HloModule m\nENTRY e { ROOT p = f32[7] parameter(0) }\n"}) {
    const PropagationModule m(text);
    Propagation p(m.linkage);
    EXPECT_TRUE(p.complete()) << text;
    EXPECT_TRUE(p.undecided().empty());
    EXPECT_TRUE(p.stuck().empty());
    for (NodeId node = 0; node < m.flow.size(); ++node) EXPECT_EQ(p.state(node), whole());
  }
}

}  // namespace
}  // namespace automap::sharding
