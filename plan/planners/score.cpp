#include "plan/planners/score.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/base/text_table.h"
#include "common/machine/chosen_devices.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/warmup.h"
#include "plan/planners/frameworks.h"
#include "plan/planners/layers.h"

namespace automap::planners {
namespace {

using machine::Cluster;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::ProblemOptions;
using pipeline::Profile;
using pipeline::Schedule;
using pipeline::StageVariant;

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
  const pipeline::PlacedPlan& placed = scored.placed;
  scored.step_ms = value_ms(placed);
  scored.simulated_step_ms = simulate_step_ms(placed);
  scored.infeasible = infeasible_reason(placed);
  const std::vector<double> all_bytes = memory_of(placed);
  for (int s = 1; s <= placed.num_stages(); ++s) {
    const pipeline::PlacedStage& stage = placed.stages[at(s - 1)];
    const double capacity = stage.group().capacity_bytes;
    const double bytes = all_bytes[at(s - 1)];
    scored.fullest_share = std::max(scored.fullest_share, bytes / capacity);
    if (stage.problem->options().memory && bytes - capacity > scored.missing_bytes) {
      scored.missing_bytes = bytes - capacity;
      scored.missing_stage = s;
    }
  }
}

// Position (0-based) where each whole layer of the model's stacks begins; where layers are not numbered, where any
// layer begins.
std::vector<int> layer_starts(const Profile& profile) {
  std::vector<int> numbered, named;
  std::string last_numbered;
  for (std::size_t i = 0; i < profile.layer.size(); ++i) {
    if (i > 0 && profile.layer[i] == profile.layer[i - 1]) continue;
    named.push_back(static_cast<int>(i));
    const std::optional<LayerNumber> number = layer_number(profile.layer[i]);
    if (!number) continue;
    const std::string key = number->stack + "\n" + std::to_string(number->index);
    if (key == last_numbered) continue;
    numbered.push_back(static_cast<int>(i));
    last_numbered = key;
  }
  return numbered.size() > 1 ? numbered : named;
}

[[noreturn]] void refuse_layout(const std::string& what, const std::string& hint) {
  throw Error(ErrorKind::kUsage, what, hint);
}

// Checks that the profile knows replicas of so many devices, and that there are such replicas: `mixed`, beside those of
// other widths, in one server each; all of one width can be several whole servers each. `kind` of the error: a file or
// an option asks for them.
void check_width(const Profile& profile, const Cluster& cluster, int width, bool mixed, const std::string& source,
                 ErrorKind kind) {
  try {
    if (mixed) machine::require_one_server(cluster, width);
    machine::replicas_of(cluster, width);
  } catch (const Error& e) {
    throw Error(kind, source + ": " + e.what(), e.hint());
  }
  const auto known = [&](const pipeline::WidthColumns& columns) { return columns.width == width; };
  if (width == 1 || std::any_of(profile.widths.begin(), profile.widths.end(), known)) return;
  std::string widths = "1";
  for (const pipeline::WidthColumns& columns : profile.widths) widths += ", " + std::to_string(columns.width);
  throw Error(kind,
              source + ": replicas of " + std::to_string(width) +
                  " devices are not known of this model and cluster, but of " + widths,
              profile.widths.empty() ? "plan the model itself (HLO), or a profile made with --widths" : "");
}

// The cluster of replicas of `width` devices.
Cluster replicas_at(const Profile& profile, const Cluster& cluster, int width, const std::string& source,
                    ErrorKind kind) {
  check_width(profile, cluster, width, false, source, kind);
  return machine::replicas_of(cluster, width);
}

int whole_number(std::string_view value, const std::string& key, int least) {
  int number = 0;
  const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (status != std::errc() || end != value.data() + value.size() || number < least) {
    refuse_layout("--layout: " + key + " is '" + std::string(value) + "', expected a whole number from " +
                      std::to_string(least) + " on",
                  "");
  }
  return number;
}

std::int64_t parts_of(const Layout& layout) {
  return std::int64_t{layout.pp} * layout.parts_of_stage();
}

// The first of these borders in front of the layer or module of that name; the first of all where no layer has the
// name.
int border_in_front_of(const Profile& profile, const std::string& name, std::vector<int>::const_iterator first,
                       std::vector<int>::const_iterator last) {
  const auto found = std::find_if(first, last, [&](int border) {
    const std::string& layer = profile.layer[at(border)];
    return layer == name || module_path(layer) == name;
  });
  return found == last ? *first : *found;
}

// The ends of the parts of a layout that gives the number of layers of each. A part behind all of them holds the
// instructions behind the stack.
std::vector<int> cuts_of_counts(const Layout& layout, const Profile& profile) {
  const std::vector<int> starts = stack_starts(profile);
  if (starts.empty()) {
    refuse_layout("--layout: layers counts those of one stack, which the model does not have", "leave layers out");
  }
  std::vector<int> counts = layout.layers;
  const auto layers = static_cast<std::int64_t>(starts.size());
  std::int64_t all = 0;
  for (const int count : counts) all += std::max(0, count);
  if (counts.back() == kRestOfLayers) {
    counts.back() = static_cast<int>(std::max<std::int64_t>(0, layers - all));
    all += counts.back();
  }
  if (all != layers) {
    refuse_layout(
        "--layout: layers are " + std::to_string(all) + " together, the model has " + std::to_string(starts.size()),
        "one number for each stage, + between them");
  }
  std::vector<int> cuts;
  const std::vector<int> borders = layer_cuts(profile);
  const auto behind = std::upper_bound(borders.begin(), borders.end(), starts.back());
  int begun = 0;
  for (int s = 1; s < parts_of(layout); ++s) {
    begun += counts[at(s - 1)];
    const bool more = begun < all || behind != borders.end();
    const int cut =
        begun < all ? starts[at(begun)]
        : more      ? border_in_front_of(profile, s + 1 == parts_of(layout) ? layout.behind : "", behind, borders.end())
                    : 0;
    if (!more || cut < 1 || (!cuts.empty() && cut <= cuts.back())) {
      refuse_layout("--layout: layers leaves nothing for " +
                        std::string(layout.parts_of_stage() > 1 ? "part " : "stage ") +
                        std::to_string(more ? s : s + 1),
                    "only the first stage (what stands in front of the layers) and the last can do without layers");
    }
    cuts.push_back(cut);
  }
  return cuts;
}

// The ends of the parts of a layout.
std::vector<int> cuts_of(const Layout& layout, const Profile& profile) {
  if (!layout.layers.empty()) return cuts_of_counts(layout, profile);
  const std::vector<int> starts = layer_starts(profile);
  const int layers = static_cast<int>(starts.size()), parts = static_cast<int>(parts_of(layout));
  if (parts > 1 && layers < parts) {
    refuse_layout(
        "--layout: pp=" + std::to_string(layout.pp) + " stages" +
            (layout.parts_of_stage() > 1 ? " of " + std::to_string(layout.parts_of_stage()) + " chunks" : "") +
            ", and the model has " + std::to_string(layers) + " whole layers",
        layers > 1 ? layout.parts_of_stage() > 1 ? "fewer stages or chunks" : "at most pp=" + std::to_string(layers)
                   : "the profile names no layers to spread: give a plan with --plan instead");
  }
  std::vector<int> cuts;
  int begun = 0;
  for (int s = 1; s < parts; ++s) {
    begun += layers / parts + (s <= layers % parts ? 1 : 0);
    cuts.push_back(starts[at(begun)]);
  }
  return cuts;
}

// Options and cuts of a layout; nothing is judged.
Plan plan_of(const Layout& layout, const Profile& profile) {
  Plan plan;
  plan.schedule = layout.schedule;
  plan.chunks = layout.parts_of_stage();
  const std::optional<pipeline::ScheduleShape> shape = pipeline::shape_of(layout.schedule);
  plan.placement = shape->placement;
  plan.split_backward = shape->split_backward;
  plan.cuts = cuts_of(layout, profile);
  for (int s = 1; s < layout.pp; ++s) plan.device_cuts.push_back(s * layout.dp);
  return plan;
}

// Checks a layout with chunks, whose schedule is interleaved 1F1B. `named`: the layout names a schedule.
void take_chunks(Layout& layout, bool named, const Framework& framework) {
  if (!layout.interleaved()) {
    if (named && layout.schedule == Schedule::kInterleaved) {
      refuse_layout("--layout: schedule=interleaved without chunks", "name how many parts each stage has: chunks=2");
    }
    return;
  }
  constexpr int kMostChunks = 16;
  if (!has_schedule(framework, Schedule::kInterleaved)) {
    refuse_layout(std::string("--layout: ") + framework.name + " cannot run interleaved 1F1B", "leave chunks out");
  }
  if (layout.pp < kLeastInterleavedStages || layout.chunks > kMostChunks) {
    refuse_layout("--layout: interleaved 1F1B of " + std::to_string(layout.pp) + " stages with " +
                      (layout.layers_per_chunk > 0 ? "chunks" : std::to_string(layout.chunks) + " chunks") +
                      ", which is simulated of three stages or more and " + std::to_string(kMostChunks) +
                      " chunks or fewer",
                  "give another pp, or leave chunks out");
  }
  if (layout.layers_per_chunk > 0 && (layout.chunks > 1 || !layout.layers.empty())) {
    refuse_layout("--layout: layers-per-chunk beside chunks or layers, which say the same", "leave one of them out");
  }
  if (named && layout.schedule != Schedule::kInterleaved && layout.schedule != Schedule::k1f1b) {
    refuse_layout(std::string("--layout: chunks with the schedule ") + to_string(layout.schedule),
                  "several chunks are interleaved 1F1B: leave schedule out");
  }
  layout.schedule = Schedule::kInterleaved;
}

}  // namespace

