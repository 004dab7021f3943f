#include "models/learner/learner.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "models/adam.h"
#include "models/features.h"
#include "models/learner/losses.h"
#include "models/learner/torch_network.h"
#include "models/replay.h"
#include "models/returns.h"

namespace automap::models {
namespace {

constexpr std::uint32_t kInitStream = 0x4c520001, kSampleStream = 0x4c520002;
constexpr char kMagic[] = "AMLEARN";  // with its zero 8 bytes
// 2: progress of the run, when the target network was copied.
constexpr std::uint32_t kStateVersion = 2;

bool bounded(const LearnerOptions& o) {
  return o.bounded && o.residual && o.distribution == Distribution::kNone;
}

// Everything that changes what is learned, in the order of LearnerOptions.
Json fingerprint(const LearnerOptions& o) {
  return {{"family", static_cast<int>(o.family)},
          {"inputs", o.inputs},
          {"actions", o.actions},
          {"flat_input", static_cast<int>(o.flat_input)},
          {"objective", o.objective},
          {"hidden", o.hidden},
          {"residual", o.residual},
          {"bounded", bounded(o)},
          {"dueling", o.dueling},
          {"returns", static_cast<int>(o.returns)},
          {"n_step", o.n_step},
          {"gamma", o.gamma},
          {"double_q", o.double_q},
          {"target_every", o.target_every},
          {"target_copies", o.target_copies},
          {"distribution", static_cast<int>(o.distribution)},
          {"atoms", o.atoms},
          {"low", o.low},
          {"high", o.high},
          {"prioritized", o.prioritized},
          {"priority_alpha", o.priority_alpha},
          {"priority_beta", o.priority_beta},
          {"priority_beta_end", o.priority_beta_end},
          {"beta_updates", o.beta_updates},
          {"replay_episodes", o.replay_episodes},
          {"batch", o.batch},
          {"label_batch", o.label_batch},
          {"replay_labels", o.replay_labels},
          {"label_weight", o.label_weight},
          {"label_temperature", o.label_temperature},
          {"learning_rate", o.learning_rate},
          {"learning_rate_end", o.learning_rate_end},
          {"learning_rate_updates", o.learning_rate_updates},
          {"adam_epsilon", o.adam_epsilon},
          {"clip_norm", o.clip_norm},
          {"huber_delta", o.huber_delta},
          {"target_scale", o.target_scale},
          {"ema", o.ema},
          {"seed", o.seed}};
}

Architecture architecture_of(const LearnerOptions& o) {
  Architecture a;
  a.features = o.inputs;
  a.feature_version = o.feature_version > 0 ? o.feature_version : kFeatureVersion;
  a.hidden = o.hidden;
  if (o.distribution == Distribution::kNone) {
    a.head = bounded(o) ? Head::kBounded : o.residual ? Head::kResidual : Head::kPlain;
  } else {
    a.head = o.residual ? Head::kResidualCategorical : Head::kCategorical;
    a.atoms = o.atoms;
    a.low = o.low;
    a.high = o.high;
  }
  a.objective = o.objective;
  a.family = o.family;
  if (o.family == Family::kFlat) {
    a.actions = o.actions;
    a.dueling = o.dueling;
    a.flat_input = o.flat_input;
  }
  return a;
}

std::string describe(const Architecture& a) {
  std::string text = a.family == Family::kFlat ? "flat" : "after-state";
  text += " network " + std::to_string(a.features) + " (version " + std::to_string(a.feature_version) + ")";
  for (const int size : a.hidden) text += "-" + std::to_string(size);
  text += ", head " + std::to_string(static_cast<int>(a.head));
  if (a.atoms > 1) {
    text += " with " + std::to_string(a.atoms) + " atoms on [" + std::to_string(a.low) + ", " + std::to_string(a.high) +
            "]";
  }
  if (a.family == Family::kFlat) {
    text += ", " + std::to_string(a.actions) + " actions, " + (a.dueling ? "dueling" : "not dueling") + ", input " +
            std::to_string(static_cast<int>(a.flat_input));
  }
  return text;
}

NetworkShape shape_of(const LearnerOptions& o) {
  NetworkShape shape;
  shape.inputs = o.inputs;
  shape.hidden = o.hidden;
  const int outputs = o.distribution == Distribution::kNone ? 1 : o.atoms;
  if (o.family == Family::kAfterState) {
    shape.heads = {outputs};
  } else if (o.dueling) {
    shape.heads = {outputs, o.actions * outputs};
  } else {
    shape.heads = {o.actions * outputs};
  }
  return shape;
}

LossOptions loss_options_of(const LearnerOptions& o) {
  LossOptions loss;
  loss.residual = o.residual;
  loss.bounded = bounded(o);
  loss.distribution = o.distribution;
  loss.support = {o.atoms, static_cast<double>(o.low), static_cast<double>(o.high)};
  loss.target_scale = o.target_scale;
  loss.huber_delta = o.huber_delta;
  return loss;
}

// Every layer uniform in +-1/sqrt(inputs), weights and biases: what torch::nn::Linear does, from our own numbers, so
// that every version of LibTorch starts the same.
std::vector<float> initial_weights(const NetworkShape& shape, std::uint64_t seed) {
  std::vector<float> weights;
  weights.reserve(shape.num_weights());
  std::uint64_t number = 0;
  int in = shape.inputs;
  const auto layer = [&](int out) {
    Rng rng(seed, kInitStream, number++);
    const double limit = 1 / std::sqrt(static_cast<double>(in));
    for (int i = 0; i < (in + 1) * out; ++i) weights.push_back(static_cast<float>(rng.uniform(-limit, limit)));
  };
  for (const int size : shape.hidden) {
    layer(size);
    in = size;
  }
  for (const int head : shape.heads) layer(head);
  return weights;
}

ReplayOptions replay_options_of(const LearnerOptions& o) {
  ReplayOptions replay;
  replay.episodes = static_cast<std::size_t>(o.replay_episodes);
  replay.inputs = static_cast<std::size_t>(o.inputs);
  replay.prioritized = o.prioritized;
  replay.alpha = o.priority_alpha;
  replay.keep_all_rows = o.returns == Returns::kNStep;
  replay.flat = o.family == Family::kFlat;
  replay.max_decisions = static_cast<std::size_t>(o.max_decisions);
  return replay;
}

// Bounds matter to the residual form alone. `row`: the network's inputs, whose last is the range of the bounded form.
RowBase base_of(const LearnerOptions& options, const DecisionView& decision, int action, const float* row) {
  if (!options.residual) return 0.0;
  const double range = bounded(options) ? static_cast<double>(row[options.inputs - 1]) : 0;
  return {static_cast<double>(decision.log_bound[action]), range};
}

}  // namespace

struct Learner::State {
  explicit State(const LearnerOptions& o)
      : options(o),
        loss(loss_options_of(o)),
        shape(shape_of(o)),
        network(shape, o.device, o.threads),
        weights(initial_weights(shape, o.seed)),
        gradient(weights.size()),
        replay(replay_options_of(o)),
        labels(static_cast<std::size_t>(o.replay_labels)) {
    restart(weights);
  }

