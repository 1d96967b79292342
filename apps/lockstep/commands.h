#pragma once

// The commands of the `lockstep` program. Each takes what stands after its name, and returns
// the exit code or throws.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/flags/command.h"

namespace lockstep::app {

int run_command(const std::vector<std::string>& arguments);
int launch_command(const std::vector<std::string>& arguments);
int train_command(const std::vector<std::string>& arguments);
int predict_command(const std::vector<std::string>& arguments);
int env_command(const std::vector<std::string>& arguments);
int doctor_command(const std::vector<std::string>& arguments);
int bench_command(const std::vector<std::string>& arguments);
int completion_command(const std::vector<std::string>& arguments);
int man_command(const std::vector<std::string>& arguments);
int recipes_command(const std::vector<std::string>& arguments);
int secret_command(const std::vector<std::string>& arguments);
int report_command(const std::vector<std::string>& arguments);
int trace_command(const std::vector<std::string>& arguments);

/// Executes lockstep-<name> from beside this program or from PATH; returns only (by throwing
/// UsageError with the nearest command) when there is none.
int external_command(const std::string& name, const std::vector<std::string>& arguments);

/// The flags of those whose options are a word or two.
flags::Table env_table(bool& json);
struct DoctorOptions {
  std::string endpoint;
  std::string hosts;
  std::string nnodes;
  std::string secret_file;
  std::string local_addr;
  bool insecure = false;
  std::string member;  ///< the file of doctor_of_node()
  std::string remote_shell = "ssh -o BatchMode=yes";
  double timeout = 20;  ///< seconds
  bool peer = false;
  bool json = false;
};
flags::Table doctor_table(DoctorOptions& options);
flags::Table completion_table(std::string& output);
flags::Table man_table(std::string& folder);

flags::Table recipes_table();
flags::Table secret_table();
flags::Table report_table(std::string& output);
struct TraceOptions {
  std::optional<std::int64_t> attempt;
  bool json = false;
};
flags::Table trace_table(TraceOptions& options);

/// What can be measured; the flags are those of other programs.
flags::Command bench_commands();

/// The folder that this program is in.
std::string own_folder();

/// What `lockstep checkpoint` is, and what saves the state of a job that has failed.
std::string checkpoint_program();

/// Replaces this process by `program`. Throws Error when it cannot be executed.
[[noreturn]] void replace_by(const std::string& program, const std::vector<std::string>& arguments);

}  // namespace lockstep::app