int most_layout_stages(const Profile& profile) {
  return std::max(1, static_cast<int>(layer_starts(profile).size()));
}

int Layout::parts_of_stage() const {
  const std::optional<pipeline::ScheduleShape> shape = pipeline::shape_of(schedule);
  return shape && shape->chunks > 1 ? shape->chunks : chunks;
}

std::string Layout::text() const {
  std::string out = "dp=" + std::to_string(dp) + ",pp=" + std::to_string(pp);
  if (tp > 1) out += ",tp=" + std::to_string(tp);
  if (micro_batch_size > 0) out += ",micro-batch-size=" + std::to_string(micro_batch_size);
  if (variant.zero > 0) out += ",zero=" + std::to_string(variant.zero);
  if (variant.recompute) out += ",recompute=layer";
  if (schedule != Schedule::kAdaptive) out += std::string(",schedule=") + to_string(schedule);
  if (chunks > 1) out += ",chunks=" + std::to_string(chunks);
  if (layers_per_chunk > 0) out += ",layers-per-chunk=" + std::to_string(layers_per_chunk);
  for (std::size_t s = 0; s < layers.size(); ++s) {
    out += (s == 0 ? ",layers=" : "+") + (layers[s] == kRestOfLayers ? "rest" : std::to_string(layers[s]));
  }
  if (!behind.empty()) out += ",behind=" + behind;
  return out;
}

