// Every form of measured times, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "common/base/error.h"
#include "common/base/files.h"
#include "profile/measured/measured_times.h"
#include "tests/temporary_folder.h"

namespace automap::measured {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Key;
using testing::UnorderedElementsAre;

MeasuredTimes parse(const std::string& text) {
  return parse_measured(text, "file");
}

// "error | hint".
std::string refusal(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return std::string(error.what()) + " | " + error.hint();
  }
  return "read";
}

std::map<std::string, MeasuredTime> by_name(const MeasuredTimes& times) {
  std::map<std::string, MeasuredTime> out;
  for (const MeasuredTime& time : times.times) out[time.name] = time;
  return out;
}

// --- tables ---

TEST(LayerCsv, HasLayersAndPasses) {
  const MeasuredTimes times = parse(
      "# by hand\n\nlayer, forward_ms ,backward_ms\nembed,0.5,\n\"h, \"\"0\"\"\",2,4.5\r\n3,,1e-3\noptimizer,7,\n");
  EXPECT_EQ(times.form, "per-layer CSV");
  ASSERT_EQ(times.times.size(), 4u);
  EXPECT_EQ(times.times[0].name, "embed");
  EXPECT_EQ(times.times[0].forward_ms, 0.5);
  EXPECT_FALSE(times.times[0].backward_ms);
  EXPECT_EQ(times.times[1].name, "h, \"0\"");
  EXPECT_EQ(times.times[1].backward_ms, 4.5);
  EXPECT_EQ(times.times[2].backward_ms, 1e-3);
  EXPECT_EQ(times.times[2].named, Named::kLayer);
  EXPECT_EQ(times.times[3].named, Named::kOptimizer);
  EXPECT_EQ(times.times[1].line, 5);
  EXPECT_EQ(parse("ms,layer\n4,a\n").times[0].either_ms, 4);
  EXPECT_EQ(parse("Layer,Forward_ms\n\"a\" ,4\n").times[0].forward_ms, 4);
}

TEST(LayerCsv, SaysWhatIsWrong) {
  EXPECT_THAT(refusal("layer,forward_ms\na,-1\n"), HasSubstr("file:2: forward_ms: found '-1', expected a time: 0 or"));
  EXPECT_THAT(refusal("layer,forward_ms\na,nan\n"), HasSubstr("found 'nan'"));
  EXPECT_THAT(refusal("layer,forward_ms\na,1e40\n"), HasSubstr("found '1e40'"));
  EXPECT_THAT(refusal("layer,forward_ms\na,2 ms\n"), HasSubstr("found '2 ms'"));
  EXPECT_THAT(refusal("layer,forward_ms\na,1\nb\n"), HasSubstr("file:3: found 1 fields, expected 2"));
  EXPECT_THAT(refusal("layer,forward_ms\na,1\na,1\n"), HasSubstr("file:3: layer 'a' is given twice"));
  EXPECT_THAT(refusal("layer,forward_ms\n,1\n"), HasSubstr("file:2: the layer has no name"));
  EXPECT_THAT(refusal("layer,forward_ms,backward_ms\na,,\n"), HasSubstr("layer 'a' has no time"));
  EXPECT_THAT(refusal("layer,seconds\na,1\n"), HasSubstr("file:1: unknown column 'seconds'"));
  EXPECT_THAT(refusal("layer,ms,forward_ms\na,1,1\n"), HasSubstr("ms is both passes"));
  EXPECT_THAT(refusal("layer,ms,ms\na,1,1\n"), HasSubstr("column ms is given twice"));
  EXPECT_THAT(refusal("layer\na\n"), HasSubstr("found no column of times"));
  EXPECT_THAT(refusal("layer,ms\n\"a,1\n"), HasSubstr("file:2: a quoted field is never closed"));
  EXPECT_THAT(refusal("layer,ms\n\"a\"b,1\n"), HasSubstr("file:2: found 'b' behind a quoted field, expected a comma"));
  EXPECT_THAT(refusal("layer,ms\na,0\n"), HasSubstr("nothing that has a name took any time"));
}

