#include "python/work.h"

#include <c10/util/Exception.h>

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::python {
namespace {

template <class Exception>
std::exception_ptr made(const std::string& message) {
  return std::make_exception_ptr(Exception({__func__, __FILE__, __LINE__}, message));
}

c10::intrusive_ptr<c10::ivalue::Future> new_future() {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
}

}  // namespace

std::exception_ptr for_python(const std::exception_ptr& thrown, const std::string& suffix) {
  try {
    std::rethrow_exception(thrown);
  } catch (const UsageError& error) {
    return made<c10::ValueError>(error.what());
  } catch (const GroupAborted& error) {
    return made<c10::DistBackendError>(error.what() + suffix);
  } catch (const Error& error) {
    return made<c10::Error>(error.what() + suffix);
  } catch (...) {
    return thrown;
  }
}

Work::Work(int rank, c10d::OpType type, const char* name, const std::vector<at::Tensor>& inputs,
           std::vector<at::Tensor> outputs, Collective collective)
    : c10d::Work(rank, type, name, inputs), outputs_(std::move(outputs)), collective_(std::move(collective)) {}

void Work::run(comm::Group& group, const std::string& suffix) {
  std::exception_ptr error;
  try {
    collective_(group);
  } catch (...) {
    error = for_python(std::current_exception(), suffix);
  }
  collective_ = nullptr;  // whoever waits has the tensors to himself
  if (end(error)) complete_future();
}

bool Work::end(const std::exception_ptr& error) {
  finish(error);
  const std::lock_guard lock(mutex_);
  ended_ = true;
  return future_ != nullptr;
}

void Work::complete_future() { complete(future_); }

bool Work::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto completed = [&] { return completed_; };
  if (timeout == kNoTimeout) {
    cv_.wait(lock, completed);
  } else if (!cv_.wait_for(lock, timeout, completed)) {
    TORCH_CHECK_WITH(DistBackendError, false, "the collective has not ended within ", timeout.count(), " ms");
  }
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

// What it calls back may wait and call collectives: no lock is held.
void Work::complete(const c10::intrusive_ptr<c10::ivalue::Future>& future) {
  if (exception_)
    future->setError(exception_);
  else
    future->markCompleted(c10::IValue(outputs_));
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  std::unique_lock lock(mutex_);
  if (future_) return future_;
  future_ = new_future();
  const c10::intrusive_ptr<c10::ivalue::Future> future = future_;
  const bool ended = ended_;
  lock.unlock();
  if (ended) complete(future);
  return future;
}

}  // namespace lockstep::python
