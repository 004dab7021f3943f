#include "common/machine/collectives_json.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/regular_file.h"
#include "common/machine/link_fit.h"
#include "common/machine/nccl_log.h"

namespace automap::machine {
namespace {

constexpr std::uint64_t kMaxLogBytes = 16 << 20;
constexpr int kMostDevices = 4096;
// The largest size must be at least this: gradients are larger, and smaller messages do not tell their time.
constexpr double kLeastLargest = 1 << 20;
constexpr std::size_t kLeastSizes = 3, kMostSizes = 1000;
// Limits of bus bandwidth (bytes around a ring) that no real link passes: beyond them the column is in another unit.
// The lower limits count from kLeastLargest bytes on; 1 Gbit/s Ethernet between servers is slower than any link inside
// one.
constexpr double kMostBusGBytes = 1e4, kLeastBusGBytesInside = 0.1, kLeastBusGBytes = 1e-3;
constexpr double kMostBytes = 1e13;
// Limits between neighbouring sizes above kSmallestFitted: the ratio of their bytes, and the ratio of their times over
// that of their bytes.
constexpr double kWidestHole = 128, kSteepest = 8;
// So many times the bytes take longer.
constexpr double kFlatBytes = 64, kFlatTime = 1.2;
constexpr CollectiveKind kOperations[] = {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter,
                                          CollectiveKind::kAllGather, CollectiveKind::kAllToAll,
                                          CollectiveKind::kPermute};

CollectiveKind operation_of(const JsonValue& value) {
  const std::string name = value.text();
  std::string known;
  for (const CollectiveKind operation : kOperations) {
    if (name == file_word(operation)) return operation;
    known += (known.empty() ? "" : ", ") + std::string(file_word(operation));
  }
  value.wrong("one of " + known);
}

int lines_for(CollectiveKind operation) {
  return operation == CollectiveKind::kPermute ? 1 : static_cast<int>(CollectiveTime::kLines);
}

CollectiveTime fitted(const std::vector<MeasuredTime>& times, CollectiveKind operation, double* fit_error) {
  const CollectiveTime time = fit_lines(times, lines_for(operation));
  *fit_error = largest_error(times, time);
  return time;
}

double bus_gbytes_per_s(const MeasuredCollective& of, double bytes, double ms) {
  const double share = of.operation == CollectiveKind::kPermute ? 1 : (of.devices - 1.0) / of.devices;
  return (of.operation == CollectiveKind::kAllReduce ? 2 : 1) * share * bytes / ms / kBytesPerMsPerGByteS;
}

std::string short_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

// `value`: the time, or the line's bandwidth.
void check_bus(const JsonValue& value, const MeasuredCollective& of, double bytes, double ms) {
  const double bus = bus_gbytes_per_s(of, bytes, ms);
  const double least = of.servers == 1 ? kLeastBusGBytesInside : kLeastBusGBytes;
  if (bus <= kMostBusGBytes && (bus >= least || bytes < kLeastLargest)) return;
  value.wrong("a bus bandwidth from " + short_text(least) + " to " + short_text(kMostBusGBytes) + " GB/s, this is " +
                  short_text(bus),
              "bytes are bytes, ms milliseconds, gbytes_per_s 1e9 bytes per second");
}

// A table's newest time against those before it.
void check_growth(const JsonValue& bytes, const JsonValue& ms, const std::vector<MeasuredTime>& times) {
  const MeasuredTime& last = times.back();
  if (last.bytes > kMostBytes) bytes.wrong("a size of at most " + short_text(kMostBytes) + " bytes");
  if (times.size() < 2 || last.bytes <= kSmallestFitted) return;
  const MeasuredTime& before = times[times.size() - 2];
  if (last.bytes > kWidestHole * before.bytes) {
    bytes.wrong("at most " + short_text(kWidestHole) + " times the size before: sizes between them are missing",
                "measure every fourth power of two, say");
  }
  if (before.bytes >= kSmallestFitted && last.ms / before.ms > kSteepest * last.bytes / before.bytes) {
    ms.wrong("at most " + short_text(kSteepest) + " times what the bytes grow by: " + short_text(before.ms) +
                 " ms the size before",
             "measured beside other work? measure again");
  }
  for (const MeasuredTime& other : times) {
    if (other.bytes < kLeastLargest || last.bytes < kFlatBytes * other.bytes || last.ms >= kFlatTime * other.ms)
      continue;
    ms.wrong("a time above the " + short_text(other.ms) + " ms of " + short_text(other.bytes) + " bytes",
             "were the operations waited for before the clock was stopped?");
  }
}

// "bytes" and "ms", as long as each other, both growing.
CollectiveTime from_table(const JsonValue& row, const MeasuredCollective& of, double* fit_error) {
  const std::vector<JsonValue> bytes = row.at("bytes").items(), ms = row.at("ms").items();
  if (bytes.size() != ms.size()) {
    row.at("ms").fail("found " + std::to_string(ms.size()) + " times for " + std::to_string(bytes.size()) +
                      " sizes, expected one for each");
  }
  if (bytes.size() > kMostSizes) row.at("bytes").fail("more than " + std::to_string(kMostSizes) + " sizes");
  std::vector<MeasuredTime> times;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    add_measured_time(bytes[i], ms[i], "ms", 1, &times);
    check_bus(ms[i], of, times.back().bytes, times.back().ms);
  }
  check_reach(row.at("bytes"), times);
  return fitted(times, of.operation, fit_error);
}

// Nine digits, so that what is read and written again is the same text.
double rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return std::strtod(text, nullptr);
}

