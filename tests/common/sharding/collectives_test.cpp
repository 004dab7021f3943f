#include "common/sharding/collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "common/graph/hlo_attributes.h"
#include "common/hlo/hlo_reader.h"
#include "common/hlo/hlo_text.h"
#include "common/sharding/explain.h"
#include "tests/common/sharding/decided_module.h"

namespace automap::sharding {
namespace {

using graph::FlowGraph;
using graph::Graph;
using graph::Opcode;

const std::string kHead = R"(HloModule m
add_f32 {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
max_f32 {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] maximum(a, b)
}
)";

struct CollectivesModule : DecidedModule {
  using DecidedModule::DecidedModule;
  std::string name(NodeId id) const { return std::string(graph.instruction(model.flow().node(id).instruction).name); }
  void split(const std::string& input, int dim) {
    const auto conflict = decided.split({node(input), dim});
    EXPECT_FALSE(conflict) << explain(model, decided, *conflict).summary;
  }
  // "max:b{src1,src2} ..." in node order.
  std::string found(Placement placement) const {
    std::string out;
    for (const Collective& c : find_collectives(model, decided, placement)) {
      out += (out.empty() ? "" : " ");
      out += c.reduces() ? to_string(c.reduction) : "gather";
      out += ":" + name(c.node) + "{";
      for (std::size_t i = 0; i < c.sources.size(); ++i) out += (i == 0 ? "" : ",") + name(c.sources[i]);
      out += "}";
    }
    return out;
  }
};

CollectivesModule entry_module(const std::string& entry, int shards = 2) {
  return CollectivesModule(hlo::read_hlo_text(kHead + "ENTRY e {\n" + entry + "}\n", "test"), shards);
}

// x [8,8] split along dimension 1 makes p and q partial sums.
const std::string kTwoDots = R"(
  x = f32[8,8] parameter(0)
  w = f32[8,8] parameter(1)
  v = f32[8,8] parameter(2)
  c = f32[8,8] parameter(3)
  p = f32[8,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  q = f32[8,8] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
)";

std::string delayed(const std::string& body) {
  CollectivesModule m = entry_module(kTwoDots + body);
  m.split("x", 1);
  return m.found(Placement::kDelayed);
}

TEST(Collectives, AtOnceIsOnePerPartialSum) {
  CollectivesModule m = entry_module(kTwoDots + "s = f32[8,8] add(p, q)\n ROOT r = f32[8,8] tanh(s)\n");
  m.split("x", 1);
  EXPECT_EQ(m.found(Placement::kAtOnce), "add:p{p} add:q{q}");
  EXPECT_EQ(m.found(Placement::kDelayed), "add:s{p,q}");
  const std::vector<Collective> at_once = find_collectives(m.model, m.decided, Placement::kAtOnce);
  const CollectiveTotals totals = total(at_once, CollectiveKind::kAllReduce);
  EXPECT_EQ(totals.count, 2);
  EXPECT_EQ(totals.executed, 2);
  EXPECT_EQ(totals.bytes, 2 * 256);
  EXPECT_EQ(total(at_once, CollectiveKind::kAllGather).count, 0);
}

TEST(Collectives, NothingIsSplitNothingMoves) {
  CollectivesModule m = entry_module(kTwoDots + "ROOT s = f32[8,8] add(p, q)\n");
  EXPECT_EQ(m.found(Placement::kAtOnce), "");
  EXPECT_EQ(m.found(Placement::kDelayed), "");
}

TEST(Collectives, OneShardNeedsNone) {
  CollectivesModule m = entry_module(kTwoDots + "ROOT s = f32[8,8] add(p, q)\n", 1);
  m.split("x", 1);
  EXPECT_EQ(m.found(Placement::kAtOnce), "");
}

TEST(Collectives, LinearInstructions) {
  EXPECT_EQ(delayed("ROOT s = f32[8,8] subtract(p, q)\n"), "add:s{p,q}");
  EXPECT_EQ(delayed("n = f32[8,8] negate(p)\n ROOT s = f32[8,8] add(n, q)\n"), "add:s{p,q}");
  EXPECT_EQ(delayed("n = f32[8,8] multiply(c, p)\n ROOT s = f32[8,8] add(n, q)\n"), "add:s{p,q}");
  EXPECT_EQ(delayed("n = f32[8,8] divide(p, c)\n ROOT s = f32[8,8] add(n, q)\n"), "add:s{p,q}");
  EXPECT_EQ(delayed("n = f32[8,8] transpose(p), dimensions={1,0}\n ROOT s = f32[8,8] add(n, q)\n"), "add:s{p,q}");
  EXPECT_EQ(delayed("n = bf16[8,8] convert(p)\n o = bf16[8,8] convert(q)\n ROOT s = bf16[8,8] add(n, o)\n"),
            "add:s{p,q}");
  EXPECT_EQ(delayed("z = f32[] constant(0)\n n = f32[8] reduce(p, z), dimensions={0}, to_apply=add_f32\n"
                    "ROOT r = f32[8] tanh(n)\n"),
            "add:n{p}");
  EXPECT_EQ(delayed("z = f32[] constant(0)\n n = f32[9,8] pad(p, z), padding=0_1x0_0\n"
                    "o = f32[9,8] pad(q, z), padding=1_0x0_0\n ROOT s = f32[9,8] add(n, o)\n"),
            "add:s{p,q}");
  EXPECT_EQ(delayed("z = f32[] constant(0)\n y = f32[8,8] broadcast(z), dimensions={}\n"
                    "m = pred[8,8] compare(c, y), direction=GT\n n = f32[8,8] select(m, p, y)\n"
                    "ROOT s = f32[8,8] add(n, q)\n"),
            "add:s{p,q}");
}

TEST(Collectives, NotLinear) {
  // A replicated tensor would be added once per device.
  EXPECT_EQ(delayed("n = f32[8,8] add(p, c)\n ROOT s = f32[8,8] add(n, q)\n"), "add:p{p} add:q{q}");
  EXPECT_EQ(delayed("n = f32[8,8] divide(c, p)\n ROOT s = f32[8,8] add(n, q)\n"), "add:p{p} add:q{q}");
  EXPECT_EQ(delayed("ROOT s = f32[8,8] multiply(p, q)\n"), "add:p{p} add:q{q}");
  EXPECT_EQ(delayed("ROOT s = f32[8,8] divide(p, q)\n"), "add:p{p} add:q{q}");
  EXPECT_EQ(delayed("n = f32[8,8] exponential(p)\n ROOT s = f32[8,8] add(n, q)\n"), "add:p{p} add:q{q}");
  EXPECT_EQ(delayed("n = s32[8,8] convert(p)\n o = s32[8,8] convert(q)\n ROOT s = s32[8,8] add(n, o)\n"),
            "add:p{p} add:q{q}");
  // Start values and padding that are not zero.
  EXPECT_EQ(delayed("z = f32[] constant(1)\n n = f32[8] reduce(p, z), dimensions={0}, to_apply=add_f32\n"
                    "ROOT r = f32[8] tanh(n)\n"),
            "add:p{p}");
  EXPECT_EQ(delayed("z = f32[] constant(2)\n n = f32[9,8] pad(p, z), padding=0_1x0_0\n"
                    "o = f32[9,8] pad(q, z), padding=1_0x0_0\n ROOT s = f32[9,8] add(n, o)\n"),
            "add:p{p} add:q{q}");
  EXPECT_EQ(delayed("m = pred[8,8] compare(c, c), direction=GT\n n = f32[8,8] select(m, p, c)\n"
                    "ROOT s = f32[8,8] add(n, q)\n"),
            "add:p{p} add:q{q}");
  // A mask made of a partial sum.
  EXPECT_EQ(delayed("m = pred[8,8] compare(p, c), direction=GT\n ROOT s = f32[8,8] select(m, p, q)\n"),
            "add:p{p} add:q{q}");
}

TEST(Collectives, MaximaPassWhatOnlyMoves) {
  const std::string body = R"(
    lowest = f32[] constant(-inf)
    m = f32[8] reduce(x, lowest), dimensions={1}, to_apply=max_f32
    m4 = f32[4] slice(m), slice={[2:6]}
    t = f32[4,1] reshape(m4)
    n = f32[4,1] negate(t)
    o = f32[2,1] slice(n), slice={[0:2], [0:1]}
    ROOT r = (f32[2,1], f32[8,8], f32[8,8]) tuple(o, p, q)
  )";
  EXPECT_EQ(delayed(body), "add:p{p} add:q{q} maximum:m4{m}");
}

