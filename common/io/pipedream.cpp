#include "common/io/pipedream.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <unordered_map>
#include <vector>

#include "common/base/error.h"
#include "common/base/printable.h"
#include "common/io/file_errors.h"

namespace automap::io {
namespace {

constexpr std::string_view kSeparator = " -- ";
constexpr std::string_view kFieldsStart = "forward_compute_time=";

struct Node {
  std::string_view id, description;
  double forward_ms = 0, backward_ms = 0, activation_bytes = 0, parameter_bytes = 0;
  std::vector<std::int32_t> inputs, outputs;
};

struct Edge {
  std::string_view from, to;
  std::size_t line = 0;
};

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  pipeline::Profile run() {
    read_lines();
    connect();
    leave_out();
    return profile(order());
  }

 private:
  [[noreturn]] void fail(std::size_t line, const std::string& what) const {
    throw Error(ErrorKind::kData, source_ + ":" + std::to_string(line) + ": " + what,
                "docs/formats/profile.md describes PipeDream's graph.txt");
  }

  double number(std::string_view text, std::string_view field, std::size_t line) const {
    text = trim(text);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value < 0) {
      fail(line, std::string(field) + ": found " + shown(text) + ", expected a finite number of at least 0");
    }
    return value;
  }

  // "12", "[1; 2; 3]" -> their sum.
  double size(std::string_view text, std::string_view field, std::size_t line) const {
    text = trim(text);
    if (text.empty() || text.front() != '[') return number(text, field, line);
    if (text.back() != ']') fail(line, std::string(field) + ": found " + shown(text) + ", expected a closing ]");
    text = text.substr(1, text.size() - 2);
    double sum = 0;
    while (!trim(text).empty()) {
      const auto end = text.find(';');
      sum += number(text.substr(0, end), field, line);
      text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    }
    return sum;
  }

  void read_fields(std::string_view text, Node& node, std::size_t line) const {
    struct Field {
      std::string_view key;
      double* value;
      bool seen = false;
    } fields[] = {{"forward_compute_time", &node.forward_ms},
                  {"backward_compute_time", &node.backward_ms},
                  {"activation_size", &node.activation_bytes},
                  {"parameter_size", &node.parameter_bytes}};
    while (!trim(text).empty()) {
      auto end = text.find(',');
      const auto bracket = text.find('[');
      if (bracket < end) end = text.find(',', text.find(']', bracket));
      const std::string_view part = trim(text.substr(0, end));
      text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
      const auto equals = part.find('=');
      const std::string_view key = trim(part.substr(0, equals));
      Field* field = std::find_if(std::begin(fields), std::end(fields), [&](const Field& f) { return f.key == key; });
      if (field == std::end(fields) || equals == std::string_view::npos) {
        fail(line,
             "found " + shown(part) +
                 ", expected forward_compute_time, backward_compute_time, activation_size or parameter_size = ...");
      }
      if (field->seen) fail(line, std::string(key) + " is given twice");
      field->seen = true;
      *field->value = size(part.substr(equals + 1), key, line);
    }
    for (const Field& field : fields) {
      if (!field.seen) fail(line, "node " + std::string(node.id) + " has no " + std::string(field.key));
    }
  }

  void read_lines() {
    std::size_t line = 0;
    for (std::string_view rest = text_; !rest.empty();) {
      ++line;
      const auto end = rest.find('\n');
      const std::string_view content = trim(rest.substr(0, end));
      rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
      if (content.empty()) continue;
      const auto separator = content.find(kSeparator);
      if (separator == std::string_view::npos) {
        fail(line, "found " + shown(content) + ", expected a node or an edge (nodeA -- nodeB)");
      }
      const std::string_view id = trim(content.substr(0, separator));
      std::string_view tail = content.substr(separator + kSeparator.size());
      if (id.empty() || id.find(' ') != std::string_view::npos) {
        fail(line, "found " + shown(content) + ", expected a node name before ' -- '");
      }
      const auto fields = tail.find(kFieldsStart);
      if (fields == std::string_view::npos) {
        const std::string_view to = trim(tail);
        if (to.find(' ') != std::string_view::npos) {
          fail(line, "found " + shown(content) + ", expected an edge (nodeA -- nodeB) or a node with " +
                         std::string(kFieldsStart) + "...");
        }
        edges_.push_back({id, to, line});
        continue;
      }
      Node node;
      node.id = id;
      std::string_view description = tail.substr(0, fields);
      const auto description_end = description.rfind(kSeparator);
      node.description = trim(description.substr(0, description_end));
      tail = tail.substr(fields);
      const auto after = tail.find(kSeparator);  // " -- stage_id=2"
      if (after != std::string_view::npos) {
        const std::string_view stage = trim(tail.substr(after + kSeparator.size()));
        if (stage.substr(0, 9) != "stage_id=") fail(line, "found " + shown(stage) + ", expected stage_id=...");
      }
      read_fields(tail.substr(0, after), node, line);
      if (!index_.emplace(id, static_cast<std::int32_t>(nodes_.size())).second) {
        fail(line, "node " + std::string(id) + " is defined twice");
      }
      nodes_.push_back(std::move(node));
    }
    if (nodes_.empty()) throw Error(ErrorKind::kData, source_ + ": no node found, expected a PipeDream graph");
  }

