// Every rule on random small instructions: what the factors say is split is split, the devices run what they hold, and
// the results put together must be the whole one (emulator.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "common/hlo/hlo_text.h"
#include "common/sharding/rule.h"
#include "tests/common/sharding/emulator.h"

namespace automap::sharding {
namespace {

using emulator::Dims;
using emulator::Part;
using emulator::Value;

struct Drawn {
  std::string header;  // computations
  std::string body;    // of the entry; the last instruction is the one that is checked
  // Values of parameters that are not any numbers: places, sizes.
  std::map<std::int64_t, std::function<double(Rng&)>> draw;
  std::map<std::int64_t, Value> given;
};

class Drawer {
 public:
  explicit Drawer(std::uint64_t item) : rng(20260801, 5, item) {}

  Rng rng;
  Drawn out;
  int parameters = 0;

  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(n))); }
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  bool coin(int of = 2) { return below(of) == 0; }
  std::int64_t extent() {
    static const std::int64_t kExtents[] = {1, 2, 2, 3, 4, 4, 6};
    return kExtents[below(7)];
  }
  Dims dims(std::int64_t rank) {
    Dims all;
    for (std::int64_t i = 0; i < rank; ++i) all.push_back(extent());
    return all;
  }
  Dims dims(std::int64_t low, std::int64_t high) { return dims(between(low, high)); }
  template <typename T>
  void shuffle(std::vector<T>* values) {
    for (std::size_t i = values->size(); i > 1; --i) std::swap((*values)[i - 1], (*values)[rng.below(i)]);
  }
  Dims permutation(std::size_t n) {
    Dims all;
    for (std::size_t i = 0; i < n; ++i) all.push_back(static_cast<std::int64_t>(i));
    shuffle(&all);
    return all;
  }
  template <typename T>
  T one_of(std::initializer_list<T> all) {
    return all.begin()[below(static_cast<std::int64_t>(all.size()))];
  }

  static std::string list(const Dims& dims) {
    std::string text;
    for (const std::int64_t dim : dims) text += (text.empty() ? "" : ",") + std::to_string(dim);
    return text;
  }
  static std::string braces(const Dims& dims) { return "{" + list(dims) + "}"; }
  static std::string shape(const std::string& type, const Dims& dims) { return type + "[" + list(dims) + "]"; }

  std::string parameter(const std::string& type, const Dims& dims) {
    const std::string name = "p" + std::to_string(parameters);
    out.body += "  " + name + " = " + shape(type, dims) + " parameter(" + std::to_string(parameters) + ")\n";
    ++parameters;
    return name;
  }
  std::string places(const Dims& dims, std::int64_t low, std::int64_t high) {
    out.draw[parameters] = [low, high](Rng& r) {
      return static_cast<double>(low + static_cast<std::int64_t>(r.below(static_cast<std::uint64_t>(high - low + 1))));
    };
    return parameter("s32", dims);
  }
  void instruction(const std::string& name, const std::string& type, const std::string& opcode_and_operands,
                   const std::string& attributes = "") {
    out.body += "  " + name + " = " + type + " " + opcode_and_operands;
    if (!attributes.empty()) out.body += ", " + attributes;
    out.body += "\n";
  }
  // The instruction that is checked.
  void root(const std::string& type, const std::string& opcode_and_operands, const std::string& attributes = "") {
    instruction("ROOT it", type, opcode_and_operands, attributes);
  }
  // A computation of two values.
  std::string combiner(const std::string& opcode, const std::string& type = "f32") {
    const bool swapped = coin(), converted = coin(4);
    std::string text = "c { a = " + type + "[] parameter(0)  b = " + type + "[] parameter(1)  ";
    const std::string arguments = swapped ? "(b, a)" : "(a, b)";
    if (converted) {
      text += "s = " + type + "[] " + opcode + arguments + "  ROOT t = " + type + "[] convert(s) }\n";
    } else {
      text += "ROOT s = " + type + "[] " + opcode + arguments + " }\n";
    }
    out.header += text;
    return "c";
  }
};

using Draw = void (*)(Drawer& d);

void draw_elementwise(Drawer& d) {
  const Dims dims = d.dims(0, 4);
  const std::string f32 = Drawer::shape("f32", dims), pred = Drawer::shape("pred", dims);
  switch (d.below(6)) {
    case 0:
      return d.root(f32,
                    d.one_of<std::string>({"negate", "abs", "copy", "convert"}) + "(" + d.parameter("f32", dims) + ")");
    case 1: {
      const std::string a = d.parameter("f32", dims);
      return d.root(f32, d.one_of<std::string>({"add", "subtract", "multiply", "maximum"}) + "(" + a + ", " +
                             (d.coin(4) ? a : d.parameter("f32", dims)) + ")");
    }
    case 2: {
      const std::string a = d.parameter("f32", dims), b = d.parameter("f32", dims);
      return d.root(pred, "compare(" + a + ", " + b + ")", "direction=LT");
    }
    case 3: {
      const std::string p = d.parameter("pred", d.coin() ? dims : Dims()), a = d.parameter("f32", dims),
                        b = d.parameter("f32", dims);
      return d.root(f32, "select(" + p + ", " + a + ", " + b + ")");
    }
    case 4: {
      const std::string low = d.parameter("f32", d.coin() ? dims : Dims()), x = d.parameter("f32", dims),
                        high = d.parameter("f32", d.coin() ? dims : Dims());
      return d.root(f32, "clamp(" + low + ", " + x + ", " + high + ")");
    }
    default: {
      const std::string a = d.parameter("pred", dims), b = d.parameter("pred", dims);
      return d.root(pred, d.one_of<std::string>({"and", "or"}) + "(" + a + ", " + b + ")");
    }
  }
}

