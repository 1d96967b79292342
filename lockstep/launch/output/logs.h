#pragma once

// What happens to the output of each worker, by the rules of torchrun 2.11: pure functions,
// and the folders they need. Carried out by LogRouter (log_router.h).
//
//   <dir>/<run id>_<random>/attempt_<n>/<rank>/{stdout.log,stderr.log,error.json}
//   <dir>/<run id>_<random>/attempt_<n>/{filtered_stdout.log,filtered_stderr.log}

#include <map>
#include <string>
#include <vector>

namespace lockstep::launch {

/// Which standard streams; the numbers are those of the command line.
enum class Std { none = 0, out = 1, err = 2, all = 3 };

/// The streams of each local rank, as -r/--redirects and -t/--tee give them.
class StdMap {
 public:
  /// No stream of any rank.
  StdMap() = default;
  /// "3" for all ranks, or "0:3,12:1": ranks that are not named have none. `flag` is for the
  /// message. UsageError for any other text and for a rank that is named twice (torchrun
  /// takes the last, and knows ranks of one digit only).
  static StdMap parse(const std::string& flag, const std::string& value);

  Std of(int local_rank) const;
  /// The ranks that are named one by one.
  std::vector<int> named() const;

 private:
  Std others_ = Std::none;
  std::map<int, Std> named_;
};

/// "0,1,12": the value of --local-ranks-filter; "" is the empty list. UsageError otherwise.
std::vector<int> parse_ranks(const std::string& flag, const std::string& value);

/// "apple,orange": the value of --duplicate-std*-filters; two commas stand for one in the text.
/// UsageError for an empty filter, which every line would match.
std::vector<std::string> parse_filters(const std::string& flag, const std::string& value);

/// Throws UsageError when one of `ranks`, a flag's, is none of the job's: its output would be nowhere.
void require_ranks(const std::string& flag, const std::vector<int>& ranks, int workers);

struct LogOptions {
  std::string dir;                          ///< --log-dir; empty: a temporary one; "/dev/null": no files at all
  StdMap redirects;                         ///< to a file
  StdMap tee;                               ///< to a file, and copied from there to the console
  std::vector<int> console_ranks;           ///< local ranks seen on the console; empty: all
  std::vector<std::string> stdout_filters;  ///< lines of tee'd streams with one of these are copied once more
  std::vector<std::string> stderr_filters;
  std::string prefix_template;  ///< TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE; empty: "[${role_name}${rank}]:"
  std::string role = "default";
};

/// One standard stream of one worker.
struct StreamLog {
  enum class Sink { inherited, null, file };
  Sink sink = Sink::inherited;
  std::string file;         ///< for Sink::file
  bool console = false;     ///< the file is copied to the agent's stream of the same number
  std::string filter_file;  ///< where lines that match a filter go; empty: nowhere
};

struct RankLogs {
  StreamLog out;
  StreamLog err;
  std::string prefix;      ///< of each line on the console and in the filter file
  std::string folder;      ///< of this rank; empty when there are no files at all
  std::string error_file;  ///< TORCHELASTIC_ERROR_FILE; empty when there are no files at all
};

/// The streams of `workers` local ranks whose global ranks begin at `first_rank`. Not shown by
/// the filter of ranks means: a file where one is asked for, else /dev/null. `run_folder` is
/// what make_run_folder gave; empty: there is none, and every file is named "".
std::vector<RankLogs> plan_logs(const LogOptions& options, const std::string& run_folder, int attempt, int workers,
                                int first_rank = 0);

/// True when some stream of these workers goes to a file, or --log-dir was given: torchrun
/// makes its folder always, we do not litter TMPDIR for a job that wants no logs.
bool wants_folder(const LogOptions& options, int workers);

/// True when some output has to pass through a LogRouter.
bool wants_router(const std::vector<RankLogs>& logs);

/// `text` with $name and ${name} replaced for role_name, rank and local_rank, as Python's
/// string.Template.safe_substitute does: $$ is $, anything unknown stays.
std::string expand_prefix(const std::string& text, const std::string& role, int rank, int local_rank);

/// Makes the folder of a run, `<dir>/<run_id>_<random>`, mode 0700, and returns its path. An empty
/// `dir` is a new folder lockstep_<random> in TMPDIR (mode 0700); a missing one is made.
/// UsageError naming path and reason: `dir` is a file, cannot be made, is not writable.
/// "/dev/null" makes nothing and returns "".
std::string make_run_folder(const std::string& dir, const std::string& run_id);

/// Makes the folders of one attempt, emptied when they exist. UsageError as above.
void make_attempt_folders(const std::vector<RankLogs>& logs);

}  // namespace lockstep::launch
