#include "datagen/distributions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/join.h"
#include "common/base/suggest.h"
#include "datagen/config.h"
#include "datagen/exact_math.h"
#include "datagen/families.h"

namespace automap::datagen {
namespace {

using pipeline::kGranularity;
using pipeline::RowProblem;

constexpr std::uint32_t kRowStream = 0x524f5753;  // "ROWS"
constexpr std::uint32_t kSampleStream = 0x53414d50, kUpdateStream = 0x55504454, kVariantStream = 0x56415249;
constexpr std::uint64_t kMaxConfigBytes = 16 << 20;
constexpr std::size_t kGridPoints = kGranularity;
constexpr int kMostServers = 64;

bool happens(const Range& share, Rng& rng) {
  const double limit = share.draw(rng);
  return rng.uniform() < limit;
}

// Draws the cluster and the step, before the model is known.
void draw_cluster(const Config& config, Rng& rng, RowProblem& row) {
  const Range& devices = config.cluster[cluster::kDevices];
  const int most = static_cast<int>(devices.high());
  const int target = devices.draw_whole(rng);
  int per_server = std::min(config.cluster[cluster::kDevicesPerServer].draw_whole(rng), target);
  while (target / per_server > kMostServers) per_server *= 2;  // many devices stand in larger servers
  int servers = std::clamp(target / per_server, 1, kMostServers);
  if (servers * per_server < devices.low() && servers < kMostServers && (servers + 1) * per_server <= most) ++servers;
  row.servers = static_cast<std::uint16_t>(servers);
  row.devices_per_server = static_cast<std::uint16_t>(per_server);
  const double ratio = config.cluster[cluster::kIntraOverInter].draw(rng);
  row.intra_over_inter = servers > 1 && per_server > 1 ? static_cast<float>(ratio) : 1.0f;
  // 0 says equal servers, and a single server has nobody to differ from.
  const bool different = happens(config.cluster[cluster::kDifferent], rng);
  const std::uint32_t server_seed = rng.next_u32();
  if (different && servers > 1) row.server_seed = std::max<std::uint32_t>(1, server_seed);

  row.micro_batches = static_cast<std::uint16_t>(config.training[training::kMicroBatches].draw_whole(rng));
  const int stages = config.training[training::kStages].draw_whole(rng);
  row.stages =
      static_cast<std::uint16_t>(std::min({stages, pipeline::devices_of_row(row), pipeline::instructions_of_row(row)}));
  row.schedule =
      happens(config.training[training::kOverlap], rng) ? pipeline::Schedule::k1f1bOverlap : pipeline::Schedule::k1f1b;
  row.forward_fraction = static_cast<float>(config.training[training::kForwardFraction].draw(rng));
}

// Samples of a micro-batch such that the stages can share the devices.
std::uint16_t possible_samples(int drawn, RowProblem row) {
  for (int samples = drawn; samples <= 65535; samples *= 2) {
    row.samples = static_cast<std::uint16_t>(samples);
    if (pipeline::groups_of_row_exist(row)) return row.samples;
  }
  // One stage takes all devices but one for each other.
  return static_cast<std::uint16_t>(pipeline::devices_of_row(row) - row.stages + 1);
}

// Draws the fields that only rows of whole samples have. `layers`: of the family, 0 when it has none.
void draw_whole(const Config& config, std::uint64_t seed, std::uint64_t index, int layers, RowProblem& row) {
  Rng rng(seed, kSampleStream, index);
  if (!happens(config.samples[samples::kWhole], rng)) return;
  row.samples = possible_samples(config.samples[samples::kMicroBatch].draw_whole(rng), row);
  if (happens(config.samples[samples::kAdaptive], rng)) row.schedule = pipeline::Schedule::kAdaptive;
  row.launch_share = static_cast<float>(config.samples[samples::kLaunchShare].draw(rng));
  row.launch_even = static_cast<float>(config.samples[samples::kLaunchEven].draw(rng));

  rng = Rng(seed, kUpdateStream, index);
  row.gradient_sync = happens(config.update[update::kOverlapSync], rng) ? 1 : 0;
  const double weight = row.caw[3 * kGridPoints - 1];
  const double bucket = config.update[update::kBucket].draw(rng);
  if (weight > 0) row.bucket = static_cast<float>(bucket * weight);
  row.gradient_share = static_cast<float>(config.update[update::kGradients].draw(rng));
  row.slot_factor = static_cast<float>(config.update[update::kSlots].draw(rng));
  const bool optimizer = happens(config.update[update::kWithOptimizer], rng);
  const double optimizer_factor = config.update[update::kOptimizer].draw(rng);
  if (optimizer) row.optimizer_factor = static_cast<float>(optimizer_factor);

  rng = Rng(seed, kVariantStream, index);
  row.zero = static_cast<std::uint8_t>(config.variants[variants::kZero].draw_whole(rng));
  const bool recompute = happens(config.variants[variants::kRecompute], rng);
  const int drawn_layers = config.variants[variants::kLayers].draw_whole(rng);
  const int most = pipeline::instructions_of_row(row);
  if (recompute) row.layers = static_cast<std::uint16_t>(std::min(layers > 0 ? layers : drawn_layers, most));
  row.workspace_factor = static_cast<float>(config.variants[variants::kWorkspace].draw(rng));
}

// Sums at the 128 points (paper 4.5.1), in the levels the family drew.
struct Points {
  std::array<double, kGridPoints> c, a, w;
};

void sum_points(const Workspace& work, Points& points) {
  const int m = work.m;
  double c = 0, w = 0;
  int done = 0;
  const int least = m / kGranularity;  // instructions of every bucket; some have one more
  for (std::size_t k = 0; k < kGridPoints; ++k) {
    const int until = static_cast<int>(static_cast<std::int64_t>(k + 1) * m / kGranularity);
    double c_own = 0, w_own = 0;
    for (int i = done; i < done + least; ++i) {
      c_own += work.c[i];
      w_own += work.w[i];
    }
    if (until > done + least) {
      c_own += work.c[until - 1];
      w_own += work.w[until - 1];
    }
    c += c_own;
    w += w_own;
    done = until;
    points.c[k] = c;
    points.w[k] = w;
    points.a[k] = until == 0 ? 0 : work.a[until - 1];
  }
}

// The median of every eighth point's activation, zeros left out: a typical cut.
double typical_activation(const Points& points) {
  std::array<double, kGridPoints / 8> sorted;
  std::size_t count = 0;
  for (std::size_t k = 7; k < kGridPoints; k += 8) {
    if (!(points.a[k] > 0)) continue;
    std::size_t at = count++;
    for (; at > 0 && sorted[at - 1] > points.a[k]; --at) sorted[at] = sorted[at - 1];
    sorted[at] = points.a[k];
  }
  if (count > 0) return sorted[count / 2];
  double largest = 0;
  for (double a : points.a) largest = std::max(largest, a);
  return largest;
}

// Level to milliseconds, for each of the three.
struct Units {
  double c = 1, a = 1, w = 1;
};

// The least that a device must hold, in W units, when every stage has an equal share of the devices and no stage is a
// variant: the smallest largest stage over all cuts, by bisection with a greedy check. The adaptive schedule is taken
// for 1f1b, so that it has more and fewer micro-batches in flight to choose from.
double least_memory(const RowProblem& row) {
  std::array<double, kGridPoints + 1> state{}, stash{};
  const bool whole = row.samples > 0;
  const double state_factor = whole ? 1.0 + row.gradient_share + row.slot_factor : 4.0;
  double largest = 0;  // activation
  std::size_t n = 0;
  std::int64_t before = 0;
  for (std::size_t k = 0; k < kGridPoints; ++k) {
    const std::int64_t at = static_cast<std::int64_t>(k + 1) * row.num_instructions / kGranularity;
    if (at == before) continue;
    before = at;
    ++n;
    state[n] = state_factor * row.caw[2 * kGridPoints + k];
    largest = std::max<double>(largest, row.caw[kGridPoints + k]);
    stash[n] = stash[n - 1] + static_cast<double>(row.stash_factor) * row.caw[kGridPoints + k];
  }
  const int stages = row.stages;
  const int devices = std::max(1, pipeline::devices_of_row(row) / stages);
  const pipeline::Schedule schedule =
      row.schedule == pipeline::Schedule::kAdaptive ? pipeline::Schedule::k1f1b : row.schedule;
  std::array<double, 65> kept{};  // micro-batches in flight per device, of stage s
  for (int s = 1; s <= stages; ++s) {
    kept[static_cast<std::size_t>(s)] =
        static_cast<double>(pipeline::in_flight(schedule, stages, s, row.micro_batches)) / devices;
  }
  const auto fits = [&](double limit) {
    std::size_t p = 0;
    for (int s = 1; s <= stages; ++s) {
      const std::size_t last = n - static_cast<std::size_t>(stages - s);
      const std::size_t from = p;
      const double factor = kept[static_cast<std::size_t>(s)];
      // The furthest p that fits; a stage's memory grows with p, so by bisection.
      std::size_t beyond = last + 1;
      while (p + 1 < beyond) {
        const std::size_t middle = (p + beyond) / 2;
        const double held = state[middle] - state[from] + (stash[middle] - stash[from]) * factor;
        (held <= limit ? p : beyond) = middle;
      }
      if (p == from) return false;
    }
    return p == n;
  };
  double low = state[n] / stages, high = state[n] + stash[n] * kept[1];
  for (int step = 0; step < 10; ++step) {
    const double middle = 0.5 * (low + high);
    (fits(middle) ? high : low) = middle;
  }
  if (!whole) return high;
  const double buckets = row.gradient_sync == 1 ? std::min<double>(row.bucket, row.caw[3 * kGridPoints - 1]) : 0;
  return high + static_cast<double>(row.workspace_factor) * largest / devices + buckets;
}

}  // namespace

const std::vector<DistributionInfo>& list_distributions() {
  static const std::vector<DistributionInfo> list = [] {
    std::vector<DistributionInfo> made;
    for (const FamilySpec& family : families()) {
      DistributionInfo info{family.name, family.summary, {}};
      for (const NumberSpec& parameter : family.parameters) {
        info.parameters.push_back({parameter.name, parameter.meaning, parameter.low, parameter.high});
      }
      made.push_back(std::move(info));
    }
    return made;
  }();
  return list;
}

std::vector<std::string> built_in_configs() {
  return built_in_config_names();
}

// Data that a Generator prepares from the configuration.
class Generator::Prepared {
 public:
  explicit Prepared(Config given) : config(std::move(given)) {
    double total = 0;
    for (const Config::Family& family : config.families) total += family.weight;
    double sum = 0;
    for (std::size_t i = 0; i < config.families.size(); ++i) {
      names.push_back(families()[i].name);
      sum += config.families[i].weight / total;
      cumulative.push_back(sum);
      if (config.families[i].weight > 0) last = i;
    }
    json = config.to_json().dump(2, Json::BadUtf8::kReplace) + "\n";
  }

