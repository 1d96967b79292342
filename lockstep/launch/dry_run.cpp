#include "lockstep/launch/dry_run.h"

#include <algorithm>

#include "lockstep/base/text.h"

namespace lockstep::launch {
namespace {

constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";

std::string quoted(const std::string& word) {
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

std::string restart_rule(const Plan& plan) {
  if (plan.max_restarts == 0) return "none";
  std::vector<std::string> codes;
  for (const int code : plan.no_restart_codes) codes.push_back(std::to_string(code));
  return "at most " + std::to_string(plan.max_restarts) +
         (codes.empty() ? "" : ", not after exit code " + base::join(codes));
}

}  // namespace

std::string shell_words(const std::vector<std::string>& command) {
  std::vector<std::string> words;
  std::ranges::transform(command, std::back_inserter(words), quoted);
  return base::join(words, " ");
}

std::string describe_plan(const Plan& plan, const Environment& inherited, int cores) {
  const Attempt attempt{.run_id = plan.run_id.empty() ? "(random)" : plan.run_id,
                        .restart_count = 0,
                        .master_port = plan.master_port,
                        .segment_path = "(the agent's)",
                        .cores = cores};
  std::string text = "workers: " + std::to_string(plan.workers) + " on " + std::to_string(cores) +
                     (cores == 1 ? " core\n" : " cores\n") + "restarts: " + restart_rule(plan) + "\n" +
                     "grace period: " + std::to_string(plan.grace.count()) + " ms\n";
  if (wants_folder(plan.logs, plan.workers))
    text += "log files: " + (plan.logs.dir.empty() ? "a new folder in TMPDIR" : plan.logs.dir) + "\n";
  if (!plan.report.empty()) text += "report: " + plan.report + "\n";
  for (int local_rank = 0; local_rank < plan.workers; ++local_rank) {
    text += "rank " + std::to_string(plan.node.first_rank + local_rank) + ": " +
            shell_words(worker_command(plan.command, local_rank)) + "\n";
    for (const std::string& entry : worker_environment(inherited, plan, attempt, local_rank, "(the agent's)")) {
      if (std::ranges::find(inherited, entry) != inherited.end()) continue;
      text += "  " + (entry == "MASTER_PORT=0" ? "MASTER_PORT=(a free one)" : entry) + "\n";
    }
  }
  return text;
}

}  // namespace lockstep::launch
