#include "lockstep/checkpoint/files/write_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <cstring>

#include "lockstep/checkpoint/files/average.h"
#include "lockstep/checkpoint/files/compare.h"
#include "tests/support/usage_error.h"
#include "tests/unit/checkpoint/files/a_state_dict.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_file;
using testing::ScratchFolder;
using testing::usage_error;

template <class Number>
TensorSource source(const std::string& dtype, std::vector<std::int64_t> sizes, std::vector<Number> numbers) {
  return {.dtype = dtype, .sizes = std::move(sizes), .fill = [numbers](std::byte* out) {
            std::memcpy(out, numbers.data(), numbers.size() * sizeof(Number));
          }};
}

TensorSources every_dtype() {
  TensorSources sources;
  for (const char* dtype : {"F64", "F32", "F16", "BF16", "C64", "I64", "I32", "I16", "I8", "U8", "BOOL", "U64", "U32",
                            "U16", "F8_E4M3", "F8_E5M2"})
    sources[dtype] = source<std::uint8_t>(dtype, {1, 2}, std::vector<std::uint8_t>(16, 1));
  sources["F64"].sizes = {2};
  for (auto& [dtype, one] : sources)
    one.fill = [bytes = StoredTensor{.dtype = dtype, .sizes = one.sizes}.bytes()](std::byte* out) {
      for (std::uint64_t i = 0; i < bytes; ++i) out[i] = std::byte(i % 2);
    };
  sources["empty"] = source<float>("F32", {2, 0, 3}, {0});
  sources["empty"].fill = [](std::byte*) {};
  sources["scalar"] = source<float>("F32", {}, {2.5F});
  return sources;
}

TEST(WriteWeights, EveryDtypeComesBackFromBothFormatsAndIsEqual) {
  const ScratchFolder folder;
  write_weights(folder.file("a.pt"), every_dtype());
  write_weights(folder.file("a.safetensors"), every_dtype());
  const WeightsFile pt(folder.file("a.pt")), safetensors(folder.file("a.safetensors"));
  const Comparison found = compare(pt, safetensors);
  EXPECT_THAT(found.differences, ElementsAre());
  EXPECT_EQ(found.compared, every_dtype().size());
  EXPECT_THAT(numbers<float>(pt, "scalar"), ElementsAre(2.5F));
  EXPECT_EQ(folder.entries(), 2u);
}

TEST(WriteWeights, EqualTensorsGiveEqualBytesUnderAnyName) {
  const ScratchFolder folder;
  write_pt(folder.file("a.pt"), every_dtype());
  write_pt(folder.file("b.pt"), every_dtype());
  EXPECT_EQ(read_file(folder.file("a.pt")), read_file(folder.file("b.pt")));
}

TEST(WriteWeights, EntriesBeginAtAMultipleOf64AndHaveTheirChecksum) {
  const ScratchFolder folder;
  write_pt(folder.file("a.pt"), every_dtype());
  const std::string bytes = read_file(folder.file("a.pt"));
  const InputFile file(folder.file("a.pt"));
  const ZipArchive archive(file);
  for (std::size_t i = 0; i < every_dtype().size(); ++i) {
    const Range range = archive.range("archive/data/" + std::to_string(i));
    EXPECT_EQ(range.begin % 64, 0u);
    const std::size_t header = bytes.rfind("PK\x03\x04", range.begin - 1);
    std::uint32_t crc = 0;
    std::memcpy(&crc, bytes.data() + header + 14, sizeof crc);
    EXPECT_EQ(crc, ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data() + range.begin), range.bytes));
  }
}

TEST(WriteWeights, RefusesNamesAndDtypesThatTheFormatHasNot) {
  const ScratchFolder folder;
  const auto refusal = [&](const std::string& file, const std::string& name, const std::string& dtype) {
    return usage_error([&] { write_weights(folder.file(file), {{name, source<float>(dtype, {1}, {1})}}); });
  };
  EXPECT_THAT(refusal("a.pt", "\xff", "F32"), HasSubstr("no UTF-8"));
  EXPECT_THAT(refusal("a.pt", "w", "F7"), HasSubstr("'w' has a dtype that torch does not know"));
  EXPECT_THAT(refusal("a.bin", "w", "F32"), HasSubstr("ends in .pt, .pth, .pth.tar or .safetensors expected"));
  EXPECT_EQ(folder.entries(), 0u);
}

class TwoFiles : public ::testing::Test {
 protected:
  std::vector<WeightsFile> files(const TensorSources& a, const TensorSources& b) {
    write_weights(folder_.file("a.pt"), a);
    write_weights(folder_.file("b.safetensors"), b);
    std::vector<WeightsFile> files;
    files.emplace_back(folder_.file("a.pt"));
    files.emplace_back(folder_.file("b.safetensors"));
    return files;
  }
  std::vector<std::string> differences(const TensorSources& a, const TensorSources& b) {
    const std::vector<WeightsFile> both = files(a, b);
    return compare(both[0], both[1]).differences;
  }
  ScratchFolder folder_;
};

using Compare = TwoFiles;
using Average = TwoFiles;

