#include "plan/emit/read_words.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/json_object.h"
#include "common/base/printable.h"
#include "common/base/suggest.h"
#include "plan/emit/model_words.h"
#include "plan/planners/layers.h"
#include "plan/planners/score.h"

namespace automap::emit {
namespace {

[[noreturn]] void refuse_words(const std::string& what, const std::string& hint = "") {
  throw Error(ErrorKind::kUsage, "--layout: " + what, hint);
}

bool blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// As a shell splits them; a backslash in front of a line's end joins lines.
std::vector<std::string> shell_split(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool open = false;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else if (c == '\\' && quote == '"' && i + 1 < text.size()) {
        word += text[++i];
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      open = true;
    } else if (c == '\\' && i + 1 < text.size()) {
      if (text[++i] != '\n') word += text[i];
      open = open || text[i] != '\n';
    } else if (blank(c)) {
      if (open) words.push_back(std::exchange(word, ""));
      open = false;
    } else {
      word += c;
      open = true;
    }
  }
  if (quote != 0) refuse_words("a quote is open at the end");
  if (open) words.push_back(word);
  return words;
}

// A product of numbers of devices or samples, which are at most 2^31; larger ones are refused.
std::int64_t product(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (a > kMost / std::max<std::int64_t>(1, b)) refuse_words("more devices or samples than there can be");
  return a * b;
}

// Values by the framework's own names.
class WordMap {
 public:
  void set(const std::string& key, const std::string& value) { values_[key] = value; }
  bool has(const std::string& key) const { return values_.count(key) > 0; }
  std::string text(const std::string& key, const std::string& absent) const {
    read_.insert(key);
    const auto found = values_.find(key);
    return found == values_.end() ? absent : found->second;
  }
  std::int64_t number(const std::string& key, std::int64_t absent) const {
    if (!has(key)) return absent;
    const std::string value = text(key, "");
    std::int64_t number = 0;
    const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (status != std::errc() || end != value.data() + value.size() || number < 1 || number > (1 << 30)) {
      refuse_words(printable(key) + " is '" + printable(value) + "', expected a whole number from 1 on");
    }
    return number;
  }
  // As it stands; empty, and still unread: it is missing, or no number.
  std::string plain_number(const std::string& key) const {
    const auto found = values_.find(key);
    if (found == values_.end() || found->second.empty() || found->second.size() > 9) return "";
    const bool number = found->second.find_first_not_of("0123456789") == std::string::npos;
    return number ? text(key, "") : "";
  }
  double decimal(const std::string& key, double absent) const {
    if (!has(key)) return absent;
    const std::string value = text(key, "");
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    if (value.empty() || *end != '\0' || !(number > 0 && number < 1e9)) {
      refuse_words(printable(key) + " is '" + printable(value) + "', expected a number above 0");
    }
    return number;
  }
  // Refuses a number above one of something that is not planned.
  void only_one(const std::string& key, const std::string& what) const {
    if (number(key, 1) != 1) refuse_words(printable(key) + ": " + what + " is not planned", "leave it out");
  }
  std::vector<std::string> unread() const {
    std::vector<std::string> keys;
    for (const auto& [key, value] : values_) {
      if (read_.count(key) == 0) keys.push_back(key);
    }
    return keys;
  }

