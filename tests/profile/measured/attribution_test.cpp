// Profiles scaled by measured times. The slow obvious twin: a trace in which every instruction takes what it is
// estimated to take leaves the profile as it is, and one in which it takes twice that doubles the columns of time.
#include "profile/measured/attribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iomanip>
#include <map>
#include <sstream>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/hlo/hlo_reader.h"
#include "common/hlo/hlo_text.h"
#include "profile/profile_hlo.h"
#include "tests/common/graph/training_modules.h"
#include "tests/sum.h"

namespace automap::measured {
namespace {

using graph::Graph;
using pipeline::Profile;
using profile::ModelProfile;
using profile::WorkPlace;
using testing::ElementsAre;
using testing::HasSubstr;

struct Model {
  hlo::HloModule module;
  ModelProfile profile;
};

Model profiled(const std::string& text, std::vector<std::string> more = {}) {
  Model model;
  model.module.graph = hlo::read_hlo_text(text, "test");
  profile::ProfileRequest request;
  request.places = true;
  request.more_devices = std::move(more);
  request.attention = profile::AttentionMode::kAsWritten;
  model.profile = profile::profile_module(model.module, "test", request);
  return model;
}

// The trace that JAX's profiler would write of a step in which everything takes `scale` times its estimate.
std::string own_trace(const Model& model, double scale) {
  std::map<graph::InstructionId, double> ms;
  for (const WorkPlace& place : model.profile.places) ms[place.instruction] += place.ms;
  std::ostringstream out;
  out << std::setprecision(17)
      << R"({"traceEvents": [{"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
    {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "Stream #1"}})";
  double begin = 0;
  for (const auto& [id, one] : ms) {
    out << R"(, {"ph": "X", "pid": 1, "tid": 1, "ts": )" << begin << ", \"dur\": " << one * 1e3 * scale
        << R"(, "name": "k", "args": {"hlo_module": "m", "hlo_op": ")" << model.module.graph.instruction(id).name
        << "\"}}";
    begin += 2 * one * 1e3 * scale + 1;
  }
  out << "]}";
  return out.str();
}

void expect_scaled(const std::vector<double>& before, const std::vector<double>& after, double scale) {
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i], scale * before[i], 1e-9 * scale * before[i]);
}

void expect_all_scaled(const Model& before, const ModelProfile& after, double scale) {
  const Profile &a = before.profile.profile, &b = after.profile;
  expect_scaled(a.c_ms, b.c_ms, scale);
  ASSERT_EQ(a.times.size(), b.times.size());
  for (std::size_t d = 0; d < a.times.size(); ++d) {
    ASSERT_EQ(a.times[d].samples, b.times[d].samples);
    for (std::size_t i = 0; i < a.times[d].samples.size(); ++i) {
      expect_scaled(a.times[d].forward_ms[i], b.times[d].forward_ms[i], scale);
      expect_scaled(a.times[d].backward_ms[i], b.times[d].backward_ms[i], scale);
    }
    expect_scaled(a.times[d].optimizer_ms, b.times[d].optimizer_ms, scale);
  }
  EXPECT_NEAR(b.forward_fraction, a.forward_fraction, 1e-9);
  EXPECT_NEAR(after.forward_ms, scale * before.profile.forward_ms, 1e-9 * after.forward_ms);
  EXPECT_NEAR(after.optimizer_ms, scale * before.profile.optimizer_ms, 1e-9 * after.optimizer_ms);
  for (std::size_t i = 0; i < after.layers.size(); ++i) {
    EXPECT_NEAR(after.layers[i].c_ms, scale * before.profile.layers[i].c_ms, 1e-9 * after.layers[i].c_ms);
  }
  // All else stays.
  EXPECT_EQ(a.a_bytes, b.a_bytes);
  EXPECT_EQ(a.w_bytes, b.w_bytes);
  EXPECT_EQ(a.stash_bytes, b.stash_bytes);
  EXPECT_EQ(a.weight_share, b.weight_share);
}

std::string fixture(const std::string& name) {
  const std::string path = std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/" + name;
  return gunzip_if_gzip(read_file(path), path);
}

