#include "infer/score.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/text_table.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/warmup.h"

namespace automap::infer {
namespace {

using machine::Cluster;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::ProblemOptions;
using pipeline::Profile;
using pipeline::Schedule;
using pipeline::StageVariant;

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

// The variants that the stages of a plan are, each once, and which of them each stage is.
void take_variants(const std::vector<StageVariant>& of_stages, ProblemOptions& options, Plan& plan) {
  options.variants.clear();
  plan.variants.clear();
  for (const StageVariant& variant : of_stages) {
    auto found = std::find(options.variants.begin(), options.variants.end(), variant);
    if (found == options.variants.end()) found = options.variants.insert(found, variant);
    plan.variants.push_back(static_cast<std::uint8_t>(found - options.variants.begin()));
  }
}

void measure(ScoredPlan& scored) {
  const Problem& problem = *scored.problem;
  const Plan& plan = scored.plan;
  scored.step_ms = pipeline::value_ms(problem, plan);
  scored.simulated_step_ms = pipeline::simulate_step_ms(problem, plan);
  scored.infeasible = pipeline::infeasible_reason(problem, plan);
  const std::vector<int> in_flight = pipeline::in_flight_of(problem, plan);
  pipeline::for_each_stage(problem, plan, [&](int s, int p0, int p1, int d0, int d1) {
    const pipeline::DeviceGroup& group = problem.group(d0, d1);
    const double bytes = problem.memory_bytes(p0, p1, group, in_flight[at(s - 1)], plan.variant(s));
    scored.fullest_share = std::max(scored.fullest_share, bytes / group.capacity_bytes);
    if (problem.options().memory && bytes - group.capacity_bytes > scored.missing_bytes) {
      scored.missing_bytes = bytes - group.capacity_bytes;
      scored.missing_stage = s;
    }
    return true;
  });
}

// Position (0-based) where each whole layer of the model's stacks begins; where layers are not numbered, where any
// layer begins.
std::vector<int> layer_starts(const Profile& profile) {
  std::vector<int> numbered, named;
  std::string last_numbered;
  for (std::size_t i = 0; i < profile.layer.size(); ++i) {
    if (i == 0 || profile.layer[i] != profile.layer[i - 1]) named.push_back(static_cast<int>(i));
    const std::optional<planners::LayerNumber> number = planners::layer_number(profile.layer[i]);
    if (!number) continue;
    const std::string key = number->stack + "\n" + std::to_string(number->index);
    if (key == last_numbered) continue;
    numbered.push_back(static_cast<int>(i));
    last_numbered = key;
  }
  return numbered.size() > 1 ? numbered : named;
}

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
  throw Error(ErrorKind::kUsage, what, hint);
}

// Replicas of `width` devices: their profile, and the cluster of them.
struct AtWidth {
  Profile profile;
  Cluster replicas;
};
AtWidth at_width(const Profile& profile, const Cluster& cluster, int width, const std::string& source) {
  Cluster replicas = machine::replicas_of(cluster, width);
  const auto known = [&](const pipeline::WidthColumns& columns) { return columns.width == width; };
  if (width > 1 && std::none_of(profile.widths.begin(), profile.widths.end(), known)) {
    std::string widths = "1";
    for (const pipeline::WidthColumns& columns : profile.widths) widths += ", " + std::to_string(columns.width);
    throw Error(ErrorKind::kUsage,
                source + ": replicas of " + std::to_string(width) +
                    " devices are not known of this model and cluster, but of " + widths,
                profile.widths.empty() ? "plan the model itself (HLO), or a profile made with --widths" : "");
  }
  return {profile_at(profile, width), std::move(replicas)};
}

int whole_number(std::string_view value, const std::string& key, int least) {
  int number = 0;
  const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (status != std::errc() || end != value.data() + value.size() || number < least) {
    refuse("--layout: " + key + " is '" + std::string(value) + "', expected a whole number from " +
               std::to_string(least) + " on",
           "");
  }
  return number;
}

// Options and cuts of a layout; nothing is judged.
Plan plan_of(const Layout& layout, const Profile& profile) {
  const std::vector<int> starts = layer_starts(profile);
  const int layers = static_cast<int>(starts.size());
  if (layout.pp > 1 && layers < layout.pp) {
    refuse("--layout: pp=" + std::to_string(layout.pp) + " stages, and the model has " + std::to_string(layers) +
               " whole layers",
           layers > 1 ? "at most pp=" + std::to_string(layers)
                      : "the profile names no layers to spread: give a plan with --plan instead");
  }
  Plan plan;
  plan.schedule = layout.schedule;
  int begun = 0;
  for (int s = 1; s < layout.pp; ++s) {
    begun += layers / layout.pp + (s <= layers % layout.pp ? 1 : 0);
    plan.cuts.push_back(starts[at(begun)]);
    plan.device_cuts.push_back(s * layout.dp);
  }
  return plan;
}

}  // namespace

