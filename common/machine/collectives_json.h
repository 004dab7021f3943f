// Reads and writes the `collectives` of cluster files (docs/formats/cluster.md).
#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/base/json_reader.h"
#include "common/machine/link_fit.h"
#include "common/machine/links.h"

namespace automap::machine {

// An array of measured operations. Logs of nccl-tests are read where their path says, from `folder` on. Throws
// Error(kConfig) naming the element, or the log's line and column; Error(kIo) naming the element when a log cannot be
// read.
// `fit_errors`: by row, the largest relative error of its lines at the sizes that were fitted; -1: lines were given.
MeasuredLinks read_collectives(const JsonValue& value, const std::string& folder,
                               std::vector<double>* fit_errors = nullptr);
// Throws Error(kConfig) naming the element of `value` (that `links` were read from) whose group does not fit into
// servers of so many devices.
void check_groups_fit(const JsonValue& value, const MeasuredLinks& links, int devices);
// What these files call a kind: as to_string does, but a message is a "send".
const char* file_word(CollectiveKind kind);
// Its lines: read_collectives of it gives the same.
Json collectives_json(const MeasuredLinks& links);

// The rules of measured times of one operation, for other files that hold such: one more size and its time ("ms", or a
// number of `unit`, each `ms_each` ms), both above 0, the size above the one before, the time not below it ...
void add_measured_time(const JsonValue& bytes, const JsonValue& time, const std::string& unit, double ms_each,
                       std::vector<MeasuredTime>* times);
// ... and, of all of them, enough sizes, up to those of gradients. Throw the kind of error of the value's source.
void check_reach(const JsonValue& value, const std::vector<MeasuredTime>& times);

}  // namespace automap::machine
