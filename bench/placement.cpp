// The golden table of docs/placement.md: exact optima of workloads, how wide their graphs are, and what the programme
// over ideals takes.
//   bench-placement [FILE...]           workloads, one line each
//   bench-placement --inception [train] a graph of the size of Inception-v3's layers (made here): 4 branches a block
// Peak memory is of the process so far, so one file at a time tells it for that file.
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>

#include "common/base/error.h"
#include "common/base/text_table.h"
#include "plan/systems/placement/linearized.h"
#include "plan/systems/placement/planning.h"
#include "plan/systems/placement/units.h"
#include "plan/systems/placement/workload_json.h"

namespace automap::placement {
namespace {

// Convolutions, normalizations and activations as one node each, as in the layer graphs of PipeDream; times fall
// with depth, transfers with them.
class Inception {
 public:
  explicit Inception(bool training) : training_(training) {
    workload_.accelerators = 6;
    workload_.cpus = 1;
    workload_.memory_bytes = 16.0 * (1 << 30);
    int last = chain(node(-1), 11);
    for (int i = 0; i < 3; ++i) last = block(last, {{3}, {6}, {9}, {4}});
    last = block(last, {{3}, {9}, {1}});
    for (int i = 0; i < 4; ++i) last = block(last, {{3}, {9}, {15}, {4}});
    last = block(last, {{6}, {12}, {1}});
    for (int i = 0; i < 2; ++i) last = block(last, {{3}, {3, 3, 3}, {6, 3, 3}, {4}});
    chain(last, 4);
    if (training_) mirror();
  }
  Workload take() { return std::move(workload_); }

 private:
  int node(int before) {
    const int v = workload_.size();
    Node made;
    made.id = v;
    made.accelerator_ms = 0.3 + 1.4 * std::abs(std::sin(0.37 * v)) + (v < 60 ? 0.8 : 0);
    made.cpu_ms = 10 * made.accelerator_ms;
    made.bytes = 1e6 * (1 + v % 7);
    made.transfer_ms = 3e-4 * (1 + v % 5);
    made.colour = training_ ? v : kNoColour;
    workload_.nodes.push_back(made);
    if (before >= 0) workload_.edges.emplace_back(before, v);
    return v;
  }
  int chain(int before, int length) {
    for (int i = 0; i < length; ++i) before = node(before);
    return before;
  }
  // Branches of so many nodes; {a, b, c}: a nodes, then two branches of b and c that are joined.
  int block(int before, const std::vector<std::vector<int>>& branches) {
    std::vector<int> ends;
    for (const std::vector<int>& branch : branches) {
      int end = chain(before, branch[0]);
      if (branch.size() > 1) {
        const int one = chain(end, branch[1]), other = chain(end, branch[2]);
        end = node(one);
        workload_.edges.emplace_back(other, end);
      }
      ends.push_back(end);
    }
    const int join = node(ends[0]);
    for (std::size_t i = 1; i < ends.size(); ++i) workload_.edges.emplace_back(ends[i], join);
    return join;
  }
  void mirror() {
    const int forward = workload_.size();
    const auto edges = workload_.edges;
    for (int v = forward - 1; v >= 0; --v) {
      Node made = workload_.nodes[static_cast<std::size_t>(v)];
      made.id = workload_.size();
      made.backward = true;
      made.accelerator_ms *= 1.3;
      made.cpu_ms *= 1.3;
      workload_.nodes.push_back(made);
    }
    for (const auto& [u, v] : edges) workload_.edges.emplace_back(2 * forward - 1 - v, 2 * forward - 1 - u);
  }

  const bool training_;
  Workload workload_;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void measure(const std::string& name, const Workload& workload, TextTable* table) {
  check_workload(workload, name);
  Request request;
  Work work;
  request.algorithm = "dpl";
  auto start = std::chrono::steady_clock::now();
  const Answer along = find_placement(workload, request, &work);
  const double along_s = seconds_since(start);
  request.algorithm = "dp";
  start = std::chrono::steady_clock::now();
  const Answer exact = find_placement(workload, request, &work);
  const double exact_s = seconds_since(start);
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  char text[5][32];
  std::snprintf(text[0], sizeof text[0], "%.4f", exact.value_ms);
  std::snprintf(text[1], sizeof text[1], "%.4f", along.value_ms);
  std::snprintf(text[2], sizeof text[2], "%.2f", along_s);
  std::snprintf(text[3], sizeof text[3], "%.2f", exact_s);
  std::snprintf(text[4], sizeof text[4], "%.0f", static_cast<double>(usage.ru_maxrss) / 1024);
  table->add_row({name, std::to_string(workload.size()), std::to_string(workload.edges.size()),
                  std::to_string(exact.units), std::to_string(exact.ideals), std::to_string(exact.pairs), text[0],
                  text[1], text[2], text[3], text[4]});
}

}  // namespace
}  // namespace automap::placement

int main(int argc, char** argv) {
  using namespace automap;
  TextTable table({{"workload", TextTable::Align::kLeft},
                   {"nodes"},
                   {"edges"},
                   {"units"},
                   {"ideals"},
                   {"pairs"},
                   {"dp ms"},
                   {"dpl ms"},
                   {"dpl s"},
                   {"dp s"},
                   {"MiB"}});
  try {
    const std::string first = argc > 1 ? argv[1] : "";
    if (first == "--inception") {
      const bool training = argc > 2;
      placement::measure(training ? "inception-sized, training" : "inception-sized",
                         placement::Inception(training).take(), &table);
    } else {
      for (int i = 1; i < argc; ++i) {
        const std::string path = argv[i];
        placement::measure(path.substr(path.find_last_of('/') + 1), placement::load_workload(path).workload, &table);
      }
    }
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return exit_code(e.kind());
  }
  std::fputs(table.render().c_str(), stdout);
  return 0;
}
