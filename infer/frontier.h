// How many devices to rent: --minimize, --within and --reach. The question is asked on parts of the cluster that people
// rent, and one of them is chosen.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/options.h"
#include "common/machine/cluster.h"
#include "common/pipeline/plan_price.h"
#include "infer/options.h"

namespace automap::infer {

struct FrontierRequest {
  std::string least;             // "time", "devices" or "cost"
  std::optional<double> within;  // 0.1: at most 10 % longer than the fastest
  std::optional<double> reach;   // samples or tokens a second
  std::string reach_unit;        // "samples", "tokens"; empty: tokens where the model has them
};

// Nothing: nobody asks how many. Throws Error(kUsage) for values of another form, options that contradict one another,
// and those that are of a question on one number of devices.
std::optional<FrontierRequest> frontier_asked(const OptionTable& table, const InferOptions& options);

// Servers of a cluster, whole, or one server's first devices.
struct Rented {
  machine::Cluster cluster;  // asked about as a cluster of its own
  std::vector<int> devices;  // its devices' numbers in the whole, 0-based
  std::vector<int> servers;  // how many of each group of servers; empty: a part of one
  bool whole = false;
};
std::string servers_text(const Rented& rented);  // "2 x 8 h100 + 1 x 4 a100"

// The parts to look at first, most devices first: 1, 2, 4, ... devices of one server of each kind; of whole servers
// every number up to 8 of each kind, then 12, 16, 24, 32, ..., and all; fewer numbers where there are many kinds.
std::vector<Rented> rented_parts(const machine::Cluster& cluster);
// The next part to look at, halfway between the chosen one and a neighbour that was looked at; nothing: the chosen one
// stands beside its neighbours, or there are several kinds of servers. `points` and `rented`: in the same order.
std::optional<Rented> part_between(const machine::Cluster& cluster, const std::vector<Rented>& rented,
                                   const std::vector<pipeline::FrontierPoint>& points, const FrontierRequest& request);

// The number of the point that the request asks for, those without a plan left out; nothing: none has one, or none
// reaches what is asked for. Throws Error(kUsage) where tokens are asked for and not known.
std::optional<std::size_t> choose(const std::vector<pipeline::FrontierPoint>& points, const FrontierRequest& request);
// Of points of which some have plans, and none reaches what is asked for: says the most that one does.
Error unreached(const std::vector<pipeline::FrontierPoint>& points, const FrontierRequest& request,
                const std::string& cluster);

// All points in order of devices, with the best marked.
pipeline::PlanFrontier frontier_of(std::vector<pipeline::FrontierPoint> points, std::size_t chosen,
                                   const FrontierRequest& request);

}  // namespace automap::infer
