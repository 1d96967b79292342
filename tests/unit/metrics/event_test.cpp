#include "lockstep/metrics/event.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "lockstep/base/error.h"
#include "sample_events.h"

namespace lockstep::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Event, FieldsAreReadByTheirType) {
  const Event event = done_event();
  EXPECT_EQ(event.integer("steps"), 600);
  EXPECT_EQ(event.number("steps"), 600.0);
  EXPECT_EQ(event.number("seconds"), 12.34);
  EXPECT_EQ(event.text("weights_hash"), "00ff");
  EXPECT_EQ(event.find("loss"), nullptr);
}

TEST(Event, AMissingOrMistypedFieldIsNamed) {
  const Event event = done_event();
  EXPECT_THAT([&] { event.number("loss"); }, ThrowsMessage<Error>(HasSubstr("event 'done': field 'loss' is missing")));
  EXPECT_THAT([&] { event.number("weights_hash"); }, ThrowsMessage<Error>(HasSubstr("is no number")));
  EXPECT_THAT([&] { event.integer("seconds"); }, ThrowsMessage<Error>(HasSubstr("is no integer")));
  EXPECT_THAT([&] { event.text("steps"); }, ThrowsMessage<Error>(HasSubstr("is no text")));
}

TEST(Shortest, ReadsBackAsTheSameBits) {
  EXPECT_EQ(shortest(0.1), "0.1");
  EXPECT_EQ(shortest(1e-4), "1e-04");
  for (double value : {1.0 / 3, 1e300, 5e-324, -0.0, 123456789.123456789, std::numeric_limits<double>::max()}) {
    const double back = std::stold(shortest(value));
    EXPECT_EQ(std::memcmp(&back, &value, sizeof(value)), 0) << shortest(value);
  }
  EXPECT_EQ(shortest(std::nan("")), "nan");
  EXPECT_EQ(shortest(std::copysign(std::nan(""), -1.0)), "nan");
  EXPECT_EQ(shortest(-std::numeric_limits<double>::infinity()), "-inf");
}

}  // namespace
}  // namespace lockstep::metrics
