#include "common/hlo/hlo_proto.h"

#include <cstring>

#include "common/base/error.h"

namespace automap::hlo::proto {
namespace {

enum class WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kGroup = 3, kGroupEnd = 4, kFixed32 = 5 };

// A cursor over one message. Every read is checked against its end.
struct Cursor {
  const char* p;
  const char* end;

  bool at_end() const { return p == end; }
  std::size_t left() const { return static_cast<std::size_t>(end - p); }
  bool varint(std::uint64_t* value) {
    std::uint64_t v = 0;
    for (int shift = 0; shift < 70 && p < end; shift += 7) {
      const auto byte = static_cast<unsigned char>(*p++);
      v |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) {
        *value = v;
        return true;
      }
      if (shift == 63) return false;  // an eleventh byte
    }
    return false;
  }
  bool tag(std::uint32_t* number, WireType* type) {
    std::uint64_t v = 0;
    if (!varint(&v) || v > 0xffffffffu || (v >> 3) == 0) return false;
    *number = static_cast<std::uint32_t>(v >> 3);
    *type = static_cast<WireType>(v & 7);
    return true;
  }
  bool bytes(std::string_view* value) {
    std::uint64_t size = 0;
    if (!varint(&size) || size > left()) return false;
    *value = {p, static_cast<std::size_t>(size)};
    p += size;
    return true;
  }
  bool fixed(std::size_t size, std::uint64_t* value) {
    if (left() < size) return false;
    std::uint64_t v = 0;
    for (std::size_t i = 0; i < size; ++i) {
      v |= static_cast<std::uint64_t>(static_cast<unsigned char>(p[i])) << (8 * i);
    }
    p += size;
    *value = v;
    return true;
  }
  // The value of an unknown field. Groups have not been written by anyone for a decade: refused.
  bool skip(WireType type) {
    std::uint64_t v = 0;
    std::string_view s;
    switch (type) {
      case WireType::kVarint: return varint(&v);
      case WireType::kFixed64: return fixed(8, &v);
      case WireType::kBytes: return bytes(&s);
      case WireType::kFixed32: return fixed(4, &v);
      default: return false;
    }
  }
};

Cursor cursor_of(std::string_view bytes) {
  return {bytes.data(), bytes.data() + bytes.size()};
}

// A NaN keeps its bits: the machine's own conversion would make a signalling one quiet.
double float_of(std::uint64_t bits) {
  const auto narrow = static_cast<std::uint32_t>(bits);
  constexpr std::uint32_t kInfinity = 0x7f800000;
  if ((narrow & 0x7fffffff) > kInfinity) {
    const std::uint64_t wide = (static_cast<std::uint64_t>(narrow >> 31) << 63) | (std::uint64_t{0x7ff} << 52) |
                               (static_cast<std::uint64_t>(narrow & 0x7fffff) << 29);
    double d = 0;
    std::memcpy(&d, &wide, sizeof d);
    return d;
  }
  float f = 0;
  std::memcpy(&f, &narrow, sizeof f);
  return static_cast<double>(f);
}
double double_of(std::uint64_t bits) {
  double d = 0;
  std::memcpy(&d, &bits, sizeof d);
  return d;
}

const char* wire_type_name(WireType type) {
  switch (type) {
    case WireType::kVarint: return "varint";
    case WireType::kFixed64: return "64-bit";
    case WireType::kBytes: return "length-delimited";
    case WireType::kGroup:
    case WireType::kGroupEnd: return "group";
    case WireType::kFixed32: return "32-bit";
  }
  return "unknown";
}

class WireDecoder {
 public:
  WireDecoder(std::string_view all, const std::string& source) : all_(all), source_(source), budget_(all.size()) {}

  void message(std::string_view bytes, const Schema& schema, void* out, int depth) {
    if (depth > kMaxMessageDepth) {
      fail(bytes.data(),
           std::string(schema.message) + " nested more than " + std::to_string(kMaxMessageDepth) + " levels deep");
    }
    Cursor cursor = cursor_of(bytes);
    while (!cursor.at_end()) {
      const char* const at = cursor.p;
      std::uint32_t number = 0;
      WireType type = WireType::kVarint;
      if (!cursor.tag(&number, &type)) fail(at, "no field tag in " + std::string(schema.message));
      const Field* field = schema.find(number);
      if (field == nullptr) {
        if (!cursor.skip(type)) {
          fail(at, "field " + std::to_string(number) + " of " + std::string(schema.message) + " does not end");
        }
        continue;
      }
      value(&cursor, *field, type, schema, field->member(out), at, depth);
    }
  }

