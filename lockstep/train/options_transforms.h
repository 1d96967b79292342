#pragma once

// --transforms as a list, "auto_augment,resize=244x244,to_tensor". Without libtorch, as options.h; what the steps are
// made of: transform_list.h.

#include <string>
#include <vector>

namespace lockstep::train {

/// What a step takes behind its name.
enum class StepValue {
  none,
  size,         ///< "224", or "200x300": height and width
  probability,  ///< "0.5", 0 to 1; 0.5 when not given
  degrees,      ///< "15", 0 to 180
  policy,       ///< one of auto_augment_names() but none; imagenet when not given
  statistics    ///< whose mean and deviation: imagenet, cifar10 or mnist
};

/// A known step.
struct StepKind {
  std::string name;
  StepValue value = StepValue::none;
  bool random = false;  ///< then it is left out when the pictures are evaluated
};

/// One step of a list, checked.
struct TransformStep {
  const StepKind* kind = nullptr;
  int height = 0, width = 0;  ///< of StepValue::size; the width of one number is 0
  double number = 0;          ///< of a probability, or degrees
  std::string word;           ///< of a policy, or statistics
};

/// All steps that there are.
const std::vector<StepKind>& step_kinds();

/// Whether --transforms names none of transform_names(), so that it is a list.
bool is_transform_list(const std::string& transforms);

/// Whether --interpolation is for the step: it resizes, or is augmix, which torchvision has bilinear by default.
/// Rotation and the other policies take the nearest pixel, as torchvision's do by default; its reference trainer, and
/// so
/// --auto-augment, gives them the interpolation of the crop.
bool is_interpolated(const TransformStep& step);

/// The steps of a list. UsageError that names the step: unknown (with the nearest one), a value that is missing, too
/// many or of another kind, something behind to_tensor but normalize.
std::vector<TransformStep> transform_steps(const std::string& list);

}  // namespace lockstep::train
