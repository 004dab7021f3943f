// Compares two graphs as modules, however they were written: computations and instructions are matched by name, their
// order does not count; blanks, comments and '%' in attribute values do not count either.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "common/graph/graph.h"

namespace automap::graph {

// Raw attribute text without blanks, comments and sigils outside strings.
inline std::string plain(std::string_view raw) {
  std::string out;
  bool in_string = false;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    const char c = raw[i];
    if (in_string) {
      out.push_back(c);
      if (c == '\\' && i + 1 < raw.size()) out.push_back(raw[++i]);
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '/' && raw.substr(i, 2) == "/*") {
      i = raw.find("*/", i) + 1;
      continue;
    }
    if (c == ' ' || c == '\n' || c == '%') continue;
    in_string = c == '"';
    out.push_back(c);
  }
  return out;
}

// "" when equal, else one line about the first difference. The payloads of instructions named in `except` may differ.
inline std::string difference(const Graph& a, const Graph& b, const std::set<std::string>& except = {}) {
  const auto differ = [](const std::string& what, std::string_view x, std::string_view y) {
    return what + ": '" + std::string(x) + "' and '" + std::string(y) + "'";
  };
  const auto count = [&](const std::string& what, std::int64_t x, std::int64_t y) {
    return differ(what, std::to_string(x), std::to_string(y));
  };
  if (a.name() != b.name()) return differ("module", a.name(), b.name());
  if (a.num_computations() != b.num_computations()) {
    return count("computations", a.num_computations(), b.num_computations());
  }
  if (a.stack_tables() != b.stack_tables()) return differ("stack tables", a.stack_tables(), b.stack_tables());
  const auto header = [](const Graph& g) {
    std::map<std::string, std::string> out;
    for (const Attribute& x : g.header()) out[std::string(x.key)] = plain(x.value);
    return out;
  };
  if (header(a) != header(b)) {
    for (const auto& [key, value] : header(a)) {
      if (header(b)[key] != value) return differ("header " + key, value, header(b)[key]);
    }
    return "more header attributes in the second";
  }
  std::map<std::string_view, ComputationId> by_name;
  for (ComputationId c = 0; c < b.num_computations(); ++c) by_name[b.computation(c).name] = c;
  if (a.entry().name != b.entry().name) return differ("entry", a.entry().name, b.entry().name);
  for (ComputationId c = 0; c < a.num_computations(); ++c) {
    const Computation& x = a.computation(c);
    if (by_name.count(x.name) == 0) return "no computation " + std::string(x.name);
    const Computation& y = b.computation(by_name[x.name]);
    const std::string in = std::string(x.name) + "/";
    if (x.count != y.count) return count(in + " instructions", x.count, y.count);
    if (x.execution_thread != y.execution_thread) return differ(in, x.execution_thread, y.execution_thread);
    if (a.instruction(x.root).name != b.instruction(y.root).name) {
      return differ(in + " root", a.instruction(x.root).name, b.instruction(y.root).name);
    }
    std::map<std::string_view, InstructionId> instructions;
    for (InstructionId id = y.first; id < y.first + y.count; ++id) instructions[b.instruction(id).name] = id;
    for (InstructionId id = x.first; id < x.first + x.count; ++id) {
      const Instruction& i = a.instruction(id);
      const std::string at = in + std::string(i.name);
      if (instructions.count(i.name) == 0) return "no instruction " + at;
      const InstructionId other = instructions[i.name];
      const Instruction& j = b.instruction(other);
      if (i.opcode != j.opcode || i.opcode_name != j.opcode_name) return differ(at, i.opcode_name, j.opcode_name);
      if (a.shape_of(id).text != b.shape_of(other).text) {
        return differ(at + " shape", a.shape_of(id).text, b.shape_of(other).text);
      }
      if (plain(i.layout) != plain(j.layout)) return differ(at + " layout", i.layout, j.layout);
      if (except.count(std::string(i.name)) == 0 && plain(i.payload) != plain(j.payload))
        return differ(at + " payload", i.payload, j.payload);
      if (i.number != j.number) return count(at + " number", i.number, j.number);
      if (a.operands(id).size() != b.operands(other).size()) return at + " has another number of operands";
      for (std::size_t k = 0; k < a.operands(id).size(); ++k) {
        const std::string_view p = a.instruction(a.operands(id)[k]).name;
        const std::string_view q = b.instruction(b.operands(other)[k]).name;
        if (p != q) return differ(at + " operand", p, q);
      }
      if (a.called(id).size() != b.called(other).size()) return at + " calls another number of computations";
      for (std::size_t k = 0; k < a.called(id).size(); ++k) {
        const std::string_view p = a.computation(a.called(id)[k]).name;
        const std::string_view q = b.computation(b.called(other)[k]).name;
        if (p != q) return differ(at + " calls", p, q);
      }
      std::map<std::string, std::string> p, q;
      for (const Attribute& t : a.attributes(id)) p[std::string(t.key)] = plain(t.value);
      for (const Attribute& t : b.attributes(other)) q[std::string(t.key)] = plain(t.value);
      for (const auto& [key, value] : p) {
        if (q.count(key) == 0) return at + " has no " + key + " in the second";
        if (q[key] != value) return differ(at + " " + key, value, q[key]);
      }
      for (const auto& [key, value] : q) {
        if (p.count(key) == 0) return at + " has no " + key + " in the first, " + value + " in the second";
      }
    }
  }
  return "";
}

}  // namespace automap::graph
