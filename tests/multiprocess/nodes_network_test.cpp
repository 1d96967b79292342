// Two nodes in network namespaces of the test's own, and what happens to agents, workers and the wire between them.
// Each cell is a shell script: node a hosts, node b comes over the wire; both write when they run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <vector>

#include "tests/multiprocess/two_nodes.h"
#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::in_namespace;
using testing::Job;
using testing::no_namespaces;
using testing::text_of;

constexpr const char* kAgents = R"sh(
$LOCKSTEP secret new > key
agent() {
  node=$1; shift
  NODE=$node exec "$@" $LOCKSTEP run --nnodes 2 --rdzv-backend c10d --rdzv-endpoint 10.77.0.1 --secret-file key \
    --rdzv-conf "$conf" $flags sh -c "$script" > $node.out 2> $node.err
}
agent a & a=$!
agent b $in_b & b=$!
)sh";

constexpr const char* kBothRun = R"sh(
until [ "$(cat a.out b.out | wc -l)" -ge 2 ];
do sleep 0.01; done
)sh";

constexpr const char* kEnd = R"sh(
wait $a; echo a $?
wait $b; echo b $?
kill $ns
)sh";

struct Cell {
  const char* name;
  const char* fault;
  const char* ends;         // exit codes
  const char* a_says = "";  // part of what the agents say
  const char* b_says = "";
  const char* flags = "";
  const char* conf = "keep_alive_interval=0.2,keep_alive_max_attempt=5";  // silent for 1 s
  const char* script = "echo $RANK $$; until [ -e go ]; do sleep 0.02; done";
};

constexpr const char* kDefault = "keep_alive_interval=1";
constexpr const char* kUntilRestart = "echo $RANK $$; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 1000";

const Cell kCells[] = {
    {"start", "touch go", "a 0\nb 0\n"},
    {"worker killed", "kill -9 $(cut -d' ' -f2 b.out)", "a 137\nb 137\n", "rank 1 failed: killed by SIGKILL",
     "rank 1 failed: killed by SIGKILL"},
    {"worker killed, started again", "kill -9 $(cut -d' ' -f2 b.out)", "a 0\nb 0\n", "restart 1 of 1", "restart 1 of 1",
     "--max-restarts 1", kDefault, kUntilRestart},
    {"agent killed", "kill -9 $b", "a 1\nb 137\n", "is lost: "},
    {"hosting agent killed", "kill -9 $a", "a 137\nb 1\n", "", "the hosting agent (10.77.0.1:29400) is lost: "},
    {"node gone", "kill -9 $b $(cat /proc/$b/task/*/children)", "a 1\nb 137\n", "is lost: "},
    // The reaper ends the workers of an agent that cannot: before the job could go on elsewhere.
    {"agent stopped",
     "kill -STOP $b; while grep -q 'State:.[^Z]' /proc/$(cut -d' ' -f2 b.out)/status; do sleep 0.01; done; kill -CONT "
     "$b",
     "a 1\nb 1\n", "is lost: ", "the hosting agent"},
    {"wire cut for a second", "ip link set va down; sleep 1; ip link set va up; touch go", "a 0\nb 0\n", "", "", "",
     kDefault},
    {"wire cut for good", "ip link set va down", "a 1\nb 1\n", "nothing was heard of it for 1000 ms",
     "nothing was heard of it for 1000 ms"},
    // To nobody's hardware address.
    {"b is not heard", "$in_b ip neigh replace 10.77.0.1 lladdr 02:00:00:00:00:99 nud permanent dev vb", "a 1\nb 1\n",
     "nothing was heard of it for 1000 ms", "the hosting agent"},
    {"b hears nothing", "ip neigh replace 10.77.0.2 lladdr 02:00:00:00:00:99 nud permanent dev va", "a 1\nb 1\n",
     "is lost: ", "the hosting agent"},
};

