// Measures the generation of rows, and describes the rows of a configuration: scales, clusters, limits.
//   bench-row_generation [CONFIG] [ROWS]
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include "common/pipeline/row_problem.h"
#include "datagen/distributions.h"

namespace {

using automap::datagen::Generator;
using automap::pipeline::RowProblem;

double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

double cpu_us_per_row(const Generator& generator, int rows) {
  float sum = 0;
  for (int i = 0; i < 100; ++i) sum += generator.row(1, static_cast<std::uint64_t>(i)).caw[5];
  const double begin = cpu_seconds();
  for (int i = 0; i < rows; ++i) sum += generator.row(2, static_cast<std::uint64_t>(i)).caw[5];
  const double us = (cpu_seconds() - begin) / rows * 1e6;
  if (sum < 0) std::cerr << sum;
  return us;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

void print_quantiles(const char* name, std::vector<double> values) {
  if (values.empty()) return;
  std::sort(values.begin(), values.end());
  std::cout << "  " << name << ":";
  for (double part : {0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0}) {
    std::cout << "  " << number(values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))]);
  }
  std::cout << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "mixed";
  const int rows = argc > 2 ? std::atoi(argv[2]) : 20000;
  try {
    const Generator generator = Generator::load(name);
    std::cout << "CPU time per row, one thread, m = 512 (us):\n";
    for (const auto& info : automap::datagen::list_distributions()) {
      if (info.name == "empirical") continue;
      const Generator one("{\"families\": {\"" + info.name + "\": {}}, \"rows\": {\"instructions\": 512}}", "bench");
      std::cout << "  " << info.name << ": " << number(cpu_us_per_row(one, rows)) << "\n";
    }
    std::cout << "as configured (" << name << "): " << number(cpu_us_per_row(generator, rows)) << "\n";

    std::vector<RowProblem> made;
    for (int i = 0; i < rows; ++i) made.push_back(generator.row(3, static_cast<std::uint64_t>(i)));
    const double begin = cpu_seconds();
    std::size_t instructions = 0;
    for (const RowProblem& row : made) instructions += automap::pipeline::problem_of_row(row).profile.c_ms.size();
    std::cout << "problem_of_row: " << number((cpu_seconds() - begin) / rows * 1e6) << " us, "
              << number(static_cast<double>(instructions) / rows) << " instructions\n\n";

    std::cout << "rows of " << name << " (0, 5, 25, 50, 75, 95, 100 %):\n";
    std::vector<double> allreduce, transfer, devices, stages, micro_batches, limit;
    int different = 0;
    for (const RowProblem& row : made) {
      const double d = automap::pipeline::devices_of_row(row);
      const double compute = row.caw[127];
      const float* a = row.caw.data() + 128;
      allreduce.push_back(2 * (d - 1) * row.caw[383] / (row.micro_batches * compute));
      transfer.push_back(*std::max_element(a, a + 128) * d / compute);
      devices.push_back(d);
      stages.push_back(row.stages);
      micro_batches.push_back(row.micro_batches);
      if (std::isfinite(row.memory_limit)) limit.push_back(row.memory_limit / std::max(1e-9f, 4 * row.caw[383]));
      different += row.server_seed != 0;
    }
    print_quantiles("all-reduce of all parameters over the compute of a step per device", allreduce);
    print_quantiles("largest transfer over the compute of a micro-batch per device", transfer);
    print_quantiles("devices", devices);
    print_quantiles("stages", stages);
    print_quantiles("micro-batches", micro_batches);
    print_quantiles("memory limit over the state of the whole model", limit);
    std::cout << "  with a memory limit: " << number(static_cast<double>(limit.size()) / rows)
              << ", with different servers: " << number(static_cast<double>(different) / rows) << "\n";
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
