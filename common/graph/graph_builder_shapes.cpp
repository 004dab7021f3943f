// GraphBuilder: the texts of shapes, and equal shapes under one id.
#include <algorithm>
#include <climits>
#include <cstring>
#include <functional>
#include <limits>

#include "common/graph/graph_builder.h"
#include "common/graph/graph_builder_internal.h"
#include "common/graph/scan.h"
#include "common/graph/shape.h"

namespace automap::graph {

using namespace internal;

namespace {

constexpr std::size_t kMaxTupleNesting = 64;

}  // namespace

GraphBuilder::ShapeSlot& GraphBuilder::shape_slot(std::string_view text, std::uint64_t hash) {
  const std::size_t mask = shape_slots_.size() - 1;
  for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
    ShapeSlot& slot = shape_slots_[i];
    if (slot.shape == kNone) return slot;
    if (slot.hash == hash && slot.size == text.size() && std::memcmp(slot.data, text.data(), text.size()) == 0) {
      return slot;
    }
  }
}

void GraphBuilder::remember_shape(std::string_view text, std::uint64_t hash, ShapeId id) {
  if (text.size() > std::numeric_limits<std::uint32_t>::max()) return;  // found again by parsing
  if (num_shape_slots_used_ * 2 >= shape_slots_.size()) {
    std::vector<ShapeSlot> old(shape_slots_.size() * 2);
    old.swap(shape_slots_);
    for (const ShapeSlot& slot : old) {
      if (slot.shape != kNone) shape_slot({slot.data, slot.size}, slot.hash) = slot;
    }
  }
  ShapeSlot& slot = shape_slot(text, hash);
  if (slot.shape != kNone) return;
  slot = {text.data(), static_cast<std::uint32_t>(text.size()), id, hash};
  ++num_shape_slots_used_;
}

ShapeId GraphBuilder::shape(std::string_view text) {
  const std::uint64_t hash = scan::hash(text);
  const ShapeId known = shape_slot(text, hash).shape;
  if (known != kNone) return known;
  const ShapeId id = parse_shape(text);
  const std::string* source = graph_.source_.get();
  const std::less_equal<const char*> le;
  const bool stable =
      source != nullptr && le(source->data(), text.data()) && le(text.data(), source->data() + source->size());
  if (graph_.shape(id).text != text) remember_shape(stable ? text : keep(text), hash, id);
  return id;
}

ShapeId GraphBuilder::intern(Shape shape, const std::string& text) {
  const std::uint64_t hash = scan::hash(text);
  const ShapeId known = shape_slot(text, hash).shape;
  if (known != kNone) return known;
  if (graph_.shapes_.size() >= INT32_MAX) fail({}, "more than 2^31 different shapes");
  const auto id = static_cast<ShapeId>(graph_.shapes_.size());
  shape.text = keep(text);
  graph_.shapes_.push_back(std::move(shape));
  remember_shape(graph_.shapes_.back().text, hash, id);
  return id;
}

const char* GraphBuilder::skip_space(const char* p, const char* end) const {
  for (;;) {
    p = scan::skip_class(scan::kSpace, p, end);
    if (p == end || *p != '/') return p;
    const char* const next = scan::skip_comment(p, end);
    if (next == p) return p;
    if (next == nullptr) fail({p, 0}, "a comment is not closed: expected '*/'");
    p = next;
  }
}

ShapeId GraphBuilder::array_from_text(std::string_view type_name, std::string_view dims, std::string_view where) {
  Shape shape;
  const ElementTypeInfo info = element_type_info(type_name);
  shape.type = info.type;
  shape.bits = info.bits;
  std::string text(type_name);
  text.push_back('[');
  const char* p = dims.data();
  const char* const end = p + dims.size();
  const auto space = [&] { p = skip_space(p, end); };
  for (space(); p < end; space()) {
    if (!shape.dims.empty()) {
      if (*p != ',') fail({p, 0}, "expected ',' or ']' between the dimensions of " + quoted(where));
      ++p;
      text.push_back(',');
      space();
    }
    const bool bounded = end - p >= 2 && p[0] == '<' && p[1] == '=';
    if (bounded) {
      p += 2;
      space();
      text += "<=";
    }
    if (p < end && *p == '?') {
      ++p;
      text.push_back('?');
      shape.dynamic = true;
      shape.dims.push_back(0);
      continue;
    }
    shape.dynamic = shape.dynamic || bounded;
    const char* const digits = p;
    std::int64_t value = 0;
    for (; p < end && scan::is(scan::kDigit, *p); ++p) {
      if (__builtin_mul_overflow(value, std::int64_t{10}, &value) ||
          __builtin_add_overflow(value, std::int64_t{*p - '0'}, &value)) {
        fail({digits, 0}, "a dimension of " + quoted(where) + " does not fit 63 bits");
      }
    }
    if (p == digits) fail({p, 0}, "expected a dimension (a number, <=number or ?) in the shape " + quoted(where));
    text += std::to_string(value);
    shape.dims.push_back(value);
  }
  text.push_back(']');
  if (shape.is_array()) {
    std::int64_t elements = 1, bits = 0;
    bool overflow = false;
    for (const std::int64_t d : shape.dims) overflow = __builtin_mul_overflow(elements, d, &elements) || overflow;
    if (std::find(shape.dims.begin(), shape.dims.end(), 0) != shape.dims.end()) {
      elements = 0;
    } else if (overflow) {
      fail(where, "the shape " + quoted(where) + " has more than 2^63 elements");
    }
    if (__builtin_mul_overflow(elements, std::int64_t{shape.bits}, &bits)) {
      fail(where, "the shape " + quoted(where) + " has more than 2^63 bits");
    }
    shape.num_elements = elements;
    shape.bytes = bits / 8 + (bits % 8 != 0 ? 1 : 0);
  }
  shape.type_name = keep(type_name);
  return intern(std::move(shape), text);
}

