#include "datagen/config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/join.h"
#include "common/base/json_reader.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/suggest.h"
#include "common/io/profile_folder.h"
#include "datagen/empirical.h"
#include "datagen/exact_math.h"
#include "datagen/families.h"

namespace automap::datagen {
namespace {

constexpr const char* kSchema = "automap.datagen/1";

// The measured ranges behind these defaults: docs/datagen.md.
struct BuiltIn {
  const char* name;
  const char* text;
};
constexpr BuiltIn kBuiltIns[] = {
    {"mixed", R"({"name": "mixed"})"},
    {"plain", R"({
  "name": "plain",
  "cluster": {"memory_limited": 0.35},
  "training": {"micro_batches": {"low": 1, "high": 128, "usual": [8, 64], "usual_share": 0.85}},
  "samples": {"whole": 0}
})"},
    {"paper", R"({
  "name": "paper",
  "families": {"uniform": {}, "normal": {}, "binomial": {}},
  "rows": {"instructions": [128, 2000], "points": 65536},
  "scales": {"as_drawn": true, "stash_factor": 0},
  "cluster": {"devices": {"values": [16, 24, 32]}, "devices_per_server": 8, "intra_over_inter": 41.6,
              "memory_limited": 0, "with_latency": 0, "different": 0},
  "training": {"micro_batches": [8, 64], "stages": [2, 8], "overlap": 0, "forward_fraction": 0.3333333333333333},
  "samples": {"whole": 0}
})"},
    {"real", R"({"name": "real", "families": {"transformer": {}, "cnn": {}, "encoder_decoder": {}, "embedding": {},
 "sparse": {}, "unet": {}, "moe": {}, "latent": {"weight": 8}, "blocks": {"weight": 20}, "pyramid": {"weight": 8},
 "empirical": {"weight": 15}}})"},
    {"small", R"({"name": "small", "cluster": {"devices": [4, 16]}, "training": {"stages": [2, 8]}})"},
    {"medium", R"({"name": "medium", "cluster": {"devices": [17, 64]}, "training": {"stages": [2, 8]}})"},
    {"deep", R"({"name": "deep", "rows": {"instructions": [64, 2000]}, "cluster": {"devices": [16, 64]},
 "training": {"stages": [9, 16]}})"},
    {"large", R"({"name": "large", "rows": {"instructions": [64, 2000]}, "cluster": {"devices": [65, 512]},
 "training": {"stages": [2, 16]}})"},
};

std::string describe(const Json& value) {
  return excerpt(value.dump(-1, Json::BadUtf8::kReplace), 60);
}

std::string short_number(double value) {
  return Json(value == std::floor(value) && std::abs(value) < 1e15 ? Json(static_cast<std::int64_t>(value))
                                                                   : Json(value))
      .dump();
}

[[noreturn]] void fail(const std::string& place, const std::string& what, const std::string& hint = "") {
  throw Error(ErrorKind::kConfig, place + ": " + what, hint);
}

void expect_object(const Json& value, const std::string& place, const std::vector<std::string>& known) {
  if (!value.is_object()) fail(place, "found " + describe(value) + ", expected an object");
  for (const auto& [key, ignored] : value.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string guess = key.size() > 100 ? "" : closest_name(key, known);
    fail(place, "unknown key " + describe(key),
         (guess.empty() ? "" : "did you mean " + guess + "? ") + "known keys: " + join(known));
  }
}

double read_number(const Json& value, const std::string& place) {
  if (!value.is_number()) fail(place, "found " + describe(value) + ", expected a number");
  return value.get<double>();
}

Json ordered_number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<std::int64_t>(value);
  return value;
}

NumberSpec spec(const char* name, const char* meaning, double low, double high, double least, double most) {
  return {name, meaning, low, high, least, most};
}
NumberSpec with_log(NumberSpec made) {
  made.logarithmic = true;
  return made;
}
NumberSpec with_whole(NumberSpec made) {
  made.whole = true;
  return made;
}
NumberSpec with_values(NumberSpec made, std::vector<double> values, std::vector<double> weights) {
  made.values = std::move(values);
  made.weights = std::move(weights);
  return made;
}
NumberSpec with_usual(NumberSpec made, double low, double high, double share) {
  made.usual_low = low;
  made.usual_high = high;
  made.usual_share = share;
  return made;
}

