#include "lockstep/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include <csignal>
#include <cstring>

#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::HasSubstr;
using testing::read_file;
using testing::ScratchFolder;
using testing::usage_error;

void expect_equal(const TensorMap& a, const TensorMap& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    const at::Tensor& other = b.at(name);
    EXPECT_EQ(other.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_EQ(other.sizes(), tensor.sizes()) << name;
    if (tensor.numel() == 0) continue;  // nothing to compare, at no address
    const at::Tensor bytes = tensor.contiguous();
    EXPECT_EQ(std::memcmp(bytes.const_data_ptr(), other.const_data_ptr(), other.nbytes()), 0) << name;
  }
}

std::string file_of(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& range) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + range + "}";
}

TEST(Safetensors, EveryDtypeComesBackBitForBit) {
  const ScratchFolder folder;
  TensorMap tensors;
  for (const auto dtype :
       {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kComplexFloat, at::kLong, at::kInt, at::kShort,
        at::kChar, at::kByte, at::kBool, at::kUInt16, at::kUInt32, at::kUInt64, at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
    tensors.emplace(std::string("of.") + c10::toString(dtype), torch::arange(6).view({2, 3}).to(dtype));
  }
  tensors.emplace("scalar", torch::tensor(3.5));
  tensors.emplace("empty", torch::empty({2, 0, 3}));
  tensors.emplace("nan", torch::full({2}, NAN));
  const std::string path = folder.file("a.safetensors");
  write_safetensors(path, tensors, {{"format", "pt"}});
  expect_equal(tensors, read_safetensors(path));
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Safetensors, WritesAnyStridesRowMajor) {
  const ScratchFolder folder;
  const at::Tensor base = torch::arange(24, torch::kFloat).view({1, 2, 3, 4});
  const TensorMap tensors = {{"transposed", base.transpose(1, 3)},
                             {"last", base.contiguous(at::MemoryFormat::ChannelsLast)},
                             {"slice", base.slice(3, 1, 3)},
                             {"wants grad", base.clone().requires_grad_()}};
  const std::string path = folder.file("a");
  write_safetensors(path, tensors);
  expect_equal(tensors, read_safetensors(path));
}

TEST(Safetensors, TheFileIsByteForByteWhatTheFormatSays) {
  const ScratchFolder folder;
  const std::string path = folder.file("a");
  write_safetensors(path, {{"b", torch::tensor({1.0f})}, {"a", torch::tensor({true})}, {"c", torch::tensor({2.0f})}},
                    {{"format", "pt"}});
  std::string header = R"({"__metadata__":{"format":"pt"},"b":)" + tensor("F32", "[1]", "[0,4]") + R"(,"c":)" +
                       tensor("F32", "[1]", "[4,8]") + R"(,"a":)" + tensor("BOOL", "[1]", "[8,9]") + "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string data("\x00\x00\x80\x3f\x00\x00\x00\x40\x01", 9);
  EXPECT_EQ(read_file(path), file_of(header, data));
}

TEST(Safetensors, NoTensorsIsAFileToo) {
  const ScratchFolder folder;
  write_safetensors(folder.file("a"), {});
  EXPECT_TRUE(read_safetensors(folder.file("a")).empty());
}

TEST(Safetensors, TruncationAtEveryByteIsOneClearError) {
  const ScratchFolder folder;
  write_safetensors(folder.file("whole"), {{"w", torch::rand({3})}, {"b", torch::rand({2})}});
  const std::string whole = read_file(folder.file("whole"));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::string path = folder.write("cut", whole.substr(0, length));
    EXPECT_THAT(usage_error([&] { read_safetensors(path); }),
                ::testing::AllOf(HasSubstr("'" + path + "'"), HasSubstr("offset")));
  }
}

