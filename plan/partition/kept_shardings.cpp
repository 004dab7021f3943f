#include "plan/partition/kept_shardings.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/base/text_table.h"
#include "common/graph/user_shardings.h"
#include "common/sharding/propagation.h"
#include "plan/partition/data_parallel.h"
#include "plan/partition/stored_parts.h"

namespace automap::partition {
namespace {

using graph::DeviceAxis;
using graph::kNone;
using graph::MeshSplit;
using graph::NodeId;
using graph::UserSharding;
using sharding::Gather;
using sharding::GroupId;
using sharding::Linkage;
using sharding::ShardingModel;
using sharding::TensorDim;

// Repairs one value at a time, where all together cannot be: each may take as long as all.
constexpr int kMostRepairs = 16, kMostParted = 64, kMostExchanges = 64;
constexpr int kGathersBesides = 64, kGathersPerValue = 4;

struct Given {
  NodeId node = kNone;
  UserSharding said;
};

// The given shardings of arrays, in node order; if an array has several (a parameter and the root), the first.
std::vector<Given> given_shardings(const ShardingModel& model) {
  const graph::FlowGraph& flow = model.flow();
  const graph::Graph& graph = model.graph();
  std::map<NodeId, UserSharding> found;
  const auto add = [&](NodeId node, const std::optional<UserSharding>& said) {
    const graph::Shape& shape = flow.shape(node);
    if (!said || !shape.is_array() || !model.linkage().is_tensor(node)) return;
    if (!said->whole && said->split.dims.empty()) return;
    if (!said->split.dims.empty() && said->split.dims.size() != shape.dims.size()) return;
    found.emplace(node, *said);
  };
  for (NodeId node = 0; node < flow.size(); ++node) {
    const graph::FlowNode& at = flow.node(node);
    if (at.instruction == kNone || at.opcode == graph::Opcode::kConditional) continue;
    add(node, graph::user_sharding(graph, at.instruction, at.leaf == kNone ? 0 : static_cast<std::size_t>(at.leaf)));
  }
  const graph::InstructionId root = graph.entry().root;
  for (std::size_t k = 0; k < flow.results().size() && graph.shape_of(root).is_tuple(); ++k) {
    if (flow.results()[k] != kNone) add(flow.results()[k], graph::user_sharding(graph, root, k));
  }
  std::vector<Given> out;
  for (const auto& [node, said] : found) out.push_back({node, said});
  return out;
}

bool cuts(const Given& given) {
  return !given.said.whole && given.said.split.parts() > 1;
}

// Sizes of axes that cut something, and of meshes.
std::string axes_text(const std::vector<Given>& given) {
  std::set<std::int64_t> axes, meshes;
  for (const Given& one : given) {
    if (!cuts(one)) continue;
    meshes.insert(one.said.split.devices);
    for (const graph::DimSplit& dim : one.said.split.dims) {
      for (const DeviceAxis& axis : dim.axes) axes.insert(axis.size);
    }
  }
  const auto listed = [](const std::set<std::int64_t>& sizes) {
    std::string out;
    for (const std::int64_t size : sizes) out += (out.empty() ? "" : ", ") + std::to_string(size);
    return out;
  };
  return "they split over axes of " + listed(axes) + ", on meshes of " + listed(meshes) + " devices";
}

// The axis that is planned, where a mesh has more devices than that.
struct PlannedAxis {
  bool any = false;  // of some mesh, or all devices of one
  std::optional<DeviceAxis> axis;
};

PlannedAxis planned_axis(const ShardingModel& model, const std::vector<Given>& given, bool data) {
  PlannedAxis out;
  std::set<NodeId> decided;
  for (const std::int32_t index : data ? model.data() : model.variables()) {
    decided.insert(model.inputs()[at(index)].node);
  }
  const std::int64_t shards = model.linkage().shards();
  std::vector<std::pair<DeviceAxis, std::pair<int, int>>> found;  // how many of those it splits, how many of all
  for (const Given& one : given) {
    if (!cuts(one)) continue;
    if (one.said.split.devices == shards) out.any = true;
    for (const graph::DimSplit& dim : one.said.split.dims) {
      for (const DeviceAxis& axis : dim.axes) {
        if (axis.size != shards) continue;
        const auto same = [&](const auto& other) { return other.first == axis; };
        auto place = std::find_if(found.begin(), found.end(), same);
        if (place == found.end()) place = found.insert(found.end(), {axis, {0, 0}});
        place->second.first += decided.count(one.node) > 0 ? 1 : 0;
        ++place->second.second;
      }
    }
  }
  const auto most =
      std::max_element(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != found.end()) {
    out.axis = most->first;
    out.any = true;
  }
  return out;
}

std::string parts_text(std::int64_t parts, std::size_t dim) {
  return plural(parts, "part") + " of dimension " + std::to_string(dim);
}

// The effect of one sharding on the planned axis.
struct Said {
  int dim = -1;
  std::vector<int> whole;  // dimensions that it leaves uncut
  std::string left;
};

Said said_of(const Given& given, const graph::Shape& shape, const PlannedAxis& planned, std::int64_t shards) {
  Said out;
  const MeshSplit& split = given.said.split;
  const std::size_t rank = shape.dims.size();
  if (!cuts(given)) {
    for (std::size_t d = 0; d < rank; ++d) {
      if (given.said.whole || !split.dims[d].open) out.whole.push_back(static_cast<int>(d));
    }
    return out;
  }
  const bool all_devices = split.devices == shards;
  std::int64_t best = 0;
  for (std::size_t d = 0; d < rank; ++d) {
    const std::vector<DeviceAxis>& axes = split.dims[d].axes;
    const bool has_axis = !all_devices && planned.axis && std::any_of(axes.begin(), axes.end(), [&](DeviceAxis axis) {
      return axis.holds(*planned.axis);
    });
    const std::int64_t parts = all_devices ? split.dims[d].parts() : has_axis ? shards : 1;
    if (parts > std::max<std::int64_t>(best, 1)) {
      best = parts;
      out.dim = static_cast<int>(d);
    }
  }
  const std::string axis = "one axis of " + std::to_string(shards) + " devices";
  if (all_devices && split.parts() < shards) {
    // Parts of which there are copies: neither whole nor one part on every device.
    out.dim = -1;
    out.left = plural(split.parts(), "part") + " with " + std::to_string(shards / split.parts()) +
               " copies of each are not what " + axis + " can say";
    return out;
  }
  if (out.dim >= 0 && shape.dims[at(out.dim)] % shards != 0) {
    out.left = std::to_string(shards) + " devices do not divide the " + std::to_string(shape.dims[at(out.dim)]) +
               " of dimension " + std::to_string(out.dim);
    out.dim = -1;
    return out;
  }
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t parts = split.dims[d].parts();
    if (static_cast<int>(d) == out.dim) {
      if (parts > shards) out.left += (out.left.empty() ? "" : ", ") + parts_text(parts / shards, d) + " within each";
      if (parts < shards)
        out.left += (out.left.empty() ? "" : ", ") + parts_text(parts, d) + " become " + std::to_string(shards);
    } else if (parts > 1) {
      out.left += (out.left.empty() ? "" : ", ") + parts_text(parts, d);
    }
    if (out.dim < 0 && !split.dims[d].open) out.whole.push_back(static_cast<int>(d));
  }
  if (!out.left.empty())
    out.left += all_devices ? ": " + axis + " cuts one dimension" : ": another axis than is planned";
  return out;
}

class Keeping {
 public:
  Keeping(ShardingModel* model, bool data, const StepOfSplit& step_ms)
      : model_(*model), shards_(model->linkage().shards()), data_(data), step_ms_(step_ms) {}

