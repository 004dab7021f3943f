#include "profile/measured/attribution.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/number_range.h"
#include "common/base/numbers.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "common/graph/layers.h"
#include "profile/measured/forms.h"
#include "profile/measured/scope_names.h"

namespace automap::measured {
namespace {

using graph::InstructionId;
using graph::kNone;
using graph::Part;
using pipeline::DeviceTimes;
using pipeline::Profile;
using profile::LayerSummary;
using profile::ModelProfile;
using profile::WorkPlace;

constexpr std::size_t kShownNames = 6;
// The share of time that names may match by chance; a profile is not scaled by less.
constexpr double kLeastAttributed = 0.05;

double sum(const std::vector<double>& values) {
  double all = 0;
  for (const double value : values) all += value;
  return all;
}

// Both passes by position, in ms.
struct Passes {
  std::vector<double> forward, backward;
};

// The row of a table at `samples`: linear between two points, in proportion outside of them.
std::vector<double> row_at(const DeviceTimes& times, const std::vector<std::vector<double>>& table, double samples) {
  const auto above = std::lower_bound(times.samples.begin(), times.samples.end(), samples);
  if (above != times.samples.end() && *above == samples)
    return table[at(static_cast<std::int32_t>(above - times.samples.begin()))];
  if (above == times.samples.begin() || above == times.samples.end()) {
    const bool before = above == times.samples.begin();
    std::vector<double> row = before ? table.front() : table.back();
    for (double& ms : row) ms *= samples / (before ? times.samples.front() : times.samples.back());
    return row;
  }
  const auto high = static_cast<std::size_t>(above - times.samples.begin());
  const double share = (samples - times.samples[high - 1]) / (times.samples[high] - times.samples[high - 1]);
  std::vector<double> row = table[high - 1];
  for (std::size_t p = 0; p < row.size(); ++p) row[p] += share * (table[high][p] - row[p]);
  return row;
}

const DeviceTimes* reference_times(const Profile& profile) {
  for (const DeviceTimes& times : profile.times) {
    if (times.device == profile.device) return &times;
  }
  return profile.times.empty() ? nullptr : &profile.times.front();
}

Passes passes_at(const Profile& profile, double samples) {
  if (const DeviceTimes* times = reference_times(profile)) {
    return {row_at(*times, times->forward_ms, samples), row_at(*times, times->backward_ms, samples)};
  }
  Passes out;
  const double growth = samples / static_cast<double>(pipeline::own_samples(profile));
  for (const double c : profile.c_ms) {
    out.forward.push_back(c * growth * profile.forward_fraction);
    out.backward.push_back(c * growth * (1 - profile.forward_fraction));
  }
  return out;
}

class Attributor {
 public:
  Attributor(const MeasuredTimes& times, const graph::Graph& graph, double samples, ModelProfile* model)
      : times_(times), graph_(graph), model_(*model) {
    out_.source = times.source;
    out_.form = times.form;
    out_.steps = times.steps;
    out_.steps_by = times.steps_by;
    out_.communication_ms = times.communication_ms;
    out_.notes = times.notes;
    check_model();
    choose_samples(samples);
    own_ = passes_at(model_.profile, out_.samples);
    const std::size_t n = own_.forward.size();
    measured_ = {std::vector<double>(n, 0.0), std::vector<double>(n, 0.0)};
    covered_forward_.assign(n, false);
    covered_backward_.assign(n, false);
  }

  Attribution run() {
    add_instructions();
    add_layers();
    out_.measured_ms = out_.attributed_ms() + times_.nameless_ms;
    for (const auto& [name, ms] : left_over_) {
      out_.measured_ms += ms;
      out_.left_over.emplace_back(name, ms);
    }
    if (times_.nameless_ms > 0) out_.left_over.emplace_back("outside of all modules", times_.nameless_ms);
    std::sort(out_.left_over.begin(), out_.left_over.end(), [](const auto& a, const auto& b) {
      return a.second != b.second ? a.second > b.second : a.first < b.first;
    });
    if (out_.attributed_ms() <= 0 || out_.attributed_ms() < kLeastAttributed * out_.measured_ms) refuse();
    count_positions();
    scale();
    note();
    return std::move(out_);
  }

