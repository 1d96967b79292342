#include "tests/support/job.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <sstream>

#include "lockstep/base/error.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/wait_until.h"

namespace lockstep::testing {
namespace {

bool is_launchers(const std::string& entry) {
  constexpr std::array kPrefixes = {
      "RANK=", "WORLD_SIZE=", "LOCAL_RANK=", "LOCAL_WORLD_SIZE=", "MASTER_", "TORCHELASTIC_", "LOCKSTEP_", "OMPI_",
      "PMI",   "SLURM_",      "PET_",        "OMP_NUM_THREADS="};
  return std::ranges::any_of(kPrefixes, [&](const char* prefix) { return entry.starts_with(prefix); });
}

bool is_replaced(const std::string& entry, const std::vector<std::string>& variables) {
  const std::string name = entry.substr(0, entry.find('=') + 1);
  return std::ranges::any_of(variables, [&](const std::string& variable) { return variable.starts_with(name); });
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

base::UniqueFd memory_file() {
  base::UniqueFd fd(memfd_create("output", MFD_CLOEXEC));
  if (!fd) throw_errno("memfd_create");
  return fd;
}

std::string contents(int fd) {
  std::string text(std::size_t(lseek(fd, 0, SEEK_END)), '\0');
  const ssize_t got = pread(fd, text.data(), text.size(), 0);
  text.resize(got > 0 ? std::size_t(got) : 0);
  return text;
}

// A writer that shares the reader's offset would be moved by lseek: give it its own.
int own_offset(int fd) {
  return open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
}

}  // namespace

Job::Job(const std::vector<std::string>& command, const std::vector<std::string>& variables)
    : out_(memory_file()), err_(memory_file()) {
  static int count = 0;
  mark_ = "TEST_JOB_MARK=" + std::to_string(getpid()) + "." + std::to_string(++count);
  std::vector<std::string> arguments = command;
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!is_launchers(*entry) && !is_replaced(*entry, variables)) environment.emplace_back(*entry);
  // Set, the launcher has nothing to say about it; a test that wants it said sets it to nothing.
  if (!is_replaced("OMP_NUM_THREADS=", variables)) environment.emplace_back("OMP_NUM_THREADS=1");
  environment.insert(environment.end(), variables.begin(), variables.end());
  environment.push_back(mark_);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(environment);
  const base::UniqueFd out(own_offset(out_.get()));
  const base::UniqueFd err(own_offset(err_.get()));
  pid_ = fork();
  if (pid_ < 0) throw_errno("fork");
  if (pid_ == 0) {
    dup2(out.get(), STDOUT_FILENO);
    dup2(err.get(), STDERR_FILENO);
    syscall(SYS_close_range, 3U, ~0U, 0U);  // whatever the test was started with
    execve(argv[0], argv.data(), envp.data());
    _exit(125);
  }
}

Job::~Job() {
  for (const pid_t pid : living()) kill(pid, SIGKILL);
  if (code_ >= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Job::signal(int number) const {
  if (kill(pid_, number) != 0) throw_errno("kill");
}

std::string Job::out() const { return contents(out_.get()); }

std::string Job::err() const { return contents(err_.get()); }

std::vector<std::string> Job::wait_for_lines(std::size_t count) const {
  wait_until([&] { return lines(out()).size() >= count; });
  return lines(out());
}

int Job::wait() {
  int status = 0;
  wait_until([&] { return waitpid(pid_, &status, WNOHANG) == pid_; });
  code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return code_;
}

std::vector<pid_t> Job::living() const {
  std::vector<pid_t> found;
  DIR* processes = opendir("/proc");
  while (const dirent* entry = readdir(processes)) {
    const pid_t pid = pid_t(std::atoi(entry->d_name));
    if (pid <= 0 || pid == getpid()) continue;
    std::ifstream file("/proc/" + std::to_string(pid) + "/environ");
    for (std::string variable; std::getline(file, variable, '\0');)
      if (variable == mark_) found.push_back(pid);
  }
  closedir(processes);
  return found;
}

bool Job::nothing_left(std::chrono::milliseconds within) const {
  const auto deadline = std::chrono::steady_clock::now() + within;
  while (!living().empty()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

pid_t pid_of_rank(const Job& job, int rank) {
  for (const pid_t pid : job.living()) {
    if (pid == job.pid()) continue;
    const std::string environment = read_file("/proc/" + std::to_string(pid) + "/environ");
    if (environment.find(std::string(1, '\0') + "RANK=" + std::to_string(rank) + '\0') != std::string::npos) return pid;
  }
  throw std::runtime_error("no process of rank " + std::to_string(rank));
}

std::vector<std::string> mpirun(int processes) {
  static const ScratchFolder session;
  return {"/usr/bin/env", "mpirun", "--allow-run-as-root",    "--oversubscribe", "--mca", "orte_tmpdir_base",
          session.path(), "-n",     std::to_string(processes)};
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) result.push_back(line);
  return result;
}

char process_state(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= text.size() ? '\0' : text[name_end + 2];
}

}  // namespace lockstep::testing
