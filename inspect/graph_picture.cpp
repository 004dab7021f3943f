#include "inspect/graph_picture.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "common/base/error.h"
#include "common/base/markup.h"
#include "common/base/text_table.h"

namespace automap::inspect {
namespace {

using pipeline::PlanDocument;
using pipeline::PlanStage;

constexpr double kWidth = 860, kBoxLeft = 190, kBoxWidth = 400, kBoxHeight = 34, kStep = 66, kTop = 76;
constexpr double kLanes = kWidth - kBoxLeft - kBoxWidth - 20;  // for tensors that pass layers by
constexpr int kNameColumns = 46, kTitleColumns = 90, kStageColumns = 24;
constexpr std::size_t kColours = 8;

// For each layer, the stages that compute some of it, ascending.
using StagesOfLayers = std::vector<std::vector<std::size_t>>;

StagesOfLayers stages_of_layers(const LayerGraph& graph, const PlanDocument& plan, const std::string& source) {
  std::map<std::string, std::pair<std::size_t, std::size_t>> place;  // HLO name -> position, layer
  std::size_t position = 0;
  for (std::size_t l = 0; l < graph.layers.size(); ++l) {
    for (const std::string& name : graph.layers[l].instructions) place.emplace(name, std::make_pair(position++, l));
  }
  std::map<std::string, std::size_t> by_name;
  for (std::size_t l = 0; l < graph.layers.size(); ++l) by_name.emplace(graph.layers[l].name, l);
  // By instruction where the module has it, else by layer.
  const auto find = [&](const std::string& instruction, const std::string& layer) {
    // "while.5[3/24]" is a turn of a loop, which stands here as one.
    const auto it = place.find(instruction.substr(0, instruction.find('[')));
    if (it != place.end()) return it->second.second;
    const auto named = by_name.find(layer);
    if (named != by_name.end()) return named->second;
    throw Error(ErrorKind::kData,
                source + " is no plan of this model: it has neither the instruction " +
                    (instruction.empty() ? "that a stage begins or ends with" : instruction) + " nor the layer " +
                    (layer.empty() ? "of it" : layer),
                "give the plan that automap-infer wrote for this very file");
  };
  StagesOfLayers stages(graph.layers.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    for (const pipeline::PlanPart* part : plan.stages[s].own_parts()) {
      const std::size_t a = find(part->first_name, part->first_layer), b = find(part->last_name, part->last_layer);
      for (std::size_t l = std::min(a, b); l <= std::max(a, b); ++l) stages[l].push_back(s);
    }
  }
  // A layer that is computed beside the others (a side branch that is named late) goes with the layer in front.
  for (std::size_t l = 0; l < stages.size(); ++l) {
    if (stages[l].empty())
      stages[l] = l == 0 ? std::vector<std::size_t>{0} : std::vector<std::size_t>{stages[l - 1].back()};
  }
  return stages;
}

class Picture {
 public:
  Picture(const LayerGraph& graph, const PlanDocument* plan, const std::string& source) : graph_(graph), plan_(plan) {
    if (plan) stages_ = stages_of_layers(graph, *plan, source);
  }

  std::string draw() {
    for (const LayerGraph::Edge& edge : graph_.edges) draw_edge(edge);
    for (std::size_t l = 0; l < graph_.layers.size(); ++l) draw_layer(l);
    if (plan_) draw_stages();
    const double height = kTop + static_cast<double>(graph_.layers.size()) * kStep + 8;
    const std::string title = shorten(graph_.model.empty() ? "model" : graph_.model, kTitleColumns);
    std::string out = svg_start(kWidth, height, "The layers of " + title, title) + style() +
                      "<rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n";
    out += svg_text(16, 26, title, "class=\"title\"");
    out +=
        svg_text(16, 46,
                 plural(static_cast<long long>(graph_.layers.size()), "layer") + " of the forward pass" +
                     (plan_ ? ", in " + plural(static_cast<long long>(plan_->stages.size()), "stage") : std::string()) +
                     "; lines are tensors of one micro-batch as the module has it",
                 "class=\"dim\"");
    return out + lines_ + boxes_ + "</svg>\n";
  }

