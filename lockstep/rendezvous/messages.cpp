#include "lockstep/rendezvous/messages.h"

#include <bit>
#include <cstring>
#include <utility>

namespace lockstep::rendezvous {
namespace {

constexpr std::string_view kMark("LKr\x05", 4);

template <class A>
void fields(A& a, Join& m) {
  a(m.version, m.run_id, m.nnodes, m.backend, m.host, m.workers, m.wanted_rank, m.address, m.generation, m.rank,
    m.may_run, m.keep_alive, m.misses);
}
template <class A>
void fields(A&, Ready&) {}
template <class A>
void fields(A& a, Ping& m) {
  a(m.sent, m.answered, m.generation);
}
template <class A>
void fields(A& a, Pong& m) {
  a(m.sent, m.wall, m.answered, m.good_for);
}
template <class A>
void fields(A& a, Failed& m) {
  a(m.generation, m.kind, m.when, m.error, m.code, m.text);
}
template <class A>
void fields(A& a, Stopping& m) {
  a(m.generation, m.signal, m.let_go);
}
template <class A>
void fields(A& a, Done& m) {
  a(m.generation, m.code, m.signal, m.never_ran, m.left_behind, m.bad_input, m.port_was_taken, m.joined, m.fallen,
    m.uptime);
}
template <class A>
void fields(A& a, Waiting& m) {
  a(m.reason, m.generation);
}
template <class A>
void fields(A& a, Refused& m) {
  a(m.reason);
}
template <class A>
void fields(A& a, Start& m) {
  a(m.generation, m.restart_count, m.rank, m.nodes, m.first_rank, m.ranks_after, m.master_port, m.master_addr, m.run_id,
    m.report, m.heirs);
}
template <class A>
void fields(A& a, EndNow& m) {
  a(m.generation);
}
template <class A>
void fields(A& a, Outcome& m) {
  a(m.generation, m.code, m.again, m.blamed, m.to_blame, m.signal, m.counts, m.new_port, m.restarts, m.delay, m.text,
    m.why_not);
}
template <class A>
void fields(A& a, StoreAsk& m) {
  a(m.generation, m.id, m.what, m.keys, m.values, m.number);
}
template <class A>
void fields(A& a, StoreForget& m) {
  a(m.id);
}
template <class A>
void fields(A& a, StoreAnswer& m) {
  a(m.id, m.done, m.number, m.values, m.why);
}
template <class A>
void fields(A& a, Report& m) {
  a(m.part, m.last);
}

template <class A>
void fields(A& a, GivesUp& m) {
  a(m.reason);
}
template <class A>
void fields(A& a, MakeRoom& m) {
  a(m.generation);
}
template <class A>
void fields(A& a, NotInSteps& m) {
  a(m.generation);
}

class FrameWriter {
 public:
  template <class... T>
  void operator()(T&... values) {
    (put(values), ...);
  }
  std::string bytes;

  void put(std::uint64_t value, int size = 8) {
    for (int i = 0; i < size; ++i) bytes += char(value >> (8 * i) & 0xff);
  }

 private:
  void put(std::int64_t value) { put(std::uint64_t(value)); }
  void put(bool value) { put(std::uint64_t(value)); }
  void put(double value) { put(std::bit_cast<std::uint64_t>(value)); }
  void put(const std::string& text) {
    const std::string_view cut = std::string_view(text).substr(0, kLongestText);
    put(cut.size(), 4);
    bytes += cut;
  }
  void put(const std::vector<std::string>& list) {
    put(list.size(), 4);
    for (const std::string& entry : list) {
      put(entry.size(), 4);
      bytes += entry;
    }
  }
};

class FrameReader {
 public:
  explicit FrameReader(std::string_view bytes) : bytes_(bytes) {}
  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  bool at_end() const { return bytes_.empty(); }

  std::uint64_t number(std::size_t size) {
    const std::string_view word = take(size);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) value |= std::uint64_t(static_cast<unsigned char>(word[i])) << (8 * i);
    return value;
  }

 private:
  std::string_view take(std::size_t size) {
    if (size > bytes_.size()) throw BadFrame("a message ends within a field");
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  void get(std::int64_t& value) { value = std::int64_t(number(8)); }
  void get(double& value) { value = std::bit_cast<double>(number(8)); }
  void get(bool& value) {
    const std::uint64_t word = number(8);
    if (word > 1) throw BadFrame("a truth value is " + std::to_string(word));
    value = word == 1;
  }
  void get(std::string& text) {
    const std::uint64_t size = number(4);
    if (size > kLongestText) throw BadFrame("a text of " + std::to_string(size) + " bytes");
    text = take(std::size_t(size));
  }
  // Grows with what is there, whatever the count says.
  void get(std::vector<std::string>& list) {
    for (std::uint64_t left = number(4); left > 0; --left) list.emplace_back(take(std::size_t(number(4))));
  }

  std::string_view bytes_;
};

template <std::size_t I = 0>
Message read_message(std::size_t type, FrameReader& reader) {
  if constexpr (I == std::variant_size_v<Message>) {
    throw BadFrame("a message of the unknown type " + std::to_string(type));
  } else {
    if (type != I) return read_message<I + 1>(type, reader);
    std::variant_alternative_t<I, Message> message;
    fields(reader, message);
    return message;
  }
}

}  // namespace

std::string to_frame(Message message) {
  FrameWriter body;
  body.put(std::uint64_t(message.index()), 1);
  std::visit([&](auto& typed) { fields(body, typed); }, message);
  FrameWriter frame;
  frame.bytes = kMark;
  frame.put(body.bytes.size(), 4);
  return std::move(frame.bytes) + body.bytes;
}

std::optional<Message> take_message(std::string& bytes, std::size_t longest) {
  const std::string_view view(bytes);
  const std::string_view mark = view.substr(0, kMark.size());
  if (mark != kMark.substr(0, mark.size()))
    throw BadFrame(mark.starts_with("LKr")  ? "another version of the protocol"
                   : view == kTcpStoreProbe ? kProbed
                   : mark == kTcpStoreHello ? kTorchrunsProtocol
                                            : "not the protocol of lockstep's agents");
  if (view.size() < kFrameHeader) return std::nullopt;
  const std::uint64_t size = FrameReader(view.substr(kMark.size())).number(4);
  if (size == 0 || size > longest)
    throw BadFrame("a message of " + std::to_string(size) + " bytes, not 1 to " + std::to_string(longest));
  if (view.size() < kFrameHeader + size) return std::nullopt;
  FrameReader reader(view.substr(kFrameHeader, size));
  const std::size_t type = reader.number(1);
  Message message = read_message(type, reader);
  if (!reader.at_end()) throw BadFrame("a message that goes on behind its last field");
  bytes.erase(0, kFrameHeader + size);
  return message;
}

}  // namespace lockstep::rendezvous