Json parse_document(std::string_view text, const std::string& source) {
  return parse_json(text, {source, ErrorKind::kConfig,
                           "a configuration is JSON, see docs/datagen.md; built in: " + join(built_in_config_names())})
      .sorted();
}

Config::Section read_section(const Json& document, const char* section, const std::vector<NumberSpec>& specs,
                             const std::string& source, const std::vector<std::string>& other_keys = {}) {
  Config::Section made;
  const auto found = document.find(section);
  if (found == document.end()) {
    for (const NumberSpec& one : specs) made.emplace_back(one);
    return made;
  }
  std::vector<std::string> known = other_keys;
  for (const NumberSpec& one : specs) known.push_back(one.name);
  const std::string place = source + ": " + section;
  expect_object(*found, place, known);
  for (const NumberSpec& one : specs) {
    const auto value = found->find(one.name);
    if (value == found->end()) {
      made.emplace_back(one);
    } else {
      made.emplace_back(one, *value, place + "." + one.name);
    }
  }
  return made;
}

Json write_section(const Config::Section& section, const std::vector<NumberSpec>& specs) {
  Json made = Json::object();
  for (std::size_t i = 0; i < specs.size(); ++i) made[specs[i].name] = section[i].to_json();
  return made;
}

// Weights over their sum. Shares stay as they are: dividing them again by a sum that rounding has put beside 1 would
// make another configuration of a resolved one.
std::vector<double> shares_of(const std::vector<double>& weights) {
  constexpr double kRounding = 1e-9;
  double total = 0;
  for (const double weight : weights) total += weight;
  if (std::abs(total - 1) < kRounding) return weights;
  std::vector<double> shares;
  for (const double weight : weights) shares.push_back(weight / total);
  return shares;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const FamilySpec& family : families()) names.push_back(family.name);
  return names;
}

std::vector<std::string> read_strings(const Json& value, const std::string& place) {
  if (!value.is_array()) fail(place, "found " + describe(value) + ", expected an array of strings");
  std::vector<std::string> made;
  for (const Json& one : value) {
    if (!one.is_string()) fail(place, "found " + describe(one) + ", expected a string");
    made.push_back(one.get<std::string>());
  }
  return made;
}

// Files, and folders with all profiles that they hold.
void take_profiles(const std::vector<std::string>& paths, Config& config) {
  io::ProfileSet set = io::load_profiles(paths);
  if (!set.skipped.empty()) {
    log_warning("left out " + std::to_string(set.skipped.size()) +
                " files that are no profiles, the first: " + set.skipped.front().why);
  }
  std::vector<EmpiricalProfile> made;
  config.profile_files.clear();
  config.profile_hashes.clear();
  for (const io::NamedProfile& one : set.profiles) {
    std::error_code ignored;
    const std::filesystem::path absolute = std::filesystem::absolute(one.path, ignored);
    config.profile_files.push_back(absolute.empty() ? one.path : absolute.lexically_normal().string());
    config.profile_hashes.push_back(one.sha256);
    made.push_back(empirical_profile(one.profile));
  }
  config.profiles = std::make_shared<const std::vector<EmpiricalProfile>>(std::move(made));
}

// The models of fixtures/ where no files are named.
void take_fixtures(const Json& value, const std::string& place, Config& config) {
  if (value.contains("fixtures_sha256") && value["fixtures_sha256"] != fixture_profiles_sha256()) {
    fail(place + ".fixtures_sha256",
         "found " + describe(value["fixtures_sha256"]) + ", expected " + fixture_profiles_sha256() +
             ", the models of this version",
         "rows would come out differently; remove the key and start a new dataset");
  }
  config.profiles = std::shared_ptr<const std::vector<EmpiricalProfile>>(std::shared_ptr<void>(), &fixture_profiles());
}

