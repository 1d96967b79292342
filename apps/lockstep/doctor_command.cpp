// lockstep doctor: what would keep a job from running well here.

#include <cstdio>

#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/flags/parse.h"
#include "lockstep/flags/print.h"
#include "lockstep/flags/values.h"
#include "lockstep/launch/doctor/gather.h"
#include "lockstep/launch/doctor/local_checks.h"
#include "own_build.h"

namespace lockstep::app {

flags::Table doctor_table(DoctorOptions& o) {
  return {.usage = "lockstep doctor [options]",
          .about =
              "Looks for what keeps jobs from running well on this machine: versions, memory and its limits, cores,\n"
              "open files, GPUs, clock, names and interfaces, what earlier jobs have left. Each finding is good, a\n"
              "note, or wrong, with what to do. Exit code 0: nothing is wrong, 1: something is, 2: wrong use.\n",
          .groups = {{"",
                      {{"--endpoint", flags::text(o.endpoint, "HOST[:PORT]"),
                        "Where agents are to meet: is it here, by which interface, is the port free"},
                       {"--json", flags::on(o.json), "The same as one JSON object"}}}},
          .prefix = "doctor: ",
          .operands = flags::Operands::some};
}

int doctor_command(const std::vector<std::string>& arguments) {
  DoctorOptions options;
  const flags::Parsed parsed = flags::parse(doctor_table(options), arguments);
  if (!parsed.text.empty()) return flags::print_help(parsed.text) ? kExitDone : kExitFailure;
  if (!parsed.operands.empty()) throw UsageError("doctor: takes no arguments: '" + parsed.operands.front() + "'");
  if (!options.endpoint.empty()) launch::parse_host_port("doctor: --endpoint", options.endpoint);
  const launch::LocalFacts facts = launch::gather_local_facts(own_build(), libtorch_of_trainer(), options.endpoint);
  const std::vector<launch::Examined> all = {{facts.name.host, launch::check_machine(facts)}};
  const std::string text = options.json ? launch::findings_as_json(all) : launch::findings_as_text(all);
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) return kExitFailure;
  return launch::anything_wrong(all) ? kExitFailure : kExitDone;
}

}  // namespace lockstep::app
