// The families: how the c, a and w of m instructions are drawn. Levels are free; Generator scales them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "datagen/config.h"

namespace automap::datagen {

// The random numbers and arrays of one row; kept per thread, grows to the largest m.
class Workspace {
 public:
  // Starts a row of m >= 2 instructions.
  void begin(std::uint64_t seed, std::uint64_t index, int m);

  // The next `count` numbers of the row's array stream; valid until the next call.
  const std::uint32_t* random(std::size_t count);

  int m = 0;
  float *c = nullptr, *a = nullptr, *w = nullptr;  // [m]
  Rng* rng = nullptr;                              // for single numbers
  const std::vector<EmpiricalProfile>* profiles = nullptr;
  int layers = 0;               // set by families that repeat layers
  double keep_bytes_ratio = 0;  // set by `empirical`: a and w keep their ratio to each other when above 0

 private:
  std::vector<float> arrays_;
  std::vector<std::uint32_t> random_;
  std::uint64_t seed_ = 0, index_ = 0, used_ = 0;
};

struct FamilySpec {
  std::string name;
  std::string summary;
  std::vector<NumberSpec> parameters;
  // Fills c, a and w of the workspace; `p` are the drawn parameters in order.
  void (*make)(const double* p, Workspace& work);
  double weight = 1;  // where a configuration lists no families; 0: only where it is listed
};

// In the order of RowProblem::distribution, which datasets keep: append only.
const std::vector<FamilySpec>& families();
constexpr int kMostParameters = 16;
constexpr int kMostSlots = 64;  // of a block of instructions that models repeat
constexpr int kMostInstructions = 65536;

}  // namespace automap::datagen
