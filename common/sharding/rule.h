// Propagation rules: the behaviour of one instruction when one of its tensors is split over the devices of one mesh
// axis.
//
// A rule says which dimensions of an instruction's operands and results can only be split together: its *factors*. With
// one mesh axis an instruction is always in one of (number of factors + 1) states: nothing of it is split, or exactly
// one factor is, and then all its dimensions are split and every other operand and result is whole on every device.
// That is all there is to propagation: what a splitting forces, what it forbids, and where partial sums arise follow
// from the factors (linkage.h).
//
//   dot [b,m,k] x [b,k,n] -> [b,m,n]   factors {lhs 0, rhs 0, out 0}, {lhs 1, out 1}, {rhs 2, out 2},
//                                      {lhs 2, rhs 1} with a partial sum in out
//   reduce-add [m,n] -> [m]            {in 0, out 0}, {in 1} with a partial sum in out
//   broadcast [n] -> [m,n]             {in 0, out 1}, {out 0}: a new dimension may be split while the operand is whole
//   reshape [6,512] -> [6,8,64]        {in 0, out 0}, {in 1, out 1} of extent 8; out 2 is blocked (kMinor)
//
// Every dimension of extent > 1 is in exactly one factor or blocked, with the reason. To add a rule: write a function
// (rule_builder.h, rules.h), name it in the table of rule.cpp, and work a case in rule_test.cpp, which asks for it.
// Rules look at one instruction (and, for gathers and scatters, at what computes its indices and combines its updates),
// never at what anybody decided. They say what XLA's partitioner executes with nothing but reductions of partial sums:
// what could be split, but is gathered there, is blocked as kWhole. Sources: the paper 3.2, 4.2; docs/sharding.md has
// the table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/span.h"
#include "common/graph/graph.h"

namespace automap::sharding {

// Slots number the tensors of an instruction: its operands 0..n-1, then its result, or the leaves of its tuple result
// in order.
struct SlotDim {
  std::int32_t slot = 0;
  std::int32_t dim = 0;
  bool operator==(const SlotDim& other) const { return slot == other.slot && dim == other.dim; }
};

// The operation that combines partial results of the devices into the whole one.
enum class Reduction : std::uint8_t { kNone, kAdd, kMultiply, kMinimum, kMaximum, kAnd, kOr };
const char* to_string(Reduction reduction);  // "add"

// Elements that a device needs of its neighbours' parts, along the dimension of an operand that is split.
struct Halo {
  SlotDim of;  // slot -1: none is needed
  std::int64_t left = 0, right = 0;
  // XLA takes them once for all readers of a tensor that say the same here; empty: each by itself.
  std::string shared_by = {};
  // The value beyond the tensor's ends. XLA shares borders without looking at it, so that a second reader with another
  // value would compute with the first one's: those are blocked (linkage.cpp).
  std::string padded_with = {};
};

struct Factor {
  std::vector<SlotDim> dims;               // not empty; at most one per slot
  std::int64_t extent = 0;                 // the number of devices must divide it
  Reduction reduction = Reduction::kNone;  // kNone: `partial` is empty
  std::vector<std::int32_t> partial;       // result slots that hold partial sums while this factor is split
  Halo halo = {{-1, 0}};
};

enum class Block : std::uint8_t {
  kHalo,    // neighbours' elements are needed (windows, shifted slices, padding)
  kWhole,   // the instruction needs the whole dimension (sort, fft, dynamic index), or XLA gathers it
  kMinor,   // the minor part of a reshape: its elements would not stay together
  kOpaque,  // no rule looks inside (unknown opcodes, custom calls, infeed, ...)
};
const char* to_string(Block block);

struct BlockedDim {
  SlotDim at;
  Block why = Block::kOpaque;
};

struct OpRule {
  std::vector<Factor> factors;
  std::vector<BlockedDim> blocked;
  // Factors of dimensions that are also in `blocked` (kHalo): the way to split them if neighbours exchange their
  // borders (LinkageOptions::halos).
  std::vector<Factor> halo_factors;
};

// One row of the registry.
struct RuleFamily {
  std::string_view name;    // "dot"
  std::string_view says;    // one sentence for docs and explanations
  bool opaque = false;      // on purpose: every dimension is blocked
  bool structural = false;  // never asked: the flow graph has expanded it (tuple, call, while, ...)
};
// The rule family of any opcode; kUnknown is opaque.
const RuleFamily& rule_family(graph::Opcode opcode);

// The rule of one instruction. Never throws for an attribute that it cannot read (one that is malformed or contradicts
// the shapes makes the instruction opaque): a module that the reader took must not be refused here. Structural
// instructions give an opaque rule.
OpRule rule_of(const graph::Graph& graph, graph::InstructionId id);
// The same with dimensions of one element in it: they cannot be split, but they may grow.
OpRule growth_rule_of(const graph::Graph& graph, graph::InstructionId id);

// Shapes of the slots, in order; nullptr where a slot is no array (token, opaque, a tuple operand).
std::vector<const graph::Shape*> slots_of(const graph::Graph& graph, graph::InstructionId id);

}  // namespace automap::sharding
