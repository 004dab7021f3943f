// automap-infer: a pipeline plan for a model on a cluster. Parses, calls, prints.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/fitted_table.h"
#include "common/base/in_order.h"
#include "common/base/join.h"
#include "common/base/log.h"
#include "common/base/options.h"
#include "common/base/printable.h"
#include "common/base/progress.h"
#include "common/base/text_table.h"
#include "common/base/work.h"
#include "common/machine/cluster.h"
#include "common/pipeline/plan_json.h"
#include "infer/document.h"
#include "infer/explain.h"
#include "infer/frontier.h"
#include "infer/input.h"
#include "infer/kernels_alone.h"
#include "infer/measured.h"
#include "infer/nearest_plan.h"
#include "infer/no_plan.h"
#include "infer/options.h"
#include "infer/pictures.h"
#include "infer/plan_file.h"
#include "infer/prices.h"
#include "infer/report.h"
#include "infer/software.h"
#include "infer/summary.h"
#include "infer/sweep_report.h"
#include "infer/vary.h"
#include "infer/vary_chart.h"
#include "infer/vary_report.h"
#include "plan/emit/quote.h"
#include "plan/emit/read_words.h"
#include "plan/emit/to_type.h"
#include "plan/planners/answer.h"
#include "plan/planners/believable.h"
#include "plan/planners/layers.h"
#include "plan/planners/measured_step.h"
#include "plan/planners/planner_table.h"
#include "plan/planners/score.h"
#include "plan/planners/sensitivity.h"
#include "plan/planners/shipped_policy.h"
#include "plan/planners/sweep.h"
#include "plan/programs/programs.h"
#include "plan/systems/rivals/published.h"
#include "profile/profile_hlo.h"

