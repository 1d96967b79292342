#include "lockstep/launch/flags.h"

#include <string.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <csignal>
#include <numeric>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::launch {
namespace {

using Apply = std::function<void(Options&, const std::string& name, const std::string& value)>;

UsageError wrong(const std::string& name, const std::string& value, const std::string& right) {
  return UsageError("run: " + name + " '" + value + "' is not " + right);
}

Apply text(std::string Options::*member) {
  return [member](Options& options, const std::string&, const std::string& value) { options.*member = value; };
}

Apply turn_on(bool Options::*member, bool value = true) {
  return [member, value](Options& options, const std::string&, const std::string&) { options.*member = value; };
}

Apply one_of(const std::vector<std::string>& valid, std::string Options::*member = nullptr) {
  return [valid, member](Options& options, const std::string& name, const std::string& value) {
    if (std::ranges::find(valid, value) == valid.end()) throw wrong(name, value, "one of " + base::join(valid));
    if (member != nullptr) options.*member = value;
  };
}

std::chrono::milliseconds seconds(const std::string& name, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value <= 86'400))
    throw wrong(name, text, "a number of seconds from 0 to 86400");
  return std::chrono::milliseconds(std::lround(value * 1000));
}

// "1" and "1:1"; more nodes are another issue.
void one_node(Options&, const std::string& name, const std::string& value) {
  const std::size_t colon = value.find(':');
  const int least = number(name, value.substr(0, colon), 1, 1'000'000);
  const int most = colon == std::string::npos ? least : number(name, value.substr(colon + 1), 1, 1'000'000);
  if (least > most) throw wrong(name, value, "a range MIN:MAX");
  if (most > 1) throw UsageError("run: " + name + " " + value + ": several nodes: not yet; this command starts one");
}

void rendezvous_conf(Options&, const std::string& name, const std::string& value) {
  std::istringstream pairs(value);
  for (std::string pair; std::getline(pairs, pair, ',');)
    if (const std::size_t equals = pair.find('='); equals == 0 || equals == std::string::npos)
      throw wrong(name, value, "a list of key=value");
}

// The number of a signal by its name, "SIGTERM" or "TERM"; 0 when there is none.
int signal_number(std::string name) {
  if (name.starts_with("SIG")) name.erase(0, 3);
  for (int signal = 1; signal < NSIG; ++signal)
    if (const char* known = sigabbrev_np(signal); known != nullptr && name == known) return signal;
  return 0;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) {
    word.erase(0, word.find_first_not_of(' '));
    word.erase(word.find_last_not_of(' ') + 1);
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

std::vector<Flag> worker_flags() {
  return {
      {{"-n", "--nproc-per-node"},
       "N",
       "workers: a number, or auto, cpu, gpu (default 1)",
       text(&Options::nproc_per_node)},
      {{"--max-restarts"},
       "N",
       "start all workers again after a failure, at most N times (default 0)",
       [](Options& options, const std::string& name, const std::string& value) {
         options.plan.max_restarts = number(name, value, 0, 1'000'000);
       }},
      {{"--no-restart-codes"},
       "LIST",
       "not after these exit codes, as 2,64-78,SIGSEGV (default none)",
       [](Options& options, const std::string& name, const std::string& value) {
         options.plan.no_restart_codes = parse_codes(name, value);
       }},
      {{"--grace-period"},
       "SECONDS",
       "from SIGTERM to SIGKILL when the job ends early (default 10)",
       [](Options& options, const std::string& name, const std::string& value) {
         options.plan.grace = seconds(name, value);
       }},
      {{"--signals-to-handle"},
       "LIST",
       "what ends the job in good order (default SIGTERM,SIGINT,SIGHUP,SIGQUIT)",
       [](Options& options, const std::string& name, const std::string& value) {
         options.plan.signals = parse_signals(name, value);
       }},
  };
}

std::vector<Flag> program_flags() {
  return {
      {{"--role"},
       "NAME",
       "ROLE_NAME of the workers, and their name in logs (default default)",
       [](Options& options, const std::string&, const std::string& value) { options.plan.logs.role = value; }},
      {{"--virtual-local-rank"},
       "",
       "LOCAL_RANK is 0 for all, each sees one GPU in CUDA_VISIBLE_DEVICES",
       [](Options& options, const std::string&, const std::string&) { options.plan.virtual_local_rank = true; }},
      {{"-m", "--module"}, "", "the program is a Python module: python -m", turn_on(&Options::module)},
      {{"--no-python"}, "", "execute the program itself even if its name ends in .py", turn_on(&Options::no_python)},
      {{"--run-path"}, "", "run the program by Python whatever its name", turn_on(&Options::run_path)},
      {{"--numa-binding"},
       "MODE",
       "bind workers to NUMA nodes; needs a machine with several",
       [](Options& options, const std::string& name, const std::string& value) {
         one_of({"node", "socket", "exclusive", "core-complex"})(options, name, value);
         options.numa_binding = value;
       }},
  };
}

std::vector<Flag> node_flags() {
  const Apply nothing = [](Options&, const std::string&, const std::string&) {};
  return {
      {{"--nnodes"}, "N", "nodes; only 1 (or 1:1) yet", one_node},
      {{"--node-rank"},
       "N",
       "this node's rank; only 0 yet",
       [](Options&, const std::string& name, const std::string& value) {
         if (number(name, value, 0, 1'000'000) > 0)
           throw UsageError("run: " + name + " " + value + ": several nodes: not yet; the only node has rank 0");
       }},
      {{"--standalone"},
       "",
       "one machine: always so yet; the --rdzv- flags are ignored, as torchrun does",
       turn_on(&Options::standalone)},
      {{"--master-addr"},
       "ADDRESS",
       "MASTER_ADDR; must be this machine (default 127.0.0.1)",
       text(&Options::master_addr)},
      {{"--master-port"},
       "PORT",
       "MASTER_PORT; must be free (default: a free one, another for each restart)",
       [](Options& options, const std::string& name, const std::string& value) {
         options.master_port = number(name, value, 0, 65'535);
       }},
      {{"--local-addr"},
       "ADDRESS",
       "this machine's address, MASTER_ADDR with --rdzv-backend c10d",
       text(&Options::local_addr)},
      {{"--rdzv-backend"},
       "NAME",
       "static or c10d; one node needs none (default static)",
       one_of({"static", "c10d"}, &Options::rdzv_backend)},
      {{"--rdzv-endpoint"},
       "HOST:PORT",
       "must be this machine; static: MASTER_ADDR and MASTER_PORT",
       text(&Options::rdzv_endpoint)},
      {{"--rdzv-id"},
       "ID",
       "TORCHELASTIC_RUN_ID, and the name of log folders (default: random)",
       text(&Options::rdzv_id)},
      {{"--rdzv-conf"}, "LIST", "accepted, unused: one node has nothing to agree upon", rendezvous_conf},
      {{"--monitor-interval"},
       "SECONDS",
       "accepted, unused: nothing is polled",
       [](Options&, const std::string& name, const std::string& value) { seconds(name, value); }},
      {{"--start-method"},
       "METHOD",
       "accepted, unused: workers are always executed",
       one_of({"spawn", "fork", "forkserver"})},
      {{"--event-log-handler"},
       "NAME",
       "only null: there is no Python here to hold others (see --report)",
       one_of({"null"})},
      {{"--logs-specs"},
       "NAME",
       "refused: a Python entry point",
       [](Options&, const std::string& name, const std::string& value) {
         throw UsageError("run: " + name + " " + value + ": Python entry points cannot be loaded here");
       }},
  };
}

std::vector<Flag> log_flags() {
  return {
      {{"--log-dir"},
       "FOLDER",
       "where log files go, as torchrun lays them out (default: a new folder in TMPDIR)",
       [](Options& options, const std::string&, const std::string& value) { options.plan.logs.dir = value; }},
      {{"-r", "--redirects"},
       "STREAMS",
       "to files: 0 none, 1 stdout, 2 stderr, 3 both; by rank: 0:3,1:2",
       [](Options& options, const std::string& name, const std::string& value) {
         options.plan.logs.redirects = StdMap::parse(name, value);
       }},
      {{"-t", "--tee"},
       "STREAMS",
       "to files and to the console",
       [](Options& options, const std::string& name, const std::string& value) {
         options.plan.logs.tee = StdMap::parse(name, value);
       }},
      {{"--local-ranks-filter"},
       "RANKS",
       "only these ranks on the console, as 0,1 (default all)",
       [](Options& options, const std::string& name, const std::string& value) {
         options.plan.logs.console_ranks = parse_ranks(name, value);
       }},
      {{"--duplicate-stdout-filters"},
       "LIST",
       "tee'd lines with one of these words also to filtered_stdout.log",
       [](Options& options, const std::string& name, const std::string& value) {
         options.plan.logs.stdout_filters = parse_filters(name, value);
       }},
      {{"--duplicate-stderr-filters"},
       "LIST",
       "the same for stderr",
       [](Options& options, const std::string& name, const std::string& value) {
         options.plan.logs.stderr_filters = parse_filters(name, value);
       }},
  };
}

std::vector<Flag> report_flags() {
  return {
      {{"--report"},
       "FILE",
       "write what happened to FILE as JSON, whatever the outcome",
       [](Options& options, const std::string&, const std::string& value) { options.plan.report = value; }},
      {{"--dry-run"}, "", "print the plan and start nothing", turn_on(&Options::dry_run)},
      {{"-h", "--help"}, "", "this text", turn_on(&Options::help)},
  };
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
  for (const std::string& word : split(text)) {
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
  for (const std::string& word : split(text)) {
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

std::vector<Flag> flags_of(Dialect dialect) {
  std::vector<Flag> all = worker_flags();
  const auto append = [&](std::vector<Flag> more) { std::ranges::move(more, std::back_inserter(all)); };
  append(program_flags());
  if (dialect == Dialect::launch)
    append({{{"--use-env"}, "", "do not pass --local-rank=N to the script", turn_on(&Options::use_env)},
            {{"--no-use-env"}, "", "pass it (the default)", turn_on(&Options::use_env, false)}});
  append(log_flags());
  append(report_flags());
  append(node_flags());
  return all;
}

}  // namespace lockstep::launch