ShapeId GraphBuilder::tuple_shape(Span<const ShapeId> elements) {
  Shape shape;
  shape.type = ElementType::kTuple;
  shape.elements.reserve(elements.size());
  std::string text = "(";
  for (const ShapeId e : elements) {
    shape.elements.push_back(e);
    const Shape& element = graph_.shape(e);
    if (text.size() > 1) text += ", ";
    text += element.text;
    shape.dynamic = shape.dynamic || element.dynamic;
    if (__builtin_add_overflow(shape.bytes, element.bytes, &shape.bytes)) {
      fail({}, "a tuple shape has more than 2^63 bytes");
    }
  }
  text.push_back(')');
  return intern(std::move(shape), text);
}

ShapeId GraphBuilder::array_shape(std::string_view type_name, Span<const std::int64_t> dims,
                                  const std::vector<bool>& dynamic) {
  std::string text;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (i != 0) text.push_back(',');
    const bool is_dynamic = i < dynamic.size() && dynamic[i];
    if (!is_dynamic && dims[i] < 0) {
      fail({}, "a shape of type " + quoted(type_name) + " has the dimension " + std::to_string(dims[i]));
    }
    if (is_dynamic) text += dims[i] > 0 ? "<=" : "?";
    if (!is_dynamic || dims[i] > 0) text += std::to_string(dims[i]);
  }
  return array_from_text(type_name, text, std::string(type_name) + "[" + text + "]");
}

ShapeId GraphBuilder::buffer_shape(ShapeId element) {
  const Shape& inner = graph_.shape(element);
  Shape buffer;
  buffer.type = ElementType::kOpaque;
  buffer.type_name = "b";
  buffer.elements = {element};
  buffer.dynamic = inner.dynamic;
  buffer.bytes = inner.bytes;
  return intern(std::move(buffer), "b(" + std::string(inner.text) + ")");
}

// shape := '(' [shape {',' shape}] ')' | 'b(' shape ')' | type '[' dims ']' [layout], on an explicit stack.
ShapeId GraphBuilder::parse_shape(std::string_view text) {
  struct Frame {
    std::size_t first;
    bool buffer;
    const char* open;
  };
  std::vector<Frame> frames;
  std::vector<ShapeId> items;
  const char* p = text.data();
  const char* const end = p + text.size();
  const auto space = [&] { p = skip_space(p, end); };
  const auto layout = [&] {
    const char* const open = skip_space(p, end);
    if (open == end || *open != '{') return;
    p = open;
    const char* const next = scan::skip_balanced<'{', '}'>(p, end);
    if (next == nullptr) fail({p, 0}, "the layout that starts here is not closed: expected '}'");
    p = next;
  };
  const auto too_deep = [&] {
    fail({frames.back().open, 0}, "shapes are nested more than " + std::to_string(kMaxTupleNesting) + " deep");
  };
  for (;;) {
    space();
    bool closes = false;
    if (p == end) fail({p, 0}, "expected a shape such as f32[2,3], found the end of " + quoted(text));
    if (*p == '(') {
      frames.push_back({items.size(), false, p++});
      if (frames.size() > kMaxTupleNesting) too_deep();
      space();
      closes = p < end && *p == ')';
      if (!closes) continue;
    } else {
      const char* const name = p;
      p = scan::skip_class(scan::kIdentifier, p, end);
      const std::string_view type_name(name, static_cast<std::size_t>(p - name));
      if (type_name == "b" && p < end && *p == '(') {
        frames.push_back({items.size(), true, p++});
        if (frames.size() > kMaxTupleNesting) too_deep();
        continue;
      }
      space();
      if (type_name.empty() || scan::is(scan::kDigit, type_name[0]) || p == end || *p != '[') {
        fail({name, 0}, "expected a shape such as f32[2,3], found " +
                            quoted(text.substr(static_cast<std::size_t>(name - text.data()))));
      }
      const char* const dims = ++p;
      const char* close = dims;
      while (close != nullptr && close < end && *close != ']') {
        const char* const behind = *close == '/' ? scan::skip_comment(close, end) : close;
        close = behind == close ? close + 1 : behind;
      }
      if (close == nullptr || close == end)
        fail({dims - 1, 0}, "the dimensions that start here are not closed: expected ']'");
      items.push_back(array_from_text(type_name, {dims, static_cast<std::size_t>(close - dims)},
                                      {name, static_cast<std::size_t>(close + 1 - name)}));
      p = close + 1;
      layout();
    }
    // After a shape, or at the ')' of an empty tuple.
    for (;;) {
      if (!closes) {
        space();
        if (frames.empty()) {
          if (p != end)
            fail({p, 0}, "unexpected text after a shape: " + quoted({p, static_cast<std::size_t>(end - p)}));
          return items.back();
        }
        if (p < end && *p == ',' && !frames.back().buffer) {
          ++p;
          break;
        }
        if (p == end || *p != ')') {
          fail({p, 0},
               std::string("expected ',' or ')' in a tuple shape, found ") + (p == end ? "its end" : quoted({p, 1})));
        }
      }
      closes = false;
      ++p;
      const Frame frame = frames.back();
      frames.pop_back();
      const Span<const ShapeId> elements(items.data() + frame.first, items.size() - frame.first);
      const ShapeId id = frame.buffer ? buffer_shape(elements[0]) : tuple_shape(elements);
      items.resize(frame.first);
      items.push_back(id);
      layout();
    }
  }
}

}  // namespace automap::graph