int most_layout_stages(const Profile& profile) {
  return std::max(1, static_cast<int>(layer_starts(profile).size()));
}

std::string Layout::text() const {
  std::string out = "dp=" + std::to_string(dp) + ",pp=" + std::to_string(pp);
  if (tp > 1) out += ",tp=" + std::to_string(tp);
  out += ",micro-batch-size=" + std::to_string(micro_batch_size);
  if (variant.zero > 0) out += ",zero=" + std::to_string(variant.zero);
  if (variant.recompute) out += ",recompute=layer";
  if (schedule != Schedule::kAdaptive) out += std::string(",schedule=") + to_string(schedule);
  return out;
}

Layout parse_layout(std::string_view text, const StageOverrides& overrides) {
  constexpr const char* kExample =
      "for example --layout dp=8,pp=4,micro-batch-size=2,zero=1,recompute=layer,schedule=1f1b";
  Layout layout;
  std::vector<std::string> seen;
  for (bool more = true; more;) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    more = comma < text.size();
    text.remove_prefix(more ? comma + 1 : comma);
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      refuse("--layout: '" + std::string(part) + "' is no KEY=VALUE", kExample);
    }
    const std::string key(part.substr(0, equals));
    const std::string_view value = part.substr(equals + 1);
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) refuse("--layout: " + key + " stands twice", kExample);
    seen.push_back(key);
    if (key == "dp") {
      layout.dp = whole_number(value, key, 1);
    } else if (key == "pp") {
      layout.pp = whole_number(value, key, 1);
    } else if (key == "tp") {
      layout.tp = whole_number(value, key, 1);
    } else if (key == "micro-batch-size") {
      layout.micro_batch_size = whole_number(value, key, 1);
    } else if (key == "zero") {
      layout.variant.zero = whole_number(value, key, 0);
      if (layout.variant.zero > 3) refuse("--layout: zero is 0, 1, 2 or 3", kExample);
    } else if (key == "recompute") {
      if (value != "layer" && value != "none") refuse("--layout: recompute is none or layer", kExample);
      layout.variant.recompute = value == "layer";
    } else if (key == "schedule") {
      const auto named = pipeline::parse_schedule(value);
      if (!named) refuse("--layout: schedule is one of " + pipeline::schedule_names(), kExample);
      layout.schedule = *named;
    } else {
      refuse("--layout: unknown key '" + key + "', known: dp, pp, tp, micro-batch-size, zero, recompute, schedule",
             kExample);
    }
  }
  // Options say what the layout leaves open.
  const auto asked = [&](const char* key, const auto& option, auto& value) {
    if (!option) return;
    if (std::find(seen.begin(), seen.end(), key) != seen.end() && !(*option == value)) {
      refuse(std::string("--") + key + " contradicts the layout's " + key, std::string("leave --") + key + " out");
    }
    value = *option;
  };
  asked("zero", overrides.zero, layout.variant.zero);
  asked("recompute", overrides.recompute, layout.variant.recompute);
  asked("schedule", overrides.schedule, layout.schedule);
  return layout;
}

