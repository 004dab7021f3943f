#include "plan/emit/program/nearest.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "infer/measured.h"
#include "infer/nearest_plan.h"
#include "infer/plan_file.h"
#include "plan/emit/quote.h"

namespace automap::emit {
namespace {

// Options of the plan that its question keeps for any framework, as words: by "option_<name>" of its provenance.
std::vector<std::string> kept_options(const pipeline::PlanDocument& document) {
  std::vector<std::string> words;
  infer::InferOptions defaults;
  OptionTable table{"infer", ""};
  declare_options(table, defaults);
  for (const std::string& option : table.names_with(infer::kAskedAgain)) {
    std::string key = "option_" + option;
    std::replace(key.begin(), key.end(), '-', '_');
    const auto found = document.provenance.find(key);
    if (found == document.provenance.end() || found->second == table.value_of(option)) continue;
    // Flags have no value.
    words.push_back("--" + option);
    if (found->second != "true") words.push_back(found->second);
  }
  return words;
}

}  // namespace

AskedAgain ask_again(const pipeline::PlanDocument& document, const std::string& source, const std::string& model,
                     const std::optional<machine::Cluster>& cluster, const std::string& cluster_word,
                     const planners::Framework& framework) {
  AskedAgain again;
  // On some cluster: layers are the same on any.
  const std::string preset = machine::cluster_preset_names().front();
  again.command = {"automap-infer", model,
                   "--cluster",     cluster ? cluster_word : preset,
                   "--batch",       std::to_string(std::llround(document.batch())),
                   "--for",         framework.name};
  const std::vector<std::string> kept = kept_options(document);
  again.command.insert(again.command.end(), kept.begin(), kept.end());
  infer::InferOptions options;
  OptionTable table{"infer", ""};
  declare_options(table, options);
  std::vector<const char*> words;
  for (const std::string& word : again.command) words.push_back(word.c_str());
  table.parse(static_cast<int>(words.size()), words.data());
  machine::Cluster on = cluster ? *cluster : machine::load_cluster(preset);
  if (!cluster) options.input.max_width = 1;
  std::string bytes = infer::read_model_bytes(options.input.path);
  again.software = infer::find_software(options.software, framework);
  const bool profile = infer::is_profile(bytes, options.input.path);
  const infer::RunsIn runs_in = infer::run_in(again.software, false, profile, &options, &on);
  again.input = read_input(options.input, on, std::move(bytes));
  planners::GivenPlan given;
  given.source = source;
  given.model = document.model;
  given.num_instructions = document.num_instructions;
  const auto hash = document.provenance.find("model_sha256");
  if (hash != document.provenance.end()) given.model_sha256 = hash->second;
  infer::check_model(given, again.input);
  if (!cluster) return again;
  planners::Question& question = again.question.emplace(make_question(options, again.input.profile, on));
  question.request = make_request(options);
  question.framework = &framework;
  // The measurement goes on where it is one of these times, and the command corrects by it alike.
  const auto& measured = document.measured_step;
  const auto said = document.provenance.find("option_measured_step");
  if (measured && said != document.provenance.end() && measured->batch == document.batch() &&
      infer::other_times(*measured, question, infer::whose_times(runs_in)).empty()) {
    planners::correct(infer::correction_of(*measured), &question);
    again.command.insert(again.command.end(), {"--measured-step", said->second, "--layout", measured->layout});
  }
  again.explored = explores(options, question.request);
  return again;
}

std::string nearest_text(const AskedAgain& again, const pipeline::PlanDocument& document, const EmitOptions& options) {
  if (!again.question) return "name the cluster of the plan (--cluster) to be told the nearest plan that it can run";
  const StopToken stop;
  const infer::NearestPlan near = infer::nearest_plan(*again.question, again.input, again.explored, true, options);
  if (!near.document) return "no plan that it can run was found: " + near.why;
  std::vector<std::string> command = again.command;
  if (near.one_stage) command.insert(command.end(), {"--stages", "1"});
  const double ratio = near.document->simulated_step_ms / document.simulated_step_ms - 1;
  const auto of_plan = document.provenance.find("option_software");
  const infer::Software* const had =
      of_plan == document.provenance.end() ? nullptr : infer::find_software(of_plan->second, planners::any_framework());
  // Null: a compiled step.
  const auto timed = [](const infer::Software* one) {
    return one != nullptr && infer::has_times(*one) ? one : nullptr;
  };
  const std::string instead =
      timed(had) == timed(again.software)
          ? " instead of " + format_ms(document.simulated_step_ms) + " (" + format_change(ratio) + ")"
          : " in its own software";
  return "the nearest that it can run has " + plural(near.document->plan.num_stages(), "stage") + " and takes " +
         format_ms(near.document->simulated_step_ms) + instead + ": " + shell_line(command) + " -o FILE";
}

}  // namespace automap::emit
