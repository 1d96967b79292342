// Whether a peer has not the key, or has said nothing about it; and what two that have it agree on.

#include "lockstep/launch/nodes/tls.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/rendezvous/messages.h"

namespace lockstep::launch {
namespace {

struct Wire {
  Wire() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    ends[0] = base::UniqueFd(fds[0]);
    ends[1] = base::UniqueFd(fds[1]);
  }
  // What the other side has said so far.
  std::string taken(int end) const {
    std::string bytes(20'000, '\0');
    bytes.resize(std::size_t(std::max<ssize_t>(0, recv(ends[end].get(), bytes.data(), bytes.size(), MSG_DONTWAIT))));
    return bytes;
  }
  void say(int end, const std::string& bytes) const {
    EXPECT_EQ(send(ends[end].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size()));
  }
  base::UniqueFd ends[2];
};

struct TlsTest : ::testing::Test, Wire {
  static std::string read(Channel& channel) {
    char bytes[100];
    const Channel::Moved moved = channel.read(bytes, sizeof bytes);
    return moved.state == Channel::State::closed ? moved.why : "";
  }
};

// Takes numbers and strings, which have their length before them, from a message of TLS.
struct Reader {
  std::size_t number(std::size_t size) {
    std::size_t value = 0;
    for (const char byte : bytes(size)) value = value << 8 | std::uint8_t(byte);
    return value;
  }
  std::string bytes(std::size_t size) {
    if (size > rest.size()) throw Error("the message ends early");
    std::string some = rest.substr(0, size);
    rest.erase(0, size);
    return some;
  }
  std::string sized(std::size_t size_of_size) { return bytes(number(size_of_size)); }
  std::string rest;
};

// The first message of either side, RFC 8446, 4.1.2 and 4.1.3.
struct Hello {
  explicit Hello(const std::string& said) {
    Reader record{said};
    EXPECT_EQ(record.number(1), 22u) << "a handshake";
    record.bytes(2);
    Reader handshake{record.sized(2)};
    const bool clients = handshake.number(1) == 1;
    Reader hello{handshake.sized(3)};
    hello.bytes(2 + 32);  // an old version, random
    hello.sized(1);
    suites = clients ? hello.sized(2) : hello.bytes(2);
    clients ? hello.sized(1) : hello.bytes(1);  // no compression
    for (Reader extension{hello.sized(2)}; !extension.rest.empty();) {
      const std::size_t type = extension.number(2);
      extensions[type] = extension.sized(2);
    }
  }
  std::string suites;
  std::map<std::size_t, std::string> extensions;
};

constexpr std::size_t kPreSharedKey = 41, kEarlyData = 42, kVersions = 43, kKeyExchangeModes = 45, kKeyShare = 51;
const std::string kAes128GcmSha256("\x13\x01", 2), kTls13("\x03\x04", 2), kWithDheOnly("\x01\x01", 2);

TEST_F(TlsTest, AConnectionThatEndsEarlySaysNothingOfTheKey) {
  const Tls tls(Secret{1});
  const std::unique_ptr<Channel> client = tls.connect(ends[0].get());
  EXPECT_EQ(read(*client), "");
  ends[1] = {};
  EXPECT_EQ(read(*client), kClosed);
  EXPECT_TRUE(was_closed(kClosed));
  EXPECT_FALSE(was_closed(kNoKey));
}

TEST_F(TlsTest, AnAgentWithoutAKeyIsToldSoPlainly) {
  const Tls tls(Secret{1});
  const std::unique_ptr<Channel> server = tls.accept(ends[1].get());
  const std::string join = to_frame(rendezvous::Join{.host = "h"});
  say(0, join);
  EXPECT_EQ(read(*server), kNoKey);
  std::string answer = taken(0);
  const auto message = rendezvous::take_message(answer, rendezvous::kLongestMessage);
  ASSERT_TRUE(message && std::holds_alternative<rendezvous::Refused>(*message));
}

TEST_F(TlsTest, AnAgentWithAKeyIsToldThatTheJobHasNone) {
  const Tls tls(Secret{1});
  const std::unique_ptr<Channel> client = tls.connect(ends[0].get());
  PlainDoor door(ends[1].get());
  EXPECT_EQ(read(door), "") << "nothing has come";
  EXPECT_EQ(read(*client), "");
  EXPECT_EQ(read(door), kHasKey);
  EXPECT_EQ(read(*client), kNoKey);
}

TEST_F(TlsTest, AnotherKeyIsSaidOnBothSides) {
  const Tls ours(Secret{1}), theirs(Secret{2});
  const std::unique_ptr<Channel> client = theirs.connect(ends[0].get());
  const std::unique_ptr<Channel> server = ours.accept(ends[1].get());
  EXPECT_EQ(read(*client), "");
  EXPECT_EQ(read(*server), kNoKey);
  EXPECT_EQ(read(*client), kNoKey);
}

TEST_F(TlsTest, TheyAgreeOnTheKeyWithAnExchangeOfTls13) {
  const Tls tls(Secret{1});
  const std::unique_ptr<Channel> client = tls.connect(ends[0].get());
  EXPECT_EQ(read(*client), "");
  const std::string asked = taken(1);
  Hello offer(asked);
  EXPECT_EQ(offer.suites.substr(0, 2), kAes128GcmSha256);
  EXPECT_EQ(offer.extensions[kVersions], "\x02" + kTls13) << "no other version";
  EXPECT_EQ(offer.extensions[kKeyExchangeModes], kWithDheOnly);
  EXPECT_EQ(offer.extensions.count(kPreSharedKey), 1u);
  EXPECT_EQ(offer.extensions.count(kEarlyData), 0u) << "which whoever has seen it could send again";

  const Wire wire;
  const std::unique_ptr<Channel> server = tls.accept(wire.ends[1].get());
  wire.say(0, asked);
  EXPECT_EQ(read(*server), "");
  Hello answer(wire.taken(0));
  EXPECT_EQ(answer.suites, kAes128GcmSha256);
  EXPECT_EQ(answer.extensions[kVersions], kTls13);
  EXPECT_EQ(answer.extensions[kPreSharedKey], std::string(2, '\0')) << "the only key that was offered";
  EXPECT_GT(answer.extensions[kKeyShare].size(), 32u) << "its half of an (EC)DHE exchange";
}

// A ticket would be another key, kept by whoever it was given to.
TEST_F(TlsTest, NoTicketIsGiven) {
  const Tls tls(Secret{1});
  const std::unique_ptr<Channel> client = tls.connect(ends[0].get());
  const std::unique_ptr<Channel> server = tls.accept(ends[1].get());
  EXPECT_EQ(read(*client), "");  // asks
  EXPECT_EQ(read(*server), "");  // answers
  EXPECT_EQ(read(*client), "");  // has met
  EXPECT_EQ(read(*server), "");  // has met, and would give tickets now
  EXPECT_EQ(taken(0).size(), 0u);
  EXPECT_EQ(server->write("x", 1).bytes, 1u) << "they have met";
  char byte = 0;
  EXPECT_EQ(client->read(&byte, 1).bytes, 1u);
  EXPECT_EQ(byte, 'x');
}

TEST_F(TlsTest, AClientOfTls12IsRefused) {
  const Tls tls(Secret{1});
  const std::unique_ptr<Channel> server = tls.accept(ends[1].get());
  const std::string suites("\x00\x04\xc0\x37\x00\xa8", 6);  // with a pre-shared key, with (EC)DHE and without
  const std::string hello = "\x03\x03" + std::string(32, 'r') + '\0' + suites + std::string("\x01\x00", 2);
  const auto sized = [](const std::string& begin, const std::string& body) {
    return begin + '\0' + char(body.size()) + body;
  };
  say(0, sized("\x16\x03\x01", sized(std::string("\x01\x00", 2), hello)));
  EXPECT_EQ(read(*server), kNoKey);
  const std::string alert = taken(0);
  EXPECT_EQ(alert.substr(0, 1) + alert.substr(3), std::string("\x15\x00\x02\x02\x46", 5)) << "fatal: protocol_version";
}

}  // namespace
}  // namespace lockstep::launch
