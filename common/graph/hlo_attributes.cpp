#include "common/graph/hlo_attributes.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include "common/base/error.h"
#include "common/base/printable.h"
#include "common/graph/graph_builder_internal.h"
#include "common/graph/text_scanner.h"

namespace automap::graph {
namespace {

using internal::quoted;

[[noreturn]] void fail(const AttributeSite& site, std::string_view found, const std::string& expected) {
  const std::string message = "instruction " + std::string(site.instruction) + ": attribute " + std::string(site.key) +
                              ": found " + quoted(found) + ", expected " + expected;
  if (site.graph != nullptr) site.graph->fail(site.instruction, message);
  throw Error(ErrorKind::kData, message);
}

// A cursor over one attribute's text that says what is wrong with it.
class Cursor : public internal::TextScanner {
 public:
  Cursor(std::string_view text, const AttributeSite& site) : TextScanner(text), site_(site) {}

  // No blank allowed before it: the separators inside "3x3" and "0_1".
  bool take_adjacent(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(site_, rest(), std::string("'") + c + "' in " + quoted(text_));
  }
  void expect_end() {
    if (!at_end()) fail(site_, rest(), "nothing after " + quoted(text_.substr(0, at_)));
  }
  std::int64_t integer() {
    skip_blanks();
    const std::size_t start = at_;
    bool negative = false;
    if (at_ < text_.size() && text_[at_] == '-') {
      negative = true;
      ++at_;
    }
    std::uint64_t value = 0;
    const std::size_t first_digit = at_;
    const std::uint64_t limit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
      if (value > (limit - digit) / 10) fail(site_, text_.substr(start), "an integer of at most 63 bits");
      value = value * 10 + digit;
      ++at_;
    }
    if (at_ == first_digit) fail(site_, text_.substr(start), "an integer in " + quoted(text_));
    const auto magnitude = static_cast<std::int64_t>(value);
    return negative ? -magnitude : magnitude;
  }
  // The text of a '...' or "..." string without its quotes; no escapes (axis names have none).
  std::string_view quoted_name() {
    skip_blanks();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') fail(site_, rest(), "a quoted name in " + quoted(text_));
    const std::size_t start = ++at_;
    while (at_ < text_.size() && text_[at_] != quote) ++at_;
    if (at_ == text_.size()) fail(site_, text_.substr(start - 1), "a closing quote");
    return text_.substr(start, at_++ - start);
  }
  std::string_view rest() {
    skip_blanks();
    return text_.substr(at_);
  }

 private:
  AttributeSite site_;
};

std::vector<std::int64_t> braced_int_list(Cursor& cursor, const AttributeSite& site, char open, char close) {
  std::vector<std::int64_t> values;
  cursor.expect(open);
  if (cursor.take(close)) return values;
  do {
    if (values.size() == kMaxListLength) fail(site, cursor.rest(), "a shorter list");
    values.push_back(cursor.integer());
  } while (cursor.take(','));
  cursor.expect(close);
  return values;
}

AttributeSite site_of(const Graph& graph, InstructionId id, std::string_view key) {
  return AttributeSite{graph.instruction(id).name, key, &graph};
}

// a * b for counts that only have to be right while they are small: stops at the largest int64.
std::int64_t saturating_product(std::int64_t a, std::int64_t b) {
  if (a != 0 && b > std::numeric_limits<std::int64_t>::max() / a) return std::numeric_limits<std::int64_t>::max();
  return a * b;
}

void check_dimensions(const std::vector<std::int64_t>& dims, std::size_t rank, const AttributeSite& site) {
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0 || static_cast<std::uint64_t>(dims[i]) >= rank) {
      fail(site, std::to_string(dims[i]), "a dimension below the rank " + std::to_string(rank));
    }
  }
  std::vector<std::int64_t> sorted = dims;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    fail(site, "a dimension twice", "distinct dimensions");
  }
}

}  // namespace

