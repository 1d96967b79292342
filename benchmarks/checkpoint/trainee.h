#pragma once

// A model that trains while its state is saved: ResNet-50 on small pictures with Adam, 307 MB of weights and moments.
// benchmarks/peer/checkpoint_peer.py has the same for Python.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/background_saver.h"
#include "lockstep/comm/group.h"
#include "lockstep/models/image_model.h"
#include "lockstep/optim.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep::bench {

/// How the state gets into a checkpoint.
enum class Saving {
  background,  ///< BackgroundSaver: a thread writes while steps go on
  in_loop,     ///< checkpoint::save: the step waits
};

/// One on each rank.
class Trainee {
 public:
  using Net = std::shared_ptr<models::ImageModel>;
  using Ddp = DistributedDataParallel<Net>;

  struct Save {
    std::vector<double> times;  ///< of the start and of each step's end; monotonic seconds
    double whole = 0;           ///< when the checkpoint was there whole, as far as a look behind each step tells
    double written = 0;      ///< when its files were written and synced, but not read back; by the file system's clock
    std::int64_t bytes = 0;  ///< of its files
    std::int64_t additional_bytes = 0;  ///< most memory that the process had behind a step, above that before
  };

  /// Collective. Checkpoints go below `folder`; a new one replaces the old. `model`: of models::model_names().
  Trainee(const std::string& model, std::shared_ptr<comm::Group> group, std::string folder, Saving saving);

  /// The time of the start and of each step's end. Collective.
  std::vector<double> steps(int count);
  /// Begins to save, makes `count` steps and waits for the checkpoint. Error when there is none. Collective.
  Save save(int count);
  /// Seconds until the weights and buffers of the model are those of the checkpoint. Collective.
  double load_weights();
  /// Seconds until a new state beside this one, of a process alone, begins with the checkpoint: weights, buffers,
  /// moments, counts. Its model is made before. This rank alone.
  double load_all();

 private:
  void step();
  /// Empty: none yet.
  std::string newest() const;

  std::string name_;
  std::shared_ptr<comm::Group> group_;
  std::string folder_;
  Saving saving_;
  Net model_;
  Ddp ddp_;
  std::optional<checkpoint::BackgroundSaver> saver_;
  std::optional<optim::Adam> optimizer_;
  at::Tensor data_, target_;
};

}  // namespace lockstep::bench