TEST(Attribution, OfTheEstimateItselfChangesNothing) {
  for (const std::string& text :
       {graph::plain_descent("ROOT r = (f32[4,8], f32[8], f32[8,2], f32[2], f32[]) tuple(nw1, nb1, nw2, nb2, loss)"),
        fixture("transformer_scan.stripped.hlo.gz")}) {
    const Model model = profiled(text, {"h100"});
    for (const double scale : {1.0, 2.0}) {
      const MeasuredTimes times = parse_measured(own_trace(model, scale), "trace");
      ModelProfile scaled = model.profile;
      const Attribution found = apply_measured(times, model.module.graph, 0, &scaled);
      expect_all_scaled(model, scaled, scale);
      EXPECT_NEAR(found.factor, scale, 1e-9);
      EXPECT_NEAR(found.attributed_ms(), found.measured_ms, 1e-9 * found.measured_ms);
      EXPECT_EQ(found.measured_positions, found.positions);
      EXPECT_NEAR(found.measured_compute, 1, 1e-12);
      EXPECT_TRUE(found.left_over.empty());
      EXPECT_TRUE(found.notes.empty());
    }
  }
}

// Three layers of one product each, with op_names.
std::string layers_text() {
  std::string text =
      "HloModule m\nsum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }\nENTRY e {\n";
  for (int i = 0; i < 3; ++i)
    text += "  w" + std::to_string(i) + " = f32[64,64] parameter(" + std::to_string(i) + ")\n";
  text += "  x0 = f32[16,64] parameter(3)\n";
  const auto named = [](const std::string& scope, const std::string& op) {
    return ", metadata={op_name=\"jit(step)/" + scope + "/" + op + "\"}\n";
  };
  for (int i = 0; i < 3; ++i) {
    const std::string n = std::to_string(i), layer = "jvp(h_" + n + ")";
    text += "  d" + n + " = f32[16,64] dot(x" + n + ", w" + n +
            "), lhs_contracting_dims={1}, rhs_contracting_dims={0}" + named(layer, "dot_general");
    text += "  x" + std::to_string(i + 1) + " = f32[16,64] tanh(d" + n + ")" + named(layer, "tanh");
  }
  text += "  zero = f32[] constant(0)\n  loss = f32[] reduce(x3, zero), dimensions={0,1}, to_apply=sum\n";
  text += "  one = f32[] constant(1)\n  g3 = f32[16,64] broadcast(one), dimensions={}\n";
  for (int i = 2; i >= 0; --i) {
    const std::string n = std::to_string(i), layer = "transpose(jvp(h_" + n + "))";
    text += "  t" + n + " = f32[16,64] multiply(g" + std::to_string(i + 1) + ", x" + std::to_string(i + 1) + ")" +
            named(layer, "mul");
    text += "  gw" + n + " = f32[64,64] dot(x" + n + ", t" + n +
            "), lhs_contracting_dims={0}, rhs_contracting_dims={0}" + named(layer, "dot_general");
    text += "  g" + n + " = f32[16,64] dot(t" + n + ", w" + n +
            "), lhs_contracting_dims={1}, rhs_contracting_dims={1}" + named(layer, "dot_general");
    text += "  n" + n + " = f32[64,64] subtract(w" + n + ", gw" + n + "), metadata={op_name=\"jit(step)/sub\"}\n";
  }
  return text + "  ROOT r = (f32[64,64], f32[64,64], f32[64,64], f32[]) tuple(n0, n1, n2, loss)\n}\n";
}

std::map<std::string, double> layer_ms(const ModelProfile& model) {
  std::map<std::string, double> out;
  for (const profile::LayerSummary& layer : model.layers) out[layer.name] += layer.c_ms;
  return out;
}

MeasuredTime time_of(Named named, const std::string& name, double forward, double backward) {
  MeasuredTime time;
  time.named = named;
  time.name = name;
  time.forward_ms = forward;
  time.backward_ms = backward;
  return time;
}