namespace {

using namespace automap;
using namespace automap::infer;
using pipeline::PlanDocument;
using planners::Layout;

// One call of the program: what was asked for, and what was read for it.
struct Call {
  InferOptions options;
  OptionTable table{"infer", "find a pipeline plan for training a model on a cluster, and how good it is"};
  planners::PlanRequest request;
  const planners::Framework* framework = &planners::any_framework();
  RunsIn runs_in;
  std::optional<std::string> bytes;  // of the model, where they had to be looked at early
  std::optional<GivenPlan> given;
  std::optional<emit::ReadWords> words;  // of a framework, that --layout has
  std::vector<std::string> departures;   // from what `given` was made with
  planners::StageOverrides overrides;
  std::optional<Layout> layout;
  std::int64_t batch_rounds = 1;  // ReportOptions
  int widest_plan = 0;            // --max-width, where a measured layout is wider
  OutputSet outputs;
  AtomicFile* plan_file = nullptr;  // of the outputs
  std::optional<PictureFiles> pictures;
  machine::Cluster given_cluster, cluster;  // as its file has it; with what is known of software and links
  std::optional<Rented> rented;             // the part of given_cluster that `cluster` is (--minimize)
  PlanInput input;
  planners::Question question;
  // By which the question's times are corrected; the input's and the cluster's stay as estimated.
  std::optional<pipeline::MeasuredStep> measured;
  planners::Correction correction() const { return measured ? correction_of(*measured) : planners::Correction(); }
  bool sequence_parallel() const { return table.value_of("sequence-parallel") != "off"; }
  // The report on a terminal names no hashes.
  bool documented() const { return options.json || !options.output.empty() || !options.emit_programs.empty(); }
};

// A layout in the words of a framework becomes one in ours; what else they say is set where the command line leaves it
// open.
void take_framework_words(Call& call) {
  InferOptions& options = call.options;
  if (options.layout.empty()) return;
  const std::optional<emit::ReadWords> words = emit::read_words(options.layout);
  if (!words) return;
  options.layout = words->layout;
  call.table.set_unless_given("for", words->framework, "--layout");
  const bool sized = options.batch != "auto" || options.micro_batches != "auto";
  if (words->batch > 0 && !sized) call.table.set_unless_given("batch", std::to_string(words->batch), "--layout");
  if (words->batch > 0 && sized && options.batch != std::to_string(words->batch)) {
    log_warning("--layout says " + printable(words->batch_word) + " (" + std::to_string(words->batch) +
                " samples a step), the command line " +
                (options.batch != "auto" ? "--batch " + options.batch : "--micro-batches " + options.micro_batches) +
                ", which is planned; leave that out to take the layout's");
  }
  if (words->batch == 0 && words->micro_batches > 0 && !sized) {
    call.table.set_unless_given("micro-batches", std::to_string(words->micro_batches), "--layout");
  }
  call.departures = words->notes;
  if (words->overlap) call.table.set_unless_given("gradient-sync", *words->overlap ? "overlap" : "after", "--layout");
  if (words->sequence_parallel) {
    call.table.set_unless_given("sequence-parallel", *words->sequence_parallel ? "auto" : "off", "--layout");
  }
  if (!words->ignored.empty()) {
    log_warning("--layout: these say nothing of a layout and are not looked at: " + join(words->ignored));
  }
  call.words = words;
}

// What a framework's words say of the model, where it is another than the model that is planned.
void warn_of_another_model(const emit::ReadWords& words, const PlanInput& input) {
  const architecture::ModelSizes& sizes = input.sizes;
  std::vector<std::string> unknown;
  for (const emit::SaidSize& said : words.sizes) {
    std::int64_t have = sizes.*said.size;
    const bool layers = said.size == &architecture::ModelSizes::layers;
    if (layers && have == 0) have = static_cast<std::int64_t>(planners::stack_starts(input.profile).size());
    if (have == 0) unknown.push_back(said.word);
    if (have == 0 || std::to_string(have) == said.value) continue;
    const bool sequence = said.size == &architecture::ModelSizes::sequence;
    log_warning("--layout says " + said.word + " " + said.value + ", the model has " + std::to_string(have) +
                ", which is planned" + (sequence ? "; --sequence " + said.value + " takes the layout's" : ""));
  }
  if (!unknown.empty()) {
    log_warning("--layout: these say nothing of a layout, and the model's own are not known: " + join(unknown));
  }
  const std::string own = emit::maxtext_name(sizes.published);
  if (!words.maxtext_name.empty() && !own.empty() && words.maxtext_name != own) {
    log_warning("--layout says model_name=" + words.maxtext_name + ", the model is " + sizes.published +
                ", which is planned");
  }
  if (words.dtype.empty() || sizes.dtype.empty() || words.dtype == sizes.dtype) return;
  log_warning("--layout says " + words.dtype + ", the model computes in " + sizes.dtype +
              ", which is planned; --dtype " + words.dtype + " takes the layout's");
}

void read_plan_or_layout(Call& call) {
  InferOptions& options = call.options;
  if (!options.plan.empty()) {
    call.given = read_plan_file(options.plan);
    call.departures = take_settings(*call.given, call.table);
    options.input.attention_asked = call.table.source_of("attention") != call.given->source;
    options.input.sequence_parallel_asked = call.table.source_of("sequence-parallel") != call.given->source;
    options.input.keep_shardings_asked = call.table.source_of("keep-shardings") != call.given->source;
  }
  call.overrides = make_overrides(call.table, options);
  if (!options.layout.empty()) call.layout = planners::parse_layout(options.layout, call.overrides, *call.framework);
  if (call.layout && call.layout->micro_batches > 0) {
    const std::string number = std::to_string(call.layout->micro_batches);
    call.table.set_unless_given("micro-batches", number, "--layout");
    if (options.micro_batches != number) {
      throw Error(ErrorKind::kUsage,
                  "--micro-batches " + options.micro_batches + " contradicts the layout's " + number +
                      " micro-batches of a step",
                  "leave --micro-batches out");
    }
  }
  // The widths that the question names are profiled.
  std::vector<int>& widths = options.input.given_widths;
  if (call.given) widths = call.given->widths;
  if (call.layout) widths = {call.layout->tp};
  if (widths.empty()) return;
  const int widest = *std::max_element(widths.begin(), widths.end());
  // Plans beside the layout may be of any width asked for.
  call.widest_plan = options.input.max_width;
  options.input.max_width = options.measured() ? std::max(options.input.max_width, widest) : widest;
}

// Checks the number of events of the pictures asked for, as far as the options tell the step's micro-batches.
void check_events(const Call& call) {
  const InferOptions& options = call.options;
  if (!asks_for_pictures(options)) return;
  const auto number = [](const std::string& text) { return std::strtod(text.c_str(), nullptr); };  // "auto": 0
  double micro_batches = number(options.micro_batches), stages = std::max(1.0, number(options.stages));
  double samples = number(options.micro_batch);
  if (call.layout && !options.measured()) {
    stages = call.layout->pp * call.layout->chunks;
    samples = static_cast<double>(call.layout->micro_batch_size * std::max(0, call.layout->dp));
  }
  if (micro_batches == 0 && samples > 0) micro_batches = std::floor(number(options.batch) / samples);
  if (call.given && micro_batches == 0 && number(options.batch) == 0) {
    micro_batches = call.given->micro_batches;
    stages = call.given->plan.num_parts();
  }
  check_timeline_events(micro_batches, stages);
}

// Finds the software that runs the step: the one named, that of the framework that is planned for, or that of the given
// plan. `known`: the model, where it has been read.
void read_software(Call& call, const PlanInput* known) {
  InferOptions& options = call.options;
  const bool by_plan = call.given && call.table.source_of("software") == call.given->source;
  const bool asked_for = call.table.source_of("for") != "default";
  const Software* const of_plan = by_plan ? find_software(options.software, *call.framework) : nullptr;
  const std::string word = by_plan && asked_for ? "auto" : options.software;
  const Software* const software = find_software(word, *call.framework);
  if (call.given && word == "auto" && software != of_plan && software != nullptr && has_times(*software)) {
    call.departures.push_back(std::string("counted in ") + software->name + " (--for); the plan was made with " +
                              whose_times({of_plan, of_plan != nullptr && has_times(*of_plan)}));
  }
  const bool named = word != "auto" && !by_plan;
  if (named && software != nullptr) {
    call.table.set_unless_given("gradient-sync", software->gradient_sync, "--software");
  }
  bool profile = false;
  if (software != nullptr && has_times(*software)) {
    if (known == nullptr && !call.bytes) call.bytes = read_model_bytes(options.input.path);
    profile = known != nullptr ? !known->of_module() : is_profile(*call.bytes, input_name(options.input.path));
  }
  call.runs_in = run_in(software, named, profile, &options, &call.cluster);
  // A plan that is counted for nobody else keeps what its file says.
  if (call.given && !named && !asked_for && !call.given->state_of.empty()) {
    keep_state_of(find_software(call.given->state_of, planners::any_framework()), &options);
  }
  // A plan file says what its times are of.
  if (call.runs_in.timed) call.table.set_unless_given("software", software->name, "--for");
}

// The cluster with the prices that are known.
machine::Cluster read_cluster(const InferOptions& options) {
  machine::Cluster cluster = machine::load_cluster(options.cluster);
  if (!options.price.empty()) {
    set_prices(options.price, &cluster);
    check_prices(cluster, false);
  }
  return cluster;
}

// `figure`: one of the cluster's that is varied.
void read_machines(Call& call, const PlanInput* known = nullptr,
                   const std::function<machine::Cluster(machine::Cluster)>& figure = {}) {
  InferOptions& options = call.options;
  call.cluster = read_cluster(options);
  if (figure) call.cluster = figure(std::move(call.cluster));
  call.given_cluster = call.cluster;
  read_software(call, known);
}

void read_policy(Call& call) {
  planners::PlanRequest& request = call.request;
  if (request.planner == planners::PlannerKind::kOnline) {
    const std::string& from = call.options.from;
    if (from != "shipped" && from != "scratch") request.policy = planners::load_policy(from);
  } else if (!call.options.policy.empty()) {
    request.policy = planners::load_policy(call.options.policy);
  } else if (request.planner == planners::PlannerKind::kPolicy) {
    request.policy = planners::shipped_policy(request.objective.value_or(planners::Objective::kValue));
  }
}

void read_model(Call& call) {
  call.options.input.sha256 = call.documented() || call.given;
  std::string bytes = call.bytes ? *std::exchange(call.bytes, std::nullopt) : read_model_bytes(call.options.input.path);
  call.input = read_input(call.options.input, call.cluster, std::move(bytes));
  if (call.words) warn_of_another_model(*call.words, call.input);
}

// Leaves pipelines of this model out where the framework has none that can be typed, and gives the batch that nobody
// gave.
void fit_to_framework(Call& call) {
  planners::Question& question = call.question;
  const bool searched = !call.layout || call.options.measured();
  const emit::Inexpressible fault = emit::pipeline_fault(*call.framework, call.input.sizes);
  if (searched && !fault.what.empty() && call.request.stages != 1) {
    const std::string what = std::string(call.framework->name) + " cannot run " + fault.what;
    if (call.request.stages > 1) {
      throw Error(ErrorKind::kUsage, "--stages " + std::to_string(call.request.stages) + ": " + what, fault.hint);
    }
    question.request.max_stages = 1;
    call.input.notices.push_back("no pipeline is planned: " + what + " (" + fault.hint + ")");
  }
  planners::StepRequest& step = question.step;
  const bool free = !call.layout && step.batch == 0 && step.micro_batch == 0 && step.micro_batches == 0;
  if (!free || question.request.max_stages == 1 || question.options.replicas == pipeline::Replicas::kFractional) return;
  const std::int64_t batch = planners::usual_batch_of(question);
  if (batch == planners::usual_batch(pipeline::own_samples(question.profile()))) return;
  step.batch = batch;
  call.batch_rounds = planners::rounds_of_pipelines(question);
}

void ask(Call& call) {
  if (call.given) {
    check_model(*call.given, call.input);
    const std::vector<std::string> others = check_partitions(*call.given, call.input.profile);
    call.departures.insert(call.departures.end(), others.begin(), others.end());
  }
  log_verbose(call.input.form + ": " + format_count(call.input.profile.size()) + " forward instructions");
  call.question = make_question(call.options, call.input.profile, call.cluster);
  call.question.request = call.request;
  call.question.framework = call.framework;
  if (!call.given) fit_to_framework(call);
  if (call.given && call.given->measured_step) {
    const std::string other = other_times(*call.given->measured_step, call.question, whose_times(call.runs_in));
    if (other.empty()) {
      call.measured = call.given->measured_step;
    } else {
      call.departures.push_back(other);
    }
  }
  correct(call.correction(), &call.question);
}

// Sentences within so many columns; what is indented is to be copied, and a line each, but for what is to be done
// beside it.
std::string sentences_within(const std::string& text, int width) {
  std::string out;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size() - 1) + 1;
    const std::string line = text.substr(from, end - from);
    out += line.compare(0, 2, "  ") == 0 && line.compare(0, 6, "  and:") != 0 ? line : wrap_lines(line, width);
    from = end;
  }
  return out;
}