void read_profiles(const Json& value, const std::string& place, const std::string& source, Config& config) {
  std::vector<std::string> files, expected;
  if (value.contains("files")) files = read_strings(value["files"], place + ".files");
  if (value.contains("sha256")) expected = read_strings(value["sha256"], place + ".sha256");
  if (files.empty()) {
    if (value.contains("files")) {
      fail(place + ".files", "names no profiles, expected \"files\": [\"model.h5\", ...]",
           "make profiles with automap-profile; without \"files\" the models of AutoMap's fixtures are drawn from");
    }
    return take_fixtures(value, place, config);
  }
  for (std::string& file : files) {
    if (std::filesystem::path(file).is_relative()) {
      file = (std::filesystem::path(source).parent_path() / file).string();
    }
  }
  take_profiles(files, config);
  if (!expected.empty() && expected.size() != config.profile_files.size()) {
    fail(place + ".sha256", std::to_string(expected.size()) + " hashes for " +
                                std::to_string(config.profile_files.size()) + " files, expected one each");
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == config.profile_hashes[i]) continue;
    fail(place + ".sha256", config.profile_files[i] + " has changed since the configuration was written",
         "rows would come out differently; restore the file, or remove sha256 and start a new dataset");
  }
}

}  // namespace

Range::Range(const NumberSpec& spec)
    : low_(spec.low),
      high_(spec.high),
      logarithmic_(spec.logarithmic),
      logarithmic_by_default_(spec.logarithmic),
      whole_(spec.whole),
      usual_low_(spec.usual_low),
      usual_high_(spec.usual_high),
      usual_share_(spec.usual_share),
      values_(spec.values) {
  shares_ = shares_of(spec.weights);
  prepare();
}

Range::Range(const NumberSpec& spec, const Json& value, const std::string& place)
    : logarithmic_(spec.logarithmic), logarithmic_by_default_(spec.logarithmic), whole_(spec.whole) {
  const auto check = [&](double number) {
    if (!(number >= spec.least && number <= spec.most)) {
      fail(place, "found " + short_number(number) + ", expected " + short_number(spec.least) + " to " +
                      short_number(spec.most));
    }
    if (whole_ && number != std::floor(number))
      fail(place, "found " + short_number(number) + ", expected a whole number");
    return number;
  };
  const auto pair = [&](const Json& array, const std::string& where, double& low, double& high) {
    if (!array.is_array() || array.size() != 2) {
      fail(where, "found " + describe(array) + ", expected [low, high]");
    }
    low = check(read_number(array[0], where));
    high = check(read_number(array[1], where));
    if (low > high) fail(where, "low " + short_number(low) + " is above high " + short_number(high));
  };
  if (value.is_number()) {
    low_ = high_ = check(read_number(value, place));
  } else if (value.is_array()) {
    pair(value, place, low_, high_);
  } else if (value.is_object() && value.contains("values")) {
    expect_object(value, place, {"values", "weights"});
    if (!value["values"].is_array() || value["values"].empty()) {
      fail(place + ".values", "found " + describe(value["values"]) + ", expected an array of numbers");
    }
    for (const Json& one : value["values"]) values_.push_back(check(read_number(one, place + ".values")));
    std::vector<double> weights(values_.size(), 1);
    if (value.contains("weights")) {
      const Json& given = value["weights"];
      if (!given.is_array() || given.size() != values_.size()) {
        fail(place + ".weights", "found " + describe(given) + ", expected one number per value");
      }
      for (std::size_t i = 0; i < weights.size(); ++i) {
        weights[i] = read_number(given[i], place + ".weights");
        if (!(weights[i] >= 0 && weights[i] <= 1e9)) {
          fail(place + ".weights", "found " + describe(given[i]) + ", expected a number from 0 to 1e9");
        }
      }
    }
    if (!(*std::max_element(weights.begin(), weights.end()) > 0)) {
      fail(place + ".weights", "all are 0, expected at least one above 0");
    }
    shares_ = shares_of(weights);
  } else if (value.is_object()) {
    expect_object(value, place, {"low", "high", "scale", "usual", "usual_share", "values", "weights"});
    low_ = value.contains("low") ? check(read_number(value["low"], place + ".low")) : spec.low;
    high_ = value.contains("high") ? check(read_number(value["high"], place + ".high")) : spec.high;
    if (low_ > high_) fail(place, "low " + short_number(low_) + " is above high " + short_number(high_));
    if (value.contains("scale")) {
      const Json& scale = value["scale"];
      if (scale != "log" && scale != "linear") {
        fail(place + ".scale", "found " + describe(scale) + ", expected \"log\" or \"linear\"");
      }
      logarithmic_ = scale == "log";
    }
    if (value.contains("usual")) {
      pair(value["usual"], place + ".usual", usual_low_, usual_high_);
      usual_share_ = 0.8;
    }
    if (value.contains("usual_share")) {
      usual_share_ = read_number(value["usual_share"], place + ".usual_share");
      if (!value.contains("usual")) fail(place + ".usual_share", "given without usual");
      if (!(usual_share_ >= 0 && usual_share_ <= 1)) {
        fail(place + ".usual_share", "found " + short_number(usual_share_) + ", expected 0 to 1");
      }
    }
    if (usual_share_ > 0 && (usual_low_ < low_ || usual_high_ > high_)) {
      fail(place + ".usual", "reaches outside " + short_number(low_) + " to " + short_number(high_));
    }
  } else {
    fail(place, "found " + describe(value) + ", expected a number, [low, high], {\"low\", \"high\"} or {\"values\"}");
  }
  if (logarithmic_ && values_.empty() && low_ != high_ && !(low_ > 0)) {
    fail(place, "drawn on a logarithmic scale, so low must be above 0", "or give \"scale\": \"linear\"");
  }
  prepare();
}