std::int64_t decode_int(std::string_view raw, const AttributeSite& site) {
  Cursor cursor(raw, site);
  const std::int64_t value = cursor.integer();
  cursor.expect_end();
  return value;
}

bool decode_bool(std::string_view raw, const AttributeSite& site) {
  Cursor cursor(raw, site);
  const std::string_view word = cursor.word();
  cursor.expect_end();
  if (word == "true") return true;
  if (word == "false") return false;
  fail(site, raw, "true or false");
}

std::string decode_string(std::string_view raw) {
  if (raw.size() < 2 || raw.front() != raw.back() || (raw.front() != '"' && raw.front() != '\'')) {
    return std::string(raw);
  }
  raw = raw.substr(1, raw.size() - 2);
  std::string result;
  result.reserve(raw.size());
  for (std::size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\' || i + 1 == raw.size()) {
      result += raw[i];
      continue;
    }
    switch (raw[++i]) {
      case 'n': result += '\n'; break;
      case 't': result += '\t'; break;
      case 'r': result += '\r'; break;
      default: result += raw[i];
    }
  }
  return result;
}

std::vector<std::int64_t> decode_int_list(std::string_view raw, const AttributeSite& site) {
  Cursor cursor(raw, site);
  std::vector<std::int64_t> values = braced_int_list(cursor, site, '{', '}');
  cursor.expect_end();
  return values;
}

std::vector<WindowDimension> decode_window(std::string_view raw, const AttributeSite& site) {
  Cursor cursor(raw, site);
  cursor.expect('{');
  std::vector<std::int64_t> sizes, strides, lows, highs, base_dilations, window_dilations, reversals;
  const auto ints = [&](std::vector<std::int64_t>& out, std::string_view field, std::int64_t least) {
    if (!out.empty()) fail(site, raw, std::string(field) + " once");
    do {
      if (out.size() == kMaxListLength) fail(site, cursor.rest(), "fewer dimensions");
      out.push_back(cursor.integer());
      if (out.back() < least) {
        fail(site, std::to_string(out.back()), std::string(field) + " of at least " + std::to_string(least));
      }
    } while (cursor.take_adjacent('x'));
  };
  while (!cursor.take('}')) {
    const std::string_view field = cursor.word();
    cursor.expect('=');
    if (field == "size") {
      ints(sizes, field, 1);
    } else if (field == "stride") {
      ints(strides, field, 1);
    } else if (field == "lhs_dilate") {
      ints(base_dilations, field, 1);
    } else if (field == "rhs_dilate") {
      ints(window_dilations, field, 1);
    } else if (field == "rhs_reversal") {
      ints(reversals, field, 0);
    } else if (field == "pad") {
      if (!lows.empty()) fail(site, raw, "pad once");
      do {
        lows.push_back(cursor.integer());
        if (!cursor.take_adjacent('_')) fail(site, cursor.rest(), "low_high padding");
        highs.push_back(cursor.integer());
      } while (cursor.take_adjacent('x'));
    } else {
      fail(site, field.empty() ? cursor.rest() : field,
           "size, stride, pad, lhs_dilate, rhs_dilate or rhs_reversal in " + quoted(raw));
    }
  }
  cursor.expect_end();
  const auto check_count = [&](const std::vector<std::int64_t>& values, const char* field) {
    if (!values.empty() && values.size() != sizes.size()) {
      fail(site, raw, std::string(field) + " with as many dimensions as size");
    }
  };
  check_count(strides, "stride");
  check_count(lows, "pad");
  check_count(base_dilations, "lhs_dilate");
  check_count(window_dilations, "rhs_dilate");
  check_count(reversals, "rhs_reversal");
  std::vector<WindowDimension> dimensions(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    WindowDimension& dimension = dimensions[i];
    dimension.size = sizes[i];
    if (!strides.empty()) dimension.stride = strides[i];
    if (!lows.empty()) {
      dimension.pad_low = lows[i];
      dimension.pad_high = highs[i];
    }
    if (!base_dilations.empty()) dimension.base_dilation = base_dilations[i];
    if (!window_dilations.empty()) dimension.window_dilation = window_dilations[i];
    if (!reversals.empty()) dimension.reversed = reversals[i] != 0;
  }
  return dimensions;
}