ScoredPlan score_plan(const Profile& profile, const Cluster& cluster, const ProblemOptions& options, Plan plan,
                      const std::string& source) {
  ScoredPlan scored;
  scored.problem = std::make_unique<Problem>(profile, cluster, options);
  scored.plan = std::move(plan);
  const Problem& problem = *scored.problem;
  const auto within = [&](const char* key, const std::vector<int>& cuts, int end, const char* what) {
    if (cuts.empty() || (cuts.front() >= 1 && cuts.back() < end)) return;
    throw Error(ErrorKind::kData, source + ": " + key + ": found " + std::to_string(cuts.back()) +
                                      ", expected cuts from 1 to " + std::to_string(end - 1) + " of the " +
                                      std::to_string(end) + " " + what);
  };
  within("cuts", scored.plan.cuts, problem.num_instructions(), "forward instructions");
  within("device_cuts", scored.plan.device_cuts, problem.num_devices(), "devices");
  for (std::size_t s = 0; s < scored.plan.warmup.size(); ++s) {
    if (scored.plan.warmup[s] <= problem.micro_batches()) continue;
    throw Error(ErrorKind::kData,
                source + ": in_flight: found " + std::to_string(scored.plan.warmup[s]) + " at stage " +
                    std::to_string(s + 1) + ", expected at most the " + std::to_string(problem.micro_batches()) +
                    " micro-batches of the step",
                "give more --micro-batches, or leave in_flight out: it is chosen then");
  }
  AM_CHECK(pipeline::valid_structure(problem, scored.plan));
  pipeline::for_each_stage(problem, scored.plan, [&](int s, int, int, int d0, int d1) {
    if (problem.group(d0, d1).valid) return true;
    throw Error(ErrorKind::kData,
                source + ": stage " + std::to_string(s) + " has " + std::to_string(d1 - d0) +
                    (d1 - d0 == 1 ? " device" : " devices") + ", which cannot share the " +
                    std::to_string(static_cast<std::int64_t>(problem.micro_batch_samples())) +
                    " samples of a micro-batch",
                "the devices of every stage divide them: give another --micro-batch, or --replicas fractional to count "
                "parts of samples");
  });
  if (scored.plan.warmup.empty()) pipeline::choose_warmup(problem, scored.plan);
  measure(scored);
  return scored;
}

ScoredPlan score_given(GivenPlan given, const Profile& profile, const Cluster& cluster, ProblemOptions options,
                       const planners::StepRequest& step, const StageOverrides& overrides) {
  const std::string& source = given.source;
  const int devices = given.num_devices > 0 ? given.num_devices : cluster.num_devices();
  if (devices > cluster.num_devices()) {
    throw Error(ErrorKind::kData,
                source + " is a plan for " + std::to_string(devices) + " devices, " + cluster.name + " has " +
                    std::to_string(cluster.num_devices()),
                "give the cluster that the plan was made for");
  }
  planners::StepRequest asked = step;
  const auto samples = static_cast<std::int64_t>(std::min(given.micro_batch_samples, 1e9));
  if (asked.batch == 0 && asked.micro_batches == 0 && asked.micro_batch == 0) asked.micro_batches = given.micro_batches;
  if (asked.micro_batch == 0 && (asked.batch == 0 || asked.micro_batches == 0)) asked.micro_batch = samples;
  const planners::StepSize size = planners::step_sizes(asked, profile, options.replicas).front();
  options.micro_batches = size.micro_batches;
  options.micro_batch_samples = size.samples;
  std::vector<std::string> departures;
  const bool other_count = given.micro_batches > 0 && size.micro_batches != given.micro_batches;
  if (other_count || (samples > 0 && size.samples != static_cast<double>(samples))) {
    departures.push_back("counted with " + std::to_string(size.micro_batches) + " micro-batches of " +
                         format_count(std::llround(size.samples)) + "; the plan was made for " +
                         (given.micro_batches > 0 ? std::to_string(given.micro_batches) : "any number") + " of " +
                         (samples > 0 ? format_number(given.micro_batch_samples) : "any size"));
  }
  if (overrides.schedule && *overrides.schedule != given.plan.schedule) {
    // The option itself is named where it departs from the file's.
    given.plan.schedule = *overrides.schedule;
    given.plan.warmup.clear();
  } else if (other_count && !given.plan.warmup.empty()) {
    const bool adaptive = given.plan.schedule == Schedule::kAdaptive;
    if (!adaptive || given.plan.warmup.front() > size.micro_batches) {
      given.plan.warmup.clear();
      departures.push_back("in_flight is that of the other number of micro-batches");
    }
  }
  const std::vector<StageVariant> own = given.variants;
  for (StageVariant& variant : given.variants) {
    variant.zero = overrides.zero.value_or(variant.zero);
    variant.recompute = overrides.recompute.value_or(variant.recompute);
  }
  if (!(own == given.variants)) departures.push_back("counted with the --zero and --recompute given for every stage");
  take_variants(given.variants, options, given.plan);
  const int width = given.width;
  for (int& cut : given.plan.device_cuts) {
    if (cut % width != 0 || devices % width != 0) {
      throw Error(ErrorKind::kData, source + ": device_cuts: found " + std::to_string(cut) +
                                        ", expected whole replicas of " + std::to_string(width) + " devices");
    }
    cut /= width;
  }
  const AtWidth at = at_width(profile, cluster, width, source);
  options.width = width;
  ScoredPlan scored = score_plan(at.profile, planners::first_devices(at.replicas, devices / width), options,
                                 std::move(given.plan), source);
  scored.departures = std::move(departures);
  return scored;
}

