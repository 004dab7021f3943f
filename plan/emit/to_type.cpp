#include "plan/emit/to_type.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <sstream>
#include <utility>

#include "common/base/check.h"
#include "common/base/paths.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "plan/emit/quote.h"

namespace automap::emit {
namespace {

struct FrameworkEmitter {
  const char* framework;
  Emitted (*emit)(const FrameworkPlan& plan, const EmitOptions& options);
};

const std::vector<FrameworkEmitter>& emitters() {
  static const std::vector<FrameworkEmitter> rows = {
      {"jax", [](const FrameworkPlan& plan, const EmitOptions&) { return emit_jax_mesh(plan); }},
      {"maxtext", [](const FrameworkPlan& plan, const EmitOptions& o) { return emit_maxtext(plan, o.version); }},
      {"torch", [](const FrameworkPlan& plan, const EmitOptions& o) { return emit_torch(plan, o.layers); }},
      {"torchtitan", [](const FrameworkPlan& plan, const EmitOptions& o) { return emit_torchtitan(plan, o); }},
      {"megatron", [](const FrameworkPlan& plan, const EmitOptions& o) { return emit_megatron(plan, o.version); }},
      {"deepspeed", [](const FrameworkPlan& plan, const EmitOptions& o) { return emit_deepspeed(plan, o); }},
  };
  return rows;
}

const FrameworkEmitter* emitter_of(const planners::Framework& framework) {
  for (const FrameworkEmitter& row : emitters()) {
    if (std::string(row.framework) == framework.name) return &row;
  }
  return nullptr;
}

}  // namespace

bool emits(const planners::Framework& framework) {
  return emitter_of(framework) != nullptr;
}

Inexpressible pipeline_fault(const planners::Framework& framework, const architecture::ModelSizes& sizes) {
  return std::string(framework.name) == "maxtext" ? maxtext_pipeline_fault(sizes) : Inexpressible();
}

std::vector<std::string> emitted_frameworks() {
  std::vector<std::string> names;
  for (const planners::Framework& framework : planners::all_frameworks()) {
    if (emits(framework)) names.emplace_back(framework.name);
  }
  return names;
}

Emitted emit_for(const FrameworkPlan& plan, const EmitOptions& options) {
  const FrameworkEmitter* row = emitter_of(*plan.framework);
  AM_CHECK(row != nullptr);
  Emitted out = row->emit(plan, options);
  if (out.cannot.what.empty()) return out;
  Emitted none;
  none.cannot = std::move(out.cannot);
  return none;
}

pipeline::PlanToType to_type(const planners::Framework& framework, const pipeline::PlanDocument& document,
                             const PlanFacts& facts, const EmitOptions& options) {
  pipeline::PlanToType told;
  told.framework = framework.name;
  FrameworkPlan plan;
  Inexpressible cannot = framework_plan(framework, document, facts, &plan);
  if (cannot.what.empty()) {
    Emitted emitted = emit_for(plan, options);
    cannot = emitted.cannot;
    told.arguments = std::move(emitted.launch);
    std::vector<std::string> words = std::move(emitted.arguments);
    if (emitted.needs_file) {
      std::istringstream typed(emitted.with_file);
      words.assign(std::istream_iterator<std::string>(typed), std::istream_iterator<std::string>());
    }
    told.arguments.insert(told.arguments.end(), words.begin(), words.end());
    told.missing = std::move(emitted.missing);
  }
  told.cannot = cannot.what;
  told.hint = cannot.hint;
  return told;
}

std::string to_type_text(const pipeline::PlanToType& told, const std::string& plan_file, double step_ms, bool details) {
  const std::string cannot = " cannot run " + printable(told.cannot);
  const bool instead = !told.instead.empty();
  if (!told.cannot.empty() && !instead) {
    return "To type      nothing: " + told.framework + cannot + (told.hint.empty() ? "" : "; " + printable(told.hint)) +
           "\n";
  }
  std::string out = "To type for " + told.framework;
  if (instead) {
    out += ", which" + cannot + ": " + printable(told.instead) + ", " + format_ms(told.instead_ms) + " a step (" +
           format_change(told.instead_ms / step_ms - 1) + ")";
  }
  out += "\n  " + printable(shell_line(told.arguments)) + "\n";
  // Words that only start the user's own program say nothing of the plan, so all that is missing is listed.
  const bool all = details || (told.arguments.size() == 2 && told.arguments.back() == kUsersProgram);
  for (const std::string& missing : told.missing) {
    if (all || missing.rfind(kFillIn, 0) == 0) out += "  and: " + printable(missing) + "\n";
  }
  const bool more = !all && !told.missing.empty();
  out += more ? "  what else is to do, a file, other frameworks: " : "  a file, other frameworks: ";
  // The file that is written is of the plan itself.
  const bool again = plan_file.empty() || instead;
  if (instead) out += "--for " + told.framework + " ";
  if (again) out += "-o PLAN here, then ";
  return out +
         printable(shell_line({"automap", "emit", again ? "PLAN" : plan_file, "--to", told.framework, "-o", "FILE"})) +
         "\n";
}

std::string path_beside(const std::string& main_path, const std::string& beside) {
  std::string name = name_in_folder(main_path);
  const std::string folder = main_path.substr(0, main_path.size() - name.size());
  // A leading dot is part of the name.
  if (const std::size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0) name.resize(dot);
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return c >= 128 || (std::isalnum(c) == 0 && c != '_'); }, '_');
  if (!name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) != 0) name.insert(0, "_");
  return folder + name + "_" + beside;
}

