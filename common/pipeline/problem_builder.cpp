// Prepares a Problem: prefix sums, device groups, and the columns of every kind of group.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>
#include <unordered_map>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/problem_storage.h"
#include "common/pipeline/shared_columns.h"

namespace automap::pipeline {
namespace {

// The time on a group that no stage can have: so large that a plan with such a stage never looks good.
constexpr double kNoStage = 1e30;

std::vector<double> prefix_sums(const std::vector<double>& values, std::size_t n) {
  std::vector<double> sums;
  // Where there are no values, all sums are 0.
  sums.assign(n + 1, 0);
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sums[i + 1] = sum += values[i];
  return sums;
}

void check_options(const ProblemOptions& options, const Profile& profile) {
  const auto refuse = [](const std::string& what, const std::string& hint = "") {
    throw Error(ErrorKind::kUsage, what, hint);
  };
  if (options.micro_batches < 1) {
    refuse("micro-batches must be at least 1, found " + std::to_string(options.micro_batches));
  }
  if (!(options.memory_reserve >= 0 && options.memory_reserve < 1)) {
    refuse("the memory reserve must be at least 0 and below 1, found " + std::to_string(options.memory_reserve));
  }
  if (options.width < 1) refuse("a replica has a device at least, found " + std::to_string(options.width));
  if (!(options.bucket_bytes > 0)) refuse("buckets of gradients must have a size");
  if (options.variants.empty() || options.variants.size() > 255) refuse("a stage has 1 to 255 variants");
  for (const StageVariant& variant : options.variants) {
    if (variant.zero < 0 || variant.zero > 3) refuse("ZeRO is 0, 1, 2 or 3, found " + std::to_string(variant.zero));
    if (variant.zero > 0 && options.replicas == Replicas::kFractional) {
      refuse("ZeRO " + std::to_string(variant.zero) + " shards over whole replicas", "give --replicas whole");
    }
    if (variant.recompute && profile.layer.empty()) {
      refuse("recomputation works by layers, and the profile names none", "give --recompute none");
    }
  }
  const double samples = options.micro_batch_samples;
  if (samples != 0 && !(samples > 0 && std::isfinite(samples))) refuse("a micro-batch must have a sample at least");
  if (options.replicas == Replicas::kWhole && samples != std::floor(samples)) {
    refuse("a micro-batch has whole samples, found " + std::to_string(samples));
  }
}

}  // namespace

// Fills in a Problem.
class Problem::Builder {
 public:
  // `times`: of each variant; null: the profile's.
  Builder(Problem& problem, const CheckedProfile& profile, const Cluster& cluster, const TimesOfVariants* times)
      : p_(problem),
        profile_(profile),
        // Times that are not the profile's are not its to keep.
        shared_(times != nullptr ? std::make_shared<SharedColumns>() : profile.columns()),
        cluster_(cluster),
        times_of_variants_(times),
        n_(static_cast<std::size_t>(problem.n_)),
        whole_(problem.options_.replicas == Replicas::kWhole) {}

  void build() {
    check_options(p_.options_, profile_);
    p_.profile_samples_ = profile_.micro_batch_size > 0 ? profile_.micro_batch_size : 1;
    const double asked = p_.options_.micro_batch_samples;
    p_.micro_batch_samples_ = asked > 0 ? asked : p_.profile_samples_;
    if (whole_ && p_.micro_batch_samples_ != std::floor(p_.micro_batch_samples_)) {
      throw Error(ErrorKind::kUsage,
                  "a micro-batch has whole samples, the profile's has " + std::to_string(p_.micro_batch_samples_));
    }
    per_profile_ = p_.micro_batch_samples_ / p_.profile_samples_;
    sum_bytes();
    list_devices();
    if (!whole_ && p_.num_devices_ > kMostDenseDevices) {
      throw Error(ErrorKind::kUsage,
                  "fractional replicas are planned on at most " + std::to_string(kMostDenseDevices) +
                      " devices, found " + std::to_string(p_.num_devices_),
                  "give --replicas whole");
    }
    if (p_.options_.replicas == Replicas::kWhole) check_samples();
    list_sizes();
    find_speeds();
    p_.has_weights_pass_ = tells_weights_apart(profile_);
    find_layers();
    make_groups();
    p_.storage_->useful = std::make_unique<Storage::Useful[]>(p_.columns_.size() / p_.options_.variants.size() + 1);
    double speed = 0;
    for (const double one : p_.device_speed_) speed += one;
    p_.idle_below_ms_ = kIdleShare * p_.work_.back() / speed;
  }

 private:
  // --- Sums over positions ---

  void sum_bytes() {
    const std::vector<double>& w = profile_.w_bytes;
    p_.storage_ = std::make_shared<Storage>();
    p_.weights_ = prefix_sums(w, n_);
    p_.stash_ = prefix_sums(profile_.stash_bytes, n_);
    p_.frozen_ = prefix_sums(profile_.frozen_bytes, n_);
    const std::vector<double>& gradients = profile_.gradient_bytes.empty() ? w : profile_.gradient_bytes;
    p_.gradients_ = prefix_sums(gradients, n_);
    p_.activation_.assign(n_ + 1, 0);
    p_.variables_.assign(n_ + 1, 0);
    for (std::size_t i = 1; i <= n_; ++i) {
      p_.activation_[i] = profile_.a_bytes[i - 1] * per_profile_;
      p_.variables_[i] = p_.variables_[i - 1] + (w[i - 1] > 0 ? 1 : 0);
    }
    list_exchanged();
    guess_buckets();
    fill_last_buckets();
    sum_state(w, gradients);
  }

