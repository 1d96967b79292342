#include "lockstep/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include <csignal>
#include <cstring>
#include <filesystem>

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

// 64 sizes, and a comma.
const std::string kOnes = [] {
  std::string ones;
  for (int i = 0; i < 64; ++i) ones += "1,";
  return ones;
}();

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

// Sixty-four sizes and the largest strides that fit.
TEST(Safetensors, ReadsTheLargestShapes) {
  const ScratchFolder folder;
  const std::string header = R"({"a":)" + tensor("U8", "[0,4611686018427387904]", "[0,0]") + R"(,"b":)" +
                             tensor("U8", "[" + kOnes.substr(0, kOnes.size() - 1) + "]", "[0,1]") + "}";
  const TensorMap tensors = read_safetensors(folder.write("a", file_of(header, "x")));
  EXPECT_EQ(tensors.at("a").size(1), std::int64_t(1) << 62);
  EXPECT_EQ(tensors.at("b").dim(), 64);
}

// Views of the memory of other numbers.
TEST(Safetensors, WritesTheNumbersOfConjugateAndNegativeViews) {
  const ScratchFolder folder;
  const at::Tensor numbers = torch::view_as_complex(torch::rand({3, 4, 2}) + 1);
  const TensorMap tensors = {
      {"conjugate", numbers.conj()}, {"negative", at::imag(numbers.conj())}, {"both", at::imag(numbers.conj()).t()}};
  ASSERT_TRUE(tensors.at("conjugate").is_conj());
  ASSERT_TRUE(tensors.at("negative").is_neg());
  write_safetensors(folder.file("a"), tensors);
  for (const auto& [name, tensor] : read_safetensors(folder.file("a"))) {
    EXPECT_TRUE(at::equal(tensor, tensors.at(name).resolve_conj().resolve_neg())) << name;
  }
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

TEST(Safetensors, DataBeginAtAMultipleOfEightBytes) {
  const ScratchFolder folder;
  for (std::size_t length = 1; length <= 8; ++length) {
    write_safetensors(folder.file("a"), {{std::string(length, 'n'), torch::rand({1})}});
    EXPECT_EQ(std::filesystem::file_size(folder.file("a")) % 8, 4u) << "the header, then one float";
  }
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
// Two megabytes, which a function that calls itself for each level does not survive.
const std::string kDeep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
const std::string kName(1000, 'n');

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
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"device":0}})", kFour, "\"w\" does not have exactly"},
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
      {R"({"w":)" + tensor("U8", "[0,4611686018427387904,4611686018427387904]", "[0,0]") + "}", "",
       "\"w\" has an impossible shape"},
      {R"({"w":)" + tensor("U8", "[4611686018427387904,4611686018427387904,0]", "[0,0]") + "}", "",
       "\"w\" has an impossible shape"},
      {R"({"w":)" + tensor("F64", "[0,4611686018427387904]", "[0,0]") + "}", "", "\"w\" has an impossible shape"},
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
      {std::string(100000, '['), "", "the header is nested more than 3 deep"},
      {R"({"w":{"dtype":)" + kDeep + R"(,"shape":[1],"data_offsets":[0,4]}})", kFour, "nested more than 3 deep"},
      {R"({"w":)" + tensor("F32", kDeep, "[0,4]") + "}", kFour, "nested more than 3 deep"},
      {R"({"w":)" + tensor("F32", "[1]", kDeep) + "}", kFour, "nested more than 3 deep"},
      {R"({"__metadata__":{"a":)" + kDeep + "}}", "", "nested more than 3 deep"},
      {R"({"w":)" + kDeep + "}", kFour, "nested more than 3 deep"},
      {R"({"w":)" + tensor("F32", "[[1]]", "[0,4]") + "}", kFour, "nested more than 3 deep"},
      {R"({"w":)" + tensor("F32", R"({"a":1})", "[0,4]") + "}", kFour, "\"w\" has an object where a list of sizes"},
      {R"({"w":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}})", kFour, "\"w\" has the unknown dtype a list"},
      {R"({"w":{"dtype":")" + kName + R"(","shape":[1],"data_offsets":[0,4]}})", kFour,
       "the unknown dtype \"" + kName.substr(0, 80) + "...\" at"},
      {R"({"w":)" + tensor("F32", R"([")" + kName + R"("])", "[0,4]") + "}", kFour,
       "the impossible size \"" + kName.substr(0, 80) + "...\" at"},
      {"{\"" + kName + "\":7}", kFour, "\"" + kName.substr(0, 80) + "...\" does not have exactly"},
      {"{\"" + kName + "\":7,\"" + kName + "\":7}", kFour, "name \"" + kName.substr(0, 80) + "...\" twice"},
      {R"({"a\nb":7})", kFour, R"("a\nb" does not have exactly)"},
      {R"({"w":)" + tensor("F32", "[" + kOnes + "1]", "[0,4]") + "}", kFour, "\"w\" has a list of 65 sizes"},
  };
}

TEST(Safetensors, NamesFileAndOffsetOfEachFault) {
  const ScratchFolder folder;
  for (const Hostile& hostile : hostile_headers()) {
    const std::string path = folder.write("hostile", file_of(hostile.header, hostile.data));
    const std::string message = usage_error([&] { read_safetensors(path); });
    EXPECT_THAT(message, HasSubstr(hostile.complaint));
    EXPECT_THAT(message, ::testing::AllOf(HasSubstr("'" + path + "': "), HasSubstr(" at offset ")));
    EXPECT_LT(message.size(), 400u);
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
  EXPECT_THAT(usage_error([&] {
                write_safetensors(path, {{"w", torch::eye(2).to_sparse()}});
              }),
              HasSubstr("tensor 'w' has the layout Sparse, only dense tensors can be written"));
  EXPECT_THAT(usage_error([&] {
                write_safetensors(path, {{"w", torch::empty({2}, at::TensorOptions().device(at::kMeta))}});
              }),
              HasSubstr("tensor 'w' is on the device meta"));
  EXPECT_THAT(usage_error([&] {
                write_safetensors(path, {{"w\xff", torch::rand({2})}});
              }),
              HasSubstr("tensor 'w\\xff' has a name that is no UTF-8"));
  for (const auto& entry : {std::pair("a\xff", "b"), std::pair("a", "b\xff")}) {
    EXPECT_THAT(usage_error([&] {
                  write_safetensors(path, {}, {{entry.first, entry.second}});
                }),
                HasSubstr("are no UTF-8"));
  }
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
