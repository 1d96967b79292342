#include "lockstep/checkpoint/files/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/pt_files.h"
#include "tests/support/usage_error.h"

namespace lockstep::checkpoint {
namespace {

using Kind = PickledValue::Kind;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ScratchFolder;
using testing::usage_error;
namespace pt = testing::pt;
using namespace std::string_literals;

// A pickle in a file of its own.
class Unpickled {
 public:
  explicit Unpickled(const std::string& bytes)
      : bytes_(bytes), file_(folder_.write("p", bytes)), pickle_(unpickle(file_, bytes_, 0)) {}
  const PickledValue& root() const { return pickle_.at(pickle_.root); }
  const PickledValue& item(std::size_t i) const { return pickle_.at(root().items.at(i)); }
  std::string described_root() const { return described(pickle_, root()); }
  const Pickle& pickle() const { return pickle_; }

 private:
  ScratchFolder folder_;
  std::string bytes_;
  InputFile file_;
  Pickle pickle_;
};

std::string pickle_refusal(const std::string& bytes) {
  return usage_error([&] { Unpickled unpickled(bytes); });
}

// What Python 3's pickle.dumps writes, by protocols.
TEST(Pickle, ReadsWhatPythonWrites) {
  const Unpickled two(
      "\x80\x02]q\x00(K\x01M\x00\x01J\xff\xff\xff\xff\x8a\x05\x00\x00\x00\x00\x01G?\xe0\0\0\0\0\0\0X\x01\0\0\0"s
      "aq\x01h\x01N\x88\x89)}e.");
  const std::int64_t integers[] = {1, 256, -1, std::int64_t(1) << 32};
  ASSERT_EQ(two.root().kind, Kind::list);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(two.item(i).integer, integers[i]);
  EXPECT_EQ(two.item(4).real, 0.5);
  EXPECT_EQ(two.item(5).text, "a");
  EXPECT_EQ(two.item(6).text, "a");
  EXPECT_EQ(two.item(7).kind, Kind::none);
  EXPECT_EQ(two.item(8).integer, 1);
  EXPECT_EQ(two.item(9).integer, 0);
  EXPECT_EQ(two.item(10).kind, Kind::tuple);
  EXPECT_EQ(two.item(11).kind, Kind::dictionary);
  const std::string four =
      "\x8c\x04name\x94"
      "C\x02xy\x94\x8c\x04math\x94\x8c\x03sin\x94\x93\x94\x87\x94.";
  const Unpickled framed(std::string("\x80\x04\x95") + char(four.size()) + std::string(7, '\0') + four);
  EXPECT_EQ(framed.item(0).text, "name");
  EXPECT_EQ(framed.item(1).kind, Kind::bytes);
  EXPECT_EQ(framed.item(2).text, "math");
  EXPECT_EQ(framed.item(2).name, "sin");
}

TEST(Pickle, NegativeNumbersOfAnyWidth) {
  for (int bytes = 1; bytes <= 8; ++bytes) {
    const Unpickled one("\x80\x02\x8a" + std::string(1, char(bytes)) + "\xfe" +
                        std::string(std::size_t(bytes) - 1, '\xff') + ".");
    EXPECT_EQ(one.root().integer, -2) << bytes;
  }
  EXPECT_EQ(Unpickled(std::string("\x80\x02\x8a\x00.", 5)).root().integer, 0);
  EXPECT_EQ(Unpickled("\x80\x02\x8a\x09" + std::string(9, '\x01') + ".").root().kind, Kind::large);
  EXPECT_EQ(Unpickled("\x80\x02I-12345678901\n.").root().integer, -12345678901);
}

// os.system('touch ran') stays a value: nothing is looked up, nothing is called.
TEST(Pickle, CallsStayValues) {
  const Unpickled hostile(pt::pickle(pt::global("os", "system") + pt::text("touch ran") + "\x85R"));
  EXPECT_EQ(hostile.root().kind, Kind::call);
  EXPECT_EQ(hostile.described_root(), "os.system");
  EXPECT_EQ(Unpickled(pt::pickle(pt::name_space())).described_root(), "argparse.Namespace");
}

TEST(Pickle, AListMayHoldItself) {
  const Unpickled loop(
      "\x80\x02]q\x00h\x00"s
      "a.");
  EXPECT_EQ(loop.root().items.at(0), loop.pickle().root);
}

TEST(Pickle, RefusesNamingOffsetAndOpcode) {
  EXPECT_THAT(pickle_refusal("\x80\x02"), AllOf(HasSubstr("ends without its STOP"), HasSubstr("offset 2")));
  EXPECT_THAT(pickle_refusal("\x80\x06."), HasSubstr("opcode 0x80 says protocol 6; 2 to 5 are read at offset 0"));
  EXPECT_THAT(pickle_refusal("\x80\x02."), HasSubstr("opcode 0x2e '.' finds nothing on the stack at offset 2"));
  EXPECT_THAT(pickle_refusal("\x80\x02NN."), HasSubstr("values left on the stack"));
  EXPECT_THAT(pickle_refusal("\x80\x02NF1\n."), HasSubstr("opcode 0x46 'F' is none of those that torch.save writes"));
  EXPECT_THAT(pickle_refusal("\x80\x02X\xff\xff\xff\xff"
                             "a."),
              HasSubstr("wants 4294967295 bytes, 2 are left"));
  EXPECT_THAT(pickle_refusal("\x80\x02h\x07."), HasSubstr("wants memo 7, which was not written"));
  EXPECT_THAT(pickle_refusal("\x80\x02t."), HasSubstr("finds no mark"));
  EXPECT_THAT(pickle_refusal("\x80\x02(N}NNNu."), HasSubstr("opcode 0x75"));
  EXPECT_THAT(pickle_refusal("\x80\x02}(Nu."), HasSubstr("a key without a value"));
  EXPECT_THAT(pickle_refusal("\x80\x02NNNs."), HasSubstr("puts items into None"));
  EXPECT_THAT(pickle_refusal("\x80\x02NNR."), HasSubstr("calls with None"));
  EXPECT_THAT(pickle_refusal("\x80\x02"
                             "cos\n."),
              HasSubstr("wants a line, and none ends"));
  EXPECT_THAT(pickle_refusal("\x80\x02NN\x93."), HasSubstr("names of a module and a class"));
  EXPECT_THAT(pickle_refusal("\x80\x04\x95" + std::string("\xff\0\0\0\0\0\0\0", 8) + "N."),
              HasSubstr("a frame of 255 bytes"));
  EXPECT_THAT(pickle_refusal("\x80\x02Ix\n."), HasSubstr("'x' is there"));
}

TEST(Pickle, NestingAndStackHaveLimits) {
  EXPECT_THAT(pickle_refusal("\x80\x02" + std::string(1001, '(') + "."), HasSubstr("nested more than 1000 deep"));
  EXPECT_THAT(pickle_refusal("\x80\x02N" + std::string(std::size_t(1) << 20, '2') + "."),
              HasSubstr("1048576 values on the stack"));
  std::string values = "\x80\x02";
  for (int i = 0; i < (1 << 22) + 1; ++i) values += "N0";
  EXPECT_THAT(pickle_refusal(values + "."), HasSubstr("more than 4194304 values"));
}

}  // namespace
}  // namespace lockstep::checkpoint