  void connect() {
    for (const Edge& edge : edges_) {
      const auto from = index_.find(edge.from), to = index_.find(edge.to);
      if (from == index_.end() || to == index_.end()) {
        fail(edge.line, "edge " + std::string(edge.from) + " -- " + std::string(edge.to) + ": node " +
                            std::string(from == index_.end() ? edge.from : edge.to) + " is not defined");
      }
      if (from->second == to->second) fail(edge.line, "node " + std::string(edge.from) + " is its own input");
      nodes_[static_cast<std::size_t>(to->second)].inputs.push_back(from->second);
      nodes_[static_cast<std::size_t>(from->second)].outputs.push_back(to->second);
    }
  }

  void leave_out() {
    kept_.assign(nodes_.size(), 1);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      if (node.inputs.empty() && node.description.substr(0, 5) == "Input") kept_[i] = 0;
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].outputs.empty() && nodes_[i].description.substr(0, 11) == "__getitem__") kept_[i] = 0;
    }
  }

  // Depth first along inputs, with an explicit stack.
  std::vector<std::int32_t> order() const {
    enum : char { kNew, kOpen, kDone };
    std::vector<char> state(nodes_.size(), kNew);
    std::vector<std::size_t> next(nodes_.size(), 0);
    std::vector<std::int32_t> order, stack;
    const auto visit = [&](std::int32_t root) {
      if (state[static_cast<std::size_t>(root)] != kNew) return;
      stack.push_back(root);
      state[static_cast<std::size_t>(root)] = kOpen;
      while (!stack.empty()) {
        const auto top = static_cast<std::size_t>(stack.back());
        if (next[top] < nodes_[top].inputs.size()) {
          const std::int32_t input = nodes_[top].inputs[next[top]++];
          char& input_state = state[static_cast<std::size_t>(input)];
          if (input_state == kOpen) fail_cycle(input, stack.back());
          if (input_state == kNew) {
            input_state = kOpen;
            stack.push_back(input);
          }
          continue;
        }
        state[top] = kDone;
        if (kept_[top] != 0) order.push_back(stack.back());
        stack.pop_back();
      }
    };
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].outputs.empty()) visit(static_cast<std::int32_t>(i));
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) visit(static_cast<std::int32_t>(i));  // only cycles are left
    return order;
  }

  [[noreturn]] void fail_cycle(std::int32_t from, std::int32_t to) const {
    const std::string_view a = nodes_[static_cast<std::size_t>(from)].id, b = nodes_[static_cast<std::size_t>(to)].id;
    for (const Edge& edge : edges_) {
      if (edge.from == a && edge.to == b) {
        fail(edge.line, "edge " + std::string(a) + " -- " + std::string(b) + " closes a cycle");
      }
    }
    throw Error(ErrorKind::kData, source_ + ": the graph has a cycle");
  }

  // "Conv2d(3, 64)" -> "Conv2d".
  static std::string head(std::string_view description) {
    return std::string(trim(description.substr(0, description.find('('))));
  }

  pipeline::Profile profile(const std::vector<std::int32_t>& order) const {
    pipeline::Profile result;
    const std::size_t n = order.size();
    std::vector<std::size_t> place(nodes_.size(), n);
    for (std::size_t i = 0; i < n; ++i) place[static_cast<std::size_t>(order[i])] = i;
    std::map<std::string, int> heads;
    for (std::int32_t id : order) ++heads[head(nodes_[static_cast<std::size_t>(id)].description)];
    const bool heads_tell = std::all_of(heads.begin(), heads.end(), [](const auto& h) { return h.second == 1; });
    double forward = 0, total = 0;
    std::vector<double> change(n + 1, 0.0);  // of the live bytes, at the cut after i
    for (std::size_t i = 0; i < n; ++i) {
      const Node& node = nodes_[static_cast<std::size_t>(order[i])];
      forward += node.forward_ms;
      total += node.forward_ms + node.backward_ms;
      result.c_ms.push_back(node.forward_ms + node.backward_ms);
      result.w_bytes.push_back(node.parameter_bytes);
      result.stash_bytes.push_back(node.activation_bytes);
      result.name.emplace_back(node.id);
      result.op_name.emplace_back(node.description);
      const std::string layer = head(node.description);
      result.layer.push_back(heads_tell ? layer : layer + " " + std::string(node.id));
      std::size_t last_use = i;
      for (std::int32_t user : node.outputs) {
        const std::size_t at = place[static_cast<std::size_t>(user)];
        if (at < n) last_use = std::max(last_use, at);
      }
      change[i] += node.activation_bytes;  // live at the cuts i .. last_use - 1
      change[last_use] -= node.activation_bytes;
    }
    double live = 0;
    for (std::size_t i = 0; i < n; ++i) {
      live += change[i];
      result.a_bytes.push_back(std::max(0.0, live));
    }
    if (total > 0) result.forward_fraction = forward / total;
    const auto slash = source_.find_last_of('/');
    result.model = slash == std::string::npos ? source_ : source_.substr(slash + 1);
    return result;
  }

  std::string_view text_;
  const std::string& source_;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::unordered_map<std::string_view, std::int32_t> index_;
  std::vector<char> kept_;
};

}  // namespace

bool is_pipedream(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return false;
  std::string_view line = text.substr(first, text.find('\n', first) - first);
  constexpr std::size_t kProbe = 4096;
  line = line.substr(0, kProbe);
  return line.substr(0, 4) == "node" && line.find(kSeparator) != std::string_view::npos;
}

pipeline::Profile parse_pipedream(std::string_view text, const std::string& source) {
  return Parser(text, source).run();
}

}  // namespace automap::io
