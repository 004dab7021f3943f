#include "common/pipeline/work_order.h"

#include <algorithm>
#include <charconv>

#include "common/base/check.h"
#include "common/base/numbers.h"

namespace automap::pipeline {
namespace {

constexpr char kLetters[] = {'F', 'B', 'W'};

std::string item_text(const WorkItem& item) {
  return letter_of(item.kind) + std::to_string(item.part + 1) + "." + std::to_string(item.micro_batch + 1);
}

// Tracks the work done, and checks whether the next item of a list has its inputs.
class OrderCheck {
 public:
  OrderCheck(const WorkOrder& order, const std::vector<int>& group_of_part, int micro_batches, bool split_backward)
      : order_(order),
        group_of_part_(group_of_part),
        micro_batches_(micro_batches),
        kinds_(split_backward ? 3 : 2),
        done_(group_of_part.size() * static_cast<std::size_t>(micro_batches) * kKinds, false) {}

  std::string fault() {
    std::string why = wrong_items();
    return why.empty() ? waiting_lists() : why;
  }

 private:
  static constexpr std::size_t kKinds = 3;

  std::size_t index(WorkKind kind, int part, int micro_batch) const {
    return (at(part) * static_cast<std::size_t>(micro_batches_) + at(micro_batch)) * kKinds +
           static_cast<std::size_t>(kind);
  }
  std::size_t index(const WorkItem& item) const { return index(item.kind, item.part, item.micro_batch); }

  // Each list alone.
  std::string wrong_items() {
    const int parts = static_cast<int>(group_of_part_.size());
    std::vector<bool> seen(done_.size(), false);
    for (std::size_t g = 0; g < order_.size(); ++g) {
      const std::string group = "group " + std::to_string(g + 1) + ": ";
      for (const WorkItem& item : order_[g]) {
        const std::string name = group + item_text(item);
        if (item.part < 0 || item.part >= parts || item.micro_batch < 0 || item.micro_batch >= micro_batches_) {
          return name + " is none of " + std::to_string(parts) + " parts and " + std::to_string(micro_batches_) +
                 " micro-batches";
        }
        if (group_of_part_[at(item.part)] != static_cast<int>(g)) {
          return name + " is work of group " + std::to_string(group_of_part_[at(item.part)] + 1);
        }
        if (static_cast<int>(item.kind) >= kinds_) return name + ": the backward is one pass";
        if (seen[index(item)]) return name + " stands twice";
        for (int before = 0; before < static_cast<int>(item.kind); ++before) {
          const WorkItem needed = {static_cast<WorkKind>(before), item.part, item.micro_batch};
          if (!seen[index(needed)]) return name + " stands in front of " + item_text(needed);
        }
        seen[index(item)] = true;
      }
    }
    for (int part = 0; part < parts; ++part) {
      for (int m = 0; m < micro_batches_; ++m) {
        for (int kind = 0; kind < kinds_; ++kind) {
          const WorkItem item = {static_cast<WorkKind>(kind), part, m};
          if (seen[index(item)]) continue;
          return "group " + std::to_string(group_of_part_[at(part)] + 1) + ": " + item_text(item) + " is missing";
        }
      }
    }
    return "";
  }

  bool ready(const WorkItem& item) const {
    const bool last = at(item.part) + 1 == group_of_part_.size();
    switch (item.kind) {
      case WorkKind::kForward: return item.part == 0 || done_[index(item.kind, item.part - 1, item.micro_batch)];
      case WorkKind::kBackward: return last || done_[index(item.kind, item.part + 1, item.micro_batch)];
      case WorkKind::kWeights: return true;
    }
    return true;
  }

