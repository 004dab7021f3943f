#include "common/graph/hlo_attributes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "common/base/error.h"
#include "common/hlo/hlo_text.h"

namespace automap::graph {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const AttributeSite kSite{"conv.7", "window"};

// The message of the Error(kData) that `decode` throws; fails the test when it throws none.
std::string data_error(const std::function<void()>& decode) {
  try {
    decode();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(HloAttributes, IntsBoolsStrings) {
  EXPECT_EQ(decode_int("7", kSite), 7);
  EXPECT_EQ(decode_int(" -1 ", kSite), -1);
  EXPECT_EQ(decode_int("9223372036854775807", kSite), INT64_MAX);
  EXPECT_TRUE(decode_bool("true", kSite));
  EXPECT_FALSE(decode_bool("false", kSite));
  EXPECT_EQ(decode_string("\"a\\\"b\\n\""), "a\"b\n");
  EXPECT_EQ(decode_string("plain"), "plain");
  EXPECT_EQ(decode_string("'x'"), "x");
  EXPECT_EQ(decode_string("\""), "\"");
}

TEST(HloAttributes, IntLists) {
  EXPECT_THAT(decode_int_list("{1,0}", kSite), ElementsAre(1, 0));
  EXPECT_THAT(decode_int_list("{ 1 , 0 }", kSite), ElementsAre(1, 0));
  EXPECT_THAT(decode_int_list("{}", kSite), IsEmpty());
  EXPECT_THAT(decode_int_list("{2}", kSite), ElementsAre(2));
}

TEST(HloAttributes, Window) {
  const auto window =
      decode_window("{size=3x2 stride=2x1 pad=0_1x-1_0 lhs_dilate=1x2 rhs_dilate=3x1 rhs_reversal=0x1}", kSite);
  ASSERT_EQ(window.size(), 2u);
  EXPECT_EQ(window[0].size, 3);
  EXPECT_EQ(window[0].stride, 2);
  EXPECT_EQ(window[0].pad_low, 0);
  EXPECT_EQ(window[0].pad_high, 1);
  EXPECT_EQ(window[0].window_dilation, 3);
  EXPECT_FALSE(window[0].reversed);
  EXPECT_EQ(window[1].pad_low, -1);
  EXPECT_EQ(window[1].base_dilation, 2);
  EXPECT_TRUE(window[1].reversed);
  const auto plain = decode_window("{size=3x2 pad=0_1x-1_0}", kSite);
  EXPECT_EQ(plain[1].stride, 1);
  EXPECT_EQ(plain[1].base_dilation, 1);
  EXPECT_THAT(decode_window("{}", kSite), IsEmpty());
}

TEST(HloAttributes, ConvolutionLabels) {
  const auto dims = decode_convolution_dimensions("b01f_01io->b01f", kSite);
  EXPECT_EQ(dims.input_batch, 0);
  EXPECT_EQ(dims.input_feature, 3);
  EXPECT_THAT(dims.input_spatial, ElementsAre(1, 2));
  EXPECT_EQ(dims.kernel_input_feature, 2);
  EXPECT_EQ(dims.kernel_output_feature, 3);
  EXPECT_THAT(dims.kernel_spatial, ElementsAre(0, 1));
  EXPECT_THAT(dims.output_spatial, ElementsAre(1, 2));
  // The gradient of a kernel: batch and feature change places.
  const auto gradient = decode_convolution_dimensions("f01b_i01o->01bf", kSite);
  EXPECT_EQ(gradient.input_batch, 3);
  EXPECT_EQ(gradient.input_feature, 0);
  EXPECT_EQ(gradient.output_batch, 2);
  EXPECT_THAT(decode_convolution_dimensions("bf_io->bf", kSite).input_spatial, IsEmpty());
  EXPECT_EQ(decode_convolution_dimensions("?b0f_0io->b?0f", kSite).input_batch, 1);
}

TEST(HloAttributes, SlicePaddingDirection) {
  const auto slice = decode_slice("{[0:4], [2:8:2]}", kSite);
  ASSERT_EQ(slice.size(), 2u);
  EXPECT_EQ(slice[1].start, 2);
  EXPECT_EQ(slice[1].limit, 8);
  EXPECT_EQ(slice[1].stride, 2);
  EXPECT_THAT(decode_slice("{}", kSite), IsEmpty());
  const auto padding = decode_padding("0_0x1_-1_2", kSite);
  ASSERT_EQ(padding.size(), 2u);
  EXPECT_EQ(padding[1].low, 1);
  EXPECT_EQ(padding[1].high, -1);
  EXPECT_EQ(padding[1].interior, 2);
  EXPECT_THAT(decode_padding("", kSite), IsEmpty());
  EXPECT_EQ(decode_comparison_direction("LT", kSite), ComparisonDirection::kLt);
  EXPECT_EQ(decode_comparison_direction("NE", kSite), ComparisonDirection::kNe);
}

TEST(HloAttributes, ReplicaGroups) {
  const auto expect = [](std::string_view raw, std::int64_t groups, std::int64_t size) {
    const ReplicaGroups decoded = decode_replica_groups(raw, kSite);
    EXPECT_EQ(decoded.groups, groups) << raw;
    EXPECT_EQ(decoded.group_size, size) << raw;
  };
  expect("{{0,1},{2,3}}", 2, 2);
  expect("{{0,1,2},{3}}", 2, 3);
  expect("{}", 0, 0);
  expect("[4,2]<=[8]", 4, 2);
  expect("[4,2]<=[2,4]T(1,0)", 4, 2);
  expect("mesh['a'=2,'b'=4]{'b'}", 2, 4);
  expect("mesh['a'=2,'b'=4]{'a','b'}", 1, 8);
  expect("mesh['a'=8]{'a':(2)4}", 2, 4);
}

TEST(HloAttributes, Layouts) {
  EXPECT_THAT(decode_minor_to_major("{1,0:T(8,128)}", 2, kSite), ElementsAre(1, 0));
  EXPECT_THAT(decode_minor_to_major("{0,1}", 2, kSite), ElementsAre(0, 1));
  EXPECT_THAT(decode_minor_to_major("", 3, kSite), ElementsAre(2, 1, 0));
  EXPECT_THAT(decode_minor_to_major("{:S(5)}", 2, kSite), ElementsAre(1, 0));
  EXPECT_THAT(decode_minor_to_major("{}", 0, kSite), IsEmpty());
}

TEST(HloAttributes, MalformedTextNamesInstructionAttributeAndExpectation) {
  const std::string message = data_error([] { decode_window("{size=3x stride=2}", kSite); });
  EXPECT_THAT(message, HasSubstr("conv.7"));
  EXPECT_THAT(message, HasSubstr("window"));
  EXPECT_THAT(message, HasSubstr("expected an integer"));
  for (const char* raw : {"", "{", "{1", "{1,}", "{1 2}", "{a}", "1,0", "{1}x", "{99999999999999999999}", "{--1}"}) {
    data_error([&] { decode_int_list(raw, kSite); });
  }
  for (const char* raw : {"", "-", "1.5", "1x", "0x10"}) data_error([&] { decode_int(raw, kSite); });
  for (const char* raw : {"", "TRUE", "1", "true false"}) data_error([&] { decode_bool(raw, kSite); });
  for (const char* raw : {"", "{size=}", "{size=3 size=4}", "{size=0}", "{stride=2}", "{size=3x3 stride=2}",
                          "{size=3 pad=1}", "{size=3 pad=1_}", "{colour=3}", "{size=3", "{size=3 stride=-1}"}) {
    data_error([&] { decode_window(raw, kSite); });
  }
  for (const char* raw : {"", "b01f", "b01f_01io", "b01f->b01f_01io", "b0f_0io->b01f", "bb_io->bf", "b1f_0io->b0f",
                          "bx_io->bf", "0f_0io->b0f"}) {
    data_error([&] { decode_convolution_dimensions(raw, kSite); });
  }
  for (const char* raw : {"", "{[0:4}", "{[4:2]}", "{[0:4:0]}", "{[-1:4]}", "{[0:4],}"}) {
    data_error([&] { decode_slice(raw, kSite); });
  }
  for (const char* raw : {"1", "1_", "1_2_-1", "1_2x", "1_2 3_4"}) data_error([&] { decode_padding(raw, kSite); });
  for (const char* raw : {"", "lt", "LTE"}) data_error([&] { decode_comparison_direction(raw, kSite); });
  for (const char* raw : {"", "{{0,1}", "[4]<=[8]", "[4,2]", "[0,2]<=[8]", "mesh['a'=2]{'b'}", "mesh['a']{'a'}",
                          "mesh['a'=2]", "{0,1}"}) {
    data_error([&] { decode_replica_groups(raw, kSite); });
  }
  for (const char* raw : {"{1,1}", "{2,0}", "{0}", "{0,1,2}", "{-1,0}"}) {
    data_error([&] { decode_minor_to_major(raw, 2, kSite); });
  }
}

TEST(HloAttributes, OfInstructions) {
  const Graph graph = hlo::read_hlo_text(R"(HloModule m
ENTRY e {
  a = f32[4,8,16] parameter(0)
  b = f32[4,16,32] parameter(1)
  ROOT d = f32[4,8,32] dot(a, b), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}
})",
                                         "test");
  const InstructionId dot = graph.entry().root;
  const DotDimensions dims = dot_dimensions(graph, dot);
  EXPECT_THAT(dims.lhs_contracting, ElementsAre(2));
  EXPECT_THAT(dims.rhs_contracting, ElementsAre(1));
  EXPECT_THAT(dims.lhs_batch, ElementsAre(0));
  EXPECT_EQ(int_attribute(graph, dot, "index", 5), 5);
  EXPECT_THAT(int_list_attribute(graph, dot, "dimensions"), IsEmpty());
  EXPECT_THAT(window_attribute(graph, dot), IsEmpty());
  EXPECT_FALSE(known_trip_count(graph, dot).has_value());
}

TEST(HloAttributes, PositionsOutsideTheRankAreErrors) {
  const Graph graph = hlo::read_hlo_text(R"(HloModule m
ENTRY e {
  a = f32[4,8] parameter(0)
  ROOT t = f32[8,4] transpose(a), dimensions={1,0}
})",
                                         "test");
  const InstructionId transpose = graph.entry().root;
  EXPECT_THAT(dimension_list_attribute(graph, transpose, "dimensions", 2), ElementsAre(1, 0));
  EXPECT_THAT(data_error([&] { dimension_list_attribute(graph, transpose, "dimensions", 1); }), HasSubstr("rank 1"));
}

}  // namespace
}  // namespace automap::graph
