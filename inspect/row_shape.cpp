#include "inspect/row_shape.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>

#include "common/base/check.h"
#include "common/machine/cluster.h"
#include "common/pipeline/row.h"

namespace automap::inspect {
namespace {

double correlation(const double* x, const double* y, std::size_t n) {
  if (n < 3) return 0;
  double x_mean = 0, y_mean = 0;
  for (std::size_t i = 0; i < n; ++i) {
    x_mean += x[i];
    y_mean += y[i];
  }
  x_mean /= static_cast<double>(n);
  y_mean /= static_cast<double>(n);
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < n; ++i) {
    xy += (x[i] - x_mean) * (y[i] - y_mean);
    xx += (x[i] - x_mean) * (x[i] - x_mean);
    yy += (y[i] - y_mean) * (y[i] - y_mean);
  }
  // Sums of floats are known to seven digits: an array that varies less is a constant.
  constexpr double kConstant = 1e-12;
  const auto constant = [&](double square, double mean) {
    return square <= kConstant * mean * mean * static_cast<double>(n) || !(square > 0);
  };
  if (constant(xx, x_mean) || constant(yy, y_mean)) return 0;
  return std::clamp(xy / std::sqrt(xx * yy), -1.0, 1.0);
}

// Where the mean unit of x stands.
double centre(const double* x, std::size_t n) {
  double all = 0, moment = 0;
  for (std::size_t i = 0; i < n; ++i) {
    all += x[i];
    moment += x[i] * static_cast<double>(i);
  }
  return all > 0 && n > 1 ? moment / all / static_cast<double>(n - 1) : 0;
}

// Reorders x.
double top_share(double* x, std::size_t n) {
  const std::size_t top = std::max<std::size_t>(1, n * 5 / 100);
  std::sort(x, x + n, std::greater<>());
  double all = 0, largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    all += x[i];
    if (i < top) largest += x[i];
  }
  return all > 0 ? largest / all : 0;
}

// Sum of squares of the differences, or some value of at least `limit` as soon as it reaches that.
float squares(const float* x, const float* y, float limit) {
  // Eight sums side by side, added up in one order: vectors, and the same number on every machine.
  constexpr std::size_t kLanes = 8, kBlock = 64;
  float sum = 0;
  for (std::size_t from = 0; from < 3 * kPoints && sum < limit; from += kBlock) {
    float lane[kLanes] = {};
    for (std::size_t i = from; i < from + kBlock; i += kLanes) {
      for (std::size_t j = 0; j < kLanes; ++j) {
        const float d = x[i + j] - y[i + j];
        lane[j] += d * d;
      }
    }
    sum += ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  }
  return sum;
}

}  // namespace

Shape shape_of(const std::array<float, 3 * pipeline::kGranularity>& caw) {
  Shape shape{};
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const float* from = caw.data() + channel * kPoints;
    const float largest = *std::max_element(from, from + kPoints);
    if (!(largest > 0)) continue;
    for (std::size_t k = 0; k < kPoints; ++k) shape[channel * kPoints + k] = from[k] / largest;
  }
  return shape;
}

Shape shape_of(const pipeline::Profile& profile) {
  // Any cluster: its speed cancels out.
  static const machine::Cluster cluster = machine::load_cluster("config-a");
  const pipeline::Row row = pipeline::make_row(profile, cluster);
  std::array<float, 3 * kPoints> caw{};
  std::copy(row.compute.begin(), row.compute.end(), caw.begin());
  std::copy(row.activation.begin(), row.activation.end(), caw.begin() + kPoints);
  std::copy(row.weight.begin(), row.weight.end(), caw.begin() + 2 * kPoints);
  return shape_of(caw);
}

double distance(const Shape& x, const Shape& y) {
  const float all = squares(x.data(), y.data(), std::numeric_limits<float>::infinity());
  return std::sqrt(static_cast<double>(all) / static_cast<double>(x.size()));
}

Neighbour nearest(const Shape& shape, const std::vector<Shape>& among, std::size_t except) {
  Neighbour found;
  float best = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < among.size(); ++i) {
    if (i == except) continue;
    const float sum = squares(shape.data(), among[i].data(), best);
    if (sum >= best) continue;
    best = sum;
    found.index = i;
  }
  AM_CHECK(std::isfinite(best));
  found.distance = std::sqrt(static_cast<double>(best) / static_cast<double>(shape.size()));
  return found;
}

ShapeFacts facts_of(const Shape& shape, std::int64_t num_instructions) {
  std::array<double, kPoints> c{}, a{}, w{};
  std::size_t n = 0;
  double c_before = 0, w_before = 0;
  std::int64_t before = 0;
  for (std::size_t k = 0; k < kPoints; ++k) {
    const std::int64_t at = static_cast<std::int64_t>(k + 1) * num_instructions / pipeline::kGranularity;
    if (at == before) continue;
    before = at;
    c[n] = static_cast<double>(shape[k]) - c_before;
    a[n] = shape[kPoints + k];
    w[n] = static_cast<double>(shape[2 * kPoints + k]) - w_before;
    c_before = shape[k];
    w_before = shape[2 * kPoints + k];
    ++n;
  }
  ShapeFacts facts;
  if (n == 0) return facts;
  facts.corr_cw = correlation(c.data(), w.data(), n);
  facts.corr_ca = correlation(c.data(), a.data(), n - 1);
  if (n > 2) facts.lag1_a = correlation(a.data(), a.data() + 1, n - 2);
  facts.centre_c = centre(c.data(), n);
  facts.centre_w = centre(w.data(), n);
  facts.top_share_c = top_share(c.data(), n);
  facts.top_share_w = top_share(w.data(), n);
  for (std::size_t i = 0; i + 1 < n; ++i) facts.mean_a += a[i] / static_cast<double>(n - 1);
  return facts;
}

double distance(const ShapeFacts& x, const ShapeFacts& y) {
  const double d[] = {0.5 * (x.corr_cw - y.corr_cw), 0.5 * (x.corr_ca - y.corr_ca),
                      0.5 * (x.lag1_a - y.lag1_a),   x.top_share_c - y.top_share_c,
                      x.top_share_w - y.top_share_w, x.centre_c - y.centre_c,
                      x.centre_w - y.centre_w,       x.mean_a - y.mean_a};
  double sum = 0;
  for (const double one : d) sum += one * one;
  return std::sqrt(sum / std::size(d));
}

Neighbour nearest(const ShapeFacts& facts, const std::vector<ShapeFacts>& among, std::size_t except) {
  Neighbour found;
  found.distance = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < among.size(); ++i) {
    if (i == except) continue;
    const double d = distance(facts, among[i]);
    if (d < found.distance) found = {i, d};
  }
  AM_CHECK(std::isfinite(found.distance));
  return found;
}

}  // namespace automap::inspect