  KeptShardings run() {
    const std::vector<Given> given = given_shardings(model_);
    if (std::none_of(given.begin(), given.end(), cuts)) return {};
    const PlannedAxis axis = planned_axis(model_, given, data_);
    if (!axis.any) throw Error(ErrorKind::kData, why_not_kept(model_), "give --shards one of these numbers");
    for (const Given& one : given) {
      const Said said = said_of(one, model_.flow().shape(one.node), axis, shards_);
      out_.values.push_back({one.node, said.dim, std::string(one.said.text), said.left});
      whole_.push_back(said.whole);
    }
    const bool all = std::any_of(given.begin(), given.end(),
                                 [&](const Given& one) { return cuts(one) && one.said.split.devices == shards_; });
    out_.axis = all ? "all " + std::to_string(shards_) + " devices as one axis"
                    : "the axis of " + std::to_string(shards_) + " devices";
    begin();
    keep_split();
    keep_whole();
    exchange();
    drop_needless_beginnings();
    return std::move(out_);
  }

 private:
  void link(std::vector<Gather> gathers) { model_.relink(shards_, std::move(gathers)); }

  // Which of `dims`, one after the other, cannot be split beside those before them.
  std::vector<TensorDim> refused(const std::vector<TensorDim>& dims) const {
    sharding::Propagation decided(model_.linkage());
    std::vector<TensorDim> out;
    for (const TensorDim dim : dims) {
      if (decided.split(dim)) out.push_back(dim);
    }
    return out;
  }

