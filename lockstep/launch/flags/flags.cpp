#include "lockstep/launch/flags/flags.h"

#include <string.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <csignal>
#include <numeric>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/flags/values.h"
#include "lockstep/launch/flags/nodes.h"

namespace lockstep::launch {
namespace {

using flags::on;
using Read = std::function<void(const std::string& name, const std::string& value)>;

constexpr int kMany = 1'000'000;

UsageError wrong(const std::string& name, const std::string& value, const std::string& right) {
  return UsageError(name + " '" + value + "' is not " + right);
}

// As it is typed; torchrun takes an empty text, too.
flags::Value as_typed(std::string& place, const std::string& word) {
  return {.word = word, .initial = place, .read = [&place](const std::string&, const std::string& value) {
            place = value;
          }};
}

flags::Value whole(int& place, const std::string& word, int low, int high) {
  return {.word = word,
          .initial = std::to_string(place),
          .read = [&place, low, high](const std::string& name, const std::string& value) {
            place = number(name, value, low, high);
          }};
}

// What `parse` makes of it.
template <class T>
flags::Value parsed(T& place, const std::string& word, T (*parse)(const std::string& name, const std::string& value)) {
  return {.word = word,
          .read = [&place, parse](const std::string& name, const std::string& value) { place = parse(name, value); }};
}

// Each time.
flags::Value added(std::vector<std::string>& place, const std::string& word) {
  return {.word = word, .read = [&place](const std::string&, const std::string& value) { place.push_back(value); }};
}

// Checked, and of no consequence where there is no place for it.
Read only(const std::vector<std::string>& valid, std::string* place = nullptr) {
  return [valid, place](const std::string& name, const std::string& value) {
    if (std::ranges::find(valid, value) == valid.end()) throw wrong(name, value, "one of " + base::join(valid));
    if (place != nullptr) *place = value;
  };
}

std::chrono::milliseconds seconds(const std::string& name, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value <= 86'400))
    throw wrong(name, text, "a number of seconds from 0 to 86400");
  return std::chrono::milliseconds(std::lround(value * 1000));
}

flags::Value of_nodes(NodeOptions& nodes, const std::string& word,
                      void (*read)(NodeOptions&, const std::string& name, const std::string& value)) {
  return {.word = word,
          .read = [&nodes, read](const std::string& name, const std::string& value) { read(nodes, name, value); }};
}

void no_entry_point(const std::string& name, const std::string& value) {
  throw UsageError(name + " " + value + ": Python entry points cannot be loaded here");
}

// The number of a signal by its name, "SIGTERM" or "TERM"; 0 when there is none.
int signal_number(std::string name) {
  if (name.starts_with("SIG")) name.erase(0, 3);
  for (int signal = 1; signal < NSIG; ++signal)
    if (const char* known = sigabbrev_np(signal); known != nullptr && name == known) return signal;
  return 0;
}

// What stands between the commas, without blanks around it.
std::vector<std::string> words_of_list(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) {
    word.erase(0, word.find_first_not_of(' '));
    word.erase(word.find_last_not_of(' ') + 1);
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

flags::Group worker_flags(Options& o) {
  return {"Workers",
          {{"-n, --nproc-per-node", as_typed(o.nproc_per_node, "N"), "workers: a number, or auto, cpu, gpu"},
           {"--max-restarts", whole(o.plan.max_restarts, "N", 0, kMany),
            "start all workers again after a failure, at most N times"},
           {"--no-restart-codes", parsed(o.plan.no_restart_codes, "LIST", parse_codes),
            "not after these exit codes, as 2,64-78,SIGSEGV", "none"},
           {"--grace-period", parsed(o.plan.grace, "SECONDS", seconds),
            "from SIGTERM to SIGKILL when the job ends early", "10"},
           {"--signals-to-handle", parsed(o.plan.signals, "LIST", parse_signals), "what ends the job in good order",
            "SIGTERM,SIGINT,SIGHUP,SIGQUIT"}}};
}

flags::Group program_flags(Options& o) {
  return {"Program",
          {{"--role", as_typed(o.plan.logs.role, "NAME"), "ROLE_NAME of the workers, and their name in logs"},
           {"--virtual-local-rank", on(o.plan.virtual_local_rank),
            "LOCAL_RANK is 0 for all, each sees one GPU in CUDA_VISIBLE_DEVICES"},
           {"-m, --module", on(o.module), "the program is a Python module: python -m"},
           {"--no-python", on(o.no_python), "execute the program itself even if its name ends in .py"},
           {"--run-path", on(o.run_path), "run the program by Python whatever its name"},
           {"--numa-binding",
            {.word = "MODE", .read = only({"node", "socket", "exclusive", "core-complex"}, &o.numa_binding)},
            "bind workers to NUMA nodes; needs a machine with several"}}};
}

flags::Group local_rank_flags(Options& o) {
  return {"Local rank",
          {{"--use-env", on(o.use_env), "do not pass --local-rank=N to the script"},
           {"--no-use-env", flags::off(o.use_env), "pass it, as is done anyway"}}};
}

flags::Group log_flags(LogOptions& o) {
  return {"Logs",
          {{"--log-dir", as_typed(o.dir, "FOLDER"), "where log files go, as torchrun lays them out",
            "a new folder in TMPDIR"},
           {"-r, --redirects", parsed(o.redirects, "STREAMS", StdMap::parse),
            "to files: 0 none, 1 stdout, 2 stderr, 3 both; by rank: 0:3,1:2", "0"},
           {"-t, --tee", parsed(o.tee, "STREAMS", StdMap::parse), "to files and to the console", "0"},
           {"--local-ranks-filter", parsed(o.console_ranks, "RANKS", parse_ranks),
            "only these ranks on the console, as 0,1", "all"},
           {"--duplicate-stdout-filters", parsed(o.stdout_filters, "LIST", parse_filters),
            "tee'd lines with one of these words also to filtered_stdout.log"},
           {"--duplicate-stderr-filters", parsed(o.stderr_filters, "LIST", parse_filters), "the same for stderr"}}};
}

flags::Group report_flags(Options& o) {
  return {"Report",
          {{"--report", as_typed(o.plan.report, "FILE"), "write what happened to FILE as JSON, whatever the outcome"},
           {"--dry-run", on(o.dry_run), "print the plan and start nothing"}}};
}

flags::Group node_flags(Options& o) {
  return {"Nodes and their meeting place",
          {{"--hosts", as_typed(o.hosts, "LIST"),
            "start the agents from here, on h1:4,h2:4 with so many workers each, or those of a file ('/' in its name)"},
           {"--host-discovery-script", as_typed(o.discovery, "SCRIPT"),
            "the same on the hosts that SCRIPT prints, h1:4 in each line; asked each second"},
           {"--remote-shell", as_typed(o.remote_shell, "COMMAND"),
            "how a command is run on another host: COMMAND HOST 'command'"},
           {"-x, --export", added(o.exports, "NAME[=VALUE]"),
            "a variable that the workers on all hosts get; again and again"},
           {"--by-starter", on(o.by_starter),
            "for an agent that is started from elsewhere: it ends with its standard input"},
           {"--nnodes", of_nodes(o.nodes, "N|MIN:MAX", read_nnodes), "nodes; the same command on each", "1"},
           {"--node-rank", whole(o.nodes.rank, "N", 0, kMany), "this node's rank, with --rdzv-backend static"},
           {"--standalone", on(o.standalone), "one machine; the --rdzv- flags are ignored, as torchrun does"},
           {"--master-addr", as_typed(o.master_addr, "ADDRESS"),
            "one node: MASTER_ADDR, must be this machine; several, static: where they meet", "127.0.0.1"},
           {"--master-port", whole(o.master_port, "PORT", 0, 65'535),
            "one node: MASTER_PORT, must be free; several, static: where they meet",
            "a free one, another for each restart"},
           {"--local-addr", as_typed(o.local_addr, "ADDRESS"),
            "this node's address; MASTER_ADDR when it is that of the first with --rdzv-backend c10d"},
           {"--rdzv-backend",
            {.word = "NAME", .initial = o.rdzv_backend, .read = only({"static", "c10d"}, &o.rdzv_backend)},
            "static: each node names its rank; c10d: ranks by arrival; one node needs none"},
           {"--rdzv-endpoint", as_typed(o.rdzv_endpoint, "HOST[:PORT]"),
            "where several nodes meet: the agent that has this address hosts; one node: this machine"},
           {"--rdzv-id", as_typed(o.rdzv_id, "ID"), "TORCHELASTIC_RUN_ID, and the name of log folders", "random"},
           {"--rdzv-conf", of_nodes(o.nodes, "LIST", read_rdzv_conf),
            "of several nodes, as join_timeout=600: also last_call_timeout, keep_alive_interval, is_host"},
           {"--secret-file", as_typed(o.nodes.settings.secret_file, "FILE"),
            "the key of agents that meet beyond this machine: lockstep secret new > FILE", "LOCKSTEP_SECRET_FILE"},
           {"--insecure", on(o.nodes.settings.insecure), "they meet without a key: anybody in the network could join"},
           {"--monitor-interval", {.word = "SECONDS", .read = seconds}, "accepted, unused: nothing is polled"},
           {"--start-method",
            {.word = "METHOD", .read = only({"spawn", "fork", "forkserver"})},
            "accepted, unused: workers are always executed"},
           {"--event-log-handler",
            {.word = "NAME", .read = only({"null"})},
            "only null: there is no Python here to hold others (see --report)"},
           {"--logs-specs", {.word = "NAME", .read = no_entry_point}, "refused: a Python entry point"}}};
}

}  // namespace

int number(const std::string& name, const std::string& text, int low, int high) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
    throw wrong(name, text, "a number from " + std::to_string(low) + " to " + std::to_string(high));
  return value;
}

std::vector<int> parse_signals(const std::string& name, const std::string& text) {
  std::vector<int> signals;
  for (const std::string& word : words_of_list(text)) {
    const int signal = signal_number(word);
    if (signal == 0) throw wrong(name, word, "a signal's name, such as SIGTERM");
    if (signal == SIGKILL || signal == SIGSTOP || signal == SIGCHLD)
      throw wrong(name, word, "a signal that can be handled");
    signals.push_back(signal);
  }
  return signals;
}

std::vector<int> parse_codes(const std::string& name, const std::string& text) {
  std::vector<int> codes;
  for (const std::string& word : words_of_list(text)) {
    if (const int signal = signal_number(word); signal != 0) {
      codes.push_back(128 + signal);
      continue;
    }
    const std::size_t dash = word.find('-', 1);
    const int low = number(name, word.substr(0, dash), 1, 255);
    const int high = dash == std::string::npos ? low : number(name, word.substr(dash + 1), low, 255);
    codes.resize(codes.size() + std::size_t(high - low) + 1);
    std::iota(codes.end() - (high - low) - 1, codes.end(), low);
  }
  return codes;
}

flags::Table table_of(Dialect dialect, Options& options) {
  const std::string command = dialect == Dialect::run ? "run" : "launch";
  flags::Table table{
      .usage = "lockstep " + command + " [options] program [arguments]",
      .about =
          "Runs the program as the workers of a job, on this machine or several, in torchrun's environment.\n"
          "A program whose name ends in .py is run by the python3 in PATH.\n",
      .groups = {worker_flags(options), program_flags(options)},
      .after =
          "Each option is read from the environment too: PET_MAX_RESTARTS=3; the command line wins.\n"
          "The exit code is that of the first failure, 128 + n for signal n, 126 or 127 when the\n"
          "program cannot be executed, 2 for wrong use.\n",
      .prefix = "run: ",
      .variables = "PET_",
      .operands = flags::Operands::program,
      .repeats = true};
  if (dialect == Dialect::launch) table.groups.push_back(local_rank_flags(options));
  for (const flags::Group& group : {log_flags(options.plan.logs), report_flags(options), node_flags(options)})
    table.groups.push_back(group);
  return table;
}

}  // namespace lockstep::launch
