#pragma once

// --download: the data set's files, before the processes of a run are started. Without libtorch.

#include <functional>
#include <string>
#include <vector>

#include "lockstep/train/options.h"

namespace lockstep::train {

/// Where a set goes that nobody has named a folder for: lockstep/SET in $XDG_CACHE_HOME, or in .cache of $HOME.
/// UsageError when neither variable is an absolute path. `variable` as getenv.
std::string cache_folder(const std::string& set, const std::function<const char*(const char*)>& variable);

/// What brings the files: the words behind `lockstep data`.
std::vector<std::string> download_words(const Options& options);

/// The words of a command line without --download and --download-mirror, and with --data-path: for the workers, whose
/// files are there by then.
std::vector<std::string> words_after_download(std::vector<std::string> words, const Options& options);

/// For a process that downloads nothing: UsageError with the command that does.
void require_no_download(const Options& options);

}  // namespace lockstep::train
