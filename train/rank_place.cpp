#include "train/rank_place.h"

#include <charconv>
#include <string_view>

#include "common/base/error.h"

namespace automap::train {
namespace {

struct Launcher {
  const char *rank, *size;
};
// In a batch script itself Slurm sets SLURM_PROCID and SLURM_NTASKS, too, and there is one process all the same; the
// number of tasks of the step is set by srun only.
constexpr Launcher kLaunchers[] = {{"RANK", "WORLD_SIZE"},
                                   {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
                                   {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                   {"PMI_RANK", "PMI_SIZE"}};
constexpr int kMostRanks = 4096;

bool is_set(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value != nullptr && *value != 0;
}

int number(const Environment& environment, const char* name, int least, int most) {
  const std::string_view text = environment(name);
  int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw Error(ErrorKind::kConfig,
                std::string("environment ") + name + ": found '" + std::string(text) + "', expected a number from " +
                    std::to_string(least) + " to " + std::to_string(most),
                "the launcher sets it (torchrun, srun, mpirun); unset RANK and WORLD_SIZE to train with one process");
  }
  return value;
}

}  // namespace

std::string first_host(const std::string& list) {
  std::string out;
  bool inside = false;
  for (const char c : list) {
    if (c == '[') {
      inside = true;
    } else if (inside ? (c == '-' || c == ',' || c == ']') : c == ',') {
      // Text behind the brackets of the first machine would be a suffix, which Slurm does not write.
      break;
    } else {
      out += c;
    }
  }
  return out;
}

models::RankPlace place_of_ranks(const Environment& environment) {
  models::RankPlace place;
  const Launcher* launcher = nullptr;
  for (const Launcher& candidate : kLaunchers) {
    if (!launcher && is_set(environment, candidate.size)) launcher = &candidate;
  }
  if (!launcher) return place;
  place.size = number(environment, launcher->size, 1, kMostRanks);
  if (place.size == 1) return place;
  if (!is_set(environment, launcher->rank)) {
    throw Error(ErrorKind::kConfig,
                std::string("environment: ") + launcher->size + " is " + std::to_string(place.size) + " and " +
                    launcher->rank + " is not set: which of the ranks is this?",
                "the launcher sets it (torchrun, srun, mpirun)");
  }
  place.rank = number(environment, launcher->rank, 0, place.size - 1);
  const bool slurm = std::string_view(launcher->rank) == "SLURM_PROCID";
  if (is_set(environment, "MASTER_ADDR")) {
    place.address = environment("MASTER_ADDR");
  } else if (slurm && is_set(environment, "SLURM_STEP_NODELIST")) {
    place.address = first_host(environment("SLURM_STEP_NODELIST"));
  } else {
    throw Error(ErrorKind::kConfig,
                "environment: " + std::string(launcher->size) + " is " + std::to_string(place.size) +
                    " and MASTER_ADDR is not set: where is rank 0?",
                "MASTER_ADDR is the name or address of rank 0's machine, MASTER_PORT a free port there");
  }
  if (is_set(environment, "MASTER_PORT")) {
    place.port = number(environment, "MASTER_PORT", 1, 65535);
  } else if (slurm && is_set(environment, "SLURM_JOB_ID")) {
    // Two jobs on one machine do not meet.
    constexpr int kFirst = 20000, kPorts = 10000;
    place.port = kFirst + number(environment, "SLURM_JOB_ID", 0, 2147483647) % kPorts;
  }
  // torchrun serves a store of its own at MASTER_PORT, which only the LibTorch it came with is sure to understand.
  if (is_set(environment, "TORCHELASTIC_USE_AGENT_STORE") &&
      std::string_view(environment("TORCHELASTIC_USE_AGENT_STORE")) == "True") {
    place.port += place.port < 65535 ? 1 : -1;
  }
  return place;
}

}  // namespace automap::train