 private:
  void value(Cursor* cursor, const Field& field, WireType type, const Schema& schema, void* member, const char* at,
             int depth) {
    switch (field.wire) {
      case Wire::kMessage: {
        const std::string_view body = length_delimited(cursor, field, type, schema, at);
        const Schema& sub = field.message_schema();
        if (field.repeated) spend(sub.bytes, at);
        message(body, sub, field.add_message(member), depth + 1);
        return;
      }
      case Wire::kString:
      case Wire::kBytes: {
        const std::string_view text = length_delimited(cursor, field, type, schema, at);
        if (field.store == Store::kTexts) {
          spend(sizeof(std::string_view), at);
          static_cast<std::vector<std::string_view>*>(member)->push_back(text);
        } else {
          *static_cast<std::string_view*>(member) = text;
        }
        return;
      }
      default: break;
    }
    const WireType expected = field.wire == Wire::kFloat    ? WireType::kFixed32
                              : field.wire == Wire::kDouble ? WireType::kFixed64
                                                            : WireType::kVarint;
    if (type == WireType::kBytes && field.repeated) {
      Cursor packed = cursor_of(length_delimited(cursor, field, type, schema, at));
      while (!packed.at_end()) number(&packed, field, expected, schema, member, at);
      return;
    }
    if (type != expected) wrong_type(field, type, wire_type_name(expected), schema, at);
    number(cursor, field, expected, schema, member, at);
  }

  void number(Cursor* cursor, const Field& field, WireType type, const Schema& schema, void* member, const char* at) {
    std::uint64_t bits = 0;
    const bool ok = type == WireType::kVarint    ? cursor->varint(&bits)
                    : type == WireType::kFixed32 ? cursor->fixed(4, &bits)
                                                 : cursor->fixed(8, &bits);
    if (!ok) fail(at, describe(field, schema) + " does not end", kTruncated);
    switch (field.store) {
      case Store::kInt64: *static_cast<std::int64_t*>(member) = static_cast<std::int64_t>(bits); return;
      case Store::kInt32: *static_cast<std::int32_t*>(member) = static_cast<std::int32_t>(bits); return;
      case Store::kBool: *static_cast<bool*>(member) = bits != 0; return;
      case Store::kDouble:
        *static_cast<double*>(member) = type == WireType::kFixed32 ? float_of(bits) : double_of(bits);
        return;
      case Store::kInts: {
        auto& values = *static_cast<Ints*>(member);
        if (field.literal_data && values.size() > kMaxLiteralElements) return;
        values.push_back(static_cast<std::int64_t>(bits));
        return;
      }
      case Store::kDoubles: {
        auto& values = *static_cast<std::vector<double>*>(member);
        if (field.literal_data && values.size() > kMaxLiteralElements) return;
        values.push_back(type == WireType::kFixed32 ? float_of(bits) : double_of(bits));
        return;
      }
      case Store::kText:
      case Store::kTexts:
      case Store::kMessage: return;  // not numbers
    }
  }

  std::string_view length_delimited(Cursor* cursor, const Field& field, WireType type, const Schema& schema,
                                    const char* at) {
    if (type != WireType::kBytes) wrong_type(field, type, wire_type_name(WireType::kBytes), schema, at);
    std::uint64_t size = 0;
    if (!cursor->varint(&size)) fail(at, describe(field, schema) + " has no valid length", kTruncated);
    if (size > cursor->left()) {
      fail(at,
           describe(field, schema) + " says " + std::to_string(size) + " bytes, but only " +
               std::to_string(cursor->left()) + " are left",
           kTruncated);
    }
    const std::string_view body(cursor->p, static_cast<std::size_t>(size));
    cursor->p += size;
    return body;
  }

  void spend(std::size_t bytes, const char* at) {
    if (!budget_.take(bytes)) fail(at, "far more messages than a module of this size can hold");
  }

  static std::string describe(const Field& field, const Schema& schema) {
    return std::string(schema.message) + "." + std::string(field.name);
  }
  [[noreturn]] void wrong_type(const Field& field, WireType type, const std::string& expected, const Schema& schema,
                               const char* at) const {
    fail(at, describe(field, schema) + " is written as a " + wire_type_name(type) + " field, expected " + expected);
  }
  [[noreturn]] void fail(const char* at, const std::string& message,
                         const std::string& hint = "the file is damaged, or no HLO protobuf at all") const {
    throw Error(ErrorKind::kData, source_ + ": byte " + std::to_string(at - all_.data()) + ": " + message, hint);
  }

  static constexpr const char* kTruncated = "the file is cut short or damaged; write it again";

  std::string_view all_;
  const std::string& source_;
  Budget budget_;
};

bool is_text(std::string_view s) {
  for (const char c : s) {
    const auto u = static_cast<unsigned char>(c);
    if (u < 0x20 && c != '\t' && c != '\n' && c != '\r') return false;
  }
  return true;
}

// True if a message could be an HloInstructionProto: an opcode of letters and dashes in field 2, and a text or nothing
// in field 1.
bool is_instruction(std::string_view bytes) {
  Cursor cursor = cursor_of(bytes);
  bool has_opcode = false;
  while (!cursor.at_end()) {
    std::uint32_t number = 0;
    WireType type = WireType::kVarint;
    if (!cursor.tag(&number, &type)) return false;
    if (number > 2) {
      if (!cursor.skip(type)) return false;
      continue;
    }
    std::string_view s;
    if (type != WireType::kBytes || !cursor.bytes(&s) || !is_text(s)) return false;
    if (number != 2) continue;
    for (const char c : s) {
      if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_')) {
        return false;
      }
    }
    has_opcode = !s.empty();
  }
  return has_opcode;
}

