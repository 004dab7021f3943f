#include "train/report.h"

#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <fstream>

#include "common/base/cli.h"
#include "common/base/printable.h"
#include "common/base/processors.h"
#include "common/base/text_table.h"

namespace automap::train {
namespace {

std::string cell(const Quality& q) {
  if (q.problems == 0) return "-";
  return gap_text(q.mean) + " / " + gap_text(q.p95) + " / " + format_percent(q.optimal) +
         (q.failed > 0 ? " (" + std::to_string(q.failed) + " without)" : "");
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(':');
    return colon == std::string::npos ? "" : line.substr(std::min(line.size(), colon + 2));
  }
  return "";
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string markdown(const std::vector<std::vector<std::string>>& rows) {
  std::string out;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    out += "|";
    for (const std::string& text : rows[r]) out += " " + printable(text) + " |";
    out += "\n";
    if (r > 0) continue;
    out += "|";
    for (std::size_t c = 0; c < rows[r].size(); ++c) out += "---|";
    out += "\n";
  }
  return out;
}

// Names on the left, figures on the right.
std::string table_of(const std::vector<std::vector<std::string>>& rows, bool as_markdown, std::size_t names = 1) {
  if (as_markdown) return markdown(rows);
  std::vector<TextTable::Column> columns;
  for (std::size_t c = 0; c < rows.front().size(); ++c) {
    columns.push_back({rows.front()[c], c < names ? TextTable::Align::kLeft : TextTable::Align::kRight});
  }
  TextTable table(columns);
  for (std::size_t r = 1; r < rows.size(); ++r) table.add_row(rows[r]);
  return table.render();
}

// Names the side that sets the pace: updates per play are the same either way.
std::string pace(int threads, double learner_share) {
  constexpr double kBusy = 0.9;
  if (threads == 1) return "";
  return learner_share > kBusy ? ", and set the pace" : ", and the actors set the pace";
}

std::vector<int> sets_in(const Evaluation& evaluation) {
  std::vector<int> out;
  for (int set = 0; set < kHeldOutSets; ++set) {
    for (const HeldOut& held : evaluation.problems()) {
      if (static_cast<int>(held.set) != set) continue;
      out.push_back(set);
      break;
    }
  }
  return out;
}

}  // namespace

std::string quality_table(const Evaluation& evaluation, const std::vector<PlannerLengths>& planners, bool as_markdown) {
  std::vector<int> sets = sets_in(evaluation);
  if (sets.size() > 1) sets.push_back(-1);
  std::vector<std::vector<std::string>> rows = {{"planner"}};
  for (const int set : sets) {
    int count = 0, unproven = 0;
    for (const HeldOut& held : evaluation.problems()) {
      if (set >= 0 && static_cast<int>(held.set) != set) continue;
      ++count;
      unproven += held.proven ? 0 : 1;
    }
    const std::string name = set < 0 ? "all" : to_string(static_cast<HeldOutSet>(set));
    rows.front().push_back(name + " (" + std::to_string(count) +
                           (unproven > 0 ? ", " + std::to_string(unproven) + " unproven" : "") + ")");
  }
  rows.front().push_back("planning");
  for (const PlannerLengths& planner : planners) {
    std::vector<std::string> row = {planner.planner};
    for (const int set : sets) row.push_back(cell(evaluation.quality(planner, set)));
    row.push_back(format_ms(planner.planning_ms));
    rows.push_back(std::move(row));
  }
  return table_of(rows, as_markdown);
}

std::string family_table(const Evaluation& evaluation, const std::vector<PlannerLengths>& planners) {
  std::vector<std::vector<std::string>> rows = {{"family", "problems"}};
  for (const PlannerLengths& planner : planners) rows.front().push_back(planner.planner);
  const std::vector<std::string>& families = evaluation.source().families();
  for (std::size_t f = 0; f < families.size(); ++f) {
    std::vector<std::string> row = {families[f]};
    int problems = 0;
    for (const PlannerLengths& planner : planners) {
      const Quality q = evaluation.quality(planner, -1, static_cast<int>(f));
      problems = q.problems;
      row.push_back(cell(q));
    }
    row.insert(row.begin() + 1, std::to_string(problems));
    if (problems > 0) rows.push_back(std::move(row));
  }
  return markdown(rows);
}

Json quality_json(const Evaluation& evaluation, const std::vector<PlannerLengths>& planners) {
  Json out = Json::array();
  for (const PlannerLengths& planner : planners) {
    for (const int set : sets_in(evaluation)) {
      const Quality q = evaluation.quality(planner, set);
      out.push_back({{"planner", planner.planner},
                     {"set", to_string(static_cast<HeldOutSet>(set))},
                     {"problems", q.problems},
                     {"failed", q.failed},
                     {"unproven", q.unproven},
                     {"gap_mean", q.mean},
                     {"gap_median", q.median},
                     {"gap_p95", q.p95},
                     {"gap_max", q.max},
                     {"optimal", q.optimal},
                     {"planning_ms", planner.planning_ms}});
    }
  }
  return out;
}

