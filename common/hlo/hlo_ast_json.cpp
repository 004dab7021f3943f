#include "common/hlo/hlo_ast_json.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/base/printable.h"
#include "common/graph/graph_builder.h"
#include "common/graph/scan.h"
#include "common/hlo/json_cursor.h"

namespace automap::hlo {

using namespace graph;

namespace {

using Kind = JsonCursor::Kind;

constexpr int kMaxNesting = 64;

struct TypeText {
  std::string shape;   // "f32[2,3]"
  std::string layout;  // "{1,0}"; of a tuple: the full text, when any layout is in it
  std::string full;    // "f32[2,3]{1,0}"
  bool given = false;
};

struct MetaText {
  std::string key, value;
};

struct AstArgument {
  std::string value;  // as HLO text: "%x", "0", "{...}"
};

struct AstInstruction {
  std::string name, opcode;
  TypeText type;
  std::vector<AstArgument> arguments;
  std::vector<MetaText> meta;
};

struct AstParameter {
  std::string name;
  TypeText type;
};

struct AstFunction {
  std::string name;
  std::vector<AstParameter> parameters;
  TypeText return_type;
  std::vector<AstInstruction> body;
};

std::string without_sigil(std::string_view name) {
  if (!name.empty() && name.front() == '%') name.remove_prefix(1);
  std::string out(name);
  for (char& c : out) {
    if (!scan::is(scan::kIdentifier, c)) c = '_';
  }
  return out;
}

// Keys whose value is a string in HLO text; the form may hold it with or without its quotes.
bool is_string_key(std::string_view key) {
  for (const std::string_view k : {"op_type", "op_name", "source_file", "custom_call_target", "backend_config",
                                   "infeed_config", "outfeed_config", "deduplicated_name", "scheduling_name"}) {
    if (k == key) return true;
  }
  return false;
}

bool names_computations(std::string_view key) {
  for (const std::string_view k : {"to_apply", "calls", "condition", "body", "branch_computations", "true_computation",
                                   "false_computation", "called_computations", "select", "scatter"}) {
    if (k == key) return true;
  }
  return false;
}

// True if HLO text can hold this as one value: a bare word such as 3x3 or %add, a string, or balanced braces.
bool is_value(std::string_view s) {
  if (s.empty()) return false;
  const char* const begin = s.data();
  const char* const end = begin + s.size();
  if (s.front() == '{') return scan::skip_balanced<'{', '}'>(begin, end) == end;
  if (s.front() == '"') return scan::skip_string(begin, end) == end;
  for (const char c : s) {
    if (!scan::is(scan::kIdentifier, c) && std::string_view("%:+<>=?*[]").find(c) == std::string_view::npos)
      return false;
  }
  return true;
}

std::string with_quotes(const std::string& value) {
  if (!value.empty() && (value.front() == '"' || value.front() == '{') && is_value(value)) return value;
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') out.push_back('\\');
    if (c == '\n') {
      out += "\\n";
    } else {
      out.push_back(c);
    }
  }
  return out + "\"";
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& source, std::deque<std::string>* arena)
      : json_(text, source, arena) {}

  std::vector<AstFunction> functions() {
    std::vector<AstFunction> all;
    object([&](std::string_view key) {
      if (key == "Functions" || key == "functions") {
        array([&] { all.push_back(function()); });
      } else {
        json_.skip();
      }
    });
    json_.end_document();
    return all;
  }

 private:
  // Calls `member` for every key of an object; null counts as an empty one.
  template <typename F>
  void object(const F& member) {
    if (json_.peek() == Kind::kNull) return json_.null();
    std::string_view key;
    for (json_.enter_object(); json_.next_key(&key);) member(key);
  }
  template <typename F>
  void array(const F& element) {
    if (json_.peek() == Kind::kNull) return json_.null();
    for (json_.enter_array(); json_.next_element();) element();
  }
  std::string text() {
    if (json_.peek() == Kind::kNull) {
      json_.null();
      return {};
    }
    return std::string(json_.string());
  }

