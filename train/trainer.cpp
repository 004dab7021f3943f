#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <utility>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/numbers.h"
#include "common/base/progress.h"
#include "common/base/text_table.h"

namespace automap::train {
namespace {

using Clock = std::chrono::steady_clock;

// Rounds are short enough for the evaluations of a run, and no longer than this.
constexpr int kRounds = 48, kMostRoundPlays = 1024;
// The first round where only a clock says how long a run is; later rounds grow.
constexpr int kFirstRoundPlays = 32;
constexpr char kScoreName[] = "gap/score";

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
        progress_("training", progress_total(), plays_asked() > 0 ? "episodes" : "") {
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
      start_policy_ = resume->start_policy;
      restore_policy_file();
      for (const CurvePoint& point : resume->curve) {
        for (const auto& [name, value] : point.values) {
          if (name == kScoreName) last_score_ = value;
        }
      }
    } else {
      acting_ = publish();
      start_policy_ = settings.start_policy;
      counters_.round_problems = static_cast<std::uint64_t>(first_round_problems());
    }
    session_updates_ = learner_.updates();
  }

  TrainResult run() {
    std::string reason;
    bool stopped = false;
    auto last_checkpoint = Clock::now();
    begin_round(acting_);
    finish_round();
    for (;;) {
      // Here the plays of the round stand ready and have not been learned from: this is what a checkpoint holds.
      counters_.seconds = earlier_seconds_ + trained_s();
      stopped = players_.stop_requested() || (settings_.stop_requested && settings_.stop_requested());
      if (stopped) reason = "a signal";
      // A round that could not be played to its end is played again by the next session.
      if (!players_.lost().empty()) {
        stopped = true;
        reason = "the loss of a process: " + players_.lost();
      }
      const bool time_over = !settings_.deterministic && counters_.seconds >= settings_.time_s;
      const bool plays_over = plays_asked() > 0 && static_cast<double>(counters_.plays) >= plays_asked();
      if (reason.empty() && plays_over) {
        reason = std::to_string(counters_.plays) + " episodes";
        if (settings_.episodes == 0) reason += ", which stand for " + format_ms(settings_.time_s * 1e3) + " of --time";
      }
      if (reason.empty() && time_over) reason = format_ms(settings_.time_s * 1e3) + " of training";
      // The last policy is looked at too, whatever the rhythm; an interrupted session leaves that to the next one.
      if (!stopped && (evaluation_is_due() || (!reason.empty() && !is_evaluated()))) {
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
    TrainResult out{counters_, stopped, reason, 0, 0, 0, 0, 0, 0, policy_of(best_policy_), policy_of(start_policy_)};
    out.session_seconds = trained_s();
    out.session_plays = counters_.plays - session_plays_;
    out.session_steps = counters_.steps - session_steps_;
    out.session_after_states = counters_.after_states - session_after_states_;
    out.session_updates = learner_.updates() - session_updates_;
    out.learner_seconds = learner_seconds_;
    return out;
  }

 private:
  // The session's seconds of training; evaluations are left out.
  double trained_s() const { return seconds_since(start_) - evaluation_seconds_; }

  // True if what is learned depends on a clock.
  bool by_clock() const { return !settings_.deterministic && settings_.time_s < kNoTimeLimit; }
  // The plays asked for, or those that stand for the time; 0: only a clock says when the run is over.
  double plays_asked() const {
    const double episodes = settings_.episodes > 0 ? static_cast<double>(settings_.episodes) : kInfinity;
    const double of_time = settings_.deterministic ? std::ceil(kPlaysPerSecond * settings_.time_s) : kInfinity;
    const double least = std::min(episodes, of_time);
    return std::isfinite(least) ? least : 0;
  }
  // The share of the run that is over after so many plays and seconds of training; above 1 when the run goes on beyond
  // it.
  double share_at(double plays, double seconds) const {
    const double of_plays = plays_asked() > 0 ? plays / plays_asked() : 0;
    return by_clock() ? std::max(of_plays, seconds / settings_.time_s) : of_plays;
  }

  bool evaluation_is_due() const {
    if (counters_.evaluations == 0) return true;
    if (settings_.evaluate_every > 0) return counters_.plays >= counters_.evaluated_plays + settings_.evaluate_every;
    const auto part = [](double share) { return std::floor(kEvaluations * share); };
    return part(share_at(static_cast<double>(counters_.plays), counters_.seconds)) >
           part(share_at(static_cast<double>(counters_.evaluated_plays), counters_.evaluated_seconds));
  }
  // The weights as they are.
  bool is_evaluated() const { return counters_.evaluations > 0 && counters_.evaluated_plays == counters_.plays; }

  int most_round_problems() const {
    const double plays =
        plays_asked() > 0 ? std::min<double>(kMostRoundPlays, plays_asked() / kRounds) : kMostRoundPlays;
    return std::max(1, static_cast<int>(plays) / settings_.play.plays);
  }
  int first_round_problems() const {
    if (settings_.round_problems > 0) return settings_.round_problems;
    const int most = most_round_problems();
    return by_clock() ? std::clamp(kFirstRoundPlays / settings_.play.plays, 1, most) : most;
  }
  int next_round() const {
    if (settings_.round_problems > 0) return settings_.round_problems;
    const int most = most_round_problems();
    if (!by_clock()) return most;
    return next_round_problems(learned_problems_, static_cast<int>(counters_.round_problems), last_round_s_,
                               settings_.time_s / kRounds, most);
  }

  std::uint64_t progress_total() const {
    return static_cast<std::uint64_t>(plays_asked() > 0 ? plays_asked() : std::min(settings_.time_s, kNoTimeLimit));
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

  // Empty: stopped before the first evaluation.
  models::Policy policy_of(const std::string& bytes) const {
    return bytes.empty() ? learner_.policy(provenance()) : models::Policy::parse(bytes, "policy of the run");
  }

  void begin_round(std::shared_ptr<const models::Policy> policy) {
    players_.begin(counters_.next_problem, static_cast<std::size_t>(counters_.round_problems), std::move(policy),
                   counters_.progress);
  }
  void finish_round() { played_ = players_.finish(); }

  // Learns from the plays that stand ready while the next ones are played.
  void round() {
    const auto begin = Clock::now();
    const auto plays_before = static_cast<double>(counters_.plays);
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
    counters_.next_problem += counters_.round_problems;
    const int learned = static_cast<int>(counters_.round_problems);
    counters_.round_problems = static_cast<std::uint64_t>(next_round());
    learned_problems_ = learned;
    // Schedules do not go back in a run that is resumed for longer.
    const double share = share_at(static_cast<double>(counters_.plays), counters_.seconds);
    counters_.progress = std::clamp(share, counters_.progress, 1.0);
    std::shared_ptr<const models::Policy> published = publish();
    begin_round(published);
    try {
      learn(decisions, plays_before);
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
    last_round_s_ = seconds_since(begin);
    show_progress();
  }

  // `plays_before`: learned from before this round, whose updates are spread over its plays.
  void learn(std::uint64_t decisions, double plays_before) {
    const auto start = Clock::now();
    counters_.update_credit += settings_.replay_ratio * static_cast<double>(decisions) / std::max(1, settings_.batch);
    double loss = 0, label_loss = 0, rate = 0;
    int updates = 0;
    const double round_plays = static_cast<double>(counters_.plays) - plays_before;
    const double owed = std::max(1.0, std::floor(counters_.update_credit));
    while (counters_.update_credit >= 1 && learner_.ready()) {
      learner_.set_progress(share_at(plays_before + round_plays * updates / owed, earlier_seconds_ + trained_s()));
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
    if (plays_asked() == 0) {
      note = format_number(static_cast<double>(counters_.plays - session_plays_) / seconds) + " episodes/s  ";
    }
    note += "gap " + gap_text(last_score_) + " (best " + gap_text(counters_.best_score) + ")";
    progress_.update(plays_asked() > 0 ? counters_.plays : static_cast<std::uint64_t>(earlier_seconds_ + seconds),
                     note);
  }

  void evaluate() {
    // Played by the same pool, so between two rounds; the plays that stand ready are not touched.
    const auto begin = Clock::now();
    const models::Policy policy = learner_.policy("{}");
    const std::vector<PlannerLengths> lengths = evaluation_.plan(policy, pool_);
    const double score = evaluation_.score(lengths);
    last_score_ = score;
    const double took_s = seconds_since(begin);
    evaluation_seconds_ += took_s;
    counters_.evaluation_seconds += took_s;
    ++counters_.evaluations;
    counters_.evaluated_plays = counters_.plays;
    counters_.evaluated_seconds = counters_.seconds;
    before_writing();
    // The start is looked at first, and what is learned has to be better.
    const bool is_start = best_policy_.empty();
    if (is_start) counters_.start_score = score;
    const bool better = is_start || score < counters_.best_score;
    if (better) {
      counters_.best_score = score;
      counters_.best_episodes = counters_.plays;
      counters_.evaluations_since_best = 0;
      const bool as_it_came = is_start && !start_policy_.empty();
      best_policy_ = as_it_came ? start_policy_ : learner_.policy(provenance()).serialize();
      if (is_start) start_policy_ = best_policy_;
      write_file_atomic(settings_.folder + "/policy.bin", best_policy_);
    } else {
      ++counters_.evaluations_since_best;
    }

    CurvePoint point;
    point.episodes = counters_.plays;
    point.seconds = counters_.seconds;
    point.unix_time = unix_time();
    auto& values = point.values;
    values.emplace_back(kScoreName, score);
    values.emplace_back("gap/best", counters_.best_score);
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
    models::PlayOptions play = settings_.play;
    play.progress = counters_.progress;
    values.emplace_back("train/epsilon", models::epsilon_of_play(play, counters_.plays / 8 * 8));
    values.emplace_back("train/progress",
                        std::min(1.0, share_at(static_cast<double>(counters_.plays), counters_.seconds)));
    values.emplace_back("train/evaluation_s", counters_.evaluation_seconds);
    const double seconds = trained_s();
    values.emplace_back("train/episodes_per_s", static_cast<double>(counters_.plays - session_plays_) / seconds);
    const auto feasible = static_cast<double>(counters_.plays - counters_.infeasible);
    values.emplace_back("train/y", feasible > 0 ? counters_.y / feasible : 0);
    curves_.add(std::move(point));
    log_verbose(std::to_string(counters_.plays) + " episodes: mean gap " + gap_text(score) +
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
    out.start_policy = start_policy_;
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
  std::string best_policy_, start_policy_;
  int learned_problems_ = 0;  // whose plays were learned from in the last round
  Clock::time_point start_ = Clock::now();
  double earlier_seconds_ = 0, evaluation_seconds_ = 0, learner_seconds_ = 0, loss_ = 0, label_loss_ = 0,
         learning_rate_ = 0, last_score_ = 0, last_round_s_ = 0;
  std::uint64_t session_plays_ = 0, session_steps_ = 0, session_after_states_ = 0, session_updates_ = 0;
};

}  // namespace

int next_round_problems(int learned, int played, double seconds, double wanted_s, int most) {
  constexpr double kMostChange = 2;
  if (seconds <= 0) return std::clamp(played, 1, most);
  const double problems = 0.5 * (learned + played) * wanted_s / seconds;
  const double next = std::sqrt(problems * played);
  return std::clamp(static_cast<int>(std::lround(std::clamp(next, played / kMostChange, played * kMostChange))), 1,
                    most);
}

TrainResult train(LearnerPort& learner, const ProblemSource& source, const Evaluation& evaluation, WorkerPool& pool,
                  const TrainerSettings& settings, Checkpoint* resume) {
  return Trainer(learner, source, evaluation, pool, settings, resume).run();
}

}  // namespace automap::train