 private:
  std::map<std::string, std::string> values_;
  mutable std::set<std::string> read_;
};

struct WordLayout {
  std::int64_t dp = 0, pp = 1, tp = 1, samples = 0, zero = 0;
  bool recompute = false;
  std::string schedule;
  std::vector<int> layers;  // of every part; kRestOfLayers: what is left
  std::string behind;       // what the last part begins with, where it has no layer of the stack
  std::int64_t chunks = 1, layers_per_chunk = 0;
};

// The number of parts of each stage; `what` names the source of the number of all parts in errors.
std::int64_t chunks_of(std::size_t parts, std::int64_t stages, const std::string& what) {
  if (static_cast<std::int64_t>(parts) % stages != 0) {
    refuse_words(what + " has " + std::to_string(parts) + " parts for " + std::to_string(stages) +
                 " stages, expected as many for each");
  }
  return static_cast<std::int64_t>(parts) / stages;
}

std::string layout_text(const WordLayout& of) {
  std::string text = "dp=" + (of.dp > 0 ? std::to_string(of.dp) : std::string("auto")) +
                     ",pp=" + std::to_string(of.pp) + ",tp=" + std::to_string(of.tp);
  if (of.samples > 0) text += ",micro-batch-size=" + std::to_string(of.samples);
  text += ",zero=" + std::to_string(of.zero) + (of.recompute ? ",recompute=layer" : ",recompute=none");
  if (!of.schedule.empty()) text += ",schedule=" + of.schedule;
  if (of.chunks > 1) text += ",chunks=" + std::to_string(of.chunks);
  if (of.layers_per_chunk > 0) text += ",layers-per-chunk=" + std::to_string(of.layers_per_chunk);
  for (std::size_t s = 0; s < of.layers.size(); ++s) {
    const int count = of.layers[s];
    text += (s == 0 ? ",layers=" : "+") + (count == planners::kRestOfLayers ? "rest" : std::to_string(count));
  }
  // A name that a layout cannot hold is left out; the stage then begins with whatever comes first there.
  const bool plain = of.behind.find_first_of(",=") == std::string::npos;
  if (!of.behind.empty() && plain) text += ",behind=" + of.behind;
  return text;
}

// "Et*3|(tt|)*2tL": the number of layers of each stage. The grammar of megatron.core's PipelineParallelLayerLayout:
// commas are nothing, (...)*n is n times the content of the brackets, x*n is n times x.
std::vector<int> layout_counts(const std::string& word) {
  const std::string where = "pipeline-model-parallel-layout '" + printable(word) + "': ";
  std::string flat;
  for (std::size_t i = 0; i < word.size();) {
    std::string unit;
    if (word[i] == ',') {
      ++i;
      continue;
    }
    if (word[i] == '(') {
      const std::size_t close = word.find(')', i);
      if (close == std::string::npos) refuse_words(where + "a bracket is open");
      for (const char c : word.substr(i + 1, close - i - 1)) {
        if (c != ',') unit += c;
      }
      i = close + 1;
      if (i >= word.size() || word[i] != '*') refuse_words(where + "a bracket without *n behind it");
    } else {
      unit = word[i++];
    }
    std::size_t times = 1;
    if (i < word.size() && word[i] == '*') {
      const auto [end, status] = std::from_chars(word.data() + i + 1, word.data() + word.size(), times);
      if (status != std::errc() || times < 1 || times > 4096) refuse_words(where + "expected a number behind *");
      i = static_cast<std::size_t>(end - word.data());
    }
    for (std::size_t k = 0; k < times; ++k) flat += unit;
    if (flat.size() > 65536) refuse_words(where + "too long");
  }
  std::vector<int> counts = {0};
  for (std::size_t i = 0; i < flat.size(); ++i) {
    const char c = flat[i];
    if (c == '|') {
      counts.push_back(0);
    } else if (c == 't') {
      ++counts.back();
    } else if (c == 'm') {
      refuse_words(where + "layers that predict further tokens (m) are not planned");
    } else if (!(c == 'E' && i == 0) && !(c == 'L' && i + 1 == flat.size())) {
      refuse_words(where + "found '" + printable(std::string(1, c)) + "', expected E, t and L with | between stages");
    }
  }
  if (flat.empty() || flat.front() != 'E' || flat.back() != 'L') {
    refuse_words(where + "expected E first and L last");
  }
  return counts;
}

// Options with the words that follow them; words in front of the first are the launcher's program. "--key=value", too.
WordMap options_of(const std::vector<std::string>& words) {
  WordMap map;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].compare(0, 2, "--") != 0) continue;
    std::string key = words[i].substr(2), value;
    if (const std::size_t equals = key.find('='); equals != std::string::npos) {
      value = key.substr(equals + 1);
      key.resize(equals);
    } else if (i + 1 < words.size() && words[i + 1].compare(0, 2, "--") != 0) {
      value = words[i + 1];
    }
    std::replace(key.begin(), key.end(), '_', '-');
    map.set(key, value);
  }
  return map;
}

// torchrun's devices; 0: it does not say.
std::int64_t launched(const WordMap& words) {
  const std::string each = words.text("nproc-per-node", "gpu");
  if (each == "gpu" || each == "auto" || each == "N") return 0;
  return product(words.number("nproc-per-node", 1), words.number("nnodes", 1));
}

// The note about recomputation that is neither all nor nothing.
std::string counted_as_kept(const std::string& word) {
  return printable(word) +
         " is counted as if nothing were recomputed: the step takes less memory than is said here, and "
         "a little longer";
}

std::int64_t replicas_of_devices(std::int64_t devices, const WordLayout& layout) {
  if (devices == 0) return 0;
  if (devices % product(layout.pp, layout.tp) != 0) {
    refuse_words(std::to_string(devices) + " processes are no multiple of " + std::to_string(layout.pp) +
                 " stages times " + std::to_string(layout.tp) + " devices of a replica");
  }
  return devices / (layout.pp * layout.tp);
}

// `dashes` stand in front of each word. A value that is no number (of a script's variable) is not looked at.
void take_sizes(const WordMap& words, const char* SizeWord::*framework, const char* dashes, ReadWords* out) {
  for (const SizeWord& word : kSizeWords) {
    if (word.*framework == nullptr) continue;
    const std::string value = words.plain_number(word.*framework);
    if (!value.empty()) out->sizes.push_back({std::string(dashes) + word.*framework, value, word.size});
  }
}