TEST(Collectives, ReducedWhereTheFewestBytesMove) {
  // Late would be 8 times as many bytes.
  EXPECT_EQ(delayed("b = f32[1024,8,8] broadcast(p), dimensions={1,2}\n ROOT r = f32[1024,8,8] tanh(b)\n"), "add:p{p}");
  // Two readers, one reduction, and nothing left partial behind it.
  EXPECT_EQ(delayed("n = f32[8,8] negate(p)\n e = f32[8,8] tanh(p)\n f = f32[8,8] tanh(n)\n"
                    "ROOT s = f32[8,8] add(e, f)\n"),
            "add:p{p}");
  // Several readers of the sum.
  EXPECT_EQ(delayed("s = f32[8,8] add(p, q)\n e = f32[8,8] tanh(s)\n f = f32[8,8] exponential(s)\n"
                    "ROOT r = f32[8,8] add(e, f)\n"),
            "add:s{p,q}");
}

TEST(Collectives, NobodyAsks) {
  EXPECT_EQ(delayed("ROOT r = f32[8,8] tanh(p)\n"), "add:p{p}");
}

// Where the group of a source and another one meet: partial values of a tensor whose parts are elsewhere.
TEST(Collectives, NothingPassesWhatIsSplit) {
  const std::string body = R"(
    x = f32[8,8] parameter(0)
    w = f32[8,8] parameter(1)
    y = f32[8,8] parameter(2)
    p = f32[8,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    b = f32[8,8,8] broadcast(p), dimensions={1,2}
    k = f32[8,8,8] broadcast(y), dimensions={0,1}
    ROOT r = f32[8,8,8] multiply(b, k)
  )";
  CollectivesModule m = entry_module(body);
  m.split("x", 1);
  m.split("y", 0);  // the new dimension of b
  EXPECT_EQ(m.found(Placement::kDelayed), "add:p{p}");
}

// --- Numbers: two devices played through by a small interpreter. ---

struct Array {
  std::vector<std::int64_t> dims;
  std::vector<double> at;
};

std::int64_t count(const std::vector<std::int64_t>& dims) {
  std::int64_t n = 1;
  for (const std::int64_t d : dims) n *= d;
  return n;
}

std::vector<std::int64_t> position(std::int64_t i, const std::vector<std::int64_t>& dims) {
  std::vector<std::int64_t> at(dims.size());
  for (std::size_t d = dims.size(); d-- > 0;) {
    at[d] = i % dims[d];
    i /= dims[d];
  }
  return at;
}

std::int64_t offset(const std::vector<std::int64_t>& at, const std::vector<std::int64_t>& dims) {
  std::int64_t i = 0;
  for (std::size_t d = 0; d < dims.size(); ++d) i = i * dims[d] + at[d];
  return i;
}

