#include "common/base/child_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "common/base/error.h"

namespace automap {
namespace {

TEST(ChildProgram, GivesBytesAndTakesBytes) {
  const ProgramResult done = run_program({"cat"}, "abc");
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_EQ(done.out, "abc");
  EXPECT_EQ(done.err, "");
}

TEST(ChildProgram, MoreThanFitsIntoABuffer) {
  std::string text(5000000, 'x');
  text[4321] = '\0';
  const ProgramResult done = run_program({"sh", "-c", "tee /dev/stderr"}, text);
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_TRUE(done.out == text);
  EXPECT_TRUE(done.err == text);
}

TEST(ChildProgram, NeedNotReadItsInput) {
  const ProgramResult done = run_program({"sh", "-c", "echo read nothing; exit 7"}, std::string(5000000, 'x'));
  EXPECT_EQ(done.exit_code, 7);
  EXPECT_EQ(done.out, "read nothing\n");
}

TEST(ChildProgram, SaysHowItEnded) {
  EXPECT_EQ(run_program({"sh", "-c", "echo why >&2; exit 3"}, "").err, "why\n");
  EXPECT_EQ(run_program({"sh", "-c", "kill -9 $$"}, "").exit_code, 137);
}

TEST(ChildProgram, CannotBeStarted) {
  for (const char* name : {"no-such-program-of-automap", "/etc/passwd", "/"}) {
    try {
      run_program({name}, "abc");
      FAIL() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kIo);
      EXPECT_THAT(e.what(), testing::HasSubstr(std::string("cannot run ") + name));
    }
  }
}

TEST(ChildProgram, ClosesTheInputOnlyOnceItIsRead) {
  EXPECT_EQ(run_program({"sh", "-c", "sleep 0.2; wc -c"}, std::string(300000, 'x')).out, "300000\n");
}

}  // namespace
}  // namespace automap