// The assumptions about a description, and the batch where it was not given.
std::string model_line(const Call& call, const ReportOptions& report, double batch, int width) {
  std::string text = call.input.taken;
  if (!report.batch_given) {
    text += "; assumed: a batch of " + std::to_string(std::llround(batch)) + " samples (--batch)" +
            batch_rounds_text(report);
  }
  std::string label = "Model";
  label.resize(kSummaryLabel, ' ');
  return wrap_lines(label + text + "\n", width);
}

void note_provenance(const Call& call, PlanDocument& document) {
  add_provenance(document, call.table, call.input, call.given_cluster);
  if (call.input.state) document.provenance["state_of"] = call.options.input.software->name;
  // The times are not the software's where another option prevents that.
  const Software* const software = call.runs_in.software;
  if (software != nullptr && has_times(*software) && !call.runs_in.timed) document.provenance.erase("option_software");
  // A given plan that was scored for another framework no longer has the times of its software.
  const bool of_plan = call.given && call.table.source_of("software") == call.given->source;
  if (!of_plan || call.table.source_of("for") == "default") return;
  if (call.runs_in.timed) {
    document.provenance["option_software"] = software->name;
  } else {
    document.provenance.erase("option_software");
  }
}

// The inputs of the answer's sentences besides the document.
ReportOptions report_options(const Call& call, double free_plan_ms) {
  const InferOptions& options = call.options;
  const Software* const software = call.runs_in.software;
  ReportOptions report;
  report.all_planners = options.all_planners;
  report.model_batch = call.input.profile.micro_batch_size;
  report.made_here = !call.input.taken.empty();
  if (software != nullptr) report.software = assumed_text(*software, call.runs_in.timed, options.input.device);
  report.masked_attentions = call.input.work.masked_attentions;
  report.fused_attention = call.input.fused.find("attention") != std::string::npos && options.input.attention == "auto";
  report.training = call.input.profile.forward_fraction < 1;
  report.kinds_asked = options.explore == "on";
  report.details = options.details;
  report.width = report_width(options.details);
  report.batch_given = options.batch != "auto" || call.given.has_value() ||
                       (options.micro_batch != "auto" && options.micro_batches != "auto");
  report.batch_rounds = call.batch_rounds;
  report.cluster_devices = call.rented ? call.given_cluster.num_devices() : call.cluster.num_devices();
  std::vector<int> of_servers;
  for (const machine::ServerGroup& servers : call.cluster.servers) of_servers.push_back(servers.devices);
  report.may_use_all =
      !call.framework->even_servers || planners::servers_inexpressible(of_servers, 0, of_servers.front()).empty();
  report.free_plan_ms = free_plan_ms;
  if (limits_plans(*call.framework)) {
    report.framework = call.framework->name;
    report.plans_for = std::string(call.framework->name) + ": " + framework_text(*call.framework);
  }
  return report;
}