namespace {

struct LayoutWord {
  const char *word, *key;  // as people type it, and ours
};
constexpr LayoutWord kLayoutWords[] = {{"data-parallel", "dp"},
                                       {"data-parallel-size", "dp"},
                                       {"dp-size", "dp"},
                                       {"replicas", "dp"},
                                       {"pipeline-parallel", "pp"},
                                       {"pipeline-parallel-size", "pp"},
                                       {"pipeline-model-parallel-size", "pp"},
                                       {"pp-size", "pp"},
                                       {"stages", "pp"},
                                       {"tensor-parallel", "tp"},
                                       {"tensor-parallel-size", "tp"},
                                       {"tensor-model-parallel-size", "tp"},
                                       {"model-parallel-size", "tp"},
                                       {"tp-size", "tp"},
                                       {"width", "tp"},
                                       {"mbs", "micro-batch-size"},
                                       {"micro-batch", "micro-batch-size"},
                                       {"zero-stage", "zero"},
                                       {"zero-level", "zero"},
                                       {"vpp", "chunks"},
                                       {"vp", "chunks"},
                                       {"vp-size", "chunks"},
                                       {"virtual-stages", "chunks"},
                                       {"virtual-pipeline-model-parallel-size", "chunks"},
                                       {"gas", "micro-batches"},
                                       {"grad-accum", "micro-batches"},
                                       {"gradient-accumulation", "micro-batches"},
                                       {"gradient-accumulation-steps", "micro-batches"},
                                       {"num-microbatches", "micro-batches"},
                                       {"data-parallel-shard-degree", "dp-shard"},
                                       {"data-parallel-replicate-degree", "dp-replicate"}};
// Kinds of parallelism that are not planned: what they are, and their words.
constexpr LayoutWord kUnplanned[] = {{"cp", "parallelism of sequences"},
                                     {"context-parallel-size", "parallelism of sequences"},
                                     {"context-parallel", "parallelism of sequences"},
                                     {"ulysses", "parallelism of sequences"},
                                     {"ep", "parallelism of experts"},
                                     {"expert-parallel", "parallelism of experts"},
                                     {"expert-parallel-size", "parallelism of experts"},
                                     {"expert-model-parallel-size", "parallelism of experts"},
                                     {"etp", "parallelism of experts"}};
// Keys that another option sets.
constexpr LayoutWord kOfOptions[] = {{"gbs", "--batch"},
                                     {"batch", "--batch"},
                                     {"global-batch-size", "--batch"},
                                     {"sp", "--sequence-parallel"},
                                     {"sequence-parallel", "--sequence-parallel"}};

// A key in our words: in whatever case, with _ for -, or one of kLayoutWords. Throws for what is no key of a layout.
// Empty: there is nothing to say (cp=1).
std::string key_of(const std::string& word, std::string_view value) {
  std::string key;
  for (const char c : word) key += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const LayoutWord& one : kUnplanned) {
    if (key != one.word) continue;
    if (value == "1") return "";
    refuse_layout("--layout: " + word + ": " + one.key + " is not planned",
                  "leave it out, or count it as data parallelism");
  }
  for (const LayoutWord& one : kOfOptions) {
    if (key == one.word) {
      refuse_layout("--layout: " + word + " is no part of a layout",
                    std::string(one.key) + " says it" +
                        (std::string_view(one.key) == "--batch" ? ": --batch " + std::string(value) : ""));
    }
  }
  for (const LayoutWord& one : kLayoutWords) {
    if (key == one.word) return one.key;
  }
  return key;
}

// Blanks part words as commas do, and may stand beside them.
std::string commas_for_blanks(std::string_view text) {
  std::string out;
  bool blank = false;
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      blank = true;
      continue;
    }
    if (std::exchange(blank, false) && !out.empty() && out.back() != ',' && c != ',') out += ',';
    out += c;
  }
  return out;
}

struct LayoutPart {
  std::string word, value;  // as typed
};

// Replicas of which each stores parts (fsdp, dp_shard), of which there are several: torchtitan's HSDP.
[[noreturn]] void refuse_hsdp(const LayoutPart& parts, const LayoutPart& copies) {
  int n = 0, m = 0;
  const auto read = [](const std::string& text, int& number) {
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number > 0 && number <= 1 << 15;
  };
  const bool known = read(parts.value, n) && read(copies.value, m);
  const std::string dp = "dp=" + (known ? std::to_string(n * m) : std::string("auto"));
  refuse_layout("--layout: " + parts.word + "=" + parts.value + " and " + copies.word + "=" + copies.value +
                    ": copies of sharded replicas (HSDP) are not planned",
                dp + ",zero=3 keeps one part on each replica, " + dp + ",zero=0 all of it");
}

}  // namespace