ConvolutionDimensions decode_convolution_dimensions(std::string_view raw, const AttributeSite& site) {
  const auto underscore = raw.find('_');
  const auto arrow = raw.find("->");
  if (underscore == std::string_view::npos || arrow == std::string_view::npos || arrow < underscore) {
    fail(site, raw, "labels like b01f_01io->b01f");
  }
  const auto part = [&](std::string_view labels, char first, char second, std::int64_t& first_at,
                        std::int64_t& second_at, std::vector<std::int64_t>& spatial) {
    constexpr std::int64_t kUnset = -1;
    first_at = second_at = kUnset;
    std::vector<std::int64_t> at_digit(10, kUnset);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const char label = labels[i];
      std::int64_t* slot = nullptr;
      if (label == first) {
        slot = &first_at;
      } else if (label == second) {
        slot = &second_at;
      } else if (label >= '0' && label <= '9') {
        slot = &at_digit[static_cast<std::size_t>(label - '0')];
      } else if (label == '?') {
        continue;
      } else {
        fail(site, raw,
             std::string("only ") + first + ", " + second + ", digits and ? in '" + std::string(labels) + "'");
      }
      if (*slot != kUnset) fail(site, raw, std::string("label ") + label + " once in '" + std::string(labels) + "'");
      *slot = static_cast<std::int64_t>(i);
    }
    if (first_at == kUnset || second_at == kUnset) {
      fail(site, raw, std::string("labels ") + first + " and " + second + " in '" + std::string(labels) + "'");
    }
    spatial.clear();
    for (std::int64_t at : at_digit) {
      if (at == kUnset) break;
      spatial.push_back(at);
    }
    const auto given = std::count_if(at_digit.begin(), at_digit.end(), [](std::int64_t at) { return at != kUnset; });
    if (given != static_cast<std::ptrdiff_t>(spatial.size())) {
      fail(site, raw, "spatial labels 0, 1, 2, ... without a hole in '" + std::string(labels) + "'");
    }
  };
  ConvolutionDimensions dims;
  part(raw.substr(0, underscore), 'b', 'f', dims.input_batch, dims.input_feature, dims.input_spatial);
  part(raw.substr(underscore + 1, arrow - underscore - 1), 'i', 'o', dims.kernel_input_feature,
       dims.kernel_output_feature, dims.kernel_spatial);
  part(raw.substr(arrow + 2), 'b', 'f', dims.output_batch, dims.output_feature, dims.output_spatial);
  if (dims.input_spatial.size() != dims.kernel_spatial.size() ||
      dims.input_spatial.size() != dims.output_spatial.size()) {
    fail(site, raw, "equally many spatial labels in all three parts");
  }
  return dims;
}

std::vector<SliceDimension> decode_slice(std::string_view raw, const AttributeSite& site) {
  Cursor cursor(raw, site);
  std::vector<SliceDimension> dimensions;
  cursor.expect('{');
  if (!cursor.take('}')) {
    do {
      if (dimensions.size() == kMaxListLength) fail(site, cursor.rest(), "fewer dimensions");
      SliceDimension dimension;
      cursor.expect('[');
      dimension.start = cursor.integer();
      cursor.expect(':');
      dimension.limit = cursor.integer();
      if (cursor.take(':')) dimension.stride = cursor.integer();
      cursor.expect(']');
      if (dimension.start < 0 || dimension.limit < dimension.start || dimension.stride < 1) {
        fail(site, raw, "0 <= start <= limit and a stride of at least 1");
      }
      dimensions.push_back(dimension);
    } while (cursor.take(','));
    cursor.expect('}');
  }
  cursor.expect_end();
  return dimensions;
}

