// One function per kind of file, each of `out` whose document has begun; describe.cpp tells which. `source` names the
// bytes in errors: Error(kData) or Error(kConfig) when they are damaged.
#pragma once

#include <string>

#include "common/hlo/hlo_reader.h"
#include "inspect/describe.h"

namespace automap::inspect {

constexpr int kMostDevices = 1 << 20;  // of a plan; whoever runs it checks them against a cluster

Description describe_hlo(Description out, hlo::HloForm form, std::string bytes, const std::string& source,
                         const DescribeOptions& options);
// A pipeline plan, one of operators or data, one of a mesh of both, a placement, and one that splits every operator by
// itself.
Description describe_plan(Description out, const std::string& text, const std::string& source);
Description describe_partition_plan(Description out, const std::string& text, const std::string& source);
Description describe_mesh_plan(Description out, const std::string& text, const std::string& source);
Description describe_placement_plan(Description out, const std::string& text, const std::string& source);
Description describe_soap_plan(Description out, const std::string& text, const std::string& source);
Description describe_heuristics_plan(Description out, const std::string& text, const std::string& source);

}  // namespace automap::inspect
