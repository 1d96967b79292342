// The worker of the launcher benchmark. What it does is as little as can be: what is left is the launcher.
//
//   (nothing)       returns 0
//   note FOLDER     notes the time at which main began; the last rank of the first attempt then kills itself when all
//                   have begun, the others wait for their end
//   wait FOLDER     notes the time and waits for its end
//
// Times are CLOCK_MONOTONIC in nanoseconds, in FOLDER/<attempt>.<rank>; that of the kill in FOLDER/killed.

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

namespace {

long long now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

int variable(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : 0;
}

// Written aside and renamed: who sees the file sees all of it.
void note(const std::string& folder, const std::string& name, long long time) {
  const std::string path = folder + "/" + name;
  const std::string text = std::to_string(time) + "\n";
  const int file = open((path + ".part").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0 || write(file, text.data(), text.size()) != ssize_t(text.size()) || close(file) != 0 ||
      rename((path + ".part").c_str(), path.c_str()) != 0) {
    std::perror(path.c_str());
    std::exit(1);
  }
}

// An orphan of the benchmark ends by itself.
void wait_for_the_end() {
  alarm(120);
  for (;;) pause();
}

void die_when_all_have_begun(const std::string& folder, int world_size) {
  for (int rank = 0; rank < world_size; ++rank)
    for (int left = 30'000; access((folder + "/0." + std::to_string(rank)).c_str(), F_OK) != 0; --left) {
      if (left == 0) std::exit(1);
      usleep(1'000);
    }
  // The launcher has come to rest. One that polls (torchrun, ten times a second) must not meet us always at the same
  // point of its period: the wait is spread evenly over several periods.
  usleep(200'000 + useconds_t(now() / 1'000 * 7919 % 300'000));
  note(folder, "killed", now());
  kill(getpid(), SIGKILL);
}

}  // namespace

int main(int argc, char** argv) {
  const long long began = now();
  if (argc < 3) return 0;
  const std::string folder = argv[2];
  const int attempt = variable("TORCHELASTIC_RESTART_COUNT");
  const int rank = variable("RANK");
  note(folder, std::to_string(attempt) + "." + std::to_string(rank), began);
  if (std::strcmp(argv[1], "wait") == 0) wait_for_the_end();
  if (attempt > 0) return 0;
  if (rank == variable("WORLD_SIZE") - 1) die_when_all_have_begun(folder, rank + 1);
  wait_for_the_end();
}
