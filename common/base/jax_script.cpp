#include "common/base/jax_script.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "common/base/child_program.h"
#include "common/base/error.h"
#include "common/base/files.h"

namespace automap {

namespace {

// The rest of the last line that begins so; all other lines are logs of libraries.
std::string said_behind(std::string_view text, std::string_view begin) {
  std::string found;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (line.substr(0, begin.size()) == begin) found = line.substr(begin.size());
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return found;
}

std::vector<std::string> last_lines(std::string_view text) {
  constexpr std::size_t kMostLines = 5;
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end != 0) lines.emplace_back(text.substr(0, end));
    if (lines.size() > kMostLines) lines.erase(lines.begin());
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The Python of the newest environment of scripts/jax_python.sh; empty: there is none.
std::string python_of_the_project() {
  std::string cache = variable("XDG_CACHE_HOME");
  if (cache.empty()) cache = variable("HOME") + "/.cache";
  std::error_code failed;
  std::string found;
  std::filesystem::file_time_type newest;
  for (std::filesystem::directory_iterator it(cache + "/automap", failed), end; !failed && it != end;
       it.increment(failed)) {
    if (it->path().filename().string().rfind("jax-", 0) != 0) continue;
    const std::filesystem::path python = it->path() / "bin" / "python";
    std::error_code missing;
    const std::filesystem::file_time_type made = std::filesystem::last_write_time(it->path(), missing);
    if (missing || !std::filesystem::exists(python, missing) || (!found.empty() && made < newest)) continue;
    found = python.string();
    newest = made;
  }
  return found;
}

}  // namespace

std::string python_with_jax() {
  for (const std::string& python : {variable("AUTOMAP_JAX_PYTHON"), python_of_the_project()}) {
    if (!python.empty()) return python;
  }
  return "python3";
}

std::string run_jax_script(const JaxScript& script, const std::vector<std::string>& arguments, std::string_view input) {
  const std::string python = python_with_jax(), path = executable_folder() + "/" + script.name;
  std::vector<std::string> command = {python, "-B", path};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(script.seconds);
  GiveUp give_up;
  if (script.seconds > 0) give_up = [&](const ProgramResult&) { return std::chrono::steady_clock::now() > end; };
  ProgramResult done = run_program(command, input, give_up);
  if (done.given_up) {
    throw Error(ErrorKind::kIo, python + " " + path + " is not done after " + std::to_string(script.seconds) + " s",
                "try it by hand: " + script.by_hand);
  }
  if (done.exit_code == 0) return std::move(done.out);
  const std::string message = said_behind(done.err, "error: ");
  if (!message.empty()) {
    throw Error(done.exit_code == exit_code(ErrorKind::kUsage) ? ErrorKind::kUsage : ErrorKind::kData, message,
                said_behind(done.err, "  hint: "));
  }
  throw Error(ErrorKind::kIo,
              python + " " + path + " ended with exit code " + std::to_string(done.exit_code) + " and no answer",
              "try it by hand: " + script.by_hand, last_lines(done.err));
}

}  // namespace automap
