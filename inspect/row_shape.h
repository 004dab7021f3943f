// The shape of a row, whatever its cluster: the distance between two shapes, the nearest rows, and a few numbers that
// tell real models from random ones. docs/formats/inspect.md gives the reasons for this measure.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "common/pipeline/profile.h"
#include "common/pipeline/row_problem.h"

namespace automap::inspect {

constexpr std::size_t kPoints = pipeline::kGranularity;

// C', A' and W' of the normalized row, each over its own largest value (or 0 throughout): 3 x 128 numbers in [0, 1].
// The sizes of a and w against c depend on the cluster and not on the model, so they are left out.
using Shape = std::array<float, 3 * pipeline::kGranularity>;

// `caw` as in RowProblem.
Shape shape_of(const std::array<float, 3 * pipeline::kGranularity>& caw);
// The shape of the profile's normalized row; throws what make_row throws.
Shape shape_of(const pipeline::Profile& profile);

// Root mean square of the differences: sqrt(sum (x_k - y_k)^2 / 384), 0 .. 1. It is a metric.
double distance(const Shape& x, const Shape& y);

struct Neighbour {
  std::size_t index = 0;
  double distance = 1;
};
// The nearest of `among` but `except`, the first of equally near ones; `among` holds another shape.
constexpr std::size_t kNoException = static_cast<std::size_t>(-1);
Neighbour nearest(const Shape& shape, const std::vector<Shape>& among, std::size_t except = kNoException);

// Over the points of the row that say something new (n of them below n = 128): c_k and w_k are differences of C' and
// W', a_k is A'. Nothing crosses the last cut, so a_k is looked at without it. Undefined facts (a constant, fewer than
// three points) are 0.
struct ShapeFacts {
  double corr_cw = 0;      // Pearson's correlation of c_k and w_k
  double corr_ca = 0;      // of c_k and a_k
  double lag1_a = 0;       // of a_k and a_{k+1}
  double top_share_c = 0;  // of all c in the largest 5 % of the c_k (at least one)
  double top_share_w = 0;  // of w
  double centre_c = 0;     // where the mean unit of c is computed: 0 at the first point, 1 at the last
  double centre_w = 0;     // of w
  double mean_a = 0;       // over the largest a_k
};
ShapeFacts facts_of(const Shape& shape, std::int64_t num_instructions);

// Root mean square of the differences of the eight numbers, correlations halved so that all have the same range. Does
// not mind where a pattern of repeated layers begins, which `distance` does.
double distance(const ShapeFacts& x, const ShapeFacts& y);
Neighbour nearest(const ShapeFacts& facts, const std::vector<ShapeFacts>& among, std::size_t except = kNoException);

}  // namespace automap::inspect
