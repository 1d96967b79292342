#include "lockstep/checkpoint/python_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>

#include "lockstep/base/small_float.h"
#include "lockstep/checkpoint/weights.h"
#include "tests/support/pt_files.h"
#include "tests/support/usage_error.h"

namespace lockstep::checkpoint {
namespace {

using namespace testing::pt;
using ::testing::HasSubstr;
using testing::read_file;
using testing::ScratchFolder;
using testing::usage_error;

TEST(PythonFiles, TensorsOfAnyStridesAndDtypesComeBack) {
  const ScratchFolder folder;
  const at::Tensor base = torch::rand({2, 3, 4});
  const TensorMap tensors = {{"transposed", base.transpose(0, 2)},
                             {"half", base.to(at::kHalf)},
                             {"bfloat16", base.to(at::kBFloat16)},
                             {"conjugate", torch::view_as_complex(torch::rand({3, 2})).conj()},
                             {"truth", base > 0.5},
                             {"small", base.to(at::kFloat8_e4m3fn)},
                             {"word", torch::arange(5).to(at::kUInt16)},
                             {"scalar", torch::tensor(std::int64_t(3))}};
  write_pt(folder.file("a.pt"), tensors);
  const TensorMap again = read_weights(folder.file("a.pt"));
  ASSERT_EQ(again.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(again.at(name).scalar_type(), tensor.scalar_type()) << name;
    const at::Tensor plain = tensor.resolve_conj().contiguous();
    ASSERT_EQ(again.at(name).sizes(), plain.sizes()) << name;
    EXPECT_EQ(std::memcmp(again.at(name).const_data_ptr(), plain.const_data_ptr(), plain.nbytes()), 0) << name;
  }
  write_safetensors(folder.file("a.safetensors"), tensors);
  EXPECT_EQ(read_weights(folder.file("a.safetensors")).size(), tensors.size());
}

TEST(PythonFiles, WhatCannotBeWrittenIsRefused) {
  const ScratchFolder folder;
  EXPECT_THAT(usage_error([&] { write_pt(folder.file("a.pt"), {{"w", at::Tensor()}}); }), HasSubstr("is undefined"));
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(PythonFiles, AModelTakesThemAndNamesWhatItWantsAndCannotHave) {
  const ScratchFolder folder;
  torch::nn::Linear a(2, 3), b(2, 3);
  write_pt(folder.file("a.pt"), state_dict(*a));
  load_file_into(*b, folder.file("a.pt"));
  EXPECT_TRUE(at::equal(a->weight, b->weight));
  const std::string bias = tensor(storage("FloatStorage", "0", 3), {3}, {1});
  const std::string sparse = global("torch._utils", "_rebuild_sparse_tensor") + ")R";
  const std::string file = folder.write(
      "s.pt", archive(dictionary({{"bias", bias}, {"weight", sparse}}), {{"data/0", std::string(12, '\0')}}));
  EXPECT_THAT(usage_error([&] { load_file_into(*b, file); }),
              HasSubstr("has 'weight' as torch._utils._rebuild_sparse_tensor, which is no dense tensor"));
  EXPECT_THAT(usage_error([&] {
                load_file_into(*b, folder.write("m.pt", archive(dictionary({{"bias", bias}}),
                                                                {{"data/0", std::string(12, '\0')}})));
              }),
              HasSubstr("missing weight"));
}

// Our conversions beside ATen's.
TEST(PythonFiles, SmallFloatsAreAtens) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const at::Half half(std::uint16_t(bits), at::Half::from_bits());
    const at::BFloat16 bfloat16(std::uint16_t(bits), at::BFloat16::from_bits());
    if (!std::isnan(float(half))) {
      EXPECT_EQ(base::from_half(std::uint16_t(bits)), double(float(half)));
    }
    if (!std::isnan(float(bfloat16))) {
      EXPECT_EQ(base::from_bfloat16(std::uint16_t(bits)), double(float(bfloat16)));
    }
  }
  at::manual_seed(1);
  const at::Tensor numbers = torch::randn({10000}) * torch::pow(10, torch::rand({10000}) * 14 - 9);
  for (std::int64_t i = 0; i < numbers.size(0); ++i) {
    const float x = numbers[i].item<float>();
    EXPECT_EQ(base::to_half(double(x)), at::Half(x).x) << x;
    EXPECT_EQ(base::to_bfloat16(double(x)), at::BFloat16(x).x) << x;
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
