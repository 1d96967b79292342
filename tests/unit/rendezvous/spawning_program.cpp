// A program with two threads that spawns twice: for tests. spawning_program WORD FILE: rank 0 makes the file, without
// which the second spawn's rank 1 does not fail.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/spawn.h"

namespace {

void say(const char* which, int rank) {
  std::printf("%s %d of %s\n", which, rank, std::getenv("WORLD_SIZE"));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace std::chrono_literals;
  std::printf("begin with %d arguments\n", argc - 1);
  std::fflush(stdout);
  std::jthread second([](const std::stop_token& stop) {
    while (!stop.stop_requested()) std::this_thread::sleep_for(1ms);
  });
  lockstep::spawn([](int rank) { say("first", rank); }, 2);
  const std::string file = argc > 2 ? argv[2] : "/dev/null";
  try {
    lockstep::spawn(
        [&](int rank) {
          say("second", rank);
          if (rank == 0) std::ofstream(file) << "there";
          for (int i = 0; i < 10'000 && !std::filesystem::exists(file); ++i) std::this_thread::sleep_for(1ms);
          if (rank == 1) throw std::runtime_error("the end");
        },
        2);
  } catch (const lockstep::Error& error) {
    std::puts(error.what());
  }
}
