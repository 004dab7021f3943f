#include "datagen/families.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "datagen/draws.h"
#include "datagen/empirical.h"
#include "datagen/exact_math.h"
#include "datagen/layered_families.h"
#include "datagen/number_specs.h"
#include "datagen/random_block.h"

namespace automap::datagen {
namespace {

constexpr std::uint32_t kArrayStream = 0x41525259;  // "ARRY"
constexpr float kLn2 = 0.69314718f;

template <class Draw>
void each_array(Workspace& work, Draw draw) {
  for (float* x : {work.c, work.a, work.w}) {
    const std::uint32_t* bits = work.random(size(work.m));
    for (int i = 0; i < work.m; ++i) x[i] = draw(bits[i]);
  }
}

void make_uniform(const double* p, Workspace& work) {
  const auto low = static_cast<float>(p[0]), width = static_cast<float>(1 - p[0]);
  each_array(work, [=](std::uint32_t bits) { return low + width * unit(bits); });
}

void make_normal(const double* p, Workspace& work) {
  const auto deviation = static_cast<float>(p[0]);
  const float* table = normal_table();
  each_array(work, [=](std::uint32_t bits) { return std::max(0.0f, 1 + deviation * normal(table, bits)); });
}

void make_binomial(const double* p, Workspace& work) {
  // By inversion: cumulative probabilities and, per top byte of the random number, where to start looking.
  const int trials = static_cast<int>(p[0]);
  const double odds = p[1] / (1 - p[1]);
  std::array<double, 257> mass{};
  const int mode = std::min(trials, static_cast<int>((trials + 1) * p[1]));
  mass[size(mode)] = 1;
  for (int k = mode; k < trials; ++k) mass[size(k) + 1] = mass[size(k)] * (trials - k) / (k + 1) * odds;
  for (int k = mode; k > 0; --k) mass[size(k) - 1] = mass[size(k)] * k / (trials - k + 1) / odds;
  double total = 0;
  for (int k = 0; k <= trials; ++k) total += mass[size(k)];
  std::array<std::uint32_t, 257> below{};  // k is drawn when below[k-1] <= bits < below[k]
  double sum = 0;
  for (int k = 0; k <= trials; ++k) {
    sum += mass[size(k)];
    below[size(k)] = static_cast<std::uint32_t>(std::min(sum / total * 0x1p32, 4294967295.0));
  }
  below[size(trials)] = 0xffffffffu;
  std::array<std::uint16_t, 256> start{};
  int k = 0;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    while (k < trials && below[size(k)] <= byte << 24) ++k;
    start[byte] = static_cast<std::uint16_t>(k);
  }
  each_array(work, [&](std::uint32_t bits) {
    std::size_t found = start[bits >> 24];
    while (found < size(trials) && bits >= below[found]) ++found;
    return static_cast<float>(found);
  });
}

void make_log_normal(const double* p, Workspace& work) {
  log_normal(work.c, p[0], work);
  log_normal(work.a, p[1], work);
  log_normal(work.w, p[2], work);
}

void make_exponential(const double* p, Workspace& work) {
  const auto floor = static_cast<float>(p[0]), rest = static_cast<float>(1 - p[0]);
  each_array(work, [=](std::uint32_t bits) { return floor - rest * kLn2 * log2_of(open_unit(bits)); });
}

void make_power_law(const double* p, Workspace& work) {
  // Pareto by inversion, x >= 1.
  const auto inverse = static_cast<float>(-1 / p[0]);
  const auto cap = static_cast<float>(p[1]);
  each_array(work, [=](std::uint32_t bits) { return std::min(cap, exp2_of(inverse * log2_of(open_unit(bits)))); });
}

void make_bimodal(const double* p, Workspace& work) {
  const auto large = static_cast<float>(p[0]), share = static_cast<float>(p[1]);
  each_array(work, [=](std::uint32_t bits) { return unit(bits) < share ? large : 1.0f; });
  for (float* x : {work.c, work.a, work.w}) jitter(x, p[2], work);
}

// A block of `slots` instructions that models repeat: c, a, w of each.
struct Block {
  int slots = 1;
  std::array<float, kMostSlots> c{}, a{}, w{};
};

// Levels log-normal of sigma `contrast`; half of the slots hold a variable; the cut after the last slot is `narrow`
// times the smallest other one (only the residual stream crosses it).
Block draw_block(int slots, double contrast, double narrow, Rng& rng) {
  Block block;
  block.slots = std::clamp(slots, 1, kMostSlots);
  const double residual = exp_of(0.5 * contrast * normal(rng));
  double smallest = residual;
  bool any = false;
  for (std::size_t s = 0; s < size(block.slots); ++s) {
    block.c[s] = static_cast<float>(exp_of(contrast * normal(rng)));
    const double a = residual * (1 + exp_of(0.5 * contrast * normal(rng)));
    block.a[s] = static_cast<float>(a);
    smallest = std::min(smallest, a);
    block.w[s] = (rng.next_u32() & 1) != 0 ? static_cast<float>(exp_of(contrast * normal(rng))) : 0.0f;
    any = any || block.w[s] > 0;
  }
  if (!any) block.w[0] = 1;
  block.a[size(block.slots) - 1] = static_cast<float>(narrow * smallest);
  return block;
}

// Instructions first .. first+count-1 as `layers` copies of the block (fewer where there is no room).
void repeat_block(const Block& block, int layers, int first, int count, Workspace& work) {
  layers = std::clamp(layers, 1, count);
  // Slots are dropped from the front when the block is longer than its instructions.
  const int slots = std::clamp(count / layers, 1, block.slots);
  const int skipped = block.slots - slots;
  const double step = static_cast<double>(layers) * slots / count;
  int position = 0, slot = skipped;
  for (int i = 0; i < count; ++i) {
    for (const int now = static_cast<int>(i * step); position < now; ++position) {
      if (++slot == block.slots) slot = skipped;
    }
    work.c[first + i] = block.c[size(slot)];
    work.a[first + i] = block.a[size(slot)];
    work.w[first + i] = block.w[size(slot)];
  }
}

void make_transformer(const double* p, Workspace& work) {
  const Block block = draw_block(static_cast<int>(p[1]), p[2], p[3], *work.rng);
  work.layers = static_cast<int>(p[0]);
  repeat_block(block, work.layers, 0, work.m, work);
  jitter_all(p[4], work);
  give_share(work.w, 0, 1, p[5], work);
  const int end = end_of(work);
  give_share(work.c, work.m - end, end, p[6], work);
}

void make_cnn(const double* p, Workspace& work) {
  const int stages = std::min(static_cast<int>(p[0]), work.m);
  const double steps = std::max(1, stages - 1);
  const double fall = -log_of(p[1]) / steps, rise = log_of(p[2]) / steps;
  log_normal(work.c, p[4], work);
  for (int s = 0; s < stages; ++s) {
    const int from = static_cast<int>(static_cast<std::int64_t>(s) * work.m / stages);
    const int to = static_cast<int>(static_cast<std::int64_t>(s + 1) * work.m / stages);
    const auto a = static_cast<float>(exp_of(fall * s)), w = static_cast<float>(exp_of(rise * s));
    const auto c = static_cast<float>(exp_of(p[3] * (0.5 - s / steps)));
    for (int i = from; i < to; ++i) {
      work.a[i] = a;
      work.w[i] = w;
      work.c[i] *= c;
    }
  }
  jitter(work.a, p[4], work);
  jitter(work.w, p[4], work);
  keep_share(work.w, p[5], work);
  const int end = end_of(work);
  give_share(work.w, work.m - end, end, p[6], work);
}

void make_encoder_decoder(const double* p, Workspace& work) {
  const int split = std::clamp(static_cast<int>(p[1] * work.m), 1, work.m - 1);
  const int layers = work.layers = static_cast<int>(p[0]);
  const int encoder_layers = std::max(1, static_cast<int>(layers * p[1] + 0.5));
  const Block encoder = draw_block(static_cast<int>(p[2]), p[3], p[4], *work.rng);
  Block decoder = draw_block(static_cast<int>(p[2] * 1.5), p[3], p[4], *work.rng);
  // The encoder's output crosses every cut of the decoder: its last cut, times `memory`.
  const float memory = encoder.a[size(encoder.slots) - 1] * static_cast<float>(p[6]);
  for (std::size_t s = 0; s < size(decoder.slots); ++s) {
    decoder.c[s] *= static_cast<float>(p[5]);
    decoder.a[s] += memory;
  }
  repeat_block(encoder, encoder_layers, 0, split, work);
  repeat_block(decoder, std::max(1, layers - encoder_layers), split, work.m - split, work);
  jitter_all(p[7], work);
}

void make_embedding(const double* p, Workspace& work) {
  log_normal(work.c, p[3], work);
  log_normal(work.a, p[3], work);
  log_normal(work.w, p[3], work);
  keep_share(work.w, 0.4, work);
  // The first share is of the whole that the second is part of.
  const int end = end_of(work);
  give_share(work.w, work.m - end, end, std::min(0.98, p[1] / (1 - p[0])), work);
  give_share(work.w, 0, 1, p[0], work);
  give_share(work.c, work.m - end, end, p[2], work);
}

void make_sparse(const double* p, Workspace& work) {
  log_normal(work.c, p[1], work);
  log_normal(work.a, p[1], work);
  log_normal(work.w, p[1], work);
  keep_share(work.w, p[0], work);
}

void make_unet(const double* p, Workspace& work) {
  const int levels = static_cast<int>(p[0]);
  const double fall = -log_of(p[1]), rise = log_of(p[2]);
  const double steps = std::max(1, levels - 1);
  std::array<float, 32> a{}, w{}, c{};
  double skips = 0;  // what the levels above this one keep for their mirror images
  for (int level = 0; level < levels; ++level) {
    const double own = exp_of(fall * level / steps);
    a[size(level)] = static_cast<float>(own + p[3] * skips);
    w[size(level)] = static_cast<float>(exp_of(rise * level / steps));
    c[size(level)] = static_cast<float>(exp_of(p[4] * (0.5 - level / steps)));
    skips += own;
  }
  // Down the levels and up again.
  const int parts = 2 * levels - 1;
  for (int i = 0; i < work.m; ++i) {
    const int part = static_cast<int>(static_cast<std::int64_t>(i) * parts / work.m);
    const std::size_t level = size(part < levels ? part : parts - 1 - part);
    work.c[i] = c[level];
    work.a[i] = a[level];
    work.w[i] = w[level];
  }
  jitter_all(p[5], work);
  keep_share(work.w, 0.5, work);
}

void make_moe(const double* p, Workspace& work) {
  // Every p[2]-th layer's last third of slots holds experts: many parameters, a little more compute, and the tokens
  // leave for their experts in top_k copies.
  const int layers = work.layers = static_cast<int>(p[0]);
  const int every = static_cast<int>(p[2]);
  const Block dense = draw_block(static_cast<int>(p[1]), p[6], p[7], *work.rng);
  Block experts = dense;
  const int from = experts.slots * 2 / 3;
  for (int s = from; s < experts.slots; ++s) {
    experts.w[size(s)] = std::max(experts.w[size(s)], 0.5f) * static_cast<float>(p[3]);
    experts.c[size(s)] *= static_cast<float>(p[4]);
    if (s + 1 < experts.slots) experts.a[size(s)] *= static_cast<float>(p[5]);
  }
  const int used = std::clamp(layers, 1, work.m);
  for (int layer = 0; layer < used; ++layer) {
    const int first = static_cast<int>(static_cast<std::int64_t>(layer) * work.m / used);
    const int last = static_cast<int>(static_cast<std::int64_t>(layer + 1) * work.m / used);
    repeat_block(layer % every == every - 1 ? experts : dense, 1, first, last - first, work);
  }
  jitter_all(p[8], work);
}

std::vector<FamilySpec> make_families() {
  const auto layers = [](const char* what) { return log_whole("layers", what, 4, 64, 1, 1000); };
  const auto slots = whole("slots", "instructions of one layer that differ", 4, 32, 1, kMostSlots);
  const auto contrast = number("contrast", "sigma of their log-normal levels", 0.3, 1.5, 0, 4);
  const auto narrow =
      log_number("narrow", "activation at the cut between two layers over the smallest inside one", 0.2, 1, 1e-3, 1);
  const auto noise = number("jitter", "sigma of the log-normal noise on every instruction", 0, 0.3, 0, 4);
  return {
      {"uniform",
       "c, a and w uniform (the paper's)",
       {number("low", "lower end, the upper one is 1", 0, 0, 0, 0.999)},
       make_uniform},
      {"normal",
       "c, a and w normal with mean 1, cut off at 0 (the paper's)",
       {number("deviation", "standard deviation over the mean", 0.1, 0.5, 0, 4)},
       make_normal},
      {"binomial",
       "c, a and w binomial (the paper's)",
       {whole("trials", "number of trials", 4, 100, 1, 256), number("probability", "of each", 0.1, 0.9, 0.01, 0.99)},
       make_binomial},
      {"lognormal",
       "c, a and w log-normal, independent",
       {number("c_sigma", "sigma of the logarithm of c", 0.2, 1.5, 0, 4), number("a_sigma", "of a", 0.2, 1.5, 0, 4),
        number("w_sigma", "of w", 0.2, 2, 0, 4)},
       make_log_normal},
      {"exponential",
       "c, a and w exponential above a floor",
       {number("floor", "constant part of the mean", 0, 0.5, 0, 0.999)},
       make_exponential},
      {"power_law",
       "c, a and w Pareto: a few instructions hold much of everything",
       {number("exponent", "of the tail", 1.05, 3, 0.5, 20),
        log_number("cap", "largest over smallest", 50, 2000, 1, 1e6)},
       make_power_law},
      {"bimodal",
       "c, a and w small or large",
       {log_number("ratio", "large over small", 5, 200, 1, 1e6), number("share", "of large ones", 0.05, 0.5, 0, 1),
        noise},
       make_bimodal},
      {"transformer",
       "equal layers of a random pattern, an embedding first, a classifier last",
       {layers("repeated layers"), slots, contrast, narrow, noise,
        number("embedding", "share of w in the first instruction", 0, 0.3, 0, 0.99),
        number("head", "share of c in the last hundredth", 0, 0.2, 0, 0.99)},
       make_transformer},
      {"cnn",
       "activations fall and parameters rise in steps",
       {whole("stages", "steps", 3, 7, 1, 32), log_number("fall", "first activation over last", 4, 128, 1, 1e6),
        log_number("rise", "last parameter over first", 8, 2000, 1, 1e6),
        number("tilt", "compute: log of first step over last", -1.5, 1.5, -10, 10),
        number("jitter", "sigma of the log-normal noise on every instruction", 0.1, 0.8, 0, 4),
        number("density", "share of instructions with a variable", 0.2, 0.7, 0, 1),
        number("dense_end", "share of w in the last hundredth (fully connected layers)", 0, 0.8, 0, 0.99)},
       make_cnn},
      {"encoder_decoder",
       "two stacks of layers; the encoder's output crosses every cut of the decoder",
       {layers("layers of both stacks together"),
        number("split", "share of the instructions in the encoder", 0.3, 0.7, 0.01, 0.99),
        whole("slots", "instructions of one encoder layer that differ; decoder layers have 1.5x", 4, 32, 1, 42),
        contrast, narrow,
        log_number("decoder_compute", "compute of a decoder instruction over an encoder's", 0.3, 2, 1e-3, 1e3),
        log_number("memory", "encoder output over the activation between two encoder layers", 0.2, 2, 1e-3, 1e3),
        noise},
       make_encoder_decoder},
      {"embedding",
       "large embeddings at the ends of a log-normal body",
       {number("first", "share of w in the first instruction", 0.2, 0.8, 0, 0.95),
        number("last", "share of w in the last hundredth", 0, 0.4, 0, 0.95),
        number("head", "share of c in the last hundredth", 0, 0.3, 0, 0.99),
        number("sigma", "of the body's log-normal levels", 0.2, 1.2, 0, 4)},
       make_embedding},
      {"sparse",
       "few instructions hold a variable",
       {log_number("density", "share of instructions with a variable", 0.01, 0.3, 0, 1),
        number("sigma", "of the log-normal levels", 0.2, 1.5, 0, 4)},
       make_sparse},
      {"unet",
       "down and up again with skip connections that every cut between carries along",
       {whole("levels", "resolutions", 3, 6, 1, 32),
        log_number("fall", "activation at the top over the bottom", 4, 128, 1, 1e6),
        log_number("rise", "parameters at the bottom over the top", 4, 256, 1, 1e6),
        number("skip", "share of a level's activation that its mirror image needs", 0.2, 1, 0, 1),
        number("tilt", "compute: log of top over bottom", -1, 1, -10, 10), noise},
       make_unet},
      {"moe",
       "transformer layers, some with experts: many parameters, tokens sent around",
       {layers("layers"), slots, whole("every", "of so many layers one has experts", 1, 4, 1, 100),
        log_number("experts", "parameters of an expert layer over a dense one", 4, 64, 1, 1e4),
        log_number("expert_compute", "compute over a dense one", 1, 2, 1e-3, 1e3),
        log_number("top_k", "copies of a token inside an expert layer", 1, 2, 1, 64), contrast, narrow, noise},
       make_moe},
      {"empirical",
       "profiles of real models, windows of one or two resampled and perturbed",
       {number("window", "share of the model's instructions", 0.3, 1, 1e-3, 1),
        number("warp", "sigma of the logarithm of how fast eighths of a window go by", 0, 0.4, 0, 2),
        number("mix", "share of rows that are two models, one after the other", 0.15, 0.15, 0, 1), noise,
        number("keep_ratio", "share of rows that keep the profile's ratio of activation to parameter bytes", 0.5, 0.5,
               0, 1)},
       make_empirical,
       0},
  };
}

}  // namespace

void Workspace::begin(std::uint64_t seed, std::uint64_t index, int instructions) {
  m = instructions;
  seed_ = seed;
  index_ = index;
  used_ = 0;
  keep_bytes_ratio = 0;
  layers = 0;
  const std::size_t need = size(m);
  if (arrays_.size() < 3 * need) arrays_.resize(3 * need);
  c = arrays_.data();
  a = c + need;
  w = a + need;
}

const std::uint32_t* Workspace::random(std::size_t count) {
  count = (count + 31) / 32 * 32;
  if (random_.size() < count) random_.resize(count);
  fill_random(random_.data(), count, seed_, kArrayStream, index_, used_);
  used_ += count;
  return random_.data();
}

const std::vector<FamilySpec>& families() {
  static const std::vector<FamilySpec> made = [] {
    std::vector<FamilySpec> all = make_families();
    for (FamilySpec& family : layered_families()) all.push_back(std::move(family));
    return all;
  }();
  return made;
}

}  // namespace automap::datagen
