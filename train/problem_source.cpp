#include "train/problem_source.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/rng.h"
#include "common/io/dataset.h"
#include "common/pipeline/coarse_profile.h"
#include "common/pipeline/exact.h"
#include "datagen/distributions.h"

namespace automap::train {
namespace {

using pipeline::Replicas;
using pipeline::RowProblem;

constexpr std::uint32_t kModelStream = 0x66696e65, kHeldOutStream = 0x68656c64;

TrainingProblem problem_of(const RowProblem& row) {
  TrainingProblem problem;
  problem.parts = pipeline::problem_of_row(row);
  problem.stages = row.stages;
  problem.schedule = row.schedule;
  problem.family = row.distribution;
  return problem;
}

class Synthetic : public ProblemSource {
 public:
  Synthetic(datagen::Generator generator, std::uint64_t seed) : generator_(std::move(generator)), seed_(seed) {}
  TrainingProblem problem(std::uint64_t i) const override { return problem_of(generator_.row(seed_, i)); }
  const std::vector<std::string>& families() const override { return generator_.distributions(); }
  std::string fingerprint() const override {
    return "synth " + sha256_hex(generator_.config_json()).substr(0, 16) + " seed " + std::to_string(seed_);
  }

 private:
  datagen::Generator generator_;
  std::uint64_t seed_;
};

class Dataset : public ProblemSource {
 public:
  Dataset(const std::string& folder, io::RowChecks checks, Rows rows) : reader_(folder, checks), rows_(rows) {
    if (rows_ == Rows::kAll || reader_.size() >= 2 * kRowsPerHeldOut) return;
    if (rows_ == Rows::kAllChosenBy || rows_ == Rows::kAllJudgedBy) {
      if (reader_.size() >= 2) return;
      throw Error(ErrorKind::kData,
                  folder + " has " + std::to_string(reader_.size()) +
                      " rows: half of them choose the best policy, the others are for --evaluate and --compare",
                  "generate at least 2");
    }
    throw Error(ErrorKind::kData,
                folder + " has " + std::to_string(reader_.size()) + " rows, too few to hold one in " +
                    std::to_string(kRowsPerHeldOut) + " out",
                "generate at least " + std::to_string(2 * kRowsPerHeldOut) +
                    " rows, or give --evaluate-data, of which all rows are held out");
  }
  TrainingProblem problem(std::uint64_t i) const override {
    const std::uint64_t row = row_of(i % size());
    TrainingProblem problem = problem_of(reader_.row(row));
    if (!reader_.has_oracle()) return problem;
    if (const auto label = reader_.oracle(row); label && !label->cuts.empty()) {
      problem.optimum = pipeline::Plan{label->cuts, label->device_cuts, problem.schedule, label->variants};
      problem.optimum_ms = label->length_ms;
    }
    return problem;
  }
  std::uint64_t size() const override {
    const std::uint64_t blocks = reader_.size() / kRowsPerHeldOut;
    switch (rows_) {
      case Rows::kLearned: return reader_.size() - blocks;
      case Rows::kChosenBy: return (blocks + 1) / 2;
      case Rows::kJudgedBy: return blocks / 2;
      case Rows::kAllChosenBy: return (reader_.size() + 1) / 2;
      case Rows::kAllJudgedBy: return reader_.size() / 2;
      default: return reader_.size();
    }
  }
  const std::vector<std::string>& families() const override { return reader_.distributions(); }
  std::string fingerprint() const override {
    const char* part = rows_ == Rows::kAll                                          ? ""
                       : rows_ == Rows::kLearned                                    ? ", one row in 16 held out"
                       : rows_ == Rows::kAllChosenBy || rows_ == Rows::kAllJudgedBy ? ", every other row"
                                                                                    : ", rows held out of it";
    const bool judged = rows_ == Rows::kJudgedBy || rows_ == Rows::kAllJudgedBy;
    return "dataset " + reader_.fingerprint() + part + (judged ? " to judge by" : "");
  }

 private:
  // The row that block `block` holds out.
  static std::uint64_t held_out(std::uint64_t block) {
    return block * kRowsPerHeldOut + Rng(0, kHeldOutStream, block).below(kRowsPerHeldOut);
  }
  // The one of two rows that chooses; the other one judges.
  static std::uint64_t chosen_of_two(std::uint64_t pair) { return Rng(1, kHeldOutStream, pair).below(2); }
  std::uint64_t row_of(std::uint64_t i) const {
    if (rows_ == Rows::kAll) return i;
    if (rows_ == Rows::kAllChosenBy) return std::min(2 * i + chosen_of_two(i), reader_.size() - 1);
    if (rows_ == Rows::kAllJudgedBy) return 2 * i + 1 - chosen_of_two(i);
    if (rows_ == Rows::kChosenBy) return held_out(2 * i);
    if (rows_ == Rows::kJudgedBy) return held_out(2 * i + 1);
    const std::uint64_t block = i / (kRowsPerHeldOut - 1), blocks = reader_.size() / kRowsPerHeldOut;
    if (block >= blocks) return i + blocks;  // the rest that makes no block
    const std::uint64_t row = i + block;     // were the block's last row the one held out
    return row >= held_out(block) ? row + 1 : row;
  }

