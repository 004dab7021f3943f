#include "common/graph/attention_calls.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "common/graph/hlo_attributes.h"

namespace automap::graph {
namespace {

// The configuration is MLIR attributes ("q_max_seqlen = 4096 : i64") or JSON, perhaps quoted and escaped once more
// ("\"dimensions\":[\"2\",\"16\"]"): a scan for a key serves all of them.
class Configuration {
 public:
  explicit Configuration(std::string_view text) : text_(text) {}

  // The number behind `key`; nothing when there is none.
  std::optional<double> number(std::string_view key) const {
    std::size_t at = behind(key);
    if (at == std::string_view::npos) return std::nullopt;
    return number_at(&at);
  }
  // The first `count` numbers behind `key` within brackets.
  std::vector<double> numbers(std::string_view key, std::size_t count) const {
    std::vector<double> values;
    std::size_t at = behind(key);
    while (at != std::string_view::npos && values.size() < count) {
      const std::optional<double> value = number_at(&at);
      if (!value) break;
      values.push_back(*value);
    }
    return values;
  }
  // The word behind `key`, as in mask_type="CAUSAL"; empty when there is none.
  std::string_view word(std::string_view key) const {
    std::size_t at = behind(key);
    if (at == std::string_view::npos) return {};
    while (at < text_.size() && is_between(text_[at])) ++at;
    const std::size_t begin = at;
    while (at < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at])) != 0 || text_[at] == '_')) ++at;
    return text_.substr(begin, at - begin);
  }
  // Only the part behind `key`.
  Configuration from(std::string_view key) const {
    const std::size_t at = behind(key);
    return Configuration(at == std::string_view::npos ? std::string_view() : text_.substr(at));
  }

 private:
  static bool is_between(char c) { return std::string_view(" \t\n\r\"\\:=[,").find(c) != std::string_view::npos; }
  // Where `key` ends as a word of its own.
  std::size_t behind(std::string_view key) const {
    const auto in_word = [&](std::size_t i) {
      return i < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[i])) != 0 || text_[i] == '_');
    };
    for (std::size_t at = text_.find(key); at != std::string_view::npos; at = text_.find(key, at + 1)) {
      if ((at == 0 || !in_word(at - 1)) && !in_word(at + key.size())) return at + key.size();
    }
    return std::string_view::npos;
  }
  std::optional<double> number_at(std::size_t* at) const {
    while (*at < text_.size() && is_between(text_[*at])) ++*at;
    double value = 0;
    const bool negative = *at < text_.size() && text_[*at] == '-';
    if (negative) ++*at;
    const std::size_t first = *at;
    for (; *at < text_.size() && text_[*at] >= '0' && text_[*at] <= '9' && *at - first < 12; ++*at) {
      value = value * 10 + (text_[*at] - '0');
    }
    if (*at == first) return std::nullopt;
    return negative ? -value : value;
  }

  std::string_view text_;
};

double extent(const Shape& shape, std::size_t d) {
  return static_cast<double>(shape.dims[d]);
}

// Sizes that the shapes of queries, keys and values say: [batch, sequence, heads, features], or packed with an extent
// of 3 (queries, keys and values) or 2 (keys and values) before or behind the heads.
bool read_shapes(const Graph& graph, InstructionId id, AttentionCall* call) {
  const auto operands = graph.operands(id);
  if (operands.empty() || !graph.shape_of(operands[0]).is_array()) return false;
  // Several leading dimensions of examples are one.
  const auto examples_as_one = [](Shape shape, std::size_t rank) {
    while (shape.dims.size() > rank) {
      shape.dims[1] *= shape.dims[0];
      shape.dims.erase(shape.dims.begin());
    }
    return shape;
  };
  const auto is_packed = [](const Shape& shape) {
    const auto packs = [&](std::size_t behind) {
      const std::int64_t arrays = shape.dims[shape.dims.size() - behind];
      return arrays == 2 || arrays == 3;
    };
    return shape.dims.size() >= 5 && (packs(2) || packs(3));
  };
  const auto read = [&](std::size_t operand) {
    const Shape& given = graph.shape_of(operands[operand]);
    return examples_as_one(given, is_packed(given) ? 5 : 4);
  };
  const Shape first = read(0);
  const bool packed = is_packed(first);
  call->batch = first.dims.empty() ? 0 : extent(first, 0);
  if (packed) {
    const bool heads_first = first.dims[3] == 3 && first.dims[2] != 3;
    call->queries = call->keys = extent(first, 1);
    call->heads = extent(first, heads_first ? 2 : 3);
    call->query_features = call->value_features = extent(first, 4);
    return true;
  }
  if (first.dims.size() != 4 || operands.size() < 2) return false;
  const Shape keys = read(1);
  const Shape values = operands.size() > 2 ? read(2) : keys;
  if (keys.dims.size() < 4) return false;
  call->queries = extent(first, 1);
  call->heads = extent(first, 2);
  call->query_features = extent(first, 3);
  call->keys = extent(keys, 1);
  call->value_features = keys.dims.size() == 4 && values.dims.size() == 4 ? extent(values, 3) : extent(first, 3);
  return true;
}