  // Guesses the ends of buckets from the gradients that no other stage has.
  void guess_buckets() {
    const std::vector<double>& sums = p_.gradients_;
    p_.next_bucket_.resize(n_ + 1);
    p_.next_gradient_.resize(n_ + 1);
    std::size_t bucket = 0, gradient = 0;
    for (std::size_t p = 0; p <= n_; ++p) {
      bucket = std::max(bucket, p + 1);
      while (bucket < n_ && sums[bucket] - sums[p] < p_.options_.bucket_bytes) ++bucket;
      gradient = std::max(gradient, p + 1);
      while (gradient < n_ && sums[gradient] <= sums[p]) ++gradient;
      p_.next_bucket_[p] = static_cast<int>(std::min(bucket, n_));
      p_.next_gradient_[p] = static_cast<int>(std::min(gradient, n_));
    }
  }

  // As Problem::sync_buckets fills the bucket that it reduces last.
  void fill_last_buckets() {
    p_.last_bucket_.assign(n_ + 1, kInfinity);
    if (p_.options_.gradient_sync == GradientSync::kAfter) return;
    for (int p0 = 0; p0 < p_.n_; ++p0) {
      const int end = p_.bucket_end(p0, p0, p_.n_);
      const double bytes = p_.summed_until(p0, end) - p_.summed_until(p0, p0);
      if (bytes >= p_.options_.bucket_bytes) p_.last_bucket_[idx(p0)] = bytes;
    }
  }

  void list_exchanged() {
    if (!whole_) return;
    std::map<std::pair<int, int>, double> bytes;
    for (const SharedWeight& shared : profile_.shared) {
      if (shared.gradient_bytes > 0) bytes[{shared.first, shared.position}] += shared.gradient_bytes;
    }
    for (const auto& [uses, of_uses] : bytes) p_.exchanged_.push_back({uses.first, uses.second, of_uses});
    if (p_.exchanged_.size() > kMostExchanged) {
      std::stable_sort(p_.exchanged_.begin(), p_.exchanged_.end(),
                       [](const Exchanged& a, const Exchanged& b) { return a.bytes > b.bytes; });
      p_.exchanged_.resize(kMostExchanged);
    }
    if (p_.exchanged_.empty()) return;
    std::vector<int> changes(n_ + 1, 0);
    for (const Exchanged& shared : p_.exchanged_) changes[idx(shared.first)] = changes[idx(shared.position)] = 1;
    p_.sharing_class_.assign(n_ + 1, 0);
    for (std::size_t p = 1; p <= n_; ++p) p_.sharing_class_[p] = p_.sharing_class_[p - 1] + changes[p];
  }

  // Sums gradients and slots as they take memory: the module's own, or by the state factor: weight, gradient, and the
  // rest.
  void sum_state(const std::vector<double>& w, const std::vector<double>& gradients) {
    const std::optional<double>& factor = p_.options_.state_factor;
    const bool own = !factor && !profile_.slot_bytes.empty();
    const double all = p_.options_.state_factor_or_default();
    const double of_gradient = std::clamp(all - 1, 0.0, 1.0), of_slots = std::max(0.0, all - 2);
    std::vector<double> gradient_state = own ? gradients : w, slots = own ? profile_.slot_bytes : w;
    // Sums over micro-batches are as wide as the weights, however narrow the gradients are reduced. A module that
    // adds them up itself says how wide they are.
    const bool sums = own && p_.options_.micro_batches > 1 && profile_.accumulated_micro_batches == 1;
    for (std::size_t i = 0; i < n_ && sums; ++i) gradient_state[i] = std::max(gradient_state[i], w[i]);
    if (!own) {
      for (double& bytes : gradient_state) bytes *= of_gradient;
      for (double& bytes : slots) bytes *= of_slots;
    }
    weight_share_ = own ? 1 : std::min(1.0, all);
    state_factor_ = sums ? kOwnSums : own ? kOwnState : all;
    p_.storage_->gradient_state = prefix_sums(gradient_state, n_);
    p_.slots_ = prefix_sums(slots, n_);
    if (weight_share_ < 1) {
      for (double& bytes : p_.weights_) bytes *= weight_share_;
    }
    p_.shared_ = profile_.shared;
    for (SharedWeight& shared : p_.shared_) {
      if (sums) shared.gradient_bytes = std::max(shared.gradient_bytes, shared.weight_bytes);
      if (own) continue;
      shared.gradient_bytes = shared.weight_bytes * of_gradient;
      shared.slot_bytes = shared.weight_bytes * of_slots;
      shared.weight_bytes *= weight_share_;
    }
  }

  // --- Devices ---

  void list_devices() {
    p_.device_numbers_ = cluster_.device_numbers;
    p_.server_numbers_ = cluster_.server_numbers;
    p_.servers_taken_for_one_ = cluster_.servers_taken_for_one;
    std::vector<double> inter;
    for (const ServerGroup& servers : cluster_.servers) {
      const DeviceType& device = cluster_.devices.at(servers.device);
      const int type = type_of(servers.device, device);
      const int kind = kind_of({type, device.memory_gib * kBytesPerGiB * (1 - p_.options_.memory_reserve),
                                servers.intra_gbytes_per_s * machine::kBytesPerMsPerGByteS,
                                servers.inter_gbytes_per_s * machine::kBytesPerMsPerGByteS,
                                servers.links.empty() ? nullptr : &servers.links});
      for (int s = 0; s < servers.count; ++s) {
        for (int d = 0; d < servers.devices; ++d) {
          p_.server_of_device_.push_back(p_.num_servers());
          type_.push_back(type);
        }
        begin_of_.push_back(static_cast<int>(type_.size()) - servers.devices);
        devices_of_.push_back(servers.devices);
        kind_of_server_.push_back(kind);
        p_.intra_bytes_per_ms_.push_back(server_kinds_[idx(kind)].intra_bytes_per_ms);
        inter.push_back(server_kinds_[idx(kind)].inter_bytes_per_ms);
      }
    }
    const std::size_t servers = p_.intra_bytes_per_ms_.size();
    p_.inter_bytes_per_ms_.assign(servers * servers, 0);
    for (std::size_t first = 0; first < servers; ++first) {
      double smallest = inter[first];
      for (std::size_t last = first; last < servers; ++last) {
        smallest = std::min(smallest, inter[last]);
        p_.inter_bytes_per_ms_[first * servers + last] = smallest;
      }
    }
    list_messages();
  }

