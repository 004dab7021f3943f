// Estimates the time that a host adds to a pass when it launches kernels one after the other.
//
// Launches are asynchronous: a host that has launched a long kernel runs ahead of its device and launches the next ones
// meanwhile. So no single kernel waits, but a pass takes at least as long as the host needs for all its launches
// (DeviceModel::host_us each). Optimizers update many variables by one launch and wait for nothing.
//
// How many launches a module stands for depends on how it was written down: biases, dropout and layouts make more
// kernels of a compiler's, or none. Products and convolutions are the same in all forms, and software that launches one
// operation after the other surrounds each with as many others. So the larger of two counts is taken.
#pragma once

#include <vector>

#include "profile/instruction_times.h"

namespace automap::profile {

// Kernels of a compiler's that stand for what eager software runs beside one product: as the steps of small GPT models
// that were published (vTrain) take whatever the width.
constexpr double kKernelsOfAProduct = 2.5;

// The host time of a pass, by position: `by_kernels` or `by_products`, whichever has the larger sum.
std::vector<double> host_of_pass(std::vector<double> by_kernels, std::vector<double> by_products);

// `device_ms`: what the device takes, `host_ms`: what the host needs to launch it, both by position, of one pass. Where
// the host needs longer in all, `device_ms` is lengthened to its time, in proportion to the launches.
void wait_for_host(std::vector<double>* device_ms, const std::vector<double>& host_ms);

// Adds host time where passes are not told apart: the host of operators one by one cannot run ahead, so every kernel
// waits.
void wait_at_every_kernel(InstructionTimes* times);

}  // namespace automap::profile
