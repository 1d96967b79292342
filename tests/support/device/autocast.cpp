// Autocast on the device: libtorch's own lists of operators.

#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include "tests/support/device/runtime.h"

namespace lockstep::testing::sim {
namespace {

at::Tensor refuse_binary_cross_entropy(const at::Tensor& input, const at::Tensor& target,
                                       const std::optional<at::Tensor>& weight, std::int64_t reduction) {
  TORCH_CHECK(false, "binary_cross_entropy is not safe under autocast: binary_cross_entropy_with_logits is");
}

}  // namespace

void register_autocast() {
  using namespace at;            // NOLINT(google-build-using-namespace): the macros' names
  using namespace at::autocast;  // NOLINT(google-build-using-namespace)
  static auto* const others =
      new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  others->fallback(torch::CppFunction::makeFallthrough());
  static auto* const listed =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  torch::Library& m = *listed;
#define LOCKSTEP_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define LOCKSTEP_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define LOCKSTEP_FP32_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define LOCKSTEP_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(LOCKSTEP_LOWER)
  AT_FORALL_FP32(LOCKSTEP_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(LOCKSTEP_FP32_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(LOCKSTEP_PROMOTE)
#undef LOCKSTEP_LOWER
#undef LOCKSTEP_FP32
#undef LOCKSTEP_FP32_DTYPE
#undef LOCKSTEP_PROMOTE
  m.impl("binary_cross_entropy", TORCH_FN(refuse_binary_cross_entropy));
}

}  // namespace lockstep::testing::sim