std::vector<PaddingDimension> decode_padding(std::string_view raw, const AttributeSite& site) {
  Cursor cursor(raw, site);
  std::vector<PaddingDimension> dimensions;
  if (cursor.at_end()) return dimensions;
  do {
    if (dimensions.size() == kMaxListLength) fail(site, cursor.rest(), "fewer dimensions");
    PaddingDimension dimension;
    dimension.low = cursor.integer();
    if (!cursor.take_adjacent('_')) fail(site, raw, "low_high or low_high_interior per dimension, joined by x");
    dimension.high = cursor.integer();
    if (cursor.take_adjacent('_')) dimension.interior = cursor.integer();
    if (dimension.interior < 0) fail(site, raw, "an interior padding of at least 0");
    dimensions.push_back(dimension);
  } while (cursor.take_adjacent('x'));
  cursor.expect_end();
  return dimensions;
}

ComparisonDirection decode_comparison_direction(std::string_view raw, const AttributeSite& site) {
  if (raw == "EQ") return ComparisonDirection::kEq;
  if (raw == "NE") return ComparisonDirection::kNe;
  if (raw == "GE") return ComparisonDirection::kGe;
  if (raw == "GT") return ComparisonDirection::kGt;
  if (raw == "LE") return ComparisonDirection::kLe;
  if (raw == "LT") return ComparisonDirection::kLt;
  fail(site, raw, "EQ, NE, GE, GT, LE or LT");
}

ReplicaGroups decode_replica_groups(std::string_view raw, const AttributeSite& site) {
  Cursor cursor(raw, site);
  ReplicaGroups result;
  if (cursor.take("mesh[")) {
    std::vector<std::pair<std::string_view, std::int64_t>> axes;
    std::int64_t devices = 1;
    if (!cursor.take(']')) {
      do {
        const std::string_view name = cursor.quoted_name();
        cursor.expect('=');
        const std::int64_t size = cursor.integer();
        if (size < 1) fail(site, raw, "axis sizes of at least 1");
        axes.emplace_back(name, size);
        devices = saturating_product(devices, size);
      } while (cursor.take(','));
      cursor.expect(']');
    }
    // The order of the devices (", device_ids=(...)") does not matter here.
    while (!cursor.at_end() && !cursor.peek('{')) {
      if (cursor.take(',') || cursor.take('(') || cursor.take(')') || cursor.take('[') || cursor.take(']') ||
          cursor.take('=') || cursor.take('<')) {
        continue;
      }
      if (cursor.word().empty()) fail(site, cursor.rest(), "the axes of a group in braces");
    }
    cursor.expect('{');
    result.group_size = 1;
    if (!cursor.take('}')) {
      do {
        const std::string_view name = cursor.quoted_name();
        const auto axis = std::find_if(axes.begin(), axes.end(), [&](const auto& a) { return a.first == name; });
        if (axis == axes.end()) fail(site, name, "an axis of the mesh in " + quoted(raw));
        std::int64_t size = axis->second;
        if (cursor.take(':')) {  // a sub-axis, 'x':(2)4 = the part of size 4 below a split of 2
          cursor.expect('(');
          cursor.integer();
          cursor.expect(')');
          size = cursor.integer();
          if (size < 1) fail(site, raw, "a sub-axis size of at least 1");
        }
        result.group_size = saturating_product(result.group_size, size);
      } while (cursor.take(','));
      cursor.expect('}');
    }
    cursor.expect_end();
    result.groups = std::max<std::int64_t>(1, devices / result.group_size);
    return result;
  }
  if (cursor.peek('[')) {
    const std::vector<std::int64_t> dims = braced_int_list(cursor, site, '[', ']');
    if (dims.size() != 2 || dims[0] < 1 || dims[1] < 1) fail(site, raw, "[groups,size]<=[...]");
    if (!cursor.take("<=")) fail(site, cursor.rest(), "<= in " + quoted(raw));
    std::int64_t devices = 1;
    for (const std::int64_t extent : braced_int_list(cursor, site, '[', ']')) {
      if (extent < 1) fail(site, raw, "extents of at least 1");
      devices = saturating_product(devices, extent);
    }
    if (devices != saturating_product(dims[0], dims[1])) {
      fail(site, raw, "as many devices behind <= as in the groups before it");
    }
    if (cursor.take('T')) braced_int_list(cursor, site, '(', ')');
    cursor.expect_end();
    return ReplicaGroups{dims[0], dims[1]};
  }
  cursor.expect('{');
  if (!cursor.take('}')) {
    do {
      const std::vector<std::int64_t> group = braced_int_list(cursor, site, '{', '}');
      ++result.groups;
      result.group_size = std::max(result.group_size, static_cast<std::int64_t>(group.size()));
    } while (cursor.take(','));
    cursor.expect('}');
  }
  cursor.expect_end();
  return result;
}