  io::DatasetReader reader_;
  Rows rows_;
};

class Model : public ProblemSource {
 public:
  Model(const pipeline::Profile& profile, machine::Cluster cluster, const pipeline::ProblemOptions& options,
        std::uint64_t seed, bool exactly)
      : profile_(grid_profile(profile)),
        cluster_(std::move(cluster)),
        options_(options),
        seed_(seed),
        exactly_(exactly),
        families_{profile.model.empty() ? "model" : profile.model} {
    std::string all = profile.source_sha256 + profile.model + " " + std::to_string(profile.size()) + " " +
                      std::to_string(options.micro_batches) + " " + to_string(options.replicas) + " " +
                      std::to_string(options.variants.size()) + " " + machine::to_json_text(cluster_);
    const auto add = [&all](const std::vector<double>& values) {
      all.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
    };
    add({profile.forward_fraction, profile.micro_batch_size});
    for (const std::vector<double>* values :
         {&profile.c_ms, &profile.a_bytes, &profile.w_bytes, &profile.stash_bytes, &profile.gradient_bytes,
          &profile.slot_bytes, &profile.frozen_bytes, &profile.workspace_bytes, &profile.layer_entry_bytes,
          &profile.stage_entry_bytes}) {
      add(*values);
    }
    for (const pipeline::SharedWeight& shared : profile.shared) {
      add({static_cast<double>(shared.first), static_cast<double>(shared.position), shared.weight_bytes,
           shared.gradient_bytes, shared.slot_bytes});
    }
    for (const pipeline::DeviceTimes& times : profile.times) {
      all += times.device;
      for (const auto* table : {&times.forward_ms, &times.backward_ms}) {
        for (const std::vector<double>& values : *table) add(values);
      }
      add(times.samples);
      add(times.optimizer_ms);
    }
    fingerprint_ = "model " + sha256_hex(all).substr(0, 16) + " seed " + std::to_string(seed);
  }

  std::uint64_t size() const override { return exactly_ ? static_cast<std::uint64_t>(most_stages(cluster_) - 1) : 0; }

  TrainingProblem problem(std::uint64_t i) const override {
    TrainingProblem problem;
    problem.parts = {profile_, cluster_, options_};
    problem.schedule =
        options_.replicas == Replicas::kWhole ? pipeline::Schedule::kAdaptive : pipeline::Schedule::k1f1b;
    if (exactly_) {
      problem.stages = 2 + static_cast<int>(i % size());
      choose_samples(1, problem);
      return problem;
    }
    Rng rng(seed_, kModelStream, i);
    const auto factor = [&](double most) { return std::exp(rng.uniform(-1, 1) * std::log(most)); };
    // A third of the problems keeps the model as it is.
    if (rng.uniform() > 1.0 / 3) {
      const double compute = factor(1.5), activation = factor(1.5), weight = factor(1.5), noise = rng.uniform(0, 0.3);
      vary(compute, activation, weight, noise, rng, problem.parts.profile);
    }
    machine::Cluster& c = problem.parts.cluster;
    if (rng.uniform() > 1.0 / 3) {
      const double intra = factor(2), inter = factor(2);
      for (machine::ServerGroup& group : c.servers) {
        group.intra_gbytes_per_s *= intra;
        group.inter_gbytes_per_s *= inter;
        if (rng.uniform() < 0.3) group.count = std::max(1, group.count + (rng.uniform() < 0.5 ? -1 : 1));
      }
      if (c.num_devices() < 2 || c.num_devices() > machine::kMaxDevices) c = cluster_;
    }
    problem.parts.options.micro_batches =
        std::clamp(static_cast<int>(std::lround(options_.micro_batches * factor(4))), 1, 65536);
    problem.stages = 2 + static_cast<int>(rng.below(static_cast<std::uint64_t>(most_stages(c) - 1)));
    if (rng.uniform() < 0.2) problem.schedule = pipeline::Schedule::k1f1bOverlap;
    choose_samples(1 << rng.below(4), problem);
    return problem;
  }