ReadWords read_megatron(const std::vector<std::string>& all) {
  const WordMap words = options_of(all);
  WordLayout layout;
  layout.tp = words.number("tensor-model-parallel-size", 1);
  layout.pp = words.number("pipeline-model-parallel-size", 1);
  layout.samples = words.number("micro-batch-size", 0);
  for (const char* other : {"context-parallel-size", "expert-model-parallel-size"}) {
    words.only_one(other, "parallelism of sequences and experts");
  }
  for (const char* other : {"decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers"}) {
    if (words.has(other)) {
      refuse_words(std::string(other) + ": no layout has it", "say it as --pipeline-model-parallel-layout");
    }
  }
  if (words.has("pipeline-model-parallel-layout")) {
    layout.layers = layout_counts(words.text("pipeline-model-parallel-layout", ""));
    layout.chunks = chunks_of(layout.layers.size(), layout.pp, "pipeline-model-parallel-layout");
    if (layout.layers.size() == 1) layout.layers.clear();
  }
  // These arguments say nothing of a single stage; a layout contains the number itself.
  const std::int64_t per_chunk = words.number("num-layers-per-virtual-pipeline-stage", 0);
  const std::int64_t virtual_stages = words.number("num-virtual-stages-per-pipeline-rank", 0);
  if (layout.pp > 1 && layout.layers.empty()) {
    layout.layers_per_chunk = virtual_stages > 0 ? 0 : per_chunk;
    if (virtual_stages > 0) layout.chunks = virtual_stages;
  }
  const std::string sharding = words.text("data-parallel-sharding-strategy", "no_shard");
  const std::map<std::string, int> levels = {
      {"no_shard", 0}, {"optim", 1}, {"optim_grads", 2}, {"optim_grads_params", 3}};
  const auto level = levels.find(sharding);
  if (level == levels.end()) refuse_words("data-parallel-sharding-strategy: found '" + printable(sharding) + "'");
  // Its name before core 0.14, too.
  const bool fsdp = words.has("use-megatron-fsdp") || words.has("use-custom-fsdp");
  layout.zero = fsdp ? level->second : words.has("use-distributed-optimizer") ? 1 : 0;
  words.text("use-distributed-optimizer", "");
  // Megatron's short word for the selective granularity.
  const bool selective = words.has("recompute-activations");
  words.text("recompute-activations", "");
  const std::string granularity = words.text("recompute-granularity", selective ? "selective" : "none");
  const bool uniform =
      words.text("recompute-method", "uniform") == "uniform" && words.number("recompute-num-layers", 1) == 1;
  if (granularity != "none" && granularity != "selective" && (granularity != "full" || !uniform)) {
    refuse_words("recompute-granularity " + printable(granularity) +
                 ": what is planned is full, uniform, of 1 layer; selective is counted as nothing");
  }
  layout.recompute = granularity == "full";
  layout.schedule = "1f1b";
  layout.dp = replicas_of_devices(launched(words), layout);
  ReadWords out;
  out.framework = "megatron";
  if (granularity == "selective") out.notes.push_back(counted_as_kept("recompute-granularity selective"));
  out.layout = layout_text(layout);
  out.batch = words.number("global-batch-size", 0);
  out.batch_word = "--global-batch-size " + std::to_string(out.batch);
  take_sizes(words, &SizeWord::megatron, "--", &out);
  out.dtype = words.has("bf16") ? "bf16" : words.has("fp16") ? "f16" : "";
  out.overlap = fsdp || words.has("overlap-grad-reduce");
  if (layout.tp > 1) out.sequence_parallel = words.has("sequence-parallel");
  for (const char* read :
       {"use-megatron-fsdp", "use-custom-fsdp", "overlap-grad-reduce", "overlap-param-gather", "sequence-parallel",
        "ckpt-format", "no-gradient-accumulation-fusion", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "node-rank",
        "master-addr", "master-port", "group-query-attention", "max-position-embeddings", "bf16", "fp16"}) {
    words.text(read, "");
  }
  out.ignored = words.unread();
  for (std::string& option : out.ignored) {
    // A slip would be another layout without a word.
    const std::string near =
        closest_name(option, {"tensor-model-parallel-size", "pipeline-model-parallel-size", "micro-batch-size",
                              "global-batch-size", "use-distributed-optimizer"});
    if (!near.empty()) refuse_words("--" + printable(option) + " is not known", "did you mean --" + near + "?");
    option = "--" + option;
  }
  return out;
}

