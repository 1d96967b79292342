#include "lockstep/data/mixed_batch.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using testing::usage_error;

constexpr int kSamples = 8;
constexpr BatchKey kKey = {.seed = 3, .epoch = 2, .batch = 7};

Batch numbered(at::ScalarType type = at::kFloat, at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  const at::Tensor data = torch::arange(kSamples * 3 * 6 * 5, at::kFloat).view({kSamples, 3, 6, 5}).div(64);
  return {data.to(type).contiguous(format), torch::arange(kSamples, at::kLong) % 4};
}

// Each product and the sum rounded to the tensor's type, as in Python (tests/parity/mixup_test.py).
at::Tensor mixed(const at::Tensor& plain, double lambda) {
  const auto part = [&](const at::Tensor& tensor, double weight) {
    return tensor.to(at::kFloat).mul(weight).to(plain.scalar_type()).to(at::kFloat);
  };
  return (part(plain.roll(1, 0), 1 - lambda) + part(plain, lambda)).to(plain.scalar_type());
}

TEST(MixBatch, MixesPicturesAndLabelsAlike) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const at::MemoryFormat format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      const Batch plain = numbered(type, format);
      Batch batch = numbered(type, format);
      mix_batch(batch, MixUp(1), 4, kKey);
      base::RandomStream random = batch_stream(kKey);
      const double lambda = draw_beta(1, random);
      EXPECT_TRUE(at::equal(batch.data, mixed(plain.data, lambda)));
      const at::Tensor one_hot = torch::one_hot(plain.target, 4).to(at::kFloat);
      EXPECT_TRUE(at::equal(batch.target, mixed(one_hot, lambda)));
    }
  }
}

TEST(MixBatch, OfAnyShardsOnAnyRankIsTheSame) {
  const auto mix = mixup_cutmix(0.4, 1);
  Batch together = numbered();
  mix_batch(together, *mix, 4, kKey, 4);
  for (const int per_rank : {1, 2}) {
    for (int shard = 0; shard < 4; shard += per_rank) {
      const int first = shard * 2, last = (shard + per_rank) * 2;
      Batch part = numbered();
      part = {part.data.slice(0, first, last), part.target.slice(0, first, last)};
      BatchKey key = kKey;
      key.shard = std::uint32_t(shard);
      mix_batch(part, *mix, 4, key, per_rank);
      EXPECT_TRUE(at::equal(part.data, together.data.slice(0, first, last)));
      EXPECT_TRUE(at::equal(part.target, together.target.slice(0, first, last)));
    }
  }
  Batch other = numbered();
  mix_batch(other, *mix, 4, {.seed = 3, .epoch = 2, .batch = 8}, 4);
  EXPECT_FALSE(at::equal(other.target, together.target));
}

TEST(MixBatch, OfNoSamplesIsEmpty) {
  Batch batch{torch::empty({0, 3, 6, 5}), torch::empty({0}, at::kLong)};
  mix_batch(batch, CutMix(1), 4, kKey);
  EXPECT_EQ(batch.target.sizes(), (std::vector<std::int64_t>{0, 4}));
}

TEST(MixBatch, RefusesWhatItCannotMix) {
  const auto message = [](Batch batch, int shards = 1) {
    return usage_error([&] { mix_batch(batch, MixUp(1), 4, kKey, shards); });
  };
  const Batch right = numbered();
  EXPECT_EQ(message({right.data.to(at::kByte), right.target}),
            "mix_batch: Byte [8, 3, 6, 5], pictures [B, channels, height, width] of float32 or bfloat16 without gaps "
            "expected");
  message({right.data.view({8, -1}), right.target});
  message({right.data.slice(3, 0, 2), right.target});
  message({{}, right.target});
  EXPECT_EQ(message({right.data, right.target.to(at::kFloat)}), "mix_batch: Float [8], labels int64 [B] expected");
  message({right.data, right.target.slice(0, 0, 7)});
  EXPECT_EQ(message(right, 3), "mix_batch: 8 samples in 3 shards, equal parts expected");
  message(right, 0);
  EXPECT_EQ(message({right.data, right.target + 1}), "mix_batch: label 4, 0 to 3 expected");
  EXPECT_EQ(message({right.data, right.target - 1}), "mix_batch: label -1, 0 to 3 expected");
}

}  // namespace
}  // namespace lockstep::data
