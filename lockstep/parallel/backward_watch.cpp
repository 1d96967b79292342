#include "lockstep/parallel/backward_watch.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::parallel {

struct BackwardWatch::Passes {
  std::vector<int> running;  ///< their ids
  bool broken = false;
};

// Lives as long as the pass.
struct BackwardWatch::End {
  End(std::shared_ptr<Passes> all, int task) : passes(std::move(all)), id(task) { passes->running.push_back(id); }
  ~End() {
    std::erase(passes->running, id);
    passes->broken |= !reached;
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  std::shared_ptr<Passes> passes;
  int id;
  bool reached = false;
};

BackwardWatch::BackwardWatch() : passes_(std::make_shared<Passes>()) {}

void BackwardWatch::enter() {
  const int id = torch::autograd::get_current_graph_task_id();
  const std::vector<int>& running = passes_->running;
  if (std::find(running.begin(), running.end(), id) != running.end()) return;
  require_whole("backward");
  auto end = std::make_shared<End>(passes_, id);
  torch::autograd::Engine::get_default_engine().queue_callback([end = std::move(end)] { end->reached = true; });
}

void BackwardWatch::require_whole(const char* who) const {
  if (passes_->broken)
    throw Error(std::string(who) +
                ": an earlier backward pass of this step ended by an exception and left a part of its gradients; drop "
                "them by optimizer.zero_grad(), then run forward and backward again");
}

void BackwardWatch::forget() { passes_->broken = false; }

}  // namespace lockstep::parallel
