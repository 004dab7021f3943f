// What steps cost on machines that are rented, and the parts of a cluster that were looked at for it
// (infer/frontier.h). Prices are of any one currency.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace automap {
class Json;
}

namespace automap::pipeline {

// All rented devices count, used or not.
struct PlanCost {
  double price_per_hour = 0;  // of all of them; 0: not known, and the rest is 0, too
  double per_step = 0;
  double per_million_samples = 0, per_billion_tokens = 0;  // 0: not known
};
PlanCost cost_of(double price_per_hour, double step_ms, double samples_per_s, double tokens_per_s);
Json cost_json(const PlanCost& cost);

// One part of the cluster, and its best plan.
struct FrontierPoint {
  int devices = 0;
  std::string servers;  // "2 x 8 h100"
  double step_ms = 0;   // 0: no plan, `why` says the reason
  double samples_per_s = 0, tokens_per_s = 0;
  PlanCost cost;
  std::string plan, why;
  bool chosen = false;
  // No other part takes as short a step with as few devices, nor at so low a price where prices are known.
  bool best = false;
  bool found() const { return step_ms > 0; }
};

// A question about how many devices to rent. Written, not read.
struct PlanFrontier {
  std::string minimized;              // "time", "devices" or "cost"
  std::optional<double> within;       // 0.1: at most 10 % longer than the fastest
  std::optional<double> reach;        // at least so many a second
  std::string reach_unit;             // "tokens" or "samples"
  std::vector<FrontierPoint> points;  // by devices, ascending
  bool stopped = false;               // a signal came before all were looked at
  const FrontierPoint& chosen() const;
  const FrontierPoint& fastest() const;  // one has a plan
  bool priced() const;
};
Json frontier_json(const PlanFrontier& frontier);

}  // namespace automap::pipeline
