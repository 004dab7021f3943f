#include "common/base/child_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(ChildProgram, IsKilledWhenTheCallerGivesUp) {
  // Hangs; hangs with its outputs closed; writes without end. The first two for a day: who waited for them would not
  // come to 137.
  for (const char* script : {"echo up; exec sleep 86400", "echo up; exec sleep 86400 >&- 2>&-", "exec yes"}) {
    int asked = 0;  // since it was up
    const ProgramResult done = run_program({"sh", "-c", script}, "", [&](const ProgramResult& so_far) {
      if (script == std::string("exec yes")) return so_far.out.size() > 1000000;
      return so_far.out == "up\n" && ++asked > 10;
    });
    EXPECT_TRUE(done.given_up) << script;
    EXPECT_EQ(done.exit_code, 137) << script;
  }
  const ProgramResult done = run_program({"cat"}, "abc", [](const ProgramResult&) { return false; });
  EXPECT_FALSE(done.given_up);
  EXPECT_EQ(done.out, "abc");
}

}  // namespace
}  // namespace automap
