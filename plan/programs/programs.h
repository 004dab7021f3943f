// Writes a pipeline plan and its module as the programs of every stage (HLO text that XLA parses), and a manifest: the
// values that each program takes, makes, sends and keeps, and the order in which every group runs them
// (docs/applying-plans.md).
#pragma once

#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/hlo/hlo_reader.h"
#include "common/pipeline/plan_json.h"

namespace automap::programs {

struct ProgramFile {
  std::string name;  // "forward.0.hlo.txt" (or with another ending), "manifest.json"
  std::string text;
};

// The files of a folder, the manifest last. `plan_source` and `model_source` name the inputs in errors. Throws
// Error(kData): a plan for another module, a module that is no training step, a value around which it cannot be cut.
std::vector<ProgramFile> program_files(const pipeline::PlanDocument& plan, const std::string& plan_source,
                                       const hlo::HloModule& module, const std::string& model_source,
                                       const std::string& ending = ".hlo.txt");

// Makes the folder where there is none, and writes the files into it with `outputs`, which keeps or drops all of them.
// Throws Error(kIo) where the folder cannot be made.
void write_into(const std::string& folder, const std::vector<ProgramFile>& files, OutputSet* outputs);

// The order of work of every group, as the plan has it.
pipeline::WorkOrder work_order_of(const pipeline::PlanDocument& plan);

}  // namespace automap::programs
