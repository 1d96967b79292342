#pragma once

// Processes of a job that speaks Horovod's words.

#include <functional>

#include "lockstep/horovod.h"
#include "tests/support/ranks.h"

namespace lockstep {
namespace hvd = horovod;

namespace support {

/// The function between init() and shutdown().
inline RankBody with_horovod(const std::function<void()>& body) {
  return [&body](auto group) {
    hvd::init({.group = std::move(group), .idle_cores_hint = false});
    body();
    hvd::shutdown();
  };
}

/// Runs the function as every rank between init() and shutdown().
inline void run_horovod(int ranks, const std::function<void()>& body, RankOptions options = {}) {
  run_ranks(RankKind::processes, ranks, with_horovod(body), options);
}

}  // namespace support
}  // namespace lockstep
