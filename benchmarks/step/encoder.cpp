#include "benchmarks/step/encoder.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/nn/modules/normalization.h>

#include <array>
#include <cstddef>
#include <memory>
#include <typeinfo>
#include <utility>
#include <vector>

#include "lockstep/nn/fusible.h"
#include "lockstep/nn/linear.h"

namespace lockstep::bench {
namespace {

constexpr std::int64_t kHeads = 8, kHidden = 2048;

class EncoderLayer : public torch::nn::Module, public nn::Fusible {
 public:
  EncoderLayer() : norm_1_(torch::nn::LayerNormOptions({kWidth})), norm_2_(torch::nn::LayerNormOptions({kWidth})) {
    const std::array<std::pair<std::int64_t, std::int64_t>, 4> sizes = {
        {{kWidth, 3 * kWidth}, {kWidth, kWidth}, {kWidth, kHidden}, {kHidden, kWidth}}};
    for (std::size_t i = 0; i < sizes.size(); ++i)
      linears_[i] =
          register_module(kNames[i], std::make_shared<torch::nn::LinearImpl>(sizes[i].first, sizes[i].second));
    register_module("norm_1", norm_1_);
    register_module("norm_2", norm_2_);
  }

  at::Tensor forward(const at::Tensor& x) {
    const std::int64_t samples = x.size(0), tokens = x.size(1);
    const at::Tensor packed = through(kAttentionIn, x)
                                  .view({samples, tokens, 3, kHeads, kWidth / kHeads})
                                  .permute({2, 0, 3, 1, 4});  // [3, B, heads, tokens, width of a head]
    const at::Tensor seen = at::scaled_dot_product_attention(packed[0], packed[1], packed[2]);
    const at::Tensor heads = seen.transpose(1, 2).reshape({samples, tokens, kWidth});
    const at::Tensor y = norm_1_(x + through(kAttentionOut, heads));
    return norm_2_(y + through(kSecond, through(kFirst, y).relu()));
  }

  std::vector<nn::Fusion> fuse_layers() override {
    std::vector<nn::Fusion> done;
    for (std::size_t i = 0; i < linears_.size(); ++i) {
      const torch::nn::LinearImpl& plain = *linears_[i];
      if (typeid(plain) != typeid(torch::nn::LinearImpl)) continue;
      linears_[i] = replace_module(kNames[i], std::make_shared<nn::LinearImpl>(plain));
      done.push_back({kNames[i], "Linear", "lockstep::nn::Linear"});
    }
    return done;
  }

 private:
  enum Place : std::size_t { kAttentionIn, kAttentionOut, kFirst, kSecond };
  static constexpr std::array<const char*, 4> kNames = {"attention_in", "attention_out", "first", "second"};

  // Python's F.linear: libtorch's layer goes over the output once more for the bias.
  at::Tensor through(Place place, const at::Tensor& x) {
    torch::nn::LinearImpl& layer = *linears_[place];
    if (dynamic_cast<nn::LinearImpl*>(&layer) != nullptr) return nn::linear(x, layer.weight, layer.bias);
    return at::linear(x, layer.weight, layer.bias);
  }

  std::array<std::shared_ptr<torch::nn::LinearImpl>, 4> linears_;
  torch::nn::LayerNorm norm_1_;
  torch::nn::LayerNorm norm_2_;
};

}  // namespace

Encoder::Encoder(int layers, std::int64_t classes) : ImageModel("Encoder") {
  for (int i = 0; i < layers; ++i) layers_->push_back(EncoderLayer());
  register_module("layers", layers_);
  register_module("last", last_ = torch::nn::Linear(kWidth, classes));  // drawn behind the layers, as Python's
}

at::Tensor Encoder::forward(at::Tensor samples) { return last_(layers_->forward(std::move(samples)).mean(1)); }

}  // namespace lockstep::bench