TEST(Forms, AreToldFromTheBytes) {
  EXPECT_THAT(refusal(""), HasSubstr("file: empty"));
  EXPECT_THAT(refusal("a,b\n1,2\n"), HasSubstr("no form of measured times that is known: it begins with 'a,b'"));
  EXPECT_THAT(refusal(R"({"rows": 1, "device": "h100"})"), HasSubstr("JSON with keys rows, device"));
  EXPECT_THAT(refusal("{\"rows\": 1"), HasSubstr("file:1:"));
  TemporaryFolder folder;
  EXPECT_THROW(read_measured(folder.path()), Error);  // without measured.json
  write_file_atomic(folder.file("measured.json"), R"({"layertype_0_bsz2_seq8": 1})");
  EXPECT_EQ(read_measured(folder.path()).form, "Galvatron computation profile");
}

TEST(Aceso, HasOneLayerOfEachKind) {
  const std::string header = "op_name,forward-compute,backward-compute,input_size\n";
  auto times = by_name(parse(header + "encoder-embedding,100,200,1\nenc-MLP-GEMM-1,1000,2000,1\n"
                                      "enc-MLP-gelu,500,250,1\nfinal-layernorm,30,40,1\ngpt-post-process,60,80,1\n"));
  EXPECT_EQ(times.size(), 4u);
  EXPECT_EQ(times["0"].named, Named::kEveryLayer);
  EXPECT_NEAR(*times["0"].forward_ms, 1.5, 1e-12);
  EXPECT_NEAR(*times["0"].backward_ms, 2.25, 1e-12);
  EXPECT_EQ(times["encoder-embedding"].named, Named::kInFront);
  EXPECT_NEAR(*times["encoder-embedding"].forward_ms, 0.1, 1e-12);
  EXPECT_EQ(times["gpt-post-process"].named, Named::kBehind);
  // Of T5 some stand between the encoder and the decoder.
  times = by_name(parse(header + "enc-MLP-gelu,1,1,1\ndecoder-embedding,1,1,1\ndec-MLP-gelu,2,2,1\n"));
  EXPECT_EQ(times["1"].named, Named::kEveryLayer);
  EXPECT_EQ(times["decoder-embedding"].named, Named::kOutside);
  EXPECT_THAT(refusal("op_name,forward-compute\na,1\n"), HasSubstr("without column backward-compute"));
  EXPECT_THAT(refusal(header + "enc-a,1,-2,1\n"), HasSubstr("file:2: backward-compute: found '-2'"));
  EXPECT_THAT(refusal(header + "enc-a,1\n"), HasSubstr("found 2 fields, expected 4"));
}

TEST(Galvatron, HasTimesOfASample) {
  const MeasuredTimes times = parse(R"({"layernum[2]_bsz8_seq128": 60.0, "layernum[4]_bsz8_seq128": 92,
      "layertype_0_bsz8_seq128": 2.0, "layertype_1_bsz8_seq128": 3, "layertype_other_bsz8_seq128": 0.5,
      "layertype_0_bsz8_seq128_mlp": 7, "layertype_0_bsz1_seq128": 2.5})");
  ASSERT_EQ(times.times.size(), 4u);
  EXPECT_EQ(times.times[0].forward_ms, 16);
  EXPECT_EQ(times.times[0].samples, 8);
  EXPECT_EQ(times.times[1].name, "1");
  EXPECT_EQ(times.times[2].named, Named::kOutside);
  EXPECT_EQ(times.times[3].samples, 1);
  EXPECT_EQ(parse(R"({"layertype_0": 2})").times[0].forward_ms, 2);
  EXPECT_THAT(refusal(R"({"layernum[2]_bsz8_seq128": 60.0})"), HasSubstr("without times of layers"));
  EXPECT_THAT(refusal(R"({"layertype_0_bsz1_seq8": 1, "layertype_0_bsz1_seq16": 1})"),
              HasSubstr("several lengths of sequences: 8, 16"));
  EXPECT_THAT(refusal(R"({"layertype_0_bsz1_seq8": -1})"), HasSubstr("layertype_0_bsz1_seq8: found -1"));
  EXPECT_THAT(refusal(R"({"layertype_0_bsz1_seq8": "1"})"), HasSubstr("found \"1\""));
}

