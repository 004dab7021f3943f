#include "datagen/empirical.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>
#include <utility>

#include "common/base/check.h"
#include "common/base/files.h"
#include "datagen/draws.h"
#include "datagen/exact_math.h"

namespace automap::datagen {
namespace {

constexpr const char* kFixtures[] = {
#include "datagen/fixture_profiles.inc"
};

EmpiricalProfile from_columns(std::string model, const std::vector<double>& c, std::vector<double> a,
                              const std::vector<double>& w) {
  EmpiricalProfile made;
  made.model = std::move(model);
  made.c_sum.assign(1, 0);
  made.w_sum.assign(1, 0);
  for (std::size_t i = 0; i < c.size(); ++i) {
    made.c_sum.push_back(made.c_sum.back() + c[i]);
    made.w_sum.push_back(made.w_sum.back() + w[i]);
  }
  made.a = std::move(a);
  return made;
}

EmpiricalProfile parse_fixture(const char* text) {
  constexpr double kLargest = 9999;  // as in scripts/make_fixture_profiles.py
  std::istringstream in(text);
  std::string model;
  std::size_t n = 0;
  std::array<double, 3> top{};
  std::array<std::vector<double>, 3> columns;
  in >> model >> n >> top[0] >> top[1] >> top[2];
  for (std::size_t k = 0; k < 3; ++k) {
    for (std::size_t i = 0; i < n; ++i) {
      int value = 0;
      in >> value;
      columns[k].push_back(value * top[k] / kLargest);
    }
  }
  AM_CHECK(in && n >= 2);
  return from_columns(model, columns[0], columns[1], columns[2]);
}

// Part of a model; start and length count positions of its sums.
struct Window {
  const EmpiricalProfile* from = nullptr;
  double start = 0, length = 0;
};

Window draw_window(const std::vector<EmpiricalProfile>& profiles, double share, Rng& rng) {
  Window window;
  window.from = &profiles[rng.below(profiles.size())];
  const auto n = static_cast<std::int64_t>(window.from->size());
  const std::int64_t length = std::clamp<std::int64_t>(static_cast<std::int64_t>(share * static_cast<double>(n)), 2, n);
  window.start = static_cast<double>(rng.below(static_cast<std::uint64_t>(n - length) + 1));
  window.length = static_cast<double>(length);
  return window;
}

double sum_until(const std::vector<double>& sums, double at) {
  const auto k = static_cast<std::size_t>(at);
  if (k + 1 >= sums.size()) return sums.back();
  return sums[k] + (at - static_cast<double>(k)) * (sums[k + 1] - sums[k]);
}

// The speed at which the source is read: constant between knots, log-normal of sigma `warp`.
constexpr std::size_t kKnots = 8;
std::array<double, kKnots + 1> draw_warp(double warp, Rng& rng) {
  std::array<double, kKnots + 1> at{};
  for (std::size_t k = 0; k < kKnots; ++k) at[k + 1] = at[k] + (warp > 0 ? exp_of(warp * normal(rng)) : 1);
  for (std::size_t k = 1; k < kKnots; ++k) at[k] /= at[kKnots];
  at[kKnots] = 1;
  return at;
}

double warped(const std::array<double, kKnots + 1>& at, double x) {
  const double scaled = x * kKnots;
  const std::size_t k = std::min(kKnots - 1, static_cast<std::size_t>(scaled));
  return at[k] + (scaled - static_cast<double>(k)) * (at[k + 1] - at[k]);
}

// The window as instructions first .. first+count-1: compute is shared among the instructions that a source covers and
// added up over the sources that fall into one, a variable stays whole at the first of its source, and the activation
// is that of the last source. c and w are over the window's own.
void copy(const Window& window, double warp, int first, int count, Workspace& work) {
  const std::array<double, kKnots + 1> knots = draw_warp(warp, *work.rng);
  const EmpiricalProfile& from = *window.from;
  const auto begin = static_cast<std::size_t>(window.start),
             end = static_cast<std::size_t>(window.start + window.length);
  const double c_total = from.c_sum[end] - from.c_sum[begin], w_total = from.w_sum[end] - from.w_sum[begin];
  const double c_unit = c_total > 0 ? 1 / c_total : 0, w_unit = w_total > 0 ? 1 / w_total : 0;
  double c_before = from.c_sum[begin];
  std::size_t done = begin;  // sources below this have begun
  for (int i = 0; i < count; ++i) {
    const bool last = i + 1 == count;
    // As whole numbers divide where nothing is warped, so that equal parts come out equal.
    const double share = static_cast<double>(i + 1) * window.length / count;
    const double until = last ? window.length : warp > 0 ? window.length * warped(knots, share / window.length) : share;
    const double c_now = last ? from.c_sum[end] : sum_until(from.c_sum, window.start + until);
    const std::size_t begun = last ? end : std::clamp(begin + static_cast<std::size_t>(std::ceil(until)), done, end);
    work.c[first + i] = static_cast<float>(std::max(0.0, c_now - c_before) * c_unit);
    work.w[first + i] = static_cast<float>((from.w_sum[begun] - from.w_sum[done]) * w_unit);
    work.a[first + i] = static_cast<float>(from.a[std::max(begin + 1, begun) - 1]);
    c_before = c_now;
    done = begun;
  }
}

}  // namespace

EmpiricalProfile empirical_profile(const pipeline::Profile& profile) {
  return from_columns(profile.model, profile.c_ms, profile.a_bytes, profile.w_bytes);
}

const std::vector<EmpiricalProfile>& fixture_profiles() {
  static const std::vector<EmpiricalProfile> made = [] {
    std::vector<EmpiricalProfile> all;
    for (const char* text : kFixtures) all.push_back(parse_fixture(text));
    return all;
  }();
  return made;
}

const std::string& fixture_profiles_sha256() {
  static const std::string hash = [] {
    std::string all;
    for (const char* text : kFixtures) all += text;
    return sha256_hex(all);
  }();
  return hash;
}

void make_empirical(const double* p, Workspace& work) {
  Rng& rng = *work.rng;
  const std::vector<EmpiricalProfile>& profiles = *work.profiles;
  const Window one = draw_window(profiles, p[0], rng);
  if (rng.uniform() < p[2] && work.m >= 4) {
    // Two models one after the other, each with its share of everything (a tower in front of a decoder).
    const Window other = draw_window(profiles, p[0], rng);
    const int split = std::clamp(static_cast<int>((0.2 + 0.6 * rng.uniform()) * work.m), 2, work.m - 2);
    const double share = 0.2 + 0.6 * rng.uniform();
    copy(one, p[1], 0, split, work);
    copy(other, p[1], split, work.m - split, work);
    const float a_first = *std::max_element(work.a, work.a + split);
    const float a_second = *std::max_element(work.a + split, work.a + work.m);
    for (int i = 0; i < work.m; ++i) {
      const auto part = static_cast<float>(i < split ? share : 1 - share);
      const float top = i < split ? a_first : a_second;
      work.c[i] *= part;
      work.w[i] *= part;
      work.a[i] = top > 0 ? work.a[i] / top : 0;
    }
    jitter_all(p[3], work);
    return;
  }
  copy(one, p[1], 0, work.m, work);
  const float a_top = *std::max_element(work.a, work.a + work.m);
  const auto begin = static_cast<std::size_t>(one.start), end = static_cast<std::size_t>(one.start + one.length);
  const double w_total = one.from->w_sum[end] - one.from->w_sum[begin];
  const float a_unit = a_top > 0 ? 1 / a_top : 0;
  for (int i = 0; i < work.m; ++i) work.a[i] *= a_unit;
  jitter_all(p[3], work);
  if (rng.uniform() < p[4] && a_top > 0 && w_total > 0) work.keep_bytes_ratio = a_top / w_total;
}

}  // namespace automap::datagen
