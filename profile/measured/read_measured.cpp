// Detects the form of a file and calls its reader.
#include <sys/stat.h>

#include <utility>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/json_reader.h"
#include "common/base/printable.h"
#include "profile/measured/forms.h"

namespace automap::measured {
namespace {

[[noreturn]] void unknown_form(const std::string& source, const std::string& found) {
  throw Error(ErrorKind::kData, source + ": no form of measured times that is known: " + found,
              std::string("expected ") + kMeasuredForms);
}

MeasuredTimes parse_json_form(std::string_view text, bool array, const std::string& source) {
  // A trace may be large and is not kept; others are small.
  if (array || text.find("\"traceEvents\"") != std::string_view::npos) return read_trace(text, source);
  const JsonSource from{source, ErrorKind::kData, kMeasuredHint};
  const Json document = parse_json(text, from);
  if (is_galvatron(document)) return read_galvatron(document, source);
  if (is_program_times(document)) return read_program_times(document, source);
  std::string keys;
  for (const auto& [key, value] : document.items()) {
    if (keys.size() < static_cast<std::size_t>(kShownColumns)) keys += (keys.empty() ? "" : ", ") + key;
  }
  unknown_form(source, "JSON with " + (keys.empty() ? "no keys" : "keys " + excerpt(keys, kShownColumns)));
}

}  // namespace

MeasuredTimes parse_measured(std::string bytes, const std::string& source) {
  bytes = gunzip_if_gzip(std::move(bytes), source);
  std::string_view text = bytes;
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) {
    throw Error(ErrorKind::kData, source + ": empty, expected measured times", kMeasuredHint);
  }
  MeasuredTimes times;
  if (text[first] == '{' || text[first] == '[') {
    times = parse_json_form(text, text[first] == '[', source);
  } else if (has_column(text, "forward-compute")) {
    times = read_aceso(text, source);
  } else if (has_column(text, "layer")) {
    times = read_layer_csv(text, source);
  } else {
    unknown_form(source,
                 "it begins with '" + excerpt(text.substr(first, text.find('\n', first) - first), kShownColumns) + "'");
  }
  double all = times.nameless_ms;
  for (const MeasuredTime& time : times.times) all += time.ms();
  if (times.times.empty() || all <= 0) {
    throw Error(ErrorKind::kData, source + ": " + times.form + " in which nothing that has a name took any time",
                times.form == "PyTorch trace" ? "trace with with_stack=True and with_modules=True, or put "
                                                "record_function around the layers"
                                              : kMeasuredHint);
  }
  checked_time(all, source + ": all times together");
  return times;
}

MeasuredTimes read_measured(const std::string& path) {
  struct stat about = {};
  const bool folder = path != "-" && ::stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode);
  const std::string file = folder ? path + "/measured.json" : path;
  return parse_measured(read_file(file), input_name(file));
}

}  // namespace automap::measured
