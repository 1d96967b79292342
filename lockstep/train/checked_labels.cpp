#include "lockstep/train/checked_labels.h"

#include <sstream>
#include <string>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::train {
namespace {

// A set of one's own may do as it likes.
void check_targets(const at::Tensor& target, std::span<const std::int64_t> indices) {
  const auto count = std::int64_t(indices.size());
  if (target.defined() && target.scalar_type() == at::kLong && target.dim() == 1 && target.size(0) == count) return;
  std::ostringstream text;
  text << "samples to train on, sample " << indices.front() << " first, have ";
  if (target.defined())
    text << "targets of " << target.dtype() << " " << target.sizes();
  else
    text << "no targets";
  throw UsageError(text.str() + ": long int [" + std::to_string(count) + "] expected");
}

class CheckedLabels final : public data::Batches {
 public:
  CheckedLabels(std::shared_ptr<const data::Batches> set, std::int64_t classes)
      : set_(std::move(set)), classes_(classes) {}
  std::int64_t size() const override { return set_->size(); }
  data::Batch make(std::uint64_t epoch, std::span<const std::int64_t> indices) const override {
    data::Batch batch = set_->make(epoch, indices);
    check_targets(batch.target, indices);
    const at::Tensor labels = batch.target.contiguous();
    for (std::size_t i = 0; i < indices.size(); ++i)
      check_label(labels.const_data_ptr<std::int64_t>()[i], classes_, indices[i] % size(), "train");
    return batch;
  }

 private:
  std::shared_ptr<const data::Batches> set_;
  std::int64_t classes_;
};

}  // namespace

void check_label(std::int64_t label, std::int64_t classes, std::int64_t sample, const char* purpose) {
  if (label >= 0 && label < classes) return;
  throw UsageError("sample " + std::to_string(sample) + " of those to " + purpose + " on is of class " +
                   std::to_string(label) + ": 0 to " + std::to_string(classes - 1) + " expected");
}

std::shared_ptr<const data::Batches> with_checked_labels(std::shared_ptr<const data::Batches> set,
                                                         std::int64_t classes) {
  return std::make_shared<CheckedLabels>(std::move(set), classes);
}

}  // namespace lockstep::train