ReadWords read_maxtext(const WordMap& words) {
  const auto axis = [&](const std::string& name) {
    return product(words.number("dcn_" + name + "_parallelism", 1), words.number("ici_" + name + "_parallelism", 1));
  };
  for (const char* other : {"fsdp_transpose", "sequence", "context", "context_autoregressive", "tensor_transpose",
                            "expert", "autoregressive"}) {
    if (axis(other) != 1) refuse_words(std::string(other) + " parallelism is not planned", "leave it out");
  }
  if (words.text("ici_fsdp_parallelism", "-1") == "-1") {
    refuse_words("ici_fsdp_parallelism is -1, as it is where nothing is said: all devices that are left",
                 "say their number");
  }
  WordLayout layout;
  const std::int64_t data = axis("data"), fsdp = axis("fsdp"), sequence = axis("tensor_sequence");
  if (data > 1 && fsdp > 1) refuse_words("replicas of sharded replicas (data and fsdp) are not planned");
  layout.dp = product(data, fsdp);
  layout.pp = axis("pipeline");
  layout.tp = product(axis("tensor"), sequence);
  layout.zero = fsdp > 1 ? 3 : 0;
  const std::string policy = words.text("remat_policy", "full");
  const bool keeps_some = policy.rfind("save_", 0) == 0 || policy == "minimal_flash" || policy == "minimal";
  if (policy != "full" && policy != "minimal_with_context" && !keeps_some) {
    refuse_words("remat_policy " + printable(policy) + ": what is planned is full, or minimal_with_context (nothing)");
  }
  layout.recompute = policy == "full";
  const std::int64_t devices = product(product(layout.dp, layout.pp), layout.tp);
  const double at_once = words.decimal("per_device_batch_size", 12) * static_cast<double>(devices);
  const std::int64_t steps = words.number("gradient_accumulation_steps", 1);
  const std::int64_t parts = layout.pp > 1 ? words.number("num_pipeline_microbatches", layout.pp) : 1;
  const double samples = at_once / static_cast<double>(product(parts, layout.dp));
  if (samples < 1 || samples != std::floor(samples)) {
    refuse_words("per_device_batch_size leaves " + Json(samples).dump() + " samples of a micro-batch for each replica");
  }
  if (layout.pp > 1 && steps > 1) refuse_words("gradient_accumulation_steps of a pipeline are not planned");
  layout.samples = static_cast<std::int64_t>(samples);
  layout.schedule = layout.pp > 1 ? "gpipe" : "1f1b";
  ReadWords out;
  out.framework = "maxtext";
  if (keeps_some) out.notes.push_back(counted_as_kept("remat_policy " + policy));
  out.layout = layout_text(layout);
  out.batch = product(static_cast<std::int64_t>(at_once), steps);
  out.batch_word = "per_device_batch_size=" + words.text("per_device_batch_size", "12");
  if (!words.has("per_device_batch_size")) out.batch_word += " (MaxText's default)";
  take_sizes(words, &SizeWord::maxtext, "", &out);
  if (layout.tp > 1) out.sequence_parallel = sequence > 1;
  out.maxtext_name = words.text("model_name", "");
  const std::string type = words.text("dtype", "");
  out.dtype = type == "bfloat16" ? "bf16" : type == "float16" ? "f16" : type == "float32" ? "f32" : "";
  for (const char* read : {"base_config", "num_layers_per_pipeline_stage", "CUDA_VISIBLE_DEVICES"})
    words.text(read, "");
  out.ignored = words.unread();
  return out;
}

// A list of lists of names, of TOML or Python, that begins at `at`, and where it ends.
struct NamedLists {
  std::vector<std::vector<std::string>> lists;
  std::size_t end = 0;
};
NamedLists named_lists(std::string_view text, std::size_t at) {
  NamedLists out;
  int depth = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '[') {
      if (++depth == 2) out.lists.emplace_back();
    } else if (c == ']') {
      if (--depth == 0) break;
    } else if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == '"' || c == '\'') {
      std::string name;
      for (++at; at < text.size() && text[at] != c; ++at) {
        if (text[at] == '\\' && at + 1 < text.size()) ++at;
        name += text[at];
      }
      if (!out.lists.empty()) out.lists.back().push_back(name);
    }
  }
  out.end = std::min(at + 1, text.size());
  return out;
}

// Counts, for each inner list of names ("layers.3", "h_3"), its layers of the largest stack, and finds the name that
// the last list begins with where it has no layer.
void take_modules(std::string_view text, std::size_t at, WordLayout& layout) {
  std::vector<std::map<std::string, int>> parts;
  std::map<std::string, int> all;
  const std::vector<std::vector<std::string>> lists = named_lists(text, at).lists;
  for (const std::vector<std::string>& names : lists) {
    parts.emplace_back();
    for (std::string name : names) {
      std::replace(name.begin(), name.end(), '.', '/');
      if (const auto number = planners::layer_number(name)) ++parts.back()[number->stack], ++all[number->stack];
    }
  }
  const auto most =
      std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const std::map<std::string, int>& part : parts) {
    const auto found = most == all.end() ? part.end() : part.find(most->first);
    layout.layers.push_back(found == part.end() ? 0 : found->second);
  }
  if (!lists.empty() && !lists.back().empty() && layout.layers.back() == 0) layout.behind = lists.back().front();
}

