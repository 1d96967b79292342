#pragma once

// Who failed first in an attempt: what the error slot, the error files and the kernel say of it (verdict.h decides).

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/control_page.h"
#include "lockstep/launch/report/error_file.h"
#include "lockstep/launch/report/out_of_memory.h"
#include "lockstep/launch/report/verdict.h"

namespace lockstep::launch {

class Inquiry {
 public:
  /// `error_files`: one for each worker.
  Inquiry(base::ControlPage& page, std::vector<ErrorFile> error_files);

  /// The path of the worker's error file.
  const std::string& error_file(int rank) const { return error_files_[std::size_t(rank)].path(); }

  /// A worker has failed, the first whose end was seen: wakes its peers by the error slot, unless the slot was taken;
  /// then what it says is believed from now on.
  void open(const End& end);
  /// Who failed first, by what is known now. `ends` are in order of time; at least one failed.
  Verdict first(const std::vector<End>& ends) const;
  /// Adds to a verdict what the worker's error file and the kernel say. Takes 50 ms at most.
  void explain(Verdict& verdict, OutOfMemoryWatch& kernel) const;

 private:
  base::ControlPage& page_;
  const std::vector<ErrorFile> error_files_;
  std::optional<Failure> told_;  // what a worker wrote into the error slot
};

}  // namespace lockstep::launch
