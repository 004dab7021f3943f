// Estimated time of one execution of whole modules, for comparisons with measured times
// (scripts/measure_device_model.py).
//   bench-module_times DEVICE[:KEY=NUMBER,...] [...] < files
// DEVICE: a known name or a device file; KEY: a constant of its file form that is another number here, as in
// v100-32gb:host_us=40,matmul.f16.share=0.7. files: one path of a module per line. Prints, tab-separated, the path and
// the milliseconds on every device, in the order of the files.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/hlo/hlo_reader.h"
#include "common/machine/device.h"
#include "profile/host_time.h"
#include "profile/time_estimator.h"

namespace {

using namespace automap;

double entry_ms(const graph::Graph& graph, const std::vector<double>& ms) {
  const graph::Computation& entry = graph.entry();
  return std::accumulate(ms.begin() + entry.first, ms.begin() + entry.first + entry.count, 0.0);
}

machine::DeviceModel device_of(const std::string& argument) {
  const std::size_t colon = std::min(argument.find(':'), argument.size());
  const machine::DeviceModel device = machine::load_device(argument.substr(0, colon));
  Json document = Json::parse(machine::to_json_text(device));
  std::istringstream changes(argument.substr(std::min(colon + 1, argument.size())));
  for (std::string change; std::getline(changes, change, ',');) {
    const std::size_t equals = change.find('=');
    if (equals == std::string::npos) throw Error(ErrorKind::kUsage, "found '" + change + "', expected KEY=NUMBER");
    Json* value = &document;
    std::istringstream path(change.substr(0, equals));
    for (std::string key; std::getline(path, key, '.');) {
      value = value->is_array() ? &value->at(std::stoul(key)) : &(*value)[key];
    }
    *value = std::stod(change.substr(equals + 1));
  }
  return machine::parse_device(document.dump(), argument);
}

void print_times(const std::string& path, const std::vector<machine::DeviceModel>& devices) {
  const hlo::HloModule module = hlo::load_hlo(path);
  const profile::ModuleStructure structure(module.graph);
  profile::TimeEstimator estimator(module.graph, structure);
  estimator.measure();
  std::printf("%s", path.c_str());
  for (const machine::DeviceModel& device : devices) {
    profile::InstructionTimes times = estimator.estimate(device);
    profile::wait_at_every_kernel(&times);
    std::printf("\t%.9g", entry_ms(module.graph, times.ms));
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<machine::DeviceModel> devices;
    for (int i = 1; i < argc; ++i) devices.push_back(device_of(argv[i]));
    for (std::string path; std::getline(std::cin, path);) print_times(path, devices);
  } catch (const Error& error) {
    std::fprintf(stderr, "bench-module_times: %s\n", error.what());
    return exit_code(error.kind());
  }
  return 0;
}
