#include "lockstep/device/facts/wanted.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::device {
namespace {

std::string refusal(std::string_view text) {
  try {
    parse_wanted(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Wanted, FourForms) {
  EXPECT_EQ(parse_wanted("cpu"), Wanted{});
  EXPECT_EQ(parse_wanted("cuda"), (Wanted{WantedKind::cuda, {}}));
  EXPECT_EQ(parse_wanted("cuda:0"), (Wanted{WantedKind::cuda, 0}));
  EXPECT_EQ(parse_wanted("cuda:12"), (Wanted{WantedKind::cuda, 12}));
  EXPECT_EQ(parse_wanted("auto"), (Wanted{WantedKind::automatic, {}}));
}

TEST(Wanted, OtherTextIsRefusedWithWhatWouldBeRight) {
  EXPECT_EQ(refusal("cdua"), "unknown device 'cdua': did you mean 'cuda'? (one of cpu, cuda, cuda:N, auto)");
  EXPECT_THAT(refusal(""), testing::HasSubstr("one of cpu, cuda, cuda:N, auto"));
  EXPECT_THAT(refusal("CPU"), testing::HasSubstr("did you mean 'cpu'"));
  for (const char* text : {"cuda:", "cuda:-1", "cuda:x", "cuda:1x", "cuda: 1", "cuda:99999999999"})
    EXPECT_EQ(refusal(text), "device '" + std::string(text) + "': behind the colon must be a GPU's number from 0");
}

}  // namespace
}  // namespace lockstep::device
