#include "lockstep/models/vision_transformer.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "lockstep/models/head.h"
#include "lockstep/models/layers.h"
#include "lockstep/nn/fusible.h"
#include "lockstep/nn/linear.h"

namespace lockstep::models {
namespace {

namespace nn = torch::nn;

nn::LayerNorm layer_norm(std::int64_t width) { return nn::LayerNorm(nn::LayerNormOptions({width}).eps(1e-6)); }

using lockstep::nn::Fusion;
using LinearPointer = std::shared_ptr<nn::LinearImpl>;

// Python's F.linear. libtorch's adds the bias of three-dimensional x by itself, which rounds twice.
at::Tensor through_rows(const LinearPointer& layer, const at::Tensor& x) {
  if (dynamic_cast<const lockstep::nn::LinearImpl*>(layer.get()) != nullptr)
    return lockstep::nn::linear(x, layer->weight, layer->bias);
  return at::linear(x, layer->weight, layer->bias);
}

// Puts one of ours in the place of `layer`, which `owner` has by that name.
void fuse_linear(nn::Module& owner, const std::string& name, LinearPointer& layer, std::vector<Fusion>& done) {
  const nn::LinearImpl& plain = *layer;
  if (typeid(plain) != typeid(nn::LinearImpl)) return;
  layer = owner.replace_module(name, std::make_shared<lockstep::nn::LinearImpl>(plain));
  done.push_back({name, "Linear", "lockstep::nn::Linear"});
}

// torch.nn.MultiheadAttention of one sequence with itself, without dropout. libtorch's own computes the weights of all
// pairs of tokens, which needs the memory that the fused kernel saves.
class SelfAttentionImpl : public nn::Module, public lockstep::nn::Fusible {
 public:
  SelfAttentionImpl(std::int64_t width, std::int64_t heads)
      : heads_(heads),
        in_weight_(register_parameter("in_proj_weight", at::empty({3 * width, width}))),
        in_bias_(register_parameter("in_proj_bias", at::zeros({3 * width}))),
        out_(register_module("out_proj", std::make_shared<nn::LinearImpl>(width, width))) {
    nn::init::xavier_uniform_(in_weight_);
    nn::init::zeros_(out_->bias);
  }

  // [B, tokens, width] to the same. Tokens come before pictures, as in Python, whose rows are summed in this order.
  at::Tensor forward(const at::Tensor& x) {
    const std::int64_t pictures = x.size(0), tokens = x.size(1), width = x.size(2);
    const at::Tensor packed = at::linear(x.transpose(0, 1), in_weight_, in_bias_)
                                  .view({tokens, pictures, 3, heads_, width / heads_})
                                  .permute({2, 1, 3, 0, 4});  // [3, B, heads, tokens, width of a head]
    const at::Tensor seen = at::scaled_dot_product_attention(packed[0], packed[1], packed[2]);
    // Rows one behind the other, as Python makes them: of others the bias is added by itself, which rounds twice.
    const at::Tensor rows = seen.permute({2, 0, 1, 3}).contiguous().view({tokens, pictures, width});
    return through_rows(out_, rows).transpose(0, 1);
  }

  std::vector<Fusion> fuse_layers() override {
    std::vector<Fusion> done;
    fuse_linear(*this, "out_proj", out_, done);
    return done;
  }

 private:
  std::int64_t heads_;
  at::Tensor in_weight_;
  at::Tensor in_bias_;
  LinearPointer out_;
};
TORCH_MODULE(SelfAttention);

// Names 0 and 3: the numbers between are torchvision's layers without weights.
class PerceptronImpl : public nn::Module, public lockstep::nn::Fusible {
 public:
  PerceptronImpl(std::int64_t width, std::int64_t hidden)
      : first_(register_module("0", std::make_shared<nn::LinearImpl>(width, hidden))),
        second_(register_module("3", std::make_shared<nn::LinearImpl>(hidden, width))) {
    for_each_layer<nn::Linear>(*this, [](nn::LinearImpl& layer) {
      nn::init::xavier_uniform_(layer.weight);
      nn::init::normal_(layer.bias, 0, 1e-6);
    });
  }

  at::Tensor forward(const at::Tensor& x) { return through_rows(second_, at::gelu(through_rows(first_, x))); }

