// Chooses the tensors inside a module whose splitting XLA has to be told.
//
// XLA's own propagation fills in what nobody annotated, and differs from ours in one way: it carries a splitting on
// where our plan holds a tensor whole, through constants that several layers share, through the state of loops, and
// into tensors made of iota. It then gathers what it split too far. So these instructions are annotated besides the
// module's parameters and results:
// - those that leave partial sums: there a splitting ends;
// - those that read a free tensor (linkage.h) of a shape that is read in different states: XLA makes one tensor of
//   equal constants, where we see one per use;
// - free tensors made by an instruction that cannot be split (a concatenation of sines and cosines): held whole;
// - everything in the bodies of loops, and the instructions that make and read their state;
// - convolutions along whose windows neighbours exchange borders: XLA carries no splitting through windows that are as
//   large as their result;
// - at a gather, the instructions that read or make the tensor, and the operands of the reader;
// - readers and producers of the arguments and results of calls that share an instruction and run it in different
//   states; the instruction itself is left to XLA.
// A free tensor that several states of loops begin with, or that a scatter writes into, cannot be annotated itself when
// it is read in different ways: it is read through annotations. With several axes, an instruction that any of them
// wants annotated is annotated with all. An instruction that only reshapes one of several results (of a barrier, say)
// is not annotated: behind XLA's conversions such an annotation may stand at the instruction that has them, for all its
// results.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "common/sharding/model.h"
#include "common/sharding/propagation.h"
#include "plan/emit/layout.h"

namespace automap::emit {

// Instruction -> its sharding as HLO text; array results only, not the entry's parameters.
std::map<graph::InstructionId, std::string> inner_shardings(const Layout& layout);

// (instruction, number of the operand) -> the sharding it is read with (hlo::WriteOptions::operand_shardings).
std::map<std::pair<graph::InstructionId, std::size_t>, std::string> operand_shardings(const Layout& layout);

}  // namespace automap::emit