 private:
  void check_model() const {
    if (times_.positions != 0 && times_.positions != model_.profile.size()) {
      throw Error(ErrorKind::kData,
                  times_.source + ": it is of a model with " + format_count(times_.positions) + " positions, and " +
                      model_.profile.model + " has " + format_count(model_.profile.size()),
                  "give the module that the plan was made for, with --whole-loops where it was made with that");
    }
    const std::string& own = model_.profile.source_sha256;
    if (times_.model_sha256.empty() || own.empty() || times_.model_sha256 == own) return;
    constexpr std::size_t kShown = 12;  // characters of a hash
    throw Error(ErrorKind::kData,
                times_.source + ": it is of another file than " + model_.profile.model + ": its model_sha256 is " +
                    printable(times_.model_sha256.substr(0, kShown)) + ", this model's is " + own.substr(0, kShown),
                "give the module that the plan was made for, in the same form");
  }

  // --- Which of the times ---

  static double apart(double a, double b) { return std::abs(std::log(a / b)); }

  // Chooses, among several numbers of samples, the nearest to the model's; for a kind without times there, the nearest
  // to that.
  void choose_samples(double asked) {
    const auto own = static_cast<double>(pipeline::own_samples(model_.profile));
    std::set<double> known;
    for (const MeasuredTime& time : times_.times) {
      if (time.samples > 0) known.insert(time.samples);
    }
    if (asked > 0 && !known.empty() && known.count(asked) == 0) {
      std::string all;
      for (const double samples : known) all += (all.empty() ? "" : ", ") + format_amount(samples);
      throw Error(ErrorKind::kData, times_.source + ": has no times of " + format_amount(asked) + " samples",
                  "it has those of " + all);
    }
    out_.samples = asked > 0 ? asked : own;
    if (asked <= 0 && known.empty() && times_.devices > 1) {
      out_.notes.push_back("it is of " + format_count(times_.devices) +
                           " devices, each of which is taken to have computed " + format_amount(own) +
                           " samples: --measured-samples says how many");
    }
    if (known.empty()) return;
    if (asked <= 0) {
      out_.samples = *std::min_element(known.begin(), known.end(),
                                       [&](double a, double b) { return apart(a, own) < apart(b, own); });
    }
    for (const MeasuredTime& time : times_.times) {
      if (time.samples <= 0) continue;
      const auto [chosen, is_new] = samples_of_.emplace(std::pair(time.named, time.name), time.samples);
      if (!is_new && apart(time.samples, out_.samples) < apart(chosen->second, out_.samples)) {
        chosen->second = time.samples;
      }
    }
    for (const auto& [what, samples] : samples_of_) {
      if (samples == out_.samples) continue;
      out_.notes.push_back("of '" + excerpt(what.second, kShownColumns) + "' there are no times of " +
                           format_amount(out_.samples) + " samples: those of " + format_amount(samples) +
                           ", in proportion");
    }
  }

  // The time at out_.samples; none: another one of the same name is.
  std::optional<MeasuredTime> chosen(const MeasuredTime& given) const {
    if (given.samples <= 0) return given;
    if (samples_of_.at({given.named, given.name}) != given.samples) return std::nullopt;
    MeasuredTime time = given;
    for (std::optional<double>* ms : {&time.forward_ms, &time.backward_ms, &time.either_ms}) {
      if (*ms) **ms *= out_.samples / given.samples;
    }
    return time;
  }

  // --- To positions ---

  // `ms` to what the places take by the estimate, as it is told. `passes`: where to put it.
  struct Share {
    std::int32_t position = 0;
    bool backward = false;
    double weight = 0;
  };
  void spread(const std::vector<Share>& shares, double ms) {
    double all = 0;
    for (const Share& share : shares) all += share.weight;
    for (const Share& share : shares) {
      const double part = all > 0 ? ms * (share.weight / all) : ms / static_cast<double>(shares.size());
      (share.backward ? measured_.backward : measured_.forward)[at(share.position)] += part;
      (share.backward ? covered_backward_ : covered_forward_)[at(share.position)] = true;
      (share.backward ? out_.backward_ms : out_.forward_ms) += part;
    }
  }

  void leave(const std::string& name, double ms) { left_over_[name] += ms; }

  // --- Instructions ---