void draw_iota(Drawer& d) {
  const Dims dims = d.dims(1, 3);
  d.root(Drawer::shape("s32", dims), "iota()",
         "iota_dimension=" + std::to_string(d.below(static_cast<std::int64_t>(dims.size()))));
}

void draw_broadcast(Drawer& d) {
  const Dims to = d.dims(0, 4);
  Dims chosen = d.permutation(to.size());
  chosen.resize(static_cast<std::size_t>(d.below(static_cast<std::int64_t>(to.size()) + 1)));
  Dims from;
  for (const std::int64_t dim : chosen) from.push_back(to[static_cast<std::size_t>(dim)]);
  d.root(Drawer::shape("f32", to), "broadcast(" + d.parameter("f32", from) + ")",
         "dimensions=" + Drawer::braces(chosen));
}

void draw_reshape(Drawer& d) {
  Dims primes;
  for (std::int64_t i = d.between(0, 6); i > 0; --i) primes.push_back(d.one_of<std::int64_t>({2, 2, 2, 3}));
  const auto regroup = [&] {
    Dims dims;
    bool open = false;
    for (const std::int64_t prime : primes) {
      if (d.coin(5)) dims.push_back(1), open = false;
      if (open && d.coin()) {
        dims.back() *= prime;
      } else {
        dims.push_back(prime);
      }
      open = true;
    }
    return dims;
  };
  const Dims from = regroup();
  d.shuffle(&primes);
  if (d.coin()) {  // mostly the same order, so that something fits
    primes.clear();
    for (std::int64_t extent : from) {
      for (std::int64_t prime = 2; extent > 1;) {
        if (extent % prime == 0) {
          primes.push_back(prime), extent /= prime;
        } else {
          ++prime;
        }
      }
    }
  }
  const Dims to = regroup();
  d.root(Drawer::shape("f32", to), d.one_of<std::string>({"reshape"}) + "(" + d.parameter("f32", from) + ")");
}

void draw_transpose(Drawer& d) {
  const Dims from = d.dims(0, 4);
  const Dims permutation = d.permutation(from.size());
  Dims to;
  for (const std::int64_t dim : permutation) to.push_back(from[static_cast<std::size_t>(dim)]);
  d.root(Drawer::shape("f32", to), "transpose(" + d.parameter("f32", from) + ")",
         "dimensions=" + Drawer::braces(permutation));
}

void draw_slice(Drawer& d) {
  const Dims from = d.dims(1, 4);
  Dims to;
  std::string text;
  for (const std::int64_t extent : from) {
    std::int64_t start = 0, limit = extent, stride = 1;
    if (d.coin()) {
      start = d.below(extent);
      limit = d.between(start + 1, extent);
      stride = d.between(1, 2);
    }
    to.push_back((limit - start + stride - 1) / stride);
    text += (text.empty() ? "[" : ", [") + std::to_string(start) + ":" + std::to_string(limit) + ":" +
            std::to_string(stride) + "]";
  }
  d.root(Drawer::shape("f32", to), "slice(" + d.parameter("f32", from) + ")", "slice={" + text + "}");
}

void draw_pad(Drawer& d) {
  const Dims from = d.dims(1, 4);
  Dims to;
  std::string text;
  for (const std::int64_t extent : from) {
    std::int64_t low = 0, high = 0, interior = 0;
    if (d.coin()) {
      interior = d.between(0, 2);
      low = d.between(-1, 2);
      high = d.between(low < 0 && extent == 1 ? 1 : 0, 2);
    }
    to.push_back(extent + (extent - 1) * interior + low + high);
    text +=
        (text.empty() ? "" : "x") + std::to_string(low) + "_" + std::to_string(high) + "_" + std::to_string(interior);
  }
  const std::string operand = d.parameter("f32", from), value = d.parameter("f32", {});
  d.root(Drawer::shape("f32", to), "pad(" + operand + ", " + value + ")", "padding=" + text);
}

void draw_concatenate(Drawer& d) {
  Dims dims = d.dims(1, 4);
  const auto along = static_cast<std::size_t>(d.below(static_cast<std::int64_t>(dims.size())));
  std::string operands;
  std::int64_t total = 0;
  for (std::int64_t i = d.between(1, 3); i > 0; --i) {
    dims[along] = d.extent();
    total += dims[along];
    operands += (operands.empty() ? "" : ", ") + d.parameter("f32", dims);
  }
  dims[along] = total;
  d.root(Drawer::shape("f32", dims), "concatenate(" + operands + ")", "dimensions={" + std::to_string(along) + "}");
}

void draw_reverse(Drawer& d) {
  const Dims dims = d.dims(1, 4);
  Dims reversed = d.permutation(dims.size());
  reversed.resize(static_cast<std::size_t>(d.below(static_cast<std::int64_t>(dims.size()) + 1)));
  d.root(Drawer::shape("f32", dims), "reverse(" + d.parameter("f32", dims) + ")",
         "dimensions=" + Drawer::braces(reversed));
}

