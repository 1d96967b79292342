#pragma once

#include <sys/resource.h>

#include <string>

namespace lockstep::base {

/// "this process may have 1024 files open; raise the limit (...)": behind an error with EMFILE.
inline std::string descriptor_limit_text() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return "this process may have " + std::to_string(limit.rlim_cur) +
         " files open; raise the limit (ulimit -Hn, or LimitNOFILE of its service)";
}

}  // namespace lockstep::base
