// The allowed contents of a profile.
#include "common/pipeline/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "common/base/error.h"

namespace automap::pipeline {
namespace {

using testing::HasSubstr;

Profile profile_of_ones(std::size_t n) {
  Profile profile;
  profile.c_ms.assign(n, 1);
  profile.a_bytes = profile.w_bytes = profile.stash_bytes = profile.c_ms;
  return profile;
}

TEST(CheckedProfiles, AreCheckedOnceAndKeepWhatTheyOwn) {
  Profile wrong = profile_of_ones(4);
  wrong.w_bytes[2] = -1;
  EXPECT_THROW(CheckedProfile{wrong}, Error);
  EXPECT_THROW(CheckedProfile{Profile(wrong)}, Error);
  const Profile right = profile_of_ones(4);
  const CheckedProfile named(right);
  EXPECT_EQ(&*named, &right);
  CheckedProfile kept(profile_of_ones(5));
  const CheckedProfile copy = kept;
  kept = CheckedProfile(profile_of_ones(6));
  EXPECT_EQ(copy->size(), 5);
  EXPECT_EQ(kept->size(), 6);
  auto owner = std::make_shared<const Profile>(profile_of_ones(7));
  const std::weak_ptr<const Profile> lives = owner;
  {
    const CheckedProfile of_owner = CheckedProfile(*owner).kept_by(owner);
    owner.reset();
    EXPECT_FALSE(lives.expired());
    EXPECT_EQ(of_owner->size(), 7);
  }
  EXPECT_TRUE(lives.expired());
}

TEST(CheckProfile, NamesTheFirstWrongValueWhereverItStands) {
  for (const std::size_t n : {2, 15, 16, 17, 40}) {
    for (std::size_t wrong = 0; wrong < n; ++wrong) {
      for (const double value :
           {-1.0, -1e-300, 1e-31, 1.01e30, std::numeric_limits<double>::infinity(), std::nan("")}) {
        Profile profile = profile_of_ones(n);
        profile.w_bytes[wrong] = value;
        if (wrong + 1 < n) profile.w_bytes.back() = -2;
        try {
          check_profile(profile, "p.csv");
          FAIL() << value << " at " << wrong << " of " << n;
        } catch (const Error& error) {
          EXPECT_THAT(error.what(),
                      HasSubstr("p.csv: column w_bytes, instruction " + std::to_string(wrong + 1) + ": found "));
        }
      }
    }
  }
}

TEST(CheckProfile, TakesAllThatAFileMayHold) {
  for (const std::size_t n : {2, 15, 16, 17, 40}) {
    for (std::size_t place = 0; place < n; ++place) {
      for (const double value : {0.0, -0.0, 1e-30, 1e30}) {
        Profile profile = profile_of_ones(n);
        profile.w_bytes[place] = value;
        EXPECT_NO_THROW(check_profile(profile, "p.csv")) << value << " at " << place << " of " << n;
      }
    }
  }
}

}  // namespace
}  // namespace automap::pipeline
