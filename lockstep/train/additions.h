#pragma once

// Models and data sets of a program's own, beside the built-in ones.

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/map_batches.h"
#include "lockstep/data/picture_set.h"
#include "lockstep/data/split.h"
#include "lockstep/models/any_model.h"

namespace lockstep::train {

/// A model that --model calls `name`.
struct OwnModel {
  std::string name;
  /// Makes it for a task, its weights drawn from torch's default generator, which --seed has seeded. Of samples that
  /// are no pictures the task has the sizes as [channels, height, width], the missing ones 1; of a regression `classes`
  /// is the number of targets. The model takes a batch of samples and gives [B, classes].
  std::function<models::AnyModel(const models::ImageTask& task)> make;
};

/// Which part of a set is to be opened, and with what.
struct Opening {
  data::Split split = data::Split::train;
  std::string path;        ///< --data-path; empty: it was not given
  std::uint64_t seed = 0;  ///< --seed, for what is drawn
};

/// A set as batches: data::tensors(x, y) and other data::Batches, or a class with size() and get(i).
class AnySamples {
 public:
  template <std::derived_from<data::Batches> Set>
  AnySamples(std::shared_ptr<Set> set) : batches_(std::move(set)) {}
  template <std::derived_from<data::Batches> Set>
  AnySamples(std::shared_ptr<const Set> set) : batches_(std::move(set)) {}
  template <data::MapStyle Set>
  AnySamples(Set set) : batches_(std::make_shared<data::MapBatches<Set>>(std::move(set))) {}

  const std::shared_ptr<const data::Batches>& batches() const { return batches_; }

 private:
  std::shared_ptr<const data::Batches> batches_;
};

/// A data set that --dataset calls `name`: samples or pictures, one of the two. All ranks open it, and each finds the
/// same.
struct OwnSet {
  std::string name;
  /// Of samples: their targets are int64 [], from 0 to classes - 1; or 0: they are float [targets], to be regressed.
  std::int64_t classes = 0;
  std::function<AnySamples(const Opening& opening)> samples = {};  ///< tensors, taken as they are
  /// Pictures with their labels, prepared as --transforms and its like say.
  std::function<std::shared_ptr<const data::PictureSet>(const Opening& opening)> pictures = {};
};

/// What a program adds. The first of each is its default.
struct Additions {
  std::vector<OwnModel> models = {};
  std::vector<OwnSet> datasets = {};
};

}  // namespace lockstep::train