// One instruction on whole operands. `part` (of 2): a dot or a reduce sums its half of the last left dimension only;
// -1: all of it.
Array evaluate(const FlowGraph& flow, NodeId id, const std::vector<const Array*>& in, int part) {
  const auto& node = flow.node(id);
  const Graph& g = flow.graph();
  Array out;
  out.dims = flow.shape(id).dims;
  out.at.resize(static_cast<std::size_t>(count(out.dims)));
  const auto fill = [&](auto&& f) {
    for (std::size_t i = 0; i < out.at.size(); ++i) out.at[i] = f(i);
  };
  const auto a = [&](std::size_t i) { return in[0]->at[i]; };
  const auto b = [&](std::size_t i) { return in[1]->at[i]; };
  switch (node.opcode) {
    case Opcode::kConstant: {
      const std::string payload(g.instruction(node.instruction).payload);
      fill([&](std::size_t) { return payload == "-inf" ? -1e30 : std::stod(payload); });
      break;
    }
    case Opcode::kAdd: fill([&](std::size_t i) { return a(i) + b(i); }); break;
    case Opcode::kSubtract: fill([&](std::size_t i) { return a(i) - b(i); }); break;
    case Opcode::kMultiply: fill([&](std::size_t i) { return a(i) * b(i); }); break;
    case Opcode::kDivide: fill([&](std::size_t i) { return a(i) / b(i); }); break;
    case Opcode::kMaximum: fill([&](std::size_t i) { return std::max(a(i), b(i)); }); break;
    case Opcode::kCompare: fill([&](std::size_t i) { return a(i) > b(i) ? 1.0 : 0.0; }); break;
    case Opcode::kNegate: fill([&](std::size_t i) { return -a(i); }); break;
    case Opcode::kTanh: fill([&](std::size_t i) { return std::tanh(a(i)); }); break;
    case Opcode::kCopy:
    case Opcode::kConvert:
    case Opcode::kReshape: fill(a); break;
    case Opcode::kSelect: fill([&](std::size_t i) { return a(i) != 0 ? b(i) : in[2]->at[i]; }); break;
    case Opcode::kBroadcast: {
      const auto dims = graph::int_list_attribute(g, node.instruction, "dimensions");
      fill([&](std::size_t i) {
        const auto at = position(static_cast<std::int64_t>(i), out.dims);
        std::vector<std::int64_t> from;
        for (const std::int64_t d : dims) from.push_back(at[static_cast<std::size_t>(d)]);
        return a(static_cast<std::size_t>(offset(from, in[0]->dims)));
      });
      break;
    }
    case Opcode::kTranspose: {
      const auto dims = graph::int_list_attribute(g, node.instruction, "dimensions");
      fill([&](std::size_t i) {
        const auto at = position(static_cast<std::int64_t>(i), out.dims);
        std::vector<std::int64_t> from(at.size());
        for (std::size_t d = 0; d < at.size(); ++d) from[static_cast<std::size_t>(dims[d])] = at[d];
        return a(static_cast<std::size_t>(offset(from, in[0]->dims)));
      });
      break;
    }
    case Opcode::kSlice: {
      const auto dims =
          graph::decode_slice(*g.attribute(node.instruction, "slice"), {g.instruction(node.instruction).name, "slice"});
      fill([&](std::size_t i) {
        auto at = position(static_cast<std::int64_t>(i), out.dims);
        for (std::size_t d = 0; d < at.size(); ++d) at[d] = dims[d].start + at[d] * dims[d].stride;
        return a(static_cast<std::size_t>(offset(at, in[0]->dims)));
      });
      break;
    }
    case Opcode::kPad: {
      const auto dims = graph::decode_padding(*g.attribute(node.instruction, "padding"),
                                              {g.instruction(node.instruction).name, "padding"});
      fill([&](std::size_t) { return b(0); });
      for (std::size_t i = 0; i < in[0]->at.size(); ++i) {
        auto at = position(static_cast<std::int64_t>(i), in[0]->dims);
        for (std::size_t d = 0; d < at.size(); ++d) at[d] += dims[d].low;
        out.at[static_cast<std::size_t>(offset(at, out.dims))] = a(i);
      }
      break;
    }
    case Opcode::kConcatenate: {  // along dimension 0
      out.at = in[0]->at;
      for (std::size_t k = 1; k < in.size(); ++k) out.at.insert(out.at.end(), in[k]->at.begin(), in[k]->at.end());
      break;
    }
    case Opcode::kReduce: {
      const auto dims = graph::int_list_attribute(g, node.instruction, "dimensions");
      const bool max = graph::string_attribute(g, node.instruction, "to_apply").find("max") != std::string::npos;
      const bool halved = part >= 0;
      // The start value counts once: on the first device.
      fill([&](std::size_t) { return max || part <= 0 ? b(0) : 0.0; });
      for (std::size_t i = 0; i < in[0]->at.size(); ++i) {
        const auto at = position(static_cast<std::int64_t>(i), in[0]->dims);
        if (halved && at.back() / (in[0]->dims.back() / 2) != part) continue;
        std::vector<std::int64_t> to;
        for (std::size_t d = 0; d < at.size(); ++d) {
          if (std::find(dims.begin(), dims.end(), static_cast<std::int64_t>(d)) == dims.end()) to.push_back(at[d]);
        }
        double& sum = out.at[static_cast<std::size_t>(offset(to, out.dims))];
        sum = max ? std::max(sum, a(i)) : sum + a(i);
      }
      break;
    }
    case Opcode::kDot: {  // [m,k] x [k,n]
      const std::int64_t n = out.dims[1], k = in[0]->dims[1];
      const std::int64_t begin = part < 0 ? 0 : part * k / 2, end = part < 0 ? k : (part + 1) * k / 2;
      fill([&](std::size_t i) {
        double sum = 0;
        const std::int64_t row = static_cast<std::int64_t>(i) / n, column = static_cast<std::int64_t>(i) % n;
        for (std::int64_t j = begin; j < end; ++j)
          sum += a(static_cast<std::size_t>(row * k + j)) * b(static_cast<std::size_t>(j * n + column));
        return sum;
      });
      break;
    }
    default: ADD_FAILURE() << "no interpreter for " << g.instruction(node.instruction).opcode_name;
  }
  return out;
}

// The definition, naively: what may hold partial results. Only for the instructions of the random modules below.
class Definition {
 public:
  explicit Definition(const CollectivesModule& m) : m_(m), flow_(m.model.flow()) {}

  bool is_source(NodeId id) const { return m_.decided.state(id).partial != Reduction::kNone; }

  Reduction holds(NodeId id) {
    const auto known = holds_.find(id);
    if (known != holds_.end()) return known->second;
    return holds_[id] = find(id);
  }