  void list_messages() {
    machine::MessageLinks slowest;
    slowest.between_bytes_per_ms = kInfinity;
    for (int server = 0; server < p_.num_servers(); ++server) {
      machine::CollectiveGroup one = no_group();
      one.intra_bytes_per_ms = p_.intra_bytes_per_ms_[idx(server)];
      one.measured = server_kinds_[idx(kind_of_server_[idx(server)])].links;
      p_.messages_.push_back(machine::message_links(one));
      const machine::MessageLinks& links = p_.messages_.back();
      slowest.between_bytes_per_ms = std::min(slowest.between_bytes_per_ms, links.between_bytes_per_ms);
      slowest.between_latency_ms = std::max(slowest.between_latency_ms, links.between_latency_ms);
    }
    for (machine::MessageLinks& links : p_.messages_) {
      links.between_bytes_per_ms = slowest.between_bytes_per_ms;
      links.between_latency_ms = slowest.between_latency_ms;
    }
  }

  // Latencies as the cluster file says.
  machine::CollectiveGroup no_group() const {
    machine::CollectiveGroup group;
    group.intra_latency_ms = cluster_.intra_latency_us * 1e-3;
    group.inter_latency_ms = cluster_.inter_latency_us * 1e-3;
    return group;
  }

  // All properties in which servers may differ, except for the number of their devices.
  struct ServerKind {
    int type = 0;
    double capacity_bytes = 0;  // of a device, without the reserve
    double intra_bytes_per_ms = 0, inter_bytes_per_ms = 0;
    const machine::MeasuredLinks* links = nullptr;  // null: not measured
    bool operator==(const ServerKind& o) const {
      return type == o.type && capacity_bytes == o.capacity_bytes && intra_bytes_per_ms == o.intra_bytes_per_ms &&
             inter_bytes_per_ms == o.inter_bytes_per_ms && links == o.links;
    }
  };

  int kind_of(const ServerKind& server) {
    const auto known = std::find(server_kinds_.begin(), server_kinds_.end(), server);
    if (known != server_kinds_.end()) return static_cast<int>(known - server_kinds_.begin());
    server_kinds_.push_back(server);
    return static_cast<int>(server_kinds_.size()) - 1;
  }

  // A type of device as times see it.
  struct Type {
    const DeviceTimes* times = nullptr;  // null: linear in c_ms
    double speed = 1;                    // relative_speed, where the times are another device's
    bool operator==(const Type& o) const { return times == o.times && speed == o.speed; }
  };

  int type_of(const std::string& name, const DeviceType& device) {
    Type type;
    type.speed = device.relative_speed;
    if (whole_ && !profile_.times.empty()) {
      type.times = &profile_.times.front();
      for (const DeviceTimes& times : profile_.times) {
        if (times.device != name || device.relative_speed != 1) continue;
        type.times = &times;
        type.speed = 1;
      }
    }
    const auto known = std::find(types_.begin(), types_.end(), type);
    if (known != types_.end()) return static_cast<int>(known - types_.begin());
    types_.push_back(type);
    return static_cast<int>(types_.size()) - 1;
  }

  // --- Samples ---

  double most_samples() const {
    double most = kInfinity;
    for (const Type& type : types_) {
      if (type.times != nullptr) most = std::min(most, type.times->samples.back());
    }
    return most;
  }

  void check_samples() const {
    if (p_.micro_batch_samples_ / p_.num_devices_ > most_samples()) {
      throw Error(ErrorKind::kUsage,
                  "a micro-batch of " + std::to_string(static_cast<std::int64_t>(p_.micro_batch_samples_)) +
                      " samples is more than the profile's times reach: " +
                      std::to_string(static_cast<std::int64_t>(most_samples())) + " samples on each of " +
                      std::to_string(p_.num_devices_) + " devices",
                  "make the profile with more --samples, or give a smaller --micro-batch");
    }
  }

  bool size_works(int size) const {
    if (p_.options_.group_size > 0 && size != p_.options_.group_size) return false;
    if (!whole_) return true;
    const double each = p_.micro_batch_samples_ / size;
    return each >= 1 && each == std::floor(each) && each <= most_samples();
  }

  bool dense() const { return p_.num_devices_ <= kMostDenseDevices; }

  void list_sizes() {
    p_.place_of_size_.assign(idx(p_.num_devices_) + 1, 0);
    for (int size = 1; size <= p_.num_devices_; ++size) {
      const bool works = size_works(size);
      if (works) p_.group_sizes_.push_back(size);
      if (works || dense() || size == 1) p_.place_of_size_[idx(size)] = static_cast<int>(++p_.places_);
    }
    ++p_.places_;
    if (p_.group_sizes_.empty()) refuse_samples();
  }

