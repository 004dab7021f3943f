// Lists the devices of a cluster that a plan may use: how many of each server, and the order of the servers. Servers
// that are alike are interchangeable; of choices that differ only in them one is listed.
#pragma once

#include <cstddef>
#include <vector>

#include "common/machine/chosen_devices.h"
#include "common/machine/cluster.h"

namespace automap::planners {

// Servers in an order, each with at least one device of its own.
using DeviceChoice = std::vector<machine::ServerShare>;

// All choices are listed up to so many devices and so many choices; beyond, only neighbours of the best choice are
// tried.
constexpr int kMostDevicesListed = 8;
constexpr std::size_t kMostChoices = 256;

// Lists every different choice of whole replicas of `width` devices, those with most devices first; empty: the devices
// or the choices are too many to try them all.
std::vector<DeviceChoice> all_choices(const machine::Cluster& cluster, int width);

// Choices a step away from one: a server less or more, at any place, one replica or half of the replicas of a server
// less, one more, two servers changing places, all servers with as many replicas as the smallest.
std::vector<DeviceChoice> choices_beside(const machine::Cluster& cluster, int width, const DeviceChoice& choice);

// Lists choices of all replicas of servers of some kinds, each kind's servers side by side, in every order of up to
// three kinds; with more kinds in file order and its reverse.
std::vector<DeviceChoice> orders_of_kinds(const machine::Cluster& cluster, int width);

// Choices of as many replicas of every server on which so many stages of as many devices stand evenly
// (servers_inexpressible): the most devices, and the most that leave each stage a power of two of replicas. `lone`:
// stages of one replica.
std::vector<DeviceChoice> even_choices(const machine::Cluster& cluster, int width, int stages, bool lone);

// The choice that these devices are (0-based numbers of single devices, server by server).
DeviceChoice choice_of(const machine::Cluster& cluster, const std::vector<int>& devices);

}  // namespace automap::planners
