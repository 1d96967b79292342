#pragma once

// TCP sockets of agents and ranks: never on a wildcard address, never waiting.

#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/unique_fd.h"

namespace lockstep::rendezvous {

/// Where a socket can be bound or connected.
struct SocketAddress {
  sockaddr_storage bytes{};
  socklen_t length = 0;

  bool is_loopback() const;
  bool is_wildcard() const;
  void set_port(int port);
};

/// What the system's resolver says of a name now: its addresses, in the order in which they are to be tried. Without
/// one: why, in words; it may be known later.
struct Resolved {
  std::vector<SocketAddress> addresses;
  std::string why;
};

/// As resolve(), but a name that nobody knows, or whose name server does not answer, is no error.
Resolved try_resolve(const std::string& what, const std::string& host, int port);

/// The first address of a name ("node7", "10.0.0.3", "::1", "[::1]"); asks the system's resolver and waits for it.
/// Throws UsageError that begins with `what`.
SocketAddress resolve(const std::string& what, const std::string& host, int port);

/// "10.0.0.3:29400", "[::1]:29400".
std::string to_text(const SocketAddress& address);
/// The other way round, figures only: nobody is asked. None: it is no such text, or means every address of a machine.
std::optional<SocketAddress> parse_address(const std::string& text);
/// The address that a socket has here; without a length where it has none (AF_UNIX).
SocketAddress own_end(int fd);
/// The address of who is connected, as own_end().
SocketAddress other_end(int fd);
/// The address by which this machine would reach that one, with port 0; nothing is sent. Throws Error where it would
/// not.
SocketAddress own_end_towards(const SocketAddress& address);

/// Why a listener could not be made: the address is another machine's, or somebody has the port.
struct Listening {
  base::UniqueFd fd;  ///< none: see `error`
  int error = 0;      ///< EADDRNOTAVAIL, EADDRINUSE
};

/// Listens there, and nowhere else. Throws Error for what is neither of the two errors.
Listening listen_at(const SocketAddress& address);

/// Takes a free port of the address, at which nobody listens yet. None: there is none to be had.
base::UniqueFd reserve_port(const SocketAddress& address);
/// Listens at a port that was reserved. Throws Error.
void listen_at_reserved(int fd);

/// Accepts one connection that waits; none when there is none.
base::UniqueFd accept_at(int listener);

/// Begins to connect, from `local` if it has a length. The socket can be written to when that has an end; see
/// connect_error(). Throws Error.
base::UniqueFd begin_connect(const SocketAddress& address, const SocketAddress& local);

/// How connecting has ended: 0 or errno.
int connect_error(int fd);

}  // namespace lockstep::rendezvous