// The dimensions of one side of a product, shuffled, and where each ended up.
struct Side {
  Dims dims, at;  // at[i]: the position of what was given i-th
};
Side shuffled(Drawer& d, const Dims& given) {
  Side side;
  const Dims order = d.permutation(given.size());
  side.at.resize(given.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    side.dims.push_back(given[static_cast<std::size_t>(order[i])]);
    side.at[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  }
  return side;
}
Dims first(const Dims& all, std::size_t begin, std::size_t count) {
  return Dims(all.begin() + static_cast<std::ptrdiff_t>(begin),
              all.begin() + static_cast<std::ptrdiff_t>(begin + count));
}
// The extents of the free dimensions of a side, in the order in which the result has them.
Dims rest(const Side& side, std::size_t used) {
  Dims positions = first(side.at, used, side.at.size() - used), extents;
  std::sort(positions.begin(), positions.end());
  for (const std::int64_t at : positions) extents.push_back(side.dims[static_cast<std::size_t>(at)]);
  return extents;
}
Dims joined(std::initializer_list<Dims> parts) {
  Dims all;
  for (const Dims& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}
std::string dot_attributes(const Side& lhs, const Side& rhs, std::size_t batch, std::size_t contracting) {
  return "lhs_batch_dims=" + Drawer::braces(first(lhs.at, 0, batch)) +
         ", rhs_batch_dims=" + Drawer::braces(first(rhs.at, 0, batch)) +
         ", lhs_contracting_dims=" + Drawer::braces(first(lhs.at, batch, contracting)) +
         ", rhs_contracting_dims=" + Drawer::braces(first(rhs.at, batch, contracting));
}

void draw_dot(Drawer& d) {
  const Dims batch = d.dims(0, 2), contracting = d.dims(0, 2);
  const Side lhs = shuffled(d, joined({batch, contracting, d.dims(0, 2)}));
  const Side rhs = shuffled(d, joined({batch, contracting, d.dims(0, 2)}));
  const std::size_t used = batch.size() + contracting.size();
  const std::string a = d.parameter("f32", lhs.dims), b = d.parameter("f32", rhs.dims);
  d.root(Drawer::shape("f32", joined({batch, rest(lhs, used), rest(rhs, used)})), "dot(" + a + ", " + b + ")",
         dot_attributes(lhs, rhs, batch.size(), contracting.size()));
}

void draw_scaled_dot(Drawer& d) {
  const Dims batch = d.dims(0, 1), contracting = d.dims(1, 2);
  const Side sides[2] = {shuffled(d, joined({batch, contracting, d.dims(0, 2)})),
                         shuffled(d, joined({batch, contracting, d.dims(0, 2)}))};
  const std::size_t used = batch.size() + contracting.size();
  std::string operands = d.parameter("f32", sides[0].dims) + ", " + d.parameter("f32", sides[1].dims);
  for (const Side& side : sides) {
    Dims scale = side.dims;
    for (std::int64_t& extent : scale) {
      if (d.coin() && extent > 1) extent /= extent % 2 == 0 ? 2 : 3;
    }
    if (d.coin(5)) scale.clear();
    operands += ", " + d.parameter("f32", scale);
  }
  d.root(Drawer::shape("f32", joined({batch, rest(sides[0], used), rest(sides[1], used)})),
         "scaled-dot(" + operands + ")", dot_attributes(sides[0], sides[1], batch.size(), contracting.size()));
}

void draw_ragged_dot(Drawer& d) {
  const Dims batch = d.dims(0, 1), contracting = d.dims(1, 2);
  const std::int64_t groups = d.between(1, 3);
  const std::size_t used = batch.size() + contracting.size();
  const Side lhs = shuffled(d, joined({batch, contracting, d.dims(1, 2)}));
  const std::int64_t mode = batch.empty() ? d.below(2) : d.below(3);  // free, contracting, batch
  Dims given = joined({batch, contracting, d.dims(0, 2)});
  if (mode == 0) given.push_back(groups);
  const Side rhs = shuffled(d, given);
  std::int64_t ragged;
  Dims group_dims, result;
  if (mode == 0) {
    ragged = lhs.at.back();
    group_dims = {rhs.at.back()};
    Side without = rhs;
    without.at.pop_back();
    result = joined({batch, rest(lhs, used), rest(without, used)});
  } else if (mode == 1) {
    ragged = lhs.at[batch.size()];
    result = joined({{groups}, batch, rest(lhs, used), rest(rhs, used)});
  } else {
    ragged = lhs.at[0];
    result = joined({batch, rest(lhs, used), rest(rhs, used)});
  }
  const std::string a = d.parameter("f32", lhs.dims), b = d.parameter("f32", rhs.dims),
                    sizes = d.places({groups}, 0, 3);
  d.root(Drawer::shape("f32", result), "ragged-dot(" + a + ", " + b + ", " + sizes + ")",
         dot_attributes(lhs, rhs, batch.size(), contracting.size()) + ", lhs_ragged_dims={" + std::to_string(ragged) +
             "}, rhs_group_dims=" + Drawer::braces(group_dims));
}

void draw_convolution(Drawer& d) {
  const auto spatial = static_cast<std::size_t>(d.between(0, 2));
  std::int64_t batch = d.extent(), in_features = d.extent(), out_features = d.extent(), kernel_in = in_features;
  std::int64_t out_batch = batch;
  std::string groups;
  const std::int64_t kind = d.below(3);
  if (kind == 1) {
    const std::int64_t count = d.between(2, 4);
    kernel_in = d.coin() ? 1 : d.between(1, 3);
    in_features = count * kernel_in;
    out_features = count * d.between(1, 2);
    groups = ", feature_group_count=" + std::to_string(count);
  } else if (kind == 2) {
    const std::int64_t count = d.between(2, 4);
    out_batch = d.coin() ? 1 : d.between(1, 3);
    batch = count * out_batch;
    out_features = count * d.between(1, 2);
    groups = ", batch_group_count=" + std::to_string(count);
  }
  Dims in = {batch, in_features}, kernel = {kernel_in, out_features}, result = {out_batch, out_features};
  std::string size, stride, pad, lhs_dilate, rhs_dilate, reversal;
  for (std::size_t i = 0; i < spatial; ++i) {
    const std::string x = i == 0 ? "" : "x";
    std::int64_t extent = d.extent(), window = d.coin() ? 1 : d.between(1, 3), step = 1, low = 0, high = 0, base = 1,
                 dilation = 1;
    if (d.coin()) {
      step = d.between(1, 2), low = d.between(0, 2), high = d.between(0, 2), base = d.between(1, 2),
      dilation = d.between(1, 2);
    }
    const std::int64_t span = (window - 1) * dilation + 1;
    while ((extent - 1) * base + 1 + low + high < span) ++high;
    in.push_back(extent);
    kernel.push_back(window);
    result.push_back(((extent - 1) * base + 1 + low + high - span) / step + 1);
    size += x + std::to_string(window);
    stride += x + std::to_string(step);
    pad += x + std::to_string(low) + "_" + std::to_string(high);
    lhs_dilate += x + std::to_string(base);
    rhs_dilate += x + std::to_string(dilation);
    reversal += x + std::to_string(d.below(2));
  }
  const auto labels = [&](const Side& side, const char* two) {
    std::string text(side.dims.size(), '?');
    for (std::size_t i = 0; i < side.at.size(); ++i) {
      text[static_cast<std::size_t>(side.at[i])] = i < 2 ? two[i] : static_cast<char>('0' + i - 2);
    }
    return text;
  };
  const Side sides[3] = {shuffled(d, in), shuffled(d, kernel), shuffled(d, result)};
  std::string window;
  if (spatial > 0) {
    window = "window={size=" + size + " stride=" + stride + " pad=" + pad + " lhs_dilate=" + lhs_dilate +
             " rhs_dilate=" + rhs_dilate + " rhs_reversal=" + reversal + "}, ";
  }
  const std::string a = d.parameter("f32", sides[0].dims), b = d.parameter("f32", sides[1].dims);
  d.root(Drawer::shape("f32", sides[2].dims), "convolution(" + a + ", " + b + ")",
         window + "dim_labels=" + labels(sides[0], "bf") + "_" + labels(sides[1], "io") + "->" +
             labels(sides[2], "bf") + groups);
}

void draw_reduce(Drawer& d) {
  const Dims from = d.dims(1, 4);
  Dims reduced = d.permutation(from.size());
  reduced.resize(static_cast<std::size_t>(d.below(static_cast<std::int64_t>(from.size()) + 1)));
  Dims to;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (!emulator::has(reduced, static_cast<std::int64_t>(i))) to.push_back(from[i]);
  }
  const std::string attributes = "dimensions=" + Drawer::braces(reduced) + ", to_apply=c";
  const std::int64_t kind = d.below(4);
  if (kind == 0) {  // the largest and where it is
    d.out.header +=
        "c { a = f32[] parameter(0)  i = s32[] parameter(1)  b = f32[] parameter(2)  j = s32[] parameter(3)\n"
        "  more = pred[] compare(a, b), direction=GT  x = f32[] select(more, a, b)  y = s32[] select(more, i, j)\n"
        "  ROOT t = (f32[], s32[]) tuple(x, y) }\n";
    const std::string a = d.parameter("f32", from), i = d.parameter("s32", from), x = d.parameter("f32", {}),
                      y = d.parameter("s32", {});
    return d.root("(" + Drawer::shape("f32", to) + ", " + Drawer::shape("s32", to) + ")",
                  "reduce(" + a + ", " + i + ", " + x + ", " + y + ")", attributes);
  }
  if (kind == 1) {  // two sums, or a sum and something else
    const std::string other = d.one_of<std::string>({"add", "add", "maximum"});
    d.out.header +=
        "c { a = f32[] parameter(0)  i = f32[] parameter(1)  b = f32[] parameter(2)  j = f32[] parameter(3)\n"
        "  x = f32[] add(a, b)  y = f32[] " +
        other + "(j, i)  ROOT t = (f32[], f32[]) tuple(x, y) }\n";
    const std::string a = d.parameter("f32", from), i = d.parameter("f32", from), x = d.parameter("f32", {}),
                      y = d.parameter("f32", {});
    return d.root("(" + Drawer::shape("f32", to) + ", " + Drawer::shape("f32", to) + ")",
                  "reduce(" + a + ", " + i + ", " + x + ", " + y + ")", attributes);
  }
  const bool logical = kind == 2 && d.coin();
  const std::string type = logical ? "pred" : "f32";
  const std::string opcode = logical
                                 ? d.one_of<std::string>({"and", "or"})
                                 : d.one_of<std::string>({"add", "add", "multiply", "maximum", "minimum", "subtract"});
  d.combiner(opcode, type);
  const std::string a = d.parameter(type, from);
  std::string x = "x";
  if ((opcode == "add" || opcode == "multiply") && !d.coin(4)) {
    d.instruction(x, "f32[]", opcode == "add" ? "constant(0)" : "constant(1)");
  } else {
    x = d.parameter(type, {});
  }
  d.root(Drawer::shape(type, to), "reduce(" + a + ", " + x + ")", attributes);
}

void draw_reduce_window(Drawer& d) {
  const Dims from = d.dims(1, 3);
  Dims to;
  std::string size, stride, pad;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::string x = i == 0 ? "" : "x";
    std::int64_t window = 1, step = 1, low = 0, high = 0;
    if (d.coin()) {
      window = d.between(1, 3), step = d.between(1, 2), low = d.between(0, 2), high = d.between(0, 2);
      while (from[i] + low + high < window) ++high;
    }
    to.push_back((from[i] + low + high - window) / step + 1);
    size += x + std::to_string(window);
    stride += x + std::to_string(step);
    pad += x + std::to_string(low) + "_" + std::to_string(high);
  }
  d.combiner(d.one_of<std::string>({"add", "maximum"}));
  const std::string a = d.parameter("f32", from), x = d.parameter("f32", {});
  d.root(Drawer::shape("f32", to), "reduce-window(" + a + ", " + x + ")",
         "window={size=" + size + " stride=" + stride + " pad=" + pad + "}, to_apply=c");
}

