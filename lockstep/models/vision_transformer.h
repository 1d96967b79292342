#pragma once

// Dosovitskiy et al., "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale", as torchvision
// builds it.

#include <memory>

#include "lockstep/models/image_model.h"

namespace lockstep::models {

/// What a vision transformer is made of.
struct VisionTransformerKind {
  std::int64_t patch = 16;  ///< side of the fields that a picture is cut into
  int layers = 12;
  std::int64_t heads = 12;     ///< of attention; they divide the width
  std::int64_t width = 768;    ///< of a token
  std::int64_t hidden = 3072;  ///< of a layer's perceptron
};

/// torchvision's vit_b_16 by default, with its names (class_token, conv_proj.weight, encoder.pos_embedding …
/// heads.head.bias) and initial weights. Pictures are square and their side is a multiple of the patch; a model takes
/// only those of its task, because each patch has an embedding of its own.
std::shared_ptr<ImageModel> make_vision_transformer(const VisionTransformerKind& kind, const ImageTask& task);

}  // namespace lockstep::models