  // All lists together.
  std::string waiting_lists() {
    std::vector<std::size_t> next(order_.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t g = 0; g < order_.size(); ++g) {
        while (next[g] < order_[g].size() && ready(order_[g][next[g]])) {
          done_[index(order_[g][next[g]++])] = true;
          moved = true;
        }
      }
    }
    for (std::size_t g = 0; g < order_.size(); ++g) {
      if (next[g] == order_[g].size()) continue;
      return "group " + std::to_string(g + 1) + ": " + item_text(order_[g][next[g]]) +
             " waits for ever: the lists wait for each other";
    }
    return "";
  }

  const WorkOrder& order_;
  const std::vector<int>& group_of_part_;
  int micro_batches_;
  int kinds_;
  std::vector<bool> done_;
};

}  // namespace

char letter_of(WorkKind kind) {
  return kLetters[static_cast<int>(kind)];
}

std::vector<int> group_of_parts(Placement placement, int groups, int chunks) {
  AM_CHECK(placement == Placement::kRoundRobin || chunks == 2);
  std::vector<int> of;
  for (int part = 0; part < groups * chunks; ++part) {
    of.push_back(placement == Placement::kV && part >= groups ? 2 * groups - 1 - part : part % groups);
  }
  return of;
}

WorkOrder alternating_order(const std::vector<int>& in_flight, int micro_batches) {
  WorkOrder all(in_flight.size());
  for (std::size_t s = 0; s < all.size(); ++s) {
    const int part = static_cast<int>(s), first = std::min(micro_batches, in_flight[s]);
    all[s].reserve(at(2 * micro_batches));
    for (int m = 0; m < first; ++m) all[s].push_back({WorkKind::kForward, part, m});
    for (int m = 0; m < micro_batches; ++m) {
      all[s].push_back({WorkKind::kBackward, part, m});
      if (m + first < micro_batches) all[s].push_back({WorkKind::kForward, part, m + first});
    }
  }
  return all;
}

WorkOrder zero_bubble_order(int groups, int micro_batches) {
  WorkOrder all(at(groups));
  for (int g = 0; g < groups; ++g) {
    const int warmup = std::min(micro_batches, groups - g);
    GroupOrder& order = all[at(g)];
    order.reserve(at(3 * micro_batches));
    for (int m = 0; m < warmup; ++m) order.push_back({WorkKind::kForward, g, m});
    for (int m = 0; m < micro_batches; ++m) {
      order.push_back({WorkKind::kBackward, g, m});
      if (m >= g) order.push_back({WorkKind::kWeights, g, m - g});
      if (m + warmup < micro_batches) order.push_back({WorkKind::kForward, g, m + warmup});
    }
    for (int m = std::max(0, micro_batches - g); m < micro_batches; ++m) order.push_back({WorkKind::kWeights, g, m});
  }
  return all;
}

WorkOrder zb_v_order(int groups, int micro_batches) {
  AM_CHECK(micro_batches >= 2 * groups);
  WorkOrder all(at(groups));
  for (int g = 0; g < groups; ++g) {
    GroupOrder& order = all[at(g)];
    order.reserve(at(6 * micro_batches));
    const int part[] = {g, 2 * groups - 1 - g};
    int next[2][3] = {};  // of the group's first and second part the next micro-batch of each kind
    const auto add = [&](int of, WorkKind kind) {
      order.push_back({kind, part[of], next[of][static_cast<int>(kind)]++});
    };
    const auto whole_backward = [&](int of) {
      add(of, WorkKind::kBackward);
      add(of, WorkKind::kWeights);
    };
    const auto left = [&](int of, WorkKind kind) { return next[of][static_cast<int>(kind)] < micro_batches; };
    for (int i = 0; i < 2 * (groups - g) - 1; ++i) add(0, WorkKind::kForward);
    for (int i = 0; i < g; ++i) {
      add(1, WorkKind::kForward);
      add(0, WorkKind::kForward);
    }
    for (int i = 0; i < groups - g; ++i) {
      add(1, WorkKind::kForward);
      whole_backward(1);
    }
    while (left(1, WorkKind::kForward)) {
      if (left(0, WorkKind::kForward)) add(0, WorkKind::kForward);
      whole_backward(0);
      add(1, WorkKind::kForward);
      whole_backward(1);
    }
    // Backwards first, then the gradients of weights that are left.
    for (int i = 0; i < g; ++i) {
      add(0, WorkKind::kBackward);
      add(1, WorkKind::kBackward);
    }
    while (left(0, WorkKind::kBackward)) {
      add(0, WorkKind::kBackward);
      add(0, WorkKind::kWeights);
    }
    for (const int of : {1, 0}) {
      while (left(of, WorkKind::kWeights)) add(of, WorkKind::kWeights);
    }
  }
  return all;
}

