#include "benchmarks/support/ranks.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/message.h"
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

// Where a rank leaves what all are to hear of.
struct Files {
  File result, failure;
};

void leave(const File& file, const std::string& text) {
  std::fputs(text.c_str(), file.get());
  std::fflush(file.get());
}

int run_rank(int rank, const std::vector<base::Segment>& segments, const Files& files,
             const std::function<std::string(const Groups&)>& body) {
  Groups groups;
  try {
    for (const base::Segment& segment : segments)
      groups.push_back(
          std::make_shared<comm::ShmGroup>(base::Segment::open(segment.path(), segment.control().local_world), rank));
    const std::string text = body(groups);
    if (rank == 0) leave(files.result, text);
    return kExitDone;
  } catch (const std::exception& error) {
    for (const auto& group : groups) group->abort(error.what());
    if (groups.empty() || groups.front()->node().member.first_to_fail())
      leave(files.failure, "rank " + std::to_string(rank) + ": " + base::message_of(error));
    return exit_code(error);
  }
}

}  // namespace

std::string run_ranks(int ranks, int segments, const std::function<std::string(const Groups&)>& body) {
  std::vector<base::Segment> shared;
  shared.reserve(std::size_t(segments));
  for (int i = 0; i < segments; ++i) shared.push_back(base::Segment::create(ranks));
  const Files files{File(std::tmpfile(), std::fclose), File(std::tmpfile(), std::fclose)};
  if (!files.result || !files.failure) throw_errno("benchmark: cannot make a temporary file");
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) throw_errno("benchmark: fork");
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      _exit(run_rank(rank, shared, files, body));
    }
    children.push_back(child);
  }
  bool good = true, wrong_use = false;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    good = good && WIFEXITED(status) && WEXITSTATUS(status) == kExitDone;
    wrong_use = wrong_use || (WIFEXITED(status) && WEXITSTATUS(status) == kExitUsage);
  }
  if (good) return read_all(files.result.get());
  const std::string failure = read_all(files.failure.get());
  if (wrong_use) throw UsageError(failure);
  throw Error(failure.empty() ? "benchmark: a rank was killed" : failure);
}

}  // namespace lockstep::bench
