#include "profile/measured/scope_names.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "common/base/join.h"

namespace automap::measured {
namespace {

using Words = std::vector<std::string>;

// The last place where `part` begins in `all` as a run; all.size(): none.
std::size_t run_in(const Words& part, const Words& all) {
  const auto found = std::find_end(all.begin(), all.end(), part.begin(), part.end());
  return part.empty() ? all.size() : static_cast<std::size_t>(found - all.begin());
}

// The number as a map orders it.
std::pair<std::size_t, std::string> order_of(const std::string& number) {
  return {number.size(), number};
}

// Words in front of the number at `at`, back to another number.
std::string key_of(const Words& words, std::size_t at) {
  std::size_t begin = at;
  while (begin > 0 && !is_number(words[begin - 1])) --begin;
  return join({words.begin() + static_cast<std::ptrdiff_t>(begin), words.begin() + static_cast<std::ptrdiff_t>(at)},
              "/");
}

}  // namespace

bool is_number(std::string_view word) {
  return !word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos;
}

std::vector<std::string> words_of(std::string_view path) {
  Words words;
  std::string word;
  const auto end_word = [&] {
    while (!word.empty() && (word.back() == '_' || word.back() == '-')) word.pop_back();
    if (is_number(word)) {
      word.erase(0, std::min(word.find_first_not_of('0'), word.size() - 1));
    }
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  for (std::size_t i = 0; i < path.size(); ++i) {
    const auto c = static_cast<unsigned char>(path[i]);
    if (std::isalnum(c) == 0 && c != '_' && c != '-' && c < 0x80) {
      end_word();
      continue;
    }
    // A number at the end of a word stands by itself; one inside ("conv2d", "fp8_linear") is part of it.
    if (std::isdigit(c) != 0 && !word.empty() && !is_number(word)) {
      std::size_t end = i;
      while (end < path.size() && std::isdigit(static_cast<unsigned char>(path[end])) != 0) ++end;
      const bool last =
          end == path.size() || (std::isalnum(static_cast<unsigned char>(path[end])) == 0 && path[end] != '_' &&
                                 path[end] != '-' && static_cast<unsigned char>(path[end]) < 0x80);
      if (last) end_word();
    }
    word += static_cast<char>(std::tolower(c));
  }
  end_word();
  // "block 17 of 48"
  if (words.size() >= 4 && words[words.size() - 2] == "of" && is_number(words.back()) &&
      is_number(words[words.size() - 3])) {
    words.resize(words.size() - 2);
  }
  return words;
}

LayerNames::LayerNames(const std::vector<std::string>& names) {
  std::map<std::string, std::vector<int>> kinds;
  std::vector<std::string> order;
  for (const std::string& name : names) {
    const int layer = static_cast<int>(words_.size());
    words_.push_back(words_of(name));
    const Words& words = words_.back();
    if (words.size() < 2 || !is_number(words.back())) continue;
    std::vector<int>& kind = kinds[join({words.begin(), words.end() - 1}, "/")];
    if (kind.empty()) order.push_back(join({words.begin(), words.end() - 1}, "/"));
    kind.push_back(layer);
  }
  std::set<int> inside;
  for (const std::string& key : order) {
    std::vector<int>& kind = kinds[key];
    if (kind.size() < 2) continue;
    std::sort(kind.begin(), kind.end(), [&](int a, int b) {
      return order_of(words_[static_cast<std::size_t>(a)].back()) <
             order_of(words_[static_cast<std::size_t>(b)].back());
    });
    inside.insert(kind.begin(), kind.end());
    kinds_.push_back(kind);
  }
  for (int layer = 0; layer < static_cast<int>(words_.size()); ++layer) {
    const Words& words = words_[static_cast<std::size_t>(layer)];
    if (inside.count(layer) == 0) outside_.push_back(layer);
    // Of a kind, or a part of one that is.
    numbered_.push_back(inside.count(layer) != 0 ||
                        (!words.empty() && std::any_of(words.begin(), words.end() - 1, is_number)));
  }
}

void LayerNames::match_numbers(const std::vector<std::string>& paths) {
  struct Numbered {
    std::set<std::pair<std::size_t, std::string>> numbers;
    std::size_t depth = 0;
  };
  std::map<std::string, Numbered> found;  // by the words in front
  for (const std::string& path : paths) {
    const Words words = words_of(path);
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (!is_number(words[i]) || is_number(words[i - 1])) continue;
      const auto [at, is_new] = found.try_emplace(key_of(words, i));
      at->second.depth = is_new ? i : std::min(at->second.depth, i);
      at->second.numbers.insert(order_of(words[i]));
    }
  }
  for (const std::vector<int>& kind : kinds_) {
    // As many of two kinds are told apart by their words alone.
    const auto alike = std::count_if(kinds_.begin(), kinds_.end(),
                                     [&](const std::vector<int>& other) { return other.size() == kind.size(); });
    if (alike > 1) continue;
    const std::pair<const std::string, Numbered>* best = nullptr;
    for (const auto& one : found) {
      if (one.second.numbers.size() != kind.size()) continue;
      if (best == nullptr || one.second.depth < best->second.depth) best = &one;
    }
    if (best == nullptr) continue;
    std::size_t place = 0;
    for (const auto& [length, number] : best->second.numbers) other_words_[best->first][number] = kind[place++];
  }
  // The outermost module around the layers. Layers that run again within the backward pass are in none by their paths.
  Words common;
  for (const std::string& path : paths) {
    const Words words = words_of(path);
    std::size_t i = 1;
    while (i < words.size() && (!is_number(words[i]) || other_words_.count(key_of(words, i)) == 0)) ++i;
    if (i >= words.size() || i == 1) continue;
    const Words around(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(i - 1));
    if (common.empty()) {
      common = around;
      continue;
    }
    common.erase(std::mismatch(common.begin(), common.end(), around.begin(), around.end()).first, common.end());
    if (common.empty()) break;  // there is no such module
  }
  if (!common.empty()) common.resize(common.size() > 1 && is_number(common[1]) ? 2 : 1);
  root_ = std::move(common);
}

bool LayerNames::is_in_root(const std::vector<std::string>& path) const {
  return !root_.empty() && path.size() >= root_.size() && std::equal(root_.begin(), root_.end(), path.begin());
}

std::vector<int> LayerNames::find(std::string_view path) const {
  const Words words = words_of(path);
  if (words.empty()) return {};
  // A layer that the path is inside of: the one that says most, and of those the innermost.
  const auto around = [&](bool numbered) {
    int best = -1;
    std::pair<std::size_t, std::size_t> best_rank{0, 0};
    for (std::size_t layer = 0; layer < words_.size(); ++layer) {
      if (numbered_[layer] != numbered) continue;
      const std::size_t at = run_in(words_[layer], words);
      if (at == words.size()) continue;
      const std::pair<std::size_t, std::size_t> rank{words_[layer].size(), at + 1};
      if (rank > best_rank) {
        best = static_cast<int>(layer);
        best_rank = rank;
      }
    }
    return best;
  };
  if (const int layer = around(true); layer >= 0) return {layer};
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (!is_number(words[i]) || is_number(words[i - 1])) continue;
    const auto kind = other_words_.find(key_of(words, i));
    if (kind == other_words_.end()) continue;
    const auto layer = kind->second.find(words[i]);
    if (layer != kind->second.end()) return {layer->second};
  }
  // "norm" is the model's only outside of the numbered layers, each of which has one.
  if (const int layer = around(false); layer >= 0) return {layer};
  // Layers inside of the path, or an abbreviation of one.
  std::vector<int> inside;
  for (std::size_t layer = 0; layer < words_.size(); ++layer) {
    if (run_in(words, words_[layer]) != words_[layer].size()) inside.push_back(static_cast<int>(layer));
  }
  if (inside.size() > 1 && is_number(words.back())) inside.clear();
  return inside;
}

}  // namespace automap::measured
