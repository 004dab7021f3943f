// The one place that includes LibTorch: forward and backward pass of a fully connected ReLU network whose weights are
// one flat buffer in the layout of a policy file, so that the optimizer, checkpoints, targets and policies are plain
// copies.
//
// Not thread-safe; different objects may be used by different threads at once.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace automap::models {

struct NetworkShape {
  int inputs = 0;
  std::vector<int> hidden;
  // Output layers side by side on the last hidden layer: {outputs}, or {value outputs, advantage outputs}.
  std::vector<int> heads;
  int outputs() const;
  std::size_t num_weights() const;
};

class TorchNetwork {
 public:
  // Throws Error(kConfig) when `device` ("cpu", "cuda") is unknown or this LibTorch cannot use it.
  TorchNetwork(NetworkShape shape, const std::string& device, int threads);
  ~TorchNetwork();

  // out [rows][outputs()], without gradients.
  void forward(const float* weights, const float* inputs, int rows, float* out);
  // Does the same and remembers it for backward(). `weights` and `inputs` must stay until then.
  void forward_training(const float* weights, const float* inputs, int rows, float* out);
  // Gradient of sum(out * out_gradient) in the weights, [num_weights()].
  void backward(const float* out_gradient, float* gradient);

 private:
  struct Tensors;
  NetworkShape shape_;
  int threads_;
  std::unique_ptr<Tensors> tensors_;
};

}  // namespace automap::models
