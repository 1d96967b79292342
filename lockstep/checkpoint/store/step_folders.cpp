#include "lockstep/checkpoint/store/step_folders.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/store/aside_folder.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::size_t kDigits = 8;

}  // namespace

std::string step_name(std::uint64_t step) {
  char text[40];
  std::snprintf(text, sizeof text, "step-%08llu", static_cast<unsigned long long>(step));
  return text;
}

std::optional<std::uint64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix) || name.size() < kPrefix.size() + kDigits) return {};
  const std::string_view digits = name.substr(kPrefix.size());
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || step_name(step) != name) return {};
  return step;
}

std::vector<std::uint64_t> steps_in(const std::string& folder) {
  put_back(folder);
  std::vector<std::uint64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (const auto step = step_of(entry->path().filename().string())) steps.push_back(*step);
  // One that cannot be read may have any.
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    throw Error("reading the folder '" + base::shown(folder) + "': " + error.message());
  std::ranges::sort(steps);
  return steps;
}

std::vector<std::uint64_t> newest_first(std::vector<std::uint64_t> steps, std::optional<std::uint64_t> last) {
  const auto is_behind = [&](std::uint64_t step) { return last && step > *last; };
  std::ranges::sort(
      steps, [&](std::uint64_t a, std::uint64_t b) { return is_behind(a) != is_behind(b) ? is_behind(b) : a > b; });
  return steps;
}

std::optional<std::uint64_t> linked_step(const std::string& folder, const std::string& name) {
  std::error_code error;
  const fs::path target = fs::read_symlink(fs::path(folder) / name, error);
  const bool is_none = error == std::errc::no_such_file_or_directory || error == std::errc::invalid_argument;
  if (error && !is_none) throw Error("reading the link '" + base::shown(folder + "/" + name) + "': " + error.message());
  return error ? std::nullopt : step_of(target.string());
}

void link_step(const std::string& folder, const std::string& name, std::uint64_t step) {
  const std::string aside = aside_path(folder);
  const std::string path = folder + "/" + name;
  if (::symlink(step_name(step).c_str(), aside.c_str()) != 0) throw_errno("making the link '" + path + "'");
  if (::rename(aside.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    ::unlink(aside.c_str());
    errno = reason;
    throw_errno("making the link '" + path + "'");
  }
  sync_folder(folder);
}

}  // namespace lockstep::checkpoint