void draw_select_and_scatter(Drawer& d) {
  const Dims operand = d.dims(1, 3);
  Dims source;
  std::string size, stride, pad;
  for (std::size_t i = 0; i < operand.size(); ++i) {
    const std::string x = i == 0 ? "" : "x";
    std::int64_t window = 1, step = 1, low = 0;
    if (d.coin()) {
      window = d.between(1, std::min<std::int64_t>(3, operand[i])), step = d.between(1, 2),
      low = d.between(0, window - 1);
    }
    source.push_back((operand[i] + low - window) / step + 1);
    size += x + std::to_string(window);
    stride += x + std::to_string(step);
    pad += x + std::to_string(low) + "_0";
  }
  d.out.header += "g { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT m = pred[] compare(a, b), direction=GT }\n";
  d.combiner("add");
  const std::string a = d.parameter("f32", operand), s = d.parameter("f32", source), x = d.parameter("f32", {});
  d.root(Drawer::shape("f32", operand), "select-and-scatter(" + a + ", " + s + ", " + x + ")",
         "window={size=" + size + " stride=" + stride + " pad=" + pad + "}, select=g, scatter=c");
}

void draw_sort(Drawer& d) {
  const Dims dims = d.dims(1, 3);
  const std::string f32 = Drawer::shape("f32", dims),
                    dimension = "dimensions={" + std::to_string(d.below(static_cast<std::int64_t>(dims.size()))) +
                                "}, to_apply=l";
  if (d.coin()) {
    d.out.header +=
        "l { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT m = pred[] compare(a, b), direction=LT }\n";
    return d.root(f32, "sort(" + d.parameter("f32", dims) + ")", dimension);
  }
  d.out.header +=
      "l { a = f32[] parameter(0)  b = f32[] parameter(1)  i = f32[] parameter(2)  j = f32[] parameter(3)\n"
      "  ROOT m = pred[] compare(a, b), direction=GT }\n";
  const std::string a = d.parameter("f32", dims), b = d.parameter("f32", dims);
  d.root("(" + f32 + ", " + f32 + ")", "sort(" + a + ", " + b + ")", dimension);
}

