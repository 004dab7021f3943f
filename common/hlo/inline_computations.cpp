#include "common/hlo/inline_computations.h"

#include "common/graph/scan.h"

namespace automap::hlo {
namespace {

namespace scan = graph::scan;

const char* past_space(const char* p, const char* end) {
  for (;;) {
    p = scan::skip_class(scan::kSpace, p, end);
    const char* const next = p < end && *p == '/' ? scan::skip_comment(p, end) : p;
    if (next == nullptr || next == p) return p;
    p = next;
  }
}

enum class Holds { kNothing, kOne, kList };

Holds what_it_holds(std::string_view key) {
  if (key == "branch_computations" || key == "called_computations") return Holds::kList;
  for (const std::string_view one :
       {"to_apply", "calls", "condition", "body", "true_computation", "false_computation", "select", "scatter"}) {
    if (key == one) return Holds::kOne;
  }
  return Holds::kNothing;
}

// "[ROOT] name =": how a computation goes on behind its '{', and no list of names does.
bool starts_instruction(const char* p, const char* end) {
  p = past_space(p, end);
  for (int word = 0; word < 2; ++word) {
    if (p < end && *p == '%') ++p;
    const char* const after = scan::skip_class(scan::kIdentifier, p, end);
    if (after == p) return false;
    const std::string_view name(p, static_cast<std::size_t>(after - p));
    p = past_space(after < end && *after == ':' ? after + 1 : after, end);
    if (p < end && *p == '=') return true;
    if (name != "ROOT") return false;
  }
  return false;
}

// The key before the '=' before `brace`; empty when there is none.
std::string_view key_before(const char* brace, const char* begin) {
  const auto back = [&](const char* p) {
    while (p > begin && scan::is(scan::kSpace, p[-1])) --p;
    return p;
  };
  const char* p = back(brace);
  if (p == begin || p[-1] != '=') return {};
  const char* const key_end = back(p - 1);
  const char* key = key_end;
  while (key > begin && scan::is(scan::kIdentifier, key[-1])) --key;
  return {key, static_cast<std::size_t>(key_end - key)};
}

}  // namespace

bool InlineComputations::holds(const graph::Attribute& attribute) {
  const Holds holds = what_it_holds(attribute.key);
  const std::string_view value = attribute.value;
  if (holds == Holds::kNothing || value.substr(0, 1) != "{") return false;
  const char* const end = value.data() + value.size();
  if (holds == Holds::kOne) return starts_instruction(value.data() + 1, end);
  return value.find('{', 1) != std::string_view::npos;
}

std::vector<const char*> InlineComputations::find(const char* begin, const char* end) {
  std::vector<const char*> found;
  std::vector<Holds> open = {Holds::kOne};  // what each '{' that is open holds: instructions, or a list of computations
  for (const char* p = begin; p != nullptr && p < end;) {
    switch (*p) {
      case '"':
      case '\'': p = scan::skip_string(p, end); break;
      case '(': p = scan::skip_balanced<'(', ')'>(p, end); break;
      case '/': {
        const char* const next = scan::skip_comment(p, end);
        p = next == p ? p + 1 : next;
        break;
      }
      case '{': {
        const Holds holds = open.back() == Holds::kList ? Holds::kOne : what_it_holds(key_before(p, begin));
        if (holds == Holds::kOne && (open.back() == Holds::kList || starts_instruction(p + 1, end))) found.push_back(p);
        if (holds == Holds::kList || (!found.empty() && found.back() == p)) {
          open.push_back(holds);
          ++p;
        } else {
          p = scan::skip_balanced<'{', '}'>(p, end);
        }
        break;
      }
      case '}':
        open.pop_back();
        if (open.empty()) return found;
        ++p;
        break;
      default: ++p;
    }
  }
  return found;
}

std::string_view InlineComputations::name_of(const char* brace) const {
  const auto it = names_.find(brace);
  return it == names_.end() ? std::string_view() : it->second;
}

std::optional<std::string> InlineComputations::named(std::string_view value) const {
  const char* p = value.data();
  const char* const end = p + value.size();
  if (starts_instruction(p + 1, end)) {
    const std::string_view one = name_of(p);
    return one.empty() ? std::nullopt : std::optional<std::string>(one);
  }
  std::string list = "{";
  for (++p; p != nullptr && p < end;) {
    p = past_space(p, end);
    if (p == end) break;
    if (*p != '{') {
      list.push_back(*p++);
      continue;
    }
    const std::string_view name = name_of(p);
    if (name.empty()) return std::nullopt;
    list += name;
    p = scan::skip_balanced<'{', '}'>(p, end);
  }
  return list;
}

}  // namespace automap::hlo