// Adds the parts of every document that is printed or written: the source of its times, its provenance, and the
// answer's sentences.
void complete(const Call& call, const ReportOptions& report, PlanDocument& document) {
  const Software* const software = call.runs_in.software;
  const OwnDevice& device = call.options.input.device;
  if (software != nullptr && (call.runs_in.timed || device || !has_times(*software))) {
    document.estimates.insert(document.estimates.begin(), software_text(*software, device, call.table));
  }
  if (call.input.state) {
    document.estimates.insert(document.estimates.begin(), state_text(*call.options.input.software, *call.input.state));
  }
  if (call.measured) {
    document.measured_step = call.measured;
    document.estimates.insert(document.estimates.begin(), correction_text(*call.measured));
  }
  if (const double price = price_per_hour(call.cluster); price > 0) {
    const pipeline::PlanUtilization& use = document.utilization;
    document.cost = pipeline::cost_of(price, document.simulated_step_ms, use.samples_per_s, use.tokens_per_s);
  }
  if (!call.documented()) return;
  note_provenance(call, document);
  document.report = summary_sentences(document, report);
}

// Refuses a model whose programs could not be cut once it is planned: they are cut out of its HLO, read a second time.
void check_programs(const InferOptions& options) {
  if (options.emit_programs.empty() || can_be_read_again(options.input)) return;
  throw Error(
      ErrorKind::kUsage,
      "--emit-programs reads the model once more, and " + input_name(options.input.path) + " can be read once only",
      "write the model to a file");
}

// The programs of the plan's stages, among the outputs.
void add_programs(Call& call, const PlanDocument& document) {
  const std::string& path = call.options.input.path;
  const hlo::HloModule module =
      profile::load_whole_model(path, "--emit-programs needs the model's HLO: programs are cut out of it", std::nullopt)
          .module;
  programs::write_into(call.options.emit_programs,
                       programs::program_files(document, "the plan", module, input_name(path)), &call.outputs);
}

void print_document(Call& call, PlanDocument document, const pipeline::PlacedPlan& placed, double free_plan_ms = 0) {
  const InferOptions& options = call.options;
  const ReportOptions report = report_options(call, free_plan_ms);
  complete(call, report, document);
  if (call.plan_file) call.plan_file->write(to_json_text(document));
  const machine::Cluster& cluster = call.rented ? call.given_cluster : call.cluster;
  call.pictures->write({&document, &placed, &cluster, nullptr, report, options.output == "-" ? "" : options.output,
                        asked_text(call.table)});
  if (!call.options.emit_programs.empty()) add_programs(call, document);
  call.outputs.prepare();
  // Warnings come first, because they change how the answer is read.
  for (const std::string& warning : document.warnings) log_warning(warning);
  if (writes_standard_output(options)) {
    // Nothing else is printed then.
  } else if (options.json) {
    print_exact(to_json_text(document));
  } else if (!options.explain.empty()) {
    print(explained_text(check_explained(options.explain), document, placed.problem(), report));
  } else {
    // Fifteen lines of a hundred columns are more of a narrow terminal.
    const int width = summary_width();
    const std::string to_type = sentences_within(
        "\n" + (document.to_type
                    ? emit::to_type_text(*document.to_type, options.output, document.simulated_step_ms, options.details)
                    : "To type      --for FRAMEWORK says it: " + join(emit::emitted_frameworks(), " or ") + "\n"),
        width);
    const auto others = static_cast<std::size_t>(std::count(to_type.begin(), to_type.end(), '\n'));
    const std::size_t lines = kSummaryLines * static_cast<std::size_t>(kSummaryWidth) / static_cast<std::size_t>(width);
    if (!call.input.taken.empty()) print_labelled(model_line(call, report, document.batch(), width), kSummaryLabel);
    // With --details the answer may be as long as it gets.
    const std::size_t room =
        options.details ? std::numeric_limits<std::size_t>::max() : lines - std::min(others, kSummaryLines / 2);
    print_labelled(summary_text(document, report, width, room), kSummaryLabel);
    print(options.details ? "\n" + report_text(document, placed.problem(), report)
                          : asked_tables_text(document, report));
    print(to_type);
  }
  call.outputs.commit();
  if (!options.emit_programs.empty()) {
    log_info("run it with: automap run " + emit::shell_word(options.emit_programs) + " --check");
  }
}

