// A worker for launcher tests: joins the job's control page as the trainer does, goes to
// step 17 and then does what its argument says.
//
//   meet              all leave together
//   close             the same, after having closed all its descriptors
//   die               rank 1 is killed in the update of step 17, the others wait for it
//   die-once          the same in the first attempt; all leave together in the next
//   outlive           in the first attempt says "joined", stays until the next has begun, and says how its next barrier
//                     went; in the next says its attempt
//   fail CODE         rank 1 fails with that exit code and tells it slowly, as under load
//   room CODE WORLD [STAYS]
//                     one of less than WORLD ranks says that it makes steps, makes room when it is asked for that, and
//                     ends with that exit code, but rank STAYS, which stays; one of WORLD says so and is done
//   leave TEXT        rank 0 publishes the text in the segment; all say so and stay until they are killed
//   store             joins nothing: the ranks of all nodes meet in the agents' store, each says what it got; in the
//                     first attempt with TORCHELASTIC_MAX_RESTARTS the last one fails then

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/node.h"
#include "lockstep/base/published_text.h"
#include "lockstep/base/room.h"
#include "lockstep/rendezvous/agent_store.h"
#include "lockstep/rendezvous/segment_exchange.h"

namespace {

using namespace lockstep;

void close_everything() { syscall(SYS_close_range, 0U, ~0U, 0U); }

// Whether the condition came true in time.
template <class Ready>
bool in_time(Ready&& ready) {
  for (int i = 0; i < 4000 && !ready(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return ready();
}

int outlive(base::Member& member) {
  if (member.generation() > 1) {
    member.barrier();
    std::printf("rank %d of %d, attempt %u\n", member.rank(), member.size(), unsigned(member.generation()));
    return kExitDone;
  }
  std::puts("joined");
  std::fflush(stdout);
  if (!in_time([&] { return member.page().generation.load() != member.generation(); })) return kExitFailure;
  try {
    member.barrier();
    std::puts("passed");
  } catch (const Error& error) {
    std::printf("refused: %s\n", error.what());
  }
  return kExitDone;
}

int work(base::Member& member, const std::string& task, int code) {
  if (task == "outlive") return outlive(member);
  member.barrier();
  member.set_step(17);
  member.set_phase(base::Phase::update);
  const bool last_attempt = task == "die-once" && member.generation() > 1;
  if (task != "meet" && task != "close" && !last_attempt && member.rank() == 1) {
    if (task.starts_with("die")) kill(getpid(), SIGKILL);
    member.fail("the toy is broken", code);
    // The peers have ended long before this line is out.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::fputs("lockstep: error: the toy is broken\n", stderr);
    return code;
  }
  member.barrier();
  if (task == "close") close_everything();
  std::printf("rank %d of %d\n", member.rank(), member.size());
  return kExitDone;
}

int make_room(base::Member& member, int code, bool stays) {
  base::ControlPage& page = member.page();
  page.regions[0].fingerprint.store(1);
  page.regions[0].generation.store(member.generation());
  std::puts("makes steps");
  std::fflush(stdout);
  if (!in_time([&] { return base::is_room_wanted(page, member.generation()); })) return kExitUsage;
  base::make_room(page, member.generation());
  base::read_failure(page, member.generation());  // it is written, by whichever rank
  if (stays) pause();
  return code;
}

int leave(base::Node& node, int rank, const std::string& text) {
  if (rank == 0) base::publish(node.segment, text);
  std::printf("left by %d\n", int(getpid()));
  std::fflush(stdout);
  pause();
  return kExitDone;
}

int meet_in_store() {
  const auto number = [](const char* name) { return std::atoi(std::getenv(name)); };
  const int rank = number("RANK"), size = number("WORLD_SIZE");
  rendezvous::AgentStore store(std::chrono::seconds(20));
  const std::string mine = std::to_string(rank);
  // A rank that waits already, large values, all at once.
  const std::string large(rendezvous::kLongestValue - mine.size(), 'x');
  store.set("large/" + mine, large + mine);
  std::string got;
  for (int peer = 0; peer < size; ++peer) got += store.get("large/" + std::to_string(peer)).substr(large.size());
  const char* before = store.check({"added"}) ? "not new" : "new";
  store.barrier("all have got it", size);
  const std::int64_t sum = store.add("sum", rank + 1);
  if (sum == size * (size + 1) / 2) store.set("added", "");
  store.wait({"added"});
  std::printf("%d: %s, %s, sum %s\n", rank, got.c_str(), before, store.get("sum").c_str());
  std::fflush(stdout);
  store.barrier("all have said it", size);
  const bool last_attempt = number("TORCHELASTIC_RESTART_COUNT") == number("TORCHELASTIC_MAX_RESTARTS");
  return !last_attempt && rank == size - 1 ? kExitFailure : kExitDone;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string task = argc > 1 ? argv[1] : "meet";
  try {
    if (task == "store") return meet_in_store();
    const rendezvous::Place place = rendezvous::place_from_environment();
    base::Node node(rendezvous::share_segment(place, std::chrono::seconds(20)), place.local_rank,
                    std::chrono::seconds(20));
    if (task == "leave") return leave(node, place.rank, argc > 2 ? argv[2] : "");
    const int code = argc > 2 ? std::atoi(argv[2]) : 1;
    const bool stays = argc > 4 && place.rank == std::atoi(argv[4]);
    if (task == "room" && argc > 3 && place.world_size < std::atoi(argv[3])) return make_room(node.member, code, stays);
    if (task == "room") {
      node.member.barrier();  // who still comes would take the end of this one for a failure
      std::printf("one of %d\n", place.world_size);
      return kExitDone;
    }
    return work(node.member, task, code);
  } catch (const std::exception& error) {
    return exit_code(error);  // quiet: the rank that failed first speaks
  }
}
