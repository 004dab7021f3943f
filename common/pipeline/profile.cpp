#include "common/pipeline/profile.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "common/base/error.h"
#include "common/base/number_range.h"
#include "common/pipeline/shared_columns.h"

namespace automap::pipeline {

namespace {

void check_values(const std::vector<double>& column, const std::string& name, std::size_t n,
                  const std::string& source) {
  if (column.size() != n) {
    throw Error(ErrorKind::kData, source + ": column " + name + " has " + std::to_string(column.size()) +
                                      " values where c_ms has " + std::to_string(n));
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (!in_file_range(column[i]) || column[i] < 0) {
      throw Error(ErrorKind::kData, source + ": column " + name + ", instruction " + std::to_string(i + 1) +
                                        ": found " + std::to_string(column[i]) + ", expected a value of at least 0, " +
                                        kFileRange);
    }
  }
}

void check_times(const DeviceTimes& times, std::size_t n, const std::string& source) {
  const std::string where = source + ": times on '" + times.device + "'";
  if (times.samples.empty() || times.forward_ms.size() != times.samples.size() ||
      times.backward_ms.size() != times.samples.size()) {
    throw Error(ErrorKind::kData, where + ": " + std::to_string(times.samples.size()) + " numbers of samples, " +
                                      std::to_string(times.forward_ms.size()) + " forward and " +
                                      std::to_string(times.backward_ms.size()) +
                                      " backward times, expected as many of each, and at least one");
  }
  double before = 0;
  for (const double samples : times.samples) {
    if (!in_file_range(samples) || samples <= before) {
      throw Error(ErrorKind::kData, where + ": samples " + std::to_string(samples) + " after " +
                                        std::to_string(before) + ", expected ascending numbers above 0");
    }
    before = samples;
  }
  for (std::size_t i = 0; i < times.samples.size(); ++i) {
    check_values(times.forward_ms[i], "c_forward_ms", n, where);
    check_values(times.backward_ms[i], "c_backward_ms", n, where);
  }
  check_values(times.optimizer_ms, "optimizer_ms", n, where);
}

void check_shared(const std::vector<SharedWeight>& shared, std::size_t n, const std::string& source) {
  for (const SharedWeight& weight : shared) {
    if (weight.first < 1 || weight.first >= weight.position || weight.position > static_cast<std::int64_t>(n)) {
      throw Error(ErrorKind::kData, source + ": a shared weight of the instructions " + std::to_string(weight.first) +
                                        " and " + std::to_string(weight.position) + ", expected two of " +
                                        std::to_string(n) + ", the first use first");
    }
    for (const double bytes : {weight.weight_bytes, weight.gradient_bytes, weight.slot_bytes}) {
      if (!in_file_range(bytes) || bytes < 0) {
        throw Error(ErrorKind::kData, source + ": a shared weight of " + std::to_string(bytes) +
                                          " bytes, expected a finite value of at least 0");
      }
    }
  }
}

void check_weight_share(const std::vector<double>& share, std::size_t n, const std::string& source) {
  if (share.empty()) return;
  check_values(share, "weight_share", n, source);
  const double most = *std::max_element(share.begin(), share.end());
  if (most > 1) {
    throw Error(ErrorKind::kData,
                source + ": column weight_share: found " + std::to_string(most) + ", expected at most 1");
  }
}

void check_width(const WidthColumns& columns, const Profile& profile, const std::string& source) {
  const std::size_t n = profile.c_ms.size();
  const std::string where = source + ": width " + std::to_string(columns.width);
  check_values(columns.w_bytes, "w_bytes", n, where);
  check_values(columns.stash_bytes, "stash_bytes", n, where);
  for (const auto& [name, values] :
       {std::make_pair("gradient_bytes", &columns.gradient_bytes), std::make_pair("slot_bytes", &columns.slot_bytes),
        std::make_pair("frozen_bytes", &columns.frozen_bytes),
        std::make_pair("workspace_bytes", &columns.workspace_bytes),
        std::make_pair("layer_entry_bytes", &columns.layer_entry_bytes),
        std::make_pair("stage_entry_bytes", &columns.stage_entry_bytes)}) {
    if (!values->empty()) check_values(*values, name, n, where);
  }
  const auto wrong = [&](const std::string& what) { throw Error(ErrorKind::kData, where + ": " + what); };
  if (columns.times.size() != profile.times.size() || columns.collective_ms.size() != profile.times.size()) {
    wrong("times of " + std::to_string(columns.times.size()) + " devices and collectives of " +
          std::to_string(columns.collective_ms.size()) + ", expected those of the profile's " +
          std::to_string(profile.times.size()));
  }
  for (std::size_t d = 0; d < columns.times.size(); ++d) {
    check_times(columns.times[d], n, where);
    check_values(columns.collective_ms[d], "collective_ms", n, where);
    if (columns.times[d].samples != profile.times[d].samples || columns.times[d].device != profile.times[d].device) {
      wrong("times on '" + columns.times[d].device + "' are not of the samples that those of width 1 on '" +
            profile.times[d].device + "' are of");
    }
  }
  check_weight_share(columns.weight_share, n, where);
  check_shared(columns.shared, n, where);
}

}  // namespace

std::int64_t own_samples(const Profile& profile) {
  return std::max<std::int64_t>(1, std::llround(profile.micro_batch_size));
}

double most_samples(const Profile& profile) {
  double most = std::numeric_limits<double>::infinity();
  for (const DeviceTimes& times : profile.times) most = std::min(most, times.samples.back());
  return most;
}

void check_profile(const Profile& profile, const std::string& source) {
  const std::size_t n = profile.c_ms.size();
  if (n < 2) {
    throw Error(ErrorKind::kData,
                source + ": a profile needs at least 2 forward instructions, found " + std::to_string(n),
                "a model of one instruction cannot be cut into stages");
  }
  const auto check_column = [&](const std::vector<double>& column, const char* name) {
    check_values(column, name, n, source);
  };
  const auto check_optional = [&](const std::vector<double>& column, const char* name) {
    if (!column.empty()) check_values(column, name, n, source);
  };
  check_column(profile.c_ms, "c_ms");
  check_column(profile.a_bytes, "a_bytes");
  check_column(profile.w_bytes, "w_bytes");
  check_column(profile.stash_bytes, "stash_bytes");
  check_optional(profile.gradient_bytes, "gradient_bytes");
  check_optional(profile.slot_bytes, "slot_bytes");
  check_optional(profile.frozen_bytes, "frozen_bytes");
  check_optional(profile.workspace_bytes, "workspace_bytes");
  check_optional(profile.layer_entry_bytes, "layer_entry_bytes");
  check_optional(profile.stage_entry_bytes, "stage_entry_bytes");
  if (profile.layer_entry_bytes.empty() != profile.stage_entry_bytes.empty()) {
    throw Error(ErrorKind::kData,
                source + ": the columns layer_entry_bytes and stage_entry_bytes need each other, found one of them");
  }
  check_weight_share(profile.weight_share, n, source);
  for (const DeviceTimes& times : profile.times) check_times(times, n, source);
  check_shared(profile.shared, n, source);
  std::int32_t narrower = 1;
  for (const WidthColumns& columns : profile.widths) {
    check_width(columns, profile, source);
    if (columns.width <= narrower) {
      throw Error(ErrorKind::kData, source + ": width " + std::to_string(columns.width) + " after " +
                                        std::to_string(narrower) + ", expected ascending numbers above 1");
    }
    narrower = columns.width;
  }
  if (profile.accumulated_micro_batches < 1) {
    throw Error(ErrorKind::kData, source + ": accumulated_micro_batches is " +
                                      std::to_string(profile.accumulated_micro_batches) + ", expected at least 1");
  }
  if (profile.attention_heads < 0) {
    throw Error(ErrorKind::kData,
                source + ": attention_heads is " + std::to_string(profile.attention_heads) + ", expected at least 0");
  }
  const auto check_names = [&](const std::vector<std::string>& column, const char* name) {
    if (!column.empty() && column.size() != n) {
      throw Error(ErrorKind::kData, source + ": column " + name + " has " + std::to_string(column.size()) +
                                        " values where c_ms has " + std::to_string(n));
    }
  };
  check_names(profile.name, "name");
  check_names(profile.op_name, "op_name");
  check_names(profile.layer, "layer");
  double total = 0;
  for (double c : profile.c_ms) total += c;
  if (!(total > 0) || !std::isfinite(total)) {
    throw Error(ErrorKind::kData, source + ": the compute times c_ms sum to " + std::to_string(total) +
                                      ", expected a finite sum above 0");
  }
  if (!(profile.forward_fraction > 0 && profile.forward_fraction <= 1)) {
    throw Error(ErrorKind::kData, source + ": forward_fraction is " + std::to_string(profile.forward_fraction) +
                                      ", expected a value in (0, 1]");
  }
}

CheckedProfile::CheckedProfile(const Profile& profile)
    : CheckedProfile(std::shared_ptr<const Profile>(std::shared_ptr<const Profile>(), &profile)) {}

CheckedProfile::CheckedProfile(Profile&& profile)
    : CheckedProfile(std::make_shared<const Profile>(std::move(profile))) {}

CheckedProfile CheckedProfile::kept_by(const std::shared_ptr<const void>& owner) const {
  CheckedProfile out = *this;
  out.profile_ = std::shared_ptr<const Profile>(owner, profile_.get());
  return out;
}

struct CheckedProfile::Made {
  std::shared_ptr<SharedColumns> columns = std::make_shared<SharedColumns>();
  std::mutex mutex;  // of what follows
  std::map<int, CheckedProfile> by_width;
};

CheckedProfile CheckedProfile::at_width(int width) const {
  if (width == 1) return *this;
  const std::lock_guard<std::mutex> lock(made_->mutex);
  auto known = made_->by_width.find(width);
  if (known == made_->by_width.end()) {
    known = made_->by_width.emplace(width, CheckedProfile(profile_at(*profile_, width))).first;
  }
  return known->second;
}

const std::shared_ptr<SharedColumns>& CheckedProfile::columns() const {
  return made_->columns;
}

CheckedProfile::CheckedProfile(std::shared_ptr<const Profile> profile)
    : profile_(std::move(profile)), made_(std::make_shared<Made>()) {
  check_profile(*profile_, profile_->model.empty() ? "profile" : profile_->model);
}

Profile profile_at(const Profile& profile, std::int32_t width) {
  Profile out = profile;
  out.widths.clear();
  if (width == 1) return out;
  const auto found = std::find_if(profile.widths.begin(), profile.widths.end(),
                                  [width](const WidthColumns& columns) { return columns.width == width; });
  if (found == profile.widths.end()) {
    throw Error(ErrorKind::kInternal, "the profile knows nothing of replicas of " + std::to_string(width) + " devices");
  }
  out.w_bytes = found->w_bytes;
  out.gradient_bytes = found->gradient_bytes;
  out.slot_bytes = found->slot_bytes;
  out.frozen_bytes = found->frozen_bytes;
  out.stash_bytes = found->stash_bytes;
  out.workspace_bytes = found->workspace_bytes;
  out.layer_entry_bytes = found->layer_entry_bytes;
  out.stage_entry_bytes = found->stage_entry_bytes;
  out.times = found->times;
  out.weight_share = found->weight_share;
  out.shared = found->shared;
  return out;
}

bool tells_weights_apart(const Profile& profile) {
  const std::vector<double>& shares = profile.weight_share;
  return std::any_of(shares.begin(), shares.end(), [](double share) { return share > 0; });
}

std::vector<int> known_widths(const Profile& profile) {
  std::vector<int> widths = {1};
  for (const WidthColumns& columns : profile.widths) widths.push_back(columns.width);
  return widths;
}

}  // namespace automap::pipeline