 private:
  static std::string style() {
    // Colours that are told apart on white and on black.
    static constexpr const char* kPalette[kColours] = {"#3b82d6", "#d97a1a", "#2f9e5b", "#c2453d",
                                                       "#8a63c9", "#9a7b12", "#c54f95", "#1f9aa8"};
    std::string css =
        "<style>svg{font-family:system-ui,sans-serif;font-size:12px;--bg:#fff;--box:#f1f4f8;--ink:#1b1f24;--dim:#"
        "5b636e;--line:#8a94a0}"
        "@media(prefers-color-scheme:dark){svg{--bg:#12161b;--box:#1f262e;--ink:#e6eaf0;--dim:#9aa5b1;--line:#77828e}}"
        ".bg{fill:var(--bg)}text{fill:var(--ink)}.dim{fill:var(--dim);font-size:11px}.title{font-size:15px;font-weight:"
        "600}"
        ".box{fill:var(--box);stroke:var(--line)}.edge{fill:none;stroke:var(--line)}.cut{stroke:var(--ink);stroke-"
        "dasharray:6 4}";
    for (std::size_t c = 0; c < kColours; ++c) css += ".s" + std::to_string(c) + "{fill:" + kPalette[c] + "}";
    return css + "</style>\n";
  }
  static double y_of(std::size_t layer) { return kTop + static_cast<double>(layer) * kStep; }

  void draw_layer(std::size_t l) {
    const LayerGraph::Layer& layer = graph_.layers[l];
    const double y = y_of(l);
    std::string second = plural(static_cast<long long>(layer.instructions.size()), "instruction");
    if (layer.turns > 1) second += ", a loop of " + plural(layer.turns, "turn");
    if (layer.variable_bytes > 0) second += ", variables of " + format_bytes(layer.variable_bytes);
    boxes_ += "<g><title>" + escape_markup(layer.name + ": " + second) + "</title><rect class=\"box\" x=\"" +
              markup_number(kBoxLeft) + "\" y=\"" + markup_number(y) + "\" width=\"" + markup_number(kBoxWidth) +
              "\" height=\"" + markup_number(kBoxHeight) + "\" rx=\"5\"/>\n" +
              svg_text(kBoxLeft + 14, y + 14, shorten(layer.name, kNameColumns)) +
              svg_text(kBoxLeft + 14, y + 28, second, "class=\"dim\"") + "</g>\n";
  }

  void draw_edge(const LayerGraph::Edge& edge) {
    const double thick = std::clamp(std::log10(std::max(1.0, edge.bytes)) / 2.5, 0.8, 4.0);
    const std::string bytes =
        format_bytes(edge.bytes) + (edge.tensors > 1 ? " in " + plural(edge.tensors, "tensor") : "");
    const std::string says =
        "<title>" + escape_markup(graph_.layers[edge.from].name + " to " + graph_.layers[edge.to].name + ": " + bytes) +
        "</title>";
    const std::string stroke = "<path class=\"edge\" stroke-width=\"" + markup_number(thick) + "\" d=\"";
    if (edge.to == edge.from + 1) {
      const double x = kBoxLeft + kBoxWidth / 2;
      lines_ += stroke + "M" + markup_number(x) + " " + markup_number(y_of(edge.from) + kBoxHeight) + "V" +
                markup_number(y_of(edge.to)) + "m-5 -7l5 7l5 -7\">" + says + "</path>\n" +
                svg_text(x + 10, y_of(edge.to) - (kStep - kBoxHeight) / 2 + 4, bytes, "class=\"dim\"");
      return;
    }
    // Past the layers between, the further the longer.
    const double far = static_cast<double>(edge.to > edge.from ? edge.to - edge.from : edge.from - edge.to);
    const double right = kBoxLeft + kBoxWidth,
                 lane = right +
                        std::min(kLanes, 24 + 22 * std::log2(far) + 6 * std::fmod(static_cast<double>(edge.from), 5));
    const double y1 = y_of(edge.from) + kBoxHeight * 0.7, y2 = y_of(edge.to) + kBoxHeight * 0.3;
    lines_ += stroke + "M" + markup_number(right) + " " + markup_number(y1) + "C" + markup_number(lane) + " " +
              markup_number(y1) + " " + markup_number(lane) + " " + markup_number(y2) + " " + markup_number(right) +
              " " + markup_number(y2) + "m7 -4l-7 4l7 4\">" + says + "</path>\n";
    // Where many pass by, their words would stand on one another: the tips that a pointer shows have them all.
    const double y = (y1 + y2) / 2;
    if (std::any_of(labels_.begin(), labels_.end(), [&](double other) { return std::fabs(other - y) < 14; })) return;
    labels_.push_back(y);
    lines_ += svg_text(std::min(right + 0.75 * (lane - right) + 6, kWidth - 110), y + 4, bytes, "class=\"dim\"");
  }

