#include "plan/emit/to_type.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/printable.h"
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
      {"maxtext", [](const FrameworkPlan& plan, const EmitOptions&) { return emit_maxtext(plan); }},
      {"torch", [](const FrameworkPlan& plan, const EmitOptions& o) { return emit_torch(plan, o.layers); }},
      {"torchtitan", [](const FrameworkPlan& plan, const EmitOptions& o) { return emit_torchtitan(plan, o.layers); }},
      {"megatron", [](const FrameworkPlan& plan, const EmitOptions&) { return emit_megatron(plan); }},
      {"deepspeed", [](const FrameworkPlan& plan, const EmitOptions& o) { return emit_deepspeed(plan, o.layers); }},
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

Emitted emit_for(const FrameworkPlan& plan, const EmitOptions& options) {
  const FrameworkEmitter* row = emitter_of(*plan.framework);
  AM_CHECK(row != nullptr);
  Emitted out = row->emit(plan, options);
  if (!out.cannot.what.empty()) out.arguments.clear(), out.files.clear(), out.missing.clear(), out.launch.clear();
  return out;
}

pipeline::PlanToType to_type(const planners::Framework& framework, const pipeline::PlanDocument& document,
                             const PlanFacts& facts) {
  pipeline::PlanToType told;
  told.framework = framework.name;
  FrameworkPlan plan;
  Inexpressible cannot = framework_plan(framework, document, facts, &plan);
  if (cannot.what.empty()) {
    Emitted emitted = emit_for(plan, {});
    cannot = emitted.cannot;
    told.arguments = std::move(emitted.launch);
    told.arguments.insert(told.arguments.end(), emitted.arguments.begin(), emitted.arguments.end());
    told.missing = std::move(emitted.missing);
  }
  if (!cannot.what.empty()) told.cannot = cannot.what + (cannot.hint.empty() ? "" : "; " + cannot.hint);
  return told;
}

std::string to_type_text(const pipeline::PlanToType& told) {
  if (!told.cannot.empty()) {
    return "To type      nothing: " + told.framework + " cannot run " + printable(told.cannot) + "\n";
  }
  std::string out = "To type for " + told.framework + "\n  " + printable(shell_line(told.arguments)) + "\n";
  for (const std::string& missing : told.missing) out += "  and: " + printable(missing) + "\n";
  return out;
}

std::vector<std::string> torchrun_words(const FrameworkPlan& plan, std::vector<std::string>* missing) {
  std::vector<std::string> words = {"torchrun"};
  const std::vector<int>& servers = plan.servers;
  if (!plan.placement.empty()) missing->push_back(plan.placement);
  if (servers.empty() && !plan.placement.empty()) return words;
  if (servers.empty()) {
    missing->push_back("the servers are not known: start " + std::to_string(plan.devices()) + " processes");
    return words;
  }
  const bool alike = std::all_of(servers.begin(), servers.end(), [&](int used) { return used == servers.front(); });
  words.insert(words.end(), {"--nnodes", std::to_string(servers.size())});
  if (alike) {
    words.insert(words.end(), {"--nproc-per-node", std::to_string(servers.front())});
  } else {
    std::string each;
    for (const int used : servers) each += (each.empty() ? "" : ", ") + std::to_string(used);
    missing->push_back("--nproc-per-node of each server, in order: " + each);
  }
  if (servers.size() > 1)
    missing->push_back("--rdzv-backend c10d --rdzv-endpoint HOST:PORT of torchrun, on every server");
  return words;
}

}  // namespace automap::emit