// Heads of the keys, which stand where those of the queries do; as many where shapes do not say it.
double key_heads(const Graph& graph, InstructionId id, double heads) {
  const auto operands = graph.operands(id);
  if (operands.size() < 2 || !graph.shape_of(operands[0]).is_array() || !graph.shape_of(operands[1]).is_array()) {
    return heads;
  }
  const Shape &queries = graph.shape_of(operands[0]), &keys = graph.shape_of(operands[1]);
  if (queries.dims.size() != keys.dims.size() || queries.dims.size() < 4) return heads;
  for (const std::size_t behind : {2, 3}) {
    const std::size_t d = queries.dims.size() - behind;
    if (extent(queries, d) == heads) return extent(keys, d);
  }
  return heads;
}

// At most `window` keys before each query, all of them behind a causal mask.
double window_share(double keys, double window) {
  if (keys <= 0 || window >= keys) return 0.5;
  return (window * keys - window * window / 2) / (keys * keys);
}

void set_if(const std::optional<double>& value, double* out) {
  if (value && *value > 0) *out = *value;
}

}  // namespace

std::optional<AttentionCall> attention_call(const Graph& graph, InstructionId id) {
  if (graph.instruction(id).opcode != Opcode::kCustomCall) return std::nullopt;
  const std::string target = string_attribute(graph, id, "custom_call_target");
  const bool engine = target.rfind("te_fused_attn_", 0) == 0, cudnn = target.rfind("__cudnn$fmha", 0) == 0;
  if (!engine && !cudnn) return std::nullopt;
  const Configuration config(graph.attribute(id, "backend_config").value_or(std::string_view()));
  AttentionCall call;
  call.backward = target.find(engine ? "backward" : "Backward") != std::string::npos;
  bool known = read_shapes(graph, id, &call);
  bool causal = false;
  double window = -1;
  if (engine) {
    constexpr double kSequenceFirst = 4;  // NVTE_SBHD_SBHD_SBHD and those before it
    const Shape* const first = known ? &graph.shape_of(graph.operands(id)[0]) : nullptr;
    if (!known) set_if(config.number("input_batch"), &call.batch);
    if (known && config.number("qkv_layout").value_or(kSequenceFirst + 1) <= kSequenceFirst) {
      call.batch = extent(*first, 1);
      call.queries = call.keys = extent(*first, 0);
    }
    set_if(config.number("attn_heads"), &call.heads);
    set_if(config.number("q_max_seqlen"), &call.queries);
    set_if(config.number("kv_max_seqlen"), &call.keys);
    set_if(config.number("qk_head_dim"), &call.query_features);
    set_if(config.number("v_head_dim"), &call.value_features);
    known = known || (config.number("attn_heads") && config.number("qk_head_dim"));
    constexpr double kFirstCausalMask = 2;  // NVTE_CAUSAL_MASK and those behind it
    causal = config.number("mask_type").value_or(0) >= kFirstCausalMask || config.word("is_causal_mask") == "true";
    window = config.number("window_size_left").value_or(-1);
  } else {
    const std::vector<double> scores = config.from("intermediate_tensor_shape").numbers("dimensions", 4);
    if (scores.size() == 4) {
      if (!known) call.batch = scores[0];
      call.heads = scores[1];
      call.queries = scores[2];
      call.keys = scores[3];
    }
    causal =
        config.word("mask_type").find("CAUSAL") != std::string_view::npos || config.word("is_causal_mask") == "true";
    const double length = config.number("sliding_window_length").value_or(0);
    if (length > 0) window = length;
  }
  if (!known) return std::nullopt;
  call.key_heads = key_heads(graph, id, call.heads);
  if (engine) set_if(config.number("num_gqa_groups"), &call.key_heads);
  if (causal) call.kept = window >= 0 ? window_share(call.keys, window + 1) : 0.5;
  return call;
}

}  // namespace automap::graph
