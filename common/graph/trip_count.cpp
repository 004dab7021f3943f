#include "common/graph/trip_count.h"

#include <charconv>
#include <cstdlib>
#include <string>
#include <utility>

#include "common/graph/hlo_attributes.h"

namespace automap::graph {
namespace {

// A value followed to where it is made: `id` seen through the call sites `frames` (innermost last), and below it the
// tuple element `path` (outermost index last) when id makes a tuple.
struct Traced {
  InstructionId id = kNone;
  std::vector<InstructionId> frames;
  std::vector<std::int64_t> path;
};

// More steps than any sane loop counter takes; keeps shared call chains from costing exponential time.
constexpr int kMaxSteps = 4096;
constexpr std::int64_t kMaxMagnitude = std::int64_t{1} << 62;

bool is_call(const Instruction& instruction) {
  return instruction.opcode == Opcode::kCall || instruction.opcode == Opcode::kFusion;
}

class TripCounter {
 public:
  explicit TripCounter(const Graph& graph)
      : graph_(graph), caller_(static_cast<std::size_t>(graph.num_computations()), kNoCaller) {
    for (InstructionId id = 0; id < graph.num_instructions(); ++id) {
      const bool call = is_call(graph.instruction(id));
      for (ComputationId callee : graph.called(id)) {
        InstructionId& caller = caller_[static_cast<std::size_t>(callee)];
        caller = call && caller == kNoCaller ? id : kManyCallers;
      }
    }
  }

  std::optional<std::int64_t> count(InstructionId id) const {
    if (const auto known = known_trip_count(graph_, id)) return known;
    const auto called = graph_.called(id);
    if (called.size() != 2 || graph_.operands(id).size() != 1) return std::nullopt;
    const Computation& condition = graph_.computation(called[0]);
    const Computation& body = graph_.computation(called[1]);

    const auto test = follow(Traced{condition.root, {}, {}});
    if (!test || graph_.instruction(test->id).opcode != Opcode::kCompare) return std::nullopt;
    const auto sides = graph_.operands(test->id);
    const auto raw = graph_.attribute(test->id, "direction");
    if (sides.size() != 2 || !raw) return std::nullopt;
    ComparisonDirection direction =
        decode_comparison_direction(*raw, AttributeSite{graph_.instruction(test->id).name, "direction"});
    auto left = follow(Traced{sides[0], test->frames, {}});
    auto right = follow(Traced{sides[1], test->frames, {}});
    if (!left || !right) return std::nullopt;

    const auto is_state = [&](const Traced& origin) {
      return origin.frames.empty() && graph_.instruction(origin.id).opcode == Opcode::kParameter;
    };
    // The counter is the side that the body changes; the other one must keep its initial value.
    for (int attempt = 0; attempt < 2; ++attempt) {
      if (is_state(*left)) {
        const auto step = body_step(body, left->path);
        const auto bound = constant(*right);
        const auto invariant =
            is_state(*right) && body_step(body, right->path) == std::int64_t{0} ? initial(id, right->path) : bound;
        const auto first = initial(id, left->path);
        if (step && *step != 0 && invariant && first) return iterations(*first, *invariant, *step, direction);
      }
      std::swap(left, right);
      direction = mirrored(direction);
    }
    return std::nullopt;
  }

 private:
  static constexpr InstructionId kNoCaller = -1, kManyCallers = -2;

  static ComparisonDirection mirrored(ComparisonDirection direction) {
    switch (direction) {
      case ComparisonDirection::kLt: return ComparisonDirection::kGt;
      case ComparisonDirection::kLe: return ComparisonDirection::kGe;
      case ComparisonDirection::kGt: return ComparisonDirection::kLt;
      case ComparisonDirection::kGe: return ComparisonDirection::kLe;
      default: return direction;
    }
  }

  // Follows a value backward to the instruction that makes it: a constant, a parameter (frames empty), or
  // anything that computes. Out of the computation only when `leave` is set and it has a single caller.
  std::optional<Traced> follow(Traced at, bool leave = false) const {
    for (int step = 0; step < kMaxSteps; ++step) {
      const Instruction& instruction = graph_.instruction(at.id);
      const auto operands = graph_.operands(at.id);
      switch (instruction.opcode) {
        case Opcode::kConvert:
        case Opcode::kCopy:
        case Opcode::kBitcast:
        case Opcode::kOptBarrier:
          if (operands.size() != 1) return std::nullopt;
          at.id = operands[0];
          continue;
        case Opcode::kReshape:
        case Opcode::kBroadcast:
          if (operands.empty() || graph_.shape_of(at.id).num_elements != 1) return at;
          at.id = operands[0];
          continue;
        case Opcode::kGetTupleElement:
          if (operands.size() != 1) return std::nullopt;
          at.path.push_back(instruction.number);
          at.id = operands[0];
          continue;
        case Opcode::kTuple: {
          if (at.path.empty()) return at;
          const std::int64_t index = at.path.back();
          if (index < 0 || static_cast<std::size_t>(index) >= operands.size()) return std::nullopt;
          at.path.pop_back();
          at.id = operands[static_cast<std::size_t>(index)];
          continue;
        }
        case Opcode::kCall:
        case Opcode::kFusion: {
          const auto called = graph_.called(at.id);
          if (called.size() != 1) return at;
          at.frames.push_back(at.id);
          at.id = graph_.computation(called[0]).root;
          continue;
        }
        case Opcode::kParameter: {
          InstructionId site = kNone;
          if (!at.frames.empty()) {
            site = at.frames.back();
            at.frames.pop_back();
          } else if (leave) {
            site = caller_[static_cast<std::size_t>(instruction.computation)];
            if (site < 0) return at;
          } else {
            return at;
          }
          const auto arguments = graph_.operands(site);
          if (instruction.number < 0 || static_cast<std::size_t>(instruction.number) >= arguments.size()) {
            return std::nullopt;
          }
          at.id = arguments[static_cast<std::size_t>(instruction.number)];
          continue;
        }
        default: return at;
      }
    }
    return std::nullopt;
  }

