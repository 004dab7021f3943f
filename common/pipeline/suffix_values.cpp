#include "common/pipeline/suffix_values.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/pipeline/exact_program.h"
#include "common/pipeline/value_terms.h"

namespace automap::pipeline {
namespace {

constexpr int kMostStages = 16;
// Times the limit is halved towards the optimum.
constexpr int kMostHalvings = 12;
// Completions that are longer than the limit by rounding only are not lost.
constexpr double kLimitRounding = 1e-9;

}  // namespace

// The effect of a row of stages on the suffix (x, p, y) behind it, any transfer to it already added to the three:
//   X = max(x + add, max_i(weight_i p + constant_i), least),  Y = max(residue, y - drained),  V = X + Y.
// A stall term is linear in p with 1 + laps as its weight, so a row of S stages has at most S + 2 lines.
class Front {
 public:
  // Puts a stage of compute F + B, of which `small` = min(F, B), behind the row, `transfer` ms one way behind the row's
  // last stage (0 for the first one). `own` is its exposed sync and its optimizer.
  void append(double transfer, double compute, double backward, double own, const terms::InFlight& k, int micro_batches,
              bool full) {
    const double pass = compute + 2 * transfer, small = std::min(compute - backward, backward);
    least = std::max({least, (micro_batches + 1) * transfer + add, k.steady * compute + pass + add});
    add += pass;
    if (full) {
      for (int i = 0; i < lines; ++i) constant[at(i)] += weight[at(i)] * pass;
      line(terms::first_round_line(compute, small, k));
      if (k.stalls) {
        line(terms::one_stall_line(compute, k));
        line(terms::all_stalls_line(compute, k));
      }
    }
    residue = std::max(residue, own - transfer - drained);
    drained += backward + transfer;
  }

  // No suffix of one micro-batch within `most_p` makes of this row a plan that is longer than of the other by more than
  // a few times `slack`.
  bool as_good_as(const Front& other, double most_p, double slack) const {
    if (add > other.add + slack || least > other.least + slack || residue > other.residue + slack ||
        drained < other.drained - slack) {
      return false;
    }
    for (int i = 0; i < lines; ++i) {
      bool below = false;
      for (int j = 0; j < other.lines && !below; ++j) {
        // Lines are below one another when they are at both ends.
        const double steeper = weight[at(i)] - other.weight[at(j)], higher = constant[at(i)] - other.constant[at(j)];
        below = higher <= slack && (steeper <= 0 || steeper * most_p + higher <= slack);
      }
      if (!below) return false;
    }
    return true;
  }

  // No plan that starts with this row is shorter.
  double bound() const { return least + residue; }

  // V over the labels first..last-1 (x ascending) behind a transfer, unless it is not below `best`.
  double value(double transfer, int micro_batches, const double* x, const double* p, const double* y, std::size_t first,
               std::size_t last, double best) const {
    const double shifted_add = add + 2 * transfer;
    const double shifted_least = std::max(least, (micro_batches + 1) * transfer + add);
    const double shifted_drained = drained + transfer;
    if (shifted_least + residue >= best) return best;
    std::array<double, kMostLines> shifted{};
    for (int i = 0; i < lines; ++i) shifted[at(i)] = constant[at(i)] + 2 * transfer * weight[at(i)];
    for (std::size_t q = first; q < last; ++q) {
      double longest = std::max(x[q] + shifted_add, shifted_least);
      if (longest + residue >= best) {
        if (x[q] + shifted_add + residue >= best) break;
        continue;
      }
      for (int i = 0; i < lines; ++i) longest = std::max(longest, weight[at(i)] * p[q] + shifted[at(i)]);
      best = std::min(best, longest + std::max(residue, y[q] - shifted_drained));
    }
    return best;
  }

 private:
  static constexpr int kMostLines = kMostStages + 2;
  // Adds a line of the stage that was added last.
  void line(const terms::PathLine& of_stage) {
    const double slope = of_stage.slope, value = of_stage.constant + add;
    for (int i = 0; i < lines; ++i) {
      if (weight[at(i)] == slope) {
        constant[at(i)] = std::max(constant[at(i)], value);
        return;
      }
    }
    AM_CHECK(lines < kMostLines);
    weight[at(lines)] = slope;
    constant[at(lines)] = value;
    ++lines;
  }

  double add = 0, least = 0, drained = 0, residue = 0;
  int lines = 0;
  std::array<double, kMostLines> weight{}, constant{};
};

struct SuffixValues::State {
  // The suffixes of one length, and of list l the labels of point i at starts[l * points + i] .. the next entry.
  struct Indexed {
    internal::Layer layer;
    std::vector<std::uint32_t> starts;
    std::vector<std::uint32_t> first_list;  // [d0]: lists of that device cut are first_list[d0]..first_list[d0 + 1] - 1
  };
  // A row of stages that ends at instruction `cut`, its last group being (d_before, d].
  struct Row {
    std::vector<Front> fronts = {Front()};  // by variants of the stages; none makes another superfluous
    int cut = 0, d_before = 0, d = 0;
    int stages = 0;
  };

