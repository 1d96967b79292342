#include "doctor_of_nodes.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "child.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/doctor/gather.h"
#include "lockstep/launch/doctor/local_checks.h"
#include "lockstep/launch/doctor/node_doctors.h"
#include "lockstep/launch/doctor/peer.h"
#include "lockstep/launch/machine/machine.h"
#include "lockstep/rendezvous/environment.h"
#include "lockstep/rendezvous/own_address.h"
#include "own_build.h"

namespace lockstep::app {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void check_nodes(const DoctorOptions& options) {
  const std::string flag = "doctor: --nnodes " + base::shown(options.nnodes);
  const bool number = options.nnodes.size() <= 4 && std::ranges::all_of(options.nnodes, [](unsigned char letter) {
                        return letter >= '0' && letter <= '9';
                      });
  if (options.nnodes != "auto" && (!number || std::stoi(options.nnodes) < 2))
    throw UsageError(flag + " is neither a number from 2 nor auto");
  if (!options.hosts.empty()) throw UsageError(flag + ": --hosts starts the others from here; give one of the two");
  if (options.endpoint.empty() && options.nnodes != "auto")
    throw UsageError(flag + " needs --endpoint HOST[:PORT], where they meet");
}

std::vector<std::string> job_of(const DoctorOptions& options, const std::string& file) {
  char patience[32];
  std::snprintf(patience, sizeof patience, "%.3f", options.timeout);
  std::vector<std::string> words = {"run", "--nnodes",  options.nnodes,   "--nproc-per-node", "1", "--max-restarts",
                                    "0",   "--rdzv-id", "lockstep-doctor"};
  const auto add = [&words](std::initializer_list<std::string> more) { words.insert(words.end(), more); };
  if (!options.endpoint.empty()) add({"--rdzv-backend", "c10d", "--rdzv-endpoint", options.endpoint});
  add({"--rdzv-conf", std::string("join_timeout=") + patience});
  if (!options.secret_file.empty()) add({"--secret-file", options.secret_file});
  if (options.insecure) add({"--insecure"});
  if (!options.local_addr.empty()) add({"--local-addr", options.local_addr});
  add({own_folder() + "/lockstep", "doctor", "--member", file, "--timeout", patience});
  if (!options.local_addr.empty()) add({"--local-addr", options.local_addr});
  if (options.json) add({"--json"});
  return words;
}

// The job's agent has the port while its worker looks at it: whether it can be had is for the job to say.
std::string without_port(const std::string& endpoint) {
  if (endpoint.empty()) return "";
  const std::string host = launch::parse_host_port("doctor: --endpoint", endpoint).host;
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":0";
}

// By which the others reach this node: that of the way to the first one.
std::string own_address(const std::string& local_addr) {
  if (!local_addr.empty()) return local_addr;
  const char* const first = std::getenv("MASTER_ADDR");
  const auto there = rendezvous::resolve("doctor: MASTER_ADDR", first == nullptr ? "localhost" : first, 1);
  return rendezvous::host_text(rendezvous::own_end_towards(there));
}

}  // namespace

int doctor_of_nodes(const DoctorOptions& options) {
  check_nodes(options);
  const launch::LocalFacts facts =
      launch::gather_local_facts(own_build(), libtorch_of_trainer(), without_port(options.endpoint));
  const std::string description = launch::describe_peer(facts.versions, launch::check_machine(facts));
  const base::UniqueFd file(memfd_create("lockstep-doctor", MFD_CLOEXEC));
  if (!file) throw_errno("doctor: memfd_create");
  const std::string path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file.get());
  std::ofstream(path) << description << std::flush;
  if (const int code = run_child(own_folder() + "/lockstep", job_of(options, path)); code != kExitDone) return code;
  const std::string told = content_of(path);
  if (told.empty() || (told[0] != '0' && told[0] != '1'))
    throw Error("doctor: the job has said nothing of what it found");
  if (std::fputs(told.c_str() + 1, stdout) < 0 || std::fflush(stdout) != 0) return kExitFailure;
  return told[0] == '0' ? kExitDone : kExitFailure;
}

int member_of_doctors(const DoctorOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);
  const rendezvous::Place place = rendezvous::place_from_environment();
  const launch::NodesVerdict verdict =
      launch::examine_nodes({.node = place.rank,
                             .nodes = place.world_size,
                             .host = launch::host_name(),
                             .address = own_address(options.local_addr),
                             .description = content_of(options.member)},
                            std::chrono::milliseconds(std::int64_t(options.timeout * 1000)));
  std::string text;
  if (place.rank == 0)
    text = options.json ? launch::findings_as_json(verdict.all) : launch::findings_as_text(verdict.all);
  else if (!options.json)
    text = "the findings are printed on node 0, " + base::shown(verdict.first_host) + ": " +
           (verdict.wrong ? "something is wrong" : "nothing is wrong") + "\n";
  std::ofstream file(options.member);
  file << (verdict.wrong ? '1' : '0') << text << std::flush;
  if (!file) throw Error("doctor: " + options.member + " cannot be written");
  return kExitDone;
}

}  // namespace lockstep::app