  // The sources behind it.
  std::set<NodeId> cone(NodeId id) {
    if (is_source(id)) return {id};
    std::set<NodeId> out;
    for (const NodeId operand : flow_.operands(id)) {
      if (holds(operand) == Reduction::kNone) continue;
      const std::set<NodeId> behind = cone(operand);
      out.insert(behind.begin(), behind.end());
    }
    return out;
  }

 private:
  bool zero(NodeId id) const {
    while (flow_.node(id).opcode == Opcode::kBroadcast) id = flow_.operands(id)[0];
    return flow_.node(id).opcode == Opcode::kConstant &&
           flow_.graph().instruction(flow_.node(id).instruction).payload == "0";
  }

  Reduction find(NodeId id) {
    const TensorState state = m_.decided.state(id);
    if (state.partial != Reduction::kNone) return state.partial;
    const auto in = flow_.operands(id);
    const auto none = Reduction::kNone;
    const auto sum = [&](std::size_t i) { return holds(in[i]) == Reduction::kAdd; };
    switch (flow_.node(id).opcode) {
      case Opcode::kCopy:
      case Opcode::kReshape:
      case Opcode::kTranspose:
      case Opcode::kSlice:
      case Opcode::kBroadcast: return holds(in[0]);
      case Opcode::kNegate: return sum(0) ? Reduction::kAdd : none;
      case Opcode::kAdd:
      case Opcode::kSubtract: return sum(0) && sum(1) ? Reduction::kAdd : none;
      case Opcode::kMultiply:
        return (sum(0) && holds(in[1]) == none) || (sum(1) && holds(in[0]) == none) ? Reduction::kAdd : none;
      case Opcode::kDivide: return sum(0) && holds(in[1]) == none ? Reduction::kAdd : none;
      case Opcode::kPad: return sum(0) && zero(in[1]) ? Reduction::kAdd : none;
      case Opcode::kSelect:
        if (holds(in[0]) != none) return none;
        if (holds(in[1]) != none && holds(in[1]) == holds(in[2])) return holds(in[1]);
        return (sum(1) && zero(in[2])) || (sum(2) && zero(in[1])) ? Reduction::kAdd : none;
      case Opcode::kConcatenate: return holds(in[0]) == holds(in[1]) ? holds(in[0]) : none;
      case Opcode::kReduce: return sum(0) && zero(in[1]) ? Reduction::kAdd : none;
      default: return none;
    }
  }

  const CollectivesModule& m_;
  const FlowGraph& flow_;
  std::map<NodeId, Reduction> holds_;
};

// The module on two devices with the collectives that were found. Every tensor of these modules but x and the weights
// is whole or partial.
class TwoDevices {
 public:
  // `carried`: of combined sums, what is left partial (else all that may be, by definition).
  TwoDevices(const CollectivesModule& m, const std::vector<Collective>& collectives, bool split = true,
             std::optional<std::set<NodeId>> carried = std::nullopt)
      : m_(m), flow_(m.model.flow()), definition_(m), split_(split), carried_(std::move(carried)) {
    for (const Collective& c : collectives) reductions_[c.node] = c.reduction;
  }

  // The value that a reader of the whole tensor gets; nullopt when it was never reduced.
  const std::optional<Array>& whole(NodeId id) {
    const auto known = whole_.find(id);
    if (known != whole_.end()) return known->second;
    std::optional<Array>& out = whole_[id];
    if (flow_.node(id).opcode == Opcode::kParameter) {
      Array random;
      random.dims = flow_.shape(id).dims;
      random.at.resize(static_cast<std::size_t>(count(random.dims)));
      Rng rng(7, 1, static_cast<std::uint64_t>(id));
      for (double& v : random.at) v = rng.uniform(0.5, 1.5) * (rng.below(2) == 0 ? 1 : -1);
      return out = random;
    }
    const auto reduction = reductions_.find(id);
    if (reduction != reductions_.end()) {
      Array sum = partial(id, 0);
      const Array other = partial(id, 1);
      for (std::size_t i = 0; i < sum.at.size(); ++i)
        sum.at[i] = reduction->second == Reduction::kAdd ? sum.at[i] + other.at[i] : std::max(sum.at[i], other.at[i]);
      return out = sum;
    }
    if (split_ && definition_.is_source(id)) return out;
    std::vector<const Array*> in;
    for (const NodeId operand : flow_.operands(id)) {
      const std::optional<Array>& value = whole(operand);
      if (!value) return out;
      in.push_back(&*value);
    }
    return out = evaluate(flow_, id, in, -1);
  }

 private:
  // A device's share: a linear instruction that is left partial reads all its partial operands so.
  Array partial(NodeId id, int device) {
    const bool source = definition_.is_source(id);
    std::vector<Array> values;
    for (const NodeId operand : flow_.operands(id)) {
      const bool left = carried_ ? carried_->count(operand) != 0 : definition_.holds(operand) != Reduction::kNone;
      const bool take = !source && left;
      if (!take && !whole(operand)) {
        ADD_FAILURE() << m_.name(operand) << " is read whole by " << m_.name(id) << " and never reduced";
        return Array{flow_.shape(id).dims, std::vector<double>(static_cast<std::size_t>(count(flow_.shape(id).dims)))};
      }
      values.push_back(take ? partial(operand, device) : *whole(operand));
      // Each device adds its share of what is whole.
      const Opcode opcode = flow_.node(id).opcode;
      if (carried_ && !take && (opcode == Opcode::kAdd || opcode == Opcode::kSubtract)) {
        for (double& v : values.back().at) v /= 2;
      }
    }
    std::vector<const Array*> in;
    for (const Array& v : values) in.push_back(&v);
    return evaluate(flow_, id, in, source ? device : -1);
  }

  const CollectivesModule& m_;
  const FlowGraph& flow_;
  Definition definition_;
  bool split_;
  std::optional<std::set<NodeId>> carried_;
  std::map<NodeId, Reduction> reductions_;
  std::map<NodeId, std::optional<Array>> whole_;
};

