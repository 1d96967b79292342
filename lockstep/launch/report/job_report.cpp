#include "lockstep/launch/report/job_report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/atomic_file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::launch {
namespace {

using Json = nlohmann::ordered_json;

Json null_if_empty(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json end_to_json(const End& end, const AttemptRecord& attempt) {
  Json json{{"rank", attempt.node.first_rank + end.rank}, {"pid", end.pid}};
  json["exit_code"] = end.signal == 0 ? Json(end.exit_code) : Json();
  json["signal"] = end.signal != 0 ? Json(signal_name(end.signal)) : Json();
  json["seconds"] = end.when - attempt.started;
  return json;
}

Json failure_to_json(const AttemptRecord& attempt, const std::string& host) {
  const Verdict& first = *attempt.first;
  Json json{{"rank", attempt.node.first_rank + first.end.rank}, {"host", host}};
  json["pid"] = first.end.pid > 0 ? Json(first.end.pid) : Json();
  json["exit_code"] = first.end.signal == 0 && !first.still_running ? Json(first.end.exit_code) : Json();
  json["signal"] = first.end.signal != 0 ? Json(signal_name(first.end.signal)) : Json();
  json["ended_by_itself"] = !first.still_running;
  json["cause"] = null_if_empty(cause(first));
  json["out_of_memory"] = first.out_of_memory.has_value();
  json["step"] = attempt.where ? Json(attempt.where->step) : Json();
  json["phase"] = attempt.where ? Json(attempt.where->phase) : Json();
  json["message"] = first.error ? Json(first.error->message) : Json();
  json["traceback"] = first.error ? null_if_empty(first.error->traceback) : Json();
  json["followers"] = count_followers(first, attempt.ends);
  json["log"] = Json::array();
  for (const LogTail& log : attempt.log) json["log"].push_back({{"file", log.file}, {"last_lines", log.lines}});
  return json;
}

Json attempt_to_json(const AttemptRecord& attempt, const std::string& host) {
  Json json{{"restart_count", attempt.restart_count},
            {"master_port", attempt.master_port},
            {"started", attempt.started},
            {"seconds", attempt.seconds}};
  json["launcher_failure"] = null_if_empty(attempt.launcher_failure);
  json["first_failure"] = attempt.first ? failure_to_json(attempt, host) : Json();
  json["ends"] = Json::array();
  for (const End& end : attempt.ends) json["ends"].push_back(end_to_json(end, attempt));
  json["next"] = attempt.next;
  return json;
}

Json node_to_json(const NodePlace& node) {
  return {{"rank", node.rank}, {"nodes", node.nodes}, {"first_rank", node.first_rank}};
}

// Where the file really is, or empty for what must not be replaced by another file.
std::string file_behind(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const std::string whole = fs::absolute(path, error).lexically_normal().string();
  if (whole.starts_with("/dev/") || whole.starts_with("/proc/")) return {};
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status)) return {};
  const fs::path target = fs::weakly_canonical(path, error);
  return error ? path : target.string();
}

}  // namespace

void check_report_file(const std::string& path) {
  const std::string file = file_behind(path);
  if (!file.empty())
    base::AtomicFile{file};
  else if (access(path.c_str(), W_OK) != 0)
    throw UsageError("cannot write '" + path + "': " + std::strerror(errno));
}

void write_report_file(const std::string& path, const std::string& text) {
  if (const std::string file = file_behind(path); !file.empty()) {
    base::AtomicFile aside(file);
    aside.write(text.data(), text.size());
    aside.commit();
    return;
  }
  // Without waiting: a pipe that nobody reads must not hold up the end.
  const base::UniqueFd fd(open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK));
  if (!fd || write(fd.get(), text.data(), text.size()) != ssize_t(text.size()))
    throw_errno("cannot write '" + path + "'");
}

std::string to_json(const JobRecord& job, const Plan& plan) {
  Json json{{"lockstep", job.version}, {"run_id", job.run_id},       {"host", job.host},
            {"command", plan.command}, {"workers", plan.workers},    {"role", plan.logs.role},
            {"outcome", job.outcome},  {"exit_code", job.exit_code}, {"max_restarts", plan.max_restarts},
            {"started", job.started},  {"seconds", job.seconds}};
  json["stop_signal"] = null_if_empty(job.stop_signal);
  json["start_failure"] = null_if_empty(job.start_failure);
  json["attempts"] = Json::array();
  for (const AttemptRecord& attempt : job.attempts) json["attempts"].push_back(attempt_to_json(attempt, job.host));
  if (plan.nodes) {
    json["node"] = node_to_json(plan.node);
    for (std::size_t i = 0; i < job.attempts.size(); ++i) {
      json["attempts"][i]["generation"] = job.attempts[i].generation;
      json["attempts"][i]["node"] = node_to_json(job.attempts[i].node);
      json["attempts"][i]["first_failure_elsewhere"] = null_if_empty(job.attempts[i].first_elsewhere);
    }
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::launch
