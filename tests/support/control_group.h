#pragma once

// A control group of a test's own, of version 1 or 2, removed with the object. Making one needs
// rights and a controller: made() tells, why_not() says what is missing.

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "lockstep/base/control_group.h"
#include "tests/support/wait_until.h"

namespace lockstep::testing {

class OwnControlGroup {
 public:
  /// A group at the top of the hierarchy that has `controller`, and the file that has its limit
  /// there ("memory.limit_in_bytes" or "memory.max").
  OwnControlGroup(const std::string& controller, const std::string& v1_file, const std::string& v2_file) {
    why_not_ = "no hierarchy with the controller " + controller;
    for (const base::ControlGroup& group : base::control_groups(controller)) {
      path_ = group.folders.back() + "/lockstep-test-" + controller + "-" + std::to_string(getpid());
      version_ = group.version;
      if (mkdir(path_.c_str(), 0755) != 0) {
        why_not_ = "cannot make " + path_ + ": " + std::strerror(errno);
        continue;
      }
      made_ = access(file(version_ == 2 ? v2_file : v1_file).c_str(), W_OK) == 0;
      if (made_) return;
      why_not_ = path_ + " has no limit that can be set";
      rmdir(path_.c_str());
    }
  }
  OwnControlGroup(const OwnControlGroup&) = delete;
  ~OwnControlGroup() {
    // Busy as long as a dead process has not been buried.
    if (made_) wait_until([this] { return rmdir(path_.c_str()) == 0 || errno != EBUSY; });
  }

  bool made() const { return made_; }
  const std::string& why_not() const { return why_not_; }
  int version() const { return version_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  bool write(const std::string& name, const std::string& value) const {
    std::ofstream out(file(name));
    return bool(out << value << std::flush);
  }
  /// Moves the calling process into the group.
  bool enter() const { return write("cgroup.procs", "0"); }

 private:
  std::string path_;
  std::string why_not_;
  int version_ = 0;
  bool made_ = false;
};

}  // namespace lockstep::testing