  State(const Problem& problem, const SuffixValuesOptions& given) : problem_(problem), options_(given) {}

  void solve();
  // Adds the stage that ends at (cut, d); false when it does not fit or the cuts are no boundary.
  bool append(Row& row, int cut, int d) const;
  bool start(const std::vector<int>& cuts, const std::vector<int>& device_cuts, Row& row) const;
  double completion_ms(const Row& row) const;

  const Problem& problem_;
  SuffixValuesOptions options_;
  double limit_ms_ = 0, slack_ms_ = 0;
  bool needs_variable_ = false, valid_ = true;
  double optimum_ms_ = kInfinity;
  long long labels_ = 0;
  std::vector<int> point_of_cut_;        // [n + 1]; 0: no pivot
  std::vector<char> usable_device_cut_;  // [D + 1]
  std::size_t points_ = 0;               // 0..m, as of the exact program
  std::vector<Indexed> layers_;          // [length - 1]
};

void SuffixValues::State::solve() {
  const int n = problem_.num_instructions(), devices = problem_.num_devices();
  if (options_.pivots.empty()) {
    for (int i = 1; i < n; ++i) options_.pivots.push_back(i);
  }
  if (options_.device_cuts.empty()) {
    for (int d = 1; d < devices; ++d) options_.device_cuts.push_back(d);
  }
  point_of_cut_.assign(at(n) + 1, 0);
  usable_device_cut_.assign(at(devices) + 1, 0);
  for (std::size_t i = 0; i < options_.pivots.size(); ++i) {
    const int pivot = options_.pivots[i];
    AM_CHECK(pivot > (i == 0 ? 0 : options_.pivots[i - 1]) && pivot < n);
    point_of_cut_[at(pivot)] = static_cast<int>(i) + 1;
  }
  for (std::size_t i = 0; i < options_.device_cuts.size(); ++i) {
    const int cut = options_.device_cuts[i];
    AM_CHECK(cut > (i == 0 ? 0 : options_.device_cuts[i - 1]) && cut < devices);
    usable_device_cut_[at(cut)] = 1;
  }
  const int stages = options_.stages;
  if (stages < 1 || stages > kMostStages) {
    throw Error(ErrorKind::kUsage, "completion values for " + std::to_string(stages) + " stages; expected 1 to " +
                                       std::to_string(kMostStages));
  }
  if (at(stages) > std::min(options_.pivots.size(), options_.device_cuts.size()) + 1) return;
  needs_variable_ = problem_.stages_need_variables(stages);

  const internal::Points points = internal::exact_points(problem_, options_.pivots);
  points_ = points.size();
  internal::ProgramInput input;
  input.problem = &problem_;
  input.schedule = options_.schedule;
  input.needs_variable = needs_variable_;
  input.min_stages = input.max_stages = stages;
  input.points = &points;
  input.device_cuts = options_.device_cuts;
  input.most_labels = options_.most_labels;
  input.keep_layers = true;
  Work without_end;
  internal::ProgramOutput output;
  for (int round = 0; round < kMostHalvings; ++round) {
    limit_ms_ = options_.limit_ms * (1 + kLimitRounding);
    input.limit_ms = {limit_ms_};
    output = internal::run_program(input, without_end);
    if (!output.gave_up || !(options_.optimum_ms < options_.limit_ms)) break;
    const double most = options_.limit_ms < kInfinity ? options_.limit_ms : 2 * options_.optimum_ms;
    options_.limit_ms = options_.optimum_ms + (most - options_.optimum_ms) / 2;
  }
  valid_ = output.finished;
  if (!valid_) return;
  labels_ = output.labels;
  if (limit_ms_ < kInfinity) slack_ms_ = options_.slack * limit_ms_;
  if (!output.by_stages.front().empty()) optimum_ms_ = output.by_stages.front().front().value_ms;
  for (internal::Layer& layer : output.layers) {
    Indexed indexed;
    indexed.first_list.assign(at(devices) + 2, 0);
    indexed.starts.reserve(layer.lists.size() * points_);
    for (const internal::LabelList& list : layer.lists) {
      ++indexed.first_list[at(list.d0) + 1];
      std::size_t next = list.begin;
      for (std::size_t i = 0; i < points_; ++i) {
        while (next < list.end && at(layer.point[next]) < i) ++next;
        indexed.starts.push_back(static_cast<std::uint32_t>(next));
      }
    }
    for (std::size_t d = 1; d < indexed.first_list.size(); ++d) indexed.first_list[d] += indexed.first_list[d - 1];
    indexed.layer = std::move(layer);
    layers_.push_back(std::move(indexed));
  }
}

bool SuffixValues::State::append(Row& row, int cut, int d) const {
  if (cut <= row.cut || cut >= problem_.num_instructions() || point_of_cut_[at(cut)] == 0) return false;
  if (d <= row.d || d >= problem_.num_devices() || usable_device_cut_[at(d)] == 0) return false;
  const DeviceGroup& group = problem_.group(row.d, d);
  if (!group.valid || problem_.idles(row.cut, cut, group)) return false;
  if (needs_variable_ && problem_.variables(row.cut, cut) == 0) return false;
  const double transfer = row.stages == 0 ? 0 : problem_.transfer_ms(row.cut, row.d_before, row.d, d);
  const bool full = problem_.options().value == ValueForm::kFull;
  std::vector<Front> fronts;
  for (const int v : problem_.useful_variants(group)) {
    const int in_flight =
        problem_.in_flight(options_.schedule, options_.stages, row.stages + 1, row.cut, cut, group, v);
    if (in_flight == 0) continue;
    const terms::InFlight k(problem_.micro_batches(), in_flight);
    const double compute = problem_.compute_ms(row.cut, cut, group, v);
    const double backward = problem_.backward_ms(row.cut, cut, group, v);
    const double own = problem_.behind_backward_ms(row.cut, cut, backward, group, v);
    for (Front front : row.fronts) {
      front.append(transfer, compute, backward, own, k, problem_.micro_batches(), full);
      if (front.bound() > limit_ms_) continue;
      const auto better = [&](const Front& other) { return other.as_good_as(front, limit_ms_, slack_ms_); };
      if (std::any_of(fronts.begin(), fronts.end(), better)) continue;
      fronts.erase(std::remove_if(fronts.begin(), fronts.end(),
                                  [&](const Front& other) { return front.as_good_as(other, limit_ms_, 0); }),
                   fronts.end());
      fronts.push_back(front);
    }
  }
  if (fronts.empty()) return false;
  row.fronts = std::move(fronts);
  row.cut = cut;
  row.d_before = row.d;
  row.d = d;
  ++row.stages;
  return true;
}

bool SuffixValues::State::start(const std::vector<int>& cuts, const std::vector<int>& device_cuts, Row& row) const {
  AM_CHECK(valid_ && cuts.size() == device_cuts.size() && cuts.size() < at(options_.stages));
  if (points_ == 0) return false;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    if (!append(row, cuts[i], device_cuts[i])) return false;
  }
  return true;
}

