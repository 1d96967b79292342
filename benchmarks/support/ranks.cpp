#include "benchmarks/support/ranks.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <iostream>

#include "lockstep/base/error.h"
#include "lockstep/comm/shm/shm_group.h"

namespace lockstep::bench {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

std::string read_all(std::FILE* file) {
  std::rewind(file);
  std::string text;
  for (int c = 0; (c = std::fgetc(file)) != EOF;) text += char(c);
  return text;
}

int run_rank(int rank, const std::vector<base::Segment>& segments, std::FILE* result,
             const std::function<std::string(const Groups&)>& body) {
  Groups groups;
  try {
    for (const base::Segment& segment : segments)
      groups.push_back(
          std::make_shared<comm::ShmGroup>(base::Segment::open(segment.path(), segment.control().local_world), rank));
    const std::string text = body(groups);
    if (rank == 0) std::fputs(text.c_str(), result);
    std::fflush(result);
    return kExitDone;
  } catch (const std::exception& error) {
    for (const auto& group : groups) group->abort(error.what());
    if (groups.empty() || groups.front()->node().member.first_to_fail())
      std::cerr << "rank " << rank << ": " << error.what() << std::endl;
    return exit_code(error);
  }
}

}  // namespace

std::string run_ranks(int ranks, int segments, const std::function<std::string(const Groups&)>& body) {
  std::vector<base::Segment> shared;
  shared.reserve(std::size_t(segments));
  for (int i = 0; i < segments; ++i) shared.push_back(base::Segment::create(ranks));
  const File result(std::tmpfile(), std::fclose);
  if (!result) throw_errno("benchmark: cannot make a temporary file");
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) throw_errno("benchmark: fork");
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      _exit(run_rank(rank, shared, result.get(), body));
    }
    children.push_back(child);
  }
  bool good = true;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  if (!good) throw Error("benchmark: a rank failed");
  return read_all(result.get());
}

}  // namespace lockstep::bench