  // No number of devices can share the micro-batch: they do not divide it, or each would get more than times are known
  // for.
  [[noreturn]] void refuse_samples() const {
    const auto samples = static_cast<std::int64_t>(p_.micro_batch_samples_);
    const int asked = p_.options_.group_size, devices = p_.num_devices_;
    const double most = most_samples();
    if (asked > 0 && (asked > devices || samples % asked != 0)) {
      throw Error(ErrorKind::kUsage,
                  "stages of " + std::to_string(asked) + " devices do not divide the " + std::to_string(samples) +
                      " samples of a micro-batch on " + std::to_string(devices) + " devices",
                  asked > devices ? "give at most " + std::to_string(devices) + " devices to a stage"
                                  : "give a --micro-batch that " + std::to_string(asked) + " divides");
    }
    std::int64_t would_do = 1;
    for (int size = asked > 0 ? asked : 1; size <= (asked > 0 ? asked : devices); ++size) {
      would_do = std::max(would_do, size * std::min(samples / size, static_cast<std::int64_t>(most)));
    }
    throw Error(ErrorKind::kUsage,
                "no number of devices up to " + std::to_string(devices) + " divides a micro-batch of " +
                    std::to_string(samples) + " samples into parts of at most " +
                    std::to_string(static_cast<std::int64_t>(most)) + ", as far as the profile's times reach",
                "--micro-batch " + std::to_string(would_do) + " would do, or a profile made with more --samples");
  }

  // Forward and backward of every position with `samples` on a device of the type, ms.
  std::shared_ptr<const SharedColumns::Times> times_at(const Type& type, double samples) const {
    return shared_->times.get({type.times, type.speed, samples}, [&] {
      SharedColumns::Times times{std::vector<double>(n_), std::vector<double>(n_)};
      if (type.times == nullptr) {
        const double factor = samples / p_.profile_samples_ / type.speed, phi = profile_.forward_fraction;
        for (std::size_t i = 0; i < n_; ++i) {
          times.forward[i] = phi * profile_.c_ms[i] * factor;
          times.backward[i] = (1 - phi) * profile_.c_ms[i] * factor;
        }
        return times;
      }
      const std::vector<double>& points = type.times->samples;
      std::size_t right = 0;
      while (right + 1 < points.size() && points[right] < samples) ++right;
      const std::size_t left = points[right] > samples && right > 0 ? right - 1 : right;
      const double part = left == right ? 0 : (samples - points[left]) / (points[right] - points[left]);
      const auto between = [&](const std::vector<std::vector<double>>& ms, std::vector<double>& out) {
        const double *from = ms[left].data(), *to = ms[right].data();
        for (std::size_t i = 0; i < n_; ++i) out[i] = ((1 - part) * from[i] + part * to[i]) / type.speed;
      };
      between(type.times->forward_ms, times.forward);
      between(type.times->backward_ms, times.backward);
      return times;
    });
  }

  // Forward and backward of all positions on a device of the type, as one of so many.
  double all_ms(int type, int size) {
    const auto [found, added] = all_ms_.emplace(std::make_pair(type, size), 0);
    if (!added) return found->second;
    const auto times = times_at(types_[static_cast<std::size_t>(type)], p_.micro_batch_samples_ / size);
    for (std::size_t i = 0; i < n_; ++i) found->second += times->forward[i] + times->backward[i];
    return found->second;
  }

  // The devices of a group wait for each other: the type that takes longest for the whole model. (The type that is
  // slowest at a position would be another one for what only launches kernels, and positions could not be put
  // together.)
  int slowest_of(const std::vector<int>& types, int size) {
    if (types.size() == 1) return types.front();
    return *std::max_element(types.begin(), types.end(),
                             [&](int a, int b) { return all_ms(a, size) < all_ms(b, size); });
  }

  // work_ and device_speed_: no group does a position in fewer device-ms than its work over the speeds of its devices.
  void find_speeds() {
    if (!whole_) {
      p_.work_ = prefix_sums(profile_.c_ms, n_);
      for (double& ms : p_.work_) ms *= per_profile_;
      for (const int type : type_) p_.device_speed_.push_back(types_[static_cast<std::size_t>(type)].speed);
      return;
    }
    std::vector<double> reference, speed;
    for (const Type& type : types_) {
      std::vector<double> least(n_, kInfinity);
      for (const int size : p_.group_sizes_) {
        const auto times = times_at(type, p_.micro_batch_samples_ / size);
        for (std::size_t i = 0; i < n_; ++i) {
          least[i] = std::min(least[i], size * (times->forward[i] + times->backward[i]));
        }
      }
      if (reference.empty()) reference = least;
      double fastest = 0;
      for (std::size_t i = 0; i < n_; ++i) {
        // A position that takes no time here: the reference has none of it, either.
        if (least[i] == 0) reference[i] = 0;
        if (reference[i] > 0) fastest = std::max(fastest, reference[i] / least[i]);
      }
      speed.push_back(fastest > 0 ? fastest : 1);
    }
    p_.work_ = prefix_sums(reference, n_);
    const std::vector<double> of_groups = speeds_in_groups(speed);
    for (const int type : type_) p_.device_speed_.push_back(of_groups[static_cast<std::size_t>(type)]);
  }

  // A group runs as its slowest type does, which may be the quicker one at some position: no device counts as slower
  // than a type that it may have to wait for.
  std::vector<double> speeds_in_groups(const std::vector<double>& speed) {
    std::vector<double> out = speed;
    if (types_.size() == 1) return out;
    for (const int size : p_.group_sizes_) {
      for (std::size_t own = 0; own < speed.size(); ++own) {
        for (std::size_t other = 0; other < speed.size(); ++other) {
          if (all_ms(static_cast<int>(other), size) < all_ms(static_cast<int>(own), size)) continue;
          out[own] = std::max(out[own], speed[other]);
        }
      }
    }
    return out;
  }