// The blocks of docs/guide/multi-node.md between ```sh and ```, as they stand.
TEST(NodesGuide, ItsCommandsRun) {
  const std::string page = text_of(GUIDE "/multi-node.md");
  std::string script =
      "PATH=" + std::string(LOCKSTEP_PROGRAM).substr(0, std::string(LOCKSTEP_PROGRAM).rfind('/')) + ":$PATH; set -e\n";
  int blocks = 0;
  for (std::size_t at = page.find("```sh\n"); at != std::string::npos; at = page.find("```sh\n", at + 1), ++blocks)
    script += page.substr(at + 6, page.find("```", at + 6) - at - 6);
  EXPECT_EQ(blocks, 3);
  const testing::ScratchFolder folder;
  // In a network of its own where that can be: the port is the page's.
  const bool own = no_namespaces().empty();
  Job job(own ? in_namespace(folder, "ip link set lo up\n" + script)
              : std::vector<std::string>{"/bin/sh", "-c", "cd " + folder.path() + "; " + script});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(testing::lines(job.out()),
              ::testing::AllOf(::testing::Contains("rank 0 of 2"), ::testing::Contains("rank 1 of 2"),
                               ::testing::Contains(::testing::HasSubstr("weights"))));
  EXPECT_EQ(text_of(folder.file("job.key")).size(), 65u);
}