std::vector<Difference> differences_of(const Evaluation& evaluation, const std::vector<PlannerLengths>& planned,
                                       const std::vector<PlannerLengths>& started_with) {
  std::vector<Difference> out;
  const auto add = [&](const PlannerLengths& planner, const std::string& to, const PlannerLengths& other,
                       bool chosen_by = false) {
    out.push_back(
        {planner.planner, to, paired_difference(evaluation.gaps(planner), evaluation.gaps(other)), chosen_by});
  };
  const std::vector<PlannerLengths>& baselines = evaluation.baselines();
  for (std::size_t i = 0; i < planned.size() && i < Evaluation::kSearches; ++i)
    add(planned[i], "no network", baselines[i]);
  // A flat network is greedy only, and random weights are searched with.
  if (planned.size() == Evaluation::kSearches) {
    add(planned.back(), "random weights", baselines[Evaluation::kSearches]);
  }
  if (!started_with.empty()) add(planned.back(), "the start", started_with.back(), true);
  return out;
}

std::string difference_text(const PairedDifference& d) {
  return format_number(d.mean * 100) + " ± " + gap_text(d.standard_error);
}

std::string interval_text(const Interval& interval) {
  return format_number(interval.low * 100) + " to " + gap_text(interval.high);
}

std::string difference_table(const std::vector<Difference>& differences, bool as_markdown) {
  std::vector<std::vector<std::string>> rows = {
      {"search", "compared with", "problems", "difference of mean gaps", "95 % interval", "policy is"}};
  for (const Difference& d : differences) {
    rows.push_back({d.planner, d.to, std::to_string(d.paired.problems), difference_text(d.paired),
                    d.chosen_by ? "-" : interval_text(interval_95(d.paired)),
                    d.chosen_by ? "chosen by these" : to_string(verdict_of(d.paired))});
  }
  return table_of(rows, as_markdown, 2);
}

Json differences_json(const std::vector<Difference>& differences) {
  Json out = Json::array();
  for (const Difference& d : differences) {
    const Interval interval = interval_95(d.paired);
    const auto unless_chosen = [&](const Json& value) { return d.chosen_by ? Json(nullptr) : value; };
    out.push_back({{"planner", d.planner},
                   {"to", d.to},
                   {"problems", d.paired.problems},
                   {"mean", d.paired.mean},
                   {"standard_error", d.paired.standard_error},
                   {"low", unless_chosen(interval.low)},
                   {"high", unless_chosen(interval.high)},
                   {"verdict", unless_chosen(to_string(verdict_of(d.paired)))}});
  }
  return out;
}

std::string evaluation_cost(const TrainCounters& c, const Evaluation& evaluation) {
  const double held_out = c.evaluation_seconds + evaluation.solved_s();
  return std::to_string(c.evaluations) + (c.evaluations == 1 ? " evaluation of " : " evaluations of ") +
         std::to_string(evaluation.problems().size()) + " problems took " + format_ms(c.evaluation_seconds * 1e3) +
         ", their optima and baselines " + format_ms(evaluation.solved_s() * 1e3) + ", together " +
         format_percent(held_out / std::max(1e-9, c.seconds + held_out)) + " of the run's time";
}

std::string best_text(const TrainResult& result) {
  const TrainCounters& c = result.counters;
  if (c.evaluations == 0) return "what there is, not evaluated yet";
  if (result.start_won() && c.evaluations == 1)
    return "the start itself, nothing else has been evaluated yet: mean gap " + gap_text(c.best_score);
  if (result.start_won()) {
    return "the start itself, which none of " + std::to_string(c.evaluations - 1) +
           (c.evaluations == 2 ? " later evaluation" : " later evaluations") + " was better than: mean gap " +
           gap_text(c.best_score);
  }
  return "the best of " + std::to_string(c.evaluations) + " evaluations, after " +
         format_count(static_cast<long long>(c.best_episodes)) + " episodes: mean gap " + gap_text(c.best_score) +
         ", the start's " + gap_text(c.start_score);
}

