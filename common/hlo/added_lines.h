// The lines that hlo::WriteOptions adds to a module: annotations that operands are read through, the way into and out
// of what is partitioned by hand, and the additions that its all-reduces use.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/graph/graph.h"
#include "common/hlo/hlo_writer.h"

namespace automap::hlo {

class AddedLines {
 public:
  // Both must stay alive.
  AddedLines(const graph::Graph& graph, const WriteOptions& options);

  // An operand under another name.
  struct Renamed {
    std::string name;
    bool other_shape = false;
  };
  // By number, the operands that an instruction reads under another name; the lines that make them are added to
  // `lines`.
  std::map<std::size_t, Renamed> before(graph::InstructionId id, std::vector<std::string>* lines);
  // Behind an instruction; empty: none.
  std::vector<std::string> behind(graph::InstructionId id);
  // In front of the first computation: those that behind() refers to.
  std::string computations();

 private:
  std::string new_name(std::string_view base, const char* kind);
  std::string sum_name(graph::InstructionId id);
  std::string share_of(graph::InstructionId operand, const std::string& part, const LocalOperand& local,
                       std::vector<std::string>* lines);
  std::string adder(const graph::Shape& shape);
  std::string shape_text(graph::InstructionId id) const;
  bool is_summed(graph::InstructionId id) const;

  const graph::Graph& graph_;
  const WriteOptions& options_;
  std::set<std::string, std::less<>> names_;
  std::map<graph::InstructionId, std::string> sums_;        // names of what is summed
  std::map<std::string, std::string, std::less<>> adders_;  // element type -> name of the computation
  int channels_ = 0;
};

}  // namespace automap::hlo
