#include "inspect/describe.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>
#include <vector>

#include "common/architecture/read.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/fitted_table.h"
#include "common/base/join.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "common/hlo/hlo_reader.h"
#include "common/hlo/hlo_writer.h"
#include "common/hlo/json_cursor.h"
#include "common/io/hdf5_checksum.h"
#include "common/io/profile_file.h"
#include "common/machine/cluster.h"
#include "common/machine/device.h"
#include "inspect/facts.h"
#include "inspect/kinds.h"
#include "inspect/links.h"
#include "models/partition_env.h"
#include "models/policy.h"
#include "profile/profile_hlo.h"

namespace automap::inspect {
namespace {
using Align = FittedTable::Align;

Json base_document(const char* kind, const std::string& source, std::string_view bytes) {
  Json document = Json::object();
  document["schema"] = "automap.inspect/1";
  document["kind"] = kind;
  document["source"] = source;
  document["file_bytes"] = bytes.size();
  document["sha256"] = nullptr;
  return document;
}

const char* form_key(io::ProfileForm form) {
  switch (form) {
    case io::ProfileForm::kHdf5: return "hdf5";
    case io::ProfileForm::kCsv: return "csv";
    case io::ProfileForm::kPipedream: return "pipedream";
  }
  return "";
}

Description describe_profile(Description out, std::string bytes, io::ProfileForm form, const std::string& source) {
  const bool hdf5 = form == io::ProfileForm::kHdf5;
  const char* checksum = hdf5 && io::check_hdf5_bytes(bytes, source).verified ? "verified" : "none";
  const pipeline::Profile p = io::read_profile(std::move(bytes), source);
  const auto sum = [](const std::vector<double>& v) {
    double total = 0;
    for (const double x : v) total += x;
    return total;
  };
  const auto variables = std::count_if(p.w_bytes.begin(), p.w_bytes.end(), [](double w) { return w > 0; });
  const double widest = p.a_bytes.empty() ? 0 : *std::max_element(p.a_bytes.begin(), p.a_bytes.end());
  std::vector<LayerRow> layers;
  std::map<std::string, std::size_t> place;
  for (const std::string& name : p.layer) {
    const auto [it, added] = place.emplace(name, layers.size());
    if (added) layers.push_back({name, 0});
    ++layers[it->second].instructions;
  }
  Json& d = out.document;
  d["form"] = form_key(form);
  d["model"] = p.model;
  d["device"] = p.device;
  d["instructions"] = p.size();
  d["instructions_with_variables"] = variables;
  d["micro_batch_size"] = p.micro_batch_size;
  d["forward_fraction"] = p.forward_fraction;
  d["c_ms"] = sum(p.c_ms);
  d["w_bytes"] = count_number(sum(p.w_bytes));
  d["stash_bytes"] = count_number(sum(p.stash_bytes));
  d["widths"] = Json::array({1});
  std::vector<std::string> widths = {"1"};
  for (const pipeline::WidthColumns& columns : p.widths) {
    d["widths"].push_back(columns.width);
    widths.push_back(std::to_string(columns.width));
  }
  d["max_a_bytes"] = count_number(widest);
  d["model_sha256"] = p.source_sha256.empty() ? Json() : Json(p.source_sha256);
  if (hdf5) d["checksum"] = checksum;
  d["layers"] = Json::array();
  for (const LayerRow& row : layers) d["layers"].push_back({{"name", row.name}, {"instructions", row.instructions}});

  Facts facts;
  facts.add("model", p.model.empty() ? "(unnamed)" : p.model);
  facts.add("device", p.device.empty() ? "(not said)" : p.device);
  facts.add("instructions", format_count(p.size()) + ", " + format_count(variables) + " of them first use a variable");
  facts.add("micro-batch", p.micro_batch_size > 0 ? format_number(p.micro_batch_size) + " samples" : "size not said");
  facts.add("compute", format_ms(sum(p.c_ms)) + " per micro-batch, " + format_percent(p.forward_fraction) + " forward");
  facts.add("variables", format_bytes(sum(p.w_bytes)));
  facts.add("stash", format_bytes(sum(p.stash_bytes)) + " per micro-batch");
  facts.add("widest cut", format_bytes(widest) + " one way");
  if (!p.widths.empty()) facts.add("replicas", join(widths) + " devices, linked as in " + p.widths.front().servers);
  if (!layers.empty()) facts.add("layers", format_count(static_cast<std::int64_t>(layers.size())));
  if (hdf5) facts.add("checksum", checksum);
  out.text = title(source, std::string("profile (") + io::to_string(form) + ")") + facts.render();
  return out;
}

// `text`: of the file; empty for a preset.
Description describe_cluster(Description out, const machine::Cluster& c, const std::string& source,
                             std::string_view text) {
  Json& d = out.document;
  d["name"] = c.name;
  d["servers"] = c.num_servers();
  d["devices"] = c.num_devices();
  d["intra_latency_us"] = c.intra_latency_us;
  d["inter_latency_us"] = c.inter_latency_us;
  d["groups"] = Json::array();
  double memory_gib = 0;
  FittedTable table({{"servers"},
                     {"devices each"},
                     {"device", Align::kLeft},
                     {"memory", Align::kRight, 60},
                     {"speed", Align::kRight, 30},
                     {"within GB/s", Align::kRight, 40},
                     {"between GB/s", Align::kRight, 50}});
  for (const machine::ServerGroup& g : c.servers) {
    const auto type = c.devices.find(g.device);
    const double gib = type == c.devices.end() ? 0 : type->second.memory_gib;
    const double speed = type == c.devices.end() ? 1 : type->second.relative_speed;
    memory_gib += gib * g.count * g.devices;
    d["groups"].push_back({{"count", g.count},
                           {"devices", g.devices},
                           {"device", g.device},
                           {"memory_gib", gib},
                           {"relative_speed", speed},
                           {"intra_gbytes_per_s", g.intra_gbytes_per_s},
                           {"inter_gbytes_per_s", g.inter_gbytes_per_s}});
    table.add_row({std::to_string(g.count), std::to_string(g.devices), g.device, format_number(gib) + " GiB",
                   format_number(speed), format_number(g.intra_gbytes_per_s), format_number(g.inter_gbytes_per_s)});
  }
  d["memory_gib"] = memory_gib;
  out.text = title(source, "cluster " + c.name + ": " + count_of(c.num_devices(), "device") + " in " +
                               count_of(c.num_servers(), "server") + ", " + format_number(memory_gib) + " GiB in all") +
             table.render("  ") + describe_links(c, source, text, &d);
  return out;
}

Description describe_device(Description out, const machine::DeviceModel& device, const std::string& source) {
  Json& d = out.document;
  d["name"] = device.name;
  d["peak_tflops"] = device.peak_tflops;
  d["memory_gbytes_per_s"] = device.memory_gbytes_per_s;
  d["memory_gib"] = device.memory_gib;
  Facts facts;
  for (const auto& [type, tflops] : device.peak_tflops) facts.add(type, format_number(tflops) + " TFLOP/s");
  facts.add("memory",
            format_number(device.memory_gib) + " GiB at " + format_number(device.memory_gbytes_per_s) + " GB/s");
  d["constants"] = Json::array();
  for (const machine::DeviceConstant& constant : machine::device_constants(device)) {
    facts.add(constant.name, constant.value + (constant.source.empty() ? ", assumed" : ", from " + constant.source));
    d["constants"].push_back({{"name", constant.name},
                              {"value", constant.value},
                              {"source", constant.source.empty() ? Json() : Json(constant.source)}});
  }
  out.text = title(source, "device " + device.name) + facts.render();
  return out;
}

Description describe_policy(Description out, const std::string& bytes, const std::string& source) {
  const models::Policy policy = models::Policy::parse(bytes, source);
  const models::Architecture& a = policy.architecture();
  const bool flat = a.family == models::Family::kFlat;
  const char* const heads[] = {"plain", "residual", "categorical", "residual-categorical", "bounded"};
  Json& d = out.document;
  d["family"] = flat ? "flat" : "after-state";
  d["features"] = a.features;
  d["feature_version"] = a.feature_version;
  d["hidden"] = a.hidden;
  d["head"] = heads[static_cast<std::size_t>(a.head)];
  d["atoms"] = a.atoms;
  const bool partition = !flat && a.feature_version == models::PartitionEnv::kFeatureVersion;
  if (partition) {
    d["objective"] = a.objective == 0 ? "count" : "time";
  } else {
    d["objective"] = a.objective == 0 ? "value" : "simulated";
  }
  d["weights"] = policy.weights().size();
  d["provenance"] = Json::parse_or_null(policy.provenance());
  std::string layers = std::to_string(a.features);
  for (const int width : a.hidden) layers += "-" + std::to_string(width);
  layers += "-" + std::to_string(a.actions * a.atoms);
  Facts facts;
  facts.add("network", layers + ", " + std::to_string(policy.weights().size()) + " weights, head " +
                           heads[static_cast<std::size_t>(a.head)]);
  facts.add("inputs", flat ? "the paper's flat state" : "features of version " + std::to_string(a.feature_version));
  // One for partitionings serves both objectives.
  if (!partition) facts.add("objective", d["objective"].get<std::string>());
  if (d["provenance"].is_object()) {
    for (const auto& [key, value] : d["provenance"].items()) {
      facts.add(key, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  out.text = title(source, flat        ? "policy of the paper's flat network"
                           : partition ? "policy for partitionings"
                                       : "policy") +
             facts.render();
  return out;
}

struct TopLevel {
  std::string schema, kind;
  bool servers = false, functions_or_module = false;
};

// The keys of a JSON object that tell its kind. Throws on malformed JSON.
TopLevel top_level_of(std::string_view text, const std::string& source) {
  TopLevel top;
  std::deque<std::string> arena;
  hlo::JsonCursor json(text, source, &arena);
  std::string_view key;
  for (json.enter_object(); json.next_key(&key);) {
    if (key == "schema" && json.peek() == hlo::JsonCursor::Kind::kString) {
      top.schema = std::string(json.string());
      continue;
    }
    if (key == "kind" && json.peek() == hlo::JsonCursor::Kind::kString) {
      top.kind = std::string(json.string());
      continue;
    }
    if (key == "servers") top.servers = true;
    if (key == "Functions" || key == "hloModule" || key == "hlo_module" || key == "computations") {
      top.functions_or_module = true;
      return top;  // large: the reader that it goes to checks the rest
    }
    json.skip();
  }
  return top;
}

bool starts_with(const std::string& s, const char* prefix) {
  return s.rfind(prefix, 0) == 0;
}

}  // namespace

Description describe_bytes(std::string bytes, const std::string& source, const DescribeOptions& options) {
  Description out;
  Json base = base_document("hlo", source, bytes);
  const bool packed = is_gzip(bytes);
  if (packed) base["sha256"] = sha256_hex(bytes);
  bytes = gunzip_if_gzip(std::move(bytes), source);
  // Called once the kind of the bytes is known: a gigabyte of garbage is refused without being hashed.
  const auto begin = [&](const char* kind) {
    if (!packed) base["sha256"] = sha256_hex(bytes);
    out.document = std::move(base);
    out.document["kind"] = kind;
  };
  if (starts_with(bytes, "automap.policy/")) {
    begin("policy");
    return describe_policy(std::move(out), bytes, source);
  }
  if (architecture::is_description(bytes)) {
    begin("hlo");
    profile::ReadModule read = profile::read_module(std::move(bytes), source, {});
    return describe_hlo(std::move(out), hlo::HloForm::kText, hlo::write_hlo_text(read.module.graph), source, options);
  }
  if (const auto form = io::detect_profile(bytes)) {
    begin("profile");
    return describe_profile(std::move(out), std::move(bytes), *form, source);
  }
  std::size_t first = bytes.rfind("\xef\xbb\xbf", 0) == 0 ? 3 : 0;
  first = bytes.find_first_not_of(" \t\r\n", first);
  if (first != std::string::npos && bytes[first] == '{') {
    const TopLevel top = top_level_of(bytes, source);
    if (starts_with(top.schema, "automap.plan/")) {
      begin("plan");
      if (top.kind == "operator" || top.kind == "data") {
        return describe_partition_plan(std::move(out), bytes, source);
      }
      if (top.kind == "mesh") return describe_mesh_plan(std::move(out), bytes, source);
      if (top.kind == "placement") return describe_placement_plan(std::move(out), bytes, source);
      if (top.kind == "soap") return describe_soap_plan(std::move(out), bytes, source);
      if (top.kind == "heuristics") return describe_heuristics_plan(std::move(out), bytes, source);
      return describe_plan(std::move(out), bytes, source);
    }
    if (starts_with(top.schema, "automap.device/")) {
      begin("device");
      return describe_device(std::move(out), machine::parse_device(bytes, source), source);
    }
    if (starts_with(top.schema, "automap.cluster/") || (top.servers && !top.functions_or_module)) {
      begin("cluster");
      return describe_cluster(std::move(out), machine::parse_cluster(bytes, source), source, bytes);
    }
    if (!top.schema.empty() && !top.functions_or_module) {
      throw Error(ErrorKind::kData,
                  source + ": found schema \"" + excerpt(top.schema, 60) + "\", which automap-inspect does not know",
                  "known are automap.plan/1, automap.cluster/1 and automap.device/1");
    }
  }
  const hlo::HloForm form = hlo::detect_hlo_form(bytes, source);
  begin("hlo");
  return describe_hlo(std::move(out), form, std::move(bytes), source, options);
}

Description describe(const std::string& path, const DescribeOptions& options) {
  struct stat info = {};
  if (path != "-" && ::stat(path.c_str(), &info) != 0) {
    const std::vector<std::string> presets = machine::cluster_preset_names();
    if (std::find(presets.begin(), presets.end(), path) != presets.end()) {
      Description out;
      const machine::Cluster cluster = machine::load_cluster(path);
      out.document = base_document("cluster", path, machine::to_json_text(cluster));
      out.document["file_bytes"] = nullptr;
      return describe_cluster(std::move(out), cluster, path, "");
    }
  }
  return describe_bytes(architecture::read_model_file(path), input_name(path), options);
}

}  // namespace automap::inspect