CollectiveTime from_lines(const JsonValue& value, const MeasuredCollective& of) {
  const std::vector<JsonValue> items = value.items();
  const auto most = static_cast<std::size_t>(lines_for(of.operation));
  if (items.empty() || items.size() > most) value.wrong("1 to " + std::to_string(most) + " lines");
  CollectiveTime::Lines lines{};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const JsonValue& item = items[std::min(i, items.size() - 1)];
    item.only_keys({"latency_us", "gbytes_per_s"});
    lines[i].latency_ms = item.at("latency_us").not_negative("microseconds") * 1e-3;
    lines[i].ms_per_byte = 1e-6 / item.at("gbytes_per_s").positive("GB/s");
    check_bus(item.at("gbytes_per_s"), of, kBytesPerMsPerGByteS, kBytesPerMsPerGByteS * lines[i].ms_per_byte);
  }
  return CollectiveTime(lines);
}

MeasuredCollective from_log(const JsonValue& row, const std::string& folder, double* fit_error) {
  const std::string name = row.at("nccl_tests").text();
  const std::string path = (std::filesystem::path(folder) / name).string();
  std::string text;
  try {
    require_regular_file(path);  // a FIFO that a file names would be waited for without end
    text = read_file(path, kMaxLogBytes);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kIo) throw;
    try {
      row.at("nccl_tests").fail(error.what(), "paths are looked for beside the cluster file");
    } catch (const Error& named) {
      throw Error(ErrorKind::kIo, named.what(), named.hint());
    }
  }
  const NcclLog log = parse_nccl_log(text, path);
  const bool send = log.operation == CollectiveKind::kPermute;
  MeasuredCollective found{
      log.operation, send ? 2 : log.devices, send ? std::min(log.servers, 2) : log.servers, {}, false};
  if (row.has("operation") && operation_of(row.at("operation")) != found.operation) {
    row.at("operation").wrong(std::string("the log's, ") + file_word(found.operation));
  }
  for (const auto& [key, value] : {std::pair("devices", found.devices), std::pair("servers", found.servers)}) {
    if (row.has(key) && row.at(key).integer(1, kMostDevices) != value) {
      row.at(key).wrong("the log's, " + std::to_string(value));
    }
  }
  check_reach(row.at("nccl_tests"), log.times);
  found.time = fitted(log.times, found.operation, fit_error);
  return found;
}

