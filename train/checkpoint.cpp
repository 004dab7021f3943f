#include "train/checkpoint.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/json.h"

namespace automap::train {
namespace {

constexpr std::string_view kMagic = "AMCHECKP";
constexpr std::uint32_t kVersion = 2;
constexpr std::uint64_t kMostBytes = std::uint64_t{8} << 30;

template <typename T>
std::string bytes_of(T value) {
  std::string out;
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}
std::uint64_t number_at(std::string_view bytes, std::size_t at, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < width; ++i) {
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  }
  return value;
}

// Reads and writes the counters in one place.
template <typename Visit>
void each_counter(TrainCounters& c, Visit&& visit) {
  visit("round", c.round);
  visit("next_problem", c.next_problem);
  visit("plays", c.plays);
  visit("steps", c.steps);
  visit("after_states", c.after_states);
  visit("decisions", c.decisions);
  visit("labelled", c.labelled);
  visit("infeasible", c.infeasible);
  visit("y", c.y);
  visit("seconds", c.seconds);
  visit("evaluation_seconds", c.evaluation_seconds);
  visit("update_credit", c.update_credit);
  visit("round_problems", c.round_problems);
  visit("progress", c.progress);
  visit("evaluated_plays", c.evaluated_plays);
  visit("evaluated_seconds", c.evaluated_seconds);
  visit("start_score", c.start_score);
  visit("best_score", c.best_score);
  visit("best_episodes", c.best_episodes);
  visit("evaluations", c.evaluations);
  visit("evaluations_since_best", c.evaluations_since_best);
}

}  // namespace

void save_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  Json header = Json::object();
  header["schema"] = "automap.checkpoint/2";
  Json& options = header["options"] = Json::object();
  for (const auto& [name, value] : checkpoint.options) options[name] = value;
  header["data"] = checkpoint.data;
  Json& counters = header["counters"] = Json::object();
  TrainCounters copy = checkpoint.counters;
  each_counter(copy, [&](const char* name, auto& value) { counters[name] = value; });
  Json& curve = header["curve"] = Json::array();
  for (const CurvePoint& point : checkpoint.curve) {
    Json values = Json::array();
    for (const auto& [name, value] : point.values) values.push_back({name, value});
    curve.push_back({{"episodes", point.episodes},
                     {"seconds", point.seconds},
                     {"unix_time", point.unix_time},
                     {"values", std::move(values)}});
  }
  const std::string* const sections[] = {&checkpoint.learner_state, &checkpoint.acting_policy, &checkpoint.best_policy,
                                         &checkpoint.start_policy};
  for (const std::string* section : sections) header["sections"].push_back(section->size());

  AtomicFile file(path);
  std::uint32_t crc = 0;
  const auto write = [&](std::string_view bytes) {
    crc = crc32c(bytes, crc);
    file.write(bytes);
  };
  const std::string text = header.dump(-1, Json::BadUtf8::kReplace);
  write(kMagic);
  write(bytes_of(kVersion));
  write(bytes_of(static_cast<std::uint64_t>(text.size())));
  write(text);
  for (const std::string* section : sections) write(*section);
  file.write(bytes_of(crc));
  file.commit();
}

Checkpoint load_checkpoint(const std::string& path) {
  const std::string bytes = read_own_file(path, kMostBytes);
  const auto damaged = [&](const std::string& what) {
    return Error(ErrorKind::kData, path + ": " + what,
                 "the run cannot go on from it: remove the folder, or start another run with --init policy.bin");
  };
  constexpr std::size_t kFixed = 8 + 4 + 8;
  if (bytes.size() < kMagic.size() || bytes.compare(0, kMagic.size(), kMagic) != 0) {
    throw damaged("not a checkpoint of automap-train");
  }
  if (bytes.size() < kFixed + 4) throw damaged("cut short");
  const std::uint64_t version = number_at(bytes, 8, 4);
  if (version != kVersion) {
    throw damaged("checkpoint version " + std::to_string(version) + ", expected " + std::to_string(kVersion) +
                  ": resume with the program that wrote it, or start from its policy (--init) in another --out");
  }
  const std::string_view view(bytes);
  if (crc32c(view.substr(0, bytes.size() - 4)) != number_at(bytes, bytes.size() - 4, 4)) {
    throw damaged("damaged or cut short: the checksum does not match its " + std::to_string(bytes.size()) + " bytes");
  }
  const std::uint64_t header_bytes = number_at(bytes, 12, 8);
  if (header_bytes > bytes.size() - kFixed - 4) throw damaged("the header does not end within the file");
  Checkpoint out;
  try {
    const Json header = Json::parse(view.substr(kFixed, header_bytes));
    for (const auto& [name, value] : header.at("options").items()) {
      out.options.emplace_back(name, value.get<std::string>());
    }
    out.data = header.at("data").get<std::string>();
    const Json& counters = header.at("counters");
    each_counter(out.counters, [&](const char* name, auto& value) { counters.at(name).get_to(value); });
    for (const Json& p : header.at("curve")) {
      CurvePoint point;
      p.at("episodes").get_to(point.episodes);
      p.at("seconds").get_to(point.seconds);
      p.at("unix_time").get_to(point.unix_time);
      for (const Json& v : p.at("values")) {
        // JSON writes what is not finite as null.
        point.values.emplace_back(v.at(0).get<std::string>(),
                                  v.at(1).is_null() ? std::numeric_limits<double>::quiet_NaN() : v.at(1).get<double>());
      }
      out.curve.push_back(std::move(point));
    }
    std::uint64_t at = kFixed + header_bytes;
    std::size_t section = 0;
    for (std::string* target : {&out.learner_state, &out.acting_policy, &out.best_policy, &out.start_policy}) {
      const auto size = header.at("sections").at(section++).get<std::uint64_t>();
      if (size > bytes.size() - 4 - at) throw damaged("section " + std::to_string(section) + " is cut short");
      target->assign(bytes, at, size);
      at += size;
    }
  } catch (const JsonError& e) {
    throw damaged(std::string("the header cannot be read: ") + e.what());
  }
  return out;
}

void check_same_run(const Checkpoint& checkpoint, const std::vector<std::pair<std::string, std::string>>& options,
                    const std::string& data, const std::string& path) {
  std::string differences;
  int count = 0;
  const auto differs = [&](const std::string& what, const std::string& then, const std::string& now) {
    if (++count > 3) return;
    differences += (count > 1 ? "; " : "") + what + " was " + (then.empty() ? "not given" : then) + " and is now " +
                   (now.empty() ? "not given" : now);
  };
  for (const auto& [name, now] : options) {
    const auto then = std::find_if(checkpoint.options.begin(), checkpoint.options.end(),
                                   [&, &key = name](const auto& o) { return o.first == key; });
    if (then == checkpoint.options.end()) {
      differs("--" + name, "", now);
    } else if (then->second != now) {
      differs("--" + name, then->second, now);
    }
  }
  if (checkpoint.data != data) differs("the data", checkpoint.data, data);
  if (count == 0) return;
  if (count > 3) differences += "; and " + std::to_string(count - 3) + " more";
  throw Error(ErrorKind::kConfig, path + " belongs to a run with other options: " + differences,
              "repeat the run's options (they are in config.ini beside it; --resume alone takes them from there), or "
              "choose another --out");
}

}  // namespace automap::train
