#pragma once

// What a program asked of a device, and whether every two uses of the same memory are in order there. Without libtorch.
//
// A device runs a stream's operations one behind the other, and two streams side by side unless an event orders them;
// the host goes on meanwhile. A history is what the host asked for, in its order. From it follows by vector clocks (one
// for each stream, one for the host, all of its threads taken as one) which operation is certain to be over when
// another begins:
//   - an operation begins behind all that the host knew to be over when it asked for it, and behind its stream's
//   earlier;
//   - to wait for an event puts a stream behind all that was on the event's stream when it was recorded;
//   - to synchronize puts the host behind an event, a stream, a device.
// Two uses of a byte of which one writes and which have no order are a race on a real device: a fault. So is memory
// that its stream may give out again while another stream still uses it.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::testing::sim {

/// Bytes [begin, end), of the device's or of the host's memory: addresses are unique over both.
struct Range {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

struct StreamName {
  int device = 0;
  std::int64_t id = 0;
  friend bool operator<(const StreamName& one, const StreamName& other) {
    return one.device != other.device ? one.device < other.device : one.id < other.id;
  }
};

enum class Kind : std::uint8_t {
  operation,           // on `stream`: reads, writes; a copy too. `blocking`: the host waits until it is over
  allocate,            // on `stream`: writes = the block
  release,             // writes = the block, stream = the one that it was allocated on, which may have it again at once
  record_stream,       // writes = the block, which is not given out again before `stream` is through with it
  record_event,        // event, on stream
  wait_event,          // event, by stream
  event_seen,          // event: the host asked and it was over; no wait
  synchronize_event,   // event
  synchronize_stream,  // stream
  synchronize_device,  // stream.device
  host_access,         // reads, writes by the host
  host_forget          // writes = host memory given back; its allocator has waited for the copies
};

struct Entry {
  Kind kind = Kind::operation;
  StreamName stream = {};
  std::string name = {};  // of an operation; where the host waits: what for, in words
  std::vector<Range> reads = {};
  std::vector<Range> writes = {};
  std::uint64_t event = 0;
  bool blocking = false;
  /// The host stands still although it need not wait for the device: a copy out of memory that is not pinned.
  bool staged = false;
};

struct Report {
  /// One sentence for each two operations that nothing orders, naming both.
  std::vector<std::string> faults;
  /// How often the host stood still, by what it waited for: "aten::_local_scalar_dense", "synchronize stream", ...
  std::map<std::string, int> host_waits;

  int all_host_waits() const;
  /// All faults, a line each: for a test's message.
  std::string text() const;
};

/// An event that was recorded before the history began orders nothing: what was before it is over.
Report check(const std::vector<Entry>& history);

}  // namespace lockstep::testing::sim