  static std::string path_of(std::string op_name) {
    // Some versions of JAX name the function inside jit, others do not.
    for (const std::string_view part : {"jit(main)/"}) {
      if (const std::size_t found = op_name.find(part); found != std::string::npos) op_name.erase(found, part.size());
    }
    return op_name;
  }

  void index_places() {
    by_instruction_.assign(at(graph_.num_instructions()), {});
    for (std::size_t i = 0; i < model_.places.size(); ++i) {
      const WorkPlace& place = model_.places[i];
      by_instruction_[at(place.instruction)].push_back(i);
      const std::string path = path_of(graph_.op_name(place.instruction));
      if (!path.empty()) by_path_.emplace_back(path, i);
    }
    std::sort(by_path_.begin(), by_path_.end());
    caller_.assign(at(graph_.num_computations()), kNone);
    for (InstructionId id = 0; id < graph_.num_instructions(); ++id) {
      by_name_.emplace(graph_.instruction(id).name, id);
      for (const graph::ComputationId called : graph_.called(id)) caller_[at(called)] = id;
    }
  }

  // Those of the instruction, or of what calls it.
  std::vector<std::size_t> places_of(InstructionId id) const {
    for (std::int32_t depth = 0; id != kNone && depth <= graph_.num_computations(); ++depth) {
      if (!by_instruction_[at(id)].empty()) return by_instruction_[at(id)];
      id = caller_[at(graph_.instruction(id).computation)];
    }
    return {};
  }

  std::vector<std::size_t> places_with_path(const std::string& op_name) const {
    std::string path = path_of(op_name);
    const auto between = [&](const std::string& begin, const std::string& end) {
      std::vector<std::size_t> places;
      for (auto it = std::lower_bound(by_path_.begin(), by_path_.end(), std::pair(begin, std::size_t{0}));
           it != by_path_.end() && it->first < end; ++it) {
        places.push_back(it->second);
      }
      return places;
    };
    std::vector<std::size_t> places = between(path, path + '\0');
    // Takes the instructions that begin with the longest part of the path that still names a part of the model.
    while (places.empty() && !graph::scopes_of(path).empty()) {
      const std::size_t slash = path.rfind('/');
      if (slash == std::string::npos) break;
      path.resize(slash);
      if (graph::scopes_of(path + "/x").empty()) break;
      places = between(path + "/", path + "0");  // '0' follows '/'
    }
    return places;
  }

  // True if names without an op_name can be matched: most of them are the module's.
  bool names_are_known() const {
    std::size_t known = 0, all = 0;
    for (const MeasuredTime& time : times_.times) {
      if (time.named != Named::kInstruction) continue;
      ++all;
      known += by_name_.count(time.name);
    }
    return 2 * known >= all;
  }

  void add_instructions() {
    const bool any = std::any_of(times_.times.begin(), times_.times.end(),
                                 [](const MeasuredTime& time) { return time.named == Named::kInstruction; });
    if (!any) return;
    index_places();
    const bool by_name_alone = names_are_known();
    for (const MeasuredTime& time : times_.times) {
      if (time.named != Named::kInstruction) continue;
      std::vector<std::size_t> places;
      if (const auto found = by_name_.find(time.name); found != by_name_.end()) {
        const std::string op_name = graph_.op_name(found->second);
        const bool same =
            time.op_name.empty() || op_name.empty() ? by_name_alone : path_of(op_name) == path_of(time.op_name);
        if (same) places = places_of(found->second);
      }
      if (places.empty() && !time.op_name.empty()) places = places_with_path(time.op_name);
      if (places.empty()) {
        leave(time.op_name.empty() ? time.name : time.op_name, time.ms());
      } else {
        add_to_places(places, time.ms());
      }
    }
  }

  void add_to_places(const std::vector<std::size_t>& places, double ms) {
    double all = 0;
    for (const std::size_t i : places) all += model_.places[i].ms;
    for (const std::size_t i : places) {
      const WorkPlace& place = model_.places[i];
      const double part = all > 0 ? ms * (place.ms / all) : ms / static_cast<double>(places.size());
      if (place.part == Part::kOptimizer) {
        out_.optimizer_ms += part;
      } else if (place.part != Part::kForward && place.part != Part::kBackward) {
        out_.other_ms += part;
      } else {
        std::vector<Share> turns;
        for (std::int32_t p = place.first; p <= place.last; ++p) turns.push_back({p, place.part == Part::kBackward, 1});
        spread(turns, part);
      }
    }
  }