Layout parse_layout(std::string_view text, const StageOverrides& overrides, const Framework& framework) {
  constexpr const char* kExample =
      "for example --layout dp=8,pp=4,micro-batch-size=2,zero=1,recompute=layer,schedule=1f1b";
  Layout layout;
  std::vector<std::string> seen;
  std::optional<LayoutPart> sharded, copied;
  const std::string with_commas = commas_for_blanks(text);
  text = with_commas;
  for (bool more = true; more;) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    more = comma < text.size();
    text.remove_prefix(more ? comma + 1 : comma);
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      refuse_layout("--layout: '" + std::string(part) + "' is no KEY=VALUE", kExample);
    }
    const std::string word(part.substr(0, equals));
    std::string_view value = part.substr(equals + 1);
    std::string key = key_of(word, value);
    if (key.empty()) continue;
    if (key == "hsdp") {
      refuse_layout("--layout: " + word + ": copies of sharded replicas (HSDP) are not planned",
                    "dp=N,zero=3 keeps one part on each of N replicas, dp=N,zero=0 all of it");
    }
    // One part is all of it.
    if ((key == "dp-shard" || key == "dp-replicate") && value == "1") continue;
    const bool shards = key == "dp-shard" || key == "fsdp";
    if (shards) {
      if (sharded)
        refuse_layout("--layout: " + sharded->word + " and " + word + " say the same", "leave one of them out");
      sharded = LayoutPart{word, std::string(value)};
    }
    if (key == "dp-replicate") copied = LayoutPart{word, std::string(value)};
    if (sharded && copied) refuse_hsdp(*sharded, *copied);
    const bool beside = std::find(seen.begin(), seen.end(), "zero") != seen.end();
    if (sharded && beside && (shards || key == "zero")) {
      refuse_layout("--layout: " + sharded->word + " is dp with zero=3, and zero stands beside it",
                    "leave one of them out");
    }
    if (shards) {
      seen.emplace_back("zero");
      layout.variant.zero = 3;
      // All devices that are left, as torchtitan says it.
      if (key == "dp-shard" && value == "-1") value = "auto";
    }
    if (shards || key == "dp-replicate") key = "dp";
    if (std::find(seen.begin(), seen.end(), key) != seen.end())
      refuse_layout("--layout: " + key + " stands twice", kExample);
    seen.push_back(key);
    if (key == "dp") {
      layout.dp = value == "auto" ? 0 : whole_number(value, key, 1);
    } else if (key == "pp") {
      layout.pp = whole_number(value, key, 1);
    } else if (key == "tp") {
      layout.tp = whole_number(value, key, 1);
    } else if (key == "micro-batch-size") {
      layout.micro_batch_size = whole_number(value, key, 1);
    } else if (key == "micro-batches") {
      layout.micro_batches = whole_number(value, word, 1);
    } else if (key == "zero") {
      layout.variant.zero = whole_number(value, key, 0);
      if (layout.variant.zero > 3) refuse_layout("--layout: zero is 0, 1, 2 or 3", kExample);
    } else if (key == "recompute") {
      if (value != "layer" && value != "none") refuse_layout("--layout: recompute is none or layer", kExample);
      layout.variant.recompute = value == "layer";
    } else if (key == "schedule") {
      const auto named = pipeline::parse_schedule(value);
      if (!named || *named == Schedule::kSearched) {
        refuse_layout(
            "--layout: schedule is one of " + pipeline::alternating_names() + ", eager, interleaved, zb-h1, zb-v",
            kExample);
      }
      layout.schedule = *named;
    } else if (key == "layers") {
      for (std::size_t from = 0; from <= value.size();) {
        const std::size_t plus = std::min(value.find('+', from), value.size());
        const std::string_view one = value.substr(from, plus - from);
        const bool rest = one == "rest" && plus == value.size();
        layout.layers.push_back(rest ? kRestOfLayers : whole_number(one, key, 0));
        from = plus + 1;
      }
    } else if (key == "behind") {
      layout.behind = value;
    } else if (key == "chunks") {
      layout.chunks = whole_number(value, key, 1);
    } else if (key == "layers-per-chunk") {
      layout.layers_per_chunk = whole_number(value, key, 1);
    } else {
      refuse_layout("--layout: unknown key '" + word +
                        "', known: dp, fsdp, pp, tp, micro-batch-size, zero, recompute, schedule, layers, behind, "
                        "chunks, layers-per-chunk, micro-batches",
                    kExample);
    }
  }
  layout.one_replica = std::find(seen.begin(), seen.end(), "dp") == seen.end();
  const bool says_schedule = std::find(seen.begin(), seen.end(), "schedule") != seen.end();
  take_chunks(layout, says_schedule, framework);
  if (layout.interleaved() && !says_schedule) seen.emplace_back("schedule");
  if (!layout.layers.empty() && layout.layers.size() != static_cast<std::size_t>(parts_of(layout))) {
    refuse_layout("--layout: layers has " + std::to_string(layout.layers.size()) +
                      " numbers for pp=" + std::to_string(layout.pp) + " stages" +
                      (layout.parts_of_stage() > 1 ? " of " + std::to_string(layout.parts_of_stage()) + " chunks" : ""),
                  "one number for each stage" + std::string(layout.parts_of_stage() > 1 ? " and chunk" : "") +
                      ", + between them: layers=6+8+8+7");
  }
  if (std::find(seen.begin(), seen.end(), "schedule") == seen.end()) {
    layout.schedule = usual_schedule(framework, layout.pp);
  }
  // Options say what the layout leaves open.
  const auto asked = [&](const char* key, const auto& option, auto& value) {
    if (!option) return;
    if (std::find(seen.begin(), seen.end(), key) != seen.end() && !(*option == value)) {
      refuse_layout(std::string("--") + key + " contradicts the layout's " + key,
                    std::string("leave --") + key + " out");
    }
    value = *option;
  };
  asked("zero", overrides.zero, layout.variant.zero);
  asked("recompute", overrides.recompute, layout.variant.recompute);
  asked("schedule", overrides.schedule, layout.schedule);
  if (layout.schedule == Schedule::kSearched || (layout.schedule == Schedule::kInterleaved && !layout.interleaved())) {
    refuse_layout(std::string("--layout: the schedule ") + to_string(layout.schedule) +
                      (layout.schedule == Schedule::kSearched ? " has lists of its own, which no layout says"
                                                              : " without chunks"),
                  "name another schedule" + std::string(layout.schedule == Schedule::kSearched ? "" : ", or chunks=2"));
  }
  return layout;
}

