// The table of architectures that a config.json may name: one row of data each.
#pragma once

#include <string>
#include <vector>

#include "common/architecture/model.h"

namespace automap::architecture {

// The way a file of the architecture becomes a table of layers.
enum class Family : std::uint8_t { kDecoder, kEncoder, kEncoderDecoder, kImages, kDiffusion };

enum Trait : std::uint32_t {
  kRms = 1u << 0,            // norms by the mean square alone
  kBias = 1u << 1,           // products have biases
  kQueryBias = 1u << 2,      // those of queries, keys and values have
  kLearned = 1u << 3,        // positions are learned
  kRotary = 1u << 4,         // positions turn queries and keys
  kGated = 1u << 5,          // MLPs have gates
  kTied = 1u << 6,           // the output takes the embedding's table, where the file does not say
  kParallel = 1u << 7,       // attention and MLP read the same
  kOneNorm = 1u << 8,        // of one norm
  kAround = 1u << 9,         // norms before and behind every block
  kHeadNorm = 1u << 10,      // norms of queries and keys
  kHeadBias = 1u << 11,      // the output has a bias
  kUnscaled = 1u << 12,      // scores are not divided by the root of a head's size
  kCompressed = 1u << 13,    // queries, keys and values by way of few features
  kOneProduct = 1u << 15,    // one product makes queries, keys and values
  kEverySecond = 1u << 14,   // every second layer sees a window
  kAfter = 1u << 16,         // norms behind every block alone
  kSharedExpert = 1u << 17,  // one more expert, which all tokens go to; layers without experts have a size of their own
};

struct Architecture {
  const char* type;  // model_type, or _class_name, of the file
  Family family;
  std::uint32_t traits;
  const char* activation;     // where the file does not say
  std::int64_t positions;     // where the file does not say: 0, it must
  std::int64_t pattern = 0;   // every so many-th layer sees all, where the file does not say; 0: all alike
  const char* absent = "{}";  // sizes that published files leave out, because the library has them
};

const std::vector<Architecture>& all_architectures();
// nullptr: none of that type.
const Architecture* find_architecture(const std::string& type);
std::vector<std::string> architecture_names();

}  // namespace automap::architecture