  // --- Layers ---

  std::vector<std::int32_t> positions_of(const std::vector<int>& layers) const {
    std::vector<std::int32_t> positions;
    for (const int layer : layers) {
      const std::vector<std::int32_t>& own = layer_positions_[static_cast<std::size_t>(layer)];
      positions.insert(positions.end(), own.begin(), own.end());
    }
    return positions;
  }

  void spread_over(const std::vector<std::int32_t>& positions, const MeasuredTime& time) {
    const auto shares = [&](bool forward, bool backward) {
      std::vector<Share> out;
      for (const std::int32_t p : positions) {
        if (forward) out.push_back({p, false, own_.forward[at(p)]});
        if (backward) out.push_back({p, true, own_.backward[at(p)]});
      }
      return out;
    };
    if (time.forward_ms) spread(shares(true, false), *time.forward_ms);
    // A model without a backward pass has no place for a backward time.
    if (time.backward_ms && model_.training) spread(shares(false, true), *time.backward_ms);
    if (time.backward_ms && !model_.training) leave(time.name + ", backward", *time.backward_ms);
    if (time.either_ms) spread(shares(true, model_.training), *time.either_ms);
  }

  // Layers of one name are one, wherever they stand.
  void index_layers() {
    std::map<std::string, int> known;
    std::vector<std::string> names;
    for (const LayerSummary& layer : model_.layers) {
      const auto [it, is_new] = known.emplace(layer.name, static_cast<int>(names.size()));
      if (is_new) {
        names.push_back(layer.name);
        layer_positions_.emplace_back();
      }
      for (std::int32_t p = layer.first_instruction - 1; p < layer.last_instruction; ++p) {
        layer_positions_[static_cast<std::size_t>(it->second)].push_back(p);
      }
    }
    layer_names_.emplace(names);
    by_layer_name_ = std::move(known);
  }

  void add_layers() {
    index_layers();
    std::vector<std::string> paths;
    for (const MeasuredTime& time : times_.times) {
      if (time.named == Named::kScope || time.named == Named::kLayer) paths.push_back(time.name);
    }
    layer_names_->match_numbers(paths);
    for (const MeasuredTime& given : times_.times) {
      if (given.named == Named::kInstruction) continue;
      const std::optional<MeasuredTime> at_samples = chosen(given);
      if (!at_samples) continue;
      const MeasuredTime& time = *at_samples;
      if (time.named == Named::kOptimizer) {
        out_.optimizer_ms += time.ms();
        continue;
      }
      if (time.named == Named::kEveryLayer) {
        add_every_layer(time);
        continue;
      }
      const std::vector<std::int32_t> positions = positions_named(time);
      if (positions.empty()) {
        leave(time.name, time.ms());
      } else {
        if (given.line > 0) take_rows(positions, given);
        spread_over(positions, time);
      }
    }
  }

  // A table gives each position one time of a pass.
  void take_rows(const std::vector<std::int32_t>& positions, const MeasuredTime& row) {
    row_of_forward_.resize(own_.forward.size());
    row_of_backward_.resize(own_.forward.size());
    const auto take = [&](std::int32_t position, std::vector<const MeasuredTime*>* rows) {
      const MeasuredTime*& taken = (*rows)[at(position)];
      if (taken != nullptr) {
        throw Error(ErrorKind::kData,
                    row_place(row) + " is in part that of line " + std::to_string(taken->line) + ", '" +
                        excerpt(taken->name, kShownColumns) + "'",
                    "a part of a name is all layers that have it: leave out one of the two, or name layers in full");
      }
      taken = &row;
    };
    for (const std::int32_t p : positions) {
      if (row.forward_ms || row.either_ms) take(p, &row_of_forward_);
      if (row.backward_ms || row.either_ms) take(p, &row_of_backward_);
    }
  }
  std::string row_place(const MeasuredTime& row) const {
    return times_.source + ":" + std::to_string(row.line) + ": layer '" + excerpt(row.name, kShownColumns) + "'";
  }

  void add_every_layer(const MeasuredTime& time) {
    const auto& kinds = layer_names_->kinds();
    const std::size_t kind = std::stoul("0" + time.name.substr(0, 6));
    if (kind >= kinds.size()) return leave("layers of kind " + time.name, time.ms());
    for (const int layer : kinds[kind]) spread_over(layer_positions_[static_cast<std::size_t>(layer)], time);
  }

