// Plans for a cluster file and a CSV profile (a line "---" between them): a plan, or an Error that says why not.
#include "common/io/profile_csv.h"
#include "common/machine/cluster.h"
#include "common/pipeline/device_match.h"
#include "fuzz/reader.h"
#include "plan/planners/answer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automap;
  const std::string_view text = fuzz::text_of(data, size);
  const std::size_t line = text.find("\n---\n");
  if (line == std::string_view::npos) return 0;
  return fuzz::read_or_refuse([&] {
    machine::Cluster cluster = machine::parse_cluster(text.substr(0, line), "cluster");
    // So small that 100 000 inputs end.
    if (cluster.num_devices() > 8) return;
    pipeline::Profile profile = io::parse_profile_csv(text.substr(line + 5), "profile");
    if (profile.size() > 8) return;
    pipeline::match_devices(profile, cluster, "profile");
    planners::PlanRequest request;
    request.effort = planners::plan_effort(Effort::kQuick);
    request.use_policy = false;
    planners::StepRequest step;
    step.batch = 16;
    planners::Question question(std::move(profile), std::move(cluster), {}, step, request);
    planners::answer(question, {});
  });
}
