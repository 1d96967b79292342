#include "lockstep/data/transforms/augment.h"

namespace lockstep::data {

// The policies as published (arXiv:1805.09501, appendix A), with the numbers that torchvision uses.
const std::vector<PolicyPair>& policy_pairs(AutoAugmentPolicy policy) {
  static const std::vector<PolicyPair> kImageNet = {
      {{AugmentOp::posterize, 0.4, 8}, {AugmentOp::rotate, 0.6, 9}},
      {{AugmentOp::solarize, 0.6, 5}, {AugmentOp::auto_contrast, 0.6, 0}},
      {{AugmentOp::equalize, 0.8, 0}, {AugmentOp::equalize, 0.6, 0}},
      {{AugmentOp::posterize, 0.6, 7}, {AugmentOp::posterize, 0.6, 6}},
      {{AugmentOp::equalize, 0.4, 0}, {AugmentOp::solarize, 0.2, 4}},
      {{AugmentOp::equalize, 0.4, 0}, {AugmentOp::rotate, 0.8, 8}},
      {{AugmentOp::solarize, 0.6, 3}, {AugmentOp::equalize, 0.6, 0}},
      {{AugmentOp::posterize, 0.8, 5}, {AugmentOp::equalize, 1.0, 0}},
      {{AugmentOp::rotate, 0.2, 3}, {AugmentOp::solarize, 0.6, 8}},
      {{AugmentOp::equalize, 0.6, 0}, {AugmentOp::posterize, 0.4, 6}},
      {{AugmentOp::rotate, 0.8, 8}, {AugmentOp::color, 0.4, 0}},
      {{AugmentOp::rotate, 0.4, 9}, {AugmentOp::equalize, 0.6, 0}},
      {{AugmentOp::equalize, 0.0, 0}, {AugmentOp::equalize, 0.8, 0}},
      {{AugmentOp::invert, 0.6, 0}, {AugmentOp::equalize, 1.0, 0}},
      {{AugmentOp::color, 0.6, 4}, {AugmentOp::contrast, 1.0, 8}},
      {{AugmentOp::rotate, 0.8, 8}, {AugmentOp::color, 1.0, 2}},
      {{AugmentOp::color, 0.8, 8}, {AugmentOp::solarize, 0.8, 7}},
      {{AugmentOp::sharpness, 0.4, 7}, {AugmentOp::invert, 0.6, 0}},
      {{AugmentOp::shear_x, 0.6, 5}, {AugmentOp::equalize, 1.0, 0}},
      {{AugmentOp::color, 0.4, 0}, {AugmentOp::equalize, 0.6, 0}},
      {{AugmentOp::equalize, 0.4, 0}, {AugmentOp::solarize, 0.2, 4}},
      {{AugmentOp::solarize, 0.6, 5}, {AugmentOp::auto_contrast, 0.6, 0}},
      {{AugmentOp::invert, 0.6, 0}, {AugmentOp::equalize, 1.0, 0}},
      {{AugmentOp::color, 0.6, 4}, {AugmentOp::contrast, 1.0, 8}},
      {{AugmentOp::equalize, 0.8, 0}, {AugmentOp::equalize, 0.6, 0}},
  };
  static const std::vector<PolicyPair> kCifar10 = {
      {{AugmentOp::invert, 0.1, 0}, {AugmentOp::contrast, 0.2, 6}},
      {{AugmentOp::rotate, 0.7, 2}, {AugmentOp::translate_x, 0.3, 9}},
      {{AugmentOp::sharpness, 0.8, 1}, {AugmentOp::sharpness, 0.9, 3}},
      {{AugmentOp::shear_y, 0.5, 8}, {AugmentOp::translate_y, 0.7, 9}},
      {{AugmentOp::auto_contrast, 0.5, 0}, {AugmentOp::equalize, 0.9, 0}},
      {{AugmentOp::shear_y, 0.2, 7}, {AugmentOp::posterize, 0.3, 7}},
      {{AugmentOp::color, 0.4, 3}, {AugmentOp::brightness, 0.6, 7}},
      {{AugmentOp::sharpness, 0.3, 9}, {AugmentOp::brightness, 0.7, 9}},
      {{AugmentOp::equalize, 0.6, 0}, {AugmentOp::equalize, 0.5, 0}},
      {{AugmentOp::contrast, 0.6, 7}, {AugmentOp::sharpness, 0.6, 5}},
      {{AugmentOp::color, 0.7, 7}, {AugmentOp::translate_x, 0.5, 8}},
      {{AugmentOp::equalize, 0.3, 0}, {AugmentOp::auto_contrast, 0.4, 0}},
      {{AugmentOp::translate_y, 0.4, 3}, {AugmentOp::sharpness, 0.2, 6}},
      {{AugmentOp::brightness, 0.9, 6}, {AugmentOp::color, 0.2, 8}},
      {{AugmentOp::solarize, 0.5, 2}, {AugmentOp::invert, 0.0, 0}},
      {{AugmentOp::equalize, 0.2, 0}, {AugmentOp::auto_contrast, 0.6, 0}},
      {{AugmentOp::equalize, 0.2, 0}, {AugmentOp::equalize, 0.6, 0}},
      {{AugmentOp::color, 0.9, 9}, {AugmentOp::equalize, 0.6, 0}},
      {{AugmentOp::auto_contrast, 0.8, 0}, {AugmentOp::solarize, 0.2, 8}},
      {{AugmentOp::brightness, 0.1, 3}, {AugmentOp::color, 0.7, 0}},
      {{AugmentOp::solarize, 0.4, 5}, {AugmentOp::auto_contrast, 0.9, 0}},
      {{AugmentOp::translate_y, 0.9, 9}, {AugmentOp::translate_y, 0.7, 9}},
      {{AugmentOp::auto_contrast, 0.9, 0}, {AugmentOp::solarize, 0.8, 3}},
      {{AugmentOp::equalize, 0.8, 0}, {AugmentOp::invert, 0.1, 0}},
      {{AugmentOp::translate_y, 0.7, 9}, {AugmentOp::auto_contrast, 0.9, 0}},
  };
  static const std::vector<PolicyPair> kSvhn = {
      {{AugmentOp::shear_x, 0.9, 4}, {AugmentOp::invert, 0.2, 0}},
      {{AugmentOp::shear_y, 0.9, 8}, {AugmentOp::invert, 0.7, 0}},
      {{AugmentOp::equalize, 0.6, 0}, {AugmentOp::solarize, 0.6, 6}},
      {{AugmentOp::invert, 0.9, 0}, {AugmentOp::equalize, 0.6, 0}},
      {{AugmentOp::equalize, 0.6, 0}, {AugmentOp::rotate, 0.9, 3}},
      {{AugmentOp::shear_x, 0.9, 4}, {AugmentOp::auto_contrast, 0.8, 0}},
      {{AugmentOp::shear_y, 0.9, 8}, {AugmentOp::invert, 0.4, 0}},
      {{AugmentOp::shear_y, 0.9, 5}, {AugmentOp::solarize, 0.2, 6}},
      {{AugmentOp::invert, 0.9, 0}, {AugmentOp::auto_contrast, 0.8, 0}},
      {{AugmentOp::equalize, 0.6, 0}, {AugmentOp::rotate, 0.9, 3}},
      {{AugmentOp::shear_x, 0.9, 4}, {AugmentOp::solarize, 0.3, 3}},
      {{AugmentOp::shear_y, 0.8, 8}, {AugmentOp::invert, 0.7, 0}},
      {{AugmentOp::equalize, 0.9, 0}, {AugmentOp::translate_y, 0.6, 6}},
      {{AugmentOp::invert, 0.9, 0}, {AugmentOp::equalize, 0.6, 0}},
      {{AugmentOp::contrast, 0.3, 3}, {AugmentOp::rotate, 0.8, 4}},
      {{AugmentOp::invert, 0.8, 0}, {AugmentOp::translate_y, 0.0, 2}},
      {{AugmentOp::shear_y, 0.7, 6}, {AugmentOp::solarize, 0.4, 8}},
      {{AugmentOp::invert, 0.6, 0}, {AugmentOp::rotate, 0.8, 4}},
      {{AugmentOp::shear_y, 0.3, 7}, {AugmentOp::translate_x, 0.9, 3}},
      {{AugmentOp::shear_x, 0.1, 6}, {AugmentOp::invert, 0.6, 0}},
      {{AugmentOp::solarize, 0.7, 2}, {AugmentOp::translate_y, 0.6, 7}},
      {{AugmentOp::shear_y, 0.8, 4}, {AugmentOp::invert, 0.8, 0}},
      {{AugmentOp::shear_x, 0.7, 9}, {AugmentOp::translate_y, 0.8, 3}},
      {{AugmentOp::shear_y, 0.8, 5}, {AugmentOp::auto_contrast, 0.7, 0}},
      {{AugmentOp::shear_x, 0.7, 2}, {AugmentOp::invert, 0.1, 0}},
  };
  switch (policy) {
    case AutoAugmentPolicy::imagenet:
      return kImageNet;
    case AutoAugmentPolicy::cifar10:
      return kCifar10;
    case AutoAugmentPolicy::svhn:
      return kSvhn;
  }
  __builtin_unreachable();
}

}  // namespace lockstep::data
