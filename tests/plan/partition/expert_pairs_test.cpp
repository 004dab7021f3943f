// The partitionings that people chose for real models, set on the modules before they were partitioned: which of them
// splits without moving anything but partial sums, and what the others need besides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/base/files.h"
#include "common/hlo/hlo_reader.h"
#include "common/sharding/collectives.h"
#include "common/sharding/explain.h"
#include "common/sharding/propagation.h"
#include "tests/plan/partition/loaded_model.h"

namespace automap::partition {
namespace {

using graph::NodeId;
using sharding::Collective;
using sharding::Gather;
using sharding::TensorDim;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// "{devices=[1,8]<=[8]}" -> 1; -1: whole, or along several dimensions.
int dim_of(const std::string& sharding) {
  const std::string start = "{devices=[";
  if (sharding.compare(0, start.size(), start) != 0) return -1;
  std::istringstream in(sharding.substr(start.size()));
  int found = -1, parts = 0;
  char comma = ',';
  for (int dim = 0; comma == ',' && in >> parts >> comma; ++dim) {
    if (parts == 1) continue;
    if (found >= 0) return -1;
    found = dim;
  }
  return found;
}

// The splittings of the table's rows of one file, of the same parameters of `model`.
std::vector<TensorDim> decisions(const sharding::ShardingModel& model, const std::filesystem::path& root,
                                 const std::string& file) {
  std::vector<TensorDim> out;
  std::istringstream table(read_file((root / "hlo" / "derived" / "expert_shardings.tsv").string()));
  for (std::string line; std::getline(table, line);) {
    std::vector<std::string> fields;
    std::istringstream row(line);
    for (std::string field; std::getline(row, field, '\t');) fields.push_back(field);
    if (fields.size() < 5 || fields[0] != file || dim_of(fields[4]) < 0) continue;
    for (const sharding::ModelInput& input : model.inputs()) {
      if (std::to_string(input.parameter) != fields[1]) continue;
      EXPECT_EQ(model.flow().shape(input.node).text, fields[3]) << fields[2];
      out.push_back({input.node, dim_of(fields[4])});
    }
  }
  return out;
}

struct Outcome {
  std::vector<TensorDim> refused;
  std::vector<std::string> why;  // one sentence each
  std::vector<Collective> collectives;
  std::size_t taken = 0;
};

// One after the other; what contradicts those before it is left out.
Outcome decide(const sharding::ShardingModel& model, const std::vector<TensorDim>& wanted) {
  Outcome out;
  sharding::Propagation decided(model.linkage());
  for (const TensorDim& at : wanted) {
    if (const auto conflict = decided.split(at)) {
      out.refused.push_back(at);
      out.why.push_back(sharding::explain(model, decided, *conflict).summary);
    } else {
      ++out.taken;
    }
  }
  out.collectives = sharding::find_collectives(model, decided, sharding::Placement::kAtOnce);
  return out;
}

std::string totals(const Outcome& outcome) {
  const auto reduced = sharding::total(outcome.collectives, CollectiveKind::kAllReduce);
  const auto gathered = sharding::total(outcome.collectives, CollectiveKind::kAllGather);
  std::ostringstream out;
  out << outcome.taken << " taken, " << outcome.refused.size() << " refused; " << reduced.count << " all-reduces, "
      << reduced.bytes / 1e9 << " GB, " << gathered.count << " all-gathers, " << gathered.bytes / 1e9 << " GB";
  return out.str();
}

// Every reader of these tensors puts them together first.
std::vector<Gather> before_use(const sharding::ShardingModel& model, const std::vector<TensorDim>& tensors) {
  std::vector<Gather> out;
  for (const TensorDim& at : tensors) {
    for (const NodeId reader : model.flow().users(at.node)) out.push_back({reader, at.node, at.dim});
  }
  return out;
}

// The same where those instructions also take the dimension `split` apart (the batch): from each tensor along what its
// splitting ties to the first instructions that the batch goes through. A gradient is cut where it is made.
std::vector<Gather> before_use(const sharding::ShardingModel& model, const std::vector<TensorDim>& tensors,
                               TensorDim split) {
  const sharding::Linkage& linkage = model.linkage();
  const graph::FlowGraph& flow = model.flow();
  const sharding::GroupId batch = linkage.group_of(split);
  std::vector<Gather> out;
  std::vector<TensorDim> queue(tensors);
  std::set<std::pair<NodeId, int>> seen;
  for (const TensorDim& at : queue) seen.insert({at.node, at.dim});
  const auto reach = [&](TensorDim at) {
    if (seen.insert({at.node, at.dim}).second) queue.push_back(at);
  };
  const auto visit = [&](NodeId op, TensorDim at) {
    const auto factors = linkage.factors(op);
    const bool meets = std::any_of(factors.begin(), factors.end(), [&](const auto& f) { return f.group == batch; });
    for (const sharding::OpFactor& f : factors) {
      if (std::find(f.members.begin(), f.members.end(), at) == f.members.end()) continue;
      for (const TensorDim& member : f.members) {
        if (!meets) {
          reach(member);
        } else if (const Gather gather{op, member.node, member.dim};
                   std::find(out.begin(), out.end(), gather) == out.end()) {
          out.push_back(gather);
        }
      }
    }
  };
  while (!queue.empty()) {
    const TensorDim at = queue.back();
    queue.pop_back();
    if (flow.producer(at.node) != sharding::kNone) visit(flow.producer(at.node), at);
    for (const NodeId user : flow.users(at.node)) visit(user, at);
    for (const auto& [a, b] : linkage.ties()) {
      if (a == at.node) reach({b, at.dim});
      if (b == at.node) reach({a, at.dim});
    }
  }
  return out;
}

class ExpertPairs : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* root = std::getenv("AUTOMAP_CORPUS");
    if (root == nullptr) GTEST_SKIP() << "AUTOMAP_CORPUS is not set: no plans of people to compare with";
    root_ = root;
  }
  std::unique_ptr<LoadedModel> unsharded(const std::string& name) const {
    return load_sharded(root_ / "hlo" / "infer_pairs" / (name + "_1dev.before_opt.hlo"));
  }
  std::vector<TensorDim> of_pair(const LoadedModel& loaded, const std::string& name) const {
    return decisions(loaded.model, root_, "infer_pairs/" + name + "_8dev.before_opt.hlo");
  }
  std::filesystem::path root_;
};

