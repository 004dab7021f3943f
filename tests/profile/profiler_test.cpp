#include "profile/profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <sstream>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/graph/hlo_cost.h"
#include "common/hlo/hlo_reader.h"
#include "common/hlo/hlo_text.h"
#include "common/machine/device.h"
#include "profile/profile_hlo.h"
#include "profile/report.h"
#include "profile/time_estimator.h"
#include "tests/common/graph/training_modules.h"
#include "tests/data_folders.h"
#include "tests/sum.h"

namespace automap::profile {
namespace {

using graph::Graph;
using testing::HasSubstr;

ModelProfile profile_text(const std::string& text, bool ignore_loss = false) {
  const Graph graph = hlo::read_hlo_text(text, "test");
  static const machine::DeviceModel device = machine::load_device("v100-16gb");
  ProfilerOptions options;
  options.ignore_loss = ignore_loss;
  return build_profile(graph, estimate_times(graph, device), options);
}

std::string text_of(const std::string& path) {
  return gunzip_if_gzip(read_file(path), path);
}

// Every instruction takes as long as its result is large: times that cannot depend on the text.
ModelProfile profile_by_size(const std::string& text) {
  const Graph graph = hlo::read_hlo_text(text, "test");
  InstructionTimes times;
  for (graph::InstructionId id = 0; id < graph.num_instructions(); ++id)
    times.ms.push_back(static_cast<double>(graph.shape_of(id).bytes));
  return build_profile(graph, times, {});
}

// Instruction lines without metadata={...}: what an export without debug information looks like.
std::string without_metadata(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t found = text.find(", metadata={", at);
    if (found == std::string::npos) {
      out.append(text, at, std::string::npos);
      break;
    }
    out.append(text, at, found - at);
    bool quoted = false;
    int depth = 0;
    std::size_t end = found + 11;
    for (; end < text.size(); ++end) {
      const char c = text[end];
      if (quoted && c == '\\') {
        ++end;
      } else if (c == '"') {
        quoted = !quoted;
      } else if (!quoted && c == '{') {
        ++depth;
      } else if (!quoted && c == '}' && --depth == 0) {
        break;
      }
    }
    at = end + 1;
  }
  return out;
}

// The entry's lines in another valid order.
std::string shuffled(const std::string& text, unsigned seed) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::size_t begin = 0;
  while (begin < lines.size() && lines[begin].rfind("ENTRY", 0) != 0) ++begin;
  ++begin;
  std::size_t end = begin;
  while (end < lines.size() && lines[end][0] != '}') ++end;
  const auto words_of = [](const std::string& line) {
    std::vector<std::string> words{""};
    for (const char c : line) {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-') {
        words.back() += c;
      } else if (!words.back().empty()) {
        words.emplace_back();
      }
    }
    return words;
  };
  std::map<std::string, std::size_t> defined;
  for (std::size_t i = begin; i < end; ++i) {
    const std::vector<std::string> words = words_of(lines[i].substr(0, lines[i].find(" = ")));
    for (const std::string& word : words) {
      if (!word.empty() && word != "ROOT") defined[word] = i - begin;
    }
  }
  const std::size_t n = end - begin;
  std::vector<std::vector<std::size_t>> readers(n);
  std::vector<int> waits(n, 0);
  for (std::size_t i = begin; i < end; ++i) {
    std::set<std::size_t> reads;
    for (const std::string& word : words_of(lines[i].substr(lines[i].find(" = ")))) {
      const auto found = defined.find(word);
      if (found != defined.end() && found->second != i - begin) reads.insert(found->second);
    }
    for (const std::size_t r : reads) readers[r].push_back(i - begin);
    waits[i - begin] = static_cast<int>(reads.size());
  }
  std::mt19937 random(seed);
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < n; ++i) {
    if (waits[i] == 0) ready.push_back(i);
  }
  std::vector<std::string> order;
  while (!ready.empty()) {
    const std::size_t pick = random() % ready.size();
    const std::size_t i = ready[pick];
    ready[pick] = ready.back();
    ready.pop_back();
    order.push_back(lines[begin + i]);
    for (const std::size_t reader : readers[i]) {
      if (--waits[reader] == 0) ready.push_back(reader);
    }
  }
  EXPECT_EQ(order.size(), n);
  std::copy(order.begin(), order.end(), lines.begin() + static_cast<std::ptrdiff_t>(begin));
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

