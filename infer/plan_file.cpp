#include "infer/plan_file.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/json_object.h"
#include "common/base/json_reader.h"
#include "common/base/printable.h"
#include "common/base/suggest.h"
#include "common/base/text_table.h"
#include "common/pipeline/plan_json.h"
#include "common/pipeline/plan_reader.h"
#include "infer/options.h"

namespace automap::infer {
namespace {

using pipeline::Schedule;

constexpr int kMany = 1 << 30;

// The settings of all files of version 1.
constexpr std::pair<const char*, const char*> kVersion1[] = {{"replicas", "fractional"},
                                                             {"gradient-sync", "after"},
                                                             {"optimizer", "off"},
                                                             {"memory-reserve", "0"},
                                                             {"allow-idle-stages", "true"}};

void take_provenance(const std::map<std::string, std::string>& provenance, GivenPlan& given) {
  for (const std::string& option : options_of_given_plans()) {
    std::string key = "option_" + option;
    for (char& c : key) c = c == '-' ? '_' : c;
    const auto found = provenance.find(key);
    if (found != provenance.end()) given.settings[option] = found->second;
  }
  for (const auto& [key, value] : {std::pair("state_of", &given.state_of), std::pair("option_for", &given.made_for)}) {
    const auto found = provenance.find(key);
    if (found != provenance.end()) *value = found->second;
  }
  const auto hash = provenance.find("model_sha256");
  if (hash != provenance.end()) given.model_sha256 = hash->second;
}

void take_partitions(const Json& json, const std::string& source, GivenPlan& given) {
  const JsonObject reader(json, source);
  if (reader.has("partition")) given.partitions.emplace_back(source + ": partition", json["partition"]);
  if (!reader.has("partitions")) return;
  int number = 0;
  for (const Json& one : reader.array("partitions")) {
    given.partitions.emplace_back(source + ": partitions[" + std::to_string(number++) + "]", one);
  }
}

GivenPlan of_document(const pipeline::PlanDocument& document) {
  GivenPlan given;
  given.plan = document.plan;
  given.micro_batch_samples = document.micro_batch_samples;
  given.micro_batches = document.micro_batches;
  given.num_devices = document.num_devices;
  given.widths = document.stage_widths();
  given.num_instructions = document.num_instructions;
  given.model = document.model;
  given.measured_step = document.measured_step;
  if (document.version == 1) given.settings.insert(std::begin(kVersion1), std::end(kVersion1));
  take_provenance(document.provenance, given);
  // "equal" is how a plan was looked for; what it takes is the same.
  if (!document.replicas.empty()) given.settings["replicas"] = document.replicas;
  if (!document.gradient_sync.empty()) given.settings["gradient-sync"] = document.gradient_sync;
  for (const pipeline::PlanStage& stage : document.stages) {
    given.variants.push_back(stage.variant);
    for (const int device : stage.device_numbers) given.devices.push_back(device - 1);
    if (document.version >= 2 && says_in_flight(given.plan.schedule)) given.plan.warmup.push_back(stage.in_flight);
  }
  return given;
}

template <class T>
void check_length(const JsonObject& reader, const char* key, const std::vector<T>& list, std::size_t stages) {
  if (list.size() == stages) return;
  reader.fail(std::string(key) + ": found " + std::to_string(list.size()) + (list.size() == 1 ? " entry" : " entries") +
              ", expected " + std::to_string(stages) + ", one for each stage (one more than cuts)");
}

std::string word(const JsonObject& reader, const char* key, const std::vector<std::string>& words) {
  const std::string found = reader.text(key);
  std::string expected;
  for (const std::string& one : words) {
    if (found == one) return found;
    expected += (expected.empty() ? "\"" : " or \"") + one + "\"";
  }
  reader.wrong(key, reader.at(key), expected);
}

GivenPlan of_minimal(const Json& json, const std::string& source) {
  const JsonObject reader(json, source);
  const JsonSource from{source, ErrorKind::kData, ""};
  JsonValue(json, from)
      .only_keys({"cuts", "device_cuts", "schedule", "in_flight", "zero", "recompute", "micro_batch_samples",
                  "micro_batches", "devices", "width", "replicas", "gradient_sync", "model", "provenance"});
  GivenPlan given;
  given.plan.schedule = Schedule::kAdaptive;
  given.plan.cuts = reader.integers("cuts", 1, kMany);
  given.plan.device_cuts = reader.integers("device_cuts", 1, kMany);
  const std::size_t stages = given.plan.cuts.size() + 1;
  if (given.plan.device_cuts.size() + 1 != stages) {
    reader.fail("device_cuts: found " + std::to_string(given.plan.device_cuts.size()) + " entries, expected " +
                std::to_string(stages - 1) + ", as many as cuts");
  }
  if (reader.has("schedule")) {
    const auto named = pipeline::parse_schedule(reader.text("schedule"));
    if (!named || !is_alternating(*named)) {
      reader.wrong("schedule", reader.at("schedule"), "one of " + pipeline::alternating_names());
    }
    given.plan.schedule = *named;
    given.settings["schedule"] = to_string(*named);
  }
  if (reader.has("in_flight")) {
    given.plan.warmup = reader.integers("in_flight", 1, kMany);
    check_length(reader, "in_flight", given.plan.warmup, stages);
  }
  given.micro_batch_samples = reader.integer_or("micro_batch_samples", 1, kMany, 0);
  given.micro_batches = reader.integer_or("micro_batches", 1, kMany, 0);
  given.num_devices = reader.integer_or("devices", 1, kMany, 0);
  if (reader.has("width") && reader.at("width").is_array()) {
    given.widths = reader.integers("width", 1, machine::kMaxDevices);
    check_length(reader, "width", given.widths, stages);
  } else {
    given.widths.assign(stages, reader.integer_or("width", 1, machine::kMaxDevices, 1));
  }
  given.variants.resize(stages);
  if (reader.has("zero")) {
    const std::vector<int> zero = reader.integers("zero", 0, 3);
    check_length(reader, "zero", zero, stages);
    for (std::size_t s = 0; s < stages; ++s) given.variants[s].zero = zero[s];
  }
  if (reader.has("recompute")) {
    const std::vector<std::string> recompute = reader.texts("recompute");
    check_length(reader, "recompute", recompute, stages);
    for (std::size_t s = 0; s < stages; ++s) {
      if (recompute[s] != "layer" && recompute[s] != "none") {
        reader.wrong("recompute", Json(recompute[s]), "\"none\" or \"layer\" for each stage");
      }
      given.variants[s].recompute = recompute[s] == "layer";
    }
  }
  if (reader.has("provenance")) {
    const auto pairs = pipeline::read_provenance(reader);
    take_provenance({pairs.begin(), pairs.end()}, given);
  }
  if (reader.has("replicas")) given.settings["replicas"] = word(reader, "replicas", {"whole", "fractional"});
  if (reader.has("gradient_sync")) {
    given.settings["gradient-sync"] = word(reader, "gradient_sync", {"overlap", "after"});
  }
  given.model = reader.text_or_empty("model");
  return given;
}

std::string list_text(const std::vector<int>& list) {
  std::string out;
  for (const int one : list) out += (out.empty() ? "" : ", ") + std::to_string(one);
  return "[" + shorten(out, 60) + "]";
}

void check_rising(const std::string& source, const char* key, const std::vector<int>& cuts) {
  for (std::size_t i = 1; i < cuts.size(); ++i) {
    if (cuts[i] > cuts[i - 1]) continue;
    throw Error(ErrorKind::kData, source + ": " + key + ": found " + std::to_string(cuts[i]) + " behind " +
                                      std::to_string(cuts[i - 1]) + ", expected cuts that rise strictly");
  }
}

// K against M and the schedule, as far as the file says them.
void check_in_flight(const GivenPlan& given) {
  const std::vector<int>& k = given.plan.warmup;
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::kData, given.source + ": in_flight: " + what);
  };
  for (std::size_t s = 0; s < k.size(); ++s) {
    const std::string found = "found " + std::to_string(k[s]) + " at stage " + std::to_string(s + 1);
    if (given.micro_batches > 0 && k[s] > given.micro_batches) {
      refuse(found + ", expected at most the " + std::to_string(given.micro_batches) + " micro_batches");
    }
    if (s > 0 && k[s] > k[s - 1]) {
      refuse(found + " behind " + std::to_string(k[s - 1]) + ", expected no stage to keep more than the one in front");
    }
  }
  if (k.empty() || !is_alternating(given.plan.schedule) || given.plan.schedule == Schedule::kAdaptive ||
      given.micro_batches == 0)
    return;
  std::vector<int> expected;
  for (int s = 1; s <= given.plan.num_stages(); ++s) {
    expected.push_back(pipeline::in_flight(given.plan.schedule, given.plan.num_stages(), s, given.micro_batches));
  }
  if (k != expected) {
    refuse("found " + list_text(k) + ", expected " + list_text(expected) + " of the schedule " +
           to_string(given.plan.schedule));
  }
}

