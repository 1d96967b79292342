#pragma once

// TLS 1.3 between agents that share a key: both sides prove that they have it, nobody else reads or changes what they
// say. The key is an external PSK with an (EC)DHE exchange, so a key that is lost later does not open what was said
// before; no certificates, no tickets, no early data.
//
// OpenSSL 3 is loaded when the first of these is made: who starts a job on one node does not wait for it.

#include <memory>

#include "lockstep/launch/nodes/channel.h"
#include "lockstep/launch/nodes/secret.h"

namespace lockstep::launch {

class Tls {
 public:
  /// Throws UsageError when libssl.so.3 is not there, Error when it fails.
  explicit Tls(const Secret& secret);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  /// Channels on connected sockets, for the side that has accepted and the one that has connected. They must not
  /// outlive this. A peer without the key is a closed channel.
  std::unique_ptr<Channel> accept(int fd) const;
  std::unique_ptr<Channel> connect(int fd) const;

 private:
  struct Context;
  const std::unique_ptr<Context> context_;
};

}  // namespace lockstep::launch