  bool flat() const { return options.family == Family::kFlat; }
  // The share of a schedule of so many updates that is over; 0: of one that lasts as long as the run.
  double done_of(std::uint64_t schedule_updates) const {
    if (schedule_updates == 0) return progress;
    return std::min(1.0, static_cast<double>(updates) / static_cast<double>(schedule_updates));
  }
  bool uses_labels() const { return options.label_batch > 0 && options.label_weight > 0 && options.replay_labels > 0; }

  void restart(std::vector<float> from) {
    weights = std::move(from);
    adam.first.assign(weights.size(), 0.0f);
    adam.second.assign(weights.size(), 0.0f);
    adam.steps = 0;
    if (options.ema > 0) ema = weights;
    if (options.target_every > 0) target = weights;
  }

  // Rows of the network that a decision's outputs come from.
  std::size_t rows_of(const DecisionView& decision) const {
    return flat() ? 1 : static_cast<std::size_t>(decision.actions);
  }

  // Inputs of an action, those of the decision starting at `rows`.
  const float* row_of(const float* rows, int action) const {
    return flat() ? rows : rows + static_cast<std::size_t>(action) * static_cast<std::size_t>(options.inputs);
  }

  // Outputs [actions][loss.outputs()] of a decision whose first row has outputs `row`.
  const float* action_outputs(const DecisionView& decision, const float* row, std::vector<float>& buffer) const {
    if (!options.dueling) return row;
    buffer.resize(static_cast<std::size_t>(decision.actions * loss.outputs()));
    dueling_forward(row, decision.actions, loss.outputs(), decision.legal, buffer.data());
    return buffer.data();
  }