TEST(ProgramTimes, HavePositions) {
  const std::string text =
      R"({"schema": "automap.program-times/1", "model": "m", "model_sha256": "00ff", "samples": 8, "positions": 7, "programs": [
      {"name": "forward.0", "kind": "forward", "ms": 2, "positions": [1, 4]},
      {"name": "backward.0", "kind": "backward", "ms": 5, "positions": [1, 4], "recomputes": true},
      {"name": "backward.1", "kind": "backward", "ms": 3, "positions": [5, 7], "recomputes": false},
      {"name": "update.0.0", "kind": "update", "ms": 0.5}, {"name": "update.1.0", "kind": "update", "ms": 0.25}]})";
  const MeasuredTimes times = parse(text);
  auto found = by_name(times);
  EXPECT_EQ(times.positions, 7);
  EXPECT_EQ(times.model_sha256, "00ff");
  EXPECT_EQ(found["forward.0"].forward_ms, 2);
  EXPECT_EQ(found["backward.0"].backward_ms, 3);  // without the forward pass in it
  EXPECT_EQ(found["backward.1"].first, 5);
  EXPECT_EQ(found["backward.1"].last, 7);
  EXPECT_EQ(found["update"].ms(), 0.75);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    return refusal(other.replace(other.find(from), from.size(), to));
  };
  EXPECT_THAT(changed("[5, 7]", "[5, 8]"), HasSubstr("programs[2].positions[1]"));
  EXPECT_THAT(changed("[5, 7]", "[5]"), HasSubstr("the first and the last"));
  EXPECT_THAT(changed("\"ms\": 3", "\"ms\": -3"), HasSubstr("programs[2].ms"));
  EXPECT_THAT(changed("\"forward\"", "\"sideways\""), HasSubstr("forward, backward or update"));
  EXPECT_THAT(changed("times/1", "times/2"), HasSubstr("automap.program-times/2"));
}

// --- torch.profiler ---

// Events as the profiler writes them. Times in microseconds.
class TorchTrace {
 public:
  void range(const std::string& category, const std::string& name, int thread, double begin, double us,
             const std::string& args = "") {
    add(category, name, thread, begin, us, args);
  }
  void module(const std::string& name, double begin, double us) {
    range("python_function", "nn.Module: " + name, 1, begin, us);
  }
  void kernel(int thread, double launched, double us, const std::string& name = "gemm") {
    ++correlation_;
    const std::string args = "\"correlation\": " + std::to_string(correlation_);
    add("cuda_runtime", "cudaLaunchKernel", thread, launched, 1, args);
    add("kernel", name, 7, launched + 1000, us, args + ", \"device\": 0, \"stream\": 7");
  }
  std::string text() const {
    return "{\"schemaVersion\": 1, \"deviceProperties\": [{\"id\": 0}], \"traceEvents\": [\n" + events_ +
           "], \"traceName\": \"t\"}";
  }

 private:
  void add(const std::string& category, const std::string& name, int thread, double begin, double us,
           const std::string& args) {
    events_ += std::string(events_.empty() ? "" : ",\n") + R"({"ph": "X", "cat": ")" + category + R"(", "name": ")" +
               name + R"(", "pid": 10, "tid": )" + std::to_string(thread) + ", \"ts\": " + std::to_string(begin) +
               ", \"dur\": " + std::to_string(us) + ", \"args\": {" + args + "}}";
  }
  int correlation_ = 0;
  std::string events_;
};

