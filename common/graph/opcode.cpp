#include "common/graph/opcode.h"

#include <array>
#include <cstddef>

namespace automap::graph {
namespace {

constexpr std::size_t kSlots = 1024;  // a power of two, some seven times the opcodes: probes end at once

constexpr std::uint32_t spelling_hash(std::string_view s) {
  // First, middle and last characters and the length tell all opcodes apart well enough.
  if (s.empty()) return 0;
  const auto at = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(s[i])); };
  std::uint32_t h = static_cast<std::uint32_t>(s.size()) * 0x9e3779b1u;
  h = (h ^ at(0)) * 0x85ebca6bu;
  h = (h ^ at(s.size() / 2)) * 0xc2b2ae35u;
  h = (h ^ at(s.size() - 1)) * 0x27d4eb2fu;
  h = (h ^ at(s.size() / 3)) * 0x165667b1u;
  return (h ^ (h >> 15)) & (kSlots - 1);
}

constexpr std::array<std::uint8_t, kSlots> make_table() {
  std::array<std::uint8_t, kSlots> table{};
  for (int i = 1; i < kNumOpcodes; ++i) {
    std::uint32_t slot = spelling_hash(opcode_name(static_cast<Opcode>(i)));
    while (table[slot] != 0) slot = (slot + 1) & (kSlots - 1);
    table[slot] = static_cast<std::uint8_t>(i);
  }
  return table;
}

static_assert(kNumOpcodes < 256, "Opcode and the table hold an opcode in one byte");
constexpr std::array<std::uint8_t, kSlots> kTable = make_table();

Opcode exact_opcode(std::string_view spelling) {
  for (std::uint32_t slot = spelling_hash(spelling); kTable[slot] != 0; slot = (slot + 1) & (kSlots - 1)) {
    const auto opcode = static_cast<Opcode>(kTable[slot]);
    if (opcode_name(opcode) == spelling) return opcode;
  }
  return Opcode::kUnknown;
}

bool strip_suffix(std::string_view* s, std::string_view suffix) {
  if (s->size() <= suffix.size() || s->substr(s->size() - suffix.size()) != suffix) return false;
  s->remove_suffix(suffix.size());
  return true;
}

}  // namespace

Opcode parse_opcode(std::string_view spelling) {
  const Opcode exact = exact_opcode(spelling);
  if (exact != Opcode::kUnknown) return exact;
  Opcode sugar = Opcode::kUnknown;
  if (strip_suffix(&spelling, "-start")) {
    sugar = Opcode::kAsyncStart;
  } else if (strip_suffix(&spelling, "-update")) {
    sugar = Opcode::kAsyncUpdate;
  } else if (strip_suffix(&spelling, "-done")) {
    sugar = Opcode::kAsyncDone;
  } else {
    return Opcode::kUnknown;
  }
  return exact_opcode(spelling) == Opcode::kUnknown ? Opcode::kUnknown : sugar;
}

}  // namespace automap::graph
