// Declares the readers behind read_measured, one for each form, and the functions that they share.
#pragma once

#include <string>
#include <string_view>

#include "common/base/json.h"
#include "profile/measured/measured_times.h"

namespace automap::measured {

// Shown where a file is refused.
constexpr const char* kMeasuredHint = "docs/profile.md, \"Measured times\", describes what is read";

// What is read, for people: in --help, and where a file is none of it.
constexpr const char* kMeasuredForms =
    "a trace of torch.profiler or of JAX's profiler (*.trace.json.gz), a table with a header "
    "layer,forward_ms,backward_ms, a table of Aceso, a computation profile of Galvatron, or the folder of automap run "
    "--measure";

constexpr int kShownColumns = 60;  // of what was found

inline bool begins(std::string_view text, std::string_view with) {
  return text.substr(0, with.size()) == with;
}

// `ms` where it can be a time: 0 or more, and of a size that numbers of files may have. The one place that judges
// times. Throws Error(kData): "where: found -3, expected ...".
double checked_time(double ms, const std::string& where);
// Parse a time from a field of a table, and from a JSON value, with the same check.
double time_of_text(std::string_view text, const std::string& where);
double time_of_json(const Json& value, const std::string& where);

// Each reads the whole text. `source` names it in errors.
MeasuredTimes read_trace(std::string_view text, const std::string& source);  // of either profiler
MeasuredTimes read_layer_csv(std::string_view text, const std::string& source);
MeasuredTimes read_aceso(std::string_view text, const std::string& source);
// True if a parsed document has this form.
bool is_galvatron(const Json& document);
MeasuredTimes read_galvatron(const Json& document, const std::string& source);
bool is_program_times(const Json& document);
MeasuredTimes read_program_times(const Json& document, const std::string& source);

// The first line's fields, lower case: what a table is told by.
bool has_column(std::string_view text, std::string_view name);

}  // namespace automap::measured
