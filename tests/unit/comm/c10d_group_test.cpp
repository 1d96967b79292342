// Groups over a backend of torch.distributed: how their ranks meet. What they do then is tests/contract's.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "lockstep/base/error.h"
#include "lockstep/c10d.h"
#include "lockstep/comm/network/store_meeting.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Of which there are ranks, and no more.
class Unconnected final : public c10d::Backend {
 public:
  using c10d::Backend::Backend;
  const std::string getBackendName() const override { return "unconnected"; }
};

// By its name libtorch's.
class NamedMpi final : public c10d::Backend {
 public:
  using c10d::Backend::Backend;
  const std::string getBackendName() const override { return "mpi"; }
};

std::string told_over(int rank, c10d::Store& store) {
  try {
    (void)over_backend(c10::make_intrusive<Unconnected>(rank, 2), store, {.timeout = 200ms});
  } catch (const Error& error) {
    return error.what();
  }
  return "they have met";
}

TEST(OverBackend, OfOneRankNeedsNobody) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto group = over_backend(c10::make_intrusive<Unconnected>(0, 1), *store);
  EXPECT_EQ(group->size(), 1);
  EXPECT_EQ(store->getNumKeys(), 0);
}

TEST(OverBackend, TheMpiOfLibtorchIsRefused) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  EXPECT_THROW((void)over_backend(c10::make_intrusive<NamedMpi>(1, 2), *store, {.timeout = 200ms}), UsageError);
}

TEST(OverBackend, WhoDoesNotComeIsNamed) {
  setenv("LOCKSTEP_SOCKET_IFNAME", "lo", 1);
  const auto empty = c10::make_intrusive<c10d::HashStore>(), fresh = c10::make_intrusive<c10d::HashStore>();
  EXPECT_EQ(told_over(1, *empty), "over_backend: rank 0 did not come to the store within 200 ms");
  EXPECT_THAT(told_over(0, *fresh), HasSubstr("these ranks did not come to 127.0.0.1:"));
  unsetenv("LOCKSTEP_SOCKET_IFNAME");
}

TEST(StoreMeeting, HasWhatIsThereNow) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  StoreMeeting zero(*store, "job/"), one(*store, "job/"), other(*store, "another job/");
  EXPECT_EQ(one.look_up("key"), std::nullopt);
  zero.publish("key", "value");
  EXPECT_EQ(one.look_up("key"), "value");
  EXPECT_EQ(other.look_up("key"), std::nullopt);
  zero.withdraw("key");
  EXPECT_EQ(one.look_up("key"), std::nullopt);
}

}  // namespace
}  // namespace lockstep::comm