constexpr const char* kResults = "ROOT r = (f32[4,8], f32[8], f32[8,2], f32[2], f32[]) tuple(nw1, nb1, nw2, nb2, loss)";

TEST(Profiler, TwoLayersByHand) {
  const ModelProfile m = profile_text(graph::plain_descent(kResults));
  const pipeline::Profile& p = m.profile;
  ASSERT_EQ(p.name, (std::vector<std::string>{"h0", "b1b", "h1", "h", "o0", "b2b", "o", "e", "e2", "total", "loss"}));
  // w1 4x8, b1 8, w2 8x2, b2 2 floats, each where it is first used.
  EXPECT_EQ(p.w_bytes, (std::vector<double>{128, 32, 0, 0, 64, 8, 0, 0, 0, 0, 0}));
  // [16,8] is 512 bytes, [16,2] 128; b1b and b2b are made from parameters and do not travel; y does not either.
  EXPECT_EQ(p.a_bytes, (std::vector<double>{512, 512, 512, 512, 128, 128, 128, 128, 128, 4, 0}));
  // The backward pass reads h and e.
  EXPECT_EQ(p.stash_bytes, (std::vector<double>{0, 0, 0, 512, 0, 0, 0, 128, 0, 0, 0}));
  EXPECT_DOUBLE_EQ(m.memory.stash_bytes, 640);
  EXPECT_NEAR(sum(p.c_ms), m.forward_ms + m.backward_ms, 1e-9 * sum(p.c_ms));
  EXPECT_NEAR(p.forward_fraction, m.forward_ms / (m.forward_ms + m.backward_ms), 1e-12);
  ASSERT_EQ(m.variables.size(), 4u);
  EXPECT_EQ(m.variables[2].parameter, "w2");
  EXPECT_EQ(m.variables[2].first_use, 5);
  EXPECT_TRUE(m.shared.empty());
}

// gw1 and the way to it belong to the first layer, gw2, gb2 and dh to the second.
TEST(Profiler, BackwardBelongsToTheLayerWhoseGradientItIs) {
  const Graph graph = hlo::read_hlo_text(graph::plain_descent(kResults), "test");
  InstructionTimes times;
  times.ms.assign(static_cast<std::size_t>(graph.num_instructions()), 0);
  const std::map<std::string, double> ms = {{"gw1", 1}, {"gb1", 2}, {"dh1", 4}, {"dh", 8}, {"gw2", 16}, {"gb2", 32}};
  for (graph::InstructionId id = graph.entry().first; id < graph.num_instructions(); ++id) {
    const auto found = ms.find(std::string(graph.instruction(id).name));
    if (found != ms.end()) times.ms[static_cast<std::size_t>(id)] = found->second;
  }
  const ModelProfile m = build_profile(graph, times, {});
  const auto at = [&](std::size_t begin, std::size_t end) {
    return std::accumulate(m.profile.c_ms.begin() + static_cast<std::ptrdiff_t>(begin),
                           m.profile.c_ms.begin() + static_cast<std::ptrdiff_t>(end), 0.0);
  };
  EXPECT_DOUBLE_EQ(at(0, 4), 1 + 2 + 4);        // h0 .. h
  EXPECT_DOUBLE_EQ(at(4, 11), 8 + 16 + 32);     // o0 .. loss
  EXPECT_DOUBLE_EQ(m.profile.c_ms[4], 8 + 16);  // dh = de * w2 and gw2 = h * de are the gradients of o0 = h * w2
  // Nothing in front waits for gw2, gb2, gw1 and gb1; for dh and dh1 it does.
  const std::vector<double>& share = m.profile.weight_share;
  ASSERT_EQ(share.size(), 11u);
  EXPECT_DOUBLE_EQ(share[4], 16.0 / 24);
  double weights = 0;
  for (std::size_t i = 0; i < share.size(); ++i) weights += share[i] * m.profile.c_ms[i];
  EXPECT_DOUBLE_EQ(weights, 1 + 2 + 16 + 32);
}