void draw_topk(Drawer& d) {
  const Dims dims = d.dims(2);
  Dims to = dims;
  to.back() = d.between(1, dims.back());
  d.root("(" + Drawer::shape("f32", to) + ", " + Drawer::shape("s32", to) + ")",
         "custom-call(" + d.parameter("f32", dims) + ")", "custom_call_target=\"TopK\"");
}

// Indices of a gather or a scatter: batch dimensions, and the index vectors along `vector_dim`, or scalars. Some
// components may count along a batch dimension, spelled as JAX spells it.
struct IndexPlaces {
  std::string name;
  Dims dims;
  std::int64_t vector_dim = 0;
};
IndexPlaces draw_places(Drawer& d, const Dims& batch, const Dims& sizes, const std::vector<std::int64_t>& counted) {
  IndexPlaces places;
  const auto components = static_cast<std::int64_t>(sizes.size());
  places.vector_dim = d.between(0, static_cast<std::int64_t>(batch.size()));
  const bool scalars = components == 1 && d.coin(3);
  if (scalars) places.vector_dim = static_cast<std::int64_t>(batch.size());
  const bool any_counted = std::any_of(counted.begin(), counted.end(), [](std::int64_t along) { return along >= 0; });
  std::int64_t largest = 1;
  for (const std::int64_t size : sizes) largest = std::max(largest, size);
  places.dims = batch;
  if (!scalars) places.dims.insert(places.dims.begin() + places.vector_dim, components);
  if (!any_counted || scalars || components == 0) {
    places.name = d.places(places.dims, -1, largest);
    return places;
  }
  // Each component as an array with one entry along vector_dim, then all of them concatenated.
  std::string parts;
  Dims one = places.dims;
  one[static_cast<std::size_t>(places.vector_dim)] = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::string name;
    if (counted[i] < 0) {
      name = d.places(one, -1, sizes[i]);
    } else {
      const std::string id = std::to_string(i);
      const std::int64_t along = counted[i], position = along + (along >= places.vector_dim ? 1 : 0);
      const std::int64_t extent = batch[static_cast<std::size_t>(along)];
      const std::string line = Drawer::shape("s32", {extent}), full = Drawer::shape("s32", one);
      d.instruction("n" + id, line, "iota()", "iota_dimension=0");
      std::string last = "n" + id;
      if (d.coin()) {  // negative indices count from the end
        d.instruction("z" + id, "s32[]", "constant(0)");
        d.instruction("zs" + id, line, "broadcast(z" + id + ")", "dimensions={}");
        d.instruction("e" + id, "s32[]", "constant(" + std::to_string(extent) + ")");
        d.instruction("es" + id, line, "broadcast(e" + id + ")", "dimensions={}");
        d.instruction("lt" + id, Drawer::shape("pred", {extent}), "compare(n" + id + ", zs" + id + ")", "direction=LT");
        d.instruction("plus" + id, line, "add(n" + id + ", es" + id + ")");
        d.instruction("sel" + id, line, "select(lt" + id + ", plus" + id + ", n" + id + ")");
        last = "sel" + id;
      }
      if (d.coin()) {  // through a reshape to more dimensions
        Dims shaped(one.size(), 1);
        shaped[static_cast<std::size_t>(position)] = extent;
        d.instruction("r" + id, Drawer::shape("s32", shaped), "reshape(" + last + ")");
        d.instruction("s" + id, line, "reshape(r" + id + ")");
        last = "s" + id;
      }
      d.instruction("b" + id, full, "broadcast(" + last + ")", "dimensions={" + std::to_string(position) + "}");
      name = "b" + id;
    }
    parts += (parts.empty() ? "" : ", ") + name;
  }
  d.instruction("places", Drawer::shape("s32", places.dims), "concatenate(" + parts + ")",
                "dimensions={" + std::to_string(places.vector_dim) + "}");
  places.name = "places";
  return places;
}

