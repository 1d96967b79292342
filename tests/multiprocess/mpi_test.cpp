// Backend mpi, in ranks that mpirun of Open MPI and mpiexec of MPICH start.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Job;
using testing::ScratchFolder;
using Words = std::vector<std::string>;

struct Mpi {
  const char* name;
  const char* launcher;
  const char* plugin;
};

class ByMpi : public ::testing::TestWithParam<Mpi> {
 protected:
  void SetUp() override {
    const std::string why = missing();
    if (why.empty()) return;
    ASSERT_EQ(getenv("LOCKSTEP_REQUIRE_LAUNCHERS"), nullptr) << why;  // make test has installed both
    GTEST_SKIP() << why;
  }

  // Empty: nothing.
  static std::string missing() {
    const Mpi& mpi = GetParam();
    if (access(mpi.launcher, X_OK) != 0) return "no " + std::string(mpi.launcher) + " on this machine";
    if (access((plugins() + mpi.plugin).c_str(), R_OK) == 0) return "";
    return mpi.plugin + std::string(" was not built: no mpi.h of ") + mpi.name + " on this machine";
  }

  static std::string plugins() { return std::string(BY_HAND).substr(0, std::string(BY_HAND).rfind('/') + 1); }

  bool is_open_mpi() const { return std::string(GetParam().name) == "OpenMpi"; }

  // The ranks talk over TCP only, as if each had a machine of its own. With `survived` a rank that dies takes no other
  // along; Open MPI's exit code tells nothing then.
  Words started(int ranks, const Words& program, bool survived = false) const {
    Words command = {"/usr/bin/env", GetParam().launcher};
    if (survived) command.emplace_back(is_open_mpi() ? "--enable-recovery" : "-disable-auto-cleanup");
    command.insert(command.end(), {"-n", std::to_string(ranks)});
    if (is_open_mpi())
      for (const std::string& word : Words{"--allow-run-as-root", "--oversubscribe", "--mca", "orte_tmpdir_base",
                                           session_.path(), "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include",
                                           "lo", "--mca", "pml", "ob1", "--mca", "mpi_yield_when_idle", "0"})
        command.push_back(word);
    command.insert(command.end(), program.begin(), program.end());
    return command;
  }

  // Each rank is told that it is alone on its node, so nothing goes by shared memory. MPICH tells those who survive by
  // SIGUSR1.
  Words on_nodes(const std::string& program) const {
    const std::string alone = is_open_mpi() ? "OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 "
                                            : "MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1 ";
    return {"/bin/sh", "-c", "trap '' USR1; " + alone + program};
  }