  std::vector<std::int32_t> positions_named(const MeasuredTime& time) const {
    switch (time.named) {
      case Named::kInFront: return outside(true, false);
      case Named::kBehind: return outside(false, true);
      case Named::kOutside: return outside(true, true);
      case Named::kLayer: return positions_of_layer(time.name);
      case Named::kPositions: {
        std::vector<std::int32_t> positions;
        for (std::int64_t p = time.first; p <= time.last; ++p) positions.push_back(static_cast<std::int32_t>(p - 1));
        return positions;
      }
      default: break;
    }
    const std::vector<int> layers = layer_names_->find(time.name);
    if (!layers.empty()) return positions_of(layers);
    if (!layer_names_->knows_kinds()) return {};
    // Where every layer of a kind is known, a name in the model that is in none of them is outside. Other names (data
    // loading, metrics) are not the model's.
    std::vector<std::string> words = words_of(time.name);
    const bool in_root = layer_names_->is_in_root(words);
    // The root's own name ("GPT2LMHeadModel") says nothing about its parts.
    if (in_root) words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(layer_names_->root_size()));
    const auto says = [&](std::initializer_list<std::string_view> parts) {
      return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
        return std::any_of(parts.begin(), parts.end(),
                           [&](std::string_view part) { return word.find(part) != std::string::npos; });
      });
    };
    if (says({"embed", "wte", "wpe"})) return outside(true, false);
    if (says({"head", "loss", "logit", "entropy"})) return outside(false, true);
    return in_root ? outside(true, true) : std::vector<std::int32_t>();
  }

  // The positions of the layers that are of no kind: those in front of the first layer of a kind, and those behind it.
  std::vector<std::int32_t> outside(bool in_front, bool behind) const {
    std::int32_t first = static_cast<std::int32_t>(own_.forward.size());
    for (const std::vector<int>& kind : layer_names_->kinds()) {
      for (const int layer : kind) first = std::min(first, layer_positions_[static_cast<std::size_t>(layer)].front());
    }
    std::vector<std::int32_t> positions;
    for (const std::int32_t p : positions_of(layer_names_->outside())) {
      if (p < first ? in_front : behind) positions.push_back(p);
    }
    return positions;
  }

  std::vector<std::int32_t> positions_of_layer(const std::string& name) const {
    if (const auto found = by_layer_name_.find(name); found != by_layer_name_.end())
      return positions_of({found->second});
    if (is_number(name) && name.size() < 9) {
      const auto number = static_cast<std::size_t>(std::stoul(name));
      std::vector<std::int32_t> positions;
      if (number < 1 || number > model_.layers.size()) return positions;
      const LayerSummary& layer = model_.layers[number - 1];
      for (std::int32_t p = layer.first_instruction - 1; p < layer.last_instruction; ++p) positions.push_back(p);
      return positions;
    }
    return positions_of(layer_names_->find(name));
  }

  // --- The profile ---

  [[noreturn]] void refuse() const {
    std::vector<std::string> theirs, ours;
    for (const auto& [name, ms] : out_.left_over) {
      if (theirs.size() == kShownNames) break;
      theirs.push_back(excerpt(name, kShownColumns));
    }
    const std::string share =
        out_.attributed_ms() > 0 ? format_percent(out_.attributed_ms() / out_.measured_ms) : "nothing";
    const bool instructions = !by_name_.empty();
    for (const LayerSummary& layer : model_.layers) {
      if (instructions || ours.size() == kShownNames) break;
      ours.push_back(excerpt(layer.name, kShownColumns));
    }
    for (const std::string& name : model_.profile.name) {
      if (!instructions || ours.size() == kShownNames) break;
      ours.push_back(excerpt(name, kShownColumns));
    }
    throw Error(ErrorKind::kData,
                times_.source + ": of " + format_ms(out_.measured_ms) + " that were measured " + share +
                    " can be attributed to " + model_.profile.model +
                    (times_.module.empty() ? "" : " (the trace is of " + times_.module + ")"),
                instructions ? "is it a trace of this module? Where it has no op_names (CPU), --measured-hlo takes the "
                               "module after optimization, whose names it has"
                             : "is it of this model? A layer is named as automap-profile names it, or by its number",
                {"it has " + join(theirs) + (out_.left_over.size() > theirs.size() ? ", ..." : ""),
                 std::string("the model has ") + (instructions ? "instructions " : "layers ") + join(ours) + ", ..."});
  }

  void count_positions() {
    double compute = 0, covered = 0;
    for (std::size_t p = 0; p < own_.forward.size(); ++p) {
      const double both = own_.forward[p] + own_.backward[p];
      const bool has_time = covered_forward_[p] || covered_backward_[p];
      compute += both;
      if (both <= 0 && !has_time) continue;
      ++out_.positions;
      if (!has_time) continue;
      ++out_.measured_positions;
      covered += both;
    }
    out_.measured_compute = compute > 0 ? covered / compute : 0;
  }

  // The scale of one pass: by position a factor, or ms where nothing was estimated.
  struct Scale {
    std::vector<double> factor, added;
  };

  // The ratio of the measured part of the pass to its estimate; none: no part was measured.
  std::optional<double> ratio(const std::vector<double>& own, const std::vector<double>& measured,
                              const std::vector<bool>& covered) const {
    double estimate = 0, taken = 0;
    for (const LayerSummary& layer : model_.layers) {
      double layer_own = 0, layer_taken = 0;
      bool any = false;
      for (std::int32_t p = layer.first_instruction - 1; p < layer.last_instruction; ++p) {
        layer_own += own[at(p)];
        layer_taken += measured[at(p)];
        any = any || covered[at(p)];
      }
      if (!any) continue;
      estimate += layer_own;
      taken += layer_taken;
    }
    if (estimate <= 0) return std::nullopt;
    return taken / estimate;
  }

  // What hand-written times and an estimate can be apart; more is another unit, or a typing error.
  void check_ratio(double ratio, const LayerSummary& layer, const std::vector<const MeasuredTime*>& rows) const {
    if (ratio == 0 || (ratio <= kMostRatio && ratio >= 1 / kMostRatio) || rows.empty()) return;
    for (std::int32_t p = layer.first_instruction - 1; p < layer.last_instruction; ++p) {
      const MeasuredTime* const row = rows[at(p)];
      if (row == nullptr) continue;
      throw Error(ErrorKind::kData,
                  row_place(*row) + ": its time is " + format_number(ratio) + " times the estimate, expected at most " +
                      format_count(static_cast<long long>(kMostRatio)) + " times more or less",
                  "times are in milliseconds");
    }
  }

  Scale scale_of(const std::vector<double>& own, const std::vector<double>& measured, const std::vector<bool>& covered,
                 const std::vector<const MeasuredTime*>& rows, double of_the_rest) const {
    Scale scale;
    scale.factor.assign(own.size(), of_the_rest);
    scale.added.assign(own.size(), 0.0);
    for (const LayerSummary& layer : model_.layers) {
      double layer_own = 0, layer_taken = 0;
      bool any = false, all = true;
      for (std::int32_t p = layer.first_instruction - 1; p < layer.last_instruction; ++p) {
        layer_own += own[at(p)];
        layer_taken += measured[at(p)];
        any = any || covered[at(p)];
        all = all && (covered[at(p)] || own[at(p)] <= 0);
      }
      if (!any) continue;
      if (layer_own > 0) check_ratio(layer_taken / layer_own, layer, rows);
      for (std::int32_t p = layer.first_instruction - 1; p < layer.last_instruction; ++p) {
        if (all && own[at(p)] > 0) {
          scale.factor[at(p)] = measured[at(p)] / own[at(p)];
        } else if (all || layer_own <= 0) {
          scale.added[at(p)] = measured[at(p)];
        } else {
          scale.factor[at(p)] = layer_taken / layer_own;
        }
      }
    }
    return scale;
  }

  void scale() {
    const std::optional<double> forward = ratio(own_.forward, measured_.forward, covered_forward_);
    const std::optional<double> backward = ratio(own_.backward, measured_.backward, covered_backward_);
    if (forward && !backward && model_.training) {
      out_.notes.emplace_back("of the backward pass nothing was measured: it is scaled as the forward pass is");
    }
    if (backward && !forward) {
      out_.notes.emplace_back("of the forward pass nothing was measured: it is scaled as the backward pass is");
    }
    const double either = forward ? *forward : backward.value_or(1);
    forward_ = scale_of(own_.forward, measured_.forward, covered_forward_, row_of_forward_, forward.value_or(either));
    backward_ =
        scale_of(own_.backward, measured_.backward, covered_backward_, row_of_backward_, backward.value_or(either));
    const double optimizer =
        out_.optimizer_ms > 0 && model_.optimizer_ms > 0 ? out_.optimizer_ms / model_.optimizer_ms : 1;

    Profile& profile = model_.profile;
    const auto own_samples = static_cast<double>(pipeline::own_samples(profile));
    const Passes before = passes_at(profile, own_samples);
    for (DeviceTimes& times : profile.times) scale_times({}, 1, optimizer, &times);
    for (pipeline::WidthColumns& columns : profile.widths) {
      for (std::size_t d = 0; d < columns.times.size(); ++d) {
        scale_times(columns.collective_ms[d], columns.width, optimizer, &columns.times[d]);
      }
    }
    Passes after = before;
    scale_row(forward_, {}, own_samples, 1, &after.forward);
    scale_row(backward_, {}, own_samples, 1, &after.backward);
    for (std::size_t p = 0; p < profile.c_ms.size(); ++p) {
      const double was = before.forward[p] + before.backward[p], is = after.forward[p] + after.backward[p];
      profile.c_ms[p] = was > 0 ? profile.c_ms[p] * (is / was) : is;
    }
    const double all_before = sum(before.forward) + sum(before.backward);
    out_.factor = all_before > 0 ? (sum(after.forward) + sum(after.backward)) / all_before : 1;
    model_.forward_ms = sum(after.forward);
    model_.backward_ms = sum(after.backward);
    model_.optimizer_ms *= optimizer;
    if (model_.backward_ms > 0 && model_.forward_ms > 0) {
      profile.forward_fraction = model_.forward_ms / (model_.forward_ms + model_.backward_ms);
    }
    for (LayerSummary& layer : model_.layers) {
      layer.c_ms = 0;
      for (std::int32_t p = layer.first_instruction - 1; p < layer.last_instruction; ++p)
        layer.c_ms += profile.c_ms[at(p)];
    }
    pipeline::check_profile(profile, times_.source);
  }

  // `collective`: by position the share of both passes that devices of a replica exchange; empty: none.
  void scale_row(const Scale& scale, const std::vector<double>& collective, double samples, int width,
                 std::vector<double>* row) const {
    for (std::size_t p = 0; p < row->size(); ++p) {
      const double kept = collective.empty() ? 0 : collective[p];
      (*row)[p] = (*row)[p] * (kept + (1 - kept) * scale.factor[p]) + scale.added[p] * (samples / out_.samples) / width;
    }
  }

  void scale_times(const std::vector<double>& collective_ms, int width, double optimizer, DeviceTimes* times) const {
    std::vector<double> share;
    if (!collective_ms.empty()) {
      const auto own = static_cast<double>(pipeline::own_samples(model_.profile));
      const std::vector<double> forward = row_at(*times, times->forward_ms, own);
      const std::vector<double> backward = row_at(*times, times->backward_ms, own);
      for (std::size_t p = 0; p < forward.size(); ++p) {
        const double both = forward[p] + backward[p];
        share.push_back(both > 0 ? std::min(1.0, collective_ms[p] / both) : 0);
      }
    }
    for (std::size_t i = 0; i < times->samples.size(); ++i) {
      scale_row(forward_, share, times->samples[i], width, &times->forward_ms[i]);
      scale_row(backward_, share, times->samples[i], width, &times->backward_ms[i]);
    }
    for (double& ms : times->optimizer_ms) ms *= optimizer;
  }

  void note() {
    constexpr double kLittle = 0.5;
    if (out_.attributed_ms() < kLittle * out_.measured_ms) {
      out_.notes.push_back("less than half of the measured time is the model's: is it a trace of this model?");
    }
    if (out_.measured_compute < kLittle) {
      out_.notes.push_back(
          "less than half of the model's compute has a measured time: most of the profile is the "
          "estimate, scaled");
    }
  }

  const MeasuredTimes& times_;
  const graph::Graph& graph_;
  ModelProfile& model_;
  Attribution out_;
  std::map<std::pair<Named, std::string>, double> samples_of_;  // at which what is measured counts, where it says any
  Passes own_, measured_;                                       // estimated at the measured samples, and measured
  std::vector<bool> covered_forward_, covered_backward_;
  std::vector<const MeasuredTime*> row_of_forward_, row_of_backward_;  // of a table, by position; empty: there is none
  std::map<std::string, double> left_over_;
  Scale forward_, backward_;

  std::vector<std::vector<std::size_t>> by_instruction_;
  std::vector<std::pair<std::string, std::size_t>> by_path_;  // ascending
  std::vector<InstructionId> caller_;                         // by computation
  std::unordered_map<std::string_view, InstructionId> by_name_;

  std::optional<LayerNames> layer_names_;
  std::vector<std::vector<std::int32_t>> layer_positions_;
  std::map<std::string, int> by_layer_name_;
};

}  // namespace