std::string short_hash(const std::string& sha256) {
  return "sha256 " + printable(sha256.substr(0, 12)) + "...";
}

}  // namespace

GivenPlan read_plan_file(const std::string& path) {
  const std::string source = input_name(path);
  const std::string text = gunzip_if_gzip(read_file(path, pipeline::kMaxPlanBytes), source, pipeline::kMaxPlanBytes);
  const Json json = parse_json(text, {source, ErrorKind::kData, std::string("expected ") + pipeline::kGivenPlans});
  const bool document = json.is_object() && json.contains("schema");
  GivenPlan given = document ? of_document(pipeline::parse_plan(text, source)) : of_minimal(json, source);
  if (document) take_partitions(json, source, given);
  given.source = source;
  if (document) given.settings["schedule"] = to_string(given.plan.schedule);
  const bool fractional = given.settings.count("replicas") > 0 && given.settings.at("replicas") == "fractional";
  if (!fractional && given.micro_batch_samples != std::floor(given.micro_batch_samples)) {
    throw Error(ErrorKind::kData, source + ": micro_batch_samples: found " + std::to_string(given.micro_batch_samples) +
                                      ", expected whole samples");
  }
  check_rising(source, "cuts", given.plan.cuts);
  check_rising(source, "device_cuts", given.plan.device_cuts);
  check_in_flight(given);
  return given;
}