// Any byte of length and header may become any other: a UsageError or a valid file, nothing else.
TEST(Safetensors, ChangedBytesNeverDoWorseThanAnError) {
  const ScratchFolder folder;
  write_safetensors(folder.file("whole"), {{"w", torch::rand({3})}, {"b", torch::rand({2})}});
  const std::string whole = read_file(folder.file("whole"));
  int refused = 0;
  for (std::size_t place = 0; place < whole.size() - 20; ++place) {
    for (const char value : {'\0', '"', '9', '}', ',', '-', '\xff'}) {
      std::string changed = whole;
      changed[place] = value;
      const std::string path = folder.write("changed", changed);
      try {
        read_safetensors(path);
      } catch (const UsageError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 500);
}

struct Hostile {
  std::string header, data, complaint;
};

const std::string kFour(4, 'x');

std::vector<Hostile> hostile_headers() {
  const std::string good = tensor("F32", "[1]", "[0,4]");
  return {
      {"{", "", "the header is no valid JSON at offset 9"},
      {"nonsense", "", "the header is no valid JSON at offset 9"},
      {"{\"\xff\":1}", "", "the header is no valid JSON"},
      {"[]", "", "the header is not a JSON object at offset 8"},
      {"", "", "the header is no valid JSON at offset 8"},
      {R"({"w":)" + good + R"(,"w":)" + good + "}", kFour, "name \"w\" twice in the header"},
      {R"({"w":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", kFour, "name \"dtype\" twice"},
      {R"({"__metadata__":{"a":1}})", "", "\"__metadata__\" is not a map of texts at offset 9"},
      {R"({"w":{"dtype":"F32","shape":[1]}})", kFour, "\"w\" does not have exactly dtype, shape and data_offsets"},
      {R"({"w":7})", kFour, "\"w\" does not have exactly"},
      {R"({"w":)" + tensor("F33", "[1]", "[0,4]") + "}", kFour, R"("w" has the unknown dtype "F33" at offset 9)"},
      {R"({"w":)" + tensor("F32", "1", "[0,4]") + "}", kFour, "\"w\" has 1 where a list of sizes belongs"},
      {R"({"w":)" + tensor("F32", "[-1]", "[0,4]") + "}", kFour, "\"w\" has the impossible size -1"},
      {R"({"w":)" + tensor("F32", "[1.5]", "[0,4]") + "}", kFour, "\"w\" has the impossible size 1.5"},
      {R"({"w":)" + tensor("F32", "[null]", "[0,4]") + "}", kFour, "\"w\" has the impossible size null"},
      {R"({"w":)" + tensor("F32", "[1e400]", "[0,4]") + "}", kFour, "the header is no valid JSON"},
      {R"({"w":)" + tensor("F32", "[18446744073709551615]", "[0,4]") + "}", kFour,
       "impossible size 18446744073709551615"},
      {R"({"w":)" + tensor("F32", "[4294967296,4294967296,4]", "[0,4]") + "}", kFour, "\"w\" has an impossible shape"},
      {R"({"w":)" + tensor("F32", "[2]", "[0,4]") + "}", kFour, "bytes [0, 4), but shape and dtype make 8"},
      {R"({"w":)" + tensor("F32", "[1]", "[0,4,4]") + "}", kFour, "\"w\" does not have two data_offsets"},
      {R"({"w":)" + tensor("F32", "[1]", "[4,0]") + "}", kFour, "bytes [4, 0) of data that are 4 bytes long"},
      {R"({"w":)" + tensor("F32", "[2]", "[0,8]") + "}", kFour, "bytes [0, 8) of data that are 4 bytes long"},
      {R"({"v":)" + good + R"(,"w":)" + tensor("F32", "[1]", "[2,6]") + "}", "xxxxxx", "\"w\" overlaps the one before"},
      {R"({"v":)" + good + R"(,"w":)" + good + "}", kFour, "\"w\" overlaps the one before"},
      {R"({"v":)" + good + R"(,"w":)" + tensor("F32", "[1]", "[5,9]") + "}", "xxxxxxxxx",
       "\"w\" leaves a hole before it"},
      {R"({"w":)" + good + "}", "xxxxx", "trailing bytes that belong to no tensor"},
      {"{}", "x", "trailing bytes that belong to no tensor at offset 10"},
      {std::string(100000, '['), "", "the header is no valid JSON"},
  };
}

TEST(Safetensors, NamesFileAndOffsetOfEachFault) {
  const ScratchFolder folder;
  for (const Hostile& hostile : hostile_headers()) {
    const std::string path = folder.write("hostile", file_of(hostile.header, hostile.data));
    const std::string message = usage_error([&] { read_safetensors(path); });
    EXPECT_THAT(message, HasSubstr(hostile.complaint));
    EXPECT_THAT(message, ::testing::AllOf(HasSubstr("'" + path + "': "), HasSubstr(" at offset ")));
  }
}

TEST(Safetensors, AHeaderOutsideTheFileIsNotReadAndNoMemoryIsTaken) {
  const ScratchFolder folder;
  for (const std::uint64_t length : {std::uint64_t(3), std::uint64_t(1) << 40, ~std::uint64_t(0)}) {
    std::string content(8, '\0');
    std::memcpy(content.data(), &length, 8);
    const std::string path = folder.write("a", content + "{}");
    EXPECT_EQ(usage_error([&] { read_safetensors(path); }),
              "'" + path + "': a header of " + std::to_string(length) + " bytes in a file of 10 at offset 0");
  }
}

TEST(Safetensors, RefusesWhatIsNoFile) {
  const ScratchFolder folder;
  EXPECT_THAT(usage_error([&] { read_safetensors(folder.file("no")); }), HasSubstr("No such file or directory"));
  EXPECT_THAT(usage_error([&] { read_safetensors(folder.path()); }), HasSubstr("not a regular file"));
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(usage_error([&] { read_safetensors(pipe); }), HasSubstr("not a regular file"));
}

TEST(Safetensors, RefusesTensorsItCannotWriteAndLeavesTheOldFile) {
  const ScratchFolder folder;
  const std::string path = folder.write("a", "old");
  EXPECT_THAT(usage_error([&] { write_safetensors(path, {{"w", at::Tensor()}}); }), HasSubstr("'w' is undefined"));
  EXPECT_THAT(usage_error([&] {
                write_safetensors(path, {{"w", torch::rand({2}, torch::kComplexDouble)}});
              }),
              HasSubstr("'w' has the dtype ComplexDouble, which safetensors does not know"));
  EXPECT_THAT(usage_error([&] {
                write_safetensors(path, {{"__metadata__", torch::rand({2})}});
              }),
              HasSubstr("can be called __metadata__"));
  EXPECT_THAT(usage_error([&] { write_safetensors(folder.file("no/a"), {}); }), HasSubstr("No such file or directory"));
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Safetensors, AFullDiskLeavesTheOldFileAndNothingElse) {
  const ScratchFolder folder;
  const std::string path = folder.write("a", "old");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 1000, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THROW(write_safetensors(path, {{"w", torch::rand({1000})}}), Error);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(folder.entries(), 1u);
}

}  // namespace
}  // namespace lockstep::checkpoint