  AstFunction function() {
    AstFunction f;
    object([&](std::string_view key) {
      if (key == "Name") {
        f.name = text();
      } else if (key == "Params") {
        array([&] {
          AstParameter p;
          object([&](std::string_view k) {
            if (k == "Name") {
              p.name = text();
            } else if (k == "Type") {
              p.type = type(0);
            } else {
              json_.skip();
            }
          });
          f.parameters.push_back(std::move(p));
        });
      } else if (key == "ReturnType") {
        f.return_type = type(0);
      } else if (key == "Body") {
        array([&] { f.body.push_back(instruction()); });
      } else {
        json_.skip();
      }
    });
    return f;
  }

  AstInstruction instruction() {
    AstInstruction i;
    const std::size_t at = json_.position();
    object([&](std::string_view key) {
      if (key == "VarName") {
        i.name = text();
      } else if (key == "Fn") {
        object([&](std::string_view k) {
          if (k == "ReturnType") {
            i.type = type(0);
          } else if (k == "Name") {
            i.opcode = text();
          } else if (k == "Argument") {
            array([&] { i.arguments.push_back(argument()); });
          } else {
            json_.skip();
          }
        });
      } else if (key == "Meta") {
        array([&] {
          MetaText m = pair(0);
          if (m.key.empty()) json_.fail_at(json_.position(), "an attribute without a \"Key\" ends here");
          i.meta.push_back(std::move(m));
        });
      } else {
        json_.skip();
      }
    });
    if (i.opcode.empty()) json_.fail_at(at, "an instruction without an opcode: expected \"Fn\" with a \"Name\"");
    return i;
  }

  AstArgument argument() {
    AstArgument a;
    object([&](std::string_view key) {
      if (key == "Value") {
        a.value = value(0);
      } else if (key == "Name") {
        a.value = text();
      } else {
        json_.skip();  // the type is the operand's own
      }
    });
    return a;
  }

  // {"Key": ..., "Value": ...}
  MetaText pair(int depth) {
    MetaText m;
    object([&](std::string_view key) {
      if (key == "Key") {
        m.key = text();
      } else if (key == "Value") {
        m.value = value(depth);
      } else {
        json_.skip();
      }
    });
    if (is_string_key(m.key)) m.value = with_quotes(m.value);
    return m;
  }

  // The HLO text of a VALUE.
  std::string value(int depth) {
    if (depth > kMaxNesting) json_.fail_at(json_.position(), "values nested more than 64 levels deep");
    std::optional<std::string> out;
    const auto join = [](std::string* list, const std::string& item, std::string_view separator) {
      if (list->size() > 1) *list += separator;
      *list += item;
    };
    object([&](std::string_view key) {
      if (json_.peek() == Kind::kNull) return json_.null();
      std::string list = "{";
      if (key == "Integer" || key == "Number" || key == "Float" || key == "Scientific") {
        out = scalar();
      } else if (key == "String" || key == "Misc") {
        out = text();
      } else if (key == "Integers" || key == "Numbers" || key == "Floats") {
        array([&] { join(&list, scalar(), ","); });
        out = list + "}";
      } else if (key == "Boolean") {
        out = json_.boolean() ? "{true}" : "{false}";
      } else if (key == "Dicts") {
        array([&] {
          const MetaText m = pair(depth + 1);
          join(&list, m.key + "=" + m.value, " ");
        });
        out = list + "}";
      } else if (key == "Slices") {
        array([&] {
          std::string start = "0", end = "0";
          object([&](std::string_view k) {
            if (k == "Start") {
              start = scalar();
            } else if (k == "End") {
              end = scalar();
            } else {
              json_.skip();
            }
          });
          join(&list, "[" + start + ":" + end + "]", ", ");
        });
        out = list + "}";
      } else if (key == "Types") {
        array([&] { join(&list, type(depth + 1).full, ", "); });
        out = list + "}";
      } else if (key == "Collection") {
        array([&] { join(&list, value(depth + 1), ","); });
        out = list + "}";
      } else {
        json_.skip();
      }
    });
    return out.value_or("{}");
  }

