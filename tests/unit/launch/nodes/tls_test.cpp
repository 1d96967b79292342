// Whether a peer has not the key, or has said nothing about it.

#include "lockstep/launch/nodes/tls.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <string>

#include "lockstep/base/unique_fd.h"
#include "lockstep/rendezvous/messages.h"

namespace lockstep::launch {
namespace {

struct TlsTest : ::testing::Test {
  TlsTest() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    ends[0] = base::UniqueFd(fds[0]);
    ends[1] = base::UniqueFd(fds[1]);
  }
  static std::string read(Channel& channel) {
    char bytes[100];
    const Channel::Moved moved = channel.read(bytes, sizeof bytes);
    return moved.state == Channel::State::closed ? moved.why : "";
  }
  base::UniqueFd ends[2];
};

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
  EXPECT_EQ(send(ends[0].get(), join.data(), join.size(), MSG_NOSIGNAL), ssize_t(join.size()));
  EXPECT_EQ(read(*server), kNoKey);
  std::string answer(4'096, '\0');
  answer.resize(std::size_t(std::max<ssize_t>(0, recv(ends[0].get(), answer.data(), answer.size(), MSG_DONTWAIT))));
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

}  // namespace
}  // namespace lockstep::launch