double price(const FlowGraph& flow, NodeId id) {
  return static_cast<double>(flow.shape(id).bytes) + 65536;
}

// The cheapest of all choices of what is left partial, one by one; < 0: too many.
double cheapest(const CollectivesModule& m) {
  const FlowGraph& flow = m.model.flow();
  Definition definition(m);
  std::vector<NodeId> held, linear;
  for (NodeId id = 0; id < flow.size(); ++id) {
    if (definition.holds(id) == Reduction::kNone) continue;
    held.push_back(id);
    if (!definition.is_source(id)) linear.push_back(id);
  }
  if (linear.size() > 12) return -1;
  double best = std::numeric_limits<double>::infinity();
  for (std::uint32_t choice = 0; choice < (1U << linear.size()); ++choice) {
    std::set<NodeId> left;
    for (const NodeId id : held) {
      if (definition.is_source(id)) left.insert(id);
    }
    for (std::size_t i = 0; i < linear.size(); ++i) {
      if ((choice >> i & 1U) != 0) left.insert(linear[i]);
    }
    bool valid = true;
    for (const NodeId id : linear) {
      if (left.count(id) == 0) continue;
      for (const NodeId operand : flow.operands(id))
        valid = valid && (definition.holds(operand) == Reduction::kNone || left.count(operand) != 0);
    }
    if (!valid) continue;
    double cost = 0;
    for (const NodeId id : left) {
      const auto& results = flow.results();
      bool whole = std::find(results.begin(), results.end(), id) != results.end();
      for (const NodeId user : flow.users(id)) whole = whole || left.count(user) == 0 || definition.is_source(user);
      if (whole) cost += price(flow, id);
    }
    best = std::min(best, cost);
  }
  return best;
}

std::string random_entry(std::uint64_t seed) {
  Rng rng(seed, 2, 0);
  std::string text = R"(
    x = f32[8,32] parameter(0)
    w0 = f32[32,8] parameter(1)
    w1 = f32[32,8] parameter(2)
    c = f32[8,8] parameter(3)
    z = f32[] constant(0)
    one = f32[] constant(1)
    lowest = f32[] constant(-inf)
    zeros = f32[8,8] broadcast(z), dimensions={}
    mask = pred[8,8] compare(c, zeros), direction=GT
    p0 = f32[8,8] dot(x, w0), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    p1 = f32[8,8] dot(x, w1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    rs = f32[8] reduce(x, z), dimensions={1}, to_apply=add_f32
    rm = f32[8] reduce(x, lowest), dimensions={1}, to_apply=max_f32
    p2 = f32[8,8] broadcast(rs), dimensions={0}
    p3 = f32[8,8] broadcast(rm), dimensions={1}
  )";
  std::vector<std::string> square{"c", "p0", "p1", "p2", "p3"};
  const auto any = [&] { return square[square.size() - 1 - rng.below(std::min<std::uint64_t>(square.size(), 5))]; };
  const std::uint64_t steps = 3 + rng.below(7);
  for (std::uint64_t i = 0; i < steps; ++i) {
    const std::string n = "n" + std::to_string(i), t = "t" + std::to_string(i);
    const std::string a = any(), b = any();
    const auto line = [&](const std::string& name, const std::string& shape, const std::string& rest) {
      text += "    " + name + " = " + shape + " " + rest + "\n";
    };
    const std::string f = "f32[8,8]";
    switch (rng.below(16) % 13) {
      case 0: line(n, f, "add(" + a + ", " + b + ")"); break;
      case 1: line(n, f, "subtract(" + a + ", " + b + ")"); break;
      case 2: line(n, f, "multiply(" + a + ", " + b + ")"); break;
      case 3: line(n, f, "divide(" + a + ", c)"); break;
      case 4: line(n, f, "negate(" + a + ")"); break;
      case 5: line(n, f, "tanh(" + a + ")"); break;
      case 6: line(n, f, "maximum(" + a + ", " + b + ")"); break;
      case 7: line(n, f, "select(mask, " + a + ", " + (rng.below(2) == 0 ? "zeros" : b) + ")"); break;
      case 8: line(n, f, "transpose(" + a + "), dimensions={1,0}"); break;
      case 9:
        line(t, "f32[64]", "reshape(" + a + ")");
        line(n, f, "reshape(" + t + ")");
        break;
      case 10:
        line(t, "f32[6,8]", "slice(" + a + "), slice={[1:7], [0:8]}");
        line(n, f, "pad(" + t + ", " + (rng.below(3) == 0 ? "one" : "z") + "), padding=1_1x0_0");
        break;
      case 11:
        line(t, "f32[16,8]", "concatenate(" + a + ", " + b + "), dimensions={0}");
        line(n, f, "slice(" + t + "), slice={[4:12], [0:8]}");
        break;
      default:
        line(t, "f32[8]",
             "reduce(" + a + ", " + (rng.below(3) == 0 ? "one" : "z") + "), dimensions={0}, to_apply=add_f32");
        line(n, f, "broadcast(" + t + "), dimensions={" + std::to_string(rng.below(2)) + "}");
    }
    square.push_back(n);
  }
  const std::string extra = any();
  text += "    ROOT r = (f32[8,8], f32[8,8]) tuple(" + square.back() + ", " + extra + ")\n";
  return text;
}

