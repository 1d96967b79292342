#include "lockstep/launch/output/logs.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

constexpr const char* kNoFiles = "/dev/null";

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> items(1);
  for (const char c : text) c == ',' ? void(items.emplace_back()) : items.back().push_back(c);
  return items;
}

// A number in plain digits; from_chars alone would take "-1".
std::optional<int> plain_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || text.front() == '-' || error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

std::optional<Std> streams(std::string_view text) {
  if (text.size() != 1 || text[0] < '0' || text[0] > '3') return {};
  return Std(text[0] - '0');
}

bool has(Std set, Std stream) { return (int(set) & int(stream)) != 0; }

bool shown(const LogOptions& options, int local_rank) {
  const auto& ranks = options.console_ranks;
  return ranks.empty() || std::find(ranks.begin(), ranks.end(), local_rank) != ranks.end();
}

struct StreamNames {
  Std stream;
  const char* file;
  const char* filter_file;
};

StreamLog plan_stream(const LogOptions& options, const StreamNames& names, const std::string& folder, int local_rank) {
  StreamLog log;
  if (options.dir == kNoFiles) return log;
  const bool tee = has(options.tee.of(local_rank), names.stream);
  const bool visible = shown(options, local_rank);
  const bool filtered = !(names.stream == Std::out ? options.stdout_filters : options.stderr_filters).empty();
  if (tee || has(options.redirects.of(local_rank), names.stream)) {
    log.sink = StreamLog::Sink::file;
    if (!folder.empty()) log.file = folder + "/" + names.file;
    log.console = tee && visible;
    if (log.console && filtered && !folder.empty())
      log.filter_file = folder.substr(0, folder.rfind('/') + 1) + names.filter_file;
  } else if (!visible) {
    log.sink = StreamLog::Sink::null;
  }
  return log;
}

[[noreturn]] void refuse_folder(const std::string& path, int error) {
  throw UsageError("--log-dir: cannot make '" + path + "': " + std::strerror(error) +
                   "; a folder that can be written to is needed");
}

std::string make_unique(const std::string& start) {
  std::string path = start + "XXXXXX";
  if (mkdtemp(path.data()) == nullptr) refuse_folder(start + "...", errno);
  return path;
}

}  // namespace

StdMap StdMap::parse(const std::string& flag, const std::string& value) {
  const auto refuse = [&](const std::string& why) {
    throw UsageError(flag + " '" + value + "': " + why +
                     "; right are 0 to 3 (none, stdout, stderr, both) or local ranks with them, as in 0:3,1:2");
  };
  StdMap map;
  if (const auto all = streams(value)) {
    map.others_ = *all;
    return map;
  }
  for (const std::string& item : split(value)) {
    const std::size_t colon = item.find(':');
    const auto rank = plain_number(std::string_view(item).substr(0, colon));
    const auto wanted = colon == std::string::npos ? std::nullopt : streams(std::string_view(item).substr(colon + 1));
    if (!rank || !wanted) refuse("'" + item + "' is not understood");
    if (!map.named_.emplace(*rank, *wanted).second) refuse("local rank " + std::to_string(*rank) + " is named twice");
  }
  return map;
}

Std StdMap::of(int local_rank) const {
  const auto found = named_.find(local_rank);
  return found != named_.end() ? found->second : others_;
}

std::vector<int> StdMap::named() const {
  std::vector<int> ranks;
  for (const auto& [rank, streams] : named_) ranks.push_back(rank);
  return ranks;
}

void require_ranks(const std::string& flag, const std::vector<int>& ranks, int workers) {
  for (const int rank : ranks)
    if (rank >= workers)
      throw UsageError(flag + ": there is no local rank " + std::to_string(rank) + "; the job has " +
                       (workers == 1 ? "one, 0" : "0 to " + std::to_string(workers - 1)));
}

std::vector<int> parse_ranks(const std::string& flag, const std::string& value) {
  std::vector<int> ranks;
  if (value.empty()) return ranks;
  for (const std::string& item : split(value)) {
    const auto rank = plain_number(item);
    if (!rank)
      throw UsageError(flag + " '" + value + "': '" + item +
                       "' is no local rank; right are numbers with commas between, as in 0,1,2");
    ranks.push_back(*rank);
  }
  return ranks;
}

