// Scotch by its program, which is asked for when it runs: the library's development package would bring MPI along.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "common/base/child_program.h"
#include "common/base/error.h"
#include "common/base/numbers.h"
#include "plan/systems/placement/baselines.h"

namespace automap::placement {
namespace {

constexpr const char* kProgram = "scotch_gpart";
constexpr const char* kInstall =
    "apt-get install scotch (in a checkout scripts/install_dependencies.sh --milp); --algorithm local-search needs "
    "none";

// Weights are whole numbers: nanoseconds, as in the authors' code, unless sums of them could leave the 32 bits that
// Scotch counts in, which it does not notice.
constexpr double kWeightsPerMs = 1e6, kMostWeight = 2e9;

// Where the program is; empty: nowhere in PATH. Another `gpart` that does other things is common.
std::string program_path() {
  const char* path = std::getenv("PATH");
  std::string_view folders = path != nullptr ? path : "/usr/bin";
  while (true) {
    const std::size_t end = folders.find(':');
    const std::string_view folder = folders.substr(0, end);
    std::string file = (folder.empty() ? "." : std::string(folder)) + "/" + kProgram;
    if (::access(file.c_str(), X_OK) == 0) return file;
    if (end == std::string_view::npos) return "";
    folders.remove_prefix(end + 1);
  }
}

// The graph that Scotch partitions: the units that run on accelerators are vertices 0, 1, ..., and the weight between
// two is their transfers in either direction.
struct Graph {
  std::vector<int> unit;  // of every vertex
  std::vector<double> ms;
  std::vector<std::map<int, double>> neighbours;
};

Graph graph_of(const Workload& workload, const Units& units) {
  Graph out;
  std::vector<int> vertex_of_node(workload.nodes.size(), -1);
  for (int u = 0; u < units.size(); ++u) {
    const Unit& unit = units.units[at(u)];
    if (!unit.on_accelerators) continue;
    for (const int v : unit.nodes) vertex_of_node[at(v)] = static_cast<int>(out.unit.size());
    out.unit.push_back(u);
    out.ms.push_back(unit.accelerator_ms);
  }
  out.neighbours.resize(out.unit.size());
  std::set<std::pair<int, int>> read;  // of a producer by a vertex
  for (const auto& [producer, reader] : workload.edges) {
    const int from = vertex_of_node[at(producer)], to = vertex_of_node[at(reader)];
    if (from < 0 || to < 0 || from == to || !read.emplace(producer, to).second) continue;
    out.neighbours[at(from)][to] += workload.nodes[at(producer)].transfer_ms;
    out.neighbours[at(to)][from] += workload.nodes[at(producer)].transfer_ms;
  }
  return out;
}

// In Scotch's format: version; vertices and arcs; vertices count from 0, edges and vertices have weights; a line per
// vertex with its weight, its degree, and weight and end of each edge.
std::string graph_text(const Graph& graph) {
  double vertices_ms = 0, arcs_ms = 0;
  std::size_t arcs = 0;
  for (std::size_t v = 0; v < graph.unit.size(); ++v) {
    vertices_ms += graph.ms[v];
    arcs += graph.neighbours[v].size();
    for (const auto& neighbour : graph.neighbours[v]) arcs_ms += neighbour.second;
  }
  const double most_ms = std::max(vertices_ms, arcs_ms);
  const double scale = most_ms > 0 ? std::min(kWeightsPerMs, kMostWeight / most_ms) : 0;
  const auto weight = [&](double ms) { return std::to_string(static_cast<long long>(ms * scale)); };
  std::string out = "0\n" + std::to_string(graph.unit.size()) + " " + std::to_string(arcs) + "\n0 011\n";
  for (std::size_t v = 0; v < graph.unit.size(); ++v) {
    out += weight(graph.ms[v]) + " " + std::to_string(graph.neighbours[v].size());
    for (const auto& [to, ms] : graph.neighbours[v]) {
      // An edge without cost still tells that units belong together; Scotch ignores edges without weight.
      out += " " + (ms * scale < 1 ? "1" : weight(ms)) + " " + std::to_string(to);
    }
    out += "\n";
  }
  return out;
}

// Whole numbers between white space; false: there is something else.
bool numbers_of(std::string_view text, std::vector<int>* out) {
  constexpr std::string_view kSpace = " \t\r\n";
  while (true) {
    const std::size_t begin = text.find_first_not_of(kSpace);
    if (begin == std::string_view::npos) return true;
    text.remove_prefix(begin);
    int number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (!text.empty() && kSpace.find(text.front()) == std::string_view::npos) return false;
    out->push_back(number);
  }
}

// The part of every vertex, from lines "vertex part" behind their number; nothing when it is no such answer.
std::optional<std::vector<int>> parts_of(std::string_view text, std::size_t vertices, int parts) {
  std::vector<int> numbers;
  if (!numbers_of(text, &numbers) || numbers.size() != 1 + 2 * vertices) return std::nullopt;
  if (numbers[0] < 0 || at(numbers[0]) != vertices) return std::nullopt;
  std::vector<int> out(vertices, -1);
  for (std::size_t i = 1; i < numbers.size(); i += 2) {
    const int vertex = numbers[i], part = numbers[i + 1];
    if (vertex < 0 || at(vertex) >= vertices || part < 0 || part >= parts || out[at(vertex)] >= 0) return std::nullopt;
    out[at(vertex)] = part;
  }
  return out;
}

std::vector<std::string> first_lines(std::string_view text) {
  constexpr std::size_t kMostLines = 5;
  std::vector<std::string> out;
  while (!text.empty() && out.size() < kMostLines) {
    const std::size_t end = text.find('\n');
    if (end != 0) out.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return out;
}

}  // namespace

std::string scotch_missing() {
  return program_path().empty() ? std::string("Scotch is not installed (no ") + kProgram + " in PATH)" : "";
}

std::optional<std::vector<int>> scotch(const Workload& workload, const Units& units,
                                       const std::function<bool()>& late) {
  const std::string program = program_path();
  if (program.empty()) throw Error(ErrorKind::kUsage, scotch_missing(), kInstall);
  const Graph graph = graph_of(workload, units);
  const std::size_t vertices = graph.unit.size();
  if (vertices < units.units.size() && workload.cpus == 0) return std::nullopt;
  if (vertices > 0 && workload.accelerators == 0) return std::nullopt;
  std::vector<int> out(units.units.size(), workload.accelerators);
  if (vertices == 0) return out;

  // -Cd: the same on every run, on any number of threads.
  const std::vector<std::string> command = {program, "-Cd", std::to_string(workload.accelerators), "-", "-"};
  constexpr std::size_t kMostBytesPerVertex = 32, kMostOtherBytes = 1 << 16;
  const std::size_t most_bytes = kMostBytesPerVertex * vertices + kMostOtherBytes;
  const auto too_much = [&](const ProgramResult& so_far) { return so_far.out.size() + so_far.err.size() > most_bytes; };
  const ProgramResult done =
      run_program(command, graph_text(graph), [&](const ProgramResult& so_far) { return too_much(so_far) || late(); });
  if (done.given_up && !too_much(done)) return std::nullopt;
  const auto parts = parts_of(done.out, vertices, workload.accelerators);
  if (done.exit_code != 0 || !parts) {
    throw Error(ErrorKind::kIo,
                program + (done.exit_code != 0 && !done.given_up
                               ? " ended with exit code " + std::to_string(done.exit_code) + " and no placement"
                               : std::string(" wrote no placement")),
                "Scotch 7 is expected, as Debian has it: " + std::string(kProgram) + " -V",
                first_lines(done.err.empty() ? std::string_view(done.out).substr(0, 200) : done.err));
  }
  for (std::size_t v = 0; v < vertices; ++v) out[at(graph.unit[v])] = (*parts)[v];
  return out;
}

}  // namespace automap::placement