std::vector<std::int64_t> decode_minor_to_major(std::string_view raw, std::size_t rank, const AttributeSite& site) {
  std::vector<std::int64_t> order;
  Cursor cursor(raw, site);
  if (cursor.take('{') && !cursor.peek('}') && !cursor.peek(':')) {
    do {
      if (order.size() > rank) fail(site, raw, "a layout of " + std::to_string(rank) + " dimensions");
      order.push_back(cursor.integer());
    } while (cursor.take(','));
  }
  if (order.empty()) {
    order.resize(rank);
    for (std::size_t i = 0; i < rank; ++i) order[i] = static_cast<std::int64_t>(rank - 1 - i);
    return order;
  }
  if (order.size() != rank) fail(site, raw, "a layout of " + std::to_string(rank) + " dimensions");
  check_dimensions(order, rank, site);
  return order;
}

std::int64_t int_attribute(const Graph& graph, InstructionId id, std::string_view key, std::int64_t default_value) {
  const auto raw = graph.attribute(id, key);
  return raw ? decode_int(*raw, site_of(graph, id, key)) : default_value;
}

bool bool_attribute(const Graph& graph, InstructionId id, std::string_view key, bool default_value) {
  const auto raw = graph.attribute(id, key);
  return raw ? decode_bool(*raw, site_of(graph, id, key)) : default_value;
}

std::string string_attribute(const Graph& graph, InstructionId id, std::string_view key) {
  const auto raw = graph.attribute(id, key);
  return raw ? decode_string(*raw) : std::string();
}

std::vector<std::int64_t> int_list_attribute(const Graph& graph, InstructionId id, std::string_view key) {
  const auto raw = graph.attribute(id, key);
  return raw ? decode_int_list(*raw, site_of(graph, id, key)) : std::vector<std::int64_t>();
}

std::vector<std::int64_t> dimension_list_attribute(const Graph& graph, InstructionId id, std::string_view key,
                                                   std::size_t rank) {
  std::vector<std::int64_t> dims = int_list_attribute(graph, id, key);
  check_dimensions(dims, rank, site_of(graph, id, key));
  return dims;
}

DotDimensions dot_dimensions(const Graph& graph, InstructionId id) {
  const auto operands = graph.operands(id);
  if (operands.size() < 2) fail(site_of(graph, id, "operands"), std::to_string(operands.size()), "at least 2 operands");
  const std::size_t lhs_rank = graph.shape_of(operands[0]).dims.size();
  const std::size_t rhs_rank = graph.shape_of(operands[1]).dims.size();
  DotDimensions dims;
  dims.lhs_contracting = dimension_list_attribute(graph, id, "lhs_contracting_dims", lhs_rank);
  dims.rhs_contracting = dimension_list_attribute(graph, id, "rhs_contracting_dims", rhs_rank);
  dims.lhs_batch = dimension_list_attribute(graph, id, "lhs_batch_dims", lhs_rank);
  dims.rhs_batch = dimension_list_attribute(graph, id, "rhs_batch_dims", rhs_rank);
  return dims;
}

std::vector<WindowDimension> window_attribute(const Graph& graph, InstructionId id) {
  const auto raw = graph.attribute(id, "window");
  return raw ? decode_window(*raw, site_of(graph, id, "window")) : std::vector<WindowDimension>();
}

