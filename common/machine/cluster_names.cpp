// Clusters by name: presets, and names that describe the cluster, DEVICE-SERVERSxDEVICES[@NETWORK].
#include "common/machine/cluster_names.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>
#include <utility>

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/suggest.h"
#include "common/machine/device.h"

namespace automap::machine {
namespace {

constexpr int kDevicesOfPresets = 8;  // per server

struct Preset {
  const char* name;
  int servers;
  const char* device;
  double intra_gbytes_per_s;
  double inter_gbytes_per_s;
  double intra_latency_us;
  double inter_latency_us;
  bool measured = true;   // the device's known links count, else ring formulas of the figures
  bool own_ports = true;  // a server has a port for each of its devices, else one in all
};

// All presets have 8 devices per server; bandwidths are per direction.
constexpr Preset kPresets[] = {
    // Auto-MAP (arXiv 2007.04069), Table 2: V100-16GB, NVLink 130 GB/s, Ethernet 25 Gbit/s; no latencies given there.
    {"config-a", 2, "v100-16gb", 130, 3.125, 0, 0, false},
    {"config-b", 3, "v100-16gb", 130, 3.125, 0, 0, false},
    {"config-c", 4, "v100-16gb", 130, 3.125, 0, 0, false},
    // NVIDIA DGX-1 as measured for Aceso: NVLink 2, 150 GB/s per device and way, 100 Gbit/s InfiniBand per server.
    {"v100-2x8", 2, "v100-32gb", 150, 12.5, 36, 80, true, false},
    {"v100-4x8", 4, "v100-32gb", 150, 12.5, 36, 80, true, false},
    // NVIDIA DGX A100: NVLink 3, 600 GB/s per device both ways = 300; 8 x HDR InfiniBand of 200 Gbit/s = 200 GB/s per
    // server. Latencies here and below: a small message between two devices, as NCCL tests show them, rounded.
    {"a100-40gb-2x8", 2, "a100-40gb", 300, 200, 3, 6},
    {"a100-2x8", 2, "a100-80gb", 300, 200, 3, 6},
    {"a100-4x8", 4, "a100-80gb", 300, 200, 3, 6},
    {"a100-8x8", 8, "a100-80gb", 300, 200, 3, 6},
    // The same servers in a cloud with 400 Gbit/s of network in all (AWS p4de.24xlarge).
    {"a100-cloud-4x8", 4, "a100-80gb", 300, 50, 3, 20},
    // NVIDIA DGX H100 / H200: NVLink 4, 900 GB/s both ways = 450; 8 x NDR InfiniBand of 400 Gbit/s = 400 GB/s.
    {"h100-1x8", 1, "h100-80gb", 450, 400, 3, 5},
    {"h100-2x8", 2, "h100-80gb", 450, 400, 3, 5},
    {"h100-4x8", 4, "h100-80gb", 450, 400, 3, 5},
    {"h100-8x8", 8, "h100-80gb", 450, 400, 3, 5},
    {"h200-1x8", 1, "h200-141gb", 450, 400, 3, 5},
    {"h200-2x8", 2, "h200-141gb", 450, 400, 3, 5},
    {"h200-4x8", 4, "h200-141gb", 450, 400, 3, 5},
};

// Assumed servers of other devices, where a name asks for one: the vendors' own figures, one way, and the network that
// such servers usually have. Nobody measured them here.
constexpr Preset kOtherServers[] = {
    // NVLink 5, 1800 GB/s both ways; 8 x 400 Gbit/s.
    {"b200", 0, "b200", 900, 400, 3, 5},
    {"gb200", 0, "gb200", 900, 400, 3, 5},
    {"h20", 0, "h20", 450, 400, 3, 5},
    // Infinity Fabric: seven links of 64 GB/s one way.
    {"mi300x", 0, "mi300x", 448, 400, 5, 6},
    // PCIe 4.0 x16, of which some 25 of 32 GB/s are reached, and one port of 100 Gbit/s.
    {"a10", 0, "a10", 25, 12.5, 10, 20, true, false},
    {"l4", 0, "l4", 25, 12.5, 10, 20, true, false},
    {"l40s", 0, "l40s", 25, 12.5, 10, 20, true, false},
    {"rtx4090", 0, "rtx4090", 25, 12.5, 10, 20, true, false},
};

Cluster make_servers(const Preset& like, const std::string& name, int servers, int devices, double inter_gbytes_per_s) {
  Cluster cluster;
  cluster.name = name;
  ServerGroup group;
  group.count = servers;
  group.devices = devices;
  group.intra_gbytes_per_s = like.intra_gbytes_per_s;
  group.inter_gbytes_per_s = inter_gbytes_per_s;
  group.device = like.device;
  if (like.measured) {
    group.links = known_links(like.device);
    const bool usual = inter_gbytes_per_s == like.inter_gbytes_per_s && devices == kDevicesOfPresets;
    if (!usual) {
      auto& rows = group.links.rows;
      rows.erase(
          std::remove_if(rows.begin(), rows.end(), [](const MeasuredCollective& row) { return row.servers > 1; }),
          rows.end());
    }
    // Where nothing was measured: a device has its own network port, one of as many as there are devices.
    if (!group.links.send(false)) {
      const double port = inter_gbytes_per_s / devices * kBytesPerMsPerGByteS;
      const CollectiveTime own_port(like.inter_latency_us * 1e-3, 1 / port);
      group.links.rows.push_back({CollectiveKind::kPermute, 2, 2, own_port, true});
    }
  }
  cluster.servers.push_back(group);
  cluster.intra_latency_us = like.intra_latency_us;
  cluster.inter_latency_us = like.inter_latency_us;
  cluster.devices[like.device] = *known_device(like.device);
  return cluster;
}

// The presets whose words ("a100", "2x8") the name shares most, less those of their own; none when it shares none.
// "a100-80gb-2x8" means a100-2x8, though a100-40gb-2x8 is written more like it.
std::vector<std::string> by_words(const std::string& name) {
  const auto words_of = [](const std::string& text) {
    std::set<std::string> words;
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find_first_of("-_", begin), text.size());
      if (end > begin) words.insert(text.substr(begin, end - begin));
      begin = end + 1;
    }
    return words;
  };
  const std::set<std::string> asked = words_of(name);
  std::vector<std::string> best;
  int most = 0;
  for (const std::string& preset : cluster_preset_names()) {
    int shared = 0, own = 0;
    for (const std::string& word : words_of(preset)) ++(asked.count(word) > 0 ? shared : own);
    const int worth = 2 * shared - own;
    if (shared == 0 || worth < most) continue;
    if (worth > most) best.clear();
    best.push_back(preset);
    most = worth;
  }
  return best;
}

