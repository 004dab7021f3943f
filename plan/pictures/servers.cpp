#include "plan/pictures/servers.h"

#include <algorithm>

#include "common/base/markup.h"
#include "common/base/numbers.h"
#include "common/base/text_table.h"
#include "common/machine/link_kinds.h"

namespace automap::pictures {
namespace {

constexpr int kMostDrawnDevices = 2048;
// Told apart in light and dark, with dark letters on them; stages beyond begin again.
constexpr const char* kStageColours[] = {"#8ec5f0", "#f5b97a", "#a5d6a0", "#d9b3e6",
                                         "#f2a2a2", "#e3d48a", "#9fd8d4", "#c9c9c9"};

// The role of a device, "p2 d1 t4"; only the kinds of parallelism that the plan has.
std::string role_text(const DeviceRole& role, bool pipeline, bool data, bool tensor) {
  std::string out;
  if (pipeline) out += "p" + std::to_string(role.stage) + " ";
  if (data) out += "d" + std::to_string(role.replica) + " ";
  if (tensor) out += "t" + std::to_string(role.part) + " ";
  if (!out.empty()) out.pop_back();
  return out;
}

std::string swatch(const std::string& style, const std::string& words) {
  return "<span><span class=\"swatch\" style=\"" + style + "\"></span> " + escape_markup(words) + "</span> ";
}

}  // namespace

std::vector<DeviceRole> device_roles(const machine::Cluster& cluster, const pipeline::PlanDocument& document) {
  std::vector<DeviceRole> roles(at(cluster.num_devices()));
  for (std::size_t s = 0; s < document.stages.size(); ++s) {
    const pipeline::PlanStage& stage = document.stages[s];
    for (std::size_t d = 0; d < stage.device_numbers.size(); ++d) {
      const int number = stage.device_numbers[d], place = static_cast<int>(d), width = std::max(1, stage.width);
      if (number < 1 || number > cluster.num_devices()) continue;
      roles[at(number - 1)] = {static_cast<int>(s) + 1, place / width + 1, place % width + 1};
    }
  }
  return roles;
}

std::string servers_markup(const machine::Cluster& cluster, const pipeline::PlanDocument& document) {
  const std::vector<DeviceRole> roles = device_roles(cluster, document);
  const bool pipeline = document.stages.size() > 1;
  bool data = false, tensor = false, unused = false;
  for (const DeviceRole& role : roles) {
    data = data || role.replica > 1;
    tensor = tensor || role.part > 1;
    unused = unused || role.stage == 0;
  }
  if (roles.size() > at(kMostDrawnDevices)) {
    return "<p>" +
           escape_markup("The cluster has " + format_count(static_cast<long long>(roles.size())) + " devices on " +
                         plural(cluster.num_servers(), "server") +
                         ", too many to draw: the table of stages says "
                         "which of them each has.") +
           "</p>\n";
  }
  std::string out = "<p class=\"legend\">";
  for (std::size_t s = 0; s < document.stages.size() && s < std::size(kStageColours); ++s) {
    out += swatch(std::string("background:") + kStageColours[s],
                  pipeline ? "p" + std::to_string(s + 1) + ": pipeline stage" : "in use");
  }
  if (document.stages.size() > std::size(kStageColours))
    out += "<span>later stages begin again with the first colour</span> ";
  if (data) out += "<span>d: replica (data parallel)</span> ";
  if (tensor) out += "<span>t: part of a replica's tensors (tensor parallel; a frame around each replica)</span> ";
  if (unused) out += swatch("background:var(--panel)", "not used");
  out += "</p>\n<div class=\"servers\">\n";
  std::size_t device = 0;
  int server = 0;
  for (const machine::ServerGroup& group : cluster.servers) {
    for (int i = 0; i < group.count; ++i) {
      ++server;
      out += "<figure class=\"server\"><figcaption>" +
             escape_markup("server " + std::to_string(server) + ": " + std::to_string(group.devices) + " x " +
                           shorten(machine::device_type(group.device), 30)) +
             "</figcaption><div>";
      for (int d = 0; d < group.devices; ++d, ++device) {
        const DeviceRole& role = roles[device];
        const bool framed = tensor && role.stage > 0;
        // Neighbours of one replica share a frame.
        if (framed && role.part == 1) out += "<span class=\"replica\">";
        const std::string words = role.stage > 0 ? role_text(role, pipeline, data, tensor) : "";
        out += "<span class=\"device\"";
        if (role.stage > 0) {
          out +=
              std::string(" style=\"background:") + kStageColours[at(role.stage - 1) % std::size(kStageColours)] + "\"";
        }
        out += "><b>" + std::to_string(device + 1) + "</b> " + words + "</span>";
        const bool last = d + 1 == group.devices || roles[device + 1].part != role.part + 1 ||
                          roles[device + 1].replica != role.replica || roles[device + 1].stage != role.stage;
        if (framed && last) out += "</span>";
      }
      out += "</div></figure>\n";
    }
  }
  return out + "</div>\n";
}

}  // namespace automap::pictures
