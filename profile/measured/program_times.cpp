// Reads the times that automap-run DIR --measure writes (automap.program-times/1): for every program of a plan its
// kind, the positions of the model that it computes, from 1, and its time on one device.
#include <algorithm>
#include <map>
#include <utility>

#include "common/base/json_reader.h"
#include "profile/measured/forms.h"

namespace automap::measured {
namespace {

constexpr const char* kProgramTimes = "automap.program-times/";
constexpr int kProgramTimesVersion = 1;
constexpr std::int64_t kMostPositions = 100'000'000;

}  // namespace

bool is_program_times(const Json& document) {
  if (!document.is_object() || !document.contains("schema")) return false;
  return document["schema"].is_string() && begins(document["schema"].string(), kProgramTimes);
}

MeasuredTimes read_program_times(const Json& document, const std::string& source) {
  const JsonSource from{source, ErrorKind::kData, "automap run DIR --measure writes it"};
  const JsonValue root(document, from);
  root.schema(kProgramTimes, kProgramTimesVersion, "times of programs");
  MeasuredTimes out;
  out.source = source;
  out.form = "times of programs";
  out.positions = root.at("positions").integer(1, kMostPositions);
  if (root.has("model_sha256")) out.model_sha256 = root.at("model_sha256").text();
  const double samples = root.at("samples").number(1, 1 << 30, "a number of samples");
  std::map<std::pair<std::int64_t, std::int64_t>, double> forward;
  double update = 0;
  for (const JsonValue& program : root.at("programs").items()) {
    const std::string kind = program.at("kind").text();
    const double ms = program.at("ms").not_negative("ms");
    if (kind == "update") {
      update += ms;
      continue;
    }
    if (kind != "forward" && kind != "backward") program.at("kind").wrong("forward, backward or update");
    MeasuredTime time;
    time.named = Named::kPositions;
    time.name = program.at("name").text();
    time.samples = samples;
    const std::vector<JsonValue> positions = program.at("positions").items();
    if (positions.size() != 2) program.at("positions").wrong("the first and the last");
    time.first = positions[0].integer(1, out.positions);
    time.last = positions[1].integer(time.first, out.positions);
    if (kind == "forward") {
      time.forward_ms = ms;
      forward[{time.first, time.last}] = ms;
    } else {
      time.backward_ms = ms;
      // Programs of a part are forward before backward.
      if (program.has("recomputes") && program.at("recomputes").boolean()) {
        const auto again = forward.find({time.first, time.last});
        if (again != forward.end()) time.backward_ms = std::max(0.0, ms - again->second);
      }
    }
    out.times.push_back(std::move(time));
  }
  if (update > 0) {
    MeasuredTime time;
    time.named = Named::kOptimizer;
    time.name = "update";
    time.forward_ms = update;
    out.times.push_back(std::move(time));
  }
  return out;
}

}  // namespace automap::measured
