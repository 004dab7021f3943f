#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <utility>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/text_table.h"

namespace automap::train {
namespace {

using Clock = std::chrono::steady_clock;

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class Trainer {
 public:
  Trainer(LearnerPort& learner, const ProblemSource& source, const Evaluation& evaluation, WorkerPool& pool,
          const TrainerSettings& settings, Checkpoint* resume)
      : learner_(learner),
        source_(source),
        evaluation_(evaluation),
        pool_(pool),
        settings_(settings),
        local_players_(source, settings.play, settings.seed, pool),
        players_(settings.players ? *settings.players : local_players_),
        counters_(resume ? resume->counters : TrainCounters{}),
        curves_(settings.folder, resume ? resume->curve : std::vector<CurvePoint>{}),
        progress_("training", progress_total(), settings.episodes > 0 ? "episodes" : "") {
    earlier_seconds_ = counters_.seconds;
    session_plays_ = counters_.plays;
    session_steps_ = counters_.steps;
    session_after_states_ = counters_.after_states;
    if (resume) {
      learner_.load_state(resume->learner_state, settings.folder + "/checkpoint");
      std::string().swap(resume->learner_state);
      acting_ = std::make_shared<const models::Policy>(
          models::Policy::parse(resume->acting_policy, settings.folder + "/checkpoint"));
      best_policy_ = resume->best_policy;
      restore_policy_file();
    } else {
      acting_ = publish();
    }
    session_updates_ = learner_.updates();
  }

  TrainResult run() {
    std::string reason;
    bool stopped = false;
    auto last_checkpoint = Clock::now();
    begin_round(counters_.next_problem, acting_);
    finish_round();
    for (;;) {
      // Here the plays of the round stand ready and have not been learned from: this is what a checkpoint holds.
      counters_.seconds = earlier_seconds_ + trained_s();
      stopped = players_.stop_requested() || (settings_.stop_requested && settings_.stop_requested());
      if (stopped) reason = "a signal";
      // The round that could not be played to its end is played again by whoever goes on.
      if (!players_.lost().empty()) {
        stopped = true;
        reason = "the loss of a process: " + players_.lost();
      }
      const bool time_over = counters_.seconds >= settings_.time_s;
      const bool plays_over = settings_.episodes > 0 && counters_.plays >= settings_.episodes;
      if (reason.empty() && plays_over) reason = std::to_string(counters_.plays) + " episodes";
      if (reason.empty() && time_over) reason = format_ms(settings_.time_s * 1e3) + " of training";
      // The last policy is looked at too, whatever the rhythm; an interrupted session leaves that to the next one.
      if (!stopped && (counters_.plays >= counters_.next_evaluation || !reason.empty())) {
        evaluate();
        if (reason.empty() && settings_.patience > 0 && counters_.evaluations_since_best >= settings_.patience) {
          reason = "no better policy in " + std::to_string(settings_.patience) + " evaluations";
        }
      }
      if (!reason.empty()) break;
      if (seconds_since(last_checkpoint) >= settings_.checkpoint_every_s) {
        checkpoint();
        last_checkpoint = Clock::now();
      }
      round();
    }
    checkpoint();
    progress_.finish();
    TrainResult out{counters_, stopped, reason, 0, 0, 0, 0, 0, 0, best()};
    out.session_seconds = trained_s();
    out.session_plays = counters_.plays - session_plays_;
    out.session_steps = counters_.steps - session_steps_;
    out.session_after_states = counters_.after_states - session_after_states_;
    out.session_updates = learner_.updates() - session_updates_;
    out.learner_seconds = learner_seconds_;
    return out;
  }

 private:
  // Of this session, looks at held-out problems left out: they are no training.
  double trained_s() const { return seconds_since(start_) - evaluation_seconds_; }

  std::uint64_t progress_total() const {
    return settings_.episodes > 0 ? settings_.episodes : static_cast<std::uint64_t>(std::min(settings_.time_s, 1e9));
  }

  // A killed session may have left a policy that its last checkpoint does not know, and that the curves and the report
  // would then not speak of.
  void restore_policy_file() const {
    if (best_policy_.empty()) return;
    before_writing();
    const std::string path = settings_.folder + "/policy.bin";
    if (std::filesystem::exists(path) && read_own_file(path) == best_policy_) return;
    write_file_atomic(path, best_policy_);
  }

  void before_writing() const {
    if (settings_.before_writing) settings_.before_writing();
  }

  std::string provenance() const { return settings_.provenance ? settings_.provenance(counters_) : "{}"; }

  std::shared_ptr<const models::Policy> publish() const {
    return std::make_shared<const models::Policy>(learner_.policy("{}"));
  }

  models::Policy best() const {
    return best_policy_.empty() ? learner_.policy(provenance()) : models::Policy::parse(best_policy_, "best policy");
  }

  void begin_round(std::uint64_t first_problem, std::shared_ptr<const models::Policy> policy) {
    players_.begin(first_problem, static_cast<std::size_t>(settings_.round_problems), std::move(policy));
  }
  void finish_round() { played_ = players_.finish(); }

  // Learns from the plays that stand ready while the next ones are played.
  void round() {
    std::uint64_t decisions = 0;
    for (models::Played& played : played_) {
      counters_.plays += played.plays;
      counters_.steps += played.steps;
      counters_.after_states += played.after_states;
      counters_.labelled += played.labelled;
      counters_.infeasible += played.infeasible;
      counters_.y += played.y;
      decisions += played.decisions;
      for (models::Episode& episode : played.episodes) learner_.add(std::move(episode));
    }
    counters_.decisions += decisions;
    counters_.next_problem += static_cast<std::uint64_t>(settings_.round_problems);
    std::shared_ptr<const models::Policy> published = publish();
    begin_round(counters_.next_problem, published);
    try {
      learn(decisions);
    } catch (...) {
      // The actors are still at it.
      try {
        finish_round();
      } catch (...) {
      }
      throw;
    }
    finish_round();
    acting_ = std::move(published);
    ++counters_.round;
    show_progress();
  }

  void learn(std::uint64_t decisions) {
    const auto start = Clock::now();
    counters_.update_credit += settings_.replay_ratio * static_cast<double>(decisions) / std::max(1, settings_.batch);
    double loss = 0, label_loss = 0, rate = 0;
    int updates = 0;
    while (counters_.update_credit >= 1 && learner_.ready()) {
      const models::LearnerMetrics metrics = learner_.update();
      counters_.update_credit -= 1;
      loss += metrics.loss;
      label_loss += metrics.label_loss;
      rate = metrics.learning_rate;
      ++updates;
    }
    // Only what the replay was not full enough for is not owed: updates per play are part of the recipe, whatever the
    // threads are.
    counters_.update_credit -= std::floor(counters_.update_credit);
    learner_seconds_ += seconds_since(start);
    if (updates == 0) return;
    loss_ = loss / updates;
    label_loss_ = label_loss / updates;
    learning_rate_ = rate;
  }

  void show_progress() {
    const double seconds = trained_s();
    std::string note;
    if (settings_.episodes == 0) {
      note = format_number(static_cast<double>(counters_.plays - session_plays_) / seconds) + " episodes/s  ";
    }
    note += "gap " + format_percent(last_score_) + " (best " + format_percent(counters_.best_score) + ")";
    progress_.update(settings_.episodes > 0 ? counters_.plays : static_cast<std::uint64_t>(earlier_seconds_ + seconds),
                     note);
  }

  void evaluate() {
    // Played by the same pool, so between two rounds; the plays that stand ready are not touched.
    const auto begin = Clock::now();
    const models::Policy policy = learner_.policy("{}");
    const std::vector<PlannerLengths> lengths = evaluation_.plan(policy, pool_);
    const double score = evaluation_.score(lengths);
    last_score_ = score;
    evaluation_seconds_ += seconds_since(begin);
    ++counters_.evaluations;
    before_writing();
    // Weights that nothing was learned with are not the best of a run, unless it started from a policy.
    const bool unlearned = counters_.best_episodes == 0 && !settings_.starts_from_policy && learner_.updates() > 0;
    const bool better = best_policy_.empty() || unlearned || score < counters_.best_score;
    if (better) {
      counters_.best_score = score;
      counters_.best_episodes = counters_.plays;
      counters_.evaluations_since_best = 0;
      best_policy_ = learner_.policy(provenance()).serialize();
      write_file_atomic(settings_.folder + "/policy.bin", best_policy_);
    } else {
      ++counters_.evaluations_since_best;
    }
    counters_.next_evaluation = counters_.plays + std::max<std::uint64_t>(1, settings_.evaluate_every);

    CurvePoint point;
    point.episodes = counters_.plays;
    point.seconds = counters_.seconds;
    point.unix_time = unix_time();
    auto& values = point.values;
    values.emplace_back("gap/score", score);
    for (const PlannerLengths& planner : lengths) {
      for (int set = 0; set < kHeldOutSets; ++set) {
        const Quality q = evaluation_.quality(planner, set);
        if (q.problems == 0) continue;
        const std::string name = std::string(to_string(static_cast<HeldOutSet>(set))) + "/" + planner.planner + "/";
        values.emplace_back(name + "mean", q.mean);
        values.emplace_back(name + "median", q.median);
        values.emplace_back(name + "p95", q.p95);
        values.emplace_back(name + "max", q.max);
        values.emplace_back(name + "optimal", q.optimal);
      }
    }
    values.emplace_back("train/updates", static_cast<double>(learner_.updates()));
    values.emplace_back("train/steps", static_cast<double>(counters_.steps));
    values.emplace_back("train/labelled", static_cast<double>(counters_.labelled));
    values.emplace_back("train/loss", loss_);
    values.emplace_back("train/label_loss", label_loss_);
    values.emplace_back("train/learning_rate", learning_rate_);
    values.emplace_back("train/epsilon", models::epsilon_of_play(settings_.play, counters_.plays / 8 * 8));
    const double seconds = trained_s();
    values.emplace_back("train/episodes_per_s", static_cast<double>(counters_.plays - session_plays_) / seconds);
    const auto feasible = static_cast<double>(counters_.plays - counters_.infeasible);
    values.emplace_back("train/y", feasible > 0 ? counters_.y / feasible : 0);
    curves_.add(std::move(point));
    log_verbose(std::to_string(counters_.plays) + " episodes: mean gap " + format_percent(score) +
                (better ? ", the best so far" : ""));
  }

  void checkpoint() {
    Checkpoint out;
    out.options = settings_.options;
    out.data = source_.fingerprint();
    counters_.seconds = earlier_seconds_ + trained_s();
    out.counters = counters_;
    out.curve = curves_.points();
    out.learner_state = learner_.save_state();
    out.acting_policy = acting_->serialize();
    out.best_policy = best_policy_;
    before_writing();
    save_checkpoint(settings_.folder + "/checkpoint", out);
  }

  LearnerPort& learner_;
  const ProblemSource& source_;
  const Evaluation& evaluation_;
  WorkerPool& pool_;
  const TrainerSettings& settings_;
  LocalPlayers local_players_;
  Players& players_;
  TrainCounters counters_;
  Curves curves_;
  Progress progress_;
  std::shared_ptr<const models::Policy> acting_;  // what the plays that stand ready were played with
  std::vector<models::Played> played_;
  std::string best_policy_;
  Clock::time_point start_ = Clock::now();
  double earlier_seconds_ = 0, evaluation_seconds_ = 0, learner_seconds_ = 0, loss_ = 0, label_loss_ = 0,
         learning_rate_ = 0, last_score_ = 1;
  std::uint64_t session_plays_ = 0, session_steps_ = 0, session_after_states_ = 0, session_updates_ = 0;
};

}  // namespace

TrainResult train(LearnerPort& learner, const ProblemSource& source, const Evaluation& evaluation, WorkerPool& pool,
                  const TrainerSettings& settings, Checkpoint* resume) {
  return Trainer(learner, source, evaluation, pool, settings, resume).run();
}

}  // namespace automap::train
