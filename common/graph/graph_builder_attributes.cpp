// GraphBuilder: whether attributes say something that the instruction can mean.
#include <algorithm>
#include <set>

#include "common/graph/graph_builder.h"
#include "common/graph/graph_builder_internal.h"
#include "common/graph/hlo_attributes.h"
#include "common/graph/hlo_sharding.h"

namespace automap::graph {

using namespace internal;

namespace {

// XLA's limit on the length of lists in a text, far above any real module's.
constexpr std::size_t kMostListedDevices = 1 << 20;

class AttributeCheck {
 public:
  AttributeCheck(const GraphBuilder& builder, const Instruction& instruction, Span<const InstructionId> operands,
                 Span<const Attribute> attributes)
      : builder_(builder),
        graph_(builder.graph()),
        instruction_(instruction),
        operands_(operands),
        attributes_(attributes) {}

  // ---- without these XLA's parser reads no such instruction

  void require() const {
    switch (instruction_.opcode) {
      case Opcode::kCompare: {
        const std::string_view raw = need("direction", "EQ, NE, GE, GT, LE or LT");
        decode_comparison_direction(raw, site("direction"));
        return;
      }
      case Opcode::kIota: need("iota_dimension", "the number of a dimension"); return;
      case Opcode::kCollectivePermute:
      case Opcode::kCollectivePermuteStart: for_each_pair([](std::int64_t, std::int64_t) {}); return;
      case Opcode::kConvolution: need("dim_labels", "labels like b01f_01io->b01f"); return;
      case Opcode::kConcatenate:
      case Opcode::kSort: one_dimension("1 number"); return;
      // If there are several, XLA takes the first.
      case Opcode::kAllGather:
      case Opcode::kAllGatherStart:
      case Opcode::kReduceScatter:
      case Opcode::kGetDimensionSize:
      case Opcode::kSetDimensionSize: one_dimension("1 number", false); return;
      // One of whole arrays has none.
      case Opcode::kAllToAll:
        if (find_attribute(attributes_, "dimensions")) one_dimension("1 number, or no dimensions at all");
        return;
      default: return;
    }
  }

  // ---- what XLA's verifier refuses

  void run() const {
    switch (instruction_.opcode) {
      case Opcode::kIota: below(decode_int(need("iota_dimension", ""), site("iota_dimension")), result()); return;
      case Opcode::kConcatenate: return concatenate();
      case Opcode::kAllGather: return gathered(true);
      case Opcode::kReduceScatter: return gathered(false);
      case Opcode::kGetDimensionSize:
      case Opcode::kSetDimensionSize:
        if (operand(0).is_array()) below(integers("dimensions")[0], operand(0), "dimensions");
        break;
      case Opcode::kAllToAll:
      case Opcode::kSort:
      case Opcode::kReverse:
      case Opcode::kBroadcast:
      case Opcode::kTranspose: {
        const Shape& shape = instruction_.opcode == Opcode::kBroadcast ? result() : operand(0);
        if (shape.is_array()) distinct(integers("dimensions"), shape);
        break;
      }
      case Opcode::kSlice: return slice();
      case Opcode::kDynamicSlice: return dynamic_slice();
      case Opcode::kDynamicUpdateSlice: return dynamic_update_slice();
      case Opcode::kPad: return pad();
      case Opcode::kConvolution: return convolution();
      case Opcode::kReduceWindow:
      case Opcode::kSelectAndScatter: return window();
      case Opcode::kGather: return gather();
      case Opcode::kScatter: return scatter();
      case Opcode::kCollectivePermute:
      case Opcode::kCollectivePermuteStart: return permute();
      default: break;
    }
    if (is_collective(instruction_.opcode)) groups();
  }

 private:
  AttributeSite site(std::string_view key) const { return {instruction_.name, key, &graph_}; }
  const Shape& operand(std::size_t i) const { return graph_.shape_of(operands_[i]); }
  const Shape& result() const { return graph_.shape(instruction_.shape); }
  static std::string text(const Shape& shape) { return short_text(shape.text); }
  std::optional<std::string_view> raw(std::string_view key) const { return find_attribute(attributes_, key); }
  std::string_view where(std::string_view key) const { return raw(key).value_or(instruction_.opcode_name); }
  [[noreturn]] void fail(std::string_view key, const std::string& what) const {
    builder_.fail(where(key), label_of(instruction_) + ": " + std::string(key) + " " + what);
  }

