// The readers' side of Graph: every reader (text, JSON, binary protobuf) hands over computations and instructions in
// order, callees in any order, and gets a checked Graph. The checks live here, so that all forms are equally safe.
//
//   GraphBuilder builder("model.hlo");
//   builder.begin_computation("add", /*is_entry=*/false);
//   InstructionDraft p; p.name = "p"; p.opcode_name = "parameter"; p.shape = builder.shape("f32[]"); p.number = 0;
//   const InstructionId id = builder.add(p, {}, {});
//   builder.end_computation(id, "");
//   Graph graph = builder.finish();
//
// Every string_view handed over must stay valid as long as the graph: pass views into adopted text, or views that
// keep() returned. Every member throws Error(kData) that names the place when its input cannot be right.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/span.h"
#include "common/graph/graph.h"

namespace automap::graph {

struct InstructionDraft {
  std::string_view name;  // without '%'; empty: the builder invents one
  std::string_view opcode_name;
  std::string_view layout;           // see Instruction
  std::string_view payload;          // see Instruction
  Opcode opcode = Opcode::kUnknown;  // parsed from opcode_name when left out
  ShapeId shape = kNone;             // kNone: inferred where that is easy, else an error
  std::int64_t number = -1;          // of a parameter; of a get-tuple-element it comes from its index attribute
  bool rename = false;               // `name` is a private key for find(): the graph gets a proper, unique name
};

// The treatment of a module that XLA's parser accepts and its verifier refuses: refuse it with the first fault, or go
// on and record the faults (Graph::faults).
enum class Faults : std::uint8_t { kRefuse, kRecord };

class GraphBuilder {
 public:
  // `source` names the input in errors.
  explicit GraphBuilder(std::string source, Faults faults = Faults::kRefuse);
  GraphBuilder(const GraphBuilder&) = delete;
  GraphBuilder& operator=(const GraphBuilder&) = delete;

  // Takes the source text; the views in it give errors their line and column. At most once.
  std::string_view adopt(std::string text);
  // A copy of `s` that lives as long as the graph.
  std::string_view keep(std::string_view s);

  // The shape written in `text`: "f32[2,<=3]{1,0}", "(s32[], /*index=1*/pred[4])", "token[]", "b(f32[2])". Layouts and
  // comments are ignored. Constant time for a text seen before. `text` itself need not outlive the call.
  ShapeId shape(std::string_view text);
  // `dynamic` may be empty, else one flag per dimension (dims then holds upper bounds, <= 0 for none).
  ShapeId array_shape(std::string_view type_name, Span<const std::int64_t> dims, const std::vector<bool>& dynamic = {});
  ShapeId tuple_shape(Span<const ShapeId> elements);
  const Shape& shape_at(ShapeId id) const { return graph_.shape(id); }

  void set_module_name(std::string_view name) { graph_.name_ = name; }
  void add_header_attribute(std::string_view key, std::string_view value) { graph_.header_.push_back({key, value}); }
  void set_stack_tables(std::string_view raw) { graph_.stack_tables_ = raw; }

  // Computations do not nest; the name must be new in the module.
  void begin_computation(std::string_view name, bool is_entry);
  // Instructions in order, operands first. The attributes are raw HLO text (graph.h); the called computations are read
  // from them (to_apply, calls, condition, body, ...) and may be defined later.
  InstructionId add(const InstructionDraft& draft, Span<const InstructionId> operands,
                    Span<const Attribute> attributes);
  // kNone as root: the last instruction. Checks that the parameters are numbered 0..n-1.
  void end_computation(InstructionId root, std::string_view execution_thread);

  // The entry where no computation is marked as such; the last one without a call.
  void set_default_entry(ComputationId id) { default_entry_ = id; }
  // Takes back everything since begin_computation, its name included.
  void abandon_computation();
  // True if a computation of this name has begun.
  bool has_computation(std::string_view name) const { return find_computation(name) != kNone; }
  // Says what is wrong at `where` and changes nothing here (Graph::warnings).
  void warn(std::string_view where, const std::string& message);

