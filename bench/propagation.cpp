// Measures linkage groups and propagation: on modules, and by depth.
//   bench-propagation [MODULE...]     (default: fixtures/hlo/{t5_6_6,t5_24_24,bert_large,bert48}.hlo.gz)
//   bench-propagation --layers N      writes the module with N layers to standard output, for other programs
// Times are CPU time of one thread. "full decision": every group decided and the state of every tensor read. "set,
// undo": split() of one dimension of one input, which is all there is to propagating it, and undo(); every dimension of
// every input in turn. "and read": the states of all tensors of its group read in between.
#include "common/sharding/propagation.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/text_table.h"
#include "common/hlo/hlo_reader.h"
#include "common/sharding/model.h"

namespace {

using automap::sharding::GroupId;
using automap::sharding::Linkage;
using automap::sharding::LinkageOptions;
using automap::sharding::Propagation;
using automap::sharding::ShardingModel;
using automap::sharding::TensorDim;
using automap::sharding::TensorStateKind;

double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

double quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
}

template <typename Run>
double median_ms(int times, Run run) {
  std::vector<double> out;
  for (int i = 0; i < times; ++i) {
    const double begin = cpu_ms();
    run();
    out.push_back(cpu_ms() - begin);
  }
  return quantile(out, 0.5);
}

std::int64_t sum = 0;  // of what is read, so that it is read

void read_states(const Propagation& propagation, const std::vector<automap::graph::NodeId>& nodes) {
  for (const automap::graph::NodeId node : nodes) sum += propagation.state(node).dim;
}

