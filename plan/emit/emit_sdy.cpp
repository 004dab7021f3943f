#include "plan/emit/emit_sdy.h"

#include <cstdlib>
#include <string_view>

#include "common/base/child_program.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/json.h"

namespace automap::emit {

namespace {

constexpr const char* kGetJax =
    "name a Python that has jax, as pip installs it: AUTOMAP_JAX_PYTHON=VENV/bin/python (in a checkout "
    "AUTOMAP_JAX_PYTHON=$(scripts/jax_python.sh)); or ";

// The rest of the last line that begins so; all other lines are logs of libraries.
std::string line_of(std::string_view text, std::string_view begin) {
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

}  // namespace

SdyBridge::SdyBridge(const std::string& option, const std::string& instead)
    : script_(executable_folder() + "/automap-emit-sdy") {
  const char* python = std::getenv("AUTOMAP_JAX_PYTHON");
  python_ = python != nullptr && *python != '\0' ? python : "python3";
  try {
    run({"--probe"}, "");
  } catch (const Error& e) {
    throw Error(ErrorKind::kUsage, option + ": " + e.what(), kGetJax + instead);
  }
}

std::string SdyBridge::translate(const std::string& hlo, const MeshAxes& mesh) const {
  std::string axes;
  for (const auto& [name, size] : mesh) axes += (axes.empty() ? "" : ",") + name + "=" + std::to_string(size);
  return run({"-", "--mesh", axes, "-o", "-"}, hlo);
}

std::vector<std::string> SdyBridge::translate(const std::vector<std::pair<std::string, std::string>>& programs) const {
  Json given = Json::object();
  for (const auto& [name, text] : programs) given[name] = text;
  const Json made = Json::parse(run({"--programs"}, given.dump()));
  std::vector<std::string> texts;
  for (const auto& [name, text] : programs) texts.push_back(made.at(name).string());
  return texts;
}

std::string SdyBridge::run(const std::vector<std::string>& arguments, const std::string& input) const {
  std::vector<std::string> command = {python_, "-B", script_};
  command.insert(command.end(), arguments.begin(), arguments.end());
  ProgramResult done = run_program(command, input);
  if (done.exit_code == 0) return std::move(done.out);
  const std::string message = line_of(done.err, "error: ");
  if (!message.empty()) {
    throw Error(done.exit_code == exit_code(ErrorKind::kUsage) ? ErrorKind::kUsage : ErrorKind::kData, message,
                line_of(done.err, "  hint: "));
  }
  throw Error(ErrorKind::kIo,
              python_ + " " + script_ + " ended with exit code " + std::to_string(done.exit_code) + " and no answer",
              "run it by hand: automap emit-sdy --help", last_lines(done.err));
}

}  // namespace automap::emit