  // Draws everything; the arrays stay in the workspace, their units in `units`.
  RowProblem make(std::uint64_t seed, std::uint64_t index, Workspace& work, Units& units) const;
  Config selected(const std::vector<std::string>& chosen, bool keep) const;

  Config config;
  std::vector<double> cumulative;
  std::size_t last = 0;
  std::vector<std::string> names;
  std::string json;
};

RowProblem Generator::Prepared::make(std::uint64_t seed, std::uint64_t index, Workspace& work, Units& units) const {
  Rng rng(seed, kRowStream, index);
  RowProblem row;
  const double part = rng.uniform();
  std::size_t family = 0;
  while (family < last && !(part < cumulative[family])) ++family;
  row.distribution = static_cast<std::uint8_t>(family);
  const int n = config.rows[rows::kInstructions].draw_whole(rng);
  row.num_instructions = static_cast<std::uint32_t>(n);
  // A row keeps 128 points: more instructions than a few of each are drawn for nothing.
  const int m = std::min(n, config.rows[rows::kPoints].draw_whole(rng));
  draw_cluster(config, rng, row);

  work.begin(seed, index, m);
  work.rng = &rng;
  work.profiles = config.profiles.get();
  std::array<double, kMostParameters> parameters{};
  const std::vector<Range>& ranges = config.families[family].parameters;
  for (std::size_t i = 0; i < ranges.size(); ++i) parameters[i] = ranges[i].draw(rng);
  families()[family].make(parameters.data(), work);
  // Nothing crosses the cut after the last instruction.
  if (!config.scales_as_drawn) work.a[m - 1] = 0;

  Points points;
  sum_points(work, points);
  if (!(points.c[kGridPoints - 1] > 0)) {
    std::fill(work.c, work.c + m, 1.0f);
    sum_points(work, points);
  }
  const double compute_ms = config.rows[rows::kComputeMs].draw(rng);
  units.c = units.a = units.w = compute_ms / points.c[kGridPoints - 1];
  const int devices = pipeline::devices_of_row(row);
  if (!config.scales_as_drawn) {
    const double allreduce = config.scales[scales::kAllreduce].draw(rng);
    const double transfer = config.scales[scales::kTransfer].draw(rng);
    const double weight = points.w[kGridPoints - 1], activation = typical_activation(points);
    // 2 (D-1)/D W = allreduce M C / D, and A = transfer C / D.
    const double weight_ms = allreduce * row.micro_batches * compute_ms / (2.0 * (devices - 1));
    const double activation_ms = transfer * compute_ms / devices;
    units.w = weight > 0 ? weight_ms / weight : 0;
    units.a = activation > 0 ? activation_ms / activation : 0;
    if (work.keep_bytes_ratio > 0 && units.w > 0) {
      // Bytes per ms are the same for both: a's unit follows from w's, as far as the range of transfers reaches.
      const Range& range = config.scales[scales::kTransfer];
      const double kept = work.keep_bytes_ratio * units.w;
      const double top = compute_ms / devices / activation;
      if (activation > 0) units.a = std::clamp(kept, range.low() * top, range.high() * top);
    }
  }
  double largest = std::max(compute_ms, units.w * points.w[kGridPoints - 1]);
  for (double a : points.a) largest = std::max(largest, units.a * a);
  row.scale_ms = static_cast<float>(largest);
  const double c_unit = units.c / largest, a_unit = units.a / largest, w_unit = units.w / largest;
  for (std::size_t k = 0; k < kGridPoints; ++k) {
    row.caw[k] = std::min(1.0f, static_cast<float>(points.c[k] * c_unit));
    row.caw[kGridPoints + k] = std::min(1.0f, static_cast<float>(points.a[k] * a_unit));
    row.caw[2 * kGridPoints + k] = std::min(1.0f, static_cast<float>(points.w[k] * w_unit));
  }
  row.stash_factor = static_cast<float>(config.scales[scales::kStash].draw(rng));
  if (happens(config.cluster[cluster::kWithLatency], rng)) {
    row.hop_latency = static_cast<float>(config.cluster[cluster::kLatency].draw(rng) * compute_ms / devices / largest);
  }
  draw_whole(config, seed, index, work.layers, row);
  if (happens(config.cluster[cluster::kMemoryLimited], rng)) {
    const double least = least_memory(row);
    if (least > 0) {
      row.memory_limit = static_cast<float>(least * config.cluster[cluster::kMemoryOverLeast].draw(rng) * (1 + 1e-6));
    }
  }
  return row;
}

Config Generator::Prepared::selected(const std::vector<std::string>& chosen, bool keep) const {
  std::vector<bool> named(names.size(), false);
  for (const std::string& name : chosen) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      const std::string guess = closest_name(name, names);
      throw Error(ErrorKind::kUsage, "no family of rows named \"" + name + "\"",
                  (guess.empty() ? "" : "did you mean " + guess + "? ") + "families: " + join(names));
    }
    named[static_cast<std::size_t>(found - names.begin())] = true;
  }
  Config made = config;
  double total = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (named[i] != keep) made.families[i].weight = 0;
    total += made.families[i].weight;
  }
  if (!(total > 0)) {
    std::vector<std::string> used;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (config.families[i].weight > 0) used.push_back(names[i]);
    }
    throw Error(ErrorKind::kUsage, "no family of the configuration \"" + config.name + "\" is left",
                "it uses: " + join(used));
  }
  return made;
}

