#include "plan/systems/placement/ideals.h"

#include <algorithm>

#include "common/base/numbers.h"

namespace automap::placement {
namespace {

using Word = std::uint64_t;

// The ideals of one size, found by their members.
class Level {
 public:
  explicit Level(std::size_t words) : words_(words), table_(64, -1) {}

  int size() const { return count_; }
  const Word* set(int i) const { return &sets_[at(i) * words_]; }

  // The number of the set, which is added when it is not there.
  int find_or_add(const std::vector<Word>& set) {
    if (2 * at(count_ + 1) > table_.size()) grow();
    std::size_t place = hash(set.data()) & (table_.size() - 1);
    while (table_[place] >= 0) {
      if (std::equal(set.begin(), set.end(), this->set(table_[place]))) return table_[place];
      place = (place + 1) & (table_.size() - 1);
    }
    table_[place] = count_;
    sets_.insert(sets_.end(), set.begin(), set.end());
    return count_++;
  }

 private:
  std::size_t hash(const Word* set) const {
    Word out = 0;
    for (std::size_t w = 0; w < words_; ++w) {
      out = (out ^ set[w]) * 0x9e3779b97f4a7c15u;
      out ^= out >> 29;
    }
    return static_cast<std::size_t>(out);
  }
  void grow() {
    table_.assign(2 * table_.size(), -1);
    for (int i = 0; i < count_; ++i) {
      std::size_t place = hash(set(i)) & (table_.size() - 1);
      while (table_[place] >= 0) place = (place + 1) & (table_.size() - 1);
      table_[place] = i;
    }
  }

  std::size_t words_;
  int count_ = 0;
  std::vector<Word> sets_;
  std::vector<int> table_;  // open addressing; a power of two
};

bool has(const Word* set, int unit) {
  return set[at(unit) / 64] >> (unit % 64) & 1;
}

}  // namespace

std::optional<Ideals> Ideals::all(const Units& units, int most) {
  const std::size_t words = (units.units.size() + 63) / 64;
  Ideals out;
  Level level(words);
  level.find_or_add(std::vector<Word>(words, 0));
  out.down_begin_.push_back(0);
  int first = 0;  // of the level
  std::vector<Word> set(words);
  struct Up {
    int to;
    Step step;
  };
  std::vector<Up> ups;
  for (int members = 0; members < units.size(); ++members) {
    Level larger(words);
    const int first_larger = first + level.size();
    ups.clear();
    for (int i = 0; i < level.size(); ++i) {
      const Word* members_of = level.set(i);
      for (int u = 0; u < units.size(); ++u) {
        if (has(members_of, u)) continue;
        const auto& before = units.before[at(u)];
        if (!std::all_of(before.begin(), before.end(), [&](int v) { return has(members_of, v); })) continue;
        std::copy(members_of, members_of + words, set.begin());
        set[at(u) / 64] |= Word{1} << (u % 64);
        ups.push_back({larger.find_or_add(set), {first + i, u}});
      }
      if (first_larger + larger.size() > most) return std::nullopt;
    }
    std::stable_sort(ups.begin(), ups.end(), [](const Up& a, const Up& b) { return a.to < b.to; });
    std::size_t up = 0;
    for (int i = 0; i < larger.size(); ++i) {
      for (; up < ups.size() && ups[up].to == i; ++up) out.down_.push_back(ups[up].step);
      out.down_begin_.push_back(static_cast<int>(out.down_.size()));
    }
    first = first_larger;
    level = std::move(larger);
  }
  return out;
}

Ideals Ideals::along(const std::vector<int>& order) {
  Ideals out;
  out.down_begin_.push_back(0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    out.down_.push_back({static_cast<int>(i), order[i]});
    out.down_begin_.push_back(static_cast<int>(i + 1));
  }
  return out;
}

}  // namespace automap::placement
