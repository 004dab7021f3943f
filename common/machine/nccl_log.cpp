#include "common/machine/nccl_log.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "common/base/error.h"
#include "common/base/number_range.h"

namespace automap::machine {
namespace {

constexpr std::size_t kMostTimes = 1000, kLongestTag = 64;
constexpr const char* kBroken = "measure again: links or libraries that give wrong results tell no times";
constexpr const char* kHint = "give the whole output of an nccl-tests program, from its first line on";

struct Word {
  std::string_view text;
  std::size_t column = 0;  // 1-based
};

std::vector<Word> words_of(std::string_view line) {
  std::vector<Word> words;
  for (std::size_t i = 0; i < line.size();) {
    if (line[i] == ' ' || line[i] == '\t' || line[i] == '\r') {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < line.size() && line[end] != ' ' && line[end] != '\t' && line[end] != '\r') ++end;
    words.push_back({line.substr(i, end - i), i + 1});
    i = end;
  }
  return words;
}

std::optional<double> number_of(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !in_file_range(value)) return std::nullopt;
  return value;
}

struct Program {
  const char* name;
  CollectiveKind operation;
};
constexpr Program kPrograms[] = {
    {"all_reduce_perf", CollectiveKind::kAllReduce}, {"reduce_scatter_perf", CollectiveKind::kReduceScatter},
    {"all_gather_perf", CollectiveKind::kAllGather}, {"alltoall_perf", CollectiveKind::kAllToAll},
    {"sendrecv_perf", CollectiveKind::kPermute},
};

class Reader {
 public:
  Reader(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  NcclLog read() {
    for (std::size_t at = 0; at < text_.size();) {
      const std::size_t end = std::min(text_.find('\n', at), text_.size());
      ++line_;
      take(text_.substr(at, end - at));
      at = end + 1;
    }
    finish();
    return std::move(log_);
  }

 private:
  [[noreturn]] void fail(std::size_t column, const std::string& what, const std::string& hint = kHint) const {
    throw Error(ErrorKind::kConfig,
                source_ + ":" + std::to_string(std::max<std::size_t>(line_, 1)) + ":" +
                    std::to_string(column + prefix_) + ": " + what,
                hint);
  }

  // Behind "[1,0]<stdout>:", which mpirun --tag-output begins lines with.
  std::string_view without_tag(std::string_view line) {
    prefix_ = 0;
    const std::size_t end = line.substr(0, 1) == "[" ? line.substr(0, kLongestTag).find(">:") : std::string_view::npos;
    if (end == std::string_view::npos) return line;
    prefix_ = end + 2;
    return line.substr(prefix_);
  }

  void take(std::string_view whole) {
    const std::string_view line = without_tag(whole);
    const bool before = named_;
    for (const Program& program : kPrograms) {
      if (line.find(program.name) == std::string_view::npos) continue;
      log_.operation = program.operation;
      named_ = true;
    }
    const std::vector<Word> words = words_of(line);
    if (words.empty()) return;
    if (!before && !named_) note_other_test(words);
    if (words[0].text.substr(0, 1) == "#") {
      header(words);
    } else if (number_of(words[0].text)) {
      row(words);
    }
    // Anything else was printed by programs around it.
  }

  void note_other_test(const std::vector<Word>& words) {
    constexpr std::string_view kEnd = "_perf";
    for (const Word& word : words) {
      const std::string_view name = word.text.substr(word.text.rfind('/') + 1);
      if (name.size() <= kEnd.size() || name.substr(name.size() - kEnd.size()) != kEnd) continue;
      other_test_ = name.substr(0, name.size() - kEnd.size());
      other_line_ = line_;
      other_column_ = word.column + prefix_;
    }
  }

  // "# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor) ...", "#  Rank  0 Group  0 Pid 5 on host ...".
  void header(const std::vector<Word>& words) {
    if (words.size() > 1 && words[1].text == "Rank") {
      ++log_.devices;
      for (std::size_t i = 2; i + 1 < words.size(); ++i) {
        if (words[i].text == "on") hosts_.insert(std::string(words[i + 1].text));
      }
    }
    if (words.size() > 1 && words[1].text == "size") {
      const auto time = std::find_if(words.begin(), words.end(), [](const Word& word) { return word.text == "time"; });
      if (time != words.end()) columns_.clear();
      for (auto word = time; word != words.end(); ++word) columns_.emplace_back(word->text);
    }
    for (std::size_t i = 1; i + 1 < words.size(); ++i) {
      if (words[i].text == "FAILED" || words[i + 1].text == "FAILED") {
        fail(words[i].column, "the test says that it FAILED", kBroken);
      }
      const std::string_view value = words[i + 1].text;
      if (words[i].text == "nThread") threads_ = number_of(value).value_or(1);
      if (words[i].text == "nGpus") gpus_ = number_of(value).value_or(0);
      if (words[i].text == "maxBytes") largest_ = number_of(value).value_or(0);
      if (words[i].text != "step:") continue;
      const std::size_t bracket = value.find('(');
      if (bracket == std::string_view::npos) continue;
      const double step = number_of(value.substr(0, bracket)).value_or(0);
      (value.substr(bracket) == "(factor)" ? factor_ : increment_) = step;
    }
  }

  // size, count, type, redop, root, then what the header names from the first time on: time, algbw, busbw, #wrong, and
  // the same in place. Programs without an operation or root leave those words out or write "none" and -1.
  void row(const std::vector<Word>& words) {
    std::size_t first = 3;
    if (first < words.size() && is_name(words[first].text)) ++first;
    if (first < words.size() && is_root(words[first].text)) ++first;
    const std::size_t found = words.size() - std::min(first, words.size());
    if (found < columns_.size()) {
      fail(words.back().column + words.back().text.size(),
           "the row ends here, expected two times, each with two bandwidths and a number of errors: " +
               columns_[found] + (found < columns_.size() / 2 ? " of the first" : " of the second") + " is missing");
    }
    const double bytes = *number_of(words[0].text);
    double ms = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const Word& word = words[first + i];
      const std::optional<double> number = number_of(word.text);
      if (columns_[i] == "#wrong" && number && *number > 0) {
        fail(word.column,
             "found " + std::string(word.text) + " wrong values, expected 0: what was computed is not right", kBroken);
      }
      if (columns_[i] != "time" || word.text == "N/A") continue;
      if (!number || (bytes > 0 && !(*number > 0))) {
        fail(word.column, "found a time of " + std::string(word.text) + " us, expected one above 0", kBroken);
      }
      ms = std::min(ms, *number * 1e-3);
    }
    check_size(words[0], bytes);
    if (!(bytes > 0)) return;
    if (!std::isfinite(ms)) fail(words[first].column, "no time in this row");
    if (!log_.times.empty() && ms < log_.times.back().ms / 2 && bytes > kSmallestFitted) {
      fail(words[first].column, "the time falls to less than half although the size grows: measured beside other work?",
           "measure again with more iterations (-n)");
    }
    if (log_.times.size() == kMostTimes) fail(1, "more than 1000 sizes");
    log_.times.push_back({bytes, ms});
  }
  static bool is_name(std::string_view text) {
    return !number_of(text) && text != "N/A" && text != "nan" && text != "-nan";
  }
  // Times have a decimal point up to 1e5.
  static bool is_root(std::string_view text) {
    const std::optional<double> number = number_of(text);
    return number && text.find('.') == std::string_view::npos && *number >= -1 && *number < 1e4;
  }

