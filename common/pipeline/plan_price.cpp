#include "common/pipeline/plan_price.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/json.h"

namespace automap::pipeline {
namespace {

constexpr double kMsPerHour = 3.6e6, kSecondsPerHour = 3600;

Json known_or_null(double value) {
  return value > 0 ? Json(value) : Json();
}

}  // namespace

PlanCost cost_of(double price_per_hour, double step_ms, double samples_per_s, double tokens_per_s) {
  PlanCost cost;
  if (!(price_per_hour > 0)) return cost;
  cost.price_per_hour = price_per_hour;
  cost.per_step = price_per_hour * step_ms / kMsPerHour;
  const double per_s = price_per_hour / kSecondsPerHour;
  if (samples_per_s > 0) cost.per_million_samples = per_s / samples_per_s * 1e6;
  if (tokens_per_s > 0) cost.per_billion_tokens = per_s / tokens_per_s * 1e9;
  return cost;
}

Json cost_json(const PlanCost& cost) {
  return {{"price_per_hour", known_or_null(cost.price_per_hour)},
          {"per_step", known_or_null(cost.per_step)},
          {"per_million_samples", known_or_null(cost.per_million_samples)},
          {"per_billion_tokens", known_or_null(cost.per_billion_tokens)}};
}

const FrontierPoint& PlanFrontier::chosen() const {
  const auto it = std::find_if(points.begin(), points.end(), [](const FrontierPoint& point) { return point.chosen; });
  AM_CHECK(it != points.end());
  return *it;
}

const FrontierPoint& PlanFrontier::fastest() const {
  const FrontierPoint* fastest = nullptr;
  for (const FrontierPoint& point : points) {
    if (point.found() && (fastest == nullptr || point.step_ms < fastest->step_ms)) fastest = &point;
  }
  AM_CHECK(fastest != nullptr);
  return *fastest;
}

bool PlanFrontier::priced() const {
  return std::any_of(points.begin(), points.end(),
                     [](const FrontierPoint& point) { return point.cost.price_per_hour > 0; });
}

Json frontier_json(const PlanFrontier& frontier) {
  Json points = Json::array();
  for (const FrontierPoint& point : frontier.points) {
    Json one = {{"devices", point.devices},
                {"servers", point.servers},
                {"found", point.found()},
                {"chosen", point.chosen},
                {"best", point.best}};
    if (point.found()) {
      one["simulated_step_ms"] = point.step_ms;
      one["samples_per_s"] = known_or_null(point.samples_per_s);
      one["tokens_per_s"] = known_or_null(point.tokens_per_s);
      one["cost"] = cost_json(point.cost);
      one["plan"] = point.plan;
    } else {
      one["why"] = point.why;
    }
    points.push_back(std::move(one));
  }
  Json json = {{"minimized", frontier.minimized}, {"stopped", frontier.stopped}, {"points", std::move(points)}};
  if (frontier.within) json["within"] = *frontier.within;
  if (frontier.reach) json["reach"] = {{"per_s", *frontier.reach}, {"unit", frontier.reach_unit}};
  return json;
}

}  // namespace automap::pipeline
