#include "lockstep/parallel/module_pointer.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace lockstep::parallel {
namespace {

struct PointedImpl : torch::nn::Module {};
TORCH_MODULE(Pointed);

// Privately derived, as a class is unless it says otherwise.
class Hidden : torch::nn::Module {};

static_assert(ModulePointer<torch::nn::Linear>);
static_assert(ModulePointer<Pointed>);
static_assert(ModulePointer<std::shared_ptr<PointedImpl>>);
static_assert(ModulePointer<std::shared_ptr<torch::nn::Module>>);
static_assert(!ModulePointer<PointedImpl>);
static_assert(!ModulePointer<PointedImpl*>);
static_assert(!ModulePointer<std::unique_ptr<PointedImpl>>);
static_assert(!ModulePointer<std::shared_ptr<Hidden>>);
static_assert(!ModulePointer<std::shared_ptr<int>>);

TEST(ModulePointer, IsTheModuleItself) {
  const Pointed holder;
  EXPECT_EQ(detail::module_pointer(holder).get(), holder.get());
  const auto pointer = std::make_shared<PointedImpl>();
  EXPECT_EQ(detail::module_pointer(pointer), pointer);
}

}  // namespace
}  // namespace lockstep::parallel
