#include "plan/planners/learned/online_state.h"

#include <algorithm>
#include <cmath>

#include "common/base/byte_stream.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/regular_file.h"

namespace automap::planners {
namespace {

constexpr std::string_view kMagic = "AMONLINE";
constexpr std::uint32_t kVersion = 1;

void put(ByteWriter& out, const std::optional<pipeline::Plan>& plan) {
  out.put<std::uint8_t>(plan ? 1 : 0);
  if (!plan) return;
  out.put_vector(plan->cuts);
  out.put_vector(plan->device_cuts);
  out.put<std::uint8_t>(static_cast<std::uint8_t>(plan->schedule));
  out.put_vector(plan->variants);
  out.put_vector(plan->warmup);
}

std::optional<pipeline::Plan> plan_of(ByteReader& in) {
  if (in.get<std::uint8_t>() == 0) return std::nullopt;
  pipeline::Plan plan;
  plan.cuts = in.get_vector<int>();
  plan.device_cuts = in.get_vector<int>();
  const std::vector<pipeline::Schedule> schedules = pipeline::alternating_schedules();
  plan.schedule = static_cast<pipeline::Schedule>(in.get<std::uint8_t>());
  if (std::find(schedules.begin(), schedules.end(), plan.schedule) == schedules.end()) in.fail("an unknown schedule");
  plan.variants = in.get_vector<std::uint8_t>();
  plan.warmup = in.get_vector<int>();
  return plan;
}

constexpr char kRemedy[] = "name another file to begin anew";

void check_same(const Asked& then, const Asked& now, const std::string& path) {
  for (std::size_t i = 0; i < std::max(then.size(), now.size()); ++i) {
    const auto at = [&](const Asked& asked) { return i < asked.size() ? asked[i] : Asked::value_type(); };
    if (at(then) == at(now)) continue;
    const std::string& name = i < now.size() ? now[i].first : then[i].first;
    throw Error(ErrorKind::kData,
                path + ": the state of another search: " + name + " was " + at(then).second + " there and is " +
                    at(now).second + " now",
                kRemedy);
  }
}

}  // namespace

void save_online_state(const std::string& path, const OnlineState& state) {
  ByteWriter out;
  out.bytes().append(kMagic);
  out.put(kVersion);
  out.put<std::uint64_t>(state.asked.size());
  for (const auto& [name, value] : state.asked) {
    out.put_string(name);
    out.put_string(value);
  }
  out.put(state.rounds);
  out.put(state.plays);
  out.put(state.seconds);
  out.put_vector(state.steps);
  out.put<std::uint64_t>(state.best.size());
  for (const auto& plan : state.best) put(out, plan);
  out.put_vector(state.best_ms);
  out.put_string(state.learner);
  out.put(crc32c(out.bytes()));
  write_file_atomic(path, out.bytes());
}

OnlineState load_online_state(const std::string& path, const std::optional<Asked>& asked) {
  // The library that this stands in sees no signal: it must not wait for who is at the other end of a FIFO.
  require_regular_file(path);
  const std::string bytes = read_file(path);
  std::uint32_t crc = 0;
  if (bytes.compare(0, kMagic.size(), kMagic) != 0 || bytes.size() < kMagic.size() + sizeof kVersion + sizeof crc) {
    throw Error(ErrorKind::kData, path + ": not the state of an online search", kRemedy);
  }
  const std::string_view body = std::string_view(bytes).substr(0, bytes.size() - sizeof crc);
  ByteReader in(body.substr(kMagic.size()), path);
  const auto version = in.get<std::uint32_t>();
  if (version != kVersion) {
    throw Error(ErrorKind::kData,
                path + ": version " + std::to_string(version) + ", this program knows " + std::to_string(kVersion),
                kRemedy);
  }
  if (ByteReader(std::string_view(bytes).substr(body.size()), path).get<std::uint32_t>() != crc32c(body)) {
    in.fail("its checksum is another");
  }
  OnlineState state;
  const auto count = in.get<std::uint64_t>();
  for (std::uint64_t i = 0; i < count; ++i) {
    std::string name = in.get_string();
    state.asked.emplace_back(std::move(name), in.get_string());
  }
  if (asked) check_same(state.asked, *asked, path);
  state.rounds = in.get<std::uint64_t>();
  state.plays = in.get<std::uint64_t>();
  state.seconds = in.get<double>();
  state.steps = in.get_vector<pipeline::PlanLearning::Step>();
  const auto spaces = in.get<std::uint64_t>();
  for (std::uint64_t i = 0; i < spaces; ++i) state.best.push_back(plan_of(in));
  state.best_ms = in.get_vector<double>();
  state.learner = in.get_string();
  if (state.best_ms.size() != state.best.size()) in.fail("lengths without plans");
  const auto is_length = [](double value) { return std::isfinite(value) && value >= 0; };
  if (!is_length(state.seconds)) in.fail("a search of no length");
  for (std::size_t i = 0; i < state.best.size(); ++i) {
    if (state.best[i] && !is_length(state.best_ms[i])) in.fail("a plan of no length");
  }
  return state;
}

}  // namespace automap::planners