// "key = value" of tables, "table.key" -> value; a list stays as it stands.
WordMap toml_words(std::string_view text) {
  WordMap map;
  std::string table;
  const auto trimmed = [](std::string_view of) {
    const std::size_t from = of.find_first_not_of(" \t\r\n");
    return from == std::string_view::npos ? std::string()
                                          : std::string(of.substr(from, of.find_last_not_of(" \t\r\n") + 1 - from));
  };
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = std::min(text.find('\n', i), text.size());
    const std::string line = trimmed(text.substr(i, end - i));
    const std::size_t equals = text.find('=', i);
    i = end + 1;
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == '[') {
      table = line.substr(1, line.find(']') - 1);
      continue;
    }
    if (equals >= end) continue;
    const std::string key = line.substr(0, line.find_first_of(" \t="));
    const std::size_t at = std::min(text.find_first_not_of(" \t", equals + 1), end);
    std::string value;
    if (at < end && text[at] == '[') {
      const std::size_t behind = named_lists(text, at).end;
      value = text.substr(at, behind - at);
      i = std::max(i, behind);
    } else if (at < end && (text[at] == '"' || text[at] == '\'')) {
      value = text.substr(at + 1, std::min(text.find(text[at], at + 1), end) - at - 1);
    } else {
      value = trimmed(text.substr(at, std::min(text.find('#', at), end) - at));
    }
    map.set(table + "." + key, value);
  }
  return map;
}

// "["layers.17", "layers.33"]" of torchtitan before 0.2: the modules that begin parts but the first.
std::vector<int> counts_of_points(const std::string& points) {
  std::vector<int> counts;
  int before = 0;
  const std::string nested = "[" + points + "]";
  const std::vector<std::vector<std::string>> lists = named_lists(nested, 0).lists;
  if (lists.size() != 1) {
    refuse_words("pipeline_parallel_split_points is '" + printable(points) + "', expected a list of names in quotes");
  }
  for (std::string name : lists.front()) {
    std::replace(name.begin(), name.end(), '.', '/');
    const auto number = planners::layer_number(name);
    if (!number || number->index <= before) {
      refuse_words("pipeline_parallel_split_points: found " + printable(name) + ", expected layers in their order",
                   "what begins a part is counted in layers: give the plan that the file was made of, --plan FILE");
    }
    counts.push_back(static_cast<int>(number->index) - before);
    before = static_cast<int>(number->index);
  }
  counts.push_back(planners::kRestOfLayers);
  return counts;
}

// The number of parts of each stage: several under an interleaved schedule only.
std::int64_t parts_of_schedule(const WordLayout& layout, bool interleaved, const std::string& what) {
  const std::int64_t chunks = chunks_of(layout.layers.size(), layout.pp, what);
  if (chunks > 1 && !interleaved) {
    refuse_words(
        what + " has " + std::to_string(layout.layers.size()) + " parts for " + std::to_string(layout.pp) + " stages",
        "several parts for a stage are of the schedule Interleaved1F1B");
  }
  return chunks;
}

