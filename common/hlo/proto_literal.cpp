// Constants: LiteralProto -> HLO text, digit for digit as XLA prints them.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "common/hlo/proto_attributes.h"

namespace automap::hlo::proto {

namespace {

// A small float format: `mantissa` stored bits below `exponent` exponent bits below the sign, as in IEEE 754 unless
// told otherwise.
struct FloatFormat {
  int exponent = 0, mantissa = 0, bias = 0;
  enum class Special { kIeee, kFiniteNan, kNone, kUnsignedZeroNan, kExponentOnly } special = Special::kIeee;
  int digits = 0;  // significant decimal digits XLA prints
};

std::string nan_text(bool negative, std::uint64_t payload, std::uint64_t quiet) {
  std::string text = negative ? "-nan" : "nan";
  if (payload == quiet) return text;
  char hex[32];
  std::snprintf(hex, sizeof hex, "(0x%llx)", static_cast<unsigned long long>(payload));
  return text + hex;
}

std::string digits_of(double value, int digits) {
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char text[64];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

std::string small_float(std::uint32_t bits, const FloatFormat& f) {
  using Special = FloatFormat::Special;
  const std::uint32_t mantissa_mask = (1u << f.mantissa) - 1;
  const std::uint32_t exponent_mask = (1u << f.exponent) - 1;
  if (f.special == Special::kExponentOnly) {
    if (bits == exponent_mask) return "nan";
    return digits_of(std::ldexp(1.0, static_cast<int>(bits) - f.bias), f.digits);
  }
  const std::uint32_t mantissa = bits & mantissa_mask;
  const std::uint32_t exponent = (bits >> f.mantissa) & exponent_mask;
  const bool negative = ((bits >> (f.mantissa + f.exponent)) & 1) != 0;
  switch (f.special) {
    case Special::kIeee:
      if (exponent == exponent_mask) {
        if (mantissa == 0) return negative ? "-inf" : "inf";
        return nan_text(negative, mantissa, std::uint64_t{1} << (f.mantissa - 1));
      }
      break;
    case Special::kFiniteNan:
      if (exponent == exponent_mask && mantissa == mantissa_mask) return negative ? "-nan" : "nan";
      break;
    case Special::kUnsignedZeroNan:
      if (negative && exponent == 0 && mantissa == 0) return "-nan";
      break;
    case Special::kNone:
    case Special::kExponentOnly: break;
  }
  double value = exponent == 0 ? std::ldexp(static_cast<double>(mantissa), 1 - f.bias - f.mantissa)
                               : std::ldexp(static_cast<double>(mantissa | (1u << f.mantissa)),
                                            static_cast<int>(exponent) - f.bias - f.mantissa);
  if (negative) value = -value;
  return digits_of(value, f.digits);
}

std::string float32(double wide) {
  if (std::isnan(wide)) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &wide, sizeof bits);
    return nan_text((bits >> 63) != 0, (bits >> 29) & 0x7fffff, 0x400000);
  }
  const auto value = static_cast<float>(wide);
  const std::string text = digits_of(static_cast<double>(value), std::numeric_limits<float>::digits10);
  if (std::isinf(value) || std::strtof(text.c_str(), nullptr) == value) return text;
  return digits_of(static_cast<double>(value), std::numeric_limits<float>::max_digits10);
}

std::string float64(double value) {
  if (std::isnan(value)) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return nan_text((bits >> 63) != 0, bits & 0xfffffffffffffu, 0x8000000000000u);
  }
  const std::string text = digits_of(value, std::numeric_limits<double>::digits10);
  if (std::isinf(value) || std::strtod(text.c_str(), nullptr) == value) return text;
  return digits_of(value, std::numeric_limits<double>::max_digits10);
}

using Special = FloatFormat::Special;
constexpr FloatFormat kF16 = {5, 10, 15, Special::kIeee, 5};
constexpr FloatFormat kBf16 = {8, 7, 127, Special::kIeee, 4};
constexpr FloatFormat kF8e5m2 = {5, 2, 15, Special::kIeee, 2};
constexpr FloatFormat kF8e4m3 = {4, 3, 7, Special::kIeee, 3};
constexpr FloatFormat kF8e3m4 = {3, 4, 3, Special::kIeee, 3};
constexpr FloatFormat kF8e4m3fn = {4, 3, 7, Special::kFiniteNan, 3};
constexpr FloatFormat kF8e4m3b11fnuz = {4, 3, 11, Special::kUnsignedZeroNan, 3};
constexpr FloatFormat kF8e5m2fnuz = {5, 2, 16, Special::kUnsignedZeroNan, 2};
constexpr FloatFormat kF8e4m3fnuz = {4, 3, 8, Special::kUnsignedZeroNan, 3};
constexpr FloatFormat kF4e2m1fn = {2, 1, 1, Special::kNone, 2};
constexpr FloatFormat kF6e3m2fn = {3, 2, 3, Special::kNone, 2};
constexpr FloatFormat kF6e2m3fn = {2, 3, 1, Special::kNone, 3};
constexpr FloatFormat kF8e8m0fnu = {8, 0, 127, Special::kExponentOnly, 2};

