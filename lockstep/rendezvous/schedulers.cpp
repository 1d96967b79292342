#include "lockstep/rendezvous/schedulers.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/rendezvous/node_list.h"
#include "lockstep/rendezvous/own_address.h"
#include "lockstep/rendezvous/variable_reader.h"

namespace lockstep::rendezvous {
namespace {

using NodeNames = std::vector<std::string>;

// The first of `names` that is set.
std::optional<std::string> first_set(const VariableReader& read, std::initializer_list<const char*> names) {
  const auto* const found = std::ranges::find_if(names, [&](const char* name) { return read.has(name); });
  return found == names.end() ? std::nullopt : std::optional<std::string>(*found);
}

void set_names(Allocation& job, NodeNames names, const std::string& from) {
  job.host = {names.front(), from};
  job.nodes = {int(names.size()), from};
  job.names = {std::move(names), from};
}

void set_place(Allocation& job, int nodes, int rank, const std::string& from) {
  job.nodes = {nodes, from};
  job.node_rank = {rank, from};
}

// SLURM.

void read_slurm_nodes(const VariableReader& read, Allocation& job) {
  const auto list = job.task ? first_set(read, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"})
                             : first_set(read, {"SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  const auto count = job.task ? first_set(read, {"SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"})
                              : first_set(read, {"SLURM_JOB_NUM_NODES", "SLURM_NNODES"});
  if (list) set_names(job, expand_node_list(*list, read.required_text(list->c_str())), *list);
  if (!count) return;
  const int nodes = read.number(count->c_str(), 1, int(kMaxNodes));
  if (job.nodes && job.nodes->value != nodes)
    throw UsageError("environment: " + *count + "=" + std::to_string(nodes) + ", but " + *list + " names " +
                     std::to_string(job.nodes->value) + " nodes: both must be of the same step");
  job.nodes = {nodes, *count};
}

bool in_slurm_step(const VariableReader& read) {
  return read.has("SLURM_PROCID") && (read.has("SLURM_STEP_ID") || read.has("SLURM_STEPID"));
}

Allocation slurm_allocation(const VariableReader& read) {
  Allocation job{.scheduler = "SLURM"};
  job.task = in_slurm_step(read);
  read_slurm_nodes(read, job);
  if (!job.nodes) read.required_text("SLURM_JOB_NUM_NODES");
  const int nodes = job.nodes->value;
  // The script of a job runs on its first node alone, whatever its SLURM_NODEID says.
  if (job.task)
    job.node_rank = {read.number("SLURM_NODEID", 0, nodes - 1), "SLURM_NODEID"};
  else if (nodes == 1)
    job.node_rank = {0, job.nodes->from};
  if (const auto tasks = first_set(read, {job.task ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE"}))
    job.local_tasks = {
        slurm_tasks_on_node(read.required_text(tasks->c_str()), job.node_rank ? job.node_rank->value : 0), *tasks};
  return job;
}

// Launchers that know tasks, and no nodes.

struct TaskNames {
  const char* rank;
  const char* size;
  const char* local_size;
};

Allocation allocation_by_tasks(const VariableReader& read, const std::string& name, const TaskNames& names) {
  Allocation job{.scheduler = name, .task = true};
  const int size = read.number(names.size, 1);
  const int rank = read.number(names.rank, 0, size - 1);
  if (!read.has(names.local_size) && size > 1) return job;
  const int local = size == 1 ? 1 : read.number(names.local_size, 1, size);
  job.local_tasks = {local, size == 1 ? names.size : names.local_size};
  if (local == size) set_place(job, 1, 0, names.local_size);
  // As far as this node can tell; a node with more tasks refuses them.
  else if (local == 1)
    set_place(job, size, rank, std::string(names.size) + ", " + names.rank);
  return job;
}

// Schedulers that name a node for each of its slots.

bool is_name(std::string_view word) {
  return !word.empty() && word.size() <= 253 && std::ranges::all_of(word, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' ||
           c == '_';
  });
}

// Nodes with their slots, in the order in which they come first.
class Slots {
 public:
  explicit Slots(std::string place) : place_(std::move(place)) {}

  void add(const std::string& name, int slots) {
    if (!is_name(name)) throw UsageError(place_ + ": '" + base::shown(name.substr(0, 100)) + "' is no host name");
    const auto [found, is_new] = index_.try_emplace(name, names_.size());
    if (is_new) {
      if (names_.size() == kMaxNodes) throw UsageError(place_ + ": more than " + std::to_string(kMaxNodes) + " nodes");
      names_.push_back(name);
      slots_.push_back(0);
    }
    slots_[found->second] += slots;
  }

  void tell(Allocation& job, const Surroundings& here, const std::string& from) const {
    if (names_.empty()) throw UsageError(place_ + " names no node");
    set_names(job, names_, from);
    const auto mine = std::ranges::find_if(names_, [&](const std::string& name) {
      return same_host(name, here.host_name) || (!here.full_name.empty() && same_host(name, here.full_name));
    });
    if (mine == names_.end()) return;
    const std::size_t rank = std::size_t(mine - names_.begin());
    job.node_rank = {int(rank), from + " and this host's name"};
    job.local_tasks = {slots_[rank], from};
  }

 private:
  std::string place_;
  NodeNames names_;
  std::vector<int> slots_;
  std::unordered_map<std::string, std::size_t> index_;
};

std::string content_of(const Surroundings& here, const VariableReader& read, const char* variable) {
  const std::string path = read.required_text(variable);
  const auto text = here.read(path);
  if (!text) throw UsageError("environment: " + std::string(variable) + "=" + path + " cannot be read");
  return *text;
}

// A node in each line, once for each slot; what follows a blank is something else ("node1 !x86", LSF).
void add_lines(Slots& slots, const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos) continue;
    slots.add(line.substr(begin, line.find_first_of(" \t\r", begin) - begin), 1);
  }
}

// "node1 4 node2 4".
void add_counted(Slots& slots, const std::string& text, const std::string& place) {
  std::istringstream words(text);
  for (std::string name, digits; words >> name;) {
    int count = 0;
    words >> digits;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
    if (!words || error != std::errc() || end != digits.data() + digits.size() || count < 1 || count > 100'000)
      throw UsageError(place + " has no number of slots behind " + base::shown(name.substr(0, 100)) +
                       " (expected for example node1 4 node2 4)");
    slots.add(name, count);
  }
}

Allocation lsf_allocation(const VariableReader& read, const Surroundings& here) {
  Allocation job{.scheduler = "LSF"};
  const std::string from = *first_set(read, {"LSB_DJOB_HOSTFILE", "LSB_MCPU_HOSTS", "LSB_HOSTS"});
  const std::string value = read.required_text(from.c_str());
  const std::string place = "environment: " + from + "=" + base::shown(value.substr(0, 200));
  Slots slots(place);
  if (from == "LSB_DJOB_HOSTFILE") {
    add_lines(slots, content_of(here, read, "LSB_DJOB_HOSTFILE"));
  } else if (from == "LSB_MCPU_HOSTS") {
    add_counted(slots, value, place);
  } else {
    std::istringstream words(value);
    for (std::string name; words >> name;) slots.add(name, 1);
  }
  slots.tell(job, here, from);
  return job;
}

Allocation pbs_allocation(const VariableReader& read, const Surroundings& here) {
  Allocation job{.scheduler = "PBS"};
  Slots slots("environment: PBS_NODEFILE=" + base::shown(read.required_text("PBS_NODEFILE").substr(0, 200)));
  add_lines(slots, content_of(here, read, "PBS_NODEFILE"));
  slots.tell(job, here, "PBS_NODEFILE");
  return job;
}

// Kubernetes.

// The number at the end of a pod's name: {"web-", 3} of "web-3". Ordinals have no leading zeros; four digits at most
// tell them from the five random characters at the end of a deployment's pod.
std::optional<std::pair<std::string, int>> split_ordinal(const std::string& name) {
  const std::size_t dash = name.rfind('-');
  if (dash == std::string::npos || dash == 0) return std::nullopt;
  const std::string digits = name.substr(dash + 1);
  if (digits.empty() || digits.size() > 4 || digits.find_first_not_of("0123456789") != std::string::npos ||
      (digits.size() > 1 && digits.front() == '0'))
    return std::nullopt;
  return std::pair(name.substr(0, dash + 1), std::stoi(digits));
}

std::optional<Allocation> kubernetes_allocation(const VariableReader& read, const Surroundings& here) {
  const auto ordinal = split_ordinal(short_name(here.host_name));
  const bool indexed = read.has("JOB_COMPLETION_INDEX");
  if (!indexed && !ordinal) return std::nullopt;
  Allocation job{.scheduler = "Kubernetes"};
  const std::string by_name = "the host name " + here.host_name;
  job.node_rank = indexed
                      ? Told<int>{read.number("JOB_COMPLETION_INDEX", 0, int(kMaxNodes) - 1), "JOB_COMPLETION_INDEX"}
                      : Told<int>{ordinal->second, by_name};
  // Pods of a headless service find each other by names that have its domain.
  const std::size_t dot = here.full_name.find('.');
  if (ordinal && dot != std::string::npos && short_name(here.full_name) == short_name(here.host_name))
    job.host = {ordinal->first + "0" + here.full_name.substr(dot), by_name + " and its domain"};
  return job;
}

std::string canonical_name(const std::string& name) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_CANONNAME;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &wanted, &found) != 0) return {};
  std::string full = found->ai_canonname != nullptr ? found->ai_canonname : "";
  freeaddrinfo(found);
  return full;
}

std::optional<std::string> whole_file(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  constexpr std::size_t most = 32 << 20;  // kMaxNodes lines with many slots each
  for (char piece[65536]; file && text.size() < most;) {
    file.read(piece, sizeof piece);
    text.append(piece, std::size_t(file.gcount()));
  }
  return file.eof() ? std::optional(text) : std::nullopt;
}

[[noreturn]] void not_told(const Allocation& job, const std::string& what, const std::string& instead) {
  throw UsageError("run: --nnodes auto: " + job.scheduler + " does not tell " + what + ": " + instead);
}

}  // namespace

bool is_task(const GetEnv& get) {
  const VariableReader read(get, "the scheduler");
  return read.has("OMPI_COMM_WORLD_RANK") || read.has("PMI_RANK") || in_slurm_step(read) || read.has("PMIX_RANK");
}

std::optional<Allocation> find_allocation(const Surroundings& here) {
  const VariableReader read(here.get, "the scheduler");
  if (read.has("OMPI_COMM_WORLD_RANK"))
    return allocation_by_tasks(read, "Open MPI",
                               {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"});
  if (read.has("PMI_RANK") && (read.has("MPI_LOCALRANKID") || !in_slurm_step(read)))  // srun's pmi2 sets PMI_RANK too
    return allocation_by_tasks(read, "MPICH", {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"});
  if (read.has("SLURM_JOB_ID")) return slurm_allocation(read);
  if (read.has("PMIX_RANK")) return Allocation{.scheduler = "PMIx", .task = true};
  if (first_set(read, {"LSB_DJOB_HOSTFILE", "LSB_MCPU_HOSTS", "LSB_HOSTS"})) return lsf_allocation(read, here);
  if (read.has("PBS_NODEFILE")) return pbs_allocation(read, here);
  if (read.has("KUBERNETES_SERVICE_HOST")) return kubernetes_allocation(read, here);
  return std::nullopt;
}

std::optional<Allocation> find_allocation() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return find_allocation(
      {[](const char* variable) { return ::getenv(variable); }, whole_file, name, canonical_name(name)});
}

void require_one_task_a_node(const Allocation& job, const std::string& asked) {
  if (!job.task || !job.local_tasks || job.local_tasks->value <= 1) return;
  throw UsageError("run: --nnodes " + asked + ": " + job.scheduler + " has started " +
                   std::to_string(job.local_tasks->value) + " tasks on this node (" + job.local_tasks->from +
                   "): start one per node, its workers come from --nproc-per-node");
}

AutoNodes resolve_auto_nodes(const std::optional<Allocation>& allocation, int nodes) {
  const std::string asked = nodes > 0 ? std::to_string(nodes) : "auto";
  if (!allocation)
    throw UsageError(
        "run: --nnodes auto: no scheduler has started this process (looked for SLURM, Open MPI, MPICH, PMIx, LSF, PBS, "
        "Kubernetes): give the number, --nnodes N");
  const Allocation& job = *allocation;
  require_one_task_a_node(job, asked);
  AutoNodes result;
  if (!job.nodes && nodes == 0) not_told(job, "the number of nodes", "give it, --nnodes N");
  result.nodes = nodes > 0 ? nodes : job.nodes->value;
  result.because = job.scheduler + ": " + std::to_string(result.nodes) + (result.nodes == 1 ? " node (" : " nodes (") +
                   (nodes > 0 ? "--nnodes" : job.nodes->from) + ")";
  if (result.nodes == 1) return result;
  if (!job.node_rank)
    not_told(job, "which of " + std::to_string(result.nodes) + " nodes this is",
             job.scheduler == "SLURM" ? "the job's script runs on the first node alone; start the launcher by srun "
                                        "--ntasks-per-node=1"
                                      : "give it, --node-rank R");
  result.node_rank = job.node_rank->value;
  if (result.node_rank >= result.nodes)
    throw UsageError("run: --nnodes " + asked + ": this is node " + std::to_string(result.node_rank) + " by " +
                     job.node_rank->from + ", but there are " + std::to_string(result.nodes) +
                     " nodes: their ranks are 0 to " + std::to_string(result.nodes - 1));
  result.because += ", this is node " + std::to_string(result.node_rank) + " (" + job.node_rank->from + ")";
  if (job.host) {
    result.host = job.host->value;
    result.because += ", they meet at " + result.host + " (" + job.host->from + ")";
  }
  return result;
}

}  // namespace lockstep::rendezvous
