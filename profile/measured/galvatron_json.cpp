// Reads the compute times of Galvatron's profiler (computation_profiling_*.json). Under layertype_K_bszB_seqS stands
// the forward pass of one layer of kind K in ms a sample, measured at micro-batch B; under layertype_other_... the rest
// of the model. Older files leave out _seqS, or _bszB, too: the time is of one sample, then. layernum[...] are the
// whole models that these were made from, and keys that go on behind that (_attention, _mlp) are parts of layers:
// neither is read.
#include <algorithm>
#include <charconv>
#include <map>

#include "common/base/error.h"
#include "common/base/printable.h"
#include "profile/measured/forms.h"

namespace automap::measured {
namespace {

constexpr std::string_view kLayer = "layertype_", kWhole = "layernum[";

struct Key {
  std::string kind;  // "0", "other"
  double samples = 1, sequence = 0;
};

// Takes `prefix` and the whole number behind it from `rest`.
bool take_number(std::string_view prefix, std::string_view* rest, double* value) {
  if (!begins(*rest, prefix)) return false;
  const std::string_view digits = rest->substr(prefix.size());
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || number < 1) return false;
  *value = number;
  *rest = digits.substr(static_cast<std::size_t>(end - digits.data()));
  return true;
}

bool read_key(std::string_view text, Key* key) {
  if (!begins(text, kLayer)) return false;
  std::string_view rest = text.substr(kLayer.size());
  const std::size_t end = std::min(rest.find('_'), rest.size());
  key->kind = std::string(rest.substr(0, end));
  rest.remove_prefix(end);
  take_number("_bsz", &rest, &key->samples);
  take_number("_seq", &rest, &key->sequence);
  return rest.empty() && !key->kind.empty() &&
         (key->kind == "other" || key->kind.find_first_not_of("0123456789") == std::string::npos);
}

}  // namespace

bool is_galvatron(const Json& document) {
  if (!document.is_object()) return false;
  for (const auto& [key, value] : document.items()) {
    if (begins(key, kLayer) || begins(key, kWhole)) return true;
  }
  return false;
}

MeasuredTimes read_galvatron(const Json& document, const std::string& source) {
  MeasuredTimes out;
  out.source = source;
  out.form = "Galvatron computation profile";
  std::map<double, int> sequences;
  for (const auto& [text, value] : document.items()) {
    Key key;
    if (!read_key(text, &key)) continue;
    MeasuredTime time;
    time.named = key.kind == "other" ? Named::kOutside : Named::kEveryLayer;
    time.name = key.kind;
    time.samples = key.samples;
    time.forward_ms = checked_time(time_of_json(value, source + ": " + text) * key.samples, source + ": " + text);
    ++sequences[key.sequence];
    out.times.push_back(std::move(time));
  }
  if (out.times.empty()) {
    throw Error(ErrorKind::kData,
                source + ": a profile of Galvatron without times of layers (layertype_0_bsz8_seq2048)",
                "Galvatron's profiler writes them when it has processed what it measured");
  }
  if (sequences.size() > 1) {
    std::string all;
    for (const auto& [length, count] : sequences) {
      all += (all.empty() ? "" : ", ") + std::to_string(static_cast<int>(length));
    }
    throw Error(ErrorKind::kData, source + ": times of layers at several lengths of sequences: " + all,
                "leave those of the model's length in the file");
  }
  return out;
}

}  // namespace automap::measured