std::string ms(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

void add_row(automap::TextTable* table, const std::string& name, const automap::graph::Graph& graph) {
  double begin = cpu_ms();
  const ShardingModel model = ShardingModel::build(graph, {});
  const double model_ms = cpu_ms() - begin;
  LinkageOptions options;
  options.ties = model.linkage().ties();
  const double link_ms = median_ms(7, [&] { sum += Linkage::build(model.flow(), options).num_groups(); });

  const Linkage& linkage = model.linkage();
  GroupId decidable = 0;
  std::size_t pairs = 0;
  for (GroupId group = 0; group < linkage.num_groups(); ++group) {
    if (linkage.decidable(group)) ++decidable;
    pairs += linkage.neighbours(group).size() / 2;
  }
  std::vector<automap::graph::NodeId> all;
  for (automap::graph::NodeId node = 0; node < model.flow().size(); ++node) all.push_back(node);
  const double full_ms = median_ms(21, [&] {
    Propagation propagation(linkage);
    for (const GroupId group : propagation.undecided()) propagation.split_group(group);
    if (!propagation.complete()) std::cout << "not complete\n";
    read_states(propagation, all);
  });

  std::vector<double> undo_us, read_us;
  Propagation propagation(linkage);
  for (const auto& input : model.flow().inputs()) {
    for (std::size_t dim = 0; dim < linkage.groups_of(input.node).size(); ++dim) {
      const TensorDim at{input.node, static_cast<std::int32_t>(dim)};
      begin = cpu_ms();
      propagation.split(at);
      propagation.undo(0);
      undo_us.push_back((cpu_ms() - begin) * 1e3);
      const GroupId group = linkage.group_of(at);
      if (group == automap::sharding::kNone || !linkage.decidable(group)) continue;
      begin = cpu_ms();
      propagation.split(at);
      for (const TensorDim member : linkage.members(group)) sum += propagation.state(member.node).dim;
      propagation.undo(0);
      read_us.push_back((cpu_ms() - begin) * 1e3);
    }
  }
  table->add_row({name, std::to_string(graph.num_instructions()), std::to_string(model.flow().size()), ms(model_ms),
                  ms(link_ms), std::to_string(linkage.num_groups()), std::to_string(decidable), std::to_string(pairs),
                  ms(full_ms), ms(quantile(undo_us, 0.5)), ms(quantile(undo_us, 0.99)), ms(quantile(read_us, 0.5)),
                  ms(quantile(read_us, 0.99))});
}

automap::TextTable new_table() {
  return automap::TextTable({{"module", automap::TextTable::Align::kLeft},
                             {"instructions"},
                             {"nodes"},
                             {"model ms"},
                             {"of it linkage ms"},
                             {"groups"},
                             {"can be split"},
                             {"exclusions"},
                             {"full decision ms"},
                             {"set, undo us"},
                             {"99 %"},
                             {"and read us"},
                             {"99 %"}});
}

// A training step of a transformer with `layers` layers: attention and MLP, their gradients, momentum.
class DeepModule {
 public:
  explicit DeepModule(int layers) : layers_(layers) {}

  std::string text() {
    add("x", "16,64,512", "parameter(0)");
    add("zero", "", "constant(0)");
    add("rate", "", "constant(0.01)");
    std::string x = "x";
    for (int layer = 0; layer < layers_; ++layer) x = forward(layer, x);
    std::string dx = x;  // of half the sum of squares
    for (int layer = layers_; layer-- > 0;) dx = backward(layer, dx);
    std::string shapes, names;
    for (const auto& [name, shape] : results_) {
      shapes += (shapes.empty() ? "" : ", ") + shape;
      names += (names.empty() ? "" : ", ") + name;
    }
    return "HloModule deep\nsum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }\nENTRY e "
           "{\n" +
           body_ + "  ROOT t = (" + shapes + ") tuple(" + names + ")\n}\n";
  }

 private:
  static constexpr const char* kX = "16,64,512";
  static constexpr const char* kHeads = "16,64,8,64";
  static constexpr const char* kScores = "16,8,64,64";

  std::string add(const std::string& name, const std::string& dims, const std::string& what) {
    body_ += "  " + name + " = f32[" + dims + "] " + what + "\n";
    return name;
  }
  std::string variable(int layer, const std::string& name, const std::string& dims) {
    const std::string full = name + "_" + std::to_string(layer);
    add(full, dims,
        "parameter(" + std::to_string(++parameters_) + "), metadata={op_name=\"params['layer_" + std::to_string(layer) +
            "']['" + name + "']\"}");
    return add_momentum(full, dims);
  }
  std::string add_momentum(const std::string& full, const std::string& dims) {
    add("m_" + full, dims, "parameter(" + std::to_string(++parameters_) + ")");
    return full;
  }
  std::string dot(const std::string& name, const std::string& dims, const std::string& a, const std::string& b,
                  const std::string& contract_a, const std::string& contract_b, const std::string& batch_a = "",
                  const std::string& batch_b = "") {
    std::string what = "dot(" + a + ", " + b + "), ";
    if (!batch_a.empty()) what += "lhs_batch_dims={" + batch_a + "}, rhs_batch_dims={" + batch_b + "}, ";
    return add(name, dims,
               what + "lhs_contracting_dims={" + contract_a + "}, rhs_contracting_dims={" + contract_b + "}");
  }
  void update(const std::string& full, const std::string& dims, const std::string& gradient) {
    add("mm_" + full, dims, "add(m_" + full + ", " + gradient + ")");
    add("rr_" + full, dims, "broadcast(rate), dimensions={}");
    add("dd_" + full, dims, "multiply(mm_" + full + ", rr_" + full + ")");
    add("new_" + full, dims, "subtract(" + full + ", dd_" + full + ")");
    results_.emplace_back("new_" + full, "f32[" + dims + "]");
    results_.emplace_back("mm_" + full, "f32[" + dims + "]");
  }

  std::string forward(int layer, const std::string& x) {
    const std::string n = "_" + std::to_string(layer);
    inputs_.push_back(x);
    for (const char* name : {"q", "k", "v"}) {
      const std::string s = name;
      variable(layer, "w" + s, "512,512");
      dot(s + "3" + n, kX, x, "w" + s + n, "2", "0");
      add(s + n, kHeads, "reshape(" + s + "3" + n + ")");
    }
    dot("l" + n, kScores, "q" + n, "k" + n, "3", "3", "0,2", "0,2");
    add("e" + n, kScores, "exponential(l" + n + ")");
    add("es" + n, "16,8,64", "reduce(e" + n + ", zero), dimensions={3}, to_apply=sum");
    add("eb" + n, kScores, "broadcast(es" + n + "), dimensions={0,1,2}");
    add("p" + n, kScores, "divide(e" + n + ", eb" + n + ")");
    dot("c4" + n, "16,8,64,64", "p" + n, "v" + n, "3", "1", "0,1", "0,2");
    add("ct" + n, kHeads, "transpose(c4" + n + "), dimensions={0,2,1,3}");
    add("c" + n, kX, "reshape(ct" + n + ")");
    variable(layer, "wo", "512,512");
    dot("o" + n, kX, "c" + n, "wo" + n, "2", "0");
    add("y" + n, kX, "add(" + x + ", o" + n + ")");
    variable(layer, "w1", "512,2048");
    variable(layer, "b1", "2048");
    dot("h0" + n, "16,64,2048", "y" + n, "w1" + n, "2", "0");
    add("bb" + n, "16,64,2048", "broadcast(b1" + n + "), dimensions={2}");
    add("h1" + n, "16,64,2048", "add(h0" + n + ", bb" + n + ")");
    add("h" + n, "16,64,2048", "tanh(h1" + n + ")");
    variable(layer, "w2", "2048,512");
    dot("f" + n, kX, "h" + n, "w2" + n, "2", "0");
    return add("z" + n, kX, "add(y" + n + ", f" + n + ")");
  }

  std::string backward(int layer, const std::string& dz) {
    const std::string n = "_" + std::to_string(layer), x = inputs_[static_cast<std::size_t>(layer)];
    dot("g_w2" + n, "2048,512", "h" + n, dz, "0,1", "0,1");
    dot("dh" + n, "16,64,2048", dz, "w2" + n, "2", "1");
    add("hh" + n, "16,64,2048", "multiply(h" + n + ", h" + n + ")");
    add("dhh" + n, "16,64,2048", "multiply(dh" + n + ", hh" + n + ")");
    add("dh1" + n, "16,64,2048", "subtract(dh" + n + ", dhh" + n + ")");
    add("g_b1" + n, "2048", "reduce(dh1" + n + ", zero), dimensions={0,1}, to_apply=sum");
    dot("g_w1" + n, "512,2048", "y" + n, "dh1" + n, "0,1", "0,1");
    dot("dy0" + n, kX, "dh1" + n, "w1" + n, "2", "1");
    add("dy" + n, kX, "add(" + dz + ", dy0" + n + ")");
    dot("g_wo" + n, "512,512", "c" + n, "dy" + n, "0,1", "0,1");
    dot("dc" + n, kX, "dy" + n, "wo" + n, "2", "1");
    add("dc4" + n, kHeads, "reshape(dc" + n + ")");
    dot("dp" + n, kScores, "dc4" + n, "v" + n, "3", "3", "0,2", "0,2");
    dot("dv4" + n, "16,8,64,64", "p" + n, "dc4" + n, "2", "1", "0,1", "0,2");
    add("dpp" + n, kScores, "multiply(dp" + n + ", p" + n + ")");
    add("dps" + n, "16,8,64", "reduce(dpp" + n + ", zero), dimensions={3}, to_apply=sum");
    add("dpb" + n, kScores, "broadcast(dps" + n + "), dimensions={0,1,2}");
    add("dp1" + n, kScores, "subtract(dp" + n + ", dpb" + n + ")");
    add("dl" + n, kScores, "multiply(dp1" + n + ", p" + n + ")");
    dot("dq4" + n, "16,8,64,64", "dl" + n, "k" + n, "3", "1", "0,1", "0,2");
    dot("dk4" + n, "16,8,64,64", "dl" + n, "q" + n, "2", "1", "0,1", "0,2");
    std::string dx = "dy" + n;
    for (const char* name : {"q", "k", "v"}) {
      const std::string s = name;
      add("dt" + s + n, kHeads, "transpose(d" + s + "4" + n + "), dimensions={0,2,1,3}");
      add("d" + s + n, kX, "reshape(dt" + s + n + ")");
      dot("g_w" + s + n, "512,512", x, "d" + s + n, "0,1", "0,1");
      dot("dx" + s + n, kX, "d" + s + n, "w" + s + n, "2", "1");
      dx = add("da" + s + n, kX, "add(" + dx + ", dx" + s + n + ")");
      update("w" + s + n, "512,512", "g_w" + s + n);
    }
    update("wo" + n, "512,512", "g_wo" + n);
    update("w1" + n, "512,2048", "g_w1" + n);
    update("b1" + n, "2048", "g_b1" + n);
    update("w2" + n, "2048,512", "g_w2" + n);
    return dx;
  }

  int layers_ = 0, parameters_ = 0;
  std::string body_;
  std::vector<std::string> inputs_;
  std::vector<std::pair<std::string, std::string>> results_;
};

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> paths(argv + 1, argv + argc);
  if (paths.size() == 2 && paths[0] == "--layers") {
    const int layers = std::atoi(paths[1].c_str());
    if (layers < 1 || layers > 10000) {
      std::cerr << "--layers: expected 1 to 10000, not " << paths[1] << "\n";
      return 2;
    }
    std::cout << DeepModule(layers).text();
    return 0;
  }
  if (paths.empty()) {
    for (const char* name : {"t5_6_6", "t5_24_24", "bert_large", "bert48"})
      paths.push_back("fixtures/hlo/" + std::string(name) + ".hlo.gz");
  }
  try {
    automap::TextTable depths = new_table();
    for (const int layers : {6, 12, 24, 48, 96}) {
      const automap::hlo::HloModule module =
          automap::hlo::read_hlo(DeepModule(layers).text(), std::to_string(layers) + " layers");
      add_row(&depths, std::to_string(layers) + " layers", module.graph);
    }
    std::cout << "By depth: a transformer's training step, one layer repeated, 8 shards.\n" << depths.render();
    std::cout << "peak memory: " << ms(peak_mib()) << " MiB\n\nModules, 8 shards.\n";
    automap::TextTable modules = new_table();
    for (const std::string& path : paths) {
      const automap::hlo::HloModule module = automap::hlo::load_hlo(path);
      add_row(&modules, path.substr(path.rfind('/') + 1), module.graph);
    }
    std::cout << modules.render() << "peak memory: " << ms(peak_mib()) << " MiB\n";
    return sum == -1 ? 1 : 0;
  } catch (const automap::Error& e) {
    std::cerr << e.what() << "\n";
    return automap::exit_code(e.kind());
  }
}