// A product's two gradients take as long as each other; attention and most of what is elementwise have none of weights.
TEST(Profiler, WeightGradientsOfATransformer) {
  const ModelProfile m = profile_text(text_of(kFixtures + "hlo/transformer_bf16.hlo.gz"));
  ASSERT_EQ(m.profile.weight_share.size(), m.profile.c_ms.size());
  double weights = 0;
  int halves = 0;
  for (std::size_t i = 0; i < m.profile.c_ms.size(); ++i) {
    const double share = m.profile.weight_share[i];
    ASSERT_TRUE(share >= 0 && share <= 1);
    weights += share * m.profile.c_ms[i] * (1 - m.profile.forward_fraction);
    if (share > 0.4 && share < 0.6 && m.profile.c_ms[i] > 0.01 * sum(m.profile.c_ms)) ++halves;
  }
  EXPECT_GE(halves, 6 * 3);  // the feed-forward products of six layers
  EXPECT_GT(weights / m.backward_ms, 0.3);
  EXPECT_LT(weights / m.backward_ms, 0.5);
  // Written as a loop over layers it is told apart, too.
  const auto share_of = [](const std::string& fixture) {
    const ModelProfile profile = profile_text(text_of(kFixtures + "hlo/" + fixture));
    double part = 0;
    for (std::size_t i = 0; i < profile.profile.c_ms.size(); ++i) {
      part += profile.profile.weight_share[i] * profile.profile.c_ms[i];
    }
    return part / sum(profile.profile.c_ms);
  };
  EXPECT_NEAR(share_of("scan_remat.hlo.gz"), share_of("transformer_remat.hlo.gz"), 0.02);
  EXPECT_GT(share_of("transformer_scan.hlo.gz"), 0.35);
}

