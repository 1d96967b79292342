#pragma once

// Where groups of the host work on a tensor: its own memory where that is contiguous and the host's, else a copy.
//
// Tensors of devices go through the host in this way. A copy from a device is queued on the current stream of that
// device and waited for, so it sees all work that was queued there before; one back likewise, so all work that is
// queued behind it sees the values. Where the device has memory of the host that it can reach by itself (pinned), the
// copies are there.

#include <ATen/core/Tensor.h>

namespace lockstep::comm {

/// Whether the host can work on the tensor's own memory, element after element.
bool lies_in_host(const at::Tensor& tensor);

/// A new contiguous tensor of the host, of the same sizes and dtype, without values.
at::Tensor new_host_room(const at::Tensor& tensor);

/// `tensor` itself where it lies in the host's memory, else new_host_room().
at::Tensor host_room(const at::Tensor& tensor);

/// The same with the values.
at::Tensor host_values(const at::Tensor& tensor);

}  // namespace lockstep::comm