  // A number, or text that holds one ("1e-05", "inf").
  std::string scalar() {
    if (json_.peek() == Kind::kString) return text();
    return std::string(json_.number());
  }

  TypeText type(int depth) {
    if (depth > kMaxNesting) json_.fail_at(json_.position(), "tuple types nested more than 64 levels deep");
    TypeText t;
    const std::size_t at = json_.position();
    std::string name, dims, layout;
    bool tuple = false, has_layout = false;
    std::vector<TypeText> elements;
    object([&](std::string_view key) {
      if (json_.peek() == Kind::kNull) return json_.null();
      if (key == "DataType") {
        name = text();
      } else if (key == "Dimensions" || key == "Layout") {
        std::string& list = key == "Layout" ? layout : dims;
        array([&] {
          if (!list.empty()) list.push_back(',');
          list += scalar();
        });
        has_layout = has_layout || (key == "Layout" && !layout.empty());
      } else if (key == "TupleType") {
        tuple = true;
        array([&] { elements.push_back(type(depth + 1)); });
      } else {
        json_.skip();
      }
    });
    if (name.empty() && !tuple) return t;
    t.given = true;
    if (!name.empty()) {
      for (const char c : name) {
        if (!scan::is(scan::kIdentifier, c)) json_.fail_at(at, "the data type '" + excerpt(name, 40) + "' is no name");
      }
      t.shape = name + "[" + dims + "]";
      if (has_layout) t.layout = "{" + layout + "}";
      t.full = t.shape + t.layout;
      return t;
    }
    t.shape = t.full = "(";
    for (const TypeText& e : elements) {
      if (t.shape.size() > 1) {
        t.shape += ", ";
        t.full += ", ";
      }
      t.shape += e.shape;
      t.full += e.full;
    }
    t.shape += ")";
    t.full += ")";
    if (t.full.find('{') != std::string::npos) t.layout = t.full;
    return t;
  }

  JsonCursor json_;
};

class AstConverter {
 public:
  AstConverter(const std::string& source, graph::Faults faults) : builder_(source, faults) {}

  Graph run(std::vector<AstFunction> functions) {
    if (functions.empty()) builder_.fail({}, "\"Functions\" is empty: no computations");
    const std::size_t entry = find_entry(functions);
    builder_.set_module_name(builder_.keep(without_sigil(functions[entry].name)));
    for (std::size_t f = 0; f < functions.size(); ++f) {
      function(functions[f], f == entry);
      functions[f].body = std::vector<AstInstruction>();
    }
    return builder_.finish();
  }

 private:
  static std::size_t find_entry(const std::vector<AstFunction>& functions) {
    std::unordered_set<std::string> called;
    for (const AstFunction& f : functions) {
      for (const AstInstruction& i : f.body) {
        for (const MetaText& m : i.meta) {
          if (!names_computations(m.key)) continue;
          // "%a" or "{%a,%b}"
          for (std::size_t at = 0; at < m.value.size();) {
            if (!scan::is(scan::kIdentifier, m.value[at])) {
              ++at;
              continue;
            }
            const std::size_t begin = at;
            while (at < m.value.size() && scan::is(scan::kIdentifier, m.value[at])) ++at;
            called.insert(m.value.substr(begin, at - begin));
          }
        }
      }
    }
    for (std::size_t f = functions.size(); f-- > 0;) {
      if (called.count(without_sigil(functions[f].name)) == 0) return f;
    }
    return functions.size() - 1;
  }

