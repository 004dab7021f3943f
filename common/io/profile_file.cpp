#include "common/io/profile_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/printable.h"
#include "common/io/hdf5.h"
#include "common/io/pipedream.h"
#include "common/io/profile_columns.h"
#include "common/io/profile_csv.h"

namespace automap::io {
namespace {

using pipeline::Profile;

// The ranges of the attributes; the columns are checked by check_profile.
void check_attributes(const Profile& profile, const std::string& source) {
  if (!std::isfinite(profile.micro_batch_size) || profile.micro_batch_size < 0) {
    throw Error(ErrorKind::kData, source + ": micro_batch_size is " + std::to_string(profile.micro_batch_size) +
                                      ", expected a finite value of at least 0");
  }
  check_profile(profile, source);
}

// --- HDF5 ---

// By position: the datasets of shared weights, which are there all or not at all.
constexpr std::array<const char*, 5> kShared = {"shared_first", "shared_position", "shared_weight_bytes",
                                                "shared_gradient_bytes", "shared_slot_bytes"};
constexpr std::uint64_t kMaxDevices = 64, kMaxPoints = 1024;
constexpr std::uint64_t kMaxTableValues = std::uint64_t{1} << 28;

// The first device's tables stand in the root, those of device d behind it in /device_d.
std::string device_prefix(std::size_t device) {
  return device == 0 ? "" : "device_" + std::to_string(device + 1) + "/";
}

// Returns the number of devices.
std::uint64_t put_times(const Hdf5Reader& reader, ByteWriter* out) {
  const bool there = reader.has_strings("devices");
  out->put<std::uint8_t>(there);
  if (!there) return 0;
  ByteWriter names;
  reader.strings("devices", kMaxDevices, &names);
  out->bytes() += names.bytes();
  ByteReader counter(names.bytes(), "");
  const auto devices = counter.get<std::uint64_t>();
  for (std::uint64_t d = 0; d < devices; ++d) {
    const std::string prefix = device_prefix(d);
    reader.table(prefix + "points", 2 * kMaxPoints, out);
    reader.table(prefix + "c_forward_ms", kMaxTableValues, out);
    reader.table(prefix + "c_backward_ms", kMaxTableValues, out);
    reader.doubles(prefix + "optimizer_ms", kMaxInstructions, out);
  }
  return devices;
}

// A width's columns in the group /width_T, and where they stand in WidthColumns.
std::string width_prefix(std::int32_t width) {
  return "width_" + std::to_string(width) + "/";
}
struct WidthColumn {
  const char* name;
  std::vector<double> pipeline::WidthColumns::*values;
};
constexpr std::array<WidthColumn, 9> kWidthColumns = {
    {{"w_bytes", &pipeline::WidthColumns::w_bytes},
     {"gradient_bytes", &pipeline::WidthColumns::gradient_bytes},
     {"slot_bytes", &pipeline::WidthColumns::slot_bytes},
     {"frozen_bytes", &pipeline::WidthColumns::frozen_bytes},
     {"stash_bytes", &pipeline::WidthColumns::stash_bytes},
     {"workspace_bytes", &pipeline::WidthColumns::workspace_bytes},
     {"layer_entry_bytes", &pipeline::WidthColumns::layer_entry_bytes},
     {"stage_entry_bytes", &pipeline::WidthColumns::stage_entry_bytes},
     {"weight_share", &pipeline::WidthColumns::weight_share}}};
constexpr std::uint64_t kMaxWidths = 16;
constexpr double kMaxWidth = 1024;
bool is_width(double width) {
  return width >= 1 && width <= kMaxWidth && width == std::floor(width);
}

// Times by width, each of the devices in the file's order; width 1 alone has its optimizer_ms by now.
std::map<std::int32_t, std::vector<pipeline::DeviceTimes>> read_times(ByteReader* in, std::size_t n,
                                                                      const std::string& source) {
  std::map<std::int32_t, std::vector<pipeline::DeviceTimes>> out;
  if (in->get<std::uint8_t>() == 0) return out;
  std::size_t d = 0;
  for (const std::string& name : read_strings(in)) {
    const std::string prefix = device_prefix(d++);
    std::map<std::int32_t, pipeline::DeviceTimes> of_width;
    const Hdf5Table points = read_table(in);
    if (points.columns != 2) {
      throw Error(ErrorKind::kData, source + ": dataset /" + prefix + "points: found " +
                                        std::to_string(points.columns) + " columns, expected 2: samples and width");
    }
    for (const char* column : {"c_forward_ms", "c_backward_ms"}) {
      const Hdf5Table table = read_table(in);
      if (table.rows != points.rows || table.columns != n) {
        throw Error(ErrorKind::kData, source + ": dataset /" + prefix + column + ": found " +
                                          std::to_string(table.rows) + " x " + std::to_string(table.columns) +
                                          " values, expected " + std::to_string(points.rows) + " x " +
                                          std::to_string(n));
      }
      const bool forward = column == std::string_view("c_forward_ms");
      for (std::uint64_t r = 0; r < points.rows; ++r) {
        const double width = points.values[2 * r + 1];
        if (!is_width(width)) {
          throw Error(ErrorKind::kData, source + ": dataset /" + prefix + "points: found a width of " +
                                            std::to_string(width) + ", expected a whole number of at least 1");
        }
        pipeline::DeviceTimes& times = of_width[static_cast<std::int32_t>(width)];
        times.device = name;
        if (forward) times.samples.push_back(points.values[2 * r]);
        const auto begin = table.values.begin() + static_cast<std::ptrdiff_t>(r * n);
        (forward ? times.forward_ms : times.backward_ms).emplace_back(begin, begin + static_cast<std::ptrdiff_t>(n));
      }
    }
    of_width[1].device = name;
    of_width[1].optimizer_ms = in->get_vector<double>();
    for (auto& [width, times] : of_width) out[width].push_back(std::move(times));
  }
  return out;
}

void write_times(Hdf5Writer& writer, const Profile& profile) {
  if (profile.times.empty()) return;
  std::vector<std::string> names;
  for (const pipeline::DeviceTimes& times : profile.times) names.push_back(times.device);
  writer.write_strings("devices", names);
  for (std::size_t d = 0; d < profile.times.size(); ++d) {
    const pipeline::DeviceTimes& times = profile.times[d];
    const std::string prefix = device_prefix(d);
    if (d > 0) writer.write_group(prefix.substr(0, prefix.size() - 1));
    std::vector<std::pair<std::int32_t, const pipeline::DeviceTimes*>> by_width = {{1, &times}};
    for (const pipeline::WidthColumns& columns : profile.widths)
      by_width.emplace_back(columns.width, &columns.times[d]);
    std::vector<float> points;
    for (const auto& [width, of_width] : by_width) {
      for (const double samples : of_width->samples) {
        points.push_back(static_cast<float>(samples));
        points.push_back(static_cast<float>(width));
      }
    }
    writer.write_table(prefix + "points", 2, points);
    const auto table = [&](const char* name, std::vector<std::vector<double>> pipeline::DeviceTimes::*rows) {
      std::vector<float> values;
      values.reserve(points.size() / 2 * profile.c_ms.size());
      for (const auto& one : by_width) {
        for (const std::vector<double>& row : one.second->*rows) {
          for (const double value : row) values.push_back(static_cast<float>(value));
        }
      }
      writer.write_table(prefix + name, profile.c_ms.size(), values);
    };
    table("c_forward_ms", &pipeline::DeviceTimes::forward_ms);
    table("c_backward_ms", &pipeline::DeviceTimes::backward_ms);
    writer.write_doubles(prefix + "optimizer_ms", times.optimizer_ms);
  }
}

void write_shared(Hdf5Writer& writer, const std::string& prefix, const std::vector<pipeline::SharedWeight>& shared) {
  if (shared.empty()) return;
  std::array<std::vector<double>, kShared.size()> columns;
  for (const pipeline::SharedWeight& weight : shared) {
    const std::array<double, kShared.size()> row = {static_cast<double>(weight.first),
                                                    static_cast<double>(weight.position), weight.weight_bytes,
                                                    weight.gradient_bytes, weight.slot_bytes};
    for (std::size_t i = 0; i < row.size(); ++i) columns[i].push_back(row[i]);
  }
  for (std::size_t i = 0; i < columns.size(); ++i) writer.write_doubles(prefix + kShared[i], columns[i]);
}

void put_shared(const Hdf5Reader& reader, const std::string& prefix, ByteWriter* out) {
  const bool there = reader.has_dataset(prefix + kShared[0]);
  out->put<std::uint8_t>(there);
  for (const char* name : kShared) {
    if (there) reader.doubles(prefix + name, kMaxInstructions, out);
  }
}

std::vector<pipeline::SharedWeight> read_shared(ByteReader* in, const std::string& source) {
  if (in->get<std::uint8_t>() == 0) return {};
  std::array<std::vector<double>, kShared.size()> columns;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    columns[i] = in->get_vector<double>();
    if (columns[i].size() != columns[0].size()) {
      throw Error(ErrorKind::kData, source + ": dataset /" + kShared[i] + " has " + std::to_string(columns[i].size()) +
                                        " values where " + kShared[0] + " has " + std::to_string(columns[0].size()));
    }
  }
  std::vector<pipeline::SharedWeight> out;
  for (std::size_t k = 0; k < columns[0].size(); ++k) {
    for (const std::size_t i : {0, 1}) {
      const double place = columns[i][k];
      if (!(place >= 1 && place <= static_cast<double>(kMaxInstructions)) || place != std::floor(place)) {
        throw Error(ErrorKind::kData, source + ": dataset /" + kShared[i] + ": found " + std::to_string(place) +
                                          ", expected the number of an instruction");
      }
    }
    out.push_back({static_cast<std::int32_t>(columns[0][k]), static_cast<std::int32_t>(columns[1][k]), columns[2][k],
                   columns[3][k], columns[4][k]});
  }
  return out;
}

// Behind the times: what else a width has.
void put_widths(const Hdf5Reader& reader, std::uint64_t devices, const std::string& source, ByteWriter* out) {
  const bool there = devices > 0 && reader.has_dataset("widths");
  out->put<std::uint8_t>(there);
  if (!there) return;
  ByteWriter numbers;
  reader.doubles("widths", kMaxWidths, &numbers);
  out->bytes() += numbers.bytes();
  ByteReader counter(numbers.bytes(), "");
  for (const double width : counter.get_vector<double>()) {
    if (!is_width(width) || width == 1) {
      throw Error(ErrorKind::kData,
                  source + ": dataset /widths: found " + std::to_string(width) + ", expected whole numbers above 1");
    }
    const std::string prefix = width_prefix(static_cast<std::int32_t>(width));
    for (const WidthColumn& column : kWidthColumns) {
      const bool known = reader.has_dataset(prefix + column.name);
      out->put<std::uint8_t>(known);
      if (known) reader.doubles(prefix + column.name, kMaxInstructions, out);
    }
    put_shared(reader, prefix, out);
    reader.strings(prefix + "partition", 3, out);
    for (std::uint64_t d = 0; d < devices; ++d) {
      for (const char* name : {"optimizer_ms", "collective_ms"}) {
        reader.doubles(prefix + device_prefix(d) + name, kMaxInstructions, out);
      }
    }
  }
}

// `times`: what read_times() returned; those of width 1 stay.
std::vector<pipeline::WidthColumns> read_widths(ByteReader* in,
                                                std::map<std::int32_t, std::vector<pipeline::DeviceTimes>>& times,
                                                const std::string& source) {
  std::vector<pipeline::WidthColumns> out;
  if (in->get<std::uint8_t>() == 0) return out;
  const std::size_t devices = times[1].size();
  for (const double width : in->get_vector<double>()) {
    pipeline::WidthColumns columns;
    columns.width = static_cast<std::int32_t>(width);
    for (const WidthColumn& column : kWidthColumns) {
      if (in->get<std::uint8_t>() != 0) columns.*column.values = in->get_vector<double>();
    }
    columns.shared = read_shared(in, source);
    std::vector<std::string> partition = read_strings(in);
    if (partition.size() != 3) {
      throw Error(ErrorKind::kData, source + ": dataset /" + width_prefix(columns.width) + "partition: found " +
                                        std::to_string(partition.size()) + " texts, expected 3");
    }
    columns.partition = std::move(partition[0]);
    columns.partition_text = std::move(partition[1]);
    columns.servers = std::move(partition[2]);
    columns.times = std::move(times[columns.width]);
    columns.times.resize(devices);  // check_profile says what is missing
    for (std::size_t d = 0; d < devices; ++d) {
      columns.times[d].optimizer_ms = in->get_vector<double>();
      columns.collective_ms.push_back(in->get_vector<double>());
    }
    out.push_back(std::move(columns));
  }
  return out;
}

void write_widths(Hdf5Writer& writer, const Profile& profile) {
  if (profile.widths.empty()) return;
  std::vector<double> widths;
  for (const pipeline::WidthColumns& columns : profile.widths) widths.push_back(columns.width);
  writer.write_doubles("widths", widths);
  for (const pipeline::WidthColumns& columns : profile.widths) {
    const std::string prefix = width_prefix(columns.width);
    writer.write_group(prefix.substr(0, prefix.size() - 1));
    for (const WidthColumn& column : kWidthColumns) {
      if (!(columns.*column.values).empty()) writer.write_doubles(prefix + column.name, columns.*column.values);
    }
    write_shared(writer, prefix, columns.shared);
    writer.write_strings(prefix + "partition", {columns.partition, columns.partition_text, columns.servers});
    for (std::size_t d = 0; d < columns.times.size(); ++d) {
      const std::string of_device = prefix + device_prefix(d);
      if (d > 0) writer.write_group(of_device.substr(0, of_device.size() - 1));
      writer.write_doubles(of_device + "optimizer_ms", columns.times[d].optimizer_ms);
      writer.write_doubles(of_device + "collective_ms", columns.collective_ms[d]);
    }
  }
}

// In the library's process: everything that `columns` asks for, in the order in which read_hdf5 takes it.
std::string hdf5_columns(const Hdf5Bytes& file, const std::string& source, ProfileColumns columns) {
  const Hdf5Reader reader(file.data, source);
  const auto schema = reader.string_attribute("schema");
  if (!schema) {
    throw Error(ErrorKind::kData,
                source + ": an HDF5 file without the attribute schema, expected '" + profile_schema() + "'",
                kProfileHint);
  }
  const std::int64_t found = check_profile_schema(*schema, source);
  if (const auto version = reader.number_attribute("version");
      version && *version > static_cast<double>(kProfileVersion)) {
    check_profile_schema(
        std::string(kProfileSchema) + std::to_string(static_cast<std::int64_t>(std::min(*version, 1e9))), source);
  }
  if (found >= 2 && file.extra > 0) {
    throw Error(ErrorKind::kData,
                source + ": damaged: found " + std::to_string(file.extra) +
                    " bytes behind the end of the HDF5 data, expected its checksum",
                "copy it again from where it is whole, or make it again");
  }
  ByteWriter out;
  const Profile none;
  for (const TextAttribute& attribute : kTextAttributes) {
    out.put_string(reader.string_attribute(attribute.name).value_or(none.*attribute.value));
  }
  for (const NumberAttribute& attribute : kNumberAttributes) {
    out.put<double>(reader.number_attribute(attribute.name).value_or(none.*attribute.value));
  }
  out.put<double>(reader.number_attribute("accumulated_micro_batches").value_or(1));
  out.put<double>(reader.number_attribute("attention_heads").value_or(0));
  for (const NumberColumn& column : kNumbers) reader.doubles(column.name, kMaxInstructions, &out);
  const auto put_doubles = [&](const std::string& name, bool wanted) {
    const bool there = wanted && reader.has_dataset(name);
    out.put<std::uint8_t>(there);
    if (there) reader.doubles(name, kMaxInstructions, &out);
  };
  for (const NumberColumn& column : kMoreNumbers) put_doubles(column.name, true);
  for (const TextColumn& column : kTexts) {
    const bool wanted = columns == ProfileColumns::kAll || column.values != &Profile::op_name;
    const bool there = wanted && reader.has_strings(column.name);
    out.put<std::uint8_t>(there);
    if (there) reader.strings(column.name, kMaxInstructions, &out);
  }
  put_shared(reader, "", &out);
  put_widths(reader, put_times(reader, &out), source, &out);
  return std::move(out.bytes());
}

Profile read_hdf5(std::string_view bytes, const std::string& source, ProfileColumns columns) {
  const Hdf5Bytes file = check_hdf5_bytes(bytes, source);
  const std::string answer = in_hdf5_process(file.verified ? Hdf5Task::kReadVerified : Hdf5Task::kReadUnknown, source,
                                             bytes.size(), [&] { return hdf5_columns(file, source, columns); });
  ByteReader in(answer, source);
  Profile profile;
  for (const TextAttribute& attribute : kTextAttributes) profile.*attribute.value = in.get_string();
  for (const NumberAttribute& attribute : kNumberAttributes) profile.*attribute.value = in.get<double>();
  const auto accumulated = in.get<double>();
  if (!(accumulated >= 1 && accumulated <= std::numeric_limits<std::int32_t>::max())) {
    throw Error(ErrorKind::kData, source + ": attribute accumulated_micro_batches: found " +
                                      std::to_string(accumulated) + ", expected a whole number of at least 1");
  }
  profile.accumulated_micro_batches = static_cast<std::int32_t>(accumulated);
  const auto heads = in.get<double>();
  if (!(heads >= 0 && heads <= std::numeric_limits<std::int32_t>::max() && heads == std::floor(heads))) {
    throw Error(ErrorKind::kData, source + ": attribute attention_heads: found " + std::to_string(heads) +
                                      ", expected a whole number of at least 0");
  }
  profile.attention_heads = static_cast<std::int64_t>(heads);
  for (const NumberColumn& column : kNumbers) profile.*column.values = in.get_vector<double>();
  for (const NumberColumn& column : kMoreNumbers) {
    if (in.get<std::uint8_t>() != 0) profile.*column.values = in.get_vector<double>();
  }
  for (const TextColumn& column : kTexts) {
    if (in.get<std::uint8_t>() != 0) profile.*column.values = read_strings(&in);
  }
  profile.shared = read_shared(&in, source);
  std::map<std::int32_t, std::vector<pipeline::DeviceTimes>> times = read_times(&in, profile.c_ms.size(), source);
  profile.widths = read_widths(&in, times, source);
  profile.times = std::move(times[1]);
  return profile;
}

std::string hdf5_bytes(const std::string& shown_path, const Profile& profile) {
  const auto made = [&] {
    Hdf5Writer writer(shown_path);
    writer.write_attribute("schema", profile_schema());
    writer.write_attribute("version", kProfileVersion);
    for (const TextAttribute& attribute : kTextAttributes) {
      writer.write_attribute(attribute.name, profile.*attribute.value);
    }
    for (const NumberAttribute& attribute : kNumberAttributes) {
      writer.write_attribute(attribute.name, profile.*attribute.value);
    }
    writer.write_attribute("accumulated_micro_batches", std::int64_t{profile.accumulated_micro_batches});
    writer.write_attribute("attention_heads", profile.attention_heads);
    for (const NumberColumn& column : kNumbers) writer.write_doubles(column.name, profile.*column.values);
    for (const NumberColumn& column : kMoreNumbers) {
      if (!(profile.*column.values).empty()) writer.write_doubles(column.name, profile.*column.values);
    }
    for (const TextColumn& column : kTexts) {
      if (!(profile.*column.values).empty()) writer.write_strings(column.name, profile.*column.values);
    }
    write_shared(writer, "", profile.shared);
    write_times(writer, profile);
    write_widths(writer, profile);
    return writer.finish();
  };
  std::string bytes = in_hdf5_process(Hdf5Task::kWrite, shown_path, 0, made);
  add_hdf5_checksum(&bytes);
  return bytes;
}

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && std::string_view(text).substr(text.size() - end.size()) == end;
}