void Range::prepare() {
  if (!logarithmic_ || !values_.empty()) return;
  // A whole number k stands for [k, k + 1).
  const double beyond = whole_ ? 1 : 0;
  if (low_ > 0) {
    log_low_ = log_of(low_);
    log_high_ = log_of(high_ + beyond);
  }
  if (usual_share_ > 0) {
    log_usual_low_ = log_of(usual_low_);
    log_usual_high_ = log_of(usual_high_ + beyond);
  }
}

double Range::low() const {
  return values_.empty() ? low_ : *std::min_element(values_.begin(), values_.end());
}

double Range::high() const {
  return values_.empty() ? high_ : *std::max_element(values_.begin(), values_.end());
}

double Range::between(double low, double high, double log_low, double log_high, Rng& rng) const {
  if (!(low < high)) return low;
  const double part = rng.uniform();
  double drawn =
      logarithmic_ ? exp_of(log_low + part * (log_high - log_low)) : low + part * (high + (whole_ ? 1 : 0) - low);
  if (whole_) drawn = std::floor(drawn);
  return std::min(std::max(drawn, low), high);
}

double Range::draw(Rng& rng) const {
  if (!values_.empty()) {
    double part = rng.uniform();
    for (std::size_t i = 0; i + 1 < values_.size(); ++i) {
      if (part < shares_[i]) return values_[i];
      part -= shares_[i];
    }
    return values_.back();
  }
  if (usual_share_ > 0 && rng.uniform() < usual_share_) {
    return between(usual_low_, usual_high_, log_usual_low_, log_usual_high_, rng);
  }
  return between(low_, high_, log_low_, log_high_, rng);
}

Json Range::to_json() const {
  if (!values_.empty()) {
    Json made = {{"values", Json::array()}, {"weights", Json::array()}};
    for (double value : values_) made["values"].push_back(ordered_number(value));
    for (double share : shares_) made["weights"].push_back(ordered_number(share));
    return made;
  }
  if (low_ == high_) return ordered_number(low_);
  const Json plain = Json::array({ordered_number(low_), ordered_number(high_)});
  if (usual_share_ <= 0 && logarithmic_ == logarithmic_by_default_) return plain;
  Json made = {{"low", plain[0]}, {"high", plain[1]}, {"scale", logarithmic_ ? "log" : "linear"}};
  if (usual_share_ > 0) {
    made["usual"] = Json::array({ordered_number(usual_low_), ordered_number(usual_high_)});
    made["usual_share"] = ordered_number(usual_share_);
  }
  return made;
}

