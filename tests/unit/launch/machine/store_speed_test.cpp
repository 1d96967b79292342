// What `lockstep env` says of plain and streaming stores.

#include "lockstep/launch/machine/store_speed.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

TEST(StoreSpeed, SaysWhichIsFaster) {
  EXPECT_EQ(store_speed_text({.bytes = 1'000'000, .plain = 4e-4, .streaming = 1e-4}),
            "streaming faster: 20.0 GB/s, plain 5.0 GB/s");
  EXPECT_EQ(store_speed_text({.bytes = 1'000'000, .plain = 1e-4, .streaming = 2e-4}),
            "plain faster: 20.0 GB/s, streaming 10.0 GB/s");
}

TEST(StoreSpeed, IsMeasured) {
  const StoreSpeed speed = measure_stores(1 << 16);
  EXPECT_EQ(speed.bytes, std::size_t(1 << 16));
  EXPECT_GT(speed.plain, 0);
  EXPECT_LT(speed.plain, 1e9);
  EXPECT_GT(speed.streaming, 0);
  EXPECT_LT(speed.streaming, 1e9);
}

}  // namespace
}  // namespace lockstep::launch
