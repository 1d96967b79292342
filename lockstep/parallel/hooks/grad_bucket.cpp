#include "lockstep/parallel/hooks/grad_bucket.h"

#include "lockstep/base/error.h"
#include "lockstep/base/member.h"

namespace lockstep::parallel {

std::vector<at::Tensor> GradBucket::gradients() const {
  std::vector<at::Tensor> views;
  std::int64_t offset = 0;
  for (const at::Tensor& parameter : parameters_) {
    views.push_back(buffer_.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
    offset += parameter.numel();
  }
  return views;
}

void GradBucket::set_buffer(at::Tensor buffer) {
  if (!buffer.defined() || buffer.dim() != 1 || buffer.numel() != buffer_.numel())
    throw UsageError("communication hook: set_buffer() of bucket " + std::to_string(index_) + " with " +
                     (buffer.defined() ? std::to_string(buffer.numel()) + " elements in " +
                                             std::to_string(buffer.dim()) + " dimensions"
                                       : std::string("no tensor")) +
                     "; it wants " + std::to_string(buffer_.numel()) + " in one");
  buffer_ = std::move(buffer);
}

at::Tensor GradFuture::value() {
  if (ready()) return ready_;
  if (later_.wait_for(base::kDefaultTimeout) == std::future_status::timeout)
    throw Error("communication hook: a future had no gradients after " +
                std::to_string(base::kDefaultTimeout.count() / 1000) + " s");
  return later_.get();
}

GradFuture GradFuture::then(std::function<at::Tensor(at::Tensor)> function) && {
  if (ready()) return function(ready_);
  return std::async(std::launch::deferred, [before = std::move(*this), function = std::move(function)]() mutable {
    return function(before.value());
  });
}

}  // namespace lockstep::parallel