namespace {

// Every replica has as many samples of the batch.
void check_replicas(const Layout& layout, std::int64_t batch) {
  if (batch % layout.dp == 0) return;
  const std::int64_t below = batch / layout.dp * layout.dp, above = below + layout.dp;
  refuse("--layout: dp=" + std::to_string(layout.dp) + " replicas do not divide a batch of " + std::to_string(batch) +
             " samples",
         "--batch " + (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(above) + " would do");
}

}  // namespace

ScoredPlan score_layout(const Layout& layout, const Profile& profile, const Cluster& cluster, ProblemOptions options,
                        const planners::StepRequest& step) {
  const std::int64_t wanted = std::int64_t{layout.dp} * layout.pp * layout.tp;
  const int there = cluster.num_devices();
  const int stages = std::min({layout.pp, there, pipeline::kMaxPlanStages, most_layout_stages(profile)});
  if (wanted > there) {
    refuse("--layout: dp=" + std::to_string(layout.dp) + " times pp=" + std::to_string(layout.pp) +
               (layout.tp > 1 ? " times tp=" + std::to_string(layout.tp) : "") + " are " + std::to_string(wanted) +
               " devices, " + cluster.name + " has " + std::to_string(there),
           "dp=" + std::to_string(std::min(layout.dp, there / stages)) + ",pp=" + std::to_string(stages) + " would do");
  }
  const int devices = static_cast<int>(wanted);
  if (layout.pp > pipeline::kMaxPlanStages) {
    refuse("--layout: pp=" + std::to_string(layout.pp) + " stages, at most " +
               std::to_string(pipeline::kMaxPlanStages) + " are planned",
           "pp=" + std::to_string(stages) + " would do");
  }
  planners::StepRequest asked = step;
  if (layout.micro_batch_size > 0) {
    const std::int64_t samples = layout.micro_batch_size * layout.dp;
    if (asked.micro_batch > 0 && asked.micro_batch != samples) {
      refuse("--micro-batch " + std::to_string(asked.micro_batch) + " contradicts the layout's " +
                 std::to_string(samples) + " samples (" + std::to_string(layout.dp) + " replicas of " +
                 std::to_string(layout.micro_batch_size) + ")",
             "leave --micro-batch out");
    }
    asked.micro_batch = samples;
  } else if (asked.micro_batch == 0) {
    // The module's samples in every replica, or the most below that divide the batch.
    std::int64_t own = pipeline::own_samples(profile);
    if (asked.batch > 0 && asked.micro_batches == 0) {
      check_replicas(layout, asked.batch);
      while (asked.batch % (layout.dp * own) != 0) --own;
    }
    asked.micro_batch = layout.dp * own;
  }
  if (asked.batch == 0 && asked.micro_batches == 0) {
    // The batch of every other question, where the layout divides it.
    const std::int64_t usual = planners::kDefaultMicroBatches * pipeline::own_samples(profile);
    if (usual % asked.micro_batch == 0) asked.batch = usual;
  }
  if (asked.batch > 0) check_replicas(layout, asked.batch);
  const planners::StepSize size = planners::step_sizes(asked, profile, pipeline::Replicas::kWhole).front();
  if (std::fmod(size.samples, layout.dp) != 0) {
    refuse("--layout: dp=" + std::to_string(layout.dp) + " replicas do not divide the " +
               std::to_string(static_cast<std::int64_t>(size.samples)) + " samples of a micro-batch",
           "name micro-batch-size, the samples of each replica");
  }
  if (layout.variant.recompute && profile.forward_fraction >= 1) {
    refuse("--layout: there is nothing to recompute, the model has no backward pass", "give recompute=none");
  }
  options.replicas = pipeline::Replicas::kWhole;
  options.micro_batches = size.micro_batches;
  options.micro_batch_samples = size.samples;
  options.variants = {layout.variant};
  options.group_size = layout.dp;
  options.allow_idle_stages = true;
  options.width = layout.tp;
  const std::string source = "--layout " + layout.text();
  const AtWidth at = at_width(profile, cluster, layout.tp, source);
  return score_plan(at.profile, planners::first_devices(at.replicas, devices / layout.tp), options,
                    plan_of(layout, profile), source);
}

}  // namespace automap::infer