  // --- Groups ---

  // Groups that differ in nothing that they say are kept once: on servers that are alike there are few.
  void make_groups() {
    p_.groups_.resize(1);
    p_.groups_.front().valid = false;
    p_.groups_.front().scale = kNoStage;
    p_.group_of_.assign(idx(p_.num_devices_) * p_.places_, 0);
    std::vector<int> kept;
    for (int size = 1; size <= p_.num_devices_; ++size) {
      if (p_.place_of_size_[idx(size)] != 0) kept.push_back(size);
    }
    const std::vector<int> alike_until = ends_of_alike();
    std::unordered_map<std::uint64_t, std::uint32_t> known;
    for (int d0 = 0; d0 < p_.num_devices_; ++d0) {
      const int first = p_.server_of_device(d0), before = d0 - devices_of_[idx(first)];
      // The cluster's first and last server are told apart from those alike.
      const bool as_before = first > 1 && first + 1 < p_.num_servers() && alike_until[idx(first - 1)] > first;
      Span span;
      for (const int size : kept) {
        if (d0 + size > p_.num_devices_) break;
        if (as_before && p_.server_of_device(d0 + size - 1) < alike_until[idx(first)]) {
          p_.group_of_[p_.group_index(d0, d0 + size)] = p_.group_of_[p_.group_index(before, before + size)];
          continue;
        }
        extend(d0, d0 + size, &span);
        const auto [found, added] = known.try_emplace(key_of(span), static_cast<std::uint32_t>(p_.groups_.size()));
        if (added) p_.groups_.push_back(group_on(span));
        p_.group_of_[p_.group_index(d0, d0 + size)] = found->second;
      }
    }
  }

  // For every server: the end of the run of equal servers behind it.
  std::vector<int> ends_of_alike() const {
    std::vector<int> until(idx(p_.num_servers()));
    for (int server = p_.num_servers() - 1; server >= 0; --server) {
      const std::size_t own = idx(server), next = own + 1;
      const bool alike =
          next < until.size() && kind_of_server_[next] == kind_of_server_[own] && devices_of_[next] == devices_of_[own];
      until[own] = alike ? until[next] : server + 1;
    }
    return until;
  }

  // All that a group on neighbouring devices says of them.
  struct Span {
    int size = 0, servers = 0, devices_per_server = 0;
    int kinds = 0;                                         // of its servers, in sets_of_kinds_
    bool in_first_server = false, in_last_server = false;  // of the cluster, with all of its devices
    int last = -1;                                         // server
    int whole_servers = 0;  // the most devices of a server that is neither its first nor its last
  };

  // The same from d0 up to d1, which is further than it reached.
  void extend(int d0, int d1, Span* span) {
    const int first = p_.server_of_device(d0), last = p_.server_of_device(d1 - 1);
    for (int server = std::max(first, span->last); server < last; ++server) {
      if (server > first) span->whole_servers = std::max(span->whole_servers, devices_of_[idx(server)]);
    }
    for (int server = span->last < 0 ? first : span->last + 1; server <= last; ++server) {
      if (server == first || kind_of_server_[idx(server)] != kind_of_server_[idx(server - 1)]) {
        span->kinds = set_with(server == first ? -1 : span->kinds, kind_of_server_[idx(server)]);
      }
    }
    const int in_first = std::min(d1, begin_of_[idx(first)] + devices_of_[idx(first)]) - d0;
    const int in_last = last > first ? d1 - begin_of_[idx(last)] : 0;
    span->size = d1 - d0;
    span->servers = last - first + 1;
    span->devices_per_server = std::max({in_first, in_last, span->whole_servers});
    span->in_first_server = last == 0;
    span->in_last_server = first == p_.num_servers() - 1;
    span->last = last;
  }

  // A set of kinds of servers and one more; -1: of none.
  int set_with(int set, int kind) {
    const auto [found, added] = sets_with_.try_emplace({set, kind}, -1);
    if (added) found->second = make_set_with(set, kind);
    return found->second;
  }

  int make_set_with(int set, int kind) {
    std::vector<int> kinds = set < 0 ? std::vector<int>() : sets_of_kinds_[idx(set)];
    const auto place = std::lower_bound(kinds.begin(), kinds.end(), kind);
    if (place == kinds.end() || *place != kind) kinds.insert(place, kind);
    const auto known = std::find(sets_of_kinds_.begin(), sets_of_kinds_.end(), kinds);
    if (known == sets_of_kinds_.end()) {
      sets_of_kinds_.push_back(std::move(kinds));
      return static_cast<int>(sets_of_kinds_.size()) - 1;
    }
    return static_cast<int>(known - sets_of_kinds_.begin());
  }

  // There are at most kMaxDevices devices and servers, and far fewer than 2^23 sets.
  static std::uint64_t key_of(const Span& span) {
    std::uint64_t key = static_cast<std::uint64_t>(span.kinds);
    for (const int more : {span.size, span.servers, span.devices_per_server}) {
      key = key << 13 | static_cast<std::uint64_t>(more);
    }
    return key << 2 | static_cast<std::uint64_t>(span.in_first_server) << 1 |
           static_cast<std::uint64_t>(span.in_last_server);
  }