namespace {

// Lists of work for so many micro-batches.
void check_order(const Plan& plan, int micro_batches, const std::string& source) {
  const int stages = plan.num_stages();
  const std::string batches = pipeline::micro_batches_fault(plan.schedule, stages, micro_batches);
  if (!batches.empty()) {
    throw Error(ErrorKind::kData, source + ": " + batches, "give another --batch or micro-batch size");
  }
  if (plan.order == nullptr) return;
  const std::string fault = order_fault(*plan.order, pipeline::group_of_parts(plan.placement, stages, plan.chunks),
                                        micro_batches, plan.split_backward);
  if (fault.empty()) return;
  throw Error(
      ErrorKind::kData,
      source + ": its lists of work are no step of " + std::to_string(micro_batches) + " micro-batches: " + fault,
      "searched orders are of the number of micro-batches that they were planned for");
}

// Cuts of this model, these devices and so many micro-batches.
void check_cuts(const Plan& plan, const Problem& problem, int devices, const std::string& source) {
  const auto within = [&](const char* key, const std::vector<int>& cuts, int end, const char* what) {
    if (cuts.empty() || (cuts.front() >= 1 && cuts.back() < end)) return;
    throw Error(ErrorKind::kData, source + ": " + key + ": found " + std::to_string(cuts.back()) +
                                      ", expected cuts from 1 to " + std::to_string(end - 1) + " of the " +
                                      std::to_string(end) + " " + what);
  };
  check_order(plan, problem.micro_batches(), source);
  within("cuts", plan.cuts, problem.num_instructions(), "forward instructions");
  within("device_cuts", plan.device_cuts, devices, "devices");
  for (std::size_t s = 0; s < plan.warmup.size(); ++s) {
    if (plan.warmup[s] <= problem.micro_batches()) continue;
    throw Error(ErrorKind::kData,
                source + ": in_flight: found " + std::to_string(plan.warmup[s]) + " at stage " + std::to_string(s + 1) +
                    ", expected at most the " + std::to_string(problem.micro_batches()) + " micro-batches of the step",
                "give more --micro-batches, or leave in_flight out: it is chosen then");
  }
}

// No micro-batches in flight make an adaptive plan shorter.
double least_ms_of_any_warmup(const pipeline::PlacedPlan& placed) {
  const pipeline::ProblemOptions& options = placed.problem().options();
  return path_length_ms(pipeline_times(placed), placed.problem().micro_batches(), placed.plan.schedule, options.value);
}

// Warm-up and lengths of what stands where it can.
void finish(ScoredPlan& scored, const std::string& source, double hopeless_ms = kInfinity) {
  pipeline::PlacedPlan& placed = scored.placed;
  for (int s = 1; s <= placed.num_stages(); ++s) {
    const pipeline::PlacedStage& stage = placed.stages[at(s - 1)];
    if (stage.group().valid) continue;
    const int replicas = stage.d1 - stage.d0;
    throw Error(ErrorKind::kData,
                source + ": stage " + std::to_string(s) + " has " + std::to_string(replicas) +
                    (stage.width() > 1 ? " replica" : " device") + (replicas == 1 ? "" : "s") +
                    ", which cannot share the " +
                    std::to_string(static_cast<std::int64_t>(placed.problem().micro_batch_samples())) +
                    " samples of a micro-batch",
                std::string("the devices of every stage divide them: give another --micro-batch") +
                    (scored.mixed ? "" : ", or --replicas fractional to count parts of samples"));
  }
  const bool adaptive = placed.plan.schedule == Schedule::kAdaptive;
  const bool hopeless = adaptive && hopeless_ms < kInfinity && least_ms_of_any_warmup(placed) >= hopeless_ms;
  if (placed.plan.warmup.empty() && !hopeless) scored.plan.warmup = placed.plan.warmup = chosen_warmup(placed);
  measure(scored);
}

// Every stage begins and ends where the devices of its replicas do.
void check_widths(const std::vector<int>& widths, const std::vector<int>& device_cuts, int devices,
                  const std::string& source) {
  int begin = 0;
  for (std::size_t s = 0; s < widths.size(); ++s) {
    const int end = s < device_cuts.size() ? device_cuts[s] : devices, width = widths[s];
    const std::string expected = ", expected whole replicas of " + std::to_string(width) + " devices";
    const std::string stage = source + ": stage " + std::to_string(s + 1);
    if ((end - begin) % width != 0) {
      throw Error(ErrorKind::kData, stage + " has " + std::to_string(end - begin) +
                                        (end - begin == 1 ? " device" : " devices") + expected);
    }
    if (begin % width != 0) {
      throw Error(ErrorKind::kData, stage + " begins with device " + std::to_string(begin + 1) + expected,
                  "replicas stand one after the other: the first device of each is 1, " + std::to_string(width + 1) +
                      ", " + std::to_string(2 * width + 1) + " and so on");
    }
    begin = end;
  }
}

}  // namespace

ScoredPlan score_plan(const pipeline::CheckedProfile& profile, const Cluster& cluster, const ProblemOptions& options,
                      Plan plan, const std::string& source, double hopeless_ms) {
  ScoredPlan scored;
  scored.problem = std::make_unique<Problem>(profile, cluster, options);
  scored.plan = std::move(plan);
  check_cuts(scored.plan, *scored.problem, scored.problem->num_devices(), source);
  AM_CHECK(pipeline::valid_structure(*scored.problem, scored.plan));
  scored.placed = place(*scored.problem, scored.plan);
  finish(scored, source, hopeless_ms);
  return scored;
}