Attribution apply(const std::vector<MeasuredTime>& times, const Model& model, ModelProfile* scaled,
                  double samples = 0) {
  MeasuredTimes all;
  all.source = "times";
  all.times = times;
  *scaled = model.profile;
  return apply_measured(all, model.module.graph, samples, scaled);
}

double sum_of(const std::vector<std::pair<std::string, double>>& left_over) {
  double all = 0;
  for (const auto& [name, ms] : left_over) all += ms;
  return all;
}

TEST(Attribution, OpNamesOfCompiledInstructions) {
  const Model model = profiled(layers_text());
  ASSERT_EQ(layer_ms(model.profile).size(), 3u);
  const auto op = [](const std::string& name, const std::string& op_name, double ms) {
    MeasuredTime time;
    time.name = name;
    time.op_name = op_name;
    time.either_ms = ms;
    return time;
  };
  ModelProfile scaled;
  // h_1 by its own names, h_0 by what they begin with; d2 is a name of the module and of something else.
  const Attribution found = apply(
      {op("fusion.1", "jit(step)/jit(main)/jvp(h_1)/tanh", 2),
       op("fusion.2", "jit(step)/transpose(jvp(h_1))/dot_general", 6), op("fusion.3", "jit(step)/jvp(h_0)/attn/exp", 1),
       op("fusion.4", "jit(step)/sub", 0.5), op("d2", "jit(init)/normal", 0.25)},
      model, &scaled);
  EXPECT_NEAR(found.forward_ms, 3, 1e-12);
  EXPECT_NEAR(found.backward_ms, 6, 1e-12);
  EXPECT_NEAR(found.optimizer_ms, 0.5, 1e-12);
  EXPECT_NEAR(scaled.optimizer_ms, 0.5, 1e-12);
  EXPECT_NEAR(found.measured_ms, 9.75, 1e-12);
  ASSERT_EQ(found.left_over.size(), 1u);
  EXPECT_EQ(found.left_over[0].first, "jit(init)/normal");
  // The forward of h_0 and both of h_1 as measured: tanh has the product in its kernel, and the layer is scaled as one.
  const auto before = layer_ms(model.profile), after = layer_ms(scaled);
  EXPECT_NEAR(after.at("h_1"), 8, 1e-9);
  EXPECT_GT(scaled.profile.c_ms[0], 0);
  EXPECT_GT(after.at("h_0"), 1);  // and the backward pass, at h_1's pace
  EXPECT_GT(after.at("h_2") / before.at("h_2"), 1);
  EXPECT_LT(found.measured_positions, found.positions);
}

TEST(Attribution, NamesAloneHaveToBeKnown) {
  const Model model = profiled(layers_text());
  const auto op = [](const std::string& name) {
    MeasuredTime time;
    time.name = name;
    time.either_ms = 1;
    return time;
  };
  ModelProfile scaled;
  EXPECT_NEAR(apply({op("d0"), op("d1"), op("other")}, model, &scaled).attributed_ms(), 2, 1e-12);
  try {
    apply({op("d0"), op("fusion.1"), op("fusion.2")}, model, &scaled);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_THAT(error.what(), HasSubstr("nothing can be attributed to test"));
    EXPECT_THAT(error.what(), HasSubstr("it has d0, fusion.1, fusion.2"));
    EXPECT_THAT(error.what(), HasSubstr("the model has instructions d0, x1, d1"));
  }
  // The module as it ran says what they are.
  MeasuredTimes times;
  times.times = {op("fusion.1"), op("fusion.2")};
  add_op_names(hlo::read_hlo_text("HloModule ran\nENTRY e { p = f32[2] parameter(0)\n fusion.1 = f32[2] negate(p), "
                                  "metadata={op_name=\"jit(step)/jvp(h_0)/tanh\"}\n ROOT c = f32[2] copy(fusion.1) }",
                                  "ran"),
               &times);
  scaled = model.profile;
  EXPECT_NEAR(apply_measured(times, model.module.graph, 0, &scaled).attributed_ms(), 1, 1e-12);
}

