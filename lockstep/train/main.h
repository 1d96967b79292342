#pragma once

// The whole trainer as one call: flags, checkpoints, restarts, files and report, with models and data sets of one's own
// beside the built-in ones.
//
//   int main(int argc, char** argv) {
//     return lockstep::train::main(argc, argv, {.models = {{"net", [](const auto& task) {
//                                    return std::make_shared<Net>(task.classes);
//                                  }}}});
//   }
//
// `lockstep run -n 2 build/my_trainer --model net --dataset mnist --data-path DIR` starts it on two processes; alone it
// is one. lockstep-trainer, the worker of `lockstep train`, is this call without additions.

#include "lockstep/train/additions.h"

namespace lockstep::train {

/// One rank of the run that the command line asks for, from joining it to its end. Returns the exit code: 0 done, 1
/// failure, 2 wrong use or bad input, 75 stopped by a signal and saved. Errors are told on standard error, once for all
/// ranks; none is thrown. It takes over the process: signals, malloc's options, torch's threads. Call it once.
int main(int argc, char** argv, const Additions& additions = {});

}  // namespace lockstep::train
