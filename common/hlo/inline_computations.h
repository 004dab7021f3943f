// Reads computations that stand inside an attribute: to_apply={ a = f32[] parameter(0) ... },
// branch_computations={{...}, f}. The graph knows named computations only: the reader makes one of each before the
// instruction that calls it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/graph/graph.h"

namespace automap::hlo {

class InlineComputations {
 public:
  // True if an attribute of this key and raw value holds at least one of them.
  static bool holds(const graph::Attribute& attribute);
  // The '{' of every one between `begin` (behind the '{' of a computation) and that computation's end, in order, those
  // within others included. Linear; stops at whatever is not closed: the reader says so.
  static std::vector<const char*> find(const char* begin, const char* end);

  // The name that was given to the one that opens at `brace`; empty while it has none.
  std::string_view name_of(const char* brace) const;
  void give_name(const char* brace, std::string_view name) { names_[brace] = name; }
  // The raw value with each of them replaced by its name; nullopt while one has none.
  std::optional<std::string> named(std::string_view value) const;

 private:
  std::unordered_map<const char*, std::string_view> names_;
};

}  // namespace automap::hlo
