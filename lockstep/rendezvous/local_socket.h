#pragma once

// The sockets by which the ranks of one job on one node find each other: abstract Unix sockets, found by their name's
// beginning, believed by their owner.
//
//   lockstep-<user id>-<hash of the job's key>-<PID namespace>-<random number>
//
// The last part is drawn by the one who listens: nobody can take the name before, and so keep the job from having it.
// The others find it in /proc/self/net/unix and ask the kernel who is behind it. Whoever takes names that begin alike
// is found out and passed over. The PID namespace keeps jobs of equal user and key apart: ranks watch each other by
// process, which has no meaning across namespaces.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/unique_fd.h"

namespace lockstep::rendezvous {

/// The inode of this process's PID namespace. Throws Error where /proc does not tell.
std::uint64_t own_pid_namespace();

/// A new name for the job. Throws Error.
std::string socket_name(const std::string& job_key);

/// The names of the job at which somebody listens in this network namespace. Throws Error when the system does not
/// tell.
std::vector<std::string> names_of_job(const std::string& job_key);

/// "; ..." for a message where a job of this user and key is in another PID namespace, else empty.
std::string others_elsewhere(const std::string& job_key);

/// What goes over a socket: messages (SOCK_SEQPACKET), or bytes (SOCK_STREAM).
enum class Carries { messages, bytes };

/// A socket that listens at `name`. Throws Error.
base::UniqueFd listen_at(const std::string& name, Carries what = Carries::messages);

/// A socket that is connected to `name`, non-blocking; invalid, and errno says why, when nobody takes the connection at
/// once.
base::UniqueFd connect_to(const std::string& name, Carries what = Carries::messages);

/// Who is at the other end, by the kernel.
struct Peer {
  pid_t pid = 0;  ///< 0: in a PID namespace that cannot be seen from here
  uid_t user = 0;
  base::UniqueFd pidfd;  ///< readable when the process has ended: its number may be another's then

  bool is_ours() const;
  /// "process 123 of user 1000".
  std::string describe() const;
};

/// Nothing when the socket is not connected (any more).
std::optional<Peer> peer_of(int socket);

/// One message of a fixed part and a text. False when it was not taken.
bool send_two(int socket, const void* fixed, std::size_t size, const std::string& text);
/// False when there is none, it is shorter than the fixed part, or its text longer than `text`, which becomes as long
/// as what has come. Does not wait.
bool receive_two(int socket, void* fixed, std::size_t size, std::string& text);

/// A descriptor in a message of one byte. False: it was not taken.
bool send_descriptor(int socket, int fd);
/// Invalid when none has come. Does not wait.
base::UniqueFd receive_descriptor(int socket);

}  // namespace lockstep::rendezvous