  static void remove_all(std::vector<TensorDim>* from, const std::vector<TensorDim>& what) {
    from->erase(std::remove_if(from->begin(), from->end(),
                               [&](TensorDim one) { return std::find(what.begin(), what.end(), one) != what.end(); }),
                from->end());
  }

  // Each value that is cut inside may be cut whatever inputs say.
  void begin() {
    std::set<NodeId> inputs;
    for (const sharding::ModelInput& input : model_.inputs()) inputs.insert(input.node);
    std::vector<Gather> gathers = model_.gathers();
    for (KeptValue& value : out_.values) {
      if (value.dim >= 0 && model_.linkage().group_of(value.node, value.dim) == kNone) value.dim = -1;
      if (value.dim < 0 || inputs.count(value.node) > 0) continue;
      gathers.push_back({model_.flow().producer(value.node), value.node, value.dim, Gather::Kind::kBegun});
    }
    link(std::move(gathers));
  }

  // Splits computed values first; stored inputs follow them.
  void keep_split() {
    std::set<NodeId> stored;
    for (const sharding::ModelInput& input : model_.inputs()) {
      if (input.role != graph::InputRole::kStepInput) stored.insert(input.node);
    }
    std::vector<TensorDim> computed, kept;
    for (const KeptValue& value : out_.values) {
      if (value.dim >= 0) (stored.count(value.node) > 0 ? kept : computed).push_back({value.node, value.dim});
    }
    settle(&computed);
    std::vector<TensorDim> all = computed;
    all.insert(all.end(), kept.begin(), kept.end());
    const std::vector<TensorDim> colliding = refused(all);
    if (!colliding.empty()) {
      const std::vector<Gather> before = model_.gathers();
      std::vector<TensorDim> accepted = all;
      remove_all(&accepted, colliding);
      gather_before_use(&model_, accepted, colliding);
      // Undo if this would lose the splitting of an earlier value.
      if (!refused(accepted).empty()) link(before);
      settle(&all);
    }
    out_.split = all;
  }

  // Gathers where `dims` collide; those that cannot be split beside the others all the same are given up.
  void settle(std::vector<TensorDim>* dims) {
    const std::vector<TensorDim> colliding = refused(*dims);
    if (colliding.empty()) return;
    const int most = kGathersBesides + kGathersPerValue * static_cast<int>(dims->size());
    if (repair(&model_, *dims, most).possible) return;
    remove_all(dims, colliding);
    int repairs = 0;
    for (const TensorDim dim : colliding) {
      std::vector<TensorDim> with = *dims;
      with.push_back(dim);
      std::string why_not = "it collides with others that are kept";
      bool possible = refused(with).empty();
      if (!possible && ++repairs <= kMostRepairs) {
        const RepairResult repaired = repair(&model_, with, most);
        possible = repaired.possible;
        if (!possible) why_not = repaired.why_not;
      }
      if (possible) {
        *dims = std::move(with);
      } else {
        give_up(dim, why_not);
      }
    }
  }

  void give_up(TensorDim dim, const std::string& why_not) {
    for (KeptValue& value : out_.values) {
      if (value.node != dim.node || value.dim != dim.dim) continue;
      value.left = "all of it: " + why_not;
      value.dim = -1;
    }
  }

