#include "lockstep/launch/doctor/remote_peer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/machine/facts.h"

namespace lockstep::launch {
namespace {

constexpr int kEndTime = 1'000;  // milliseconds

struct PipeEnds {
  PipeEnds() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("doctor: pipe");
    read = base::UniqueFd(ends[0]);
    write = base::UniqueFd(ends[1]);
  }
  base::UniqueFd read;
  base::UniqueFd write;
};

std::string quoted_for_shell(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

[[noreturn]] void become_shell(char* const* argv, int in, int out, int errors, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  std::signal(SIGPIPE, SIG_DFL);
  execvp(argv[0], argv);
  const char* const why = std::strerror(errno);
  if (write(STDERR_FILENO, why, std::strlen(why)) < 0) _exit(126);
  _exit(127);
}

}  // namespace

std::vector<std::string> remote_shell_words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  if (words.empty()) throw UsageError("--remote-shell '" + base::shown(text) + "' is no command, as ssh -p 2222");
  return words;
}

std::vector<std::string> remote_command(std::vector<std::string> shell, const std::string& host,
                                        const std::vector<std::string>& program, const std::string& folder) {
  std::string line = folder.empty() ? "exec" : "cd " + quoted_for_shell(folder) + " && exec";
  for (const std::string& word : program) line += " " + quoted_for_shell(word);
  shell.push_back(host);
  shell.push_back(line);
  return shell;
}

RemotePeer::RemotePeer(const std::vector<std::string>& command) {
  PipeEnds in;
  PipeEnds out;
  errors_ = base::UniqueFd(memfd_create("lockstep-doctor", MFD_CLOEXEC));
  if (!errors_) throw_errno("doctor: memfd_create");
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) throw_errno("doctor: fork");
  if (pid_ == 0) become_shell(argv.data(), in.read.get(), out.write.get(), errors_.get(), parent);
  pidfd_ = base::UniqueFd(int(syscall(SYS_pidfd_open, pid_, 0)));
  in_ = std::move(in.write);
  out_ = std::move(out.read);
  lines_ = LineReader(out_.get());
}

RemotePeer::~RemotePeer() {
  in_ = base::UniqueFd();
  pollfd ending{pidfd_.get(), POLLIN, 0};
  if (!pidfd_ || poll(&ending, 1, kEndTime) <= 0) kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::string RemotePeer::last_words() const {
  char text[2000];
  const off_t size = lseek(errors_.get(), 0, SEEK_END);
  const off_t begin = std::max<off_t>(0, size - off_t(sizeof text));
  const ssize_t count = pread(errors_.get(), text, sizeof text, begin);
  const std::string said = without_newline(std::string(text, std::size_t(std::max<ssize_t>(0, count))));
  return said.substr(said.rfind('\n') + 1);
}

}  // namespace lockstep::launch