// A whole number without a sign at the start of `text`, taken off it; 0: there is none, or it is beyond any cluster.
int take_number(std::string* text) {
  std::size_t digits = 0;
  while (digits < text->size() && std::isdigit(static_cast<unsigned char>((*text)[digits])) != 0) ++digits;
  const int number = digits == 0 || digits > 8 ? 0 : std::atoi(text->substr(0, digits).c_str());
  text->erase(0, digits);
  return number;
}

// The device of a name or an alias; empty: none.
std::string device_of(const std::string& word) {
  const std::optional<DeviceModel> known = find_device(word);
  return known ? known->name : "";
}

const Preset* servers_like(const std::string& device) {
  const std::string known = find_device(device)->name;
  const std::string meant = known == "v100-16gb" ? "v100-32gb" : known;
  for (const Preset& preset : kPresets) {
    if (preset.measured && find_device(preset.device)->name == meant) return &preset;
  }
  for (const Preset& preset : kOtherServers) {
    if (preset.device == meant) return &preset;
  }
  return nullptr;
}

// "400g", "hdr", "hdr4", "100gx2": GB/s of a server with so many devices; 0: no network.
double network_gbytes_per_s(std::string text, int devices) {
  static constexpr std::pair<const char*, int> kInfiniBand[] = {{"edr", 100}, {"hdr", 200}, {"ndr", 400}, {"xdr", 800}};
  double gbits = 0;
  bool named = false;
  for (const auto& [word, rate] : kInfiniBand) {
    if (text.rfind(word, 0) != 0) continue;
    gbits = rate;
    text.erase(0, 3);
    named = true;
    break;
  }
  if (!named) {
    gbits = take_number(&text);
    if (text.empty() || text[0] != 'g') return 0;
    text.erase(0, 1);
    if (!text.empty() && (text[0] != 'x' || text.size() == 1)) return 0;
    if (!text.empty()) text.erase(0, 1);
  }
  constexpr int kMostPorts = 64;
  constexpr double kMostGbits = 100000;
  const bool counted = !text.empty();
  const int ports = counted ? take_number(&text) : devices;
  if (!text.empty() || ports < 1 || (counted && ports > kMostPorts) || gbits < 1 || gbits > kMostGbits) return 0;
  return gbits / 8 * ports;
}

}  // namespace

