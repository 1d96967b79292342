#include "lockstep/rendezvous/node_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/support/usage_error.h"

namespace lockstep::rendezvous {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> expand(std::string_view text) { return expand_node_list("SLURM_JOB_NODELIST", text); }

std::string list_refusal(std::string_view text) {
  return lockstep::testing::usage_error([&] { expand(text); });
}

TEST(NodeList, BracketsAreExpanded) {
  EXPECT_THAT(expand("n1"), ElementsAre("n1"));
  EXPECT_THAT(expand("n1,n2.cluster.local,x_y-z"), ElementsAre("n1", "n2.cluster.local", "x_y-z"));
  EXPECT_THAT(expand("a[01-03,7]"), ElementsAre("a01", "a02", "a03", "a7"));
  EXPECT_THAT(expand("b-[1-2]c[4,5]"), ElementsAre("b-1c4", "b-1c5", "b-2c4", "b-2c5"));
  EXPECT_THAT(expand("a[01-03,7],b-[1-2]c[4,5]"),
              ElementsAre("a01", "a02", "a03", "a7", "b-1c4", "b-1c5", "b-2c4", "b-2c5"));
  EXPECT_THAT(expand("r[1]n[2]-ib"), ElementsAre("r1n2-ib"));
  EXPECT_THAT(expand("[1-2]"), ElementsAre("1", "2"));
}

TEST(NodeList, ARangeHasTheDigitsOfItsLowerEnd) {
  EXPECT_THAT(expand("n[8-11]"), ElementsAre("n8", "n9", "n10", "n11"));
  EXPECT_THAT(expand("n[08-11]"), ElementsAre("n08", "n09", "n10", "n11"));
  EXPECT_THAT(expand("n[098-101]"), ElementsAre("n098", "n099", "n100", "n101"));
  EXPECT_THAT(expand("n[000,0]"), ElementsAre("n000", "n0"));
}

TEST(NodeList, MalformedTextsAreRefusedAtTheirCharacter) {
  const struct {
    const char* text;
    const char* place;
    const char* why;
  } rows[] = {
      {"", "at character 1", "a host name is missing"},
      {"a,", "at character 3", "a host name is missing"},
      {"a,,b", "at character 3", "a host name is missing"},
      {"a[", "at character 3", "the end stands where a number is due"},
      {"a[1", "at character 2", "the bracket is not closed"},
      {"a[1-", "at character 5", "the end stands where a number is due"},
      {"a[]", "at character 3", "']' stands where a number is due"},
      {"a[1,]", "at character 5", "']' stands where a number is due"},
      {"a[1-2-3]", "at character 6", "'-' stands where a ',' or ']' is due"},
      {"a[1[2]]", "at character 4", "'[' stands where a ',' or ']' is due"},
      {"a[000x133]", "at character 6", "'x' stands where a ',' or ']' is due"},
      {"a[3-1]", "at character 3", "the range 3-1 counts down"},
      {"a]", "at character 2", "no host name has a character ']'"},
      {"a b", "at character 2", "no host name has a character ' '"},
      {"a\nb", "at character 2", "no host name has a character '\\n'"},
      {"a[1-2],a2", "at character 8", "node a2 is there twice"},
      {"a[0-4000000000]", "at character 2", "more than 65536 nodes"},
      {"a[0-65536]", "at character 2", "more than 65536 nodes"},
      {"a[0-999]b[0-999]", "at character 10", "more than 65536 nodes"},
      {"a[0-65535],b", "at character 12", "more than 65536 nodes"},
      {"a[12345678901]", "at character 3", "more than 10 digits"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.text);
    EXPECT_THAT(list_refusal(row.text), testing::AllOf(HasSubstr("SLURM_JOB_NODELIST="), HasSubstr(row.place),
                                                       HasSubstr(row.why), HasSubstr("a[01-03,7],b4")));
  }
  EXPECT_THAT(list_refusal(std::string(254, 'a')), HasSubstr("more than 253 characters"));
  EXPECT_THAT(list_refusal(std::string(200, 'a') + "[1]" + std::string(60, 'b')),
              HasSubstr("more than 253 characters"));
}

TEST(NodeList, TheLargestIsTaken) {
  EXPECT_EQ(expand("a[0-65535]").size(), kMaxNodes);
  EXPECT_EQ(expand("a[0-255]b[0-255]").back(), "a255b255");
  EXPECT_EQ(expand(std::string(253, 'a')).front().size(), 253U);
}

}  // namespace
}  // namespace lockstep::rendezvous