  // Gathers that make one dimension of a value whole although the dimensions linked with it are split.
  std::vector<Gather> apart(TensorDim at) const {
    std::vector<Gather> out;
    const Linkage& linkage = model_.linkage();
    const NodeId maker = model_.flow().producer(at.node);
    const auto holds = [&](const sharding::OpFactor& factor) {
      return std::find(factor.members.begin(), factor.members.end(), at) != factor.members.end();
    };
    for (const sharding::OpFactor& factor : linkage.factors(maker)) {
      if (!holds(factor)) continue;
      for (const TensorDim member : factor.members) out.push_back({maker, member.node, member.dim});
    }
    for (const NodeId user : model_.flow().users(at.node)) {
      for (const sharding::OpFactor& factor : linkage.factors(user)) {
        if (holds(factor)) out.push_back({user, at.node, at.dim, Gather::Kind::kInParts});
      }
    }
    for (const sharding::ModelInput& input : model_.inputs()) {
      const NodeId updated =
          input.result == kNone ? kNone : model_.flow().results()[static_cast<std::size_t>(input.result)];
      if (updated == kNone || updated == input.node || (input.node != at.node && updated != at.node)) continue;
      if (model_.flow().shape(updated).dims != model_.flow().shape(input.node).dims) continue;
      out.push_back({input.node, updated, at.dim, Gather::Kind::kHandedOn});
    }
    return out;
  }

  void keep_whole() {
    std::vector<std::pair<std::size_t, TensorDim>> hung;  // which value, of what hangs together with what is split
    std::vector<TensorDim> ends;
    for (std::size_t i = 0; i < out_.values.size(); ++i) {
      const KeptValue& value = out_.values[i];
      for (const int dim : whole_[i]) {
        const TensorDim at{value.node, dim};
        if (value.dim >= 0 || model_.linkage().group_of(at) == kNone) continue;
        out_.whole.push_back(at);
        if (!is_split(at)) continue;
        hung.emplace_back(i, at);
        ends.push_back(at);
      }
    }
    if (!hung.empty() && !part(ends)) {
      int tries = 0;
      for (const auto& [i, at] : hung) {
        if (++tries <= kMostParted && part({at})) continue;
        std::string& left = out_.values[i].left;
        left += (left.empty() ? "" : "; ") + std::string("that dimension ") + std::to_string(at.dim) +
                " is whole: what it hangs together with is split";
      }
    }
    // The new linkage may have tied values to split ones; those are no longer whole.
    const auto lost = [&](TensorDim at) { return is_split(at); };
    out_.whole.erase(std::remove_if(out_.whole.begin(), out_.whole.end(), lost), out_.whole.end());
  }

  // Makes these dimensions whole. False: then other split dimensions would not stay split.
  bool part(const std::vector<TensorDim>& ends) {
    const std::vector<Gather> before = model_.gathers();
    std::vector<Gather> gathers = before;
    for (const TensorDim at : ends) {
      for (const Gather& gather : apart(at)) {
        if (std::find(gathers.begin(), gathers.end(), gather) == gathers.end()) gathers.push_back(gather);
      }
    }
    link(std::move(gathers));
    const auto still = [&](TensorDim at) { return is_split(at); };
    if (refused(out_.split).empty() && std::none_of(ends.begin(), ends.end(), still)) return true;
    link(before);
    return false;
  }

  bool is_split(TensorDim at) const {
    const GroupId group = model_.linkage().group_of(at);
    return group != kNone && std::any_of(out_.split.begin(), out_.split.end(),
                                         [&](TensorDim one) { return model_.linkage().group_of(one) == group; });
  }

  // A tensor that is gathered along one dimension for an instruction whose result is then kept in parts along another:
  // where the two dimensions hang together an all-to-all takes it from the one to the other, and nothing is made whole.
  void exchange() {
    const std::vector<Gather> before = model_.gathers();
    const ShardingModel plain = model_.another_axis(shards_);
    std::vector<Gather> all = before;
    int found = 0;
    for (const Gather& made : before) {
      if (sharding::is_made_whole(model_.flow(), made) && exchange_for(plain, made, &all)) ++found;
    }
    if (found == 0 || try_gathers(all) || found == 1) return;
    // Not all of them: one after the other.
    std::vector<Gather> some = before;
    int tries = 0;
    for (const Gather& made : before) {
      std::vector<Gather> more = some;
      if (!sharding::is_made_whole(model_.flow(), made) || !exchange_for(plain, made, &more)) continue;
      if (++tries > kMostExchanges) return;
      if (try_gathers(more)) some = std::move(more);
    }
  }

