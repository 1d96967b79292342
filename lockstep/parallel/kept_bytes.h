#pragma once

// Memory of others that is a part of the state: the best metric so far, a sampler's position. Its owner registers it
// before there is a state; from then on each step commits what is in it.

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lockstep/state/shared_state.h"

namespace lockstep::parallel {

class KeptBytes {
 public:
  /// UsageError when name or memory is empty, or the name is taken.
  void keep(std::string name, std::span<std::byte> memory);

  /// What a layout has to know.
  std::vector<state::NamedBytes> specs() const;

  std::map<std::string, std::span<std::byte>> by_name() const;

  /// Writes the owners' bytes into a state buffer.
  void store(const state::SharedState& state, int buffer) const;
  /// Sets the owners' memory to the committed bytes.
  void load(const state::SharedState& state) const;

 private:
  struct Kept {
    std::string name;
    std::span<std::byte> memory;
  };
  std::vector<Kept> kept_;
};

}  // namespace lockstep::parallel
