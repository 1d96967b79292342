#pragma once

// The pictures of a run, by the names in its options, and the batches that are made of them.

#include <c10/core/Device.h>

#include <memory>

#include "lockstep/data/batch.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/data/picture_batches.h"
#include "lockstep/data/set_fingerprint.h"
#include "lockstep/data/transforms/mixup.h"
#include "lockstep/evaluation/pass.h"
#include "lockstep/models/image_model.h"
#include "lockstep/train/additions.h"
#include "lockstep/train/observer.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

struct Input {
  std::shared_ptr<const data::Batches> train;  ///< none when the run takes no step
  std::shared_ptr<const data::Batches> test;   ///< none when nothing is evaluated
  std::shared_ptr<const data::BatchMix> mix;   ///< of the training batches; may be none
  models::ImageTask task;                      ///< what the model is made for
  data::SetFingerprint train_set, test_set;    ///< what the two hold; of none: nothing
  /// Whose samples `test` has, by the same numbers, though maybe only the first; none unless they are pictures.
  std::shared_ptr<const data::PictureSet> test_pictures;
};

/// The pictures of options.dataset, prepared as options.transforms says. Reads what is held in memory, and
/// the folders and one picture of a set that is not. UsageError when something is missing or damaged, or when
/// training and test pictures have other classes or another shape. `additions` has the sets that are the program's own.
Input make_input(const Options& options, const Additions& additions = {});

/// Of these the ones to evaluate on. UsageError when something is missing or damaged.
std::shared_ptr<const data::PictureBatches> make_test_batches(const Options& options, const Additions& additions = {});

/// What the batches' pictures are: the first one tells what all must be like.
models::ImageTask task_of(const data::PictureBatches& batches);

/// How the options want pictures of `task` evaluated.
evaluation::PassOptions pass_options(const Options& options, const models::ImageTask& task);

/// The batches for a rank's part of the plan, each epoch's one behind the other's, handed out on `device`. Where it
/// begins and ends is known once there is a state.
std::unique_ptr<data::DataLoader> make_loader(const Options& options, const Input& input, const RunSize& run,
                                              const data::Part& part, at::Device device = at::Device(at::kCPU));

}  // namespace lockstep::train
