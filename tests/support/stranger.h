#pragma once

// Another program that listens where a rank or an agent is expected.

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/unique_fd.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::testing {

/// Says the same to whoever comes, and then nothing more; nobody is let go before its end.
class Stranger {
 public:
  /// Listens at a numeric address; port 0: one that is free.
  Stranger(const std::string& host, int port, std::string says)
      : says_(std::move(says)), listening_(rendezvous::listen_at(rendezvous::resolve("test", host, port))) {}
  ~Stranger() {
    ends_ = true;
    thread_.join();
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  /// "127.0.0.1:4000".
  std::string address() const { return rendezvous::to_text(rendezvous::own_end(listening_.fd.get())); }

 private:
  void serve() {
    std::vector<base::UniqueFd> guests;
    while (!ends_) {
      guests.push_back(rendezvous::accept_at(listening_.fd.get()));
      if (guests.back()) {
        send(guests.back().get(), says_.data(), says_.size(), MSG_NOSIGNAL);
      } else {
        guests.pop_back();
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }
  }

  const std::string says_;
  const rendezvous::Listening listening_;
  std::atomic<bool> ends_{false};
  std::thread thread_{[this] { serve(); }};
};

}  // namespace lockstep::testing
