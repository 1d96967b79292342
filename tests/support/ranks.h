#pragma once

// Runs a function as every rank of a group: in threads of this process, or in forked
// processes. What a rank throws or expects in vain fails the test that called.

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>

#include "lockstep/comm/group.h"

namespace lockstep::support {

enum class RankKind { single, threads, processes };
const char* to_string(RankKind kind);

using RankBody = std::function<void(std::shared_ptr<comm::Group>)>;

struct RankOptions {
  std::chrono::milliseconds timeout{20'000};
  /// A rank that ends by the signal with this number is no failure (kill tests).
  int allowed_signal = 0;
};

/// Returns when all ranks are done.
void run_ranks(RankKind kind, int ranks, const RankBody& body, RankOptions options = {});

}  // namespace lockstep::support
