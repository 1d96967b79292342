#include "lockstep/train/options_weights.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::train {
namespace {

constexpr const char* kDefault = "DEFAULT";

std::string text_of(const PublishedWeights& weights) { return weights.of + "." + weights.name; }

const PublishedWeights& find_published(const std::string& name) {
  std::vector<std::string> names;
  for (const PublishedWeights& one : published_weights()) {
    if (name == text_of(one) || (one.is_default && name == one.of + "." + kDefault)) return one;
    names.push_back(text_of(one));
  }
  const std::string near = base::nearest(name, names);
  throw UsageError("--weights " + base::shown(name) + ": no weights of torchvision's for a model here" +
                   (near.empty() ? "" : ": did you mean " + near + "?"));
}

std::string torch_home(const std::function<const char*(const char*)>& variable) {
  const auto folder = [&](const char* name) {
    const char* const value = variable(name);
    return value != nullptr ? std::string(value) : std::string();
  };
  if (const std::string home = folder("TORCH_HOME"); !home.empty()) return home;
  if (const std::string cache = folder("XDG_CACHE_HOME"); !cache.empty()) return cache + "/torch";
  return folder("HOME") + "/.cache/torch";
}

}  // namespace

const std::vector<PublishedWeights>& published_weights() {
  static const std::vector<PublishedWeights> all = {
      {"resnet18", "ResNet18_Weights", "IMAGENET1K_V1", "resnet18-f37072fd.pth"},
      {"resnet34", "ResNet34_Weights", "IMAGENET1K_V1", "resnet34-b627a593.pth"},
      {"resnet50", "ResNet50_Weights", "IMAGENET1K_V1", "resnet50-0676ba61.pth", false},
      {"resnet50", "ResNet50_Weights", "IMAGENET1K_V2", "resnet50-11ad3fa6.pth"},
      {"resnet101", "ResNet101_Weights", "IMAGENET1K_V1", "resnet101-63fe2227.pth", false},
      {"resnet101", "ResNet101_Weights", "IMAGENET1K_V2", "resnet101-cd907fc2.pth"},
      {"resnet152", "ResNet152_Weights", "IMAGENET1K_V1", "resnet152-394f9c45.pth", false},
      {"resnet152", "ResNet152_Weights", "IMAGENET1K_V2", "resnet152-f82ba261.pth"},
      {"resnext50_32x4d", "ResNeXt50_32X4D_Weights", "IMAGENET1K_V1", "resnext50_32x4d-7cdf4587.pth", false},
      {"resnext50_32x4d", "ResNeXt50_32X4D_Weights", "IMAGENET1K_V2", "resnext50_32x4d-1a0047aa.pth"},
      {"resnext101_32x8d", "ResNeXt101_32X8D_Weights", "IMAGENET1K_V1", "resnext101_32x8d-8ba56ff5.pth", false},
      {"resnext101_32x8d", "ResNeXt101_32X8D_Weights", "IMAGENET1K_V2", "resnext101_32x8d-110c445d.pth"},
      {"wide_resnet50_2", "Wide_ResNet50_2_Weights", "IMAGENET1K_V1", "wide_resnet50_2-95faca4d.pth", false},
      {"wide_resnet50_2", "Wide_ResNet50_2_Weights", "IMAGENET1K_V2", "wide_resnet50_2-9ba9bcbe.pth"},
      {"wide_resnet101_2", "Wide_ResNet101_2_Weights", "IMAGENET1K_V1", "wide_resnet101_2-32ee1156.pth", false},
      {"wide_resnet101_2", "Wide_ResNet101_2_Weights", "IMAGENET1K_V2", "wide_resnet101_2-d733dc28.pth"},
      {"vgg11", "VGG11_Weights", "IMAGENET1K_V1", "vgg11-8a719046.pth"},
      {"vgg13", "VGG13_Weights", "IMAGENET1K_V1", "vgg13-19584684.pth"},
      {"vgg16", "VGG16_Weights", "IMAGENET1K_V1", "vgg16-397923af.pth"},
      {"vgg16", "VGG16_Weights", "IMAGENET1K_FEATURES", "vgg16_features-amdegroot-88682ab5.pth", false},
      {"vgg19", "VGG19_Weights", "IMAGENET1K_V1", "vgg19-dcbb9e9d.pth"},
      {"vgg11_bn", "VGG11_BN_Weights", "IMAGENET1K_V1", "vgg11_bn-6002323d.pth"},
      {"vgg13_bn", "VGG13_BN_Weights", "IMAGENET1K_V1", "vgg13_bn-abd245e5.pth"},
      {"vgg16_bn", "VGG16_BN_Weights", "IMAGENET1K_V1", "vgg16_bn-6c64b313.pth"},
      {"vgg19_bn", "VGG19_BN_Weights", "IMAGENET1K_V1", "vgg19_bn-c79401a0.pth"},
      {"alexnet", "AlexNet_Weights", "IMAGENET1K_V1", "alexnet-owt-7be5be79.pth"},
      {"mobilenet_v2", "MobileNet_V2_Weights", "IMAGENET1K_V1", "mobilenet_v2-b0353104.pth", false},
      {"mobilenet_v2", "MobileNet_V2_Weights", "IMAGENET1K_V2", "mobilenet_v2-7ebf99e0.pth"},
      {"densenet121", "DenseNet121_Weights", "IMAGENET1K_V1", "densenet121-a639ec97.pth"},
      {"efficientnet_b0", "EfficientNet_B0_Weights", "IMAGENET1K_V1", "efficientnet_b0_rwightman-7f5810bc.pth"},
      {"vit_b_16", "ViT_B_16_Weights", "IMAGENET1K_V1", "vit_b_16-c867db91.pth"},
      {"vit_b_16", "ViT_B_16_Weights", "IMAGENET1K_SWAG_E2E_V1", "vit_b_16_swag-9ac1b537.pth", false},
      {"vit_b_16", "ViT_B_16_Weights", "IMAGENET1K_SWAG_LINEAR_V1", "vit_b_16_lc_swag-4e70ced5.pth", false},
  };
  return all;
}

bool is_published_name(const std::string& weights) {
  return weights.find("_Weights.") != std::string::npos && weights.find('/') == std::string::npos;
}

std::string file_of_published(const std::string& name, const std::string& model,
                              const std::function<const char*(const char*)>& variable) {
  const PublishedWeights& weights = find_published(name);
  if (weights.model != model)
    throw UsageError("--weights " + name + " is of --model " + weights.model + ", not of " + model);
  return torch_home(variable) + "/hub/checkpoints/" + weights.file;
}

}  // namespace lockstep::train
