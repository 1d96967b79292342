#include "lockstep/train/evaluation.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>

#include <cmath>
#include <mutex>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/data/digits.h"
#include "lockstep/data/pictures.h"
#include "lockstep/data/tensor_batches.h"
#include "lockstep/models/registry.h"
#include "tests/support/ranks.h"
#include "tests/support/usage_error.h"

namespace lockstep::train {
namespace {

using support::RankKind;

// Reads the class off the first pixel.
class Oracle : public models::ImageModel {
 public:
  Oracle() : ImageModel("Oracle") {}
  at::Tensor forward(at::Tensor images) override {
    samples_seen += images.size(0);
    was_training |= is_training();
    longest = std::max(longest, images.size(0));
    const at::Tensor value = images.flatten(1).select(1, 0).mul(255).round().to(at::kLong);
    return at::one_hot(value.remainder(10), 10).to(at::kFloat).mul(5);
  }
  std::int64_t samples_seen = 0;
  std::int64_t longest = 0;
  bool was_training = false;
};

Forward forward_of(models::ImageModel& model) {
  return [&model](const at::Tensor& images) { return model.forward(images); };
}

using Set = std::shared_ptr<const data::Batches>;

Set of(data::MemoryPictures::Content content) { return data::pictures(data::MemoryPictures(std::move(content))); }

// Of every five samples, the first bears a wrong label.
Set labelled(std::int64_t samples) {
  data::MemoryPictures::Content content{.size = {1, 1}, .channels = 1};
  for (int i = 0; i < samples; ++i) {
    content.labels.push_back(i % 10);
    content.pixels.push_back(std::uint8_t((i + (i % 5 == 0)) % 10));
  }
  for (int c = 0; c < 10; ++c) content.classes.push_back(std::to_string(c));
  return of(std::move(content));
}

Set digits(std::int64_t samples) { return of(data::make_digits(data::Split::test, 0, samples).content()); }

// The oracle takes every fifth sample, of class c, for c + 1; and is as sure of each.
TEST(Evaluation, EveryAnswerIsCountedOnceOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3}) {
    support::run_ranks(RankKind::threads, ranks, [&](const std::shared_ptr<comm::Group>& group) {
      Oracle oracle;
      const Evaluation found = evaluate(oracle, *group, labelled(130), forward_of(oracle), {.batch_size = 7});
      ASSERT_TRUE(found.answers);
      std::vector<std::int64_t> expected(100);
      for (std::int64_t i = 0; i < 130; ++i) ++expected[std::size_t(i % 10 * 10 + (i + (i % 5 == 0)) % 10)];
      EXPECT_EQ(found.answers->confusion, expected) << ranks;
      EXPECT_EQ(found.answers->samples, std::vector<std::int64_t>(10, 13)) << ranks;
      for (std::size_t c = 0; c < 10; ++c) EXPECT_EQ(found.answers->right[c], c % 5 == 0 ? 0 : 13) << ranks;
      ASSERT_EQ(found.answers->mistakes.size(), kMostMistakes);
      for (std::size_t i = 0; i < kMostMistakes; ++i) {
        const WrongAnswer& mistake = found.answers->mistakes[i];
        EXPECT_EQ(mistake.sample, std::int64_t(5 * i)) << ranks;
        EXPECT_EQ(mistake.truth, mistake.sample % 10);
        EXPECT_EQ(mistake.prediction, mistake.sample % 10 + 1);
        EXPECT_NEAR(mistake.share, std::exp(5) / (std::exp(5) + 9), 1e-6);
      }
    });
  }
}

TEST(Evaluation, EverySampleCountsOnce) {
  for (const std::int64_t samples : {1, 499, 500, 501, 1250}) {
    Oracle oracle;
    support::run_ranks(RankKind::single, 1, [&](const std::shared_ptr<comm::Group>& group) {
      const Evaluation result = evaluate(oracle, *group, labelled(samples), forward_of(oracle));
      EXPECT_EQ(result.samples, samples);
      const std::int64_t wrong = (samples + 4) / 5;
      EXPECT_DOUBLE_EQ(result.top1, double(samples - wrong) / double(samples));
    });
    EXPECT_EQ(oracle.samples_seen, samples);
    EXPECT_LE(oracle.longest, evaluation::PassOptions().batch_size);
  }
}

TEST(Evaluation, ChunksOfLargePicturesAreSmaller) {
  EXPECT_EQ(evaluation_chunk({.channels = 1, .height = 28, .width = 28}), 500);
  EXPECT_EQ(evaluation_chunk({.channels = 3, .height = 32, .width = 32}), 500);
  EXPECT_EQ(evaluation_chunk({.channels = 3, .height = 224, .width = 224}), 27);
  EXPECT_EQ(evaluation_chunk({.channels = 3, .height = 8000, .width = 8000}), 1);
}