std::vector<std::string> parse_filters(const std::string& flag, const std::string& value) {
  std::vector<std::string> filters(1);
  if (value.empty()) return {};
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (value[i] != ',')
      filters.back() += value[i];
    else if (i + 1 < value.size() && value[i + 1] == ',')
      filters.back() += value[i++];
    else
      filters.emplace_back();
  }
  if (std::find(filters.begin(), filters.end(), "") != filters.end())
    throw UsageError(flag + " '" + value +
                     "': an empty filter matches every line; right are words with commas between, two for a comma");
  return filters;
}

std::vector<RankLogs> plan_logs(const LogOptions& options, const std::string& run_folder, int attempt, int workers,
                                int first_rank) {
  const bool files = options.dir != kNoFiles && !run_folder.empty();
  std::vector<RankLogs> logs;
  for (int rank = 0; rank < workers; ++rank) {
    RankLogs& log = logs.emplace_back();
    const std::string name = std::to_string(first_rank + rank);
    const std::string folder = files ? run_folder + "/attempt_" + std::to_string(attempt) + "/" + name : "";
    log.out = plan_stream(options, {Std::out, "stdout.log", "filtered_stdout.log"}, folder, rank);
    log.err = plan_stream(options, {Std::err, "stderr.log", "filtered_stderr.log"}, folder, rank);
    log.prefix = options.prefix_template.empty()
                     ? "[" + options.role + name + "]:"
                     : expand_prefix(options.prefix_template, options.role, first_rank + rank, rank);
    if (!files) continue;
    log.folder = folder;
    log.error_file = log.folder + "/error.json";
  }
  return logs;
}

bool wants_folder(const LogOptions& options, int workers) {
  if (!options.dir.empty()) return options.dir != kNoFiles;
  return wants_router(plan_logs(options, "", 0, workers));
}

bool wants_router(const std::vector<RankLogs>& logs) {
  const auto file = [](const StreamLog& log) { return log.sink == StreamLog::Sink::file; };
  return std::any_of(logs.begin(), logs.end(), [&](const RankLogs& log) { return file(log.out) || file(log.err); });
}

std::string expand_prefix(const std::string& text, const std::string& role, int rank, int local_rank) {
  const std::map<std::string, std::string, std::less<>> values = {
      {"role_name", role}, {"rank", std::to_string(rank)}, {"local_rank", std::to_string(local_rank)}};
  const auto in_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != '$') {
      result += text[i++];
      continue;
    }
    if (i + 1 < text.size() && text[i + 1] == '$') {
      result += '$';
      i += 2;
      continue;
    }
    const bool braces = i + 1 < text.size() && text[i + 1] == '{';
    const std::size_t begin = i + (braces ? 2 : 1);
    std::size_t end = begin;
    while (end < text.size() && in_name(text[end])) ++end;
    const auto value = values.find(std::string_view(text).substr(begin, end - begin));
    const bool known = value != values.end() && (!braces || (end < text.size() && text[end] == '}'));
    result += known ? value->second : std::string(1, '$');
    i = known ? end + (braces ? 1 : 0) : i + 1;
  }
  return result;
}

std::string make_run_folder(const std::string& dir, const std::string& run_id) {
  if (dir == kNoFiles) return {};
  if (run_id.find('/') != std::string::npos)
    throw UsageError("run id '" + run_id + "' names the folder of the logs and can have no '/'");
  std::string base = dir;
  std::error_code error;
  if (dir.empty()) {
    const char* temporary = std::getenv("TMPDIR");
    base = make_unique(std::string(temporary != nullptr && *temporary != '\0' ? temporary : "/tmp") + "/lockstep_");
  } else {
    std::error_code ignored;
    std::filesystem::create_directories(dir, error);
    if (!std::filesystem::is_directory(dir, ignored)) refuse_folder(dir, error ? error.value() : ENOTDIR);
  }
  return make_unique(base + "/" + run_id + "_");
}

void make_attempt_folders(const std::vector<RankLogs>& logs) {
  std::error_code error;
  for (const RankLogs& log : logs) {
    if (log.folder.empty()) continue;
    // What an earlier attempt of the same number left would be taken for this one's.
    if (&log == &logs.front()) std::filesystem::remove_all(std::filesystem::path(log.folder).parent_path(), error);
    std::filesystem::create_directories(log.folder, error);
    if (error) refuse_folder(log.folder, error.value());
  }
}

}  // namespace lockstep::launch
