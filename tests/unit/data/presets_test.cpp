#include "lockstep/data/presets.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/data/transforms/crop.h"

namespace lockstep::data {
namespace {

constexpr std::int64_t kAll[] = {0, 1, 2, 3, 4, 5, 6, 7};

std::shared_ptr<const PictureSet> pictures(Size size, int channels) {
  MemoryPictures::Content content{.size = size, .channels = channels, .classes = {"one"}};
  content.labels.assign(std::size(kAll), 0);
  for (std::size_t i = 0; i < std::size(kAll) * std::size_t(size.height * size.width * channels); ++i)
    content.pixels.push_back(std::uint8_t(i * 37 + i / 768));
  return std::make_shared<MemoryPictures>(std::move(content));
}

at::Tensor prepared(Preparation preparation, Size size, int channels = 3) {
  return PictureBatches(pictures(size, channels), std::move(preparation.transforms), preparation.batch)
      .make(0, kAll)
      .data;
}

at::Tensor normalised(const at::Tensor& plain, const std::vector<double>& mean, const std::vector<double>& std) {
  const auto numbers = [](const std::vector<double>& of) {
    return torch::tensor(of).to(torch::kFloat).view({-1, 1, 1});
  };
  return plain.sub(numbers(mean)).div(numbers(std));
}

TEST(Presets, OfGreyDigits) {
  const at::Tensor plain = prepared(to_tensor_preset(), {28, 28}, 1);
  EXPECT_EQ(plain.max().item<float>(), 1.0f);
  EXPECT_TRUE(at::equal(prepared(mnist_preset(), {28, 28}, 1), normalised(plain, {0.1307}, {0.3081})));
}

TEST(Presets, CifarCropsAndFlipsInTrainingOnly) {
  const at::Tensor plain = prepared(to_tensor_preset(), {32, 32});
  const at::Tensor evaluated = normalised(plain, {0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616});
  EXPECT_TRUE(at::equal(prepared(cifar_eval_preset(), {32, 32}), evaluated));
  Preparation by_hand{Compose().then(RandomCrop(32, {.padding = 4})).then(RandomHorizontalFlip()),
                      cifar_eval_preset().batch};
  const at::Tensor trained = prepared(cifar_train_preset(), {32, 32});
  EXPECT_TRUE(at::equal(trained, prepared(std::move(by_hand), {32, 32})));
  EXPECT_FALSE(at::equal(trained, evaluated));
}

TEST(Presets, ImageNetResizesAndCrops) {
  Preparation by_hand{Compose().then(Resize(256)).then(CenterCrop(224)), {}};
  const at::Tensor cropped = prepared(std::move(by_hand), {300, 400});
  EXPECT_TRUE(at::equal(prepared(imagenet_eval_preset(), {300, 400}),
                        normalised(cropped, {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225})));
  EXPECT_EQ(prepared(imagenet_train_preset({.crop_size = 64}), {300, 400}).sizes(),
            (std::vector<std::int64_t>{8, 3, 64, 64}));
}

TEST(Presets, EveryPolicyAndErasingChangeThePictures) {
  for (const auto make : {cifar_train_preset, imagenet_train_preset}) {
    const auto batch = [&](const TrainPresetOptions& options) { return prepared(make(options), {40, 40}); };
    const at::Tensor plain = batch({.crop_size = 24});
    EXPECT_FALSE(at::equal(plain, batch({.crop_size = 24, .random_erase = 1})));
    for (const auto policy : {AutoAugmentKind::imagenet, AutoAugmentKind::cifar10, AutoAugmentKind::svhn,
                              AutoAugmentKind::ra, AutoAugmentKind::ta_wide, AutoAugmentKind::augmix})
      EXPECT_FALSE(at::equal(plain, batch({.crop_size = 24, .auto_augment = policy}))) << int(policy);
  }
}

}  // namespace
}  // namespace lockstep::data
