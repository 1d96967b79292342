#include "lockstep/amp/custom_function.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"

namespace lockstep::amp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What a function of one's own saw of a product that autocast would make in 16 bits.
struct Seen {
  at::ScalarType input, forward, backward;
};
Seen seen;

struct Square : torch::autograd::Function<Square> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given,
                            const std::optional<at::ScalarType>& to) {
    const CustomForward precision(*context, to);
    const at::Tensor input = precision.cast(given);
    seen.input = input.scalar_type();
    const at::Tensor product = at::mm(input, input);
    seen.forward = product.scalar_type();
    return product;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const CustomBackward precision(*context);
    const at::Tensor ones = torch::ones({2, 2});
    seen.backward = at::mm(ones, ones).scalar_type();
    return {gradients[0].to(at::kFloat), at::Tensor()};
  }
};

// Python's functions are compared by their documentation: torch.amp.custom_fwd, custom_bwd.
Seen seen_with(std::optional<at::ScalarType> to, bool autocast_forward, bool autocast_backward,
               at::ScalarType dtype = at::kFloat) {
  const at::Tensor input = torch::ones({2, 2}, at::TensorOptions().dtype(dtype).requires_grad(true));
  at::Tensor output;
  {
    const Autocast scope(AutocastOptions{.dtype = at::kBFloat16, .enabled = autocast_forward});
    output = Square::apply(input, to);
  }
  const Autocast scope(AutocastOptions{.dtype = at::kHalf, .enabled = autocast_backward});
  output.sum().backward();
  EXPECT_EQ(input.grad().scalar_type(), dtype);
  return seen;
}

TEST(CustomFunction, BackwardHasTheAutocastOfForward) {
  for (const bool around_backward : {false, true}) {
    const Seen on = seen_with({}, true, around_backward);
    EXPECT_EQ(on.input, at::kFloat);
    EXPECT_EQ(on.forward, at::kBFloat16);
    EXPECT_EQ(on.backward, at::kBFloat16) << "not what is set around backward()";
    const Seen off = seen_with({}, false, around_backward);
    EXPECT_EQ(off.forward, at::kFloat);
    EXPECT_EQ(off.backward, at::kFloat);
  }
}

TEST(CustomFunction, CastInputsAreAnIslandWhereAutocastIsOn) {
  const Seen on = seen_with(at::kFloat, true, true, at::kBFloat16);
  EXPECT_EQ(on.input, at::kFloat);
  EXPECT_EQ(on.forward, at::kFloat);
  EXPECT_EQ(on.backward, at::kFloat);
  EXPECT_EQ(seen_with(at::kFloat, false, true, at::kBFloat16).input, at::kBFloat16)
      << "without autocast nothing is cast";
  EXPECT_EQ(seen_with(at::kFloat, true, true, at::kDouble).input, at::kDouble) << "as in Python";
}

struct Forgetful : torch::autograd::Function<Forgetful> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& input) { return input * 2; }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const CustomBackward precision(*context);
    return {gradients[0]};
  }
};

TEST(CustomFunction, RefusesWhatHasNoMeaning) {
  const at::Tensor input = torch::ones({2}, at::TensorOptions().requires_grad(true));
  EXPECT_THROW(Forgetful::apply(input).sum().backward(), UsageError);
  EXPECT_THROW(Square::apply(torch::ones({2, 2}), std::optional(at::kLong)), UsageError);
  AutogradContext context;
  EXPECT_THROW(CustomForward(context, {}, c10::DeviceType::FPGA), UsageError);
}

}  // namespace
}  // namespace lockstep::amp