// A step of a model with two blocks: the forward pass on thread 1, autograd on thread 2.
void add_step(TorchTrace* trace, int step, double begin, double scale) {
  const auto sequence = [&](int number) { return "\"Sequence number\": " + std::to_string(10 * step + number); };
  const auto differentiated = [&](int number) { return sequence(number) + ", \"Fwd thread id\": 0"; };
  const auto backward = [&](int number) { return sequence(number) + ", \"Fwd thread id\": 1"; };
  trace->range("user_annotation", "ProfilerStep#" + std::to_string(step), 1, begin, 900);
  trace->module("Net_0", begin + 10, 300);
  trace->module("Block_0", begin + 20, 100);
  trace->range("cpu_op", "aten::linear", 1, begin + 25, 80, differentiated(1));
  trace->range("cpu_op", "aten::addmm", 1, begin + 30, 60, differentiated(1));
  trace->kernel(1, begin + 40, 100 * scale);
  trace->kernel(1, begin + 45, 10 * scale);
  trace->module("Block_1", begin + 150, 100);
  trace->range("cpu_op", "aten::addmm", 1, begin + 160, 60, differentiated(2));
  trace->kernel(1, begin + 170, 200 * scale);
  trace->kernel(1, begin + 320, 5 * scale);  // a kernel of nobody
  const std::string engine = "autograd::engine::evaluate_function: AddmmBackward0";
  trace->range("cpu_op", engine, 2, begin + 400, 50, sequence(2));
  trace->range("cpu_op", "AddmmBackward0", 2, begin + 405, 40, backward(2));
  trace->range("cpu_op", "aten::mm", 2, begin + 410, 30, differentiated(9));
  trace->kernel(2, begin + 420, 400 * scale);
  trace->range("cpu_op", engine, 2, begin + 500, 50, sequence(1));
  trace->kernel(2, begin + 520, 300 * scale);
  trace->kernel(2, begin + 600, 50 * scale, "ncclDevKernel_AllReduce");
  trace->range("user_annotation", "Optimizer.step#Adam.step", 1, begin + 700, 100);
  trace->kernel(1, begin + 720, 30 * scale);
}

TEST(Torch, TellsModulesAndPasses) {
  TorchTrace trace;
  add_step(&trace, 1, 1e6, 1);
  add_step(&trace, 2, 2e6, 3);
  trace.kernel(1, 3e6, 1e6);  // behind the last step
  const MeasuredTimes times = parse(trace.text());
  EXPECT_EQ(times.form, "PyTorch trace");
  EXPECT_EQ(times.steps, 2);
  EXPECT_EQ(times.steps_by, "ProfilerStep");
  auto found = by_name(times);
  EXPECT_THAT(found, UnorderedElementsAre(Key("Net_0/Block_0"), Key("Net_0/Block_1"), Key("Optimizer.step")));
  // Means of both steps, in ms.
  EXPECT_NEAR(*found["Net_0/Block_0"].forward_ms, 0.22, 1e-9);
  EXPECT_NEAR(*found["Net_0/Block_0"].backward_ms, 0.6, 1e-9);
  EXPECT_NEAR(*found["Net_0/Block_1"].forward_ms, 0.4, 1e-9);
  EXPECT_NEAR(*found["Net_0/Block_1"].backward_ms, 0.8, 1e-9);
  EXPECT_NEAR(found["Optimizer.step"].ms(), 0.06, 1e-9);
  EXPECT_EQ(found["Net_0/Block_0"].count, 6);
  EXPECT_NEAR(times.communication_ms, 0.1, 1e-9);
  EXPECT_NEAR(times.nameless_ms, 0.01, 1e-9);
}

TEST(Torch, CountsStepsWithoutTheirMarks) {
  TorchTrace trace;
  for (int step = 0; step < 3; ++step) {
    trace.module("Net_0", 1e6 * step, 100);
    trace.kernel(1, 1e6 * step + 10, 60);
  }
  MeasuredTimes times = parse(trace.text());
  EXPECT_EQ(times.steps, 3);
  EXPECT_NEAR(*times.times[0].forward_ms, 0.06, 1e-9);
  trace.range("user_annotation", "Optimizer.step#SGD.step", 1, 5e6, 10);
  EXPECT_EQ(parse(trace.text()).steps, 1);
}

TEST(Torch, OptimizersWithoutAModuleBetweenAreOfOneStep) {
  TorchTrace trace;
  for (int step = 0; step < 3; ++step) {
    trace.range("user_annotation", "Optimizer.zero_grad#Adam.zero_grad", 1, 1e6 * step, 50);
    trace.module("Net_0", 1e6 * step + 100, 100);
    trace.kernel(1, 1e6 * step + 110, 60);
    for (int one = 0; one < 2; ++one) {
      trace.range("user_annotation", "Optimizer.step#Adam.step", 1, 1e6 * step + 500 + 100 * one, 50);
      trace.kernel(1, 1e6 * step + 510 + 100 * one, 10);
    }
  }
  const MeasuredTimes times = parse(trace.text());
  EXPECT_EQ(times.steps, 3);
  EXPECT_EQ(times.steps_by, "Optimizer.step");
  EXPECT_NEAR(by_name(times)["Optimizer.step"].ms(), 0.02, 1e-9);
  EXPECT_THAT(times.notes, ElementsAre(HasSubstr("is taken for 3 steps, by Optimizer.step")));
}