TEST(Evaluation, LeavesTheModelInItsMode) {
  Oracle oracle;
  support::run_ranks(RankKind::single, 1, [&](const std::shared_ptr<comm::Group>& group) {
    evaluate(oracle, *group, labelled(10), forward_of(oracle));
    EXPECT_FALSE(oracle.was_training);
    EXPECT_TRUE(oracle.is_training());
    oracle.eval();
    evaluate(oracle, *group, labelled(10), forward_of(oracle));
    EXPECT_FALSE(oracle.is_training());
  });
}

TEST(Evaluation, IsTheMeanOfPyTorchsLoss) {
  at::manual_seed(3);
  const auto model = models::make_model("mlp");
  const Set set = digits(1250);
  std::vector<std::int64_t> all(1250);
  std::iota(all.begin(), all.end(), 0);
  const data::Batch batch = set->make(0, all);
  const at::Tensor logits = model->forward(batch.data);
  const at::Tensor loss = torch::nn::functional::cross_entropy(logits, batch.target);
  const at::Tensor near = logits.gt(logits.gather(1, batch.target.unsqueeze(1))).sum(1).lt(5).to(at::kDouble);
  support::run_ranks(RankKind::single, 1, [&](const std::shared_ptr<comm::Group>& group) {
    const Evaluation found = evaluate(*model, *group, set, forward_of(*model));
    EXPECT_NEAR(found.loss, loss.item<double>(), 1e-5);
    EXPECT_NEAR(found.top5, near.mean().item<double>(), 1e-3);
    EXPECT_GT(found.top5, found.top1);
  });
}

TEST(Evaluation, OutputsOfHalfTheDigitsHaveALossOfAllDigits) {
  at::manual_seed(3);
  const auto model = models::make_model("mlp");
  const Set set = digits(200);
  for (const at::ScalarType kind : {at::kBFloat16, at::kHalf})
    support::run_ranks(RankKind::single, 1, [&](const std::shared_ptr<comm::Group>& group) {
      const auto loss = [&](at::ScalarType last) {
        return evaluate(*model, *group, set, [&](const at::Tensor& x) { return model->forward(x).to(kind).to(last); })
            .loss;
      };
      EXPECT_EQ(loss(kind), loss(at::kFloat)) << kind;
    });
}

// PyTorch's loss leaves out -100 without a word, and counts of classes have no such place.
TEST(Evaluation, ALabelOfNoClassIsNamed) {
  for (const std::int64_t label : {-100, -1, 10, 1'000'000}) {
    at::Tensor target = at::zeros({8}, at::kLong);
    target[5] = label;
    const Set set = data::tensors(at::zeros({8, 1, 1, 1}), target);
    support::run_ranks(RankKind::single, 1, [&](const std::shared_ptr<comm::Group>& group) {
      Oracle oracle;
      EXPECT_EQ(testing::usage_error([&] { evaluate(oracle, *group, set, forward_of(oracle), {.batch_size = 3}); }),
                "sample 5 of those to evaluate on is of class " + std::to_string(label) + ": 0 to 9 expected");
    });
  }
}

// Twice the first number of a row, and its second.
class Doubler : public torch::nn::Module {
 public:
  static at::Tensor forward(const at::Tensor& rows) {
    const at::Tensor flat = rows.flatten(1);
    return at::stack({flat.select(1, 0).mul(2), flat.select(1, 1)}, 1);
  }
};

Set rows_of_numbers(const std::vector<float>& numbers, const at::Tensor& target) {
  const auto count = std::int64_t(numbers.size() / 2);
  return data::tensors(at::tensor(numbers).view({count, 1, 1, 2}), target);
}