MeasuredCollective read_row(const JsonValue& row, const std::string& folder, double* fit_error) {
  row.only_keys({"operation", "devices", "servers", "bytes", "ms", "lines", "nccl_tests", "assumed"});
  const int sources =
      (row.has("bytes") || row.has("ms") ? 1 : 0) + (row.has("lines") ? 1 : 0) + (row.has("nccl_tests") ? 1 : 0);
  if (sources != 1) row.fail("expected one of bytes and ms, lines, or nccl_tests");
  if (row.has("nccl_tests")) return from_log(row, folder, fit_error);
  MeasuredCollective found;
  found.operation = operation_of(row.at("operation"));
  const bool send = found.operation == CollectiveKind::kPermute;
  if (!send || row.has("devices")) {
    found.devices = static_cast<int>(row.at("devices").integer(2, send ? 2 : kMostDevices));
  }
  if (row.has("servers")) {
    found.servers = static_cast<int>(row.at("servers").integer(1, send ? 2 : kMostDevices));
    if (found.devices % found.servers != 0) row.at("servers").wrong("a number that divides the devices");
  }
  if (row.has("assumed")) found.assumed = row.at("assumed").boolean();
  found.time = row.has("lines") ? from_lines(row.at("lines"), found) : from_table(row, found, fit_error);
  return found;
}

}  // namespace

void add_measured_time(const JsonValue& bytes, const JsonValue& time, const std::string& unit, double ms_each,
                       std::vector<MeasuredTime>* times) {
  const MeasuredTime added{bytes.positive("bytes"), time.positive(unit) * ms_each};
  if (!times->empty() && added.bytes <= times->back().bytes) bytes.wrong("a size above the one before");
  if (!times->empty() && added.ms < times->back().ms) {
    time.wrong("a time not below the one before: larger messages take longer");
  }
  times->push_back(added);
  check_growth(bytes, time, *times);
}

void check_reach(const JsonValue& value, const std::vector<MeasuredTime>& times) {
  if (times.size() < kLeastSizes) {
    value.fail("found " + std::to_string(times.size()) + " sizes, expected at least " + std::to_string(kLeastSizes));
  }
  if (times.back().bytes < kLeastLargest) {
    value.fail("the largest size is " + std::to_string(static_cast<std::int64_t>(times.back().bytes)) +
                   " bytes, expected at least " + std::to_string(static_cast<std::int64_t>(kLeastLargest)),
               "measure up to the size of all gradients of a stage");
  }
}

MeasuredLinks read_collectives(const JsonValue& value, const std::string& folder, std::vector<double>* fit_errors) {
  MeasuredLinks links;
  for (const JsonValue& row : value.items()) {
    double fit_error = -1;
    const MeasuredCollective found = read_row(row, folder, &fit_error);
    if (fit_errors != nullptr) fit_errors->push_back(fit_error);
    for (const MeasuredCollective& other : links.rows) {
      if (other.operation != found.operation || other.devices != found.devices || other.servers != found.servers) {
        continue;
      }
      row.fail(std::string(file_word(found.operation)) + " of " + std::to_string(found.devices) + " devices on " +
               std::to_string(found.servers) + " servers is given twice");
    }
    links.rows.push_back(found);
  }
  if (links.empty()) value.wrong("at least one measured operation");
  return links;
}

void check_groups_fit(const JsonValue& value, const MeasuredLinks& links, int devices) {
  const std::vector<JsonValue> rows = value.items();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const MeasuredCollective& row = links.rows[i];
    const int here = row.operation == CollectiveKind::kPermute ? 1 : row.devices / row.servers;
    if (here <= devices) continue;
    rows[i].fail("found " + std::to_string(row.devices) + " devices on " + std::to_string(row.servers) +
                     (row.servers == 1 ? " server" : " servers") + ", expected at most " + std::to_string(devices) +
                     " on each: no server has more",
                 "over several servers, say how many with servers");
  }
}

const char* file_word(CollectiveKind kind) {
  return kind == CollectiveKind::kPermute ? "send" : to_string(kind);
}

Json collectives_json(const MeasuredLinks& links) {
  Json rows = Json::array();
  for (const MeasuredCollective& row : links.rows) {
    Json out = Json::object();
    out["operation"] = file_word(row.operation);
    out["devices"] = row.devices;
    out["servers"] = row.servers;
    if (row.assumed) out["assumed"] = true;
    out["lines"] = Json::array();
    const CollectiveTime::Lines& lines = row.time.lines();
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (i > 0 && lines[i] == lines[i - 1]) break;
      out["lines"].push_back(
          {{"latency_us", rounded(lines[i].latency_ms * 1e3)}, {"gbytes_per_s", rounded(1e-6 / lines[i].ms_per_byte)}});
    }
    rows.push_back(std::move(out));
  }
  return rows;
}

}  // namespace automap::machine