  Words variables(const Words& more = {}) const {
    const int pid = getpid();
    Words all = {"MASTER_ADDR=127.5." + std::to_string(pid / 250 % 250) + "." + std::to_string(1 + pid % 250),
                 "MASTER_PORT=29500"};
    if (!is_open_mpi()) all.insert(all.end(), {"MPIR_CVAR_NOLOCAL=1", "MPIR_CVAR_CH4_OFI_ENABLE_SHM=0"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  const ScratchFolder session_;
};

INSTANTIATE_TEST_SUITE_P(Each, ByMpi,
                         ::testing::Values(Mpi{"OpenMpi", "/usr/bin/mpirun.openmpi", "liblockstep_mpi_openmpi.so"},
                                           Mpi{"Mpich", "/usr/bin/mpiexec.mpich", "liblockstep_mpi_mpich.so"}),
                         [](const auto& info) { return std::string(info.param.name); });

// On one node. Launchers mix what ranks print, so each writes a file.
TEST_P(ByMpi, RanksAddUp) {
  const std::string file = session_.path() + "/${OMPI_COMM_WORLD_RANK:-$PMI_RANK}.out";
  Job job(started(3, {"/bin/sh", "-c", "exec " BY_HAND " env:// -1 -1 mpi > " + file}), variables());
  EXPECT_EQ(job.wait(), 0) << job.err();
  for (const std::string rank : {"0", "1", "2"}) {
    std::ifstream said(session_.file(rank + ".out"));
    std::string line;
    std::getline(said, line);
    EXPECT_EQ(line, "rank " + rank + " of 3, on its node " + rank + " of 3: sum 6");
  }
}

// The suite that every group must pass: each rank runs it, and each test joins a new group. Some fail on purpose, so no
// rank finalises MPI, and the launchers' exit codes say that alone. LOCKSTEP_MPI_RANKS="3 5 8" tries worlds of so many.
TEST_P(ByMpi, TheContractHolds) {
  const char* const asked = std::getenv("LOCKSTEP_MPI_RANKS");
  std::istringstream worlds(asked == nullptr ? "2 4" : asked);
  for (int ranks = 0; worlds >> ranks;) {
    Job job(started(ranks, on_nodes(CONTRACT " --gtest_brief=1 --gtest_color=no --gtest_filter='*/mpi*' && echo WHOLE"),
                    true),
            variables({"LOCKSTEP_TEST_MPI_RANKS=" + std::to_string(ranks)}));
    job.wait();
    int whole = 0;
    for (std::size_t at = 0; (at = job.out().find("WHOLE", at)) != std::string::npos; ++at) ++whole;
    EXPECT_EQ(whole, ranks) << ranks << " ranks:\n" << job.out() << job.err();
    EXPECT_THAT(job.out(), ::testing::ContainsRegex("PASSED  . [1-9][0-9]+ tests")) << "no test ran";
  }
}

TEST_P(ByMpi, TrainsWithTheBitsOfSharedMemory) {
  const auto hash_of = [&](const Words& command, const Words& environment) {
    Job job(command, environment);
    EXPECT_EQ(job.wait(), 0) << job.err();
    const std::size_t at = job.out().find("weights ");
    return at == std::string::npos ? "none: " + job.out() : job.out().substr(at, job.out().find('\n', at) - at);
  };
  struct Spread {
    const char* shards;
    std::vector<int> nodes;
  };
  for (const Spread& spread : {Spread{"4", {3, 4}}, Spread{"9", {3}}}) {
    const std::string on_one = hash_of(started(2, {MPI_WORKER, "shm", "train", spread.shards}), variables());
    EXPECT_THAT(on_one, ::testing::MatchesRegex("weights [0-9a-f]+"));
    const std::string train = std::string(MPI_WORKER " mpi train ") + spread.shards;
    for (const int nodes : spread.nodes)
      for (const char* const shares : {"", " zero1"})
        EXPECT_EQ(hash_of(started(nodes, on_nodes(train + shares)), variables()), on_one)
            << spread.shards << " shards on " << nodes << " nodes" << shares;
  }
}

TEST_P(ByMpi, WhoIsKilledIsNamedByTheOthers) {
  const auto begin = std::chrono::steady_clock::now();
  Job job(started(3, on_nodes(MPI_WORKER " mpi die"), true), variables());
  job.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  for (const char* rank : {"0", "2"})
    EXPECT_THAT(job.out(), HasSubstr("rank " + std::string(rank) + " lost rank 1: ")) << job.err();
}

// Rank 0 comes a second late to the last collective and leaves at once: its news overtake what it has sent, and the
// others have waited for longer than they would for anything behind news.
TEST_P(ByMpi, WhoComesLateAndLeavesIsNotMissed) {
  Job job(started(3, on_nodes(MPI_WORKER " mpi late")), variables());
  EXPECT_EQ(job.wait(), 0) << job.out() << job.err();
  for (const char* rank : {"0", "1", "2"}) EXPECT_THAT(job.out(), HasSubstr("rank " + std::string(rank) + " is done"));
}

// Its exit code is the job's, and the others hear of it before their deadline. Open MPI 4.1's launcher may crash itself
// when a rank's warning of a lost peer comes while it ends the job: that says nothing of ours, and is tried again.
TEST_P(ByMpi, WhoEndsWithAnErrorWaitsForNobody) {
  const auto begin = std::chrono::steady_clock::now();
  const auto code_and_words = [&] {
    Job job(started(2, on_nodes(MPI_WORKER " mpi exit")), variables());
    const int code = job.wait();
    return std::pair(code, job.err());
  };
  auto [code, words] = code_and_words();
  for (int more = 0; more < 3 && words.find("mca_rml_oob.so(orte_rml_oob_send_buffer_nb") != words.npos; ++more)
    std::tie(code, words) = code_and_words();
  if (is_open_mpi())
    EXPECT_EQ(code, 3) << words;
  else  // that of a rank which mpiexec has killed then
    EXPECT_NE(code, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

// Groups that outlive main() are destroyed behind MPI_Finalize, and a child is nobody.
TEST_P(ByMpi, GroupsMayOutliveMpi) {
  Job job(started(2, on_nodes(MPI_WORKER " mpi outlive")), variables());
  EXPECT_EQ(job.wait(), 0) << job.out() << job.err();
  for (const char* rank : {"0", "1"}) EXPECT_THAT(job.out(), HasSubstr("rank " + std::string(rank) + " is done"));
}

TEST_P(ByMpi, AMismatchIsNamedByBothSides) {
  Job job(started(2, on_nodes(MPI_WORKER " mpi differ"), true), variables());
  job.wait();
  EXPECT_THAT(job.out(),
              AllOf(HasSubstr("rank 0: "), HasSubstr("rank 1: "), HasSubstr("3 x Float"), HasSubstr("4 x Float")))
      << job.err();
}

TEST_P(ByMpi, ThePluginThatIsNotThereIsToldInALine) {
  Job job(started(2, {BY_HAND, "env://", "-1", "-1", "mpi"}), variables({"LOCKSTEP_MPI_DIR=/nowhere"}));
  EXPECT_NE(job.wait(), 0);
  EXPECT_THAT(job.err(),
              AllOf(HasSubstr("backend 'mpi' needs " + std::string(GetParam().plugin) + ", which is not there"),
                    HasSubstr("LOCKSTEP_MPI_DIR")));
}

TEST(WithoutMpirun, ARankIsRefused) {
  Job alone({BY_HAND, "env://", "-1", "-1", "mpi"});
  EXPECT_EQ(alone.wait(), 2);
  EXPECT_THAT(alone.err(), HasSubstr("backend 'mpi' is for ranks that mpirun or srun has started"));
  Job launched({LOCKSTEP_PROGRAM, "run", "-n", "2", BY_HAND, "env://", "-1", "-1", "mpi"});
  EXPECT_EQ(launched.wait(), 2);
  EXPECT_THAT(launched.err(), HasSubstr("by lockstep run, which restarts ranks, and MPI does not survive the loss"));
}

}  // namespace
}  // namespace lockstep
