#include "lockstep/evaluation/prediction_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/comm/single/single_group.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::evaluation {
namespace {

using ::testing::HasSubstr;
using testing::usage_error;

comm::World world_of(int rank) {
  rendezvous::Place place;
  place.rank = rank;
  place.world_size = 2;
  return {place, std::make_shared<comm::SingleGroup>()};
}

TEST(PredictionFile, ALineForEachSample) {
  const at::Tensor wide = torch::tensor({{0.1f, -2.0f}, {1e-9f, 3.5f}});
  EXPECT_EQ(predictions_csv({{"class", torch::tensor({7, 0})},
                             {"sure", torch::tensor({true, false})},
                             {"logit", wide},
                             {"exact", torch::tensor({0.1, 1.0 / 3}, at::kDouble)},
                             {"half", torch::tensor({0.5, 2.0}, at::kBFloat16)},
                             {"file", std::vector<std::string>{"ant/1.jpg", "\"bee\", big"}}}),
            "sample,class,sure,logit_0,logit_1,exact,half,file\n"
            "0,7,1,0.1,-2,0.1,0.5,ant/1.jpg\n"
            "1,0,0,1e-09,3.5,0.3333333333333333,2,\"\"\"bee\"\", big\"\n");
  EXPECT_EQ(predictions_csv({{"rows of a view", wide.t().select(0, 1)}}), "sample,rows of a view\n0,-2\n1,3.5\n");
}

TEST(PredictionFile, IsWrittenByRank0AsItsEndingSays) {
  const testing::ScratchFolder folder;
  const at::Tensor logits = torch::rand({3, 2, 2});
  const std::string csv = folder.file("p.csv"), tensors = folder.file("p.safetensors");
  write_predictions(csv, {{"class", torch::arange(2)}}, world_of(1));
  EXPECT_FALSE(std::filesystem::exists(csv));
  write_predictions(csv, {{"class", torch::arange(2)}}, world_of(0));
  EXPECT_EQ(testing::read_file(csv), "sample,class\n0,0\n1,1\n");
  write_predictions(tensors, {{"logits", logits}}, world_of(0));
  EXPECT_TRUE(at::equal(checkpoint::read_safetensors(tensors).at("logits"), logits));
}

TEST(PredictionFile, NamesWhatIsWrongBeforeTheOldFileIsTouched) {
  const testing::ScratchFolder folder;
  const std::string csv = folder.write("p.csv", "old");
  const auto error = [&](const std::string& path, const std::vector<PredictionColumn>& columns) {
    return usage_error([&] { write_predictions(path, columns, world_of(0)); });
  };
  const PredictionColumn two{"a", torch::arange(2)}, three{"b", torch::arange(3)};
  const PredictionColumn words{"w", std::vector<std::string>{"x", "y"}};
  EXPECT_EQ(error(csv, {}), "'" + csv + "': no columns");
  EXPECT_EQ(error(csv, {two, two}), "'" + csv + "': column 'a' twice");
  EXPECT_EQ(error(csv, {two, three}), "'" + csv + "': column 'b' has 3 samples, 'a' has 2");
  EXPECT_THAT(error(csv, {{"a", torch::rand({2, 2, 2})}}), HasSubstr("real numbers [N] or [N, K] expected"));
  EXPECT_THAT(error(csv, {{"a", at::Tensor()}}), HasSubstr("a row for each sample"));
  EXPECT_THAT(error(folder.file("p.safetensors"), {two, words}), HasSubstr("column 'w' has words"));
  EXPECT_EQ(testing::read_file(csv), "old");
}

TEST(PredictionFile, IsCheckedBeforeTheWork) {
  const testing::ScratchFolder folder;
  const auto error = [&](const std::string& path) {
    return usage_error([&] { check_prediction_file(path, world_of(0)); });
  };
  EXPECT_EQ(error(folder.file("p.txt")),
            "'" + folder.file("p.txt") + "': a name that ends in .csv or .safetensors expected");
  EXPECT_THAT(error("/nowhere/p.csv"), HasSubstr("/nowhere/p.csv"));
  check_prediction_file(folder.file("p.csv"), world_of(0));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "nothing stays behind";
  check_prediction_file("/nowhere/p.csv", world_of(1));
}

}  // namespace
}  // namespace lockstep::evaluation