const Shape& array_of(const Graph& graph, InstructionId operand) {
  const Shape& shape = graph.shape_of(operand);
  return shape.is_tuple() && !shape.elements.empty() ? graph.shape(shape.elements[0]) : shape;
}

ConvolutionDimensions convolution_dimensions(const Graph& graph, InstructionId id) {
  const AttributeSite site = site_of(graph, id, "dim_labels");
  const auto raw = graph.attribute(id, "dim_labels");
  if (!raw) fail(site, "nothing", "labels like b01f_01io->b01f");
  const auto operands = graph.operands(id);
  if (operands.size() < 2) fail(site_of(graph, id, "operands"), std::to_string(operands.size()), "2 operands");
  ConvolutionDimensions dims = decode_convolution_dimensions(*raw, site);
  const auto check = [&](std::int64_t a, std::int64_t b, std::vector<std::int64_t> all, const Shape& shape) {
    all.push_back(a);
    all.push_back(b);
    check_dimensions(all, shape.dims.size(), site);
  };
  check(dims.input_batch, dims.input_feature, dims.input_spatial, array_of(graph, operands[0]));
  check(dims.kernel_input_feature, dims.kernel_output_feature, dims.kernel_spatial, array_of(graph, operands[1]));
  check(dims.output_batch, dims.output_feature, dims.output_spatial, graph.shape_of(id));
  return dims;
}

GatherDimensions gather_dimensions(const Graph& graph, InstructionId id) {
  GatherDimensions dims;
  dims.offset_dims = int_list_attribute(graph, id, "offset_dims");
  dims.collapsed_slice_dims = int_list_attribute(graph, id, "collapsed_slice_dims");
  dims.start_index_map = int_list_attribute(graph, id, "start_index_map");
  dims.operand_batching_dims = int_list_attribute(graph, id, "operand_batching_dims");
  dims.start_indices_batching_dims = int_list_attribute(graph, id, "start_indices_batching_dims");
  dims.slice_sizes = int_list_attribute(graph, id, "slice_sizes");
  dims.index_vector_dim = int_attribute(graph, id, "index_vector_dim", 0);
  return dims;
}

ScatterDimensions scatter_dimensions(const Graph& graph, InstructionId id) {
  ScatterDimensions dims;
  dims.update_window_dims = int_list_attribute(graph, id, "update_window_dims");
  dims.inserted_window_dims = int_list_attribute(graph, id, "inserted_window_dims");
  dims.scatter_dims_to_operand_dims = int_list_attribute(graph, id, "scatter_dims_to_operand_dims");
  dims.input_batching_dims = int_list_attribute(graph, id, "input_batching_dims");
  dims.scatter_indices_batching_dims = int_list_attribute(graph, id, "scatter_indices_batching_dims");
  dims.index_vector_dim = int_attribute(graph, id, "index_vector_dim", 0);
  return dims;
}

std::optional<std::int64_t> known_trip_count(const Graph& graph, InstructionId id) {
  const auto raw = graph.attribute(id, "backend_config");
  if (!raw) return std::nullopt;
  // Quoted (and then escaped) or raw JSON; a scan for the one field serves both.
  const auto field = raw->find("known_trip_count");
  if (field == std::string_view::npos) return std::nullopt;
  std::size_t at = raw->find('n', field + std::string_view("known_trip_count").size());
  if (at == std::string_view::npos) return std::nullopt;
  for (++at; at < raw->size() && std::string_view("\"\\: ").find((*raw)[at]) != std::string_view::npos;) ++at;
  std::int64_t count = 0;
  const std::size_t first = at;
  for (; at < raw->size() && (*raw)[at] >= '0' && (*raw)[at] <= '9'; ++at) {
    if (count > (std::numeric_limits<std::int64_t>::max() - 9) / 10) return std::nullopt;
    count = count * 10 + ((*raw)[at] - '0');
  }
  if (at == first) return std::nullopt;
  return count;
}

}  // namespace automap::graph