ReadWords read_torchtitan(const WordMap& words) {
  WordLayout layout;
  const auto degree = [&](const char* key) { return words.number(std::string("parallelism.") + key, 1); };
  for (const char* other : {"context_parallel_degree", "expert_parallel_degree"}) {
    words.only_one(std::string("parallelism.") + other, "parallelism of sequences and experts");
  }
  const std::int64_t replicate = degree("data_parallel_replicate_degree");
  const bool rest = words.text("parallelism.data_parallel_shard_degree", "-1") == "-1";
  if (rest && replicate > 1) {
    refuse_words("data_parallel_shard_degree is -1, all devices that are left, beside data_parallel_replicate_degree",
                 "say their number; replicas of sharded replicas (HSDP) are not planned");
  }
  const std::int64_t shard = rest ? 1 : degree("data_parallel_shard_degree");
  if (replicate > 1 && shard > 1) refuse_words("replicas of sharded replicas (HSDP) are not planned");
  layout.dp = rest ? 0 : product(replicate, shard);
  layout.tp = degree("tensor_parallel_degree");
  layout.pp = degree("pipeline_parallel_degree");
  const std::string reshard = words.text("parallelism.fsdp_reshard_after_forward", "default");
  const bool keeps = reshard == "never" || (reshard == "default" && layout.pp > 1);
  layout.zero = rest || shard > 1 ? (keeps ? 2 : 3) : 0;
  const std::string mode = words.text("activation_checkpoint.mode", "selective");
  if (mode != "full" && mode != "none" && mode != "selective") {
    refuse_words("activation_checkpoint.mode " + printable(mode) +
                 ": what is planned is full or none; selective is counted as none");
  }
  layout.recompute = mode == "full";
  const std::int64_t local = words.number("training.local_batch_size", 8);
  const std::int64_t part = words.number("parallelism.pipeline_parallel_microbatch_size", 1);
  layout.samples = layout.pp > 1 ? part : local;
  layout.schedule = "1f1b";
  if (layout.pp > 1) {
    const std::string schedule = words.text("parallelism.pipeline_parallel_schedule", "1F1B");
    if (!words.text("parallelism.pipeline_parallel_schedule_csv", "").empty()) {
      refuse_words("pipeline_parallel_schedule_csv names lists of work, which a layout does not say",
                   "give the plan that the file was made of: --plan FILE");
    }
    if (schedule != "1F1B" && schedule != "GPipe" && schedule != "Interleaved1F1B") {
      refuse_words("pipeline_parallel_schedule " + printable(schedule) +
                   ": what is planned is 1F1B, GPipe or Interleaved1F1B");
    }
    layout.schedule = schedule == "GPipe" ? "gpipe" : "1f1b";
    const std::string modules = words.text("parallelism.module_fqns_per_model_part", "");
    const std::string points = words.text("parallelism.pipeline_parallel_split_points", "");
    if (modules.empty() && points.empty()) {
      refuse_words(
          "parallelism.module_fqns_per_model_part is missing: torchtitan's own split has fewer layers in the "
          "first stage and the last",
          "give the file that it stands in");
    }
    if (modules.empty()) {
      layout.layers = counts_of_points(points);
    } else {
      take_modules(modules, 0, layout);
    }
    layout.chunks =
        parts_of_schedule(layout, schedule == "Interleaved1F1B",
                          modules.empty() ? "pipeline_parallel_split_points" : "module_fqns_per_model_part");
  }
  ReadWords out;
  out.framework = "torchtitan";
  out.overlap = true;
  out.layout = layout_text(layout);
  if (mode == "selective") out.notes.push_back(counted_as_kept("activation_checkpoint.mode selective"));
  const bool said = words.text("training.global_batch_size", "-1") != "-1";
  if (said) out.batch_word = "training.global_batch_size " + words.text("training.global_batch_size", "");
  take_sizes(words, &SizeWord::torchtitan, "", &out);
  out.batch = said ? words.number("training.global_batch_size", 0) : product(local, layout.dp);
  // As many devices as are left: each has a local batch.
  if (out.batch == 0) out.micro_batches = std::max<std::int64_t>(1, local / layout.samples);
  out.ignored = words.unread();
  return out;
}