TEST(EvaluationOfNumbers, ErrorsAndTheShareOfTheVariance) {
  // Outputs 2, 4, 6 and 5, 5, 8.
  const at::Tensor target = at::tensor({3.0F, 5.0F, 4.0F, 6.0F, 8.0F, 10.0F}).view({3, 2});
  const Set set = rows_of_numbers({1, 5, 2, 5, 3, 8}, target);
  Doubler model;
  support::run_ranks(RankKind::single, 1, [&](const std::shared_ptr<comm::Group>& group) {
    const Evaluation found = evaluate_errors(model, *group, set, Doubler::forward, "mse");
    EXPECT_EQ(found.samples, 3);
    EXPECT_DOUBLE_EQ(found.loss, (1 + 0 + 4 + 0 + 1 + 4) / 6.0);
    ASSERT_TRUE(found.errors);
    EXPECT_DOUBLE_EQ(found.errors->mae, (1 + 0 + 2 + 0 + 1 + 2) / 6.0);
    EXPECT_DOUBLE_EQ(found.errors->r2, ((1 - 5 / 14.0) + (1 - 5 / 14.0)) / 2);
    EXPECT_DOUBLE_EQ(evaluate_errors(model, *group, set, Doubler::forward, "l1").loss, 1);
    EXPECT_DOUBLE_EQ(evaluate_errors(model, *group, set, Doubler::forward, "smooth_l1").loss,
                     (0.5 + 0 + 1.5 + 0 + 0.5 + 1.5) / 6);
  });
}

TEST(EvaluationOfNumbers, ALargeMeanCostsNoDigits) {
  const at::Tensor target = at::tensor({1e6F, 1e6F + 1, 1e6F + 2, 1e6F + 3}).view({4, 1});
  const Set set = data::tensors(target.sub(1).view({4, 1, 1, 1}), target);
  Doubler model;
  const Forward same = [](const at::Tensor& rows) { return rows.flatten(1); };
  support::run_ranks(RankKind::single, 1, [&](const std::shared_ptr<comm::Group>& group) {
    EXPECT_DOUBLE_EQ(evaluate_errors(model, *group, set, same, "mse").errors->r2, 1 - 4 / 5.0);
    const Set equal = data::tensors(at::zeros({4, 1, 1, 1}), at::ones({4, 1}));
    EXPECT_TRUE(std::isnan(evaluate_errors(model, *group, equal, same, "mse").errors->r2)) << "there is no variance";
    const Forward wrong = [](const at::Tensor& rows) { return rows.flatten(); };
    EXPECT_THROW(evaluate_errors(model, *group, set, wrong, "mse"), UsageError) << "[4] against [4, 1]";
  });
}

TEST(EvaluationOfNumbers, TheSameForEveryWorldOnEveryRank) {
  at::manual_seed(5);
  const at::Tensor rows = at::randn({1250, 2});
  const Set set = data::tensors(rows.view({1250, 1, 1, 2}), rows.add(at::randn({1250, 2}).mul(0.1)));
  std::vector<Evaluation> found;
  std::mutex mutex;
  for (int ranks = 1; ranks <= 4; ++ranks)
    support::run_ranks(RankKind::threads, ranks, [&](const std::shared_ptr<comm::Group>& group) {
      Doubler model;
      const Evaluation mine = evaluate_errors(model, *group, set, Doubler::forward, "smooth_l1");
      const std::lock_guard lock(mutex);
      found.push_back(mine);
    });
  for (const Evaluation& other : found) {
    EXPECT_EQ(other.loss, found[0].loss);
    EXPECT_EQ(other.errors->mae, found[0].errors->mae);
    EXPECT_EQ(other.errors->r2, found[0].errors->r2);
    EXPECT_EQ(other.samples, 1250);
  }
}

// Ranks take chunks in turn: three chunks, the last a short one, and a fourth rank with none.
TEST(Evaluation, TheSameNumbersForEveryWorldOnEveryRank) {
  const Set set = digits(1250);
  for (const char* name : {"mlp_dropout", "convnet"}) {
    std::vector<Evaluation> found;
    for (int ranks = 1; ranks <= 4; ++ranks) {
      std::vector<std::shared_ptr<models::ImageModel>> models;
      for (int rank = 0; rank < ranks; ++rank) {
        at::manual_seed(3);
        models.push_back(models::make_model(name));
      }
      std::mutex mutex;
      support::run_ranks(RankKind::threads, ranks, [&](const std::shared_ptr<comm::Group>& group) {
        const Evaluation mine =
            evaluate(*models[std::size_t(group->rank())], *group, set, forward_of(*models[std::size_t(group->rank())]));
        const std::lock_guard lock(mutex);
        found.push_back(mine);
      });
    }
    ASSERT_EQ(found.size(), 1u + 2 + 3 + 4);
    EXPECT_GT(found[0].loss, 0);
    for (const Evaluation& other : found) {
      EXPECT_EQ(other.loss, found[0].loss) << name;
      EXPECT_EQ(other.top1, found[0].top1) << name;
      EXPECT_EQ(other.top5, found[0].top5) << name;
      EXPECT_EQ(other.samples, 1250);
    }
  }
}

}  // namespace
}  // namespace lockstep::train
