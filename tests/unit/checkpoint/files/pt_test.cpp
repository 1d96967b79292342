#include "lockstep/checkpoint/files/pt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/usage_error.h"
#include "tests/unit/checkpoint/files/a_state_dict.h"

namespace lockstep::checkpoint {
namespace {

using namespace testing::pt;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ScratchFolder;
using testing::usage_error;

void expect_small(const WeightsFile& file) {
  ASSERT_EQ(file.tensors().size(), 4u);
  EXPECT_THAT(numbers<float>(file, "w"), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(numbers<float>(file, "t"), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(numbers<float>(file, "b"), ElementsAre(4, 5));
  EXPECT_THAT(numbers<std::int64_t>(file, "n"), ElementsAre(7));
  EXPECT_THAT(file.tensors().at("t").sizes, ElementsAre(3, 2));
  EXPECT_THAT(file.tensors().at("n").sizes, ElementsAre());
}

TEST(Pt, BothFormatsAreReadWithSharedStoragesAndStrides) {
  const ScratchFolder folder;
  expect_small(WeightsFile(folder.write("a.pt", small_archive(ordered(small_entries())))));
  expect_small(WeightsFile(folder.write("b.safetensors", small_old_file(dictionary(small_entries())))));
}

TEST(Pt, FieldsOf64BitsAreRead) {
  const ScratchFolder folder;
  expect_small(WeightsFile(folder.write("a", small_archive(dictionary(small_entries()), /*wide_from=*/0))));
}

TEST(Pt, StoragesOfAnyDeviceAndOfAPartAreRead) {
  const ScratchFolder folder;
  const std::string cuda = tensor(
      tuple(text("storage") + global("torch.cuda", "FloatStorage") + text("0") + text("cuda:1") + integer(6)) + "Q",
      {2}, {1}, 1);
  const std::string part =
      tensor(storage("FloatStorage", "0", 6, "cpu", tuple(text("view") + integer(2) + integer(3))), {2}, {1}, 1);
  const WeightsFile file(folder.write(
      "a", small_old_file(dictionary({{"cuda", cuda}, {"part", part}, {"n", small_entries()[3].second}}))));
  EXPECT_THAT(numbers<float>(file, "cuda"), ElementsAre(1, 2));
  EXPECT_THAT(numbers<float>(file, "part"), ElementsAre(3, 4));
}

TEST(Pt, NumbersWithTheHighestByteFirstAreTurned) {
  const ScratchFolder folder;
  std::string turned;
  for (std::size_t i = 0; i < 6; ++i)
    for (std::size_t j = 4; j-- > 0;) turned += kSix[4 * i + j];
  const std::string value = dictionary({small_entries()[0], small_entries()[1]});
  const WeightsFile file(folder.write("a", archive(value, {{"byteorder", "big"}, {"data/0", turned}})));
  EXPECT_THAT(numbers<float>(file, "w"), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(numbers<float>(file, "t"), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(usage_error([&] {
                WeightsFile(folder.write("b", archive(value, {{"byteorder", "mixed"}, {"data/0", kSix}})));
              }),
              HasSubstr("byte order 'mixed'; it is little or big"));
}

TEST(Pt, ParametersAndDtypesWithoutAStorageOfTheirOwn) {
  const ScratchFolder folder;
  const std::string parameter =
      global("torch._utils", "_rebuild_parameter") +
      tuple(small_entries()[0].second + "\x88" + global("collections", "OrderedDict") + ")R") + "R";
  const std::string bytes =
      tuple(text("storage") + global("torch.storage", "UntypedStorage") + text("0") + text("cpu") + integer(24)) + "Q";
  const std::string words =
      global("torch._utils", "_rebuild_tensor_v3") +
      tuple(bytes + integer(2) + integers({2}) + integers({1}) + "\x89" + "}" + global("torch", "uint16")) + "R";
  const WeightsFile file(folder.write("a", archive(dictionary({{"p", parameter}}), {{"data/0", kSix}})));
  EXPECT_THAT(numbers<float>(file, "p"), ElementsAre(0, 1, 2, 3, 4, 5));
  const WeightsFile untyped(folder.write("b", archive(dictionary({{"u", words}}), {{"data/0", kSix}})));
  EXPECT_EQ(untyped.tensors().at("u").dtype, "U16");
  EXPECT_THAT(numbers<std::uint16_t>(untyped, "u"), ElementsAre(0, 0x3f80));
}

std::string refusal(const std::string& content) {
  const ScratchFolder folder;
  return usage_error([&] { WeightsFile(folder.write("f", content)); });
}

std::string refusal_of(const std::string& tensor) { return refusal(small_archive(dictionary({{"w", tensor}}))); }

TEST(Pt, TensorsThatTheirStorageCannotHoldAreRefused) {
  const std::string six = storage("FloatStorage", "0", 6);
  EXPECT_THAT(refusal_of(tensor(six, {7}, {1})), AllOf(HasSubstr("element 6 of a storage of 6"), HasSubstr("offset")));
  EXPECT_THAT(refusal_of(tensor(six, {2, 3}, {4, 1})), HasSubstr("element 6 of a storage of 6"));
  EXPECT_THAT(refusal_of(tensor(six, {2}, {1}, 5)), HasSubstr("element 6 of a storage of 6"));
  EXPECT_THAT(refusal_of(tensor(six, {-1}, {1})), HasSubstr("-1 as sizes"));
  EXPECT_THAT(refusal_of(tensor(six, {1}, {-1})), HasSubstr("-1 as strides"));
  EXPECT_THAT(refusal_of(tensor(six, {1}, {1, 1})), HasSubstr("1 sizes and 2 strides"));
  EXPECT_THAT(refusal_of(tensor(six, {1 << 30, 1 << 30, 1 << 30}, {0, 0, 0})), HasSubstr("impossible shape"));
  EXPECT_THAT(refusal_of(tensor(six, {1 << 20}, {0})), HasSubstr("4194304 bytes in a file of"));
  EXPECT_THAT(refusal_of(tensor(storage("FloatStorage", "0", 5), {2}, {1})), HasSubstr("24 bytes, 5 elements of 4"));
  EXPECT_THAT(refusal_of(tensor(storage("FloatStorage", "9", 6), {2}, {1})), HasSubstr("no entry 'any/data/9'"));
  EXPECT_THAT(refusal_of(tensor(storage("QInt8Storage", "0", 6), {2}, {1})), HasSubstr("kind torch.QInt8Storage"));
}

TEST(Pt, ManyTensorsOfOneStorageAreNotMoreThanTheFile) {
  Entries many;
  for (int i = 0; i < 1000; ++i) many.push_back({std::to_string(i), small_entries()[0].second});
  const std::string big(std::size_t(1) << 20, 'x');
  const std::string whole = tensor(storage("ByteStorage", "0", 1 << 20), {1 << 20}, {1});
  Entries copies;
  for (int i = 0; i < 9; ++i) copies.push_back({std::to_string(i), whole});
  EXPECT_THAT(refusal(archive(dictionary(copies), {{"data/0", big}})), HasSubstr("more than eight times the file"));
  const ScratchFolder folder;
  EXPECT_EQ(WeightsFile(folder.write("a", small_archive(dictionary(many)))).tensors().size(), 1000u);
}

TEST(Pt, WhatIsNoStateDictIsNamed) {
  EXPECT_THAT(refusal(small_archive(small_entries()[0].second)),
              HasSubstr("torch._utils._rebuild_tensor_v2 was saved; save the state_dict()"));
  EXPECT_THAT(refusal(small_archive(dictionary({{"epoch", integer(3)}}))), HasSubstr("no weights"));
  EXPECT_THAT(refusal(archive("}", {{"constants.pkl", pickle(")")}})), HasSubstr("TorchScript"));
  EXPECT_THAT(refusal(pickle(integer(1))), HasSubstr("1 in place of its number"));
  EXPECT_THAT(refusal(old_file("}", {{"5", {0, ""}}})), HasSubstr("storage '5', of which the pickle says nothing"));
}

// The prefixes of Python's: each either reads as the same names and shapes or is refused in one line.
TEST(Pt, EveryTruncationIsRefused) {
  const ScratchFolder folder;
  for (const std::string& whole : {small_archive(ordered(small_entries())), small_old_file(ordered(small_entries()))})
    for (std::size_t length = 0; length < whole.size(); ++length) {
      const std::string path = folder.write("cut", whole.substr(0, length));
      EXPECT_THAT(usage_error([&] { WeightsFile file(path); }), AllOf(HasSubstr(path), HasSubstr("offset"))) << length;
    }
}

TEST(Pt, EveryFlippedBitIsRefusedOrReadWithNothingBeyondTheFile) {
  const ScratchFolder folder;
  int read = 0, refused = 0;
  for (const std::string& whole : {small_archive(ordered(small_entries())), small_old_file(ordered(small_entries()))})
    for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      std::string flipped = whole;
      flipped[bit / 8] = char(flipped[bit / 8] ^ (1 << bit % 8));
      try {
        const WeightsFile file(folder.write("flipped", flipped));
        std::uint64_t bytes = 0;
        for (const auto& [name, tensor] : file.tensors()) {
          bytes += tensor.bytes();
          std::vector<std::byte> out(tensor.bytes());
          file.read(tensor, out.data());
        }
        EXPECT_LE(bytes, 8 * flipped.size());
        ++read;
      } catch (const UsageError& error) {
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
        ++refused;
      }
    }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace lockstep::checkpoint
