#pragma once

// What a step does to a parameter that it leaves out: nothing, but another buffer is to have it.

namespace lockstep::optim {

struct KeepRule {
  int state_arrays = 0;
  bool maximize = false;

  constexpr int arrays() const { return state_arrays; }
  template <class V>
  V update(V w, V, auto state) const {
    for (int array = 0; array < state_arrays; ++array) state.set(array, state.get(array));
    return w;
  }
};

}  // namespace lockstep::optim
