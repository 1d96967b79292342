#include "lockstep/train/error_text.h"

#include <c10/util/Exception.h>

#include "lockstep/base/message.h"
#include "lockstep/device/out_of_memory.h"

namespace lockstep::train {

std::string error_text(const std::exception& error) {
  if (const auto* memory = dynamic_cast<const c10::OutOfMemoryError*>(&error))
    return device::out_of_memory_line(memory->what_without_backtrace());
  return base::line_of(error.what());
}

}  // namespace lockstep::train
