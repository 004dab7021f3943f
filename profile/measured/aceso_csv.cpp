// Tables of operators as Aceso's profiler writes them: op_name, forward-compute and backward-compute in microseconds of
// one device at one micro-batch and width, and sizes, which are not read. Operators of a transformer's layer have names
// that begin with enc- or dec-; what stands beside layers is embedded, normalized at the end, or post-processed.
//
// The table does not say its micro-batch: --measured-samples does. Operators of its ResNets are no layers of ours.
#include <map>

#include "common/base/error.h"
#include "common/base/printable.h"
#include "profile/measured/forms.h"
#include "profile/measured/table.h"

namespace automap::measured {
namespace {

bool ends(std::string_view name, std::string_view with) {
  return name.size() >= with.size() && name.substr(name.size() - with.size()) == with;
}

// The part of a model that the operator belongs to. Encoders come before decoders.
MeasuredTime place_of(const std::string& name) {
  MeasuredTime time;
  time.name = name;
  if (ends(name, "final-layernorm") || ends(name, "post-process")) {
    time.named = Named::kBehind;
  } else if (ends(name, "-embedding")) {
    time.named = Named::kInFront;
  } else if (begins(name, "enc-") || begins(name, "dec-")) {
    time.named = Named::kEveryLayer;
    time.name = begins(name, "enc-") ? "0" : "1";
  } else {
    time.named = Named::kScope;
  }
  return time;
}

}  // namespace

MeasuredTimes read_aceso(std::string_view text, const std::string& source) {
  const std::vector<TableRow> rows = table_rows(text, source);
  const TableRow& header = rows.front();
  std::map<std::string, std::size_t> column;
  for (std::size_t i = 0; i < header.fields.size(); ++i) column.emplace(lower_case(header.fields[i]), i);
  for (const char* needed : {"op_name", "forward-compute", "backward-compute"}) {
    if (column.count(needed) != 0) continue;
    throw Error(ErrorKind::kData,
                source + ":" + std::to_string(header.line) + ": a table of Aceso without column " + needed,
                kMeasuredHint);
  }
  MeasuredTimes out;
  out.source = source;
  out.form = "Aceso operator table";
  // All operators of every layer are one time.
  std::map<std::string, std::size_t> every_layer;
  for (std::size_t r = 1; r < rows.size(); ++r) {
    const TableRow& row = rows[r];
    const std::string place = source + ":" + std::to_string(row.line) + ": ";
    if (row.fields.size() != header.fields.size()) {
      throw Error(ErrorKind::kData,
                  place + "found " + std::to_string(row.fields.size()) + " fields, expected " +
                      std::to_string(header.fields.size()) + " as the header has",
                  kMeasuredHint);
    }
    MeasuredTime time = place_of(row.fields[column.at("op_name")]);
    const auto ms = [&](const char* name) { return time_of_text(row.fields[column.at(name)], place + name) * 1e-3; };
    time.forward_ms = ms("forward-compute");
    time.backward_ms = ms("backward-compute");
    if (time.named == Named::kEveryLayer) {
      const auto [at, is_new] = every_layer.emplace(time.name, out.times.size());
      if (!is_new) {
        MeasuredTime& layer = out.times[at->second];
        *layer.forward_ms += *time.forward_ms;
        *layer.backward_ms += *time.backward_ms;
        continue;
      }
    }
    out.times.push_back(std::move(time));
  }
  // With two kinds of layers some of these stand between them.
  const bool two_kinds = every_layer.count("1") != 0;
  for (MeasuredTime& time : out.times) {
    if (two_kinds && (time.named == Named::kInFront || time.named == Named::kBehind)) time.named = Named::kOutside;
  }
  return out;
}

}  // namespace automap::measured
