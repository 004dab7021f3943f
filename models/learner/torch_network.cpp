#include "models/learner/torch_network.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <malloc.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/cuda.h>
#include <torch/types.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>

#include "common/base/check.h"
#include "common/base/log.h"
#include "models/learner/learner.h"

namespace automap::models {
namespace {

// glibc gives every large block its own mapping and returns it at once: a page fault per 4 KiB of every temporary
// tensor. Keeping them doubles the speed of an update.
void keep_large_blocks() {
  static std::once_flag once;
  std::call_once(once, [] {
    mallopt(M_MMAP_THRESHOLD, 1 << 28);
    mallopt(M_TRIM_THRESHOLD, 1 << 29);
  });
}

// The number is half global, half per thread: a new thread takes the last one set by anyone.
void use_threads(int threads) {
  thread_local int used = 0;
  if (used == threads) return;
  at::set_num_threads(threads);
  used = threads;
}

at::Tensor view(const float* values, std::initializer_list<std::int64_t> sizes) {
  return torch::from_blob(const_cast<float*>(values), sizes, torch::kFloat32);
}

}  // namespace

int NetworkShape::outputs() const {
  int sum = 0;
  for (const int head : heads) sum += head;
  return sum;
}

std::size_t NetworkShape::num_weights() const {
  std::size_t count = 0;
  auto in = static_cast<std::size_t>(inputs);
  for (const int size : hidden) {
    const auto out = static_cast<std::size_t>(size);
    count += (in + 1) * out;
    in = out;
  }
  for (const int head : heads) count += (in + 1) * static_cast<std::size_t>(head);
  return count;
}

struct TorchNetwork::Tensors {
  at::Device device = at::kCPU;
  std::vector<at::Tensor> weights;  // weight, bias, weight, bias, ..
  at::Tensor output;

  void set_weights(const NetworkShape& shape, const float* flat, bool with_gradient) {
    weights.clear();
    std::int64_t in = shape.inputs;
    const auto layer = [&](std::int64_t out) {
      for (const at::Tensor& tensor : {view(flat, {in, out}), view(flat + in * out, {out})}) {
        weights.push_back(tensor.to(device));
        if (with_gradient) weights.back().requires_grad_(true);
      }
      flat += (in + 1) * out;
    };
    for (const int size : shape.hidden) {
      layer(size);
      in = size;
    }
    for (const int head : shape.heads) layer(head);
  }

  at::Tensor run(const NetworkShape& shape, const float* inputs, int rows) {
    at::Tensor x = view(inputs, {rows, shape.inputs}).to(device);
    std::size_t i = 0;
    for (std::size_t layer = 0; layer < shape.hidden.size(); ++layer, i += 2) {
      x = torch::addmm(weights[i + 1], x, weights[i]).relu_();
    }
    std::vector<at::Tensor> heads;
    for (std::size_t head = 0; head < shape.heads.size(); ++head, i += 2) {
      heads.push_back(torch::addmm(weights[i + 1], x, weights[i]));
    }
    return heads.size() == 1 ? heads[0] : torch::cat(heads, 1);
  }
};

TorchNetwork::TorchNetwork(NetworkShape shape, const std::string& device, int threads)
    : shape_(std::move(shape)), threads_(threads), tensors_(std::make_unique<Tensors>()) {
  keep_large_blocks();
  if (device == "cuda") {
    if (!torch::cuda::is_available()) {
      throw Error(ErrorKind::kConfig, "device cuda: this LibTorch (" TORCH_VERSION ") finds no CUDA device",
                  "use device cpu, or a LibTorch 2 with CUDA through CMAKE_PREFIX_PATH");
    }
    tensors_->device = at::kCUDA;
  } else if (device != "cpu") {
    throw Error(ErrorKind::kConfig, "device \"" + device + "\": expected cpu or cuda");
  }
}

TorchNetwork::~TorchNetwork() = default;

void TorchNetwork::forward(const float* weights, const float* inputs, int rows, float* out) {
  use_threads(threads_);
  const torch::NoGradGuard no_gradients;
  tensors_->set_weights(shape_, weights, false);
  const at::Tensor result = tensors_->run(shape_, inputs, rows).to(at::kCPU).contiguous();
  std::memcpy(out, result.data_ptr<float>(), static_cast<std::size_t>(result.numel()) * sizeof(float));
}

void TorchNetwork::forward_training(const float* weights, const float* inputs, int rows, float* out) {
  use_threads(threads_);
  tensors_->set_weights(shape_, weights, true);
  tensors_->output = tensors_->run(shape_, inputs, rows);
  const at::Tensor result = tensors_->output.detach().to(at::kCPU).contiguous();
  std::memcpy(out, result.data_ptr<float>(), static_cast<std::size_t>(result.numel()) * sizeof(float));
}

void TorchNetwork::backward(const float* out_gradient, float* gradient) {
  AM_CHECK(tensors_->output.defined());
  use_threads(threads_);
  const at::Tensor slope =
      view(out_gradient, {tensors_->output.size(0), tensors_->output.size(1)}).to(tensors_->device);
  const auto gradients = torch::autograd::grad({tensors_->output}, tensors_->weights, {slope});
  for (const at::Tensor& tensor : gradients) {
    const at::Tensor values = tensor.to(at::kCPU).contiguous();
    std::memcpy(gradient, values.data_ptr<float>(), static_cast<std::size_t>(values.numel()) * sizeof(float));
    gradient += values.numel();
  }
  tensors_->output.reset();
}

std::string check_torch_speed() {
  use_threads(1);
  const torch::NoGradGuard no_gradients;
  constexpr int kSize = 256;
  const at::Tensor a = torch::ones({kSize, kSize}), b = torch::ones({kSize, kSize});
  at::Tensor c = torch::empty({kSize, kSize});
  double best_seconds = 1e9, total_seconds = 0;
  for (int i = 0; i < 10 && total_seconds < 0.003; ++i) {
    const auto start = std::chrono::steady_clock::now();
    at::mm_out(c, a, b);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best_seconds = std::min(best_seconds, seconds);
    total_seconds += seconds;
  }
  const double gflops = 2.0 * kSize * kSize * kSize / best_seconds * 1e-9;
  std::string blas = "BLAS";
  if (dlsym(RTLD_DEFAULT, "openblas_get_config")) {
    blas = "OpenBLAS";
  } else if (at::hasMKL()) {
    blas = "MKL";
  } else if (gflops < 10) {
    blas = "reference BLAS";
  }
  const std::string text = std::string("LibTorch ") + TORCH_VERSION + ", " + blas + ", " +
                           std::to_string(static_cast<int>(gflops)) + " GFLOP/s";
  if (gflops < 10) {
    log_warning(text + ": matrix products are slow, training will be too; install libopenblas0-openmp");
  }
  return text;
}

}  // namespace automap::models