  // The buffer for the gradient of action_outputs(); finish_gradient() carries it over to the row's, `row`.
  float* action_gradients(const DecisionView& decision, float* row) {
    if (!options.dueling) return row;
    action_gradient.assign(static_cast<std::size_t>(decision.actions * loss.outputs()), 0.0f);
    return action_gradient.data();
  }
  void finish_gradient(const DecisionView& decision, float* row) const {
    if (!options.dueling) return;
    dueling_backward(action_gradient.data(), decision.actions, loss.outputs(), decision.legal, row);
  }

  int best_action(const DecisionView& decision, const float* rows, const float* outputs) {
    int best = -1;
    double best_y = 0;
    for (int a = 0; a < decision.actions; ++a) {
      if (decision.legal && !decision.legal[a]) continue;
      const RowBase base = base_of(options, decision, a, row_of(rows, a));
      const double y = head_y(loss, outputs + a * loss.outputs(), base, scratch);
      if (best < 0 || y < best_y) {
        best = a;
        best_y = y;
      }
    }
    AM_CHECK(best >= 0);
    return best;
  }

  // The parts of the target of one sampled decision; next_row, next_action and `next` belong to the decision n steps
  // later.
  struct Target {
    ReturnTarget returns;
    std::size_t next_row = 0;  // in next_inputs
    int next_action = -1;
    DecisionView next;  // without actions: none
  };

  // The parts of an update, in this order.
  void draw_batch();
  void find_targets();
  void run_network();
  void learn_returns(LearnerMetrics& metrics);
  void learn_labels(LearnerMetrics& metrics);
  void take_step(LearnerMetrics& metrics);
  void follow_weights();
  LearnerMetrics update();

  LearnerOptions options;
  LossOptions loss;
  NetworkShape shape;
  TorchNetwork network;
  std::vector<float> weights, target, ema, gradient;
  AdamState adam;
  std::uint64_t updates = 0;
  double progress = 0;  // of the run
  // The time of the last copy into the target network.
  std::uint64_t copied_updates = 0;
  double copied_progress = 0;
  EpisodeReplay replay;
  LabelReplay labels;

