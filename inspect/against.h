// Measures the distance of a dataset's rows to real models: automap-inspect DATA --against PROFILES.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "inspect/describe.h"
#include "inspect/row_shape.h"

namespace automap::inspect {

// The work does not grow with the dataset: of at most kReferenceRows evenly spread rows, the same ones every time, at
// most kQueryRows are asked for their own nearest neighbour.
constexpr std::uint64_t kReferenceRows = 16384, kQueryRows = 512;

struct ComparedProfile {
  std::string source, model;
  std::int64_t instructions = 0;
  ShapeFacts facts;
  std::size_t nearest = 0;  // of the rows
  double distance = 0;      // to it
  double percentile = 0;    // where that stands among the rows' own distances: 0 nearer than all, 100 farther than all
  double facts_distance = 0, facts_percentile = 0;  // the same by distance(ShapeFacts, ShapeFacts)
};

struct Comparison {
  std::vector<ComparedProfile> profiles;
  std::vector<double> row_distances;  // of the asked rows to the nearest other row, ascending
  std::vector<double> row_facts_distances;
  double median_percentile = 0, median_facts_percentile = 0;
};

// Profiles with their facts, their shapes, and the rows', at least two; every `rows.size() / kQueryRows`-th row is
// asked.
Comparison compare(std::vector<ComparedProfile> profiles, const std::vector<Shape>& shapes,
                   const std::vector<Shape>& rows, const std::vector<ShapeFacts>& row_facts);

// 100 times the share of `sorted` below `value`, those equal to it by half. Of 1 2 2 3: 2 -> 50, 2.5 -> 75.
double percentile_of(double value, const std::vector<double>& sorted);

// Adds `against` to the document of a dataset and a table, a picture and statistics to its text. `paths`: profiles in
// any form that there is, HLO (profiled on a V100), folders of either. Throws what DatasetReader and io::load_profiles
// throw, Error(kData) for a dataset of one row.
void describe_against(const std::string& folder, const std::vector<std::string>& paths, Description* out);

}  // namespace automap::inspect