  std::vector<Fusion> fuse_layers() override {
    std::vector<Fusion> done;
    fuse_linear(*this, "0", first_, done);
    fuse_linear(*this, "3", second_, done);
    return done;
  }

 private:
  LinearPointer first_;
  LinearPointer second_;
};
TORCH_MODULE(Perceptron);

class EncoderLayer : public nn::Module {
 public:
  explicit EncoderLayer(const VisionTransformerKind& kind)
      : ln_1_(register_module("ln_1", layer_norm(kind.width))),
        attention_(register_module("self_attention", SelfAttention(kind.width, kind.heads))),
        ln_2_(register_module("ln_2", layer_norm(kind.width))),
        mlp_(register_module("mlp", Perceptron(kind.width, kind.hidden))) {}

  at::Tensor forward(const at::Tensor& tokens) {
    const at::Tensor x = attention_(ln_1_(tokens)) + tokens;
    return x + mlp_(ln_2_(x));
  }

 private:
  nn::LayerNorm ln_1_;
  SelfAttention attention_;
  nn::LayerNorm ln_2_;
  Perceptron mlp_;
};

class EncoderImpl : public nn::Module {
 public:
  EncoderImpl(const VisionTransformerKind& kind, std::int64_t tokens)
      : pos_embedding_(register_parameter("pos_embedding", at::empty({1, tokens, kind.width}))) {
    nn::init::normal_(pos_embedding_, 0, 0.02);
    for (int i = 0; i < kind.layers; ++i) layers_->push_back("encoder_layer_" + std::to_string(i), EncoderLayer(kind));
    register_module("layers", layers_);
    register_module("ln", ln_ = layer_norm(kind.width));
  }

  at::Tensor forward(const at::Tensor& tokens) { return ln_(layers_->forward(tokens + pos_embedding_)); }

 private:
  at::Tensor pos_embedding_;
  Row layers_;
  nn::LayerNorm ln_{nullptr};
};
TORCH_MODULE(Encoder);

// Python's nn.init.trunc_normal_ within two: uniform between the bounds' probabilities, then the inverse of the
// distribution.
void draw_truncated_normal(at::Tensor weight, double std) {
  const torch::NoGradGuard no_grad;
  const double below = (1 + std::erf(-2 / std / std::sqrt(2.0))) / 2,
               above = (1 + std::erf(2 / std / std::sqrt(2.0))) / 2;
  weight.uniform_(2 * below - 1, 2 * above - 1).erfinv_().mul_(std * std::sqrt(2.0)).clamp_(-2, 2);
}

class VisionTransformer : public ImageModel {
 public:
  VisionTransformer(const VisionTransformerKind& kind, const ImageTask& task)
      : ImageModel("VisionTransformer"),
        class_token_(register_parameter("class_token", at::zeros({1, 1, kind.width}))),
        conv_proj_(register_module(
            "conv_proj", nn::Conv2d(nn::Conv2dOptions(task.channels, kind.width, kind.patch).stride(kind.patch)))),
        encoder_(register_module(
            "encoder", Encoder(kind, (task.height / kind.patch) * (task.width / kind.patch) + /*class token*/ 1))) {
    const nn::Linear last(kind.width, task.classes);
    Head heads;
    heads->push_back("head", last);
    register_module("heads", heads);
    draw_truncated_normal(conv_proj_->weight, std::sqrt(1.0 / double(task.channels * kind.patch * kind.patch)));
    for (const at::Tensor& zero : {conv_proj_->bias, last->weight, last->bias}) nn::init::zeros_(zero);
  }

  at::Tensor forward(at::Tensor images) override {
    const at::Tensor patches = conv_proj_(images).flatten(2).transpose(1, 2);
    const at::Tensor tokens = at::cat({class_token_.expand({images.size(0), -1, -1}), patches}, 1);
    return through("heads", encoder_(tokens).select(1, 0));
  }

 private:
  at::Tensor class_token_;
  nn::Conv2d conv_proj_;
  Encoder encoder_;
};

}  // namespace

std::shared_ptr<ImageModel> make_vision_transformer(const VisionTransformerKind& kind, const ImageTask& task) {
  return std::make_shared<VisionTransformer>(kind, task);
}

}  // namespace lockstep::models
