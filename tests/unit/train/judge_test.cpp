#include "lockstep/train/judge.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/train/parsed_options.h"

namespace lockstep::train {
namespace {

EvalEvent found(std::int64_t step, double loss, double top1 = 0) {
  return {.step = step, .evaluation = {.loss = loss, .top1 = top1, .samples = 1}};
}

TEST(Judge, ThePlateauIsThatOfTheLibrary) {
  const Options o = options({"--lr-scheduler", "reducelronplateau", "--lr-gamma", "0.5", "--lr-patience", "1",
                             "--lr-min", "0.02", "--lr", "0.1"});
  optim::ReduceLROnPlateau plateau{.factor = 0.5, .patience = 1, .min_lr = 0.02};
  Judgement judgement;
  std::int64_t step = 0;
  for (const double loss : {1.0, 0.5, 0.6, 0.7, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4}) {
    plateau.step(loss);
    judgement = judged(o, judgement, found(++step, loss));
    EXPECT_EQ(judgement.plateau.reductions, plateau.state.reductions) << step;
    EXPECT_EQ(judgement.plateau.num_bad_epochs, plateau.state.num_bad_epochs) << step;
  }
  EXPECT_GT(judgement.plateau.reductions, 1);
}

TEST(Judge, PatienceCountsEvaluationsWithoutABetterOne) {
  const Options o = options({"--patience", "2"});
  Judgement judgement;
  std::int64_t step = 0;
  std::vector<std::int64_t> worse;
  for (const double top1 : {0.1, 0.3, 0.3, 0.4, 0.2, 0.1}) {
    judgement = judged(o, judgement, found(++step, 1, top1));
    worse.push_back(judgement.worse);
  }
  EXPECT_EQ(worse, (std::vector<std::int64_t>{0, 0, 1, 0, 1, 2}));
  EXPECT_EQ(judgement.best, 0.4);
  const Options by_loss = options({"--patience", "2", "--monitor", "loss"});
  EXPECT_EQ(judged(by_loss, judged(by_loss, {}, found(1, 3)), found(2, 2)).worse, 0);
  EXPECT_EQ(judged(by_loss, judged(by_loss, {}, found(1, 3)), found(2, 4)).worse, 1);
  const Judgement none = judged(by_loss, {}, found(1, std::nan("")));
  EXPECT_EQ(none.worse, 1) << "what is no number is no better one";
  EXPECT_EQ(judged(by_loss, none, found(2, 4)).worse, 0);
}

// After a restart the evaluation of the committed step runs again.
TEST(Judge, HeedsAStepOnce) {
  const Options o = options({"--patience", "2", "--lr-scheduler", "reducelronplateau"});
  const Judgement once = judged(o, judged(o, {}, found(1, 1, 0.5)), found(2, 2, 0.1));
  EXPECT_EQ(once.worse, 1);
  const Judgement again = judged(o, once, found(2, 2, 0.1));
  EXPECT_EQ(again.worse, 1);
  EXPECT_EQ(again.plateau.num_bad_epochs, once.plateau.num_bad_epochs);
}

TEST(Judge, ContradictionsAreRefused) {
  EXPECT_NE(refusal({"--patience", "2", "--no-eval"}).find("--patience has no meaning with --no-eval"),
            std::string::npos);
  EXPECT_NE(refusal({"--lr-patience", "2"}).find("without --lr-scheduler reducelronplateau"), std::string::npos);
  EXPECT_NE(refusal({"--lr-scheduler", "reducelronplateau", "--lr-gamma", "1"}).find("a number below 1"),
            std::string::npos);
  EXPECT_NE(refusal({"--lr-scheduler", "reducelronplateau", "--lr-warmup-epochs", "1"}).find("counts evaluations"),
            std::string::npos);
  EXPECT_NE(refusal({"--monitor", "loss"}).find("without --save-every or --patience"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::train
