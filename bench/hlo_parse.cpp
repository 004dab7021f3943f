// HLO text in memory -> Graph: speed and peak memory, per file. The same files go through XLA's own parser with
// bench/hlo_parse_xla.py, which runs this program beside it.
//   bench-hlo_parse [--repeat N] [--tsv] FILE...     FILE may be gzipped; files with several modules are skipped,
//   named.
// "first" is the first parse of a fresh process (cold memory), "best" of the repeats after it: on a shared machine the
// best is what the program costs, the rest is what others cost. The peak is what the first parse adds to the process,
// the text itself included, over the size of the text.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/hlo/hlo_text.h"

namespace {

using automap::graph::Graph;

double parse_ms(std::string text, const std::string& path, int* instructions) {
  const auto begin = std::chrono::steady_clock::now();
  const Graph graph = automap::hlo::read_hlo_text(std::move(text), path);
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  *instructions = graph.num_instructions();
  return ms;
}

// The resident set of this process, now.
double resident_bytes() {
  long pages = 0, resident = 0;
  if (std::FILE* f = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(f, "%ld %ld", &pages, &resident) != 2) resident = 0;
    std::fclose(f);
  }
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024.0;
}

// In a process of its own, so that each file starts from the same memory.
int measure(const std::string& path, int repeat, bool tsv) {
  try {
    int instructions = 0;
    parse_ms("ENTRY e { ROOT x = f32[] parameter(0) }", "warm-up", &instructions);  // code and allocator pages
    const double before = resident_bytes();
    std::string text = automap::gunzip_if_gzip(automap::read_file(path), path);
    const auto size = static_cast<double>(text.size());
    if (automap::hlo::split_modules(text).size() != 1) {
      std::fprintf(stderr, "skipped %s: it does not hold exactly one module\n", path.c_str());
      return 0;
    }
    const std::string copy = text;
    // The copy for the repeats is not part of what a parse needs.
    const double first = parse_ms(std::move(text), path, &instructions);
    const double peak = peak_bytes() - before - size;
    std::vector<double> ms;
    for (int i = 0; i < repeat; ++i) ms.push_back(parse_ms(copy, path, &instructions));
    const double best = ms.empty() ? first : *std::min_element(ms.begin(), ms.end());
    if (tsv) {
      std::printf("%s\t%.0f\t%d\t%.4f\t%.4f\t%.3f\n", path.c_str(), size, instructions, first, best, peak / size);
    } else {
      const std::string shown = path.size() > 48 ? "..." + path.substr(path.size() - 45) : path;
      std::printf("%-48s %8.2f %8d %9.2f %9.2f %8.0f %8.0f %9.2f %6.1f\n", shown.c_str(), size / 1e6, instructions,
                  first, best, size / 1e3 / first, size / 1e3 / best, instructions / 1e3 / best, peak / size);
    }
    std::fflush(stdout);
    return 0;
  } catch (const automap::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  int repeat = 15;
  bool tsv = false;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--repeat") == 0 && i + 1 < argc) {
      repeat = std::max(0, std::atoi(argv[++i]));
    } else if (std::strcmp(argv[i], "--tsv") == 0) {
      tsv = true;
    } else {
      paths.emplace_back(argv[i]);
    }
  }
  if (paths.empty()) {
    std::fprintf(stderr, "usage: bench-hlo_parse [--repeat N] [--tsv] FILE...\n");
    return 2;
  }
  if (!tsv) {
    double load[1] = {0};
    if (getloadavg(load, 1) == 1) std::printf("load average %.2f\n", load[0]);
    std::printf("%-48s %8s %8s %9s %9s %8s %8s %9s %6s\n", "file", "MB", "instr", "first ms", "best ms", "MB/s", "MB/s",
                "M instr/s", "peak/x");
  }
  int worst = 0;
  for (const std::string& path : paths) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child < 0) {
      std::perror("fork");
      return 1;
    }
    if (child == 0) _exit(measure(path, repeat, tsv));
    int status = 0;
    waitpid(child, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  return worst;
}
