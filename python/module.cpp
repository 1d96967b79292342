// The extension module lockstep_torch._backend.

#include <torch/csrc/utils/pybind.h>

#include <mutex>
#include <optional>
#include <set>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "lockstep/base/error.h"
#include "python/backend.h"
#include "python/join.h"

namespace lockstep::python {
namespace {

namespace py = pybind11;

// What ranks are called in the whole job, where messages may not say so.
std::string suffix_of(comm::Group& group, const std::vector<std::int64_t>& global_ranks) {
  const base::Node* const node = group.shared_node();
  if (global_ranks.empty() || (node != nullptr && node->member.whole().page != nullptr)) return "";
  std::string list;
  for (const std::int64_t rank : global_ranks) list += (list.empty() ? "" : ", ") + std::to_string(rank);
  return " (numbers in the group of the ranks " + list + ")";
}

// Those that this process has.
std::mutex all_mutex;
std::set<Backend*> all;

// Whoever lets go of the last reference holds Python's lock, which callbacks in the group's thread may want.
class OwnedByPython final : public Backend {
 public:
  OwnedByPython(std::shared_ptr<comm::Group> group, std::string suffix) : Backend(std::move(group), std::move(suffix)) {
    const std::lock_guard lock(all_mutex);
    all.insert(this);
  }
  ~OwnedByPython() override {
    {
      const std::lock_guard lock(all_mutex);
      all.erase(this);
    }
    std::optional<py::gil_scoped_release> released;
    if (PyGILState_Check() == 1) released.emplace();
    leave();
  }
};

// At the end of Python, whose objects no thread may touch afterwards.
void leave_all() {
  const py::gil_scoped_release released;
  const std::lock_guard lock(all_mutex);
  for (Backend* const backend : all) backend->leave();
}

c10::intrusive_ptr<c10d::Backend> create(const c10d::DistributedBackendOptions& options) {
  const py::gil_scoped_release released;
  const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(options.timeout);
  try {
    std::shared_ptr<comm::Group> group =
        join(*options.store, {options.group_rank, options.group_size, timeout, options.global_ranks_in_group});
    std::string suffix = suffix_of(*group, options.global_ranks_in_group);
    return c10::make_intrusive<OwnedByPython>(std::move(group), std::move(suffix));
  } catch (...) {
    std::rethrow_exception(for_python(std::current_exception()));
  }
}

Backend& ours(c10d::Backend& backend) {
  auto* const found = dynamic_cast<Backend*>(&backend);
  TORCH_CHECK_VALUE(found != nullptr, "the process group's backend for the CPU is ", backend.getBackendName(),
                    ", not lockstep");
  return *found;
}

at::Tensor shared_empty(c10d::Backend& backend, const std::vector<std::int64_t>& sizes, at::ScalarType dtype) {
  const py::gil_scoped_release released;
  return ours(backend).shared_empty(sizes, dtype);
}

}  // namespace
}  // namespace lockstep::python

PYBIND11_MODULE(_backend, module) {
  namespace py = pybind11;
  using namespace lockstep::python;
  // torch's own bindings know torch's exceptions; so do these.
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const c10::ValueError& error) {
      py::set_error(PyExc_ValueError, error.what_without_backtrace());
    } catch (const c10::Error& error) {
      py::set_error(PyExc_RuntimeError, error.what_without_backtrace());
    }
  });
  module.def("create", &create);
  module.def("shared_empty", &shared_empty);
  module.def("leave_all", &leave_all);
}
