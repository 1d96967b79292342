#pragma once

// What a thread has called, in more words than its group says to its peers: for what is told of a wait that lasts,
// whichever group it is in.

#include <string>

namespace lockstep::base {

/// While one lives, its thread is in this call. Of several the innermost counts. Costs two stores.
class Calling {
 public:
  using Text = std::string (*)(const void* of);
  /// The words are made when they are needed: text(of).
  Calling(Text text, const void* of) : before_(current()) { current() = {text, of}; }
  ~Calling() { current() = before_; }
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;

  /// Of the thread that asks: "; " and the words; empty where nobody has said any.
  static std::string told() {
    const Call call = current();
    return call.text == nullptr ? "" : "; " + call.text(call.of);
  }

 private:
  struct Call {
    Text text = nullptr;
    const void* of = nullptr;
  };
  static Call& current() {
    thread_local Call call;
    return call;
  }

  const Call before_;
};

}  // namespace lockstep::base
