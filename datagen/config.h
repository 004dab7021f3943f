// The configuration of a dataset, `automap.datagen/1` (docs/datagen.md): which families with which weights and
// parameters, and the ranges of clusters and scales. Every number is a range that each row draws from.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/rng.h"

namespace automap::datagen {

struct EmpiricalProfile;  // datagen/empirical.h

// The allowed values of one number of the configuration, and its default.
struct NumberSpec {
  std::string name;
  std::string meaning;
  double low, high;          // the default range
  double least, most;        // allowed
  bool logarithmic = false;  // drawn evenly in its logarithm
  bool whole = false;
  double usual_low = 0, usual_high = 0, usual_share = 0;  // default: this share of the rows draws from here
  std::vector<double> values{}, weights{};                // default: these instead of a range
};

// A range to draw from. In JSON a number, [low, high], {"low", "high", "scale": "linear" | "log", "usual": [low, high],
// "usual_share"} or {"values": [...], "weights": [...]}.
class Range {
 public:
  explicit Range(const NumberSpec& spec);
  // Throws Error(kConfig) that starts with `place`.
  Range(const NumberSpec& spec, const Json& value, const std::string& place);

  double draw(Rng& rng) const;
  int draw_whole(Rng& rng) const { return static_cast<int>(draw(rng)); }
  double low() const;
  double high() const;
  Json to_json() const;

 private:
  double between(double low, double high, double log_low, double log_high, Rng& rng) const;
  void prepare();

  double low_ = 0, high_ = 0;
  bool logarithmic_ = false, logarithmic_by_default_ = false, whole_ = false;
  double usual_low_ = 0, usual_high_ = 0, usual_share_ = 0;
  std::vector<double> values_, shares_;  // shares_ sums up to 1
  double log_low_ = 0, log_high_ = 0, log_usual_low_ = 0, log_usual_high_ = 0;
};

class Config {
 public:
  struct Family {
    double weight = 0;
    std::vector<Range> parameters;  // in the order of the family's specs
  };
  // A section of ranges: one per spec, in order.
  using Section = std::vector<Range>;

  std::string name;              // "mixed", "paper", the file's own name
  std::vector<Family> families;  // in the order of list_distributions()
  bool scales_as_drawn = false;  // paper: c, a and w keep the sizes they are drawn with
  Section rows, scales, cluster, training, samples, update, variants;
  // For the empirical family: the files with their hashes; none where the models of fixtures/ are drawn from.
  std::vector<std::string> profile_files, profile_hashes;
  std::shared_ptr<const std::vector<EmpiricalProfile>> profiles;

  // The same configuration with the empirical family drawn from these files and folders of profiles; where it took no
  // part, it gets a fifth of the rows. Throws what io::load_profiles throws.
  void use_profiles(const std::vector<std::string>& paths);

  Json to_json() const;
};

// The numbers of a section by position.
namespace rows {
enum { kInstructions, kComputeMs, kPoints, kCount };
}
namespace scales {
enum { kAllreduce, kTransfer, kStash, kCount };
}
namespace cluster {
enum {
  kDevices,
  kDevicesPerServer,
  kIntraOverInter,
  kMemoryLimited,
  kMemoryOverLeast,
  kWithLatency,
  kLatency,
  kDifferent,
  kCount
};
}
namespace training {
enum { kMicroBatches, kStages, kOverlap, kForwardFraction, kCount };
}
// Fields that only rows of whole samples have. Each section is drawn from a stream of its own, so that the draws of one
// do not change the others, nor anything else.
namespace samples {
enum { kWhole, kMicroBatch, kAdaptive, kLaunchShare, kLaunchEven, kCount };
}
namespace update {
enum { kOverlapSync, kBucket, kGradients, kSlots, kWithOptimizer, kOptimizer, kCount };
}
namespace variants {
enum { kZero, kRecompute, kLayers, kWorkspace, kCount };
}
const std::vector<NumberSpec>& row_specs();
const std::vector<NumberSpec>& scale_specs();
const std::vector<NumberSpec>& cluster_specs();
const std::vector<NumberSpec>& training_specs();
const std::vector<NumberSpec>& sample_specs();
const std::vector<NumberSpec>& update_specs();
const std::vector<NumberSpec>& variant_specs();

// Empty text: the built-in `mixed`. Relative profile paths start at the folder of `source`.
Config parse_config(std::string_view json_text, const std::string& source);
// The text of a built-in configuration, or nullptr.
const char* built_in_config(const std::string& name);
std::vector<std::string> built_in_config_names();

}  // namespace automap::datagen
