// The lines that hlo::WriteOptions adds to a module: annotations on operands, the conversions into and out of parts
// that are partitioned by hand, and the additions that its all-reduces use.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
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
  // The lines behind an instruction; empty: none.
  std::vector<std::string> behind(graph::InstructionId id);
  // In front of the first computation: those that behind() refers to.
  std::string computations();

 private:
  std::string new_name(std::string_view base, const char* kind);
  std::string sum_name(graph::InstructionId id);
  // The operand, which is called `name`, through one annotation after the other.
  std::string annotate(graph::InstructionId operand, std::string name, const std::vector<std::string>& shardings,
                       std::vector<std::string>* lines);
  std::string share_of(graph::InstructionId operand, const std::string& part, const LocalOperand& local,
                       std::vector<std::string>* lines);
  std::string adder(const graph::Shape& shape);
  bool is_summed(graph::InstructionId id) const;

  const graph::Graph& graph_;
  const WriteOptions& options_;
  std::set<std::string, std::less<>> names_;
  std::map<graph::InstructionId, std::string> sums_;        // names of what is summed
  std::map<std::string, std::string, std::less<>> adders_;  // element type -> name of the computation
  // (Operand's name, sharding) -> name of the annotated operand. Readers share the annotation, so that XLA, which moves
  // a tensor once for all that read it alike, sees one tensor. (Names are unique in a module, and lines in order.)
  std::map<std::pair<std::string, std::string>, std::string> between_;
  int channels_ = 0;
};

}  // namespace automap::hlo
