#include "common/graph/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/error.h"
#include "common/graph/graph_builder.h"

namespace automap::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Shape, Arrays) {
  GraphBuilder b("test");
  const ShapeId id = b.shape("f32[2, 3]{1,0:T(8,128)(2,1)S(5)}");
  const Shape s = b.shape_at(id);
  EXPECT_EQ(s.type, ElementType::kF32);
  EXPECT_EQ(s.type_name, "f32");
  EXPECT_EQ(s.text, "f32[2,3]");
  EXPECT_THAT(s.dims, ElementsAre(2, 3));
  EXPECT_EQ(s.num_elements, 6);
  EXPECT_EQ(s.bytes, 24);
  EXPECT_FALSE(s.dynamic);
  EXPECT_TRUE(s.is_array());
  EXPECT_EQ(b.shape("f32[2,3]"), id);
  EXPECT_EQ(b.shape("f32[2,3]{0,1}"), id);
  EXPECT_NE(b.shape("f32[3,2]"), id);
  EXPECT_EQ(b.shape_at(b.shape("s32[]")).num_elements, 1);
  EXPECT_EQ(b.shape_at(b.shape("f32[0,9223372036854775807,4]")).bytes, 0);
}

TEST(Shape, ElementTypes) {
  GraphBuilder b("test");
  const auto bytes = [&](const char* text) { return b.shape_at(b.shape(text)).bytes; };
  EXPECT_EQ(bytes("pred[10]"), 10);
  EXPECT_EQ(bytes("s4[5]"), 3);  // packed
  EXPECT_EQ(bytes("u2[5]"), 2);
  EXPECT_EQ(bytes("f4e2m1fn[3]"), 2);
  EXPECT_EQ(bytes("f8e4m3b11fnuz[3]"), 3);
  EXPECT_EQ(bytes("bf16[3]"), 6);
  EXPECT_EQ(bytes("c128[2]"), 32);
  EXPECT_EQ(bytes("token[]"), 0);
  EXPECT_EQ(bytes("opaque[]"), 0);
  const Shape unknown = b.shape_at(b.shape("q12x[4]"));
  EXPECT_EQ(unknown.type, ElementType::kUnknown);
  EXPECT_EQ(unknown.type_name, "q12x");
  EXPECT_EQ(unknown.bits, 12);
  EXPECT_EQ(unknown.bytes, 6);
  EXPECT_EQ(element_type_info("weird").bits, 32);
  EXPECT_EQ(element_type_info("x99999999999999").bits, 32);
  EXPECT_EQ(element_type_name(ElementType::kBf16), "bf16");
  EXPECT_EQ(element_type_name(ElementType::kF8), "");
}

TEST(Shape, Dynamic) {
  GraphBuilder b("test");
  const Shape s = b.shape_at(b.shape("f32[1,<=1801,?]"));
  EXPECT_TRUE(s.dynamic);
  EXPECT_THAT(s.dims, ElementsAre(1, 1801, 0));
  EXPECT_EQ(s.text, "f32[1,<=1801,?]");
  const std::vector<std::int64_t> dims = {1, 1801, 0};
  EXPECT_EQ(b.array_shape("f32", dims, {false, true, true}), b.shape("f32[1,<=1801,?]"));
}

TEST(Shape, Tuples) {
  GraphBuilder b("test");
  const Shape s = b.shape_at(b.shape("(f32[2]{0}, /*index=1*/(s32[], pred[4]), ())"));
  EXPECT_TRUE(s.is_tuple());
  EXPECT_EQ(s.text, "(f32[2], (s32[], pred[4]), ())");
  EXPECT_EQ(s.bytes, 16);
  ASSERT_EQ(s.elements.size(), 3u);
  EXPECT_EQ(b.shape_at(s.elements[1]).text, "(s32[], pred[4])");
  EXPECT_EQ(b.shape_at(s.elements[2]).elements.size(), 0u);
  EXPECT_EQ(b.tuple_shape(s.elements), b.shape("(f32[2],(s32[],pred[4]),())"));
  const Shape buffer = b.shape_at(b.shape("b(f32[2]{0})"));
  EXPECT_EQ(buffer.text, "b(f32[2])");
  EXPECT_EQ(buffer.bytes, 8);
  EXPECT_FALSE(buffer.is_tuple());
  EXPECT_FALSE(buffer.is_array());
}

