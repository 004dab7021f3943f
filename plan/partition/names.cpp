#include "plan/partition/names.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "common/base/text_table.h"
#include "common/sharding/explain.h"

namespace automap::partition {
namespace {

constexpr int kManyValues = 4;

std::vector<std::string> components_of(const std::string& path) {
  std::vector<std::string> out(1);
  for (const char c : path) {
    if (c == '/') {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

std::string scopes_between(const std::vector<std::string>& parts, std::size_t first, std::size_t last) {
  std::string out;
  for (std::size_t i = first; i < last; ++i) out += (i > first ? "/" : "") + parts[i];
  return out;
}

}  // namespace

std::string pattern_of(const std::string& path) {
  std::string out;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (!std::isdigit(static_cast<unsigned char>(path[i]))) {
      out += path[i];
    } else if (out.empty() || out.back() != '*') {
      out += '*';
    }
  }
  return out;
}

std::string layer_pattern_of(const std::string& path) {
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const auto first = std::find_if(path.begin(), path.end(), digit);
  const auto last = std::find_if_not(first, path.end(), digit);
  return first == path.end() ? path : std::string(path.begin(), first) + '*' + std::string(last, path.end());
}

std::string members_text(const std::vector<std::pair<std::string, int>>& members, int usual) {
  struct Entry {
    std::string pattern, path;
    int dim = -1, count = 0;
    std::vector<std::string> components;
  };
  const auto collate = [](const std::vector<Entry>& all, std::string (*pattern)(const std::string&), int at_least) {
    std::map<std::pair<std::string, int>, std::vector<std::size_t>> alike;
    for (std::size_t i = 0; i < all.size(); ++i) alike[{pattern(all[i].pattern), all[i].dim}].push_back(i);
    std::vector<Entry> out;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& same = alike[{pattern(all[i].pattern), all[i].dim}];
      if (static_cast<int>(same.size()) < at_least) {
        out.push_back(all[i]);
      } else if (same.front() == i) {
        out.push_back({pattern(all[i].pattern), all[i].path, all[i].dim, 0, {}});
        for (const std::size_t j : same) out.back().count += all[j].count;
      }
    }
    return out;
  };
  std::vector<Entry> entries;
  for (const auto& [path, dim] : members) entries.push_back({path, path, dim, 1, {}});
  entries = collate(entries, layer_pattern_of, 1);
  entries = collate(entries, pattern_of, kManyValues);
  if (entries.empty()) return "";
  for (Entry& entry : entries) {
    entry.components = components_of(entry.count > 1 ? entry.pattern : entry.path);
  }
  std::size_t common = entries.front().components.size() - 1;
  for (const Entry& entry : entries) {
    std::size_t equal = 0;
    while (equal < common && equal + 1 < entry.components.size() &&
           entry.components[equal] == entries.front().components[equal]) {
      ++equal;
    }
    common = equal;
  }
  const bool alike =
      std::all_of(entries.begin(), entries.end(), [&](const Entry& e) { return e.count == entries.front().count; });
  std::string out;
  for (const Entry& entry : entries) {
    out += (out.empty() ? "" : ", ") + scopes_between(entry.components, common, entry.components.size());
    if (entry.dim >= 0) out += " " + std::to_string(entry.dim);
    if (!alike && entry.count != usual) out += " (" + std::to_string(entry.count) + "x)";
  }
  if (common > 0) {
    out = scopes_between(entries.front().components, 0, common) + (entries.size() > 1 ? ": " : "/") + out;
  }
  if (alike && entries.front().count != usual) {
    out += " (" + std::to_string(entries.front().count) + (entries.size() > 1 ? " of each)" : "x)");
  }
  return out;
}

std::string instruction_name(const sharding::ShardingModel& model, sharding::NodeId node) {
  return std::string(model.graph().instruction(model.flow().node(node).instruction).name);
}

std::string scope_of(const sharding::ShardingModel& model, sharding::NodeId node) {
  if (node == graph::kNone) return "";
  const std::vector<std::string> scopes = sharding::scopes_of(model, node);
  return scopes_between(scopes, 0, scopes.size());
}

std::string shape_of(const sharding::ShardingModel& model, sharding::NodeId node) {
  return std::string(model.flow().shape(node).text);
}

std::string divisors_text(std::int64_t extent, int most) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t d = 2; d <= most && d <= extent; ++d) {
    if (extent % d == 0) divisors.push_back(d);
  }
  std::string out;
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    if (i > 0) out += i + 1 == divisors.size() ? " or " : ", ";
    out += std::to_string(divisors[i]);
  }
  return out;
}

}  // namespace automap::partition
