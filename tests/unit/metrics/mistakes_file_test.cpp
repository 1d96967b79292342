#include "lockstep/metrics/mistakes_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::metrics {
namespace {

// The vectors of RFC 4648, and bytes that are no letters.
TEST(Base64, IsThatOfTheStandard) {
  const std::pair<std::string, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"by", "Ynk="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"},
                                                         {std::string("\xff\xfe\0\x80", 4), "//4AgA=="}};
  for (const auto& [bytes, text] : vectors) EXPECT_EQ(base64(bytes), text);
}

TEST(MistakesFile, HoldsPicturesByTheirSamples) {
  const auto read = nlohmann::json::parse(mistakes_json(9, {{42, "foo"}, {7, "by"}}));
  EXPECT_EQ(read, nlohmann::json::parse(R"({"step": 9, "samples": [42, 7], "pictures": ["Zm9v", "Ynk="]})"));
  EXPECT_EQ(nlohmann::json::parse(mistakes_json(0, {})).at("samples").size(), 0u);
}

}  // namespace
}  // namespace lockstep::metrics
