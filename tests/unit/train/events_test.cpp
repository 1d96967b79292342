#include "lockstep/train/events.h"

#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

using metrics::Kind;

TEST(Events, TheStartSaysWhatIsTrained) {
  const Options options{.model = "mlp", .opt = "adam", .seed = 4, .channels_last = true};
  const metrics::Event event = start_event(options, {.world_size = 2,
                                                     .plan = {.global_batch = 50, .shards = 4, .shard_batch = 12},
                                                     .total_steps = 9,
                                                     .train_samples = 250,
                                                     .page_size = "4 KiB",
                                                     .restart_count = 1,
                                                     .first_step = 6});
  EXPECT_EQ(event.kind, Kind::start);
  EXPECT_EQ(event.text("model"), "mlp");
  EXPECT_EQ(event.text("optimizer"), "adam");
  EXPECT_EQ(event.text("page_size"), "4 KiB");
  EXPECT_EQ(event.integer("world_size"), 2);
  EXPECT_EQ(event.integer("logical_shards"), 4);
  EXPECT_EQ(event.integer("global_batch_size"), 50);
  EXPECT_EQ(event.integer("channels_last"), 1);
  EXPECT_EQ(event.integer("seed"), 4);
  EXPECT_EQ(event.integer("steps"), 9);
  EXPECT_EQ(event.integer("train_samples"), 250);
  EXPECT_EQ(event.integer("restart_count"), 1);
  EXPECT_EQ(event.integer("first_step"), 6);
}

TEST(Events, ARestartIsAFault) {
  const metrics::Event event =
      fault_event({.restart_count = 2, .last_fault = "rank 1: why", .lost_seconds = 1.5, .first_step = 6});
  EXPECT_EQ(event.kind, Kind::fault);
  EXPECT_EQ(event.integer("restart_count"), 2);
  EXPECT_EQ(event.integer("step"), 5);
  EXPECT_EQ(event.text("cause"), "rank 1: why");
  EXPECT_EQ(event.number("lost_seconds"), 1.5);
  const metrics::Event bare = fault_event({.restart_count = 1});
  EXPECT_EQ(bare.find("cause"), nullptr);
  EXPECT_EQ(bare.find("lost_seconds"), nullptr);
}

TEST(Events, RatesAndSecondsOfWhatWasMeasured) {
  const metrics::Event event = train_event({.step = 3,
                                            .epoch = 2,
                                            .loss = 0.5,
                                            .lr = 0.1,
                                            .gradient_norm = 2.5,
                                            .samples = 60,
                                            .time = {.data = 1, .compute = 2, .step = 3},
                                            .exchange = 2.5,
                                            .input = {.prepare = 4, .decode = 5},
                                            .stores = "plain",
                                            .loss_scale = 1024});
  EXPECT_EQ(event.integer("step"), 3);
  EXPECT_EQ(event.integer("epoch"), 2);
  EXPECT_EQ(event.number("loss"), 0.5);
  EXPECT_EQ(event.number("lr"), 0.1);
  EXPECT_EQ(event.number("gradient_norm"), 2.5);
  EXPECT_EQ(event.number("samples_per_second"), 10);
  EXPECT_EQ(event.number("data_seconds"), 1);
  EXPECT_EQ(event.number("compute_seconds"), 2);
  EXPECT_EQ(event.number("step_seconds"), 3);
  EXPECT_EQ(event.number("exchange_seconds"), 2.5);
  EXPECT_EQ(event.number("prepare_seconds"), 4);
  EXPECT_EQ(event.number("decode_seconds"), 5);
  EXPECT_EQ(event.text("stores"), "plain");
  EXPECT_EQ(event.number("loss_scale"), 1024);
}

