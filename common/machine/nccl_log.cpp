#include "common/machine/nccl_log.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "common/base/error.h"

namespace automap::machine {
namespace {

constexpr std::size_t kMostTimes = 1000;
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
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

struct Program {
  const char* name;
  Operation operation;
};
constexpr Program kPrograms[] = {
    {"all_reduce_perf", Operation::kAllReduce}, {"reduce_scatter_perf", Operation::kReduceScatter},
    {"all_gather_perf", Operation::kAllGather}, {"alltoall_perf", Operation::kAllToAll},
    {"sendrecv_perf", Operation::kSend},
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
    throw Error(ErrorKind::kConfig, source_ + ":" + std::to_string(line_) + ":" + std::to_string(column) + ": " + what,
                hint);
  }

  void take(std::string_view line) {
    for (const Program& program : kPrograms) {
      if (line.find(program.name) == std::string_view::npos) continue;
      log_.operation = program.operation;
      named_ = true;
    }
    const std::vector<Word> words = words_of(line);
    if (words.empty()) return;
    if (words[0].text.substr(0, 1) == "#") {
      header(words);
    } else if (number_of(words[0].text)) {
      row(words);
    }
    // Anything else is what programs around it print.
  }

  // "# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor) ...", "#  Rank  0 Group  0 Pid 5 on host ...".
  void header(const std::vector<Word>& words) {
    if (words.size() > 1 && words[1].text == "Rank") {
      ++log_.devices;
      for (std::size_t i = 2; i + 1 < words.size(); ++i) {
        if (words[i].text == "on") hosts_.insert(std::string(words[i + 1].text));
      }
    }
    for (std::size_t i = 1; i + 1 < words.size(); ++i) {
      const std::string_view value = words[i + 1].text;
      if (words[i].text == "maxBytes") largest_ = number_of(value).value_or(0);
      if (words[i].text != "step:") continue;
      const std::size_t bracket = value.find('(');
      if (bracket == std::string_view::npos) continue;
      const double step = number_of(value.substr(0, bracket)).value_or(0);
      (value.substr(bracket) == "(factor)" ? factor_ : increment_) = step;
    }
  }

  // size, count, type, redop, root, time, algbw, busbw, #wrong, and the last four again in place. Programs without an
  // operation or root leave those words out or write "none" and -1, so the times are found from the type on.
  void row(const std::vector<Word>& words) {
    std::vector<const Word*> numbers;  // behind the type
    for (std::size_t i = 3; i < words.size(); ++i) {
      if (number_of(words[i].text) || words[i].text == "N/A") numbers.push_back(&words[i]);
    }
    // With the root or without: the eight last ones are two times, bandwidths and counts of errors.
    if (words.size() < 5 || numbers.size() < 8) {
      fail(words.back().column + words.back().text.size(),
           "the row ends here, expected two times, each with two bandwidths and a number of errors");
    }
    const double bytes = *number_of(words[0].text);
    double ms = std::numeric_limits<double>::infinity();
    for (const std::size_t from_end : {std::size_t{8}, std::size_t{4}}) {
      const Word& word = *numbers[numbers.size() - from_end];
      const std::optional<double> us = number_of(word.text);
      if (!us) continue;
      if (bytes > 0 && !(*us > 0)) {
        fail(word.column, "found a time of " + std::string(word.text) + " us, expected one above 0");
      }
      ms = std::min(ms, *us * 1e-3);
    }
    check_size(words[0], bytes);
    if (!(bytes > 0)) return;
    if (!log_.times.empty() && ms < log_.times.back().ms / 2 && bytes > kSmallestFitted) {
      fail(numbers[numbers.size() - 8]->column,
           "the time falls to less than half although the size grows: measured beside other work?",
           "measure again with more iterations (-n)");
    }
    if (log_.times.size() == kMostTimes) fail(1, "more than 1000 sizes");
    log_.times.push_back({bytes, ms});
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
    if (log_.times.empty()) fail(1, "no row of times");
    if (!named_) fail(1, "no line names the test", std::string(kHint) + "; the line with all_reduce_perf is missing");
    if (log_.devices < 2) {
      fail(1, "found " + std::to_string(log_.devices) + " lines of ranks (#  Rank ...), expected at least 2");
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
  std::size_t line_ = 0;
  bool named_ = false;
  double largest_ = 0, factor_ = 0, increment_ = 0;
  double last_bytes_ = -1;
};

}  // namespace

NcclLog parse_nccl_log(std::string_view text, const std::string& source) {
  return Reader(text, source).read();
}

}  // namespace automap::machine