TEST(Collectives, RandomModulesAgreeWithTheDefinitionAndInNumbers) {
  int compared = 0, carried = 0, shared = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::string text = random_entry(seed);
    SCOPED_TRACE(text);
    CollectivesModule m = entry_module(text);
    m.split("x", 1);
    if (HasFailure()) return;
    const FlowGraph& flow = m.model.flow();
    Definition definition(m);
    TwoDevices reference(m, {}, false);
    double late = 0;
    for (const Placement placement : {Placement::kAtOnce, Placement::kDelayed, Placement::kCombined}) {
      const std::vector<Collective> found = find_collectives(m.model, m.decided, placement);
      std::optional<std::set<NodeId>> left;
      if (placement == Placement::kCombined) {
        left.emplace();
        for (const CarriedSum& sum : carried_sums(m.model, m.decided)) left->insert(sum.node);
      }
      TwoDevices devices(m, found, true, left);
      for (const NodeId result : flow.results()) {
        const std::optional<Array>& got = devices.whole(result);
        ASSERT_TRUE(got) << m.name(result) << " is never reduced: " << m.found(placement);
        const std::optional<Array>& want = reference.whole(result);
        for (std::size_t i = 0; i < want->at.size(); ++i)
          ASSERT_NEAR(got->at[i], want->at[i], 1e-9 * (1 + std::fabs(want->at[i]))) << m.found(placement);
      }
      double cost = 0;
      for (const Collective& c : found) {
        cost += c.bytes + 65536;
        EXPECT_EQ(c.bytes, static_cast<double>(flow.shape(c.node).bytes));
        if (placement == Placement::kCombined) continue;
        const std::set<NodeId> cone = definition.cone(c.node);
        EXPECT_EQ(std::set<NodeId>(c.sources.begin(), c.sources.end()), cone);
        if (placement == Placement::kAtOnce) {
          EXPECT_TRUE(definition.is_source(c.node));
        }
        if (c.sources.size() > 1) ++carried;
      }
      if (placement == Placement::kCombined) {
        shared += cost < late;
      } else if (placement == Placement::kDelayed) {
        late = cost;
        const double best = cheapest(m);
        if (best < 0) continue;
        ++compared;
        EXPECT_EQ(cost, best) << m.found(placement);
      }
    }
  }
  EXPECT_GT(compared, 900);
  EXPECT_GE(shared, 5);
  EXPECT_GT(carried, 60);
}

// --- What the written module can carry. ---

std::string combined(const std::string& text) {
  CollectivesModule m(hlo::read_hlo_text(kHead + text, "test"), 2);
  m.split("x", 1);
  std::string out = m.found(Placement::kCombined) + " carried:";
  for (const CarriedSum& sum : carried_sums(m.model, m.decided)) {
    out += " " + m.name(sum.node) + (sum.factor == kNone ? "" : "*") + (sum.reduced ? "+" : "");
  }
  return out;
}

std::string combined_entry(const std::string& body) {
  return combined("ENTRY e {\n" + kTwoDots + body + "}\n");
}

TEST(Collectives, CombinedIsWhatCanBeWritten) {
  EXPECT_EQ(combined_entry("s = f32[8,8] add(p, q)\n n = f32[8,8] negate(s)\n ROOT r = f32[8,8] tanh(n)\n"),
            "add:s{p,q} carried: p* q* s+");
  // A source may be reduced for one reader and carried for another.
  EXPECT_EQ(combined_entry("d = f32[8,8] dot(x, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
                           "t = f32[8,8] tanh(p)\n m = f32[8,8] multiply(t, q)\n s = f32[8,8] add(p, m)\n"
                           "o = f32[8,8] add(s, d)\n u = f32[8,8] tanh(o)\n"
                           "ROOT r = (f32[8,8], f32[8,8]) tuple(t, u)\n"),
            "add:p{p} add:o{p,q,d} carried: p*+ q* d* m s o+");
  // A whole tensor between them is added by all devices together.
  EXPECT_EQ(combined_entry("m = f32[8,8] add(c, p)\n s = f32[8,8] subtract(m, q)\n ROOT r = f32[8,8] tanh(s)\n"),
            "add:s{p,q} carried: p* q* m s+");
  // Nothing is gained: XLA reduces it by itself.
  EXPECT_EQ(combined_entry("n = f32[8,8] negate(p)\n ROOT r = f32[8,8] tanh(n)\n"), "add:p{p} carried:");
  // No line can stand behind what the computation returns.
  EXPECT_EQ(combined_entry("ROOT s = f32[8,8] add(p, q)\n"), "add:p{p} add:q{q} carried:");
  // Sums over a dimension are sources as well.
  EXPECT_EQ(combined("ENTRY e {\n x = f32[8,32] parameter(0)\n w = f32[32,8] parameter(1)\n z = f32[] constant(0)\n"
                     " p = f32[8,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
                     " d = f32[8] reduce(x, z), dimensions={1}, to_apply=add_f32\n"
                     " b = f32[8,8] broadcast(d), dimensions={0}\n s = f32[8,8] add(b, p)\n"
                     " ROOT r = (f32[8,8]) tuple(s)\n}\n"),
            "add:s{p,d} carried: p* d* b s+");
  // The partitioner masks look-ups in a table: no place for them by hand.
  EXPECT_EQ(combined("ENTRY e {\n x = f32[4,16] parameter(0)\n w = f32[4,16] parameter(1)\n"
                     " i = s32[8,1] parameter(2)\n t = f32[16,4] transpose(x), dimensions={1,0}\n"
                     " g = f32[8,4] gather(t, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
                     "index_vector_dim=1, slice_sizes={1,4}\n"
                     " h = f32[8,4] gather(t, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
                     "index_vector_dim=1, slice_sizes={1,4}\n"
                     " s = f32[8,4] add(g, h)\n ROOT r = f32[8,4] tanh(s)\n}\n"),
            "add:g{g} add:h{h} carried:");
}