const std::vector<NumberSpec>& row_specs() {
  static const std::vector<NumberSpec> specs = {
      with_log(with_whole(spec("instructions", "m, instructions of the model", 16, 2000, 2, kMostInstructions))),
      with_log(spec("compute_ms", "compute of one micro-batch on one device, ms", 1, 1000, 1e-6, 1e9)),
      with_values(
          with_whole(spec("points", "instructions that are drawn where a model has more; a row keeps 128 points", 128,
                          256, 128, kMostInstructions)),
          {128, 256}, {0.5, 0.5}),
  };
  return specs;
}

const std::vector<NumberSpec>& scale_specs() {
  static const std::vector<NumberSpec> specs = {
      with_log(with_usual(spec("allreduce_over_compute",
                               "ring all-reduce of all parameters over all devices at the slowest link, over the "
                               "compute of one step per device",
                               0.002, 50, 0, 1e6),
                          0.05, 10, 0.75)),
      with_log(with_usual(spec("transfer_over_compute",
                               "transfer of the median activation over the slowest link, over the compute of one "
                               "micro-batch per device",
                               0.003, 10, 0, 1e6),
                          0.05, 5, 0.75)),
      with_log(
          spec("stash_factor", "bytes kept for the backward at a point over the activation there", 0.05, 8, 0, 1e6)),
  };
  return specs;
}

const std::vector<NumberSpec>& cluster_specs() {
  static const std::vector<NumberSpec> specs = {
      with_log(
          with_whole(with_usual(spec("devices", "devices in all (up to 64 servers)", 2, 512, 2, 1024), 4, 64, 0.9))),
      with_values(with_whole(spec("devices_per_server", "devices of one server", 1, 16, 1, 64)), {1, 2, 4, 8, 16},
                  {0.1, 0.15, 0.25, 0.45, 0.05}),
      with_log(spec("intra_over_inter", "bandwidth inside a server over that between servers", 1, 100, 1e-3, 1e6)),
      spec("memory_limited", "share of rows whose devices have a memory limit", 0.6, 0.6, 0, 1),
      with_log(spec("memory_over_least", "that limit over the least that equal shares of the devices need", 1.02, 4, 1,
                    1e6)),
      spec("with_latency", "share of rows whose links have a latency", 0.3, 0.3, 0, 1),
      with_log(spec("latency_over_compute",
                    "latency of a hop between servers over the compute of one micro-batch per device", 1e-4, 0.05, 0,
                    1e3)),
      spec("different", "share of rows whose servers differ in devices, speed, memory or links", 0.15, 0.15, 0, 1),
  };
  return specs;
}

const std::vector<NumberSpec>& training_specs() {
  static const std::vector<NumberSpec> specs = {
      with_log(with_whole(with_usual(spec("micro_batches", "micro-batches of a step", 1, 128, 1, 65535), 2, 32, 0.85))),
      with_whole(with_usual(
          spec("stages", "pipeline stages; fewer where devices or instructions are fewer", 2, 16, 2, 16), 2, 8, 0.8)),
      spec("overlap", "share of rows with the 1f1b-overlap schedule", 0.3, 0.3, 0, 1),
      with_usual(spec("forward_fraction", "share of the forward in the compute", 0.1, 0.95, 1e-3, 1), 0.25, 0.45, 0.75),
  };
  return specs;
}