  void function(const AstFunction& f, bool is_entry) {
    const std::string name = without_sigil(f.name);
    if (name.empty()) builder_.fail({}, "a function without a \"Name\"");
    builder_.begin_computation(builder_.keep(name), is_entry);
    bool has_parameters = false;
    for (const AstInstruction& i : f.body) has_parameters = has_parameters || i.opcode == "parameter";
    std::vector<InstructionId> ids;
    if (!has_parameters) {
      for (std::size_t p = 0; p < f.parameters.size(); ++p) {
        AstInstruction i;
        i.name = f.parameters[p].name;
        i.opcode = "parameter";
        i.type = f.parameters[p].type;
        i.arguments.push_back({std::to_string(p)});
        ids.push_back(instruction(i));
      }
    }
    for (const AstInstruction& i : f.body) ids.push_back(instruction(i));
    builder_.end_computation(root(f, ids), "");
  }

  // The form does not mark the root; in text it is nearly always the last instruction.
  InstructionId root(const AstFunction& f, const std::vector<InstructionId>& ids) {
    if (ids.empty()) return kNone;
    if (!f.return_type.given) return ids.back();
    const ShapeId wanted = builder_.shape(f.return_type.shape);
    if (builder_.at(ids.back()).shape == wanted) return ids.back();
    std::unordered_set<InstructionId> used;
    for (const InstructionId id : ids) {
      for (const InstructionId operand : builder_.graph().operands(id)) used.insert(operand);
    }
    for (std::size_t k = ids.size(); k-- > 0;) {
      if (builder_.at(ids[k]).shape == wanted && used.count(ids[k]) == 0) return ids[k];
    }
    builder_.fail({}, "no unused instruction has the return type " + f.return_type.shape + " of the function");
  }

  InstructionId instruction(const AstInstruction& i) {
    InstructionDraft draft;
    draft.name = builder_.keep(without_sigil(i.name));
    draft.opcode_name = builder_.keep(without_sigil(i.opcode));
    draft.opcode = parse_opcode(draft.opcode_name);
    if (i.type.given) {
      draft.shape = builder_.shape(i.type.shape);
      draft.layout = builder_.keep(i.type.layout);
    }
    std::vector<InstructionId> operands;
    if (draft.opcode == Opcode::kParameter) {
      const std::string number = i.arguments.size() == 1 ? i.arguments[0].value : "";
      const char* const end = number.data() + number.size();
      const auto parsed = std::from_chars(number.data(), end, draft.number);
      if (number.empty() || parsed.ec != std::errc() || parsed.ptr != end || draft.number < 0) {
        builder_.fail({}, "parameter '" + excerpt(i.name, 80) + "' has no valid number");
      }
    } else if (draft.opcode == Opcode::kConstant) {
      std::string payload;
      for (const AstArgument& a : i.arguments) payload += (payload.empty() ? "" : ", ") + a.value;
      const bool empty =
          builder_.shape_at(draft.shape == kNone ? builder_.shape("f32[]") : draft.shape).num_elements == 0;
      if (payload.empty() || (payload == "{}" && !empty)) payload = "{...}";
      if (!is_value(payload)) payload = "{...}";  // a value that the form could not hold
      draft.payload = builder_.keep(payload);
    } else {
      for (const AstArgument& a : i.arguments) {
        const InstructionId operand = a.value.empty() ? kNone : builder_.find(without_sigil(a.value));
        if (operand == kNone) {
          builder_.fail({}, "instruction '" + excerpt(i.name, 80) + "' reads '" + excerpt(a.value, 80) +
                                "', which is not defined before it");
        }
        operands.push_back(operand);
      }
    }
    std::vector<Attribute> attributes;
    for (const MetaText& m : i.meta) {
      attributes.push_back(
          {builder_.keep(without_sigil(m.key)), builder_.keep(is_value(m.value) ? m.value : with_quotes(m.value))});
    }
    return builder_.add(draft, operands, attributes);
  }

  GraphBuilder builder_;
};

}  // namespace

Graph read_ast_json(std::string_view text, const std::string& source, graph::Faults faults) {
  std::deque<std::string> arena;
  std::vector<AstFunction> functions = Parser(text, source, &arena).functions();
  return AstConverter(source, faults).run(std::move(functions));
}

}  // namespace automap::hlo
