#include "train/curves.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "common/base/error.h"
#include "common/base/files.h"

namespace automap::train {
namespace {

template <typename T>
void put_bytes(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i));
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

// Protocol buffers: a field is key (number << 3 | wire type) and value; wire type 0 varint, 1 eight bytes, 2 length and
// bytes, 5 four bytes.
void put_double(std::string& out, int field, double value) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3 | 1);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  put_bytes(out, bits);
}
void put_float(std::string& out, int field, float value) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3 | 5);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  put_bytes(out, bits);
}
void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3 | 2);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string record(const std::string& event) {
  std::string out;
  put_bytes(out, static_cast<std::uint64_t>(event.size()));
  put_bytes(out, masked_crc32c(out));
  const std::uint32_t crc = masked_crc32c(event);
  out += event;
  put_bytes(out, crc);
  return out;
}

void append_to_file(const std::string& path, std::string_view bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  int error = fd < 0 ? errno : 0;
  const off_t before = error == 0 ? ::lseek(fd, 0, SEEK_END) : -1;
  while (error == 0 && !bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  // A full disk must not leave half a record.
  if (error != 0 && before >= 0 && ::ftruncate(fd, before) != 0) error = errno;
  if (fd >= 0 && ::close(fd) != 0 && error == 0) error = errno;
  if (error != 0) throw Error(ErrorKind::kIo, path + ": " + std::strerror(error));
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

}  // namespace

std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string event_file_header(double unix_time) {
  std::string event;
  put_double(event, 1, unix_time);       // Event.wall_time
  put_bytes(event, 3, "brain.Event:2");  // Event.file_version
  return record(event);
}

std::string event_record(const CurvePoint& point) {
  std::string summary;
  for (const auto& [name, value] : point.values) {
    if (!std::isfinite(value)) continue;
    std::string scalar;
    put_bytes(scalar, 1, name);                       // Summary.Value.tag
    put_float(scalar, 2, static_cast<float>(value));  // Summary.Value.simple_value
    put_bytes(summary, 1, scalar);                    // Summary.value
  }
  std::string event;
  put_double(event, 1, point.unix_time);
  put_varint(event, 2 << 3);  // Event.step
  put_varint(event, point.episodes);
  put_bytes(event, 5, summary);  // Event.summary
  return record(event);
}

std::string curves_csv(const std::vector<CurvePoint>& points) {
  std::vector<std::string> names;
  for (const CurvePoint& point : points) {
    for (const auto& [name, value] : point.values) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  std::string out = "episodes,seconds";
  for (const std::string& name : names) out += "," + name;
  out += "\n";
  for (const CurvePoint& point : points) {
    out += std::to_string(point.episodes) + "," + number_text(point.seconds);
    for (const std::string& name : names) {
      const auto at =
          std::find_if(point.values.begin(), point.values.end(), [&](const auto& v) { return v.first == name; });
      out += ",";
      if (at != point.values.end() && std::isfinite(at->second)) out += number_text(at->second);
    }
    out += "\n";
  }
  return out;
}

Curves::Curves(std::string folder, std::vector<CurvePoint> points)
    : csv_path_(folder + "/curves.csv"),
      events_path_(folder + "/events.out.tfevents.automap"),
      points_(std::move(points)) {
  std::string events = event_file_header(points_.empty() ? 0 : points_.front().unix_time);
  for (const CurvePoint& point : points_) events += event_record(point);
  write_file_atomic(events_path_, events);
  write_file_atomic(csv_path_, curves_csv(points_));
}

void Curves::add(CurvePoint point) {
  append_to_file(events_path_, event_record(point));
  points_.push_back(std::move(point));
  write_file_atomic(csv_path_, curves_csv(points_));
}

}  // namespace automap::train