  // Buffers of one update, kept so that it does not allocate.
  LossScratch scratch;
  std::vector<ReplaySample> samples;
  std::vector<const Decision*> label_samples;
  std::vector<DecisionView> views;  // of samples
  std::vector<Target> targets;
  std::vector<float> inputs, net, net_gradient, next_inputs, next_net, next_online;
  std::vector<float> action_buffer, action_gradient, next_outputs;
};

// One row per sampled decision, then the rows of the labelled ones.
void Learner::State::draw_batch() {
  Rng rng(options.seed, kSampleStream, updates);
  const auto in = static_cast<std::size_t>(options.inputs);
  samples.clear();
  if (options.batch > 0) {
    const double beta =
        options.priority_beta + done_of(options.beta_updates) * (options.priority_beta_end - options.priority_beta);
    replay.sample(options.batch, beta, rng, samples);
  }
  label_samples.clear();
  std::size_t rows = samples.size();
  if (uses_labels() && labels.size() > 0) {
    for (int i = 0; i < options.label_batch; ++i) {
      label_samples.push_back(&labels.sample(rng));
      rows += rows_of(view_of(*label_samples.back()));
    }
  }
  inputs.resize(rows * in);
  views.clear();
  float* row = inputs.data();
  for (const ReplaySample& sample : samples) {
    const DecisionView& decision = views.emplace_back(replay.decision(sample.slot, sample.decision));
    const auto first = flat() ? 0 : static_cast<std::size_t>(decision.chosen) * in;
    row = std::copy_n(decision.inputs + first, in, row);
  }
  for (const Decision* decision : label_samples) {
    row = std::copy_n(decision->inputs.data(), decision->inputs.size(), row);
  }
}

void Learner::State::find_targets() {
  const int n = options.returns == Returns::kMonteCarlo ? 0 : options.n_step;
  targets.clear();
  next_inputs.clear();
  std::size_t rows = 0;
  for (const ReplaySample& sample : samples) {
    Target t;
    t.returns = return_target(replay.decisions_of(sample.slot), static_cast<double>(replay.y(sample.slot)),
                              sample.decision, n, options.gamma);
    if (t.returns.bootstrap >= 0) {
      t.next = replay.decision(sample.slot, t.returns.bootstrap);
      t.next_row = rows;
      const std::size_t count = rows_of(t.next);
      rows += count;
      next_inputs.insert(next_inputs.end(), t.next.inputs,
                         t.next.inputs + count * static_cast<std::size_t>(options.inputs));
    }
    targets.push_back(t);
  }
  if (rows == 0) return;
  const auto width = static_cast<std::size_t>(shape.outputs());
  next_net.resize(rows * width);
  const std::vector<float>& valuing = options.target_every > 0 ? target : weights;
  network.forward(valuing.data(), next_inputs.data(), static_cast<int>(rows), next_net.data());
  if (options.double_q) {
    next_online.resize(rows * width);
    network.forward(weights.data(), next_inputs.data(), static_cast<int>(rows), next_online.data());
  }
  const std::vector<float>& choosing = options.double_q ? next_online : next_net;
  for (Target& t : targets) {
    if (t.next.actions == 0) continue;
    t.next_action = best_action(t.next, &next_inputs[t.next_row * static_cast<std::size_t>(options.inputs)],
                                action_outputs(t.next, &choosing[t.next_row * width], action_buffer));
  }
}

void Learner::State::run_network() {
  const std::size_t rows = inputs.size() / static_cast<std::size_t>(options.inputs);
  const auto width = static_cast<std::size_t>(shape.outputs());
  net.resize(rows * width);
  network.forward_training(weights.data(), inputs.data(), static_cast<int>(rows), net.data());
  net_gradient.assign(rows * width, 0.0f);
}

void Learner::State::learn_returns(LearnerMetrics& metrics) {
  const auto width = static_cast<std::size_t>(shape.outputs());
  const auto in = static_cast<std::size_t>(options.inputs);
  const auto outputs = static_cast<std::size_t>(loss.outputs());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Target& t = targets[i];
    const DecisionView& decision = views[i];
    float* row_gradient = net_gradient.data() + i * width;
    std::size_t at = 0;  // of the chosen action's outputs in those
    const RowBase base = base_of(options, decision, decision.chosen, inputs.data() + i * in);
    const double weight = static_cast<double>(samples[i].weight) / static_cast<double>(samples.size());
    if (flat()) at = static_cast<std::size_t>(decision.chosen) * outputs;

    double target_y = t.returns.reward_y;
    const bool distribution_of_next = t.next.actions > 0 && loss.distribution == Distribution::kC51;
    const float* next = nullptr;
    RowBase next_base = 0.0;
    if (t.next.actions > 0) {
      // Both decisions may need the dueling buffer: this one is copied out before the other takes it.
      next = action_outputs(t.next, &next_net[t.next_row * width], action_buffer) +
             static_cast<std::size_t>(t.next_action) * outputs;
      next_base = base_of(options, t.next, t.next_action, row_of(&next_inputs[t.next_row * in], t.next_action));
      if (distribution_of_next) {
        next_outputs.assign(next, next + outputs);
      } else {
        target_y += t.returns.discount * head_y(loss, next, next_base, scratch);
      }
    }
    const float* out = action_outputs(decision, net.data() + i * width, action_buffer);
    float* gradient_out = action_gradients(decision, row_gradient);
    const RowLoss result =
        distribution_of_next ? bootstrap_loss(loss, out + at, base.log_bound, next_outputs.data(), next_base.log_bound,
                                              t.returns.discount, weight, gradient_out + at, scratch)
                             : row_loss(loss, out + at, base, target_y, weight, gradient_out + at, scratch);
    finish_gradient(decision, row_gradient);
    metrics.loss += weight * result.loss;
    replay.set_error(samples[i], std::isfinite(result.error) ? result.error : 0);
  }
}