// Attention by heads, feed-forward by its inner width, vocabularies: all of that goes together. People also split the
// scales of norms along the model dimension, which everything else needs whole, and the vocabulary of the logits, of
// which the module wants the largest: the devices' candidates are gathered.
TEST_F(ExpertPairs, TensorParallel) {
  const auto loaded = unsharded("llama3_8b_prefill");
  sharding::ShardingModel& model = loaded->model;
  const std::vector<TensorDim> wanted = of_pair(*loaded, "llama3_8b_prefill");
  ASSERT_EQ(wanted.size(), 12u);
  const Outcome plain = decide(model, wanted);
  std::cout << "as it is: " << totals(plain) << "\n";
  EXPECT_EQ(plain.taken, 8u);
  EXPECT_EQ(total(plain.collectives, CollectiveKind::kAllReduce).count, 3);
  std::vector<TensorDim> norms;
  std::vector<Gather> gathers;
  for (std::size_t i = 0; i < plain.refused.size(); ++i) {
    const std::string name = sharding::describe(model, plain.refused[i]);
    std::cout << "  " << plain.why[i] << "\n";
    if (model.linkage().possible(model.linkage().group_of(plain.refused[i]))) {
      EXPECT_THAT(name, HasSubstr("norm")) << plain.why[i];
      norms.push_back(plain.refused[i]);
      continue;
    }
    EXPECT_THAT(name, HasSubstr("logits")) << plain.why[i];
    for (const sharding::Obstacle& obstacle : model.linkage().obstacles(model.linkage().group_of(plain.refused[i]))) {
      EXPECT_EQ(model.flow().node(obstacle.op).opcode, graph::Opcode::kReduce);
      gathers.push_back({obstacle.op, obstacle.a.node, obstacle.a.dim});
    }
  }
  EXPECT_EQ(norms.size(), 3u);
  const std::vector<Gather> of_norms = before_use(model, norms);
  gathers.insert(gathers.end(), of_norms.begin(), of_norms.end());
  model.relink(8, gathers);
  const Outcome whole = decide(model, wanted);
  std::cout << "norms gathered before use, logits before the largest is found: " << totals(whole) << "\n";
  EXPECT_THAT(whole.why, IsEmpty());
  EXPECT_EQ(total(whole.collectives, CollectiveKind::kAllReduce).count, 3);
  EXPECT_EQ(total(whole.collectives, CollectiveKind::kAllGather).count, 4);
}

