#pragma once

// The Gloo inside libtorch, called from C++, with what can be set for it.

#include <memory>
#include <string>

#include "benchmarks/comm/turns.h"

namespace lockstep::bench {

struct GlooOptions {
  std::string store_file;             ///< fresh, the same on all ranks
  std::string address = "127.0.0.1";  ///< where this rank listens
  int rank = 0;
  int ranks = 1;
  int threads = 2;  ///< of Gloo, as torch sets it
  int devices = 1;  ///< connections between two ranks, used in turn
  int parts = 1;    ///< a large tensor goes in that many all-reduces at once
  bool huge = false;
};

class GlooContender {
 public:
  explicit GlooContender(const GlooOptions& options);
  ~GlooContender();
  contender as_contender();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::bench