TEST(Torch, LoadedDataIsNoComputation) {
  TorchTrace trace;
  trace.range("user_annotation", "ProfilerStep#1", 1, 0, 1000);
  trace.range("user_annotation", "enumerate(DataLoader)#_Iter.__next__", 1, 10, 50);
  trace.kernel(1, 20, 5000, "Memcpy HtoD (Pinned -> Device)");
  trace.module("Block_0", 100, 100);
  trace.kernel(1, 110, 60);
  trace.kernel(1, 120, 40, "Memcpy DtoD (Device -> Device)");
  trace.range("user_annotation", "Optimizer.zero_grad#Adam.zero_grad", 1, 500, 50);
  trace.kernel(1, 510, 30, "multi_tensor_zero");
  const MeasuredTimes times = parse(trace.text());
  auto found = by_name(times);
  EXPECT_THAT(found, UnorderedElementsAre(Key("Block_0"), Key("Optimizer.step")));
  EXPECT_NEAR(times.communication_ms, 5, 1e-9);
  EXPECT_NEAR(*found["Block_0"].forward_ms, 0.1, 1e-9);
  EXPECT_NEAR(found["Optimizer.step"].ms(), 0.03, 1e-9);
  EXPECT_THAT(times.notes, testing::IsEmpty());
}

TEST(Torch, CheckpointsRunModulesAgain) {
  TorchTrace trace;
  trace.module("Block_0", 0, 100);
  trace.range("cpu_op", "CheckpointFunction", 1, 10, 50, "\"Sequence number\": 5, \"Fwd thread id\": 0");
  trace.kernel(1, 20, 10);
  trace.module("Block_1", 200, 100);
  trace.range("cpu_op", "aten::mm", 1, 210, 50, "\"Sequence number\": 6, \"Fwd thread id\": 0");
  trace.kernel(1, 220, 20);
  // Within the backward pass of the first block it runs again, with numbers of that thread that the other thread had,
  // too.
  const std::string engine = "autograd::engine::evaluate_function: ";
  trace.range("cpu_op", engine + "CheckpointFunctionBackward", 2, 1000, 500, "\"Sequence number\": 5");
  trace.range("python_function", "nn.Module: Block_0", 2, 1010, 100);
  trace.range("cpu_op", "aten::mm", 2, 1020, 50, "\"Sequence number\": 6, \"Fwd thread id\": 0");
  trace.kernel(2, 1030, 30);
  trace.range("cpu_op", engine + "MmBackward0", 2, 1200, 50, "\"Sequence number\": 6");
  trace.kernel(2, 1210, 60);
  auto found = by_name(parse(trace.text()));
  EXPECT_NEAR(*found["Block_0"].forward_ms, 0.01, 1e-9);
  EXPECT_NEAR(*found["Block_0"].backward_ms, 0.09, 1e-9);
  EXPECT_NEAR(*found["Block_1"].forward_ms, 0.02, 1e-9);
  EXPECT_FALSE(found["Block_1"].backward_ms);
}

TEST(Torch, SiblingsMayOverlapByAHair) {
  TorchTrace trace;
  trace.module("Net_0", 0, 1000);
  for (int i = 0; i < 4; ++i) {
    // Of each the end lies behind the beginning of the next one, and a child's end behind its own.
    trace.module("Block_" + std::to_string(i), 250 * i, 250.5);
    trace.module("Linear_" + std::to_string(i), 250 * i + 100, 150.75);
    trace.kernel(1, 250 * i + 150, 10);
    trace.kernel(1, 250 * i + 50, 20);
  }
  auto found = by_name(parse(trace.text()));
  ASSERT_EQ(found.size(), 8u);
  for (int i = 0; i < 4; ++i) {
    const std::string block = "Net_0/Block_" + std::to_string(i);
    EXPECT_NEAR(*found[block].forward_ms, 0.02, 1e-9);
    EXPECT_NEAR(*found[block + "/Linear_" + std::to_string(i)].forward_ms, 0.01, 1e-9);
  }
}

