#pragma once

// Threads that run the replicas of a model, the same replica always on the same one.

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep::parallel {

/// The queues to which this thread adds what it calls on these devices: one for each that is not the CPU.
std::vector<c10::Stream> current_streams(const std::vector<at::Device>& devices);

class ReplicaThreads {
 public:
  /// `devices`: by thread, which one is current there; the CPU, or none given: none is.
  explicit ReplicaThreads(int count, std::vector<at::Device> devices = {});
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  /// Runs task(i) for each i in [0, count) on thread i, and returns when all have returned. What holds on the calling
  /// thread holds there: grad mode, inference mode, autocast with its dtypes, the number of computing threads, and the
  /// current stream of each of the devices, so that work there is queued as if the caller had queued it.
  /// `in_order`: one after the other, from 0.
  /// Throws what the task of the lowest index threw, if any did. By one thread at a time.
  void run(int count, const std::function<void(int)>& task, bool in_order = false);

 private:
  void work(int index);
  void start(int first, int last, const std::function<void(int)>& task);

  const std::vector<at::Device> devices_;
  std::mutex mutex_;
  std::condition_variable begun_;
  std::condition_variable done_;
  const std::function<void(int)>* task_ = nullptr;
  std::vector<bool> waits_;  ///< by thread: whether its task is still to run
  int running_ = 0;          ///< tasks that have not returned
  bool end_ = false;
  std::vector<std::exception_ptr> errors_;  ///< by thread
  std::vector<std::thread> threads_;        ///< last: they use the rest
};

}  // namespace lockstep::parallel
