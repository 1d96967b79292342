#pragma once

// A socket that listens at a port of 127.0.0.1: this one, or one chosen by the kernel.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

#include "lockstep/base/unique_fd.h"

namespace lockstep::testing {

class Listener {
 public:
  explicit Listener(int port = 0) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(std::uint16_t(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(fd_.get(), generic, length), 0);
    EXPECT_EQ(listen(fd_.get(), 1), 0);
    getsockname(fd_.get(), generic, &length);
    port_ = ntohs(address.sin_port);
  }
  int port() const { return port_; }

 private:
  base::UniqueFd fd_;
  int port_ = 0;
};

}  // namespace lockstep::testing