std::string report_markdown(const TrainOptions& o, const ProblemSource& source, const Evaluation& evaluation,
                            const TrainResult& result, const std::vector<PlannerLengths>& policy_planners,
                            const std::vector<PlannerLengths>& started_with, int threads) {
  const TrainCounters& c = result.counters;
  const double session = std::max(1e-9, result.session_seconds);
  const auto rate = [&](std::uint64_t count) {
    return format_count(static_cast<long long>(static_cast<double>(count) / session));
  };
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::string out = "# Training run " + (o.out.empty() ? std::string("-") : printable(o.out)) + "\n\n";
  out += version_line() + ", " + utc_now() + ". Ended after " + result.reason + ".\n\n";
  out += "- Data: `" + printable(o.data) + "` (" + source.fingerprint() + "), objective " + o.objective + ", preset " +
         o.preset + ", seed " + std::to_string(o.seed) + (o.deterministic ? ", deterministic" : "") + "\n";
  out += "- Training: " + format_count(static_cast<long long>(c.plays)) + " episodes, " +
         format_count(static_cast<long long>(c.steps)) + " environment steps, " +
         format_count(static_cast<long long>(c.labelled)) + " decisions with exact labels, " +
         format_ms(c.seconds * 1e3) + "\n";
  out += "- Last session: " + rate(result.session_plays) + " episodes/s, " + rate(result.session_steps) +
         " environment steps/s, " + rate(result.session_after_states) + " after-states/s, " +
         rate(result.session_updates) + " updates/s on " + std::to_string(threads) + " thread" +
         (threads == 1 ? "" : "s") + "; the learner was busy " + format_percent(result.learner_seconds / session) +
         " of the time" + pace(threads, result.learner_seconds / session) + "; at most " +
         format_bytes(static_cast<double>(usage.ru_maxrss) * 1024) + " of memory\n";
  out += "- Held-out problems: " + evaluation_cost(c, evaluation) + "\n";
  out += (o.init.empty() ? std::string("- Started with fresh weights") : "- Started from `" + printable(o.init) + "`") +
         "\n";
  out += "- `policy.bin`: " + best_text(result) + " (of " + policy_planners.back().planner +
         " over all held-out problems, standard error " +
         gap_text(paired_difference(evaluation.gaps(policy_planners.back()), {}).standard_error) + ")\n\n";

  out += "## Gaps on held-out problems\n\n";
  out += evaluation.options().objective == pipeline::Objective::kValue
             ? "Mean / 95th percentile / share optimal of L / L_opt - 1, L_opt the exact optimum over the same pivots"
               " (unproven: the best plan known)."
             : "Mean / 95th percentile / share not longer of the simulated step over that of the V-optimal plan, - 1.";
  out += " A gap counts up to " + format_percent(kMostGap) +
         ", and no plan as much. Planning: CPU time of one thread per problem. Problems: `" +
         evaluation.source().fingerprint() + "`.\n\n";
  std::vector<PlannerLengths> planners = policy_planners;
  for (PlannerLengths& planner : planners) planner.planner = "**policy, " + planner.planner + "**";
  for (PlannerLengths planner : started_with) {
    planner.planner = "before training, " + planner.planner;
    planners.push_back(std::move(planner));
  }
  for (const PlannerLengths& baseline : evaluation.baselines()) planners.push_back(baseline);
  out += quality_table(evaluation, planners, true) + "\n";

  out +=
      "Paired differences on the same problems (negative: the policy is better), with their standard errors and 95 %"
      " intervals. " +
      std::string(kChosenByThese) + "\n\n";
  const std::vector<PlannerLengths> other_start = result.start_won() ? std::vector<PlannerLengths>{} : started_with;
  out += difference_table(differences_of(evaluation, policy_planners, other_start), true) + "\n";
  out += "## By family\n\n" + family_table(evaluation, policy_planners) + "\n";

  out +=
      "## Files\n\n"
      "- `policy.bin`: the policy (`automap.policy/1`). `automap-inspect policy.bin` describes it; `automap-infer"
      " MODEL --cluster CLUSTER --planner policy --policy policy.bin` plans with it.\n"
      "- `config.ini`: every option as it was; `automap-train --config config.ini --out OTHER` repeats the run.\n"
      "- `run.json`: machine, versions, command line. `curves.csv`, `events.out.tfevents.automap`: learning curves"
      " (`tensorboard --logdir .`).\n"
      "- `checkpoint`: for `--resume`. `heldout.json`: the held-out problems' exact optima.\n";
  return out;
}

Json run_json(int argc, const char* const* argv, const TrainOptions& options, const ProblemSource& source, int threads,
              const std::string& torch) {
  Json out = Json::object();
  out["schema"] = "automap.run/1";
  out["version"] = version();
  out["git"] = git_revision();
  out["program"] = version_line();
  out["started"] = utc_now();
  Json& command = out["command"] = Json::array();
  for (int i = 0; i < argc; ++i) command.push_back(argv[i]);
  out["preset"] = options.preset;
  out["seed"] = options.seed;
  out["evaluate_seed"] = options.evaluate_seed;
  out["data"] = options.data;
  out["data_fingerprint"] = source.fingerprint();
  out["cpu"] = cpu_model();
  out["cores"] = usable_processors();
  out["threads"] = threads;
  out["torch"] = torch;
  return out;
}

}  // namespace automap::train
