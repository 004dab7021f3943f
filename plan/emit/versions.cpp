#include "plan/emit/versions.h"

#include <charconv>
#include <tuple>
#include <vector>

#include "common/base/check.h"
#include "common/base/error.h"

namespace automap::emit {
namespace {

struct KnownVersions {
  const char* framework;
  FrameworkVersion first, last;
  const char* otherwise;  // what is known of the others; empty: nothing
};

const std::vector<KnownVersions>& known_rows() {
  static const std::vector<KnownVersions> rows = {
      {"jax", {0, 4}, {0, 10}, ""},
      {"maxtext", {0, 1}, {0, 2}, ""},
      {"torch", {2, 6}, {2, 9}, "torch.distributed.fsdp has fully_shard from 2.6 on"},
      {"torchtitan",
       {0, 1},
       {0, 2},
       "0.3 reads no such file: it is configured in Python, where the fields of `parallelism` and `training` have the "
       "same names"},
      {"megatron", {0, 12}, {0, 16}, "they are versions of megatron-core, as pip has them"},
      {"deepspeed", {0, 15}, {0, 19}, ""},
  };
  return rows;
}

const KnownVersions& row_of(const planners::Framework& framework) {
  for (const KnownVersions& row : known_rows()) {
    if (std::string(row.framework) == framework.name) return row;
  }
  AM_CHECK(false);
}

std::string version_text(const FrameworkVersion& version) {
  return std::to_string(version.release) + "." + std::to_string(version.part);
}

bool later(const FrameworkVersion& a, const FrameworkVersion& b) {
  return std::tie(a.release, a.part) > std::tie(b.release, b.part);
}

// False for a text without two numbers.
bool parse(const std::string& text, FrameworkVersion* out) {
  const std::size_t from = text.find_first_of("0123456789");
  if (from == std::string::npos) return false;
  for (const char* prefix : {"", "v", "core_v", "core_r", "core-"}) {
    if (text.substr(0, from) != prefix) continue;
    const char* const end = text.data() + text.size();
    const auto release = std::from_chars(text.data() + from, end, out->release);
    if (release.ec != std::errc() || release.ptr == end || *release.ptr != '.') return false;
    const auto part = std::from_chars(release.ptr + 1, end, out->part);
    return part.ec == std::errc() && (part.ptr == end || std::string(".+-abrcd").find(*part.ptr) != std::string::npos);
  }
  return false;
}

}  // namespace

std::string known_versions(const planners::Framework& framework) {
  const KnownVersions& row = row_of(framework);
  return version_text(row.first) + " to " + version_text(row.last);
}

FrameworkVersion version_asked(const planners::Framework& framework, const std::string& text) {
  FrameworkVersion version;
  if (!parse(text, &version)) {
    throw Error(ErrorKind::kUsage, "--framework-version: found '" + text + "', expected a version as 0.16 or 0.16.1",
                std::string("known of ") + framework.name + ": " + known_versions(framework));
  }
  const KnownVersions& row = row_of(framework);
  if (!later(row.first, version) && !later(version, row.last)) return version;
  throw Error(ErrorKind::kUsage,
              "--framework-version: what " + std::string(framework.name) + " " + text +
                  " takes is not known, of which versions " + known_versions(framework) + " are",
              *row.otherwise != '\0' ? row.otherwise : "leave it out for the words of the newest of them");
}

}  // namespace automap::emit
