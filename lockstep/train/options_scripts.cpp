#include "lockstep/train/options_scripts.h"

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::train {
namespace {

// A flag of PyTorch's scripts of which one value says what holds here anyway.
flags::Value only(const std::string& wanted, const std::string& reason) {
  return {.word = wanted, .read = [wanted, reason](const std::string& name, const std::string& value) {
            const std::string lower = base::small_letters(value);
            if (lower != wanted)
              throw UsageError(name + " '" + base::shown(value) + "': " + reason + "; " + wanted + " is taken");
          }};
}

// Nothing is sent by a backend: the name is taken for what a script asks for, and changes nothing.
flags::Value backend() {
  return {.word = "gloo|nccl", .read = [](const std::string& name, const std::string& value) {
            const std::string lower = base::small_letters(value);
            if (lower != "gloo" && lower != "nccl")
              throw UsageError(name + " '" + base::shown(value) +
                               "': processes of a node share memory; gloo and nccl are taken");
          }};
}

// A switch that is on anyway.
flags::Value always() {
  return {.read = [](const std::string&, const std::string&) {}};
}

}  // namespace

flags::Group script_flags() {
  return {"Scripts of PyTorch",
          {{"--use-deterministic-algorithms", always(), "They are used in any case"},
           {"--dist-url", only("env://", "the launcher says where processes meet"), "Where processes meet"},
           {"--dist-backend", backend(), "How processes talk: by the memory that those of a node share"},
           {"--backend", only("pil", "pictures are read and transformed with PIL's numbers"), "What reads pictures"},
           {"--use-v2", always(), "There is one implementation of the transforms"},
           {"--start-epoch", only("0", "a checkpoint knows its step, and --resume goes on from there"),
            "Epochs that were done before"}}};
}

}  // namespace lockstep::train
