#include "plan/pictures/chart.h"

namespace automap::pictures {
namespace {

// Told apart in grey, too: forwards are lighter than backwards.
constexpr ChartClass kClasses[kChartClasses] = {
    {"f", "forward", "#74b3e8", "#5b9bd5"},
    {"b", "backward", "#2b6cb0", "#2f6fb3"},
    {"w", "gradients of weights, a pass of their own", "#3d4f8f", "#4a5fa8"},
    {"t", "transfer", "#d9822b", "#e09a4a"},
    {"g", "gradients summed (a bucket)", "#8a4fbf", "#a678d8"},
    {"x", "shared gradients exchanged", "#c2477f", "#d96a9c"},
    {"o", "optimizer", "#2f8f5b", "#45ad76"},
    {"m", "several, merged", "#4f8fc9", "#4683bd"},
};

}  // namespace

ChartSizes chart_sizes(std::size_t groups) {
  if (groups <= 8) return {};
  if (groups <= 16) return {18, 5, 26, 4, 11, 1};
  if (groups <= 64) return {12, 3, 14, 3, 10, 1};
  return {5, 2, 5, 1, 9, 8};
}

const ChartClass& chart_class(int number) {
  return kClasses[number];
}

int class_of(const Run& run) {
  return run.mixed ? kChartClasses - 1 : static_cast<int>(run.kind);
}

std::string chart_style() {
  std::string light =
      ".chart text{font-family:system-ui,sans-serif;fill:#1c2530}.chart .dim{fill:#5b6673}.chart .bg{fill:#fff}"
      ".chart .row{fill:#eef1f4}.chart .hot{fill:#fbe3d6}.chart .tick{stroke:#cdd4db;stroke-width:1}"
      ".chart .limit{stroke:#c53030;stroke-width:1.5;stroke-dasharray:5 3;fill:none}"
      ".chart .mem{fill:#9bb8a5}.chart .over{fill:#e07a6a}.chart .mark{fill:#b7471d;font-weight:bold}"
      ".chart .on{fill:#fff}.chart .onf{fill:#0d2438}";
  std::string dark =
      ".chart text{fill:#e6eaef}.chart .dim{fill:#a3aebb}.chart .bg{fill:#14191f}.chart .row{fill:#222a33}"
      ".chart .hot{fill:#47301f}.chart .tick{stroke:#3a4550}.chart .limit{stroke:#ff8080}.chart .mem{fill:#55806a}"
      ".chart .over{fill:#b9503f}.chart .mark{fill:#ffa97a}.chart .on{fill:#fff}.chart .onf{fill:#04121f}";
  for (const ChartClass& one : kClasses) {
    const std::string name = one.css;
    light +=
        ".chart path." + name + "{stroke:" + one.light + ";fill:none}.chart rect." + name + "{fill:" + one.light + "}";
    dark += ".chart path." + name + "{stroke:" + one.dark + "}.chart rect." + name + "{fill:" + one.dark + "}";
  }
  return light + "\n@media screen and (prefers-color-scheme:dark){" + dark + "}\n";
}

}  // namespace automap::pictures