// The configuration, and behind it, if it likes, the file of stages.
ReadWords read_deepspeed(std::string_view text) {
  const std::size_t script = text.find("\n}\n\"\"\"");
  const std::string_view stages = script == std::string_view::npos ? "" : text.substr(script);
  if (script != std::string_view::npos) text = text.substr(0, script + 2);
  Json json;
  try {
    json = Json::parse(text);
  } catch (const JsonError& e) {
    refuse_words(std::string("no JSON: ") + e.what());
  }
  constexpr int kMany = 1 << 30;
  const JsonObject config(json, "--layout");
  // Values that Hugging Face's Trainer fills in from its own arguments.
  const auto is_auto = [&](const char* key) {
    return json.is_object() && json.contains(key) && json.at(key) == "auto";
  };
  if (is_auto("train_micro_batch_size_per_gpu")) {
    refuse_words("train_micro_batch_size_per_gpu is \"auto\", which the file does not say",
                 "write the Trainer's per_device_train_batch_size there");
  }
  const auto inner = [&](const char* key, const char* member, int smallest, int absent) {
    if (!config.has(key)) return absent;
    return JsonObject(config.at(key), config.where(key)).integer_or(member, smallest, kMany, absent);
  };
  WordLayout layout;
  const bool sized = config.has("train_batch_size") && !is_auto("train_batch_size");
  const int batch = sized ? config.integer("train_batch_size", 1, kMany) : 0;
  layout.samples = config.integer("train_micro_batch_size_per_gpu", 1, kMany);
  const int steps =
      is_auto("gradient_accumulation_steps") ? 1 : config.integer_or("gradient_accumulation_steps", 1, kMany, 1);
  layout.zero = inner("zero_optimization", "stage", 0, 0);
  layout.tp = inner("tensor_parallel", "autotp_size", 1, 1);
  layout.pp = inner("pipeline", "stages", 1, 1);
  const std::int64_t of_replica = product(layout.samples, steps);
  if (batch % of_replica != 0) {
    refuse_words(
        "train_batch_size is not train_micro_batch_size_per_gpu times gradient_accumulation_steps times "
        "replicas");
  }
  layout.dp = batch / of_replica;  // 0: as many as there are devices for
  std::optional<JsonObject> zero;
  if (config.has("zero_optimization")) zero.emplace(config.at("zero_optimization"), config.where("zero_optimization"));
  for (const char* offload : {"offload_optimizer", "offload_param"}) {
    if (!zero || !zero->has(offload)) continue;
    const JsonObject how(zero->at(offload), zero->where(offload));
    if (how.has("device") && how.text("device") == "none") continue;
    refuse_words(std::string("zero_optimization.") + offload + ": state in the host's memory is not planned",
                 "leave it out: the plan then says what devices would have to hold");
  }
  layout.recompute = config.has("activation_checkpointing");
  layout.schedule = "1f1b";
  if (const std::size_t at = stages.find("\nSTAGES = ["); at != std::string_view::npos && layout.pp > 1) {
    take_modules(stages, at, layout);
    layout.recompute = stages.find("\nRECOMPUTE = True") != std::string_view::npos;
    constexpr std::string_view kWidth = "\nWIDTH = ";
    if (const std::size_t width = stages.find(kWidth); width != std::string_view::npos) {
      layout.tp = std::max<std::int64_t>(1, std::atoi(std::string(stages.substr(width + kWidth.size(), 9)).c_str()));
    }
    if (static_cast<std::int64_t>(layout.layers.size()) != layout.pp) {
      refuse_words("STAGES are " + std::to_string(layout.layers.size()) + ", pipeline.stages " +
                   std::to_string(layout.pp));
    }
  } else if (layout.pp > 1) {
    refuse_words("the stages of a pipeline stand in the file beside the configuration",
                 "give both: \"$(cat ds.json ds_stages.py)\"");
  }
  for (const char* other : {"sequence_parallel_size", "moe", "expert_parallel_size"}) {
    if (config.has(other) && !(config.at(other).is_number() && config.at(other).get<double>() == 1)) {
      refuse_words(std::string(other) + ": parallelism of sequences and experts is not planned", "leave it out");
    }
  }
  ReadWords out;
  out.framework = "deepspeed";
  out.layout = layout_text(layout);
  out.batch = batch;
  out.batch_word = "train_batch_size " + std::to_string(batch);
  const auto on = [&](const char* key) {
    return config.has(key) && json.at(key).is_object() && json.at(key).contains("enabled") &&
           json.at(key).at("enabled") == true;
  };
  out.dtype = on("bf16") ? "bf16" : on("fp16") ? "f16" : "";
  if (batch == 0) out.micro_batches = steps;
  if (is_auto("gradient_accumulation_steps")) {
    out.notes.emplace_back("gradient_accumulation_steps \"auto\" is counted as 1, the Trainer's default");
  }
  // A pipeline's are summed behind the backward pass, whatever it says.
  if (layout.pp == 1 && zero && zero->has("overlap_comm")) out.overlap = zero->flag("overlap_comm");
  return out;
}

// "NAME = value" of lines that begin with a name in capitals, without comments.
WordMap python_words(std::string_view text) {
  WordMap map;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = std::min(text.find('\n', i), text.size());
    const std::string_view line = text.substr(i, end - i);
    i = end + 1;
    const std::size_t name = line.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
    if (name == 0 || name == std::string_view::npos || line.substr(name, 3) != " = ") continue;
    const std::string_view value = line.substr(name + 3);
    map.set(std::string(line.substr(0, name)), std::string(value.substr(0, value.find("  #"))));
  }
  return map;
}

bool python_bool(const std::string& name, const std::string& value) {
  if (value != "True" && value != "False") {
    refuse_words(name + " is '" + printable(value) + "', expected True or False");
  }
  return value == "True";
}

