#include "lockstep/train/options_download.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::train {
namespace {

std::string flag_of(const std::string& word) {
  std::string name = word.substr(0, word.find('='));
  if (name.starts_with("--")) std::ranges::replace(name, '_', '-');
  return name;
}

}  // namespace

std::string cache_folder(const std::string& set, const std::function<const char*(const char*)>& variable) {
  const auto folder = [&](const char* name) {
    const char* const value = variable(name);
    return value != nullptr && *value == '/' ? std::string(value) : std::string();
  };
  if (const std::string cache = folder("XDG_CACHE_HOME"); !cache.empty()) return cache + "/lockstep/" + set;
  if (const std::string home = folder("HOME"); !home.empty()) return home + "/.cache/lockstep/" + set;
  throw UsageError("neither XDG_CACHE_HOME nor HOME says where the user's cache is, for " + set +
                   ": --data-path DIR or " + "--index-cache DIR names a folder");
}

std::vector<std::string> download_words(const Options& options) {
  std::vector<std::string> words = {"fetch", options.dataset, "--to", options.data_path};
  if (!options.download_mirror.empty()) words.insert(words.end(), {"--mirror", options.download_mirror});
  return words;
}

std::vector<std::string> words_after_download(std::vector<std::string> words, const Options& options) {
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string flag = flag_of(words[i]);
    const bool takes_value = flag == "--data-path" || flag == "--data-dir" || flag == "--download-mirror";
    if (flag != "--download" && !takes_value) rest.push_back(std::move(words[i]));
    if (takes_value && words[i].find('=') == std::string::npos) ++i;
  }
  rest.insert(rest.end(), {"--data-path", options.data_path});
  return rest;
}

void require_no_download(const Options& options) {
  if (!options.download) return;
  throw UsageError("--download is for lockstep train, before it starts processes: lockstep data " +
                   base::join(download_words(options), " "));
}

}  // namespace lockstep::train
