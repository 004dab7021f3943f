#include "train/problem_source.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "common/base/error.h"
#include "datagen/generate.h"
#include "tests/common/io/dataset_rows.h"

namespace automap::train {
namespace {

namespace fs = std::filesystem;

class HeldOutRows : public ::testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }

  std::string dataset(std::uint64_t rows) {
    fs::remove_all(folder_);
    datagen::RowSource source;
    source.row = [](std::uint64_t index) { return io::hand_made_row(index); };
    source.config_json = "{}";
    source.distributions = {"even", "odd"};
    source.generator = "a test";
    datagen::GenerateOptions options;
    options.folder = folder_.string();
    options.rows = rows;
    options.shard_rows = 40;
    datagen::generate_dataset(source, options);
    return options.folder;
  }

  // A number that tells rows apart.
  static std::vector<double> problems(const ProblemSource& source) {
    std::vector<double> out;
    for (std::uint64_t i = 0; i < source.size(); ++i) {
      const TrainingProblem problem = source.problem(i);
      double sum = 0;
      for (const double c : problem.parts.profile.c_ms) sum = 0.9 * sum + c;
      out.push_back(sum);
    }
    return out;
  }

  fs::path folder_ = fs::temp_directory_path() / ("automap-held-out-" + std::to_string(::getpid()));
};

TEST_F(HeldOutRows, ThePartsShareNothingAndAreAllThereIs) {
  for (const std::uint64_t rows : {32u, 100u, 163u}) {
    const std::string folder = dataset(rows);
    const auto part = [&](Rows which, std::uint64_t seed) { return open_source(folder, seed, {}, {}, false, which); };
    const std::vector<double> all = problems(*part(Rows::kAll, 1));
    std::multiset<double> left(all.begin(), all.end());
    ASSERT_EQ(std::set<double>(all.begin(), all.end()).size(), rows);  // else they would not be told apart
    const std::uint64_t blocks = rows / kRowsPerHeldOut;
    const std::map<Rows, std::uint64_t> sizes = {
        {Rows::kLearned, rows - blocks}, {Rows::kChosenBy, blocks - blocks / 2}, {Rows::kJudgedBy, blocks / 2}};
    for (const auto& [which, size] : sizes) {
      const auto source = part(which, 1);
      EXPECT_EQ(source->size(), size);
      for (const double problem : problems(*source)) {
        const auto found = left.find(problem);
        ASSERT_NE(found, left.end()) << rows << " rows: one stands in two parts, or twice";
        left.erase(found);
      }
      EXPECT_EQ(problems(*part(which, 77)), problems(*source));  // whatever the seed
      EXPECT_EQ(source->problem(size).parts.profile.c_ms, source->problem(0).parts.profile.c_ms);
    }
    EXPECT_TRUE(left.empty());
    std::set<std::string> names;
    for (const Rows which : {Rows::kAll, Rows::kLearned, Rows::kChosenBy, Rows::kJudgedBy})
      names.insert(part(which, 1)->fingerprint());
    EXPECT_EQ(names.size(), 4u);
  }
}

TEST_F(HeldOutRows, EveryPlaceOfABlockIsHeldOutInTurn) {
  // Rows may be in an order that repeats.
  const std::string folder = dataset(1600);
  const std::vector<double> all = problems(*open_source(folder, 1, {}, {}));
  std::set<std::uint64_t> places;
  for (const double problem : problems(*open_source(folder, 1, {}, {}, false, Rows::kChosenBy))) {
    const auto row = static_cast<std::uint64_t>(std::find(all.begin(), all.end(), problem) - all.begin());
    EXPECT_EQ(row / kRowsPerHeldOut % 2, 0u);
    places.insert(row % kRowsPerHeldOut);
  }
  EXPECT_GE(places.size(), 10u);
}

TEST_F(HeldOutRows, RowsThatNothingIsLearnedFromAreHalved) {
  for (const std::uint64_t rows : {2, 3, 100}) {
    const std::string folder = dataset(rows);
    const std::vector<double> all = problems(*open_source(folder, 1, {}, {}));
    const auto chosen = open_source(folder, 1, {}, {}, false, Rows::kAllChosenBy);
    const auto judged = open_source(folder, 2, {}, {}, false, Rows::kAllJudgedBy);
    EXPECT_EQ(chosen->size(), (rows + 1) / 2);
    EXPECT_EQ(judged->size(), rows / 2);
    EXPECT_NE(chosen->fingerprint(), judged->fingerprint());
    std::vector<double> both = problems(*chosen), sorted = all;
    const std::vector<double> second = problems(*judged);
    both.insert(both.end(), second.begin(), second.end());
    std::sort(both.begin(), both.end());
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(both, sorted);
  }
  EXPECT_THROW(open_source(dataset(1), 1, {}, {}, false, Rows::kAllJudgedBy), Error);
}

TEST_F(HeldOutRows, AFewRowsAreNotDivided) {
  const std::string folder = dataset(31);
  EXPECT_EQ(open_source(folder, 1, {}, {})->size(), 31u);
  try {
    open_source(folder, 1, {}, {}, false, Rows::kLearned);
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kData);
    EXPECT_NE(std::string(e.what()).find("has 31 rows"), std::string::npos);
    EXPECT_NE(e.hint().find("--evaluate-data"), std::string::npos);
  }
}

}  // namespace
}  // namespace automap::train
