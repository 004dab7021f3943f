// docs/datagen.md lists every number of a configuration with its default and limits, as the program knows them.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "datagen/config.h"
#include "datagen/families.h"

namespace automap::datagen {
namespace {

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

std::string default_of(const NumberSpec& spec) {
  std::string text;
  if (!spec.values.empty()) {
    for (std::size_t i = 0; i < spec.values.size(); ++i) {
      text += (i == 0 ? "" : ", ") + number(spec.values[i]) + " (" + number(spec.weights[i]) + ")";
    }
    return text;
  }
  text = spec.low == spec.high ? number(spec.low) : number(spec.low) + " .. " + number(spec.high);
  if (spec.usual_share > 0) {
    text += "; " + number(spec.usual_share) + " of rows " + number(spec.usual_low) + " .. " + number(spec.usual_high);
  }
  return text + (spec.logarithmic ? ", log" : "");
}

std::string line_of(const NumberSpec& spec) {
  return "| `" + spec.name + "` | " + spec.meaning + " | " + default_of(spec) + " | " + number(spec.least) + " .. " +
         number(spec.most) + (spec.whole ? ", whole" : "") + " |\n";
}

constexpr const char* kHead = "| key | meaning | default | allowed |\n|---|---|---|---|\n";

std::string section(const std::vector<NumberSpec>& specs) {
  std::string text = kHead;
  for (const NumberSpec& spec : specs) text += line_of(spec);
  return text;
}

TEST(ConfigDocs, ListEveryNumber) {
  const std::string docs = read_file(std::string(AUTOMAP_SOURCE_DIR) + "/docs/datagen.md");
  std::vector<std::string> expected;
  for (const auto* specs : {&row_specs(), &scale_specs(), &cluster_specs(), &training_specs(), &sample_specs(),
                            &update_specs(), &variant_specs()}) {
    expected.push_back(section(*specs));
  }
  for (const FamilySpec& family : families()) {
    expected.push_back("**`" + family.name + "`**: " + family.summary + ".\n\n" + section(family.parameters));
  }
  for (const std::string& text : expected) {
    EXPECT_NE(docs.find(text), std::string::npos) << "docs/datagen.md lacks, or has otherwise:\n\n" << text;
  }
}

TEST(ConfigDocs, DefaultsAreInsideTheirLimits) {
  const auto check = [](const std::vector<NumberSpec>& specs) {
    for (const NumberSpec& spec : specs) {
      EXPECT_LE(spec.least, spec.low) << spec.name;
      EXPECT_LE(spec.low, spec.high) << spec.name;
      EXPECT_LE(spec.high, spec.most) << spec.name;
      if (spec.logarithmic && spec.low < spec.high) {
        EXPECT_GT(spec.low, 0) << spec.name;
      }
      if (spec.usual_share > 0) {
        EXPECT_LE(spec.low, spec.usual_low) << spec.name;
        EXPECT_LE(spec.usual_high, spec.high) << spec.name;
      }
      EXPECT_EQ(spec.values.size(), spec.weights.size()) << spec.name;
    }
  };
  check(row_specs());
  check(scale_specs());
  check(cluster_specs());
  check(training_specs());
  check(sample_specs());
  check(update_specs());
  check(variant_specs());
  for (const FamilySpec& family : families()) {
    check(family.parameters);
    EXPECT_LE(family.parameters.size(), static_cast<std::size_t>(kMostParameters));
  }
}

}  // namespace
}  // namespace automap::datagen