TEST(Attribution, LayersTakeWhatWasMeasured) {
  const Model model = profiled(layers_text());
  ModelProfile scaled;
  // By name, by an abbreviation in other words, and by number.
  Attribution found = apply(
      {time_of(Named::kLayer, "h_0", 1, 2), time_of(Named::kScope, "net.h.1", 3, 4), time_of(Named::kLayer, "3", 5, 7)},
      model, &scaled);
  auto after = layer_ms(scaled);
  EXPECT_NEAR(after["h_0"], 3, 1e-9);
  EXPECT_NEAR(after["h_1"], 7, 1e-9);
  EXPECT_NEAR(after["h_2"], 12, 1e-9);
  EXPECT_NEAR(scaled.profile.forward_fraction, 9.0 / 22, 1e-9);
  EXPECT_NEAR(sum(scaled.profile.c_ms), 22, 1e-9);
  EXPECT_NEAR(found.measured_compute, 1, 1e-12);
  // Positions without a measurement are scaled as those with one; without a backward pass as the forward pass.
  MeasuredTime one;
  one.named = Named::kLayer;
  one.name = "h_1";
  one.forward_ms = 3;
  found = apply({one}, model, &scaled);
  expect_scaled(model.profile.profile.c_ms, scaled.profile.c_ms, found.factor);
  ASSERT_FALSE(found.notes.empty());
  EXPECT_THAT(found.notes[0], HasSubstr("of the backward pass nothing was measured"));
  EXPECT_LT(found.measured_positions, found.positions);
  // Both passes in one: the estimate tells them apart.
  one.either_ms = 4;
  one.forward_ms.reset();
  found = apply({one}, model, &scaled);
  EXPECT_NEAR(layer_ms(scaled)["h_1"], 4, 1e-9);
  EXPECT_GT(found.backward_ms, found.forward_ms);
  EXPECT_THROW(apply({time_of(Named::kLayer, "9", 1, 1)}, model, &scaled), Error);
  // A match by chance scales nothing.
  EXPECT_THROW(apply({time_of(Named::kLayer, "1", 1, 1), time_of(Named::kLayer, "nobody", 90, 0)}, model, &scaled),
               Error);
  EXPECT_THROW(apply({time_of(Named::kLayer, "0", 1, 1)}, model, &scaled), Error);
}

TEST(Attribution, SamplesOfSeveralDevicesAreAsked) {
  const Model model = profiled(layers_text());
  MeasuredTimes times;
  times.devices = 8;
  times.times = {time_of(Named::kScope, "h_0", 1, 2)};
  ModelProfile scaled = model.profile;
  EXPECT_THAT(apply_measured(times, model.module.graph, 0, &scaled).notes,
              testing::Contains(HasSubstr("it is of 8 devices, each of which is taken to have computed 16 samples")));
  scaled = model.profile;
  EXPECT_THAT(apply_measured(times, model.module.graph, 2, &scaled).notes,
              testing::Not(testing::Contains(HasSubstr("devices"))));
}

TEST(Attribution, RowsOfATable) {
  const Model model = profiled(layers_text());
  const auto refusal = [&](const std::string& table) -> std::string {
    ModelProfile scaled = model.profile;
    try {
      apply_measured(parse_measured(table, "t.csv"), model.module.graph, 0, &scaled);
    } catch (const Error& error) {
      return std::string(error.what()) + " | " + error.hint();
    }
    return "read";
  };
  EXPECT_EQ(refusal("layer,forward_ms,backward_ms\nh,1,\nh_0,,2\n"), "read");  // of two passes
  EXPECT_THAT(refusal("layer,ms\nh,1\nh_0,2\n"), HasSubstr("t.csv:3: layer 'h_0' is in part that of line 2, 'h'"));
  EXPECT_THAT(refusal("layer,forward_ms\nh_0,1\n1,2\n"), HasSubstr("t.csv:3: layer '1' is in part that of line 2"));
  EXPECT_THAT(refusal("layer,forward_ms\nh_1,1\nh_0,1e29\n"), HasSubstr("t.csv:3: layer 'h_0': its time is"));
  EXPECT_THAT(refusal("layer,forward_ms\nh_1,1e-29\nh_0,1\n"), HasSubstr("| times are in milliseconds"));
}

