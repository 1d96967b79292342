#pragma once

// What a rank calls in a group, for what is told of waits that last, and for the file that it leaves when the group
// ends early (lockstep/trace/). To count a call costs some stores; to keep it, two looks at the clock and no memory.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/calling.h"
#include "lockstep/trace/flight_recorder.h"

namespace lockstep::trace {
class BlackBox;
}

namespace lockstep::comm {

/// Belongs to one group of a rank, and is used by its thread, but for what is said to be for any.
class CallLog {
 public:
  /// `ranks` are numbers in the world, by rank of the group. Without a box calls are counted, and none is kept.
  CallLog(std::shared_ptr<trace::BlackBox> box, std::string name, std::vector<int> ranks);

  bool keeps() const { return box_ != nullptr; }

  /// A collective, which gets the group's next number. The caller fills in kind, dtype, shape and detail.
  std::uint64_t begin(const trace::Call& call);
  /// A message: `peer` is a rank of the group. Of a log that keeps.
  std::uint64_t begin_message(trace::Call call, int peer);
  void end(std::uint64_t ticket);
  /// The call has thrown what is being handled now. Where that has not ended the group, and is wrong use, no other rank
  /// has heard of the call, or all have refused it: it does not count.
  void failed(std::uint64_t ticket);

  /// A collective that has begun, with its number.
  struct Counted {
    const CallLog& log;
    const trace::Call& call;
    std::uint64_t number;
  };
  Counted last(const trace::Call& call) const { return {*this, call, collectives_}; }
  /// "collective 4 of world: all_reduce(2x3 Float, op sum), bucket 3", of a Counted.
  static std::string text_of(const void* counted);

  /// Writes the rank's file if the group has failed and none is written. Any thread.
  void write_if_over() noexcept;

  /// What the next collectives are for: "bucket" 3. An empty label: nothing is known. `text` outlives the log.
  void set_label(const char* text, std::int64_t number = -1);

  /// The log of a group that is made of this one's `ranks`; of a collective that all ranks have called.
  std::unique_ptr<CallLog> part(const std::vector<int>& ranks);
  /// The same where this rank is not in it: only the count.
  void skip_part() { ++parts_; }

 private:
  std::uint64_t begin_at(trace::Call& call);

  const std::shared_ptr<trace::BlackBox> box_;
  const std::string name_;
  const std::vector<int> ranks_;
  const std::uint32_t group_;
  std::uint64_t collectives_ = 0;
  std::uint64_t parts_ = 0;
  std::vector<std::uint64_t> sent_, received_;  ///< messages by peer
  const char* label_ = "";
  std::int64_t label_number_ = -1;
};

/// With the tensor's dtype and shape.
trace::Call call_of(const char* kind, const at::Tensor& tensor);

/// Runs body() as this call, which is then what the thread is in (base/calling.h); without a log, as it is.
template <class Body>
void logged(CallLog* log, const trace::Call& call, Body&& body) {
  if (log == nullptr) return body();
  const std::uint64_t ticket = log->begin(call);
  const CallLog::Counted counted = log->last(call);
  const base::Calling calling(CallLog::text_of, &counted);
  try {
    body();
  } catch (...) {
    log->failed(ticket);
    throw;
  }
  log->end(ticket);
}

/// Says for the length of a scope what the group's collectives are for.
class CallLabel {
 public:
  CallLabel(CallLog* log, const char* text, std::int64_t number) : log_(log) {
    if (log_ != nullptr) log_->set_label(text, number);
  }
  ~CallLabel() {
    if (log_ != nullptr) log_->set_label("");
  }
  CallLabel(const CallLabel&) = delete;
  CallLabel& operator=(const CallLabel&) = delete;

 private:
  CallLog* log_;
};

}  // namespace lockstep::comm