bool is_hdf5_name(const std::string& path) {
  return ends_with(path, ".h5") || ends_with(path, ".hdf5");
}

}  // namespace

const char* to_string(ProfileForm form) {
  switch (form) {
    case ProfileForm::kHdf5: return "HDF5";
    case ProfileForm::kCsv: return "CSV";
    case ProfileForm::kPipedream: return "PipeDream";
  }
  return "";
}

std::optional<ProfileForm> detect_profile(std::string_view bytes) {
  if (is_hdf5(bytes)) return ProfileForm::kHdf5;
  if (is_pipedream(bytes)) return ProfileForm::kPipedream;
  if (is_profile_csv(bytes)) return ProfileForm::kCsv;
  return std::nullopt;
}

Profile read_profile(std::string bytes, const std::string& source, ProfileColumns columns) {
  bytes = gunzip_if_gzip(std::move(bytes), source);
  const auto form = detect_profile(bytes);
  if (!form) {
    throw Error(ErrorKind::kData,
                source + ": " + (bytes.empty() ? "empty" : "not a profile") +
                    ", expected HDF5, CSV with a header of column names, or PipeDream's graph.txt",
                kProfileHint);
  }
  Profile profile;
  switch (*form) {
    case ProfileForm::kHdf5: profile = read_hdf5(bytes, source, columns); break;
    case ProfileForm::kCsv: profile = parse_profile_csv(bytes, source); break;
    case ProfileForm::kPipedream: profile = parse_pipedream(bytes, source); break;
  }
  check_attributes(profile, source);
  return profile;
}

Profile load_profile(const std::string& path) {
  return read_profile(read_file(path), input_name(path));
}

void check_profile_name(const std::string& path) {
  // Devices such as /dev/stdout have no extension; they get text.
  const bool csv = ends_with(path, ".csv") || path == "-" || path.rfind("/dev/", 0) == 0;
  if (csv || is_hdf5_name(path)) return;
  throw Error(ErrorKind::kUsage, "cannot tell the form of " + path + " from its name", "end the name in .h5 or .csv");
}

bool keeps_tables(const std::string& path) {
  return is_hdf5_name(path);
}

void write_profile(AtomicFile& file, const std::string& path, const Profile& profile) {
  check_attributes(profile, path);
  file.write(is_hdf5_name(path) ? hdf5_bytes(path, profile) : to_csv(profile));
}

void save_profile(const std::string& path, const Profile& profile) {
  check_profile_name(path);
  AtomicFile file(path);
  write_profile(file, path, profile);
  file.commit();
}

}  // namespace automap::io