TEST(Torch, DepthHasABound) {
  TorchTrace trace;
  for (int i = 0; i < 400; ++i) trace.range("user_annotation", "a" + std::to_string(i), 1, i, 1000 - 2 * i);
  trace.kernel(1, 450, 10);
  EXPECT_THAT(refusal(trace.text()), HasSubstr("file: 'a256' is inside of 256 other ranges"));
}

TEST(Torch, AnnotationsNameToo) {
  TorchTrace trace;
  trace.range("user_annotation", "h.3", 1, 0, 100);
  trace.kernel(1, 10, 60);
  EXPECT_EQ(parse(trace.text()).times[0].name, "h.3");
}

TEST(Torch, RefusesWhatIsNone) {
  TorchTrace cpu;
  cpu.module("Net_0", 0, 100);
  EXPECT_THAT(refusal(cpu.text()), HasSubstr("of 1 events none is a kernel of a device | trace with torch.profiler"));
  TorchTrace nameless;
  nameless.kernel(1, 10, 60);
  EXPECT_THAT(refusal(nameless.text()),
              HasSubstr("nothing that has a name took any time | trace with with_stack=True"));
  TorchTrace outside;
  outside.range("user_annotation", "ProfilerStep#1", 1, 0, 100);
  outside.kernel(1, 1e6, 60);
  EXPECT_THAT(refusal(outside.text()), HasSubstr("no kernel was launched in one of its 1 steps"));
  TorchTrace whole;
  whole.module("Net_0", 0, 100);
  whole.kernel(1, 10, 60);
  const std::string text = whole.text();
  EXPECT_EQ(refusal(text), "read");
  EXPECT_THAT(refusal(text.substr(0, text.size() / 2)), HasSubstr("not JSON: syntax error"));
  EXPECT_THAT(refusal(text.substr(0, text.size() / 2)), HasSubstr("the trace may have been cut short"));
  TorchTrace negative;
  negative.module("Net_0", 0, 100);
  negative.kernel(1, 10, -60);
  EXPECT_THAT(refusal(negative.text()), HasSubstr("file: traceEvents[2]: dur: found -60"));
  std::string infinite = whole.text();
  infinite.replace(infinite.find("60.000000"), 9, "NaN");
  EXPECT_THAT(refusal(infinite), HasSubstr("not JSON"));
  EXPECT_THAT(refusal(infinite), HasSubstr("| some profilers write inf or NaN"));
  EXPECT_THAT(refusal(R"({"traceEvents": [3]})"), HasSubstr("traceEvents[0]: found number, expected an event"));
  EXPECT_THAT(refusal(R"({"traceEvents": []})"), HasSubstr("of 0 events none says what ran on a device"));
}

TEST(Torch, RangesThatEndBeforeTheyBeginAreLeftOut) {
  TorchTrace trace;
  trace.range("user_annotation", "ProfilerStep#1", 1, 0, 1000);
  trace.module("Block_0", 0, 100);
  trace.kernel(1, 10, 60);
  trace.module("Block_1", 500, -500);
  const MeasuredTimes times = parse(trace.text());
  EXPECT_THAT(by_name(times), UnorderedElementsAre(Key("Block_0")));
  EXPECT_THAT(times.notes, ElementsAre(HasSubstr("1 of the host's ranges")));
}

TEST(Torch, NumbersMayBeTexts) {
  const MeasuredTimes times = parse(R"({"traceEvents": [
      {"ph": "X", "cat": "user_annotation", "ts": "0", "dur": "50", "pid": 1, "tid": 1, "name": "h.3"},
      {"ph": "X", "cat": "cuda_runtime", "ts": "1", "dur": 5, "pid": 1, "tid": 1, "name": "l", "args": {"correlation": "7"}},
      {"ph": "X", "cat": "kernel", "ts": 60, "dur": "2.5", "pid": 1, "tid": 1, "name": "k", "args": {"correlation": "7"}}]})");
  ASSERT_EQ(times.times.size(), 1u);
  EXPECT_EQ(times.times[0].name, "h.3");
  EXPECT_NEAR(*times.times[0].forward_ms, 0.0025, 1e-12);
}

// --- JAX's profiler ---

