#include "common/graph/shape.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace automap::graph {
namespace {

struct NamedType {
  std::string_view name;
  ElementType type;
  int bits;
};

constexpr std::array<NamedType, 26> kTypes = {{
    {"f32", ElementType::kF32, 32},    {"bf16", ElementType::kBf16, 16},    {"s32", ElementType::kS32, 32},
    {"pred", ElementType::kPred, 8},   {"u32", ElementType::kU32, 32},      {"f16", ElementType::kF16, 16},
    {"f64", ElementType::kF64, 64},    {"s64", ElementType::kS64, 64},      {"u64", ElementType::kU64, 64},
    {"s8", ElementType::kS8, 8},       {"u8", ElementType::kU8, 8},         {"s16", ElementType::kS16, 16},
    {"u16", ElementType::kU16, 16},    {"s4", ElementType::kS4, 4},         {"u4", ElementType::kU4, 4},
    {"s2", ElementType::kS2, 2},       {"u2", ElementType::kU2, 2},         {"s1", ElementType::kS1, 1},
    {"u1", ElementType::kU1, 1},       {"c64", ElementType::kC64, 64},      {"c128", ElementType::kC128, 128},
    {"token", ElementType::kToken, 0}, {"opaque", ElementType::kOpaque, 0}, {"f4e2m1fn", ElementType::kF4, 4},
    {"f6e2m3fn", ElementType::kF6, 6}, {"f6e3m2fn", ElementType::kF6, 6},
}};

bool starts_with(std::string_view s, std::string_view prefix) {
  return s.substr(0, prefix.size()) == prefix;
}

int digits_in(std::string_view name) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t i = 0;
  while (i < name.size() && !digit(name[i])) ++i;
  int bits = 0;
  for (; i < name.size() && digit(name[i]) && bits < 1000; ++i) bits = bits * 10 + (name[i] - '0');
  // No machine type is wider than a kilobit: such digits mean something else.
  return bits >= 1 && bits <= 1024 ? bits : 32;
}

}  // namespace

ElementTypeInfo element_type_info(std::string_view name) {
  for (const NamedType& t : kTypes) {
    if (t.name == name) return {t.type, t.bits};
  }
  if (starts_with(name, "f8e")) return {ElementType::kF8, 8};
  if (starts_with(name, "f4e")) return {ElementType::kF4, 4};
  if (starts_with(name, "f6e")) return {ElementType::kF6, 6};
  return {ElementType::kUnknown, digits_in(name)};
}

std::string_view element_type_name(ElementType type) {
  if (type == ElementType::kF6) return "";
  for (const NamedType& t : kTypes) {
    if (t.type == type) return t.name;
  }
  return "";
}

bool same_dimensions(const Graph& graph, ShapeId a, ShapeId b) {
  std::vector<std::pair<ShapeId, ShapeId>> todo;
  const auto differ = [&](ShapeId x, ShapeId y) {
    if (x == y) return false;
    const Shape& p = graph.shape(x);
    const Shape& q = graph.shape(y);
    if (p.is_tuple() != q.is_tuple() || p.is_array() != q.is_array()) return true;
    if (p.is_tuple()) {
      if (p.elements.size() != q.elements.size()) return true;
      for (std::size_t i = 0; i < p.elements.size(); ++i) {
        if (p.elements[i] != q.elements[i]) todo.emplace_back(p.elements[i], q.elements[i]);
      }
      return false;
    }
    if (!p.is_array()) return false;
    if (p.dynamic || q.dynamic) return p.dims.size() != q.dims.size();
    return p.dims != q.dims;
  };
  if (differ(a, b)) return false;
  while (!todo.empty()) {
    const auto [x, y] = todo.back();
    todo.pop_back();
    if (differ(x, y)) return false;
  }
  return true;
}

}  // namespace automap::graph