TEST(Attribution, ModulesOfAnotherFramework) {
  const Model model = profiled(layers_text());
  ModelProfile scaled;
  const Attribution found =
      apply({time_of(Named::kScope, "Net_0/Block_4/Linear_8", 1, 2), time_of(Named::kScope, "Net_0/Block_5", 3, 4),
             time_of(Named::kScope, "Net_0/Block_6/Linear_9", 5, 7), time_of(Named::kOptimizer, "Adam", 9, 0)},
            model, &scaled);
  auto after = layer_ms(scaled);
  EXPECT_NEAR(after["h_0"], 3, 1e-9);
  EXPECT_NEAR(after["h_2"], 12, 1e-9);
  EXPECT_NEAR(found.optimizer_ms, 9, 1e-12);
  EXPECT_NEAR(scaled.optimizer_ms, 9, 1e-9);
}

// Only what runs in the module around the layers is the model's; a loss is by its name.
TEST(Attribution, OtherScopesAreNobodys) {
  std::string text = layers_text();
  for (std::size_t at = 0; (at = text.find("h_0", at)) != std::string::npos;) text.replace(at, 3, "wte");
  const Model model = profiled(text);
  ModelProfile scaled;
  const Attribution found = apply(
      {time_of(Named::kScope, "NetWithHead_0/Block_0", 1, 2), time_of(Named::kScope, "NetWithHead_0/Block_1", 1, 2),
       time_of(Named::kScope, "NetWithHead_0/Dropout_3", 1, 2), time_of(Named::kScope, "sampler", 4, 0)},
      model, &scaled);
  EXPECT_NEAR(found.attributed_ms(), 9, 1e-12);
  EXPECT_NEAR(layer_ms(scaled)["wte"], 3, 1e-9);
  ASSERT_EQ(found.left_over.size(), 1u);
  EXPECT_EQ(found.left_over[0].first, "sampler");
}

TEST(Attribution, EveryLayerOfAKindAtTheNearestSamples) {
  const Model model = profiled(layers_text());  // of 16 samples
  ModelProfile scaled;
  std::vector<MeasuredTime> times;
  for (const double samples : {4.0, 8.0, 64.0}) {
    MeasuredTime time;
    time.named = Named::kEveryLayer;
    time.name = "0";
    time.samples = samples;
    time.forward_ms = samples;
    times.push_back(time);
  }
  Attribution found = apply(times, model, &scaled);
  EXPECT_EQ(found.samples, 8);
  EXPECT_NEAR(found.forward_ms, 24, 1e-9);
  // At 8 samples the forward pass takes what was measured there.
  const pipeline::DeviceTimes& at = scaled.profile.times.front();
  for (std::size_t i = 0; i < at.samples.size(); ++i) {
    if (at.samples[i] != 8) continue;
    EXPECT_NEAR(sum(at.forward_ms[i]), 24, 1e-6);
  }
  EXPECT_EQ(apply(times, model, &scaled, 64).samples, 64);
  EXPECT_THROW(apply(times, model, &scaled, 5), Error);
  // Another kind that was measured at others alone.
  times.push_back(times[0]);
  times.back().named = Named::kOutside;
  times.back().name = "other";
  times.back().samples = 16;
  times.back().forward_ms = 6;
  std::vector<MeasuredTime> mixed = {times[1], times.back()};
  found = apply(mixed, model, &scaled, 8);
  EXPECT_NEAR(found.forward_ms + sum_of(found.left_over), 24 + 3, 1e-9);
  EXPECT_THAT(found.notes, testing::Contains(HasSubstr("of 'other' there are no times of 8 samples: those of 16")));
  times[0].name = "7";
  times.resize(1);
  EXPECT_THROW(apply(times, model, &scaled), Error);
}