// An instruction that calls share is one instruction of the written module, and values that they hand on are reduced
// first.
TEST(Collectives, CombinedSumsOfCalls) {
  const std::string head =
      "f {\n a = f32[8,8] parameter(0)\n w = f32[8,8] parameter(1)\n"
      " p = f32[8,8] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
      " q = f32[8,8] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n s = f32[8,8] add(p, q)\n"
      " ROOT t = f32[8,8] tanh(s)\n}\nENTRY e {\n x = f32[8,8] parameter(0)\n y = f32[8,8] parameter(1)\n"
      " v = f32[8,8] parameter(2)\n k = f32[8,8] call(x, v), to_apply=f\n";
  EXPECT_EQ(combined(head + " l = f32[8,8] call(x, v), to_apply=f\n ROOT r = f32[8,8] add(k, l)\n}\n"),
            "add:s{p,q} add:s{p,q} carried: p* q* s+ p* q* s+");
  // Whole in the other call.
  EXPECT_EQ(combined(head + " l = f32[8,8] call(y, y), to_apply=f\n ROOT r = f32[8,8] add(k, l)\n}\n"),
            "add:p{p} add:q{q} carried:");
  EXPECT_EQ(combined("f {\n a = f32[8,8] parameter(0)\n w = f32[8,8] parameter(1)\n"
                     " p = f32[8,8] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
                     " ROOT t = f32[8,8] negate(p)\n}\nENTRY e {\n x = f32[8,8] parameter(0)\n"
                     " v = f32[8,8] parameter(1)\n k = f32[8,8] call(x, v), to_apply=f\n"
                     " l = f32[8,8] call(x, v), to_apply=f\n s = f32[8,8] add(k, l)\n"
                     " ROOT r = f32[8,8] tanh(s)\n}\n"),
            "add:p{p} add:p{p} carried:");
}

// --- Loops, conditionals and gathers. ---

TEST(Collectives, LoopsReduceEveryTurn) {
  const std::string text = R"(HloModule m
    body {
      s = (s32[], f32[8,8], f32[8,8], f32[8,8]) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      h = f32[8,8] get-tuple-element(s), index=1
      u = f32[8,8] get-tuple-element(s), index=2
      w = f32[8,8] get-tuple-element(s), index=3
      one = s32[] constant(1)
      j = s32[] add(i, one)
      d = f32[8,8] dot(u, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      e = f32[8,8] dot(u, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      n = f32[8,8] subtract(d, e)
      ROOT t = (s32[], f32[8,8], f32[8,8], f32[8,8]) tuple(j, n, u, w)
    }
    cond {
      s = (s32[], f32[8,8], f32[8,8], f32[8,8]) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      n = s32[] constant(12)
      ROOT c = pred[] compare(i, n), direction=LT
    }
    ENTRY e {
      x = f32[8,8] parameter(0)
      u = f32[8,8] parameter(1)
      w = f32[8,8] parameter(2)
      z = s32[] constant(0)
      s = (s32[], f32[8,8], f32[8,8], f32[8,8]) tuple(z, x, u, w)
      l = (s32[], f32[8,8], f32[8,8], f32[8,8]) while(s), condition=cond, body=body
      o = f32[8,8] get-tuple-element(l), index=1
      ROOT r = f32[8,8] negate(o)
    })";
  CollectivesModule m(hlo::read_hlo_text(text, "test"), 2);
  m.split("u", 1);
  EXPECT_EQ(m.found(Placement::kAtOnce), "add:d{d} add:e{e}");
  // Values that go from turn to turn are whole: reduced at the end of the body at the latest.
  EXPECT_EQ(m.found(Placement::kDelayed), "add:n{d,e}");
  EXPECT_EQ(m.found(Placement::kCombined), "add:n{d,e}");
  const CollectiveTotals totals =
      total(find_collectives(m.model, m.decided, Placement::kDelayed), CollectiveKind::kAllReduce);
  EXPECT_EQ(totals.count, 1);
  EXPECT_EQ(totals.executed, 12);
  EXPECT_EQ(totals.bytes, 12 * 256);
}

TEST(Collectives, GathersOncePerTensor) {
  const Graph graph = hlo::read_hlo_text(kHead + R"(ENTRY e {
      x = f32[8,8] parameter(0)
      y = f32[8,8] tanh(x)
      a = f32[8,8] exponential(y)
      b = f32[8,8] negate(y)
      ROOT r = (f32[8,8], f32[8,8], f32[8,8]) tuple(a, b, y)
    })",
                                         "test");
  ModelOptions options;
  options.shards = 2;
  // Nodes: x y a b.
  options.gathers = {{2, 1, 0}, {3, 1, 0}};
  const ShardingModel model = ShardingModel::build(graph, options);
  Propagation decided(model.linkage());
  ASSERT_FALSE(decided.split({0, 0}));
  const std::vector<Collective> found = find_collectives(model, decided, Placement::kAtOnce);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kind, CollectiveKind::kAllGather);
  EXPECT_EQ(found[0].node, 1);
  EXPECT_EQ(found[0].sources, (std::vector<NodeId>{2, 3}));
  EXPECT_EQ(found[0].bytes, 256);
  Propagation other(model.linkage());
  ASSERT_FALSE(other.split({0, 1}));  // passes
  EXPECT_TRUE(find_collectives(model, other, Placement::kAtOnce).empty());
}

// --- Real modules. ---

std::string fixture_path(const std::string& name) {
  return std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/" + name + ".hlo.gz";
}

void split_named(CollectivesModule* m, const std::string& name, int dim) {
  const auto index = static_cast<std::size_t>(m->model.find_input(name));
  const auto conflict = m->decided.split({m->model.inputs()[index].node, dim});
  EXPECT_FALSE(conflict) << name;
}