// A gather or scatter in its parts: what each operand dimension is.
struct Indexed {
  Dims operand, batch, window_dims, collapsed, map, operand_batching, indices_batching, slice_sizes, window, offsets;
  IndexPlaces places;
};
Indexed draw_indexed(Drawer& d) {
  Indexed x;
  x.batch = d.dims(0, 3);
  const std::int64_t rank = d.between(1, 4);
  Dims sizes;
  std::vector<std::int64_t> counted, free_batch = d.permutation(x.batch.size());
  Dims batching_batch;
  struct Component {
    std::int64_t dim, size, counted;
  };
  std::vector<Component> components;
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    const bool batch_left = !free_batch.empty();
    const std::int64_t kind = d.below(6);
    if (kind == 0 && batch_left) {  // batching
      batching_batch.push_back(free_batch.back());
      x.operand_batching.push_back(dim);
      x.operand.push_back(x.batch[static_cast<std::size_t>(free_batch.back())]);
      x.slice_sizes.push_back(1);
      free_batch.pop_back();
    } else if (kind == 1 && batch_left) {  // counted
      x.operand.push_back(x.batch[static_cast<std::size_t>(free_batch.back())] + (d.coin(4) ? 2 : 0));
      components.push_back({dim, x.operand.back(), free_batch.back()});
      free_batch.pop_back();
      x.slice_sizes.push_back(1);
      if (d.coin()) x.collapsed.push_back(dim);
    } else if (kind <= 3) {  // one place
      x.operand.push_back(d.extent());
      x.slice_sizes.push_back(1);
      if (d.coin(8)) {
        // not indexed: place 0
      } else {
        components.push_back({dim, x.operand.back(), -1});
      }
      if (!d.coin(4)) x.collapsed.push_back(dim);
    } else {  // a window
      x.operand.push_back(d.extent());
      x.slice_sizes.push_back(d.coin(4) ? d.between(1, x.operand.back()) : x.operand.back());
      if (d.coin(4)) components.push_back({dim, x.operand.back(), -1});
    }
  }
  d.shuffle(&components);
  for (const Component& component : components) {
    x.map.push_back(component.dim);
    sizes.push_back(component.size);
    counted.push_back(component.counted);
  }
  x.places = draw_places(d, x.batch, sizes, counted);
  const bool vectors = x.places.dims.size() > x.batch.size();
  for (const std::int64_t batch : batching_batch) {
    x.indices_batching.push_back(batch + (vectors && batch >= x.places.vector_dim ? 1 : 0));
  }
  // Where the dimensions of a window stand between those of the indices.
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    if (!emulator::has(x.collapsed, dim) && !emulator::has(x.operand_batching, dim)) {
      x.offsets.push_back(x.slice_sizes[static_cast<std::size_t>(dim)]);
    }
  }
  Dims positions = d.permutation(x.offsets.size() + x.batch.size());
  positions.resize(x.offsets.size());
  std::sort(positions.begin(), positions.end());
  x.window_dims = positions;
  std::size_t next_offset = 0, next_batch = 0;
  for (std::size_t i = 0; i < x.offsets.size() + x.batch.size(); ++i) {
    const bool offset = emulator::has(positions, static_cast<std::int64_t>(i));
    x.window.push_back(offset ? x.offsets[next_offset++] : x.batch[next_batch++]);
  }
  return x;
}