// One array literal's elements, whatever field holds them.
class Elements {
 public:
  Elements(const LiteralProto& l, std::int64_t type) {
    switch (type) {
      case 1: ints(l.preds, Form::kPred); break;
      case 2: packed(l.s8s, 8, true); break;
      case 3: packed(l.s16s, 16, true); break;
      case 4: ints(l.s32s, Form::kSigned); break;
      case 5: ints(l.s64s, Form::kSigned); break;
      case 6: packed(l.u8s, 8, false); break;
      case 7: packed(l.u16s, 16, false); break;
      case 8: ints(l.u32s, Form::kUnsigned); break;
      case 9: ints(l.u64s, Form::kUnsigned); break;
      case 10: floats(l.f16s, kF16); break;
      case 11: reals(l.f32s, false, false); break;
      case 12: reals(l.f64s, true, false); break;
      case 15: reals(l.c64s, false, true); break;
      case 16: floats(l.bf16s, kBf16); break;
      case 18: reals(l.c128s, true, true); break;
      case 19: floats(l.f8e5m2s, kF8e5m2); break;
      case 20: floats(l.f8e4m3fns, kF8e4m3fn); break;
      case 21: packed(l.s4s, 4, true); break;
      case 22: packed(l.u4s, 4, false); break;
      case 23: floats(l.f8e4m3b11fnuzs, kF8e4m3b11fnuz); break;
      case 24: floats(l.f8e5m2fnuzs, kF8e5m2fnuz); break;
      case 25: floats(l.f8e4m3fnuzs, kF8e4m3fnuz); break;
      case 26: packed(l.s2s, 2, true); break;
      case 27: packed(l.u2s, 2, false); break;
      case 28: floats(l.f8e4m3s, kF8e4m3); break;
      case 29: floats(l.f8e3m4s, kF8e3m4); break;
      case 30: packed(l.s1s, 1, true); break;
      case 31: packed(l.u1s, 1, false); break;
      case 32: floats(l.f4e2m1fns, kF4e2m1fn); break;
      case 33: floats(l.f8e8m0fnus, kF8e8m0fnu); break;
      case 35: floats(l.f6e3m2fns, kF6e3m2fn); break;
      case 36: floats(l.f6e2m3fns, kF6e2m3fn); break;
      default: break;
    }
  }

  // The number of elements; above kMaxLiteralElements it may be any larger number.
  std::size_t size() const { return size_; }

  void print(std::size_t i, bool scalar, std::string* out) const {
    switch (form_) {
      case Form::kPred: *out += scalar ? ((*ints_)[i] != 0 ? "true" : "false") : ((*ints_)[i] != 0 ? "1" : "0"); return;
      case Form::kSigned: *out += std::to_string((*ints_)[i]); return;
      case Form::kUnsigned: *out += std::to_string(unsigned_value((*ints_)[i])); return;
      case Form::kPacked: *out += std::to_string(packed_value(i)); return;
      case Form::kFloat:
        // Sub-byte floats take a byte each.
        *out += small_float(static_cast<std::uint32_t>(raw(i)), *format_);
        return;
      case Form::kReal:
        if (!complex_) {
          *out += real((*reals_)[i]);
        } else {
          *out += "(" + real((*reals_)[2 * i]) + ", " + real((*reals_)[2 * i + 1]) + ")";
        }
        return;
      case Form::kNone: return;
    }
  }

 private:
  enum class Form { kNone, kPred, kSigned, kUnsigned, kPacked, kFloat, kReal };

