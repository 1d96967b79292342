#include "lockstep/train/transform_list.h"

#include <functional>
#include <map>
#include <utility>

#include "lockstep/data/transforms/augment.h"
#include "lockstep/data/transforms/crop.h"
#include "lockstep/data/transforms/geometry.h"
#include "lockstep/train/options_transforms.h"

namespace lockstep::train {
namespace {

using data::Compose;

data::Size size_of_step(const TransformStep& step) { return {step.height, step.width == 0 ? step.height : step.width}; }

// One number is the smaller edge, as in torchvision.
Compose with_resize(Compose all, const TransformStep& step, data::Interpolation interpolation) {
  if (step.width == 0) return std::move(all).then(data::Resize(step.height, interpolation));
  return std::move(all).then(data::Resize(size_of_step(step), interpolation));
}

using Then = std::function<Compose(Compose all, const TransformStep& step, data::Interpolation interpolation)>;

// Of the steps that are pictures to pictures.
const std::map<std::string, Then>& picture_steps() {
  using Step = const TransformStep&;
  using data::Interpolation;
  static const std::map<std::string, Then> all = {
      {"resize", with_resize},
      {"center_crop",
       [](Compose c, Step s, Interpolation) { return std::move(c).then(data::CenterCrop(size_of_step(s))); }},
      {"random_crop",
       [](Compose c, Step s, Interpolation) { return std::move(c).then(data::RandomCrop(size_of_step(s))); }},
      {"random_resized_crop",
       [](Compose c, Step s, Interpolation i) {
         return std::move(c).then(data::RandomResizedCrop(size_of_step(s), {.interpolation = i}));
       }},
      {"hflip",
       [](Compose c, Step s, Interpolation) { return std::move(c).then(data::RandomHorizontalFlip(s.number)); }},
      {"vflip", [](Compose c, Step s, Interpolation) { return std::move(c).then(data::RandomVerticalFlip(s.number)); }},
      {"rotation", [](Compose c, Step s, Interpolation i) {
         return std::move(c).then(data::RandomRotation(s.number, {.interpolation = i}));
       }}};
  return all;
}

data::AutoAugmentKind auto_augment_named(const std::string& name) {
  using Kind = data::AutoAugmentKind;
  static const std::map<std::string, Kind> kinds = {
      {"none", Kind::none}, {"imagenet", Kind::imagenet}, {"cifar10", Kind::cifar10}, {"svhn", Kind::svhn},
      {"ra", Kind::ra},     {"ta_wide", Kind::ta_wide},   {"augmix", Kind::augmix}};
  return kinds.at(name);
}

data::NormalizeOptions statistics_named(const std::string& name) {
  if (name == "mnist") return data::mnist_preset().batch.normalize;
  return name == "cifar10" ? data::cifar_eval_preset().batch.normalize : data::imagenet_eval_preset().batch.normalize;
}

}  // namespace

data::Interpolation interpolation_of(const Options& options) {
  using Kind = data::Interpolation;
  // Of Pillow's pictures nearest is the exact one.
  static const std::map<std::string, Kind> kinds = {{"nearest", Kind::nearest},   {"nearest-exact", Kind::nearest},
                                                    {"bilinear", Kind::bilinear}, {"bicubic", Kind::bicubic},
                                                    {"box", Kind::box},           {"hamming", Kind::hamming},
                                                    {"lanczos", Kind::lanczos}};
  return kinds.at(options.interpolation);
}

data::TrainPresetOptions train_preset(const Options& options) {
  return {.crop_size = options.train_crop_size,
          .interpolation = interpolation_of(options),
          .auto_augment = auto_augment_named(options.auto_augment),
          .ra_magnitude = options.ra_magnitude,
          .augmix_severity = options.augmix_severity,
          .random_erase = options.random_erase};
}

data::Preparation listed_transforms(const Options& options, bool training) {
  data::Preparation made;
  for (const TransformStep& step : transform_steps(options.transforms)) {
    if (step.kind->random && !training) continue;
    const data::Interpolation interpolation =
        is_interpolated(step) ? interpolation_of(options) : data::Interpolation::nearest;
    if (step.kind->name == "auto_augment") {
      data::TrainPresetOptions policy = train_preset(options);
      policy.auto_augment = auto_augment_named(step.word);
      policy.interpolation = interpolation;
      made.transforms = with_policy(std::move(made.transforms), policy);
      continue;
    }
    if (const auto found = picture_steps().find(step.kind->name); found != picture_steps().end())
      made.transforms = found->second(std::move(made.transforms), step, interpolation);
    else if (step.kind->name == "normalize")
      made.batch.normalize = statistics_named(step.word);
  }
  return made;
}

}  // namespace lockstep::train