  // Links so where nothing that is kept is lost by it, and the step is shorter.
  bool try_gathers(const std::vector<Gather>& gathers) {
    const std::vector<Gather> before = model_.gathers();
    const double before_ms = step_ms_(out_.split);
    link(gathers);
    const bool whole_is_whole =
        std::none_of(out_.whole.begin(), out_.whole.end(), [&](TensorDim at) { return is_split(at); });
    if (whole_is_whole && refused(out_.split).empty() && step_ms_(out_.split) < before_ms) return true;
    link(before);
    return false;
  }

  // `made`: the result is made whole along its dimension. In `gathers` an exchange in its place; false: there is none.
  bool exchange_for(const ShardingModel& plain, const Gather& made, std::vector<Gather>* gathers) const {
    const auto find = [&](NodeId tensor, int dim) {
      return std::find(gathers->begin(), gathers->end(), Gather{made.op, tensor, dim, Gather::Kind::kRead});
    };
    for (const sharding::OpFactor& factor : plain.linkage().factors(made.op)) {
      const TensorDim result{made.tensor, made.dim};
      if (std::find(factor.members.begin(), factor.members.end(), result) == factor.members.end()) continue;
      for (const TensorDim member : factor.members) {
        if (member.node == made.tensor) continue;
        const auto read = std::find_if(gathers->begin(), gathers->end(), [&](const Gather& one) {
          return one.op == made.op && one.tensor == member.node && one.dim != member.dim &&
                 one.kind == Gather::Kind::kRead;
        });
        if (read == gathers->end()) continue;
        read->kind = Gather::Kind::kExchanged;
        gathers->push_back({made.op, member.node, member.dim, Gather::Kind::kInParts});
        // The other members of the factor follow: where one is split in this way its gather goes, where it is whole it
        // is taken in parts.
        for (const TensorDim other : factor.members) {
          if (other.node == member.node || other.node == made.tensor) continue;
          const auto gathered = find(other.node, other.dim);
          if (gathered != gathers->end()) {
            gathers->erase(gathered);
          } else if (!is_split(other)) {
            gathers->push_back({made.op, other.node, other.dim, Gather::Kind::kInParts});
          }
        }
        gathers->erase(find(made.tensor, made.dim));
        return true;
      }
    }
    return false;
  }

  // Keeps, of the values whose splitting begins inside, only those that nothing else decides, one of each group.
  void drop_needless_beginnings() {
    const std::vector<Gather> before = model_.gathers();
    const auto is_begun = [](const Gather& gather) { return gather.kind == Gather::Kind::kBegun; };
    std::vector<Gather> needed;
    std::remove_copy_if(before.begin(), before.end(), std::back_inserter(needed), is_begun);
    link(needed);
    std::set<GroupId> begun;
    for (const Gather& gather : before) {
      const TensorDim at{gather.tensor, gather.dim};
      if (!is_begun(gather)) continue;
      if (std::find(out_.split.begin(), out_.split.end(), at) == out_.split.end()) continue;
      const GroupId group = model_.linkage().group_of(at);
      if (model_.linkage().inputs(group).empty() && begun.insert(group).second) needed.push_back(gather);
    }
    link(std::move(needed));
  }

  ShardingModel& model_;
  const int shards_;
  const bool data_;
  const StepOfSplit& step_ms_;
  KeptShardings out_;
  std::vector<std::vector<int>> whole_;  // of each value: dimensions to be kept whole
};

}  // namespace

std::string why_not_kept(const ShardingModel& model) {
  const std::vector<Given> given = given_shardings(model);
  if (std::none_of(given.begin(), given.end(), cuts) || planned_axis(model, given, false).any) return "";
  return "the module's own shardings have no axis of " + plural(model.linkage().shards(), "device") + ": " +
         axes_text(given);
}

KeptShardings keep_shardings(ShardingModel* model, bool data, const StepOfSplit& step_ms) {
  return Keeping(model, data, step_ms).run();
}

}  // namespace automap::partition