WorkOrder interleaved_order(int groups, int chunks, int micro_batches) {
  AM_CHECK(chunks == 1 || micro_batches % groups == 0);
  const int all_work = micro_batches * chunks;
  WorkOrder all(at(groups));
  for (int g = 0; g < groups; ++g) {
    // The i-th forward or backward of a group.
    const auto item = [&](int i, WorkKind kind) {
      if (chunks == 1) return WorkItem{kind, g, i};
      const int in_round = i % (groups * chunks), chunk = in_round / groups;
      const int of = kind == WorkKind::kBackward ? chunks - 1 - chunk : chunk;
      return WorkItem{kind, of * groups + g, i / (groups * chunks) * groups + i % groups};
    };
    const int warmup = std::min(all_work, chunks == 1 ? groups - g - 1 : (groups - g - 1) * 2 + (chunks - 1) * groups);
    GroupOrder& order = all[at(g)];
    order.reserve(at(2 * all_work));
    for (int i = 0; i < warmup; ++i) order.push_back(item(i, WorkKind::kForward));
    for (int i = 0; warmup + i < all_work; ++i) {
      order.push_back(item(warmup + i, WorkKind::kForward));
      order.push_back(item(i, WorkKind::kBackward));
    }
    for (int i = all_work - warmup; i < all_work; ++i) order.push_back(item(i, WorkKind::kBackward));
  }
  return all;
}

std::string order_fault(const WorkOrder& order, const std::vector<int>& group_of_part, int micro_batches,
                        bool split_backward) {
  // Before room is made for as much as a file may claim.
  std::size_t listed = 0;
  for (const GroupOrder& own : order) listed += own.size();
  const double expected = static_cast<double>(group_of_part.size()) * micro_batches * (split_backward ? 3 : 2);
  constexpr double kMostMissing = 1e6;
  if (expected > static_cast<double>(listed) + kMostMissing) {
    return "group 1: there are " + std::to_string(listed) + " passes in all lists, expected " +
           std::to_string(static_cast<long long>(expected));
  }
  return OrderCheck(order, group_of_part, micro_batches, split_backward).fault();
}

std::string order_text(const GroupOrder& order) {
  std::string text;
  for (const WorkItem& item : order) text += (text.empty() ? "" : " ") + item_text(item);
  return text;
}

bool parse_order(std::string_view text, GroupOrder* order, std::string* wrong) {
  order->clear();
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    *wrong = std::string(word);
    const auto letter =
        word.empty() ? std::end(kLetters) : std::find(std::begin(kLetters), std::end(kLetters), word[0]);
    if (letter == std::end(kLetters)) return false;
    WorkItem item;
    item.kind = static_cast<WorkKind>(letter - std::begin(kLetters));
    const char* const behind = word.data() + word.size();
    const auto part = std::from_chars(word.data() + 1, behind, item.part);
    if (part.ec != std::errc() || part.ptr == behind || *part.ptr != '.' || item.part < 1) return false;
    const auto batch = std::from_chars(part.ptr + 1, behind, item.micro_batch);
    if (batch.ec != std::errc() || batch.ptr != behind || item.micro_batch < 1) return false;
    --item.part;
    --item.micro_batch;
    order->push_back(item);
  }
  wrong->clear();
  return true;
}

}  // namespace automap::pipeline
