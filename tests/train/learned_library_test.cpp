#include "train/learned_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <exception>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/plugin.h"
#include "tests/temporary_folder.h"

namespace automap::train {
namespace {

using ::testing::HasSubstr;

// Programs that are tested lie below those that are built.
std::vector<std::string> folders() {
  return {executable_folder() + "/.."};
}

models::LearnerOptions options() {
  models::LearnerOptions out;
  out.hidden = {8};
  out.batch = 4;
  out.label_weight = 0;
  out.learning_rate = 0.01;
  return out;
}

// Episodes of one decision between two after-states.
models::Episode episode(int number) {
  models::Decision decision;
  decision.actions = 2;
  decision.chosen = number % 2;
  for (int i = 0; i < 2 * options().inputs; ++i) {
    decision.inputs.push_back(0.01f * static_cast<float>((i * 37 + number * 11) % 100));
  }
  decision.log_bound = {0.1f, 0.2f};
  models::Episode out;
  out.decisions.push_back(decision);
  out.y = 0.3f + 0.1f * static_cast<float>(number % 3);
  return out;
}

void learn(LearnerPort& learner, int updates) {
  for (int i = 0; i < updates; ++i) {
    learner.add(episode(i));
    if (learner.ready()) learner.update();
  }
}

template <typename Body>
void expect_error(ErrorKind kind, const std::string& part, Body&& body) {
  try {
    body();
    ADD_FAILURE() << "no error: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(LearnedLibrary, IsNotThere) {
  expect_error(ErrorKind::kConfig,
               "training needs libautomap_learned.so, which is neither in /nonexistent nor in /none", [] {
                 LearnedLibrary({"/nonexistent", "/none"});
               });
}

TEST(LearnedLibrary, IsNone) {
  const TemporaryFolder folder;
  write_file_atomic(folder.file(kLearnedLibrary), "no library");
  const LearnedLibrary library({folder.path()});
  expect_error(ErrorKind::kConfig, folder.file(kLearnedLibrary) + ": cannot be used",
               [&] { library.make_learner(options()); });
  expect_error(ErrorKind::kConfig, "cannot be used", [&] { library.check_torch_speed(); });
  expect_error(ErrorKind::kConfig, "cannot be used", [&] { library.join_ranks({}, 1); });
  // Refused without it.
  models::LearnerOptions wrong = options();
  wrong.dueling = true;
  expect_error(ErrorKind::kUsage, "dueling needs the flat family", [&] { library.make_learner(wrong); });
}

TEST(LearnedLibrary, Learns) {
  if (find_plugin(folders()).empty()) GTEST_SKIP() << "built without LibTorch";
  const std::terminate_handler handler = std::get_terminate();
  const LearnedLibrary library(folders());
  const auto learner = library.make_learner(options());
  EXPECT_EQ(std::get_terminate(), handler);
  const std::vector<float> before = learner->policy("{}").weights();
  learn(*learner, 10);
  EXPECT_EQ(learner->updates(), 7u);
  EXPECT_NE(learner->policy("{}").weights(), before);

  // The same bits again, and from a state.
  const auto again = library.make_learner(options());
  learn(*again, 10);
  const std::string state = learner->save_state();
  EXPECT_EQ(again->save_state(), state);
  const auto other = library.make_learner(options());
  other->load_state(state, "state");
  learn(*learner, 3);
  learn(*other, 3);
  EXPECT_EQ(other->save_state(), learner->save_state());

  // Errors of the other side are caught on this one.
  expect_error(ErrorKind::kData, "state: not a learner's checkpoint", [&] { other->load_state("x", "state"); });
  models::LearnerOptions abacus = options();
  abacus.device = "abacus";
  expect_error(ErrorKind::kConfig, "abacus", [&] { library.make_learner(abacus); });
  models::LearnerOptions wide = options();
  wide.hidden = {9};
  expect_error(ErrorKind::kData, "the learner expects",
               [&] { other->load_policy(library.make_learner(wide)->policy("{}")); });
  EXPECT_THAT(library.check_torch_speed(), HasSubstr("LibTorch "));
}

}  // namespace
}  // namespace automap::train