// Adds the text to type to run the plan, in the words of the question's framework, or of the one that the model is
// from.
void tell_framework(const Call& call, const pipeline::PlacedPlan& placed, PlanDocument& document) {
  const planners::Framework* framework =
      limits_plans(*call.question.framework) ? call.question.framework : call.input.made_with;
  if (framework == nullptr) return;
  planners::Question question = call.question;
  if (call.rented) question.cluster = call.given_cluster;  // as the document numbers devices
  const auto told_to = [&](const planners::Framework& one) {
    return to_type(document, question, placed, one, call.sequence_parallel());
  };
  document.to_type = told_to(*framework);
  if (document.to_type->cannot.empty() || limits_plans(*call.question.framework)) return;
  // The module tells who made it, and not where it is trained.
  std::vector<std::string> others;
  for (const planners::Framework& other : planners::all_frameworks()) {
    if (&other == framework || !emit::emits(other)) continue;
    if (told_to(other).cannot.empty()) others.push_back(std::string("--for ") + other.name);
  }
  if (!others.empty()) document.to_type->hint = "it can be run with " + join(others);
}

// Without --for, the user still gets a plan to type where the model's framework cannot run the plan: the shortest that
// it can run, found with little effort.
void tell_nearest(const Call& call, PlanDocument& document) {
  const bool asked = limits_plans(*call.question.framework) || !explores(call.options, call.request);
  if (asked || !document.to_type || document.to_type->cannot.empty() || document.cut_by_time) return;
  planners::Question question = call.question;
  question.framework = call.input.made_with;
  question.request.effort = planners::plan_effort(Effort::kQuick);
  question.beside = planners::any_beside();
  NearestPlan near = nearest_plan(std::move(question), call.input, true, call.sequence_parallel(), {});
  if (!near.document) return;
  pipeline::PlanToType told = std::move(*near.document->to_type);
  told.cannot = document.to_type->cannot;
  told.hint = document.to_type->hint;
  told.instead = kind_text(*near.document);
  told.instead_ms = near.document->simulated_step_ms;
  document.to_type = std::move(told);
}

int run_sweep(const Call& call) {
  const StopToken stop;
  planners::SweepRequest request = make_sweep(call.table, call.options);
  planners::Question question = call.question;
  question.request.stages = 0;  // each layout has its own
  apply_framework(question);
  if (limits_plans(*call.framework)) request.schedules = question.request.schedules;
  if (question.beside.only) request.schedules = {*question.beside.only};
  request.limits.cancelled = StopToken::stop_requested;
  const planners::Sweep sweep = sweep_layouts(question, request);
  const SweepUse swept{sweep, call.input, call.cluster};
  if (call.options.json) {
    print_exact(sweep_json(swept));
  } else {
    print_report(sweep_text(swept));
  }
  for (const std::string& warning : call.input.notices) log_warning(warning);
  if (sweep.left_out > 0) {
    log_warning(std::to_string(sweep.left_out) + " more layouts were not looked at: the time was over");
  }
  return StopToken::stop_requested() ? kExitStoppedEarly : 0;
}

// Scores the given plan or layout; returns the program's exit code.
int run_score(Call& call) {
  const planners::ScoredPlan scored =
      call.layout ? score_layout(*call.layout, call.question) : score_given(*call.given, call.question, call.overrides);
  const std::string lacks = inexpressible(*call.framework, scored.placed, call.question.profile());
  if (!lacks.empty()) {
    throw Error(
        ErrorKind::kUsage,
        std::string(call.layout ? "--layout: " : call.options.plan + ": ") + call.framework->name + " cannot run " +
            lacks,
        std::string(call.table.source_of("for") == "--layout" ? "--for any counts it all the same; " : "drop --for; ") +
            call.framework->name + " has " + framework_text(*call.framework));
  }
  PlanDocument document = document_of(call.question, scored, call.input, call.options.input.device);
  if (call.layout && scored.missing_bytes > 0) document.warnings.push_back(what_makes_fit(*call.layout, call.question));
  document.warnings.insert(document.warnings.end(), call.departures.begin(), call.departures.end());
  tell_framework(call, scored.placed, document);
  print_document(call, std::move(document), scored.placed);
  return scored.infeasible.empty() ? 0 : exit_code(ErrorKind::kInfeasible);
}

// The layout that was measured is scored, and the question's times are corrected by it. Whether the framework that is
// planned for can run it is no matter: it has run.
void take_measurement(Call& call) {
  const planners::ScoredPlan scored = score_layout(*call.layout, call.question);
  InferOptions& options = call.options;
  const double batch = scored.placed.problem().micro_batch_samples() * scored.placed.problem().micro_batches();
  // The plan is for the batch that was measured.
  const bool sized = options.batch != "auto" || (options.micro_batch != "auto" && options.micro_batches != "auto");
  if (!sized) {
    call.table.set_unless_given("batch", std::to_string(std::llround(batch)), "--layout");
    // The layout's split of the batch is no request for the plan.
    if (call.table.source_of("micro-batches") == "--layout") options.micro_batches = "auto";
    call.question.step = make_step(options);
  }
  call.measured = measured_step(as_scored(*call.layout, scored), scored, call.question, options.measured_step_s * 1e3,
                                whose_times(call.runs_in));
  std::vector<std::string> notes = measured_warnings(*call.measured, scored);
  call.departures.insert(call.departures.end(), notes.begin(), notes.end());
  options.input.max_width = call.widest_plan;
  options.input.given_widths.clear();
  pipeline::Profile profile = call.question.profile();
  drop_wider(call.widest_plan, &profile);
  call.question.set_profile(std::move(profile));
  drop_wider(call.widest_plan, &call.input.profile);
  correct(call.correction(), &call.question);
}

