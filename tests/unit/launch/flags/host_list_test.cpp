#include "lockstep/launch/flags/host_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/usage_error.h"

namespace lockstep::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::vector<HostSlots> hosts_of(const std::string& text, const std::string& file = "") {
  return parse_hosts("--hosts", text, [&](const std::string& path) -> std::optional<std::string> {
    return path == "./there" ? std::optional(file) : std::nullopt;
  });
}

std::string hosts_refusal(const std::string& text, const std::string& file = "") {
  return testing::usage_error([&] { hosts_of(text, file); });
}

TEST(HostList, Words) {
  EXPECT_THAT(hosts_of("h1"), ElementsAre(HostSlots{"h1", {}}));
  EXPECT_THAT(hosts_of("h1:4,h2.x,[::1]:2,::2,[::3]"),
              ElementsAre(HostSlots{"h1", 4}, HostSlots{"h2.x", {}}, HostSlots{"::1", 2}, HostSlots{"::2", {}},
                          HostSlots{"::3", {}}));
  EXPECT_THAT(hosts_of("h1:512"), ElementsAre(HostSlots{"h1", 512}));
}

TEST(HostList, Files) {
  EXPECT_THAT(hosts_of("./there", "# mine\nh1 slots=4\n\n  h2:2  # old\nh3 slots=1 \r\n"),
              ElementsAre(HostSlots{"h1", 4}, HostSlots{"h2", 2}, HostSlots{"h3", 1}));
}

TEST(HostList, WhatIsWrongIsNamed) {
  for (const char* text :
       {"", "h1,", ",h1", "h1,,h2", "h 1", "h;1", "-oProxyCommand=x", "[::1", "[]:1", "h1\n", "[::1]4"})
    EXPECT_THAT(hosts_refusal(text), testing::AllOf(StartsWith("--hosts: '"), HasSubstr("is no host"))) << text;
  for (const char* text : {"h1:0", "h1:513", "h1:x", "h1:", "h1:-1", "h1:99999999999"})
    EXPECT_THAT(hosts_refusal(text), HasSubstr("has no number of slots from 1 to 512")) << text;
  EXPECT_THAT(hosts_refusal("h1:4,h1"), HasSubstr("'h1' is there twice"));
  EXPECT_THAT(hosts_refusal("./gone"), HasSubstr("the file './gone' cannot be read"));
  EXPECT_THAT(hosts_refusal("./there", "#\n"), HasSubstr("names no host"));
  EXPECT_THAT(hosts_refusal("./there", "h1\nh2 4\n"), HasSubstr("--hosts: ./there, line 2: '4' is not slots=N"));
  EXPECT_THAT(hosts_refusal("./there", "h1\nh1\n"), HasSubstr("./there, line 2: 'h1' is there twice"));
  EXPECT_THAT(hosts_refusal("./there", "h1 slots=x\n"), HasSubstr("line 1: 'slots=x' has no number of slots"));
  std::string many;
  for (int i = 0; i <= kMaxHosts; ++i) many += "h" + std::to_string(i) + "\n";
  EXPECT_THAT(hosts_refusal("./there", many), HasSubstr("more than 4096 hosts"));
}

// As horovodrun: a line without a number has the number of --slots-per-host, and nobody there is no error.
TEST(DiscoveredHosts, AreReadAsHorovodReadsThem) {
  EXPECT_THAT(parse_discovered_hosts("find.sh", "h1:4\nh2\n\n", 2),
              ElementsAre(HostSlots{"h1", 4}, HostSlots{"h2", 2}));
  EXPECT_THAT(parse_discovered_hosts("find.sh", "h2", {}), ElementsAre(HostSlots{"h2", {}}));
  EXPECT_TRUE(parse_discovered_hosts("find.sh", "", 2).empty());
  EXPECT_THAT(testing::usage_error([] { parse_discovered_hosts("find.sh", "h1\nh2:many\n", {}); }),
              StartsWith("find.sh, line 2: 'h2:many' has no number of slots"));
}

}  // namespace
}  // namespace lockstep::launch