double SuffixValues::State::completion_ms(const Row& row) const {
  const Indexed& behind = layers_[at(options_.stages - row.stages - 1)];
  const internal::Layer& layer = behind.layer;
  const std::size_t point = at(point_of_cut_[at(row.cut)]);
  double best = kInfinity;
  for (std::size_t l = behind.first_list[at(row.d)]; l < behind.first_list[at(row.d) + 1]; ++l) {
    const std::size_t first = behind.starts[l * points_ + point], last = behind.starts[l * points_ + point + 1];
    if (first == last) continue;
    const double transfer = problem_.transfer_ms(row.cut, row.d_before, row.d, layer.lists[l].d1);
    for (const Front& front : row.fronts) {
      best = front.value(transfer, problem_.micro_batches(), layer.x.data(), layer.p.data(), layer.y.data(), first,
                         last, best);
    }
  }
  return best <= limit_ms_ ? best : kInfinity;
}

SuffixValues::SuffixValues(const Problem& problem, const SuffixValuesOptions& options)
    : state_(std::make_unique<State>(problem, options)) {
  state_->solve();
}

SuffixValues::~SuffixValues() = default;
SuffixValues::SuffixValues(SuffixValues&&) noexcept = default;
SuffixValues& SuffixValues::operator=(SuffixValues&&) noexcept = default;

bool SuffixValues::valid() const {
  return state_->valid_;
}

double SuffixValues::limit_ms() const {
  return state_->options_.limit_ms;
}

long long SuffixValues::labels() const {
  return state_->labels_;
}

double SuffixValues::optimum_ms() const {
  AM_CHECK(state_->valid_);
  return state_->optimum_ms_;
}

double SuffixValues::completion_ms(const std::vector<int>& cuts, const std::vector<int>& device_cuts) const {
  State::Row row;
  if (!state_->start(cuts, device_cuts, row)) return kInfinity;
  return row.stages == 0 ? state_->optimum_ms_ : state_->completion_ms(row);
}

void SuffixValues::completions_ms(const std::vector<int>& cuts, const std::vector<int>& device_cuts,
                                  const std::vector<std::pair<int, int>>& children, std::vector<double>& values) const {
  values.assign(children.size(), kInfinity);
  State::Row parent;
  if (!state_->start(cuts, device_cuts, parent)) return;
  AM_CHECK(at(parent.stages) + 1 < at(state_->options_.stages));
  for (std::size_t i = 0; i < children.size(); ++i) {
    State::Row child = parent;
    if (state_->append(child, children[i].first, children[i].second)) values[i] = state_->completion_ms(child);
  }
}

}  // namespace automap::pipeline
