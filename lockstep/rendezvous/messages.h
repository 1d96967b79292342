#pragma once

// What agents of one job say to each other, and how it is written: frames of a few bytes to 64 KiB. Pure; whatever
// bytes come in, reading them takes bounded memory and ends in a message or in BadFrame.
//
//   frame    "LKr" and the protocol's version (1 byte), the length of what follows (4 bytes), the message
//   message  its type (1 byte) and its fields in order
//   field    a whole number or truth value: 8 bytes; a fraction: 8 bytes; a text: its length (4 bytes) and its bytes;
//            a list of byte strings: how many (4 bytes), and each as a text
//
// Numbers are little-endian.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::rendezvous {

inline constexpr std::size_t kFrameHeader = 8;
/// The longest message, and the longest from somebody who has not shown yet that he belongs to the job.
inline constexpr std::size_t kLongestMessage = 64 * 1024;
inline constexpr std::size_t kLongestFromStranger = 2 * 1024;
/// Longer texts are cut by who writes them.
inline constexpr std::size_t kLongestText = 8 * 1024;

/// To the hosting agent: an agent asks for a place; the first message of a connection.
struct Join {
  std::string version;
  std::string run_id;
  std::string nnodes;
  std::string backend;
  std::string host;
  std::int64_t workers = 1;
  std::int64_t wanted_rank = -1;
  std::string address;          ///< where this agent would host in another's place: "10.0.0.2:40123"; empty: nowhere
  std::int64_t generation = 0;  ///< the hosting agent of this one is lost; 0: of none
  std::int64_t rank = -1;       ///< in it
  std::int64_t may_run = 0;     ///< milliseconds from now on in which workers of it may run where that agent is
  std::int64_t keep_alive = 1'000;  ///< milliseconds
  std::int64_t misses = 5;          ///< of so many intervals a silence is a loss
};

/// To the hosting agent: no worker is left here, and a place in the next generation is wanted.
struct Ready {};

/// To the hosting agent, each keep-alive interval; and its answer. `sent` is a clock of the sender's that its machine's
/// sleep does not stop, in nanoseconds, `wall` the hosting agent's clock, in seconds since the epoch, and `answered`
/// the hosting agent's monotonic clock, as its last answer had it.
struct Ping {
  std::int64_t sent = 0;
  std::int64_t answered = 0;    ///< 0: none has come
  std::int64_t generation = 0;  ///< the last that the sender knows of
};
struct Pong {
  std::int64_t sent = 0;
  double wall = 0;
  std::int64_t answered = 0;
  std::int64_t good_for = 0;  ///< milliseconds from `sent` on in which the sender of the Ping may count on this agent
};

/// To the hosting agent: a worker has failed here; the first one in this generation.
struct Failed {
  std::int64_t generation = 0;
  std::int64_t kind = 0;  ///< FailureKind
  double when = 0;        ///< by the hosting agent's clock, seconds since the epoch
  double error = 0;       ///< of `when`, in seconds
  std::int64_t code = 1;  ///< the exit code that follows from it
  std::string text;       ///< what is to be said of it, lines with their ends; empty: all has been said
};

/// To the hosting agent: a signal asks this agent to end the job.
struct Stopping {
  std::int64_t generation = 0;
  std::int64_t signal = 0;
  bool let_go = false;  ///< nobody has asked it: the connection to what has started this agent is gone
};

/// To the hosting agent: no worker is left of the generation.
struct Done {
  std::int64_t generation = 0;
  std::int64_t code = 0;
  std::int64_t signal = 0;  ///< that asked this agent to end the job
  bool never_ran = false;
  bool left_behind = false;
  bool bad_input = false;
  bool port_was_taken = false;
  bool joined = false;
  std::int64_t fallen = 0;  ///< workers here that failed, also those that were told to end
  std::int64_t uptime = 0;  ///< milliseconds
};

/// From the hosting agent: why nothing happens yet.
struct Waiting {
  std::string reason;
  std::int64_t generation = 0;  ///< the last that has started
};

/// From the hosting agent: no place, for good.
struct Refused {
  std::string reason;
};