ScoredPlan score_mixed(const pipeline::CheckedProfile& profile, const Cluster& cluster, const ProblemOptions& options,
                       pipeline::MixedPlan plan, const std::string& source) {
  for (std::size_t s = 0; s < plan.widths.size(); ++s) {
    check_width(profile, cluster, plan.widths[s], true, source + ": stage " + std::to_string(s + 1), ErrorKind::kData);
  }
  ScoredPlan scored;
  scored.mixed = std::make_unique<pipeline::MixedProblem>(profile, cluster, options, plan.widths);
  check_cuts(plan, scored.mixed->problem(plan.widths.front()), scored.mixed->num_devices(), source);
  check_widths(plan.widths, plan.device_cuts, scored.mixed->num_devices(), source);
  AM_CHECK(scored.mixed->valid_structure(plan));
  scored.placed = scored.mixed->place(plan);
  finish(scored, source);
  return scored;
}

namespace {

// The devices that the file names.
Cluster named_devices(const GivenPlan& given, const Cluster& cluster) {
  if (given.devices.empty()) return cluster;
  try {
    return machine::on_devices(cluster, given.devices);
  } catch (const Error& e) {
    throw Error(ErrorKind::kData, given.source + ": " + e.what(), e.hint());
  }
}

// Checks that replicas are placed as in the whole cluster: in one server each where one holds them, else on all devices
// of several.
void check_whole_servers(const Cluster& part, const Cluster& whole, int width, const std::string& source) {
  try {
    if (machine::one_server_holds(whole, width)) return machine::require_one_server(part, width);
    machine::require_whole_servers(part, whole);
  } catch (const Error& e) {
    throw Error(ErrorKind::kData, source + ": " + e.what(), e.hint());
  }
}

// On the first so many devices of those that it names.
ScoredPlan score_at_widths(GivenPlan given, int devices, const Profile& profile, const Cluster& all,
                           ProblemOptions options) {
  const std::string& source = given.source;
  const Cluster cluster = named_devices(given, all);
  const int width = given.widths.front();
  if (std::any_of(given.widths.begin(), given.widths.end(), [&](int other) { return other != width; })) {
    if (options.replicas == pipeline::Replicas::kFractional) {
      throw Error(ErrorKind::kData, source + ": stages of different widths have whole replicas, not fractional ones",
                  "drop --replicas fractional");
    }
    if (given.plan.chunks > 1) {
      throw Error(ErrorKind::kData, source + ": several parts for each of stages of different widths",
                  "stages of one width can have several parts each");
    }
    pipeline::MixedPlan plan;
    static_cast<Plan&>(plan) = std::move(given.plan);
    plan.widths = std::move(given.widths);
    return score_mixed(profile, machine::first_devices(cluster, devices), options, std::move(plan), source);
  }
  check_widths(given.widths, given.plan.device_cuts, devices, source);
  check_whole_servers(cluster, all, width, source);
  for (int& cut : given.plan.device_cuts) cut /= width;
  const Cluster replicas = replicas_at(profile, cluster, width, source, ErrorKind::kData);
  options.width = width;
  return score_plan(profile_at(profile, width), machine::first_devices(replicas, devices / width), options,
                    std::move(given.plan), source);
}

// Whose rules of memory count: the question's, else those that the plan was made by.
const Framework& framework_of(const GivenPlan& given, const Question& question) {
  if (limits_plans(*question.framework)) return *question.framework;
  for (const Framework& framework : all_frameworks()) {
    if (given.made_for == framework.name) return framework;
  }
  return *question.framework;
}

}  // namespace

ScoredPlan score_given(GivenPlan given, const Question& question, const StageOverrides& overrides) {
  const Profile& profile = question.profile();
  const Cluster& cluster = question.cluster;
  ProblemOptions options = framework_options(framework_of(given, question), given.plan.num_stages(), question.options);
  const std::string& source = given.source;
  const int devices = given.num_devices > 0 ? given.num_devices : cluster.num_devices();
  if (devices > cluster.num_devices()) {
    throw Error(ErrorKind::kData,
                source + " is a plan for " + std::to_string(devices) + " devices, " + cluster.name + " has " +
                    std::to_string(cluster.num_devices()),
                "give the cluster that the plan was made for");
  }
  StepRequest asked = question.step;
  const auto samples = static_cast<std::int64_t>(std::min(given.micro_batch_samples, 1e9));
  if (asked.batch == 0 && asked.micro_batches == 0 && asked.micro_batch == 0) asked.micro_batches = given.micro_batches;
  if (asked.micro_batch == 0 && (asked.batch == 0 || asked.micro_batches == 0)) asked.micro_batch = samples;
  const StepSize size = step_sizes(asked, profile, options.replicas).front();
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
    if (!says_in_flight(given.plan.schedule) || !says_in_flight(*overrides.schedule)) {
      throw Error(ErrorKind::kUsage,
                  "--schedule " + std::string(to_string(*overrides.schedule)) + ": the parts of " + source +
                      " are those of its schedule " + to_string(given.plan.schedule),
                  "drop --schedule, or plan again");
    }
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
  ScoredPlan scored = score_at_widths(std::move(given), devices, profile, cluster, options);
  scored.departures = std::move(departures);
  return scored;
}