  std::string_view need(std::string_view key, const std::string& what) const {
    const std::optional<std::string_view> value = raw(key);
    if (!value) {
      builder_.fail(instruction_.opcode_name, label_of(instruction_) + " has no " + std::string(key) +
                                                  (what.empty() ? "" : ", expected " + what));
    }
    return *value;
  }
  std::vector<std::int64_t> integers(std::string_view key) const {
    bool ok = true;
    std::vector<std::int64_t> values = integers_of(attributes_, key, &ok);
    if (!ok) fail(key, "is " + short_text(where(key)) + ", expected a list of numbers");
    return values;
  }
  void one_dimension(const std::string& expected, bool alone = true) const {
    need("dimensions", expected);
    const std::size_t count = integers("dimensions").size();
    if (count < 1 || (alone && count > 1)) {
      fail("dimensions", "is " + short_text(where("dimensions")) + ", expected " + expected);
    }
  }

  void below(std::int64_t d, const Shape& shape, std::string_view key = "iota_dimension") const {
    if (d >= 0 && d < static_cast<std::int64_t>(shape.dims.size())) return;
    fail(key, "names dimension " + std::to_string(d) + " of " + text(shape));
  }
  void distinct(const std::vector<std::int64_t>& dims, const Shape& shape, std::string_view key = "dimensions") const {
    std::vector<std::int64_t> sorted = dims;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      below(sorted[i], shape, key);
      if (i > 0 && sorted[i] == sorted[i - 1]) fail(key, "names dimension " + std::to_string(sorted[i]) + " twice");
    }
  }
  static bool comparable(const Shape& a, const Shape& b) {
    return a.is_array() && b.is_array() && !a.dynamic && !b.dynamic;
  }
  void expect_dims(const Shape& shape, const std::vector<std::int64_t>& dims, std::string_view key) const {
    if (shape.dims == dims) return;
    std::string expected;
    for (const std::int64_t d : dims) expected += (expected.empty() ? "" : ",") + std::to_string(d);
    fail(key, "gives [" + expected + "], but the result is " + text(shape));
  }