class XlaTrace {
 public:
  void line(int process, const std::string& process_name, int thread, const std::string& name) {
    add(R"({"ph": "M", "pid": )" + std::to_string(process) + R"(, "name": "process_name", "args": {"name": ")" +
        process_name + "\"}}");
    add(R"({"ph": "M", "pid": )" + std::to_string(process) + ", \"tid\": " + std::to_string(thread) +
        R"(, "name": "thread_name", "args": {"name": ")" + name + "\"}}");
  }
  void op(int process, int thread, double begin, double us, const std::string& name, const std::string& args) {
    add(R"({"ph": "X", "pid": )" + std::to_string(process) + ", \"tid\": " + std::to_string(thread) +
        ", \"ts\": " + std::to_string(begin) + ", \"dur\": " + std::to_string(us) + R"(, "name": ")" + name +
        "\", \"args\": {" + args + "}}");
  }
  static std::string of(const std::string& instruction, const std::string& module, const std::string& more = "") {
    return R"("hlo_op": ")" + instruction + R"(", "hlo_module": ")" + module + "\"" + more;
  }
  std::string text() const { return R"({"displayTimeUnit": "ns", "traceEvents": [)" + events_ + "]}"; }

 private:
  void add(const std::string& event) { events_ += (events_.empty() ? "" : ",\n") + event; }
  std::string events_;
};

TEST(Xla, StreamsOfDevicesCount) {
  XlaTrace trace;
  for (int device = 0; device < 2; ++device) {
    const std::string name = "/device:GPU:" + std::to_string(device);
    trace.line(device, name, 1, "Stream #12(Compute)");
    trace.line(device, name, 2, "XLA Ops");
    for (int run = 0; run < 3; ++run) {
      const double begin = 1000 * run;
      const std::string id = ", \"run_id\": \"" + std::to_string(run) + "\"";
      trace.op(device, 1, begin, 40, "gemm_kernel",
               XlaTrace::of("dot.1", "jit_step", id + R"(, "name": "jit(step)/jit(main)/dot_general")"));
      trace.op(device, 1, begin + 50, 20 + 20 * device, "k2",
               XlaTrace::of("fusion.2", "jit_step", id + R"(, "tf_op": "jit(step)/h_0/add:Add")"));
      trace.op(device, 1, begin + 90, 10, "nccl", XlaTrace::of("all-reduce.3", "jit_step", id));
      trace.op(device, 2, begin, 40, "dot.1", XlaTrace::of("dot.1", "jit_step", id));  // the same time again
    }
    trace.op(device, 1, 9000, 50, "init", XlaTrace::of("rng.1", "jit_init", ", \"run_id\": \"77\""));
  }
  trace.line(9, "/host:CPU", 1, "python");
  trace.op(9, 1, 0, 1e6, "PjitFunction(step)", "");
  const MeasuredTimes times = parse(trace.text());
  EXPECT_EQ(times.form, "XLA trace");
  EXPECT_EQ(times.module, "jit_step");
  EXPECT_EQ(times.steps, 3);
  EXPECT_EQ(times.steps_by, "run_id");
  EXPECT_EQ(times.devices, 2);
  auto found = by_name(times);
  EXPECT_THAT(found, UnorderedElementsAre(Key("dot.1"), Key("fusion.2")));
  EXPECT_NEAR(*found["dot.1"].either_ms, 0.04, 1e-9);
  EXPECT_NEAR(*found["fusion.2"].either_ms, 0.03, 1e-9);
  EXPECT_EQ(found["fusion.2"].op_name, "jit(step)/h_0/add");
  EXPECT_EQ(found["fusion.2"].count, 6);
  EXPECT_NEAR(times.communication_ms, 0.01, 1e-9);
}

TEST(Xla, LoopsSpanWhatTheyRun) {
  XlaTrace trace;
  trace.line(1, "/device:TPU:0", 1, "XLA Modules");
  trace.line(1, "/device:TPU:0", 2, "XLA Ops");
  for (int run = 0; run < 2; ++run) {
    trace.op(1, 1, 1000 * run, 100, "jit_step(123)", "");
    trace.op(1, 2, 1000 * run, 100, "while.5", "");
    for (int turn = 0; turn < 4; ++turn)
      trace.op(1, 2, 1000 * run + 20 * turn, 20, "fusion.1", R"("tf_op": "jit(step)/while/body/mul")");
  }
  const MeasuredTimes times = parse(trace.text());
  auto found = by_name(times);
  EXPECT_EQ(times.steps, 2);
  EXPECT_NEAR(*found["while.5"].either_ms, 0.02, 1e-9);
  EXPECT_NEAR(*found["fusion.1"].either_ms, 0.08, 1e-9);
}