// The script that torch_script.cpp writes.
ReadWords read_torch(std::string_view text) {
  const WordMap words = python_words(text);
  WordLayout layout;
  layout.pp = words.number("STAGES", 1);
  layout.dp = words.number("REPLICAS", 1);
  layout.tp = words.number("WIDTH", 1);
  layout.samples = words.number("SAMPLES", 1);
  layout.zero = words.text("ZERO", "0") == "0" ? 0 : words.number("ZERO", 0);
  const std::string again = words.text("RECOMPUTE", "[False]");
  layout.recompute = again.find("True") != std::string::npos;
  if (layout.recompute && again.find("False") != std::string::npos) {
    refuse_words("RECOMPUTE is " + printable(again) + ": a layout says it of all stages alike",
                 "give the plan that the script was made of: --plan FILE");
  }
  layout.schedule = "1f1b";
  if (layout.pp > 1) {
    const std::string schedule = words.text("SCHEDULE", "Schedule1F1B");
    if (words.text("ORDER", "[]") != "[]") {
      refuse_words("ORDER has lists of work, which a layout does not say",
                   "give the plan that the script was made of: --plan FILE");
    }
    const bool interleaved = schedule == "ScheduleInterleaved1F1B";
    if (schedule != "Schedule1F1B" && schedule != "ScheduleGPipe" && !interleaved) {
      refuse_words("SCHEDULE is " + printable(schedule) +
                   ": what is planned is Schedule1F1B, ScheduleGPipe or ScheduleInterleaved1F1B");
    }
    layout.schedule = schedule == "ScheduleGPipe" ? "gpipe" : "1f1b";
    const std::size_t modules = text.find("\nMODULES = [");
    if (modules != std::string_view::npos) take_modules(text, modules, layout);
    layout.chunks = parts_of_schedule(layout, interleaved, "MODULES");
  }
  ReadWords out;
  out.framework = "torch";
  out.overlap = true;
  out.layout = layout_text(layout);
  out.batch = product(product(layout.dp, layout.samples), words.number("MICRO_BATCHES", 1));
  return out;
}

// The file that emit_mesh.cpp writes.
ReadWords read_jax(std::string_view text) {
  const WordMap words = python_words(text);
  Json mesh;
  try {
    mesh = Json::parse(words.text("MESH", "{}"));
  } catch (const JsonError& e) {
    refuse_words(std::string("MESH: ") + e.what());
  }
  const auto axis = [&](const char* name) -> std::int64_t {
    if (!mesh.is_object() || !mesh.contains(name) || !mesh.at(name).is_number_integer() ||
        mesh.at(name).get<double>() < 1 || mesh.at(name).get<double>() > 1 << 30) {
      refuse_words("MESH: expected how many devices \"" + std::string(name) + "\" has");
    }
    return mesh.at(name).get<std::int64_t>();
  };
  WordLayout layout;
  layout.pp = axis("stage");
  layout.dp = axis("data");
  layout.tp = axis("model");
  layout.samples = words.number("SAMPLES", 1);
  layout.zero = words.text("ZERO", "0") == "0" ? 0 : words.number("ZERO", 0);
  layout.recompute = python_bool("RECOMPUTE", words.text("RECOMPUTE", "False"));
  layout.schedule = layout.pp > 1 ? "gpipe" : "1f1b";
  ReadWords out;
  out.framework = "jax";
  out.layout = layout_text(layout);
  out.batch = product(product(layout.dp, layout.samples), words.number("MICRO_BATCHES", 1));
  if (layout.tp > 1) {
    out.sequence_parallel = python_bool("SEQUENCE_PARALLEL", words.text("SEQUENCE_PARALLEL", "False"));
  }
  return out;
}

}  // namespace

std::optional<ReadWords> read_words(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return std::nullopt;
  text.remove_prefix(first);
  if (text.front() == '{') return read_deepspeed(text);
  if (text.find("\nimport ") != std::string_view::npos) {
    if (text.find("\nSPLIT_BEFORE = ") != std::string_view::npos) return read_torch(text);
    if (text.find("\nMESH = ") != std::string_view::npos) return read_jax(text);
    refuse_words("a script of Python that automap-emit has not written is not read",
                 "give the plan that it was made of: --plan FILE");
  }
  if (text.find("module_fqns_per_model_part =") != std::string_view::npos ||
      (text.find("[parallelism]") != std::string_view::npos)) {
    return read_torchtitan(toml_words(text));
  }
  const bool options = text.substr(0, 2) == "--" || text.find(" --") != std::string_view::npos;
  if (options && text.find("--parallelism.") != std::string_view::npos) {
    WordMap map;
    const std::vector<std::string> words = shell_split(text);
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      if (words[i].compare(0, 2, "--") == 0 && words[i].find('.') != std::string::npos) {
        map.set(words[i].substr(2), words[i + 1]);
      }
    }
    return read_torchtitan(map);
  }
  if (options) return read_megatron(shell_split(text));
  if (text.find("_parallelism") == std::string_view::npos) return std::nullopt;
  WordMap map;
  if (text.find('=') != std::string_view::npos) {
    for (const std::string& word : shell_split(text)) {
      const std::size_t equals = word.find('=');
      if (equals != std::string::npos) map.set(word.substr(0, equals), word.substr(equals + 1));
    }
    return read_maxtext(map);
  }
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = std::min(text.find('\n', i), text.size());
    const std::vector<std::string> words = shell_split(text.substr(i, end - i));
    i = end + 1;
    if (words.size() == 2 && words[0].size() > 1 && words[0].back() == ':') {
      map.set(words[0].substr(0, words[0].size() - 1), words[1]);
    }
  }
  return read_maxtext(map);
}

}  // namespace automap::emit
