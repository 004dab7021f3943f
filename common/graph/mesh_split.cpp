#include "common/graph/mesh_split.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/graph/text_scanner.h"

namespace automap::graph {
namespace {

constexpr std::int64_t kMostMeshDevices = std::int64_t{1} << 31;

// An axis behind those that cut a dimension already.
void append_axis(DimSplit* dim, DeviceAxis axis) {
  if (axis.size == 1) return;
  if (!dim->axes.empty()) {
    DeviceAxis& last = dim->axes.back();
    if (axis.stride > 0 && last.stride == axis.size * axis.stride) {
      last = {last.size * axis.size, axis.stride};
      return;
    }
  }
  dim->axes.push_back(axis);
}

// [ 'x' = 4 , "y" = 2 ] and [{'x', "y":(1)2, ?}, {}]p0 , with either quote.
class NamedReader : internal::TextScanner {
 public:
  explicit NamedReader(std::string_view text) : TextScanner(text) {}

  bool axes(std::vector<std::pair<std::string, std::int64_t>>* out) {
    if (!take('[')) return false;
    while (!take(']')) {
      out->emplace_back();
      if (!name(&out->back().first) || !take('=') || !number(&out->back().second)) return false;
      if (!take(',') && !peek(']')) return false;
    }
    return true;
  }

  bool dims(const std::vector<std::pair<std::string, DeviceAxis>>& mesh, MeshSplit* out) {
    left_ = out->devices;
    if (!take('[')) return false;
    while (!take(']')) {
      out->dims.emplace_back();
      if (!dim(mesh, &out->dims.back())) return false;
      if (!take(',') && !peek(']')) return false;
    }
    return true;
  }

 private:
  bool name(std::string* out) {
    const char quote = take('"') ? '"' : take('\'') ? '\'' : '\0';
    if (quote == '\0') return false;
    const std::size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) return false;
    *out = std::string(text_.substr(at_, end - at_));
    at_ = end + 1;
    return true;
  }
  bool number(std::int64_t* out) {
    const std::string_view digits = word();
    *out = 0;
    for (const char c : digits) {
      if (c < '0' || c > '9' || *out > kMostMeshDevices) return false;
      *out = *out * 10 + (c - '0');
    }
    return !digits.empty() && *out >= 1;
  }

  bool dim(const std::vector<std::pair<std::string, DeviceAxis>>& mesh, DimSplit* out) {
    if (!take('{')) return false;
    while (!take('}')) {
      if (take('?')) {
        out->open = true;
      } else {
        std::string wanted;
        if (!name(&wanted)) return false;
        const auto found = std::find_if(mesh.begin(), mesh.end(), [&](const auto& one) { return one.first == wanted; });
        if (found == mesh.end()) return false;
        DeviceAxis axis = found->second;
        if (take(':')) {
          // (pre)size: of the axis, the part behind its first `pre`.
          std::int64_t before = 0, size = 0;
          if (!take('(') || !number(&before) || !take(')') || !number(&size)) return false;
          if (before > axis.size || size > axis.size || axis.size % (before * size) != 0) return false;
          axis.stride *= axis.size / (before * size);
          axis.size = size;
        }
        // An axis cuts once.
        if (left_ % axis.size != 0) return false;
        left_ /= axis.size;
        append_axis(out, axis);
      }
      if (!take(',') && !peek('}')) return false;
    }
    // A priority: {"x"}p1.
    if (peek('p')) word();
    return true;
  }

  std::int64_t left_ = 1;  // devices that no dimension was cut over
};

}  // namespace

MeshSplit split_of_iota(const std::vector<std::int64_t>& tiles, std::size_t subgroups,
                        const std::vector<std::int64_t>& extents, const std::vector<std::int64_t>& order) {
  // The axes of the devices' numbers, in the order in which the tiles take them.
  std::vector<DeviceAxis> left(extents.size());
  std::int64_t stride = 1;
  for (std::size_t i = extents.size(); i-- > 0;) {
    left[i] = {extents[i], stride};
    stride *= extents[i];
  }
  MeshSplit out;
  out.devices = stride;
  if (!order.empty()) {
    std::vector<DeviceAxis> ordered;
    for (const std::int64_t i : order) ordered.push_back(left[static_cast<std::size_t>(i)]);
    left = std::move(ordered);
  }
  std::size_t next = 0;
  bool regular = true;
  for (std::size_t d = 0; d + subgroups < tiles.size(); ++d) {
    out.dims.emplace_back();
    std::int64_t wanted = tiles[d];
    while (wanted > 1) {
      while (regular && next < left.size() && left[next].size == 1) ++next;
      if (!regular || next == left.size()) {
        append_axis(&out.dims.back(), {wanted, 0});
        break;
      }
      DeviceAxis& here = left[next];
      if (wanted % here.size == 0) {
        append_axis(&out.dims.back(), here);
        wanted /= here.size;
        ++next;
      } else if (here.size % wanted == 0) {
        append_axis(&out.dims.back(), {wanted, here.stride * (here.size / wanted)});
        here.size /= wanted;
        wanted = 1;
      } else {
        regular = false;
      }
    }
  }
  return out;
}

MeshSplit split_of_list(const std::vector<std::int64_t>& tiles, std::size_t subgroups,
                        const std::vector<std::int64_t>& devices) {
  MeshSplit out;
  out.devices = static_cast<std::int64_t>(devices.size());
  std::vector<std::int64_t> steps(tiles.size(), 1);
  for (std::size_t d = tiles.size(); d-- > 1;) steps[d - 1] = steps[d] * tiles[d];
  const auto stride_of = [&](std::size_t d) {
    const auto step = static_cast<std::size_t>(steps[d]);
    return tiles[d] > 1 && step < devices.size() ? devices[step] - devices[0] : 0;
  };
  bool regular = true;
  for (std::size_t at = 0; at < devices.size() && regular; ++at) {
    std::int64_t number = devices[0];
    for (std::size_t d = 0; d < tiles.size(); ++d) {
      number += static_cast<std::int64_t>(at) / steps[d] % tiles[d] * stride_of(d);
    }
    regular = number == devices[at];
  }
  for (std::size_t d = 0; d + subgroups < tiles.size(); ++d) {
    out.dims.emplace_back();
    const std::int64_t stride = regular ? std::max<std::int64_t>(0, stride_of(d)) : 0;
    append_axis(&out.dims.back(), {tiles[d], stride});
  }
  return out;
}

bool read_named_split(std::string_view dims, std::string_view mesh, MeshSplit* out) {
  const auto unescaped = [](std::string_view text) {
    std::string plain;
    for (const char c : text) {
      if (c != '\\') plain += c;
    }
    return plain;
  };
  const std::string mesh_text = unescaped(mesh), dims_text = unescaped(dims);
  std::vector<std::pair<std::string, std::int64_t>> sizes;
  if (!NamedReader(mesh_text).axes(&sizes) || sizes.empty()) return false;
  std::vector<std::pair<std::string, DeviceAxis>> axes(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    axes[i] = {sizes[i].first, {sizes[i].second, stride}};
    if (stride > kMostMeshDevices / sizes[i].second) return false;
    stride *= sizes[i].second;
  }
  MeshSplit read;
  read.devices = stride;
  if (!NamedReader(dims_text).dims(axes, &read)) return false;
  *out = std::move(read);
  return true;
}

}  // namespace automap::graph