// Of a TPU only the line of modules says which one an op is of.
TEST(Xla, ModulesOfATpuAreToldByTheirTime) {
  XlaTrace trace;
  trace.line(1, "/device:TPU:0", 1, "XLA Modules");
  trace.line(1, "/device:TPU:0", 2, "XLA Ops");
  for (int run = 0; run < 2; ++run) {
    trace.op(1, 1, 1000 * run, 100, "jit_step(123)", "");
    trace.op(1, 2, 1000 * run, 99, "fusion.1", R"("tf_op": "jit(step)/h_0/mul")");
    for (int other = 0; other < 5; ++other) {
      trace.op(1, 1, 1000 * run + 200 + 20 * other, 10, "jit_step_metrics(9)", "");
      trace.op(1, 2, 1000 * run + 200 + 20 * other, 10, "convert.1", "");
    }
  }
  const MeasuredTimes times = parse(trace.text());
  EXPECT_EQ(times.module, "jit_step");
  EXPECT_EQ(times.steps, 2);
  ASSERT_EQ(times.times.size(), 1u);
  EXPECT_EQ(times.times[0].name, "fusion.1");
  EXPECT_NEAR(*times.times[0].either_ms, 0.099, 1e-9);
}

TEST(Xla, RunsOfAModuleWhoseNameBeginsAnotherOnes) {
  XlaTrace trace;
  trace.line(1, "/device:GPU:0", 1, "Stream #13(Compute)");
  trace.line(1, "/device:GPU:0", 2, "XLA Modules");
  for (int run = 0; run < 6; ++run) {
    const std::string module = run < 2 ? "jit_step" : "jit_step_metrics";
    trace.op(1, 2, 1000 * run, 100, module, "");
    trace.op(1, 1, 1000 * run, run < 2 ? 99 : 1, "k", XlaTrace::of("fusion.1", module));
  }
  const MeasuredTimes times = parse(trace.text());
  EXPECT_EQ(times.module, "jit_step");
  EXPECT_EQ(times.steps, 2);
}

TEST(Xla, SeveralKernelsOfAnInstructionAreOneRun) {
  XlaTrace trace;
  trace.line(1, "/device:GPU:0", 1, "Stream #13(Compute)");
  for (int run = 0; run < 3; ++run) {
    trace.op(1, 1, 1000 * run, 30, "splitk", XlaTrace::of("dot.1", "jit_step"));
    trace.op(1, 1, 1000 * run + 40, 30, "reduce", XlaTrace::of("dot.1", "jit_step"));
    trace.op(1, 1, 1000 * run + 80, 10, "k", XlaTrace::of("fusion.1", "jit_step"));
  }
  const MeasuredTimes times = parse(trace.text());
  EXPECT_EQ(times.steps, 3);
  EXPECT_NEAR(*by_name(times)["dot.1"].either_ms, 0.06, 1e-9);
}

TEST(Xla, ThreadsOfTheHostAreTheCpu) {
  XlaTrace trace;
  trace.line(1, "/host:CPU", 5, "tf_XLAEigen/1");
  for (int run = 0; run < 2; ++run) trace.op(1, 5 + run, 100 * run, 10, "dot", XlaTrace::of("dot", "jit_step"));
  const MeasuredTimes times = parse(trace.text());
  EXPECT_EQ(times.steps, 1);  // on one line each
  EXPECT_NEAR(*times.times[0].either_ms, 0.02, 1e-9);
  XlaTrace host;
  host.line(1, "/host:CPU", 5, "python");
  host.op(1, 5, 0, 10, "train", "");
  EXPECT_THAT(refusal(host.text()), HasSubstr("of 3 events none says what ran on a device; it has those of /host:CPU"));
}

}  // namespace
}  // namespace automap::measured