  void check_size(const Word& word, double bytes) {
    if (bytes < 0 || (last_bytes_ >= 0 && bytes <= last_bytes_)) {
      fail(word.column, "found size " + std::string(word.text) + ", expected one above that of the row before");
    }
    // Sizes are rounded down to whole elements of every rank.
    const double expected = factor_ > 1 ? last_bytes_ * factor_ : last_bytes_ + increment_;
    if (last_bytes_ >= kSmallestFitted && expected > last_bytes_ && bytes > expected * 1.1) {
      fail(word.column, "found size " + std::string(word.text) + " behind " + whole(last_bytes_) + ", expected " +
                            whole(expected) + ": a size is missing");
    }
    last_bytes_ = bytes;
  }

  static std::string whole(double value) { return std::to_string(static_cast<long long>(value)); }

  void finish() {
    prefix_ = 0;
    if (text_.find_first_not_of(" \t\r\n") == std::string_view::npos) fail(1, "the file is empty: no row of times");
    if (!named_ && !other_test_.empty()) {
      std::string known;
      for (const Program& program : kPrograms) known += (known.empty() ? "" : ", ") + std::string(program.name);
      line_ = other_line_;
      fail(other_column_, other_test_ + " is not supported; expected one of " + known,
           "give the log of one of these tests");
    }
    if (log_.times.empty()) fail(1, "no row of times");
    if (!named_) fail(1, "no line names the test", std::string(kHint) + "; the line with all_reduce_perf is missing");
    if (log_.devices < 2) {
      fail(1, "found " + std::to_string(log_.devices) + " lines of ranks (#  Rank ...), expected at least 2");
    }
    if (log_.devices < threads_ * gpus_) {
      fail(1, "found " + std::to_string(log_.devices) + " lines of ranks (#  Rank ...), expected at least " +
                  whole(threads_ * gpus_) + ", as nThread and nGpus say");
    }
    const double step = std::max(factor_ > 1 ? last_bytes_ * (factor_ - 1) : increment_, last_bytes_ * 0.1);
    if (largest_ > 0 && last_bytes_ + step <= largest_) {
      fail(1, "the log was cut: it ends at " + whole(last_bytes_) + " bytes, its first line says up to " +
                  whole(largest_));
    }
    log_.servers = std::max<int>(1, static_cast<int>(hosts_.size()));
  }

  std::string_view text_;
  const std::string& source_;
  NcclLog log_;
  std::set<std::string> hosts_;
  std::size_t line_ = 0, prefix_ = 0;  // prefix_: characters of the line that are left out
  std::vector<std::string> columns_ = {"time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong"};
  std::string other_test_;
  std::size_t other_line_ = 0, other_column_ = 0;
  double threads_ = 1, gpus_ = 0;
  bool named_ = false;
  double largest_ = 0, factor_ = 0, increment_ = 0;
  double last_bytes_ = -1;
};

}  // namespace

NcclLog parse_nccl_log(std::string_view text, const std::string& source) {
  return Reader(text, source).read();
}

}  // namespace automap::machine
