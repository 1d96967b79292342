#pragma once

// A small checkpoint for tests, and what of it can be told apart.

#include <string>
#include <vector>

#include "lockstep/checkpoint/store/write.h"

namespace lockstep::checkpoint::testing {

inline TensorBytes floats(std::string name, std::vector<std::int64_t> sizes, const std::vector<float>& values) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  return {std::move(name), "F32", std::move(sizes), std::move(strides),
          reinterpret_cast<const std::byte*>(values.data())};
}

/// Owns the values that its contents refer to.
struct ACheckpoint {
  explicit ACheckpoint(std::uint64_t step)
      : weight{float(step), 2, 3, 4, 5, 6}, bias{7, 8, 9}, moment{1, 1, 2, 3, 5, 8} {
    contents.state = {.step = step,
                      .loss = 0.25,
                      .samples = 32,
                      .seed = 7,
                      .shards = 4,
                      .threads = 1,
                      .optimizer = "0 1",
                      .optimizer_arrays = 1,
                      .updates = {{"fc.weight", step}},
                      .kept = {{"loader", std::string("\0\x01\xff", 3)}},
                      .versions = {{"lockstep", "0.1.0"}},
                      .extra = R"({"mine":[1,2]})"};
    contents.files = {{kModelName, {floats("fc.weight", {2, 3}, weight), floats("fc.bias", {3}, bias)}},
                      {kOptimizerName, {floats("fc.weight/0", {2, 3}, moment)}}};
  }
  ACheckpoint(const ACheckpoint&) = delete;

  std::vector<float> weight, bias, moment;
  Contents contents;
};

/// Writes one and returns its path.
inline std::string write_step(const std::string& folder, std::uint64_t step, const Retention& retention = {},
                              std::optional<double> metric = {}) {
  ACheckpoint one(step);
  one.contents.state.metric = metric;
  return write_checkpoint(folder, one.contents, retention);
}

}  // namespace lockstep::checkpoint::testing
