#include "lockstep/data/inspect/report.h"

#include <gtest/gtest.h>

#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace lockstep::data {
namespace {

Report sample() {
  SetPart train{.name = "train",
                .pictures = 4,
                .classes = {{"cat", 3}, {"elephant", 1}},
                .sizes = {{{10, 20}, 1}, {{30, 30}, 1}, {{20, 10}, 2}},
                .kinds = {{"JPEG colour", 3}, {"PNG RGB", 1}},
                .bytes = 2048};
  return {.path = "data/pets", .kind = "ImageFolder", .parts = {train}};
}

TEST(Report, AsText) {
  EXPECT_EQ(report_as_text(sample()),
            "data/pets: ImageFolder\n"
            "train: 4 pictures, 2 classes, 2.0 KiB\n"
            "  cat       3\n"
            "  elephant  1\n"
            "  sizes (height x width): 3 distinct: smallest 10x20, median 20x10, largest 30x30\n"
            "  kinds: 3 JPEG colour, 1 PNG RGB\n"
            "whole: no damaged file\n");
}

TEST(Report, EndsWithItsFaults) {
  Report report = sample();
  report.parts.clear();
  report.faults = {{"data/pets/train/cat/1.jpg", "empty file"}};
  EXPECT_EQ(report_as_text(report), "data/pets: ImageFolder\n1 fault:\n  'data/pets/train/cat/1.jpg': empty file\n");
}

TEST(Report, DoesNotCallWholeWhatWasNotDecoded) {
  Report report{.path = "a.png", .kind = "a picture", .parts = {{.pictures = 1, .sizes = {{{3, 4}, 1}}, .bytes = 9}}};
  report.headers_only = true;
  EXPECT_EQ(report_as_text(report),
            "a.png: a picture\n1 picture, 9 B\n  sizes (height x width): all 3x4\nno fault found in the headers\n");
}

TEST(Report, ShowsNamesOnOneLineAndWithoutControlOfATerminal) {
  Report report{.path = "a\nb", .kind = "ImageFolder"};
  report.parts = {{.name = "", .pictures = 2, .classes = {{"c\x1b[2J", 1}, {"d", 1}}}};
  report.notes = {"not looked at: e\nf"};
  report.faults = {{"g\rh", "cannot open 'i\tj'"}};
  EXPECT_EQ(report_as_text(report),
            "a\\nb: ImageFolder\n2 pictures, 2 classes, 0 B\n  c\\x1b[2J  1\n  d         1\n"
            "not looked at: e\\nf\n1 fault:\n  'g\\rh': cannot open 'i\\tj'\n");
}

TEST(Report, AsJson) {
  Report report = sample();
  report.faults = {{"b\xff.jpg", "empty file"}};
  report.notes = {"not looked at: docs"};
  const auto json = nlohmann::json::parse(report_as_json(report));
  EXPECT_EQ(json["path"], "data/pets");
  EXPECT_EQ(json["headers_only"], false);
  EXPECT_EQ(json["faults"][0]["path"], "b\xef\xbf\xbd.jpg");
  EXPECT_EQ(json["faults"][0]["reason"], "empty file");
  EXPECT_EQ(json["notes"][0], "not looked at: docs");
  const auto& part = json["parts"][0];
  EXPECT_EQ(part["name"], "train");
  EXPECT_EQ(part["pictures"], 4);
  EXPECT_EQ(part["bytes"], 2048);
  EXPECT_EQ(part["classes"][1]["name"], "elephant");
  EXPECT_EQ(part["kinds"]["PNG RGB"], 1);
  EXPECT_EQ(part["sizes"]["distinct"], 3);
  EXPECT_EQ(part["sizes"]["median"]["height"], 20);
  EXPECT_EQ(part["sizes"]["largest"]["width"], 30);
}

TEST(FaultFrom, TakesThePathFromTheMessage) {
  const auto words = [](const std::string& message) {
    const Fault fault = fault_from(message, "data/it's");
    return fault.path + "|" + fault.reason;
  };
  EXPECT_EQ(words("'data/it's': empty"), "data/it's|empty");
  EXPECT_EQ(words("'other': empty"), "other|empty");
  EXPECT_EQ(words("cannot open 'x': no"), "x|cannot open: no");
  EXPECT_EQ(words("cannot open 'data/it's': no"), "data/it's|cannot open: no");
  EXPECT_EQ(words("cannot read the folder 'x': no"), "x|cannot read the folder: no");
  EXPECT_EQ(words("cannot read everything"), "data/it's|cannot read everything");
  EXPECT_EQ(words("no words"), "data/it's|no words");
  EXPECT_EQ(fault_from("'a\\nb': empty", "a\nb").path, "a\nb");
}

TEST(FaultFrom, HasWordsForTooLittleMemory) {
  EXPECT_EQ(fault_from(std::bad_alloc(), "a").reason, "more memory needed than there is");
  EXPECT_EQ(fault_from(std::length_error("resize"), "a").reason, "more memory needed than there is");
  EXPECT_EQ(fault_from(std::runtime_error("'a': b"), "a").reason, "b");
}

TEST(Median, IsAPicturesSize) {
  EXPECT_EQ(median({{{1, 1}, 1}}), (Size{1, 1}));
  EXPECT_EQ(median({{{1, 1}, 2}, {{2, 2}, 2}}), (Size{1, 1}));
  EXPECT_EQ(median({{{1, 1}, 1}, {{2, 2}, 2}}), (Size{2, 2}));
}

}  // namespace
}  // namespace lockstep::data
