#include "common/hlo/hlo_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/graph/scan.h"
#include "common/hlo/hlo_ast_json.h"
#include "common/hlo/hlo_json.h"
#include "common/hlo/hlo_proto.h"
#include "common/hlo/hlo_text.h"
#include "common/hlo/hlo_text_proto.h"
#include "common/hlo/json_cursor.h"
#include "common/hlo/proto_graph.h"
#include "common/hlo/stablehlo.h"

namespace automap::hlo {

using namespace graph;

namespace {

constexpr const char* kFormsHint =
    "accepted are HLO text, HloProto or HloModuleProto (binary or JSON), AST-dump JSON and StableHLO, each also "
    "gzipped; from JAX: "
    "jax.jit(step).lower(*args).as_text(\"hlo\", debug_info=True)";

// The recognition of text looks at so many bytes of the input.
constexpr std::size_t kProbeBytes = 4096;

std::string_view skip_blanks(std::string_view s) {
  if (s.substr(0, 3) == "\xef\xbb\xbf") s.remove_prefix(3);
  std::size_t i = 0;
  while (i < s.size() && scan::is(scan::kSpace, s[i])) ++i;
  return s.substr(i);
}

// Control characters that no text has.
bool is_binary(std::string_view bytes) {
  const std::string_view probe = bytes.substr(0, kProbeBytes);
  std::size_t odd = 0;
  for (const char c : probe) {
    if (c == '\0') return true;
    const auto u = static_cast<unsigned char>(c);
    if (u < 0x20 && c != '\n' && c != '\t' && c != '\r' && c != '\f' && c != '\v') ++odd;
  }
  return odd > 0;
}

bool starts_with(std::string_view s, std::string_view prefix) {
  return s.substr(0, prefix.size()) == prefix;
}

// The first lines without comments, for telling text forms apart.
std::string_view first_code(std::string_view text) {
  for (;;) {
    text = skip_blanks(text);
    if (!starts_with(text, "//") && !starts_with(text, "#")) return text;
    // A '#' line is a comment in text protobufs and a location or attribute alias in MLIR ("#loc0 = loc(unknown)").
    if (starts_with(text, "#loc") ||
        (starts_with(text, "#") && text.size() > 1 && scan::is(scan::kIdentifier, text[1]) &&
         text.substr(0, text.find('\n')).find(" = ") != std::string_view::npos)) {
      return text;
    }
    const std::size_t newline = text.find('\n');
    if (newline == std::string_view::npos) return {};
    text.remove_prefix(newline);
  }
}

// A text protobuf starts with a field of one of the messages: hlo_module {, name: "x", computations {.
bool is_text_protobuf(std::string_view code) {
  for (const std::string_view field :
       {"hlo_module", "hlo", "name", "entry_computation_name", "computations", "buffer_assignment", "id"}) {
    if (!starts_with(code, field)) continue;
    std::string_view rest = code.substr(field.size());
    if (!rest.empty() && scan::is(scan::kIdentifier, rest[0])) continue;
    rest = skip_blanks(rest);
    const bool message =
        field == "hlo_module" || field == "hlo" || field == "computations" || field == "buffer_assignment";
    if (message ? starts_with(rest, "{") || starts_with(rest, ":") : starts_with(rest, ":")) {
      // A computation of HLO text may be called "name" or "computations", too: those go on differently.
      if (message && starts_with(rest, "{")) {
        const std::string_view inner = skip_blanks(rest.substr(1));
        std::size_t i = 0;
        while (i < inner.size() && scan::is(scan::kIdentifier, inner[i])) ++i;
        const std::string_view after = skip_blanks(inner.substr(i));
        return i > 0 && (starts_with(after, ":") || starts_with(after, "{"));
      }
      return true;
    }
  }
  return false;
}

// True if the outermost object has a key "Functions".
bool is_ast_dump(std::string_view text, const std::string& source) {
  std::deque<std::string> arena;
  JsonCursor json(text, source, &arena);
  std::string_view key;
  for (json.enter_object(); json.next_key(&key); json.skip()) {
    if (key == "Functions" || key == "functions") return true;
    if (key == "hloModule" || key == "hlo_module" || key == "computations") return false;
  }
  return false;
}

}  // namespace

const char* to_string(HloForm form) {
  switch (form) {
    case HloForm::kText: return "text";
    case HloForm::kProtoJson: return "proto-json";
    case HloForm::kAstJson: return "ast-json";
    case HloForm::kProtoBinary: return "proto";
    case HloForm::kProtoText: return "proto-text";
    case HloForm::kStableHlo: return "stablehlo";
  }
  return "";
}

const char* form_for_people(HloForm form) {
  switch (form) {
    case HloForm::kText: return "HLO text";
    case HloForm::kProtoJson: return "HLO as protobuf JSON";
    case HloForm::kAstJson: return "HLO as AST-dump JSON";
    case HloForm::kProtoBinary: return "HLO as binary protobuf";
    case HloForm::kProtoText: return "HLO as protobuf text";
    case HloForm::kStableHlo: return "StableHLO, made HLO by jaxlib";
  }
  return "HLO";
}

HloForm detect_hlo_form(std::string_view bytes, const std::string& source) {
  if (bytes.empty()) throw Error(ErrorKind::kData, source + ": the file is empty", kFormsHint);
  const std::string_view code = is_binary(bytes) ? std::string_view() : first_code(bytes);
  if (is_mlir_text(code) || is_mlir_bytecode(bytes) || is_jax_export(bytes)) return HloForm::kStableHlo;
  if (is_binary(bytes)) {
    const std::string_view blank_free = skip_blanks(bytes);
    if (starts_with(bytes, "\x89HDF")) {
      throw Error(ErrorKind::kData, source + ": this is an HDF5 file, not HLO",
                  "a profile goes where a profile is asked for");
    }
    if (starts_with(blank_free, "HloModule")) return HloForm::kText;  // damaged text: its reader says where
    if (proto::looks_like_protobuf(bytes)) return HloForm::kProtoBinary;
    // Fields 1 to 3 with a length are how every accepted message starts; its decoder then tells where it breaks.
    const auto first = static_cast<unsigned char>(bytes[0]);
    if (first == 0x0a || first == 0x12 || first == 0x1a) return HloForm::kProtoBinary;
    throw Error(ErrorKind::kData, source + ": binary data that is no HLO protobuf", kFormsHint);
  }
  if (starts_with(code, "{")) {
    const std::string_view rest = skip_blanks(code.substr(1));
    // JSON goes on with a key; a computation of HLO text cannot start with a brace.
    if (starts_with(rest, "\"") || starts_with(rest, "}") || rest.empty()) {
      return is_ast_dump(bytes, source) ? HloForm::kAstJson : HloForm::kProtoJson;
    }
  }
  if (starts_with(code, "[")) {
    throw Error(ErrorKind::kData,
                place_in(bytes, static_cast<std::size_t>(code.data() - bytes.data()), source) +
                    ": this is a JSON array, expected the object of an HloProto",
                kFormsHint);
  }
  if (is_text_protobuf(code)) return HloForm::kProtoText;
  if (code.empty())
    throw Error(ErrorKind::kData, source + ": the file holds nothing but blanks and comments", kFormsHint);
  if (bytes.find('{') == std::string_view::npos) {
    throw Error(ErrorKind::kData, source + ":1:1: this text is no HLO: there is no computation in it, not even a '{'",
                kFormsHint);
  }
  return HloForm::kText;
}

namespace {

Graph read_form(HloForm form, std::string bytes, const std::string& source, graph::Faults faults) {
  switch (form) {
    case HloForm::kText: return read_hlo_text(std::move(bytes), source, faults);
    case HloForm::kAstJson: return read_ast_json(bytes, source, faults);
    case HloForm::kProtoJson: {
      proto::Strings strings;
      std::vector<std::string> unknown_types;
      proto::HloModuleProto module = proto::decode_json(bytes, source, &strings, &unknown_types);
      return proto::build_graph(std::move(module), source, unknown_types, faults);
    }
    case HloForm::kProtoText: {
      proto::Strings strings;
      proto::HloModuleProto module = proto::decode_text_proto(bytes, source, &strings);
      return proto::build_graph(std::move(module), source, {}, faults);
    }
    case HloForm::kProtoBinary: return proto::build_graph(proto::decode_binary(bytes, source), source, {}, faults);
    case HloForm::kStableHlo:
      bytes = hlo_of_stablehlo(bytes, source);
      return proto::build_graph(proto::decode_binary(bytes, source + ", made HLO by jaxlib"), source, {}, faults);
  }
  throw Error(ErrorKind::kInternal, "unknown HLO form");
}

}  // namespace

Graph read_hlo_as(HloForm form, std::string bytes, const std::string& source, graph::Faults faults) {
  Graph graph = read_form(form, std::move(bytes), source, faults);
  for (const std::string& warning : graph.warnings()) log_warning(warning);
  return graph;
}

HloModule read_hlo(std::string bytes, const std::string& source) {
  HloModule module;
  module.sha256 = sha256_hex(bytes);
  bytes = gunzip_if_gzip(std::move(bytes), source);
  module.form = detect_hlo_form(bytes, source);
  module.graph = read_hlo_as(module.form, std::move(bytes), source);
  return module;
}

HloModule load_hlo(const std::string& path) {
  return read_hlo(read_file(path), input_name(path));
}

}  // namespace automap::hlo