bool is_computation(std::string_view bytes) {
  Cursor cursor = cursor_of(bytes);
  bool has_instruction = false;
  while (!cursor.at_end()) {
    std::uint32_t number = 0;
    WireType type = WireType::kVarint;
    if (!cursor.tag(&number, &type)) return false;
    if (number == 2 && type == WireType::kBytes && !has_instruction) {
      std::string_view s;
      if (!cursor.bytes(&s) || !is_instruction(s)) return false;
      has_instruction = true;
    } else if (!cursor.skip(type)) {
      return false;
    }
  }
  return has_instruction;
}

// Field 1 (a name) is text, and the first field 3 is a computation.
bool is_module(std::string_view bytes) {
  Cursor cursor = cursor_of(bytes);
  bool has_computation = false;
  while (!cursor.at_end()) {
    std::uint32_t number = 0;
    WireType type = WireType::kVarint;
    if (!cursor.tag(&number, &type)) return false;
    std::string_view s;
    if (number == 3 && type == WireType::kBytes && !has_computation) {
      if (!cursor.bytes(&s) || !is_computation(s)) return false;
      has_computation = true;
    } else if (number == 1) {
      if (type != WireType::kBytes || !cursor.bytes(&s) || !is_text(s)) return false;
    } else if (!cursor.skip(type)) {
      return false;
    }
  }
  return has_computation;
}

// The nearest messages inside `bytes` that are modules, breadth first. Every level reads the bytes once.
std::vector<std::string_view> find_wire_modules(std::string_view bytes) {
  constexpr int kMaxWrappers = 4;
  constexpr std::size_t kMaxCandidates = 1 << 16;
  std::vector<std::string_view> level = {bytes};
  for (int depth = 0; depth <= kMaxWrappers && !level.empty(); ++depth) {
    std::vector<std::string_view> modules, next;
    for (const std::string_view candidate : level) {
      if (is_module(candidate)) modules.push_back(candidate);
    }
    if (!modules.empty()) return modules;
    for (const std::string_view candidate : level) {
      Cursor cursor = cursor_of(candidate);
      std::vector<std::string_view> inner;
      bool valid = true;
      while (!cursor.at_end() && inner.size() < kMaxCandidates) {
        std::uint32_t number = 0;
        WireType type = WireType::kVarint;
        std::string_view s;
        valid = cursor.tag(&number, &type) && (type == WireType::kBytes ? cursor.bytes(&s) : cursor.skip(type));
        if (!valid) break;
        if (type == WireType::kBytes && !s.empty()) inner.push_back(s);
      }
      if (valid && next.size() < kMaxCandidates) next.insert(next.end(), inner.begin(), inner.end());
    }
    level = std::move(next);
  }
  return {};
}

}  // namespace

bool looks_like_protobuf(std::string_view bytes) {
  Cursor cursor = cursor_of(bytes);
  while (!cursor.at_end()) {
    std::uint32_t number = 0;
    WireType type = WireType::kVarint;
    if (!cursor.tag(&number, &type) || number >= (1u << 20) || !cursor.skip(type)) return false;
  }
  return !bytes.empty();
}

HloModuleProto decode_binary(std::string_view bytes, const std::string& source) {
  const std::vector<std::string_view> modules = find_wire_modules(bytes);
  if (modules.size() > 1) {
    throw Error(ErrorKind::kData,
                source + ": this protobuf message holds " + std::to_string(modules.size()) + " HLO modules",
                "give one module per file");
  }
  if (modules.empty() && looks_like_protobuf(bytes)) {
    throw Error(ErrorKind::kData, source + ": a protobuf message, but no HloModuleProto with instructions in it",
                "accepted are HloProto, HloModuleProto, HloSnapshot and messages that wrap one of them");
  }
  HloModuleProto module;
  // Without a module the bytes are damaged: decoding them as the message that they begin like finds the place.
  const std::string_view body = modules.empty() ? bytes : modules.front();
  WireDecoder decoder(bytes, source);
  if (!modules.empty()) {
    decoder.message(body, module_schema(), &module, 0);
    return module;
  }
  // An HloProto starts with its module (field 1, a length beyond any name), a module with its name.
  Cursor cursor = cursor_of(bytes);
  std::uint32_t number = 0;
  std::uint64_t size = 0;
  WireType type = WireType::kVarint;
  if (cursor.tag(&number, &type) && number == 1 && type == WireType::kBytes && cursor.varint(&size) &&
      size > cursor.left()) {
    throw Error(ErrorKind::kData,
                source + ": byte 0: the module says " + std::to_string(size) + " bytes, but only " +
                    std::to_string(cursor.left()) + " are left",
                "the file is cut short or damaged; write it again");
  }
  decoder.message(body, module_schema(), &module, 0);
  throw Error(ErrorKind::kData, source + ": no HloModuleProto in these bytes",
              "accepted are HloProto, HloModuleProto, HloSnapshot and messages that wrap one of them");
}

}  // namespace automap::hlo::proto