  const std::vector<std::string>& families() const override { return families_; }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  // Whole samples: `times` the profile's micro-batch, and more where the stages could not share the devices; the step
  // keeps its samples as far as it can.
  static void choose_samples(int times, TrainingProblem& problem) {
    pipeline::ProblemOptions& options = problem.parts.options;
    if (options.replicas != Replicas::kWhole) return;
    const pipeline::Profile& profile = problem.parts.profile;
    const int batch = std::max(1, static_cast<int>(profile.micro_batch_size)),
              devices = problem.parts.cluster.num_devices();
    const double reach = pipeline::most_samples(profile);
    const auto works = [&](int by) {
      return batch * static_cast<double>(by) <= reach * devices &&
             pipeline::groups_exist(devices, problem.stages, batch * by);
    };
    constexpr int kMostTimes = 64;
    int chosen = times;
    while (chosen <= kMostTimes && !works(chosen)) chosen *= 2;
    // As many samples as devices can be shared by any number of stages.
    if (chosen > kMostTimes) chosen = devices;
    options.micro_batch_samples = batch * chosen;
    options.micro_batches = std::max(1, options.micro_batches / chosen);
  }

  static void vary(double compute, double activation, double weight, double noise, Rng& rng, pipeline::Profile& p) {
    for (pipeline::SharedWeight& shared : p.shared) {
      for (double* bytes : {&shared.weight_bytes, &shared.gradient_bytes, &shared.slot_bytes}) *bytes *= weight;
    }
    for (std::size_t k = 0; k < p.c_ms.size(); ++k) {
      const double c = compute * std::exp(noise * rng.uniform(-1, 1));
      const double a = activation * std::exp(noise * rng.uniform(-1, 1));
      const double w = weight * std::exp(noise * rng.uniform(-1, 1));
      p.c_ms[k] *= c;
      p.a_bytes[k] *= a;
      p.w_bytes[k] *= w;
      if (!p.gradient_bytes.empty()) p.gradient_bytes[k] *= w;
      if (!p.slot_bytes.empty()) p.slot_bytes[k] *= w;
      for (pipeline::DeviceTimes& times : p.times) {
        for (std::vector<double>& row : times.forward_ms) row[k] *= c;
        for (std::vector<double>& row : times.backward_ms) row[k] *= c;
        times.optimizer_ms[k] *= w;
      }
    }
  }

  int most_stages(const machine::Cluster& cluster) const {
    return std::min({16, cluster.num_devices(), static_cast<int>(profile_.size())});
  }

  pipeline::Profile profile_;
  machine::Cluster cluster_;
  pipeline::ProblemOptions options_;
  std::uint64_t seed_;
  bool exactly_;
  std::vector<std::string> families_;
  std::string fingerprint_;
};

}  // namespace

std::unique_ptr<ProblemSource> open_source(const std::string& data, std::uint64_t seed,
                                           const std::vector<std::string>& only,
                                           const std::vector<std::string>& without, bool trust_data, Rows rows) {
  constexpr const char* kPrefix = "synth:";
  if (data.rfind(kPrefix, 0) == 0) {
    datagen::Generator generator = datagen::Generator::load(data.substr(6));
    if (!only.empty()) generator = generator.only(only);
    if (!without.empty()) generator = generator.without(without);
    return std::make_unique<Synthetic>(std::move(generator), seed);
  }
  if (!only.empty() || !without.empty()) {
    throw Error(ErrorKind::kUsage,
                "--only and --without choose among a generator's families, and --data is '" + data + "', a dataset",
                "use --data synth:CONFIG, or generate a dataset of those families");
  }
  return std::make_unique<Dataset>(data, trust_data ? io::RowChecks::kNone : io::RowChecks::kBeforeUse, rows);
}

std::unique_ptr<ProblemSource> model_source(const pipeline::Profile& profile, const machine::Cluster& cluster,
                                            const pipeline::ProblemOptions& options, std::uint64_t seed, bool exactly) {
  if (cluster.num_devices() < 2) {
    throw Error(ErrorKind::kConfig, "cluster " + cluster.name + " has one device, fine-tuning needs at least two");
  }
  if (profile.size() < 2) {
    throw Error(ErrorKind::kData, "the profile of " + (profile.model.empty() ? "the model" : profile.model) + " has " +
                                      std::to_string(profile.size()) +
                                      " instructions, fine-tuning needs at least two: there is nothing to cut");
  }
  return std::make_unique<Model>(profile, cluster, options, seed, exactly);
}

pipeline::Profile grid_profile(const pipeline::Profile& profile) {
  const int n = static_cast<int>(profile.size());
  std::vector<int> ends = pipeline::grid_pivots(n, pipeline::kGranularity);
  ends.push_back(n);
  return pipeline::coarse_profile(profile, ends);
}

pipeline::ProblemOptions options_of_model(const pipeline::Profile& profile, int micro_batches) {
  pipeline::ProblemOptions options = pipeline::usual_options();
  options.micro_batches = micro_batches;
  options.variants = {{0, false}, {1, false}};
  if (!profile.layer.empty() && profile.forward_fraction < 1) {
    options.variants.push_back({0, true});
    options.variants.push_back({1, true});
  }
  return options;
}

}  // namespace automap::train