  // By name (or private key) among the instructions of the current computation; kNone when there is none (yet).
  InstructionId find(std::string_view name) const;
  const Instruction& at(InstructionId id) const { return graph_.instruction(id); }
  const Graph& graph() const { return graph_; }

  // No ENTRY seen: the last computation is the entry. Resolves called computations and checks that they do not call
  // each other in a circle, and that callers and callees agree on their parameters. Computations are ordered callees
  // first where the input was not. The builder is empty afterwards.
  Graph finish();

  // Throws Error(kData): "source:line:column: message", the line and a caret when `where` points into the adopted
  // text, else "source: in computation 'c': message".
  [[noreturn]] void fail(std::string_view where, const std::string& message, const std::string& hint = "") const;

 private:
  struct ShapeSlot {
    const char* data = nullptr;
    std::uint32_t size = 0;
    ShapeId shape = kNone;
    std::uint64_t hash = 0;
  };
  struct NameSlot {
    std::uint32_t tag = 0;
    std::int32_t id = -1;
  };
  struct PendingCall {
    std::size_t slot;  // in graph_.called_
    std::string_view name;
    InstructionId caller;
  };

  ShapeId parse_shape(std::string_view text);
  ShapeId buffer_shape(ShapeId element);  // "b(f32[2])"
  // Skips blanks and comments.
  const char* skip_space(const char* p, const char* end) const;
  ShapeId array_from_text(std::string_view type_name, std::string_view dims, std::string_view where);
  ShapeId intern(Shape shape, const std::string& text);
  ShapeSlot& shape_slot(std::string_view text, std::uint64_t hash);
  void remember_shape(std::string_view text, std::uint64_t hash, ShapeId id);
  bool insert_name(std::string_view name, InstructionId id);
  void grow_names();
  ComputationId find_computation(std::string_view name) const;
  void insert_computation_name(std::string_view name, ComputationId id);
  void add_called(Instruction* instruction, InstructionId id, Span<const Attribute> attributes);
  void add_called_names(std::string_view value, bool required, int order,
                        std::vector<std::pair<int, std::string_view>>* out) const;
  ShapeId applied_result(Opcode opcode, Span<const Attribute> attributes) const;
  ShapeId infer_shape(const InstructionDraft& draft, Span<const InstructionId> operands,
                      Span<const Attribute> attributes);
  // Attributes without which XLA's parser reads no such instruction.
  void require_attributes(const Instruction& instruction, Span<const InstructionId> operands,
                          Span<const Attribute> attributes) const;
  void require_called(InstructionId id) const;
  void check_instruction(const Instruction& instruction, InstructionId id, Span<const InstructionId> operands,
                         Span<const Attribute> attributes);
  void check_attributes(const Instruction& instruction, Span<const InstructionId> operands,
                        Span<const Attribute> attributes);
  void check_calls();
  void check_call(InstructionId id) const;
  // Runs `check` of an instruction; an Error that it throws is thrown on, or recorded where that was asked for.
  template <typename Check>
  void examine(InstructionId id, const Check& check);
  // The computations, callees first; fails where they call each other in a circle.
  std::vector<ComputationId> callees_first() const;
  void reorder(const std::vector<ComputationId>& order);

  Faults on_fault_;
  ComputationId default_entry_ = kNone;
  Graph graph_;
  std::vector<ShapeSlot> shape_slots_;
  std::size_t num_shape_slots_used_ = 0;
  std::vector<NameSlot> names_;  // of the current computation: older entries count as empty
  std::vector<NameSlot> computation_names_;
  std::vector<PendingCall> pending_calls_;
  std::vector<InstructionId> unnamed_;  // of the current computation, to be named at its end
  bool in_computation_ = false;
  bool has_entry_ = false;
};

// The integers of "{1,0}" (braces optional, spaces allowed); false when it holds anything else.
bool parse_integers(std::string_view text, std::vector<std::int64_t>* out);

}  // namespace automap::graph
