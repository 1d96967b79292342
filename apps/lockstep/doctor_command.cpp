// lockstep doctor: what would keep a job from running well here.

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "commands.h"
#include "doctor_of_nodes.h"
#include "lockstep/base/error.h"
#include "lockstep/flags/parse.h"
#include "lockstep/flags/print.h"
#include "lockstep/flags/values.h"
#include "lockstep/launch/doctor/gather.h"
#include "lockstep/launch/doctor/hosts.h"
#include "lockstep/launch/doctor/local_checks.h"
#include "lockstep/launch/doctor/peer.h"
#include "lockstep/launch/doctor/remote_peer.h"
#include "lockstep/launch/flags/host_list.h"
#include "own_build.h"

namespace lockstep::app {

flags::Table doctor_table(DoctorOptions& o) {
  return {
      .usage = "lockstep doctor [options]",
      .about =
          "Looks for what keeps jobs from running well on this machine: versions, memory and its limits, cores,\n"
          "open files, GPUs, clock, names and interfaces, what earlier jobs have left; with --hosts or --nnodes on\n"
          "others, and between them. Each finding is good, a note, or wrong, with what to do. Exit code 0: nothing is "
          "wrong,\n"
          "1: something is, 2: wrong use.\n",
      .groups = {{"",
                  {{"--endpoint", flags::text(o.endpoint, "HOST[:PORT]"),
                    "Where agents are to meet: is it here, by which interface, is the port free"},
                   {"--hosts", flags::text(o.hosts, "LIST"),
                    "Examine these hosts and the ways between them: h1,h2, or a file, with a '/' in its name"},
                   {"--nnodes", flags::text(o.nnodes, "N|auto"),
                    "Examine N nodes and the ways between them: the same command on each, they meet at --endpoint as "
                    "the agents of a job do"},
                   {"--secret-file", flags::text(o.secret_file, "FILE"), "With --nnodes: as for lockstep run"},
                   {"--insecure", flags::on(o.insecure), "With --nnodes: as for lockstep run"},
                   {"--local-addr", flags::text(o.local_addr, "ADDRESS"), "With --nnodes: as for lockstep run"},
                   {"--remote-shell", flags::text(o.remote_shell, "COMMAND"),
                    "How a command is run on another host: COMMAND HOST 'command'"},
                   {"--timeout", flags::real(o.timeout, flags::kPositive, "SECONDS"),
                    "How long a host may take for its first word"},
                   {"--peer", flags::on(o.peer), "Answer the doctor of another host, which --hosts starts so"},
                   {"--member", flags::text(o.member, "FILE"), "Be a node's part of it, which --nnodes starts so"},
                   {"--json", flags::on(o.json), "The same as one JSON object"}}}},
      .prefix = "doctor: ",
      .operands = flags::Operands::some};
}

namespace {

std::optional<std::string> content_of(const std::string& path) {
  std::ifstream file(path);
  std::string text(std::istreambuf_iterator<char>(file), {});
  return file.is_open() ? std::optional(text) : std::nullopt;
}

std::vector<launch::Examined> examine_others(const DoctorOptions& options) {
  std::vector<std::string> names;
  for (const launch::HostSlots& host : launch::parse_hosts("doctor: --hosts", options.hosts, content_of))
    names.push_back(host.name);
  const auto shell = launch::remote_shell_words(options.remote_shell);
  std::vector<std::string> program = {own_folder() + "/lockstep", "doctor", "--peer"};
  if (!options.endpoint.empty()) program.insert(program.end(), {"--endpoint", options.endpoint});
  const auto found = launch::examine_hosts(launch::contacts_by_shell(names, shell, program),
                                           std::chrono::milliseconds(std::int64_t(options.timeout * 1000)));
  return launch::check_hosts(found.hosts, found.ways);
}

// With --hosts these alone: this machine need not be one of them.
std::vector<launch::Examined> examine(const DoctorOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);
  if (!options.endpoint.empty()) launch::parse_host_port("doctor: --endpoint", options.endpoint);
  if (!options.hosts.empty() && !options.peer) return examine_others(options);
  const launch::LocalFacts facts = launch::gather_local_facts(own_build(), libtorch_of_trainer(), options.endpoint);
  const std::vector<launch::Finding> findings = launch::check_machine(facts);
  if (options.peer) launch::serve_as_peer(launch::describe_peer(facts.versions, findings), STDIN_FILENO, STDOUT_FILENO);
  return {{facts.name.host, findings}};
}

}  // namespace

int doctor_command(const std::vector<std::string>& arguments) {
  DoctorOptions options;
  const flags::Parsed parsed = flags::parse(doctor_table(options), arguments);
  if (!parsed.text.empty()) return flags::print_help(parsed.text) ? kExitDone : kExitFailure;
  if (!parsed.operands.empty()) throw UsageError("doctor: takes no arguments: '" + parsed.operands.front() + "'");
  if (!options.member.empty()) return member_of_doctors(options);
  if (!options.nnodes.empty()) return doctor_of_nodes(options);
  for (const auto& [flag, given] : {std::pair("--secret-file", !options.secret_file.empty()),
                                    {"--insecure", options.insecure},
                                    {"--local-addr", !options.local_addr.empty()}})
    if (given) throw UsageError(std::string("doctor: ") + flag + " needs --nnodes");
  const std::vector<launch::Examined> all = examine(options);
  if (options.peer) return kExitDone;
  const std::string text = options.json ? launch::findings_as_json(all) : launch::findings_as_text(all);
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) return kExitFailure;
  return launch::anything_wrong(all) ? kExitFailure : kExitDone;
}

}  // namespace lockstep::app
