#define USE_C10D_GLOO
#include "benchmarks/comm/gloo_contender.h"

#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

#include <cstdlib>
#include <map>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::bench {
namespace {

constexpr std::int64_t kLarge = 256 << 10;  // elements from which an all-reduce is cut

c10::intrusive_ptr<c10d::ProcessGroupGloo> connect(const GlooOptions& wanted) {
  auto options = c10d::ProcessGroupGloo::Options::create();
  for (int i = 0; i < wanted.devices; ++i)
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(wanted.address));
  options->threads = wanted.threads;
  auto store = c10::make_intrusive<c10d::FileStore>(wanted.store_file, wanted.ranks);
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, wanted.rank, wanted.ranks, options);
}

}  // namespace

struct GlooContender::State {
  explicit State(const GlooOptions& wanted) : options(wanted), gloo(connect(wanted)) {}

  float* buffer(std::int64_t elements) {
    at::Tensor& data = buffers[elements];
    if (data.defined()) return data.mutable_data_ptr<float>();
    const std::size_t edge = options.huge ? std::size_t(2) << 20 : 4096;
    const std::size_t bytes = (std::size_t(elements) * sizeof(float) + edge - 1) / edge * edge;
    void* memory = std::aligned_alloc(edge, bytes);
    if (memory == nullptr) throw Error("bench: out of memory");
    if (options.huge) madvise(memory, bytes, MADV_HUGEPAGE);
    data = at::from_blob(memory, {elements}, std::free, at::kFloat).zero_();
    return data.mutable_data_ptr<float>();
  }

  void all_reduce(std::int64_t elements) {
    const at::Tensor& data = buffers[elements];
    const int parts = elements >= kLarge ? options.parts : 1;
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (const at::Tensor& part : data.chunk(parts)) {
      std::vector<at::Tensor> tensors{part};
      works.push_back(gloo->allreduce(tensors));
    }
    for (const auto& work : works) work->wait();
  }

  GlooOptions options;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  std::map<std::int64_t, at::Tensor> buffers;
};

GlooContender::GlooContender(const GlooOptions& options) : state_(std::make_unique<State>(options)) {}
GlooContender::~GlooContender() = default;

contender GlooContender::as_contender() {
  return {.self = state_.get(),
          .buffer = [](void* self, long elements) { return static_cast<State*>(self)->buffer(elements); },
          .all_reduce = [](void* self, float*, long elements) { static_cast<State*>(self)->all_reduce(elements); },
          .barrier = [](void* self) { static_cast<State*>(self)->gloo->barrier()->wait(); }};
}

}  // namespace lockstep::bench