TEST_F(Compare, SaysNamesShapesAndTheLargestDifference) {
  const TensorSources a = {{"both", source<float>("F32", {2, 2}, {1, 2, 3, 4})},
                           {"gone", source<float>("F32", {1}, {1})},
                           {"kind", source<float>("F32", {1}, {1})},
                           {"same", source<float>("F32", {1}, {NAN})},
                           {"shape", source<float>("F32", {2, 1}, {1, 2})}};
  const TensorSources b = {{"both", source<float>("F32", {2, 2}, {1, 2.5, 3, 2})},
                           {"kind", source<std::int32_t>("I32", {1}, {1})},
                           {"new", source<float>("F32", {1}, {1})},
                           {"same", source<float>("F32", {1}, {NAN})},
                           {"shape", source<float>("F32", {2}, {1, 2})}};
  EXPECT_THAT(differences(a, b), ElementsAre("both: F32 [2, 2], 2 of 4 elements differ, by 2 at most",
                                             AllOf(HasSubstr("gone: F32 [1] only in '"), HasSubstr("a.pt'")),
                                             "kind: F32 [1] and I32 [1]", "shape: F32 [2, 1] and F32 [2]",
                                             AllOf(HasSubstr("new: F32 [1] only in '"), HasSubstr("b.safetensors'"))));
}

TEST_F(Compare, IsExactForIntegersAndKnowsWhatIsNoNumber) {
  const auto difference = [&](const TensorSource& a, const TensorSource& b) {
    return differences({{"w", a}}, {{"w", b}}).at(0);
  };
  constexpr std::int64_t kFar = std::int64_t(1) << 60;
  EXPECT_THAT(difference(source<std::int64_t>("I64", {1}, {kFar}), source<std::int64_t>("I64", {1}, {kFar + 1})),
              HasSubstr("by 1 at most"));
  EXPECT_THAT(difference(source<std::int8_t>("I8", {1}, {-128}), source<std::int8_t>("I8", {1}, {127})),
              HasSubstr("by 255 at most"));
  EXPECT_THAT(difference(source<float>("F32", {2}, {NAN, 1}), source<float>("F32", {2}, {1, 1})),
              HasSubstr("1 of 2 elements differ, by nan at most"));
  EXPECT_THAT(difference(source<float>("F32", {1}, {0.0F}), source<float>("F32", {1}, {-0.0F})),
              HasSubstr("1 of 1 elements differ, by 0 at most"));
  EXPECT_THAT(difference(source<std::uint16_t>("F16", {1}, {0x3c00}), source<std::uint16_t>("F16", {1}, {0x3800})),
              HasSubstr("by 0.5 at most"));
  EXPECT_THAT(difference(source<std::uint16_t>("BF16", {1}, {0x3f80}), source<std::uint16_t>("BF16", {1}, {0x4000})),
              HasSubstr("by 1 at most"));
  EXPECT_THAT(difference(source<std::uint8_t>("F8_E4M3", {1}, {0x38}), source<std::uint8_t>("F8_E4M3", {1}, {0x01})),
              HasSubstr("by 0.998046875 at most"));
  EXPECT_THAT(difference(source<std::uint8_t>("F8_E5M2", {1}, {0x3c}), source<std::uint8_t>("F8_E5M2", {1}, {0x40})),
              HasSubstr("by 1 at most"));
}

TEST_F(Average, IsTheMeanInFloat64AndTheLastOfIntegers) {
  // In float32 the sum of the first two would be infinite.
  const TensorSources a = {{"c", source<float>("C64", {1}, {1, 2})},
                           {"h", source<std::uint16_t>("F16", {1}, {0x3c00})},
                           {"n", source<std::int64_t>("I64", {}, {3})},
                           {"w", source<float>("F32", {2}, {3e38F, 1})}};
  const TensorSources b = {{"c", source<float>("C64", {1}, {3, -2})},
                           {"h", source<std::uint16_t>("F16", {1}, {0x3c01})},
                           {"n", source<std::int64_t>("I64", {}, {8})},
                           {"w", source<float>("F32", {2}, {1e38F, 2})}};
  const std::vector<WeightsFile> both = files(a, b);
  write_weights(folder_.file("mean.pt"), average_of(both));
  const WeightsFile mean(folder_.file("mean.pt"));
  EXPECT_THAT(numbers<float>(mean, "c"), ElementsAre(2, 0));
  EXPECT_THAT(numbers<std::uint16_t>(mean, "h"), ElementsAre(0x3c00));
  EXPECT_THAT(numbers<std::int64_t>(mean, "n"), ElementsAre(8));
  EXPECT_THAT(numbers<float>(mean, "w"), ElementsAre(2e38F, 1.5F));
}

TEST_F(Average, OfFilesThatDifferIsRefused) {
  const std::vector<WeightsFile> other =
      files({{"w", source<float>("F32", {1}, {1})}}, {{"w", source<float>("F32", {2}, {1, 2})}});
  EXPECT_THAT(usage_error([&] { average_of(other); }), HasSubstr("so there is no mean: w: F32 [1] and F32 [2]"));
  const TensorSources small = {{"w", source<std::uint8_t>("F8_E4M3", {1}, {1})}};
  const std::vector<WeightsFile> float8 = files(small, small);
  EXPECT_THAT(usage_error([&] { average_of(float8); }), HasSubstr("'w' is F8_E4M3, of which no mean is made"));
}

}  // namespace
}  // namespace lockstep::checkpoint