Generator::Generator(std::string_view json_text, const std::string& source)
    : Generator(parse_config(json_text, source)) {}

Generator::Generator(Config config) : prepared_(std::make_unique<const Prepared>(std::move(config))) {}

Generator::Generator(Generator&&) noexcept = default;
Generator& Generator::operator=(Generator&&) noexcept = default;
Generator::~Generator() = default;

Generator Generator::load(const std::string& name_or_path) {
  if (const char* text = built_in_config(name_or_path)) return Generator(text, name_or_path);
  std::error_code ignored;
  const bool looks_like_path = name_or_path == "-" || name_or_path.find('/') != std::string::npos ||
                               name_or_path.find(".json") != std::string::npos ||
                               std::filesystem::exists(name_or_path, ignored);
  if (!looks_like_path) {
    const std::vector<std::string> known = built_in_config_names();
    const std::string guess = closest_name(name_or_path, known);
    throw Error(ErrorKind::kConfig, "no built-in configuration or file named \"" + name_or_path + "\"",
                (guess.empty() ? "" : "did you mean " + guess + "? ") + "built in: " + join(known) +
                    "; or a JSON file, see docs/datagen.md");
  }
  const std::string text = read_file(name_or_path, kMaxConfigBytes);
  if (text.empty()) throw Error(ErrorKind::kConfig, input_name(name_or_path) + ": the file is empty");
  return Generator(text, input_name(name_or_path));
}

