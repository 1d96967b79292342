#include "lockstep/comm/shm/reduction_of.h"

namespace lockstep::comm {
namespace {

Element element_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return Element::float32;
    case at::kDouble:
      return Element::float64;
    case at::kBFloat16:
      return Element::bfloat16;
    case at::kHalf:
      return Element::float16;
    case at::kChar:
      return Element::int8;
    case at::kInt:
      return Element::int32;
    case at::kLong:
      return Element::int64;
    default:
      return Element::uint8;  // and bool, whose bytes are 0 and 1
  }
}

}  // namespace

Reduction reduction_of(at::ScalarType dtype, ReduceOp op, int size) {
  const bool logical = dtype == at::kBool;
  switch (op) {
    case ReduceOp::min:
      return {element_of(dtype), Combine::min};
    case ReduceOp::max:
      return {element_of(dtype), Combine::max};
    case ReduceOp::product:
      return {element_of(dtype), logical ? Combine::min : Combine::product};
    case ReduceOp::mean:
      return {element_of(dtype), Combine::sum, 1.0 / size};
    default:
      return {element_of(dtype), logical ? Combine::max : Combine::sum};
  }
}

}  // namespace lockstep::comm