  void concatenate() const {
    const std::int64_t at = integers("dimensions")[0];
    std::int64_t sum = 0;
    std::vector<std::int64_t> dims;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!comparable(operand(i), result())) return;
      below(at, operand(i), "dimensions");
      if (i == 0) dims = operand(0).dims;
      std::vector<std::int64_t> other = operand(i).dims;
      const auto d = static_cast<std::size_t>(at);
      if (d >= other.size() || __builtin_add_overflow(sum, other[d], &sum)) return;
      other[d] = dims[d];
      if (other != dims)
        fail("dimensions", "does not fit the operands " + text(operand(0)) + " and " + text(operand(i)));
    }
    dims[static_cast<std::size_t>(at)] = sum;
    expect_dims(result(), dims, "dimensions");
  }

  // An all-gather grows one dimension of each operand by the size of its groups, a reduce-scatter shrinks it.
  void gathered(bool grows) const {
    const std::int64_t devices = groups();
    const std::int64_t at = integers("dimensions")[0];
    const bool several = result().is_tuple();
    if (several && result().elements.size() != operands_.size()) return;
    if (!several && operands_.size() != 1) return;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const Shape& to = several ? graph_.shape(result().elements[i]) : result();
      if (!comparable(operand(i), to)) continue;
      below(at, operand(i), "dimensions");
      std::vector<std::int64_t> dims = grows ? operand(i).dims : to.dims;
      const std::vector<std::int64_t>& large = grows ? to.dims : operand(i).dims;
      const auto d = static_cast<std::size_t>(at);
      if (dims.size() != large.size()) fail("dimensions", "gives another rank than " + text(to));
      if (devices == 0 && dims[d] > 0 && large[d] % dims[d] == 0) dims[d] = large[d];
      if (devices > 0 && __builtin_mul_overflow(dims[d], devices, &dims[d])) return;
      if (dims != large) {
        fail(devices > 0 ? "replica_groups" : "dimensions",
             "does not fit the operand " + text(operand(i)) + " and the result " + text(to) +
                 (devices > 0 ? " in groups of " + std::to_string(devices) : ""));
      }
    }
  }

  // The size of the groups of a collective; 0 where none are said.
  std::int64_t groups() const {
    const std::optional<std::string_view> listed = raw("replica_groups");
    if (!listed) return 0;
    const ReplicaGroups groups = decode_replica_groups(*listed, site("replica_groups"));
    if (listed->substr(0, 1) != "{") return groups.group_size;
    std::vector<std::int64_t> devices;
    std::string numbers(*listed);
    for (char& c : numbers) {
      if (c == '{' || c == '}') c = ',';
    }
    for (std::size_t p = 0; p < numbers.size() && devices.size() < kMostListedDevices;) {
      const std::size_t end = std::min(numbers.find(',', p), numbers.size());
      std::int64_t value = 0;
      if (parse_integer(std::string_view(numbers).substr(p, end - p), &value)) devices.push_back(value);
      p = end + 1;
    }
    std::sort(devices.begin(), devices.end());
    const auto twice = std::adjacent_find(devices.begin(), devices.end());
    if (twice != devices.end()) fail("replica_groups", "names device " + std::to_string(*twice) + " twice");
    return groups.group_size;
  }

  template <typename Visit>
  void for_each_pair(const Visit& visit) const {
    const std::string_view pairs = need("source_target_pairs", "pairs as in {{0,1},{1,0}}");
    const auto bad = [&] { fail("source_target_pairs", "is " + short_text(pairs) + ", expected pairs as in {{0,1}}"); };
    std::size_t at = 0;
    const auto next = [&]() -> char {
      while (at < pairs.size() && (pairs[at] == ' ' || pairs[at] == '\n' || pairs[at] == '\t' || pairs[at] == '\r'))
        ++at;
      return at < pairs.size() ? pairs[at] : '\0';
    };
    if (next() != '{' || pairs.back() != '}') bad();
    ++at;
    while (next() != '}') {
      const std::size_t close = pairs.find('}', at);
      std::vector<std::int64_t> pair;
      if (next() != '{' || close == std::string_view::npos ||
          !parse_integers(pairs.substr(at, close + 1 - at), &pair) || pair.size() != 2) {
        bad();
      }
      visit(pair[0], pair[1]);
      at = close + 1;
      if (next() == ',') {
        ++at;
      } else if (next() != '}') {
        bad();
      }
    }
  }

  void permute() const {
    std::set<std::int64_t> sources, targets;
    for_each_pair([&](std::int64_t source, std::int64_t target) {
      if (!sources.insert(source).second)
        fail("source_target_pairs", "sends from " + std::to_string(source) + " twice");
      if (!targets.insert(target).second) fail("source_target_pairs", "sends to " + std::to_string(target) + " twice");
    });
  }

  void slice() const {
    const Shape& in = operand(0);
    if (!raw("slice") || !comparable(in, result())) return;
    const std::vector<SliceDimension> limits = decode_slice(*raw("slice"), site("slice"));
    if (limits.size() != in.dims.size())
      fail("slice", "has " + std::to_string(limits.size()) + " ranges for " + text(in));
    std::vector<std::int64_t> dims;
    for (std::size_t d = 0; d < limits.size(); ++d) {
      if (limits[d].limit > in.dims[d]) {
        fail("slice", "goes up to " + std::to_string(limits[d].limit) + " along dimension " + std::to_string(d) +
                          " of " + text(in));
      }
      const std::int64_t extent = limits[d].limit - limits[d].start;
      dims.push_back(extent == 0 ? 0 : (extent - 1) / limits[d].stride + 1);
    }
    expect_dims(result(), dims, "slice");
  }

  // The places of a slice: a number each, or all in one vector.
  void starts(std::size_t first, std::size_t rank) const {
    const std::size_t count = operands_.size() - first;
    bool numbers = count == rank;
    for (std::size_t i = first; i < operands_.size(); ++i) {
      numbers = numbers && operand(i).is_array() && operand(i).dims.empty();
    }
    const bool vector = count == 1 && operand(first).is_array() && operand(first).dims.size() == 1;
    if (numbers || (vector && (operand(first).dynamic || operand(first).dims[0] == static_cast<std::int64_t>(rank)))) {
      return;
    }
    builder_.fail(instruction_.opcode_name, label_of(instruction_) + " has " + std::to_string(count) +
                                                (count == 1 ? " place" : " places") + " of where it begins in " +
                                                text(operand(0)) + ", expected a number for each dimension");
  }

  void dynamic_slice() const {
    if (operand(0).is_array()) starts(1, operand(0).dims.size());
    if (!comparable(operand(0), result()) || !raw("dynamic_slice_sizes")) return;
    const std::vector<std::int64_t> sizes = integers("dynamic_slice_sizes");
    within(sizes, operand(0), "dynamic_slice_sizes");
    expect_dims(result(), sizes, "dynamic_slice_sizes");
  }

  void dynamic_update_slice() const {
    const Shape& in = operand(0);
    const Shape& update = operand(1);
    if (in.is_array()) starts(2, in.dims.size());
    if (!comparable(in, update)) return;
    bool fits = update.dims.size() == in.dims.size();
    for (std::size_t d = 0; fits && d < in.dims.size(); ++d) fits = update.dims[d] <= in.dims[d];
    if (fits) return;
    builder_.fail(instruction_.opcode_name,
                  label_of(instruction_) + ": the update " + text(update) + " does not fit into " + text(in));
  }

  void within(const std::vector<std::int64_t>& sizes, const Shape& shape, std::string_view key) const {
    bool fits = sizes.size() == shape.dims.size();
    for (std::size_t d = 0; fits && d < sizes.size(); ++d) fits = sizes[d] >= 0 && sizes[d] <= shape.dims[d];
    if (!fits) fail(key, "is " + short_text(where(key)) + ", which is no part of " + text(shape));
  }

  void pad() const {
    const Shape& in = operand(0);
    if (!raw("padding") || !comparable(in, result())) return;
    const std::vector<PaddingDimension> padding = decode_padding(*raw("padding"), site("padding"));
    if (padding.size() != in.dims.size()) {
      fail("padding", "has " + std::to_string(padding.size()) + " dimensions for " + text(in));
    }
    std::vector<std::int64_t> dims;
    for (std::size_t d = 0; d < padding.size(); ++d) {
      std::int64_t holes = 0, sum = in.dims[d];
      if (__builtin_mul_overflow(std::max<std::int64_t>(0, in.dims[d] - 1), padding[d].interior, &holes) ||
          __builtin_add_overflow(sum, holes, &sum) || __builtin_add_overflow(sum, padding[d].low, &sum) ||
          __builtin_add_overflow(sum, padding[d].high, &sum)) {
        fail("padding", "gives a dimension beyond 63 bits");
      }
      dims.push_back(std::max<std::int64_t>(0, sum));
    }
    expect_dims(result(), dims, "padding");
  }

  void window() const {
    const std::optional<std::string_view> written = raw("window");
    if (!operand(0).is_array()) return;
    const std::size_t rank = written ? decode_window(*written, site("window")).size() : 0;
    if (rank != operand(0).dims.size()) {
      fail("window", "has " + std::to_string(rank) + " dimensions for " + text(operand(0)));
    }
  }

  void convolution() const {
    const std::string_view labels = need("dim_labels", "");
    const ConvolutionDimensions dims = decode_convolution_dimensions(labels, site("dim_labels"));
    const auto check = [&](std::int64_t a, std::int64_t b, std::vector<std::int64_t> all, const Shape& shape) {
      all.push_back(a);
      all.push_back(b);
      if (shape.is_array()) distinct(all, shape, "dim_labels");
    };
    check(dims.input_batch, dims.input_feature, dims.input_spatial, array_of(graph_, operands_[0]));
    check(dims.kernel_input_feature, dims.kernel_output_feature, dims.kernel_spatial, array_of(graph_, operands_[1]));
    check(dims.output_batch, dims.output_feature, dims.output_spatial, result());
    const std::optional<std::string_view> written = raw("window");
    const std::size_t rank = written ? decode_window(*written, site("window")).size() : 0;
    if (rank != dims.input_spatial.size()) {
      fail("window", "has " + std::to_string(rank) + " dimensions for the " +
                         std::to_string(dims.input_spatial.size()) + " of dim_labels=" + std::string(labels));
    }
    for (const std::string_view key : {"feature_group_count", "batch_group_count"}) {
      const std::optional<std::string_view> count = raw(key);
      if (count && decode_int(*count, site(key)) < 1) fail(key, "is " + std::string(*count) + ", expected at least 1");
    }
    const std::int64_t features = raw("feature_group_count") ? decode_int(*raw("feature_group_count"), site("")) : 1;
    const std::int64_t batches = raw("batch_group_count") ? decode_int(*raw("batch_group_count"), site("")) : 1;
    const Shape& in = array_of(graph_, operands_[0]);
    if (in.dynamic || !in.is_array()) return;
    if (in.dims[static_cast<std::size_t>(dims.input_feature)] % features != 0) {
      fail("feature_group_count", "does not divide the input features of " + text(in));
    }
    if (in.dims[static_cast<std::size_t>(dims.input_batch)] % batches != 0) {
      fail("batch_group_count", "does not divide the batch of " + text(in));
    }
  }

  void gather() const {
    if (!operand(0).is_array() || !operand(1).is_array() || !result().is_array()) return;
    distinct(integers("offset_dims"), result(), "offset_dims");
    distinct(integers("collapsed_slice_dims"), operand(0), "collapsed_slice_dims");
    distinct(integers("start_index_map"), operand(0), "start_index_map");
    distinct(integers("operand_batching_dims"), operand(0), "operand_batching_dims");
    if (!operand(0).dynamic) within(integers("slice_sizes"), operand(0), "slice_sizes");
  }

  void scatter() const {
    const std::size_t inputs = (operands_.size() - 1) / 2;
    const Shape& in = operand(0);
    const Shape& update = operand(inputs + 1);
    if (operands_.size() % 2 == 0 || !in.is_array() || !update.is_array()) return;
    distinct(integers("update_window_dims"), update, "update_window_dims");
    distinct(integers("inserted_window_dims"), in, "inserted_window_dims");
    distinct(integers("scatter_dims_to_operand_dims"), in, "scatter_dims_to_operand_dims");
  }

  const GraphBuilder& builder_;
  const Graph& graph_;
  const Instruction& instruction_;
  Span<const InstructionId> operands_;
  Span<const Attribute> attributes_;
};