// Operations between split products are quicker when split along the sequence, but the gathered copies may be kept in
// memory: where memory decides, the model is also planned without that split.
planners::OtherProfile whole_between_products(const Call& call, PlanInput* other) {
  const InputOptions& input = call.options.input;
  const bool open = call.table.source_of("sequence-parallel") == "default" && input.sequence_parallel == "auto";
  if (!open || !call.input.of_module() || call.input.profile.widths.empty() || !can_be_read_again(input)) return {};
  return [&call, other] {
    InputOptions off = call.options.input;
    off.sequence_parallel = "off";
    *other = read_input(off, call.cluster);
    return planners::corrected(other->profile, call.correction());
  };
}

planners::Answer find_answer(Call& call) {
  planners::Question& question = call.question;
  question.request.cancelled = StopToken::stop_requested;
  PlanInput other;
  // A question is many searches: how far one of them has come says nothing of the rest.
  Progress progress("planning", 0, "");
  question.request.progress = [&](std::int64_t done, std::int64_t) {
    progress.update(static_cast<std::uint64_t>(done));
  };
  double least_ms = kInfinity;
  question.request.better = [&](const pipeline::PlacedPlan& placed, double length_ms) {
    if (!(length_ms < least_ms)) return;
    least_ms = length_ms;
    progress.say("best so far " + format_ms(length_ms) + " a step: " + planners::plan_text(placed));
  };
  planners::Answer answer = planners::answer(question, rivals::kinds_beside(explores(call.options, call.request)),
                                             whole_between_products(call, &other));
  question.request.progress = {};
  question.request.better = {};
  if (answer.other_profile) {
    call.input = std::move(other);
    call.table.set_unless_given("sequence-parallel", "off", "memory");
  }
  return answer;
}

void add_sensitivity(const planners::Question& asked, const planners::Candidate& plan, PlanDocument& document) {
  planners::Question question = asked;
  question.request.lower_bound = false;
  document.sensitivity =
      plan_sensitivity(question, plan, planners::expected_errors(question.profile(), question.cluster));
  if (StopToken::stop_requested()) {
    document.warnings.push_back("--sensitivity was stopped by a signal after " +
                                std::to_string(document.sensitivity.size()) + " of its cases");
  }
}

void add_planner_table(const planners::Question& question, const planners::Candidate& plan, PlanDocument& document) {
  document.planner_table = planners::compare_planners(*plan.problem, question.request);
  if (limits_plans(*question.framework)) {
    document.warnings.push_back(
        std::string("--planner-table compares planners at the plan's split of the batch, whether ") +
        question.framework->name + " can run what they find or not");
  }
  if (!document.mixed_widths()) return;
  document.warnings.push_back("--planner-table compares plans of one width, of replicas of " +
                              plural(plan.size.width, "device") + ": no planner alone mixes widths");
}

// Throws the reason where there is no plan.
void require_plan(const Call& call, const planners::Answer& answer) {
  if (!answer.one_width.found()) fail_without_plan(call.question, answer.notes, call.options.limit != "all");
}

// Completes and prints the document of a search; the program's exit code.
int show_answer(Call& call, const planners::Answer& answer, PlanDocument document) {
  document.warnings.insert(document.warnings.end(), call.departures.begin(), call.departures.end());
  if (call.measured) {
    const std::string beyond = beyond_peak(document.utilization);
    if (!beyond.empty()) document.warnings.push_back(beyond);
  }
  // After a stop request neither the cases of --sensitivity nor every planner in turn is run.
  if (call.options.sensitivity && !StopToken::stop_requested()) {
    add_sensitivity(call.question, answer.plan(), document);
  }
  if (call.options.planner_table && !StopToken::stop_requested()) {
    add_planner_table(call.question, answer.one_width, document);
  }
  tell_framework(call, answer.plan().placed, document);
  if (!StopToken::stop_requested()) tell_nearest(call, document);
  if (!StopToken::stop_requested() && call.input.written_attention && !document.cut_by_time) {
    const KernelsAlone asked{call.options, call.request,         *call.framework,
                             call.cluster, document.planning_ms, call.correction()};
    if (auto alone = kernels_alone(asked, document.simulated_step_ms)) {
      document.relaxed.insert(document.relaxed.begin(), std::move(*alone));
    }
  }
  print_document(call, std::move(document), answer.plan().placed, answer.free_plan_ms);
  return StopToken::stop_requested() ? kExitStoppedEarly : 0;
}

// Searches for a plan; the program's exit code.
int run_search(Call& call) {
  const StopToken stop;
  const planners::Answer answer = find_answer(call);
  require_plan(call, answer);
  return show_answer(
      call, answer,
      document_of(call.question, answer, call.input, call.options.input.device, narrowing_options(call.table)));
}

// Checks and takes the options, before anything is read.
void take_options(Call& call) {
  InferOptions& options = call.options;
  call.request = make_request(options);
  limit_kinds(call.table, &options, &call.request);
  take_framework_words(call);
  call.framework = &framework_asked(call.table, options);
  check_mode(call.table, options);
  make_step(options);  // refuses values that are out of range
  ask_for_beside(call.table, &options);
  check_online(call.table, options);
}