std::vector<std::string> check_partitions(const GivenPlan& given, const pipeline::Profile& profile) {
  std::vector<std::string> departures;
  for (const auto& [where, json] : given.partitions) {
    const JsonObject theirs(json, where);
    const int width = theirs.integer("shards", 2, machine::kMaxDevices);
    const auto columns =
        std::find_if(profile.widths.begin(), profile.widths.end(), [&](const auto& one) { return one.width == width; });
    if (columns == profile.widths.end() || columns->partition.empty()) continue;
    const Json own = Json::parse(columns->partition);
    const Json &dims = theirs.at("partition"), &own_dims = own.at("partition");
    const JsonObject tensors(dims, theirs.where("partition"));
    std::vector<std::string> names;
    for (const auto& [name, dim] : own_dims.items()) names.push_back(name);
    int others = 0;
    for (const auto& [name, dim] : dims.items()) {
      if (own_dims.contains(name)) {
        others += dim != own_dims.at(name) ? 1 : 0;
        continue;
      }
      const std::string near = closest_name(name, names);
      tensors.fail("unknown tensor " + printable(shorten(name, 80)) +
                       (near.empty() ? "" : "; did you mean " + printable(near) + "?"),
                   "give the model that the plan was made for, or leave the partition out");
    }
    for (const std::string& name : names) {
      if (!dims.contains(name)) tensors.fail("there is nothing of " + printable(name), "leave the whole partition out");
    }
    const bool same_rest = json.value("gathers", Json()) == own.value("gathers", Json()) &&
                           json.value("sums", Json()) == own.value("sums", Json());
    if (others == 0 && same_rest) continue;
    departures.push_back("the file holds another partition for replicas of " + std::to_string(width) +
                         " devices than is found here (" +
                         (others > 0 ? std::to_string(others) + " of " + std::to_string(names.size()) + " tensors"
                                     : std::string("what is gathered")) +
                         " differ" + (others > 0 ? "" : "s") +
                         "); the one found here is counted, automap-search apply counts the file's");
  }
  return departures;
}

void check_model(const GivenPlan& given, const PlanInput& input) {
  const pipeline::Profile& profile = input.profile;
  const std::string of = given.model.empty() ? "" : " (" + printable(given.model) + ")";
  if (given.num_instructions > 0 && given.num_instructions != profile.size()) {
    throw Error(ErrorKind::kData,
                given.source + " is a plan for a model of " + std::to_string(given.num_instructions) +
                    " forward instructions" + of + ", this has " + std::to_string(profile.size()),
                "give the model that the plan was made for");
  }
  // A profile knows the model it was made of; a plan may have been made from either.
  const bool same = given.model_sha256 == profile.source_sha256 || given.model_sha256 == input.sha256;
  if (given.model_sha256.empty() || same) return;
  throw Error(ErrorKind::kData,
              given.source + " is a plan for another model: " +
                  (given.model.empty() ? "" : printable(given.model) + ", ") + short_hash(given.model_sha256) +
                  "; this is " + (profile.model.empty() ? "" : printable(profile.model) + ", ") +
                  short_hash(profile.source_sha256.empty() ? input.sha256 : profile.source_sha256),
              "give the model that the plan was made for; its cuts and device_cuts in a file of their own are counted "
              "on any model");
}

}  // namespace automap::infer
