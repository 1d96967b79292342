#include "lockstep/launch/doctor/between.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/launch/doctor/peer.h"
#include "lockstep/launch/doctor/remote_peer.h"
#include "tests/support/usage_error.h"

namespace lockstep::launch {
namespace {

using Level = Finding::Level;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

const VersionFacts kVersions{"0.1.0", "abc", "Linux 6", "avx2", "2.11.0", ""};

HostFacts host_with(const std::string& name, const VersionFacts& versions = kVersions) {
  return {.name = name, .versions = versions, .offset = milliseconds(1), .uncertainty = milliseconds(2)};
}

// "wrong version, good clock offset".
std::string told(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& one : findings) {
    EXPECT_EQ(one.advice.empty(), one.level == Level::good) << one.what;
    text += (text.empty() ? "" : ", ") + std::string(std::array{"good ", "note ", "wrong "}[std::size_t(one.level)]) +
            one.what;
  }
  return text;
}

TEST(DoctorBetween, VersionsAreThoseOfTheFirst) {
  const HostFacts first = host_with("n1");
  EXPECT_EQ(told(check_host(first, first)), "good clock offset");
  EXPECT_EQ(told(check_host(host_with("n2"), first)), "good same as, good clock offset");
  VersionFacts other = kVersions;
  other.kernel = "Linux 5";
  EXPECT_EQ(told(check_host(host_with("n2", other), first)), "good same as, good clock offset");
  other.commit = "abd";
  EXPECT_EQ(told(check_host(host_with("n2", other), first)), "wrong commit, good clock offset");
  EXPECT_THAT(check_host(host_with("n2", other), first).front().value, "abd, abc on n1");
  other = kVersions;
  other.lockstep = "0.2.0";
  other.libtorch = "";
  other.processor = "avx512f";
  EXPECT_EQ(told(check_host(host_with("n2", other), first)),
            "wrong version, wrong libtorch version, note processor type, good clock offset");
}

TEST(DoctorBetween, ClocksCountBeyondWhatIsUncertain) {
  HostFacts host = host_with("n1");
  host.offset = milliseconds(52);
  EXPECT_EQ(told(check_host(host, host)), "good clock offset");
  host.offset = milliseconds(-53);
  EXPECT_EQ(told(check_host(host, host)), "note clock offset");
  EXPECT_THAT(check_host(host, host).front().value, HasSubstr("-53.00 ms"));
  host.offset = milliseconds(1003);
  EXPECT_EQ(told(check_host(host, host)), "wrong clock offset");
}

TEST(DoctorBetween, AHostThatDoesNotAnswerIsWrong) {
  HostFacts silent{.name = "n1", .error = "it ended: Permission denied"};
  const auto all = check_hosts({silent, host_with("n2"), host_with("n3")}, {});
  EXPECT_EQ(told(all[0].findings), "wrong remote shell");
  EXPECT_EQ(told(all[1].findings), "good clock offset");  // the first that answered
  EXPECT_EQ(told(all[2].findings), "good same as, good clock offset");
  EXPECT_EQ(told(check_hosts({silent}, {}).front().findings), "wrong remote shell");
}

TEST(DoctorBetween, Ways) {
  WayFacts way{.from = "n1", .to = "n2", .address = "10.0.0.2", .round_trip = milliseconds(1), .bytes_per_second = 1e8};
  EXPECT_EQ(told(check_way(way)), "good round trip, good bandwidth");
  way.round_trip = std::chrono::microseconds(1001);
  way.bytes_per_second = 99e6;
  EXPECT_EQ(told(check_way(way)), "note round trip, note bandwidth");
  EXPECT_THAT(check_way(way).back().value, "10.0.0.2, 99 MB/s");
  way.error = "Connection refused";
  EXPECT_EQ(told(check_way(way)), "wrong connection");
  EXPECT_EQ(check_hosts({}, {way}).front().title, "n1 -> n2");
  EXPECT_EQ(told(check_hosts({}, {way}).back().findings), "note not protected");
}

TEST(DoctorPeer, DescriptionsComeBackAsTheyWere) {
  const std::vector<Finding> findings = {{Level::note, "clock", "x\n\"", "y"}, {Level::wrong, "a\xff", "b", "c"}};
  HostFacts host;
  const std::string text = describe_peer(kVersions, findings);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  read_description(text, host);
  EXPECT_EQ(host.versions.commit, "abc");
  EXPECT_EQ(host.versions.processor, "avx2");
  ASSERT_EQ(host.findings.size(), 2U);
  EXPECT_EQ(host.findings[0].value, "x\n\"");
  EXPECT_EQ(int(host.findings[1].level), int(Level::wrong));
  for (const char* wrong :
       {"", "{}", "[]", "x", R"({"version":1})",
        R"({"version":"","commit":"","kernel":"","processor":"","libtorch":"","findings":[["bad","","",""]]})"})
    EXPECT_THROW(read_description(wrong, host), Error) << wrong;
}

TEST(RemoteShell, WordsAndQuotes) {
  EXPECT_THAT(remote_shell_words(" ssh  -p 2222 "), ElementsAre("ssh", "-p", "2222"));
  EXPECT_THAT(testing::usage_error([] { remote_shell_words(" "); }), HasSubstr("is no command"));
  EXPECT_THAT(remote_command({"ssh"}, "n1", {"/a b/it's", "$x"}),
              ElementsAre("ssh", "n1", R"(exec '/a b/it'\''s' '$x')"));
}

TEST(RemoteShell, TheLinesThatGreetAreSkipped) {
  const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  RemotePeer peer({"/bin/sh", "-c", "echo welcome; echo hello you; read x; echo got $x; read y; echo error no $y"});
  EXPECT_EQ(peer.find("hello ", soon), "you");
  EXPECT_EQ(peer.ask("1", "got ", soon), "1");
  try {
    peer.ask("2", "got ", soon);
    ADD_FAILURE() << "an error was taken for an answer";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "no 2");
  }
}

TEST(RemoteShell, AnEndAndASilenceAreToldApart) {
  const auto why = [](const std::string& script, milliseconds patience) -> std::string {
    RemotePeer peer({"/bin/sh", "-c", script});
    try {
      return "found " + peer.find("hello ", std::chrono::steady_clock::now() + patience);
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(why("echo first >&2; echo host unknown >&2; exit 255", std::chrono::seconds(20)), "it ended: host unknown");
  EXPECT_EQ(why("exec cat", milliseconds(10)), "it did not answer in time");
  RemotePeer early({"/bin/sh", "-c", "echo hello you; read x"});
  EXPECT_EQ(early.find("hello ", std::chrono::steady_clock::now() + std::chrono::seconds(20)), "you");
  RemotePeer missing({"/no/such/shell"});
  EXPECT_THROW(missing.find("hello ", std::chrono::steady_clock::now() + std::chrono::seconds(20)), Error);
}

}  // namespace
}  // namespace lockstep::launch