void draw_gather(Drawer& d) {
  const Indexed x = draw_indexed(d);
  const std::string type = d.coin(5) ? "pred" : "f32";
  const std::string operand = d.parameter(type, x.operand);
  d.root(Drawer::shape(type, x.window), "gather(" + operand + ", " + x.places.name + ")",
         "offset_dims=" + Drawer::braces(x.window_dims) + ", collapsed_slice_dims=" + Drawer::braces(x.collapsed) +
             ", start_index_map=" + Drawer::braces(x.map) +
             ", operand_batching_dims=" + Drawer::braces(x.operand_batching) + ", start_indices_batching_dims=" +
             Drawer::braces(x.indices_batching) + ", index_vector_dim=" + std::to_string(x.places.vector_dim) +
             ", slice_sizes=" + Drawer::braces(x.slice_sizes));
}

void draw_scatter(Drawer& d) {
  const Indexed x = draw_indexed(d);
  const std::string attributes = "update_window_dims=" + Drawer::braces(x.window_dims) +
                                 ", inserted_window_dims=" + Drawer::braces(x.collapsed) +
                                 ", scatter_dims_to_operand_dims=" + Drawer::braces(x.map) +
                                 ", input_batching_dims=" + Drawer::braces(x.operand_batching) +
                                 ", scatter_indices_batching_dims=" + Drawer::braces(x.indices_batching) +
                                 ", index_vector_dim=" + std::to_string(x.places.vector_dim) + ", to_apply=c";
  const std::string f32 = Drawer::shape("f32", x.operand);
  if (d.coin(5)) {
    d.out.header +=
        "c { a = f32[] parameter(0)  i = f32[] parameter(1)  b = f32[] parameter(2)  j = f32[] parameter(3)\n"
        "  x = f32[] add(a, b)  y = f32[] add(j, i)  ROOT t = (f32[], f32[]) tuple(x, y) }\n";
    const std::string a = d.parameter("f32", x.operand), b = d.parameter("f32", x.operand),
                      u = d.parameter("f32", x.window), v = d.parameter("f32", x.window);
    return d.root("(" + f32 + ", " + f32 + ")",
                  "scatter(" + a + ", " + b + ", " + x.places.name + ", " + u + ", " + v + ")", attributes);
  }
  const std::string operation = d.one_of<std::string>({"add", "add", "minimum", "multiply", "set", "subtract"});
  if (operation == "set") {
    d.out.header += "c { a = f32[] parameter(0)  ROOT b = f32[] parameter(1) }\n";
  } else {
    d.combiner(operation);
  }
  const std::string a = d.parameter("f32", x.operand), u = d.parameter("f32", x.window);
  d.root(f32, "scatter(" + a + ", " + x.places.name + ", " + u + ")", attributes);
}

void draw_dynamic(Drawer& d, bool update) {
  const Dims from = d.dims(1, 3);
  Dims to;
  for (const std::int64_t extent : from) to.push_back(d.coin() ? extent : d.between(1, extent));
  std::string operands = d.parameter("f32", from);
  if (update) operands += ", " + d.parameter("f32", to);
  if (d.coin(4)) {
    operands += ", " + d.places({static_cast<std::int64_t>(from.size())}, -1, 6);
  } else {
    for (std::size_t i = 0; i < from.size(); ++i) operands += ", " + d.places({}, -1, 6);
  }
  if (update) return d.root(Drawer::shape("f32", from), "dynamic-update-slice(" + operands + ")");
  d.root(Drawer::shape("f32", to), "dynamic-slice(" + operands + ")", "dynamic_slice_sizes=" + Drawer::braces(to));
}
void draw_dynamic_slice(Drawer& d) {
  draw_dynamic(d, false);
}
void draw_dynamic_update_slice(Drawer& d) {
  draw_dynamic(d, true);
}

struct Family {
  const char* name;
  Draw draw;
};
void PrintTo(const Family& family, std::ostream* out) {
  *out << family.name;
}

const Family kFamilies[] = {
    {"elementwise", draw_elementwise},
    {"free", draw_iota},
    {"broadcast", draw_broadcast},
    {"reshape", draw_reshape},
    {"transpose", draw_transpose},
    {"slice", draw_slice},
    {"pad", draw_pad},
    {"concatenate", draw_concatenate},
    {"reverse", draw_reverse},
    {"dot", draw_dot},
    {"scaled-dot", draw_scaled_dot},
    {"ragged-dot", draw_ragged_dot},
    {"convolution", draw_convolution},
    {"reduce", draw_reduce},
    {"reduce-window", draw_reduce_window},
    {"select-and-scatter", draw_select_and_scatter},
    {"sort", draw_sort},
    {"custom-call", draw_topk},
    {"gather", draw_gather},
    {"scatter", draw_scatter},
    {"dynamic-slice", draw_dynamic_slice},
    {"dynamic-update-slice", draw_dynamic_update_slice},
};