TEST(Shape, SameDimensions) {
  GraphBuilder b("test");
  const auto same = [&](const char* x, const char* y) { return same_dimensions(b.graph(), b.shape(x), b.shape(y)); };
  EXPECT_TRUE(same("f32[2,3]", "bf16[2,3]"));
  EXPECT_FALSE(same("f32[2,3]", "f32[3,2]"));
  EXPECT_FALSE(same("f32[2,3]", "f32[2,3,1]"));
  EXPECT_TRUE(same("f32[<=9,3]", "f32[5,3]"));
  EXPECT_FALSE(same("f32[<=9,3]", "f32[5]"));
  EXPECT_TRUE(same("(f32[2], (s32[]))", "(f16[2], (u32[]))"));
  EXPECT_FALSE(same("(f32[2], (s32[]))", "(f16[2], (u32[1]))"));
  EXPECT_FALSE(same("(f32[2])", "f32[2]"));
  EXPECT_FALSE(same("(f32[2])", "(f32[2], f32[2])"));
  EXPECT_TRUE(same("token[]", "opaque[]"));
  EXPECT_FALSE(same("token[]", "f32[]"));
}

TEST(Shape, Malformed) {
  const auto message = [](const std::string& text) -> std::string {
    GraphBuilder b("bad");
    try {
      b.shape(text);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kData);
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(message(""), HasSubstr("expected a shape"));
  EXPECT_THAT(message("f32"), HasSubstr("expected a shape"));
  EXPECT_THAT(message("f32[2"), HasSubstr("not closed"));
  EXPECT_THAT(message("f32[2,]"), HasSubstr("expected a dimension"));
  EXPECT_THAT(message("f32[-1]"), HasSubstr("expected a dimension"));
  EXPECT_THAT(message("f32[2 3]"), HasSubstr("expected ','"));
  EXPECT_THAT(message("f32[99999999999999999999]"), HasSubstr("does not fit"));
  EXPECT_THAT(message("f32[4294967296,4294967296]"), HasSubstr("more than 2^63"));
  EXPECT_THAT(message("f64[4611686018427387904]"), HasSubstr("more than 2^63"));
  EXPECT_THAT(message("(f32[4611686018427387904], f32[])"), HasSubstr("more than 2^63"));
  EXPECT_THAT(message("(f32[2]"), HasSubstr("expected ',' or ')'"));
  EXPECT_THAT(message("(f32[2] f32[2])"), HasSubstr("expected ',' or ')'"));
  EXPECT_THAT(message("(f32[2],)"), HasSubstr("expected a shape"));
  EXPECT_THAT(message("f32[2] x"), HasSubstr("unexpected text"));
  EXPECT_THAT(message("f32[2]{1,0"), HasSubstr("not closed"));
  EXPECT_THAT(message("b(f32[2], f32[2])"), HasSubstr("expected ',' or ')'"));
  EXPECT_THAT(message("(f32[2] /* "), HasSubstr("comment"));
  const std::string deep(100000, '(');
  EXPECT_THAT(message(deep), HasSubstr("nested more than 64 deep"));
  std::string buffers;
  for (int i = 0; i < 1000; ++i) buffers += "b(";
  EXPECT_THAT(message(buffers), HasSubstr("nested more than 64 deep"));
}

TEST(ParseIntegers, Lists) {
  const auto list = [](const char* text) {
    std::vector<std::int64_t> values;
    return parse_integers(text, &values) ? values : std::vector<std::int64_t>{-99};
  };
  EXPECT_THAT(list("{}"), ElementsAre());
  EXPECT_THAT(list("{1,0}"), ElementsAre(1, 0));
  EXPECT_THAT(list(" { 1 , -2 } "), ElementsAre(1, -2));
  EXPECT_THAT(list("7"), ElementsAre(7));
  EXPECT_THAT(list("7,8"), ElementsAre(7, 8));
  for (const char* bad :
       {"", "{", "}", "{1", "{1,}", "{,}", "1,", "{a}", "{1 2}", "{1}x", "-", "99999999999999999999"}) {
    EXPECT_THAT(list(bad), ElementsAre(-99)) << bad;
  }
}

}  // namespace
}  // namespace automap::graph