void Learner::State::learn_labels(LearnerMetrics& metrics) {
  const auto width = static_cast<std::size_t>(shape.outputs());
  const auto in = static_cast<std::size_t>(options.inputs);
  std::size_t at_row = samples.size();
  for (const Decision* label : label_samples) {
    const DecisionView decision = view_of(*label);
    float* row_gradient = net_gradient.data() + at_row * width;
    const float* out = action_outputs(decision, net.data() + at_row * width, action_buffer);
    float* gradient_out = action_gradients(decision, row_gradient);
    const double share = 1 / static_cast<double>(label_samples.size());
    metrics.label_loss +=
        share * label_loss(loss, decision.actions, out, options.residual ? decision.log_bound : nullptr,
                           label->exact_y.data(), decision.legal, static_cast<double>(label->label_limit_y),
                           options.label_temperature, options.label_weight * share, gradient_out, scratch,
                           loss.bounded ? label->inputs.data() + in - 1 : nullptr, options.inputs);
    finish_gradient(decision, row_gradient);
    at_row += rows_of(decision);
  }
}

void Learner::State::take_step(LearnerMetrics& metrics) {
  network.backward(net_gradient.data(), gradient.data());
  metrics.gradient_norm = l2_norm(gradient.data(), gradient.size());
  if (!std::isfinite(metrics.gradient_norm)) {
    throw Error(ErrorKind::kConfig,
                "training diverged: the gradient of update " + std::to_string(updates + 1) + " is not finite (loss " +
                    std::to_string(metrics.loss) + ")",
                "lower the learning rate, and resume from the last checkpoint");
  }
  const bool clipped = options.clip_norm > 0 && metrics.gradient_norm > options.clip_norm;
  const double clip = clipped ? options.clip_norm / metrics.gradient_norm : 1.0;
  metrics.learning_rate =
      cosine_rate(options.learning_rate, options.learning_rate_end, done_of(options.learning_rate_updates));
  AdamOptions adam_options;
  adam_options.epsilon = options.adam_epsilon;
  adam_step(adam_options, metrics.learning_rate, clip, gradient.data(), adam, weights);
}