  DeviceGroup group_on(const Span& span) {
    DeviceGroup g;
    g.size = span.size;
    g.servers = span.servers;
    g.capacity_bytes = g.port_bytes_per_ms = kInfinity;
    machine::CollectiveGroup ring = no_group();
    ring.devices = span.size;
    ring.servers = span.servers;
    ring.devices_per_server = span.devices_per_server;
    ring.intra_bytes_per_ms = kInfinity;
    ring.measured = server_kinds_[idx(sets_of_kinds_[idx(span.kinds)].front())].links;
    std::vector<int> types;  // of the group's devices, each once
    for (const int kind : sets_of_kinds_[idx(span.kinds)]) {
      const ServerKind& server = server_kinds_[idx(kind)];
      if (std::find(types.begin(), types.end(), server.type) == types.end()) types.push_back(server.type);
      g.capacity_bytes = std::min(g.capacity_bytes, server.capacity_bytes);
      g.port_bytes_per_ms = std::min(g.port_bytes_per_ms, server.inter_bytes_per_ms);
      ring.intra_bytes_per_ms = std::min(ring.intra_bytes_per_ms, server.intra_bytes_per_ms);
      ring.measured = machine::slower(ring.measured, server.links);
    }
    // As many rings as a replica has devices share the servers' ports.
    ring.inter_bytes_per_ms = g.port_bytes_per_ms / p_.options_.width;
    std::sort(types.begin(), types.end());
    set_rates(span, ring, slowest_of(types, g.size), &g);
    return g;
  }

  void set_rates(const Span& span, const machine::CollectiveGroup& ring, int type, DeviceGroup* group) {
    DeviceGroup& g = *group;
    const bool after = p_.options_.gradient_sync == GradientSync::kAfter;
    g.valid = size_works(g.size);
    const machine::Ring kind = after ? machine::Ring::kFlat : machine::Ring::kNccl;
    if (p_.options_.behind_backward) {
      g.all_reduce = machine::all_reduce(ring, kind);
      g.scatter = machine::reduce_scatter(ring, kind);
      g.exchange_in_front = machine::exchange(ring, span.in_first_server);
      g.exchange_behind = machine::exchange(ring, span.in_last_server);
    }
    g.ring_bytes_per_ms = g.servers == 1 ? ring.intra_bytes_per_ms : ring.inter_bytes_per_ms;
    if (!g.valid) {
      g.scale = kNoStage;
      return;
    }
    const Type& of = types_[static_cast<std::size_t>(type)];
    g.speed = of.speed;
    g.scale = whole_ ? 1 : per_profile_ / (g.size * of.speed);
    g.stash_scale = per_profile_ / g.size;
    g.columns = columns_of(g, ring, type);
  }

  // --- Columns ---

  // Groups of the same key share their columns.
  // Type, size, and how weights are gathered and gradients scattered, when the variants' times depend on it.
  using Key = std::tuple<int, int, std::array<double, 4 * machine::CollectiveTime::kLines>>;

  int columns_of(const DeviceGroup& g, const machine::CollectiveGroup& ring, int type) {
    const bool gathers = std::any_of(p_.options_.variants.begin(), p_.options_.variants.end(),
                                     [](const StageVariant& v) { return v.zero >= 1; });
    Key key = {type, whole_ ? g.size : 0, {}};
    if (gathers) {
      double* value = std::get<2>(key).data();
      for (const machine::CollectiveTime& time :
           {machine::all_gather(ring, machine::Ring::kNccl), machine::reduce_scatter(ring, machine::Ring::kNccl)}) {
        for (const machine::CollectiveLine& line : time.lines()) {
          *value++ = line.latency_ms;
          *value++ = line.ms_per_byte;
        }
      }
    }
    const auto [found, added] = kinds_.emplace(key, static_cast<int>(p_.columns_.size()));
    if (added) {
      for (int v = 0; v < p_.num_variants(); ++v) p_.columns_.push_back(make_columns(g, ring, type, v));
    }
    return found->second;
  }

  StageColumns make_columns(const DeviceGroup& g, const machine::CollectiveGroup& ring, int type, int number) {
    const StageVariant& variant = p_.variant(number);
    StageColumns columns;
    set_times(g, ring, type, number, columns);
    columns.optimizer = optimizer_column(types_[static_cast<std::size_t>(type)], variant, g, ring);
    columns.state = state_column(variant, g.size);
    set_stash(variant, g, columns);
    return columns;
  }

  void set_times(const DeviceGroup& g, const machine::CollectiveGroup& ring, int type, int number,
                 StageColumns& columns) {
    const StageVariant& variant = p_.variant(number);
    Type of;  // kFractional: the group's scale has the speed and the samples
    double samples = p_.profile_samples_;
    if (whole_) {
      of = types_[static_cast<std::size_t>(type)];
      samples = p_.micro_batch_samples_ / g.size;
      if (times_of_variants_ != nullptr) {
        of.times = &(*times_of_variants_)[idx(number)][static_cast<std::size_t>(of.times - profile_.times.data())];
      }
    }
    const auto sum = [&](const SharedColumns::Times& times) {
      SharedColumns::Sums sums{prefix_sums(times.backward, n_), std::vector<double>(n_ + 1, 0), {}};
      double both = 0;
      for (std::size_t i = 0; i < n_; ++i) sums.both[i + 1] = both += times.forward[i] + times.backward[i];
      if (!p_.has_weights_pass_ || !splits_backward(variant)) return sums;
      std::vector<double> weights(n_);
      for (std::size_t i = 0; i < n_; ++i) weights[i] = profile_.weight_share[i] * times.backward[i];
      sums.weights = prefix_sums(weights, n_);
      return sums;
    };
    const auto of_variant = [&] {
      SharedColumns::Times times = *times_at(of, samples);
      for (std::size_t i = 0; i < n_ && variant.recompute; ++i) times.backward[i] += times.forward[i];
      return times;
    };
    std::shared_ptr<const SharedColumns::Sums> sums;
    if (variant.zero >= 2 && g.size > 1) {
      SharedColumns::Times times = of_variant();
      add_sharding(ring, variant, times.forward, times.backward);
      sums = std::make_shared<const SharedColumns::Sums>(sum(times));
    } else {
      sums = shared_->sums.get({{of.times, of.speed, samples}, variant.recompute}, [&] { return sum(of_variant()); });
    }
    columns.backward = sums->backward.data();
    columns.both = sums->both.data();
    if (!sums->weights.empty()) columns.weights = sums->weights.data();
    hold(std::move(sums));
  }