  // The integer a scalar constant holds.
  std::optional<std::int64_t> constant(const Traced& origin) const {
    const Instruction& instruction = graph_.instruction(origin.id);
    if (instruction.opcode != Opcode::kConstant || !origin.path.empty()) return std::nullopt;
    if (graph_.shape_of(origin.id).num_elements != 1) return std::nullopt;
    std::string_view text = instruction.payload;
    // Braces of a one-element array, blanks, and the shape that old dumps print before the value.
    const auto last = text.find_last_not_of(" \t\r\n})");
    if (last == std::string_view::npos) return std::nullopt;
    text = text.substr(0, last + 1);
    const auto first = text.find_last_of(" \t\r\n{(");
    if (first != std::string_view::npos) text = text.substr(first + 1);
    if (text == "true") return 1;
    if (text == "false") return 0;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return within(value);
    double real = 0;  // a float counter: "24", "2.4e+01"
    const auto [real_end, real_error] = std::from_chars(text.data(), text.data() + text.size(), real);
    if (real_error != std::errc() || real_end != text.data() + text.size()) return std::nullopt;
    if (!(real >= -1e15 && real <= 1e15) || real != static_cast<double>(static_cast<std::int64_t>(real))) {
      return std::nullopt;
    }
    return static_cast<std::int64_t>(real);
  }

  static std::optional<std::int64_t> within(std::int64_t value) {
    if (value >= kMaxMagnitude || value <= -kMaxMagnitude) return std::nullopt;
    return value;
  }

  // The initial value of the loop state's element `path`, when it is a constant.
  std::optional<std::int64_t> initial(InstructionId loop, const std::vector<std::int64_t>& path) const {
    const auto origin = follow(Traced{graph_.operands(loop)[0], {}, path}, /*leave=*/true);
    return origin ? constant(*origin) : std::nullopt;
  }

  // The step of the loop state's element `path` in the body: 0 when it hands it on; nullopt when it does anything but
  // add.
  std::optional<std::int64_t> body_step(const Computation& body, const std::vector<std::int64_t>& path) const {
    const auto result = follow(Traced{body.root, {}, path});
    if (!result) return std::nullopt;
    const auto is_counter = [&](const std::optional<Traced>& origin) {
      return origin && origin->frames.empty() && origin->path == path &&
             graph_.instruction(origin->id).opcode == Opcode::kParameter;
    };
    if (is_counter(result)) return 0;
    const Opcode opcode = graph_.instruction(result->id).opcode;
    const auto operands = graph_.operands(result->id);
    if (operands.size() != 2 || !result->path.empty()) return std::nullopt;
    const auto left = follow(Traced{operands[0], result->frames, {}});
    const auto right = follow(Traced{operands[1], result->frames, {}});
    if (!left || !right) return std::nullopt;
    if (opcode == Opcode::kAdd) {
      if (is_counter(left)) return constant(*right);
      if (is_counter(right)) return constant(*left);
    } else if (opcode == Opcode::kSubtract && is_counter(left)) {
      if (const auto step = constant(*right)) return -*step;
    }
    return std::nullopt;
  }

  static std::optional<std::int64_t> iterations(std::int64_t first, std::int64_t bound, std::int64_t step,
                                                ComparisonDirection direction) {
    // |first| and |bound| are below 2^62, so their difference fits.
    const std::int64_t distance = bound - first;
    switch (direction) {
      case ComparisonDirection::kLt:
        if (distance <= 0) return 0;
        if (step < 0) return std::nullopt;  // runs until the counter wraps
        return (distance - 1) / step + 1;
      case ComparisonDirection::kLe:
        if (distance < 0) return 0;
        if (step < 0) return std::nullopt;
        return distance / step + 1;
      case ComparisonDirection::kGt:
        if (distance >= 0) return 0;
        if (step > 0) return std::nullopt;
        return (-distance - 1) / -step + 1;
      case ComparisonDirection::kGe:
        if (distance > 0) return 0;
        if (step > 0) return std::nullopt;
        return -distance / -step + 1;
      case ComparisonDirection::kNe:
        if (distance % step != 0 || distance / step < 0) return std::nullopt;
        return distance / step;
      case ComparisonDirection::kEq: return distance == 0 ? 1 : 0;
    }
    return std::nullopt;
  }

  const Graph& graph_;
  std::vector<InstructionId> caller_;  // of each computation, when it is called from one place
};

}  // namespace

std::optional<std::int64_t> trip_count(const Graph& graph, InstructionId id) {
  return TripCounter(graph).count(id);
}

std::vector<std::optional<std::int64_t>> trip_counts(const Graph& graph) {
  std::vector<std::optional<std::int64_t>> counts(static_cast<std::size_t>(graph.num_instructions()));
  std::optional<TripCounter> counter;
  for (InstructionId id = 0; id < graph.num_instructions(); ++id) {
    if (graph.instruction(id).opcode != Opcode::kWhile) continue;
    if (!counter) counter.emplace(graph);
    counts[static_cast<std::size_t>(id)] = counter->count(id);
  }
  return counts;
}

}  // namespace automap::graph
