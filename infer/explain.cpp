#include "infer/explain.h"

#include <algorithm>
#include <cmath>

#include "common/base/error.h"
#include "common/base/fitted_table.h"
#include "common/base/join.h"
#include "common/base/printable.h"
#include "common/base/suggest.h"
#include "common/base/text_table.h"
#include "infer/report_parts.h"
#include "infer/summary.h"

namespace automap::infer {
namespace {

using pipeline::PlanDocument;
using pipeline::PlanStage;

struct Asked {
  const PlanDocument& document;
  const pipeline::Problem& problem;
  const ReportOptions& options;
  bool one_stage() const { return document.stages.size() == 1; }
  bool given() const { return document.planner == "given"; }
};

// Sentences are as wide as the report's, tables as the terminal: nothing of them is cut where there is none.
int prose(const Asked& of) {
  return of.options.width == 0 ? kSummaryWidth : std::min(of.options.width, kSummaryWidth);
}

// "stage 3", or "the one stage".
std::string stage_name(const Asked& of, std::size_t stage) {
  return of.one_stage() ? "the one stage" : "stage " + std::to_string(stage + 1);
}

std::string explain_time(const Asked& of) {
  const PlanDocument& d = of.document;
  std::size_t slowest = 0;
  for (std::size_t s = 1; s < d.stages.size(); ++s) {
    if (d.stages[s].compute_ms > d.stages[slowest].compute_ms) slowest = s;
  }
  const PlanStage& stage = d.stages[slowest];
  const double computing = stage.compute_ms * d.micro_batches;
  const double rest = std::max(0.0, d.simulated_step_ms - computing);
  std::string out =
      "A step takes " + format_ms(d.simulated_step_ms) + ": that is what an event simulation of the plan comes to. " +
      plural(d.micro_batches, "micro-batch") + " of " + format_amount(d.micro_batch_samples) +
      (of.one_stage()
           ? (d.micro_batches == 1 ? " is computed." : " are computed one after the other.")
           : " pass through " + plural(static_cast<long long>(d.stages.size()), "stage") + ", one behind the other.") +
      "\n";
  out += (of.one_stage() ? (d.micro_batches == 1 ? "It" : "Each of them")
                         : "Stage " + std::to_string(slowest + 1) + " computes the longest: each micro-batch") +
         " takes " + format_ms(stage.forward_ms) + " forward" +
         (of.options.training ? " and " + format_ms(stage.backward_ms) + " backward" : "") +
         (stage.sends_ms() > 0 ? ", and is sent on in " + format_ms(stage.sends_ms()) : "") +
         (d.micro_batches == 1 ? "" : ". All of them together take it ") + (d.micro_batches == 1 ? ": " : "") +
         format_ms(computing) + ", " + format_percent(computing / d.simulated_step_ms) + " of the step.\n";
  if (rest > 1e-6 * d.simulated_step_ms) {
    out += "The other " + format_ms(rest) + (of.one_stage() ? " are spent " : " are what it does not compute: ");
    std::vector<std::string> parts;
    if (!of.one_stage()) parts.emplace_back("for the pipeline to fill and to drain, and for transfers");
    const auto longest = [&](double PlanStage::*ms) {
      double most = 0;
      for (const PlanStage& s : d.stages) most = std::max(most, s.*ms);
      return most;
    };
    if (longest(&PlanStage::allreduce_ms) > 0) {
      parts.push_back("for gradients to be added up over replicas (" + format_ms(longest(&PlanStage::allreduce_ms)) +
                      " at most" +
                      (d.gradient_sync == "overlap" ? ", beside the last backward as far as that hides it)"
                                                    : ", behind the last backward)"));
    }
    if (longest(&PlanStage::shared_gradients_ms) > 0) {
      parts.push_back("for the gradients of variables that stages share (" +
                      format_ms(longest(&PlanStage::shared_gradients_ms)) + ")");
    }
    if (longest(&PlanStage::optimizer_ms) > 0)
      parts.push_back("for the optimizer (" + format_ms(longest(&PlanStage::optimizer_ms)) + ")");
    out += (parts.empty() ? "for nothing that is known by name" : join(parts)) + ".\n";
  }
  if (is_alternating(d.plan.schedule)) out += "V, the same in closed form, is " + format_ms(d.step_ms) + ".\n";
  return wrap_lines(out + limits_text(d) + estimates_text(d), prose(of));
}

std::string explain_memory(const Asked& of) {
  const PlanDocument& d = of.document;
  const std::size_t fullest = fullest_stage(d);
  const PlanStage& stage = d.stages[fullest];
  const double reserve = of.problem.options().memory_reserve;
  std::string out = "The fullest devices are those of " + stage_name(of, fullest) + ": they hold " +
                    format_bytes(stage.memory_bytes) + " of the " + format_bytes(stage.capacity_bytes) +
                    " that the plan may fill (" + format_percent(stage.memory_bytes / stage.capacity_bytes) + ").";
  if (reserve > 0) {
    out +=
        " Another " + format_percent(reserve) + " of each device's memory is left to the framework (--memory-reserve).";
  }
  out += "\nActivations are kept for " + plural(stage.in_flight, "micro-batch") +
         " at once there; workspace is what is alive beside them for a moment.\n";
  return wrap_lines(out, prose(of)) + "\n" + memory_table(d, of.options.width);
}

std::string explain_bounds(const Asked& of) {
  const PlanDocument& d = of.document;
  if (of.given()) return wrap_lines("This plan was given, not searched for: no bound was computed.\n", prose(of));
  std::string out =
      "A bound is a time that no plan of a kind can be below; it is proven without looking at each of them. It is "
      "about "
      "the costs as they are estimated here, and says nothing of how far those are off (--explain time).\n";
  out += bounds_text(d);
  const PlanDocument::BoundPremises& about = d.premises;
  std::vector<std::string> widths, samples;
  for (const int width : about.widths) widths.push_back(std::to_string(width));
  for (const double size : about.micro_batch_samples) samples.push_back(format_amount(size));
  if (!about.schedules.empty()) {
    out += "The plans that it is about have " +
           (about.least_stages == about.most_stages
                ? plural(about.least_stages, "stage")
                : std::to_string(about.least_stages) + " to " + plural(about.most_stages, "stage")) +
           (widths.empty() ? ""
                           : ", replicas of " + join(widths) +
                                 (widths == std::vector<std::string>{"1"} ? " device" : " devices")) +
           (about.schedules == std::vector<std::string>{"any"}
                ? ", any schedule"
                : ", the " + std::string(about.schedules.size() == 1 ? "schedule " : "schedules ") +
                      join(about.schedules)) +
           (samples.empty() ? "" : ", and micro-batches of " + join(samples) + " samples") + ".\n";
  }
  if (!about.rules.empty()) out += "They keep to these rules:\n";
  for (const std::string& rule : about.rules) out += "  - " + printable(rule) + "\n";
  return wrap_lines(out, prose(of));
}

std::string explain_alternatives(const Asked& of) {
  std::string out = compared_text(of.document, of.options);
  if (!out.empty()) return out;
  return wrap_lines(
      of.given()
          ? "This plan was given, not searched for: nothing else was looked at. The same call without it compares.\n"
          : "Nothing else was compared: the planner that was asked for looks at no other kind of plan (--explore on "
            "does).\n",
      prose(of));
}

std::string explain_sensitivity(const Asked& of) {
  if (!of.document.sensitivity.empty()) return sensitivity_text(of.document.sensitivity, of.options.width);
  return wrap_lines(
             of.given()
                 ? "This plan was given, not searched for: whether another one would be better is not looked at.\n"
                 : "No case was looked at in the time.\n",
             prose(of)) +
         wrap_lines(estimates_text(of.document), prose(of));
}

// A replica's samples are parts of one where the batch is divided so; 0: not known.
std::string samples_taken(const PlanStage& stage) {
  if (stage.samples <= 0) return "";
  return (stage.replicas == 1 ? ", which takes " : ", each of which takes ") + plural_amount(stage.samples, "sample") +
         " of a micro-batch";
}

std::string explain_devices(const Asked& of) {
  const PlanDocument& d = of.document;
  const int there = std::max(of.options.cluster_devices, d.num_devices);
  std::string out = "The plan stands on " +
                    (there == d.num_devices ? "all " + plural(there, "device")
                                            : format_count(d.num_devices) + " of the " + plural(there, "device")) +
                    " of " + printable(d.cluster) + ".\n";
  for (std::size_t s = 0; s < d.stages.size(); ++s) {
    const PlanStage& stage = d.stages[s];
    std::string name = stage_name(of, s);
    name[0] = static_cast<char>(name[0] - 'a' + 'A');
    std::string layers;
    for (const pipeline::PlanPart* part : stage.own_parts()) {
      const std::string &first = part->first(), &last = part->last();
      if (first.empty()) continue;
      layers += (layers.empty() ? ", " : " and ") + shorten(first, 40);
      if (last != first) layers += " to " + shorten(last, 40);
    }
    out += name + layers + (layers.empty() ? "" : ",") + " is on " + (stage.devices == 1 ? "device " : "devices ") +
           spans_text(stage.device_numbers) + ": " + plural(stage.replicas, "replica") + " of " +
           plural(stage.width, "device") + samples_taken(stage);
    if (stage.variant.zero > 0)
      out += "; ZeRO " + std::to_string(stage.variant.zero) + " divides what the replicas would all hold";
    if (stage.variant.recompute) out += "; layers are computed again in the backward pass";
    out += ".\n";
  }
  const std::string cuts = cuts_text(d, of.options.width);
  return wrap_lines(out + inside_replicas_text(d), prose(of)) + (cuts.empty() ? "" : "\n" + cuts);
}

// Describes an ordered schedule, which is lists of work.
std::string ordered_text(const PlanDocument& d) {
  const pipeline::Plan& plan = d.plan;
  std::vector<std::string> kept;
  for (const PlanStage& stage : d.stages) kept.push_back(std::to_string(stage.in_flight));
  std::string out;
  switch (plan.schedule) {
    case pipeline::Schedule::kEager:
      out =
          "a stage goes backward whenever it can, and else forward while it keeps fewer micro-batches than its limit. ";
      break;
    case pipeline::Schedule::kInterleaved:
      out = "forwards and backwards go in turn, as Megatron-LM interleaves them. ";
      break;
    case pipeline::Schedule::kZbH1:
    case pipeline::Schedule::kZbV: out = "gradients of weights wait until there is time for them. "; break;
    default: out = "every stage works through a list of its own, which the plan's file holds. "; break;
  }
  if (plan.chunks > 1) {
    out +=
        "Each stage runs " + std::to_string(plan.chunks) + " parts of the model" +
        (plan.placement == pipeline::Placement::kV ? ", which lie as a V: the first stage runs the first and the last. "
                                                   : ", part after part round the stages. ");
  }
  if (plan.split_backward) {
    out += "A backward is two passes: what the part in front waits for, then the gradients of the weights. ";
  }
  return out + "Of " + plural(d.micro_batches, "micro-batch") + " the stages keep at most " + join(kept) +
         " in memory" + (plan.chunks > 1 ? ", counted once for every part.\n" : ".\n");
}

std::string explain_schedule(const Asked& of) {
  const PlanDocument& d = of.document;
  std::string out = "The schedule is " + std::string(to_string(d.plan.schedule)) + ": ";
  if (of.one_stage()) {
    out += "with one stage it says nothing, each micro-batch goes forward and then backward.\n";
  } else if (!is_alternating(d.plan.schedule)) {
    out += ordered_text(d);
  } else {
    std::vector<std::string> started;
    for (const PlanStage& stage : d.stages) started.push_back(std::to_string(stage.in_flight));
    const bool all = std::all_of(d.stages.begin(), d.stages.end(),
                                 [&](const PlanStage& stage) { return stage.in_flight >= d.micro_batches; });
    out += all ? "every stage takes all " + std::to_string(d.micro_batches) +
                     " micro-batches forward before the first goes backward; so many are kept in memory.\n"
               : "the stages take " + join(started) +
                     " micro-batches forward before the first goes backward, then one backward and one forward in "
                     "turn; so many are kept in memory.\n";
  }
  return wrap_lines(out, prose(of)) + "\n" + stage_table(d, of.problem, of.options.width);
}

std::string explain_utilization(const Asked& of) {
  const pipeline::PlanUtilization& use = of.document.utilization;
  std::string out;
  if (use.samples_per_s > 0 && of.options.model_batch > 0) {
    out += (of.options.training ? "A second trains " : "A second computes ") + format_number(use.samples_per_s) +
           " samples" +
           (use.tokens_per_s > 0 ? ", which are " + format_count(std::llround(use.tokens_per_s)) + " tokens" : "") +
           ".\n";
  }
  if (use.model_tflops > 0) {
    out += "Each device does " + format_number(use.model_tflops) + " TFLOP/s of what the model itself needs" +
           (use.mfu > 0 ? ": MFU is " + format_percent(use.mfu) +
                              " of what its data sheet says, and HFU, which counts work that is done twice, " +
                              format_percent(use.hfu)
                        : "") +
           ".\n";
    if (of.options.masked_attentions > 0) {
      out += "What causal masks and windows of " + plural(of.options.masked_attentions, "attention") +
             " hide is not counted.\n";
    }
  } else {
    out +=
        "How much work a step is, is not known: the input is a profile, and profiles hold times alone. Plan the model "
        "itself to have MFU.\n";
  }
  return wrap_lines(out, prose(of));
}

std::string explain_batch(const Asked& of) {
  const PlanDocument& d = of.document;
  std::string out = (of.options.training ? "A step trains " : "A step computes ") +
                    plural(std::llround(d.batch()), "sample") + usual_batch_text(d, of.options) + ", in " +
                    plural(d.micro_batches, "micro-batch") + " of " + format_amount(d.micro_batch_samples) + ".\n";
  for (std::size_t s = 0; s < d.stages.size(); ++s) {
    if (d.stages[s].samples <= 0 || (s > 0 && d.stages[s].samples == d.stages[s - 1].samples)) continue;
    out += "Each replica of " + stage_name(of, s) + " computes " + plural_amount(d.stages[s].samples, "sample") +
           " of a micro-batch at once.\n";
  }
  if (!of.options.made_here && of.options.model_batch > 0 && of.options.model_batch != d.micro_batch_samples &&
      d.replicas == "whole") {
    out += "The module itself is of " + plural(std::llround(of.options.model_batch), "sample") +
           ": export it with a batch of " + format_amount(d.micro_batch_samples) + " to run this plan.\n";
  }
  out +=
      "--batch sets the samples of a step, --micro-batch and --micro-batches how they are divided; --vary "
      "batch=64,128,256 compares.\n";
  return wrap_lines(out, prose(of));
}

struct Explained {
  const char* word;
  std::string (*text)(const Asked& of);
};

// In the order in which reports name them.
constexpr Explained kExplained[] = {{"time", explain_time},
                                    {"memory", explain_memory},
                                    {"bounds", explain_bounds},
                                    {"alternatives", explain_alternatives},
                                    {"devices", explain_devices},
                                    {"schedule", explain_schedule},
                                    {"batch", explain_batch},
                                    {"utilization", explain_utilization},
                                    {"sensitivity", explain_sensitivity}};

std::vector<std::string> part_words() {
  std::vector<std::string> words;
  for (const Explained& part : kExplained) words.emplace_back(part.word);
  return words;
}

}  // namespace

std::string explained_words(std::size_t most) {
  std::vector<std::string> words = part_words();
  if (most > 0 && words.size() > most) words.resize(most);
  return join(words);
}

std::vector<std::string> check_explained(const std::vector<std::string>& asked) {
  const std::vector<std::string> known = part_words();
  std::vector<std::string> words;
  for (const std::string& text : asked) {
    for (const std::string& word : split_at_commas(text)) {
      if (std::find(known.begin(), known.end(), word) == known.end()) {
        const std::string near = closest_name(word, known);
        throw Error(ErrorKind::kUsage, "--explain: found '" + word + "', expected " + join(known),
                    near.empty() ? "" : "did you mean '" + near + "'?");
      }
      if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
    }
  }
  return words;
}

std::string explained_text(const std::vector<std::string>& words, const PlanDocument& document,
                           const pipeline::Problem& problem, const ReportOptions& options) {
  const Asked asked{document, problem, options};
  std::string out;
  for (const std::string& word : words) {
    const auto part =
        std::find_if(std::begin(kExplained), std::end(kExplained), [&](const Explained& p) { return p.word == word; });
    std::string title = word;
    title[0] = static_cast<char>(title[0] - 'a' + 'A');
    out += (out.empty() ? "" : "\n") + (words.size() > 1 ? title + "\n" : std::string()) + part->text(asked);
  }
  return out;
}

}  // namespace automap::infer
