// The random families that rows are drawn from, and the JSON configuration that mixes them (docs/datagen.md lists every
// family with its parameters and where its ranges come from).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

// A parsed configuration: which families with which weights and parameters, and the ranges of everything else.
class Config;

class Generator {
 public:
  // `json_text` empty: the built-in `mixed` configuration. Throws Error(kConfig) naming `source`, the key, what was
  // expected and the nearest known name.
  Generator(std::string_view json_text, const std::string& source);
  // A file, or the name of a built-in configuration ("mixed", "paper", ...).
  static Generator load(const std::string& name_or_path);
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;
  ~Generator();

  // Row `index`: depends on (seed, configuration, index) only. Thread-safe. Always a valid row with a feasible plan
  // structure: 2 <= stages <= min(devices, instructions).
  pipeline::RowProblem row(std::uint64_t seed, std::uint64_t index) const;

  const std::vector<std::string>& distributions() const;  // names by RowProblem::distribution
  const std::string& config_json() const;                 // resolved: every default written out
  // The same configuration with only / without some families (held-out experiments). Error(kUsage) on unknown names.
  Generator only(const std::vector<std::string>& families) const;
  Generator without(const std::vector<std::string>& families) const;

 private:
  explicit Generator(Config config);
  Config* config_;
};

}  // namespace automap::datagen
