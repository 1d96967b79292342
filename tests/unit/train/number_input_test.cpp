#include "lockstep/train/number_input.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::usage_error;

class TableInput : public ::testing::Test {
 protected:
  Options options(const std::string& path) const {
    return {.model = "mlp", .dataset = "csv", .data_path = path, .loss = "mse", .transforms = "none"};
  }
  static data::Batch all_of(const data::Batches& set) {
    std::vector<std::int64_t> indices(std::size_t(set.size()));
    std::iota(indices.begin(), indices.end(), 0);
    return set.make(0, indices);
  }
  std::string table(std::int64_t rows) const {
    std::string text = "a,b,price\n";
    for (std::int64_t row = 0; row < rows; ++row)
      text += std::to_string(row) + "," + std::to_string(row * row) + "," + std::to_string(10 * row) + "\n";
    return folder_.write("table.csv", text);
  }

  testing::ScratchFolder folder_;
};

TEST_F(TableInput, AFileIsHeldOutEvenly) {
  std::vector<std::int64_t> held;
  for (std::int64_t row = 0; row < 10; ++row)
    if (is_held_out(row, 0.3)) held.push_back(row);
  EXPECT_THAT(held, ElementsAre(3, 6, 9));
  const Input input = make_number_input(options(table(10)), true);
  EXPECT_EQ(input.task, (models::ImageTask{1, 1, 2, 1}));
  EXPECT_EQ(input.train->size(), 8);
  const data::Batch test = all_of(*input.test);
  EXPECT_EQ(test.data.sizes(), (std::vector<std::int64_t>{2, 1, 1, 2}));
  EXPECT_TRUE(at::equal(test.target, at::tensor({40.0F, 90.0F}).view({2, 1})));
  EXPECT_EQ(make_number_input(options(table(10)), false).train->size(), 10);
  EXPECT_EQ(make_number_input(options(table(10)), false).test, nullptr);
  EXPECT_THAT(usage_error([&] { make_number_input(options(table(2)), true); }),
              HasSubstr("has 2 rows: --val-fraction leaves none to evaluate on"));
}

TEST_F(TableInput, TargetsAndColumnsAreChosen) {
  Options chosen = options(table(4));
  chosen.target = "price,1";
  chosen.columns = "b";
  const Input input = make_number_input(chosen, false);
  EXPECT_EQ(input.task, (models::ImageTask{1, 1, 1, 2}));
  EXPECT_TRUE(at::equal(all_of(*input.train).target.select(0, 2), at::tensor({20.0F, 2.0F})));
  chosen.target = "cost";
  EXPECT_THAT(usage_error([&] { make_number_input(chosen, false); }), HasSubstr("cost"));
}

TEST_F(TableInput, StandardizesByTheRowsToTrainOn) {
  Options standard = options(table(10));
  standard.transforms = "standardize";
  const Input input = make_number_input(standard, true);
  const at::Tensor train = all_of(*input.train).data.flatten(1).to(at::kDouble);
  EXPECT_TRUE(at::allclose(train.mean(0), at::zeros({2}, at::kDouble), 0, 1e-6));
  EXPECT_GT(all_of(*input.test).data.select(0, 1).min().item<float>(), 1) << "the last row, by the others' scale";
}

TEST_F(TableInput, PartsInAFolder) {
  folder_.write("train.csv", "a,y\n1,2\n3,4\n");
  folder_.write("test.csv", "a,y\n5,6\n");
  EXPECT_EQ(make_number_input(options(folder_.path()), true).test->size(), 1);
  folder_.write("test.csv", "b,y\n5,6\n");
  EXPECT_THAT(usage_error([&] { make_number_input(options(folder_.path()), true); }),
              HasSubstr("test.csv': its columns are b, those to train on a"));
  Options named = options(folder_.path());
  named.val_split = "train";
  EXPECT_EQ(make_number_input(named, true).test->size(), 2);
  named.val_split = "none";
  EXPECT_THAT(usage_error([&] { make_number_input(named, true); }), HasSubstr("no file 'none.csv' in '"));
}

TEST_F(TableInput, WhatIsNoNumberIsNamedWithFileAndLine) {
  const std::string file = folder_.write("bad.csv", "a,y\n1,2\n3,four\n");
  EXPECT_EQ(usage_error([&] { make_number_input(options(file), false); }),
            file + ":3: column 2 (y) 'four' is not a number");
  const std::string nan = folder_.write("nan.csv", "a,y\n1,2\n3,nan\n");
  EXPECT_EQ(usage_error([&] { make_number_input(options(nan), false); }),
            "'" + nan + "': a target that is not finite (nan, inf) cannot be trained on");
}

TEST(DrawnLine, IsAFunctionOfTheSeed) {
  const auto first = [](std::int64_t seed) {
    const Input input = make_number_input({.dataset = "line", .loss = "mse", .seed = seed, .transforms = "none"}, true);
    EXPECT_EQ(input.train->size(), 2048);
    EXPECT_EQ(input.test->size(), 512);
    const std::int64_t zero[] = {0};
    EXPECT_FALSE(at::equal(input.train->make(0, zero).data, input.test->make(0, zero).data));
    return input.train->make(0, zero).data;
  };
  EXPECT_TRUE(at::equal(first(1), first(1)));
  EXPECT_FALSE(at::equal(first(1), first(2)));
}

}  // namespace
}  // namespace lockstep::train