TEST(Events, AnswersAreTheCellsThatAreNotZero) {
  EvalEvent event{.step = 3, .epoch = 2};
  event.evaluation.answers = Answers{.classes = {"a", "b"},
                                     .confusion = {4, 0, 1, 5},
                                     .samples = {4, 6},
                                     .right = {4, 5},
                                     .mistakes = {{.sample = 9, .truth = 1, .share = 0.5, .file = "f"}}};
  const metrics::Event told = answers_event(event);
  EXPECT_EQ(told.kind, Kind::answers);
  EXPECT_EQ(told.integer("step"), 3);
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(*told.find("confusion")),
            (std::vector<std::int64_t>{0, 0, 4, 1, 0, 1, 1, 1, 5}));
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(*told.find("class_samples")), (std::vector<std::int64_t>{4, 6}));
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(*told.find("class_right")), (std::vector<std::int64_t>{4, 5}));
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(*told.find("mistake_samples")), std::vector<std::int64_t>{9});
  EXPECT_EQ(std::get<std::vector<std::string>>(*told.find("mistake_files")), std::vector<std::string>{"f"});
  event.evaluation.answers->confusion.clear();
  EXPECT_EQ(answers_event(event).find("confusion"), nullptr) << "of too many classes";
}

TEST(Events, WhereNothingWasMeasuredNothingIsTold) {
  const metrics::Event train = train_event({.step = 3, .loss = 0.5});
  for (const char* field : {"samples_per_second", "data_seconds", "compute_seconds", "step_seconds", "prepare_seconds",
                            "decode_seconds", "exchange_seconds", "stores", "loss_scale", "gradient_norm"})
    EXPECT_EQ(train.find(field), nullptr) << field;
  EXPECT_EQ(done_event({.steps = 3, .seconds = 2}).find("samples_per_second"), nullptr);
}

TEST(Events, EvaluationAndEnd) {
  const metrics::Event eval =
      eval_event({.step = 5, .epoch = 1, .evaluation = {.loss = 0.4, .top1 = 0.9, .top5 = 0.95, .samples = 40}});
  EXPECT_EQ(eval.kind, Kind::eval);
  EXPECT_EQ(eval.integer("step"), 5);
  EXPECT_EQ(eval.number("top1"), 0.9);
  EXPECT_EQ(eval.number("top5"), 0.95);
  EXPECT_EQ(eval.integer("samples"), 40);
  EXPECT_EQ(eval.find("ema_top1"), nullptr);
  const metrics::Event average = eval_event({.step = 5, .ema = Evaluation{.loss = 0.3, .top1 = 0.8, .samples = 40}});
  EXPECT_EQ(average.number("ema_loss"), 0.3);
  EXPECT_EQ(average.number("ema_top1"), 0.8);
  const metrics::Event done = done_event(
      {.steps = 9, .attempt_steps = 4, .samples = 200, .seconds = 8, .training_seconds = 5, .weights_hash = "ab"});
  EXPECT_EQ(done.kind, Kind::done);
  EXPECT_EQ(done.integer("steps"), 9);
  EXPECT_EQ(done.integer("attempt_steps"), 4);
  EXPECT_EQ(done.number("samples_per_second"), 40);
  EXPECT_EQ(done.text("weights_hash"), "ab");
}

// Keeps the events.
class Listener final : public EventObserver {
 public:
  using EventObserver::EventObserver;
  std::vector<metrics::Event> heard;

 private:
  void write(const metrics::Event& event) override { heard.push_back(event); }
};

TEST(EventObserver, HearsAllWithTheirTime) {
  const Options options;
  Listener listener(options);
  const double before = metrics::seconds_now();
  listener.started({});
  listener.trained({.step = 1});
  listener.evaluated({.step = 1});
  listener.finished({.steps = 1});
  ASSERT_EQ(listener.heard.size(), 4u);
  const Kind kinds[] = {Kind::start, Kind::train, Kind::eval, Kind::done};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(listener.heard[i].kind, kinds[i]);
    EXPECT_GE(listener.heard[i].time, before);
  }
  listener.heard.clear();
  listener.started({.restart_count = 1});
  ASSERT_EQ(listener.heard.size(), 2u);
  EXPECT_EQ(listener.heard[1].kind, Kind::fault) << "behind the start";
}

}  // namespace
}  // namespace lockstep::train