// One row of --vary: the question of its value, asked as a call of its own would ask it. Nothing: a signal came.
// `misuse`: the first that was no question.
std::optional<VariedRow> ask_value(int argc, char** argv, const Varied& varied, const std::string& value,
                                   std::optional<PlanInput>* known, std::optional<Error>* misuse) {
  VariedRow row;
  row.value = value;
  try {
    Call call;
    declare_options(call.table, call.options);
    call.table.parse(argc, argv);
    if (varied.option()) call.table.set_unless_given(varied.name, value, "--vary");
    call.options.vary.clear();
    call.options.compare_clusters.clear();
    call.options.csv.clear();
    call.options.chart.clear();
    if (varied.cluster()) call.options.cluster = value;
    take_options(call);
    std::function<machine::Cluster(machine::Cluster)> figure;
    if (!varied.option() && !varied.cluster()) {
      figure = [&](machine::Cluster cluster) {
        return with_figure(std::move(cluster), varied.name, std::strtod(value.c_str(), nullptr));
      };
    }
    read_machines(call, *known ? &**known : nullptr, figure);
    read_policy(call);
    // Another cluster has other widths and devices, for which the model is profiled again; of another sequence it is
    // another model.
    if (*known && !varied.remakes_model()) {
      call.input = **known;
    } else {
      read_model(call);
      *known = call.input;
    }
    ask(call);
    const planners::Answer answer = find_answer(call);
    if (StopToken::stop_requested()) return std::nullopt;
    require_plan(call, answer);
    row.plan = document_of(call.question, answer, call.input, call.options.input.device, narrowing_options(call.table));
    row.plan->warnings.insert(row.plan->warnings.end(), call.departures.begin(), call.departures.end());
    if (call.options.json) {
      tell_framework(call, answer.plan().placed, *row.plan);
      if (!StopToken::stop_requested()) tell_nearest(call, *row.plan);
      complete(call, report_options(call, answer.free_plan_ms), *row.plan);
    }
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::kStopped) return std::nullopt;
    if (e.kind() != ErrorKind::kInfeasible && e.kind() != ErrorKind::kUsage) throw;
    if (e.kind() == ErrorKind::kUsage && !*misuse) *misuse = e;
    row.why = e.what() + (e.hint().empty() ? std::string() : "; " + e.hint());
  }
  return row;
}

// Every value of --vary or --compare-clusters; the program's exit code.
int run_varied(const Call& call, int argc, char** argv) {
  const Varied varied = check_varied(call.table, call.options);
  OutputSet outputs;
  AtomicFile* const csv = call.options.csv.empty() ? nullptr : &outputs.add(call.options.csv);
  AtomicFile* const chart = call.options.chart.empty() ? nullptr : &outputs.add(call.options.chart);
  VariedRows rows;
  rows.name = varied.name;
  rows.clusters = varied.cluster();
  rows.asked = varied.values.size();
  // A name that is no cluster is an error, not a row.
  if (varied.cluster()) {
    for (const std::string& name : varied.values) machine::load_cluster(name);
  } else {
    rows.cluster = machine::load_cluster(call.options.cluster).name;
  }
  const StopToken stop;
  std::optional<PlanInput> known;
  std::optional<Error> misuse;
  for (const std::string& value : varied.values) {
    std::optional<VariedRow> row = ask_value(argc, argv, varied, value, &known, &misuse);
    if (!row) break;
    if (known) rows.model = known->profile.model;
    rows.rows.push_back(std::move(*row));
    if (StopToken::stop_requested()) break;
  }
  if (rows.rows.empty()) throw Error(ErrorKind::kStopped, "stopped by a signal before the first value had a plan");
  const bool any =
      std::any_of(rows.rows.begin(), rows.rows.end(), [](const VariedRow& row) { return row.plan.has_value(); });
  // An error that is the same for all values is an error of the call.
  const bool same = std::all_of(rows.rows.begin(), rows.rows.end(),
                                [&](const VariedRow& row) { return row.why == rows.rows.front().why; });
  if (!any && misuse && same && rows.rows.size() > 1 && !StopToken::stop_requested()) throw *misuse;
  if (csv) csv->write(vary_csv(rows));
  if (chart) chart->write(vary_chart(rows));
  outputs.prepare();
  std::set<std::string> warned;
  for (const VariedRow& row : rows.rows) {
    if (!row.plan) continue;
    for (const std::string& warning : row.plan->warnings) {
      if (warned.insert(warning).second) log_warning(row.value + ": " + warning);
    }
  }
  if (call.options.csv != "-" && call.options.chart != "-") {
    if (call.options.json) {
      print_exact(vary_json(rows));
    } else {
      print(vary_text(rows, summary_width()));
    }
  }
  outputs.commit();
  if (StopToken::stop_requested()) return kExitStoppedEarly;
  return any ? 0 : exit_code(ErrorKind::kInfeasible);
}

// The question asked on one part of the cluster.
struct AskedPart {
  Call call;
  planners::Answer answer;
  PlanDocument document;
};

// What a part of the cluster is asked with.
struct PartsCall {
  int argc = 0;
  char** argv = nullptr;
  std::string bytes;               // of the model
  std::optional<PlanInput> known;  // of a part that was asked before
};

// Throws as a call of its own would.
std::unique_ptr<AskedPart> ask_part(PartsCall& of, const Rented& rented) {
  auto asked = std::make_unique<AskedPart>();
  Call& call = asked->call;
  declare_options(call.table, call.options);
  call.table.parse(of.argc, of.argv);
  take_options(call);
  call.bytes = of.bytes;
  call.rented = rented;
  read_machines(call, of.known ? &*of.known : nullptr, [&](const machine::Cluster&) { return rented.cluster; });
  call.given_cluster = read_cluster(call.options);
  read_policy(call);
  read_model(call);
  if (!of.known) of.known = call.input;
  ask(call);
  asked->answer = find_answer(call);
  require_plan(call, asked->answer);
  std::vector<std::string> within = narrowing_options(call.table);
  if (!rented.whole) within.push_back(servers_text(rented));
  PlanDocument& document = asked->document =
      document_of(call.question, asked->answer, call.input, call.options.input.device, std::move(within));
  for (pipeline::PlanStage& stage : document.stages) {
    for (int& number : stage.device_numbers) number = rented.devices.at(static_cast<std::size_t>(number - 1)) + 1;
  }
  return asked;
}

