#include "tests/support/file_server.h"

#include <cstdlib>

namespace lockstep::testing {

FileServer::FileServer(const std::string& folder)
    : job_({LOCKSTEP_PYTHON, FILE_SERVER, folder}), port_(job_.wait_for_lines(1)[0]) {
  ::setenv("no_proxy", "127.0.0.1", 1);
}

std::string FileServer::url(const std::string& how) const { return "http://127.0.0.1:" + port_ + "/" + how + "/"; }

std::vector<std::string> FileServer::requests() const {
  std::vector<std::string> all = lines(job_.out());
  all.erase(all.begin());
  return all;
}

}  // namespace lockstep::testing
