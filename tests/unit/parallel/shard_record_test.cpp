#include "lockstep/parallel/shard_record.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace lockstep::parallel {
namespace {

using state::ShardRecord;

double mean_of(const std::vector<ShardRecord>& records) {
  return mean_loss(int(records.size()), [&](int shard) { return records[std::size_t(shard)]; });
}

TEST(ShardRecord, OnePassKeepsItsBits) {
  ShardRecord record;
  add(record, {0.1, 3});
  EXPECT_EQ(record.loss, 0.1);
  EXPECT_EQ(record.samples, 3);
  add(record, {});
  EXPECT_EQ(record.loss, 0.1);
}

TEST(ShardRecord, TheLossOfNoSamplesCountsForNothing) {
  EXPECT_EQ(mean_of({{2, 4}, {std::numeric_limits<double>::quiet_NaN(), 0}}), 2);
}

TEST(ShardRecord, PassesCountBySamples) {
  ShardRecord record;
  for (const ShardRecord& pass : {ShardRecord{1, 6}, ShardRecord{5, 2}, ShardRecord{3, 8}}) add(record, pass);
  EXPECT_EQ(record.samples, 16);
  EXPECT_DOUBLE_EQ(record.loss, (6 * 1 + 2 * 5 + 8 * 3) / 16.0);
}

TEST(MeanLoss, OfEqualShardsIsTheTreeMeanToTheBit) {
  for (const std::int64_t samples : {0, 1, 3, 7, 100}) {
    const std::vector<ShardRecord> records{{0.1, samples}, {0.7, samples}, {1.3, samples}};
    EXPECT_EQ(mean_of(records), ((0.1 + 0.7) + 1.3) / 3);
  }
}

TEST(MeanLoss, OfOthersCountsEverySampleOnce) {
  EXPECT_DOUBLE_EQ(mean_of({{1, 6}, {2, 2}, {4, 0}}), (6 * 1 + 2 * 2) / 8.0);
}

MeanWeight weight_of(const std::vector<double>& denominators) {
  return mean_weight(int(denominators.size()),
                     [&](int shard) { return state::ShardRecord{.denominator = denominators[std::size_t(shard)]}; });
}

TEST(MeanWeight, IsOneOverTheShardsOfTheJobOrOverWhatTheirRanksCount) {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(weight_of({none, none, none, none}).value, 0.25);
  EXPECT_EQ(weight_of({3, 0, 5}).value, 0.125);
  EXPECT_EQ(weight_of({3, none}).why_not, "some ranks gave a denominator and some gave none");
  EXPECT_EQ(weight_of({0, 0}).why_not, "the denominators of all ranks add up to 0");
  EXPECT_EQ(weight_of({8}).why_not, "");
  EXPECT_NE(weight_of({1e-300}).why_not, "");
}

}  // namespace
}  // namespace lockstep::parallel
