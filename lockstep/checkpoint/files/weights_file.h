#pragma once

// The weights in a file of any kind that we read, by its content: safetensors, or what torch.save wrote. No libtorch.

#include <map>
#include <string>

#include "lockstep/checkpoint/files/name_map.h"
#include "lockstep/checkpoint/files/stored_tensor.h"

namespace lockstep::checkpoint {

/// Names and where their tensors lie.
struct FoundWeights {
  std::map<std::string, StoredTensor> tensors;
  /// What else there is, which is no tensor of the weights, and what it is: "epoch": "12", "args":
  /// "argparse.Namespace". Nothing of it was executed.
  std::map<std::string, std::string> others;
};

/// Any thread; reading changes nothing in the object.
class WeightsFile {
 public:
  /// Reads what the file says of its tensors, not these. Of what torch.save wrote:
  ///   - the weights are the entry "model", "state_dict", "model_state_dict" or "model_ema", the first that is there
  ///   and
  ///     is a dictionary with tensors; else what was saved is itself one;
  ///   - "module." in front of all names, as DistributedDataParallel and AveragedModel put it there, is removed, and so
  ///     is the average's "n_averaged".
  /// UsageError naming file and offset when it is damaged or has no weights, or when they were more than eight times
  /// as large as the file: tensors may share a storage.
  /// Then `names` gives the tensors other names; UsageError as of renamed().
  explicit WeightsFile(const std::string& path, const NameMap& names = {});

  const std::string& path() const { return path_; }
  const std::map<std::string, StoredTensor>& tensors() const { return found_.tensors; }
  const std::map<std::string, std::string>& others() const { return found_.others; }

  /// One of tensors(), row-major, into `out` of tensor.bytes().
  void read(const StoredTensor& tensor, std::byte* out) const { read_tensor(file_, tensor, out); }

 private:
  std::string path_;
  InputFile file_;
  FoundWeights found_;
};

/// `path`, or where that is a folder, the weights of its newest whole checkpoint: it may be a checkpoint, a folder of
/// them or a run's.
std::string weights_path(const std::string& path);

}  // namespace lockstep::checkpoint