std::vector<std::string> server_texts(const FrameworkPlan& plan) {
  if (plan.servers.empty() && !plan.chosen_devices.empty()) {
    std::vector<int> numbers;
    for (const int device : plan.chosen_devices) numbers.push_back(device + 1);
    return {"its devices are " + spans_text(numbers) + " of the cluster, in this order"};
  }
  std::vector<int> servers;
  for (const UsedServer& server : plan.servers) servers.push_back(server.number);
  if (are_first(servers, 1)) return {};
  return {"its servers are " + numbers_text(servers) + " of the cluster, in this order"};
}

std::vector<std::string> device_texts(const FrameworkPlan& plan, bool takes_all) {
  std::vector<std::string> out;
  for (const UsedServer& server : plan.servers) {
    const bool all = server.devices.size() == static_cast<std::size_t>(server.has);
    if (are_first(server.devices) && (all || !takes_all)) continue;
    out.push_back("CUDA_VISIBLE_DEVICES=" + numbers_text(server.devices, ",") + " on server " +
                  std::to_string(server.number) + " of the cluster");
  }
  return out;
}

std::vector<std::string> torchrun_words(const FrameworkPlan& plan, std::vector<std::string>* missing) {
  std::vector<std::string> words = {"torchrun"};
  const std::vector<int> servers = used_of_servers(plan);
  if (servers.empty()) {
    missing->push_back("the servers are not known: start " + std::to_string(plan.devices()) + " processes");
    for (const std::string& text : server_texts(plan)) missing->push_back(text);
    return words;
  }
  words.insert(words.end(), {"--nnodes", std::to_string(servers.size())});
  const bool alike = std::all_of(servers.begin(), servers.end(), [&](int used) { return used == servers.front(); });
  // Servers that differ have one line where all their devices are used, since torchrun counts those that it sees. Else
  // the number is left to fill in: a line that starts is right.
  const bool whole = std::all_of(plan.servers.begin(), plan.servers.end(), [](const UsedServer& server) {
    return server.devices.size() == static_cast<std::size_t>(server.has);
  });
  words.insert(words.end(), {"--nproc-per-node", alike ? std::to_string(servers.front()) : whole ? "gpu" : "N"});
  if (!alike) {
    missing->push_back(std::string(whole ? "" : kFillIn) +
                       ("processes of each server, in order: " + numbers_text(servers)) +
                       (whole ? " (--nproc-per-node gpu starts one for each device that it sees)" : ""));
  }
  if (servers.size() > 1) {
    missing->push_back("on the servers, in order, --node-rank 0 to " + std::to_string(servers.size() - 1) +
                       " of torchrun, and on all --master-addr HOST, that of the first");
  }
  for (const std::string& text : server_texts(plan)) missing->push_back(text);
  for (const std::string& text : device_texts(plan)) missing->push_back(text);
  return words;
}

}  // namespace automap::emit
