// The random families that rows are drawn from, and the JSON configuration that mixes them (docs/datagen.md lists every
// family with its parameters and where its ranges come from).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/pipeline/profile.h"
#include "common/pipeline/row_problem.h"

namespace automap::datagen {

struct Parameter {
  std::string name;
  std::string meaning;   // with unit and range
  double default_value;  // or the lower end of a range [low, high] that each row draws from
  double default_high;
};

struct DistributionInfo {
  std::string name;  // "uniform", "transformer", "cnn", ...
  std::string summary;
  std::vector<Parameter> parameters;
};
const std::vector<DistributionInfo>& list_distributions();
// Names that Generator::load() knows without a file.
std::vector<std::string> built_in_configs();

// A parsed configuration: which families with which weights and parameters, and the ranges of everything else.
class Config;

class Generator {
 public:
  // `json_text` empty: the built-in `mixed` configuration. Throws Error(kConfig) naming `source`, the key, what was
  // expected and the nearest known name.
  Generator(std::string_view json_text, const std::string& source);
  // A file, or the name of a built-in configuration ("mixed", "paper", ...; built_in_configs()).
  static Generator load(const std::string& name_or_path);
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;
  ~Generator();

  // Row `index`: depends on (seed, configuration, index) only. Thread-safe. Always a valid row with a feasible plan
  // structure: 2 <= stages <= min(devices, instructions).
  pipeline::RowProblem row(std::uint64_t seed, std::uint64_t index) const;

  // The model that row `index` was made from: c in ms, a and w in bytes at 1 GB/s, so that make_row() on the row's
  // cluster gives the row again. Stash is left at 0.
  pipeline::Profile profile(std::uint64_t seed, std::uint64_t index) const;

  // Every family's name by RowProblem::distribution, used or not: the same numbers under every configuration.
  const std::vector<std::string>& distributions() const;
  // Resolved: every default written out. As a configuration of its own it makes the same rows.
  const std::string& config_json() const;
  // The same configuration with only / without some families (held-out experiments). Error(kUsage) on unknown names.
  Generator only(const std::vector<std::string>& families) const;
  Generator without(const std::vector<std::string>& families) const;
  // The same configuration with the family `empirical` drawn from these profiles: files, and folders of them. Throws
  // what io::load_profiles throws. The resolved configuration names each file with its hash.
  Generator with_profiles(const std::vector<std::string>& paths) const;

 private:
  class Prepared;
  explicit Generator(Config config);
  std::unique_ptr<const Prepared> prepared_;
};

}  // namespace automap::datagen