// One drawn instruction with the values of its operands.
struct DrawnCase {
  std::string text;
  graph::Graph graph;
  graph::InstructionId root = graph::kNone;
  std::vector<Value> operands;
  std::vector<Value> expected;
};

DrawnCase make_case(const Family& family, std::uint64_t item) {
  Drawer drawer(item);
  family.draw(drawer);
  DrawnCase c;
  c.text = "HloModule m\n" + drawer.out.header + "ENTRY e {\n" + drawer.out.body + "}\n";
  c.graph = hlo::read_hlo_text(c.text, "drawn.hlo");
  const graph::Computation& entry = c.graph.entry();
  c.root = entry.root;
  std::map<graph::InstructionId, Value> values;
  for (graph::InstructionId id = entry.first; id < entry.first + entry.count; ++id) {
    std::vector<Value> operands;
    for (const graph::InstructionId operand : c.graph.operands(id)) operands.push_back(values.at(operand));
    const graph::Instruction& instruction = c.graph.instruction(id);
    if (instruction.opcode == graph::Opcode::kParameter) {
      Value value(c.graph.shape_of(id).dims);
      const auto draw = drawer.out.draw.find(instruction.number);
      const bool logical = c.graph.shape_of(id).type == graph::ElementType::kPred;
      for (double& x : value.data) {
        x = draw != drawer.out.draw.end() ? draw->second(drawer.rng)
            : logical                     ? static_cast<double>(drawer.below(2))
                                          : static_cast<double>(drawer.between(-3, 3));
      }
      values[id] = std::move(value);
      continue;
    }
    std::vector<Value> results = emulator::run(c.graph, id, operands, emulator::whole_part(c.graph, id));
    if (id == c.root) {
      c.operands = std::move(operands);
      c.expected = std::move(results);
    } else {
      values[id] = std::move(results.at(0));
    }
  }
  return c;
}

constexpr int kCases = 400;

class RuleNumericTest : public testing::TestWithParam<Family> {};

TEST_P(RuleNumericTest, WhatTheFactorsSayGivesTheWholeResult) {
  int factors = 0, partial = 0, wide = 0;
  for (std::uint64_t item = 0; item < kCases; ++item) {
    const DrawnCase c = make_case(GetParam(), item);
    ASSERT_EQ(rule_family(c.graph.instruction(c.root).opcode).name, GetParam().name);
    const OpRule rule = rule_of(c.graph, c.root);
    for (const BlockedDim& blocked : rule.blocked) {
      ASSERT_NE(blocked.why, Block::kOpaque) << "refused: " << c.text << "case " << item;
    }
    for (const Factor& factor : rule.factors) {
      if (factor.dims.size() >= 3) ++wide;
      for (int devices = 2; devices <= 6; ++devices) {
        if (factor.extent % devices != 0) continue;
        ++factors;
        if (!factor.partial.empty()) ++partial;
        const std::string wrong = emulator::check_factor(c.graph, c.root, c.operands, c.expected, factor, devices);
        ASSERT_EQ(wrong, "") << c.text << devices << " devices, the factor with slot " << factor.dims[0].slot
                             << " dimension " << factor.dims[0].dim << ", case " << item;
      }
    }
  }
  EXPECT_GT(factors, kCases / 2);
  // The ways that matter are among what was drawn.
  const std::string name = GetParam().name;
  if (name == "dot" || name == "convolution" || name == "reduce" || name == "gather" || name == "scatter") {
    EXPECT_GT(partial, kCases / 10);
  }
  if (name == "dot" || name == "convolution" || name == "gather" || name == "scatter") {
    EXPECT_GT(wide, kCases / 10);
  }
  RecordProperty("factors", factors);
  RecordProperty("partial", partial);
}

// A rule that is wrong is found: members left out or exchanged, reductions forgotten or of another kind.
TEST_P(RuleNumericTest, WrongFactorsAreFound) {
  int changed = 0, found = 0;
  for (std::uint64_t item = 0; item < kCases; ++item) {
    const DrawnCase c = make_case(GetParam(), item);
    const OpRule rule = rule_of(c.graph, c.root);
    for (const Factor& factor : rule.factors) {
      const auto devices = static_cast<int>(factor.extent % 2 == 0 ? 2 : factor.extent % 3 == 0 ? 3 : 0);
      if (devices == 0) continue;
      std::vector<Factor> wrong;
      if (factor.dims.size() > 1) {
        wrong.push_back(factor);
        wrong.back().dims.pop_back();
      }
      if (!factor.partial.empty()) {
        wrong.push_back(factor);
        wrong.back().partial.clear();
        wrong.back().reduction = Reduction::kNone;
      }
      for (const Factor& w : wrong) {
        ++changed;
        if (!emulator::check_factor(c.graph, c.root, c.operands, c.expected, w, devices).empty()) ++found;
      }
    }
  }
  // Some are right by chance: all values alike, nothing to add.
  EXPECT_GE(found, changed * 3 / 4) << changed;
}

INSTANTIATE_TEST_SUITE_P(Families, RuleNumericTest, testing::ValuesIn(kFamilies), [](const auto& drawn) {
  std::string name = drawn.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace automap::sharding
