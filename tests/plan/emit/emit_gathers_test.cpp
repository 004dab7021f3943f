// Gathers of a data plan in the module that XLA gets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/hlo/hlo_reader.h"
#include "plan/emit/emit.h"
#include "plan/partition/data_parallel.h"

namespace automap::emit {

using namespace partition;

namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A batch rotated by one place: what reads the split tensor whole reads it through an annotation.
TEST(EmitGathers, WhatIsReadWholeIsAnnotated) {
  const std::string text =
      "HloModule m\n\nENTRY e {\n  x = f32[8,32]{1,0} parameter(0)\n  h = f32[8,32]{1,0} tanh(x)\n"
      "  a = f32[1,32]{1,0} slice(h), slice={[7:8], [0:32]}\n  b = f32[7,32]{1,0} slice(h), slice={[0:7], [0:32]}\n"
      "  c = f32[8,32]{1,0} concatenate(a, b), dimensions={0}\n  ROOT s = f32[8,32]{1,0} add(c, h)\n}\n";
  const graph::Graph graph = hlo::read_hlo(text, "t.hlo").graph;
  sharding::ModelOptions options;
  options.shards = 8;
  sharding::ShardingModel model = sharding::ShardingModel::build(graph, options);
  const sharding::TensorDim batch{model.inputs()[0].node, 0};
  ASSERT_TRUE(repair(&model, batch).possible);
  sharding::Propagation decided(model.linkage());
  // Nothing is split: nothing is gathered.
  EXPECT_THAT(emit_hlo(model, decided), Not(HasSubstr("custom-call")));
  ASSERT_FALSE(decided.split(batch));
  const std::string emitted = emit_hlo(model, decided);
  const auto line_of = [&](const std::string& start) {
    const std::size_t at = emitted.find(start);
    EXPECT_NE(at, std::string::npos) << start << "\n" << emitted;
    return at == std::string::npos ? std::string() : emitted.substr(at, emitted.find('\n', at) - at);
  };
  EXPECT_THAT(line_of("a = f32[1,32]"), Not(HasSubstr("slice(h)")));
  EXPECT_THAT(line_of("b = f32[7,32]"), Not(HasSubstr("slice(h)")));
  EXPECT_THAT(emitted, HasSubstr("custom-call(%h), custom_call_target=\"Sharding\", sharding={replicated}"));
}

}  // namespace
}  // namespace automap::emit