  void ints(const Ints& values, Form form) {
    ints_ = &values;
    form_ = form;
    size_ = values.size();
  }
  void packed(std::string_view bytes, int bits, bool is_signed) {
    bytes_ = bytes;
    bits_ = bits;
    signed_ = is_signed;
    form_ = Form::kPacked;
    width_ = bits == 16 ? 2 : 1;
    size_ = bytes.size() / width_;
  }
  void floats(std::string_view bytes, const FloatFormat& format) {
    bytes_ = bytes;
    format_ = &format;
    form_ = Form::kFloat;
    width_ = format.exponent + format.mantissa > 8 ? 2 : 1;
    size_ = bytes.size() / width_;
  }
  void reals(const std::vector<double>& values, bool wide, bool complex) {
    reals_ = &values;
    wide_ = wide;
    complex_ = complex;
    form_ = Form::kReal;
    size_ = complex ? values.size() / 2 : values.size();
  }
  std::uint32_t raw(std::size_t i) const {
    std::uint32_t v = static_cast<unsigned char>(bytes_[i * width_]);
    if (width_ == 2) v |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes_[i * width_ + 1])) << 8;
    return v;
  }
  std::int64_t packed_value(std::size_t i) const {
    const std::uint32_t v = raw(i) & ((1u << bits_) - 1);
    if (signed_ && ((v >> (bits_ - 1)) & 1) != 0) return static_cast<std::int64_t>(v) - (std::int64_t{1} << bits_);
    return static_cast<std::int64_t>(v);
  }
  static std::uint64_t unsigned_value(std::int64_t bits) { return static_cast<std::uint64_t>(bits); }
  std::string real(double v) const { return wide_ ? float64(v) : float32(v); }

  Form form_ = Form::kNone;
  const Ints* ints_ = nullptr;
  const std::vector<double>* reals_ = nullptr;
  std::string_view bytes_;
  const FloatFormat* format_ = nullptr;
  std::size_t size_ = 0, width_ = 1;
  int bits_ = 8;
  bool signed_ = false, wide_ = false, complex_ = false;
};

// rank 1 "{1, 2}", higher "{ {1, 2}, {3, 4} }" with the inner dimensions likewise.
void print_array(const Elements& elements, const Ints& dims, std::string* out) {
  if (dims.empty()) {
    elements.print(0, true, out);
    return;
  }
  // An odometer over all dimensions but the last; rows are printed whole.
  const std::size_t rank = dims.size();
  const auto innermost = static_cast<std::size_t>(dims[rank - 1]);
  std::vector<std::int64_t> index(rank - 1, 0);
  const auto open = [&](std::size_t from) {
    for (std::size_t d = from; d + 1 < rank; ++d) *out += "{ ";
  };
  for (std::size_t d = 0; d + 1 < rank; ++d) {
    if (dims[d] == 0) {  // no rows at all: XLA prints the shell
      *out += "{  }";
      return;
    }
  }
  open(0);
  for (std::size_t at = 0;;) {
    *out += "{";
    for (std::size_t i = 0; i < innermost; ++i) {
      if (i != 0) *out += ", ";
      elements.print(at++, false, out);
    }
    *out += "}";
    std::size_t d = rank - 1;
    while (d > 0) {
      --d;
      if (++index[d] < dims[d]) break;
      index[d] = 0;
      *out += " }";
      if (d == 0) return;
    }
    if (rank == 1) return;
    *out += ", ";
    open(d + 1);
  }
}

bool print_literal(const LiteralProto& literal, const ShapeProto& shape, bool inside, std::string* out,
                   std::string* why, int depth) {
  if (shape.element_type == kTupleType) {
    if (literal.tuple_literals.empty() && !shape.tuple_shapes.empty()) {
      *out += inside ? "..." : "{...}";
      return true;
    }
    if (literal.tuple_literals.size() != shape.tuple_shapes.size()) {
      *why = "its literal has " + std::to_string(literal.tuple_literals.size()) + " tuple elements, its shape " +
             std::to_string(shape.tuple_shapes.size());
      return false;
    }
    if (depth > kMaxMessageDepth) {
      *why = "its literal is nested too deeply";
      return false;
    }
    *out += "( ";
    for (std::size_t i = 0; i < shape.tuple_shapes.size(); ++i) {
      if (i != 0) *out += ", ";
      if (!print_literal(literal.tuple_literals[i], shape.tuple_shapes[i], true, out, why, depth + 1)) return false;
    }
    *out += " )";
    return true;
  }
  if (shape.element_type == kTokenType) {
    *out += "token";
    return true;
  }
  const Elements elements(literal, shape.element_type);
  std::size_t wanted = 1;
  for (const std::int64_t d : shape.dimensions) {
    if (d < 0) {
      *why = "its literal has a dimension of " + std::to_string(d);
      return false;
    }
    if (d != 0 && wanted > (std::size_t{1} << 62) / static_cast<std::size_t>(d)) {
      wanted = std::size_t{1} << 62;
    } else {
      wanted *= static_cast<std::size_t>(d);
    }
  }
  if (wanted > kMaxLiteralElements || (elements.size() == 0 && wanted != 0)) {
    *out += "{...}";
    return true;
  }
  if (elements.size() != wanted) {
    *why = "its literal has " + std::to_string(elements.size()) + " elements, its shape " + std::to_string(wanted);
    return false;
  }
  print_array(elements, shape.dimensions, out);
  return true;
}

}  // namespace

bool literal_text(const LiteralProto& literal, const ShapeProto& shape, std::string* out, std::string* why) {
  return print_literal(literal, shape, false, out, why, 0);
}

}  // namespace automap::hlo::proto