const std::vector<NumberSpec>& sample_specs() {
  static const std::vector<NumberSpec> specs = {
      spec("whole", "share of rows of whole samples; the others are the papers' problem of fractional replicas", 1, 1,
           0, 1),
      with_values(
          with_whole(spec("micro_batch", "samples of a micro-batch; doubled until the stages can share the devices", 4,
                          256, 1, 65535)),
          {4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256},
          {0.08, 0.03, 0.15, 0.04, 0.18, 0.04, 0.18, 0.04, 0.12, 0.03, 0.07, 0.04}),
      spec("adaptive", "share of them with the adaptive schedule", 0.85, 0.85, 0, 1),
      with_usual(spec("launch_share", "share of one sample's time that more samples do not repeat", 0, 0.98, 0, 0.999),
                 0.1, 0.6, 0.8),
      spec("launch_even", "of that, the share that is the same for every instruction; the rest goes with its compute",
           0, 1, 0, 1),
  };
  return specs;
}

const std::vector<NumberSpec>& update_specs() {
  static const std::vector<NumberSpec> specs = {
      spec("overlap_sync", "share of rows whose gradients are reduced in buckets beside the backward", 0.85, 0.85, 0,
           1),
      with_log(
          with_usual(spec("bucket_over_weights", "bytes of a bucket over those of all weights", 0.001, 2, 1e-6, 1e6),
                     0.005, 0.3, 0.8)),
      with_values(spec("gradients", "bytes of gradients over those of weights", 0.5, 1, 0, 1e3), {0.5, 1}, {0.4, 0.6}),
      with_values(spec("slots", "bytes of optimizer state over those of weights", 0, 6, 0, 1e3), {0, 1, 2, 6},
                  {0.05, 0.15, 0.65, 0.15}),
      spec("with_optimizer", "share of rows that count the update of the variables", 0.9, 0.9, 0, 1),
      with_log(spec("optimizer_over_link", "time of a variable's update over that of its bytes at the slowest link",
                    0.005, 1.5, 0, 1e6)),
  };
  return specs;
}

const std::vector<NumberSpec>& variant_specs() {
  static const std::vector<NumberSpec> specs = {
      with_values(with_whole(spec("zero", "highest ZeRO level that a stage may have", 0, 3, 0, 3)), {0, 1, 3},
                  {0.2, 0.75, 0.05}),
      spec("recompute", "share of rows whose stages may recompute layers", 0.8, 0.8, 0, 1),
      with_log(with_whole(spec("layers", "layers, where the family does not say", 4, 64, 1, 1000))),
      with_log(
          spec("workspace_factor", "largest temporaries of an instruction over the activation there", 0.2, 40, 0, 1e6)),
  };
  return specs;
}

void Config::use_profiles(const std::vector<std::string>& paths) {
  take_profiles(paths, *this);
  double others = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < families.size(); ++i) {
    if (datagen::families()[i].name == "empirical") {
      at = i;
    } else {
      others += families[i].weight;
    }
  }
  constexpr double kShare = 0.2;
  if (!(families[at].weight > 0)) families[at].weight = others * kShare / (1 - kShare);
}

Json Config::to_json() const {
  Json document;
  document["schema"] = kSchema;
  document["name"] = name;
  document["families"] = Json::object();
  for (std::size_t i = 0; i < families.size(); ++i) {
    if (!(families[i].weight > 0)) continue;
    const FamilySpec& family = datagen::families()[i];
    Json written = {{"weight", ordered_number(families[i].weight)}};
    for (std::size_t j = 0; j < family.parameters.size(); ++j) {
      written[family.parameters[j].name] = families[i].parameters[j].to_json();
    }
    if (family.name == "empirical") {
      if (profile_files.empty()) {
        written["fixtures_sha256"] = fixture_profiles_sha256();
      } else {
        written["files"] = profile_files;
        written["sha256"] = profile_hashes;
      }
    }
    document["families"][family.name] = std::move(written);
  }
  document["rows"] = write_section(rows, row_specs());
  document["scales"] = write_section(scales, scale_specs());
  document["scales"]["as_drawn"] = scales_as_drawn;
  document["cluster"] = write_section(cluster, cluster_specs());
  document["training"] = write_section(training, training_specs());
  document["samples"] = write_section(samples, sample_specs());
  document["update"] = write_section(update, update_specs());
  document["variants"] = write_section(variants, variant_specs());
  return document;
}

