#include "lockstep/trace/trace_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <utility>

#include "lockstep/base/atomic_file.h"
#include "lockstep/base/text.h"

namespace lockstep::trace {
namespace {

namespace fs = std::filesystem;

// A thousand calls take 300 KB.
constexpr std::uintmax_t kLargest = std::uintmax_t(1) << 30;

std::string read_file(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = fs::is_regular_file(path, error) ? fs::file_size(path, error) : 0;
  std::ifstream file(path, std::ios::binary);
  if (error || !file || !fs::is_regular_file(path, error))
    throw UsageError(path + ": cannot be read: a trace file or a folder with some expected");
  if (size > kLargest) throw UsageError(path + ": is larger than any trace, " + base::size_text(size));
  return {std::istreambuf_iterator<char>(file), {}};
}

// By attempt, in the order of their names.
std::map<std::int64_t, std::vector<std::string>> files_below(const std::string& folder) {
  static const std::regex name("trace_attempt_([0-9]{1,9})_rank_[0-9]{1,9}\\.json");
  std::map<std::int64_t, std::vector<std::string>> files;
  std::error_code error;
  const auto skip = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator at(folder, skip, error), end; !error && at != end; at.increment(error)) {
    std::smatch match;
    const std::string file = at->path().filename().string();
    if (std::regex_match(file, match, name)) files[std::stoll(match[1])].push_back(at->path().string());
  }
  if (error) throw UsageError(folder + ": cannot be read: " + error.message());
  for (auto& [attempt, found] : files) std::sort(found.begin(), found.end());
  return files;
}

std::vector<std::string> files_in(const std::string& folder, std::optional<std::int64_t> attempt) {
  const auto files = files_below(folder);
  if (files.empty()) throw UsageError(folder + ": has no trace: ranks leave them when their group is aborted");
  if (!attempt && files.size() == 1) return files.begin()->second;
  std::vector<std::string> attempts;
  for (const auto& [number, found] : files) attempts.push_back(std::to_string(number));
  if (!attempt)
    throw UsageError(folder + ": has traces of the attempts " + base::join(attempts) + ": --attempt N picks one");
  if (const auto found = files.find(*attempt); found != files.end()) return found->second;
  throw UsageError(folder + ": has no traces of attempt " + std::to_string(*attempt) + ", but of " +
                   base::join(attempts));
}

}  // namespace

std::string trace_file_name(int attempt, int rank) {
  return "trace_attempt_" + std::to_string(attempt) + "_rank_" + std::to_string(rank) + ".json";
}

void write_trace(const std::string& folder, const RankTrace& trace) {
  std::error_code error;  // what is wrong is told by the file
  fs::create_directories(folder, error);
  const std::string text = format_trace(trace);
  base::AtomicFile file(folder + "/" + trace_file_name(trace.attempt, trace.rank));
  file.write(text.data(), text.size());
  file.commit();
}

void check_together(const std::vector<RankTrace>& traces, const std::vector<std::string>& files) {
  std::map<int, std::size_t> by_rank;
  std::map<std::string, std::pair<std::vector<int>, std::size_t>> groups;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    const RankTrace &first = traces[0], &other = traces[i];
    const std::string both = files[0] + " and " + files[i];
    if (other.run != first.run)
      throw UsageError(both + " are of different runs: '" + first.run + "' and '" + other.run + "'");
    if (other.attempt != first.attempt)
      throw UsageError(both + " are of different attempts of a run: " + std::to_string(first.attempt) + " and " +
                       std::to_string(other.attempt));
    if (other.world != first.world)
      throw UsageError(both + " are of worlds of " + std::to_string(first.world) + " and " +
                       std::to_string(other.world) + " ranks");
    const auto [seen, is_new] = by_rank.emplace(other.rank, i);
    if (!is_new)
      throw UsageError(files[seen->second] + " and " + files[i] + " are both of rank " + std::to_string(other.rank));
    for (const TracedGroup& group : other.groups) {
      const auto [known, is_new_group] = groups.emplace(group.name, std::pair(group.ranks, i));
      if (!is_new_group && known->second.first != group.ranks)
        throw UsageError(files[known->second.second] + " and " + files[i] + " have different ranks in group '" +
                         group.name + "'");
    }
  }
}

std::vector<RankTrace> read_traces(const std::vector<std::string>& paths, std::optional<std::int64_t> attempt) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    for (std::string& file : files_in(path, attempt)) files.push_back(std::move(file));
  }
  std::vector<RankTrace> traces;
  for (std::string& file : files) {
    traces.push_back(parse_trace(read_file(file), base::shown(file)));
    file = base::shown(file);
  }
  check_together(traces, files);
  std::sort(traces.begin(), traces.end(), [](const RankTrace& a, const RankTrace& b) { return a.rank < b.rank; });
  return traces;
}

}  // namespace lockstep::trace