TEST(Profiler, TiedWeightsAreListed) {
  const ModelProfile m = profile_text(R"(HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY e {
  w = f32[4,8] parameter(0)
  v = f32[8,8] parameter(1)
  x = f32[16,4] parameter(2)
  z = f32[] constant(0)
  h = f32[16,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[16,8] tanh(h)
  u = f32[16,8] dot(t, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  o = f32[16,4] dot(u, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  oo = f32[16,4] multiply(o, o)
  l = f32[] reduce(oo, z), dimensions={0,1}, to_apply=sum
  gw2 = f32[4,8] dot(o, u), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  du = f32[16,8] dot(o, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  gv = f32[8,8] dot(t, du), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  dt = f32[16,8] dot(du, v), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  th = f32[16,8] multiply(dt, t)
  gw1 = f32[4,8] dot(x, th), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  gw = f32[4,8] add(gw1, gw2)
  nw = f32[4,8] subtract(w, gw)
  nv = f32[8,8] subtract(v, gv)
  ROOT r = (f32[4,8], f32[8,8], f32[]) tuple(nw, nv, l)
})");
  EXPECT_EQ(sum(m.profile.w_bytes), 4 * 8 * 4 + 8 * 8 * 4);
  ASSERT_EQ(m.shared.size(), 1u);
  EXPECT_EQ(m.variables[static_cast<std::size_t>(m.shared[0].variable)].parameter, "w");
  EXPECT_EQ(m.variables[0].first_use, 1);
  EXPECT_EQ(m.variables[0].last_use, 4);
}

// A wider copy and a broadcast are made again behind the cut; the narrow form travels.
TEST(Profiler, OneActivationTravelsOnceInItsSmallestForm) {
  const ModelProfile m = profile_text(R"(HloModule m
ENTRY e {
  w = f32[4,4] parameter(0)
  x = f32[16,4] parameter(1)
  mask = s32[16] parameter(2)
  h = f32[16,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  n = bf16[16,4] convert(h)
  big = bf16[8,16,4] broadcast(n), dimensions={1,2}
  t = bf16[16,4] tanh(n)
  f = f32[16] convert(mask)
  fb = f32[8,16,4] broadcast(f), dimensions={1}
  c = f32[8,16,4] convert(big)
  p = f32[8,16,4] multiply(c, fb)
  tb = f32[16,4] convert(t)
  tbb = f32[8,16,4] broadcast(tb), dimensions={1,2}
  ROOT r = f32[8,16,4] add(p, tbb)
})");
  std::map<std::string, double> behind;
  for (std::size_t i = 0; i < m.profile.name.size(); ++i) behind[m.profile.name[i]] = m.profile.a_bytes[i];
  EXPECT_EQ(behind.at("h"), 256);
  EXPECT_EQ(behind.at("n"), 128);
  EXPECT_EQ(behind.at("p"), 8 * 16 * 4 * 4 + 128);  // p, and n (or t) for the other summand
  EXPECT_EQ(behind.at("r"), 0);
}

TEST(Profiler, TheOrderOfTheTextChangesNothing) {
  for (const char* name : {"hlo/tiny_mlp.stripped.hlo", "hlo/transformer_remat.stripped.hlo.gz"}) {
    const std::string text = text_of(kFixtures + name);
    const ModelProfile given = profile_by_size(text);
    for (unsigned seed = 1; seed <= 3; ++seed) {
      const ModelProfile other = profile_by_size(shuffled(text, seed));
      EXPECT_EQ(other.profile.name, given.profile.name) << name;
      EXPECT_EQ(other.profile.a_bytes, given.profile.a_bytes) << name;
      EXPECT_EQ(other.profile.w_bytes, given.profile.w_bytes) << name;
      EXPECT_EQ(other.profile.stash_bytes, given.profile.stash_bytes) << name;
      EXPECT_EQ(other.profile.c_ms, given.profile.c_ms) << name;
    }
  }
}

// a by its definition: behind every instruction, every activation with a form made up to there and read behind it. What
// enters a layer is what did not enter the one in front.
TEST(Profiler, ActivationsAgreeWithTheDefinition) {
  for (const char* name : {"hlo/transformer_bf16.hlo.gz", "hlo/moe_small.hlo.gz", "hlo/transformer_scan.hlo.gz"}) {
    const Graph graph = hlo::read_hlo_text(text_of(kFixtures + name), name);
    InstructionTimes times;
    times.ms.assign(static_cast<std::size_t>(graph.num_instructions()), 1);
    const ModelProfile m = build_profile(graph, times, {});
    graph::TrainingStepOptions options;
    options.weight = times.ms;
    const graph::TrainingStep step = graph::analyze_training_step(graph, options);
    const graph::FlowOrder flow_order = graph::order_forward(step);
    const auto is_activation = [&](graph::NodeId id) {
      const auto i = static_cast<std::size_t>(id);
      return step.part[i] == graph::Part::kForward && flow_order.origin[i] == graph::Origin::kFlow;
    };
    std::map<graph::NodeId, double> entered;
    double entries = 0;
    for (std::size_t cut = 0; cut + 1 < m.profile.a_bytes.size(); ++cut) {
      struct Wanted {
        double forms = 0;
        bool base = false;
      };
      std::map<graph::NodeId, Wanted> wanted;
      for (std::size_t p = 0; p <= cut + 64 && p < flow_order.order.size(); ++p) {
        const graph::NodeId id = flow_order.order[p];
        if (!is_activation(id) || !step.flow.shape(id).is_array()) continue;
        const auto made = flow_order.position[static_cast<std::size_t>(step.flow.producer(id))];
        if (made > static_cast<std::int32_t>(cut)) continue;
        bool read = false;
        for (const graph::NodeId user : step.flow.users(id)) {
          read = read || (step.part[static_cast<std::size_t>(user)] == graph::Part::kForward &&
                          flow_order.position[static_cast<std::size_t>(user)] > static_cast<std::int32_t>(cut));
        }
        if (!read) continue;
        graph::NodeId base = id;
        while (graph::is_movement(step.flow, base) && is_activation(step.flow.operands(base)[0]))
          base = step.flow.operands(base)[0];
        wanted[base].forms += static_cast<double>(step.flow.shape(id).bytes);
        wanted[base].base = wanted[base].base || id == base;
      }
      double expected = 0, enters = 0;
      std::map<graph::NodeId, double> crossing;
      for (const auto& [base, w] : wanted) {
        const auto whole = static_cast<double>(step.flow.shape(base).bytes);
        crossing[base] = w.base ? whole : std::min(whole, w.forms);
        expected += crossing[base];
        enters += std::max(0.0, crossing[base] - entered[base]);
      }
      ASSERT_EQ(m.profile.a_bytes[cut], expected) << name << " behind " << cut + 1;
      if (!step.training) continue;
      const bool starts = m.profile.layer[cut + 1] != m.profile.layer[cut];
      ASSERT_EQ(m.profile.layer_entry_bytes[cut + 1], starts ? enters : 0) << name << " behind " << cut + 1;
      ASSERT_EQ(m.profile.layer_entry_bytes[cut + 1] + m.profile.stage_entry_bytes[cut + 1], expected) << name;
      if (starts) entered = std::move(crossing);
      if (starts) entries += enters;
    }
    EXPECT_EQ(entries > 0, step.training) << name;
  }
}

TEST(Profiler, NothingToPlanIsAnError) {
  try {
    profile_text("HloModule m\nENTRY e {\n  p = f32[4] parameter(0)\n  ROOT n = f32[4] negate(p)\n}\n");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_THAT(error.what(), HasSubstr("1 forward instruction"));
  }
}

TEST(Profiler, ModelNames) {
  EXPECT_EQ(model_name("a/b/bert48.hlo.gz", "x"), "bert48");
  EXPECT_EQ(model_name("<stdin>", "jit_step"), "jit_step");
  EXPECT_EQ(model_name("module_12.before_optimizations.txt", "x"), "module_12");
  EXPECT_EQ(model_name(".hlo", "x"), ".hlo");
}

// --- Fixtures, against what their exporter knows ---

struct Truth {
  std::string name;
  Json record;
};

std::vector<Truth> fixtures() {
  const Json manifest = Json::parse(read_file(kFixtures + "MANIFEST.json"));
  std::vector<Truth> out;
  for (const auto& model : manifest["models"]) out.push_back({model["name"].get<std::string>(), model});
  return out;
}

class Fixture : public testing::TestWithParam<std::string> {};

TEST_P(Fixture, AgreesWithWhatTheExporterKnows) {
  Truth truth;
  for (const Truth& candidate : fixtures()) {
    if (candidate.name == GetParam()) truth = candidate;
  }
  const Json& record = truth.record;
  const std::string text = text_of(kFixtures + record["forms"]["text"]["file"].get<std::string>());
  const ModelProfile m = profile_text(text);
  const pipeline::Profile& p = m.profile;
  pipeline::check_profile(p, truth.name);
  EXPECT_NEAR(sum(p.c_ms), m.forward_ms + m.backward_ms, 1e-9 * sum(p.c_ms));
  EXPECT_NEAR(m.total_flops, record["flops"].get<double>(), 0.01 * record["flops"].get<double>());
  const bool training = record["kind"] == "train";
  EXPECT_EQ(m.training, training);
  if (training) {
    EXPECT_EQ(m.loss_result, record["loss_output"].get<int>());
    EXPECT_EQ(m.memory.variable_bytes, record["trainable_bytes"].get<double>());
    EXPECT_EQ(sum(p.w_bytes), record["trainable_bytes"].get<double>());
    EXPECT_GT(p.forward_fraction, 0.2);
    EXPECT_LT(p.forward_fraction, 0.55);
  }
  // The variables themselves, by parameter number.
  std::set<int> expected, found;
  std::ifstream table(kFixtures + record["parameters"].get<std::string>());
  for (std::string line; std::getline(table, line);) {
    std::istringstream cells(line);
    std::string number, role;
    std::getline(cells, number, '\t');
    std::getline(cells, role, '\t');
    if (role == "variable") expected.insert(std::stoi(number));
  }
  for (const TrainableVariable& v : m.variables) found.insert(v.number);
  if (training) {
    EXPECT_EQ(found, expected);
  }

  // Metadata is a help, never a need.
  const ModelProfile bare = profile_text(without_metadata(text));
  EXPECT_NEAR(bare.forward_ms, m.forward_ms, 0.001 * m.forward_ms);
  EXPECT_EQ(bare.variables.size(), m.variables.size());
  EXPECT_EQ(bare.profile.a_bytes, p.a_bytes);
  if (training) {
    // Nor is the loss among the results: only what is near the loss can be taken for the other pass.
    const ModelProfile lossless = profile_text(text, true);
    EXPECT_NEAR(lossless.forward_ms, m.forward_ms, 0.05 * m.forward_ms + 0.005);
  }
}

std::vector<std::string> fixture_names() {
  std::vector<std::string> names;
  for (const Truth& truth : fixtures()) names.push_back(truth.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Fixture, testing::ValuesIn(fixture_names()), [](const auto& instance) {
  std::string name = instance.param;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

// Equal layers cost the same; a cut between two of them carries one batch of hidden states.
TEST(Profiler, LayersOfBert48AreEqual) {
  const ModelProfile m = profile_text(text_of(kFixtures + "hlo/bert48.hlo.gz"));
  std::vector<LayerSummary> blocks;
  for (const LayerSummary& layer : m.layers) {
    if (layer.name.rfind("encoder/layer/", 0) == 0) blocks.push_back(layer);
  }
  ASSERT_EQ(blocks.size(), 48u);
  for (std::size_t k = 0; k < blocks.size(); ++k) {
    EXPECT_EQ(blocks[k].name, "encoder/layer/" + std::to_string(k));
    EXPECT_EQ(blocks[k].a_bytes, 2 * 384 * 1024 * 4) << k;
    EXPECT_EQ(blocks[k].w_bytes, blocks[0].w_bytes) << k;
    EXPECT_NEAR(blocks[k].c_ms, blocks[10].c_ms, 0.01 * blocks[10].c_ms) << k;
  }
}

// --- Real models (extended) ---

TEST(ProfilerCorpus, EveryModuleProfilesAndMetadataIsNotNeeded) {
  const char* root = std::getenv("AUTOMAP_CORPUS");
  if (root == nullptr) GTEST_SKIP() << "AUTOMAP_CORPUS is not set: no real models to profile";
  int modules = 0;
  for (const char* folder : {"train_1dev", "train_spmd", "infer_1dev", "infer_pairs", "spmd_partitioned"}) {
    const std::filesystem::path path = std::filesystem::path(root) / "hlo" / folder;
    ASSERT_TRUE(std::filesystem::is_directory(path)) << path;
    for (const auto& file : std::filesystem::directory_iterator(path)) {
      const std::string text = text_of(file.path().string());
      const std::string name = file.path().filename().string();
      const ModelProfile m = profile_text(text);
      pipeline::check_profile(m.profile, name);
      EXPECT_NEAR(sum(m.profile.c_ms), m.forward_ms + m.backward_ms, 1e-9 * sum(m.profile.c_ms)) << name;
      const bool training = std::string(folder).rfind("train", 0) == 0;
      if (training) {
        EXPECT_TRUE(m.training) << name;
        EXPECT_GT(m.variables.size(), 2u) << name;
        EXPECT_GT(m.profile.forward_fraction, 0.2) << name;
        EXPECT_LT(m.profile.forward_fraction, 0.6) << name;
      }
      const ModelProfile bare = profile_text(without_metadata(text));
      EXPECT_NEAR(bare.forward_ms, m.forward_ms, 0.01 * m.forward_ms) << name;
      EXPECT_EQ(bare.variables.size(), m.variables.size()) << name;
      // Names of the parameters tell the truth where frameworks write them.
      std::size_t named = 0;
      const Graph graph = hlo::read_hlo_text(text, name);
      for (const graph::InstructionId id : graph.entry().parameters) {
        const std::string op_name = graph.op_name(id);
        if (op_name.rfind("params[", 0) == 0 || op_name.rfind("state.params[", 0) == 0) ++named;
      }
      if (training && named > 0) {
        EXPECT_EQ(m.variables.size(), named) << name;
      }
      ++modules;
      std::cout << name << ": " << m.profile.size() << " instructions, " << m.variables.size() << " variables, phi "
                << m.profile.forward_fraction << "\n";
    }
  }
  EXPECT_GT(modules, 10);
}

// --- What a stage costs beside c, a, w, k ---

TEST(Profiler, SlotsGradientsAndOptimizerStandWithTheirVariable) {
  const std::string text = graph::two_layers("  m2 = f32[8,2] parameter(6)\n  m1 = f32[4,8] parameter(7)", R"(
  nm1 = f32[4,8] add(m1, gw1)
  nm2 = f32[8,2] add(m2, gw2)
  nw1 = f32[4,8] subtract(w1, nm1)
  nw2 = f32[8,2] subtract(w2, nm2)
  nb1 = f32[8] subtract(b1, gb1)
  nb2 = f32[2] subtract(b2, gb2)
  ROOT r = (f32[4,8], f32[8], f32[8,2], f32[2], f32[], f32[8,2], f32[4,8]) tuple(nw1, nb1, nw2, nb2, loss, nm2, nm1))");
  hlo::HloModule module;
  module.graph = hlo::read_hlo_text(text, "test");
  const ModelProfile m = profile_module(module, "test", {});
  const pipeline::Profile& p = m.profile;
  double slots = 0;
  for (const TrainableVariable& v : m.variables) {
    const auto at = static_cast<std::size_t>(v.first_use - 1);
    EXPECT_EQ(v.gradient_bytes, v.bytes);
    EXPECT_GE(p.gradient_bytes[at], v.gradient_bytes);
    EXPECT_GE(p.slot_bytes[at], v.slot_bytes);
    EXPECT_GT(p.times.at(0).optimizer_ms[at], 0) << v.name;
    slots += v.slot_bytes;
  }
  EXPECT_EQ(slots, 4 * 8 * 4 + 8 * 2 * 4);
  EXPECT_EQ(sum(p.slot_bytes), m.memory.slot_bytes);
  EXPECT_EQ(sum(p.gradient_bytes), sum(p.w_bytes));
  EXPECT_NEAR(sum(p.times[0].optimizer_ms), m.optimizer_ms, 1e-15);
}

TEST(Profiler, FrozenWeightsStandAtTheirFirstUse) {
  const Graph graph = hlo::read_hlo_text(R"(HloModule m
ENTRY e {
  w1 = f32[64,64] parameter(0)
  w2 = f32[64,128] parameter(1)
  ids = s32[8] parameter(2)
  x = f32[8,64] gather(w1, ids), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,
    slice_sizes={1,64}
  y = f32[8,64] tanh(x)
  ROOT z = f32[8,128] dot(y, w2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
})",
                                         "test");
  const ModelProfile m = build_profile(graph, estimate_times(graph, machine::load_device("v100-16gb")), {});
  EXPECT_THAT(m.profile.frozen_bytes, testing::ElementsAre(64 * 64 * 4, 0, 64 * 128 * 4));
  EXPECT_EQ(sum(m.profile.w_bytes) + sum(m.profile.gradient_bytes) + sum(m.profile.slot_bytes), 0);
  // x and y cross one cut each, which is what a counts; the last result crosses none, and y ends there.
  EXPECT_THAT(m.profile.workspace_bytes, testing::ElementsAre(0, 8 * 64 * 4, 8 * 128 * 4 + 8 * 64 * 4));
}

TEST(Profiler, WorkspaceOfABackwardPass) {
  const ModelProfile m = profile_text(
      graph::plain_descent("ROOT r = (f32[4,8], f32[8], f32[8,2], f32[2], f32[]) tuple(nw1, nb1, nw2, nb2, loss)"));
  const pipeline::Profile& p = m.profile;
  ASSERT_EQ(p.workspace_bytes.size(), p.c_ms.size());
  // The gradient of h [16,8] and what is made of it on the way: at least one such array, at most the whole module's.
  const double largest = *std::max_element(p.workspace_bytes.begin(), p.workspace_bytes.end());
  EXPECT_GE(largest, 16 * 8 * 4);
  EXPECT_LE(largest, 8 * 16 * 8 * 4);
}

TEST(Profiler, WorkspaceOfALoopIsWhatOneTurnNeeds) {
  // The stacks that the loop fills are kept or handed on, not its workspace.
  const ModelProfile scanned = profile_module(hlo::load_hlo(kFixtures + "hlo/transformer_scan.hlo.gz"), "scan", {});
  const auto largest = [](const ModelProfile& m) {
    return *std::max_element(m.profile.workspace_bytes.begin(), m.profile.workspace_bytes.end());
  };
  EXPECT_LT(largest(scanned), scanned.memory.stash_bytes / 8);
  EXPECT_GT(largest(scanned), scanned.memory.stash_bytes / 24 / 8);
}

TEST(Profiler, SharedWeightsAreInTheProfile) {
  hlo::HloModule module = hlo::load_hlo(kFixtures + "hlo/gpt2.hlo.gz");
  const ModelProfile m = profile_module(module, "gpt2", {});
  ASSERT_EQ(m.profile.shared.size(), m.shared.size());
  ASSERT_EQ(m.profile.shared.size(), 1u);
  const pipeline::SharedWeight& tied = m.profile.shared[0];
  const TrainableVariable& table = m.variables[static_cast<std::size_t>(m.shared[0].variable)];
  EXPECT_EQ(tied.first, table.first_use);
  EXPECT_EQ(tied.position, table.last_use);
  EXPECT_EQ(tied.weight_bytes, table.bytes);
  EXPECT_EQ(tied.gradient_bytes, table.bytes);
  EXPECT_EQ(tied.slot_bytes, 2 * table.bytes);
  EXPECT_EQ(sum(m.profile.slot_bytes), m.memory.slot_bytes);
  EXPECT_NEAR(sum(m.profile.times.at(0).optimizer_ms), m.optimizer_ms, 1e-9);
}

TEST(Profiler, MixedPrecisionGradientsAreNarrow) {
  const ModelProfile m = profile_module(hlo::load_hlo(kFixtures + "hlo/transformer_bf16.hlo.gz"), "bf16", {});
  // f32 weights that bf16 products read.
  EXPECT_LT(sum(m.profile.gradient_bytes), 0.75 * sum(m.profile.w_bytes));
  EXPECT_GE(sum(m.profile.gradient_bytes), 0.5 * sum(m.profile.w_bytes));
}

TEST(Profiler, ALoopThatStaysWholeIsSaid) {
  ProfileRequest request;
  request.whole_loops = true;
  const ModelProfile m = profile_module(hlo::load_hlo(kFixtures + "hlo/transformer_scan.hlo.gz"), "scan", request);
  ASSERT_EQ(m.uncut_loops.size(), 1u);
  EXPECT_TRUE(m.uncut_loops[0].layers);
  EXPECT_EQ(m.uncut_loops[0].turns, 24);
  EXPECT_GT(m.uncut_loops[0].compute_share, 0.5);
  EXPECT_THAT(m.warnings, testing::Contains(testing::AllOf(HasSubstr("24 layers run in one loop"),
                                                           HasSubstr("cannot be cut: it was asked to stay whole"))));
  EXPECT_TRUE(profile_module(hlo::load_hlo(kFixtures + "hlo/gpt2.hlo.gz"), "gpt2", {}).uncut_loops.empty());
}

TEST(Profiler, OptimizedModulesAreRecognized) {
  const std::string body = R"(
ENTRY e {
  w = f32[64,64] parameter(0)
  x = f32[8,64] parameter(1)
  y = f32[8,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT z = f32[8,64] fusion(y), kind=kLoop, calls=f
})";
  const std::string f = "f { p = f32[8,64] parameter(0)  ROOT t = f32[8,64] tanh(p) }";
  const ModelProfile fused = profile_text("HloModule m\n" + f + body);
  EXPECT_TRUE(fused.optimized);
  EXPECT_THAT(fused.warnings.at(0), testing::AllOf(HasSubstr("after optimization"), HasSubstr("1 fusion"),
                                                   HasSubstr("before_optimizations")));
  const std::string called = body.substr(0, body.find("fusion")) + "call(y), to_apply=f\n}";
  EXPECT_FALSE(profile_text("HloModule m\n" + f + called).optimized);
  EXPECT_TRUE(profile_text("HloModule m, is_scheduled=true\n" + f + called).optimized);
}

}  // namespace
}  // namespace automap::profile