// Every weight along one of its dimensions, whichever the devices divide, and the data whole: that is storage, not
// computation. One splitting per tensor cannot say it; with every weight gathered before use it can.
TEST_F(ExpertPairs, WeightsThatAreStoredInParts) {
  for (const char* name : {"flan_t5_large_fwd", "vit_fwd"}) {
    const auto loaded = unsharded(name);
    sharding::ShardingModel& model = loaded->model;
    const std::vector<TensorDim> wanted = of_pair(*loaded, name);
    ASSERT_GT(wanted.size(), 100u);
    const Outcome plain = decide(model, wanted);
    std::cout << name << " as it is: " << totals(plain) << "\n";
    EXPECT_GT(plain.refused.size(), 0u);
    for (const std::string& why : plain.why) EXPECT_THAT(why, HasSubstr("cannot"));
    model.relink(8, before_use(model, wanted));
    const Outcome whole = decide(model, wanted);
    std::cout << name << ", weights gathered before use: " << totals(whole) << "\n";
    EXPECT_THAT(whole.why, IsEmpty());
    EXPECT_EQ(whole.taken, wanted.size());
    EXPECT_EQ(total(whole.collectives, CollectiveKind::kAllReduce).count, 0);
    EXPECT_LE(total(whole.collectives, CollectiveKind::kAllGather).count, static_cast<std::int64_t>(wanted.size()));
  }
}

// The same in training, beside a batch that is split: weights are gathered before use, gradients reduced and cut.
TEST_F(ExpertPairs, WeightsThatAreStoredInPartsInTraining) {
  const std::string file = "train_spmd/llama3_8b_train_fsdp8.before_opt.hlo";
  const auto loaded = load_sharded(root_ / "hlo" / file);
  sharding::ShardingModel& model = loaded->model;
  const std::vector<TensorDim> wanted = decisions(model, root_, file);
  ASSERT_GT(wanted.size(), 20u);
  const Outcome plain = decide(model, wanted);
  std::cout << "as it is: " << totals(plain) << "\n";
  std::vector<TensorDim> data, stored;
  for (const TensorDim& at : wanted) {
    const auto input = std::find_if(model.inputs().begin(), model.inputs().end(),
                                    [&](const sharding::ModelInput& one) { return one.node == at.node; });
    (input->role == graph::InputRole::kStepInput ? data : stored).push_back(at);
  }
  ASSERT_FALSE(data.empty());
  for (std::size_t i = 0; i < plain.refused.size(); ++i) {
    EXPECT_NE(std::find(data.begin(), data.end(), plain.refused[i]), data.end()) << plain.why[i];
    EXPECT_THAT(plain.why[i], HasSubstr("cannot both be split"));
  }
  EXPECT_EQ(plain.refused.size(), data.size());
  model.relink(8, before_use(model, stored, data[0]));
  const Outcome whole = decide(model, wanted);
  std::cout << "weights gathered before use, gradients cut: " << totals(whole) << "\n";
  EXPECT_THAT(whole.why, IsEmpty());
  // Each weight at most once forward and once backward, and every gradient in pieces.
  std::int64_t weights = 0;
  for (const sharding::ModelInput& input : model.inputs()) {
    const bool is_stored =
        std::any_of(stored.begin(), stored.end(), [&](TensorDim at) { return at.node == input.node; });
    weights += is_stored && input.role == graph::InputRole::kVariable;
  }
  EXPECT_LE(total(whole.collectives, CollectiveKind::kAllGather).count, 2 * weights);
  EXPECT_LT(total(whole.collectives, CollectiveKind::kAllReduce).bytes,
            total(plain.collectives, CollectiveKind::kAllReduce).bytes / 50);
}

}  // namespace
}  // namespace automap::partition
