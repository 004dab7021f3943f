// The cluster that a plan is made for. File form `automap.cluster/1`: docs/formats/cluster.md. GB = 1e9 bytes, GiB =
// 2^30 bytes. Devices are numbered server by server in file order (the linear device order).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/machine/links.h"

namespace automap::machine {

// The most devices a cluster may have.
constexpr int kMaxDevices = 4096;

struct DeviceType {
  double memory_gib = 0;
  double relative_speed = 1;                  // against the device the profile was made for; 2 = twice as fast
  std::map<std::string, double> peak_tflops;  // "f32", "f16", ...; may be empty
  double memory_gbytes_per_s = 0;             // 0 when not given
};

struct ServerGroup {
  int count = 1;                  // equal servers in a row
  int devices = 1;                // devices in each
  double intra_gbytes_per_s = 0;  // between two devices of one server
  double inter_gbytes_per_s = 0;  // of the server's network port; a link between two servers has the smaller one
  std::string device;             // key into Cluster::devices
  // Measurements of its links, which replace the figures above; empty: ring formulas.
  MeasuredLinks links = {};
  double price_per_device_hour = 0;  // in any one currency; 0: nobody says it
};

struct Cluster {
  std::string name;
  std::vector<ServerGroup> servers;
  double intra_latency_us = 0;
  double inter_latency_us = 0;
  std::map<std::string, DeviceType> devices;
  // For a part of a cluster (chosen_devices.h): the number of each of its devices, and of each of its servers, in the
  // whole, 0-based. Empty: this is the whole.
  std::vector<int> device_numbers, server_numbers;
  std::vector<int> servers_taken_for_one;  // of such a part: how many there, side by side, each of its servers is

  int num_devices() const;  // D, over all servers
  int num_servers() const;
};

// The widths beyond 1 of which a server has a replica: powers of two, ascending.
std::vector<int> widths_of(const Cluster& cluster);

// One server of so many such devices, with the links that are known of them, else link_gbytes_per_s of each to the
// others. Throws Error(kConfig) for a device of which neither is known.
Cluster one_server(const DeviceModel& device, int devices);

// Reads a cluster from JSON text. Throws Error(kConfig) naming `source`, the key and what was expected; unknown keys
// and keys given twice are errors. Devices in use that the text does not describe are taken from the table of
// common/machine/device.h, and links inside servers whose speed it does not say from common/machine/links.h. Logs that
// `collectives` names are looked for beside `source`.
Cluster parse_cluster(std::string_view json_text, const std::string& source);
// A preset name ("config-a", "config-b", "config-c", "a100-4x8", ...), else a path ("./config-a" is a file). Unknown
// names list the presets. Throws Error(kConfig), or Error(kIo) when the file cannot be read.
Cluster load_cluster(const std::string& name_or_path);
std::vector<std::string> cluster_preset_names();
// The `automap.cluster/1` document.
std::string to_json_text(const Cluster& cluster);
// Throws Error(kConfig) naming `source` on anything out of range (zero devices, negative bandwidth, ...).
void check_cluster(const Cluster& cluster, const std::string& source);

}  // namespace automap::machine