// Two machines that know each other's names, and remote shells that enter the other's network.
constexpr const char* kTwoMachines = R"sh(
printf '127.0.0.1 localhost\n10.77.0.1 node0\n10.77.0.2 node1\n' > hosts
mount --bind hosts /etc/hosts
export NS=$ns DATA=there PATH=$PWD/stubs:$PATH
mkdir stubs one
cat > stubs/ssh <<'end'
#!/bin/sh
echo "$1" >> ssh.called
case $1 in node0) shift; exec sh -c "$*";; node1) shift; exec nsenter -t $NS -n sh -c "$*";; esac
exit 255
end
cat > stubs/scp <<'end'
#!/bin/sh
[ "$1 $3" = "-p node1:" ] && exec cp -p "$2" one/
exit 1
end
printf '#!/bin/sh\necho node0\necho node1\n' > hosts.sh
chmod +x hosts.sh stubs/*
cat > train.py <<'end'
import os
os.write(1, "rank {RANK} of {WORLD_SIZE} {DATA}\n".format_map({"DATA": "", **os.environ}).encode())
end
cp train.py one
on_both() {  # in the home folders of two machines
  (cd one && exec $in_b sh -c "$1" > ../b.out 2> ../b.err) & b=$!
  sh -c "$1" > a.out 2> a.err; echo $? $(grep -c '^rank [0-7] of 8' a.out)
  wait $b; echo $? $(grep -c '^rank [0-7] of 8' b.out)
}
)sh";

// The blocks of docs/guide/multi-node.md without a language that are commands, as they stand.
std::vector<std::string> commands_of_the_guide() {
  std::istringstream page(text_of(GUIDE "/multi-node.md"));
  std::vector<std::string> blocks;
  bool inside = false, plain = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("```")) {
      inside = !inside;
      plain = inside && line == "```";
      if (plain) blocks.emplace_back();
    } else if (plain) {
      blocks.back() += line + "\n";
    }
  }
  std::erase_if(blocks, [](const std::string& block) { return block.starts_with("lockstep: "); });
  return blocks;
}

TEST(NodesGuide, ItsCommandsForSeveralMachinesRun) {
  if (const std::string why = no_namespaces(); !why.empty()) GTEST_SKIP() << why;
  const std::vector<std::string> blocks = commands_of_the_guide();
  ASSERT_EQ(blocks.size(), 5u) << "the same line on each, --hosts, the script, scp, with a key";
  const testing::ScratchFolder folder;
  const std::string program = LOCKSTEP_PROGRAM;
  std::string script =
      testing::kTwoNodes + ("PATH=" + program.substr(0, program.rfind('/')) + ":$PATH\n") + kTwoMachines;
  for (std::size_t i = 0; i < blocks.size(); ++i) std::ofstream(folder.file("block" + std::to_string(i))) << blocks[i];
  script += R"sh(
on_both "$(cat block0)"
sh block1 > hosts.out 2> hosts.err; echo $? $(grep -c 'rank [0-7] of 8 there' hosts.out) $(sort ssh.called)
rm ssh.called
sh block2 > found.out 2> found.err; echo $? $(grep -c 'rank [0-7] of 8' found.out) $(sort -u ssh.called)
lockstep secret new > job.key
sh block3; echo $? $(cmp job.key one/job.key && stat -c %a one/job.key)
on_both "$(cat block4)"
kill $ns
)sh";
  std::ofstream(folder.file("script")) << script;
  Job job(in_namespace(folder, "exec unshare -m sh script"));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "0 4\n0 4\n0 8 node0 node1\n0 8 node0 node1\n0 600\n0 4\n0 4\n")
      << job.err() << text_of(folder.file("a.err")) << text_of(folder.file("b.err"))
      << text_of(folder.file("hosts.err")) << text_of(folder.file("found.err"));
  EXPECT_TRUE(job.nothing_left());
}

TEST(NodesNetwork, WhatHappensIsWhatMustHappen) {
  if (const std::string why = no_namespaces(); !why.empty()) GTEST_SKIP() << why;
  struct Running {
    testing::ScratchFolder folder;
    std::unique_ptr<Job> job;
  };
  // All at once: they spend their time with waiting.
  std::vector<std::unique_ptr<Running>> running;
  for (const Cell& cell : kCells) {
    running.push_back(std::make_unique<Running>());
    const auto quoted = [](const char* text) { return "'" + std::string(text) + "'\n"; };
    const std::string settings = "LOCKSTEP=" LOCKSTEP_PROGRAM "\nconf=" + quoted(cell.conf) +
                                 "flags=" + quoted(cell.flags) + "script=" + quoted(cell.script);
    running.back()->job = std::make_unique<Job>(
        in_namespace(running.back()->folder, settings + testing::kTwoNodes + kAgents + kBothRun + cell.fault + kEnd));
  }
  for (std::size_t i = 0; i < running.size(); ++i) {
    const Cell& cell = kCells[i];
    Running& run = *running[i];
    const int code = run.job->wait();
    const std::string a = text_of(run.folder.file("a.err")), b = text_of(run.folder.file("b.err"));
    EXPECT_EQ(code, 0) << cell.name << run.job->err();
    EXPECT_EQ(run.job->out(), cell.ends) << cell.name << "\n" << a << b << run.job->err();
    EXPECT_THAT(a, HasSubstr(cell.a_says)) << cell.name;
    EXPECT_THAT(b, HasSubstr(cell.b_says)) << cell.name;
    EXPECT_TRUE(run.job->nothing_left()) << cell.name;
  }
}

// Ranks that no agent of ours watches, as under mpirun: a wire that is cut says nothing to either side.
TEST(NodesNetwork, RanksThatAreCutOffNoticeLongBeforeTheirTimeout) {
  if (const std::string why = no_namespaces(); !why.empty()) GTEST_SKIP() << why;
  const testing::ScratchFolder folder;
  Job job(in_namespace(folder, "LOCKSTEP=" LOCKSTEP_PROGRAM "\n" + std::string(testing::kTwoNodes) + R"sh(
rank() {
  rank=$1; shift
  exec "$@" env RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=$rank MASTER_ADDR=10.77.0.1 \
    MASTER_PORT=29500 $LOCKSTEP train --dataset digits --model mlp --max-steps 100000000 --no-eval --timeout 16 \
    > $rank.out 2> $rank.err
}
rank 0 & a=$!
rank 1 $in_b & b=$!
until grep -q 'in each step' 0.err || ! kill -0 $a; do sleep 0.05; done
ip link set va down
wait $a; echo $?
wait $b; echo $?
kill $ns
)sh"));
  EXPECT_EQ(job.wait(), 0) << job.err();
  const std::string a = text_of(folder.file("0.err")), b = text_of(folder.file("1.err"));
  EXPECT_EQ(testing::lines(job.out()), (std::vector<std::string>{"1", "1"})) << a << b;
  EXPECT_THAT(a, HasSubstr("its connection broke: rank 1 ("));
  EXPECT_THAT(b, HasSubstr("its connection broke: rank 0 ("));
  EXPECT_TRUE(job.nothing_left());
}

// All that listens in these namespaces is the job's: the agents, and rank 0, which does until rank 1 comes. `listening`
// tells the addresses as the kernel has them: hexadecimal, the last byte first.
TEST(NodesNetwork, AgentsAndRanksListenAtTheirAddressOnly) {
  if (const std::string why = no_namespaces(); !why.empty()) GTEST_SKIP() << why;
  const testing::ScratchFolder folder;
  Job job(in_namespace(folder, "LOCKSTEP=" LOCKSTEP_PROGRAM "\n" + std::string(testing::kTwoNodes) + R"sh(
script="[ \$RANK = 0 ] || until [ -e go ]; do sleep 0.01; done
exec $LOCKSTEP train --dataset digits --model mlp --max-steps 2 --no-eval"
flags= conf=keep_alive_interval=1
listening() { "$@" cat /proc/self/net/tcp /proc/self/net/tcp6 | awk '$4 == "0A" { split($2, at, ":"); print at[1] }'; }
)sh" + kAgents + R"sh(
tries=0
until [ $(listening | wc -l) -ge 3 ] || [ $((tries += 1)) = 2000 ]; do sleep 0.01; done
[ $tries -lt 2000 ] || echo they do not all listen
echo $(listening | sort -u), $(listening $in_b | sort -u)
touch go
)sh" + kEnd));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "01004D0A,\na 0\nb 0\n") << text_of(folder.file("a.err")) << text_of(folder.file("b.err"));
}

// Node a's own name is 127.0.1.1 there, as Debian writes it into /etc/hosts.
constexpr const char* kByName = R"sh(
printf '127.0.0.1 localhost\n127.0.1.1 far-away\n' > hosts.a
printf '127.0.0.1 localhost\n10.77.0.1 far-away\n' > hosts.b
name_a=far-away name_b=near
agent() {
  node=$1; shift
  eval name=\$name_$node
  exec "$@" unshare -m -u sh -c 'mount --bind hosts.'$node' /etc/hosts && echo '$name' > /proc/sys/kernel/hostname \
    && exec "$@"' sh $LOCKSTEP $command > $node.out 2> $try.$node.err
}
both() {
  agent a & a=$!
  agent b $in_b & b=$!
  wait $a; echo $try a $? $(cat a.out)
  wait $b; echo $try b $? $(cat b.out)
}
job='run --nnodes 2 --rdzv-backend c10d --rdzv-endpoint far-away'
tell='printenv MASTER_ADDR'
try=keyless command="$job $tell"; (agent a); echo $try $?
try=one command="$job --insecure $tell"; both
try=cloned; name_a=other; (agent a); echo $try $?
try=said command="$job --insecure --rdzv-conf is_host=1 $tell"; (agent a) & a=$!
command="$job --insecure $tell"; (agent b $in_b); echo $try b $?
wait $a; echo $try a $?
name_a=far-away
ip link set va down; try=alone; (agent a); echo $try $?
try=doctor-alone command="doctor --endpoint far-away:29400"; (agent a); ip link set va up
try=doctor; (agent a); grep -c 'good.*endpoint far-away.*10.77.0.1 by va, here' a.out
ip link add other type veth peer name behind; ip addr add 10.78.0.1/24 dev other; ip link set other up
try=several command="$job --insecure $tell"; (agent a); echo $try $?
try=interface; export LOCKSTEP_SOCKET_IFNAME=va; both
unset LOCKSTEP_SOCKET_IFNAME
try=local command="$job --insecure --local-addr 10.77.0.1 $tell"; (agent a) & a=$!
command="$job --insecure $tell"; (agent b $in_b); echo $try b $?
wait $a; echo $try a $? $(cat a.out)
kill $ns
)sh";

TEST(NodesNetwork, TheMachinesOwnNameIsAnAddressThatTheOtherNodesReach) {
  if (const std::string why = no_namespaces(); !why.empty()) GTEST_SKIP() << why;
  const testing::ScratchFolder folder;
  Job job(in_namespace(folder, "LOCKSTEP=" LOCKSTEP_PROGRAM "\n" + std::string(testing::kTwoNodes) + kByName));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(),
            "keyless 2\none a 0 far-away\none b 0 far-away\ncloned 2\nsaid b 0\nsaid a 0\nalone 2\n1\nseveral 2\n"
            "interface a 0 far-away\ninterface b 0 far-away\nlocal b 0\nlocal a 0 10.77.0.1\n")
      << text_of(folder.file("one.a.err")) << text_of(folder.file("interface.a.err"));
  const auto said = [&](const std::string& name) { return text_of(folder.file(name + ".a.err")); };
  EXPECT_THAT(said("keyless"), HasSubstr("--rdzv-endpoint far-away is beyond this machine"));
  EXPECT_THAT(said("cloned"), HasSubstr("is 127.0.1.1 here (see /etc/hosts), but this machine is other: "));
  EXPECT_THAT(said("alone"), HasSubstr("no other node reaches, and this machine has no other address: "));
  EXPECT_THAT(said("several"), HasSubstr("this machine has several addresses (va 10.77.0.1, other 10.78.0.1): give"));
  for (const char* name : {"keyless", "cloned", "alone", "several"})
    EXPECT_EQ(testing::lines(said(name)).size(), 1u) << said(name);
}

// The hosting node has another network card, say, that node b does not reach: its address comes first.
constexpr const char* kTwoAddresses = R"sh(
printf '127.0.0.1 localhost\n10.77.0.1 meeting\n' > hosts.a
printf '127.0.0.1 localhost\n10.77.0.3 meeting\n10.77.0.1 meeting\n' > hosts.b
agent() {
  node=$1; shift
  exec "$@" unshare -m sh -c 'mount --bind hosts.'$node' /etc/hosts && exec "$@"' sh $LOCKSTEP run --nnodes 2 \
    --rdzv-backend c10d --rdzv-endpoint meeting --insecure --rdzv-conf join_timeout=30 \
    printenv RANK > $node.out 2> $node.err
}
$in_b unshare -m sh -c 'mount --bind hosts.b /etc/hosts && getent ahostsv4 meeting' | head -n 1 | cut -d ' ' -f 1
agent a & a=$!
agent b $in_b & b=$!
wait $a; echo $? $(cat a.out)
wait $b; echo $? $(cat b.out)
kill $ns
)sh";

TEST(NodesNetwork, AllAddressesOfTheEndpointsNameAreTried) {
  if (const std::string why = no_namespaces(); !why.empty()) GTEST_SKIP() << why;
  const testing::ScratchFolder folder;
  Job job(in_namespace(folder, "LOCKSTEP=" LOCKSTEP_PROGRAM "\n" + std::string(testing::kTwoNodes) + kTwoAddresses));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "10.77.0.3\n0 0\n0 1\n") << text_of(folder.file("a.err")) << text_of(folder.file("b.err"));
}

// The address is this machine's a while after the agents were started there, as with DHCP.
constexpr const char* kLateAddress = R"sh(
ip link set lo up
agent() {
  exec $LOCKSTEP run --nnodes 2 --rdzv-backend c10d --rdzv-endpoint 10.77.0.9 --insecure --rdzv-conf join_timeout=20 \
    printenv RANK > $1.out 2> $1.err
}
agent a & a=$!
agent b & b=$!
for said in a.err b.err; do
  until grep -q 'waiting for the agent that hosts' $said || ! kill -0 $a $b; do sleep 0.05; done
done
ip addr add 10.77.0.9/32 dev lo
wait $a; echo $?
wait $b; echo $?
sort a.out b.out
)sh";

TEST(NodesNetwork, AnAgentWhoseAddressComesLateHostsThen) {
  if (const std::string why = no_namespaces(); !why.empty()) GTEST_SKIP() << why;
  const testing::ScratchFolder folder;
  Job job(in_namespace(folder, "LOCKSTEP=" LOCKSTEP_PROGRAM "\n" + std::string(kLateAddress)));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "0\n0\n0\n1\n") << text_of(folder.file("a.err")) << text_of(folder.file("b.err"));
}

// Somebody hosts there, who says nothing for now.
constexpr const char* kMovedAddress = R"sh(
agent() {
  node=$1 nodes=$2; shift 2
  exec "$@" $LOCKSTEP run --nnodes $nodes --rdzv-backend c10d --rdzv-endpoint 10.77.0.1 --insecure --rdzv-conf \
    last_call_timeout=0.01,join_timeout=5,keep_alive_interval=0.2,keep_alive_max_attempt=3 \
    printenv RANK > $node.out 2> $node.err
}
agent a 2 & a=$!
until grep -q '1 of 2 nodes' a.err || ! kill -0 $a; do sleep 0.05; done
kill -STOP $a
agent b 1:2 $in_b & b=$!
until grep -q 'accepts the connection and says nothing' b.err || ! kill -0 $b; do sleep 0.05; done
ip addr del 10.77.0.1/24 dev va; $in_b ip link set lo up; $in_b ip addr add 10.77.0.1/32 dev lo
wait $b; echo $? $(cat b.out)
kill -9 $a; kill $ns
)sh";

TEST(NodesNetwork, AnAddressThatComesFromAHostingAgentIsNotHostedAt) {
  if (const std::string why = no_namespaces(); !why.empty()) GTEST_SKIP() << why;
  const testing::ScratchFolder folder;
  Job job(in_namespace(folder, "LOCKSTEP=" LOCKSTEP_PROGRAM "\n" + std::string(testing::kTwoNodes) + kMovedAddress));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "2\n") << text_of(folder.file("a.err")) << text_of(folder.file("b.err"));
  EXPECT_THAT(text_of(folder.file("b.err")), HasSubstr("says nothing"));
}

}  // namespace
}  // namespace lockstep
