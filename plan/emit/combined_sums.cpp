#include "plan/emit/combined_sums.h"

#include <string_view>

#include "common/base/check.h"
#include "common/sharding/written_sums.h"

namespace automap::emit {

using graph::InstructionId;
using graph::kNone;

namespace {

// "f32[16,8]" of f32[16,64] split along dimension 1 over 8 devices; kNone: not split.
std::string part_text(const graph::Shape& shape, std::int32_t dim, int devices) {
  const std::string_view text = shape.text;
  std::string out(text.substr(0, text.find('[') + 1));
  for (std::size_t d = 0; d < shape.dims.size(); ++d) {
    const std::int64_t extent = shape.dims[d];
    const bool split = static_cast<std::int32_t>(d) == dim;
    AM_CHECK(!split || extent % devices == 0);
    out += (d == 0 ? "" : ",") + std::to_string(split ? extent / devices : extent);
  }
  return out + "]";
}

}  // namespace

CombinedSums::CombinedSums(const Layout& layout) : layout_(layout) {
  if (layout.num_axes() != 1 || !layout.model().sums_combined()) return;
  for (const sharding::CarriedSum& sum : sharding::carried_sums(layout.model(), layout.decided(0))) {
    sums_.emplace(layout.model().flow().node(sum.node).instruction, sum);
  }
}

std::optional<hlo::LocalOperand> CombinedSums::local_operand(InstructionId id, std::size_t operand) const {
  const auto found = sums_.find(id);
  if (found == sums_.end() || read_partial(id, operand)) return std::nullopt;
  const sharding::ShardingModel& model = layout_.model();
  const graph::Shape& shape = model.graph().shape_of(model.graph().operands(id)[operand]);
  const int devices = model.linkage().shards();
  sharding::TensorState state;
  if (found->second.factor != kNone) {
    for (const sharding::SlotDim at : sharding::parts_read(model, model.linkage().factor(found->second.factor))) {
      if (at.slot != static_cast<std::int32_t>(operand)) continue;
      state.kind = sharding::TensorStateKind::kSplit;
      state.dim = at.dim;
    }
  }
  const bool split = state.kind == sharding::TensorStateKind::kSplit;
  return hlo::LocalOperand{sharding_text({state}, {devices}, shape.dims.size()),
                           part_text(shape, split ? state.dim : kNone, devices), is_addend(id)};
}

std::optional<std::string> CombinedSums::summed(InstructionId id) const {
  const auto found = sums_.find(id);
  if (found == sums_.end() || !found->second.reduced) return std::nullopt;
  return layout_.text_where_made(found->second.node);
}

// The whole operand of a carried addition, which every device adds its share of.
bool CombinedSums::is_addend(InstructionId id) const {
  const graph::Opcode opcode = layout_.model().graph().instruction(id).opcode;
  return sums_.at(id).factor == kNone && (opcode == graph::Opcode::kAdd || opcode == graph::Opcode::kSubtract);
}

bool CombinedSums::read_partial(InstructionId id, std::size_t operand) const {
  const auto found = sums_.find(id);
  return found != sums_.end() && found->second.factor == kNone && found->second.partial[operand];
}

}  // namespace automap::emit
