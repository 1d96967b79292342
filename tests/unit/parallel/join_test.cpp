// join() with what has collectives of its own, or state, beside the model.

#include "lockstep/parallel/join.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/state/hash.h"
#include "tests/unit/parallel/hook_job.h"

namespace lockstep::parallel {
namespace {

using support::RankKind;
using support::run_ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;

// ---- SyncBatchNorm: rank r has r + 1 batches

constexpr int kUneven = 3;

template <class Norm>
torch::nn::Sequential normalized_net(Norm norm) {
  torch::nn::Sequential net(torch::nn::Linear(6, 4), std::move(norm), torch::nn::Linear(4, 2));
  at::Generator generator = at::detail::createCPUGenerator(5);
  const torch::NoGradGuard no_grad;
  for (const at::Tensor& parameter : net->parameters()) parameter.copy_(at::randn(parameter.sizes(), generator));
  return net;
}

torch::optim::SGDOptions rate_and_momentum() { return torch::optim::SGDOptions(0.1).momentum(0.5); }

// One process that sees, in each step, the batches of those that have one; statistics are those behind `looked_at`
// steps.
struct SeenByOne {
  std::vector<at::Tensor> weights, statistics;
};
SeenByOne batches_of_those_left(bool by_world, int looked_at) {
  torch::nn::Sequential net = normalized_net(torch::nn::BatchNorm1d(4));
  torch::optim::SGD sgd(net->parameters(), rate_and_momentum());
  SeenByOne seen;
  for (int step = 0; step < kUneven; ++step) {
    std::vector<at::Tensor> batches;
    for (int rank = step; rank < kUneven; ++rank) batches.push_back(batch_of(rank, step));
    const double left = double(batches.size());
    sgd.zero_grad();
    (net->forward(torch::cat(batches)).square().mean() * left / (by_world ? double(kUneven) : left)).backward();
    sgd.step();
    if (step + 1 == looked_at)
      for (const at::Tensor& buffer : net->buffers()) seen.statistics.push_back(buffer.clone());
  }
  seen.weights = net->parameters();
  return seen;
}

void expect_weights(const std::map<std::string, at::Tensor>& state, const SeenByOne& wanted) {
  const std::vector<std::string> names{"0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"};
  for (std::size_t i = 0; i < names.size(); ++i)
    EXPECT_TRUE(torch::allclose(state.at(names[i]), wanted.weights[i], 1e-5, 1e-6)) << names[i];
  EXPECT_TRUE(torch::allclose(state.at("1.running_mean"), wanted.statistics[0], 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(state.at("1.running_var"), wanted.statistics[1], 1e-5, 1e-6));
}

template <class Ddp, class Optimizer>
void train_normalized(Ddp& ddp, Optimizer& optimizer, const Groups& group, bool by_world) {
  ddp.join(
      [&] {
        for (int step = 0; step <= group->rank(); ++step) {
          optimizer.zero_grad();
          ddp(batch_of(group->rank(), step)).square().mean().backward();
          optimizer.step();
        }
      },
      {.divide_by_initial_world_size = by_world});
}

TEST(JoinWithSyncBatchNorm, IsBatchNormOnTheBatchesOfThoseThatAreLeft) {
  for (const bool by_world : {true, false})
    run_ranks(RankKind::processes, kUneven, [&](Groups group) {
      torch::nn::Sequential net = normalized_net(SyncBatchNorm(torch::nn::BatchNormOptions(4), group));
      DistributedDataParallel ddp(net, group, {.buckets = {.bucket_cap_mb_list = {1e-5, 1e-5, 1}}});
      torch::optim::SGD sgd(net->parameters(), rate_and_momentum());
      train_normalized(ddp, sgd, group, by_world);
      expect_weights(ddp.state_dict(), batches_of_those_left(by_world, kUneven));
    });
}

TEST(JoinWithSyncBatchNorm, WithOursToo) {
  for (const bool by_world : {true, false})
    run_ranks(RankKind::processes, kUneven, [&](Groups group) {
      auto net = convert_sync_batchnorm(normalized_net(torch::nn::BatchNorm1d(4)), group);
      DistributedDataParallel ddp(net, group);
      optim::SGD sgd(ddp, {.lr = 0.1, .momentum = 0.5});
      train_normalized(ddp, sgd, group, by_world);
      expect_weights(ddp.state_dict(), batches_of_those_left(by_world, 1));  // rank 0's statistics, as documented
    });
}

TEST(JoinWithSyncBatchNorm, HasTheSameBitsInEveryRun) {
  const auto hash = [](bool ours) {
    return told_by_rank_0(kUneven, [&](Groups group) {
      torch::nn::Sequential net = normalized_net(SyncBatchNorm(torch::nn::BatchNormOptions(4), group));
      DistributedDataParallel ddp(net, group);
      if (ours) {
        optim::SGD sgd(ddp, {.lr = 0.1, .momentum = 0.5});
        train_normalized(ddp, sgd, group, true);
      } else {
        torch::optim::SGD sgd(net->parameters(), rate_and_momentum());
        train_normalized(ddp, sgd, group, true);
      }
      return state::tensors_hash(ddp.state_dict());
    });
  };
  for (const bool ours : {true, false}) {
    const std::string first = hash(ours);
    EXPECT_EQ(first.size(), 32u);
    EXPECT_EQ(hash(ours), first) << ours;
  }
}

TEST(JoinWithSyncBatchNorm, WithUnusedParametersAndEarlyTermination) {
  run_ranks(RankKind::processes, 2, [](Groups group) {
    torch::nn::Sequential net = normalized_net(SyncBatchNorm(torch::nn::BatchNormOptions(4), group));
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    const auto one_pass = [&] { ddp(batch_of(group->rank(), 0)).square().mean().backward(); };
    ddp.join([&] {
      for (int step = 0; step <= group->rank(); ++step) one_pass();
    });
    const std::string said = error_of([&] {
      ddp.join(
          [&] {
            for (int step = 0; step <= group->rank(); ++step) one_pass();
          },
          {.throw_on_early_termination = true});
    });
    EXPECT_EQ(said, "join: rank 0 has no more inputs, and throw_on_early_termination is set");
    one_pass();  // the group lives
  });
}

// Here the layer is the first to hear of it, in the midst of forward.
TEST(JoinWithSyncBatchNorm, EarlyTerminationWithOurs) {
  run_ranks(RankKind::processes, 2, [](Groups group) {
    DistributedDataParallel ddp(normalized_net(SyncBatchNorm(torch::nn::BatchNormOptions(4), group)), group);
    optim::SGD sgd(ddp, {.lr = 0.1});
    const auto one_step = [&] {
      ddp(batch_of(group->rank(), 0)).square().mean().backward();
      sgd.step();
    };
    const std::string said = error_of([&] {
      ddp.join(
          [&] {
            for (int step = 0; step <= group->rank(); ++step) one_step();
          },
          {.throw_on_early_termination = true});
    });
    EXPECT_EQ(said, "join: rank 0 has no more inputs, and throw_on_early_termination is set");
    one_step();
    EXPECT_EQ(ddp.steps(), 2u);
    EXPECT_EQ(ddp.state_dict()["1.num_batches_tracked"].item<int>(), 2) << "the broken forward has left nothing";
  });
}

TEST(JoinWithSyncBatchNorm, OfAnotherGroupIsRefused) {
  const Groups group = std::make_shared<comm::SingleGroup>();
  torch::nn::Sequential net =
      normalized_net(SyncBatchNorm(torch::nn::BatchNormOptions(4), std::make_shared<comm::SingleGroup>()));
  DistributedDataParallel ddp(net, group);
  EXPECT_THAT(error_of([&] { ddp.join([] {}); }), HasSubstr("SyncBatchNorm ('1') over another group than the model's"));
}

// ---- GradScaler

// Rank 0 has one input, rank 1 four, of which the third overflows: 8, 16, 32, 16, 32.
void expect_scales(Engine& ddp, GradScaler& scaler, const Groups& group, const std::function<void(at::Tensor)>& step) {
  ddp.join(
      [&] {
        for (int i = 0; i < (group->rank() == 0 ? 1 : 4); ++i)
          step(torch::full({1, 2}, i == 2 ? std::numeric_limits<double>::infinity() : i + 1.0));
      },
      {.scaler = &scaler});
  EXPECT_EQ(scaler.get_scale(), 32);
}

torch::nn::Linear plain_line() {
  torch::nn::Linear model(torch::nn::LinearOptions(2, 1).bias(false));
  const torch::NoGradGuard no_grad;
  model->weight.fill_(1);
  return model;
}

// Gradients of 1 on both, then of 2 and 4 on one of two.
constexpr double kWeightInTheEnd = 1 - 0.5 * (1 + 1 + 2);

TEST(JoinWithGradScaler, RanksWithoutInputsGoOnWithTheScaleOfTheOthers) {
  run_ranks(RankKind::processes, 2, [](Groups group) {
    torch::nn::Linear model = plain_line();
    DistributedDataParallel ddp(model, group);
    torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.5));
    GradScaler scaler({.init_scale = 8, .growth_interval = 1});
    expect_scales(ddp, scaler, group, [&](const at::Tensor& data) {
      sgd.zero_grad();
      scaler.scale(ddp(data).sum()).backward();
      scaler.step(sgd);
      scaler.update();
    });
    EXPECT_EQ(model->weight[0][0].item<double>(), kWeightInTheEnd);
  });
}

TEST(JoinWithGradScaler, WithOursTheyDecideWithEachStep) {
  run_ranks(RankKind::processes, 2, [](Groups group) {
    DistributedDataParallel ddp(plain_line(), group);
    GradScaler scaler({.init_scale = 8, .growth_interval = 1});
    ddp.state().keep("scaler", scaler.kept());
    optim::SGD sgd(ddp, {.lr = 0.5});
    expect_scales(ddp, scaler, group, [&](const at::Tensor& data) {
      scaler.scale(ddp(data).sum()).backward();
      scaler.step(sgd);
      scaler.update();
    });
    EXPECT_EQ(ddp.state_dict()["weight"][0][0].item<double>(), kWeightInTheEnd);
    EXPECT_EQ(ddp.steps(), 4u);
  });
}

TEST(JoinWithGradScaler, AnotherScaleIsRefused) {
  const Groups group = std::make_shared<comm::SingleGroup>();
  DistributedDataParallel ddp(plain_line(), group);
  optim::SGD sgd(ddp, {.lr = 0.5});
  GradScaler scaler({.init_scale = 8});
  const std::string said = error_of([&] {
    ddp.join(
        [&] {
          ddp(torch::ones({1, 2})).sum().backward();
          sgd.step({.loss_scale = optim::LossScale{.scale = 2}});
        },
        {.scaler = &scaler});
  });
  EXPECT_THAT(said, AllOf(HasSubstr("a loss scale of 2.0"), HasSubstr("that of JoinOptions::scaler is 8.0")));
}

TEST(JoinWithGradScaler, OnAllRanksOrNone) {
  run_ranks(RankKind::processes, 2, [](Groups group) {
    DistributedDataParallel ddp(plain_line(), group);
    optim::SGD sgd(ddp, {.lr = 0.5});
    GradScaler scaler({.init_scale = 8});
    const std::string said = error_of([&] {
      ddp.join(
          [&] {
            if (group->rank() == 0) return;
            scaler.scale(ddp(torch::ones({1, 2})).sum()).backward();
            scaler.step(sgd);
          },
          {.scaler = group->rank() == 0 ? nullptr : &scaler});
    });
    EXPECT_THAT(said, HasSubstr("rank 1 scales its loss within join(), and rank 0 was given no JoinOptions::scaler"));
  });
}

// ---- joinables

// Adds up numbers over the ranks.
class Sum final : public Joinable {
 public:
  explicit Sum(Groups group) : group_(std::move(group)) {}