// The average and the target network.
void Learner::State::follow_weights() {
  if (options.ema > 0) {
    // At first the mean of few: else the random start would be in it for thousands of updates.
    const auto count = static_cast<double>(updates);
    const auto keep = static_cast<float>(std::min(options.ema, (1 + count) / (10 + count)));
    for (std::size_t i = 0; i < weights.size(); ++i) ema[i] = keep * ema[i] + (1 - keep) * weights[i];
  }
  if (options.target_every == 0 || updates - copied_updates < static_cast<std::uint64_t>(options.target_every)) return;
  // A run that goes on behind its end copies as often as it may.
  const double least = options.target_copies > 0 && progress < 1 ? 1.0 / options.target_copies : 0;
  if (progress - copied_progress < least) return;
  target = weights;
  copied_updates = updates;
  copied_progress = progress;
}

LearnerMetrics Learner::State::update() {
  LearnerMetrics metrics;
  draw_batch();
  find_targets();
  run_network();
  learn_returns(metrics);
  learn_labels(metrics);
  take_step(metrics);
  ++updates;
  follow_weights();
  metrics.mean_priority = replay.mean_priority();
  return metrics;
}

Learner::Learner(const LearnerOptions& options) {
  check_options(options);
  state_ = std::make_unique<State>(options);
}

Learner::~Learner() = default;

void Learner::add(Episode episode) {
  State& s = *state_;
  for (const Decision& decision : episode.decisions) {
    const auto actions = static_cast<std::size_t>(decision.actions);
    const auto in = static_cast<std::size_t>(s.options.inputs);
    AM_CHECK(decision.actions >= 1 && decision.chosen >= 0 && decision.chosen < decision.actions);
    AM_CHECK(decision.inputs.size() == (s.flat() ? in : in * actions));
    AM_CHECK(decision.log_bound.size() == (s.flat() ? 0 : actions));
    AM_CHECK(!s.flat() || decision.actions == s.options.actions);
    AM_CHECK(decision.legal.empty() || (s.flat() && decision.legal.size() == actions &&
                                        decision.legal[static_cast<std::size_t>(decision.chosen)]));
    if (decision.exact_y.empty()) continue;
    AM_CHECK(decision.exact_y.size() == actions);
    if (!s.uses_labels()) continue;
    if (s.options.gamma != 1) {
      throw Error(ErrorKind::kUsage, "learner: exact labels need gamma 1",
                  "labels are the y of the best completion, not discounted");
    }
    s.labels.add(decision);
  }
  s.replay.add(episode);
}

std::size_t Learner::episodes() const {
  return state_->replay.episodes();
}

std::size_t Learner::decisions() const {
  return state_->replay.decisions();
}

std::size_t Learner::labels() const {
  return state_->labels.size();
}

bool Learner::ready() const {
  const State& s = *state_;
  if (s.options.batch == 0) return s.labels.size() >= static_cast<std::size_t>(s.options.label_batch);
  return s.replay.decisions() >= static_cast<std::size_t>(s.options.batch);
}

void Learner::set_progress(double progress) {
  state_->progress = std::clamp(progress, state_->progress, 1.0);
}

LearnerMetrics Learner::update() {
  AM_CHECK(ready());
  return state_->update();
}

std::uint64_t Learner::updates() const {
  return state_->updates;
}

Policy Learner::policy(std::string provenance_json) const {
  const State& s = *state_;
  return Policy(architecture_of(s.options), s.options.ema > 0 ? s.ema : s.weights, std::move(provenance_json));
}

void Learner::load_policy(const Policy& policy) {
  Architecture theirs = policy.architecture();
  theirs.objective = state_->options.objective;
  const Architecture ours = architecture_of(state_->options);
  if (!(theirs == ours)) {
    throw Error(ErrorKind::kData, "the policy is a " + describe(theirs) + "; the learner expects a " + describe(ours),
                "choose the options the policy was trained with, or start without it");
  }
  AM_CHECK(policy.weights().size() == state_->weights.size());
  state_->restart(policy.weights());
}