  // Adds the traffic of ZeRO 2 and 3 per micro-batch, layer by layer, that the compute beside it does not hide:
  // gradients are scattered while the layer before it goes backward, weights gathered while the one before is computed.
  void add_sharding(const machine::CollectiveGroup& ring, const StageVariant& variant, std::vector<double>& forward,
                    std::vector<double>& backward) const {
    const machine::CollectiveTime gather = machine::all_gather(ring, machine::Ring::kNccl);
    const machine::CollectiveTime scatter = machine::reduce_scatter(ring, machine::Ring::kNccl);
    // The last micro-batch's scatter is the sync that V and the simulation count anyway; B is the mean over
    // micro-batches. Where weights are gathered on the same ports meanwhile, it has no room beside them: there B has
    // all of it.
    const double scattered_share = variant.zero >= 3 ? 1 : 1 - 1.0 / p_.options_.micro_batches;
    double before_forward = 0;
    for (std::size_t first = 0; first < n_;) {
      std::size_t past = first + 1;
      while (past < n_ && !starts_layer(past)) ++past;
      double f = 0, b = 0;
      for (std::size_t i = first; i < past; ++i) {
        f += forward[i];
        b += backward[i];
      }
      const double weights = p_.weights_[past] - p_.weights_[first];
      const double gradients = p_.gradients_[past] - p_.gradients_[first];
      const double fetch = variant.zero >= 3 ? gather.ms(weights) : 0;
      forward[first] += std::max(0.0, fetch - before_forward);
      backward[first] += scattered_share * std::max(0.0, fetch + scatter.ms(gradients) - b);
      before_forward = f;
      first = past;
    }
  }

  bool starts_layer(std::size_t i) const { return starts_layer_[i] != 0; }

  void find_layers() {
    starts_layer_.assign(n_, 1);
    for (std::size_t i = 1; i < n_ && !profile_.layer.empty(); ++i) {
      starts_layer_[i] = profile_.layer[i] != profile_.layer[i - 1];
    }
  }

  // Keeps the data that a column points into alive as long as the problem and its copies.
  void hold(std::shared_ptr<const void> columns) { p_.storage_->columns.push_back(std::move(columns)); }

  // [p0]: the end of the layer that holds the position behind p0.
  std::vector<int> layer_ends() const {
    std::vector<int> ends(n_ + 1, p_.n_);
    for (std::size_t i = n_; i-- > 0;) {
      ends[i] = i + 1 < n_ && starts_layer(i + 1) ? static_cast<int>(i) + 1 : ends[i + 1];
    }
    return ends;
  }

  // With ZeRO 1 and 2 the updated weights are gathered behind it, which nothing hides.
  const double* optimizer_column(const Type& type, const StageVariant& variant, const DeviceGroup& g,
                                 const machine::CollectiveGroup& ring) {
    const int shards = variant.zero >= 1 ? g.size : 1;
    const bool counts = p_.options_.behind_backward;
    const bool gathers = counts && (variant.zero == 1 || variant.zero == 2) && g.size > 1;
    const bool after = p_.options_.gradient_sync == GradientSync::kAfter;
    const double gather_ms_per_byte =
        gathers ? machine::all_gather(ring, after ? machine::Ring::kFlat : machine::Ring::kNccl).ms_per_byte() : 0;
    const bool known = counts && p_.options_.optimizer && !profile_.times.empty();
    const DeviceTimes* times = !known ? nullptr : type.times == nullptr ? &profile_.times.front() : type.times;
    auto column = shared_->optimizers.get({times, type.speed, shards, gather_ms_per_byte}, [&] {
      std::vector<double> values(n_, 0);
      for (std::size_t i = 0; times != nullptr && i < times->optimizer_ms.size(); ++i) {
        values[i] = times->optimizer_ms[i] / type.speed / shards;
      }
      for (std::size_t i = 0; i < n_; ++i) values[i] += gather_ms_per_byte * profile_.w_bytes[i];
      return prefix_sums(values, n_);
    });
    const double* data = column->data();
    hold(std::move(column));
    return data;
  }

  const double* state_column(const StageVariant& variant, int size) {
    const int of_weights = variant.zero >= 3 ? size : 1, of_slots = variant.zero >= 1 ? size : 1;
    const int of_gradients = p_.options_.shards_gradients(variant) ? size : 1;
    auto column = shared_->states.get({state_factor_, of_weights, of_gradients, of_slots}, [&] {
      std::vector<double> sums(n_ + 1);
      for (std::size_t i = 0; i <= n_; ++i) {
        sums[i] = p_.weights_[i] / of_weights + p_.storage_->gradient_state[i] / of_gradients +
                  p_.slots_[i] / of_slots + p_.frozen_[i];
      }
      return sums;
    });
    const double* data = column->data();
    hold(std::move(column));
    return data;
  }