// The numbers are what XLA's SPMD partitioner inserts into the annotated module before it combines any: 102 (622.9 MB)
// and 257 (1472.5 MB), and nothing but all-reduces.
TEST(Collectives, T5MegatronAndModelDimension) {
  CollectivesModule megatron(hlo::load_hlo(fixture_path("t5_6_6")).graph, 8);
  for (int layer = 0; layer < 6; ++layer) {
    const std::string at = "['layer'][" + std::to_string(layer) + "]";
    for (const std::string& part : {"params['encoder']" + at + "['self_attention']['q']['kernel']",
                                    "params['encoder']" + at + "['feed_forward']['conv1']['kernel']",
                                    "params['decoder']" + at + "['self_attention']['q']['kernel']",
                                    "params['decoder']" + at + "['cross_attention']['q']['kernel']",
                                    "params['decoder']" + at + "['feed_forward']['conv1']['kernel']"})
      split_named(&megatron, part, 1);
  }
  split_named(&megatron, "params['encoder']['embedding']", 0);
  split_named(&megatron, "params['decoder']['embedding']", 0);
  split_named(&megatron, "params['softmax']['kernel']", 1);
  const auto at_once = find_collectives(megatron.model, megatron.decided, Placement::kAtOnce);
  const CollectiveTotals totals = total(at_once, CollectiveKind::kAllReduce);
  EXPECT_EQ(totals.count, 102);
  EXPECT_EQ(totals.bytes, 622878720);
  // Keys and values of the encoder's output: the gradients of six decoder layers are reduced together.
  const auto late = find_collectives(megatron.model, megatron.decided, Placement::kDelayed);
  EXPECT_LT(late.size(), 70U);
  std::size_t most = 0;
  std::set<NodeId> sources;
  for (const Collective& c : late) {
    most = std::max(most, c.sources.size());
    sources.insert(c.sources.begin(), c.sources.end());
  }
  EXPECT_EQ(most, 12U);
  EXPECT_EQ(sources.size(), 102U);
  // By hand: q, k and v of twelve self-attentions, k and v of six cross-attentions, alone; and those six together.
  const auto written = find_collectives(megatron.model, megatron.decided, Placement::kCombined);
  EXPECT_EQ(total(written, CollectiveKind::kAllReduce).count, 102 - 12 * 2 - 11);
  std::size_t alone = 0;
  for (const GroupId group : megatron.decided.split_groups()) {
    alone += collectives_of_group(megatron.model, group, Placement::kCombined).size();
  }
  EXPECT_EQ(alone, 102U - 12 * 2 - 6);

  CollectivesModule along_model(hlo::load_hlo(fixture_path("t5_6_6")).graph, 8);
  split_named(&along_model, "params['encoder']['embedding']", 1);
  split_named(&along_model, "params['decoder']['embedding']", 1);
  EXPECT_EQ(
      total(find_collectives(along_model.model, along_model.decided, Placement::kAtOnce), CollectiveKind::kAllReduce)
          .count,
      257);
}

// docs/sharding.md
TEST(Collectives, TheWorkedExampleOfTheDocs) {
  const std::string path = std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/tiny_mlp.hlo";
  struct Case {
    const char* input;
    int dim;
    std::size_t all_reduces;
    double bytes;
    std::vector<const char*> with;  // inputs that are split with it
  };
  for (const Case& c :
       {Case{"params['dense_1']['kernel']", 1, 1, 640, {"params['dense_1']['bias']", "params['dense_2']['kernel']"}},
        Case{"batch['x']", 0, 5, 11052, {"batch['y']"}},
        Case{"batch['x']", 1, 1, 4096, {"params['dense_1']['kernel']"}},
        Case{"batch['y']", 1, 2, 4100, {"params['dense_2']['kernel']", "params['dense_2']['bias']"}}}) {
    SCOPED_TRACE(c.input);
    CollectivesModule m(hlo::load_hlo(path).graph, 2);
    split_named(&m, c.input, c.dim);
    for (const char* other : c.with) {
      const auto index = static_cast<std::size_t>(m.model.find_input(other));
      EXPECT_EQ(m.decided.state(m.model.inputs()[index].node).kind, TensorStateKind::kSplit) << other;
    }
    EXPECT_EQ(m.model.linkage().inputs(m.decided.split_groups()[0]).size(), c.with.size() + 1);
    for (const Placement placement : {Placement::kAtOnce, Placement::kDelayed, Placement::kCombined}) {
      const CollectiveTotals totals =
          total(find_collectives(m.model, m.decided, placement), CollectiveKind::kAllReduce);
      EXPECT_EQ(totals.count, static_cast<std::int64_t>(c.all_reduces));
      EXPECT_EQ(totals.bytes, c.bytes);
    }
  }
}

std::vector<NodeId> nodes_of(const std::vector<Collective>& collectives) {
  std::vector<NodeId> nodes;
  for (const Collective& c : collectives) nodes.push_back(c.node);
  return nodes;
}

TEST(Collectives, AtOnceIsTheUnionOverGroupsAndLateIsNeverDearer) {
  for (const char* name : {"tiny_mlp", "transformer_scan", "moe_small", "gpt2_forward"}) {
    SCOPED_TRACE(name);
    const std::string path = std::string(name) == "tiny_mlp"
                                 ? std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/tiny_mlp.hlo"
                                 : fixture_path(name);
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      CollectivesModule m(hlo::load_hlo(path).graph, 2);
      Rng rng(seed, 3, 0);
      for (;;) {
        const std::vector<GroupId> open = m.decided.undecided();
        if (open.empty()) break;
        const GroupId group = open[rng.below(open.size())];
        if (rng.below(4) == 0)
          m.decided.keep_whole(m.model.linkage().inputs(group)[0]);
        else
          m.decided.split_group(group);
      }
      const std::vector<Collective> at_once = find_collectives(m.model, m.decided, Placement::kAtOnce);
      const std::vector<Collective> late = find_collectives(m.model, m.decided, Placement::kDelayed);
      std::vector<NodeId> sum;
      for (const GroupId group : m.decided.split_groups()) {
        const std::vector<Collective> alone = collectives_of_group(m.model, group, Placement::kAtOnce);
        for (const NodeId node : nodes_of(alone)) sum.push_back(node);
        for (const Collective& c : alone) EXPECT_EQ(c.group, group);
        EXPECT_LE(total(collectives_of_group(m.model, group, Placement::kDelayed), CollectiveKind::kAllReduce).bytes,
                  total(alone, CollectiveKind::kAllReduce).bytes + 65536.0 * static_cast<double>(alone.size()));
      }
      std::sort(sum.begin(), sum.end());
      EXPECT_EQ(nodes_of(at_once), sum);
      const CollectiveTotals a = total(at_once, CollectiveKind::kAllReduce),
                             l = total(late, CollectiveKind::kAllReduce);
      EXPECT_LE(l.bytes + 65536 * l.executed, a.bytes + 65536 * a.executed);
      EXPECT_EQ(a.count > 0, l.count > 0);
    }
  }
}

}  // namespace
}  // namespace automap::sharding
