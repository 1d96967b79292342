#pragma once

// Runs of the real `lockstep train`: a small data set in MNIST's format, the command lines of
// each launcher, and what a finished run left in its files.

#include <string>
#include <vector>

#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"

namespace lockstep::testing {

using Words = std::vector<std::string>;

/// The words of a command, then more of them.
inline Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

/// The bytes of an IDX file of `count` images of 28x28 (noise around a pattern per class), and
/// of its labels. A function of `count` and `seed`.
std::string idx_images(int count, unsigned seed);
std::string idx_labels(int count, unsigned seed);

/// Writes the four files of a set into `folder`/`name` and returns its path. The test part is
/// longer than two of the chunks in which it is evaluated.
inline constexpr int kTrainImages = 250;
inline constexpr int kTestImages = 1100;
std::string write_mnist(const ScratchFolder& folder, const std::string& name = "mnist");

enum class By { lockstep, torchrun, mpirun };
const char* to_string(By launcher);

/// Why this launcher cannot be used here; empty when it can. Looks once per program. When
/// LOCKSTEP_REQUIRE_LAUNCHERS is set, a missing one is an exception.
std::string why_not(By launcher);

/// The command that trains with `flags` in `processes` processes.
std::vector<std::string> train_command(By launcher, int processes, const std::vector<std::string>& flags);

/// Variables of torchrun's contract, as set by hand for one of `world` ranks; `port` names the job.
std::vector<std::string> rank_variables(int rank, int world, int port);

/// The results in a metrics.jsonl, one text per event, numbers unrounded: train (step, epoch,
/// loss, lr), eval (step, epoch, loss, top1, samples), done (steps, weights_hash). Times and
/// the world's size are left out. Throws when a line is no JSON object, or cut.
std::vector<std::string> results(const std::string& metrics_jsonl);

/// The weights_hash of a metrics.jsonl; throws when there is none.
std::string weights_hash(const std::string& metrics_jsonl);

/// All files and folders below a folder, sorted.
std::vector<std::string> everything_in(const std::string& folder);

}  // namespace lockstep::testing
