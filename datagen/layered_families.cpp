#include "datagen/layered_families.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "datagen/draws.h"
#include "datagen/exact_math.h"
#include "datagen/number_specs.h"

namespace automap::datagen {
namespace {

constexpr int kMostLayers = 1000;

// e^x to seven digits, which is plenty for a random size; x beyond the range of floats is cut off.
double size_of(double x) {
  constexpr double kLog2E = 1.4426950408889634, kMost = 60;
  return exp2_of(static_cast<float>(std::clamp(x * kLog2E, -kMost, kMost)));
}

// The pattern that every layer repeats: heavy slots (products with a variable) among light ones (element-wise work),
// and tensors that are alive from one slot to another.
struct Pattern {
  int slots = 1;
  std::array<double, kMostSlots> c{}, light_c{}, w{}, a{};  // c of heavy slots, of light ones
};

struct PatternShape {
  int slots = 1;
  double heavy = 0.3;     // share of slots that are
  double contrast = 0.5;  // sigma of their log-normal sizes
  double light = 0.01;    // size of the others over a heavy one
  double wide = 2;        // largest of the tensors that live inside a layer over what crosses its end
};

Pattern draw_pattern(const PatternShape& shape, Rng& rng) {
  Pattern made;
  made.slots = std::clamp(shape.slots, 1, kMostSlots);
  for (std::size_t s = 0; s < size(made.slots); ++s) {
    made.a[s] = 1;
    // The first slot is heavy and holds a variable; of the others three quarters do (attention has none).
    const bool heavy = s == 0 || rng.uniform() < shape.heavy;
    const double noise = normal(rng);
    if (heavy) {
      const double z = size_of(shape.contrast * noise);
      made.c[s] = z;
      // One size for both; matrices differ in how often they are used.
      if (s == 0 || (rng.next_u32() & 3) != 0) made.w[s] = z * size_of(0.3 * shape.contrast * normal(rng));
    } else {
      made.light_c[s] = shape.light * size_of(0.8 * noise);
      // Biases and scales of normalizations.
      if ((rng.next_u32() & 3) == 0) made.w[s] = 1e-3;
    }
  }
  // Tensors, each alive over a run of slots that ends inside the layer, most for a few slots. The more slots, the more.
  const int least = made.slots / 8, more = std::min(made.slots, 16) / 2;
  const int tensors = std::min(least, 4) + static_cast<int>(rng.below(static_cast<std::uint64_t>(1 + more)));
  const double heights = log_of(std::max(0.31, shape.wide) / 0.3);
  for (int t = 0; t < tensors && made.slots > 1; ++t) {
    const int first = static_cast<int>(rng.below(static_cast<std::uint64_t>(made.slots - 1)));
    const int most = std::max(1, made.slots - 1 - first);
    const double part = rng.uniform();
    const int length = 1 + static_cast<int>(part * part * (most + 1) / 2);
    const double height = 0.3 * size_of(rng.uniform() * heights);
    for (int s = first; s < std::min(first + length, made.slots - 1); ++s) made.a[size(s)] += height;
  }
  return made;
}

// The size of each layer. Element-wise compute scales with the activations.
struct Sizes {
  int layers = 1;
  std::array<double, kMostLayers> c, a, w;
};

// Instructions first .. first+count-1 as the layers of `sizes`, each a copy of the pattern. Where slots are more than
// instructions, several add up (a profile at 128 points does that to a model of thousands); where they are fewer, a
// slot's compute is spread over its instructions and its variable stays whole.
void lay(const Pattern& pattern, const Sizes& sizes, int first, int count, Workspace& work) {
  std::array<double, kMostSlots + 1> c_sum{}, light_sum{}, w_sum{};
  for (std::size_t s = 0; s < size(pattern.slots); ++s) {
    c_sum[s + 1] = c_sum[s] + pattern.c[s];
    light_sum[s + 1] = light_sum[s] + pattern.light_c[s];
    w_sum[s + 1] = w_sum[s] + pattern.w[s];
  }
  const std::int64_t slots = pattern.slots, all = slots * sizes.layers;
  std::int64_t layer = 0, slot = 0;  // of the next slot to use
  for (int i = 0; i < count; ++i) {
    const std::int64_t until = (static_cast<std::int64_t>(i) + 1) * all / count;
    const std::int64_t from = static_cast<std::int64_t>(i) * all / count;
    float* const c = work.c + first + i;
    float* const a = work.a + first + i;
    float* const w = work.w + first + i;
    if (all < count) {
      const std::size_t l = static_cast<std::size_t>(from / slots), s = static_cast<std::size_t>(from % slots);
      const bool begins = i == 0 || (static_cast<std::int64_t>(i) - 1) * all / count != from;
      *c = static_cast<float>((sizes.c[l] * pattern.c[s] + sizes.a[l] * pattern.light_c[s]) * static_cast<double>(all) /
                              count);
      *a = static_cast<float>(sizes.a[l] * pattern.a[s]);
      *w = begins ? static_cast<float>(sizes.w[l] * pattern.w[s]) : 0.0f;
      continue;
    }
    double c_own = 0, w_own = 0;
    std::size_t l = static_cast<std::size_t>(layer), s = static_cast<std::size_t>(slot);
    for (std::int64_t left = until - from; left > 0;) {
      l = static_cast<std::size_t>(layer);
      const std::int64_t take = std::min(left, slots - slot);
      const std::size_t end = static_cast<std::size_t>(slot + take);
      const std::size_t begin = static_cast<std::size_t>(slot);
      c_own += sizes.c[l] * (c_sum[end] - c_sum[begin]) + sizes.a[l] * (light_sum[end] - light_sum[begin]);
      w_own += sizes.w[l] * (w_sum[end] - w_sum[begin]);
      s = end - 1;
      slot += take;
      left -= take;
      if (slot == slots) {
        slot = 0;
        ++layer;
      }
    }
    *c = static_cast<float>(std::max(0.0, c_own));
    *a = static_cast<float>(sizes.a[l] * pattern.a[s]);
    *w = static_cast<float>(std::max(0.0, w_own));
  }
}

double sum_of(const float* x, int first, int count) {
  double sum = 0;
  for (int i = first; i < first + count; ++i) sum += x[i];
  return sum;
}

// The instructions before and behind the layers.
struct Ends {
  int lead = 0, tail = 0;      // instructions
  double light = 0.01;         // their compute over the mean one of the layers
  double embedding = 0;        // share of w in the first instruction
  double head = 0;             // share of c in the classifier, a run at the start of the tail
  double head_weights = 0;     // share of w there
  double head_activation = 0;  // what the classifier makes (logits) over the largest activation of the layers
};

void add_ends(const Ends& ends, Workspace& work) {
  const int m = work.m, body = m - ends.lead - ends.tail;
  const float* const largest = std::max_element(work.a + ends.lead, work.a + ends.lead + body);
  const float logits = static_cast<float>(*largest * ends.head_activation);
  const auto each = static_cast<float>(ends.light * sum_of(work.c, ends.lead, body) / body);
  const float before = work.a[ends.lead], behind = work.a[ends.lead + body - 1];
  for (int i = 0; i < ends.lead; ++i) {
    work.c[i] = each;
    work.a[i] = before;
    work.w[i] = 0;
  }
  // The classifier takes a quarter of the tail; its results are alive for half of it, and then only a few numbers.
  const int start = m - ends.tail, classifier = std::max(1, ends.tail / 4), alive = std::max(1, ends.tail / 2);
  for (int i = start; i < m; ++i) {
    work.c[i] = each;
    work.a[i] = i < start + alive ? (logits > 0 ? logits : behind) : 1e-3f * behind;
    work.w[i] = 0;
  }
  if (ends.tail > 0) {
    give_share(work.c, start, 1, ends.head * 0.8, work);
    if (classifier > 1) give_share(work.c, start + 1, classifier - 1, ends.head * 0.2, work);
    give_share(work.w, start, 1, std::min(0.98, ends.head_weights / (1 - ends.embedding)), work);
  }
  give_share(work.w, 0, 1, ends.embedding, work);
}

// So many of m instructions, leaving two and those taken already.
int share_of(double share, int m, int taken = 0) {
  return std::clamp(static_cast<int>(share * m + 0.5), 0, std::max(0, m - taken - 2));
}

void jitter_layers(double sigma, Workspace& work) {
  jitter(work.c, sigma, work);
  jitter(work.w, sigma, work);
  // Sizes of tensors are exact in a model: their small differences stand for differences in how a measurement counts.
  jitter(work.a, 0.1 * sigma, work);
}

void forget_variables(double share, Workspace& work) {
  if (work.rng->uniform() < share) std::fill(work.w, work.w + work.m, 0.0f);
}

void make_blocks(const double* p, Workspace& work) {
  enum {
    kLayers,
    kSlots,
    kHeavy,
    kContrast,
    kLight,
    kWide,
    kTwo,
    kSpread,
    kJitter,
    kLead,
    kEmbedding,
    kTail,
    kHead,
    kHeadWeights,
    kHeadActivation,
    kFrozen
  };
  Rng& rng = *work.rng;
  Ends ends;
  ends.lead = share_of(p[kLead], work.m);
  ends.tail = share_of(p[kTail], work.m, ends.lead);
  ends.light = p[kLight];
  ends.embedding = p[kEmbedding];
  ends.head = p[kHead];
  ends.head_weights = std::min(0.97, p[kHead] * p[kHeadWeights]);
  ends.head_activation = p[kHeadActivation];
  const int body = work.m - ends.lead - ends.tail;
  const int layers = work.layers = std::clamp(static_cast<int>(p[kLayers]), 1, kMostLayers);
  const PatternShape shape = {static_cast<int>(p[kSlots]), p[kHeavy], p[kContrast], p[kLight], p[kWide]};
  // One stack of layers or two (towers, encoder and decoder), each of one size except for the effect of experts or
  // windows.
  const bool two = layers > 1 && body > 3 && rng.uniform() < p[kTwo];
  int done = 0, laid = 0;
  for (int part = 0; part < (two ? 2 : 1); ++part) {
    static thread_local Sizes sizes;
    const int count =
        two && part == 0 ? std::clamp(static_cast<int>((0.2 + 0.6 * rng.uniform()) * body), 1, body - 1) : body - done;
    sizes.layers = std::max(1, two && part == 0 ? layers * count / body : layers - laid);
    const double scale = part == 0 ? 1 : size_of(0.5 * normal(rng)), kept = part == 0 ? 1 : size_of(0.5 * normal(rng));
    for (std::size_t l = 0; l < size(sizes.layers); ++l) {
      const double z = p[kSpread] > 0 ? size_of(p[kSpread] * normal(rng)) : 1;
      sizes.c[l] = scale * z;
      sizes.w[l] = scale * z;
      sizes.a[l] = kept * std::sqrt(z);
    }
    lay(draw_pattern(shape, rng), sizes, ends.lead + done, count, work);
    done += count;
    laid += sizes.layers;
  }
  jitter_layers(p[kJitter], work);
  add_ends(ends, work);
  forget_variables(p[kFrozen], work);
}

void make_pyramid(const double* p, Workspace& work) {
  enum {
    kLayers,
    kSteps,
    kFall,
    kRise,
    kTilt,
    kSlots,
    kHeavy,
    kContrast,
    kLight,
    kWide,
    kSpread,
    kJitter,
    kDense,
    kTail
  };
  Rng& rng = *work.rng;
  Ends ends;
  ends.tail = share_of(p[kTail], work.m);
  ends.light = p[kLight];
  ends.head_weights = p[kDense];
  const int body = work.m - ends.tail;
  static thread_local Sizes sizes;
  sizes.layers = std::clamp(static_cast<int>(p[kLayers]), 1, kMostLayers);
  const int steps = std::clamp(static_cast<int>(p[kSteps]), 1, sizes.layers);
  const double last = std::max(1, steps - 1), fall = -log_of(p[kFall]), rise = log_of(p[kRise]);
  for (int l = 0; l < sizes.layers; ++l) {
    const double step = static_cast<double>(static_cast<std::int64_t>(l) * steps / sizes.layers) / last;
    // A wider layer computes more, holds more and makes more.
    const double z = p[kSpread] * normal(rng);
    sizes.c[size(l)] = size_of(p[kTilt] * (0.5 - step) + z);
    sizes.w[size(l)] = size_of(rise * step + z);
    sizes.a[size(l)] = size_of(fall * step + 0.3 * z);
  }
  const PatternShape shape = {static_cast<int>(p[kSlots]), p[kHeavy], p[kContrast], p[kLight], p[kWide]};
  lay(draw_pattern(shape, rng), sizes, 0, body, work);
  jitter_layers(p[kJitter], work);
  add_ends(ends, work);
}

void make_latent(const double* p, Workspace& work) {
  enum { kLayers, kSigma, kSmooth, kWeight, kActivation, kApart, kDensity, kSlots, kLight, kWide, kHead };
  Rng& rng = *work.rng;
  static thread_local Sizes sizes;
  sizes.layers = std::clamp(static_cast<int>(p[kLayers]), 1, kMostLayers);
  // The latent size walks: the next layer is likely to be like this one. Activations follow more slowly.
  const double keep = p[kSmooth], renew = std::sqrt(1 - keep * keep);
  const double slow = std::sqrt(keep), slow_renew = std::sqrt(1 - slow * slow);
  double x = normal(rng), own = normal(rng);
  for (std::size_t l = 0; l < size(sizes.layers); ++l) {
    const double z = normal(rng);
    x = keep * x + renew * z;
    own = slow * own + slow_renew * normal(rng);
    sizes.c[l] = size_of(p[kSigma] * x + p[kApart] * normal(rng));
    sizes.w[l] = rng.uniform() < p[kDensity] ? size_of(p[kWeight] * p[kSigma] * x + p[kApart] * normal(rng)) : 0;
    sizes.a[l] = size_of(p[kActivation] * p[kSigma] * (x + own));
  }
  sizes.w[rng.below(static_cast<std::uint64_t>(sizes.layers))] += 1;
  lay(draw_pattern({static_cast<int>(p[kSlots]), 0.2, 0.3, p[kLight], p[kWide]}, rng), sizes, 0, work.m, work);
  const int end = end_of(work);
  give_share(work.c, work.m - end, end, p[kHead], work);
}

// With this share of the rows between usual_low and usual_high.
NumberSpec mostly(NumberSpec made, double usual_low, double usual_high, double share) {
  made.usual_low = usual_low;
  made.usual_high = usual_high;
  made.usual_share = share;
  return made;
}

}  // namespace

std::vector<FamilySpec> layered_families() {
  const auto layers = [](double low, double high) { return log_whole("layers", "layers", low, high, 1, kMostLayers); };
  // Models have 12, 24 or 32 layers more often than 13.
  NumberSpec model_layers = layers(2, 48);
  model_layers.values = {2, 4, 6, 8, 12, 16, 24, 32, 48};
  model_layers.weights = {0.05, 0.1, 0.15, 0.1, 0.2, 0.1, 0.15, 0.08, 0.07};
  const auto slots = [](double low, double high) {
    return log_whole("slots", "instructions of one layer that differ", low, high, 1, kMostSlots);
  };
  const auto heavy = [](double low, double high) {
    return number("heavy", "share of them that compute much; three quarters of these hold a variable", low, high, 0, 1);
  };
  const auto contrast = number("contrast", "sigma of their log-normal sizes, which drive c and w", 0.2, 1, 0, 4);
  const auto light = log_number("light", "compute of the others over theirs", 0.0003, 0.3, 1e-6, 1);
  const auto wide = [](double low, double high) {
    return log_number("wide", "largest tensor inside a layer over what crosses its end", low, high, 0.4, 1e4);
  };
  const auto noise = [](double high) {
    return number("jitter", "sigma of the log-normal noise on c and w; a tenth on a", 0, high, 0, 4);
  };
  const auto tail = [](double low, double high) {
    return number("tail", "share of the instructions behind the layers: classifier and loss", low, high, 0, 0.98);
  };
  // Most rows where nothing else is asked for: measured by automap-inspect --against (docs/datagen.md).
  constexpr double kWeight = 12, kBlocksWeight = 30;
  return {
      {"latent",
       "one latent size per layer, which changes slowly, drives c, a and w",
       {layers(8, 128), number("sigma", "of the logarithm of the latent size", 0.3, 1.5, 0, 4),
        number("smooth", "correlation of the latent sizes of neighbours", 0.3, 0.98, 0, 0.9999),
        number("w_power", "power of it in w", 0.5, 1.5, -4, 4), number("a_power", "power of it in a", 0, 0.8, -4, 4),
        number("apart", "sigma of what c and w do not share", 0, 0.5, 0, 4),
        number("density", "share of layers with variables", 0.4, 1, 0, 1), slots(1, 12), light, wide(0.5, 10),
        number("head", "share of c in the last hundredth", 0, 0.2, 0, 0.99)},
       make_latent,
       kWeight},
      {"blocks",
       "one or two stacks of equal layers, an embedding before them, a classifier and a loss behind",
       {model_layers, slots(8, 64), heavy(0.05, 0.5), contrast, light, wide(1, 40),
        number("two", "share of rows with two stacks", 0.15, 0.15, 0, 1),
        number("spread", "sigma of the log-normal sizes of the layers", 0, 0.1, 0, 4), noise(0.05),
        mostly(number("lead", "share of the instructions before the layers", 0, 0.6, 0, 0.9), 0, 0.04, 0.85),
        mostly(number("embedding", "share of w in the first instruction", 0, 0.9, 0, 0.99), 0, 0.3, 0.75),
        mostly(tail(0.005, 0.95), 0.005, 0.12, 0.75),
        mostly(number("head", "share of c in the classifier", 0, 0.9, 0, 0.99), 0, 0.15, 0.65),
        number("head_weights", "share of w there over that of c; 0: the embedding's", 0, 1.2, 0, 100),
        log_number("head_activation", "what it makes over the largest activation of the layers", 0.03, 6, 0, 1e4),
        number("frozen", "share of rows without variables (inference)", 0.08, 0.08, 0, 1)},
       make_blocks,
       kBlocksWeight},
      {"pyramid",
       "layers of fewer activations and more variables step by step, a classifier behind",
       {layers(8, 60), log_whole("steps", "steps", 3, 6, 1, 32),
        log_number("fall", "first activation over last", 2, 64, 1, 1e6),
        log_number("rise", "last parameter over first", 8, 1000, 1, 1e6),
        number("tilt", "compute: log of first step over last", 0, 1.5, -10, 10), slots(1, 12), heavy(0.05, 0.3),
        contrast, light, wide(0.5, 10),
        number("spread", "sigma of the latent log-normal sizes of the layers", 0, 0.7, 0, 4), noise(0.1),
        number("dense_end", "share of w in the classifier", 0, 0.8, 0, 0.99), mostly(tail(0.01, 0.5), 0.01, 0.12, 0.8)},
       make_pyramid,
       kWeight},
  };
}

}  // namespace automap::datagen