std::string Learner::save_state() const {
  const State& s = *state_;
  ByteWriter out;
  // Growing would need twice the room.
  out.bytes().reserve(s.replay.bytes() + s.labels.bytes() + 5 * sizeof(float) * s.weights.size() + 8192);
  out.bytes().append(kMagic, sizeof kMagic);
  out.put<std::uint32_t>(kStateVersion);
  out.put_string(fingerprint(s.options).dump());
  out.put<std::uint64_t>(s.updates);
  out.put(s.progress);
  out.put<std::uint64_t>(s.copied_updates);
  out.put(s.copied_progress);
  out.put_vector(s.weights);
  out.put_vector(s.adam.first);
  out.put_vector(s.adam.second);
  out.put<std::uint64_t>(s.adam.steps);
  out.put_vector(s.target);
  out.put_vector(s.ema);
  s.replay.save(out);
  s.labels.save(out);
  out.put<std::uint32_t>(crc32c(out.bytes()));
  return std::move(out.bytes());
}

void Learner::load_state(std::string_view bytes, const std::string& source) {
  State& s = *state_;
  if (bytes.substr(0, sizeof kMagic) != std::string_view(kMagic, sizeof kMagic)) {
    throw Error(ErrorKind::kData, source + ": not a learner's checkpoint");
  }
  ByteReader header(bytes.substr(sizeof kMagic), source);
  const auto version = header.get<std::uint32_t>();
  if (version != kStateVersion) {
    throw Error(ErrorKind::kData,
                source + ": checkpoint version " + std::to_string(version) + ", this program reads version " +
                    std::to_string(kStateVersion),
                "resume with the program that wrote it");
  }
  if (bytes.size() < sizeof kMagic + 2 * sizeof(std::uint32_t)) header.fail("it ends too early");
  const std::string_view body = bytes.substr(0, bytes.size() - sizeof(std::uint32_t));
  ByteReader sum(bytes.substr(body.size()), source);
  if (sum.get<std::uint32_t>() != crc32c(body)) header.fail("wrong checksum");

  ByteReader in(body.substr(sizeof kMagic + sizeof version), source);
  const auto theirs = Json::parse_or_null(in.get_string());
  if (!theirs.is_object()) in.fail("its options cannot be read");
  const Json ours = fingerprint(s.options);
  for (const auto& [name, value] : ours.items()) {
    const auto found = theirs.find(name);
    if (found == theirs.end() || *found != value) {
      throw Error(ErrorKind::kConfig,
                  source + ": made with " + name + " = " + (found == theirs.end() ? "(unknown)" : found->dump()) +
                      ", this run has " + name + " = " + value.dump(),
                  "resume with the options of the checkpoint, or start a new run");
    }
  }
  const auto updates = in.get<std::uint64_t>();
  const auto progress = in.get<double>();
  const auto copied_updates = in.get<std::uint64_t>();
  const auto copied_progress = in.get<double>();
  const auto read_weights = [&](std::size_t expected) {
    std::vector<float> values = in.get_vector<float>();
    if (values.size() != expected) in.fail("another number of weights");
    return values;
  };
  const std::size_t count = s.weights.size();
  std::vector<float> weights = read_weights(count);
  AdamState adam;
  adam.first = read_weights(count);
  adam.second = read_weights(count);
  adam.steps = in.get<std::uint64_t>();
  std::vector<float> target = read_weights(s.target.size());
  std::vector<float> ema = read_weights(s.ema.size());
  EpisodeReplay replay(replay_options_of(s.options));
  replay.load(in);
  LabelReplay labels(static_cast<std::size_t>(s.options.replay_labels));
  labels.load(in, static_cast<std::size_t>(s.options.inputs), s.flat());
  if (!in.at_end()) in.fail("more than expected");

  s.updates = updates;
  s.progress = progress;
  s.copied_updates = copied_updates;
  s.copied_progress = copied_progress;
  s.weights = std::move(weights);
  s.adam = std::move(adam);
  s.target = std::move(target);
  s.ema = std::move(ema);
  s.replay = std::move(replay);
  s.labels = std::move(labels);
}

}  // namespace automap::models