  double add(double number) {
    notify_join_context(*this);
    return reduce(number);
  }
  std::shared_ptr<JoinHook> join_hook(const JoinOptions&) override { return std::make_shared<Hook>(*this); }
  comm::Group& join_process_group() const override { return *group_; }
  int last_joiners = -1;  ///< told to post hooks, over all ranks

 private:
  struct Hook final : JoinHook {
    explicit Hook(Sum& the_sum) : sum(the_sum) {}
    void main_hook(int) override { sum.reduce(0); }
    void post_hook(bool is_last_joiner) override { sum.last_joiners = int(sum.reduce(is_last_joiner)); }
    Sum& sum;
  };
  double reduce(double number) {
    const at::Tensor told = torch::full({1}, number, at::kDouble);
    group_->all_reduce(told);
    return told.item<double>();
  }
  Groups group_;
};

TEST(Join, HooksTakePartInTheOrderOfTheCalls) {
  run_ranks(RankKind::processes, 3, [](Groups group) {
    Sum first(group), second(group);
    std::vector<double> seen;
    Join({&first, &second}).run([&] {
      for (int i = 0; i <= group->rank(); ++i) {
        seen.push_back(first.add(1));
        if (i == 1) seen.push_back(second.add(10));
      }
    });
    const std::vector<double> all{3, 2, 20, 1};
    EXPECT_EQ(seen, std::vector<double>(all.begin(), all.begin() + std::vector{1, 3, 4}[std::size_t(group->rank())]));
    EXPECT_EQ(first.last_joiners, 1);
    EXPECT_EQ(second.last_joiners, 1);
    EXPECT_EQ(first.add(1), 3) << "outside of a join nobody is told";
  });
}

TEST(Join, CallsOfOtherJoinablesAreNamed) {
  run_ranks(RankKind::processes, 2, [](Groups group) {
    Sum first(group), second(group);
    EXPECT_EQ(
        error_of([&] {
          Join({&first, &second}).run([&] { (group->rank() == 0 ? first : second).add(1); });
        }),
        "join: rank 0 begins the collectives of joinable 0 and rank 1 the collectives of joinable 1; each must do "
        "the same with each of its inputs");
  });
}

TEST(Join, RefusesWhatItWasNotGivenAndOtherGroups) {
  const auto alone = [] { return std::make_shared<comm::SingleGroup>(); };
  Sum one(alone()), elsewhere(alone());
  EXPECT_THAT(error_of([&] { Join({&one, &elsewhere}).run([] {}); }), HasSubstr("different groups"));
  EXPECT_EQ(error_of([] { Join({}).run([] {}); }), "Join: no joinables were given");
  EXPECT_EQ(error_of([&] { Join({&one}).run([&] { one.add(1); }); }), "no error")
      << "nothing is left of the one refused";
  EXPECT_THAT(error_of([&] { Join({&one}).run([&] { Join({&one}).run([] {}); }); }), HasSubstr("join() within join()"));
  const auto group = alone();
  Sum given(group), other(group);
  EXPECT_THAT(error_of([&] { Join({&given}).run([&] { other.add(1); }); }), HasSubstr("JoinOptions::joinables"));
}

TEST(Join, ARankThatTrainsOnWithoutItsModelIsTold) {
  run_ranks(RankKind::processes, 2, [](Groups group) {
    DistributedDataParallel ddp(plain_line(), group);
    Sum sum(group);
    const std::string said = error_of([&] {
      if (group->rank() == 0) return Join({&sum}).run([] {});
      Join(ddp, {&sum}).run([&] { ddp(torch::ones({1, 2})).sum().backward(); });
    });
    EXPECT_THAT(said, HasSubstr("the others train a DistributedDataParallel"));
  });
}

// ---- what is told of waits

TEST(JoinTimes, WaitsForTheOthersAreNoUpdate) {
  const std::string path = std::filesystem::path(::testing::TempDir()) / (std::to_string(getpid()) + "join.json");
  run_ranks(RankKind::processes, 2, [&](Groups group) {
    torch::nn::Linear model = plain_line();
    DistributedDataParallel classic(model, group);
    DistributedDataParallel ddp(plain_line(), group);
    optim::SGD sgd(ddp, {.lr = 0.5});
    ddp.start_timeline(path);
    ddp.join([&] {
      for (int i = 0; i <= group->rank(); ++i) {
        ddp(torch::ones({1, 2})).sum().backward();
        sgd.step();
      }
    });
    ddp.stop_timeline();
    EXPECT_EQ(ddp.debug().logging_data().steps, std::uint64_t(group->rank() + 1)) << "its own";
    classic.join([&] { classic(torch::ones({1, 2})).sum().backward(); });
    EXPECT_GT(classic.debug().logging_data().last.exchange, 0);
  });
  std::ifstream file(path);
  std::multiset<std::string> names;
  for (const auto& event : nlohmann::json::parse(file))
    if (event["pid"] == 1 && event["ph"] != "M") names.insert(event["name"]);
  EXPECT_EQ(names.count("update"), 2u);
  EXPECT_EQ(names.count("exchange inputs"), 2u) << "before each step";
  EXPECT_EQ(names.count("exchange rules"), 2u);
}

}  // namespace
}  // namespace lockstep::parallel