// True if an array's layout orders as many dimensions as the array has, "{1,0:T(8,128)}", or has no order.
bool orders_all(std::string_view layout, const Shape& shape) {
  if (!shape.is_array() || layout.substr(0, 1) != "{") return true;
  const std::string_view order = layout.substr(1, layout.find_first_of(":}") - 1);
  if (order.find_first_not_of(" \t\r\n") == std::string_view::npos) return true;
  return static_cast<std::size_t>(std::count(order.begin(), order.end(), ',')) + 1 == shape.dims.size();
}

}  // namespace

void GraphBuilder::require_attributes(const Instruction& instruction, Span<const InstructionId> operands,
                                      Span<const Attribute> attributes) const {
  AttributeCheck(*this, instruction, operands, attributes).require();
}

void GraphBuilder::check_attributes(const Instruction& instruction, Span<const InstructionId> operands,
                                    Span<const Attribute> attributes) {
  if (const std::optional<std::string_view> raw = find_attribute(attributes, "sharding")) {
    HloSharding sharding;
    std::string problem = read_sharding(*raw, &sharding);
    if (problem.empty()) problem = sharding_misfit(graph_, sharding, instruction.shape);
    if (!problem.empty()) warn(*raw, label_of(instruction) + ": the sharding " + short_text(*raw) + " " + problem);
  }
  if (!orders_all(instruction.layout, graph_.shape(instruction.shape))) {
    warn(instruction.layout, label_of(instruction) + ": the layout " + short_text(instruction.layout) +
                                 " orders other dimensions than those of " +
                                 short_text(graph_.shape(instruction.shape).text));
  }
  AttributeCheck(*this, instruction, operands, attributes).run();
}

}  // namespace automap::graph