RowProblem Generator::row(std::uint64_t seed, std::uint64_t index) const {
  thread_local Workspace work;
  Units units;
  return prepared_->make(seed, index, work, units);
}

pipeline::Profile Generator::profile(std::uint64_t seed, std::uint64_t index) const {
  constexpr double kBytesPerMs = 1e6;
  Workspace work;
  Units units;
  const RowProblem row = prepared_->make(seed, index, work, units);
  pipeline::Profile profile;
  profile.model = prepared_->names[row.distribution] + "-" + std::to_string(index);
  profile.device = "random";
  profile.forward_fraction = row.forward_fraction;
  for (int i = 0; i < work.m; ++i) {
    profile.c_ms.push_back(work.c[i] * units.c);
    profile.a_bytes.push_back(work.a[i] * units.a * kBytesPerMs);
    profile.w_bytes.push_back(work.w[i] * units.w * kBytesPerMs);
    profile.stash_bytes.push_back(0);
  }
  return profile;
}

const std::vector<std::string>& Generator::distributions() const {
  return prepared_->names;
}

const std::string& Generator::config_json() const {
  return prepared_->json;
}

Generator Generator::only(const std::vector<std::string>& names) const {
  return Generator(prepared_->selected(names, true));
}

Generator Generator::with_profiles(const std::vector<std::string>& paths) const {
  Config made = prepared_->config;
  made.use_profiles(paths);
  return Generator(std::move(made));
}

Generator Generator::without(const std::vector<std::string>& names) const {
  return Generator(prepared_->selected(names, false));
}

}  // namespace automap::datagen