Config parse_config(std::string_view json_text, const std::string& source) {
  const Json document = json_text.empty() ? Json{{"name", "mixed"}} : parse_document(json_text, source);
  if (!document.is_object()) fail(source, "found " + describe(document) + ", expected an object");
  // Checked first, so that a file of another kind or of a newer version is named as such.
  if (document.contains("schema") && document["schema"] != kSchema) {
    const Json& schema = document["schema"];
    const bool newer = schema.is_string() && schema.get<std::string>().rfind("automap.datagen/", 0) == 0;
    fail(source + ": schema", "found " + describe(schema) + ", expected \"" + kSchema + "\"",
         newer ? "the file was written for another version of AutoMap" : "this is no configuration of rows");
  }
  expect_object(
      document, source,
      {"schema", "name", "families", "rows", "scales", "cluster", "training", "samples", "update", "variants"});
  Config config;
  config.name = std::filesystem::path(source).stem().string();
  if (document.contains("name")) {
    if (!document["name"].is_string()) {
      fail(source + ": name", "found " + describe(document["name"]) + ", expected a string");
    }
    config.name = document["name"].get<std::string>();
  }
  const bool listed = document.contains("families");
  const std::string families_place = source + ": families";
  if (listed) expect_object(document["families"], families_place, family_names());
  double total = 0;
  for (const FamilySpec& family : families()) {
    Config::Family made;
    const bool empirical = family.name == "empirical";
    const bool present = listed && document["families"].contains(family.name);
    made.weight = present ? 1 : listed ? 0 : family.weight;
    const Json value = present ? document["families"][family.name] : Json::object();
    const std::string place = families_place + "." + family.name;
    std::vector<std::string> known = {"weight"};
    for (const NumberSpec& parameter : family.parameters) known.push_back(parameter.name);
    if (empirical) known.insert(known.end(), {"files", "sha256", "fixtures_sha256"});
    expect_object(value, place, known);
    if (value.contains("weight")) {
      made.weight = read_number(value["weight"], place + ".weight");
      if (!(made.weight >= 0 && made.weight <= 1e9)) {
        fail(place + ".weight", "found " + short_number(made.weight) + ", expected a number from 0 to 1e9");
      }
    }
    for (const NumberSpec& parameter : family.parameters) {
      if (value.contains(parameter.name)) {
        made.parameters.emplace_back(parameter, value[parameter.name], place + "." + parameter.name);
      } else {
        made.parameters.emplace_back(parameter);
      }
    }
    if (empirical && made.weight > 0) {
      read_profiles(value, place, source, config);
    }
    total += made.weight;
    config.families.push_back(std::move(made));
  }
  if (!(total > 0)) {
    fail(families_place, "no family has a weight above 0", "families: " + join(family_names()));
  }
  config.rows = read_section(document, "rows", row_specs(), source);
  config.scales = read_section(document, "scales", scale_specs(), source, {"as_drawn"});
  if (document.contains("scales") && document["scales"].contains("as_drawn")) {
    const Json& value = document["scales"]["as_drawn"];
    if (!value.is_boolean())
      fail(source + ": scales.as_drawn", "found " + describe(value) + ", expected true or false");
    config.scales_as_drawn = value.get<bool>();
  }
  config.cluster = read_section(document, "cluster", cluster_specs(), source);
  config.training = read_section(document, "training", training_specs(), source);
  config.samples = read_section(document, "samples", sample_specs(), source);
  config.update = read_section(document, "update", update_specs(), source);
  config.variants = read_section(document, "variants", variant_specs(), source);
  return config;
}

const char* built_in_config(const std::string& name) {
  for (const BuiltIn& one : kBuiltIns) {
    if (name == one.name) return one.text;
  }
  return nullptr;
}

std::vector<std::string> built_in_config_names() {
  std::vector<std::string> names;
  for (const BuiltIn& one : kBuiltIns) names.emplace_back(one.name);
  return names;
}

}  // namespace automap::datagen