/// From the hosting agent: a generation starts.
struct Start {
  std::int64_t generation = 0;
  std::int64_t restart_count = 0;
  std::int64_t rank = 0;  ///< of this node
  std::int64_t nodes = 1;
  std::int64_t first_rank = 0;
  std::int64_t ranks_after = 0;
  std::int64_t master_port = 0;
  std::string master_addr;
  std::string run_id;
  bool report = false;             ///< a Report is wanted at the end
  std::vector<std::string> heirs;  ///< hand_over.h
};

/// From the hosting agent: the workers of the generation are to be ended.
struct EndNow {
  std::int64_t generation = 0;
};

/// From the hosting agent: how the generation has ended, when no worker of it is left on any node.
struct Outcome {
  std::int64_t generation = 0;
  std::int64_t code = 0;
  bool again = false;        ///< another generation follows
  std::int64_t blamed = -1;  ///< whose failure it was, by the hosting agent's count
  bool to_blame = false;     ///< it was this node's
  std::int64_t signal = 0;   ///< that asked some agent to end the job
  bool counts = false;       ///< a restart that is one of --max-restarts
  bool new_port = false;
  std::int64_t restarts = 0;  ///< so far, with this one
  std::int64_t delay = 0;     ///< milliseconds
  std::string text;           ///< the first failure, to be said; lines with their ends
  std::string why_not;        ///< why restarts that are left are not used
};

/// From a worker to its agent, and from an agent to the hosting one: something is asked of the store (store.h). `id` is
/// the sender's, and no other ask of his that waits has it.
struct StoreAsk {
  std::int64_t generation = 0;  ///< set by the agent
  std::int64_t id = 0;
  std::int64_t what = 0;  ///< StoreCall
  std::vector<std::string> keys;
  std::vector<std::string> values;
  std::int64_t number = 0;
};

/// The same way: nobody waits for the answer any more.
struct StoreForget {
  std::int64_t id = 0;
};

/// Back to who has asked.
struct StoreAnswer {
  std::int64_t id = 0;
  bool done = true;
  std::int64_t number = 0;
  std::vector<std::string> values;
  std::string why;  ///< not done: the reason, in words
};

/// To the hosting agent, when the sender has ended all it had to: its report for machines, in parts of which the last
/// says so. And back, empty: all has come.
struct Report {
  std::vector<std::string> part;
  bool last = false;
};

/// From the hosting agent: it hosts no more, for others may do so. All workers are to be killed.
struct GivesUp {
  std::string reason;
};

/// From the hosting agent: a node has come; the workers of the generation are to end behind the step that they are in.
struct MakeRoom {
  std::int64_t generation = 0;
};

/// The answer, where workers here make no steps: nobody needs to wait for one.
struct NotInSteps {
  std::int64_t generation = 0;
};

using Message = std::variant<Join, Ready, Ping, Pong, Failed, Stopping, Done, Waiting, Refused, Start, EndNow, Outcome,
                             StoreAsk, StoreForget, StoreAnswer, Report, GivesUp, MakeRoom, NotInSteps>;

/// What a client of c10d's TCPStore says first: torchrun's agent, where its endpoint is one of ours. With a key it is
/// looked for before the handshake.
inline constexpr std::string_view kTcpStoreHello("\x00\xce\xf7\x85", 4);
/// What is wrong with it.
inline constexpr const char* kTorchrunsProtocol = "torchrun's protocol (a TCPStore), not that of lockstep's agents";

/// An agent of ours that was turned away asks so whether it is such a store (the queries VALIDATE and PING): the number
/// in PING is what our own hosting agents know it by.
inline constexpr std::string_view kTcpStoreProbe("\x00\xce\xf7\x85\x3c\x0dlkst", 10);
inline constexpr const char* kProbed = "an agent of ours asks whether this is a TCPStore";

/// Bytes that are no frame of ours; what() says what is wrong.
class BadFrame : public Error {
 public:
  using Error::Error;
};

/// The frame of a message. Its texts are cut to kLongestText bytes; byte strings of a list are not, and who makes them
/// keeps the message within kLongestMessage.
std::string to_frame(Message message);

/// Takes the first frame from the front of `bytes`; nothing while it is not complete. Throws BadFrame as soon as the
/// bytes cannot become one of at most `longest` bytes.
std::optional<Message> take_message(std::string& bytes, std::size_t longest);

}  // namespace lockstep::rendezvous