std::optional<DeviceType> known_device(const std::string& name) {
  const std::optional<DeviceModel> model = find_device(name);
  if (!model) return std::nullopt;
  DeviceType type;
  type.memory_gib = model->memory_gib;
  type.peak_tflops = model->peak_tflops;
  type.memory_gbytes_per_s = model->memory_gbytes_per_s;
  return type;
}

std::vector<std::string> cluster_preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

std::vector<std::string> presets_by_words(const std::string& name) {
  return by_words(name);
}

std::optional<Cluster> cluster_by_name(const std::string& name) {
  for (const Preset& preset : kPresets) {
    if (name == preset.name) {
      return make_servers(preset, name, preset.servers, kDevicesOfPresets, preset.inter_gbytes_per_s);
    }
  }
  const std::size_t network_at = name.find('@');
  const std::string front = name.substr(0, network_at);
  const std::size_t dash = front.rfind('-');
  if (dash == std::string::npos || name.size() > 100) return std::nullopt;
  const std::string device = device_of(front.substr(0, dash));
  std::string counts = front.substr(dash + 1);
  const int servers = take_number(&counts);
  if (device.empty() || counts.empty() || counts[0] != 'x') return std::nullopt;
  counts.erase(0, 1);
  const int devices = take_number(&counts);
  if (!counts.empty()) return std::nullopt;
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::kConfig, "cluster \"" + name + "\": " + what,
                std::string("names are ") + kClusterGrammar + "; or give a JSON file, see docs/formats/cluster.md");
  };
  if (servers < 1 || devices < 1 || static_cast<long long>(servers) * devices > kMaxDevices) {
    refuse("expected at least one server of at least one device, and at most " + std::to_string(kMaxDevices) +
           " devices in all");
  }
  const Preset* like = servers_like(device);
  if (like == nullptr) refuse("nothing is known of servers of " + device);
  double inter = like->own_ports ? like->inter_gbytes_per_s / kDevicesOfPresets * devices : like->inter_gbytes_per_s;
  if (network_at != std::string::npos) {
    inter = network_gbytes_per_s(name.substr(network_at + 1), devices);
    if (inter <= 0) {
      refuse("no network \"" + name.substr(network_at + 1) +
             "\"; known are a port of so many Gbit/s for every device (400g, or edr, hdr, ndr, xdr of 100, 200, 400, "
             "800), and so many ports a server (100gx2, hdr4)");
    }
  } else {
    // Two names of one cluster are one.
    for (const Preset& preset : kPresets) {
      const bool same = preset.measured && preset.servers == servers && devices == kDevicesOfPresets &&
                        preset.inter_gbytes_per_s == like->inter_gbytes_per_s &&
                        find_device(preset.device)->name == find_device(device)->name;
      if (same) return cluster_by_name(preset.name);
    }
  }
  Preset own = *like;
  own.device = device.c_str();
  return make_servers(own, name, servers, devices, inter);
}

}  // namespace automap::machine