  // [n]: weights that ZeRO 3 has whole while a position is computed: its layer's, and those of the layer in front,
  // which are gathered or freed meanwhile.
  std::vector<double> gathered_bytes() const {
    std::vector<double> bytes(n_, 0);
    double in_front = 0;
    for (std::size_t first = 0; first < n_;) {
      std::size_t past = first + 1;
      while (past < n_ && !starts_layer(past)) ++past;
      const double own = p_.weights_[past] - p_.weights_[first];
      for (std::size_t i = first; i < past; ++i) bytes[i] = own + in_front;
      in_front = own;
      first = past;
    }
    return bytes;
  }

  // Sets the stash, the inputs of a stage, and the workspace; the same for all groups except for the gathered weights
  // of ZeRO 3, which do not shrink with the samples.
  void set_stash(const StageVariant& variant, const DeviceGroup& g, StageColumns& columns) {
    const auto make = [&](bool gathers) { return make_stash(variant, gathers, g.stash_scale); };
    auto made = variant.zero >= 3 && g.size > 1
                    ? shared_->gathered.get({variant.recompute, g.size, g.stash_scale, weight_share_},
                                            [&] { return make(true); })
                    : shared_->stashes.get(variant.recompute, [&] { return make(false); });
    columns.stash = made->stash.data();
    columns.entry = made->entry.data();
    columns.least_entry = made->least_entry.data();
    columns.peak = &made->peak;
    if (variant.recompute) {
      columns.layer_end = made->layer_end.data();
      columns.layer_before = made->layer_before.data();
    }
    hold(std::move(made));
  }

  SharedColumns::Stash make_stash(const StageVariant& variant, bool gathers, double scale) const {
    SharedColumns::Stash made;
    std::vector<double> workspace = profile_.workspace_bytes, kept = profile_.stash_bytes;
    workspace.resize(n_, 0);
    made.entry.assign(n_ + 1, 0);
    if (variant.recompute) {
      made.layer_before.assign(n_ + 1, 0);
      for (std::size_t i = 0; i < n_; ++i) {
        if (!starts_layer(i)) made.layer_before[i] = made.layer_before[i - 1] + profile_.stash_bytes[i - 1];
        workspace[i] += made.layer_before[i] + profile_.stash_bytes[i];
        // A stage that begins here keeps its inputs, whether or not it is a layer's first position.
        const double enters = i == 0 ? 0 : profile_.a_bytes[i - 1];
        const bool known = !profile_.layer_entry_bytes.empty();
        kept[i] = known ? profile_.layer_entry_bytes[i] : starts_layer(i) ? enters : 0;
        made.entry[i] = known ? profile_.stage_entry_bytes[i] : enters - kept[i];
      }
      made.layer_end = layer_ends();
    }
    if (gathers) {
      const std::vector<double> gathered = gathered_bytes();
      for (std::size_t i = 0; i < n_; ++i) workspace[i] += gathered[i] / scale;
    }
    made.stash = prefix_sums(kept, n_);
    // A cut inside of a layer may be fatter than the layer's input, so that a longer stage needs less.
    made.least_entry = made.entry;
    for (std::size_t i = 1; i <= n_; ++i) {
      made.least_entry[i] =
          std::min(made.least_entry[i], made.least_entry[i - 1] + (made.stash[i] - made.stash[i - 1]));
    }
    const bool none = std::all_of(workspace.begin(), workspace.end(), [](double bytes) { return bytes == 0; });
    for (std::size_t i = 0; i < n_; ++i) workspace[i] += made.stash[i + 1];
    if (!none) made.peak = RangeMax(workspace);
    return made;
  }

  Problem& p_;
  const Profile& profile_;
  std::shared_ptr<SharedColumns> shared_;
  const Cluster& cluster_;
  const TimesOfVariants* times_of_variants_;
  std::size_t n_;
  bool whole_;
  double per_profile_ = 1;   // micro-batch over the profile's samples
  double weight_share_ = 1;  // below 1 for a state factor below 1
  // The state factor, or the module's own state: without sums of gradients over micro-batches, and with them.
  static constexpr double kOwnState = -1, kOwnSums = -2;
  double state_factor_ = kOwnState;
  std::vector<char> starts_layer_;  // [n]
  std::vector<Type> types_;
  std::vector<int> type_;  // [D]
  std::vector<ServerKind> server_kinds_;
  std::vector<int> begin_of_, devices_of_, kind_of_server_;  // per server
  std::vector<std::vector<int>> sets_of_kinds_;              // that groups stand on, each ascending
  std::map<std::pair<int, int>, int> sets_with_;             // of a set and a kind more
  std::map<Key, int> kinds_;
  std::map<std::pair<int, int>, double> all_ms_;  // of a type, in a group of so many
};

Problem::Problem(const CheckedProfile& profile, const Cluster& cluster, const ProblemOptions& options)
    : options_(options), n_(static_cast<int>(profile->size())), num_devices_(cluster.num_devices()) {
  build(profile, cluster, nullptr);
}

Problem::Problem(const CheckedProfile& profile, const Cluster& cluster, const ProblemOptions& options,
                 const TimesOfVariants& times)
    : options_(options), n_(static_cast<int>(profile->size())), num_devices_(cluster.num_devices()) {
  build(profile, cluster, &times);
}

void Problem::build(const CheckedProfile& profile, const Cluster& cluster, const TimesOfVariants* times) {
  check_cluster(cluster, cluster.name.empty() ? "cluster" : cluster.name);
  forward_fraction_ = profile->forward_fraction;
  Builder(*this, profile, cluster, times).build();
}

}  // namespace automap::pipeline