namespace {

// Every replica has as many samples of the batch.
void check_replicas(const Layout& layout, std::int64_t batch) {
  if (batch % layout.dp == 0) return;
  const std::int64_t below = batch / layout.dp * layout.dp, above = below + layout.dp;
  refuse_layout("--layout: dp=" + std::to_string(layout.dp) + " replicas do not divide a batch of " +
                    std::to_string(batch) + " samples",
                "--batch " + (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(above) + " would do");
}

// The batch where nobody gives one: that of the cluster's plans, and where the layout's pipeline has no place in it
// that of plans of as many stages.
std::int64_t usual_batch_of_layout(const Layout& layout, const Question& question) {
  const std::int64_t batch = usual_batch_of(question);
  if (micro_batches_inexpressible(*question.framework, layout.pp, static_cast<int>(batch)).empty()) return batch;
  Question of_stages = question;
  of_stages.request.stages = layout.pp;
  return usual_batch_of(of_stages);
}

// A layout that does not say how many samples a replica computes at once: of one stage as many as fit in memory, of
// several what makes the step the shortest.
ScoredPlan score_sizes(Layout layout, const Question& question) {
  Question of_batch = question;
  std::int64_t& batch = of_batch.step.batch;
  std::string departure;
  if (batch == 0) {
    const std::int64_t usual = usual_batch_of_layout(layout, question);
    batch = (usual + layout.dp - 1) / layout.dp * layout.dp;
    if (batch != usual) {
      departure = "a step has " + std::to_string(batch) + " samples: the " + std::to_string(usual) +
                  " that it has where nobody gives --batch are no multiple of " + std::to_string(layout.dp) +
                  " replicas";
    }
  }
  check_replicas(layout, batch);
  const std::int64_t of_replica = batch / layout.dp;
  std::vector<std::int64_t> sizes = replica_sizes(of_replica, question.profile(), kMostGivenMicroBatches);
  const auto refused = [&](std::int64_t size) {
    const int micro_batches = static_cast<int>(of_replica / size);
    return !micro_batches_inexpressible(*question.framework, layout.pp, micro_batches).empty();
  };
  // Where the framework runs none of them, that is said of the best.
  if (!std::all_of(sizes.begin(), sizes.end(), refused)) {
    sizes.erase(std::remove_if(sizes.begin(), sizes.end(), refused), sizes.end());
  }
  std::optional<ScoredPlan> best;
  std::int64_t chosen = 0;
  MoreMicroBatches more(false);
  for (const std::int64_t size : sizes) {
    if (best && (!more.worth_a_look(of_replica / size) || question.request.stopped())) break;
    layout.micro_batch_size = size;
    ScoredPlan scored = score_layout(layout, of_batch);
    const bool fits = scored.missing_bytes <= 0;
    more.saw(fits ? scored.simulated_step_ms : kInfinity);
    const bool better = !best || (best->missing_bytes > 0 ? scored.missing_bytes < best->missing_bytes
                                                          : fits && scored.simulated_step_ms < best->simulated_step_ms);
    if (!better) continue;
    best = std::move(scored);
    chosen = size;
    if (fits && layout.pp == 1) break;
  }
  if (!best) {
    refuse_layout("--layout: a batch of " + std::to_string(batch) + " samples splits into no micro-batches of " +
                      std::to_string(layout.dp) + " replicas that times are known of",
                  "another --batch, or a micro-batch-size");
  }
  const bool at_reach = chosen == sizes.front() && chosen < of_replica;  // more have no times
  if (!departure.empty()) best->departures.push_back(departure);
  best->departures.push_back(
      "the layout names no micro-batch-size: " + std::to_string(chosen) +
      (best->missing_bytes > 0 ? " lacks the least memory"
       : layout.pp == 1 ? at_reach ? " is the largest that times are known of" : " is the largest that fits in memory"
                        : " makes the shortest step of those that fit in memory"));
  return *std::move(best);
}

// Replicas of so many devices in the cluster; 0: none.
int replicas_held(const Cluster& cluster, int width) {
  try {
    return machine::replicas_of(cluster, width).num_devices();
  } catch (const Error&) {
    return 0;
  }
}

// What a layout that names no dp leaves of the cluster: a sentence; empty: it names it, or nothing is left.
std::string devices_left(const Layout& layout, const Cluster& cluster) {
  const int most = replicas_held(cluster, layout.tp) / layout.pp;
  if (!layout.one_replica || most <= layout.dp) return "";
  const int used = layout.dp * layout.pp * layout.tp, would = most * layout.pp * layout.tp;
  const int all = cluster.num_devices();
  return "the layout names no dp, which is 1: it uses " + std::to_string(used) + " of " + std::to_string(all) +
         " devices; dp=" + std::to_string(most) + " uses " + (would == all ? "all" : std::to_string(would));
}

// The profile and the devices that a layout uses.
struct LayoutGround {
  std::string source;                // of errors
  pipeline::CheckedProfile profile;  // of its replicas
  Cluster replicas;                  // those that it uses
};

// Settles how many replicas there are, too.
LayoutGround ground_of(Layout& layout, const Question& question) {
  const Profile& profile = question.profile();
  const Cluster& cluster = question.cluster;
  if (layout.dp == 0)
    layout.dp = std::max(1, static_cast<int>(cluster.num_devices() / (std::int64_t{layout.pp} * layout.tp)));
  const std::int64_t wanted = std::int64_t{layout.dp} * layout.pp * layout.tp;
  const int there = cluster.num_devices();
  const std::string of_width = layout.tp > 1 ? ",tp=" + std::to_string(layout.tp) : "";
  const int stages = std::min({layout.pp, there, pipeline::kMaxPlanStages, most_layout_stages(profile)});
  if (wanted > there) {
    // Replicas that the servers hold; of a width that none has, those of single devices.
    const int hold = replicas_held(cluster, layout.tp);
    const int of_them = std::min(stages, std::max(1, hold));
    const std::string fits = "dp=" + std::to_string(std::min(layout.dp, std::max(1, hold) / of_them)) +
                             ",pp=" + std::to_string(of_them) + of_width + " would do";
    refuse_layout(
        "--layout: dp=" + std::to_string(layout.dp) + " times pp=" + std::to_string(layout.pp) +
            (layout.tp > 1 ? " times tp=" + std::to_string(layout.tp) : "") + " are " + std::to_string(wanted) +
            " devices, " + cluster.name + " has " + std::to_string(there),
        hold > 0 ? fits : "no replica of " + std::to_string(layout.tp) + " devices stands there: give a smaller tp");
  }
  const int devices = static_cast<int>(wanted);
  const std::string source = "--layout " + layout.text();
  const Cluster all = replicas_at(profile, cluster, layout.tp, source, ErrorKind::kUsage);
  const int replicas = all.num_devices();
  if (layout.dp * layout.pp > replicas) {
    refuse_layout("--layout: dp=" + std::to_string(layout.dp) + " times pp=" + std::to_string(layout.pp) + " are " +
                      std::to_string(layout.dp * layout.pp) + " replicas of " + std::to_string(layout.tp) +
                      " devices, the servers of " + cluster.name + " hold " + std::to_string(replicas),
                  "a replica stands in one server, or is several whole servers that are alike; dp=" +
                      std::to_string(std::max(1, replicas / stages)) +
                      ",pp=" + std::to_string(std::min(stages, replicas)) + of_width + " would do");
  }
  if (layout.pp > pipeline::kMaxPlanStages) {
    refuse_layout("--layout: pp=" + std::to_string(layout.pp) + " stages, at most " +
                      std::to_string(pipeline::kMaxPlanStages) + " are planned",
                  "pp=" + std::to_string(stages) + " would do");
  }
  return {source, question.profile_of(layout.tp), machine::first_devices(all, devices / layout.tp)};
}

// True if the layout or an option gives the samples of a micro-batch.
bool size_said(const Layout& layout, const StepRequest& step) {
  return layout.micro_batch_size > 0 || step.micro_batch > 0 || step.micro_batches > 0;
}

// The options of a layout whose size_said().
ProblemOptions options_of(const Layout& layout, const Question& question) {
  const Profile& profile = question.profile();
  StepRequest asked = question.step;
  if (layout.micro_batch_size > 0) {
    const std::int64_t samples = layout.micro_batch_size * layout.dp;
    if (asked.micro_batch > 0 && asked.micro_batch != samples) {
      refuse_layout("--micro-batch " + std::to_string(asked.micro_batch) + " contradicts the layout's " +
                        std::to_string(samples) + " samples (" + std::to_string(layout.dp) + " replicas of " +
                        std::to_string(layout.micro_batch_size) + ")",
                    "leave --micro-batch out");
    }
    asked.micro_batch = samples;
  } else if (asked.micro_batch == 0 && asked.batch == 0) {
    asked.micro_batch = layout.dp * pipeline::own_samples(profile);
  }
  if (asked.batch == 0 && asked.micro_batches == 0) {
    // The batch of every other question, where the layout divides it.
    const std::int64_t usual = usual_batch_of_layout(layout, question);
    if (usual % asked.micro_batch == 0) asked.batch = usual;
  }
  if (asked.batch > 0) check_replicas(layout, asked.batch);
  const StepSize size = step_sizes(asked, profile, pipeline::Replicas::kWhole).front();
  if (std::fmod(size.samples, layout.dp) != 0) {
    refuse_layout("--layout: dp=" + std::to_string(layout.dp) + " replicas do not divide the " +
                      std::to_string(static_cast<std::int64_t>(size.samples)) + " samples of a micro-batch",
                  "name micro-batch-size, the samples of each replica");
  }
  if (layout.variant.recompute && profile.forward_fraction >= 1) {
    refuse_layout("--layout: there is nothing to recompute, the model has no backward pass", "give recompute=none");
  }
  ProblemOptions options = question.options;
  options.replicas = pipeline::Replicas::kWhole;
  options.micro_batches = size.micro_batches;
  options.micro_batch_samples = size.samples;
  options = framework_options(*question.framework, layout.pp, std::move(options));
  options.variants = {layout.variant};
  options.group_size = layout.dp;
  options.allow_idle_stages = true;
  options.width = layout.tp;
  return options;
}

// Sets the number of chunks of a stage where the layout gives the layers of each chunk.
void settle_chunks(Layout& layout, const Profile& profile) {
  if (layout.layers_per_chunk == 0) return;
  const auto layers = static_cast<std::int64_t>(stack_starts(profile).size());
  const std::int64_t of_all = std::int64_t{layout.layers_per_chunk} * layout.pp;
  if (layers == 0 || layers % of_all != 0) {
    refuse_layout("--layout: " + std::to_string(layout.layers_per_chunk) + " layers of each chunk in " +
                      std::to_string(layout.pp) + " stages, and the model has " +
                      (layers == 0 ? "no stack of layers" : "a stack of " + std::to_string(layers)),
                  "stages times layers-per-chunk divide the layers");
  }
  layout.chunks = static_cast<int>(layers / of_all);
  layout.layers_per_chunk = 0;
}

}  // namespace

ScoredPlan score_layout(const Layout& given, const Question& question, const std::vector<int>& warmup,
                        double hopeless_ms) {
  Layout layout = given;
  const LayoutGround ground = ground_of(layout, question);
  settle_chunks(layout, question.profile());
  if (!size_said(layout, question.step)) {
    // Which asks again, with a size.
    if (!layout.interleaved()) return score_sizes(layout, question);
    refuse_layout("--layout: interleaved 1F1B without the samples of a micro-batch", "name micro-batch-size");
  }
  const ProblemOptions options = options_of(layout, question);
  Plan plan = plan_of(layout, question.profile());
  if (!warmup.empty()) plan.warmup = warmup;
  ScoredPlan scored = score_plan(ground.profile, ground.replicas, options, std::move(plan), ground.source, hopeless_ms);
  const std::string left = devices_left(layout, question.cluster);
  if (!left.empty()) scored.departures.push_back(left);
  return scored;
}

}  // namespace automap::planners
