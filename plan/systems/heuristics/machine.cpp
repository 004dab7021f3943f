#include "plan/systems/heuristics/machine.h"

#include "common/base/check.h"

namespace automap::heuristics {

namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

}  // namespace

Machine::Machine(const machine::Cluster& cluster, int devices)
    : links_(std::make_shared<soap::MachineLinks>(cluster, devices)) {
  const int n = links_->num_devices();
  for (const machine::ServerGroup& kind : cluster.servers) {
    const double bytes = cluster.devices.at(kind.device).memory_gib * kGib;
    for (int d = 0; d < kind.count * kind.devices && static_cast<int>(capacity_.size()) < n; ++d)
      capacity_.push_back(bytes);
  }
  for (DeviceId d = 0; d < n; ++d) speed_.push_back(links_->speed(d));
  pairs_.resize(at(n) * at(n));
  for (DeviceId a = 0; a < n; ++a) {
    for (DeviceId b = 0; b < n; ++b) {
      if (a == b) continue;
      Pair& pair = pairs_[at(a) * at(n) + at(b)];
      pair.latency_ms = links_->send_ms(a, b, 0);
      constexpr double kLarge = 1e9;  // so that the subtraction loses no digits
      pair.ms_per_byte = (links_->send_ms(a, b, kLarge) - pair.latency_ms) / kLarge;
    }
  }
  take_means();
}

void Machine::take_means() {
  const auto n = static_cast<double>(speed_.size());
  mean_ = {};
  if (speed_.size() < 2) return;
  for (const Pair& pair : pairs_) {
    mean_.latency_ms += pair.latency_ms / (n * (n - 1));
    mean_.ms_per_byte += pair.ms_per_byte / (n * (n - 1));
  }
}

double Machine::total_speed() const {
  double out = 0;
  for (const double speed : speed_) out += speed;
  return out;
}

Machine Machine::first(int devices) const {
  AM_CHECK(devices >= 1 && devices <= num_devices());
  Machine out = *this;
  out.speed_.resize(at(devices));
  out.capacity_.resize(at(devices));
  out.pairs_.clear();
  for (DeviceId a = 0; a < devices; ++a) {
    for (DeviceId b = 0; b < devices; ++b) out.pairs_.push_back(pairs_[at(a) * speed_.size() + at(b)]);
  }
  out.take_means();
  return out;
}

Machine Machine::slowed(const std::vector<double>& slow) const {
  AM_CHECK(slow.size() == speed_.size());
  Machine out = *this;
  for (std::size_t d = 0; d < slow.size(); ++d) out.speed_[d] /= slow[d];
  return out;
}

}  // namespace automap::heuristics