// Nothing: a signal came. What was looked at before is planned again only where a later part was so much faster that
// the best so far no longer does.
std::unique_ptr<AskedPart> ask_again(PartsCall& of, const Rented& rented) {
  try {
    std::unique_ptr<AskedPart> asked = ask_part(of, rented);
    if (!StopToken::stop_requested()) return asked;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kStopped) throw;
  }
  return nullptr;
}

void take_figures(const AskedPart& asked, pipeline::FrontierPoint* point) {
  const PlanDocument& document = asked.document;
  const pipeline::PlanUtilization& use = document.utilization;
  point->step_ms = document.simulated_step_ms;
  point->samples_per_s = use.samples_per_s;
  point->tokens_per_s = use.tokens_per_s;
  point->cost =
      pipeline::cost_of(price_per_hour(asked.call.cluster), point->step_ms, use.samples_per_s, use.tokens_per_s);
  point->plan = kind_text(document);
}

// Asks about parts of the cluster, and prints the answer of the one that is chosen; the program's exit code.
int run_frontier(Call& call, int argc, char** argv, const FrontierRequest& request) {
  const StopToken stop;
  const machine::Cluster cluster = read_cluster(call.options);
  check_prices(cluster, request.least == "cost");
  PartsCall of{argc, argv, read_model_bytes(call.options.input.path), {}};
  std::vector<Rented> rented = rented_parts(cluster);
  std::vector<pipeline::FrontierPoint> points;
  std::unique_ptr<AskedPart> best;
  std::optional<std::size_t> chosen, kept;  // kept: whose answer `best` is
  std::optional<Error> first;
  bool stopped = false;
  for (std::size_t p = 0; p < rented.size() && !stopped; ++p) {
    pipeline::FrontierPoint point;
    point.devices = static_cast<int>(rented[p].devices.size());
    point.servers = servers_text(rented[p]);
    std::unique_ptr<AskedPart> asked;
    try {
      asked = ask_part(of, rented[p]);
      take_figures(*asked, &point);
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::kStopped && chosen) break;
      // What is a question about the whole cluster may be none about a part: four stages on two devices.
      const bool misfits = e.kind() == ErrorKind::kUsage && !rented[p].whole;
      if (e.kind() != ErrorKind::kInfeasible && !misfits) throw;
      point.why = e.what();
      if (!first) first = e;
    }
    stopped = StopToken::stop_requested();
    // A search that was stopped says little of its part, but may be all there is.
    if (stopped && chosen) break;
    points.push_back(std::move(point));
    chosen = choose(points, request);
    if (chosen == p) {
      best = std::move(asked);
      kept = p;
    }
    if (p + 1 < rented.size() || stopped) continue;
    if (std::optional<Rented> next = part_between(cluster, rented, points, request)) rented.push_back(*std::move(next));
  }
  if (!chosen) {
    const bool any = std::any_of(points.begin(), points.end(), [](const auto& point) { return point.found(); });
    if (stopped) throw Error(ErrorKind::kStopped, "stopped by a signal before a part did what is asked for");
    throw any ? unreached(points, request, cluster.name) : *first;
  }
  if (chosen != kept) {
    if (std::unique_ptr<AskedPart> again = ask_again(of, rented[*chosen])) {
      best = std::move(again);
      take_figures(*best, &points[*chosen]);  // under a time limit they may be others
    } else {
      chosen = kept;
    }
  }
  stopped = StopToken::stop_requested();
  best->document.frontier = frontier_of(std::move(points), *chosen, request);
  best->document.frontier->stopped = stopped;
  if (stopped) {
    best->document.warnings.emplace_back("stopped by a signal: not all parts of the cluster were looked at");
  }
  best->call.outputs = std::move(call.outputs);
  best->call.plan_file = call.plan_file;
  best->call.pictures = call.pictures;
  best->call.options.sensitivity = call.options.sensitivity;
  return show_answer(best->call, best->answer, std::move(best->document));
}

int infer_main(int argc, char** argv) {
  Call call;
  InferOptions& options = call.options;
  declare_options(call.table, options);
  if (!call.table.parse(argc, argv)) return 0;
  set_loop_threads(call.options.threads);
  take_options(call);
  if (!options.vary.empty() || !options.compare_clusters.empty()) return run_varied(call, argc, argv);
  const std::vector<std::string> explained = check_explained(options.explain);
  const bool asks = std::find(explained.begin(), explained.end(), "sensitivity") != explained.end();
  if (asks && options.searches()) {
    options.sensitivity = true;
  }
  // Before the input is read, so that a wrong plan is refused at once.
  read_plan_or_layout(call);
  // Refuses pictures that are too large to draw, and files that cannot be written, before the work.
  check_events(call);
  check_programs(options);
  if (!options.output.empty()) call.plan_file = &call.outputs.add(options.output);
  call.pictures.emplace(options, &call.outputs);
  if (const std::optional<FrontierRequest> request = frontier_asked(call.table, options)) {
    return run_frontier(call, argc, argv, *request);
  }
  read_machines(call);
  // Before the input is read, so that a wrong policy is refused at once.
  read_policy(call);
  read_model(call);
  ask(call);
  if (options.sweep) return run_sweep(call);
  if (!options.searches()) return run_score(call);
  if (call.layout) take_measurement(call);
  return run_search(call);
}

}  // namespace

int main(int argc, char** argv) {
  return automap::run_main(argc, argv, infer_main);
}