TEST(Attribution, ProgramsOfPositions) {
  const Model model = profiled(layers_text());
  const auto n = static_cast<std::int64_t>(model.profile.profile.c_ms.size());
  MeasuredTimes times;
  times.positions = n;
  times.times = {time_of(Named::kPositions, "a", 2, 3), time_of(Named::kPositions, "b", 5, 7)};
  times.times[0].first = 1;
  times.times[0].last = 3;  // within the second layer
  times.times[1].first = 4;
  times.times[1].last = n;
  ModelProfile scaled = model.profile;
  apply_measured(times, model.module.graph, 0, &scaled);
  double front = 0;
  for (std::size_t p = 0; p < 3; ++p) front += scaled.profile.c_ms[p];
  EXPECT_NEAR(front, 5, 1e-9);
  EXPECT_NEAR(sum(scaled.profile.c_ms), 17, 1e-9);
  times.positions = n + 1;
  EXPECT_THROW(apply_measured(times, model.module.graph, 0, &scaled), Error);
  // Of as many positions, and of another file.
  times.positions = n;
  times.model_sha256 = "00ff";
  scaled = model.profile;
  apply_measured(times, model.module.graph, 0, &scaled);  // nobody knows the model's own
  scaled.profile.source_sha256 = "00ff";
  apply_measured(times, model.module.graph, 0, &scaled);
  scaled.profile.source_sha256 = "77";
  EXPECT_THAT([&] { apply_measured(times, model.module.graph, 0, &scaled); },
              testing::ThrowsMessage<Error>(HasSubstr("of another file than test: its model_sha256 is 00ff")));
}

TEST(Attribution, CollectivesOfWidthsStay) {
  Model model = profiled(layers_text());
  Profile& profile = model.profile.profile;
  pipeline::WidthColumns columns;
  columns.width = 2;
  columns.times = profile.times;
  columns.w_bytes = columns.stash_bytes = profile.w_bytes;
  columns.collective_ms.assign(1, std::vector<double>(profile.c_ms.size(), 0.0));
  // Half of the second position is collectives.
  columns.collective_ms[0][1] = 0.5 * profile.c_ms[1];
  profile.widths.push_back(columns);
  ModelProfile scaled;
  std::vector<MeasuredTime> times;
  double ms = 0;
  for (const profile::LayerSummary& layer : model.profile.layers) ms += layer.c_ms;
  MeasuredTime all;
  all.named = Named::kLayer;
  all.name = "h";
  all.either_ms = 3 * ms;
  const Attribution found = apply({all}, model, &scaled);
  EXPECT_NEAR(found.factor, 3, 1e-9);
  const auto both = [](const pipeline::DeviceTimes& at, double samples, std::size_t p) {
    for (std::size_t i = 0; i < at.samples.size(); ++i) {
      if (at.samples[i] == samples) return at.forward_ms[i][p] + at.backward_ms[i][p];
    }
    return 0.0;
  };
  const pipeline::WidthColumns& after = scaled.profile.widths[0];
  EXPECT_NEAR(both(after.times[0], 16, 0), 3 * both(columns.times[0], 16, 0), 1e-9);
  EXPECT_NEAR(both(after.times[0], 16, 1), 2 * both(columns.times[0], 16, 1), 1e-9);
  EXPECT_EQ(after.collective_ms, columns.collective_ms);
}

TEST(Attribution, IsTold) {
  const Model model = profiled(layers_text());
  ModelProfile scaled;
  const Attribution found =
      apply({time_of(Named::kLayer, "h_0", 1, 2), time_of(Named::kScope, "sampler\n", 4, 0)}, model, &scaled);
  const AttributionSentences told = attribution_sentences(found);
  EXPECT_THAT(told.measured,
              HasSubstr("of 7.00 ms of a step 42.9 % are the model's, forward 1.00 ms, backward 2.00 ms"));
  EXPECT_THAT(told.measured, HasSubstr("not the model's: sampler\\n 4.00 ms"));
  EXPECT_THAT(told.scaled, HasSubstr("less than half of the measured time is the model's"));
  const Json json = attribution_json(found);
  EXPECT_EQ(json["attributed_ms"].get<double>(), 3);
  EXPECT_EQ(json["not_attributed"].size(), 1u);
}

}  // namespace
}  // namespace automap::measured