Attribution apply_measured(const MeasuredTimes& times, const graph::Graph& graph, double samples,
                           profile::ModelProfile* model) {
  return Attributor(times, graph, samples, model).run();
}

void add_op_names(const graph::Graph& ran, MeasuredTimes* times) {
  std::unordered_map<std::string_view, InstructionId> by_name;
  for (InstructionId id = 0; id < ran.num_instructions(); ++id) by_name.emplace(ran.instruction(id).name, id);
  for (MeasuredTime& time : times->times) {
    if (time.named != Named::kInstruction || !time.op_name.empty()) continue;
    if (const auto found = by_name.find(time.name); found != by_name.end()) time.op_name = ran.op_name(found->second);
  }
}

AttributionSentences attribution_sentences(const Attribution& a) {
  const auto percent = [](double part, double all) { return format_percent(all > 0 ? part / all : 0); };
  std::string steps = a.steps > 1 ? ", " + format_count(a.steps) + " steps by " + a.steps_by : "";
  std::string text = printable(a.source) + " (" + a.form + steps + "): of " + format_ms(a.measured_ms) + " of a step " +
                     percent(a.attributed_ms(), a.measured_ms) + " are the model's, forward " +
                     format_ms(a.forward_ms) + ", backward " + format_ms(a.backward_ms);
  if (a.optimizer_ms > 0) text += ", optimizer " + format_ms(a.optimizer_ms);
  if (a.other_ms > 0) text += ", metrics " + format_ms(a.other_ms);
  if (a.communication_ms > 0)
    text += "; communication and copies of the host beside that " + format_ms(a.communication_ms);
  if (!a.left_over.empty()) {
    text += "; not the model's:";
    constexpr std::size_t kShown = 3;
    for (std::size_t i = 0; i < a.left_over.size() && i < kShown; ++i) {
      text += std::string(i == 0 ? " " : ", ") + excerpt(a.left_over[i].first, kShownColumns) + " " +
              format_ms(a.left_over[i].second);
    }
    if (a.left_over.size() > kShown)
      text += " and " + format_count(static_cast<long long>(a.left_over.size() - kShown)) + " more";
  }
  std::string scaled = format_count(a.measured_positions) + " of " + format_count(a.positions) +
                       " positions have a measured time, " + format_percent(a.measured_compute) +
                       " of the compute; both passes take " + format_number(a.factor) + " times what is estimated";
  for (const std::string& one : a.notes) scaled += "; " + one;
  return {text, scaled};
}

Json attribution_json(const Attribution& a) {
  Json left_over = Json::array();
  for (const auto& [name, ms] : a.left_over) left_over.push_back({{"name", name}, {"ms", ms}});
  return {{"source", a.source},
          {"form", a.form},
          {"steps", a.steps},
          {"steps_by", a.steps_by.empty() ? Json() : Json(a.steps_by)},
          {"samples", a.samples},
          {"measured_ms", a.measured_ms},
          {"attributed_ms", a.attributed_ms()},
          {"forward_ms", a.forward_ms},
          {"backward_ms", a.backward_ms},
          {"optimizer_ms", a.optimizer_ms},
          {"other_ms", a.other_ms},
          {"communication_ms", a.communication_ms},
          {"not_attributed", left_over},
          {"positions", a.positions},
          {"measured_positions", a.measured_positions},
          {"measured_compute_share", a.measured_compute},
          {"factor", a.factor},
          {"notes", a.notes}};
}

}  // namespace automap::measured