  // The bytes that go from the first `layers` layers to the others.
  double crossing_bytes(std::size_t layers) const {
    double bytes = 0;
    for (const LayerGraph::Edge& edge : graph_.edges) {
      if (edge.from < layers && edge.to >= layers) bytes += edge.bytes;
    }
    return bytes;
  }

  void draw_stages() {
    std::set<std::size_t> named;
    for (std::size_t l = 0; l < stages_.size(); ++l) {
      const std::vector<std::size_t>& here = stages_[l];
      const double y = y_of(l), part = kBoxHeight / static_cast<double>(here.size());
      const bool goes_on = l + 1 < stages_.size() && stages_[l + 1].front() == here.back();
      for (std::size_t k = 0; k < here.size(); ++k) {
        const PlanStage& stage = plan_->stages[here[k]];
        const double top = y + static_cast<double>(k) * part;
        const double high = part + (k + 1 == here.size() && goes_on ? kStep - kBoxHeight : 0);
        std::string tip = "stage " + std::to_string(here[k] + 1) + ", " +
                          (stage.devices == 1 ? "device " : "devices ") + spans_text(stage.device_numbers);
        for (const pipeline::LoopTurns& turns : stage.loop_turns) {
          tip += ", turns " + span_text(static_cast<int>(turns.first), static_cast<int>(turns.last)) + " of " +
                 std::to_string(turns.all);
        }
        boxes_ += "<rect class=\"s" + std::to_string(here[k] % kColours) + "\" x=\"" + markup_number(kBoxLeft - 10) +
                  "\" y=\"" + markup_number(top) + "\" width=\"10\" height=\"" + markup_number(high) + "\"><title>" +
                  escape_markup(tip) + "</title></rect>\n";
        if (k > 0) cut_line(top, " inside this layer");
        // A layer that many stages share gets as many names as there is room for.
        const bool room = part >= 12 || k == 0 || k + 1 == here.size();
        if (!named.insert(here[k]).second || !room) continue;
        const std::string words = "stage " + std::to_string(here[k] + 1) + ": " + spans_text(stage.device_numbers);
        boxes_ += svg_text(kBoxLeft - 18, part >= 12 || k == 0 ? top + 12 : y + kBoxHeight,
                           shorten(words, kStageColumns), "text-anchor=\"end\"");
      }
      if (l + 1 < stages_.size() && !goes_on) {
        cut_line(y + kBoxHeight + 0.8 * (kStep - kBoxHeight), format_bytes(crossing_bytes(l + 1)) + " cross here");
      }
    }
  }
  void cut_line(double y, const std::string& says) {
    boxes_ += "<path class=\"cut\" d=\"M16 " + markup_number(y) + "H" + markup_number(kBoxLeft + kBoxWidth) +
              "\"><title>" + escape_markup("cut: " + says) + "</title></path>\n";
    if (says.front() != ' ') boxes_ += svg_text(16, y - 4, says, "class=\"dim\"");
  }

  const LayerGraph& graph_;
  const PlanDocument* plan_;
  StagesOfLayers stages_;
  std::vector<double> labels_;
  std::string lines_, boxes_;
};

}  // namespace

std::string graph_picture(const LayerGraph& layers, const pipeline::PlanDocument* plan, const std::string& source) {
  return Picture(layers, plan, source).draw();
}

}  // namespace automap::inspect
