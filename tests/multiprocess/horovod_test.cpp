// Horovod's operations, by real processes. Its own numbers are those of its documentation: it cannot be installed here.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include <csignal>
#include <numeric>

#include "tests/support/horovod_ranks.h"
#include "tests/support/usage_error.h"
#include "tests/support/what_of.h"
#include "tests/unit/horovod/plain_adasum.h"

namespace lockstep {
namespace {

using support::run_horovod;
using ::testing::HasSubstr;

at::Tensor full(std::int64_t elements, double value) { return torch::full({elements}, value); }

TEST(Horovod, AllreduceByEachOp) {
  run_horovod(3, [] {
    const double mine = hvd::rank() + 1;
    EXPECT_TRUE(torch::equal(hvd::allreduce(full(5, mine)), full(5, 2)));
    EXPECT_TRUE(torch::equal(hvd::allreduce(full(5, mine), {.op = hvd::Sum}), full(5, 6)));
    EXPECT_TRUE(torch::equal(hvd::allreduce(full(5, mine), {.op = hvd::Min}), full(5, 1)));
    EXPECT_TRUE(torch::equal(hvd::allreduce(full(5, mine), {.op = hvd::Max}), full(5, 3)));
    EXPECT_TRUE(torch::equal(hvd::allreduce(full(5, mine), {.op = hvd::Product}), full(5, 6)));
    EXPECT_TRUE(
        torch::equal(hvd::allreduce(full(5, mine), {.prescale_factor = 2, .postscale_factor = 5}), full(5, 20)));
    const at::Tensor whole = torch::full({2, 3}, hvd::rank() + 1, torch::kLong).t();
    EXPECT_TRUE(torch::equal(hvd::allreduce_(whole, {.op = hvd::Sum}), torch::full({3, 2}, 6, torch::kLong)));
    EXPECT_EQ(whole[2][1].item<int>(), 6) << "in place";
    for (const hvd::Compression compression : {hvd::Compression::fp16, hvd::Compression::bf16}) {
      const double step = compression == hvd::Compression::fp16 ? 1.0 / 1024 : 1.0 / 128;
      const at::Tensor fine = full(5, 1 + (hvd::rank() + 1) * step / 4);  // what rank 2 adds is rounded up
      EXPECT_TRUE(torch::equal(hvd::allreduce(fine, {.op = hvd::Max, .compression = compression}), full(5, 1 + step)));
      EXPECT_EQ(
          hvd::allreduce(torch::ones({2}, torch::kLong), {.op = hvd::Sum, .compression = compression}).scalar_type(),
          at::kLong);
    }
    EXPECT_EQ(hvd::allreduce(torch::ones({0})).numel(), 0);
  });
}

TEST(Horovod, GroupedAndAsynchronousForms) {
  run_horovod(2, [] {
    const double mine = hvd::rank();
    const hvd::Tensors tensors = {full(3, mine), torch::full({2, 2}, mine, torch::kDouble), full(70'001, mine + 1)};
    std::vector<hvd::Handle<hvd::Tensors>> handles;
    for (int i = 0; i < 4; ++i) handles.push_back(hvd::grouped_allreduce_async(tensors));
    const auto in_place = hvd::allreduce_async_(tensors[2], {.op = hvd::Sum});
    EXPECT_EQ(hvd::synchronize(in_place)[0].item<float>(), 3);
    for (const auto& handle : handles) {
      EXPECT_TRUE(hvd::poll(handle)) << "in the order of the calls";
      const hvd::Tensors means = hvd::synchronize(handle);
      EXPECT_TRUE(torch::equal(means[0], full(3, 0.5)));
      EXPECT_TRUE(torch::equal(means[1], torch::full({2, 2}, 0.5, torch::kDouble)));
      EXPECT_TRUE(torch::equal(means[2], full(70'001, 1.5)));
    }
    EXPECT_EQ(tensors[0][0].item<double>(), mine) << "left alone";
    EXPECT_TRUE(hvd::grouped_allreduce({}).empty());
    EXPECT_EQ(hvd::grouped_allgather({full(1, 1), full(mine == 0 ? 0 : 2, 1)})[1].numel(), 2);
    EXPECT_EQ(hvd::synchronize(hvd::broadcast_async(full(2, mine), 1))[0].item<float>(), 1);
  });
}

TEST(Horovod, AllgatherAlltoallAndReducescatterOfUnevenRows) {
  run_horovod(3, [] {
    const int rank = hvd::rank();
    const at::Tensor gathered = hvd::allgather(torch::full({rank, 2}, rank, torch::kInt));
    EXPECT_TRUE(torch::equal(gathered, torch::tensor({{1, 1}, {2, 2}, {2, 2}}, torch::kInt)));
    // Rank r sends r rows to each and gets s from rank s.
    const auto received = hvd::alltoall(full(3 * rank, rank), {rank, rank, rank});
    EXPECT_EQ(received.splits, (std::vector<std::int64_t>{0, 1, 2}));
    EXPECT_TRUE(torch::equal(received.output, torch::tensor({1.0, 2.0, 2.0}, torch::kFloat)));
    EXPECT_TRUE(torch::equal(hvd::alltoall(full(3, rank)).output, torch::arange(3, torch::kFloat)));
    EXPECT_THAT(testing::usage_error([] { (void)hvd::alltoall(full(4, 1)); }), HasSubstr("4 rows"));
    const auto rows = [&](std::int64_t count) {
      return hvd::reducescatter(torch::arange(count, torch::kFloat) + rank);
    };
    EXPECT_TRUE(torch::equal(rows(6), torch::arange(2, torch::kFloat) + 2 * rank + 1));
    const std::int64_t begin[] = {0, 3, 5, 7};  // of 7 rows the first has three
    EXPECT_TRUE(torch::equal(rows(7), torch::arange(begin[rank], begin[rank + 1], torch::kFloat) + 1));
    EXPECT_EQ(hvd::synchronize(hvd::reducescatter_async(full(3, 1), {.op = hvd::Sum})).item<float>(), 3);
    EXPECT_TRUE(torch::equal(hvd::broadcast(full(2, rank), 2), full(2, 2)));
    hvd::barrier();
  });
}

// The set is gone before its operation is over: the queue ends with the last handle's work, in nobody's own thread.
TEST(Horovod, AProcessSetMayGoBeforeItsOperationsEnd) {
  run_horovod(2, [] {
    for (int i = 0; i < 20; ++i) {
      const at::Tensor mine = full(1'000, hvd::rank() + i);
      const auto handle = hvd::allreduce_async(mine, {.op = hvd::Sum, .process_set = hvd::add_process_set({0, 1})});
      const auto part = hvd::reducescatter_async(mine, {.op = hvd::Sum, .process_set = hvd::add_process_set({0, 1})});
      EXPECT_EQ(hvd::synchronize(handle)[0].item<float>(), float(2 * i + 1));
      EXPECT_EQ(hvd::synchronize(part)[0].item<float>(), float(2 * i + 1));
    }
  });
}

TEST(Horovod, AProcessSetIsForItsRanks) {
  run_horovod(3, [] {
    const hvd::ProcessSet ends = hvd::add_process_set({0, 2});
    EXPECT_EQ(ends.ranks(), (std::vector<int>{0, 2}));
    EXPECT_EQ(ends.included(), hvd::rank() != 1);
    if (ends.included()) {
      EXPECT_EQ(ends.rank(), hvd::rank() / 2);
      EXPECT_EQ(hvd::allreduce(full(1, hvd::rank()), {.process_set = ends}).item<float>(), 1);
      EXPECT_EQ(hvd::broadcast(full(1, hvd::rank()), 2, ends).item<float>(), 2) << "a number of the job";
      EXPECT_THAT(testing::usage_error([&] { (void)hvd::broadcast(full(1, 0), 1, ends); }), HasSubstr("root_rank 1"));
      EXPECT_THAT(support::what_of([&] { (void)hvd::allreduce(full(hvd::rank() + 1, 0), {.process_set = ends}); }),
                  HasSubstr("rank 0 calls allreduce(1 x Float, mean), rank 2 calls allreduce(3 x Float, mean)"));
    } else {
      EXPECT_THAT(testing::usage_error([&] { hvd::barrier(ends); }), HasSubstr("rank 1 is not in the process set"));
    }
    hvd::remove_process_set(ends);
    if (ends.included()) {
      EXPECT_THAT(testing::usage_error([&] { hvd::barrier(ends); }), HasSubstr("has been removed"));
    }
    hvd::barrier();
  });
}

TEST(Horovod, ProcessSetsOverSeveralNodes) {
  const std::function<void()> body = [] {
    EXPECT_EQ(hvd::cross_size(), 2);
    EXPECT_EQ(hvd::cross_rank(), hvd::rank() / 2);
    EXPECT_TRUE(torch::equal(hvd::allreduce(full(70'001, hvd::rank())), full(70'001, 1)));
    for (const std::vector<int>& ranks : {std::vector<int>{0, 1}, {1, 2}, {2}}) {
      const hvd::ProcessSet some = hvd::add_process_set(ranks);
      if (!some.included()) continue;
      const double mean = std::accumulate(ranks.begin(), ranks.end(), 0) / double(ranks.size());
      EXPECT_TRUE(torch::equal(hvd::allreduce(full(7, hvd::rank()), {.process_set = some}), full(7, mean)));
    }
    hvd::barrier();
  };
  support::run_nodes({2, 1}, support::with_horovod(body));
}

TEST(Horovod, RanksThatDisagreeAreToldAndMayGoOn) {
  run_horovod(2, [] {
    const std::string told = support::what_of([] {
      if (hvd::rank() == 0)
        (void)hvd::allreduce(full(4, 1));
      else
        (void)hvd::broadcast(full(4, 1), 1);
    });
    EXPECT_THAT(told, HasSubstr("rank 0 calls allreduce(4 x Float, mean), rank 1 calls broadcast(4 x Float, root 1)"));
    EXPECT_THAT(testing::usage_error([] {
                  (void)hvd::allgather(torch::ones({1, hvd::rank() + 1}));
                }),
                HasSubstr("rank 1 Float[1, 2]"));
    hvd::barrier();
  });
}

TEST(Horovod, JoinTakesPartWithZerosUntilAllHave) {
  run_horovod(3, [] {
    // Rank r has r + 1 batches; the average is over all ranks, those without data too.
    for (int batch = 0; batch <= hvd::rank(); ++batch) {
      EXPECT_EQ(hvd::allreduce(full(1000, 3))[999].item<float>(), float(3 - batch));
      const at::Tensor sum = hvd::allreduce(full(2, 1), {.op = hvd::Adasum});
      EXPECT_FLOAT_EQ(sum[0].item<float>(), 1) << "equal ones, and none";
    }
    EXPECT_EQ(hvd::join(), 2);
    EXPECT_EQ(hvd::allreduce(full(1, 1), {.op = hvd::Sum}).item<float>(), 3) << "then all are back";
    if (hvd::rank() == 1) {
      EXPECT_THAT(testing::usage_error([] { (void)hvd::join(); }), HasSubstr("but rank 1 has joined"));
    } else {
      EXPECT_THAT(testing::usage_error([] { (void)hvd::allgather(full(2, 1)); }), HasSubstr("but rank 1 has joined"));
    }
    hvd::barrier();
  });
}

TEST(Horovod, AdasumIsTheFormula) {
  for (const int ranks : {2, 3, 4}) {
    run_horovod(ranks, [ranks] {
      const auto value = [](int rank, int which) {
        return torch::rand({40 + which},
                           torch::make_generator<at::CPUGeneratorImpl>(std::uint64_t(1 + rank * 2 + which)),
                           torch::kDouble);
      };
      // Each tensor by itself, also where several travel together.
      const hvd::Tensors sums =
          hvd::grouped_allreduce({value(hvd::rank(), 0), value(hvd::rank(), 1)}, {.op = hvd::Adasum});
      for (int which = 0; which < 2; ++which) {
        std::vector<std::vector<double>> plain;
        for (int rank = 0; rank < ranks; ++rank) {
          const at::Tensor tensor = value(rank, which);
          plain.emplace_back(tensor.data_ptr<double>(), tensor.data_ptr<double>() + tensor.numel());
        }
        const at::Tensor expected = torch::tensor(hvd::plain_adasum(plain), torch::kDouble);
        EXPECT_TRUE(torch::allclose(sums[std::size_t(which)], expected, 1e-14)) << ranks;
      }
    });
  }
}

TEST(Horovod, ObjectsAndStateComeFromTheRoot) {
  run_horovod(2, [] {
    c10::Dict<std::string, double> mine;
    mine.insert("lr", 0.5 * hvd::rank());
    EXPECT_EQ(hvd::broadcast_object(mine, 1).toGenericDict().at("lr").toDouble(), 0.5);
    const auto all = hvd::allgather_object(std::string(std::size_t(hvd::rank() * 5000), 'x'));
    EXPECT_EQ(all[0].toStringRef().size() + all[1].toStringRef().size(), 5000u);

    torch::manual_seed(std::uint64_t(hvd::rank()));
    torch::nn::Linear model(3, 2);
    hvd::broadcast_parameters(*model, 1);
    torch::manual_seed(1);
    torch::nn::Linear expected(3, 2);
    EXPECT_TRUE(torch::equal(model->weight, expected->weight));
    hvd::broadcast_parameters(model->named_parameters());

    torch::optim::Adam adam(model->parameters(), torch::optim::AdamOptions(hvd::rank() == 1 ? 0.25 : 0.1));
    for (int step = 0; step <= hvd::rank(); ++step) {
      model(torch::ones({1, 3})).sum().backward();
      adam.step();
    }
    hvd::broadcast_optimizer_state(adam, 1);
    EXPECT_EQ(static_cast<torch::optim::AdamOptions&>(adam.param_groups()[0].options()).lr(), 0.25);
    const auto* state =
        static_cast<torch::optim::AdamParamState*>(adam.state().at(model->weight.unsafeGetTensorImpl()).get());
    EXPECT_EQ(state->step(), 2);
    const at::Tensor moments = hvd::allreduce(state->exp_avg());
    EXPECT_TRUE(torch::equal(moments, state->exp_avg()));
  });
}

TEST(Horovod, ARankThatIsGoneIsNamed) {
  const auto body = [] {
    (void)hvd::allreduce(full(3, 1));
    if (hvd::rank() == 1) raise(SIGKILL);
    try {
      for (int i = 0; i < 3; ++i) (void)hvd::allreduce(full(300'000, 1));
      ADD_FAILURE() << "an operation ended without rank 1";
    } catch (const GroupAborted& error) {
      EXPECT_EQ(error.failure().rank, 1) << error.what();
    }
  };
  run_horovod(3, body, {.allowed_signal = SIGKILL});
}

}  // namespace
}  // namespace lockstep
